"""The engine: one memory, and the sessions over it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from os import PathLike
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, get_args
from weakref import WeakValueDictionary

from holdfast import otel
from holdfast import settings as configuration
from holdfast.arguments import make_error, require_count, require_text, require_type
from holdfast.cache import LruCache
from holdfast.calls import DeadlineError, Watchdog
from holdfast.compaction.events import Hooks
from holdfast.errors import ClosedError, HoldfastError, InputError
from holdfast.memory.learning_queue import EXTRACT, Learner, queue_idle
from holdfast.memory.learning_state import WAITS
from holdfast.memory.memory import Memory, Stats
from holdfast.memory.passage_search import Hit
from holdfast.memory.sessions import SessionInfo, list_sessions
from holdfast.session import AutoCompaction, Resources, Session
from holdfast.settings import Loaded, ProjectSettings, Settings
from holdfast.settings.loading import PROJECT_FILE
from holdfast.settings.projects import MAX_PROJECTS, folder_of
from holdfast.store.base import Job, Scope
from holdfast.tokens import TokenCounter, counter

# Not every process extracts facts or uses a model. The functions below import the modules for that when they are
# called, so that a program that only assembles windows starts sooner.
if TYPE_CHECKING:
    from holdfast.memory.learning import Choice, Step
    from holdfast.models.base import Model

MAX_SESSIONS: Final = 64
"""Sessions whose state is kept between two requests."""
MAX_FAILURES: Final = 100
"""How many failed extractions the next report of an agent names, and for how many agents they are kept."""
EMBED_BATCH: Final = 64
"""How many passages the background embeds at a time."""
SLOW_BATCH: Final = 8
"""The same with a sentence model: half a second to three seconds, for which new messages wait for static vectors."""
RETRY_SECONDS: Final = 5.0
"""How long the background thread waits after an error."""
POLL_SECONDS: Final = 30.0
"""How often the background thread looks for work that another process left."""
GATHER_SECONDS: Final = 0.1
"""How long it waits after a notification, so that a question and its reply, or several sessions, make one batch."""
HOOK_SECONDS: Final = 2.0
"""How long `close` waits for listeners that still run."""
CLOSE_SECONDS: Final = 10.0
"""How long `close` waits for the background thread, and for a memory that hangs."""
MAX_JOBS: Final = 10_000
"""How many jobs are read at once to find one that may run now."""
SWEEP_MILLISECONDS: Final = 20_000
"""How often idle sessions are searched for, in milliseconds."""
LOCK_SECONDS: Final = 0.05
"""How long `work` waits before it checks again whether another process still works."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _ProjectResources:
    """The resources that the sessions of a project share, and the settings they were made with."""

    loaded: Loaded[Settings]
    resources: Resources


