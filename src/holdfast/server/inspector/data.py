"""The data of the inspector's pages, read from an engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from holdfast.engine import Engine
from holdfast.errors import HoldfastError, InputError
from holdfast.index.scopes import SCOPE_PARTS
from holdfast.memory.passage_search import Hit
from holdfast.memory.recall import Recall
from holdfast.memory.sessions import make_title, read_host
from holdfast.messages import Image, Opaque, Text, Thinking, ToolCall, ToolResult
from holdfast.report import ContextReport
from holdfast.search.relevance import EAGERNESS
from holdfast.session import Session
from holdfast.settings import Settings
from holdfast.store.base import Across, FactRow, MessageRow, Record, Scope, Select, Store
from holdfast.timeline import WINDOW

PAGE: Final = 60
"""Rows of a list that are sent at a time."""
SPARK: Final = 48
"""Turns in the small chart of a session."""
MISSED: Final = 12
"""Passages that are shown because they just missed the block."""
MAX_SHOWN: Final = 12_000
"""Characters of one text on a page; the rest is in the download."""
MAX_TIMED: Final = 200
"""Requests whose steps are timed, the newest."""
MIN_TIMED: Final = 0.05
"""Milliseconds that are not shown as 0.0."""
EVERYTHING: Final[Across] = ("project", "agent", "session")

Params = Mapping[str, str]


def parse_scope(params: Params) -> Scope:
    """Read a scope from the parameters of a request. One that is empty is an empty name; one that is missing is not."""
    return Scope(**{name: params[name] for name in SCOPE_PARTS if name in params})


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the page of a session begins with: its title, its host, and the time of its last activity."""

    title: str
    host: str
    time: int


