"""The engine: one memory, and the sessions over it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from weakref import WeakValueDictionary

from holdfast import settings as configuration
from holdfast.calls import DeadlineError, Watchdog
from holdfast.errors import ClosedError, HoldfastError, InputError, ModelError, UnavailableError
from holdfast.events import Hooks
from holdfast.memory.memory import Memory, Stats
from holdfast.memory.recall import Hit
from holdfast.session import Session
from holdfast.settings import Loaded, ProjectSettings, Settings
from holdfast.settings.loading import PROJECT_FILE
from holdfast.settings.projects import MAX_PROJECTS, folder_of
from holdfast.state import SessionState
from holdfast.store.base import Scope
from holdfast.tokens import TokenCounter, counter

if TYPE_CHECKING:
    from holdfast.models.base import Model

MAX_SESSIONS: Final = 64
"""Sessions whose state is kept between two requests."""
MAX_FAILURES: Final = 100
"""Failed extractions of an agent that its next report names, and agents with such reports."""
EMBED_BATCH: Final = 64
"""Passages that are embedded in the background at a time."""
RETRY_SECONDS: Final = 5.0
"""How long the background thread waits after an error."""
POLL_SECONDS: Final = 30.0
"""How often the background thread looks for work that another process left."""
HOOK_SECONDS: Final = 2.0
"""How long `close` waits for listeners that still run."""
CLOSE_SECONDS: Final = 10.0
"""How long `close` waits for the background thread, and for a memory that hangs."""
MAX_HANGING: Final = 4
"""Calls of one caller to a memory that does not answer; further ones are refused at once."""
SECONDS_PER_MESSAGE: Final = 0.05
"""How much longer than `archive.timeout_seconds` a call may take for each message of a history."""

T = TypeVar("T")


class Engine:
    """One memory, and the sessions over it. Open it with `Engine.open`, and close it or use it in a `with` statement.

    One engine may be used from any number of threads, and one memory by any number of processes at once.

    Attributes:
        model: The model that writes summaries, and extracts facts unless `reader` is set; None to use rules.
        reader: Another model that extracts facts.
        hooks: Functions that are called around compactions.
        warnings: Settings that were ignored. Every report repeats them.
        projects: The settings of each project; None if all sessions have those of the engine. Internal.
    """

    def __init__(
        self, memory: Memory, *, model: Model | None = None, hooks: Hooks | None = None, background: bool = False
    ) -> None:
        self.memory = memory
        self.model: Model | None = model
        self.reader: Model | None = None
        self.warnings: tuple[str, ...] = ()
        self.projects: ProjectSettings | None = None
        self.hooks = hooks or Hooks()
        self.auto = memory.settings.compaction.auto
        self.count = _open_counter(memory.settings, model)
        self.closing = Event()
        self._loaded: Loaded[Settings] | None = None
        self._views: dict[Path | None, Engine] = {}
        self._sessions: WeakValueDictionary[Scope, Session] = WeakValueDictionary()
        self._recent: dict[Scope, Session] = {}
        self._lock = Lock()
        self._due: dict[Session, int] = {}
        self._failures: dict[Scope, list[str]] = {}
        self._watchdog = Watchdog()
        self._worker = Worker(self._work_in_background) if background and not memory.store.readonly else None
        if self._worker is not None:
            memory.store.listen(self._worker.notify)
            self._worker.start()

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        settings: Settings | None = None,
        model: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        hooks: Hooks | None = None,
        background: bool = True,
        clock: Callable[[], int] | None = None,
        personal: bool = False,
    ) -> Self:
        """Open the memory in a folder, which is created if it does not exist.

        Args:
            path: The folder, or the address of a PostgreSQL server (`postgresql://…`); unset, `archive.path` of the
                settings, `$HOLDFAST_HOME`, or the platform's data folder.
            settings: Used exactly as given; unset, read as the commands do, from files and `HOLDFAST_*` variables.
            model: Writes summaries and extracts facts: a name (`anthropic/NAME`, `ollama/NAME`, `scripted:FILE`), a
                `Model`, or a function that takes messages (dicts with `role` and `content`) and returns text. Unset,
                `compaction.model` and `knowledge.model` of the settings; without them both are done by rule.
            hooks: Functions to call around compactions.
            background: Whether a thread does the pending work: vectors, facts, compactions.
            clock: Returns the time in Unix milliseconds; the system's clock unless given.
            personal: Whether all sessions are those of one person. Then passages of the other sessions of a project
                are recalled too, unless `archive.cross_session` is off.

        Raises:
            SettingsError: A setting or the name of the model is wrong.
            StorageError: The memory cannot be opened.
        """
        warnings: tuple[str, ...] = ()
        if settings is not None and not isinstance(settings, Settings):
            raise InputError(f"settings={settings!r}: give Settings(...), or leave it out to read the settings files")
        if settings is None:
            loaded = configuration.load(files=configuration.default_files())
            settings, warnings = loaded.settings, loaded.warnings
        writer = _open_model(model or settings.compaction.model, settings)
        reader = None if model else _open_model(settings.knowledge.model, settings)
        timed = {} if clock is None else {"clock": clock}
        memory = Memory.open(path, settings=settings, is_personal=personal, **timed)
        engine = cls(memory, model=writer, hooks=hooks, background=background)
        engine.reader = reader
        engine.warnings = warnings
        return engine

    def close(self) -> None:
        """Close the memory. Pending work is done the next time."""
        self.closing.set()
        if self._worker is not None:
            self._worker.stop()
        self.hooks.wait(HOOK_SECONDS)
        if self.is_memory_hanging():  # its locks may never be free again: what it holds ends with the process
            with suppress(DeadlineError):
                Watchdog().run(self.memory.close, seconds=CLOSE_SECONDS, name="holdfast-close")
        else:
            self.memory.close()

    def require_open(self) -> None:
        """Raise a ClosedError if the engine is closed. Internal."""
        if self.closing.is_set():
            raise ClosedError

    def __enter__(self) -> Self:
        self.require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.settings

    def session(
        self,
        id: str,  # noqa: A002 - the domain's own word
        *,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> Session:
        """Get a session by its id: one object for all threads of this process. It begins with its first message.

        Args:
            id: Any text that names the conversation; not an empty one.
            tenant: Whose memory it is, where several users share one store.
            project: The project that the session belongs to.
            agent: The agent that it belongs to. Facts are shared by all sessions of one agent and project.

        Raises:
            InputError: The id is not a name.
        """
        self.require_open()
        if type(id) is not str or not id.strip():
            raise InputError(f"session({id!r}): give a name, such as session('support-42')")
        return self.open_session(Scope(tenant=tenant, project=project, agent=agent, session=id))

    def open_session(self, scope: Scope) -> Session:
        """Get the session of a scope: that of facts and imported messages may have no name. Internal."""
        engine = self.for_project(scope.project)
        with self._lock:
            found = self._sessions.get(scope)
            if found is None or found.engine is not engine:  # new, or with settings that have changed
                found = Session(engine, scope)
            self._sessions[scope] = found
            self._recent.pop(scope, None)
            self._recent[scope] = found
        self.drop_sessions()
        return found

    def drop_sessions(self) -> None:
        """Drop the sessions that were used longest ago if too many are kept, or too large ones. Internal.

        The last one stays. A session that somebody uses goes on; one that is dropped is read from the store again.
        """
        with self._lock:
            sizes = {scope: session.state.size for scope, session in self._recent.items()}
            total = sum(sizes.values())
            for scope in list(self._recent)[:-1]:
                if len(self._recent) <= MAX_SESSIONS and total <= self.settings.server.max_session_bytes:
                    return
                session = self._recent.pop(scope)
                self._due.pop(session, None)  # its next request asks for a compaction again
                total -= sizes[scope]

    def for_project(self, project: str) -> Engine:
        """Return this engine with the settings of a project: with the same memory, sessions and thread. Internal."""
        if self.projects is None:
            return self
        folder = folder_of(project)
        loaded = self.projects.load(folder)
        with self._lock:
            view = self._views.pop(folder, None)
            if view is None or view._loaded is not loaded:  # noqa: SLF001 - of the same class
                view = self._with_settings(loaded, folder)
            self._views[folder] = view  # the project that was used last is the last to go
            while len(self._views) > MAX_PROJECTS:
                del self._views[next(iter(self._views))]
            return view

    def _with_settings(self, loaded: Loaded[Settings], folder: Path | None) -> Engine:
        view = copy.copy(self)
        view._loaded = loaded  # noqa: SLF001 - of the same class
        view.memory = self.memory.with_settings(loaded.settings)
        view.auto = loaded.settings.compaction.auto
        warnings = [*loaded.warnings]
        if folder is not None:
            warnings += _warn_of_shared(loaded, folder, own=self.settings)
        view.model = None
        view.reader = None
        try:
            view.model = _open_model(loaded.settings.compaction.model, loaded.settings)
            view.reader = _open_model(loaded.settings.knowledge.model, loaded.settings)
        except HoldfastError as error:  # summaries and facts are then made by rule
            warnings.append(str(error))
        try:
            view.count = _open_counter(loaded.settings, view.model)
        except HoldfastError as error:
            view.count = counter("estimate")
            warnings.append(str(error))
        view.warnings = tuple(warnings)
        return view

    def sessions(
        self, *, tenant: str | None = None, project: str | None = None, agent: str | None = None
    ) -> dict[Scope, int]:
        """List the stored sessions with how many messages each has, the session with the newest message first.

        Args:
            tenant: Only those of this tenant; by default of all tenants, which is for the owner of the memory alone.
            project: Only those of this project.
            agent: Only those of this agent.
        """
        self.require_open()
        stored = self.memory.store.sessions()
        return {
            scope: count
            for scope, count in stored.items()
            if tenant in {None, scope.tenant} and project in {None, scope.project} and agent in {None, scope.agent}
        }

    def search(
        self, query: str, *, limit: int = 10, tenant: str = "local", project: str = "", agent: str = "main"
    ) -> list[Hit]:
        """Find the passages of all sessions of an agent that match a question best, best first."""
        self.require_open()
        scope = Scope(tenant=tenant, project=project, agent=agent)
        return self.memory.search(query, scope=scope, across=True, limit=limit)

    def stats(self) -> Stats:
        """Count what memory holds, and say what is missing."""
        self.require_open()
        return self.memory.stats()

    def work(self) -> int:
        """Do all pending work now, and return how many compactions, passages and jobs were done."""
        self.require_open()
        done = 0
        while not self.closing.is_set() and self._compact_next():
            done += 1
        done += self.memory.embed()
        while not self.closing.is_set() and self._extract_next():
            done += 1
        return done

    def is_memory_hanging(self, scope: Scope | None = None) -> bool:
        """Whether a call to the memory that was given up has not returned yet. Internal.

        Args:
            scope: Only calls for which a call of this session would be refused; by default all calls.
        """
        hanging = self._watchdog.hanging()
        if scope is None:
            return bool(hanging)
        # A slow call says nothing about other callers: one who sends what takes long must not take their memory. Of the
        # same caller, a few more are tried: only if those hang too, it is the store.
        caller = replace(scope, session="")
        own = [one for one in hanging if isinstance(one, Scope) and replace(one, session="") == caller]
        return scope in own or caller in own or len(own) >= MAX_HANGING

    def ask_memory(self, call: Callable[[], T], *, scope: Scope, messages: int = 0) -> T:
        """Make a call to the memory, and stop waiting for it in time: a locked file or a server may hang. Internal.

        Args:
            call: The call, which has a thread of its own. It may go on after it was given up.
            scope: The session that it is for; without a session, the caller.
            messages: How many messages it may have to archive.

        Raises:
            UnavailableError: It takes too long, or an earlier call still hangs.
        """
        seconds = self.settings.archive.timeout_seconds + SECONDS_PER_MESSAGE * messages
        if self.is_memory_hanging(scope):
            raise self._unavailable("an earlier call has not returned yet")
        try:
            return self._watchdog.run(call, seconds=seconds, name="holdfast-memory", about=scope)
        except DeadlineError as error:
            raise self._unavailable(str(error)) from error

    def _unavailable(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"memory does not answer: {reason}. Look for a process that is suspended or holds the store, or raise"
            " archive.timeout_seconds",
            path=self.memory.store.place,
        )

    def notify(self) -> None:
        """Wake the background thread. Internal."""
        if self._worker is not None:
            self._worker.notify()

    def queue_compaction(self, session: Session, coming: int) -> None:
        """Let the background compact a session. Internal."""
        self._due[session] = coming
        self.notify()

    def take_warnings(self, state: SessionState) -> list[str]:
        """Collect what the next report of a session must say about settings, background work and damaged rows."""
        error = self._worker.error if self._worker is not None else ""
        warnings = [f"background: {error}"] if error else []
        warnings += self.warnings
        warnings += self._failures.pop(replace(state.scope, session=""), [])
        while state.notes:  # a hook on a thread of its own may add to them meanwhile
            warnings.append(state.notes.pop(0))
        return [*warnings, *map(str, self.memory.gaps(state.scope))]

    def _work_in_background(self) -> bool:
        """Do one step: a compaction of this engine, or pending work of the store if no other process does it."""
        if self._compact_next():
            return True
        embedder = self.memory.embedder
        with self.memory.store.lock_work(None if embedder is None else embedder.space) as is_only:
            return is_only and (self.memory.embed(limit=EMBED_BATCH) > 0 or self._extract_next(strict=True))

    def _compact_next(self) -> bool:
        try:
            session, coming = self._due.popitem()
        except KeyError:
            return False
        session.compact_near_limit(coming)
        return True

    def _extract_next(self, *, strict: bool = False) -> bool:
        """Extract the facts of the oldest job; whether there was one. `strict` raises where the model failed."""
        from holdfast.memory.learning import describe_failure, run_job, take_job  # noqa: PLC0415 - not every process extracts

        job = take_job(self.memory)
        if job is None:
            return False
        engine = self.for_project(job.scope.project)
        found = run_job(engine.memory, engine.reader or engine.model, job, cancel=self.closing)
        if failure := describe_failure(job, found):
            # The next report of this agent in this project says so.
            failures = self._failures.setdefault(replace(job.scope, session=""), [])
            failures.append(failure)
            del failures[:-MAX_FAILURES]
            while len(self._failures) > MAX_FAILURES:
                del self._failures[next(iter(self._failures))]
        if strict and found.trouble and not self.closing.is_set():
            raise ModelError(found.trouble)
        return True


class Worker:
    """A thread that calls `step` when notified, until it returns False.

    An error is kept in `error` until a step succeeds, and the step is tried again after a pause. The work itself is on
    disk: a crash only delays it.
    """

    def __init__(self, step: Callable[[], bool], *, pause: float = RETRY_SECONDS) -> None:
        self._step = step
        self._pause = pause
        self._notified = Event()
        self._stopped = Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-worker", daemon=True)
        self.error = ""

    def start(self) -> None:
        """Start, with the work that was left from before."""
        self._notified.set()
        self._thread.start()

    def notify(self) -> None:
        """Wake the thread: there is work."""
        self._notified.set()

    def stop(self) -> None:
        """Stop after the current step."""
        self._stopped.set()
        self._notified.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._notified.wait(POLL_SECONDS)
            self._notified.clear()
            more = True
            while more and not self._stopped.is_set():
                try:
                    more = self._step()
                    self.error = ""
                except (HoldfastError, OSError) as error:
                    self.error = str(error)
                    more = not self._stopped.wait(self._pause)


def _open_counter(settings: Settings, model: Model | None) -> TokenCounter:
    tokens = settings.tokens
    name = f"{tokens.counter}:{tokens.encoding}" if tokens.encoding else tokens.counter
    return counter(name, model=settings.model.name or (model.name if model else None))


def _warn_of_shared(loaded: Loaded[Settings], folder: Path, *, own: Settings) -> list[str]:
    """Say which settings of a project's file have no effect, because all projects of a memory share them."""
    wanted = loaded.settings
    changed = []
    if wanted.archive.path != own.archive.path:
        changed.append("archive.path")
    if wanted.embedding != own.embedding:
        changed.append("embedding.")
    if wanted.postgres != own.postgres:
        changed.append("postgres.")
    if wanted.server != own.server:
        changed.append("server.")
    keys = [key for key in loaded.set_by(folder) if key.startswith(tuple(changed))]
    if not keys:
        return []
    names = ", ".join(keys)
    return [f"{folder / PROJECT_FILE}: {names}: ignored, because all projects of this memory share the value in use"]


def _open_model(given: object, settings: Settings) -> Model | None:
    if given is None:
        return None
    from holdfast.models.naming import as_model  # noqa: PLC0415 - not every process uses one

    return as_model(given, settings=settings)
