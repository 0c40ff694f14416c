"""The terminal agent: one conversation with its transcript, its memory and its tools.

Every message is written to the transcript before anything else happens, so that a conversation that is interrupted at
any point can be continued.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any, Final, TypeAlias

from holdfast.compaction import flush
from holdfast.compaction.events import Hooks
from holdfast.compaction.run import Compaction
from holdfast.compaction.summarise import Progress
from holdfast.context.budget import Budget, budget
from holdfast.context.plan import added_tokens_of
from holdfast.engine import Engine
from holdfast.errors import (
    CompactionError,
    EmbeddingError,
    InputError,
    ModelCancelledError,
    ModelError,
    ModelOverflowError,
    ModelTimeoutError,
    StorageError,
    WindowError,
)
from holdfast.exchange import Completion, Exchanges, ModelRequest, complete
from holdfast.memory.block import strip_message
from holdfast.memory.learning_state import FAILED, WAITS
from holdfast.messages import Message, Text, Usage
from holdfast.models.base import Model, OnText, Prompt, Reply
from holdfast.models.naming import as_model
from holdfast.providers.models import cost
from holdfast.redaction import redact_value
from holdfast.report import ContextReport, Window
from holdfast.session import Session
from holdfast.store.base import FactRow, Scope, Select
from holdfast.text import plural, shorten_number
from holdfast.tokens import count_json, count_text
from holdfast.transcripts.records import is_forgotten, messages_of
from holdfast.transcripts.session import Context
from holdfast_agent import session_notes, workspace
from holdfast_agent.memories import Memories
from holdfast_agent.notes import Notes
from holdfast_agent.sessions import Conversation, Purpose, SessionEntry, Sessions, Spent, id_of
from holdfast_agent.settings import ChatSettings
from holdfast_agent.toolbox import Confirm
from holdfast_agent.tools import agent_tools, flush_tools
from holdfast_agent.view import Quiet, ReplyStream, View

MIN_MESSAGES: Final = 2
"""A conversation of this many messages or fewer is neither flushed nor compacted automatically."""
MAX_STEPS: Final = 100
"""The maximum number of model calls in one turn, without a message of the user."""
MAX_REPLY_TOKENS: Final = 8_192
"""The maximum length of a reply; less if less of the window is reserved for it."""
REPLY_SECONDS: Final = 600.0
"""The timeout of a model call of the conversation."""

Tally: TypeAlias = SimpleQueue[tuple[Purpose, Spent]]
"""Model calls outside the conversation that are not counted yet, from any thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The result of one user message: the answer without silent markers, and the tokens of all model calls."""

    text: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    interrupted: bool = False


class CountedModel:
    """A model whose calls are added to a tally."""

    def __init__(self, model: Model, purpose: Purpose, tally: Tally) -> None:
        self.name = model.name
        self.provider = model.provider
        self.context_tokens = model.context_tokens
        self._model = model
        self._purpose = purpose
        self._tally = tally

    def ask(
        self, prompt: Prompt, *, timeout: float | None = None, cancel: Event | None = None, on_text: OnText = None
    ) -> Reply:
        """Call the model, and count the call; see `Model.ask`."""
        reply = self._model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        spent = Spent.of(reply.usage, cost=cost(self.name, reply.usage))
        self._tally.put((self._purpose, spent))
        return reply


@dataclass(frozen=True, slots=True)
class Records:
    """The reports of the engine to its agent, from any thread.

    Attributes:
        tally: Model calls outside the conversation that are not counted yet.
        hook_failures: Failures of listeners that are not shown yet.
    """

    tally: Tally = field(default_factory=SimpleQueue)
    hook_failures: list[str] = field(default_factory=list)


def open_engine(
    home: Path | None,
    *,
    settings: ChatSettings,
    model: Model,
    root: Path,
    key: str,
    records: Records,
    hooks: Hooks | None = None,
    background: bool = True,
) -> Engine:
    """Open the engine of an agent. Its models are those of the settings, or `model`, and their calls are counted.

    `root` is the agent's folder and `key` is the key of its conversation, as events of compactions name them.
    """
    writer = model
    if settings.compaction.model:
        writer = as_model(settings.compaction.model, settings=settings)
    reader = writer
    if settings.knowledge.model:
        reader = as_model(settings.knowledge.model, settings=settings)
    return Engine.open(
        home,
        settings=settings,
        model=CountedModel(writer, "summaries", records.tally),
        reader=CountedModel(reader, "extraction", records.tally),
        personal=True,
        hooks=replace(
            hooks or Hooks(),
            workspace=str(root),
            session_key=key,
            message_provider="terminal",
            on_failure=records.hook_failures.append,
        ),
        auto="off",  # the agent flushes and compacts itself
        background=background,
    )


class Agent:
    """A conversation with a model, which is continued or begun when the agent is made. It does not run on Windows.

    `open_engine` opens its engine, which reports to `records`; `flush_model` writes notes before a compaction, by
    default `model`. Without a `project`, each conversation belongs to the project of the folder in which it began.
    `confirm` asks the user before a command runs or a file is written; without it neither is possible.

    `conversation` is the open one, with its transcript; `session` is the same in the engine. `history` has all of its
    messages, with secrets unmasked while it is open. Setting `cancel` interrupts the work in progress.
    """

    def __init__(
        self,
        engine: Engine,
        model: Model,
        *,
        settings: ChatSettings,
        sessions: Sessions,
        key: str,
        root: Path,
        notes: Notes | None = None,
        project: str | None = None,
        confirm: Confirm | None = None,
        view: View | None = None,
        flush_model: Model | None = None,
        records: Records | None = None,
    ) -> None:
        if os.open not in os.supports_dir_fd:
            raise InputError(
                "the agent does not run on Windows, where its file tools and shell lack the system calls they need: "
                "use it in WSL. The library and the other commands work here"
            )
        self.engine = engine
        self.model = model
        self.settings = settings
        self.sessions = sessions
        self.root = root
        self.notes = notes
        self.project = project
        self.confirm = confirm
        self.flush_model = flush_model
        self.view: View = view or Quiet()
        self.window: Window | None = None
        self.cancel = Event()
        self.records = records or Records()
        self.memories = Memories(engine, settings, sessions.agent)
        self._exchanges = Exchanges()
        # The system prompt of the running turn, whose tools may change the files that the prompt is made from.
        self._system: Message | None = None
        # When the user's message was sent, until it is saved in the entry; otherwise 0.
        self._input_time = 0
        # The last notice about long-term memories, so that it is not repeated.
        self._memory_warning = ""
        self._warned_read_only = False
        # The window as it would be sent now, until something changes it.
        self._measured: ContextReport | None = None
        try:
            workspace.prepare(root, settings.agent)
        except StorageError as error:
            self.view.notice(f"The workspace {error}. Notes before compactions cannot be written there.")
        self._switch_to(sessions.open(key, settings.agent, cwd=str(root)))
        archived = self.conversation.archived
        before = None
        if archived is not None:
            before = self._find_session(id_of(archived), sessions.read_cwd(archived))
        self._finish(before)

    def close(self) -> None:
        """Close everything. The conversation can be continued later."""
        self.memories.close()
        if self.notes is not None:
            self.notes.close()
        self.engine.close()
        self._show_hook_failures()
        self.save_tally()

    @property
    def limit(self) -> int:
        """The context window, in tokens."""
        return self.settings.model.context_tokens or self.model.context_tokens

    @property
    def limits(self) -> Budget:
        """The limits of the window, with the tools counted."""
        return self.session._fit_limits(budget(self.settings, window=self.limit, overhead=self._tool_tokens))

    def _find_max_reply(self, window: Window | None) -> int:
        """Return how many tokens a reply may have: the reserve before the first one, or less if the window leaves less.

        After short replies less is reserved, so the window may leave less.
        """
        max_tokens = min(MAX_REPLY_TOKENS, budget(self.settings, window=self.limit).reserve)
        if window is None:
            return max_tokens
        report = window.report
        left = int(report.raw_max_tokens - report.token_scale * report.total_tokens)
        return max(1, min(max_tokens, left))

    @property
    def is_first_run(self) -> bool:
        """Whether this is the first conversation in the workspace. Only the first one gets `BOOTSTRAP.md`."""
        has_file = (self.root / workspace.FIRST_RUN).is_file()
        return has_file and self.sessions.is_first(self.session.id, cwd=str(self.root))

    def build_messages(self) -> list[Message]:
        """Return the whole conversation with the system prompt first."""
        return [self._system or self.build_system_prompt(), *self.history]

    def build_system_prompt(self) -> Message:
        """Build the system prompt from the workspace as it is now. A turn keeps its prompt until it ends."""
        prompt = workspace.system_prompt(
            self.root,
            settings=self.settings.agent,
            now=self.sessions.clock(),
            tools=self.tools.tools(),
            first_run=self.is_first_run,
        )
        return Message(role="system", parts=(Text(text=prompt),))

    def last_window(self) -> Window:
        """Return the window of the last model call, or the one that would be sent now."""
        if not self.history:
            raise InputError("The conversation is empty. Send a message first.")
        return self.window or self._assemble()

    def measure(self) -> ContextReport | None:
        """Report the window as it would be sent now. Everything that shows its size shows this report.

        It is None for an empty conversation, and if memory fails.
        """
        if self._measured is None and self.history:
            with self.guard_memory():
                self._measured = self.session._measure(
                    self.build_messages(), limit=self.limit, overhead=self._tool_tokens
                )
        return self._measured

    @property
    def used_tokens(self) -> int:
        """The tokens of the window as it would be sent now; 0 if they are not known."""
        report = self.measure()
        if report is None:
            return 0
        return report.total_tokens

    def forget_measure(self) -> None:
        """Count the window again when it is shown next, because something was added to it or cut from it."""
        self._measured = None

    def _assemble(self) -> Window:
        tools = [tool.to_json() for tool in self.tools.tools()]
        return self.session.assemble(self.build_messages(), limit=self.limit, provider=self.model.provider, tools=tools)

    # --- a turn ----------------------------------------------------------------------

    def say(self, text: str, *, heartbeat: bool = False) -> Turn:
        """Send a user message and wait for the answer. If the model fails, the next call continues from it."""
        before = self.session
        is_due = bool(self.sessions.due(self.conversation.key, self.settings.agent))
        if is_due:
            self._switch_to(self.sessions.open(self.conversation.key, self.settings.agent, cwd=str(self.root)))
        try:
            # Before anything that calls a model or takes time. Its time is saved with the reply, in one write.
            self.record(Message(role="user", parts=(Text(text=text),)))
            self._input_time = 0
            if not heartbeat:
                self._input_time = self.sessions.clock()
            with self.guard_memory():
                self.session.append(self.history[-1:])
            if is_due:
                self._finish(before)
            self._system = self.build_system_prompt()
            self._make_room(coming=count_text(text), heartbeat=heartbeat)
            turn = self._run_model_loop()
        finally:
            self.forget_measure()
            self.cancel.clear()  # not at the start, which would lose a Ctrl-C just before it
            self._show_hook_failures()
            self._system = None
            if self._input_time:  # no reply has saved it
                self.update_entry(self._save_progress)
        if not heartbeat:
            with self.guard_memory():
                self.memories.capture([text])
        if self.notes is not None:
            self.notes.poll()
        return replace(turn, text=flush.strip_silence(turn.text))

    def _save_progress(
        self, entry: SessionEntry, *, reply: Reply | None = None, window: Window | None = None
    ) -> SessionEntry:
        """Record the time of the user's message (once), a reply, and what was cut from the window that it answers."""
        if self._input_time:
            entry = entry.with_input(self._input_time)
            self._input_time = 0
        if window is not None:
            cuts = [change for change in window.report.changes if change.kind in {"trimmed", "pruned"}]
            entry = entry.with_cut(sum(change.tokens_before - change.tokens_after for change in cuts))
        if reply is None:
            return entry
        return entry.with_reply(
            reply.usage,
            now=self.sessions.clock(),
            model=self.model.name,
            window=self.limit,
            cost=cost(self.model.name, reply.usage),
        )

    def _run_model_loop(self) -> Turn:
        """Call the model and run its tools until it calls no more tools."""
        turn = Turn()
        while turn.steps < MAX_STEPS:
            completion = self._call_model_or_reset()
            if completion is None:
                return replace(turn, interrupted=True)
            self.window = completion.window
            reply = completion.reply
            name = reply.message.model or self.model.name
            self.record(replace(reply.message, usage=reply.usage, model=name), reply=True)
            self.update_entry(partial(self._save_progress, reply=reply, window=completion.window))
            turn = replace(turn, text=reply.text, steps=turn.steps + 1, usage=_add_usage(turn.usage, reply.usage))
            if reply.stop == "length":
                max_tokens = self._find_max_reply(completion.window)
                self.view.notice(
                    f"The reply was cut off after {max_tokens:,} tokens. Ask the model to continue, or set "
                    "compaction.reserve_tokens to more."
                )
            calls = reply.message.calls
            if not calls:
                break
            for call in calls:
                self.view.call(call)
            results = self.tools.run_all(calls, cancel=self.cancel, on_result=self.view.result)
            self.record(Message(role="tool", parts=tuple(results)))
            if self.cancel.is_set():
                return replace(turn, interrupted=True)
            self._make_room(coming=0)
        else:
            self.view.notice(f"Stopped after {MAX_STEPS} steps. Send a message to continue.")
        with self.guard_memory():
            self.session.append(self.history[-1:])
        return turn

    def _call_model_or_reset(self) -> Completion | None:
        """Call the model. If no request fits, begin a new conversation with a digest and call it once more."""
        try:
            return self._call_model()
        except ModelOverflowError as error:
            if not error.tries:
                raise
            new = self.reset(session_notes.digest_history(self.history, window=self.limit))
            archive = "the archive"
            if new.archived:
                archive = new.archived.name
            self.view.notice(
                f"The request did not fit: {error.tries + 1} windows were refused. A new conversation begins with a "
                f"digest of the old one, which is kept in {archive}."
            )
        return self._call_model()

    def _call_model(self) -> Completion | None:
        """Call the model for its next reply; None if the user interrupted it."""
        question = ""
        for message in reversed(self.history):
            if message.role == "user":
                question = message.text
                break
        facts: list[FactRow] = []
        standing: list[FactRow] = []
        with self.guard_memory():
            facts += self.memories.recall_facts(question)
            standing += self.memories.list_standing()
        failure = self.memories.failure
        if failure and failure != self._memory_warning:
            self.view.notice(f"Long-term memories are found by their words alone: {failure}")
        self._memory_warning = failure
        stream = ReplyStream(self.view, in_blocks=self.settings.agent.block_streaming == "on")
        tools = self.tools.tools()
        request = ModelRequest(
            messages=self.build_messages(),
            format=self.model.provider,
            model=self.model.name,
            model_tokens=self.model.context_tokens,
            tools=[tool.to_json() for tool in tools],
            facts=facts,
            standing=standing,
        )
        try:
            exchange = self._exchanges.begin(self.session, request, compact=self._compact_after_overflow)
            completion = complete(
                exchange,
                self.model,
                tools=tools,
                max_tokens=self._find_max_reply(exchange.window),
                timeout=REPLY_SECONDS,
                cancel=self.cancel,
                on_text=stream.feed,
            )
        except ModelCancelledError:
            if stream.text.strip():
                parts = (Text(text=stream.text),)
                self.record(Message(role="assistant", parts=parts, stop="aborted", model=self.model.name), reply=True)
            return None
        stream.end()
        for warning in completion.window.report.warnings:
            if warning.startswith((FAILED, WAITS)):
                self.view.notice(warning[0].upper() + warning[1:])  # unlike capitalize(), this leaves names alone
        return completion

    # --- the conversation ------------------------------------------------------------

    def record(self, message: Message, *, reply: bool = False) -> None:
        """Append a message to the transcript, with secrets masked, and to the history, with secrets as they are.

        Recalled text that comes back in it is removed first, because transcripts must not contain any.
        """
        with self.guard_memory():
            own = strip_message(message, self.engine._memory.marks)
            if own is not None and own is not message:
                self.view.notice(f"Recalled text was removed from a message of the role {message.role}.")
                message = own
        provider = ""
        if reply:
            provider = self.model.name.partition("/")[0]
        self.history += self.conversation.append(message, provider=provider, redact=self.settings.archive.redaction)

    def reset(self, messages: Sequence[Message] = ()) -> Conversation:
        """Archive the conversation and begin another with some messages. Facts learned from it are kept."""
        before = self.session
        self._switch_to(self.sessions.reset(self.conversation.key, cwd=str(self.root)))
        for message in messages:
            self.record(message)
        if messages:
            with self.guard_memory():
                self.session.append(self.history)
        self._finish(before)
        return self.conversation

    def _switch_to(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.window = None
        self.forget_measure()
        self.session = self._find_session(conversation.entry.session_id, conversation.transcript.cwd or str(self.root))
        self.tools = agent_tools(
            self.session,
            settings=self.settings,
            bounds=workspace.bounds_of(self.root, self.settings.agent, guarded=[self.sessions.home]),
            notes=self.notes,
            confirm=self.confirm,
            memories=self.memories,
        )
        self._tool_tokens = sum(count_json(tool.to_json()) for tool in self.tools.tools())
        context = conversation.transcript.context()
        self.history = self._load_history(context)
        for problem in (*conversation.problems, *(problem.what for problem in context.problems)):
            self.view.notice(problem)

    def _find_session(self, session_id: str, cwd: str) -> Session:
        """Get a conversation from the engine, in the project of its folder, unless it is stored without a project."""
        project = self.project
        if project is None:
            project = cwd
            without_project = Scope(agent=self.sessions.agent, session=session_id)
            with self.guard_memory():
                if self.engine._memory.store.read_messages(Select(scope=without_project, limit=1)):
                    project = ""
        session = self.engine.session(session_id, project=project, agent=self.sessions.agent)
        with self.guard_memory():
            self.engine._memory.set_host("holdfast chat", scope=session.scope)
        return session

    def _load_history(self, context: Context) -> list[Message]:
        """Load the messages, without forgotten ones. If memory lost their summary, use that of the transcript."""
        path = self.conversation.transcript.path()
        has_summary = any(edit.kind == "compacted" for edit in self.session.edits())
        messages: list[Message] = []
        if context.compaction is not None and not has_summary:
            messages += context.messages
        else:
            for entry in path:
                messages += messages_of(entry)
        forgotten = {entry.id for entry in path if is_forgotten(entry)}
        return [message for message in messages if message.id not in forgotten]

    def _finish(self, before: Session | None) -> None:
        """Extract facts from the previous conversation, if there was one, and write a note of it. This takes time."""
        if before is not None:
            with self.guard_memory():
                before.learn()
        if self.conversation.why in {"daily", "idle"}:
            self.view.notice(
                f"A new conversation begins ({self.conversation.why} reset). "
                f"The old one is in {self.conversation.archived}."
            )
        if self.conversation.archived is None or not self.settings.agent.session.memory_file:
            return
        try:
            with self._working("naming the conversation"):
                session_notes.write_session_note(
                    self.conversation,
                    time=self.sessions.clock(),
                    bounds=workspace.bounds_of(self.root, self.settings.agent),
                    model=self._writer(),
                    mask=self.settings.archive.redaction,
                    cancel=self.cancel,
                )
        except (InputError, StorageError) as error:
            self.view.notice(
                f"No note of the last conversation was written: {error}. All of it is in {self.conversation.archived}."
            )

    def forget(self, ids: Sequence[int]) -> int:
        """Forget messages of any conversation for good: in transcripts, in later requests and in memory."""
        rows = self.session.get(ids)
        self.sessions.forget(rows)
        self.conversation.transcript.refresh()
        self.history = self._load_history(self.conversation.transcript.context())
        self.window = None
        self.forget_measure()
        count = 0
        for scope in {row.scope for row in rows}:
            own = [row.id for row in rows if row.scope == scope]
            count += self.engine._open_session(scope).forget(ids=own)
        return count

    @contextmanager
    def guard_memory(self) -> Iterator[None]:
        """Continue without memory if it fails, and show a notice."""
        try:
            yield
        except (StorageError, EmbeddingError) as error:
            self.view.notice(f"Memory failed, and the conversation continues without it: {error}")

    def update_entry(self, change: Callable[[SessionEntry], SessionEntry]) -> None:
        """Change the entry of the conversation in `sessions.json`, and add the tally to it."""
        tally = self.records.tally
        calls = [tally.get() for _ in range(tally.qsize())]  # other threads may add more in the meantime

        def apply(entry: SessionEntry) -> SessionEntry:
            for purpose, spent in calls:
                entry = entry.with_calls(purpose, spent)
            return change(entry)

        self.conversation = replace(self.conversation, entry=self.sessions.update(self.conversation.key, apply))

    def save_tally(self) -> None:
        """Save the tokens of model calls outside the conversation since the last change."""
        if not self.records.tally.empty():
            self.update_entry(lambda entry: entry)

    def _show_hook_failures(self) -> None:
        while self.records.hook_failures:
            self.view.notice(self.records.hook_failures.pop(0))

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        self.view.working(what)
        try:
            yield
        finally:
            self.view.working("")

    def _writer(self) -> Model:
        return CountedModel(self.flush_model or self.model, "flush", self.records.tally)

    # --- compaction and flush --------------------------------------------------------

    def _make_room(self, *, coming: int, heartbeat: bool = False) -> None:
        """Flush and compact if the conversation is too large. `coming` are the tokens since the last request."""
        if len(self.history) <= MIN_MESSAGES:
            return
        with self.guard_memory():
            messages = self.build_messages()
            used = self.session.count_tokens(messages, limit=self.limit) + self._tool_tokens
            was_flushed = self.flush(used=used - coming, coming=coming, heartbeat=heartbeat)
            # A window has to leave room for what its validation may add. Otherwise it is cut.
            if self.settings.compaction.enabled and used + added_tokens_of(messages) > self.limits.compact_at:
                try:
                    if not was_flushed:
                        self.flush()
                    before = self.used_tokens
                    self.view.notice(self.describe_compaction(self._compact(None), before=before))
                except CompactionError as error:
                    self.view.notice(f"The conversation could not be compacted: {error}")
                except ModelCancelledError:
                    self.view.notice("The compaction was cancelled. Nothing has changed.")

    def compact(self, instructions: str | None = None) -> Compaction:
        """Flush, then replace the older history with a summary.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
        """
        plan = self.session.compact(self.build_messages(), limit=self.limit, dry_run=True).plan
        if plan.outcome == "ready":
            self.flush()
        return self._compact(instructions)

    def _compact(self, instructions: str | None) -> Compaction:
        def show(step: Progress) -> None:
            self.view.working(f"compacting: {step.stage} {step.step}/{step.steps}")

        with self._working("compacting"):
            messages = self.build_messages()
            done = self.session.compact(
                messages, limit=self.limit, instructions=instructions, cancel=self.cancel, on_progress=show
            )
        self._record_compaction(done)
        return done

    def _compact_after_overflow(self, *, limit: int, reserve: int | None) -> None:
        """Flush and compact because the model has refused a request, whose messages the session already has."""
        self.flush()
        before = self.used_tokens
        done = self.session.compact(limit=limit, reserve=reserve, cancel=self.cancel)
        self._record_compaction(done)
        if done.summary is not None:
            self.view.notice(self.describe_compaction(done, before=before))

    def _record_compaction(self, done: Compaction) -> None:
        """Write a compaction to the transcript, and show a notice of what went wrong."""
        summary = done.summary
        if summary is None:
            return
        details: Any = dict(summary.details)
        if self.settings.archive.redaction:
            details = redact_value(details)
        # The first kept message may be one that the transcript does not have, such as the system prompt.
        first_kept: str | None = None
        if done.plan.first_kept is not None:
            first_kept = done.plan.first_kept.message.id
        if first_kept not in {entry.id for entry in self.conversation.transcript.path()}:
            first_kept = None
        self.conversation.transcript.append_compaction(
            summary.text,
            first_kept=first_kept,
            tokens_before=done.tokens_before,
            details={**details, "tokensAfter": done.tokens_after, "rung": summary.rung},
            from_hook=summary.from_hook,
        )
        self.update_entry(lambda entry: entry.with_compaction(done.tokens_after, now=self.sessions.clock()))
        self.window = None
        self.forget_measure()
        if summary.rung in {"partial", "digest"} and summary.warnings:
            part = "The summary"
            if summary.rung == "partial":
                part = "Part of the summary"
            self.view.notice(
                f"{part} was made by rules, because the model gave none: {summary.warnings[-1]}. If it needs more "
                "time, set compaction.timeout_seconds to more."
            )
            return
        for warning in done.warnings:
            self.view.notice(warning)

    def describe_compaction(self, done: Compaction, *, before: int) -> str:
        """Describe how much smaller the window is than `before`, what left it, and where that is kept."""
        change = f"{shorten_number(before)} → {shorten_number(self.used_tokens)}"
        left = plural(len(done.plan.summarised), "message")
        return (
            f"Compacted ({change}): a summary replaces {left}. All of it stays in the archive: it comes back "
            "when a question needs it, and /memory search finds it."
        )

    def flush(self, *, used: int | None = None, coming: int = 0, heartbeat: bool = False) -> bool:
        """Let the agent write its notes in a silent turn, unless it has done so in this compaction cycle.

        Return whether the turn ran or failed. Then it is not tried again before the compaction that follows.

        `used` are the tokens in the window: the turn runs if they are near the threshold. Without it, a compaction
        follows in any case.
        """
        entry = self.conversation.entry
        settings = self.settings
        now = self.sessions.clock()
        verdict = flush.due(
            entry.flush_cycle,
            used=max(entry.total_tokens, used or 0),
            coming=coming,
            budget=self.limits,
            settings=settings.compaction.memory_flush,
            can_write=settings.agent.workspace.access == "rw",
            transcript_bytes=self.conversation.transcript.file.stat().st_size,
            heartbeat=heartbeat,
            forced=used is None,
        )
        if verdict == "read-only" and used is None and not self._warned_read_only:
            self._warned_read_only = True
            self.view.notice("No notes are written before compactions: the workspace is read-only.")
        if verdict != "due":
            return False
        moment = workspace.local_time(now, timezone=settings.agent.timezone)
        prompt = flush.prompt(settings.compaction.memory_flush, now=moment)
        bounds = workspace.bounds_of(self.root, settings.agent)
        tools = flush_tools(bounds, note=prompt.path, mask=settings.archive.redaction)
        try:
            with self._working("writing notes"):
                window = self._assemble()
                session_notes.run_flush(
                    window.messages,
                    prompt,
                    model=self._writer(),
                    tools=tools,
                    limit=int(self.limits.window / self.limits.scale),
                    seconds=settings.compaction.timeout_seconds,
                    cancel=self.cancel,
                )
            self.update_entry(lambda known: known.with_flush(now=now, cycle=entry.compaction_count))
        except ModelCancelledError:
            pass  # the user cancelled it: this is not a failure
        except (ModelError, StorageError, WindowError) as error:
            failure = str(error)
            if isinstance(error, ModelTimeoutError):
                failure += " (compaction.timeout_seconds)"
            max_failures = settings.compaction.memory_flush.max_failures
            self.update_entry(lambda known: known.with_failed_flush(failure, now=now, max_failures=max_failures))
            if self.conversation.entry.is_flushed:
                self.view.notice(
                    f"Writing notes failed {max_failures} times; the compaction continues without them. ({failure})"
                )
            else:
                self.view.notice(f"Notes could not be written before the compaction: {failure}")
        return True


def _add_usage(total: Usage, reply: Usage | None) -> Usage:
    if reply is None:
        return total
    return Usage(
        input=total.input + reply.input,
        output=total.output + reply.output,
        cache_read=total.cache_read + reply.cache_read,
        cache_write=total.cache_write + reply.cache_write,
    )
