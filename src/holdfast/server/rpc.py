"""Calls for plugins: one JSON object for each call and each answer, over standard input and output or HTTP.

{"id": 1, "method": "recall", "params": {"session": "s1", "query": "which port?"}}
{"id": 1, "result": {"block": "…", …}}
{"id": 2, "error": {"type": "InputError", "message": "…"}}
"""

from __future__ import annotations

import inspect
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from threading import Lock, Timer
from typing import IO, Any, Final

import msgspec

from holdfast import __version__, providers
from holdfast.engine import Engine
from holdfast.errors import HoldfastError, InputError
from holdfast.hooks.handlers import HostHooks
from holdfast.memory.query import find_recall_switch
from holdfast.report import Window
from holdfast.session import CALLER, Session
from holdfast.settings import ServerSettings
from holdfast.store.base import FactType, MessageRow, Record, Select
from holdfast.store.connection import find_file_number
from holdfast.timeline import MAX_CUT_CHARS
from holdfast.turn import MIN_BLOCK

log = logging.getLogger("holdfast.server")

Method = Callable[..., Any]
METHODS: Final[dict[str, Method]] = {}
"""Every call by its name: a function whose first argument is the engine or a session, with typed keywords."""
_SCOPE: Final = (("session", str), ("project", str, ""), ("agent", str, "main"), ("tenant", str, "local"))
APPENDED: Final = "appended"
"""The kind of the records that hold the keys of `append`."""
SUBAGENT: Final = "subagent"
"""The kind of the records that name the sessions of subagents."""
MAX_SUBAGENTS: Final = 6
"""Subagents, the newest ones, whose sessions are searched with that of their parent. Each takes some milliseconds."""
SKIPPED_BYTES: Final = 2**20
"""Bytes that are read at a time of a line that is too long."""
PREPARE_AFTER: Final = 0.05
"""Seconds after which what the first call about a session needs is loaded, unless one waits: then that loads it."""
PREPARE_SECONDS: Final = 0.5
"""How long these calls wait for that at most. Loading the same in two threads takes longer."""
MAX_THREADS: Final = 8
"""Calls that run at the same time. Calls about one session wait for each other."""


def _method(function: Method) -> Method:
    METHODS[function.__name__] = function
    return function


@_method
def ping(_: Engine) -> dict[str, Any]:
    """Return the version of the server."""
    return {"version": __version__, "pid": os.getpid()}


