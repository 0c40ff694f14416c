"""Replay a session with another window, model or setting, in a temporary memory, and compare it with what was sent.

The memory that is inspected is only read. The replay has the messages of the session and the facts that were known at
each turn. It calls no model: it makes no vectors, and a compaction that a model has written is not made again.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from msgspec import structs

from holdfast import figures
from holdfast.cache import LruCache
from holdfast.engine import Engine
from holdfast.errors import ClosedError, HoldfastError, InputError, WindowTooSmallError
from holdfast.memory.sessions import make_title, read_title
from holdfast.messages import Message
from holdfast.providers.models import Price, context_tokens, find_price
from holdfast.report import NAMES, ContextReport
from holdfast.server.inspector import data, draw
from holdfast.session import Session
from holdfast.settings import Settings
from holdfast.store.base import FactRow, Period, Scope, Select
from holdfast.store.figures import CUTS
from holdfast.timeline import PastTurn, WindowSource, read_turns

MAX_TURNS: Final = 1_000
"""The first turns of a session that are replayed."""
MAX_MESSAGES: Final = 20_000
"""Turns whose history has more messages are not replayed."""
MAX_RUNS: Final = 8
"""Replays whose results are kept."""
MIN_LIMIT: Final = 1_000
MAX_LIMIT: Final = 100_000_000
DEADLINE_MS: Final = 60_000
"""For recall in a replay: a slow machine recalls the same as a fast one."""
_TOOLS: Final = NAMES.index("tools")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What is different in a replay.

    Attributes:
        scope: The session.
        limit: The window in tokens; None for that of the model, or that of each turn.
        model: The model whose window and price are assumed; empty for that of the session.
        changes: Changed settings, as `data.override` reads them.
    """

    scope: Scope
    limit: int | None = None
    model: str = ""
    changes: str = ""

    @property
    def is_unchanged(self) -> bool:
        """Whether everything is as it was."""
        return self.limit is None and not self.model and not self.changes

    @property
    def window(self) -> int | None:
        """The window in tokens; None for that of each turn."""
        if self.limit is not None:
            return self.limit
        return context_tokens(self.model) if self.model else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTurn:
    """One request, as it was sent or as it would have been; without a report it did not fit."""

    past: PastTurn
    report: ContextReport | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of the comparison.

    Attributes:
        turns: Its requests.
        model: The model whose price is used; empty if none is known.
        price: The price of the model, if it is known.
    """

    turns: Sequence[ReplayedTurn]
    model: str
    price: Price | None

    @property
    def reports(self) -> list[ContextReport]:
        """The reports of the requests that fitted."""
        return [turn.report for turn in self.turns if turn.report is not None]

    @property
    def sent(self) -> int:
        """The tokens of all requests."""
        return sum(report.total_tokens for report in self.reports)

    @property
    def largest(self) -> int:
        """The tokens of the largest request."""
        return max((report.total_tokens for report in self.reports), default=0)

    @property
    def cuts(self) -> int:
        """The requests that removed messages."""
        return sum(not CUTS.isdisjoint(change.kind for change in report.changes) for report in self.reports)

    @property
    def pruned(self) -> int:
        """The requests that pruned tool results."""
        return sum(any(change.kind == "pruned" for change in report.changes) for report in self.reports)

    @property
    def recalls(self) -> int:
        """The requests that recalled something."""
        return sum(any(change.kind == "recalled" for change in report.changes) for report in self.reports)

    @property
    def recalled(self) -> int:
        """The tokens of recalled blocks, each counted once."""
        return sum(
            change.tokens_after for report in self.reports for change in report.changes if change.kind == "recalled"
        )

    @property
    def refused(self) -> int:
        """The requests that did not fit."""
        return len(self.turns) - len(self.reports)

    @property
    def kept(self) -> int:
        """The tokens that were an unchanged beginning of the request before, which a provider has cached."""
        return sum(tokens for _, tokens in self._split())

    @property
    def cost(self) -> float | None:
        """The cost of all requests without their replies, estimated; None if the model has no price.

        The unchanged beginning has the price of a cache read, and the rest that of input.
        """
        if self.price is None:
            return None
        dollars = sum(new * self.price.input + kept * self.price.cache_read for new, kept in self._split())
        return dollars / 1_000_000

    @property
    def kept_share(self) -> float:
        """The share of all tokens that were an unchanged beginning."""
        return self.kept / self.sent if self.sent else 0.0

    def _split(self) -> list[tuple[int, int]]:
        """Return for each request the tokens that are new, and those that are an unchanged beginning."""
        parts: list[tuple[int, int]] = []
        before = 0
        for report in self.reports:
            kept = min(report.total_tokens, round((report.prefix_kept or 0.0) * before))
            parts.append((report.total_tokens - kept, kept))
            before = report.total_tokens
        return parts


@dataclass(slots=True, kw_only=True)
class Run:
    """A replay in a thread: what it has done so far, and why it stopped if it failed."""

    wish: Wish
    total: int = 0
    recorded: list[ReplayedTurn] = field(default_factory=list)
    replayed: list[ReplayedTurn] = field(default_factory=list)
    left_out: int = 0
    problem: str = ""
    is_done: bool = False
    cancel: threading.Event = field(default_factory=threading.Event)


class WhatIf:
    """Replays, one at a time, and their results."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._runs: LruCache[Wish, Run] = LruCache(MAX_RUNS)
        self._current: Run | None = None

    def look(self, params: data.Params, session: Session | None, sessions: Sequence[Scope]) -> dict[str, Any]:
        """Return everything that the page shows; starts a replay if one is asked for."""
        store = self._engine._memory.store
        values: dict[str, Any] = {"params": params, "run": None, "scope": None, "sessions": [], "choices": []}
        if session is None:
            values["choices"] = [(scope, read_title(store, scope) or make_title(store, scope)) for scope in sessions]
            return values
        values["scope"] = session.scope
        values["title"] = read_title(store, session.scope) or make_title(store, session.scope)
        values["model"] = self._find_model(session.scope)
        newest = store.read_records(Select(scope=session.scope, newest=True, limit=1), kind="window")
        values["window"] = newest[-1].data["window"] if newest else 0
        if params.get("go") and newest:
            wish = read_wish(params, session.scope)
            data.override(session.settings, wish.changes)  # a wrong setting is an error here, and not in the thread
            run = self._find_run(wish, session)
            reported = figures.sum_session(store, session.scope, prices=self._engine.settings.model.prices)
            values |= {"run": run, "reported": reported, **self._compare(run, values["model"])}
        return values

    def _find_run(self, wish: Wish, session: Session) -> Run:
        with self._lock:
            known = self._runs.get(wish)
            if known is not None and not known.problem and not known.cancel.is_set():
                return known
            if self._current is not None:
                self._current.cancel.set()
            run = Run(wish=wish)
            self._runs[wish] = run
            self._current = run
        name = "holdfast-whatif"
        threading.Thread(target=self._replay, args=(run, session), name=name, daemon=True).start()
        return run

    def _replay(self, run: Run, session: Session) -> None:
        try:
            _replay(run, session)
        except ClosedError:
            run.problem = "the memory was closed"
        except HoldfastError as error:
            run.problem = str(error)
        run.is_done = True

    def _find_model(self, scope: Scope) -> str:
        """Return the model that has reported the most usage in a session; empty if none has."""
        store = self._engine._memory.store
        figures.update(store, [scope.tenant], seconds=0.05)
        most = 0
        model = ""
        for found in store.sum_usage(Period(scope=scope, by="session")):
            tokens = found.usage.input + found.usage.cache_read + found.usage.cache_write
            if tokens > most:
                most = tokens
                model = found.model
        return model

    def _compare(self, run: Run, model: str) -> dict[str, Any]:
        """Return both sides, as far as the replay has come, with charts of the same scale."""
        replayed = list(run.replayed)
        recorded = list(run.recorded)[: len(replayed)]
        prices = self._engine.settings.model.prices
        if not model:
            model = next((turn.report.model or "" for turn in recorded if turn.report is not None), "")
        model = model or run.wish.model  # nobody knows which one it was: both have the same price
        other = run.wish.model or model
        sides = (
            Side(turns=recorded, model=model, price=find_price(model, prices=prices)),
            Side(turns=replayed, model=other, price=find_price(other, prices=prices)),
        )
        top = max((turn.past.source.window for side in sides for turn in side.turns), default=0)
        charts = [draw.timeline([turn.past for turn in side.turns], at_least=top) for side in sides]
        return {"before": sides[0], "after": sides[1], "charts": charts, "rows": compare(*sides)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the comparison: a name, a number of each side (None if it is not known), and their format."""

    name: str
    before: float | None
    after: float | None
    form: str = "number"

    @property
    def change(self) -> float | None:
        """The difference as a share of what was; None if there is none to speak of."""
        if not self.before or self.after is None:
            return None
        return self.after / self.before - 1

    @property
    def shown_change(self) -> str:
        """The difference in whole percent, with a sign; empty if there is none to speak of."""
        whole = round(100 * (self.change or 0))
        if not whole:
            return ""
        sign = "+" if whole > 0 else "−"  # a minus sign is as wide as the plus
        return f"{sign}{abs(whole)}%"


def compare(before: Side, after: Side) -> list[Row]:
    """Return the lines of a comparison."""
    names = {
        "Tokens sent": "sent",
        "Of them an unchanged beginning": "kept",
        "Largest request": "largest",
        "Requests with pruned results": "pruned",
        "Requests with a cut": "cuts",
        "Requests with a recall": "recalls",
        "Tokens recalled": "recalled",
        "Requests that do not fit": "refused",
    }
    rows = [
        Row(name="Cost of the requests, estimated", before=before.cost, after=after.cost, form="dollars"),
        Row(name="Requests", before=len(before.turns), after=len(after.turns)),
    ]
    for name, attribute in names.items():
        rows.append(Row(name=name, before=getattr(before, attribute), after=getattr(after, attribute)))
    return rows


def read_wish(params: data.Params, scope: Scope) -> Wish:
    """Read what should be different from the parameters of a request.

    Raises:
        InputError: The window is out of range.
    """
    limit = None
    if params.get("limit", "").strip():
        limit = int(params["limit"])
        if not MIN_LIMIT <= limit <= MAX_LIMIT:
            raise InputError(f"a window has {MIN_LIMIT:,} to {MAX_LIMIT:,} tokens, not {limit:,}")
    return Wish(scope=scope, limit=limit, model=params.get("model", "").strip(), changes=params.get("set", "").strip())


# --- the replay ---------------------------------------------------------------


def _replay(run: Run, session: Session) -> None:
    """Make each window of a session again in a temporary memory, and add it to the run."""
    store = session._memory.store
    turns = read_turns(store, session.scope)
    histories = _list_histories(turns)
    wanted = [turn for turn in turns if turn.key in histories][:MAX_TURNS]
    run.left_out = len(turns) - len(wanted)
    run.total = len(wanted)
    reports = {report.turn: report for report in session.timeline()}
    run.recorded = [ReplayedTurn(past=turn, report=reports.get(turn.number)) for turn in wanted]
    facts = _read_facts(session)
    settings = make_settings(data.override(session.settings, run.wish.changes))
    messages: dict[int, Message] = {}
    now = [0]
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-whatif-") as folder,
        Engine.open(folder, settings=settings, background=False, clock=lambda: now[0]) as engine,
    ):
        replayed = engine.session("what if")
        for turn in wanted:
            if run.cancel.is_set():
                return
            now[0] = turn.time
            while facts and facts[0].time <= turn.time:
                row = facts.pop(0)
                engine._memory.store.add_facts([replace(row, scope=replace(replayed.scope, session=""))])
            numbers = (*turn.source.system, *histories[turn.key])
            _read_missing(session, numbers, messages)
            history = [messages[number] for number in numbers if number in messages]
            run.replayed.append(_replay_turn(replayed, turn, history, run.wish, reports.get(turn.number)))


def _replay_turn(
    session: Session, turn: PastTurn, history: Sequence[Message], wish: Wish, report: ContextReport | None
) -> ReplayedTurn:
    """Make one window again."""
    limit = wish.window or turn.source.window
    reserve = None
    if report is not None and 0 < report.reserved_tokens <= limit // 2:
        reserve = report.reserved_tokens
    sizes = turn.source.sizes
    try:
        window = session.assemble(
            history,
            limit=limit,
            reserve=reserve,
            model=wish.model or None,
            provider=turn.source.provider,
            overhead=sizes[_TOOLS] if len(sizes) > _TOOLS else 0,
        )
    except WindowTooSmallError:
        past = _make_past(turn, window=limit, sizes=(0,) * len(NAMES), changes=())
        return ReplayedTurn(past=past, report=None)
    made = window.report
    past = _make_past(
        turn,
        window=made.raw_max_tokens,
        sizes=tuple(part.tokens for part in made.categories),
        changes=tuple(change.kind for change in made.changes),
    )
    return ReplayedTurn(past=past, report=made)


def _make_past(turn: PastTurn, *, window: int, sizes: tuple[int, ...], changes: tuple[str, ...]) -> PastTurn:
    source = structs.replace(turn.source, window=window, sizes=sizes, changes=changes)
    return structs.replace(turn, source=source)


def _list_histories(turns: Sequence[PastTurn]) -> dict[str, list[int]]:
    """Return the numbers of the messages of each turn, as far as there are not too many."""
    histories: dict[str, list[int]] = {}
    for turn in turns:
        source: WindowSource = turn.source
        history = list(histories.get(source.base, ())[: source.kept])
        if len(history) < source.kept:  # of a turn that is not stored any more
            continue
        history += source.added
        if len(history) > MAX_MESSAGES:
            break
        histories[turn.key] = history
    return histories


def _read_missing(session: Session, numbers: Sequence[int], messages: dict[int, Message]) -> None:
    """Read the messages that are not read yet. Those that were forgotten stay missing."""
    missing = tuple(number for number in numbers if number and number not in messages)
    if not missing:
        return
    for row in session._memory.store.read_messages(Select(scope=session.scope, ids=missing)):
        messages[row.id] = row.message


def _read_facts(session: Session) -> list[FactRow]:
    """Read the facts of a session's agent and project, by the time they were learned."""
    rows = session._memory.store.read_facts(Select(scope=session.scope, across=True))
    return sorted(rows, key=lambda row: row.time)


def make_settings(settings: Settings) -> Settings:
    """Return settings with which nothing leaves the machine and every run is the same."""
    return structs.replace(
        settings,
        archive=structs.replace(settings.archive, path=None, redaction=False),  # it is masked already
        embedding=structs.replace(settings.embedding, provider="none", model=None, api_key=None),
        compaction=structs.replace(settings.compaction, model=None),
        knowledge=structs.replace(settings.knowledge, extraction=False, model=None, host_model=None),
        recall=structs.replace(settings.recall, deadline_ms=DEADLINE_MS),
    )
