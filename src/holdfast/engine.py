"""The engine: a conversation goes in, a window that fits comes out, and nothing is lost on the way.

The path is one straight line: strip old recall, archive what is new, prune, trim, recall, place, verify. Edits
are recorded and replayed, so that between two cuts a window only grows at its end and the provider's prompt
cache holds. Memory trouble never blocks a request: it passes unchanged, and the report says why.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from holdfast import formats
from holdfast.context.budget import Budget, budget
from holdfast.context.edits import Edit, Item, apply, tokens
from holdfast.context.edits import messages as said
from holdfast.context.finish import Finished, finish
from holdfast.context.place import allowance, place
from holdfast.context.plan import plan
from holdfast.conversation import Conversation, Incoming
from holdfast.errors import FormatError, HoldfastError, WindowError
from holdfast.memory.memory import Memory, Stats
from holdfast.memory.noise import unwrap
from holdfast.memory.recall import Hit, Recall, Request
from holdfast.messages import Message
from holdfast.report import ContextReport, categories, change
from holdfast.settings import Settings
from holdfast.store.base import FactRow, FactType, MessageRow, Record, Scope, Select
from holdfast.text import terms

__all__ = ["Engine", "Window"]

_TURN: Final = "turn"
_ASKED: Final = 3
_ENOUGH: Final = 4
"""Terms that make a question; what says less is read with what was said before it."""
_LEAST_BLOCK: Final = 64
_SESSIONS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the model is to see for one request.

    Attributes:
        items: The messages in it, with their archive numbers and costs.
        provider: Whose rules it keeps.
        finished: The valid form of it for that provider.
        report: What was kept, pruned, trimmed and recalled, and why.
    """

    items: tuple[Item, ...]
    provider: str
    finished: Finished
    report: ContextReport

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is sent, in canonical form."""
        return self.finished.messages

    @property
    def tokens(self) -> int:
        """What it costs, by the counter in force."""
        return tokens(self.items)

    def render(self, format: str | None = None) -> list[Mapping[str, Any]]:
        """The message list of a request, valid for the provider; the one it was made for unless another is named."""
        return list(self._for(format).wire)

    def request(self, format: str | None = None) -> dict[str, Any]:
        """The fields of a request body, the system prompt where the provider wants it."""
        return formats.render_request(self._for(format).messages, format or self.provider)

    def _for(self, format: str | None) -> Finished:
        return self.finished if format in {None, self.provider} else finish(said(self.items), format or "")


@dataclass(slots=True)
class _Turn:
    """One request on its way: the clock of its steps, and what went wrong and was passed over."""

    milliseconds: dict[str, float] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    recall: Recall = field(default_factory=Recall)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.milliseconds[name] = round((time.perf_counter() - start) * 1000, 3)

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Where memory may fail: the request goes on, and the report says so."""
        with self.step(name):
            try:
                yield
            except WindowError:
                raise
            except HoldfastError as error:
                self.warnings.append(f"{name}: {error}")


