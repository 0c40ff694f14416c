"""The terminal agent: one conversation with its transcript, its memory and its tools.

Every message is written to the transcript before anything else happens, so that a conversation that is interrupted at
any point can be continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, Final

from holdfast.agent import session_notes, workspace
from holdfast.agent.memories import Memories
from holdfast.agent.notes import Notes
from holdfast.agent.sessions import Opened, SessionEntry, Sessions, id_of
from holdfast.agent.tally import CountedModel, Tally, add_usage
from holdfast.agent.tools import Confirm, agent_tools, flush_tools, tool_tokens
from holdfast.agent.view import Quiet, ReplyStream, View
from holdfast.compact import Compaction
from holdfast.compaction import flush
from holdfast.compaction.summarise import Progress
from holdfast.context.budget import Budget, budget
from holdfast.engine import Engine
from holdfast.errors import (
    CompactionError,
    EmbeddingError,
    InputError,
    ModelCancelledError,
    ModelError,
    ModelOverflowError,
    StorageError,
    WindowError,
)
from holdfast.memory.block import strip_message
from holdfast.messages import Message, Text, Usage
from holdfast.models.base import Model
from holdfast.providers.models import cost
from holdfast.recovery import Completion, ModelRequest, complete_with_recovery, definition
from holdfast.redact import redact_value
from holdfast.session import Session
from holdfast.settings import Settings
from holdfast.store.base import FactRow, MessageRow, Scope, Select
from holdfast.tokens import count_text
from holdfast.transcripts.records import is_forgotten, messages_of
from holdfast.transcripts.tree import Context
from holdfast.window import Window

__all__ = ["Agent", "Turn"]

MIN_MESSAGES: Final = 2
"""A conversation of at most this many messages is neither flushed nor compacted automatically."""
MAX_STEPS: Final = 100
"""Model calls in one turn before the user must say something."""
MAX_REPLY_TOKENS: Final = 8_192
REPLY_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The result of one user message.

    Attributes:
        text: The answer, without silent markers.
        steps: How many times the model was called.
        usage: The tokens that the provider counted, all steps together.
        window: The window of the last call.
        compactions: How many compactions overflows made necessary.
        interrupted: Whether the user interrupted it.
    """

    text: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    window: Window | None = None
    compactions: int = 0
    interrupted: bool = False


