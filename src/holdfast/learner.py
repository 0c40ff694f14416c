"""Learning: the facts in what left the window, read out of the archive one job at a time."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Final

from holdfast.memory import facts
from holdfast.memory.extract import Extraction, extract
from holdfast.memory.memory import Memory
from holdfast.models.base import Model
from holdfast.store.base import Across, Job, Record, Scope, Select

__all__ = ["EXTRACT", "jobs", "learn", "queue"]

EXTRACT: Final = "extract"
"""The kind of the jobs that read facts out of messages."""
LEARNED: Final = "learned"
"""The kind of the records that say up to which message a session was queued, by reader."""
_BATCH: Final = 400
_PAGE: Final = 2_000
_TRIES: Final = 3
"""How often a model may fail at a job before the rules have to do."""
_TIMEOUT: Final = 120.0


def jobs(ids: Sequence[int], *, scope: Scope, time: int) -> list[Job]:
    """The work of reading the facts out of messages."""
    return [
        Job(scope=scope, kind=EXTRACT, data={"ids": list(ids[start : start + _BATCH])}, time=time)
        for start in range(0, len(ids), _BATCH)
    ]


def queue(memory: Memory, *, scope: Scope, across: Across = False, reader: str = "rules") -> int:
    """Queue the messages of a session, or `across` all of the agent's, that this reader has not been given before.

    Args:
        memory: Where the messages are, and the queue.
        scope: Whose messages.
        across: Whether those of the agent's other sessions are meant too; see `Across`.
        reader: The name of the model that will read them, or `rules`.

    Returns:
        How many messages will be read.
    """
    records = memory.store.fetch(Select(kind="record", scope=scope, across=across, name=LEARNED, keys=(reader,)))
    read = {record.scope: int(record.data["last"]) for record in records}
    now, last, count = memory.clock(), 0, 0
    while rows := memory.store.fetch(Select(kind="message", scope=scope, across=across, after=last, limit=_PAGE)):
        last = rows[-1].id
        waiting: dict[Scope, list[int]] = {}
        for row in rows:
            if row.id > read.get(row.scope, 0):
                waiting.setdefault(row.scope, []).append(row.id)
        for owner, ids in waiting.items():
            done = Record(scope=owner, kind=LEARNED, key=reader, data={"last": ids[-1]}, time=now)
            memory.store.add([*jobs(ids, scope=owner, time=now), done])
            count += len(ids)
    return count


def learn(memory: Memory, model: Model | None, *, cancel: Event | None = None) -> Extraction | None:
    """Do the oldest job, whosever it is; None where there is none.

    What was learned is durable before the job is gone. A crash between the two only has it done again, which
    adds nothing. What a failing model did not read becomes a job of its own, and after some tries the rules do.
    Where a message was forgotten while it was read, nothing is kept: the job is done again without it.
    """
    job = next(iter(memory.store.waiting(EXTRACT, limit=1)), None)
    if job is None:
        return None
    tries = int(job.data.get("tries", 0))
    read = memory.store.fetch(Select(kind="message", scope=job.scope, ids=tuple(job.data.get("ids", ()))))
    found = extract(
        read,
        scope=job.scope,
        model=model if tries < _TRIES else None,
        known=facts.known(memory.store, job.scope),
        settings=memory.settings,
        now=memory.clock(),
        marks=memory.marks,
        timeout=_TIMEOUT,
        cancel=cancel,
    )
    if len(memory.get([row.id for row in read], scope=job.scope)) < len(read):
        return found
    called_off = cancel is not None and cancel.is_set()  # no fault of the model's
    again = {"ids": list(found.unread), "tries": tries if called_off else tries + 1}
    left = [Job(scope=job.scope, kind=EXTRACT, data=again, time=job.time)] if found.unread else []
    memory.store.add([*found.rows_to_add, *left])
    memory.store.remove(Select(kind="job", scope=job.scope, ids=(job.id,)))
    return found