class Engine:
    """Keeps the windows of any number of sessions, over one memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._conversations: dict[Scope, Conversation] = {}

    @classmethod
    def open(cls, path: Path | str | None = None, *, settings: Settings | None = None) -> Self:
        """Open the memory in a folder, made where it does not exist yet."""
        return cls(Memory.open(path, settings=settings))

    def close(self) -> None:
        """Let go of the memory."""
        self.memory.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self.memory.settings

    # --- the path of a turn ------------------------------------------------------

    def ingest(
        self, messages: Sequence[Incoming], *, session: str, format: str | None = None, **whose: str
    ) -> list[int]:
        """Archive messages, such as a reply; durable and findable when this returns."""
        return self.memory.ingest(formats.read(messages, format=format), scope=_scope(session, whose))

    def assemble(
        self,
        messages: Sequence[Incoming],
        *,
        session: str,
        limit: int | None = None,
        model: str | None = None,
        provider: str | None = None,
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
            overhead: Tokens of what goes into the request beside the messages, such as tool definitions.
            whose: `tenant`, `project` and `agent`, where memory is shared by several.

        Raises:
            WindowTooSmallError: What must stay in the window does not fit into it.
            InvalidWindowError: The window breaks a rule of the provider that no repair could mend.
        """
        turn = _Turn()
        talk = self._conversation(_scope(session, whose))
        limits = budget(self.settings, window=limit, model=model, overhead=overhead)
        now = self.memory.clock()
        with turn.guard("archive"):
            talk.take(messages, memory=self.memory)
            talk.learn_edits(self.memory)
        provider = provider or _provider(talk)
        if turn.warnings:
            items: tuple[Item, ...] = _unmanaged(messages, talk)
            new: tuple[Edit, ...] = ()
        else:
            items, new = self._manage(talk, limits, turn, now)
        with turn.step("verify"):
            finished = finish(said(items), provider)
        report = self._report(talk, limits, turn, items=items, new=new, finished=finished)
        self._remember_turn(talk, report, now)
        return Window(items=items, provider=provider, finished=finished, report=report)

    def _manage(
        self, talk: Conversation, limits: Budget, turn: _Turn, now: int
    ) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """Prune, trim, recall and place; every new edit is recorded before the window is sent."""
        query = _query(talk.items)
        idle = None if talk.last_time is None else timedelta(milliseconds=now - talk.last_time)
        with turn.step("plan"):
            planned = plan(
                talk.items,
                talk.edits,
                budget=limits,
                settings=self.settings,
                query=" ".join(query),
                scores=lambda: self.memory.scores(query, scope=talk.scope),
                idle=idle,
            )
        items, new = planned.items, planned.edits
        with turn.guard("recall"):
            room = allowance(items, limits, position=self.settings.recall.position)
            edit = self._recall(query, items, room=room, talk=talk, turn=turn, now=now)
            if edit is not None:
                items, new = apply(items, [edit]), (*new, edit)
        with turn.guard("record"):
            talk.record(new, memory=self.memory, time=now)
        talk.last_time = now
        return items, new

    def _recall(
        self, query: Sequence[str], items: Sequence[Item], *, room: int, talk: Conversation, turn: _Turn, now: int
    ) -> Edit | None:
        if room < _LEAST_BLOCK or not any(query):
            turn.recall = Recall(reason="this turn has its block already, or there is no room for one")
            return None
        live = {number for edit in talk.edits if edit.kind == "recalled" for number in edit.ids}
        request = Request(
            texts=query,
            scope=talk.scope,
            across=self.settings.archive.cross_session,
            cap=room,
            now=now,
            in_window={item.id for item in items} | live,
            knowledge_share=self.settings.recall.knowledge_share,
        )
        turn.recall = self.memory.recall(request)
        quoted = sorted({hit.message for hit in turn.recall.hits})
        return place(items, turn.recall.block, position=self.settings.recall.position, ids=quoted)

    def _report(
        self,
        talk: Conversation,
        limits: Budget,
        turn: _Turn,
        *,
        items: Sequence[Item],
        new: Sequence[Edit],
        finished: Finished,
    ) -> ContextReport:
        talk.turn += 1
        total = tokens(items) + limits.overhead
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
            warnings=tuple(turn.warnings),
            milliseconds=turn.milliseconds,
        )

    def _remember_turn(self, talk: Conversation, report: ContextReport, now: int) -> None:
        """Keep the report, so that any past turn can be shown. A report that cannot be kept blocks nothing."""
        row = Record(scope=talk.scope, kind=_TURN, key=f"{report.turn:08d}", data=report.to_json(), time=now)
        with _Turn().guard("report"):
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

    # --- asking ------------------------------------------------------------------

    def recall(self, query: str, *, session: str, cap: int | None = None, **whose: str) -> Recall:
        """The block that would be recalled for a question."""
        request = Request(
            texts=(query,),
            scope=_scope(session, whose),
            across=self.settings.archive.cross_session,
            cap=cap or self.settings.recall.hard_cap_tokens,
            now=self.memory.clock(),
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


def _query(items: Sequence[Item]) -> tuple[str, ...]:
    """What the user asks, newest last: the newest message, and those before it while they say too little."""
    asked: list[str] = []
    said_so_far = 0
    for item in reversed(items):
        if item.message.role != "user" or not (words := unwrap(item.message.text)):
            continue
        asked.append(words)
        said_so_far += len(terms(words))
        if said_so_far >= _ENOUGH or len(asked) == _ASKED:
            break
    return tuple(reversed(asked))


def _paired(items: Sequence[Item]) -> list[tuple[Message, Item]]:
    return list(zip(said(items), items, strict=True))


def _unmanaged(given: Sequence[Incoming], talk: Conversation) -> tuple[Item, ...]:
    """The conversation as it came, where it could not be archived: nothing may be taken out of it."""
    read = formats.read(given, format=talk.format)
    return tuple(Item(message=message, id=0, tokens=0) for message in read)
