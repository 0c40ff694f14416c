"""The list of sessions: everything that is needed to recognise one, to sort the list, and to filter it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from holdfast import figures
from holdfast.cache import LruCache
from holdfast.engine import Engine
from holdfast.figures import Totals
from holdfast.memory.sessions import make_title, name_hosts
from holdfast.server.inspector.data import EVERYTHING, PAGE, SPARK, Newest, Params, Sessions
from holdfast.store.base import Period, Scope, Select
from holdfast.timeline import WINDOW, WindowSource

MAX_AGE: Final = 2.0
"""Seconds for which the figures of all sessions are used again: a page is often asked for several times at once."""
MAX_CACHED: Final = 4_000
"""Sessions whose title and last windows are kept."""
TITLE_SECONDS: Final = 0.1
"""How long titles are read for one page, if all of them are needed."""
LAST_READ: Final = 6
"""Newest messages that are looked at for the model of a session that reported no usage."""
DAY: Final = 86_400_000
FEW: Final = 10**9
"""More sessions than any memory has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What is known of a session without reading its messages.

    Attributes:
        scope: Its owner and id.
        messages: How many messages are archived.
        host: The program that it is from; empty if it is not known.
        model: The model that reported most replies; empty if none did.
        time: The last activity, in Unix milliseconds; 0 if it is not known.
        totals: Its tokens, costs and turns.
    """

    scope: Scope
    messages: int
    host: str = ""
    model: str = ""
    time: int = 0
    totals: Totals = field(default_factory=Totals)

    def matches(self, params: Params, *, since: int) -> bool:
        """Return whether it is one of those that the filters name."""
        wanted = {
            "project": self.scope.project,
            "agent": self.scope.agent,
            "host": self.host,
            "model": self.model,
        }
        for name, value in wanted.items():
            if params.get(name) and params[name] != value:
                return False
        return self.time >= since


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A line of the list of sessions: what is listed, its title, its model, and the sizes of its last windows."""

    listed: Listed
    title: str
    model: str
    recent: tuple[WindowSource, ...]

    @property
    def scope(self) -> Scope:
        """Its owner and id."""
        return self.listed.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """A page of the list, how many sessions match, and whether everything is known by which it is sorted."""

    rows: tuple[SessionRow, ...]
    count: int
    has_more: bool
    is_complete: bool


SORTS: Final[Mapping[str, Callable[[Listed], object]]] = {
    "host": lambda one: (not one.host, one.host.casefold()),
    "model": lambda one: (not one.model, one.model.casefold()),
    "project": lambda one: (not one.scope.project, one.scope.project.casefold()),
    "time": lambda one: -one.time,
    "messages": lambda one: -one.messages,
    "turns": lambda one: -one.totals.turns.turns,
    "sent": lambda one: -one.totals.turns.sent,
    "read": lambda one: -one.totals.prompt,
    "cost": lambda one: (-one.totals.cost, -one.totals.turns.sent),
}
"""What the list can be sorted by, besides the title; the first click on a number shows the largest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What was read of all sessions: which message and turn were the newest, and until when it is used again."""

    newest: Newest | None = None
    end: float = 0.0
    sessions: tuple[Listed, ...] = ()
    is_complete: bool = False


