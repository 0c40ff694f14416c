"""The state of a session between two requests. Internal: `Session` is the public object.

Only messages that are new since the last request are read, archived and counted.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import chain, takewhile
from typing import Any, Final

from msgspec import Struct, structs

from holdfast import providers
from holdfast.context import edits as editing
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Forgotten, Item, ItemKind, Pinned
from holdfast.context.validate import ValidationCache
from holdfast.errors import ConflictError, FormatError
from holdfast.memory import archive
from holdfast.memory.archive import NO_MASKS, Ingested, Key, Masks, unwrap
from holdfast.memory.memory import Memory
from holdfast.memory.query import select_texts
from holdfast.messages import Message, units
from holdfast.providers import Incoming
from holdfast.report import ContextReport
from holdfast.store.base import Job, MessageRow, Record, Scope, Select
from holdfast.tokens import TokenCounter, count_message, is_estimate, reported_prompt, scale_of

MAX_TRIES: Final = 8
"""How often edits are recorded again because another process has recorded one meanwhile."""
MAX_LOGS: Final = 16
"""Histories that a reply may follow: as many requests of a session may be under way."""
MAX_LOG_KEYS: Final = 4096
"""Messages at the end of each of them that are compared with what is appended."""
MAX_SENT_TURNS: Final = 4
"""Turns of an earlier process whose new messages are known to have been sent."""
MESSAGE_BYTES: Final = 2_000
"""What a message takes in memory in addition to its strings. 1,400 to 2,000 were measured with tracemalloc."""
EDIT_BYTES: Final = 2_000
"""What an edit takes in memory."""
WINDOW: Final = "window"
"""The kind of the records that hold the source of past windows, by the key of their turn."""
TURN: Final = "turn"
"""The kind of the records that hold the reports of past turns."""
EDIT: Final = "edit"
"""The kind of the records that hold edits, by their number."""


class WindowSource(Struct, frozen=True, kw_only=True):
    """What a past window can be made of again, and its size. It is stored beside the report of its turn.

    Attributes:
        base, kept: The turn whose history this one continues (empty for none), and with how many messages of it.
        added, system: The numbers of the messages after them, and of the system prompts.
        edits: The number of the first edit that is new in this turn, and of the first one after them.
        limit, window: The tokens that it had to fit into, and those of the model's window.
        sizes, changes: The tokens of each category of the report, and the kinds of the edits that are new.
    """

    base: str
    kept: int
    added: tuple[int, ...]
    system: tuple[int, ...]
    edits: tuple[int, int]
    limit: int
    provider: str
    window: int
    sizes: tuple[int, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Log:
    """The end of a history that was sent, and what was appended to it.

    Attributes:
        keys: The keys of its messages, the last ones of a long history.
        start: The place of the first message, if there are no keys.
        caller: The thread or task that sent it; None if it cannot be told from others.
        is_waiting: Whether the history was that of a request, and nothing was appended to it yet.
    """

    keys: Sequence[Key]
    start: str = archive.FIRST
    caller: object = None
    is_waiting: bool = False

    @property
    def place(self) -> str:
        """The place of the message that comes next."""
        return self.keys[-1].next_nonce if self.keys else self.start

    def is_after(self, other: _Log) -> bool:
        """Return whether this history goes on from the other one."""
        return self is not other and bool(other.keys) and other.keys[-1] in self.keys


@dataclass(slots=True, eq=False)
class SessionState:
    """What this process knows of a session. The lock of the session guards every use.

    Attributes:
        given: The messages of the last request after the system prompt, copied: the caller may change its own.
        system, history: Its system prompt, and the messages after that which are not only recalled text.
        numbers: The numbers of these messages.
        edits, sent: Every edit recorded so far, and the window that was sent last.
        turn, last_time: How many requests there were, and when the last one was made.
        stripped: One line for each new message of the last request from which recalled text was removed.
        summary_parts: Finished parts of a summary, kept when a compaction did not complete.
        limits, notes: The limits of the last request, and warnings of a background compaction for the next report.
        compact_from: How long the history must be before a compaction is tried again after one that failed.
        reported_edits: How many of the edits are in earlier reports; None before the first request.
        sent_before: Messages that an earlier process has sent in its last requests.
        sent_tokens: The estimated tokens of the last request; 0 once they were compared with reported usage.
        scale: Tokens that the provider counted for each estimated one, at its last report; None before one.
        recorded: The key of the last recorded turn, and the numbers of its history.
        shown, shown_with: The last window that was recorded, from which the next one is replayed, and its `replay_key`.
    """

    scope: Scope
    memory: Memory
    count: TokenCounter
    given: list[Message | Mapping[str, Any]] = field(default_factory=list)
    system: list[Item] = field(default_factory=list)
    history: list[Item] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    sent: Sequence[Item] = ()
    validation: ValidationCache = field(default_factory=ValidationCache)
    turn: int = 0
    last_time: int | None = None
    stripped: list[str] = field(default_factory=list)
    summary_parts: dict[str, str] = field(default_factory=dict)
    limits: Budget | None = None
    notes: list[str] = field(default_factory=list)
    compact_from: int = 0
    reported_edits: int | None = None
    sent_before: set[int] = field(default_factory=set)
    sent_tokens: int = 0
    scale: float | None = None
    recorded: tuple[str, list[int]] = ("", [])
    shown: Sequence[Item] = ()
    shown_with: tuple[int, int, int, int] = (0, 0, 0, 0)
    _is_loaded: bool = False
    _given_system: list[Message | Mapping[str, Any]] = field(default_factory=list)
    _is_own: list[bool] = field(default_factory=list)  # for each message of `given` whether the history has it
    _sizes: list[int] = field(default_factory=list)  # of each message of `given`
    _system_size: int = 0
    _keys: list[Key] = field(default_factory=list)
    _logs: list[_Log] = field(default_factory=list)  # newest last
    _last_record: int = 0
    _unreadable: int = 0

    def renew(self) -> SessionState:
        """Return the state of a session of which nothing is known but the requests that wait for a reply."""
        state = SessionState(self.scope, self.memory, self.count)
        state._logs = self._logs
        return state

    @property
    def size(self) -> int:
        """The bytes that the state takes, estimated. Threads without the lock of the session may ask too."""
        return self._system_size + sum(self._sizes) + EDIT_BYTES * len(self.edits)

    def load_turn(self) -> None:
        """Read the last turn of an earlier process, once."""
        if not self._is_loaded:
            select = Select(scope=self.scope, newest=True, limit=1)
            for record in self.memory.store.read_records(select, kind=TURN):
                self.turn, self.last_time = record.data.get("turn", 0), record.time
                self.scale = record.data.get("token_scale") if record.data.get("is_calibrated") else None
            select = replace(select, limit=MAX_SENT_TURNS)
            for record in self.memory.store.read_records(select, kind=WINDOW):
                self.sent_before.update(record.data.get("added", ()))
            self._is_loaded = True

    def load(self) -> None:
        """Read what other processes recorded: the last turn, and every edit since the last call."""
        self.load_turn()
        fresh = self._fetch_edits()
        if any(isinstance(edit.change, Forgotten) for edit in fresh):  # the words of older edits are gone
            self.edits, self._last_record, self.shown = [], 0, ()
            fresh = self._fetch_edits()
            gone = {number for edit in fresh if isinstance(edit.change, Forgotten) for number in edit.ids}
            self.history = [replace(item, id=0) if item.id in gone else item for item in self.history]
            self.numbers = [item.id for item in self.history]
        self.edits += fresh

    def mask_ahead(self, given: Sequence[Incoming], *, format: str | None = None, is_reply: bool = False) -> Masks:
        """Mask the new messages of a history, or a reply. The caller does not hold the lock of the session.

        A search of hostile text takes long. If another request changes the state meanwhile, or a message contains
        recalled text, what was masked here is not used, and the message is masked when it is archived.
        """
        if not self.memory.settings.archive.redaction:
            return NO_MASKS
        try:
            if is_reply:
                return Masks(providers.read(_copy(providers.normalise(given)), format=format, keep_malformed=True))
            messages = providers.normalise(given, known=self.given, first=len(self._given_system))
            leading = sum(1 for _ in takewhile(_is_system, messages))
            system = [] if self._given_system == list(messages[:leading]) else messages[:leading]
            fresh = messages[leading + _count_equal(self.given, messages[leading:]) :]
            parts = [part for part in (system, fresh) if part]
            return Masks(message for part in parts for message in providers.read(_copy(part), format=format))
        except FormatError:  # it is raised, and reported, when the messages are archived
            return NO_MASKS

    def update(self, given: Sequence[Incoming], *, format: str | None = None, masks: Masks = NO_MASKS) -> None:
        """Compare the messages of a history with those of the last one, and archive what is new, durably.

        Each message is read in the format that it shows unless one is named. The system prompt is compared
        separately: many clients put the date into it.
        """
        self.stripped = []
        messages = providers.normalise(given, known=self.given, first=len(self._given_system))
        leading = sum(1 for _ in takewhile(_is_system, messages))
        if self._given_system != list(messages[:leading]):
            new = _copy(messages[:leading])
            system = [message for message in self._read(new, format) if message is not None]
            numbers, _ = self._archive(self._mask(system, masks))
            self.system = [item for item in self.make_items(system, numbers) if item.kind == "system"]
            self._given_system = new
            self._system_size = sum(map(_estimate_size, new))
        history = messages[leading:]
        known = _count_equal(self.given, history)
        if known < len(self.given):  # the client went back: what it no longer sends is not part of the conversation
            self.shown = ()
            left = sum(self._is_own[:known])
            del self.given[known:], self._is_own[known:], self.history[left:], self.numbers[left:], self._keys[left:]
            del self._sizes[known:]
        new = _copy(history[known:])
        read = self._read(new, format)
        fresh = [message for message in read if message is not None]
        numbers, keys = self._archive(self._mask(fresh, masks), before=self._keys)
        self.given += new
        self._sizes += map(_estimate_size, new)
        self._is_own += (message is not None for message in read)
        self._keys += keys
        self._add_log(_Log(self._keys[-MAX_LOG_KEYS:]))
        self.history += self.make_items(fresh, numbers)
        self.numbers += numbers
        if known:
            self.calibrate(fresh)
        self.sent_tokens = 0  # a later report is about a request that is not known yet

    def preview(self, given: Sequence[Incoming], *, format: str | None = None) -> tuple[Item, ...] | None:
        """Return the window of a history that goes on from that of the last request; None for any other history."""
        messages = providers.normalise(given)
        leading = sum(1 for _ in takewhile(_is_system, messages))
        history, known = messages[leading:], len(self.given)
        if self.limits is None or not known or list(history[:known]) != self.given:
            return None
        read = providers.read([*messages[:leading], *history[known:]], format=format)
        fresh = self.make_items(read, [0] * len(read))
        window, _ = self.replay(limit=self.limits.safe_limit)
        return (*fresh[:leading], *(item for item in window if item.kind != "system"), *fresh[leading:])

    def restore(self) -> None:
        """Take the archived messages for the history, where no request has brought one yet."""
        if self.given or self.history:
            return
        rows: list[MessageRow] = self.memory.store.read_messages(Select(scope=self.scope))
        rows = [row for row in rows if row.message.role != "system"]
        messages = [row.message for row in rows]
        self.given, self._is_own = list(messages), [True] * len(messages)
        self._sizes = list(map(_estimate_size, messages))
        self._keys = [Key(row.message.digest, row.nonce) for row in rows]
        self.numbers = [row.id for row in rows]
        self.history = self.make_items(messages, self.numbers)

    def calibrate(self, new: Iterable[Message]) -> None:
        """Compare what the provider reported for the last request with what was estimated; `new` came after it."""
        estimated = self.sent_tokens
        for message in new:
            prompt = reported_prompt(message)
            if estimated and prompt:
                self.scale = scale_of(prompt, estimated) or self.scale
                self.sent_tokens = 0
                return
            estimated += count_message(message, count=self.count) if estimated else 0

    def begin_request(self, *, caller: object) -> str:
        """Expect a reply to the history of the last update; return its place in the conversation."""
        *others, log = self._logs
        kept: list[_Log] = []
        for other in others:
            if other.caller is None or other.caller != caller:
                kept.append(other)
            elif other.place != log.place:  # a caller makes one request at a time, but an earlier reply may still come
                kept.append(replace(other, caller=None))
        self._logs = [*kept, replace(log, caller=caller, is_waiting=True)]
        return log.place

    def append(
        self,
        messages: Sequence[Incoming],
        *,
        format: str | None = None,
        caller: object = None,
        after: str | None = None,
        masks: Masks = NO_MASKS,
    ) -> tuple[Ingested, list[Message]]:
        """Archive messages that come after what the session has, such as a reply; return the numbers and messages.

        They follow the request with the place `after`, else a request of the caller. Messages that the session ends
        with already are not archived again. A user may say the same words twice: a single user message is always new,
        unless it has an id or a timestamp.
        """
        before_strip = providers.read(_copy(providers.normalise(messages)), format=format, keep_malformed=True)
        read, stripped = archive.strip_recalled(before_strip, self.memory.marks)
        own = [message for message in read if message is not None]
        if not own:
            return Ingested((), stripped=stripped, place=after or ""), own
        masked = self._mask(own, masks)
        log, placing = self._choose_log(masked, caller=caller, after=after)
        before = log.keys[: len(log.keys) - self._count_repeated(masked, log.keys)]
        place = archive.FIRST if log.keys else log.start
        numbers, keys = self._archive(masked, before=before, place=place, placing=placing)
        all_keys = [*before, *keys] if len(before) + len(keys) >= len(log.keys) else log.keys
        self._logs = [other for other in self._logs if other is not log]
        self._add_log(_Log(all_keys[-MAX_LOG_KEYS:]))
        return Ingested(numbers, stripped=stripped, place=self._logs[-1].place), own

    def _choose_log(self, own: Sequence[Message], *, caller: object, after: str | None) -> tuple[_Log, archive.Placing]:
        """Choose what messages follow, and say whether that is certain.

        A caller that waits for a reply appends that reply. Another one may have got any of them; a history that
        already contains the reply shows which request it answers. A request before the chosen one has its reply: that
        is in the history of the chosen one, and the same words again are another message.
        """
        if after:
            return next((log for log in reversed(self._logs) if log.place == after), _Log([], start=after)), "certain"
        if not self._logs:
            rows = archive.newest_messages(self.memory.store, self.scope, limit=len(own) + 1)
            return _Log([Key(row.message.digest, row.nonce) for row in rows]), "likely"
        waiting = [log for log in self._logs if log.is_waiting]
        mine = [log for log in waiting if log.caller is not None and log.caller == caller]
        chosen = mine[-1] if mine else self._logs[-1]
        candidates = [
            log
            for log in waiting
            if (not mine or log.caller is None or log.caller == caller) and not chosen.is_after(log)
        ]
        if waiting == [chosen] and after is None:  # an empty place is that of a request for which memory failed
            return chosen, "certain"
        if candidates and own[0].role != "user":
            archived = self.memory.store.find(self.scope, [own[0].digest]).numbers.get(own[0].digest, {})
            for log in (chosen, *candidates):
                if not archived.keys().isdisjoint(archive.nonces_of(log.place)):
                    return log, "likely"
        return chosen, "likely"

    def _add_log(self, log: _Log) -> None:
        """Add the newest log; of the others, those of requests that still wait are kept."""
        waiting = [other for other in self._logs if other.is_waiting]
        self._logs = [*waiting, log][-MAX_LOGS:]

    def _count_repeated(self, own: Sequence[Message], log: Sequence[Key]) -> int:
        """Count how many of the last known messages the new ones begin with."""
        digests = [message.digest for message in own]
        if len(own) > 1 and self._is_first(digests[0]):
            return len(log)  # it is the whole history, from its first message on
        if [message.role for message in own] == ["user"]:
            return 0
        known = [key.digest for key in log]
        sizes = range(min(len(known), len(digests)), 0, -1)
        return next((size for size in sizes if known[-size:] == digests[:size]), 0)

    def _is_first(self, digest: str) -> bool:
        """Return whether the session begins with this message, or did before that was forgotten."""
        known = self.memory.store.find(self.scope, [digest])
        nonces = known.numbers.get(digest, {})
        places = archive.follow_forgotten(archive.FIRST, known.forgotten)
        return any(nonce in nonces for place in places for nonce in archive.nonces_of(place))

    def _read(self, given: Sequence[Message | Mapping[str, Any]], format: str | None) -> list[Message | None]:
        """Read messages; None for those that were nothing but recalled text."""
        own, stripped = archive.strip_recalled(providers.read(given, format=format), self.memory.marks)
        self.stripped += stripped
        return own

    def _mask(self, messages: Sequence[Message], masks: Masks) -> list[Message]:
        if not self.memory.settings.archive.redaction:
            return list(messages)
        return [masks.mask(message) for message in messages]

    def _archive(
        self,
        masked: Sequence[Message],
        *,
        before: Sequence[Key] = (),
        place: str = archive.FIRST,
        placing: archive.Placing = "history",
    ) -> tuple[list[int], list[Key]]:
        if not masked:
            return [], []
        return archive.append(
            self.memory.store,
            masked,
            scope=self.scope,
            time=self.memory.clock(),
            before=before,
            place=place,
            marks=self.memory.marks,
            placing=placing,
        )

    def make_items(self, messages: Sequence[Message], numbers: Sequence[int]) -> list[Item]:
        """Count messages, and number them as the archive does."""
        items: list[Item] = []
        for message, number in zip(messages, numbers, strict=True):
            kind: ItemKind = "system" if message.role == "system" else "message"
            items.append(Item(message=message, id=number, tokens=count_message(message, count=self.count), kind=kind))
        return items

    def replay_unarchived(
        self, given: Sequence[Incoming], *, format: str | None = None, limit: int
    ) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """Return the window of messages that could not be archived, after the known edits, and these edits.

        Messages that were archived before keep their numbers. The others get negative ones, so that a plan can name
        them; no edit of them may be recorded.
        """
        stripped, _ = archive.strip_recalled(providers.read(given, format=format), self.memory.known_marks)
        messages = [message for message in stripped if message is not None]
        leading = sum(1 for _ in takewhile(_is_system, messages))
        archived: list[Item] = []
        for item, message in zip(self.history, messages[leading:], strict=False):
            if item.message.digest != message.digest:
                break
            archived.append(item)
        rest = messages[leading + len(archived) :]
        items = [
            *self.make_items(messages[:leading], [0] * leading),
            *archived,
            *self.make_items(rest, range(-1, -1 - len(rest), -1)),
        ]
        edits = branch_edits(self.edits, {item.id for item in archived})
        standing = editing.in_force(edits, limit=limit)
        return editing.apply(_unforgotten(items), standing), standing

    def copy(self) -> SessionState:
        """Return a state with its own lists: a thread that hangs in the store may change the old ones later."""
        changed: dict[str, Any] = {"validation": ValidationCache()}
        for known in fields(self):
            value = getattr(self, known.name)
            if isinstance(value, list | dict):
                changed[known.name] = value.copy()
        return replace(self, **changed)

    @property
    def items(self) -> list[Item]:
        """The system prompt and the history, archived and counted; without what was forgotten."""
        return [*self.system, *_unforgotten(self.history)]

    def provider(self, *, default: str) -> str:
        """Name the format of the newest message that shows one."""
        return providers.format_of([item.message for item in self.history], default=default)

    def question(self, *, most: int, newest: str = "") -> tuple[str, ...]:
        """What the user asks, newest last: the newest message, and those before it while they say too little.

        `newest` is a question that is not in the history yet.
        """
        said = (unwrap(item.message.text) for item in reversed(self.history) if item.message.role == "user")
        return select_texts(chain((unwrap(newest),), said), most=most)

    def was_sent(self, item: Item) -> bool:
        """Return whether an earlier request has shown a message."""
        if item.id in self.sent_before:
            return True
        # A message that could not be archived was sent without a number.
        return any(one.id in {0, item.id} and one.message.digest == item.message.digest for one in self.sent)

    # --- edits -------------------------------------------------------------------

    @property
    def token_scale(self) -> float:
        """Tokens that the provider may count for each estimated one: by its last report, else with the margin."""
        margin = self.memory.settings.tokens.margin if is_estimate(self.count) else 0.0
        return self.scale or 1 + margin

    def replay(self, *, limit: int) -> tuple[tuple[Item, ...], tuple[Edit, ...]]:
        """The window after every edit that holds for the next request, and these edits.

        What was replayed for the last request is not gone through again.
        """
        edits = self._branch_edits()
        standing = editing.in_force(edits, limit=limit)
        *unchanged, system, messages = self.shown_with
        if not self.shown or unchanged != [limit, len(edits)]:
            return editing.apply(self.items, standing), standing
        lasting = (item for item in self.shown[system:] if item.kind != "recall")
        return (*self.system, *_unforgotten([*lasting, *self.history[messages:]])), standing

    def replay_key(self, *, limit: int) -> tuple[int, int, int, int]:
        """What a window is made with: its limit, and how many edits, system prompts and messages."""
        return limit, len(self._branch_edits()), len(self.system), len(self.history)

    def standing_edits(self, *, limit: int) -> tuple[Edit, ...]:
        """The edits that hold for the next request."""
        return editing.in_force(self._branch_edits(), limit=limit)

    def _branch_edits(self) -> list[Edit]:
        return branch_edits(self.edits, set(self.numbers))

    @property
    def next_edit(self) -> int:
        """The number of the next edit to record."""
        return len(self.edits) + self._unreadable

    def last_trim(self) -> tuple[int, ...]:
        """What the last cut took out of the window and nobody brought back; nothing after a compaction."""
        cuts: list[set[int]] = []
        for edit in self.standing_edits(limit=0):
            if edit.kind == "trimmed":
                cuts.append(set(edit.ids))
            elif edit.kind == "restored":
                cuts = [cut.difference(edit.ids) for cut in cuts]
        return tuple(sorted(next((cut for cut in reversed(cuts) if cut), ())))

    def with_pairs(self, ids: Sequence[int]) -> tuple[int, ...]:
        """These messages with all that they cannot be sent without: a result with its call, and the other way round."""
        wanted = set(ids)
        for unit in units([item.message for item in self.history]):
            together = {item.id for item in self.history[unit.start : unit.stop]}
            wanted |= together if not together.isdisjoint(wanted) else set()
        return tuple(sorted(wanted - {0}))

    def _fetch_edits(self) -> list[Edit]:
        """Read the edits that are not known yet."""
        records = self.memory.store.read_records(Select(scope=self.scope, after=self._last_record), kind=EDIT)
        self._last_record = records[-1].id if records else self._last_record
        edits: list[Edit] = []
        for record in records:
            try:
                edits.append(editing.from_json(record.data))
            except FormatError as error:
                self._unreadable += 1
                self.notes.append(f"edit {record.key} of the session is ignored: {error}")
        return edits

    def record(self, edits: Sequence[Edit], *, time: int, beside: Sequence[Job] = ()) -> None:
        """Record new edits, durably, before a window made with them is sent; with jobs that belong to them.

        Raises:
            ConflictError: Another process has recorded an edit meanwhile. Nothing was recorded, and that edit is known.
        """
        if not edits:
            return
        rows, known = self._make_rows(edits, time=time), len(self.edits)
        try:
            with self.memory.store.transaction():
                numbers = self.memory.store.add_records(rows)
                self.memory.store.add_jobs(beside)
        except ConflictError:
            self.load()
            if len(self.edits) == known:  # the rows that are there are damaged: go on after them
                self._unreadable = 2 * self._unreadable + 1
            raise
        if self._unreadable or any(isinstance(edit.change, Forgotten) for edit in edits):
            self.load()
        else:  # their numbers were free, so there is no other edit between
            self.edits += (editing.from_json(row.data) for row in rows)
            self._last_record = numbers[-1]

    def _make_rows(self, edits: Sequence[Edit], *, time: int) -> list[Record]:
        newest = tuple(item.id for item in self.history[-1:] if item.id)
        rows: list[Record] = []
        for number, edit in enumerate(edits, start=self.next_edit):
            # An edit holds for histories with the message that is the newest one now, unless it names others.
            is_anchored = edit.anchors or isinstance(edit.change, Pinned | Forgotten)
            data = editing.to_json(edit if is_anchored else structs.replace(edit, anchors=newest))
            rows.append(Record(scope=self.scope, kind=EDIT, key=f"{number:08d}", data=data, time=time, is_new=True))
        return rows

    def record_turn(
        self, report: ContextReport, *, time: int, edits: tuple[int, int] | None, limit: int, provider: str
    ) -> None:
        """Record the report of a turn, and how its window can be made again where its `edits` were recorded."""
        key = f"{report.turn:08d}:{self.memory.new_id()}"  # another process may be at the same turn
        rows = [Record(scope=self.scope, kind=TURN, key=key, data=report.to_json(), time=time, is_durable=False)]
        base, before = self.recorded
        numbers = list(self.numbers)
        if edits is not None:
            kept = _count_equal(before, numbers)
            source = WindowSource(
                base=base if kept else "",
                kept=kept,
                added=tuple(numbers[kept:]),
                system=tuple(item.id for item in self.system),
                edits=edits,
                limit=limit,
                provider=provider,
                window=report.raw_max_tokens,
                sizes=tuple(part.tokens for part in report.categories),
                changes=tuple(change.kind for change in report.changes),
            )
            data = structs.asdict(source)
            rows.append(Record(scope=self.scope, kind=WINDOW, key=key, data=data, time=time, is_durable=False))
        self.memory.store.add_records(rows)
        if edits is not None:
            self.recorded = (key, numbers)

    def record_after_others(
        self, edits: Sequence[Edit], *, time: int, beside: Sequence[Job] = (), check: Callable[[], None] = lambda: None
    ) -> None:
        """Record edits after those that other processes record meanwhile. `check` raises where they no longer hold."""
        for _ in range(MAX_TRIES - 1):
            check()
            with suppress(ConflictError):
                return self.record(edits, time=time, beside=beside)
        check()
        return self.record(edits, time=time, beside=beside)


def branch_edits(edits: Sequence[Edit], present: set[int]) -> list[Edit]:
    """The edits of a branch: a client that goes back no longer has a message that an edit is anchored to."""
    gone = {number for edit in edits if isinstance(edit.change, Forgotten) for number in edit.ids}
    known = present | gone if gone else present
    absent = [edit for edit in edits if edit.anchors and known.isdisjoint(edit.anchors)]
    if not absent:  # the most frequent case
        return list(edits)
    first = min(present - {0}, default=0)  # a client that drops old messages itself has only newer ones
    lost = {id(edit) for edit in absent if max(edit.anchors) >= first}
    return [edit for edit in edits if id(edit) not in lost]


def _count_equal(before: Sequence[object], now: Sequence[object]) -> int:
    """Count how many values two lists begin with alike."""
    known = min(len(before), len(now))
    if before == now[: len(before)]:  # most often the old list is the beginning of the new one
        return known
    return next((at for at, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), known)


def _is_system(given: Message | Mapping[str, Any]) -> bool:
    role = given.role if isinstance(given, Message) else given.get("role")
    return role in {"system", "developer"}


def _unforgotten(history: Sequence[Item]) -> Sequence[Item]:
    """History without messages that were forgotten, save those since the user last spoke: they are being asked."""
    if all(item.id or item.kind != "message" for item in history):
        return history
    asked = max((place for place, item in enumerate(history) if item.message.role == "user"), default=0)
    return [item for place, item in enumerate(history) if item.id or item.kind != "message" or place >= asked]


def _estimate_size(message: Message | Mapping[str, Any]) -> int:
    """Estimate the bytes that a message takes: its strings, which all of its forms share, and objects around them."""
    return MESSAGE_BYTES + _measure_strings(message)


def _measure_strings(value: Any) -> int:
    if isinstance(value, str):
        size = sys.getsizeof(value)
        return 2 * size if value.startswith("data:") else size  # the picture in a data URL is kept without its head too
    if isinstance(value, Mapping):
        return sum(map(_measure_strings, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_measure_strings, value))
    if is_dataclass(value):
        names = (one.name for one in fields(value) if one.name != "origin")
        return sum(_measure_strings(getattr(value, name)) for name in names)
    return 0


def _copy(value: Any) -> Any:
    """A message that its caller can no longer change."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value
