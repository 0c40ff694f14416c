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
from threading import Event, Lock
from typing import Any, Final, Self
from weakref import WeakValueDictionary

from holdfast import formats
from holdfast import settings as configuration
from holdfast.asking import TURN, Asking
from holdfast.compaction.summarise import Progress
from holdfast.compactor import Compaction, Compactor
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Edit, Item, Pinned, Restored, apply, tokens
from holdfast.context.edits import messages as said
from holdfast.context.finish import finish
from holdfast.context.plan import decide
from holdfast.conversation import MAX_TRIES, Conversation
from holdfast.errors import ConflictError, HoldfastError, ModelCancelledError, ModelError
from holdfast.events import Hooks
from holdfast.formats import Incoming
from holdfast.learner import learn, queue
from holdfast.memory.archive import Ingested
from holdfast.memory.extract import Extraction
from holdfast.memory.memory import Memory
from holdfast.memory.request import request_of
from holdfast.models.base import Model
from holdfast.models.naming import as_model
from holdfast.recalling import Recalling
from holdfast.report import ContextReport
from holdfast.settings import Settings
from holdfast.store.base import FactRow, Record, Scope, Select
from holdfast.tokens import TokenCounter, count_json, count_message, counter, is_estimate
from holdfast.turn import Turn
from holdfast.window import Window
from holdfast.worker import Worker, alone

__all__ = ["Engine", "Window"]

