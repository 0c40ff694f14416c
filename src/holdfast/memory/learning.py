"""Extract facts from archived messages in the background, one batch of a durable job at a time.

`learning_queue` has what waits to be read. This module chooses a job that may run now, and reads one batch of it: its
facts are stored together with how far the session has been read. A model that fails is asked again after a pause, which
doubles up to an hour. Nothing is lost meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

from holdfast.errors import ConflictError
from holdfast.memory import facts
from holdfast.memory.extract import Extraction, extract, find_room
from holdfast.memory.learning_queue import (
    MIN_BATCH,
    Learner,
    find_gap_end,
    find_read,
    is_by_rule,
    make_read_record,
    measure,
    read_number,
    reader_of,
)
from holdfast.memory.learning_state import FAILED
from holdfast.memory.memory import Memory
from holdfast.memory.metered_model import MeteredModel
from holdfast.memory.spending import (
    Pause,
    load_pause,
    load_spending,
    make_pause_record,
    owner_of,
)
from holdfast.models.base import Model
from holdfast.store.base import Job, MessageRow, Record, Scope, Select, Store
from holdfast.text import plural

MAX_BATCH: Final = 12_000
"""How many tokens of messages one call reads. Reading more at once costs less and finds less."""
MAX_TRIES: Final = 3
"""How many unusable answers to the same messages, to fewer of them each time, it takes until the rules read them.

It takes twice as many if no other answer of the model could be used since the last time, because then the model is a
more likely cause than the messages. The user is warned after the same number of failures of a model in a row.
"""
_READ_AGAIN: Final = "`holdfast learn --model NAME` lets a model read them again"
_BATCH_MESSAGES: Final = 400
"""How many messages the rules read at a time."""
_PAGE: Final = 100
"""How many messages are read from the store at a time, until a batch for a model is full."""
_TIMEOUT: Final = 600.0
"""The seconds for one call, as for a reply in a conversation. A model that runs on a CPU may need them."""


# --- choosing ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The job to run now, if there is one; `limit` says which limit other jobs wait for."""

    job: Job | None = None
    limit: str = ""


def choose_job(memory: Memory, jobs: Iterable[Job], find_learner: Callable[[Scope], Learner]) -> Choice:
    """Choose a job that may run now: not one whose model fails or whose budget is used up.

    Jobs of one session run in order. Among sessions, the one with the fewest failures comes first, so that one that
    always fails does not hold up the others.
    """
    store = memory.store
    now = memory.clock()
    seen: set[tuple[Scope, str]] = set()
    why_waiting: dict[tuple[str, str], str] = {}  # by tenant and reader; empty for one that may be asked
    limit = ""
    best: Job | None = None
    fewest_failures = 0
    for job in jobs:
        reader = reader_of(job)
        if (job.scope, reader) in seen or not find_learner(job.scope).can_run(job):
            continue
        seen.add((job.scope, reader))
        if is_by_rule(reader):
            return Choice(job=job, limit=limit)
        group = (job.scope.tenant, reader)
        if group not in why_waiting:
            why_waiting[group] = ""
            # A limit comes first: a model that failed and has no calls left waits for the limit, and reports say so.
            reached = load_spending(store, job.scope.tenant).find_limit(memory.settings.knowledge, now=now)
            if reached:
                limit = reached
                why_waiting[group] = reached
            elif load_pause(store, owner_of(job.scope.tenant), reader).until > now:
                why_waiting[group] = "pause"
        if why_waiting[group]:
            continue
        pause = load_pause(store, job.scope, reader)
        if pause.failures == 0:
            return Choice(job=job, limit=limit)
        if pause.until <= now and (best is None or pause.failures < fewest_failures):
            best = job
            fewest_failures = pause.failures
    return Choice(job=best, limit=limit)


