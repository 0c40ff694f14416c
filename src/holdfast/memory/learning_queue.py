"""The queue of messages to extract facts from: durable jobs, and how far each session has been read.

A message is read once it has left the window of its session, or the session has ended or is idle. Jobs say up to which
message a session is to be read, records how far it has been read. The record of a batch is stored together with its
facts, in one transaction, and only one process can store a record with its key. So nothing is read into facts twice,
even if many processes queue and read, and some of them are killed. Messages are read in order and without gaps, so
nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from holdfast.context.edits import Edit, Item
from holdfast.messages import Message
from holdfast.store.base import Across, Job, Record, Scope, Select, Store
from holdfast.tokens import count_message

if TYPE_CHECKING:
    from holdfast.models.base import Model

EXTRACT: Final = "extract"
"""The kind of the jobs that extract facts from a session."""
OPEN: Final = "open"
"""The kind of the jobs that say that a session is in use, or has ended, and is to be read to its end."""
READ: Final = "read"
"""The kind of the records that say how far a session has been read, one for each batch."""
LEARNED: Final = "learned"
"""The kind of the records of an earlier version that say up to which message a session was queued, by model."""

RULES: Final = "rules"
"""The reader of sessions of other programs if the user has chosen no model for them. Every process may do this."""
OWN_RULES: Final = "own rules"
"""The reader of an engine without a model. A later engine with one reads what is left of these sessions with it."""
OWN: Final = "own"
"""The reader of an engine that has a model: `holdfast chat`, or a program."""
HOSTS: Final = "hosts"
"""The reader of sessions of other programs, for which the user has chosen a model."""

MIN_BATCH: Final = 8_000
"""How many tokens have to leave a window before a model reads them, unless the session ends or is idle. With fewer, the
instructions would cost as much as the messages."""
MAX_TOOL_TOKENS: Final = 300
"""The maximum tokens of a tool call or result, of which only the ends are read."""
MIN_MARK_PAUSE: Final = 60_000
"""The minimum milliseconds between two marks that say that a session is in use."""
_PAGE: Final = 2_000
_MAX_OPEN: Final = 10_000
"""How many marks of sessions in use are read at once."""


def measure(message: Message) -> int:
    """Return about how many tokens an extraction reads of a message."""
    if message.role == "system":
        return 0
    tokens = count_message(message)
    if message.calls or message.results:
        return min(tokens, MAX_TOOL_TOKENS)
    return tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Learner:
    """Who reads the sessions of a project for facts: a model, or the rules.

    Attributes:
        reader: The name under which sessions are queued: `OWN`, `HOSTS`, `OWN_RULES` or `RULES`, or the name of a
            model.
        model: The model; None for the rules.
    """

    reader: str = OWN_RULES
    model: Model | None = None

    def can_run(self, job: Job) -> bool:
        """Return whether a job may be run with this model, or by rule."""
        reader = reader_of(job)
        if is_by_rule(reader):
            return True
        return self.model is not None and reader in {self.reader, self.model.name}

    def model_for(self, job: Job) -> Model | None:
        """Return the model that runs a job; None for the rules."""
        if is_by_rule(reader_of(job)):
            return None
        return self.model

    def adopt(self, job: Job) -> Job:
        """Return a job, or a mark, with this model as its reader if an engine without a model left it."""
        if self.reader == OWN and reader_of(job) == OWN_RULES:
            return replace(job, data={**job.data, "reader": OWN})
        return job


# --- how far a session has been read ---------------------------------------------------


def find_read(store: Store, scope: Scope, reader: str) -> int:
    """Return the number of the last message of a session that was read; 0 if none was.

    For the rules, messages that a model has read count too; for an engine's model, those that any model has read. If
    the reader is the name of a model, only that model counts.
    """
    last = 0
    for span in list_read(store, scope, reader):
        if span.start > last:  # messages between were left to the rules, and are to be read again
            break
        last = max(last, span.last)
    return last


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """The messages of a batch that was read: those after `start`, up to `last`."""

    start: int
    last: int


def list_read(store: Store, scope: Scope, reader: str) -> list[Span]:
    """List the batches of a session that were read, in order; for who has read them, see `find_read`."""
    spans: list[Span] = []
    for record in store.read_records(Select(scope=scope), kind=READ):
        if _covers(reader, by=str(record.data.get("reader")), model=str(record.data.get("model"))):
            text = record.key.rpartition(" ")[2]
            start = 0
            if text.isdecimal():
                start = int(text)
            spans.append(Span(start, read_number(record.data, "last")))
    return sorted(spans)


def find_gap_end(store: Store, scope: Scope, reader: str, *, start: int) -> int | None:
    """Return the last message of a session before a later batch that was read; None if none was."""
    return min((span.start for span in list_read(store, scope, reader) if span.start > start), default=None)


def reopen(store: Store, *, scope: Scope, across: Across = False) -> None:
    """Allow messages to be read again that were left to the rules because no answer of a model could be used."""
    for record in store.read_records(Select(scope=scope, across=across), kind=READ):
        if record.data.get("left_to_rules") is True:
            store.remove_records(Select(scope=record.scope), kind=READ, keys=(record.key,))


def read_number(data: Mapping[str, Any], name: str) -> int:
    """Return a whole number of a stored row; 0 if there is none, because the row is damaged or of another kind."""
    value = data.get(name)
    return value if type(value) is int else 0


def is_by_rule(reader: str) -> bool:
    """Return whether a reader is the rules."""
    return reader in {RULES, OWN_RULES}


def _covers(reader: str, *, by: str, model: str) -> bool:
    if is_by_rule(reader):
        return True
    if reader in {OWN, HOSTS}:
        return not is_by_rule(by)
    return reader in {by, model}


def find_queued(store: Store, scope: Scope, reader: str) -> int:
    """Return the number of the last message of a session that was read or is queued."""
    last = find_read(store, scope, reader)
    for record in store.read_records(Select(scope=scope), kind=LEARNED):
        if _covers(reader, by=record.key, model=record.key):
            last = max(last, read_number(record.data, "last"))
    for job in store.read_jobs(Select(scope=scope), kind=EXTRACT):
        if reader_of(job) == reader:
            last = max(last, read_number(job.data, "until"))
    return last


def reader_of(job: Job) -> str:
    """Return who may run a job. A job of an earlier version does not say so, and is read by rule."""
    return str(job.data.get("reader", RULES))


def make_read_record(
    scope: Scope, reader: str, *, model: str, start: int, last: int, time: int, is_left_to_rules: bool
) -> Record:
    """Make the record that a batch was read. Storing it fails if another process has read what follows `start`.

    If it `is_left_to_rules`, because no answer of the model could be used, it may be read again; see `reopen`.
    """
    data: dict[str, Any] = {"reader": reader, "model": model, "last": last}
    if is_left_to_rules:
        data["left_to_rules"] = True
    return Record(scope=scope, kind=READ, key=f"{reader} {start:012d}", data=data, time=time, is_new=True)


# --- queueing ----------------------------------------------------------------------------


def make_job(scope: Scope, reader: str, *, until: int, time: int, has_more: bool = False) -> Job:
    """Make the job that reads a session up to a message.

    If the session continues (`has_more`), a rest that is not worth a call is left to the next job.
    """
    return Job(scope=scope, kind=EXTRACT, data={"reader": reader, "until": until, "has_more": has_more}, time=time)


def plan_cut(
    store: Store, scope: Scope, reader: str, *, edits: Iterable[Edit], items: Iterable[Item], time: int
) -> list[Job]:
    """Return the job that reads what some edits remove from a window, once that is worth a call.

    It reads up to the newest message that leaves, including messages before it that stay for now: a model needs the
    context, and one number then says how far a session was read. A compaction is worth a call in any case. The rules
    make no calls, so they read what leaves at once.
    """
    left: set[int] = set()
    is_due = is_by_rule(reader)
    for edit in edits:
        if edit.kind in {"trimmed", "pruned", "compacted"}:
            left.update(edit.ids)
            is_due = is_due or edit.kind == "compacted"
    if not left:
        return []
    until = max(left)
    start = find_queued(store, scope, reader)
    if until <= start:
        return []
    if not is_due:
        tokens = sum(measure(item.message) for item in items if start < item.id <= until)
        if tokens < MIN_BATCH:
            return []
    return [make_job(scope, reader, until=until, time=time, has_more=not is_due)]


def queue_until(store: Store, scope: Scope, reader: str, *, until: int, time: int) -> bool:
    """Queue a session up to a message; return whether anything of it was not queued yet."""
    if until <= find_queued(store, scope, reader):
        return False
    store.add_jobs([make_job(scope, reader, until=until, time=time)])
    return True


def queue_to_end(store: Store, scope: Scope, reader: str, *, time: int) -> bool:
    """Queue a session up to its newest message."""
    newest = store.read_messages(Select(scope=scope, newest=True, limit=1))
    return bool(newest) and queue_until(store, scope, reader, until=newest[-1].id, time=time)


def queue(store: Store, *, scope: Scope, across: Across = False, reader: str, time: int) -> int:
    """Queue the messages of a session, or `across` all of the agent's, that the reader has not read yet.

    Returns the number of messages, without those that are queued already.
    """
    queued: dict[Scope, int] = {}
    read: dict[Scope, list[Span]] = {}
    until: dict[Scope, int] = {}
    count = 0
    last = 0
    while rows := store.read_messages(Select(scope=scope, across=across, after=last, limit=_PAGE)):
        last = rows[-1].id
        for row in rows:
            if row.scope not in queued:
                queued[row.scope] = find_queued(store, row.scope, reader)
                read[row.scope] = list_read(store, row.scope, reader)
            is_read = any(span.start < row.id <= span.last for span in read[row.scope])
            if row.id > queued[row.scope] and not is_read:
                until[row.scope] = row.id
                count += 1
    store.add_jobs([make_job(owner, reader, until=number, time=time) for owner, number in until.items()])
    return count


# --- sessions in use ---------------------------------------------------------------------


def make_mark(scope: Scope, reader: str, *, time: int, has_ended: bool = False, is_closed: bool = False) -> Job:
    """Make the mark of a session that is in use now, that has ended, or whose engine was closed."""
    return Job(scope=scope, kind=OPEN, data={"reader": reader, "ended": has_ended, "closed": is_closed}, time=time)


def is_due(mark: Job, *, now: int, idle: int) -> bool:
    """Return whether a session has ended or was not used for `idle` milliseconds (0: never), by its newest mark."""
    return mark.data.get("ended") is True or (idle > 0 and now - mark.time >= idle)


def queue_idle(
    store: Store,
    *,
    now: int,
    idle: int,
    is_asked: bool = False,
    find_learner: Callable[[Scope], Learner] = lambda _: Learner(),
) -> int:
    """Queue the sessions that have ended or were not used for `idle` milliseconds (0: never), and return how many.

    The newest mark of a session says which it is. Only marks that were read are removed: one that is added meanwhile
    stays, and the session is checked again. A session whose engine was closed may continue in the next process, as with
    a command that is called again and again. It is queued once it is idle, or at once if the caller `is_asked` to do
    all work, or there is no idle time. Sessions that an engine without a model left are queued for the model of this
    one, if `find_learner` returns one.
    """
    marks: dict[Scope, list[Job]] = {}
    for mark in store.waiting(OPEN, limit=_MAX_OPEN):
        marks.setdefault(mark.scope, []).append(mark)
    count = 0
    for scope, jobs in marks.items():
        newest = max(jobs, key=lambda job: job.id)
        is_over = newest.data.get("closed") is True and (is_asked or idle == 0)
        if is_over or is_due(newest, now=now, idle=idle):
            reader = reader_of(find_learner(scope).adopt(newest))
            count += queue_to_end(store, scope, reader, time=now)
            _remove(store, scope, jobs)
        else:
            _remove(store, scope, [job for job in jobs if job is not newest])
    return count


def _remove(store: Store, scope: Scope, jobs: Sequence[Job]) -> None:
    if jobs:
        store.remove_jobs(Select(scope=scope, ids=tuple(job.id for job in jobs)))