class SessionList:
    """The list of sessions, with what is kept between two requests."""

    def __init__(self, engine: Engine, sessions: Sessions, *, update: Callable[[], bool]) -> None:
        self._engine = engine
        self._sessions = sessions
        self._update = update
        self._lock = Lock()
        self._known = _Known()
        self._titles: LruCache[tuple[Scope, int], str] = LruCache(MAX_CACHED)
        self._windows: LruCache[tuple[Scope, int, int], tuple[WindowSource, ...]] = LruCache(MAX_CACHED)

    def read(self, params: Params) -> SessionPage:
        """Return a page of the sessions that match the filters, sorted, the newest first by default."""
        since = int(time.time() * 1000 - float(params["days"]) * DAY) if params.get("days") else 0
        known, is_complete = self.list_all()
        matching = [one for one in known if one.matches(params, since=since)]
        if params.get("sort") == "title":
            titles, has_all = self.read_titles(matching)
            matching.sort(key=lambda one: (not titles.get(one.scope), titles.get(one.scope, "").casefold()))
            is_complete = is_complete and has_all
        else:
            matching.sort(key=SORTS.get(params.get("sort", ""), SORTS["time"]))  # type: ignore[arg-type]
        if params.get("order") == "reverse":
            matching.reverse()
        start = int(params.get("start") or 0)
        shown = matching[start : start + PAGE]
        return SessionPage(
            rows=tuple(map(self._make_row, shown)),
            count=len(matching),
            has_more=len(matching) > start + PAGE,
            is_complete=is_complete,
        )

    def list_all(self) -> tuple[tuple[Listed, ...], bool]:
        """Return what is known of all sessions, and whether all of their figures are added up."""
        newest = self._sessions.newest()
        with self._lock:
            known = self._known
        if known.newest == newest and time.monotonic() < known.end:
            return known.sessions, known.is_complete
        is_complete = self._update()
        sessions = self._read_all(self._sessions.listed(age=0))
        with self._lock:
            end = time.monotonic() + MAX_AGE
            self._known = _Known(newest=newest, end=end, sessions=sessions, is_complete=is_complete)
        return sessions, is_complete

    def _read_all(self, listed: Mapping[Scope, int]) -> tuple[Listed, ...]:
        store = self._engine._memory.store
        tenants = self._sessions.tenants()
        totals = figures.sum_sessions(store, tenants, prices=self._engine.settings.model.prices)
        replies: dict[Scope, dict[str, int]] = {}
        times: dict[Scope, int] = {}
        for tenant in tenants:
            scope = Scope(tenant=tenant)
            for usage in store.sum_usage(Period(scope=scope, across=EVERYTHING, by="session")):
                if usage.scope is not None and usage.model:
                    replies.setdefault(usage.scope, {})[usage.model] = usage.replies
            for span in store.read_sessions(scope, across=EVERYTHING, limit=FEW):
                times[span.scope] = span.last_time
        name_host = name_hosts(store, tenants)
        found: list[Listed] = []
        for scope, count in listed.items():
            own = totals.get(scope, Totals())
            counts = replies.get(scope, {})
            one = Listed(
                scope=scope,
                messages=count,
                host=name_host(scope),
                model=max(counts, key=counts.__getitem__, default=""),
                time=max(times.get(scope, 0), own.turns.last_time),
                totals=own,
            )
            found.append(one)
        return tuple(found)

    def read_titles(
        self, sessions: Sequence[Listed], *, seconds: float = TITLE_SECONDS
    ) -> tuple[dict[Scope, str], bool]:
        """Return titles, as many as can be read in some seconds, and whether these are all."""
        end = time.monotonic() + seconds
        titles: dict[Scope, str] = {}
        for one in sessions:
            if time.monotonic() <= end or self._title_key(one) in self._titles:
                titles[one.scope] = self._find_title(one)
        return titles, len(titles) == len(sessions)

    def _title_key(self, one: Listed) -> tuple[Scope, int]:
        # A message that is forgotten changes the count: it may have been the title.
        return one.scope, one.messages

    def _find_title(self, one: Listed) -> str:
        key = self._title_key(one)
        with self._lock:
            title = self._titles.get(key)
        if title is None:
            title = make_title(self._engine._memory.store, one.scope)
            with self._lock:
                self._titles[key] = title
        return title

    def find_titles(self, scopes: Sequence[Scope], *, seconds: float = TITLE_SECONDS) -> dict[Scope, str]:
        """Return the titles of sessions, as many as can be read in some seconds."""
        listed = self._sessions.listed()
        wanted = [Listed(scope=scope, messages=listed.get(scope, 0)) for scope in scopes]
        titles, _ = self.read_titles(wanted, seconds=seconds)
        return titles

    def _make_row(self, one: Listed) -> SessionRow:
        store = self._engine._memory.store
        model = one.model
        if not model:
            for message in store.read_messages(Select(scope=one.scope, newest=True, limit=LAST_READ)):
                model = message.message.model or model
        key = (one.scope, one.totals.turns.turns, one.totals.turns.last_time)
        with self._lock:
            recent = self._windows.get(key)
        if recent is None:
            select = Select(scope=one.scope, newest=True, limit=SPARK)
            records = store.read_typed_records(select, kind=WINDOW, form=WindowSource)
            recent = tuple(record.data for record in records if record.data is not None)
            with self._lock:
                self._windows[key] = recent
        return SessionRow(listed=one, title=self._find_title(one), model=model, recent=recent)