# --- running -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one batch of a job.

    Attributes:
        found: The extraction.
        messages: How many messages were read.
        is_done: Whether the job is done and removed.
        failure: Why the model did not read the batch; empty if it did.
        is_unusable: Whether it answered, but the answer cannot be used.
        limit: Which limit was reached before the model was asked.
        warning: A warning for the user.
    """

    found: Extraction = field(default_factory=Extraction)
    messages: int = 0
    is_done: bool = False
    failure: str = ""
    is_unusable: bool = False
    limit: str = ""
    warning: str = ""


def run_job(
    memory: Memory, job: Job, *, model: Model | None, cancel: Event | None = None, is_limited: bool = True
) -> Step:
    """Read the next batch of a job, and store its facts.

    The facts are stored together with how far the session has been read. Neither is stored if another process has read
    the batch meanwhile, or a message was forgotten. With `is_limited`, the call counts towards the limits in force.
    """
    if isinstance(job.data.get("ids"), list):
        return _run_old_job(memory, job)
    reader = reader_of(job)
    pause = load_pause(memory.store, job.scope, reader)
    start = find_read(memory.store, job.scope, reader)
    meter = None
    if model is not None:
        meter = MeteredModel(model, memory, tenant=job.scope.tenant, is_limited=is_limited)
    rows = _read_batch(memory, job, start=start, model=meter, tries=pause.failures)
    if not rows:
        memory.store.remove_jobs(Select(scope=job.scope, ids=(job.id,)))
        return Step(is_done=True)

    # Extract the facts: with the model, or by rule if it cannot answer about these messages.
    found = _extract(memory, job, rows, model=meter, cancel=cancel)
    limit = ""
    if meter is not None:
        limit = meter.limit
    of_model = load_pause(memory.store, owner_of(job.scope.tenant), reader)
    answer = _Answer(failure=found.failure, calls=found.calls, is_unusable=found.is_unusable, is_read=not found.unread)
    tries = MAX_TRIES
    if not of_model.has_answered:
        tries = 2 * MAX_TRIES
    warning = ""
    # The messages are the likely cause, and must not hold up those after them.
    if found.unread and found.is_unusable and pause.failures + 1 >= tries:
        found = _extract(memory, job, rows, model=None, cancel=cancel)
        answer = replace(answer, is_left_to_rules=True)
        count = plural(len(rows), "message")
        warning = f"{FAILED} after {tries} tries ({answer.failure}): {count} read by rules alone; {_READ_AGAIN}"

    # Store them, with how far the session has been read.
    read = rows
    if found.unread:  # a model that fails in the middle has read the messages before
        read = [row for row in rows if row.id < min(found.unread)]
    name = ""
    if model is not None and not answer.is_left_to_rules:
        name = model.name
    if read and not _store(memory, job, found, read, start=start, model=name, answer=answer):
        return Step(found=found)  # the next step reads the rest
    is_done = bool(read) and _is_done(memory, job, last=read[-1].id)
    if is_done:
        memory.store.remove_jobs(Select(scope=job.scope, ids=(job.id,)))

    # Record how the model has answered, unless a limit or the caller ended the call.
    is_cancelled = cancel is not None and cancel.is_set()
    is_refused = bool(limit) and not answer.is_unusable
    if model is not None and not is_refused and not is_cancelled:
        failed = _record_pause(memory, job, pause, of_model, answer)
        warning = warning or failed
    failure = ""
    if found.unread:
        failure = answer.failure
    return Step(
        found=found,
        messages=len(read),
        is_done=is_done,
        failure=failure,
        is_unusable=answer.is_unusable,
        limit=limit,
        warning=warning,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The answer of a model about a batch.

    Attributes:
        failure: Why there is none; empty if there is one.
        calls: How often the model was asked; 0 if the batch has nothing to ask about.
        is_unusable: Whether it answered, but the answer cannot be used.
        is_read: Whether the whole batch is read.
        is_left_to_rules: Whether the rules have read the batch instead.
    """

    failure: str
    calls: int
    is_unusable: bool
    is_read: bool
    is_left_to_rules: bool = False


def _is_done(memory: Memory, job: Job, *, last: int) -> bool:
    """Return whether a job is done: all of it is read, or the rest is not worth a call and is left to the next job."""
    until = read_number(job.data, "until")
    if last >= until:
        return True
    if job.data.get("has_more") is not True:
        return False
    rest = memory.store.read_messages(Select(scope=job.scope, after=last, before=until + 1, limit=_BATCH_MESSAGES))
    return len(rest) < _BATCH_MESSAGES and sum(measure(row.message) for row in rest) < MIN_BATCH // 2


