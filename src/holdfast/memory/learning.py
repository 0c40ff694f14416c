"""Extract facts from archived messages in the background, one durable job at a time."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Event
from typing import Final

from holdfast.memory import facts
from holdfast.memory.extract import Extraction, extract
from holdfast.memory.memory import Memory
from holdfast.models.base import Model
from holdfast.store.base import Across, Job, Record, Scope, Select

EXTRACT: Final = "extract"
"""The kind of the jobs that extract facts."""
LEARNED: Final = "learned"
"""The kind of the records that say up to which message a session was queued, by model."""
FAILED: Final = "fact extraction failed"
"""The beginning of the warning that a model has failed to extract facts."""
_BATCH: Final = 400
_PAGE: Final = 2_000
_MAX_TRIES: Final = 3
"""Number of failures of a model after which a job reads only explicit statements."""
_TIMEOUT: Final = 120.0


def jobs(ids: Sequence[int], *, scope: Scope, time: int) -> list[Job]:
    """Make the jobs that extract facts from messages."""
    return [
        Job(scope=scope, kind=EXTRACT, data={"ids": list(ids[start : start + _BATCH])}, time=time)
        for start in range(0, len(ids), _BATCH)
    ]


def queue(memory: Memory, *, scope: Scope, across: Across = False, reader: str = "rules") -> int:
    """Queue the messages of a session, or `across` all of the agent's, that were not queued for this model before.

    `reader` is the name of the model that will read them, or `rules`. Returns the number of messages.
    """
    records = memory.store.read_records(Select(scope=scope, across=across), kind=LEARNED, keys=(reader,))
    queued = {record.scope: int(record.data["last"]) for record in records}
    now, last, count = memory.clock(), 0, 0
    while rows := memory.store.read_messages(Select(scope=scope, across=across, after=last, limit=_PAGE)):
        last = rows[-1].id
        waiting: dict[Scope, list[int]] = {}
        for row in rows:
            if row.id > queued.get(row.scope, 0):
                waiting.setdefault(row.scope, []).append(row.id)
        for owner, ids in waiting.items():
            done = Record(scope=owner, kind=LEARNED, key=reader, data={"last": ids[-1]}, time=now)
            with memory.store.transaction():
                memory.store.add_jobs(jobs(ids, scope=owner, time=now))
                memory.store.add_records([done])
            count += len(ids)
    return count


def describe_failure(job: Job, found: Extraction) -> str:
    """Say that a model has failed at a job for the last time; empty if it has not, or is tried again."""
    if not found.unread or int(job.data.get("tries", 0)) + 1 < _MAX_TRIES:
        return ""
    left = f"{len(found.unread):,} messages were read by rules alone"
    return f"{FAILED} after {_MAX_TRIES} tries ({found.failure}): {left}"


def take_job(memory: Memory) -> Job | None:
    """Return the oldest job of any scope; None if there is none. It stays in the store until it has been run."""
    return memory.store.take_job(EXTRACT)


def run_job(memory: Memory, model: Model | None, job: Job, *, cancel: Event | None = None) -> Extraction:
    """Extract the facts of a job.

    The facts are durable before the job is removed; after a crash between the two the job runs again, which adds
    nothing. What a failing model did not read becomes a new job; after `_MAX_TRIES` only what is explicit is read.
    If a message was forgotten meanwhile, nothing is stored, and the job runs again without it.
    """
    tries = int(job.data.get("tries", 0))
    rows = memory.store.read_messages(Select(scope=job.scope, ids=tuple(job.data.get("ids", ()))))
    result = extract(
        rows,
        scope=job.scope,
        model=model if tries < _MAX_TRIES else None,
        known=facts.load(memory.store, job.scope),
        settings=memory.settings,
        now=memory.clock(),
        marks=memory.marks,
        timeout=_TIMEOUT,
        cancel=cancel,
    )
    if len(memory.get([row.id for row in rows], scope=job.scope)) < len(rows):
        return result
    is_cancelled = cancel is not None and cancel.is_set()  # does not count as a failure of the model
    again = {"ids": list(result.unread), "tries": tries if is_cancelled else tries + 1}
    rest = [Job(scope=job.scope, kind=EXTRACT, data=again, time=job.time)] if result.unread else []
    with memory.store.transaction():
        memory.store.add_facts(result.rows_to_add)
        memory.store.add_jobs(rest)
    memory.store.remove_jobs(Select(scope=job.scope, ids=(job.id,)))
    return result