def read_summary(store: Store, scope: Scope, *, last_turn: int) -> Summary:
    """Read the title, the host and the last activity of a session, whose last turn was made at a time; 0 for none."""
    times = [last_turn]
    times += [row.message.timestamp or 0 for row in store.read_messages(Select(scope=scope, newest=True, limit=1))]
    return Summary(title=make_title(store, scope), host=read_host(store, scope), time=max(times))


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The numbers of the newest message and turn, and the newest versions of facts of each tenant."""

    message: int = 0
    turn: int = 0
    facts: tuple[FactRow, ...] = ()


class Sessions:
    """The list of stored sessions, with figures that are kept between two requests."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listed: tuple[float, dict[Scope, int]] = (-math.inf, {})

    def listed(self, *, age: float = 1.0) -> dict[Scope, int]:
        """Return all sessions with their messages; a list of at most this age in seconds is returned again."""
        if time.monotonic() - self._listed[0] > age:
            self._listed = (time.monotonic(), self._engine._memory.store.sessions())
        return self._listed[1]

    def tenants(self, *, age: float = 1.0) -> list[str]:
        """Return the tenants that have sessions."""
        return sorted({scope.tenant for scope in self.listed(age=age)}) or ["local"]

    def newest(self) -> Newest:
        """Return what was stored last: it changes when something is stored."""
        store = self._engine._memory.store
        newest = Newest()
        for tenant in self.tenants(age=15.0):
            select = Select(scope=Scope(tenant=tenant), across=EVERYTHING, newest=True, limit=1)
            for message in store.read_messages(select):
                newest = replace(newest, message=max(newest.message, message.id))
            for record in store.read_records(select, kind=WINDOW):
                newest = replace(newest, turn=max(newest.turn, record.id))
            newest = replace(newest, facts=(*newest.facts, *store.read_facts(select)))
        return newest


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The passages that a search finds, each with the session it is from: by its words, and by vectors alone."""

    by_words: tuple[tuple[Hit, Scope], ...] = ()
    similar: tuple[tuple[Hit, Scope], ...] = ()

    @property
    def scopes(self) -> list[Scope]:
        """The sessions that they are from."""
        return [scope for _, scope in (*self.by_words, *self.similar)]

    @property
    def messages(self) -> list[tuple[Scope, int]]:
        """The messages that they are from, each with its session."""
        return [(scope, hit.message) for hit, scope in (*self.by_words, *self.similar)]


def search(engine: Engine, query: str, tenants: Sequence[str], *, limit: int, max_similar: int) -> Found:
    """Search all sessions of all projects and agents; return the best passages, best first."""
    hits: list[tuple[Hit, Scope]] = []
    for tenant in tenants:
        scope = Scope(tenant=tenant)
        found = engine._memory.search(query, scope=scope, across=EVERYTHING, limit=limit + max_similar)
        ids = tuple(hit.message for hit in found)
        rows = engine._memory.store.read_messages(Select(scope=scope, across=EVERYTHING, ids=ids))
        owners = {row.id: row.scope for row in rows}
        hits += ((hit, owners[hit.message]) for hit in found if hit.message in owners)
    hits.sort(key=lambda pair: -pair[0].score)
    return Found(
        by_words=tuple(pair for pair in hits if pair[0].parts.share > 0)[:limit],
        similar=tuple(pair for pair in hits if pair[0].parts.share <= 0)[:max_similar],
    )


# --- one session -------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """A part of a message: its kind, a title, its text, and whether it is folded."""

    kind: str
    title: str
    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """A message with what has become of it; `turn` is the one in which it was sent first, 0 if that is not known."""

    id: int
    role: str
    time: int
    parts: tuple[PartView, ...]
    state: str = ""
    reason: str = ""
    tokens: int = 0
    pinned: bool = False
    excluded: bool = False
    kind: str = "message"
    model: str = ""
    turn: int = 0


def full_text(part: object) -> str:
    """Return the whole text of a part of a message."""
    return _read_part(part)[2]


def view_part(part: object) -> PartView:
    """Return what a page shows of a part of a message."""
    kind, title, text = _read_part(part)
    return PartView(kind=kind, title=title, text=text[:MAX_SHOWN], is_cut=len(text) > MAX_SHOWN)


def _read_part(part: object) -> tuple[str, str, str]:
    """Return the kind, the title and the text of a part."""
    match part:
        case Text(text=text):
            return "text", "", text
        case Thinking(text=text):
            return "thinking", "Thinking", text
        case ToolCall(name=name, arguments=arguments):
            data = msgspec.json.format(msgspec.json.encode(arguments), indent=2)
            return "call", name, arguments if isinstance(arguments, str) else data.decode(errors="replace")
        case ToolResult(name=name, is_error=is_error):
            others = (f"[{_describe(block)}]" for block in part.content if not isinstance(block, Text))
            return "error" if is_error else "result", name or part.call_id, "\n".join([part.text, *others])
        case _:
            return "other", _describe(part), ""


def _describe(part: object) -> str:
    match part:
        case Image(media_type=media, url=url, data=data):
            return f"image {media or ''} {url or ''}{f'{len(data) * 3 // 4:,} bytes' if data else ''}".strip()
        case Opaque(kind=kind):
            return f"block of type {kind}"
        case _:
            return "thinking that only the provider can read"


def view_message(
    row: MessageRow, *, states: Mapping[int, tuple[str, str]] | None = None, turns: Mapping[int, int] | None = None
) -> MessageView:
    """Return what a page shows of an archived message."""
    state, reason = (states or {}).get(row.id, ("", ""))
    return MessageView(
        id=row.id,
        role=row.message.name or row.message.role,
        time=row.message.timestamp or 0,
        parts=tuple(map(view_part, row.message.parts)),
        state=state,
        reason=reason,
        pinned=row.pinned,
        excluded=row.excluded,
        model=row.message.model or "",
        turn=(turns or {}).get(row.id, 0),
    )


def read_messages(session: Session, *, before: int | None = None, around: int | None = None) -> list[MessageRow]:
    """Read the newest messages of a session, those before a number, or those around one; oldest first."""
    store, scope = session._memory.store, session.scope
    if around is None:
        return store.read_messages(Select(scope=scope, before=before, newest=True, limit=PAGE))
    rows = store.read_messages(Select(scope=scope, before=around + 1, newest=True, limit=PAGE // 2))
    return [*rows, *store.read_messages(Select(scope=scope, after=around, limit=PAGE // 2))]


# --- questions ---------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A block that would be recalled, and the passages that just missed it; `sure` is that of a sure match."""

    title: str
    recall: Recall
    missed: tuple[Hit, ...]
    milliseconds: float
    problem: str = ""
    sure: float = 1.0


