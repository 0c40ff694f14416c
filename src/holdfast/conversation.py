"""What the engine remembers of a session between two requests, so that only what is new costs anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Final

from holdfast import formats
from holdfast.context import edits as editing
from holdfast.context.edits import Compacted, Edit, Forgotten, Item, ItemKind, Pruned, Recalled
from holdfast.context.settled import Settled
from holdfast.errors import HoldfastError
from holdfast.formats import Incoming
from holdfast.memory import archive
from holdfast.memory.block import strip_message
from holdfast.memory.memory import Memory
from holdfast.memory.noise import unwrap
from holdfast.memory.request import question
from holdfast.messages import Message, units
from holdfast.store.base import Record, Row, Scope, Select
from holdfast.tokens import TokenCounter, count_message, count_text

__all__ = ["Conversation"]

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
        told: What of a summary is told already, where a compaction did not come to its end.
    """

    scope: Scope
    given: list[Message | Mapping[str, Any]] = field(default_factory=list)
    system: list[Item] = field(default_factory=list)
    history: list[Item] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    sent: list[tuple[Message, int]] = field(default_factory=list)
    settled: Settled = field(default_factory=Settled)
    turn: int = 0
    last_time: int | None = None
    told: dict[str, str] = field(default_factory=dict)
    _given_system: list[Message | Mapping[str, Any]] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _digests: list[str] = field(default_factory=list)
    _seen: Counter[str] = field(default_factory=Counter)
    _last_record: int = 0
    _shown: _Shown | None = None

    def take(
        self,
        given: Sequence[Incoming],
        *,
        memory: Memory,
        format: str | None = None,
        count: TokenCounter = count_text,
    ) -> None:
        """Take over a request's messages: what is new is archived, durably, before anything else is done with it.

        Each message is read in the format that it shows unless one is named. The system prompt is looked at anew
        each time: many clients put the date into it.
        """
        messages = formats.incoming(given)
        leading = sum(1 for _ in takewhile(_is_system, messages))
        if self._given_system != list(messages[:leading]):
            system = self._archived(messages[:leading], memory, Counter(), format)
            self.system = [item for item in _items(*system, count) if item.message.role == "system"]
            self._given_system = list(messages[:leading])
        history = messages[leading:]
        known = self._common(history)
        self._forget_after(known)
        fresh, numbers = self._archived(history[known:], memory, self._seen, format)
        self.given += history[known:]
        self.history += _items(fresh, numbers, count)

    def _archived(
        self, given: Sequence[Incoming], memory: Memory, seen: Counter[str], format: str | None
    ) -> tuple[list[Message], list[int]]:
        """Read and archive messages; those that were nothing but recalled text are left out."""
        if not given:
            return [], []
        own = [strip_message(message) for message in formats.read(given, format=format)]
        kept = [message for message in own if message is not None]
        rows = archive.rows(kept, scope=self.scope, redact=memory.settings.archive.redaction, seen=seen)
        try:
            numbers = memory.store.add(rows)
        except HoldfastError:  # nothing of them is known, so that they are archived the next time
            self._seen = Counter(self._digests)
            raise
        if seen is self._seen:
            self._note_ends(own)
            self._digests += [row.message.digest for row in rows]
        return kept, numbers

    def _note_ends(self, own: Sequence[Message | None]) -> None:
        """Remember how much of the history there is after each message that was handed in."""
        end = len(self._digests)
        for message in own:
            end += message is not None
            self._ends.append(end)

    def unmanaged(
        self, given: Sequence[Incoming], *, format: str | None = None, count: TokenCounter = count_text
    ) -> tuple[Item, ...]:
        """The conversation as it came, where it could not be archived: nothing may be taken out of it."""
        read = formats.read(given, format=format)
        return tuple(_items(read, [0] * len(read), count))

    @property
    def items(self) -> list[Item]:
        """The system prompt and the history, archived and counted; without what was forgotten."""
        return [*self.system, *_unforgotten(self.history)]

    @property
    def provider(self) -> str:
        """Whose form the newest message with a mark of one came in."""
        return formats.format_of([item.message for item in self.history])

    def question(self, *, most: int) -> tuple[str, ...]:
        """What the user asks, newest last: the newest message, and those before it while they say too little."""
        said = (unwrap(item.message.text) for item in reversed(self.history) if item.message.role == "user")
        return question(said, most=most)

    def _common(self, messages: Sequence[Message | Mapping[str, Any]]) -> int:
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
        standing = self.standing(limit=limit)
        shown = self._shown
        if shown is None or (shown.edits, shown.limit) != (len(self.edits), limit):
            return editing.apply(self.items, standing), standing
        history = _unforgotten([*shown.items, *self.history[shown.history :]])
        return (*self.system, *history), standing

    def standing(self, *, limit: int) -> tuple[Edit, ...]:
        """The edits that hold for the next request: a summary of what the client took back is none of them."""
        edits = editing.in_force(self.edits, limit=limit)
        if not any(isinstance(edit.change, Compacted) for edit in edits):
            return edits
        present = {item.id for item in self.history}
        return tuple(edit for edit in edits if not _is_taken_back(edit, present))

    def last_cut(self) -> tuple[int, ...]:
        """What the last cut took out of the window and nobody brought back; nothing after a compaction."""
        cuts: list[set[int]] = []
        for edit in self.standing(limit=0):
            if edit.kind == "trimmed":
                cuts.append(set(edit.ids))
            elif edit.kind == "restored":
                cuts = [cut.difference(edit.ids) for cut in cuts]
        return tuple(sorted(next((cut for cut in reversed(cuts) if cut), ())))

    def show(self, items: Sequence[Item], *, edits: int, limit: int) -> None:
        """Remember the window that was made with so many edits, all of them recorded."""
        lasting = tuple(item for item in items[len(self.system) :] if item.kind != "recall")
        self._shown = _Shown(lasting, history=len(self.history), edits=edits, limit=limit)

    def paired(self, ids: Sequence[int]) -> tuple[int, ...]:
        """These messages with all that they cannot be sent without: a result with its call, and the other way round."""
        wanted = set(ids)
        for unit in units([item.message for item in self.history]):
            together = {item.id for item in self.history[unit.start : unit.stop]}
            wanted |= together if not together.isdisjoint(wanted) else set()
        return tuple(sorted(wanted - {0}))

    def quoted(self, items: Sequence[Item]) -> set[int]:
        """The passages that a block in the window quotes."""
        blocks = {item.block.text for item in items if item.block}
        changes = (edit.change for edit in self.edits)
        return {
            number
            for change in changes
            if isinstance(change, Recalled) and change.text in blocks
            for number in change.passages
        }

    def seen(self, items: Sequence[Item], new: Sequence[Edit]) -> set[int]:
        """The archived messages that the window shows whole: of a shortened one, most can only be recalled."""
        edits = (*self.edits, *new)
        shortened = {number for edit in edits if isinstance(edit.change, Pruned) for number in edit.ids}
        return {item.id for item in items} - shortened

    def learn_edits(self, memory: Memory) -> None:
        """Read the edits that were recorded since the last time, by whatever process."""
        fresh = self._fetched(memory)
        if any(isinstance(edit.change, Forgotten) for edit in fresh):  # words of older ones are gone
            self.edits, self._last_record, self._shown = [], 0, None
            fresh = self._fetched(memory)
            gone = {number for edit in fresh if isinstance(edit.change, Forgotten) for number in edit.ids}
            self.history = [replace(item, id=0) if item.id in gone else item for item in self.history]
        self.edits += fresh

    def _fetched(self, memory: Memory) -> list[Edit]:
        """The edits that are not known yet."""
        select = Select(kind="record", scope=self.scope, name=_EDIT, after=self._last_record)
        records = memory.store.fetch(select)
        fresh = [editing.from_json(record.data) for record in records]
        self._last_record = records[-1].id if records else self._last_record
        return fresh

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
            memory.store.add([*rows, *beside])
            self.learn_edits(memory)  # with what others recorded meanwhile, in the order of all

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


def _is_system(given: Message | Mapping[str, Any]) -> bool:
    role = given.role if isinstance(given, Message) else given.get("role")
    return role in {"system", "developer"}


def _unforgotten(history: Sequence[Item]) -> Sequence[Item]:
    """History without messages that were forgotten, save those since the user last spoke: they are being asked."""
    if all(item.id or item.kind != "message" for item in history):
        return history
    asked = max((place for place, item in enumerate(history) if item.message.role == "user"), default=0)
    return [item for place, item in enumerate(history) if item.id or item.kind != "message" or place >= asked]


def _is_taken_back(edit: Edit, present: AbstractSet[int]) -> bool:
    """Whether the client went back to before the end of what a summary stands for.

    One that drops old messages itself still sends what stayed when the summary was told.
    """
    last = max(edit.ids, default=0)
    if not isinstance(edit.change, Compacted) or last in present or not any(0 < number < last for number in present):
        return False
    stayed = {number for number in edit.change.kept if number > last}
    return bool(stayed) and stayed.isdisjoint(present)


def _kind(message: Message) -> ItemKind:
    return "system" if message.role == "system" else "message"
