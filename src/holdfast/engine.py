"""The engine: a conversation goes in, a window that fits comes out, and nothing is lost on the way.

The path is one straight line: strip old recall, archive what is new, prune, trim, recall, place, verify. Edits
are recorded and replayed, so that between two cuts a window only grows at its end and the provider's prompt
cache holds. Memory trouble never blocks a request: it passes unchanged, and the report says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from holdfast import formats
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Edit, Item, Pinned, Restored, apply, tokens
from holdfast.context.edits import messages as said
from holdfast.context.finish import Finished, finish
from holdfast.context.place import allowance, place
from holdfast.context.plan import decide
from holdfast.conversation import Conversation, Incoming
from holdfast.errors import FormatError
from holdfast.memory.memory import Memory, Stats
from holdfast.memory.noise import unwrap
from holdfast.memory.recall import Hit, Recall, Request, order_of
from holdfast.messages import Message
from holdfast.report import ContextReport, categories, change
from holdfast.settings import Settings
from holdfast.store.base import FactRow, FactType, MessageRow, Record, Scope, Select
from holdfast.text import terms
from holdfast.tokens import TokenCounter, count_json, counter
from holdfast.turn import Turn
from holdfast.window import Window
from holdfast.worker import Worker, alone

__all__ = ["Engine", "Window"]

_TURN: Final = "turn"
_ENOUGH: Final = 4
"""Terms that make a question; what says less is read with what was said before it."""
_LEAST_BLOCK: Final = 64
_SESSIONS: Final = 64
_EMBED_STEP: Final = 64
"""Passages that are embedded in the background at a time."""


class Engine:
    """Keeps the windows of any number of sessions, over one memory."""

    def __init__(self, memory: Memory, *, background: bool = False) -> None:
        self.memory = memory
        self._count = _counter(memory.settings)
        self._conversations: dict[Scope, Conversation] = {}
        self._worker = Worker(self._work_alone) if background else None
        if self._worker is not None:
            self._worker.start()

    @classmethod
    def open(cls, path: Path | str | None = None, *, settings: Settings | None = None, background: bool = True) -> Self:
        """Open the memory in a folder, made where it does not exist yet.

        In the background a thread embeds what is new; without it that waits for `work`.
        """
        return cls(Memory.open(path, settings=settings), background=background)

    def close(self) -> None:
        """Let go of the memory. Work that is left waits for the next time."""
        if self._worker is not None:
            self._worker.stop()
        self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.settings

    # --- work that waits ---------------------------------------------------------

    def work(self) -> int:
        """Do all work that waits, here and now; how much there was is returned."""
        return self.memory.embed()

    def _work_alone(self) -> bool:
        """One step in the background, unless another process is at it."""
        with alone(self.memory.store.path.with_suffix(".worker")) as mine:
            return mine and bool(self.memory.embed(limit=_EMBED_STEP))

    def _nudge(self) -> None:
        if self._worker is not None:
            self._worker.nudge()

    # --- the path of a turn ------------------------------------------------------

    def ingest(
        self, messages: Sequence[Incoming], *, session: str, format: str | None = None, **whose: str
    ) -> list[int]:
        """Archive messages, such as a reply; durable and findable when this returns."""
        numbers = self.memory.ingest(formats.read(messages, format=format), scope=_scope(session, whose))
        self._nudge()
        return numbers

    def assemble(
        self,
        messages: Sequence[Incoming],
        *,
        session: str,
        limit: int | None = None,
        model: str | None = None,
        provider: str | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        overhead: int = 0,
        **whose: str,
    ) -> Window:
        """Make the window for the next request of a session out of its whole history.

        Args:
            messages: The conversation so far, canonical or in any provider's form, the system prompt included.
            session: Which session it is.
            limit: What the model can hold; the settings' or the model's window unless given.
            model: The model that will be asked.
            provider: Whose rules the window must keep; that of the messages unless given.
            tools: The definitions of tools that go into the request beside the messages, to be counted.
            overhead: Tokens of whatever else does.
            whose: `tenant`, `project` and `agent`, where memory is shared by several.

        Raises:
            WindowTooSmallError: What must stay in the window does not fit into it.
            InvalidWindowError: The window breaks a rule of the provider that no repair could mend.
        """
        turn = Turn()
        talk = self._conversation(_scope(session, whose))
        beside = overhead + sum(count_json(tool, count=self._count) for tool in tools)
        limits = budget(self.settings, window=limit, model=model, overhead=beside)
        now = self.memory.clock()
        with turn.guard("archive"):
            talk.take(messages, memory=self.memory, count=self._count)
            talk.learn_edits(self.memory)
        self._nudge()
        provider = provider or _provider(talk)
        if turn.warnings:
            items: tuple[Item, ...] = _unmanaged(messages, talk)
            new: tuple[Edit, ...] = ()
            finished = finish(said(items), provider)
        else:
            items, new = self._manage(talk, limits, turn, now)
            with turn.step("verify"):
                finished = talk.settled.finish(items, provider)
        report = self._report(talk, limits, turn, items=items, new=new, finished=finished)
        self._remember_turn(talk, report, now)
        return Window(items=items, provider=provider, finished=finished, report=report)

    def _manage(
        self, talk: Conversation, limits: Budget, turn: Turn, now: int
    ) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """Prune, trim, recall and place; every new edit is recorded before the window is sent."""
        query = _query(talk.items, most=self.settings.recall.query_messages)
        idle = None if talk.last_time is None else timedelta(milliseconds=now - talk.last_time)
        with turn.step("plan"):
            shown, standing = talk.replay(limit=limits.safe_limit)
            planned = decide(
                shown,
                standing,
                budget=limits,
                settings=self.settings,
                query=" ".join(query),
                scores=lambda: self.memory.scores(query, scope=talk.scope),
                idle=idle,
                count=self._count,
            )
        items, new = planned.items, planned.edits
        with turn.guard("recall"):
            room = allowance(items, limits, position=self.settings.recall.position)
            edit = self._recall(query, items, room=room, talk=talk, turn=turn, now=now)
            if edit is not None:
                items, new = apply(items, [edit]), (*new, edit)
        with turn.guard("record"):
            talk.record(new, memory=self.memory, time=now)
            talk.show(items, limit=limits.safe_limit)
        talk.last_time = now
        return items, new

    def _recall(
        self, query: Sequence[str], items: Sequence[Item], *, room: int, talk: Conversation, turn: Turn, now: int
    ) -> Edit | None:
        if room < _LEAST_BLOCK or not any(query):
            turn.recall = Recall(reason="this turn has its block already, or there is no room for one")
            return None
        request = Request(
            texts=query,
            scope=talk.scope,
            across=self.settings.archive.cross_session,
            cap=room,
            now=now,
            in_window={item.id for item in items} | talk.quoted(items),
            knowledge_share=self.settings.recall.knowledge_share,
            order=order_of(self.settings),
        )
        turn.recall = self.memory.recall(request)
        if not turn.recall.block and len(query) > 1:  # what was said before may have led away from the question
            turn.recall = self.memory.recall(replace(request, texts=query[-1:]))
        quoted = sorted({hit.message for hit in turn.recall.hits})
        position = self.settings.recall.position
        return place(items, turn.recall.block, position=position, ids=quoted, count=self._count)

    def _report(
        self,
        talk: Conversation,
        limits: Budget,
        turn: Turn,
        *,
        items: Sequence[Item],
        new: Sequence[Edit],
        finished: Finished,
    ) -> ContextReport:
        talk.turn += 1
        total = tokens(items) + limits.overhead
        trouble = (f"background: {self._worker.trouble}",) if self._worker and self._worker.trouble else ()
        return ContextReport(
            session=talk.scope.session,
            turn=talk.turn,
            total_tokens=total,
            raw_max_tokens=limits.window,
            percentage=round(100 * total / limits.window, 1),
            categories=categories(items, budget=limits),
            changes=tuple(change(edit) for edit in new),
            recalled=turn.recall.hits,
            recall_reason=turn.recall.reason,
            prefix_kept=talk.prefix_kept([(message, item.total) for message, item in _paired(items)]),
            repairs=tuple(map(str, finished.repairs)),
            warnings=(*turn.warnings, *trouble),
            milliseconds=turn.milliseconds,
        )

    def _remember_turn(self, talk: Conversation, report: ContextReport, now: int) -> None:
        """Keep the report, so that any past turn can be shown. A report that cannot be kept blocks nothing."""
        row = Record(scope=talk.scope, kind=_TURN, key=f"{report.turn:08d}", data=report.to_json(), time=now)
        with Turn().guard("report"):
            self.memory.store.add([row])

    def _conversation(self, scope: Scope) -> Conversation:
        talk = self._conversations.pop(scope, None)
        if talk is None:
            talk = Conversation(scope)
            last = self.memory.store.fetch(Select(kind="record", scope=scope, name=_TURN, newest=True, limit=1))
            talk.turn = int(last[-1].key) if last else 0
        self._conversations[scope] = talk
        while len(self._conversations) > _SESSIONS:
            del self._conversations[next(iter(self._conversations))]
        return talk

    # --- what stays ----------------------------------------------------------------

    def pin(self, ids: Sequence[int], *, session: str, pinned: bool = True, **whose: str) -> int:
        """Keep messages in every window of a session from here on (or no longer); those that had left come back."""
        scope = _scope(session, whose)
        known = self.memory.pin(ids, scope=scope, pinned=pinned)
        self._edit(scope, Pinned(on=pinned), ids, reason="asked for")
        return known

    def undo_trim(self, *, session: str, **whose: str) -> int:
        """Bring back what the last cut took out of a session's window, as far as it fits; how many messages."""
        scope = _scope(session, whose)
        talk = self._conversation(scope)
        talk.learn_edits(self.memory)
        ids = next((edit.ids for edit in reversed(talk.edits) if edit.kind == "trimmed" and edit.ids), ())
        if ids:
            self._edit(scope, Restored(), ids, reason="asked for")
        return len(ids)

    def _edit(self, scope: Scope, done: Pinned | Restored, ids: Sequence[int], *, reason: str) -> None:
        edit = Edit(change=done, ids=tuple(ids), reason=reason, tokens_before=0, tokens_after=0)
        talk = self._conversation(scope)
        talk.learn_edits(self.memory)
        talk.record([edit], memory=self.memory, time=self.memory.clock())

    # --- asking ------------------------------------------------------------------

    def recall(self, query: str, *, session: str, cap: int | None = None, **whose: str) -> Recall:
        """The block that would be recalled for a question."""
        request = Request(
            texts=(query,),
            scope=_scope(session, whose),
            across=self.settings.archive.cross_session,
            cap=cap or self.settings.recall.hard_cap_tokens,
            now=self.memory.clock(),
            order=order_of(self.settings),
        )
        return self.memory.recall(request)

    def search(self, query: str, *, session: str, across: bool = True, limit: int = 10, **whose: str) -> list[Hit]:
        """The passages that have most to do with a question, best first."""
        return self.memory.search(query, scope=_scope(session, whose), across=across, limit=limit)

    def get(
        self, ids: Sequence[int], *, session: str, across: bool = True, around: int = 0, **whose: str
    ) -> list[MessageRow]:
        """Archived messages by number: what was pruned or trimmed, whole."""
        return self.memory.get(ids, scope=_scope(session, whose), across=across, around=around)

    def remember(self, content: str, *, session: str, type: FactType = "decision", **whose: str) -> FactRow:  # noqa: A002 - the domain's own word
        """Keep a fact."""
        return self.memory.remember(content, scope=_scope(session, whose), type=type)

    def facts(self, *, session: str, across: bool = True, **whose: str) -> list[FactRow]:
        """The facts that hold now."""
        return self.memory.facts(scope=_scope(session, whose), across=across)

    def forget(self, *, session: str, ids: Sequence[int] | None = None, **whose: str) -> int:
        """Forget messages for good; with none named, the whole session."""
        scope = _scope(session, whose)
        self._conversations.pop(scope, None)
        return self.memory.forget(scope=scope, ids=ids)

    def timeline(self, *, session: str, **whose: str) -> list[dict[str, Any]]:
        """The report of every past turn of a session, oldest first."""
        select = Select(kind="record", scope=_scope(session, whose), name=_TURN)
        return [dict(record.data) for record in self.memory.store.fetch(select)]

    def stats(self) -> Stats:
        """What memory holds, and what is missing."""
        return self.memory.stats()


