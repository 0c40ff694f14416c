"""A session: one conversation, its state, and the operations on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from threading import Event, RLock, current_thread
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import ref

from holdfast import turn
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Edit, Pinned, Restored, tokens
from holdfast.context.plan import added_tokens_of
from holdfast.context.validate import validate
from holdfast.errors import HoldfastError, InputError, ModelCancelledError, UnavailableError
from holdfast.memory.archive import FIRST, Ingested, Masks
from holdfast.memory.exclusion import Exclusions
from holdfast.memory.memory import Memory
from holdfast.memory.query import find_recall_switch
from holdfast.memory.recall import Hit, Recall
from holdfast.messages import Message
from holdfast.past import rebuild
from holdfast.providers import Incoming
from holdfast.report import ContextReport
from holdfast.signals import without_questions
from holdfast.state import TURN, SessionState
from holdfast.store.base import FactRow, FactType, MessageRow, Scope, Select
from holdfast.tokens import count_json, count_message
from holdfast.window import Window

if TYPE_CHECKING:
    from holdfast.compact import Compaction
    from holdfast.compaction.summarise import Progress
    from holdfast.engine import Engine
    from holdfast.models.base import Model

T = TypeVar("T")

ARCHIVE_TOOL: Final = "archive_get"
"""The tool that shows archived messages; hosts may put a prefix before its name."""
MAX_TURN_MESSAGES: Final = 50
"""The messages among which the newest one of the user is looked for: a turn may have many calls and results."""
RETRY_AFTER: Final = 8
"""Messages after which an automatic compaction that failed is tried again."""


CALLER: ContextVar[object] = ContextVar("caller")
"""Who calls a session, if that is not its thread: a task, or None for a caller that cannot be told from others."""


def _get_caller() -> object:
    return CALLER.get(ref(current_thread()))


class Session:
    """One conversation. Get it from `Engine.session`; it may be used from any number of threads and processes.

    Attributes:
        engine: The engine that it belongs to.
        scope: Who owns it: tenant, project, agent and session id.
        lock: Held by the thread that works on it.
        model: A model of the caller that writes summaries where the engine has none. It is called while a request of
            the session is made, unless `compaction.auto` says otherwise.
        state: What this process knows of it. Internal.
    """

    def __init__(self, engine: Engine, scope: Scope) -> None:
        self.engine = engine
        self.scope = scope
        self.lock = RLock()
        self.model: Model | None = None
        self.state = SessionState(scope, engine.memory, engine.count)

    @property
    def id(self) -> str:
        """The id of the session."""
        return self.scope.session

    @property
    def _memory(self) -> Memory:
        self.engine.require_open()
        return self.engine.memory

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
            reserve: Tokens kept for the reply; by default as the settings say.
            model: The model that the request goes to.
            provider: The provider whose rules the window must keep; by default the format of the newest message that
                shows one, else `anthropic` for a Claude model, else `openai_chat`.
            tools: The tool definitions of the request, to be counted. Where one is `archive_get`, pruned results
                name it.
            overhead: Tokens of anything else in the request.
            facts: Facts that the caller chose for this question; they go into the block first.
            recall: Whether memory is recalled for this request.
            question: What the user asks, where the caller sends it after the window. It is not archived; the block for
                it is `Window.block`.

        Raises:
            WindowTooSmallError: What must stay in the window does not fit.
            InvalidWindowError: The window breaks a rule of the provider that could not be repaired.
            InputError: `limit` or `reserve` is out of range.
        """
        request = self._make_turn(limit, reserve, model=model, tools=tools, overhead=overhead)
        masks = self.state.mask_ahead(messages, format=format)
        request = replace(
            request, facts=facts, is_recalling=recall, question=question, caller=_get_caller(), masks=masks
        )
        if not self.lock.acquire(timeout=self.engine.settings.archive.timeout_seconds):
            reason = "archive: another call of this session does not end"
            return turn.assemble_without_memory(
                self, messages, request, format=format, provider=provider, reason=reason
            )
        try:
            return turn.assemble(self, messages, request, format=format, provider=provider)
        finally:
            self.lock.release()
            self.engine.drop_sessions()

    def fit_without_memory(
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
    ) -> Window:
        """Make the window of the newest messages that fit, as `assemble` does if memory fails. Internal.

        It is for callers whose memory fails before they know the session; `reason` goes into the report.
        """
        request = self._make_turn(limit, reserve, model=model, tools=tools)
        return turn.assemble_without_memory(self, messages, request, format=format, provider=provider, reason=reason)

    def preview(
        self, messages: Sequence[Incoming], *, format: str | None = None, provider: str
    ) -> list[Message] | None:
        """Return what a request that goes on from the last one would send, without archiving or editing anything.

        None where this process has sent no request of the session whose history these messages continue.
        """
        self.engine.require_open()
        with self.lock:
            items = self.state.preview(messages, format=format)
        return None if items is None else list(validate([item.sent for item in items], provider).messages)

    def append(self, messages: Sequence[Incoming], *, format: str | None = None, after: str | None = None) -> Ingested:
        """Archive messages that follow those of the session, such as a reply, and return their numbers.

        They are durable and searchable when this returns. Messages that the session ends with already are not archived
        again, and recalled text that came back is removed: `stripped` of the result says from which messages. Near the
        limit of the last request the session is compacted, as `compaction.auto` says.

        Args:
            messages: The messages, as for `assemble`.
            format: The format of the messages, as for `assemble`.
            after: `Window.place` of the request that they answer, or `place` of what was appended before them; by
                default they follow the last request that this thread or task has made. Name it if requests of one
                session overlap and another thread appends the reply.

        Raises:
            InputError: `after` is no place.
        """
        self.engine.require_open()
        if after and not str(after).startswith(FIRST):
            raise InputError(f"after={after!r}: give `place` of the window that the messages answer")
        caller = _get_caller()
        masks = self.state.mask_ahead(messages, format=format, is_reply=True)

        def append(state: SessionState) -> tuple[Ingested, list[Message]]:
            return state.append(messages, format=format, caller=caller, after=after, masks=masks)

        with self.lock:
            numbers, read = self._ask_memory(append, messages=len(messages))
            self.state.calibrate(read)
            if self.state.limits is not None:
                self.compact_if_due(coming=sum(count_message(message, count=self.engine.count) for message in read))
        self.engine.notify()
        return numbers

    def size(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
    ) -> int:
        """Count the tokens of the next request before anything new is cut from it."""
        self.engine.require_open()
        limits = self._limits(limit, reserve)
        masks = self.state.mask_ahead(messages or (), format=format)
        with self.lock:
            self._update(messages, format=format, masks=masks)
            limits = replace(limits, scale=self.state.token_scale)
            return tokens(self.state.replay(limit=limits.safe_limit)[0])

    def token_scale(self) -> float:
        """Return the factor from estimated to provider tokens: by its last reported usage, else with the margin."""
        self.engine.require_open()
        with self.lock:
            self.state.load_turn()
            return self.state.token_scale

    def timeline(self) -> list[ContextReport]:
        """List the reports of all past turns, oldest first."""
        records = self._memory.store.read_records(Select(scope=self.scope), kind=TURN)
        return [ContextReport.from_json(record.data) for record in records]

    def window(self, turn: int) -> Window:
        """Make the window of a past turn again, as it was sent; secrets are masked, as in the archive.

        Raises:
            InputError: There is no such turn, or its window was not recorded or is forgotten.
        """
        self.engine.require_open()
        return rebuild(self, turn)

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
        """Replace the older history by a summary. Nothing is lost: the archive keeps every message.

        Args:
            messages: The conversation so far; by default that of the last request, else the archived messages.
            format: The format of the messages, as for `assemble`.
            limit: The context window of the model; by default that of the settings or of the model.
            reserve: Tokens kept for the reply; by default as the settings say.
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
        self.engine.require_open()
        limits = self._limits(limit, reserve)
        masks = self.state.mask_ahead(messages or (), format=format)
        with self.lock:
            self._update(messages, format=format, masks=masks)
            limits = replace(limits, scale=self.state.token_scale)
        from holdfast.compact import Compaction, plan_compaction, run_compaction  # noqa: PLC0415 - few processes compact
        from holdfast.models.naming import as_model  # noqa: PLC0415 - as above

        if dry_run:
            plan = plan_compaction(self, limits, force=force)
            return Compaction(plan=plan, tokens_before=plan.tokens_before, tokens_after=plan.tokens_before)
        writer = as_model(model, settings=self.engine.settings) if model else None
        done = run_compaction(
            self, limits, force=force, instructions=instructions, model=writer, cancel=cancel, on_progress=on_progress
        )
        self.state.summary_parts.clear()
        self.engine.notify()
        return done

    def compact_if_due(self, *, coming: int = 0, is_recalling: bool = True) -> None:
        """Compact near the limit of the last request, here or in the background. Internal: requests call it.

        If the settings turn recall off, nothing else makes room: then it is done without a model too, by rule. Without
        recall, one that was left to the background is done here before a message has to be cut.
        """
        settings = self.engine.settings
        is_off = bool(find_recall_switch(settings))
        is_recalling = is_recalling and not is_off
        auto = self.engine.auto
        if auto is None and self.engine.model:
            auto = "background"
        elif auto is None:
            auto = "inline" if self.model or is_off else "off"
        if auto == "off" or not settings.compaction.enabled or not self._is_near_limit(coming):
            return
        if auto == "inline" or (not is_recalling and self._is_over_limit(coming)):
            self.compact_near_limit(coming)
        else:
            self.engine.queue_compaction(self, coming)

    def compact_near_limit(self, coming: int) -> None:
        """Compact if it is due now. There is no caller to raise to: errors go into the next report. Internal."""
        from holdfast.compact import plan_compaction, run_compaction  # noqa: PLC0415 - as above

        state = self.state
        with self.lock:
            if state.limits is None or not self._is_near_limit(coming):
                return
            limits = state.limits
            state.compact_from = len(state.history) + RETRY_AFTER
            if plan_compaction(self, limits, force=True).outcome == "nothing":
                return
        try:
            done = run_compaction(self, limits, force=True, cancel=self.engine.closing)
        except ModelCancelledError:  # the engine closes
            return
        except HoldfastError as error:
            state.notes.append(f"compaction: {error}")
            return
        state.notes += (f"compaction: {warning}" for warning in done.warnings)
        state.summary_parts.clear()
        state.compact_from = 0
        self.engine.notify()

    def _is_near_limit(self, coming: int) -> bool:
        """Whether a compaction is due by what is really sent: where trimming keeps the window small, none is."""
        state, limits = self.state, self.state.limits
        if limits is None or len(state.history) < state.compact_from:
            return False
        used = tokens(state.replay(limit=limits.safe_limit)[0]) + limits.overhead + coming
        return 0 < limits.flush_at <= used

    def _is_over_limit(self, coming: int) -> bool:
        """Whether the next window would have to be cut."""
        limits = self.state.limits
        if limits is None:
            return False
        items = self.state.replay(limit=limits.safe_limit)[0]
        return tokens(items) + added_tokens_of([item.message for item in items]) + coming > limits.prompt

    # --- memory --------------------------------------------------------------------

    def recall(self, query: str, *, cap: int | None = None, across: bool | None = None) -> Recall:
        """Make the block that would be recalled for a question, of at most `cap` tokens.

        `across` includes passages of the agent's other sessions; by default as `archive.cross_session` says.
        """
        return self._memory.recall(self._memory.query((query,), scope=self.scope, cap=cap, across=across))

    def search(self, query: str, *, across: bool = True, limit: int = 10) -> list[Hit]:
        """Find the passages that match a question, best first; `across` includes the agent's other sessions.

        The newest message of the user is left out if it only asks something: it is the question that is being answered.
        """
        asked = self._find_open_question(across=across)
        return self._memory.search(query, scope=self.scope, across=across, limit=limit, without_messages=asked)

    def _find_open_question(self, *, across: bool) -> tuple[int, ...]:
        """Return the number of the newest message of the user, if it only asks something."""
        newest = Select(scope=self.scope, across=across, newest=True, limit=MAX_TURN_MESSAGES)
        for row in reversed(self._memory.store.read_messages(newest)):
            if row.message.role == "user":
                return () if without_questions(row.message.text) else (row.id,)
        return ()

    def get(self, ids: Sequence[int] | None = None, *, across: bool = True, around: int = 0) -> list[MessageRow]:
        """Get archived messages by number, with `around` neighbours on each side.

        Without numbers, return the whole conversation. Damaged messages are left out; `Engine.stats` names them.
        """
        if ids is None:
            return self._memory.store.read_messages(Select(scope=self.scope))
        _require_numbers(ids)
        return self._memory.get(ids, scope=self.scope, across=across, around=around)

    def remember(
        self,
        content: str,
        *,
        type: FactType = "decision",  # noqa: A002 - the domain's own word
        subject: str = "",
        slot: str = "",
    ) -> FactRow:
        """Store a fact; it supersedes those of the same subject and slot, and a decision that it says is replaced."""
        return self._memory.remember(content, scope=self.scope, type=type, subject=subject, slot=slot)

    def facts(self, *, across: bool = True) -> list[FactRow]:
        """List the current facts; `across` includes those of the agent's other sessions."""
        return self._memory.facts(scope=self.scope, across=across)

    def learn(self) -> int:
        """Queue the messages of the session for fact extraction, and return how many will be read.

        What was queued before for the same model is not queued again.
        """
        from holdfast.memory.learning import queue  # noqa: PLC0415 - as above

        reader = self.engine.reader or self.engine.model
        count = queue(self._memory, scope=self.scope, reader=reader.name if reader else "rules")
        self.engine.notify()
        return count

    def forget(self, ids: Sequence[int] | None = None) -> int:
        """Forget messages for good, with everything derived from them; without `ids` the whole session."""
        if ids is not None:
            _require_numbers(ids)
        with self.lock:
            forgotten = self._memory.forget(scope=self.scope, ids=ids)
            self.state = self.state.renew()
        return forgotten

    def forget_facts(self, ids: Sequence[str], *, across: bool = True) -> int:
        """Forget facts for good, with their earlier versions."""
        return self._memory.forget(scope=self.scope, fact_ids=ids, across=across)

    def exclude(self, ids: Sequence[int] = (), *, facts: Sequence[str] = (), excluded: bool = True) -> int:
        """Exclude messages and facts from recall, or include them again, and return how many were found.

        `get`, `search` and `facts` still find them. A block that was recalled before stays in the window until the
        next cut.
        """
        _require_numbers(ids)
        return self._memory.exclude(ids, scope=self.scope, fact_ids=facts, across=True, excluded=excluded)

    def exclusions(self) -> Exclusions:
        """Return the messages and facts that recall leaves out."""
        return self._memory.exclusions(scope=self.scope)

    # --- edits -----------------------------------------------------------------------

    def edits(self) -> tuple[Edit, ...]:
        """List all recorded edits of the session's windows, oldest first."""
        self.engine.require_open()
        with self.lock:
            self.state.load()
            return tuple(self.state.edits)

    def pin(self, ids: Sequence[int], *, pinned: bool = True) -> int:
        """Keep messages in every window from now on, or no longer; those that were removed come back."""
        _require_numbers(ids)
        known = self._memory.pin(ids, scope=self.scope, pinned=pinned)
        with self.lock:
            self._edit(Pinned(on=pinned), self.state.with_pairs(ids))
        return known

    def undo_trim(self) -> int:
        """Bring back what the last cut removed, as far as it fits the next window, and return how many it removed."""
        self.engine.require_open()
        with self.lock:
            self.state.load()
            ids = self.state.last_trim()
            self._edit(Restored(), ids)
        return len(ids)

    def _edit(self, change: Pinned | Restored, ids: Sequence[int]) -> None:
        edit = Edit(change=change, ids=tuple(ids), reason="asked for", tokens_before=0, tokens_after=0)
        self.state.load()
        self.state.record_after_others([edit] if ids else (), time=self._memory.clock())

    # --- shared ----------------------------------------------------------------------

    def _update(self, messages: Sequence[Incoming] | None, *, format: str | None, masks: Masks) -> None:
        def update(state: SessionState) -> None:
            if messages is not None:
                state.update(messages, format=format, masks=masks)
            else:
                state.restore()
            state.load()

        self._ask_memory(update, messages=len(messages or ()))

    def _ask_memory(self, call: Callable[[SessionState], T], *, messages: int) -> T:
        """Make a call to the memory that changes the state; one that hangs goes on with a state of its own."""
        state = self.state
        try:
            return self.engine.ask_memory(lambda: call(state), scope=state.scope, messages=messages)
        except UnavailableError:
            if self.engine.is_memory_hanging(state.scope):
                self.state = state.copy()
            raise

    def _make_turn(
        self,
        limit: int | None,
        reserve: int | None,
        *,
        model: str | None,
        tools: Sequence[Mapping[str, Any]],
        overhead: int = 0,
    ) -> turn.Turn:
        overhead += sum(count_json(tool, count=self.engine.count) for tool in tools)
        named = [tool["function"] if isinstance(tool.get("function"), Mapping) else tool for tool in tools]
        names = (str(tool.get("name", "")) for tool in named)
        return turn.Turn(
            limits=self._limits(limit, reserve, model=model, overhead=overhead),
            now=self._memory.clock(),
            model=model or self.engine.settings.model.name or "",
            provider="anthropic" if model and "claude" in model.lower() else "openai_chat",
            archive_tool=next((name for name in names if name.endswith(ARCHIVE_TOOL)), ""),
        )

    def _limits(self, limit: int | None, reserve: int | None, *, model: str | None = None, overhead: int = 0) -> Budget:
        known = self.engine.model or self.model
        return budget(
            self.engine.settings,
            window=limit,
            model=model,
            model_window=known.context_tokens if known and model is None else None,
            overhead=overhead,
            reserve=reserve,
        )


def _require_numbers(ids: Sequence[int]) -> None:
    if isinstance(ids, str | int) or not all(type(number) is int for number in ids):
        raise InputError(f"ids={ids!r}: give a list of message numbers, such as [3, 4]")