@_method
def sessions(
    engine: Engine,
    *,
    tenant: str = "local",
    project: str | None = None,
    agent: str | None = None,
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """List the stored sessions of a tenant; only those of a project or an agent, if one is named."""
    stored = engine.sessions(tenant=tenant, project=project, agent=agent, limit=limit)
    return [info.to_json() for info in stored]


@_method
def assemble(
    session: Session,
    *,
    messages: list[dict[str, Any]],
    format: str | None = None,
    limit: int | None = None,
    reserve: int | None = None,
    model: str | None = None,
    provider: str | None = None,
    tools: list[dict[str, Any]] | None = None,
    overhead: int = 0,
    question: str = "",
    host: str = "",
) -> dict[str, Any]:
    """Make the window of the next request, and the block for a question that the host sends after it."""
    window = session.assemble(
        messages,
        format=format,
        limit=limit,
        reserve=reserve,
        model=model,
        provider=provider,
        tools=tools or (),
        overhead=overhead,
        question=question,
    )
    session._record_host(host)
    blocks = [window.block]
    with suppress(HoldfastError):  # the request continues without them
        blocks += session._resources.ask_memory(
            lambda: list(_recall_from_subagents(session, window, question)), scope=session.scope
        )
    block = "\n".join(filter(None, blocks))
    sent = {**window.request(), "block": block, "tokens": window.tokens, "format": window.provider}
    made = {"place": window.place, "has_memory": window.has_memory, "report": window.report.to_json()}
    return sent | made


@_method
def add_subagent(session: Session, *, child: str) -> dict[str, Any]:
    """Note that a session is that of a subagent: what it finds is recalled for questions of this one too."""
    memory = session._memory
    memory.store.add_records([Record(scope=session.scope, kind=SUBAGENT, key=child, data={}, time=memory.clock())])
    return {"child": child}


def _recall_from_subagents(session: Session, window: Window, question: str) -> Iterator[str]:
    """Make a block for each subagent of a session with passages that match a question, the newest first."""
    if not question:
        return
    memory = session._memory
    report = window.report
    left = report.raw_max_tokens - report.reserved_tokens - report.total_tokens
    left = min(memory.settings.recall.hard_cap_tokens, left) - session._resources.count(window.block)
    select = Select(scope=session.scope, newest=True, limit=MAX_SUBAGENTS)
    for record in reversed(memory.store.read_records(select, kind=SUBAGENT)):
        if left < MIN_BLOCK:
            return
        scope = replace(session.scope, session=record.key)
        with suppress(HoldfastError):  # the others may still match
            # Facts are in the block of the session.
            recall = memory.recall([question], scope=scope, automatic=True, across=False, cap=left, max_facts=0)
            left -= recall.tokens
            yield recall.block


@_method
def append(
    session: Session,
    *,
    messages: list[dict[str, Any]],
    format: str | None = None,
    key: str = "",
    after: str | None = None,
    host: str = "",
) -> dict[str, Any]:
    """Archive messages that follow those of the session, or the `place` of a window; those of a `key` only once."""
    store = session._memory.store
    if key and store.read_records(Select(scope=session.scope), kind=APPENDED, keys=[key]):
        return {"ids": [], "stripped": [], "is_duplicate": True}
    numbers = session.append(messages, format=format, after=after)
    session._record_host(host)
    if key:  # after the messages: if this is not reached, they are archived again, which adds nothing
        time = session._memory.clock()
        store.add_records([Record(scope=session.scope, kind=APPENDED, key=key, data={}, time=time)])
    stripped = list(numbers.stripped)
    return {"ids": list(numbers), "stripped": stripped, "place": numbers.place, "is_duplicate": False}


@_method
def recall(
    session: Session, *, query: str, cap: int | None = None, across: bool | None = None, overview: bool = False
) -> dict[str, Any]:
    """Make the block that is recalled for a question; with `overview` also that of the project, for a new session."""
    found = session.recall(query, cap=cap, across=across)
    facts = [{"id": hit.fact.id, "type": hit.fact.type, "content": hit.fact.content} for hit in found.facts]
    return {
        "block": found.block,
        "overview": _make_overview(session) if overview else "",
        "tokens": found.tokens,
        "reason": found.reason,
        "facts": facts,
        "hits": [asdict(hit) for hit in found.hits],
    }


def _make_overview(session: Session) -> str:
    """Make the overview for the first question of a session; empty if the session has messages, or recall is off."""
    memory = session._memory
    if find_recall_switch(memory.settings) or memory.store.read_messages(Select(scope=session.scope, limit=1)):
        return ""
    return memory.make_overview(scope=session.scope).text


@_method
def compact(
    session: Session,
    *,
    messages: list[dict[str, Any]] | None = None,
    format: str | None = None,
    limit: int | None = None,
    instructions: str | None = None,
    force: bool = True,
) -> dict[str, Any]:
    """Replace the older history with a summary."""
    return session.compact(messages, format=format, limit=limit, instructions=instructions, force=force).to_json()


@_method
def search(session: Session, *, query: str, limit: int = 10, across: bool = True) -> list[dict[str, Any]]:
    """Find the passages that match a question."""
    hidden = session.exclusions().messages
    hits = session.search(query, limit=limit, across=across)
    return [{**asdict(hit), "excluded": hit.message in hidden} for hit in hits]


@_method
def get(session: Session, *, ids: list[int], around: int = 0) -> list[dict[str, Any]]:
    """Get archived messages by number."""
    return [_message(row) for row in session.get(ids, around=around)]


@_method
def describe(session: Session, *, last: int = 10) -> list[dict[str, Any]]:
    """List what left the windows of a session last, oldest first."""
    return [asdict(cut) for cut in session.describe_cuts(last=last)]


@_method
def expand(session: Session, *, cut: int, start: int = 0, max_chars: int = MAX_CUT_CHARS) -> dict[str, Any]:
    """Get the messages that left the window in a cut."""
    return asdict(session.expand_cut(cut, start=start, max_chars=max_chars))


@_method
def remember(session: Session, *, content: str, type: FactType = "decision") -> dict[str, Any]:  # noqa: A002
    """Store a fact."""
    return asdict(session.remember(content, type=type))


@_method
def facts(session: Session, *, across: bool = True) -> list[dict[str, Any]]:
    """List the current facts."""
    hidden = session.exclusions()
    return [{**asdict(row), "excluded": hidden.hides(row)} for row in session.facts(across=across)]


@_method
def exclude(
    session: Session, *, ids: list[int] | None = None, facts: list[str] | None = None, excluded: bool = True
) -> dict[str, int]:
    """Exclude messages and facts from recall, or include them again."""
    return {"changed": session.exclude(ids or (), facts=facts or (), excluded=excluded)}


@_method
def forget(
    session: Session, *, ids: list[int] | None = None, facts: list[str] | None = None, whole_session: bool = False
) -> dict[str, int]:
    """Forget messages and facts for good; with `whole_session` all messages of the session."""
    if (ids is not None or facts is not None) == whole_session:
        raise InputError("forget: name ids or facts, or set whole_session")
    count = session.forget_facts(facts) if facts else 0
    if ids or whole_session:
        count += session.forget(ids)
    return {"forgotten": count}


@_method
def report(session: Session) -> dict[str, Any] | None:
    """Return the report about the last request of a session."""
    reports = session.timeline()
    return reports[-1].to_json() if reports else None


def _message(row: MessageRow) -> dict[str, Any]:
    message = row.message
    shown = providers.render([message], "pi")
    about = {"id": row.id, "session": row.scope.session, "role": message.role, "excluded": row.excluded}
    return {**about, "text": message.whole_text, "message": shown}


def _is_about_session(function: Method) -> bool:
    hints = inspect.get_annotations(function, eval_str=True)
    return hints[next(iter(inspect.signature(function).parameters))] is Session


def _struct(function: Method) -> type[msgspec.Struct]:
    """Make the type of a method's parameters out of its signature."""
    hints = inspect.get_annotations(function, eval_str=True)
    _, *others = inspect.signature(function).parameters.values()
    fields: list[Any] = list(_SCOPE) if _is_about_session(function) else []
    for one in others:
        hint = hints[one.name]
        fields.append((one.name, hint) if one.default is one.empty else (one.name, hint, one.default))
    return msgspec.defstruct(f"{function.__name__}_params", fields, forbid_unknown_fields=True, kw_only=True)


_PARAMS: Final = {name: _struct(function) for name, function in METHODS.items()}
_ABOUT_SESSION: Final = frozenset(name for name, function in METHODS.items() if _is_about_session(function))


class Rpc:
    """Answers calls with an engine.

    Args:
        engine: The memory.
        home: The folder in which events of hosts wait, for a server that takes them in.
        memory: The name of the memory. Events of others may wait there too, and stay.
        project: The project that the first call on a stream will probably be about.
    """

    def __init__(self, engine: Engine, *, home: Path | None = None, memory: str = "", project: str = "") -> None:
        self._engine = engine
        self._project = project
        self._home = None if home is None else str(home)
        self._name = memory
        self._hooks = HostHooks(
            engine._memory,
            choose=lambda project: engine._find_resources(project).memory,
            find_reader=lambda project: engine._find_resources(project).learner.reader,
            notify=engine._notify,
            notify_end=engine._notify_end,
        )

    def call(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call a method by its name.

        Raises:
            InputError: There is no such method, or its parameters are wrong.
        """
        if method == "hook":
            with suppress(HoldfastError):  # what waits is tried again, and the event may be answered without it
                self.take_in(str(params.get("session_id") or ""))
            return self._hooks.handle(params)
        if method == "take_in":
            return {"events": self.take_in(str(params.get("session") or ""))}
        if method not in METHODS:
            raise InputError(f"method {method!r} is not one of {', '.join([*METHODS, 'hook', 'take_in'])}")
        try:
            read = msgspec.convert(params, _PARAMS[method])
        except msgspec.ValidationError as error:
            raise InputError(f"{method}: {error}") from error
        caller = CALLER.set(None)  # calls of all clients are made by the same threads
        try:
            return self._call(method, msgspec.structs.asdict(read))
        finally:
            CALLER.reset(caller)

    def take_in(self, session: str = "") -> int:
        """Handle the events that wait in the spool, all or those of a session, and return how many there were.

        Raises:
            StorageError: The store cannot take them. They stay in the spool.
        """
        return 0 if self._home is None else self._hooks.take_in(self._home, memory=self._name, session=session)

    def look_again(self) -> None:
        """Archive what hosts have added to their transcripts after the event: some write the last reply later.

        Raises:
            StorageError: The store cannot take it.
        """
        self._hooks.look_again()

    def _call(self, method: str, values: dict[str, Any]) -> Any:
        if method not in _ABOUT_SESSION:
            return METHODS[method](self._engine, **values)
        scope = {name: values.pop(name) for name, *_ in _SCOPE}
        return METHODS[method](self._engine.session(scope.pop("session"), **scope), **values)

    def answer(self, line: str | bytes) -> bytes:
        """Answer a call given as JSON; errors are answers too."""
        number: Any = None
        try:
            call = json.loads(line)
            number, method = (call.get("id"), call.get("method")) if isinstance(call, dict) else (None, call)
            params = call.get("params") or {} if isinstance(call, dict) else {}
            return _encode({"id": number, "result": self.call(str(method), params)})
        except (HoldfastError, ValueError) as error:
            return _encode({"id": number, "error": {"type": type(error).__name__, "message": str(error)}})
        except Exception as error:  # one call must not end the process
            log.exception("a call failed")
            return _encode({"id": number, "error": {"type": type(error).__name__, "message": f"internal: {error}"}})

    def serve(self, stream: IO[bytes], output: IO[bytes], *, first: bytes | None = None) -> bytes | None:
        """Answer the calls on a stream until it ends, or until the file of the memory was deleted, moved or replaced.

        Answers come as they are ready, each with the id of its call. Calls about one session are made in their order,
        by one thread; they do not hold up the calls about others.

        A host starts this process before it needs it, so what the first call about a session needs is loaded meanwhile.
        The background work of the engine begins after that, or after the first answer to such a call.

        Args:
            stream: The calls, one a line.
            output: Where the answers go.
            first: A call that was already read from the stream.

        Returns:
            The call that came after the file was deleted, moved or replaced; None if the stream has ended.
        """
        lines = _read_lines(stream, limit=self._engine.settings.server.max_request_bytes)
        if first is not None:
            lines = chain([first], lines)
        file = str(self._engine._memory.store.path)
        file_number = find_file_number(file)
        lock = Lock()
        waiting: dict[object, deque[bytes]] = {}
        preparing = Timer(PREPARE_AFTER, self._prepare)
        preparing.daemon = True

        def run(key: object, *, is_about_session: bool) -> None:
            if is_about_session:
                preparing.join(PREPARE_SECONDS)
            while True:
                with lock:
                    if not waiting[key]:
                        del waiting[key]
                        return
                    line = waiting[key].popleft()
                answer = self.answer(line) if line else _refuse_line()
                with lock, suppress(OSError):  # calls are made also if nobody reads the answers
                    output.write(answer)
                    output.flush()
                if is_about_session:
                    self._engine._start_background()

        preparing.start()
        try:
            with ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="holdfast-rpc") as pool:
                for line in lines:
                    if find_file_number(file) != file_number:
                        return line
                    session = ""
                    with suppress(ValueError, LookupError, TypeError, RecursionError):
                        session = str(json.loads(line)["params"]["session"])
                    if session:  # others, such as the `ping` by which a host starts the process, load nothing
                        preparing.cancel()
                    key = session or object()
                    with lock:
                        is_running = key in waiting
                        waiting.setdefault(key, deque()).append(line)
                    if not is_running:
                        pool.submit(run, key, is_about_session=bool(session))
        finally:
            preparing.cancel()
            preparing.join(PREPARE_SECONDS)
        return None

    def _prepare(self) -> None:
        """Load what the first call about a session needs, then begin with the background work."""
        with suppress(HoldfastError, OSError):  # the first call says why
            self._engine._prepare(self._project)
        self._engine._start_background()


def serve_calls(open_engine: Callable[[], Engine], stream: IO[bytes], output: IO[bytes], *, project: str = "") -> None:
    """Answer the calls on a stream until it ends. `project` is the one that the first call will probably be about.

    If the file of the memory is deleted, moved or replaced meanwhile, the calls after that are answered with what is at
    its place then, which is a new memory if there is nothing. A host that runs for days has no memory otherwise. If
    that cannot be opened, the answer to each call is the reason, and the next one tries again.

    Raises:
        HoldfastError: The memory cannot be opened when this begins.
    """
    limit = ServerSettings().max_request_bytes
    left: bytes | None = None
    while True:
        try:
            engine = open_engine()
        except HoldfastError as error:
            if left is None:
                raise
            with suppress(OSError):  # as above
                output.write(_refuse(left, error))
                output.flush()
            left = next(_read_lines(stream, limit=limit), None)
        else:
            with engine:  # closed before the next one is opened: SQLite has files next to both of the same name
                limit = engine.settings.server.max_request_bytes
                left = Rpc(engine, project=project).serve(stream, output, first=left)
        if left is None:
            return


def _read_lines(stream: IO[bytes], *, limit: int) -> Iterator[bytes]:
    """Yield the lines of a stream that have words; an empty one for a line that is longer than a limit."""
    while line := stream.readline(limit + 1):
        if len(line) > limit:
            while line and not line.endswith(b"\n"):
                line = stream.readline(SKIPPED_BYTES)
            yield b""
        elif line.strip():
            yield line


def _refuse(line: bytes, error: HoldfastError) -> bytes:
    """Return the answer to a call for which there is no memory."""
    number: Any = None
    with suppress(ValueError, LookupError, TypeError, RecursionError):
        number = json.loads(line)["id"]
    return _encode({"id": number, "error": {"type": type(error).__name__, "message": str(error)}})


def _refuse_line() -> bytes:
    return _refuse(b"", InputError("the call is longer than the setting server.max_request_bytes allows"))


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, default=_plain).encode() + b"\n"  # escaped: text may contain half a surrogate pair


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as something it has."""
    return list(value) if isinstance(value, Sequence | set | frozenset) else str(value)
