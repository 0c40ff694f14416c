"""The engine: a conversation goes in, a window that fits comes out, and nothing is lost on the way.

The path is one straight line: strip old recall, archive what is new, prune, trim, recall, place, verify. Edits
are recorded and replayed, so that between two cuts a window only grows at its end and the provider's prompt
cache holds. Memory trouble never blocks a request: it passes unchanged, and the report says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any, Final, Self

from holdfast import formats
from holdfast.asking import TURN, Asking, scope_of
from holdfast.compaction.summarise import Progress
from holdfast.compactor import Compaction, Compactor, window
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Edit, Item, Pinned, Restored, apply, tokens
from holdfast.context.edits import messages as said
from holdfast.context.finish import finish
from holdfast.context.plan import decide
from holdfast.conversation import Conversation
from holdfast.errors import ModelError
from holdfast.events import Hooks
from holdfast.formats import Incoming
from holdfast.learner import jobs, learn
from holdfast.memory.extract import Extraction
from holdfast.memory.memory import Memory
from holdfast.memory.request import request_of
from holdfast.models.base import Model
from holdfast.recalling import Recalling
from holdfast.report import ContextReport
from holdfast.settings import Settings
from holdfast.store.base import FactRow, Record, Scope, Select
from holdfast.tokens import TokenCounter, count_json, counter
from holdfast.turn import Turn
from holdfast.window import Window
from holdfast.worker import Worker, alone

__all__ = ["Engine", "Window"]

_SESSIONS: Final = 64
_EMBED_STEP: Final = 64
"""Passages that are embedded in the background at a time."""


class Engine(Asking):
    """Keeps the windows of any number of sessions, over one memory.

    Args:
        memory: Where everything rests.
        model: Who tells summaries, and reads facts unless `reader` is set; without one both are done by rule.
        hooks: Who wants to know what happens.
        background: Whether a thread does the work that waits: vectors and facts.
    """

    def __init__(
        self, memory: Memory, *, model: Model | None = None, hooks: Hooks | None = None, background: bool = False
    ) -> None:
        super().__init__(memory)
        self.model: Model | None = model
        self.reader: Model | None = None
        self.hooks = hooks or Hooks()
        self._count = _counter(memory.settings)
        self._conversations: dict[Scope, Conversation] = {}
        self._closing = Event()
        self._worker = Worker(self._work_alone) if background else None
        if self._worker is not None:
            self._worker.start()

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        settings: Settings | None = None,
        model: Model | None = None,
        hooks: Hooks | None = None,
        background: bool = True,
    ) -> Self:
        """Open the memory in a folder, made where it does not exist yet."""
        return cls(Memory.open(path, settings=settings), model=model, hooks=hooks, background=background)

    def close(self) -> None:
        """Let go of the memory. Work that is left waits for the next time."""
        self._closing.set()
        if self._worker is not None:
            self._worker.stop()
        self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- work that waits ---------------------------------------------------------

    def work(self) -> int:
        """Do all work that waits, here and now; how many passages were embedded and jobs done is returned."""
        done = self.memory.embed()
        while (
            not self._closing.is_set()
            and learn(self.memory, self.reader or self.model, cancel=self._closing) is not None
        ):
            done += 1
        return done

    def _work_alone(self) -> bool:
        """One step in the background, unless another process is at it."""
        with alone(self.memory.store.path.with_suffix(".worker")) as mine:
            return mine and self._work_step()

    def _learned(self) -> Extraction | None:
        return learn(self.memory, self.reader or self.model, cancel=self._closing)

    def _work_step(self) -> bool:
        if self.memory.embed(limit=_EMBED_STEP):
            return True
        found = self._learned()
        if found is not None and found.trouble and not self._closing.is_set():
            raise ModelError(found.trouble)
        return found is not None

    def _nudge(self) -> None:
        if self._worker is not None:
            self._worker.nudge()

    # --- the path of a turn ------------------------------------------------------

    def ingest(
        self, messages: Sequence[Incoming], *, session: str, format: str | None = None, **whose: str
    ) -> list[int]:
        """Archive messages, such as a reply as the SDK returned it; durable and findable when this returns."""
        numbers = self.memory.ingest(formats.read(messages, format=format), scope=scope_of(session, whose))
        self._nudge()
        return numbers

    def assemble(
        self,
        messages: Sequence[Incoming],
        *,
        session: str,
        format: str | None = None,
        limit: int | None = None,
        model: str | None = None,
        provider: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        overhead: int = 0,
        facts: Sequence[FactRow] = (),
        **whose: str,
    ) -> Window:
        """Make the window for the next request of a session out of its whole history.

        Args:
            messages: The conversation so far, canonical, in any provider's form or as an SDK returned it, the system
                prompt included.
            session: Which session it is.
            format: The format of the messages, such as `anthropic`; each message's own by its marks unless given.
            limit: What the model can hold; the settings' or the model's window unless given.
            model: The model that will be asked.
            provider: Whose rules the window must keep; unless given, the format of the newest message that has
                a mark of one, and `openai_chat` where none has.
            tools: The definitions of tools that go into the request beside the messages, to be counted.
            overhead: Tokens of whatever else does.
            facts: Facts from elsewhere that may be recalled beside the session's own.
            whose: `tenant`, `project` and `agent`, where memory is shared by several.

        Raises:
            WindowTooSmallError: What must stay in the window does not fit into it.
            InvalidWindowError: The window breaks a rule of the provider that no repair could mend.
        """
        turn = Turn()
        talk = Conversation(scope_of(session, whose))  # of which nothing is known, where memory cannot say
        with turn.guard("session"):
            talk = self._conversation(talk.scope)
        beside = overhead + sum(count_json(tool, count=self._count) for tool in tools)
        limits = self._limits(limit, model=model, overhead=beside)
        now = self.memory.clock()
        with turn.guard("archive"):
            talk.take(messages, memory=self.memory, format=format, count=self._count)
            talk.learn_edits(self.memory)
        self._nudge()
        if turn.warnings:
            items: tuple[Item, ...] = talk.unmanaged(messages, format=format, count=self._count)
            new: tuple[Edit, ...] = ()
            provider = provider or formats.format_of(said(items))
            finished = finish(said(items), provider)
        else:
            items, new = self._manage(talk, limits, turn, now, facts)
            provider = provider or talk.provider
            with turn.step("verify"):
                reasoned = formats.reasoned(said(talk.history)) if provider == "openai_responses" else {}
                finished = talk.settled.finish(items, provider, reasoned=reasoned)
        if self._worker is not None and self._worker.trouble:
            turn.warnings.append(f"background: {self._worker.trouble}")
        report = turn.report(talk, limits, items=items, new=new, finished=finished)
        report = self._remembered(talk, report, now)
        return Window(items=items, provider=provider, finished=finished, report=report)

    def _manage(
        self, talk: Conversation, limits: Budget, turn: Turn, now: int, facts: Sequence[FactRow]
    ) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """Prune, trim, recall and place; every new edit is recorded before the window is sent."""
        query = talk.question(most=self.settings.recall.query_messages)
        idle = None if talk.last_time is None else timedelta(milliseconds=now - talk.last_time)
        with turn.step("plan"):
            shown, standing = talk.replay(limit=limits.safe_limit)
            planned = decide(
                shown,
                standing,
                budget=limits,
                settings=self.settings,
                query=" ".join(query),
                scores=lambda: self._scores(query, talk, turn),
                idle=idle,
                count=self._count,
            )
        items, new = planned.items, planned.edits
        with turn.guard("recall"):
            asked = request_of(
                self.settings,
                query,
                scope=talk.scope,
                now=now,
                in_window=talk.seen(items, new),
                automatic=True,
                facts=facts,
            )
            placed = Recalling(self.memory, talk, turn, self._count).edits(asked, items, limits)
            items, new = apply(items, placed) if placed else items, (*new, *placed)
        with turn.guard("record"):
            known = len(talk.edits) + len(new)
            talk.record(new, memory=self.memory, time=now)
            talk.show(items, edits=known, limit=limits.safe_limit)
        talk.last_time = now
        return items, new

    def _scores(self, query: Sequence[str], talk: Conversation, turn: Turn) -> dict[int, float]:
        """What each message has to do with the question; where memory cannot say, the oldest go first."""
        found: dict[int, float] = {}
        with turn.guard("relevance"):
            found |= self.memory.scores(query, scope=talk.scope)
        return found

    def _remembered(self, talk: Conversation, report: ContextReport, now: int) -> ContextReport:
        """Keep the report, so that any past turn can be shown. One that cannot be kept blocks nothing, and says so."""
        key = f"{report.turn:08d}:{self.memory.new_id()}"  # another process may be at the same turn
        row = Record(scope=talk.scope, kind=TURN, key=key, data=report.to_json(), time=now)
        keeping = Turn()
        with keeping.guard("report"):
            self.memory.store.add([row])
        return replace(report, warnings=(*report.warnings, *keeping.warnings)) if keeping.warnings else report

    def _conversation(self, scope: Scope) -> Conversation:
        talk = self._conversations.pop(scope, None)
        if talk is None:
            talk = Conversation(scope)
            last = self.memory.store.fetch(Select(kind="record", scope=scope, name=TURN, newest=True, limit=1))
            talk.turn, talk.last_time = (int(last[-1].key[:8]), last[-1].time) if last else (0, None)
        self._conversations[scope] = talk
        while len(self._conversations) > _SESSIONS:
            del self._conversations[next(iter(self._conversations))]
        return talk

    # --- compaction ----------------------------------------------------------------

    def compact(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        session: str,
        format: str | None = None,
        limit: int | None = None,
        instructions: str | None = None,
        force: bool = True,
        dry_run: bool = False,
        cancel: Event | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        **whose: str,
    ) -> Compaction:
        """Let a summary stand for a session's older history. Nothing is lost: the archive has every word of it.

        Args:
            messages: The conversation so far; that of the last request unless given.
            session: Which session it is.
            format: The format of the messages, as for `assemble`.
            limit: What the model can hold; the settings' or the model's window unless given.
            instructions: What the summary should look out for.
            force: Compact though the conversation fits, because somebody asked for it.
            dry_run: Only say what would be done.
            cancel: When set, by any thread, it is called off, and nothing has changed.
            on_progress: Told about every step.
            whose: `tenant`, `project` and `agent`, where memory is shared by several.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
            ModelCancelledError: It was called off.
        """
        talk = self._conversation(scope_of(session, whose))
        if messages is not None:
            talk.take(messages, memory=self.memory, format=format, count=self._count)
        talk.learn_edits(self.memory)
        work = Compactor(
            talk=talk,
            memory=self.memory,
            limits=self._limits(limit),
            model=self.model,
            hooks=self.hooks,
            done=talk.told,
            count=self._count,
        )
        if dry_run:
            plan = work.plan(force=force)
            return Compaction(plan=plan, tokens_before=plan.tokens_before, tokens_after=plan.tokens_before)
        done = work.run(force=force, instructions=instructions, cancel=cancel, on_progress=on_progress)
        talk.told.clear()
        self._nudge()
        return done

    def size(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        session: str,
        format: str | None = None,
        limit: int | None = None,
        **whose: str,
    ) -> int:
        """What a session takes since its last compaction, whatever was trimmed meanwhile."""
        talk = self._conversation(scope_of(session, whose))
        if messages is not None:
            talk.take(messages, memory=self.memory, format=format, count=self._count)
        talk.learn_edits(self.memory)
        return tokens(window(talk, limit=self._limits(limit).safe_limit))

    def edits(self, *, session: str, **whose: str) -> tuple[Edit, ...]:
        """Every change that was recorded for a session's windows, oldest first."""
        talk = self._conversation(scope_of(session, whose))
        talk.learn_edits(self.memory)
        return tuple(talk.edits)

    def learn(self, *, session: str, **whose: str) -> int:
        """Put the facts of a whole session in the queue, as when it ends; how many messages will be read."""
        scope = scope_of(session, whose)
        ids = [row.id for row in self.memory.store.fetch(Select(kind="message", scope=scope))]
        self.memory.store.add(jobs(ids, scope=scope, time=self.memory.clock()))
        self._nudge()
        return len(ids)

    @property
    def _model_window(self) -> int | None:
        return self.settings.agent.context_tokens or (self.model.context_tokens if self.model else None)

    def _limits(self, limit: int | None, *, model: str | None = None, overhead: int = 0) -> Budget:
        window_size = limit or (None if model else self._model_window)
        return budget(self.settings, window=window_size, model=model, overhead=overhead)

    # --- what stays ----------------------------------------------------------------

    def pin(self, ids: Sequence[int], *, session: str, pinned: bool = True, **whose: str) -> int:
        """Keep messages in every window of a session from here on (or no longer); those that had left come back."""
        scope = scope_of(session, whose)
        known = self.memory.pin(ids, scope=scope, pinned=pinned)
        self._edit(scope, Pinned(on=pinned), self._conversation(scope).paired(ids), reason="asked for")
        return known

    def undo_trim(self, *, session: str, **whose: str) -> int:
        """Bring back what the last cut took out of a session's window, as far as it fits; how many messages."""
        scope = scope_of(session, whose)
        talk = self._conversation(scope)
        talk.learn_edits(self.memory)
        ids = talk.last_cut()
        self._edit(scope, Restored(), ids, reason="asked for")
        return len(ids)

    def _edit(self, scope: Scope, done: Pinned | Restored, ids: Sequence[int], *, reason: str) -> None:
        edit = Edit(change=done, ids=tuple(ids), reason=reason, tokens_before=0, tokens_after=0)
        talk = self._conversation(scope)
        talk.learn_edits(self.memory)
        talk.record([edit] if ids else (), memory=self.memory, time=self.memory.clock())

    def forget(self, *, session: str, ids: Sequence[int] | None = None, **whose: str) -> int:
        """Forget messages for good, with what was made of them; with none named, the whole session."""
        self._conversations.pop(scope_of(session, whose), None)
        return super().forget(session=session, ids=ids, **whose)


def _counter(settings: Settings) -> TokenCounter:
    """The counter that the settings name."""
    name, encoding = settings.tokens.counter, settings.tokens.encoding
    return counter(f"{name}:{encoding}" if encoding else name)