MAX_SESSIONS: Final = 64
"""Sessions whose state is kept between two requests."""
MAX_PAUSE: Final = 10**15
"""Milliseconds between two requests, whatever the clock says; more would not fit a duration."""
ARCHIVE_TOOL: Final = "archive_get"
"""The tool that shows archived messages; hosts may put a prefix before its name."""
_RETRY_AFTER: Final = 8
"""Messages after which a compaction that failed is tried again without being asked for."""
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
        self.warnings: tuple[str, ...] = ()
        self.hooks = hooks or Hooks()
        self._count = _counter(memory.settings, model)
        self._conversations: WeakValueDictionary[Scope, Conversation] = WeakValueDictionary()
        self._recent: dict[Scope, Conversation] = {}
        self._lock = Lock()
        self.auto = memory.settings.compaction.auto
        self._due: dict[Scope, tuple[Conversation, Budget, int]] = {}
        self._closing = Event()
        self._worker = Worker(self._work_alone) if background and not memory.store.readonly else None
        if self._worker is not None:
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
    ) -> Self:
        """Open the memory in a folder, made where it does not exist yet.

        Args:
            path: The folder; unset, `archive.path` of the settings, `$HOLDFAST_HOME`, or the platform's data folder.
            settings: Used exactly as given; unset, read as the commands do, from files and `HOLDFAST_*` variables.
            model: Writes summaries and reads facts: a name (`anthropic/NAME`, `ollama/NAME`, `scripted:FILE`), a
                `Model`, or a function that takes messages (dicts with `role` and `content`) and returns text. Unset,
                `compaction.model` and `knowledge.model` of the settings; without these both is done by rule.
            hooks: What to call when something happens.
            background: Whether a thread does the work that waits.
            clock: Returns the time in Unix milliseconds; the system's clock unless given.

        Raises:
            SettingsError: A setting or the name of the model is wrong.
            StorageError: The memory cannot be opened.
        """
        warnings: tuple[str, ...] = ()
        if settings is None:
            loaded = configuration.load(files=configuration.default_files())
            settings, warnings = loaded.settings, loaded.warnings
        writer, reader = (
            None if given is None else as_model(given, settings=settings)
            for given in (model or settings.compaction.model, None if model else settings.knowledge.model)
        )
        timed = {} if clock is None else {"clock": clock}
        engine = cls(Memory.open(path, settings=settings, **timed), model=writer, hooks=hooks, background=background)
        engine.reader = reader
        engine.warnings = warnings
        return engine

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
        """Do all work that waits, here and now; how many compactions, passages and jobs were done is returned."""
        done = 0
        while not self._closing.is_set() and self._compact_next():
            done += 1
        done += self.memory.embed()
        while (
            not self._closing.is_set()
            and learn(self.memory, self.reader or self.model, cancel=self._closing) is not None
        ):
            done += 1
        return done

    def _work_alone(self) -> bool:
        """One step in the background: a compaction of this engine, or what waits in the store for one process."""
        if self._compact_next():
            return True
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
        self,
        messages: Sequence[Incoming],
        *,
        session: str,
        format: str | None = None,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> Ingested:
        """Archive messages that come after those of the session, such as a reply.

        They are durable and findable when this returns. What the session ends with already is not archived again, and
        recalled text that came back is taken out: `stripped` of the result says of which messages.
        Near the limit of the last request the session is compacted after that, as `compaction.auto` says.
        """
        talk = self._conversation(Scope(tenant=tenant, project=project, agent=agent, session=session))
        with talk.lock:
            numbers, read = talk.append(messages, memory=self.memory, format=format)
            talk.calibrate(read, count=self._count)
            if talk.limits is not None:
                coming = sum(count_message(message, count=self._count) for message in read)
                self._compact_if_due(talk, talk.limits, coming=coming)
        self._nudge()
        return numbers

    def assemble(
        self,
        messages: Sequence[Incoming],
        *,
        session: str,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        model: str | None = None,
        provider: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        overhead: int = 0,
        facts: Sequence[FactRow] = (),
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> Window:
        """Make the window for the next request of a session out of its whole history.

        Args:
            messages: The conversation so far, canonical, in any provider's form or as an SDK returned it, the system
                prompt included.
            session: Which session it is.
            format: The format of the messages, such as `anthropic`; each message's own by its marks unless given.
            limit: What the model can hold; the settings' or the model's window unless given.
            reserve: Tokens kept for the reply; by the settings, and at most a quarter of the window, unless given.
            model: The model that will be asked.
            provider: Whose rules the window must keep; unless given, the format of the newest message that has
                a mark of one, and `openai_chat` where none has.
            tools: The definitions of tools that go into the request beside the messages, to be counted. Where one is
                `archive_get`, pruned results name it.
            overhead: Tokens of whatever else does.
            facts: Facts that the caller has chosen for this question; they go into the block first.
            tenant: Whose memory it is, where several share one; with `project` and `agent`.
            project: See `tenant`.
            agent: See `tenant`.

        Raises:
            WindowTooSmallError: What must stay in the window does not fit into it.
            InvalidWindowError: The window breaks a rule of the provider that no repair could mend.
            InputError: `limit` or `reserve` is out of range.
        """
        turn = Turn(tool=next((name for name in map(_tool_name, tools) if name.endswith(ARCHIVE_TOOL)), ""))
        scope = Scope(tenant=tenant, project=project, agent=agent, session=session)
        talk = Conversation(scope)  # of which nothing is known, where memory cannot say
        with turn.guard("session"):
            talk = self._conversation(scope)
        beside = overhead + sum(count_json(tool, count=self._count) for tool in tools)
        limits = self._limits(limit, reserve, model=model, overhead=beside)
        with talk.lock:
            return self._assemble(talk, messages, limits, turn, format=format, provider=provider, facts=facts)

    def _assemble(
        self,
        talk: Conversation,
        messages: Sequence[Incoming],
        limits: Budget,
        turn: Turn,
        *,
        format: str | None,
        provider: str | None,
        facts: Sequence[FactRow],
    ) -> Window:
        now = self.memory.clock()
        with turn.guard("archive"):
            talk.take(messages, memory=self.memory, format=format, count=self._count)
            talk.learn_edits(self.memory)
        limits = replace(limits, scale=self._scale(talk))
        talk.reported = len(talk.edits) if talk.reported is None else talk.reported
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
        turn.warnings += (*self.warnings, *talk.notes)
        talk.notes.clear()
        turn.warnings += map(str, self.memory.gaps(talk.scope))
        report = turn.report(talk, limits, items=items, new=new, finished=finished)
        report = self._remembered(talk, report, now)
        return Window(items=items, provider=provider, finished=finished, report=report)

    def _manage(
        self, talk: Conversation, limits: Budget, turn: Turn, now: int, facts: Sequence[FactRow]
    ) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """Prune, trim, recall and place; every new edit is recorded before the window is sent.

        Where another process has recorded an edit meanwhile, the window is planned again with that edit.
        """
        talk.limits = limits
        with turn.step("compact"):
            self._compact_if_due(talk, limits)
        for left in reversed(range(MAX_TRIES)):
            items, new = self._plan(talk, limits, turn, now, facts)
            with turn.guard("record"):
                try:
                    talk.record(new, memory=self.memory, time=now)
                except ConflictError:
                    if left:
                        continue
                    raise
                talk.show(items, limit=limits.safe_limit)
            break
        talk.last_time = now
        return items, new

    def _plan(
        self, talk: Conversation, limits: Budget, turn: Turn, now: int, facts: Sequence[FactRow]
    ) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        query = talk.question(most=self.settings.recall.query_messages)
        idle = None if talk.last_time is None else timedelta(milliseconds=min(max(0, now - talk.last_time), MAX_PAUSE))
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
                tool=turn.tool,
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
        """The state of a session: one object for all threads that work on it."""
        with self._lock:
            talk = self._conversations.get(scope)
            if talk is None:
                talk = Conversation(scope)
                last = self.memory.store.fetch(Select(kind="record", scope=scope, name=TURN, newest=True, limit=1))
                if last:
                    talk.turn, talk.last_time = last[-1].data.get("turn", 0), last[-1].time
                    talk.scale = last[-1].data.get("token_scale") if last[-1].data.get("is_calibrated") else None
                self._conversations[scope] = talk
            self._recent.pop(scope, None)
            self._recent[scope] = talk
            while len(self._recent) > MAX_SESSIONS:
                del self._recent[next(iter(self._recent))]
            return talk

    # --- compaction ----------------------------------------------------------------

    def compact(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        session: str,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        instructions: str | None = None,
        force: bool = True,
        dry_run: bool = False,
        cancel: Event | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> Compaction:
        """Let a summary stand for a session's older history. Nothing is lost: the archive has every word of it.

        Args:
            messages: The conversation so far; that of the last request unless given.
            session: Which session it is.
            format: The format of the messages, as for `assemble`.
            limit: What the model can hold; the settings' or the model's window unless given.
            reserve: Tokens kept for the reply; by the settings, and at most a quarter of the window, unless given.
            instructions: What the summary should look out for.
            force: Compact though the conversation fits, because somebody asked for it.
            dry_run: Only say what would be done.
            cancel: When set, by any thread, it is called off, and nothing has changed.
            on_progress: Told about every step.
            tenant: Whose memory it is, where several share one; with `project` and `agent`.
            project: See `tenant`.
            agent: See `tenant`.

        Raises:
            CompactionError: There is nothing to compact, or nothing shorter could be made.
            ModelCancelledError: It was called off.
            InputError: `limit` or `reserve` is out of range.
        """
        limits = self._limits(limit, reserve)
        talk = self._conversation(Scope(tenant=tenant, project=project, agent=agent, session=session))
        with talk.lock:
            if messages is not None:
                talk.take(messages, memory=self.memory, format=format, count=self._count)
            talk.learn_edits(self.memory)
        work = self._compactor(talk, replace(limits, scale=self._scale(talk)))
        if dry_run:
            plan = work.plan(force=force)
            return Compaction(plan=plan, tokens_before=plan.tokens_before, tokens_after=plan.tokens_before)
        done = work.run(force=force, instructions=instructions, cancel=cancel, on_progress=on_progress)
        talk.told.clear()
        self._nudge()
        return done

    def token_scale(self, *, session: str, tenant: str = "local", project: str = "", agent: str = "main") -> float:
        """How many tokens the provider may count for each estimated one: by its last report, else with the margin."""
        return self._scale(self._conversation(Scope(tenant=tenant, project=project, agent=agent, session=session)))

    def _compact_if_due(self, talk: Conversation, limits: Budget, *, coming: int = 0) -> None:
        """Compact a session near its limit, here or in the background."""
        auto = self.auto or ("background" if self.model else "off")
        if auto == "off" or not self.settings.compaction.enabled:
            return
        if auto == "inline":
            self._compact_alone(talk, limits, coming)
        elif self._is_near_limit(talk, limits, coming):
            self._due[talk.scope] = (talk, limits, coming)
            self._nudge()

    def _is_near_limit(self, talk: Conversation, limits: Budget, coming: int) -> bool:
        """Whether a compaction is due by the window as it is sent: one that trimming keeps small needs no summary."""
        if len(talk.history) < talk.compact_from:
            return False
        used = tokens(talk.replay(limit=limits.safe_limit)[0]) + limits.overhead + coming
        return 0 < limits.flush_at <= used

    def _compact_next(self) -> bool:
        """Do a compaction that waits; whether there was one."""
        try:
            _, waiting = self._due.popitem()
        except KeyError:
            return False
        self._compact_alone(*waiting)
        return True

    def _compact_alone(self, talk: Conversation, limits: Budget, coming: int) -> None:
        """Compact a session, if it is due now, without a caller to raise to: what goes wrong is in the next report."""
        work = self._compactor(talk, limits)
        with talk.lock:
            if not self._is_near_limit(talk, limits, coming):
                return
            talk.compact_from = len(talk.history) + _RETRY_AFTER
            if work.plan(force=True).outcome == "nothing":
                return
        try:
            done = work.run(force=True, cancel=self._closing)
        except ModelCancelledError:  # the engine closes
            return
        except HoldfastError as error:
            talk.notes.append(f"compaction: {error}")
            return
        talk.notes += (f"compaction: {warning}" for warning in done.warnings)
        talk.told.clear()
        talk.compact_from = 0
        self._nudge()

    def _compactor(self, talk: Conversation, limits: Budget) -> Compactor:
        return Compactor(
            talk=talk,
            memory=self.memory,
            limits=limits,
            model=self.model,
            hooks=self.hooks,
            done=talk.told,
            count=self._count,
        )

    def size(
        self,
        messages: Sequence[Incoming] | None = None,
        *,
        session: str,
        format: str | None = None,
        limit: int | None = None,
        reserve: int | None = None,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> int:
        """What the next request of a session takes before anything new is cut from it: what is trimmed is left out."""
        limits = self._limits(limit, reserve)
        talk = self._conversation(Scope(tenant=tenant, project=project, agent=agent, session=session))
        with talk.lock:
            if messages is not None:
                talk.take(messages, memory=self.memory, format=format, count=self._count)
            talk.learn_edits(self.memory)
            return tokens(talk.replay(limit=replace(limits, scale=self._scale(talk)).safe_limit)[0])

    def edits(self, *, session: str, tenant: str = "local", project: str = "", agent: str = "main") -> tuple[Edit, ...]:
        """Every change that was recorded for a session's windows, oldest first."""
        talk = self._conversation(Scope(tenant=tenant, project=project, agent=agent, session=session))
        with talk.lock:
            talk.learn_edits(self.memory)
            return tuple(talk.edits)

    def learn(self, *, session: str, tenant: str = "local", project: str = "", agent: str = "main") -> int:
        """Queue a session for the reading of facts, as when it ends; how many messages will be read.

        What was queued before for the same model is not queued again.
        """
        reader = self.reader or self.model
        scope = Scope(tenant=tenant, project=project, agent=agent, session=session)
        count = queue(self.memory, scope=scope, reader=reader.name if reader else "rules")
        self._nudge()
        return count

    def _limits(self, limit: int | None, reserve: int | None, *, model: str | None = None, overhead: int = 0) -> Budget:
        return budget(
            self.settings,
            window=limit,
            model=model,
            model_window=self.model.context_tokens if self.model and model is None else None,
            overhead=overhead,
            reserve=reserve,
        )

    def _scale(self, talk: Conversation) -> float:
        return talk.scale or (1 + self.settings.tokens.margin if is_estimate(self._count) else 1.0)

    # --- what stays ----------------------------------------------------------------

    def pin(
        self,
        ids: Sequence[int],
        *,
        session: str,
        pinned: bool = True,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> int:
        """Keep messages in every window of a session from here on (or no longer); those that had left come back."""
        scope = Scope(tenant=tenant, project=project, agent=agent, session=session)
        known = self.memory.pin(ids, scope=scope, pinned=pinned)
        talk = self._conversation(scope)
        with talk.lock:
            self._edit(talk, Pinned(on=pinned), talk.paired(ids))
        return known

    def undo_trim(self, *, session: str, tenant: str = "local", project: str = "", agent: str = "main") -> int:
        """Bring back what the last cut took out of a session's window, as far as it fits; how many messages."""
        talk = self._conversation(Scope(tenant=tenant, project=project, agent=agent, session=session))
        with talk.lock:
            talk.learn_edits(self.memory)
            ids = talk.last_cut()
            self._edit(talk, Restored(), ids)
        return len(ids)

    def _edit(self, talk: Conversation, change: Pinned | Restored, ids: Sequence[int]) -> None:
        edit = Edit(change=change, ids=tuple(ids), reason="asked for", tokens_before=0, tokens_after=0)
        talk.learn_edits(self.memory)
        talk.record_last([edit] if ids else (), memory=self.memory, time=self.memory.clock())

    def forget(
        self,
        *,
        session: str,
        ids: Sequence[int] | None = None,
        tenant: str = "local",
        project: str = "",
        agent: str = "main",
    ) -> int:
        """Forget messages for good, with what was made of them; with none named, the whole session."""
        scope = Scope(tenant=tenant, project=project, agent=agent, session=session)
        talk = self._conversation(scope)
        with talk.lock:
            forgotten = super().forget(session=session, ids=ids, tenant=tenant, project=project, agent=agent)
            with self._lock:
                self._conversations.pop(scope, None)
                self._recent.pop(scope, None)
        return forgotten


def _tool_name(tool: Mapping[str, Any]) -> str:
    """The name in a tool's definition, which some providers wrap in `function`."""
    function = tool.get("function")
    return str((function if isinstance(function, Mapping) else tool).get("name", ""))


def _counter(settings: Settings, model: Model | None) -> TokenCounter:
    """The counter that the settings name."""
    name, encoding = settings.tokens.counter, settings.tokens.encoding
    asked = settings.agent.model or (model.name if model else None)
    return counter(f"{name}:{encoding}" if encoding else name, model=asked)
