"""What the engine remembers of a session between two requests, so that only what is new costs anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final

from holdfast import formats
from holdfast.context import edits as editing
from holdfast.context.edits import Edit, Item, ItemKind, Recalled
from holdfast.context.settled import Settled
from holdfast.memory import archive
from holdfast.memory.block import strip_message
from holdfast.memory.memory import Memory
from holdfast.memory.noise import unwrap
from holdfast.memory.request import question
from holdfast.messages import Message
from holdfast.store.base import Record, Row, Scope, Select
from holdfast.tokens import TokenCounter, count_message, count_text

__all__ = ["Conversation", "Incoming"]

Incoming = Message | Mapping[str, Any]
"""A message as a caller hands it in: canonical, or any provider's dict."""

_EDIT: Final = "edit"


@dataclass(frozen=True, slots=True)
class _Shown:
    """The window of the last request, and what it was made of."""

    items: tuple[Item, ...]
    history: int
    edits: int
    limit: int


@dataclass(slots=True)
class Conversation:
    """A session as this process knows it.

    Attributes:
        scope: Whose it is.
        given: The messages of the last request after the system prompt, as they were handed in.
        system: The system prompt of the last request.
        history: What came after it; messages that were nothing but recalled text are not among it.
        edits: Every change recorded so far.
        sent: What was sent last, for the share of it that stays a prefix.
        settled: The beginning of its windows that is known to be valid.
        turn: How many requests there were.
        last_time: When the last one was made, in Unix milliseconds.
    """

    scope: Scope
    format: str | None = None
    given: list[Incoming] = field(default_factory=list)
    system: list[Item] = field(default_factory=list)
    history: list[Item] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    sent: list[tuple[Message, int]] = field(default_factory=list)
    settled: Settled = field(default_factory=Settled)
    turn: int = 0
    last_time: int | None = None
    _given_system: list[Incoming] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _digests: list[str] = field(default_factory=list)
    _seen: Counter[str] = field(default_factory=Counter)
    _last_record: int = 0
    _shown: _Shown | None = None

    def take(self, messages: Sequence[Incoming], *, memory: Memory, count: TokenCounter = count_text) -> None:
        """Take over a request's messages: what is new is archived, durably, before anything else is done with it.

        The system prompt is looked at anew each time: many clients put the date into it.
        """
        if self.format is None:
            self.format = formats.detect([item for item in messages if not isinstance(item, Message)])
        leading = sum(1 for _ in takewhile(_is_system, messages))
        if self._given_system != list(messages[:leading]):
            system = self._archived(messages[:leading], memory, Counter())
            self.system = [item for item in _items(*system, count) if item.message.role == "system"]
            self._given_system = list(messages[:leading])
        history = messages[leading:]
        known = self._common(history)
        self._forget_after(known)
        for given in history[known:]:
            self.given.append(given)
        fresh, numbers = self._archived(history[known:], memory, self._seen)
        self.history += _items(fresh, numbers, count)

    def _archived(
        self, given: Sequence[Incoming], memory: Memory, seen: Counter[str]
    ) -> tuple[list[Message], list[int]]:
        """Read and archive messages; those that were nothing but recalled text are left out."""
        if not given:
            return [], []
        own = [strip_message(message) for message in formats.read(given, format=self.format)]
        kept = [message for message in own if message is not None]
        rows = archive.rows(kept, scope=self.scope, redact=memory.settings.archive.redaction, seen=seen)
        if seen is self._seen:
            places = iter(range(len(self._digests) + 1, len(self._digests) + 1 + len(kept)))
            ends = [next(places) if message is not None else None for message in own]
            for end in ends:
                self._ends.append(end if end is not None else (self._ends[-1] if self._ends else 0))
            self._digests += [row.message.digest for row in rows]
        return kept, memory.store.add(rows)

    @property
    def items(self) -> list[Item]:
        """The system prompt and the history, archived and counted."""
        return [*self.system, *self.history]

    @property
    def provider(self) -> str:
        """Whose form the messages came in; pi's own goes to Anthropic."""
        return self.format if self.format in {"openai_chat", "openai_responses", "anthropic"} else "anthropic"

    def question(self, *, most: int) -> tuple[str, ...]:
        """What the user asks, newest last: the newest message, and those before it while they say too little."""
        said = (unwrap(item.message.text) for item in reversed(self.history) if item.message.role == "user")
        return question(said, most=most)

    def _common(self, messages: Sequence[Incoming]) -> int:
        """How many messages at the beginning are those of the last request."""
        count = 0
        for old, new in zip(self.given, messages, strict=False):
            if old is not new and old != new:
                break
            count += 1
        return count

    def _forget_after(self, known: int) -> None:
        """The client went back: what it no longer sends is no longer a part of the conversation."""
        if known == len(self.given):
            return
        self._shown = None
        left = self._ends[known - 1] if known else 0
        del self.given[known:], self._ends[known:], self.history[left:], self._digests[left:]
        self._seen = Counter(self._digests)

    # --- what was done to it -----------------------------------------------------

    def replay(self, *, limit: int) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """The window after every edit that holds for the next request, and these edits.

        What was replayed for the last request is not gone through again.
        """
        standing = editing.in_force(self.edits, limit=limit)
        shown = self._shown
        if shown is None or (shown.edits, shown.limit) != (len(self.edits), limit):
            return editing.apply(self.items, standing), standing
        return (*self.system, *shown.items, *self.history[shown.history :]), standing

    def show(self, items: Sequence[Item], *, limit: int) -> None:
        """Remember the window that was made, all of whose edits are recorded."""
        lasting = tuple(item for item in items[len(self.system) :] if item.kind != "recall")
        self._shown = _Shown(lasting, history=len(self.history), edits=len(self.edits), limit=limit)

    def quoted(self, items: Sequence[Item]) -> set[int]:
        """The archived messages that a block in the window quotes."""
        blocks = {item.block.text for item in items if item.block}
        return {
            number
            for edit in self.edits
            if isinstance(edit.change, Recalled) and edit.change.text in blocks
            for number in edit.ids
        }

    def learn_edits(self, memory: Memory) -> None:
        """Read the edits that were recorded since the last time, by whatever process."""
        select = Select(kind="record", scope=self.scope, name=_EDIT, after=self._last_record)
        for record in memory.store.fetch(select):
            self.edits.append(editing.from_json(record.data))
            self._last_record = record.id

    def record(self, edits: Sequence[Edit], *, memory: Memory, time: int, beside: Sequence[Row] = ()) -> None:
        """Record new edits, durably, before a window made with them is sent; with rows that belong to them."""
        rows = [
            Record(
                scope=self.scope,
                kind=_EDIT,
                key=f"{len(self.edits) + offset:08d}:{memory.new_id()}",  # two processes may record at once
                data=editing.to_json(edit),
                time=time,
            )
            for offset, edit in enumerate(edits)
        ]
        if rows:
            self._last_record = memory.store.add([*rows, *beside])[len(rows) - 1]
            self.edits.extend(edits)

    def prefix_kept(self, sent: Sequence[tuple[Message, int]]) -> float | None:
        """How much of the last request is an unchanged beginning of this one; and remember this one."""
        before, self.sent = self.sent, list(sent)
        total = sum(tokens for _, tokens in before)
        if not total:
            return None
        kept = 0
        for (old, tokens), (new, _) in zip(before, sent, strict=False):
            if old is not new and old != new:
                break
            kept += tokens
        return kept / total


def _items(messages: Sequence[Message], numbers: Sequence[int], count: TokenCounter) -> list[Item]:
    return [
        Item(message=message, id=number, tokens=count_message(message, count=count), kind=_kind(message))
        for message, number in zip(messages, numbers, strict=True)
    ]


def _is_system(given: Incoming) -> bool:
    role = given.role if isinstance(given, Message) else given.get("role")
    return role in {"system", "developer"}


def _kind(message: Message) -> ItemKind:
    return "system" if message.role == "system" else "message"