def override(settings: Settings, text: str) -> Settings:
    """Return settings with changes such as `recall.fill=full`, one a line or separated by commas.

    Raises:
        InputError: A change is not `group.name=value`, or there is no such setting.
    """
    for line in filter(None, (part.strip() for part in text.replace(",", "\n").splitlines())):
        key, equals, value = line.partition("=")
        group, dot, name = key.strip().partition(".")
        inner = getattr(settings, group, None)
        if not equals or not dot or inner is None or not hasattr(inner, name):
            raise InputError(f"{line!r} is not a change of a setting, such as recall.neighbours=0")
        if name == "encryption_key":  # it may name a command, which no page may run
            raise InputError(f"{key.strip()} belongs to the store, and cannot be changed here")
        try:
            kinds = {field.name: field.type for field in msgspec.structs.fields(inner)}
            parsed = msgspec.convert(value.strip(), kinds[name], strict=False)
        except msgspec.ValidationError as error:
            raise InputError(f"{key.strip()}: {error}") from error
        settings = msgspec.structs.replace(settings, **{group: msgspec.structs.replace(inner, **{name: parsed})})
    return settings


def ask(engine: Engine, question: str, *, scope: Scope, cap: int | None, changes: str, title: str) -> Answer:
    """Recall for a question, with changed settings; errors are part of the answer."""
    start = time.perf_counter()
    try:
        resources = engine._find_resources(scope.project)
        memory = resources.memory.with_settings(override(resources.settings, changes))
        across: Across = True if scope.session else EVERYTHING
        recall = memory.recall((question,), scope=scope, across=across, cap=cap)
        spent = (time.perf_counter() - start) * 1000
        shown = {hit.passage for hit in recall.hits}
        found = memory.search(question, scope=scope, across=across, limit=len(shown) + MISSED)
        missed = tuple(hit for hit in found if hit.passage not in shown)[:MISSED]
    except HoldfastError as error:
        return Answer(title=title, recall=Recall(), missed=(), milliseconds=0.0, problem=str(error))
    sure = EAGERNESS[memory.settings.recall.eagerness].high
    return Answer(title=title, recall=recall, missed=missed, milliseconds=spent, sure=sure)


def have_same_result(answers: Sequence[Answer]) -> bool:
    """Return whether two settings recall the same block, or nothing."""
    if len(answers) < 2 or any(answer.problem for answer in answers):  # noqa: PLR2004 - to compare
        return False
    return answers[0].recall.block == answers[1].recall.block


# --- health ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A file of notes in the workspace."""

    path: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The findings of `holdfast doctor`, and the name, value and source of each setting in force.

    `is_thorough` tells whether every row of the store was read.
    """

    findings: Sequence[tuple[str, str]] = ()
    settings: Sequence[tuple[str, str, str]] = ()
    is_thorough: bool = True


def _check_nothing(_: bool) -> Health:  # noqa: FBT001 - as `Outside.health`
    return Health()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """Data of the pages that is not from the store; `health` takes whether every row is to be checked."""

    health: Callable[[bool], Health] = _check_nothing
    notes: Callable[[], Sequence[Note]] = tuple


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """How long a step took, in milliseconds: the median and the 95th percentile of a number of requests."""

    name: str
    median: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """The times of the steps of the newest requests, in the order of the steps."""

    requests: int
    steps: tuple[StepTimes, ...]


def read_latencies(engine: Engine, tenants: Sequence[str], *, limit: int = MAX_TIMED) -> Latencies:
    """Read the times of each step of the newest requests; steps that never took any time are left out."""
    records: list[Record] = []
    for tenant in tenants:
        select = Select(scope=Scope(tenant=tenant), across=EVERYTHING, newest=True, limit=limit)
        records += engine._memory.store.read_records(select, kind="turn")
    newest = sorted(records, key=lambda record: record.time)[-limit:]
    times: dict[str, list[float]] = {}
    order: list[str] = []
    for record in newest:
        milliseconds = ContextReport.from_json(record.data).milliseconds
        place = 0
        for name, value in milliseconds.items():
            # A step that earlier requests did not have comes after the one that it follows in this request.
            if name not in order:
                order.insert(place, name)
            place = order.index(name) + 1
            times.setdefault(name, []).append(value)
    steps: list[StepTimes] = []
    for name in order:
        some = sorted(times[name])
        high = some[len(some) * 95 // 100]
        if high >= MIN_TIMED:
            steps.append(StepTimes(name=name, median=some[len(some) // 2], high=high, count=len(some)))
    return Latencies(requests=len(newest), steps=tuple(steps))