class Engine:
    """One memory, and the sessions over it. Open it with `Engine.open`, and close it or use it in a `with` statement.

    One engine may be used from any number of threads, and one memory by any number of processes at once.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        model: Model | None = None,
        reader: Model | None = None,
        hooks: Hooks | None = None,
        auto: AutoCompaction | None = None,
        projects: ProjectSettings | None = None,
        background: bool = False,
        warnings: tuple[str, ...] = (),
        is_for_hosts: bool = False,
    ) -> None:
        self._projects = projects
        self._closing = Event()
        self._watchdog = Watchdog()
        self._lock = Lock()
        # All sessions that anybody holds, so that a scope has one object, and one lock, for all threads.
        self._sessions: WeakValueDictionary[Scope, Session] = WeakValueDictionary()
        self._recent: dict[Scope, Session] = {}  # those that are kept between two requests, the newest last
        self._sizes: dict[Scope, int] = {}  # their bytes, after the last request of each
        self._by_project: LruCache[Path | None, _ProjectResources] = LruCache(MAX_PROJECTS)
        # Sessions that wait for a compaction, and the tokens that are coming. No lock: each use is a single step.
        self._due: dict[Session, int] = {}
        self._failures: LruCache[Scope, list[str]] = LruCache(MAX_FAILURES)  # of the background, by agent and project
        self._jobs: list[Job] = []  # that wait, as far as this process has seen
        self._swept_at: int | None = None  # when idle sessions were last searched for
        self._limit = ""  # the limit of extraction that was last reported
        self._resources = Resources(
            memory=memory,
            count=_open_counter(memory.settings, model),
            model=model,
            reader=reader,
            is_for_hosts=is_for_hosts,
            hooks=hooks or Hooks(),
            auto=auto or memory.settings.compaction.auto,
            warnings=warnings,
            closing=self._closing,
            watchdog=self._watchdog,
            notify=self._notify,
            queue_compaction=self._queue_compaction,
            take_warnings=self._take_warnings,
            end_request=self._end_request,
        )
        otel.install()
        self._worker: Worker | None = None
        if background:
            self._start_background()

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        settings: Settings | Loaded[Settings] | None = None,
        model: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        reader: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        hooks: Hooks | None = None,
        auto: AutoCompaction | None = None,
        projects: ProjectSettings | None = None,
        background: bool = True,
        clock: Callable[[], int] | None = None,
        personal: bool = False,
        hosts: bool = False,
    ) -> Self:
        """Open the memory in a folder, which is created if it does not exist.

        Args:
            path: The folder, or the address of a PostgreSQL server (`postgresql://…`); unset, `archive.path` of the
                settings, `$HOLDFAST_HOME`, or the platform's data folder.
            settings: Used exactly as given, such as `load(recall={"eagerness": "shy"})`; unset, read as the commands
                do, from files and `HOLDFAST_*` variables.
            model: Writes summaries and extracts facts: a name (`anthropic/NAME`, `ollama/NAME`, `scripted:FILE`), a
                `Model`, or a function that takes messages (dicts with `role` and `content`) and returns text. Unset,
                `compaction.model` and `knowledge.model` of the settings; without them both are done by rule.
            reader: Another model that extracts facts, instead of `model`.
            hooks: Functions to call around compactions.
            auto: How sessions are compacted near their limit, instead of `compaction.auto` of the settings.
            projects: Reads the settings of each project, for its sessions; by default all have those of the engine.
            background: Whether a thread does the pending work: vectors, facts, compactions.
            clock: Returns the time in Unix milliseconds; the system's clock unless given.
            personal: Whether all sessions are those of one person. Then passages of the other sessions of a project
                are recalled too, unless `archive.cross_session` is off.
            hosts: Whether the sessions are those of other programs. Then facts are extracted by
                `knowledge.host_model` of the settings alone, for which the user was asked; without it by rule.

        Raises:
            SettingsError: A setting or the name of a model is wrong.
            StorageError: The memory cannot be opened.
        """
        if path is not None:
            require_type((str, PathLike), "the path of a folder, or the address of a server", path=path)
            if not str(path):
                raise InputError("path is empty: name a folder, or leave it out to use the default one")
        require_type(bool, "True or False", background=background, personal=personal, hosts=hosts)
        if model == "":
            raise make_error("model", model, "the name of a model, or leave it out")
        if hooks is not None:
            require_type(Hooks, "Hooks(...)", hooks=hooks)
        if auto is not None and auto not in get_args(AutoCompaction):
            raise make_error("auto", auto, " or ".join(get_args(AutoCompaction)))
        settings, warnings = _read_settings(settings)
        if hosts:
            reader = settings.knowledge.host_model
        elif reader is None and model is None:
            reader = settings.knowledge.model
        writer = _open_model(model or settings.compaction.model, settings)
        fact_reader = _open_model(reader, settings)
        options: dict[str, Any] = {"is_personal": personal}
        if clock is not None:
            _require_clock(clock)
            options["clock"] = clock
        return cls(
            Memory.open(path, settings=settings, **options),
            model=writer,
            reader=fact_reader,
            hooks=hooks,
            auto=auto,
            projects=projects,
            background=background,
            warnings=warnings,
            is_for_hosts=hosts,
        )

    def __repr__(self) -> str:
        state = " closed" if self._closing.is_set() else ""
        return f"<Engine {self._memory.store.place!r}{state}>"

    @property
    def _memory(self) -> Memory:
        return self._resources.memory

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._resources.settings

    @property
    def model(self) -> Model | None:
        """The model that writes summaries, and extracts facts unless there is a reader; None to use rules."""
        return self._resources.model

    @property
    def reader(self) -> Model | None:
        """Another model that extracts facts."""
        return self._resources.reader

    @property
    def hooks(self) -> Hooks:
        """Functions that are called around compactions."""
        return self._resources.hooks

    @property
    def warnings(self) -> tuple[str, ...]:
        """Settings that were ignored. Every report repeats them."""
        return self._resources.warnings

    def close(self) -> None:
        """Close the memory. Pending work is done the next time."""
        is_open = not self._closing.is_set()
        self._closing.set()
        # The worker first: a step that still runs uses the memory.
        if self._worker is not None:
            self._worker.stop()
        if is_open:
            self._end_sessions()
        self.hooks.wait(HOOK_SECONDS)
        if self._is_memory_hanging():
            # A call that hangs may never free its locks. Closing is tried in a thread that may hang too: what the
            # memory holds ends with the process.
            with suppress(DeadlineError):
                Watchdog().run(self._memory.close, seconds=CLOSE_SECONDS, name="holdfast-close")
        else:
            self._memory.close()
        self._watchdog.close()

    def _end_sessions(self) -> None:
        """Mark the sessions that were used, so that a later process extracts facts from the rest of them."""
        if self._is_memory_hanging() or self._memory.store.readonly:
            return
        with self._lock:
            sessions = list(self._sessions.values())
        marks: list[Job] = []
        for session in sessions:
            marks += session._make_end_marks()
        with suppress(HoldfastError):  # their earlier marks say the same once they are idle
            self._memory.store.add_jobs(marks)

    def _require_open(self) -> None:
        """Raise a ClosedError if the engine is closed."""
        if self._closing.is_set():
            raise ClosedError

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
            tenant: The tenant that the memory belongs to, if several users share one store.
            project: The project that the session belongs to.
            agent: The agent that it belongs to. Facts are shared by all sessions of one agent and project.

        Raises:
            InputError: The id is not a name.
        """
        self._require_open()
        if type(id) is not str or not id.strip():
            raise InputError(f"session({id!r}): give a name, such as session('support-42')")
        return self._open_session(Scope(tenant=tenant, project=project, agent=agent, session=id))

    def _open_session(self, scope: Scope) -> Session:
        """Get the session of a scope: that of facts and imported messages may have no name."""
        resources = self._find_resources(scope.project)
        with self._lock:
            found = self._sessions.get(scope)
            if found is None or found._resources is not resources:  # new, or with settings that have changed
                found = Session(scope, resources)
            self._sessions[scope] = found
            self._recent.pop(scope, None)
            self._recent[scope] = found
            self._sizes[scope] = found._held_bytes
            self._drop_sessions()
        return found

    def _make_unnamed_session(self) -> Session:
        """Make a session that is not kept, for a request whose session cannot be found."""
        return Session(Scope(), self._resources)

    def _end_request(self, session: Session) -> None:
        """Drop sessions if the request of one has made it too large. Only this one is measured again."""
        with self._lock:
            if self._recent.get(session.scope) is session:
                self._sizes[session.scope] = session._held_bytes
            self._drop_sessions()

    def _drop_sessions(self) -> None:
        """Drop the sessions that were used longest ago if too many are kept, or too large ones.

        The last one is kept. A session that is in use is not affected; one that was dropped is read from the store
        again. The caller holds the lock.
        """
        total = sum(self._sizes.values())
        for scope in list(self._recent)[:-1]:  # the oldest first
            if len(self._recent) <= MAX_SESSIONS and total <= self.settings.server.max_session_bytes:
                return
            session = self._recent.pop(scope)
            self._due.pop(session, None)  # its next request asks for a compaction again
            total -= self._sizes.pop(scope)

    def _find_resources(self, project: str) -> Resources:
        """Return what the sessions of a project share: the memory with the settings of the project."""
        if self._projects is None:
            return self._resources
        folder = folder_of(project)
        loaded = self._projects.load(folder)
        with self._lock:
            known = self._by_project.get(folder)
            if known is None or known.loaded is not loaded:  # `load` returns another object if a file has changed
                known = _ProjectResources(loaded, self._make_resources(loaded, folder))
                self._by_project[folder] = known
            return known.resources

    def _make_resources(self, loaded: Loaded[Settings], folder: Path | None) -> Resources:
        settings = loaded.settings
        warnings = list(loaded.warnings)
        if folder is not None:
            warnings += _warn_of_shared(loaded, folder, own=self.settings)
        model: Model | None = None
        reader: Model | None = None
        try:
            model = _open_model(settings.compaction.model, settings)
            reader_name = settings.knowledge.model
            if self._resources.is_for_hosts:
                reader_name = settings.knowledge.host_model
            reader = _open_model(reader_name, settings)
        except HoldfastError as error:  # summaries and facts are then made by rule
            warnings.append(str(error))
        try:
            count = _open_counter(settings, model)
        except HoldfastError as error:
            count = counter("estimate")
            warnings.append(str(error))
        return replace(
            self._resources,
            memory=self._memory.with_settings(settings),
            count=count,
            model=model,
            reader=reader,
            auto=settings.compaction.auto,
            warnings=tuple(warnings),
        )

    def sessions(
        self,
        *,
        tenant: str | None = None,
        project: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
    ) -> list[SessionInfo]:
        """List the stored sessions, the session with the newest message first.

        Args:
            tenant: Only those of this tenant; by default of all tenants, which is for the owner of the memory alone.
            project: Only those of this project.
            agent: Only those of this agent.
            limit: At most this many. Each takes a few milliseconds, for its title and times.
        """
        self._require_open()
        for name, value in (("tenant", tenant), ("project", project), ("agent", agent)):
            if value is not None:
                require_text(**{name: value})
        if limit is not None:
            require_count(limit=limit, least=1)
        return list_sessions(self._memory.store, tenant=tenant, project=project, agent=agent, limit=limit)

    def search(
        self, query: str, *, limit: int = 10, tenant: str = "local", project: str = "", agent: str = "main"
    ) -> list[Hit]:
        """Find the passages of all sessions of an agent that match a question best, best first."""
        self._require_open()
        require_text(query=query)
        require_count(limit=limit, least=1)
        scope = Scope(tenant=tenant, project=project, agent=agent)
        return self._memory.search(query, scope=scope, across=True, limit=limit)

    def stats(self) -> Stats:
        """Count what memory contains, and list what is missing."""
        self._require_open()
        learner = self._resources.learner
        readers: tuple[str, ...] = ()
        if learner.model is not None:
            readers = (learner.reader, learner.model.name)
        return self._memory.stats(readers=readers)

    def work(self) -> int:
        """Do all pending work now, and return how many compactions, passages and jobs were done."""
        self._require_open()
        done = 0
        while not self._closing.is_set() and self._compact_next():
            done += 1
        done += self._memory.embed()
        self._queue_idle(is_asked=True)
        while not self._closing.is_set() and self._extract_next(waits=True):
            done += 1
        return done

    def _is_memory_hanging(self, scope: Scope | None = None) -> bool:
        """Return whether a call to the memory that nobody waits for any more has not returned yet.

        Args:
            scope: A conversation: count only calls that hold up its own calls. By default all calls count.
        """
        if scope is None:
            return bool(self._watchdog.hanging())
        return self._resources.is_memory_hanging(scope)

    def _ask_memory(self, call: Callable[[], T], *, scope: Scope, messages: int = 0) -> T:
        """Make a call to the memory, and stop waiting for it in time; see `Resources.ask_memory`."""
        return self._resources.ask_memory(call, scope=scope, messages=messages)

    def _prepare(self, project: str) -> None:
        """Load what the first request of a new session in a project would wait for."""
        memory = self._find_resources(project).memory
        scope = Scope(project=project)
        memory.prepare(scope, across=memory.reach_of(scope))
        memory.make_overview(scope=scope)

    def _start_background(self) -> None:
        """Start the thread that does the pending work, unless it runs."""
        store = self._memory.store
        with self._lock:
            if self._worker is not None or store.readonly or self._closing.is_set():
                return
            self._worker = Worker(self._work_in_background)
        store.listen(self._worker.notify)
        self._worker.start()

    def _notify(self) -> None:
        """Wake the background thread."""
        if self._worker is not None:
            self._worker.notify()

    def _notify_end(self) -> None:
        """Wake the background thread because a session has ended: the next one may begin at once and need its facts."""
        self._swept_at = None
        self._notify()

    def _queue_compaction(self, session: Session, coming: int) -> None:
        """Queue a session to be compacted in the background."""
        self._due[session] = coming
        self._notify()

    def _take_warnings(self, scope: Scope) -> list[str]:
        """Return the warnings about background work for the next report of a scope."""
        warnings: list[str] = []
        if self._worker is not None and self._worker.error:
            warnings.append(f"background: {self._worker.error}")
        with self._lock:
            warnings += self._failures.pop(replace(scope, session="")) or ()
        return warnings

    def _work_in_background(self) -> bool:
        """Do one step: a compaction of this engine, or pending work of the store if no other process does it."""
        # In the order in which the next request needs it: a smaller window, then search by meaning, then facts.
        if self._compact_next():
            return True
        for embedder in self._memory.embedders:
            batch = EMBED_BATCH
            if self._memory.interim is not None and embedder is self._memory.embedder:
                batch = SLOW_BATCH
            with self._memory.store.lock_work(embedder.space) as is_only:
                # A batch that is not full was the last one: asking the store again would cost as much as the batch.
                if is_only and self._memory.embed_with(embedder, limit=batch) >= batch:
                    return True
        now = self._memory.clock()
        if self._swept_at is None or abs(now - self._swept_at) >= SWEEP_MILLISECONDS:
            self._swept_at = now
            self._queue_idle()
        return self._extract_next()

    def _compact_next(self) -> bool:
        try:
            session, coming = self._due.popitem()
        except KeyError:
            return False
        session._compact_near_limit(coming)
        return True

    def _queue_idle(self, *, is_asked: bool = False) -> None:
        """Queue the sessions that have ended or are idle; if all work is asked for, also those of closed engines."""
        store = self._memory.store
        if store.readonly:
            return
        idle = self.settings.knowledge.idle // timedelta(milliseconds=1)
        queue_idle(store, now=self._memory.clock(), idle=idle, is_asked=is_asked, find_learner=self._find_learner)

    def _find_learner(self, scope: Scope) -> Learner:
        return self._find_resources(scope.project).learner

    def _extract_next(self, *, waits: bool = False) -> bool:
        """Read the next batch of a job that may run now; return whether there was one.

        If another process works for the same tenant, the job is left to it, unless this one `waits` for its turn.
        """
        if not self._jobs:
            self._jobs = self._list_waiting()
        if not self._jobs:  # mostly so, and then the modules that extract facts are not imported
            self._report_limit("")
            return False
        choice = self._choose_job()
        job = choice.job
        if job is None:
            self._report_limit(choice.limit)
            return False
        step = self._run_job(job, waits=waits)
        if step is None:
            self._report_limit(choice.limit)
            return False
        if step.limit:
            self._report_limit(step.limit)
            return False
        if step.is_done:
            self._jobs = [other for other in self._jobs if other != job]
        if step.warning:
            self._add_failures([job], step.warning)
        return True

    def _choose_job(self) -> Choice:
        """Choose one of the jobs that this process has seen; if none of them may run now, one of those that wait."""
        from holdfast.memory.learning import choose_job  # noqa: PLC0415 - see the top of the module

        choice = choose_job(self._memory, self._jobs, self._find_learner)
        if choice.job is None:
            self._jobs = self._list_waiting()
            choice = choose_job(self._memory, self._jobs, self._find_learner)
        return choice

    def _list_waiting(self) -> list[Job]:
        """List the jobs that wait, in the store, to be run by the models of this process."""
        waiting = self._memory.store.waiting(EXTRACT, limit=MAX_JOBS)
        return [self._find_learner(job.scope).adopt(job) for job in waiting]

    def _report_limit(self, limit: str) -> None:
        """Add to the next reports which limit extraction waits for, once until it changes; empty for none."""
        if limit == self._limit:
            return
        self._limit = limit
        # What the last call added no longer holds. No report may have taken it yet.
        with self._lock:
            for owner in list(self._failures):
                self._failures[owner] = [text for text in self._failures[owner] if not text.startswith(WAITS)]
        if limit:
            self._add_failures(self._jobs, f"{WAITS}: {limit}")

    def _run_job(self, job: Job, *, waits: bool) -> Step | None:
        """Read a batch of a job; None if another process works for its tenant."""
        from holdfast.memory.learning import run_job  # noqa: PLC0415 - see the top of the module

        resources = self._find_resources(job.scope.project)
        while not self._closing.is_set():
            with self._memory.store.lock_work(None, tenant=job.scope.tenant) as is_only:
                if is_only:
                    model = resources.learner.model_for(job)
                    return run_job(resources.memory, job, model=model, cancel=self._closing)
            if not waits:
                return None
            self._closing.wait(LOCK_SECONDS)
        return None

    def _add_failures(self, jobs: Sequence[Job], failure: str) -> None:
        """Add a failure to the next report of each agent and project of some jobs."""
        with self._lock:
            for owner in {replace(job.scope, session="") for job in jobs}:
                earlier = self._failures.get(owner, [])
                self._failures[owner] = [*earlier, failure][-MAX_FAILURES:]


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
            self._stopped.wait(GATHER_SECONDS)
            self._notified.clear()  # before the work, so that what arrives during it wakes the thread again
            more = True
            while more and not self._stopped.is_set():
                try:
                    more = self._step()
                    self.error = ""
                except (HoldfastError, OSError) as error:
                    self.error = str(error)
                    more = not self._stopped.wait(self._pause)