class Agent:
    """A conversation with a model: it is continued, or begun, when the agent is made.

    Args:
        engine: The agent's memory. Without a model of its own it uses `model` for summaries.
        model: The model that answers.
        sessions: The store of conversations.
        key: The key of the conversation.
        root: The workspace.
        notes: The searchable notes of the workspace.
        project: The project of every conversation; None for the folder in which each one began.
        confirm: Asks the user before a command runs or a file is written; without it neither is possible.
        view: Shows what happens.
        flush_model: The model that writes notes before a compaction; by default `model`.

    Attributes:
        opened: The conversation that is open, with its transcript.
        session: The same conversation in the engine.
        history: All messages as the transcript has them, but with secrets unmasked while the conversation is open.
        window: The window of the last model call.
        cancel: Interrupts whatever is going on when set.
        tally: Tokens of model calls outside of the conversation that are not in `sessions.json` yet.
        hook_failures: Failures of hooks that were not shown yet; threads append to it.
    """

    def __init__(
        self,
        engine: Engine,
        model: Model,
        *,
        sessions: Sessions,
        key: str,
        root: Path,
        notes: Notes | None = None,
        project: str | None = None,
        confirm: Confirm | None = None,
        view: View | None = None,
        flush_model: Model | None = None,
    ) -> None:
        self.engine, self.model, self.sessions, self.root = engine, model, sessions, root
        self.notes, self.project, self.confirm, self.flush_model = notes, project, confirm, flush_model
        self.view: View = view or Quiet()
        self.window: Window | None = None
        self.cancel, self.tally = Event(), Tally()
        self.hook_failures: list[str] = []
        self.memories = Memories(engine, sessions.agent)
        self._system: Message | None = None
        self._input_time, self._memory_warning, self._warned_read_only = 0, "", False
        for problem in workspace.prepare(root, engine.settings).problems:
            self.view.notice(f"The workspace {problem}. Notes before compactions cannot be written there.")
        engine.reader = CountedModel(engine.reader or engine.model or model, "extraction", self.tally)
        engine.model = CountedModel(engine.model or model, "summaries", self.tally)
        engine.auto = "off"  # the agent flushes and compacts itself
        engine.hooks = replace(engine.hooks, workspace=str(root), on_failure=self.hook_failures.append)
        self._switch_to(sessions.open(key, engine.settings, cwd=str(root)))
        before = self.opened.archived
        self._finish(None if before is None else self._find_session(id_of(before), sessions.read_cwd(before)))

    def close(self) -> None:
        """Close everything; the conversation can be continued later."""
        self.memories.close()
        if self.notes is not None:
            self.notes.close()
        self.engine.close()
        self._show_hook_failures()
        self.save_tally()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.engine.settings

    @property
    def limit(self) -> int:
        """The context window, in tokens."""
        return self.settings.agent.context_tokens or self.model.context_tokens

    @property
    def limits(self) -> Budget:
        """The limits of the window, with the tools counted."""
        scale = self.session.token_scale()
        return budget(self.settings, window=self.limit, overhead=self._tool_tokens, scale=scale)

    @property
    def is_first_run(self) -> bool:
        """Whether this is the first conversation in the workspace: only that one gets `BOOTSTRAP.md`."""
        has_file = (self.root / workspace.FIRST_RUN).is_file()
        return has_file and self.sessions.is_first(self.session.id, cwd=str(self.root))

    def build_messages(self) -> list[Message]:
        """Return the whole conversation with the system prompt first."""
        return [self._system or self.build_system_prompt(), *self.history]

    def build_system_prompt(self) -> Message:
        """Build the system prompt from the workspace as it is now. One turn has one, whatever its tools change."""
        prompt = workspace.system_prompt(
            self.root,
            settings=self.settings,
            now=self.sessions.clock(),
            tools=self.tools.tools(),
            first_run=self.is_first_run,
        )
        return Message(role="system", parts=(Text(text=prompt),))

    def last_window(self) -> Window:
        """Return the window of the last model call, or the one that would be sent now.

        Raises:
            InputError: The conversation is empty.
        """
        if not self.history:
            raise InputError("The conversation is empty. Say something first.")
        return self.window or self._assemble()

    def _assemble(self) -> Window:
        tools = [definition(tool) for tool in self.tools.tools()]
        return self.session.assemble(self.build_messages(), limit=self.limit, provider=self.model.provider, tools=tools)

    # --- a turn ----------------------------------------------------------------------

    def say(self, text: str, *, heartbeat: bool = False) -> Turn:
        """Send a user message and wait for the answer.

        Raises:
            ModelError: The model gave no answer. The user message is kept; the next call continues from it.
        """
        try:
            return self._handle_input(text, heartbeat=heartbeat)
        finally:
            self.cancel.clear()  # not at the start: that would lose a Ctrl-C that comes just before it

    def _handle_input(self, text: str, *, heartbeat: bool) -> Turn:
        before = self._renew_if_due()
        self._record_input(text, heartbeat=heartbeat)  # before anything that calls a model or takes time
        try:
            if before is not None:
                self._finish(before)
            self._system = self.build_system_prompt()
            self._make_room(coming=count_text(text), heartbeat=heartbeat)
            turn = self._run_model_loop()
        finally:
            self._show_hook_failures()
            self._system = None
            if self._input_time:  # no reply has saved it
                self.update_entry(self._save_input_time)
        if not heartbeat:
            with self.guard_memory():
                self.memories.capture([text])
        if self.notes is not None:
            self.notes.poll()
        return replace(turn, text=flush.strip_silence(turn.text))

    def _record_input(self, text: str, *, heartbeat: bool) -> None:
        """Write the user message to the transcript and the archive. Its time is saved with the reply, in one write."""
        self.record(Message(role="user", parts=(Text(text=text),)))
        self._input_time = 0 if heartbeat else self.sessions.clock()
        with self.guard_memory():
            self.session.append(self.history[-1:])

    def _save_input_time(self, entry: SessionEntry) -> SessionEntry:
        time, self._input_time = self._input_time, 0
        return entry.with_input(time) if time else entry

    def _run_model_loop(self) -> Turn:
        """Call the model and run its tools until it calls no more tools."""
        turn = Turn()
        while turn.steps < MAX_STEPS:
            completion = self._call_model_or_reset()
            if completion is None:
                return replace(turn, interrupted=True)
            turn = self._apply_reply(turn, completion)
            calls = completion.reply.message.calls
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
            self.view.notice(f"Stopped after {MAX_STEPS} steps. Say something to go on.")
        with self.guard_memory():
            self.session.append(self.history[-1:])
        return turn

    def _apply_reply(self, turn: Turn, completion: Completion) -> Turn:
        """Record a reply and its usage."""
        reply, self.window = completion.reply, completion.window
        self.record(replace(reply.message, usage=reply.usage, model=reply.message.model or self.model.name), reply=True)
        spent = cost(self.model.name, reply.usage)
        self.update_entry(
            lambda entry: self._save_input_time(entry).with_reply(
                reply.usage, now=self.sessions.clock(), model=self.model.name, window=self.limit, cost=spent
            )
        )
        return replace(
            turn,
            text=reply.text,
            steps=turn.steps + 1,
            usage=add_usage(turn.usage, reply.usage),
            window=completion.window,
            compactions=turn.compactions + len(completion.compactions),
        )

    def _call_model_or_reset(self) -> Completion | None:
        """Call the model. If no request fits, begin a new conversation with a digest and call it once more.

        Raises:
            ModelOverflowError: The new conversation does not fit either.
        """
        try:
            return self._call_model()
        except ModelOverflowError as error:
            if not error.tries:
                raise
            self._begin_with_digest(error)
        return self._call_model()

    def _begin_with_digest(self, error: ModelOverflowError) -> None:
        """Archive the conversation and begin another one with a digest of it and the user's last request."""
        messages, before = session_notes.digest_history(self.history, window=self.limit), self.session
        opened = self.sessions.reset(self.opened.key, cwd=str(self.root))
        self._switch_to(opened)
        for message in messages:
            self.record(message)
        with self.guard_memory():
            self.session.append(self.history)
        where = opened.archived.name if opened.archived else before.id
        self.view.notice(
            f"The request did not fit after {error.tries} tries. A new conversation begins with a digest of the old "
            f"one, which is kept in {where}."
        )
        self._finish(before)

    def _call_model(self) -> Completion | None:
        """Call the model for its next reply; None if the user interrupted it."""
        stream = ReplyStream(self.view, in_blocks=self.settings.agent.block_streaming == "on")
        request = ModelRequest(
            tools=self.tools.tools(),
            limit=self.limit,
            max_tokens=min(MAX_REPLY_TOKENS, self.limits.reserve),
            timeout=REPLY_SECONDS,
            cancel=self.cancel,
            on_text=stream.feed,
            before_compact=self.flush,
            on_compact=self._record_compaction,
            facts=self._recall_memories(),
        )
        try:
            completion = complete_with_recovery(self.session, self.build_messages(), request, model=self.model)
        except ModelCancelledError:
            if stream.text.strip():
                parts = (Text(text=stream.text),)
                self.record(Message(role="assistant", parts=parts, stop="aborted", model=self.model.name), reply=True)
            return None
        stream.end()
        return completion

    def _recall_memories(self) -> list[FactRow]:
        """Return the long-term memories that match the user's last message."""
        query = next((message.text for message in reversed(self.history) if message.role == "user"), "")
        rows: list[FactRow] = []
        with self.guard_memory():
            rows += self.memories.recall_facts(query)
        if self.memories.trouble not in {"", self._memory_warning}:
            self.view.notice(f"Long-term memories are found by their words alone: {self.memories.trouble}")
        self._memory_warning = self.memories.trouble
        return rows

    # --- the conversation ------------------------------------------------------------

    def record(self, message: Message, *, reply: bool = False) -> None:
        """Append a message to the transcript, with secrets masked, and to the history, with secrets as they are.

        Recalled text that comes back in it is removed first: transcripts must not contain any.
        """
        with self.guard_memory():
            own = strip_message(message, self.engine.memory.marks)
            if own is not None and own is not message:
                self.view.notice(f"Recalled text was removed from a {message.role} message.")
                message = own
        provider = self.model.name.partition("/")[0] if reply else ""
        self.history += self.opened.append(message, provider=provider, redact=self.settings.archive.redaction)

    def reset(self) -> Opened:
        """Archive the conversation and begin another; what was learned from it is kept."""
        before = self.session
        opened = self.sessions.reset(self.opened.key, cwd=str(self.root))
        self._switch_to(opened)
        self._finish(before)
        return opened

    def _renew_if_due(self) -> Session | None:
        """Begin a new conversation if a daily or idle reset is due; return the old one, for `_finish`."""
        if not self.sessions.due(self.opened.key, self.settings):
            return None
        before = self.session
        self._switch_to(self.sessions.open(self.opened.key, self.settings, cwd=str(self.root)))
        return before

    def _switch_to(self, opened: Opened) -> None:
        """Continue with another conversation."""
        self.opened, self.window = opened, None
        self.session = self._find_session(opened.entry.session_id, opened.transcript.cwd or str(self.root))
        self.tools = agent_tools(
            self.session,
            bounds=workspace.bounds_of(self.root, self.settings, guarded=[self.sessions.home]),
            notes=self.notes,
            confirm=self.confirm,
            memories=self.memories,
        )
        self._tool_tokens = sum(map(tool_tokens, self.tools.tools()))
        context = opened.transcript.context()
        self.history = self._load_history(context)
        for problem in (*opened.problems, *(problem.what for problem in context.problems)):
            self.view.notice(problem)

    def _find_session(self, session_id: str, cwd: str) -> Session:
        """Get a conversation from the engine, in the project of its folder; one stored without a project stays so."""
        project = self.project
        if project is None:
            plain = Scope(agent=self.sessions.agent, session=session_id)
            with self.guard_memory():
                stored = self.engine.memory.store.read_messages(Select(scope=plain, limit=1))
                project = "" if stored else None
        return self.engine.session(session_id, project=cwd if project is None else project, agent=self.sessions.agent)

    def _load_history(self, context: Context) -> list[Message]:
        """Load the messages, without forgotten ones; if memory has lost their summary, the transcript has another."""
        edits, path = self.session.edits(), self.opened.transcript.path()
        lost = context.compaction is not None and not any(edit.kind == "compacted" for edit in edits)
        forgotten = {entry.id for entry in path if is_forgotten(entry)}
        messages = context.messages if lost else (message for entry in path for message in messages_of(entry))
        return [message for message in messages if message.id not in forgotten]

    def _finish(self, before: Session | None) -> None:
        """Extract facts from the previous conversation, if there was one, and write a note of it. This takes time."""
        if before is not None:
            with self.guard_memory():
                before.learn()
        if self.opened.why in {"daily", "idle"}:
            self.view.notice(
                f"A new conversation begins ({self.opened.why} reset). The old one is in {self.opened.archived}."
            )
        ended = session_notes.EndedSession.of(self.opened, time=self.sessions.clock())
        if ended is None or not self.settings.session.memory_file:
            return
        self.view.working("naming the conversation")
        try:
            session_notes.write_session_note(
                ended,
                bounds=workspace.bounds_of(self.root, self.settings),
                model=self._writer(),
                mask=self.settings.archive.redaction,
                cancel=self.cancel,
            )
        except (InputError, StorageError) as error:
            self.view.notice(f"No note of the last conversation was written: {error}. All of it is in {ended.file}.")
        finally:
            self.view.working("")

    def forget(self, ids: Sequence[int]) -> int:
        """Forget messages of any conversation for good: in transcripts, in later requests, in memory."""
        by_session: dict[Scope, list[MessageRow]] = {}
        for row in self.session.get(ids):
            by_session.setdefault(row.scope, []).append(row)
        self.sessions.forget(row for rows in by_session.values() for row in rows)
        self.opened.transcript.refresh()
        self.history, self.window = self._load_history(self.opened.transcript.context()), None
        return sum(
            self.engine.session(scope.session, project=scope.project, agent=scope.agent).forget(
                ids=[row.id for row in rows]
            )
            for scope, rows in by_session.items()
        )

    @contextmanager
    def guard_memory(self) -> Iterator[None]:
        """Continue without memory if it fails, and tell the user."""
        try:
            yield
        except (StorageError, EmbeddingError) as error:
            self.view.notice(f"Memory failed, and the conversation goes on without it: {error}")

    def update_entry(self, change: Callable[[SessionEntry], SessionEntry]) -> None:
        """Change the entry of the conversation in `sessions.json`, and add the tally to it."""
        calls = self.tally.take()

        def apply(entry: SessionEntry) -> SessionEntry:
            for purpose, spent in calls.items():
                entry = entry.with_calls(purpose, spent)
            return change(entry)

        self.opened = replace(self.opened, entry=self.sessions.update(self.opened.key, apply))

    def save_tally(self) -> None:
        """Save the tokens of model calls outside of the conversation since the last change."""
        if not self.tally.is_empty:
            self.update_entry(lambda entry: entry)

    def _show_hook_failures(self) -> None:
        while self.hook_failures:
            self.view.notice(self.hook_failures.pop(0))

    def _writer(self) -> Model:
        return CountedModel(self.flush_model or self.model, "flush", self.tally)

    # --- compaction and flush --------------------------------------------------------

    def _make_room(self, *, coming: int, heartbeat: bool = False) -> None:
        """Flush and compact if the conversation is too large. `coming` are the tokens since the last request."""
        if len(self.history) <= MIN_MESSAGES:
            return
        with self.guard_memory():
            used = self.session.size(self.build_messages(), limit=self.limit) + self._tool_tokens
            self._flush_if_due(used - coming, coming=coming, heartbeat=heartbeat)
            if self.settings.compaction.enabled and used > self.limits.compact_at:
                try:
                    self.compact()
                except CompactionError as error:
                    self.view.notice(f"The conversation could not be compacted: {error}")
                except ModelCancelledError:
                    self.view.notice("The compaction was cancelled. Nothing has changed.")

    def compact(self, instructions: str | None = None) -> Compaction:
        """Flush, then replace the older history by a summary.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
            ModelCancelledError: It was cancelled.
        """

        def show(step: Progress) -> None:
            self.view.working(f"compacting: {step.stage} {step.step}/{step.steps}")

        self.flush()
        self.view.working("compacting")
        try:
            done = self.session.compact(
                self.build_messages(),
                limit=self.limit,
                instructions=instructions,
                cancel=self.cancel,
                on_progress=show,
            )
        finally:
            self.view.working("")
        self._record_compaction(done)
        return done

    def _record_compaction(self, done: Compaction) -> None:
        """Write a compaction to the transcript, and tell the user."""
        summary, first = done.summary, done.plan.first_kept
        if summary is None:
            return
        made: Any = (redact_value if self.settings.archive.redaction else dict)(summary.details.to_json())
        known = {entry.id for entry in self.opened.transcript.path()}
        self.opened.transcript.append_compaction(
            summary.text,
            first_kept=first.message.id if first is not None and first.message.id in known else None,
            tokens_before=done.tokens_before,
            details={**made, "tokensAfter": done.tokens_after, "rung": summary.rung},
            from_hook=summary.from_hook,
        )
        self.update_entry(lambda entry: entry.with_compaction(done.tokens_after, now=self.sessions.clock()))
        self.view.notice(f"Compacted: {done.tokens_before:,} -> {done.tokens_after:,} tokens.")
        for warning in done.warnings:
            self.view.notice(warning)

    def flush(self) -> None:
        """Let the agent write its notes before a compaction, unless it has."""
        self._flush_if_due(0, forced=True)

    def _flush_if_due(self, used: int, *, coming: int = 0, forced: bool = False, heartbeat: bool = False) -> None:
        verdict = flush.due(
            self.opened.entry.flush_cycle,
            used=max(self.opened.entry.total_tokens, used),
            coming=coming,
            budget=self.limits,
            settings=self.settings,
            transcript_bytes=self.opened.transcript.file.stat().st_size,
            heartbeat=heartbeat,
            forced=forced,
        )
        if verdict == "read-only" and forced and not self._warned_read_only:
            self._warned_read_only = True
            self.view.notice("No notes are written before compactions: the workspace is read-only.")
        if verdict == "due":
            self._write_notes()

    def _write_notes(self) -> None:
        """Run the silent turn in which the agent writes its notes."""
        now, compactions = self.sessions.clock(), self.opened.entry.compaction_count
        prompt = flush.prompt(self.settings, now=workspace.local_time(now, timezone=self.settings.agent.timezone))
        bounds, redact = workspace.bounds_of(self.root, self.settings), self.settings.archive.redaction
        tools = flush_tools(bounds, note=prompt.path, mask=redact)
        self.view.working("writing notes")
        try:
            window = self._assemble()
            session_notes.run_flush(window.messages, prompt, model=self._writer(), tools=tools, cancel=self.cancel)
        except ModelCancelledError:
            pass  # the user cancelled it: this is not a failure
        except (ModelError, StorageError, WindowError) as error:
            failure, most = str(error), self.settings.compaction.memory_flush.max_failures
            self.update_entry(lambda entry: entry.with_failed_flush(failure, now=now, most=most))
            if self.opened.entry.is_flushed:
                self.view.notice(f"Writing notes failed {most} times; the compaction goes on without them. ({error})")
            else:
                self.view.notice(f"Notes could not be written before the compaction: {error}")
        else:
            self.update_entry(lambda entry: entry.with_flush(now=now, cycle=compactions))
        finally:
            self.view.working("")
