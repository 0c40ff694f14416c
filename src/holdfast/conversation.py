"""What the engine remembers of a session between two requests, so that only what is new costs anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from threading import RLock
from typing import Any, Final

from msgspec import structs

from holdfast import formats
from holdfast.context import edits as editing
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Forgotten, Item, ItemKind, Pinned, Pruned, Recalled
from holdfast.context.settled import Settled
from holdfast.errors import ConflictError
from holdfast.formats import Incoming
from holdfast.memory import archive
from holdfast.memory.archive import Ingested, Key
from holdfast.memory.memory import Memory
from holdfast.memory.noise import unwrap
from holdfast.memory.request import question
from holdfast.messages import Message, units
from holdfast.store.base import Record, Row, Scope, Select
from holdfast.tokens import TokenCounter, count_message, count_text, reported_prompt, scale_of

__all__ = ["MAX_TRIES", "Conversation"]

MAX_TRIES: Final = 8
"""How often edits are recorded again because another process has recorded one meanwhile."""
_EDIT: Final = "edit"


@dataclass(frozen=True, slots=True)
class _Shown:
    """The window of the last request, and what it was made of."""

    items: tuple[Item, ...]
    history: int
    edits: int
    limit: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class Conversation:
    """A session as this process knows it.

    Attributes:
        scope: Whose it is.
        lock: Held by the thread that works on the session.
        given: The messages of the last request after the system prompt, copied: a caller may change its own.
        system: The system prompt of the last request.
        history: What came after it; messages that were nothing but recalled text are not among it.
        edits: Every change recorded so far.
        sent: What was sent last, for the share of it that stays a prefix.
        settled: The beginning of its windows that is known to be valid.
        turn: How many requests there were.
        last_time: When the last one was made, in Unix milliseconds.
        stripped: What was taken out of the new messages of the last request because it was recalled text.
        told: What of a summary is told already, where a compaction did not come to its end.
        limits: The limits of the last request.
        notes: What a compaction in the background has to report with the next request.
        compact_from: How long the history must be before a compaction is tried again after one that failed.
        reported: How many of the edits earlier reports tell of; None before the first request.
        sent_tokens: What the last request was estimated to take.
        scale: How many tokens the provider counted for each estimated one, at the last report; None before one.
    """

    scope: Scope
    lock: RLock = field(default_factory=RLock, repr=False)
    given: list[Message | Mapping[str, Any]] = field(default_factory=list)
    system: list[Item] = field(default_factory=list)
    history: list[Item] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    sent: list[tuple[Message, int]] = field(default_factory=list)
    settled: Settled = field(default_factory=Settled)
    turn: int = 0
    last_time: int | None = None
    stripped: list[str] = field(default_factory=list)
    told: dict[str, str] = field(default_factory=dict)
    limits: Budget | None = None
    notes: list[str] = field(default_factory=list)
    compact_from: int = 0
    reported: int | None = None
    sent_tokens: int = 0
    scale: float | None = None
    _given_system: list[Message | Mapping[str, Any]] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _keys: list[Key] = field(default_factory=list)
    _log: list[Key] = field(default_factory=list)
    _last_record: int = 0
    _unreadable: int = 0
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
        self.stripped = []
        messages = formats.incoming(given)
        leading = sum(1 for _ in takewhile(_is_system, messages))
        if self._given_system != list(messages[:leading]):
            new = [_copy(message) for message in messages[:leading]]
            system = [message for message in self._read(new, memory, format) if message is not None]
            numbers, _ = self._archive(system, memory, before=())
            self.system = [item for item in _items(system, numbers, count) if item.message.role == "system"]
            self._given_system = new
        history = messages[leading:]
        known = self._common(history)
        self._forget_after(known)
        appended = 0 < known == len(self.given)
        new = [_copy(message) for message in history[known:]]
        read = self._read(new, memory, format)
        fresh = [message for message in read if message is not None]
        numbers, keys = self._archive(fresh, memory, before=self._keys)
        self._note_ends(read)
        self.given += new
        self._keys += keys
        self._log = []
        self.history += _items(fresh, numbers, count)
        if appended:
            self.calibrate(fresh, count=count)
        self.sent_tokens = 0  # a later report is about a request that is not known yet

    def calibrate(self, new: Iterable[Message], *, count: TokenCounter) -> None:
        """Compare what the provider reported for the last request with what was estimated; `new` came after it."""
        estimated = self.sent_tokens
        for message in new:
            prompt = reported_prompt(message)
            if estimated and prompt:
                self.scale = scale_of(prompt, estimated) or self.scale
                self.sent_tokens = 0
                return
            estimated += count_message(message, count=count) if estimated else 0

    def append(
        self, messages: Sequence[Incoming], *, memory: Memory, format: str | None = None
    ) -> tuple[Ingested, list[Message]]:
        """Archive messages that come after what the session has, such as a reply.

        Messages that the session ends with already are not archived again. A user may say the same words twice:
        a single user message is always new, unless it has an id or a timestamp.

        Returns:
            The numbers of the messages, and the messages as they were read.
        """
        read = formats.read([_copy(message) for message in formats.incoming(messages)], format=format)
        found, stripped = archive.strip_recalled(read, memory.marks)
        own = [message for message in found if message is not None]
        log = self._log or self._keys or self._stored_keys(memory, limit=len(own) + 1)
        digests = [message.digest for message in self._masked(own, memory)]
        if len(own) > 1 and archive.FIRST in memory.store.find(self.scope, digests[:1]).get(digests[0], {}):
            repeated = len(log)  # it is the whole history, from its first message on
        elif [message.role for message in own] == ["user"]:
            repeated = 0
        else:
            repeated = _overlap([key.digest for key in log], digests)
        before = log[: len(log) - repeated]
        numbers, keys = self._archive(own, memory, before=before)
        self._log = max([*before, *keys], log, key=len)
        return Ingested(numbers, stripped=stripped), own

    def _stored_keys(self, memory: Memory, *, limit: int) -> list[Key]:
        rows = memory.store.fetch(Select(kind="message", scope=self.scope, newest=True, limit=limit))
        return [Key(row.message.digest, row.nonce) for row in rows]

    def _read(
        self, given: Sequence[Message | Mapping[str, Any]], memory: Memory, format: str | None
    ) -> list[Message | None]:
        """Read messages; None for those that were nothing but recalled text."""
        read = formats.read(given, format=format)
        own, stripped = archive.strip_recalled(read, memory.marks)
        self.stripped += stripped
        return own

    def _masked(self, messages: Sequence[Message], memory: Memory) -> list[Message]:
        return [archive.mask(message) for message in messages] if memory.settings.archive.redaction else list(messages)

    def _archive(
        self, messages: Sequence[Message], memory: Memory, *, before: Sequence[Key]
    ) -> tuple[list[int], list[Key]]:
        if not messages:
            return [], []
        masked = self._masked(messages, memory)
        return archive.append(
            memory.store, masked, scope=self.scope, time=memory.clock(), before=before, marks=memory.marks
        )

    def _note_ends(self, own: Sequence[Message | None]) -> None:
        """Remember how much of the history there is after each message that was handed in."""
        end = len(self._keys)
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
            if old != new:
                break
            count += 1
        return count

    def _forget_after(self, known: int) -> None:
        """The client went back: what it no longer sends is no longer a part of the conversation."""
        if known == len(self.given):
            return
        self._shown = None
        left = self._ends[known - 1] if known else 0
        del self.given[known:], self._ends[known:], self.history[left:], self._keys[left:]

    # --- what was done to it -----------------------------------------------------

    def replay(self, *, limit: int) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """The window after every edit that holds for the next request, and these edits.

        What was replayed for the last request is not gone through again.
        """
        standing = self.standing(limit=limit)
        shown = self._shown
        if shown is None or (shown.edits, shown.limit) != (len(self._branch_edits()), limit):
            return editing.apply(self.items, standing), standing
        history = _unforgotten([*shown.items, *self.history[shown.history :]])
        return (*self.system, *history), standing

    def standing(self, *, limit: int) -> tuple[Edit, ...]:
        """The edits that hold for the next request."""
        return editing.in_force(self._branch_edits(), limit=limit)

    def _branch_edits(self) -> list[Edit]:
        """The edits that were made on this branch of the conversation.

        A client that goes back, or another process that is not as far, no longer has a message that an edit is
        anchored to. A client that drops old messages itself has only newer ones.
        """
        present = {item.id for item in self.history}
        first = min(present - {0}, default=0)
        gone = {number for edit in self.edits if isinstance(edit.change, Forgotten) for number in edit.ids}
        present |= gone
        return [
            edit
            for edit in self.edits
            if not edit.anchors or max(edit.anchors) < first or not present.isdisjoint(edit.anchors)
        ]

    def last_cut(self) -> tuple[int, ...]:
        """What the last cut took out of the window and nobody brought back; nothing after a compaction."""
        cuts: list[set[int]] = []
        for edit in self.standing(limit=0):
            if edit.kind == "trimmed":
                cuts.append(set(edit.ids))
            elif edit.kind == "restored":
                cuts = [cut.difference(edit.ids) for cut in cuts]
        return tuple(sorted(next((cut for cut in reversed(cuts) if cut), ())))

    def show(self, items: Sequence[Item], *, limit: int) -> None:
        """Remember the window that was made with all edits recorded so far."""
        lasting = tuple(item for item in items[len(self.system) :] if item.kind != "recall")
        self._shown = _Shown(lasting, history=len(self.history), edits=len(self._branch_edits()), limit=limit)

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
        """Record new edits, durably, before a window made with them is sent; with rows that belong to them.

        Raises:
            ConflictError: Another process has recorded an edit meanwhile. Nothing was recorded, and that edit is known.
        """
        newest = self.history[-1].id if self.history else 0
        rows = [
            Record(
                scope=self.scope,
                kind=_EDIT,
                key=f"{len(self.edits) + self._unreadable + offset:08d}",
                data=editing.to_json(_anchored(edit, newest)),
                time=time,
                is_new=True,
            )
            for offset, edit in enumerate(edits)
        ]
        if not rows:
            return
        known = len(self.edits)
        try:
            memory.store.add([*rows, *beside])
        except ConflictError:
            self.learn_edits(memory)
            if len(self.edits) == known:  # the rows that are there are damaged: go on after them
                self._unreadable = 2 * self._unreadable + 1
            raise
        self.learn_edits(memory)

    def record_last(
        self,
        edits: Sequence[Edit],
        *,
        memory: Memory,
        time: int,
        beside: Sequence[Row] = (),
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Record edits after those that other processes record meanwhile. `check` raises where they no longer hold.

        Raises:
            ConflictError: Others were faster each time.
        """
        for left in reversed(range(MAX_TRIES)):
            check()
            try:
                return self.record(edits, memory=memory, time=time, beside=beside)
            except ConflictError:
                if not left:
                    raise
        return None

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


def _anchored(edit: Edit, newest: int) -> Edit:
    """An edit that applies to histories with the message that is the newest one now, unless it names others."""
    if edit.anchors or not newest or isinstance(edit.change, Pinned | Forgotten):
        return edit
    return structs.replace(edit, anchors=(newest,))


def _copy(value: Any) -> Any:
    """A message that its caller can no longer change."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _overlap(known: Sequence[str], new: Sequence[str]) -> int:
    """How many messages at the beginning of `new` are the last ones of `known`."""
    most = min(len(known), len(new))
    return next((size for size in range(most, 0, -1) if known[-size:] == new[:size]), 0)


def _kind(message: Message) -> ItemKind:
    return "system" if message.role == "system" else "message"
