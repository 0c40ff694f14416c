"""A session: one conversation, its state, and the operations on it.

`Session` is the only place that records. The functions that it calls take values and return values: `History` archives
and numbers the messages of the client, `EditLog` replays recorded edits, `Timeline` keeps the requests so far, `turn`
makes a window of them, and `compaction` a summary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from threading import Event, RLock, current_thread
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from weakref import ref

from holdfast import providers, turn
from holdfast.arguments import (
    require_count,
    require_list,
    require_messages,
    require_numbers,
    require_text,
    require_texts,
)
from holdfast.calls import DeadlineError, Watchdog
from holdfast.compaction.events import Hooks
from holdfast.context.budget import Budget, LimitSource, budget
from holdfast.context.edits import Edit, Item, Pinned, Restored, tokens
from holdfast.context.plan import added_tokens_of
from holdfast.context.validate import ValidationCache, validate
from holdfast.edit_log import MAX_TRIES, EditLog, Recorded, Replay
from holdfast.errors import (
    ClosedError,
    CompactionError,
    HoldfastError,
    InputError,
    ModelCancelledError,
    UnavailableError,
    WindowError,
)
from holdfast.history import History, Update
from holdfast.memory.archive import FIRST, AppendResult, Masks
from holdfast.memory.conflicts import Conflict
from holdfast.memory.exclusion import Exclusions
from holdfast.memory.learning_queue import (
    HOSTS,
    MIN_MARK_PAUSE,
    OWN,
    OWN_RULES,
    RULES,
    Learner,
    make_mark,
    plan_cut,
    queue,
)
from holdfast.memory.memory import Memory
from holdfast.memory.passage_search import Hit
from holdfast.memory.query import find_recall_switch
from holdfast.memory.recall import Recall
from holdfast.messages import Message
from holdfast.providers import Incoming
from holdfast.redaction import redact
from holdfast.report import ContextReport, Window, categories, workspace_files
from holdfast.settings import Settings
from holdfast.signals import without_questions
from holdfast.store.base import FactRow, FactType, Job, MessageRow, Scope, Select
from holdfast.telemetry import observe
from holdfast.timeline import (
    MAX_CUT_CHARS,
    Cut,
    CutText,
    Timeline,
    describe_cut,
    expand_cut,
    read_conversation,
    read_cuts,
    read_reports,
    rebuild_window,
)
from holdfast.tokens import TokenCounter, count_json, count_message
from holdfast.turn import Request, Steps

# Few processes compact, and the modules of a compaction bring the model clients with them. The functions below import
# them when they are called, so that a program that only assembles windows starts sooner.
if TYPE_CHECKING:
    from holdfast.compaction.plan import CompactionPlan
    from holdfast.compaction.run import Compaction
    from holdfast.compaction.summarise import Progress, Summary
    from holdfast.models.base import Model

T = TypeVar("T")

AutoCompaction: TypeAlias = Literal["off", "inline", "background"]
"""How a session is compacted near its limit: not at all, while a request is made, or by the engine's thread."""
ARCHIVE_TOOL: Final = "archive_get"
"""The tool that shows archived messages; hosts may put a prefix before its name."""
MAX_TURN_MESSAGES: Final = 50
"""How many messages are searched for the newest one of the user. A turn may have many calls and results."""
RETRY_AFTER: Final = 8
"""After how many messages an automatic compaction that failed is tried again.

Without a pause, each request and each reply would try it: a model that does not answer would hold up all of them.
"""
MAX_HANGING: Final = 4
"""How many calls of one caller may wait for a memory that does not answer; further calls are refused immediately."""
SECONDS_PER_MESSAGE: Final = 0.05
"""How much longer than `archive.timeout_seconds` a call may take for each message of a history."""

CALLER: ContextVar[object] = ContextVar("caller")
"""The caller of a session if it is not the thread: a task, or None for a caller that cannot be distinguished from
others."""


