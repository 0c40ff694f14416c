"""The pages of the inspector.

The key to them is in their address. It is not in a cookie: browsers send cookies to every port of this machine, so that
another server would get it. Links are relative, and stay under the key.
"""

from __future__ import annotations

import hmac
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import anyio
from anyio import to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from holdfast import __version__
from holdfast.context.edits import Item
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, InputError
from holdfast.figures import dollars
from holdfast.index.scopes import SCOPE_PARTS
from holdfast.memory.query import find_recall_switch
from holdfast.providers import FORMATS
from holdfast.report import Window
from holdfast.search.fuse import Parts
from holdfast.server.bodies import RefusedBodyError, read_body
from holdfast.server.guard import derive
from holdfast.server.inspector import (
    data,
    draw,
    facts,
    markup,
    past,
    recall_view,
    session_list,
    trends,
    whatif,
    why,
    window_view,
)
from holdfast.session import Session
from holdfast.store.base import MessageRow, Scope, Select
from holdfast.text import percent, plural, shorten_number
from holdfast.timeline import CUT_KINDS, PastTurn
from holdfast.tokens import count_message

HERE: Final = Path(__file__).parent
MAX_FORM_BYTES: Final = 2**20
"""Bytes of what a button sends. The longest is the text of a fact."""
POLL_SECONDS: Final = 1.0
"""How often the store is asked whether something is new."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
MAX_HITS: Final = 20
"""Passages with words of a search that it shows, the best ones."""
MAX_SIMILAR: Final = 10
"""Passages without a word of a search that it shows, because they are similar."""
FIRST_TURN_SECONDS: Final = 0.1
"""How long the turns of what a search found are looked for."""
MAX_EXPLAINED: Final = 10
"""Passages of an answer whose scores are shown; the others are folded."""
MAX_CHOICES: Final = 200
"""Sessions that can be chosen for a question."""
MESSAGE_ACTIONS: Final = frozenset({"undo trim", "forget message", "pin", "unpin", "exclude", "include"})
"""The actions of the buttons of a message; others are about facts."""
TABS: Final = ("window", "conversation", "request")
"""What the page of a session shows on its left side."""
PREPARING: Final = "holdfast-pages"
"""The name of the threads that load what later pages need."""
PREPARE_AFTER: Final = 0.5
"""Seconds until such a thread begins: the server starts to listen, and a browser loads styles and scripts first."""
_USUAL: Final = Scope()
MAX_ROWS: Final = 120
"""Messages of a window that are sent at a time when a person unfolds them."""


def address(url: str, token: str) -> str:
    """Return the address that opens the inspector of a server."""
    return f"{url}/ui/{derive(token, 'inspector')}/"


def format_time(milliseconds: int) -> str:
    """Format a moment in the local time of this machine."""
    if not milliseconds:
        return ""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC).astimezone()
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{moment:%Y-%m-%d %H:%M}"


def link(path: str, scope: Scope, **more: object) -> str:
    """Return the address of a page about a scope; `data.parse_scope` reads the same scope from it."""
    parts: dict[str, str] = {}
    for name in SCOPE_PARTS:  # `asdict` takes ten times as long, and a page may have hundreds of links
        value = getattr(scope, name)
        if value != getattr(_USUAL, name):
            parts[name] = value
    others = {name: str(value) for name, value in more.items() if value not in {"", None}}
    return f"{path}?{urlencode(parts | others)}"


def name_kind(kind: str) -> str:
    """Return the word of the pages for a kind of change, or for the state of a message."""
    return past.KIND_NAMES.get(kind, kind)


def score_parts(parts: Parts) -> list[tuple[str, float]]:
    """Return the parts of a score that are not zero, with their names."""
    return [(name, value) for name, value in asdict(parts).items() if value > 0]


@lru_cache(maxsize=past.MAX_SESSIONS)
def _draw_chart(seen: past.Past) -> Markup:
    """Draw the chart of a session, once until something is new."""
    return draw.timeline(seen.turns)


def _render_request(window: Window, form: str) -> str:
    """Render the request of a window in a wire format; the reason if it has no form there."""
    try:
        return json.dumps(window.request(form), ensure_ascii=False, indent=2)
    except HoldfastError as error:
        return f"This window cannot be sent in the format of {window_view.name_product(form)}: {error}"


@cache
def make_pages() -> Environment:
    """Make the templates of all pages. Each is compiled once in a process, however many servers run in it."""
    pages = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    pages.filters |= {
        "time": format_time,
        "kind": name_kind,
        "product": window_view.name_product,
        "age": facts.describe_age,
        "plural": plural,
        "percent": percent,
        "breakable": markup.breakable,
        "excerpt": markup.excerpt,
        "is_code": lambda hit: hit.speaker == "tool" or markup.is_code(hit.text),
        "clean": markup.clean,
        "markdown": markup.markdown,
        "mark_code": markup.mark_code,
        "plain": markup.plain,
        "short": shorten_number,
        "dollars": dollars,
        "share": trends.share,
        "spent": trends.spent_time,
    }
    pages.globals |= {
        "link": link,
        "spark": draw.sparkline,
        "part_class": draw.class_of,
        "confidence_scale": draw.confidence_scale,
        "relevance_scale": draw.relevance_scale,
        "parts": draw.PARTS,
        "max_left": window_view.MAX_LEFT,
        "max_spark": data.SPARK,
        "version": __version__,
        "fact_types": facts.FACT_TYPES,
        "score_parts": score_parts,
    }
    return pages


def compile_pages() -> None:
    """Compile all templates, so that the first request of a page does not wait for it."""
    pages = make_pages()
    for name in pages.list_templates():
        pages.get_template(name)


def _try_to_load(load: Callable[[], object]) -> None:
    with suppress(HoldfastError):  # the engine was closed, or the store fails: the next page says so
        load()


class Inspector:
    """The pages over one engine."""

    def __init__(self, engine: Engine, *, token: str, outside: data.Outside | None = None) -> None:
        self._engine = engine
        self._key = derive(token, "inspector")
        self._sessions = data.Sessions(engine)
        self._facts = facts.Facts(engine)
        self._actions = facts.FactActions(engine)
        self._pasts = past.Pasts(engine._memory.store)
        self._first_turns = past.FirstTurns(engine._memory.store)
        self._figures = trends.Figures(engine, self._sessions)
        self._list = session_list.SessionList(engine, self._sessions, update=self._figures.update)
        self._whatif = whatif.WhatIf(engine)
        self._outside = outside or data.Outside()
        self._pages = make_pages()
        self._is_prepared = False
        self._lock = Lock()

    def routes(self) -> list[BaseRoute]:
        """Return the routes, to be mounted by the server."""
        pages: dict[str, Callable[[data.Params], str]] = {
            "/": self.sessions,
            "/sessions": self.session_rows,
            "/search": self.search,
            "/session": self.session,
            "/session/messages": self.messages,
            "/turn": self.turn,
            "/run": self.run,
            "/why": self.why,
            "/memory": self.memory,
            "/conflicts": self.conflicts,
            "/overview": self.overview,
            "/notes": self.notes,
            "/erase": self.erase,
            "/ask": self.ask,
            "/trends": self.trends,
            "/whatif": self.whatif,
            "/health": self.health,
            "/checks": self.checks,
        }
        keyed = Mount(
            "/ui/{key}",
            routes=[
                *(Route(path, self._page(page)) for path, page in pages.items()),
                Route("/act", self.post, methods=["POST"]),
                Route("/events", self.events),
                Route("/download", self.download),
                Mount("/static", StaticFiles(directory=HERE / "static")),
            ],
        )
        return [
            Route("/ui/open", self.open, methods=["POST"]),
            Route("/ui/style.css", self.style),
            keyed,
            Route("/ui", self.explain),
            Route("/ui/{path:path}", self.explain),
        ]

    # --- access ------------------------------------------------------------------

    async def explain(self, request: Request) -> Response:
        """Answer a request without the key: with a page for browsers, and a line for programs."""
        if "text/html" in request.headers.get("accept", ""):
            page = self._render("locked.html", is_wrong=request.method == "POST")
            # Without a referrer, browsers name no origin when the form is sent, and the server refuses it.
            return HTMLResponse(page, status_code=401, headers={**HEADERS, "referrer-policy": "same-origin"})
        text = "Open the inspector with `holdfast ui`: the address that it prints has a key that this one lacks.\n"
        return PlainTextResponse(text, status_code=401, headers=HEADERS)

    async def open(self, request: Request) -> Response:
        """Lead to the pages if someone enters the key, or the address that has it."""
        try:
            content = await read_body(request, limit=MAX_FORM_BYTES, setting="")
        except RefusedBodyError as error:
            return PlainTextResponse(f"the form was refused: {error}\n", status_code=error.status, headers=HEADERS)
        form = dict(parse_qsl(content.decode(errors="replace")))
        key = form.get("key", "").strip().rpartition("/ui/")[2].partition("/")[0]
        if not hmac.compare_digest(key.encode(errors="replace"), self._key.encode()):
            return await self.explain(request)
        return RedirectResponse(f"/ui/{self._key}/", status_code=303, headers=HEADERS)

    async def style(self, _: Request) -> Response:
        """Send the styles of the page that explains how to get the key."""
        return FileResponse(HERE / "static" / "inspector.css", headers=HEADERS)

    def _has_key(self, request: Request) -> bool:
        return hmac.compare_digest(request.path_params["key"].encode(), self._key.encode())

    def _page(self, make: Callable[[data.Params], str]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            if not self._has_key(request):
                return await self.explain(request)
            try:
                text, status = await to_thread.run_sync(make, dict(request.query_params)), 200
            except HoldfastError as error:
                text, status = self._render("problem.html", title="Not found", problem=str(error)), 404
            except ValueError:
                problem = "A number in the address is not a number."
                text, status = self._render("problem.html", title="Not understood", problem=problem), 400
            self.start_preparing()
            return HTMLResponse(text.encode(errors="replace"), status_code=status, headers=HEADERS)

        return answer

    def start_preparing(self) -> None:
        """Load what the pages need in a thread, once. Neither the start of a server nor the first page waits for it."""
        with self._lock:
            is_first = not self._is_prepared
            self._is_prepared = True
        if is_first:
            self._load_later(self._prepare)

    def _load_later(self, load: Callable[[], object]) -> None:
        """Load in a thread what later pages would wait for."""
        thread = Timer(PREPARE_AFTER, _try_to_load, [load])
        thread.name = PREPARING
        thread.daemon = True
        thread.start()

    def _prepare(self) -> None:
        """Load what the first question, search and overview would wait for."""
        self._list.find_titles(self._list_choices(), seconds=math.inf)
        self._engine._memory.prepare(data.parse_scope({}), across=data.EVERYTHING)
        self.overview({})

    def _list_choices(self) -> list[Scope]:
        """Return the sessions that can be chosen for a question, the newest ones."""
        return list(self._sessions.listed())[:MAX_CHOICES]

    def _render(self, template: str, **values: Any) -> str:
        return self._pages.get_template(template).render(**values)

    # --- sessions ----------------------------------------------------------------

    def sessions(self, params: data.Params) -> str:
        """Show the list of sessions, with the search over everything."""
        known, _ = self._list.list_all()
        return self._render(
            "sessions.html",
            page="sessions",
            params=params,
            known=known,
            tenants=self._sessions.tenants(),
            home=str(self._engine._memory.home),
            **self._list_sessions(params),
            **self._search(params),
        )

    def session_rows(self, params: data.Params) -> str:
        """Show a page of the list: the whole table, or only the rows after those that are shown."""
        template = "_rows.html" if params.get("start") else "_sessions.html"
        return self._render(template, params=params, **self._list_sessions(params))

    def _list_sessions(self, params: data.Params) -> dict[str, Any]:
        return {"listed": self._list.read(params), "start": int(params.get("start") or 0)}

    def search(self, params: data.Params) -> str:
        """Show what a search finds."""
        return self._render("_hits.html", params=params, **self._search(params))

    def _search(self, params: data.Params) -> dict[str, Any]:
        found = data.Found()
        if params.get("q", "").strip():
            tenants = self._sessions.tenants()
            found = data.search(self._engine, params["q"], tenants, limit=MAX_HITS, max_similar=MAX_SIMILAR)
        return {
            "found": found,
            "max_hits": MAX_HITS,
            "searched": sum(self._sessions.listed().values()),
            "titles": self._list.find_titles(found.scopes),
            "turns": self._first_turns.find(found.messages, seconds=FIRST_TURN_SECONDS),
        }

    # --- one session -------------------------------------------------------------

    def _open(self, params: data.Params) -> Session:
        scope = data.parse_scope(params)
        if not self._engine._memory.store.read_messages(Select(scope=scope, newest=True, limit=1)):
            raise InputError(f"there is no session {scope.session!r} of agent {scope.agent!r} in this project")
        return self._engine._open_session(scope)

    def session(self, params: data.Params) -> str:
        """Show a session: the window of a turn, the conversation or the request, next to what happened in the turn."""
        session = self._open(params)
        values = self._look(session, params)
        return self._render("session.html", **values, **self._look_at_session(session, values["seen"]))

    def turn(self, params: data.Params) -> str:
        """Show one turn of a session: as a page, or the parts of the page that change with the turn."""
        params = {"tab": "window", **params}
        if params.get("page"):
            return self.session(params)
        return self._render("_panes.html", **self._look(self._open(params), params))

    def _look(self, session: Session, params: data.Params) -> dict[str, Any]:
        """Collect what the parts of the page of a session show that change with the turn."""
        scope = session.scope
        around = int(params["message"]) if params.get("message") else None
        if params.get("all"):
            seen = self._pasts.read(scope)
        else:
            seen = self._pasts.read_some(scope, turn=int(params.get("turn") or 0), message=around or 0)
        tab = params.get("tab") or ("window" if params.get("turn") else "conversation")
        if tab not in TABS or not seen.turns:
            tab = "conversation"
        if params.get("turn") and seen.find_turn(int(params["turn"])) is None:
            raise InputError(f"there is no turn {params['turn']} in session {scope.session!r}")
        values: dict[str, Any] = {
            "page": "session",
            "scope": scope,
            "params": params,
            "seen": seen,
            "last": seen.last,
            "tab": tab,
            "around": around,
            "is_newest": not params.get("turn"),
            "turn": None,
            "problem": "",
            "messages": [],
        }
        turn = None
        window = None
        if seen.turns:
            turn = seen.find_turn(int(params.get("turn") or seen.last)) or seen.turns[-1]
            values["turn"] = turn
            try:
                before = past.make_items_before(session, seen, turn)
                window = past.make_window(session, seen, turn)
                values |= self._look_at_turn(session, seen, turn, window, before=before, params=params)
                if tab == "window":
                    view = window_view.view_window(seen, turn, window, before)
                    unfolded = [int(params["open"])] if params.get("open") else []
                    repairs = window_view.group_repairs(window.report.repairs, provider=window.provider)
                    values |= {"view": view, "stretches": view.stretches(unfolded=unfolded), "repairs": repairs}
            except InputError as error:
                values["problem"] = str(error)
        if tab == "conversation":
            if around is None and turn is not None and turn.number < seen.last:
                around = max(seen.histories.read(turn.key), default=None)
                values["around"] = around
            rows = data.read_messages(session, around=around)
            values["messages"] = self._view_messages(seen, rows, turn=turn, window=window)
        if not seen.is_whole:  # the next click may be on an early turn
            self._load_later(partial(self._pasts.read, scope))
        return values

    def _look_at_session(self, session: Session, seen: past.Past) -> dict[str, Any]:
        """Collect what the page of a session shows above them, which is the same for all turns."""
        last_turn = seen.turns[-1].time if seen.turns else 0
        return {
            "summary": data.read_summary(self._engine._memory.store, session.scope, last_turn=last_turn),
            "turns": len(seen.turns) if seen.is_whole else seen.last,
            "drawn": len(seen.turns),
            "compactions": seen.compactions,
            "totals": self._figures.session(session.scope),
            "chart": _draw_chart(seen),
        }

    def _look_at_turn(
        self,
        session: Session,
        seen: past.Past,
        turn: PastTurn,
        window: Window,
        *,
        before: Sequence[Item] | None,
        params: data.Params,
    ) -> dict[str, Any]:
        known = {(item.id, item.sent.digest) for item in before or ()}
        new = {item.id for item in window.items if item.id and (item.id, item.sent.digest) not in known}
        form = params.get("format") or window.provider
        return {
            "window": window,
            "report": window.report,
            "figures": self._figures.turn(session.scope, turn.number),
            "map": draw.window_map(window.items, window=window.report.raw_max_tokens, new=new if known else ()),
            "changes": why.list_changes(seen, turn, session.settings),
            "recall": recall_view.view_recall(session, seen, turn, window),
            "can_undo": turn.number == seen.last_cut_turn,
            "formats": FORMATS,
            "format": form,
            "wire": _render_request(window, form) if params.get("tab") == "request" else "",
        }

    def run(self, params: data.Params) -> str:
        """Show messages of a window that were folded."""
        session = self._open(params)
        seen = self._pasts.read_some(session.scope, turn=int(params.get("turn") or 0))
        turn = seen.find_turn(int(params.get("turn") or 0))
        if turn is None:
            raise InputError(f"there is no turn {params.get('turn')} in session {session.id!r}")
        start = int(params.get("start") or 0)
        stop = int(params.get("stop") or 0)
        before = past.make_items_before(session, seen, turn)
        view = window_view.view_window(seen, turn, past.make_window(session, seen, turn), before)
        return self._render(
            "_window_rows.html",
            scope=session.scope,
            turn=turn,
            rows=view.rows(start, min(stop, start + MAX_ROWS)),
            next=start + MAX_ROWS,
            stop=stop,
        )

    def why(self, params: data.Params) -> str:
        """Show why a message left the window, or what an edit did, and where the message came back."""
        session = self._open(params)
        seen = self._pasts.read(session.scope)
        titles = self._list.find_titles([session.scope])
        values: dict[str, Any] = {
            "page": "session",
            "scope": session.scope,
            "params": params,
            "title": titles.get(session.scope, ""),
        }
        if params.get("message"):
            number = int(params["message"])
            rows = session._memory.store.read_messages(Select(scope=session.scope, ids=(number,)))
            if not rows:
                raise InputError(f"there is no message {number} in session {session.id!r}")
            events = why.list_events(session, seen, number)
            first = min((event.turn for event in events if event.change.kind in CUT_KINDS), default=0)
            values |= {
                "message": data.view_message(rows[0]),
                "tokens": count_message(rows[0].message, count=session._resources.count),
                "events": events,
                "returns": why.list_returns(session, seen, number, after=first),
                "max_unfolded": why.MAX_UNFOLDED,
                "rows": [],
            }
        else:
            event = why.find_change(session, seen, int(params.get("edit") or -1))
            left = why.list_messages(session, event.change)
            values |= {"message": None, "events": [event], "returns": [], "rows": left}
        return self._render("_why.html" if params.get("part") else "why.html", **values)

    def messages(self, params: data.Params) -> str:
        """Show the messages before a number, as they were in a turn."""
        session = self._open(params)
        seen = self._pasts.read(session.scope)
        rows = data.read_messages(session, before=int(params.get("before") or 0) or None)
        turn = seen.find_turn(int(params.get("turn") or seen.last))
        window = None
        if turn is not None:
            with suppress(InputError):  # forgotten
                window = past.make_window(session, seen, turn)
        found = self._view_messages(seen, rows, turn=turn, window=window)
        return self._render("_messages.html", scope=session.scope, messages=found, around=None, turn=turn)

    def _view_messages(
        self, seen: past.Past, rows: Sequence[MessageRow], *, turn: PastTurn | None, window: Window | None
    ) -> list[data.MessageView]:
        """Return messages of the conversation, with what had become of each in a turn with this window."""
        states: dict[int, tuple[str, str]] = {}
        if turn is not None and window is not None:
            states = past.find_states(seen, turn, window, [row.id for row in rows])
        return [data.view_message(row, states=states, turns=seen.first_turns) for row in rows]

    # --- memory ------------------------------------------------------------------

    def memory(self, params: data.Params) -> str:
        """Show the facts."""
        known = self._facts.read(self._sessions.tenants())
        matching = facts.sort_facts([fact for fact in known.facts if fact.matches(params)], params)
        start = int(params.get("start") or 0)
        shown = matching[start : start + data.PAGE]
        sources = self._facts.find_sources([fact.row for fact in shown])
        template = "memory.html"
        if params.get("rows"):
            template = "_fact_rows.html" if start else "_facts.html"
        return self._render(
            template,
            page="memory",
            params=params,
            facts=shown,
            conflicts=[] if start else known.conflicts,
            is_complete=known.is_complete,
            sources=sources,
            hosts=self._facts.find_hosts([fact.row for fact in shown], talked=self._sessions.listed()),
            successors=self._facts.find_successors([fact.row for fact in shown]),
            titles={scope: self._facts.find_title(scope) for scope in sources.values()},
            total=len(matching),
            holding=sum(fact.holds for fact in known.facts),
            has_subjects=any(fact.row.subject or fact.row.slot for fact in matching),
            more=len(matching) > start + data.PAGE,
            start=start,
            owners=self._list_owners(),
            states=facts.STATES,
            unread="" if known.facts else self._engine.stats().learning.describe_unread(),
        )

    def conflicts(self, params: data.Params) -> str:
        """Show the facts that contradict each other, however long it takes to find them."""
        known = self._facts.read(self._sessions.tenants(), seconds=math.inf)
        return self._render("_conflicts.html", params=params, conflicts=known.conflicts, is_complete=True)

    def overview(self, params: data.Params) -> str:
        """Show what a coming session of a project starts with."""
        owners = self._list_owners()
        chosen = params.get("in", "").removeprefix("?")
        scope = owners[0] if owners else Scope()
        if chosen:
            scope = data.parse_scope(dict(parse_qsl(chosen, keep_blank_values=True)))
        memory = self._engine._find_resources(scope.project).memory
        cap = min(memory.settings.recall.overview_tokens, memory.settings.recall.hard_cap_tokens)
        return self._render(
            "overview.html",
            page="memory",
            params=params,
            owners=owners,
            scope=scope,
            cap=cap,
            switch=find_recall_switch(memory.settings),
            overview=memory.make_overview(scope=scope, cap=cap),
        )

    def notes(self, params: data.Params) -> str:
        """Show the notes of the workspace."""
        return self._render("notes.html", page="memory", params=params, notes=self._outside.notes())

    def _list_owners(self) -> list[Scope]:
        """List the tenants, projects and agents that have sessions or facts, the one with the newest message first."""
        scopes = [*self._sessions.listed(), *self._engine._memory.store.scopes()]
        return list(dict.fromkeys(map(facts.owner_of, scopes)))

    def erase(self, params: data.Params) -> str:
        """Show what exactly would be erased."""
        scope = data.parse_scope(params)
        store = self._engine._memory.store
        erased, rows = [], []
        for owner, key in facts.parse_items(params):
            erased += store.read_facts(Select(scope=owner), keys=[key])
        if params.get("message"):
            ids = (int(params["message"]),)
            rows = store.read_messages(Select(scope=scope, ids=ids))
            related = store.read_facts(Select(scope=scope, across=True))
            erased = [row for row in related if int(params["message"]) in row.evidence]
        if not erased and not rows:
            raise InputError("there is nothing to erase: it is gone already")
        return self._render(
            "_erase.html",
            scope=scope,
            params=params,
            facts={(row.scope, row.id): row for row in erased}.values(),
            items="\n".join(link("", owner, fact=key) for owner, key in facts.parse_items(params)),
            messages=[data.view_message(row) for row in rows],
        )

    # --- questions ---------------------------------------------------------------

    def ask(self, params: data.Params) -> str:
        """Show what would be recalled for a question, with the settings in force and with others."""
        question, answers = params.get("q", "").strip(), []
        if question:
            chosen = params.get("in", "").removeprefix("?")
            scope = data.parse_scope(dict(parse_qsl(chosen, keep_blank_values=True)) if chosen else params)
            cap = int(params["cap"]) if params.get("cap") else None
            for title, changes in (("A", params.get("a", "")), ("B", params.get("b", ""))):
                if title == "A" or changes or params.get("two"):
                    answers.append(data.ask(self._engine, question, scope=scope, cap=cap, changes=changes, title=title))
        scopes = self._list_choices()
        return self._render(
            "_answers.html" if params.get("rows") else "ask.html",
            page="ask",
            params=params,
            answers=answers,
            is_same=data.have_same_result(answers),
            max_explained=MAX_EXPLAINED,
            default_cap=self._engine.settings.recall.hard_cap_tokens,
            owners=[Scope(tenant=tenant) for tenant in self._sessions.tenants()],
            scopes=scopes,
            titles=self._list.find_titles(scopes),
        )

    # --- figures -----------------------------------------------------------------

    def trends(self, params: data.Params) -> str:
        """Show tokens, costs, cuts, recalls and errors over time."""
        today = trends.today_of(self._engine._memory.clock())
        return self._render("trends.html", page="trends", **self._figures.trends(params, today=today))

    def whatif(self, params: data.Params) -> str:
        """Show a replay of a session with another window, model or setting, next to what was sent."""
        session = self._open(params) if "session" in params else None
        template = "_whatif.html" if params.get("part") else "whatif.html"
        recent = list(self._sessions.listed())[: data.PAGE]
        return self._render(template, page="whatif", **self._whatif.look(params, session, recent))

    # --- health ------------------------------------------------------------------

    def health(self, params: data.Params) -> str:
        """Show whether everything works."""
        stats = self._engine.stats()
        return self._render(
            "health.html",
            page="health",
            params=params,
            stats=stats,
            latencies=data.read_latencies(self._engine, self._sessions.tenants()),
            embedder=self._engine._memory.choice.reasons,
            waiting=self._engine._memory.waiting(),
        )

    def checks(self, params: data.Params) -> str:
        """Show what `holdfast doctor` finds, and the settings in force; with `all` after reading every row."""
        return self._render("_checks.html", params=params, health=self._outside.health(bool(params.get("all"))))

    # --- what changes something --------------------------------------------------

    async def post(self, request: Request) -> Response:
        """Run the action of a button on a page."""
        if not self._has_key(request):
            return await self.explain(request)
        try:
            content = await read_body(request, limit=MAX_FORM_BYTES, setting="")
        except RefusedBodyError as error:
            return PlainTextResponse(f"the form was refused: {error}\n", status_code=error.status, headers=HEADERS)
        form = dict(parse_qsl(content.decode(errors="replace"), keep_blank_values=True))
        try:
            said = await to_thread.run_sync(self.act, form)
        except (HoldfastError, ValueError) as error:
            return PlainTextResponse(f"{error}\n", status_code=400, headers=HEADERS)
        undo = {"x-undo": str(said.undo)} if said.undo else {}
        return PlainTextResponse(said.text, headers=HEADERS | undo)

    def act(self, form: Mapping[str, str]) -> facts.Said:
        """Run the action of a button, and return a sentence about the result."""
        action = form.get("action", "")
        if action in MESSAGE_ACTIONS:
            return facts.Said(text=self._act_on_message(action, form))
        return self._actions.run(action, form)

    def _act_on_message(self, action: str, form: Mapping[str, str]) -> str:
        scope = data.parse_scope(form)
        session = self._engine._open_session(scope)
        number = int(form.get("message") or 0)
        if action == "undo trim":
            count = session.undo_trim()
            verb = "comes" if count == 1 else "come"
            return f"{plural(count, 'message')} {verb} back with the next request, as far as there is room."
        if action == "forget message":
            return f"{plural(session.forget([number]), 'row')} erased."
        if action in {"pin", "unpin"}:
            session.pin([number], pinned=action == "pin")
            return f"Message {number} is {'pinned' if action == 'pin' else 'no longer pinned'}."
        session.exclude([number], excluded=action == "exclude")
        return f"Message {number} is {'not recalled from now on' if action == 'exclude' else 'recalled again'}."

    # --- live updates ------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        """Send an event to a page when there is something new."""
        if not self._has_key(request):
            return await self.explain(request)

        async def changes() -> AsyncIterator[str]:
            last: data.Newest | None = None
            while not await request.is_disconnected():
                marks = await to_thread.run_sync(self._sessions.newest)
                if marks != last:
                    last = marks
                    yield f"data: {json.dumps({'message': marks.message, 'turn': marks.turn})}\n\n"
                await anyio.sleep(POLL_SECONDS)

        return StreamingResponse(changes(), media_type="text/event-stream", headers=HEADERS)

    async def download(self, request: Request) -> Response:
        """Send one message whole, as a file that no browser runs."""
        if not self._has_key(request):
            return await self.explain(request)
        scope = data.parse_scope(dict(request.query_params))
        ids = (int(request.query_params.get("message") or 0),)
        rows = await to_thread.run_sync(self._engine._memory.store.read_messages, Select(scope=scope, ids=ids))
        if not rows:
            return PlainTextResponse("there is no such message\n", status_code=404, headers=HEADERS)
        parts = "\n\n".join(data.full_text(part) for part in rows[0].message.parts)
        name = {"content-disposition": f'attachment; filename="message-{ids[0]}.txt"'}
        return PlainTextResponse(parts.encode(errors="replace"), headers={**HEADERS, **name})