def _read_batch(memory: Memory, job: Job, *, start: int, model: Model | None, tries: int) -> list[MessageRow]:
    """Read the next messages of a job, as many as are worth one call; fewer after an answer that cannot be used."""
    until = read_number(job.data, "until")
    gap_end = find_gap_end(memory.store, job.scope, reader_of(job), start=start)
    if gap_end is not None:
        until = min(until, gap_end)
    if model is None:
        select = Select(scope=job.scope, after=start, before=until + 1, limit=_BATCH_MESSAGES)
        return memory.store.read_messages(select)
    # A quarter of the room with each failure, to find the message that the model cannot answer about.
    room = min(MAX_BATCH, find_room(model)) // 4 ** min(tries, MAX_TRIES)
    rows: list[MessageRow] = []
    last = start
    while True:
        page = memory.store.read_messages(Select(scope=job.scope, after=last, before=until + 1, limit=_PAGE))
        if not page:
            return rows
        for row in page:
            room -= measure(row.message)
            if rows and room < 0:
                return rows
            rows.append(row)
        last = page[-1].id


def _extract(
    memory: Memory, job: Job, rows: Sequence[MessageRow], *, model: Model | None, cancel: Event | None
) -> Extraction:
    return extract(
        rows,
        scope=job.scope,
        model=model,
        known=facts.load(memory.store, job.scope),
        settings=memory.settings,
        now=memory.clock(),
        marks=memory.marks,
        timeout=_TIMEOUT,
        cancel=cancel,
    )


def _store(
    memory: Memory,
    job: Job,
    found: Extraction,
    rows: Sequence[MessageRow],
    *,
    start: int,
    model: str,
    answer: _Answer,
) -> bool:
    """Store the facts of a batch with how far the session is read; return whether that was possible."""
    store = memory.store
    record = make_read_record(
        job.scope,
        reader_of(job),
        model=model,
        start=start,
        last=rows[-1].id,
        time=memory.clock(),
        is_left_to_rules=answer.is_left_to_rules,
    )
    if _find_forgotten(store, job.scope, rows):
        return False
    try:
        with store.transaction():
            store.add_records([record])
            store.add_facts(found.rows_to_add)
    except ConflictError:
        return False
    forgotten = _find_forgotten(store, job.scope, rows)
    if forgotten:  # in this moment: forget its facts too
        memory.forget(scope=job.scope, ids=sorted(forgotten))
    return True


def _find_forgotten(store: Store, scope: Scope, rows: Sequence[MessageRow]) -> set[int]:
    """Return the numbers of messages that are no longer stored."""
    numbers = {row.id for row in rows}
    stored = store.read_messages(Select(scope=scope, ids=tuple(sorted(numbers))))
    return numbers - {row.id for row in stored}


def _record_pause(memory: Memory, job: Job, pause: Pause, of_model: Pause, answer: _Answer) -> str:
    """Record how the model has answered, and return a warning if it has failed too often in a row.

    The failures of a model are counted until an answer can be used. A batch with nothing to ask about, or one that was
    left to the rules, does not end the count.
    """
    store = memory.store
    reader = reader_of(job)
    now = memory.clock()
    if answer.is_read or answer.is_left_to_rules:
        next_pause = Pause()
    else:
        next_pause = pause.add_failure(answer.failure, now=now)
    next_of_model = of_model
    if answer.failure:
        next_of_model = of_model.add_failure(answer.failure, now=now)
    elif answer.calls:
        next_of_model = Pause(has_answered=True)
    if answer.is_left_to_rules:
        next_of_model = replace(next_of_model, has_answered=False)
    rows: list[Record] = []
    if next_pause != pause:
        rows.append(make_pause_record(job.scope, reader, next_pause, time=now))
    if next_of_model != of_model:
        rows.append(make_pause_record(owner_of(job.scope.tenant), reader, next_of_model, time=now))
    store.add_records(rows)
    if answer.failure and next_of_model.failures == MAX_TRIES:
        return f"{FAILED} {MAX_TRIES} times ({answer.failure}): what is left is read when the model answers again"
    return ""


def _run_old_job(memory: Memory, job: Job) -> Step:
    """Run a job of an earlier version by rule: it names its messages, but not which model may read them."""
    ids = tuple(number for number in job.data["ids"] if type(number) is int)
    rows = memory.store.read_messages(Select(scope=job.scope, ids=ids))
    found = _extract(memory, job, rows, model=None, cancel=None)
    if not _find_forgotten(memory.store, job.scope, rows):
        memory.store.add_facts(found.rows_to_add)
        memory.store.remove_jobs(Select(scope=job.scope, ids=(job.id,)))
    return Step(found=found, messages=len(rows), is_done=True)