def _get_caller() -> object:
    # A reference: histories keep their caller, and must not keep a thread alive that has ended.
    return CALLER.get(ref(current_thread()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Resources:
    """The resources that the sessions of a project share. The engine creates them; they do not change later.

    Attributes:
        memory: The memory, with the settings of the project.
        count: The token counter.
        model: The model that writes summaries, and extracts facts unless `reader` is set; None to use rules.
        reader: Another model that extracts facts.
        is_for_hosts: Whether the sessions are those of other programs: then only `reader` extracts facts.
        hooks: Functions that are called around compactions.
        auto: How sessions are compacted near their limit; None to choose by the models that are set.
        warnings: Settings that were ignored. Every report repeats them.
        closing: Set when the engine closes.
        watchdog: Runs calls to the memory, which may hang.
        notify: Wakes the background thread.
        queue_compaction: Lets the background thread compact a session that expects this many more tokens.
        take_warnings: Returns the warnings about background work for the next report of a scope, once.
        end_request: Called after each request: the engine may drop sessions that were not used for long.
    """

    memory: Memory
    count: TokenCounter
    model: Model | None
    reader: Model | None
    is_for_hosts: bool
    hooks: Hooks
    auto: AutoCompaction | None
    warnings: tuple[str, ...]
    closing: Event
    watchdog: Watchdog
    notify: Callable[[], None]
    queue_compaction: Callable[[Session, int], None]
    take_warnings: Callable[[Scope], list[str]]
    end_request: Callable[[Session], None]

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.settings

    @property
    def learner(self) -> Learner:
        """Who extracts facts."""
        # The sessions of other programs are read by another model only if the user has named one for them.
        if self.is_for_hosts:
            if self.reader is None:
                return Learner(reader=RULES)
            return Learner(reader=HOSTS, model=self.reader)
        model = self.reader or self.model
        if model is None:
            return Learner(reader=OWN_RULES)
        return Learner(reader=OWN, model=model)

    def require_open(self) -> None:
        """Raise a ClosedError if the engine is closed."""
        if self.closing.is_set():
            raise ClosedError

    def is_memory_hanging(self, scope: Scope) -> bool:
        """Return whether the memory would refuse a call for a conversation because earlier calls hang.

        A slow call is no reason to refuse other callers: a large request of one must not cost the others their memory.
        For the same caller a few more calls are tried: only if those hang too, the store is the cause.
        """
        caller = replace(scope, session="")
        own: list[Scope] = []
        for hanging in self.watchdog.hanging():
            if isinstance(hanging, Scope) and replace(hanging, session="") == caller:
                own.append(hanging)
        return scope in own or caller in own or len(own) >= MAX_HANGING

    def ask_memory(self, call: Callable[[], T], *, scope: Scope, messages: int = 0) -> T:
        """Make a call to the memory, and stop waiting for it in time: a locked file or a server may hang.

        Args:
            call: The call, which runs in a separate thread. It may continue after the wait has ended.
            scope: The session that it is for; without a session, the caller.
            messages: How many messages it may have to archive.

        Raises:
            UnavailableError: It takes too long, or an earlier call still hangs.
        """
        seconds = self.settings.archive.timeout_seconds + SECONDS_PER_MESSAGE * messages
        if self.is_memory_hanging(scope):
            raise self._make_error("an earlier call has not returned yet")
        try:
            return self.watchdog.run(call, seconds=seconds, name="holdfast-memory", about=scope)
        except DeadlineError as error:
            raise self._make_error(str(error)) from error

    def _make_error(self, reason: str) -> UnavailableError:
        return UnavailableError(
            f"memory does not answer: {reason}. Look for a process that is suspended or holds the store, or raise"
            " archive.timeout_seconds",
            path=self.memory.store.place,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """The state of a session in this process. The lock of the session guards every use."""

    history: History
    edits: EditLog
    timeline: Timeline
    validation: ValidationCache = field(default_factory=ValidationCache)

    def copy(self) -> _State:
        """Return an independent copy: a thread that hangs in the store may change the old state later."""
        return _State(history=self.history.copy(), edits=self.edits.copy(), timeline=self.timeline.copy())

    def update(
        self, messages: Sequence[Incoming], *, format: str | None, masks: Masks
    ) -> tuple[Update, tuple[str, ...]]:
        """Archive what is new in a history, durably, and compare reported usage with what was estimated.

        Also returns a warning if a reply among it could not be recorded: then only a figure is missing.
        """
        warnings: tuple[str, ...] = ()
        update = self.history.update(messages, format=format, masks=masks)
        if update.is_continued:
            self.timeline.calibrate(update.new)
            if update.new:
                # Clients that do not append replies send them with the next request.
                numbers = self.history.numbers[-len(update.new) :]
                try:
                    self.timeline.record_reply(update.new, numbers)
                except HoldfastError as error:
                    warnings = (f"report: {error}",)
        self.timeline.end_calibration()
        return update, warnings

    def load(self) -> tuple[str, ...]:
        """Read what other processes recorded, and return warnings of what cannot be read."""
        self.timeline.load()
        fetched = self.edits.load()
        self.history.forget(fetched.forgotten)
        return fetched.warnings

    def fit(self, limits: Budget) -> Budget:
        """Adjust limits to the conversation: to how the provider counts tokens, and how long its replies are."""
        scale = self.timeline.token_scale
        return replace(limits, scale=scale).follow_replies(self.history.measure_longest_reply(scale=scale))

    def replay(self, limits: Budget) -> Replay:
        """Return the window before anything new is cut from it."""
        return self.edits.replay(self.history.system, self.history.messages, limit=limits.safe_limit)

    def record(self, edits: Sequence[Edit], *, time: int, jobs: Sequence[Job] = ()) -> Recorded:
        """Record edits of the history, durably, with jobs that belong to them."""
        recorded = self.edits.record(edits, time=time, newest=self.history.newest_number, jobs=jobs)
        self.history.forget(recorded.fetched.forgotten)
        return recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class _Archived:
    """A request whose new messages are archived.

    Attributes:
        request: The request, with what archiving found.
        place: The place of its reply in the conversation.
        warnings: What could not be recorded, and each recorded edit that could not be read.
    """

    request: Request
    place: str
    warnings: tuple[str, ...]


class Session:
    """One conversation. Get it from `Engine.session`; it may be used from any number of threads and processes.

    Attributes:
        scope: Its owner: tenant, project, agent and session id.
        model: A model of the caller that writes summaries if the engine has none. It is called while a request of the
            session is made, unless `compaction.auto` is set otherwise.
    """

    def __init__(self, scope: Scope, resources: Resources) -> None:
        self.scope = scope
        self.model: Model | None = None
        self._resources = resources  # shared with other sessions of its project
        self._lock = RLock()  # held by the thread that works on it
        self._warnings: list[str] = []  # of the next report: failures of background compactions and of hooks
        self._limits: Budget | None = None  # of the last request
        self._compact_from = 0  # how long the history must be before a failed compaction is tried again
        self._summary_parts: dict[str, str] = {}  # finished parts of a summary whose compaction did not complete
        self._has_host = False  # whether the program that it is from is known to be recorded
        self._marked_at: int | None = None  # when the session was last marked as being in use
        self._state = _State(
            history=History(scope, resources.memory, resources.count),
            edits=EditLog(scope, resources.memory.store),
            timeline=Timeline(scope, resources.memory, resources.count),
        )

    def __repr__(self) -> str:
        scope = self.scope
        return f"<Session {scope.session!r} tenant={scope.tenant!r} project={scope.project!r} agent={scope.agent!r}>"

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.scope.session

    @property
    def _memory(self) -> Memory:
        """The memory that the session is archived in."""
        self._resources.require_open()
        return self._resources.memory

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._resources.settings

    @property
    def _held_bytes(self) -> int:
        """The bytes that this process keeps of the session, estimated. No lock is needed."""
        return self._state.history.held_bytes + self._state.edits.held_bytes

    # --- requests ----------------------------------------------------------------

    def assemble(
        self,
        messages: Sequence[Incoming],
        *,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        model: str | None = None,
        provider: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        overhead: int = 0,
        facts: Sequence[FactRow] = (),
        recall: bool = True,
        question: str = "",
    ) -> Window:
        """Make the window for the next request out of the whole history.

        Args:
            messages: The conversation so far, canonical, in any provider's format or as an SDK returned it, with the
                system prompt.
            format: The format of the messages, such as `anthropic`; by default it is detected for each message.
            limit: The context window of the model; by default that of the settings or of the model.
            reserve: Tokens kept for the reply; by default as set in the settings.
            model: The model that the request goes to.
            provider: The provider whose rules the window must keep; by default the format of the newest message that
                shows one, else `anthropic` for a Claude model, else `openai_chat`.
            tools: The tool definitions of the request, to be counted. If one is `archive_get`, pruned results
                name it.
            overhead: Tokens of anything else in the request.
            facts: Facts that the caller chose for this question; they go into the block first.
            recall: Whether memory is recalled for this request.
            question: What the user asks, if the caller sends it after the window. It is not archived; the block for
                it is `Window.block`.

        Raises:
            WindowTooSmallError: What must stay in the window does not fit.
            InvalidWindowError: The window breaks a rule of the provider that could not be repaired.
            InputError: `limit` or `reserve` is out of range.
        """
        self._resources.require_open()
        require_messages(messages)
        require_list(FactRow, "a list of facts, as Session.facts returns them", facts=facts)
        require_text(question=question)
        request = self._make_request(limit, reserve, model=model, provider=provider, tools=tools, overhead=overhead)
        request = replace(request, facts=facts, is_recalling=recall, question=question)
        return self._assemble_request(messages, request, format=format)

    def _assemble_request(self, messages: Sequence[Incoming], request: Request, *, format: str | None = None) -> Window:
        """Make the window of a request; see `assemble`."""
        self._resources.require_open()
        # Before the lock: masking a long text takes time, and other requests of the session need not wait for it.
        masks = self._state.history.mask_ahead(messages, format=format)
        # Memory never blocks a request. The thread that has the lock may wait for a store that hangs.
        if not self._lock.acquire(timeout=self.settings.archive.timeout_seconds):
            reason = "archive: another request of the conversation does not end"
            return self._assemble_without_memory(messages, request, format=format, reason=reason)
        try:
            with observe("assemble", session=self.id, model=request.model or "") as operation:
                window = self._assemble(messages, request, format=format, masks=masks, caller=_get_caller())
                report = window.report
                operation.set(
                    tokens=report.total_tokens,
                    whole_tokens=report.whole_tokens,
                    limit=report.raw_max_tokens,
                    edits=tuple(change.kind for change in report.changes),
                    warnings=len(report.warnings),
                    failures=report.failures,
                )
                return window
        finally:
            self._lock.release()
            self._resources.end_request(self)

    def _assemble(
        self, messages: Sequence[Incoming], request: Request, *, format: str | None, masks: Masks, caller: object
    ) -> Window:
        """Archive, compact if that is due, plan, record and report. The caller holds the lock.

        A failure of memory never blocks a request: the window then has the newest messages that fit.
        """
        state = self._state  # a call that hangs continues with this one, while the session gets a copy
        steps = Steps()
        doing = "archive"
        try:
            with steps.measure("archive"):
                archived = self._resources.ask_memory(
                    lambda: _archive_request(state, messages, request, format=format, masks=masks, caller=caller),
                    scope=self.scope,
                    messages=len(messages),
                )
            request = archived.request
            self._warnings += archived.warnings
            self._limits = request.limits
            self._mark_in_use()
            doing = "compact"
            with steps.measure("compact"):
                self._compact_if_due(is_recalling=request.is_recalling)
            doing = "plan"
            earlier_warnings = tuple(self._warnings)
            window = self._resources.ask_memory(
                lambda: self._assemble_archived(
                    state, archived, earlier_warnings=earlier_warnings, earlier_steps=steps.milliseconds
                ),
                scope=self.scope,
            )
        except WindowError:  # not about memory: without it the window would have the same fault
            raise
        except HoldfastError as error:
            self._leave_hanging_call()
            return self._assemble_without_memory(messages, request, format=format, reason=f"{doing}: {error}")
        # Those are in the report now. A background compaction may have added others since.
        del self._warnings[: len(earlier_warnings)]
        if window.report.changes:  # facts may be read from what left the window
            self._resources.notify()
        return window

    def _assemble_archived(
        self, state: _State, archived: _Archived, *, earlier_warnings: Sequence[str], earlier_steps: Mapping[str, float]
    ) -> Window:
        """Plan the window, record its new edits, and record its report. Nothing but `state` is changed.

        Edits are recorded durably before the window is sent. If another process records one meanwhile, the window is
        planned again with that edit.
        """
        request = archived.request
        read_warnings: list[str] = []
        for tries_left in reversed(range(MAX_TRIES)):
            window, outcome = turn.assemble(
                state.history,
                state.edits,
                state.timeline,
                self._resources.memory,
                request,
                validation=state.validation,
            )
            steps = Steps()
            # None if recording fails: the window is sent anyway, but it cannot be rebuilt from its records.
            numbers: tuple[int, int] | None = None
            with steps.guard("record"):
                work = self._plan_learning(state, outcome.edits)
                recorded = state.record(outcome.edits, time=request.now, jobs=work)
                read_warnings += recorded.fetched.warnings
                if recorded.conflict is not None:
                    if tries_left:
                        continue
                    raise recorded.conflict  # the guard reports it
                numbers = recorded.numbers
                state.edits.remember_window(
                    window.items,
                    system=state.history.system,
                    messages=state.history.messages,
                    limit=request.limits.safe_limit,
                )
            break
        state.timeline.last_time = request.now
        earlier_warnings = (*earlier_warnings, *read_warnings)
        milliseconds = {**earlier_steps, **window.report.milliseconds, **steps.milliseconds}
        report = replace(window.report, milliseconds=milliseconds)
        report = _add_warnings(report, [*steps.failures, *self._take_warnings(earlier_warnings)])
        # Before it is stored: the window is sent even if its record fails.
        state.timeline.add_turn(report, window.items, edits=len(state.edits.edits))
        try:
            state.timeline.record(
                report,
                time=request.now,
                edits=numbers,
                limit=request.limits.safe_limit,
                provider=window.provider,
                system=state.history.system,
                numbers=state.history.numbers,
                place=archived.place,
                forgetting=state.edits.forgetting,
            )
        except HoldfastError as error:
            report = _add_warnings(report, [f"report: {error}"])
        failures = (*window.failures, *steps.failures, *earlier_warnings)
        return replace(window, report=report, failures=failures, place=archived.place)

    def _assemble_without_memory(
        self, messages: Sequence[Incoming], request: Request, *, format: str | None, reason: str
    ) -> Window:
        """Make the window of the newest messages that fit, without the store; `reason` is why."""
        state = self._state
        request = replace(request, limits=state.fit(request.limits))
        items = state.history.read_unarchived(messages, format=format)
        window, _ = turn.assemble_without_memory(
            items, state.edits, state.timeline, self.settings, request, reason=reason
        )
        earlier_warnings = tuple(self._warnings)
        del self._warnings[: len(earlier_warnings)]
        report = _add_warnings(window.report, self._take_warnings(earlier_warnings))
        state.timeline.add_turn(report, window.items, edits=len(state.edits.edits))
        return replace(window, report=report, failures=(*window.failures, *earlier_warnings))

    def _take_warnings(self, earlier_warnings: Sequence[str]) -> list[str]:
        """Collect the warnings of a report about background work, ignored settings and damaged rows."""
        warnings = self._resources.take_warnings(self.scope)
        warnings += self._resources.warnings
        warnings += earlier_warnings
        warnings += map(str, self._resources.memory.gaps(self.scope))
        return warnings

    def _fit_without_memory(
        self,
        messages: Sequence[Incoming],
        *,
        reason: str,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        model: str | None = None,
        provider: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        overhead: int = 0,
        source: LimitSource | None = None,
    ) -> Window:
        """Make the window of the newest messages that fit, as `assemble` does if memory fails.

        It is for callers whose memory fails before they know the session; `reason` goes into the report.
        """
        self._resources.require_open()
        request = self._make_request(
            limit, reserve, model=model, provider=provider, tools=tools, overhead=overhead, source=source
        )
        return self._assemble_without_memory(messages, request, format=format, reason=reason)

    def preview(
        self, messages: Sequence[Incoming], *, format: str | None = None, provider: str
    ) -> list[Message] | None:
        """Return what a request that continues the last one would send, without archiving or editing anything.

        None if this process has sent no request of the session whose history these messages continue.
        """
        self._resources.require_open()
        require_messages(messages)
        with self._lock:
            if self._limits is None:
                return None
            continuation = self._state.history.read_continuation(messages, format=format)
            if continuation is None:
                return None
            replay = self._state.replay(self._limits)
        messages_sent = [continuation.renew(item) for item in replay.items if item.kind != "system"]
        items = [*continuation.system, *messages_sent, *continuation.new]
        return list(validate([item.sent for item in items], provider).messages)

    def append(
        self, messages: Sequence[Incoming], *, format: str | None = None, after: str | None = None
    ) -> AppendResult:
        """Archive messages that follow those of the session, such as a reply, and return their numbers.

        They are durable and searchable when this returns. An empty message is archived too, and left out of windows.
        If the session ends with some of them already, these are not archived again. Recalled text that came back is
        removed: `stripped` of the result lists the messages. Near the limit of the last request the session is
        compacted, as set by `compaction.auto`.

        Args:
            messages: The messages, as for `assemble`.
            format: The format of the messages, as for `assemble`.
            after: `Window.place` of the request that they answer, or `place` of what was appended before them; by
                default they follow the last request that this thread or task has made. Name it if requests of one
                session overlap and another thread appends the reply, or if another engine or process has written to
                the session: without it, a reply with the same text as the newest message counts as a repetition of it.

        Raises:
            InputError: `after` is not a place.
        """
        return self._append(messages, format=format, after=after, is_broken=False)

    def _append_broken(
        self, messages: Sequence[Incoming], *, format: str | None = None, after: str | None = None
    ) -> AppendResult:
        """Archive the part of a broken reply that arrived, and mark it as broken; see `append`.

        The client asks again, and half an answer must not be recalled then. It is recalled once a history contains it,
        or a complete reply has the same text: then nothing was missing.
        """
        read = providers.read(messages, format=format, keep_malformed=True)
        broken = [replace(message, stop="aborted") for message in read]
        return self._append(broken, format=None, after=after, is_broken=True)

    def _append(
        self, messages: Sequence[Incoming], *, format: str | None, after: str | None, is_broken: bool
    ) -> AppendResult:
        self._resources.require_open()
        require_messages(messages)
        if after and not str(after).startswith(FIRST):
            raise InputError(f"after={after!r}: give `place` of the window that the messages answer")
        caller = _get_caller()  # here: `append` below runs in another thread
        masks = self._state.history.mask_reply_ahead(messages, format=format)
        now = self._resources.memory.clock()  # before the wait for the lock, which is not time of the model

        def append(state: _State) -> tuple[AppendResult, list[Message]]:
            appended, new = state.history.append(messages, format=format, caller=caller, after=after, masks=masks)
            if is_broken:
                state.history.exclude_broken(appended)
            state.timeline.calibrate(new)
            with suppress(HoldfastError):  # only a figure is missing
                state.timeline.record_reply(new, appended[len(appended) - len(new) :], place=after, now=now)
            return appended, new

        with self._lock:
            result, new = self._ask_memory(append, messages=len(messages))
            coming = 0
            for message in new:
                coming += count_message(message, count=self._resources.count)
            self._compact_if_due(coming=coming)
            self._mark_in_use()
        self._resources.notify()  # not earlier, for the request: the vectors of both messages are made in one batch
        return result

    def _note_reply_time(self, milliseconds: int, *, place: str) -> None:
        """Remember how long a model took for a reply that is archived later."""
        with self._lock:
            self._state.timeline.note_reply_time(milliseconds, place=place)

    def _record_refusal(self, error: str, *, place: str) -> None:
        """Record that a request got no reply, such as the status that the provider answered with."""
        with self._lock, suppress(HoldfastError):  # only a figure is missing
            self._ask_memory(lambda state: state.timeline.record_refusal(error, place=place), messages=0)

    def _record_host(self, name: str) -> None:
        """Record the program that the session is from, unless one is recorded."""
        if not name or self._has_host:
            return
        with suppress(HoldfastError):  # only a figure is missing
            self._resources.ask_memory(lambda: self._memory.add_host(name, scope=self.scope), scope=self.scope)
            self._has_host = True

    def count_tokens(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
    ) -> int:
        """Count the tokens of the next request before anything new is cut from it."""
        self._resources.require_open()
        if messages is not None:
            require_messages(messages)
        limits = self._make_limits(limit, reserve)
        masks = self._state.history.mask_ahead(messages or (), format=format)
        with self._lock:
            limits = self._update(messages, limits, format=format, masks=masks)
            return tokens(self._state.replay(limits).items)

    def _measure(self, messages: Sequence[Incoming], *, limit: int, overhead: int) -> ContextReport:
        """Report the next request before anything new is cut from it or recalled for it. Nothing is recorded as sent.

        Args:
            messages: The conversation so far, with the system prompt.
            limit: The context window of the model.
            overhead: Tokens of the tools.
        """
        self._resources.require_open()
        limits = self._make_limits(limit, None, overhead=overhead)
        masks = self._state.history.mask_ahead(messages, format=None)
        with self._lock:
            limits = self._update(messages, limits, format=None, masks=masks)
            timeline = self._state.timeline
            timeline.load()
            items = self._state.replay(limits).items
            total = tokens(items) + limits.overhead
            return ContextReport(
                session=self.scope.session,
                turn=timeline.turn + 1,
                total_tokens=total,
                raw_max_tokens=limits.window,
                limit_source=limits.source,
                reserved_tokens=limits.reserve,
                percentage=round(100 * total / limits.window, 1),
                categories=categories(items, budget=limits),
                files=workspace_files(items),
                token_scale=limits.scale,
                is_calibrated=timeline.scale is not None,
            )

    def _fit_limits(self, limits: Budget) -> Budget:
        """Return limits with what is known of the conversation: see `_State.fit`."""
        self._resources.require_open()
        with self._lock:
            self._state.timeline.load()
            return self._state.fit(limits)

    @property
    def _known_token_scale(self) -> float:
        """The factor from estimated to provider tokens, as known in this process. It needs no store and no lock."""
        return self._state.timeline.token_scale

    def token_scale(self) -> float:
        """Return the factor from estimated to provider tokens: by its last reported usage, else with the margin."""
        self._resources.require_open()
        with self._lock:
            self._state.timeline.load()
            return self._state.timeline.token_scale

    def timeline(self) -> list[ContextReport]:
        """List the reports of all past turns, oldest first."""
        return read_reports(self._memory.store, self.scope)

    def window(self, turn: int) -> Window:
        """Make the window of a past turn again, as it was sent; secrets are masked, as in the archive.

        Raises:
            InputError: There is no such turn, or its window was not recorded or is forgotten.
        """
        require_count(turn=turn)
        return rebuild_window(self._memory.store, self.scope, turn, count=self._resources.count)

    def describe_cuts(self, *, last: int | None = None) -> list[Cut]:
        """List what left the windows of the session, oldest first: when, why, and its first words.

        Args:
            last: How many to list, the newest ones; by default all.
        """
        store = self._memory.store
        cuts = read_cuts(store, self.scope)
        if last is not None:
            require_count(last=last)
            cuts = cuts[max(0, len(cuts) - last) :]
        return [describe_cut(store, self.scope, cut) for cut in cuts]

    def expand_cut(self, cut: int, *, start: int = 0, max_chars: int = MAX_CUT_CHARS) -> CutText:
        """Get the messages that left the window in a cut, word for word.

        Args:
            cut: The number of the cut, as `describe_cuts` returns it.
            start: The number of the message to continue from: `next` of the last call.
            max_chars: The maximum characters to return.

        Raises:
            InputError: There is no such cut.
        """
        require_count(cut=cut, start=start, max_chars=max_chars)
        store = self._memory.store
        for found in read_cuts(store, self.scope):
            if found.id == cut:
                return expand_cut(store, self.scope, found, start=start, max_chars=max(1, max_chars))
        raise InputError(f"session {self.id!r} has no cut {cut}: describe_cuts lists them")

    # --- compaction --------------------------------------------------------------

    def compact(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        instructions: str | None = None,
        force: bool = True,
        dry_run: bool = False,
        model: Model | Callable[[list[dict[str, Any]]], str] | str | None = None,
        cancel: Event | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Compaction:
        """Replace the older history with a summary. Nothing is lost: the archive keeps every message.

        Args:
            messages: The conversation so far; by default that of the last request, else the archived messages.
            format: The format of the messages, as for `assemble`.
            limit: The context window of the model; by default that of the settings or of the model.
            reserve: Tokens kept for the reply; by default as set in the settings.
            instructions: What the summary should cover.
            force: Compact even if the conversation fits.
            dry_run: Only plan.
            model: The model that writes the summary, as for `Engine.open`; by default that of the engine.
            cancel: Cancels the compaction when set, from any thread; then nothing has changed.
            on_progress: Called after every step.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
            ModelCancelledError: It was cancelled.
            InputError: `limit` or `reserve` is out of range.
        """
        self._resources.require_open()
        if messages is not None:
            require_messages(messages)
        if instructions is not None:
            require_text(instructions=instructions)
        limits = self._make_limits(limit, reserve)
        masks = self._state.history.mask_ahead(messages or (), format=format)
        with self._lock:
            limits = self._update(messages, limits, format=format, masks=masks)
        from holdfast.compaction.run import Compaction  # noqa: PLC0415 - see the top of the module
        from holdfast.models.naming import as_model  # noqa: PLC0415 - see the top of the module

        if dry_run:
            with self._lock:
                plan = self._plan_compaction(self._state, limits, force=force)
            return Compaction(plan=plan, tokens_before=plan.tokens_before, tokens_after=plan.tokens_before)
        writer = None
        if model:
            writer = as_model(model, settings=self.settings)
        done = self._run_compaction(
            self._state,
            limits,
            force=force,
            instructions=instructions,
            model=writer,
            cancel=cancel,
            on_progress=on_progress,
        )
        self._summary_parts.clear()
        self._resources.notify()
        return done

    def _compact_if_due(self, *, coming: int = 0, is_recalling: bool = True) -> None:
        """Compact near the limit of the last request, here or in the background.

        If the settings turn recall off, nothing else makes room, so the session is compacted by rule if there is no
        model. Without recall, a compaction that was left to the background is done here before a message has to be cut.
        """
        limits = self._limits
        auto = self._choose_auto()
        if limits is None or auto == "off" or not self.settings.compaction.enabled:
            return
        if not self._is_near_limit(limits, coming):
            return
        if find_recall_switch(self.settings):
            is_recalling = False
        if auto == "inline" or (not is_recalling and self._is_over_limit(limits, coming)):
            self._compact_near_limit(coming)
        else:
            self._resources.queue_compaction(self, coming)

    def _choose_auto(self) -> AutoCompaction:
        """Return how the session is compacted near its limit."""
        if self._resources.auto is not None:
            return self._resources.auto
        if self._resources.model:
            return "background"
        if self.model or find_recall_switch(self.settings):
            return "inline"
        return "off"

    def _compact_near_limit(self, coming: int) -> None:
        """Compact if it is due now. There is no caller to raise to: errors go into the next report."""
        state = self._state
        with self._lock:
            limits = self._limits
            if limits is None or not self._is_near_limit(limits, coming):
                return
            # Set before the attempt, because requests continue during it; reset below if it succeeds.
            self._compact_from = len(state.history.messages) + RETRY_AFTER
            if self._plan_compaction(state, limits, force=True).outcome == "nothing":
                return
        try:
            done = self._run_compaction(state, limits, force=True, cancel=self._resources.closing)
        except ModelCancelledError:  # the engine closes
            return
        except HoldfastError as error:
            self._warnings.append(f"compaction: {error}")
            return
        for warning in done.warnings:
            self._warnings.append(f"compaction: {warning}")
        self._summary_parts.clear()
        self._compact_from = 0
        self._resources.notify()

    def _is_near_limit(self, limits: Budget, coming: int) -> bool:
        """Return whether a compaction is due. What is sent decides: if trimming keeps the window small, none is due."""
        if len(self._state.history.messages) < self._compact_from:
            return False
        used = tokens(self._state.replay(limits).items) + limits.overhead + coming
        return 0 < limits.flush_at <= used

    def _is_over_limit(self, limits: Budget, coming: int) -> bool:
        """Return whether the next window would have to be cut."""
        items = self._state.replay(limits).items
        return tokens(items) + added_tokens_of([item.message for item in items]) + coming > limits.prompt

    def _plan_compaction(self, state: _State, limits: Budget, *, force: bool) -> CompactionPlan:
        """Plan the compaction of what the session has. The caller holds the lock."""
        from holdfast.compaction.run import plan_compaction  # noqa: PLC0415 - see the top of the module

        return plan_compaction(
            self._select_compactable(state, limits),
            limits,
            sent=tokens(state.replay(limits).items),
            settings=self.settings,
            force=force,
            count=self._resources.count,
        )

    def _select_compactable(self, state: _State, limits: Budget) -> tuple[Item, ...]:
        from holdfast.compaction.run import select_compactable  # noqa: PLC0415 - see the top of the module

        standing = state.edits.find_in_force(state.history.messages, limit=limits.safe_limit)
        return select_compactable(state.history.items, standing)

    def _run_compaction(
        self,
        state: _State,
        limits: Budget,
        *,
        force: bool,
        instructions: str | None = None,
        model: Model | None = None,
        cancel: Event | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Compaction:
        """Compact the session. Its history is unchanged until the edit is recorded, which is the last step.

        The session is locked only to plan and to record, so that requests continue while the summary is made.

        Raises:
            CompactionError: There is nothing to compact, nothing shorter could be made, or the session changed
                meanwhile.
        """
        from holdfast.compaction.run import Compaction, Writer  # noqa: PLC0415 - see the top of the module

        with self._lock:
            plan = self._plan_compaction(state, limits, force=force)
            known_edits = len(state.edits.edits)
        if plan.outcome != "ready":
            raise CompactionError(plan.reason)
        writer = Writer(
            scope=self.scope,
            settings=self.settings,
            hooks=self._resources.hooks,
            model=model or self._resources.model or self.model,
            count=self._resources.count,
            report=self._warnings.append,
        )
        with observe("compact", session=self.id, tokens_before=plan.tokens_before) as operation:
            summary = writer.write(
                plan,
                limits,
                instructions=instructions,
                cancel=cancel,
                on_progress=on_progress,
                finished_parts=self._summary_parts,
            )
            with self._lock:
                self._record_compaction(state, plan, summary, instructions=instructions, known_edits=known_edits)
                tokens_after = tokens(self._select_compactable(state, limits))
            operation.set(tokens=summary.tokens, tokens_after=tokens_after, way=summary.rung, calls=summary.calls)
        writer.announce(plan, tokens_after=tokens_after)
        return Compaction(
            plan=plan,
            summary=summary,
            tokens_before=plan.tokens_before,
            tokens_after=tokens_after,
            warnings=summary.warnings,
        )

    def _record_compaction(
        self, state: _State, plan: CompactionPlan, summary: Summary, *, instructions: str | None, known_edits: int
    ) -> None:
        """Record the edit of a compaction, with the jobs that read the summarised messages for facts."""
        focus = instructions or ""
        if self.settings.archive.redaction:
            focus = redact(focus)
        edit = plan.edit(summary.framed, cost=summary.tokens, instructions=focus)
        work = self._plan_learning(state, [edit])

        def check() -> None:
            """Refuse a summary of history that has changed, or that was compacted meanwhile."""
            for other in state.edits.edits[known_edits:]:
                if other.kind == "compacted":
                    raise CompactionError("the conversation was compacted by another call; continue with that summary")
            if not set(state.history.numbers).issuperset(plan.ids):
                raise CompactionError("the conversation changed during the compaction; call compact() again")

        self._record_after_others(state, [edit], jobs=work, check=check)

    # --- learning ------------------------------------------------------------------

    def _plan_learning(self, state: _State, edits: Sequence[Edit]) -> list[Job]:
        """Return the job that extracts facts from what some edits remove from the window, if that is worth a job."""
        if not edits or not self.settings.knowledge.extraction:
            return []
        memory = self._resources.memory
        return plan_cut(
            memory.store,
            self.scope,
            self._resources.learner.reader,
            edits=edits,
            items=state.history.messages,
            time=memory.clock(),
        )

    def _mark_in_use(self) -> None:
        """Mark the session as in use, from time to time. Once it is idle, facts are extracted from the rest of it.

        The mark is a small write. If it fails, the next report says so, and the next request tries again.
        """
        knowledge = self.settings.knowledge
        if not knowledge.extraction:
            return
        memory = self._resources.memory
        now = memory.clock()
        # Twice in the time after which a session is idle, so that a session in use always has a newer mark.
        interval = knowledge.idle // timedelta(milliseconds=1) // 2
        if self._marked_at is not None and 0 <= now - self._marked_at <= max(interval, MIN_MARK_PAUSE):
            return
        mark = make_mark(self.scope, self._resources.learner.reader, time=now)
        try:
            self._resources.ask_memory(lambda: memory.store.add_jobs([mark]), scope=self.scope)
            self._marked_at = now
        except HoldfastError as error:
            self._warnings.append(f"knowledge: {error}")

    def _make_end_marks(self) -> list[Job]:
        """Return the mark that says that the engine of the session was closed, if the session was in use here."""
        if self._marked_at is None:
            return []
        self._marked_at = None
        memory = self._resources.memory
        return [make_mark(self.scope, self._resources.learner.reader, time=memory.clock(), is_closed=True)]

    # --- memory --------------------------------------------------------------------

    def recall(self, query: str, *, cap: int | None = None, across: bool | None = None) -> Recall:
        """Make the block that would be recalled for a question, of at most `cap` tokens.

        `across` includes passages of the agent's other sessions; by default as set by `archive.cross_session`.
        """
        require_text(query=query)
        if cap is not None:
            require_count(cap=cap, least=1)
        return self._memory.recall((query,), scope=self.scope, cap=cap, across=across)

    def search(self, query: str, *, across: bool = True, limit: int = 10) -> list[Hit]:
        """Find the passages that match a question, best first; `across` includes the agent's other sessions.

        The newest message of the user is left out if it only asks something: that is the question being answered.
        """
        require_text(query=query)
        require_count(limit=limit, least=1)
        asked = self._find_open_question(across=across)
        return self._memory.search(query, scope=self.scope, across=across, limit=limit, without_messages=asked)

    def _find_open_question(self, *, across: bool) -> tuple[int, ...]:
        """Return the number of the newest message of the user, if it only asks something."""
        newest = Select(scope=self.scope, across=across, newest=True, limit=MAX_TURN_MESSAGES)
        for row in reversed(self._memory.store.read_messages(newest)):
            if row.message.role == "user":
                if without_questions(row.message.text):
                    return ()
                return (row.id,)
        return ()

    def messages(self) -> list[MessageRow]:
        """List the archived messages of the session, including those that the client took back; see `conversation`.

        Damaged ones are left out; `Engine.stats` names them.
        """
        return self._memory.store.read_messages(Select(scope=self.scope))

    def conversation(self) -> list[Message]:
        """List the messages of the last request and the reply to it, to continue from after a restart.

        They do not include messages that the client took back or changed before that request, which are archived, nor
        system prompts: pass these again.
        """
        return [row.message for row in read_conversation(self._memory.store, self.scope)]

    def get(self, ids: Sequence[int], *, across: bool = True, around: int = 0) -> list[MessageRow]:
        """Get archived messages by number, with `around` neighbours on each side.

        Args:
            ids: The numbers, as `search` and `recall` return them.
            across: Whether messages of the agent's other sessions are found.
            around: How many messages before and after each one to include.

        Raises:
            StorageError: One of the messages is damaged.
        """
        require_numbers(ids=ids)
        require_count(around=around)
        return self._memory.get(ids, scope=self.scope, across=across, around=around)

    def remember(
        self,
        content: str,
        *,
        type: FactType = "decision",  # noqa: A002 - the domain's own word
        subject: str = "",
        slot: str = "",
        questions: Sequence[str] = (),
    ) -> FactRow:
        """Store a fact; it supersedes those of the same subject and slot, and a decision that its words replace.

        Up to three `questions` that it answers are searched too. Ask them in other words than those of the fact.
        """
        require_text(content=content, subject=subject, slot=slot)
        require_texts(questions=questions)
        return self._memory.remember(
            content, scope=self.scope, type=type, subject=subject, slot=slot, questions=questions
        )

    def facts(self, *, across: bool = True) -> list[FactRow]:
        """List the current facts; `across` includes those of the agent's other sessions."""
        return self._memory.facts(scope=self.scope, across=across)

    def conflicts(self, *, across: bool = True) -> list[Conflict]:
        """List the current facts that contradict each other, or may.

        `across` includes those of the agent's other sessions.
        """
        return self._memory.conflicts(scope=self.scope, across=across)

    def keep_fact(self, fact_id: str, *, across: bool = True) -> list[FactRow]:
        """Keep one of the facts that contradict each other; the others are superseded, and returned.

        Raises:
            InputError: No fact contradicts it.
        """
        require_text(fact_id=fact_id)
        return self._memory.keep_fact(fact_id, scope=self.scope, across=across)

    def keep_all_facts(self, fact_ids: Sequence[str], *, across: bool = True) -> list[FactRow]:
        """Keep facts that contradict each other, all of them, and return them. They are no longer reported.

        Raises:
            InputError: Fewer than two facts are named, or one of them is not current.
        """
        require_texts(fact_ids=fact_ids)
        return self._memory.keep_all_facts(fact_ids, scope=self.scope, across=across)

    def pin_facts(self, fact_ids: Sequence[str], *, pinned: bool = True) -> int:
        """Pin or unpin facts, and return how many changed. A pinned fact is in every block, and is never replaced."""
        require_texts(fact_ids=fact_ids)
        return len(self._memory.pin_facts(fact_ids, scope=self.scope, pinned=pinned))

    def learn(self) -> int:
        """Queue the messages of the session for fact extraction, and return how many will be read.

        Messages that were read before, or are queued already, are not queued again.
        """
        memory = self._memory
        count = queue(memory.store, scope=self.scope, reader=self._resources.learner.reader, time=memory.clock())
        self._resources.notify()
        return count

    def forget(self, ids: Sequence[int] | None = None) -> int:
        """Forget messages for good, with everything derived from them; without `ids` the whole session.

        Messages of other sessions, which `search` finds too, stay: their own session forgets them.
        """
        if ids is not None:
            require_numbers(ids=ids)
        with self._lock:
            forgotten = self._memory.forget(scope=self.scope, ids=ids)
            self._start_over()
        return forgotten

    def forget_facts(self, ids: Sequence[str], *, across: bool = True) -> int:
        """Forget facts for good, with their earlier versions."""
        require_texts(ids=ids)
        return self._memory.forget(scope=self.scope, fact_ids=ids, across=across)

    def exclude(self, ids: Sequence[int] = (), *, facts: Sequence[str] = (), excluded: bool = True) -> int:
        """Exclude messages and facts from recall, or include them again, and return how many were found.

        `get`, `search` and `facts` still find them. A block that was recalled before stays in the window until the
        next cut.
        """
        require_numbers(ids=ids)
        require_texts(facts=facts)
        return self._memory.exclude(ids, scope=self.scope, fact_ids=facts, across=True, excluded=excluded)

    def exclusions(self) -> Exclusions:
        """Return the messages and facts that recall leaves out."""
        return self._memory.exclusions(scope=self.scope)

    # --- edits -----------------------------------------------------------------------

    def edits(self) -> tuple[Edit, ...]:
        """List all recorded edits of the session's windows, oldest first."""
        self._resources.require_open()
        with self._lock:
            self._warnings += self._state.load()
            return tuple(self._state.edits.edits)

    def pin(self, ids: Sequence[int], *, pinned: bool = True) -> int:
        """Keep messages in every window from now on; those that were removed come back. `pinned=False` undoes it."""
        require_numbers(ids=ids)
        known = self._memory.pin(ids, scope=self.scope, pinned=pinned)
        with self._lock:
            self._edit(Pinned(on=pinned), self._state.history.add_pairs(ids))
        return known

    def undo_trim(self) -> int:
        """Bring back what the last cut removed, as far as it fits the next window, and return how many it removed."""
        self._resources.require_open()
        with self._lock:
            self._warnings += self._state.load()
            ids = self._state.edits.find_last_trim(self._state.history.messages)
            self._edit(Restored(), ids)
        return len(ids)

    def _edit(self, change: Pinned | Restored, ids: Sequence[int]) -> None:
        if ids:
            edit = Edit(change=change, ids=tuple(ids), reason="asked for", tokens_before=0, tokens_after=0)
            self._record_after_others(self._state, [edit])

    def _record_after_others(
        self,
        state: _State,
        edits: Sequence[Edit],
        *,
        jobs: Sequence[Job] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Record edits after those that other processes record meanwhile. The caller holds the lock.

        `check` is called before each try, and raises an error if the edits no longer hold.
        """
        now = self._resources.memory.clock()
        for tries_left in reversed(range(MAX_TRIES)):
            self._warnings += state.load()
            check()
            recorded = state.record(edits, time=now, jobs=jobs)
            self._warnings += recorded.fetched.warnings
            if recorded.conflict is None:
                return
            if not tries_left:
                raise recorded.conflict

    # --- shared ----------------------------------------------------------------------

    def _update(
        self, messages: Sequence[Incoming] | None, limits: Budget, *, format: str | None, masks: Masks
    ) -> Budget:
        """Archive the messages of a call, or else restore the archived ones. Return the limits that fit."""

        def update(state: _State) -> tuple[str, ...]:
            warnings: tuple[str, ...] = ()
            if messages is not None:
                _, warnings = state.update(messages, format=format, masks=masks)
            else:
                state.history.restore()
            return (*warnings, *state.load())

        self._warnings += self._ask_memory(update, messages=len(messages or ()))
        return self._state.fit(limits)

    def _ask_memory(self, call: Callable[[_State], T], *, messages: int) -> T:
        """Make a call to the memory that changes the state."""
        state = self._state
        try:
            return self._resources.ask_memory(lambda: call(state), scope=self.scope, messages=messages)
        except UnavailableError:
            self._leave_hanging_call()
            raise

    def _leave_hanging_call(self) -> None:
        """Go on with a copy of the state if a call to the memory hangs: it may still change the old one."""
        if self._resources.is_memory_hanging(self.scope):
            self._state = self._state.copy()

    def _start_over(self) -> None:
        """Drop the state of the session in this process, except for the requests that wait for a reply."""
        self._state = _State(
            history=self._state.history.renew(),
            edits=EditLog(self.scope, self._resources.memory.store),
            timeline=Timeline(self.scope, self._resources.memory, self._resources.count),
        )
        self._warnings = []
        self._limits = None
        self._compact_from = 0
        self._summary_parts = {}

    def _make_request(
        self,
        limit: int | None,
        reserve: int | None,
        *,
        model: str | None,
        provider: str | None,
        tools: Sequence[Mapping[str, Any]],
        overhead: int = 0,
        source: LimitSource | None = None,
    ) -> Request:
        """Make a request from the arguments of `assemble`; `source` is set if the user did not choose the limit."""
        require_list(Mapping, "a list of tool definitions, as in the request", tools=tools)
        require_count(overhead=overhead)
        if model is not None:
            require_text(model=model)
        archive_tool = ""
        for tool in tools:
            overhead += count_json(tool, count=self._resources.count)
            definition = tool
            function = tool.get("function")
            if isinstance(function, Mapping):  # Chat Completions wraps the definition
                definition = function
            name = str(definition.get("name", ""))
            if name.endswith(ARCHIVE_TOOL) and not archive_tool:
                archive_tool = name
        default_provider = "openai_chat"
        if model and "claude" in model.lower():
            default_provider = "anthropic"
        limits = self._make_limits(limit, reserve, model=model, overhead=overhead)
        if source is not None:
            limits = replace(limits, source=source)
        return Request(
            limits=limits,
            now=self._resources.memory.clock(),
            model=model or self.settings.model.name or "",
            provider=provider,
            default_provider=default_provider,
            archive_tool=archive_tool,
        )

    def _make_limits(
        self, limit: int | None, reserve: int | None, *, model: str | None = None, overhead: int = 0
    ) -> Budget:
        known = self._resources.model or self.model
        model_window = None
        if known and model is None:
            model_window = known.context_tokens
        return budget(
            self.settings,
            window=limit,
            model=model,
            model_window=model_window,
            overhead=overhead,
            reserve=reserve,
        )


def _archive_request(
    state: _State,
    messages: Sequence[Incoming],
    request: Request,
    *,
    format: str | None,
    masks: Masks,
    caller: object,
) -> _Archived:
    """Archive what is new, durably, without recalled text, and read the edits of other processes."""
    update, warnings = state.update(messages, format=format, masks=masks)
    place = state.history.begin_request(caller=caller)
    warnings += state.load()
    if state.timeline.reported_edits is None:  # edits of earlier processes are in their reports
        state.timeline.reported_edits = len(state.edits.edits)
    request = replace(request, limits=state.fit(request.limits), stripped=update.stripped)
    return _Archived(request=request, place=place, warnings=warnings)


def _add_warnings(report: ContextReport, warnings: Sequence[str]) -> ContextReport:
    """Add warnings to a report, each text once."""
    if not warnings:
        return report
    return replace(report, warnings=tuple(dict.fromkeys((*report.warnings, *warnings))))
