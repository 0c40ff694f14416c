"""A conversation at rest: its transcript, its memory, and the room in its window.

Everything that is said goes to the transcript before anything else is done with it, so that a conversation that
is broken off at any point can be gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any, Final, Self

from holdfast.agent import session_file, workspace
from holdfast.agent.days import local_time
from holdfast.agent.entry import SessionEntry
from holdfast.agent.masking import masked, unmasked
from holdfast.agent.memories import Memories
from holdfast.agent.notes import Notes
from holdfast.agent.session_file import Ended
from holdfast.agent.sessions import Opened, Sessions
from holdfast.agent.silent import write_notes
from holdfast.agent.tally import Counted, Tally
from holdfast.agent.tools import Confirm, Toolbox, agent_tools, flush_tools, tool_tokens
from holdfast.agent.view import Quiet, View
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
    StorageError,
    WindowError,
)
from holdfast.memory.block import strip_message
from holdfast.messages import Message, Text
from holdfast.models.base import Model
from holdfast.recovery import definition
from holdfast.redact import redact_value
from holdfast.settings import Settings
from holdfast.store.base import MessageRow
from holdfast.transcripts.records import is_forgotten, messages_of
from holdfast.transcripts.tree import Context
from holdfast.window import Window

__all__ = ["Talk"]

MIN_MESSAGES: Final = 2
"""A conversation that is not longer than this is neither flushed nor compacted by itself."""


@dataclass(slots=True, kw_only=True)
class Talk:
    """A conversation at rest: its transcript, its memory, and the room in its window.

    Attributes:
        engine: Its memory.
        model: Who answers.
        scribe: Who writes notes before a compaction; the same unless set.
        sessions: Where conversations rest.
        opened: The one that goes on.
        root: The workspace.
        notes: What of it can be searched.
        confirm: Asks the user before a command runs or a file is written; without it neither can be done.
        view: Who watches.
        history: Everything that was said, each message as the transcript has it; secrets until it is left.
        tools: What the agent can do.
        window: What the model saw last.
        cancel: Set to break off whatever is going on.
        memories: What the agent keeps for every conversation.
        tally: What model calls beside the conversation took, until it is written to `sessions.json`.
        hook_failures: Failures of hooks that the user has not seen yet; threads add to them.
    """

    engine: Engine
    model: Model
    sessions: Sessions
    opened: Opened
    root: Path
    notes: Notes | None = None
    confirm: Confirm | None = None
    view: View = field(default_factory=Quiet)
    history: list[Message] = field(default_factory=list)
    tools: Toolbox = field(default_factory=Toolbox)
    window: Window | None = None
    cancel: Event = field(default_factory=Event)
    scribe: Model | None = None
    memories: Memories = field(init=False)
    tally: Tally = field(default_factory=Tally)
    hook_failures: list[str] = field(default_factory=list)
    _system: Message | None = None
    _overhead: int = 0
    _read_only_told: bool = False

    def __post_init__(self) -> None:
        self.memories = Memories(self.engine, self.agent)

    @classmethod
    def open(
        cls,
        engine: Engine,
        model: Model,
        *,
        sessions: Sessions,
        key: str,
        root: Path,
        notes: Notes | None = None,
        confirm: Confirm | None = None,
        view: View | None = None,
    ) -> Self:
        """Go on with a conversation, or begin one. An engine without a model of its own is lent this one."""
        prepared = workspace.prepare(root, engine.settings)
        writer, tally = engine.model or model, Tally()
        engine.model = Counted(writer, "summaries", tally)
        engine.reader = Counted(engine.reader or writer, "extraction", tally)
        engine.auto = "off"  # the agent flushes and compacts itself
        opened = sessions.open(key, engine.settings, cwd=str(root))
        agent = cls(engine=engine, model=model, sessions=sessions, opened=opened, root=root, notes=notes)
        agent.confirm, agent.view, agent.tally = confirm, view or Quiet(), tally
        engine.hooks = replace(engine.hooks, workspace=str(root), on_failure=agent.hook_failures.append)
        for problem in prepared.problems:
            agent.view.notice(f"The workspace {problem}. Notes before compactions cannot be written there.")
        agent.take_up(opened)
        agent.end(opened.before)
        return agent

    def close(self) -> None:
        """Let go of everything; what was said goes on another time."""
        self.memories.close()
        if self.notes is not None:
            self.notes.close()
        self.engine.close()
        self.show_hook_failures()
        self.count_calls()

    def show_hook_failures(self) -> None:
        """Tell the user which hooks failed since the last time."""
        while self.hook_failures:
            self.view.notice(self.hook_failures.pop(0))

    # --- what it is made of --------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.engine.settings

    @property
    def session(self) -> str:
        """The conversation's id, in memory as in the transcript."""
        return self.opened.entry.session_id

    @property
    def limit(self) -> int:
        """What the window holds."""
        return self.settings.agent.context_tokens or self.model.context_tokens

    @property
    def agent(self) -> str:
        """Whose conversation it is."""
        return self.sessions.agent

    @property
    def limits(self) -> Budget:
        """The limits of the window, tools counted."""
        scale = self.engine.session(self.session, agent=self.agent).token_scale()
        return budget(self.settings, window=self.limit, overhead=self._overhead, scale=scale)

    def messages(self) -> list[Message]:
        """The whole conversation as the engine is handed it, the system prompt first."""
        return [self._system or self.system(), *self.history]

    def system(self) -> Message:
        """The system prompt, made of the workspace as it is now. A run has one, whatever its tools change."""
        now = self.sessions.clock()
        prompt = workspace.system_prompt(
            self.root, settings=self.settings, now=now, tools=self.tools.tools(), first_run=self.is_first_run
        )
        return Message(role="system", parts=(Text(text=prompt),))

    @property
    def is_first_run(self) -> bool:
        """Whether this is the first conversation in the workspace: `BOOTSTRAP.md` is for that one alone."""
        return (self.root / workspace.FIRST_RUN).is_file() and self.sessions.is_first(self.session, cwd=str(self.root))

    def seen(self) -> Window:
        """What the model saw last, or would see now if it has not been asked yet.

        Raises:
            InputError: There is nothing that it could be asked.
        """
        if not self.history:
            raise InputError("Nothing was said yet.")
        return self.window or self._assembled()

    def _assembled(self) -> Window:
        return self.engine.session(self.session, agent=self.agent).assemble(
            self.messages(),
            limit=self.limit,
            provider=self.model.provider,
            tools=[definition(tool) for tool in self.tools.tools()],
        )

    def take_up(self, opened: Opened) -> None:
        """Go on with another conversation."""
        self.opened, self.window = opened, None
        self.tools = agent_tools(
            self.engine,
            bounds=workspace.bounds_of(self.root, self.settings, guarded=[self.sessions.home]),
            session=self.session,
            notes=self.notes,
            confirm=self.confirm,
            memories=self.memories,
            agent=self.agent,
        )
        self._overhead = sum(map(tool_tokens, self.tools.tools()))
        context = opened.session.context()
        self.history = self._past(context)
        for problem in (*opened.problems, *(problem.what for problem in context.problems)):
            self.view.notice(problem)

    def _past(self, context: Context) -> list[Message]:
        """All that was said and not forgotten; where memory has lost a summary, what the transcript has instead."""
        known = self.engine.session(self.session, agent=self.agent).edits()
        lost = context.compaction is not None and not any(edit.kind == "compacted" for edit in known)
        path = self.opened.session.path()
        gone = {entry.id for entry in path if is_forgotten(entry)}
        said = context.messages if lost else (message for entry in path for message in messages_of(entry))
        return [message for message in said if message.id not in gone]

    # --- what happens to it --------------------------------------------------------

    def renew(self) -> str | None:
        """Begin afresh where the day or the patience is over; return the conversation that is over, for `end`."""
        if not self.sessions.due(self.opened.key, self.settings):
            return None
        before = self.session
        self.take_up(self.sessions.open(self.opened.key, self.settings, cwd=str(self.root)))
        return before

    def reset(self) -> Opened:
        """Put the conversation away and begin another; what was learned in it is kept."""
        before = self.session
        opened = self.sessions.reset(self.opened.key, cwd=str(self.root))
        self.take_up(opened)
        self.end(before)
        return opened

    def end(self, before: str | None) -> None:
        """Learn from the conversation before this one, if there was one, and leave a note of it; this takes time."""
        if before is not None:
            with self.memory_may_fail():
                self.engine.session(before, agent=self.agent).learn()
        if self.opened.why in {"daily", "idle"}:
            self.view.notice(
                f"A new conversation begins ({self.opened.why} reset). The old one is in {self.opened.archived}."
            )
        self._leave_note()

    def _leave_note(self) -> None:
        """Write down the last words of the conversation before this one, where the user wants that."""
        ended = Ended.of(self.opened, time=self.sessions.clock()) if self.settings.session.memory_file else None
        if ended is None:
            return
        bounds, mask = workspace.bounds_of(self.root, self.settings), self.settings.archive.redaction
        self.view.working("naming the conversation")
        try:
            session_file.write(ended, bounds=bounds, model=self._scribe(), mask=mask, cancel=self.cancel)
        except (InputError, StorageError) as error:
            self.view.notice(f"No note of the last conversation was left: {error}. All of it is in {ended.file}.")
        finally:
            self.view.working("")

    def keep(self, message: Message, *, reply: bool = False) -> None:
        """Write a message down; it is a part of the conversation as it stands there.

        What is written has its secrets masked. As long as the conversation is open, the model sees them.
        """
        message = self._without_echo(message)
        provider = self.model.name.partition("/")[0] if reply else ""
        resting = masked(message) if self.settings.archive.redaction else message
        entries = self.opened.session.append_message(resting, provider=provider)
        written = [each for entry in entries for each in messages_of(entry)]
        self.history += written if resting is message else unmasked(message, written, provider=provider)

    def _without_echo(self, message: Message) -> Message:
        """Take recalled text that comes back out of a message: nothing that is made of transcripts holds any."""
        with self.memory_may_fail():
            own = strip_message(message, self.engine.memory.marks)
            if own is not None and own is not message:
                self.view.notice(f"Recalled text that came back was taken out of a {message.role} message.")
                return own
        return message

    def forget(self, ids: Sequence[int]) -> int:
        """Forget messages of any conversation for good: in transcripts, in what is sent from now on, in memory."""
        said: dict[str, list[MessageRow]] = {}
        for row in self.engine.session(self.session, agent=self.agent).get(ids):
            said.setdefault(row.scope.session, []).append(row)
        self.sessions.forget(row for rows in said.values() for row in rows)
        self.opened.session.refresh()
        self.history, self.window = self._past(self.opened.session.context()), None
        return sum(
            self.engine.session(session, agent=self.agent).forget(ids=[row.id for row in rows])
            for session, rows in said.items()
        )

    @contextmanager
    def memory_may_fail(self) -> Iterator[None]:
        """Go on without memory where it is in trouble, and tell the user."""
        try:
            yield
        except (StorageError, EmbeddingError) as error:
            self.view.notice(f"Memory is in trouble, and this goes on without it: {error}")

    def update(self, change: Callable[[SessionEntry], SessionEntry]) -> None:
        """Change what is known of the conversation, and write down what model calls beside it took."""
        taken = self.tally.take()

        def changed(entry: SessionEntry) -> SessionEntry:
            for purpose, spent in taken.items():
                entry = entry.called(purpose, spent)
            return change(entry)

        self.opened = replace(self.opened, entry=self.sessions.update(self.opened.key, changed))

    def count_calls(self) -> None:
        """Write down what model calls beside the conversation took since the last change."""
        if not self.tally.is_empty:
            self.update(lambda entry: entry)

    def _scribe(self) -> Model:
        return Counted(self.scribe or self.model, "flush", self.tally)

    # --- room ----------------------------------------------------------------------

    def make_room(self, *, coming: int, heartbeat: bool = False) -> None:
        """Flush and compact, where the conversation has outgrown its window.

        `coming` is what was added to it since the last request.
        """
        if len(self.history) <= MIN_MESSAGES:
            return
        with self.memory_may_fail():
            self._make_room(self._used() - coming, coming=coming, heartbeat=heartbeat)

    def _make_room(self, used: int, *, coming: int, heartbeat: bool) -> None:
        self._flush_if_due(used, coming=coming, heartbeat=heartbeat)
        if self.settings.compaction.enabled and used + coming > self.limits.compact_at:
            try:
                self.compact()
            except CompactionError as error:
                self.view.notice(f"The conversation could not be compacted: {error}")
            except ModelCancelledError:
                self.view.notice("The compaction was called off. Nothing has changed.")

    def _used(self) -> int:
        """What the next request takes before anything is cut from it: the conversation and the tools."""
        size = self.engine.session(self.session, agent=self.agent).size(self.messages(), limit=self.limit)
        return size + self._overhead

    def compact(self, instructions: str | None = None) -> Compaction:
        """Let a summary stand for what is old, after the agent has written its notes.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
            ModelCancelledError: It was called off.
        """
        self.flush()
        self.view.working("compacting")
        try:
            done = self.engine.session(self.session, agent=self.agent).compact(
                self.messages(),
                limit=self.limit,
                instructions=instructions,
                cancel=self.cancel,
                on_progress=self._progressed,
            )
        finally:
            self.view.working("")
        self.compacted(done)
        return done

    def _progressed(self, step: Progress) -> None:
        self.view.working(f"compacting: {step.stage} {step.step}/{step.steps}")

    def compacted(self, done: Compaction) -> None:
        """Write a compaction down, and tell the user."""
        summary, first = done.summary, done.plan.first_kept
        if summary is None:
            return
        told: Any = (redact_value if self.settings.archive.redaction else dict)(summary.details.to_json())
        details = {**told, "tokensAfter": done.tokens_after, "rung": summary.rung}
        known = {entry.id for entry in self.opened.session.path()}
        self.opened.session.append_compaction(
            summary.text,
            first_kept=first.message.id if first is not None and first.message.id in known else None,
            tokens_before=done.tokens_before,
            details=details,
            from_hook=summary.from_hook,
        )
        self.update(lambda entry: entry.compacted(done.tokens_after, now=self.sessions.clock()))
        self.view.notice(f"Compacted: {done.tokens_before:,} -> {done.tokens_after:,} tokens.")
        for warning in done.warnings:
            self.view.notice(warning)

    # --- the silent turn -----------------------------------------------------------

    def flush(self) -> None:
        """Let the agent write its notes before a compaction, unless it has."""
        self._flush_if_due(0, forced=True)

    def _flush_if_due(self, used: int, *, coming: int = 0, forced: bool = False, heartbeat: bool = False) -> None:
        entry = self.opened.entry
        cycle = flush.Cycle(
            compactions=entry.compaction_count,
            flushed_at=entry.memory_flush_compaction_count,
            failures=entry.memory_flush_failure_count,
        )
        verdict = flush.due(
            cycle,
            used=max(entry.total_tokens, used),
            coming=coming,
            budget=self.limits,
            settings=self.settings,
            transcript_bytes=self.opened.session.file.stat().st_size,
            heartbeat=heartbeat,
            forced=forced,
        )
        if verdict == "read-only" and forced and not self._read_only_told:
            self._read_only_told = True
            self.view.notice("No notes are written before compactions: the workspace is read-only.")
        if verdict == "due":
            self._write_notes(cycle.compactions)

    def _write_notes(self, compactions: int) -> None:
        now = self.sessions.clock()
        prompt = flush.prompt(self.settings, now=local_time(now, timezone=self.settings.agent.timezone))
        bounds, mask = workspace.bounds_of(self.root, self.settings), self.settings.archive.redaction
        tools = flush_tools(bounds, note=prompt.path, mask=mask)
        self.view.working("writing notes")
        try:
            window = self._assembled()
            write_notes(window.messages, prompt, model=self._scribe(), tools=tools, cancel=self.cancel)
        except ModelCancelledError:
            pass  # the user's word, no fault of the model's
        except (ModelError, StorageError, WindowError) as error:
            self._notes_failed(str(error), now)
        else:
            self.update(lambda entry: entry.flushed(now=now, cycle=compactions))
        finally:
            self.view.working("")

    def _notes_failed(self, error: str, now: int) -> None:
        most = self.settings.compaction.memory_flush.max_failures
        self.update(lambda entry: entry.flush_failed(error, now=now, most=most))
        if self.opened.entry.is_flushed:
            self.view.notice(f"Writing notes failed {most} times; this compaction goes on without them. ({error})")
        else:
            self.view.notice(f"Notes could not be written before the compaction: {error}")