def _open_counter(settings: Settings, model: Model | None) -> TokenCounter:
    name = settings.model.name
    if not name and model is not None:
        name = model.name
    return counter(settings.tokens.full_name, model=name)


def _warn_of_shared(loaded: Loaded[Settings], folder: Path, *, own: Settings) -> list[str]:
    """Warn of settings in a project's file that have no effect, because all projects of a memory share them."""
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


def _require_clock(clock: object) -> None:
    """Raise an InputError unless a clock returns milliseconds.

    `time.time` returns seconds as a fraction: every message would be of January 1970.
    """
    words = "a function that returns Unix milliseconds, such as lambda: time.time_ns() // 1_000_000"
    if not callable(clock) or type(clock()) is not int:
        raise make_error("clock", clock, words)


def _read_settings(given: object) -> tuple[Settings, tuple[str, ...]]:
    """Check the settings that a caller gives, or read those of the files; also return their warnings."""
    if given is None:
        given = configuration.load(files=configuration.default_files())
    if isinstance(given, Loaded):
        return given.settings, given.warnings
    if not isinstance(given, Settings):
        raise InputError(
            f"settings: expected load(...) or Settings(...), found a {type(given).__name__}; without it, the settings"
            " files are read"
        )
    configuration.check_settings(given)
    return given, ()


def _open_model(given: object, settings: Settings) -> Model | None:
    if given is None:
        return None
    from holdfast.models.naming import as_model  # noqa: PLC0415 - see the top of the module

    return as_model(given, settings=settings)