def _scope(session: str, whose: Mapping[str, str]) -> Scope:
    unknown = set(whose) - {"tenant", "project", "agent"}
    if unknown:
        raise FormatError(f"{', '.join(sorted(unknown))}: memory belongs to a tenant, project, agent and session")
    return Scope(session=session, **whose)


def _provider(talk: Conversation) -> str:
    """Whose form the messages came in; pi's own goes to Anthropic."""
    return talk.format if talk.format in {"openai_chat", "openai_responses", "anthropic"} else "anthropic"


def _counter(settings: Settings) -> TokenCounter:
    """The counter that the settings name."""
    name, encoding = settings.tokens.counter, settings.tokens.encoding
    return counter(f"{name}:{encoding}" if encoding else name)


def _query(items: Sequence[Item], *, most: int) -> tuple[str, ...]:
    """What the user asks, newest last: the newest message, and those before it while they say too little."""
    asked: list[str] = []
    said_so_far = 0
    for item in reversed(items):
        if item.message.role != "user" or not (words := unwrap(item.message.text)):
            continue
        asked.append(words)
        said_so_far += len(terms(words))
        if said_so_far >= _ENOUGH or len(asked) >= most:
            break
    return tuple(reversed(asked))


def _paired(items: Sequence[Item]) -> list[tuple[Message, Item]]:
    return list(zip(said(items), items, strict=True))


def _unmanaged(given: Sequence[Incoming], talk: Conversation) -> tuple[Item, ...]:
    """The conversation as it came, where it could not be archived: nothing may be taken out of it."""
    read = formats.read(given, format=talk.format)
    return tuple(Item(message=message, id=0, tokens=0) for message in read)
