"""The history of a session: the messages that the client sent, archived and numbered.

A client sends its whole conversation with every request. `History.update` compares it with the last one, so that only
new messages are read, stripped of recalled text, masked, archived and counted. Internal: `Session` is the public
object, and its lock guards every use.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import chain, groupby
from typing import Any, Final, TypeAlias

from holdfast import providers
from holdfast.context.edits import Item, drop_forgotten, make_items
from holdfast.errors import FormatError
from holdfast.memory import archive, exclusion
from holdfast.memory.archive import NO_MASKS, AppendResult, Key, Masks, unwrap
from holdfast.memory.memory import Memory
from holdfast.memory.query import select_texts
from holdfast.messages import Message, count_equal, same, units
from holdfast.providers import Incoming
from holdfast.store.base import MessageRow, Scope, Select
from holdfast.tokens import TokenCounter

MAX_REPLIES: Final = 20
"""How many of the last replies decide how much is reserved for the next one."""
MAX_LOGS: Final = 16
"""How many requests of one session may wait for a reply at once. Each has a history that a reply may follow."""
MAX_LOG_KEYS: Final = 4096
"""How many messages at the end of each of these histories are compared with appended messages.

A client may append its whole history instead of only a reply.
"""
MESSAGE_BYTES: Final = 2_000
"""Bytes of a message in addition to its strings.

`tracemalloc` measured 1,400 to 2,000; see tests/behaviour/test_kept_sessions.py.
"""

Given: TypeAlias = Message | Mapping[str, Any]
"""A message as the client sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """The result of `History.update`.

    Attributes:
        new: The messages that the last request did not have, without the system prompt.
        stripped: One line for each new message from which recalled text was removed.
        is_continued: Whether the history begins like that of the last request.
    """

    new: tuple[Message, ...]
    stripped: tuple[str, ...]
    is_continued: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The new messages of a history that continues the last one. They are not archived.

    Attributes:
        system: The system prompt.
        forms: For a known message that comes in another form, by its address (`id()`), the message as it comes now.
        new: The messages after those of the last request.
    """

    system: tuple[Item, ...]
    forms: Mapping[int, Message]
    new: tuple[Item, ...]

    def renew(self, item: Item) -> Item:
        """Return an item of the last window with its message in the form in which it comes now."""
        message = self.forms.get(id(item.message))
        if message is None:
            return item
        return replace(item, message=message)


@dataclass(frozen=True, slots=True, eq=False)
class _Log:
    """The end of a history that was sent, and what was appended to it.

    Attributes:
        keys: The keys of its messages; of a long history only those of the last ones.
        start: The place of the first message, if there are no keys.
        caller: The thread or task that sent it; None if it cannot be distinguished from others.
        is_waiting: Whether the history was that of a request, and nothing was appended to it yet.
        has_twin: Whether a reply was appended to the same history for another request.
    """

    keys: Sequence[Key]
    start: str = archive.FIRST
    caller: object = None
    is_waiting: bool = False
    has_twin: bool = False

    @property
    def place(self) -> str:
        """The place of the message that comes next."""
        if self.keys:
            return self.keys[-1].next_nonce
        return self.start

    def is_after(self, other: _Log) -> bool:
        """Return whether this history continues the other one."""
        return self is not other and bool(other.keys) and other.keys[-1] in self.keys


class History:
    """The messages of a session, as the client last sent them and as they are archived.

    Attributes:
        system: The system prompt of the last request.
        messages: The messages after it that are not only recalled text, archived and counted.
        numbers: The archive numbers of `messages`; 0 for those that were forgotten.
    """

    def __init__(self, scope: Scope, memory: Memory, count: TokenCounter) -> None:
        self.scope = scope
        self.memory = memory
        self.count = count
        self.system: list[Item] = []
        self.messages: list[Item] = []
        self.numbers: list[int] = []
        # The last request as the client sent it. These are copies: the client may change its own objects later.
        self._given_system: list[Given] = []
        self._given: list[Given] = []
        # For each message of `_given`, whether it is in `messages`, and its estimated bytes.
        self._is_own: list[bool] = []
        self._sizes: list[int] = []
        self._system_size = 0
        self._keys: list[Key] = []  # of `messages`
        self._logs: list[_Log] = []  # newest last

    def copy(self) -> History:
        """Return a history with lists of its own: a thread that hangs in the store may change the old ones later."""
        copied = History(self.scope, self.memory, self.count)
        copied.system = self.system.copy()
        copied.messages = self.messages.copy()
        copied.numbers = self.numbers.copy()
        copied._given_system = self._given_system.copy()
        copied._given = self._given.copy()
        copied._is_own = self._is_own.copy()
        copied._sizes = self._sizes.copy()
        copied._system_size = self._system_size
        copied._keys = self._keys.copy()
        copied._logs = self._logs.copy()
        return copied

    def renew(self) -> History:
        """Return an empty history that keeps the list of requests that wait for a reply."""
        renewed = History(self.scope, self.memory, self.count)
        renewed._logs = self._logs
        return renewed

    @property
    def held_bytes(self) -> int:
        """The bytes that the history takes, estimated. Threads without the lock of the session may ask too."""
        return self._system_size + sum(self._sizes)

    @property
    def items(self) -> list[Item]:
        """The system prompt and the messages, without forgotten ones."""
        return [*self.system, *drop_forgotten(self.messages)]

    @property
    def newest_number(self) -> int:
        """The archive number of the newest message; 0 if there is none or it was forgotten."""
        if not self.numbers:
            return 0
        return self.numbers[-1]

    def measure_longest_reply(self, *, scale: float) -> int:
        """Return the provider's tokens of the longest of the last replies; 0 if there is none.

        Thinking that the provider does not send is only in the usage that it reports.

        Args:
            scale: How many tokens the provider counts for each of ours.
        """
        longest = 0
        replies = 0
        # Several messages of the assistant in a row are one reply.
        for role, group in groupby(reversed(self.messages), key=lambda item: item.message.role):
            if role != "assistant":
                continue
            reply = 0
            for item in group:
                estimated = int(scale * item.tokens)
                usage = item.message.usage
                if usage is None:
                    reply += estimated
                else:
                    reply += max(estimated, usage.output)
            longest = max(longest, reply)
            replies += 1
            if replies == MAX_REPLIES:
                break
        return longest

    # --- reading a request -----------------------------------------------------------

    def mask_ahead(self, given: Sequence[Incoming], *, format: str | None = None) -> Masks:
        """Mask the new messages of a history. The caller does not hold the lock of the session.

        Searching hostile text takes long. If another request changes the history meanwhile, or a message contains
        recalled text, the result is not used, and the message is masked when it is archived.
        """
        if not self.memory.settings.archive.redaction:
            return NO_MASKS
        try:
            messages = self._normalise(given)
            leading = _count_system(messages)
            parts: list[Sequence[Given]] = []
            if _has_changed(self._given_system, messages[:leading]):
                parts.append(messages[:leading])
            before = self._given.copy()  # without the lock of the session, it may become shorter meanwhile
            history = messages[leading:]
            known = before[: count_equal(before, history)]
            parts.append(history[_count_unchanged(known, history) :])
            read: list[Message] = []
            for part in parts:
                if part:
                    read += providers.read(_copy(part), format=format)
            return Masks(read)
        except FormatError:  # it is raised, and reported, when the messages are archived
            return NO_MASKS

    def mask_reply_ahead(self, given: Sequence[Incoming], *, format: str | None = None) -> Masks:
        """Mask messages that will be appended, as `mask_ahead` does."""
        if not self.memory.settings.archive.redaction:
            return NO_MASKS
        try:
            return Masks(_read_reply(given, format))
        except FormatError:  # as above
            return NO_MASKS

    def update(self, given: Sequence[Incoming], *, format: str | None = None, masks: Masks = NO_MASKS) -> Update:
        """Compare the messages of a request with those of the last one, and archive the new ones, durably.

        The format of each message is detected, unless `format` names one. The system prompt is compared separately,
        because many clients put the date into it.
        """
        stripped: list[str] = []
        messages = self._normalise(given)
        leading = _count_system(messages)
        if _has_changed(self._given_system, messages[:leading]):
            stripped += self._update_system(messages[:leading], format=format, masks=masks)
        history = messages[leading:]
        known = count_equal(self._given, history)
        # A message that comes in another form, such as without its cache mark, is known. But it is read again, because
        # the window has the form that the client sends now: with all earlier marks too, a provider would refuse it.
        unchanged = _count_unchanged(self._given[:known], history)
        if unchanged < len(self._given):
            self._go_back(unchanged)
        new = _copy(history[unchanged:])
        read, removed = self._read(new, format)
        stripped += removed
        own = [message for message in read if message is not None]
        numbers, keys = self._archive(self._mask(own, masks), before=self._keys)
        # Nothing above this line adds to the lists: if archiving fails, the next request archives the same messages.
        self._given += new
        self._sizes += map(_estimate_size, new)
        for message in read:
            self._is_own.append(message is not None)
        self._keys += keys
        self._add_log(_Log(self._keys[-MAX_LOG_KEYS:]))
        self.messages += make_items(own, numbers, count=self.count)
        self.numbers += numbers
        # Those that are only in another form are not new.
        later = tuple(message for message in read[known - unchanged :] if message is not None)
        return Update(new=later, stripped=tuple(stripped), is_continued=known > 0)

    def _update_system(self, given: Sequence[Given], *, format: str | None, masks: Masks) -> list[str]:
        """Archive a system prompt that has changed; return what was stripped from it."""
        new = _copy(given)
        read, stripped = self._read(new, format)
        own = [message for message in read if message is not None]
        numbers, _ = self._archive(self._mask(own, masks))
        self.system = []
        for item in make_items(own, numbers, count=self.count):
            if item.kind == "system":
                self.system.append(item)
        self._given_system = new
        self._system_size = sum(map(_estimate_size, new))
        return stripped

    def _go_back(self, known: int) -> None:
        """Drop the messages after the first `known` ones: the client no longer sends them."""
        left = self._is_own[:known].count(True)
        del self._given[known:]
        del self._is_own[known:]
        del self._sizes[known:]
        del self.messages[left:]
        del self.numbers[left:]
        del self._keys[left:]

    def restore(self) -> None:
        """Use the archived messages as the history if no request has brought one yet."""
        if self._given or self.messages:
            return
        rows: list[MessageRow] = self.memory.store.read_messages(Select(scope=self.scope))
        rows = [row for row in rows if row.message.role != "system"]
        messages = [row.message for row in rows]
        self._given = list(messages)
        self._is_own = [True] * len(messages)
        self._sizes = list(map(_estimate_size, messages))
        self._keys = [Key(row.message.digest, row.nonce) for row in rows]
        self.numbers = [row.id for row in rows]
        self.messages = make_items(messages, self.numbers, count=self.count)

    def forget(self, numbers: Collection[int]) -> None:
        """Take the numbers off messages that were forgotten. The client still sends them."""
        if not numbers:
            return
        for index, item in enumerate(self.messages):
            if item.id in numbers:
                self.messages[index] = replace(item, id=0)
        self.numbers = [item.id for item in self.messages]

    def read_continuation(self, given: Sequence[Incoming], *, format: str | None = None) -> Continuation | None:
        """Read the new messages of a history that continues that of the last request; None for any other history."""
        messages = providers.normalise(given)
        leading = _count_system(messages)
        history = messages[leading:]
        known = len(self._given)
        if not known or list(history[:known]) != self._given:
            return None
        read = providers.read([*messages[:leading], *history[known:]], format=format)
        items = make_items(read, [0] * len(read), count=self.count)
        forms: dict[int, Message] = {}
        for old, new in zip(self._given, history[:known], strict=True):
            if old is not new and isinstance(old, Message) and isinstance(new, Message):
                forms[id(old)] = new
        return Continuation(system=tuple(items[:leading]), forms=forms, new=tuple(items[leading:]))

    def read_unarchived(self, given: Sequence[Incoming], *, format: str | None = None) -> list[Item]:
        """Read a history without the store.

        Messages that were archived before keep their numbers. The others get negative ones, so that a plan can name
        them; no edit of them may be recorded.
        """
        read, _ = archive.strip_recalled(providers.read(given, format=format), self.memory.known_marks)
        messages = [message for message in read if message is not None]
        leading = _count_system(messages)
        archived: list[Item] = []
        for item, message in zip(self.messages, messages[leading:], strict=False):
            if item.message.digest != message.digest:
                break
            archived.append(replace(item, message=message))  # in the form in which it comes now
        rest = messages[leading + len(archived) :]
        return [
            *make_items(messages[:leading], [0] * leading, count=self.count),
            *archived,
            *make_items(rest, range(-1, -1 - len(rest), -1), count=self.count),
        ]

    # --- replies -----------------------------------------------------------------------

    def begin_request(self, *, caller: object) -> str:
        """Expect a reply to the history of the last update; return its place in the conversation."""
        *others, log = self._logs
        kept: list[_Log] = []
        for other in others:
            if other.caller is None or other.caller != caller:
                kept.append(other)
            elif other.place != log.place:
                # A caller makes one request at a time, so this one is over. But another caller may still append its
                # reply. A request with the same place was only made again: it gets one reply, and is dropped here.
                kept.append(replace(other, caller=None))
        self._logs = [*kept, replace(log, caller=caller, is_waiting=True)]
        return log.place

    def append(
        self,
        given: Sequence[Incoming],
        *,
        format: str | None = None,
        caller: object = None,
        after: str | None = None,
        masks: Masks = NO_MASKS,
    ) -> tuple[AppendResult, list[Message]]:
        """Archive messages that follow those of the session, such as a reply; return the numbers and the new messages.

        They follow the request with the place `after`, else a request of the caller. If the session ends with some of
        them already, these are not archived again. A single user message is always new, unless it has an id or a
        timestamp: users repeat themselves.
        """
        read, stripped = archive.strip_recalled(_read_reply(given, format), self.memory.marks)
        own = [message for message in read if message is not None]
        if not own:
            return AppendResult((), stripped=stripped, place=after or ""), own
        masked = self._mask(own, masks)
        log, placing = self._choose_log(masked, caller=caller, after=after)
        repeated = 0
        if not after:  # a place that the caller names identifies the messages
            repeated = self._count_repeated(masked, log.keys)
        before = log.keys[: len(log.keys) - repeated]
        place = log.start
        if log.keys:
            place = archive.FIRST
        numbers, keys = self._archive(masked, before=before, place=place, placing=placing)
        all_keys = log.keys
        if len(before) + len(keys) >= len(log.keys):  # not if the messages repeat only a part of the history
            all_keys = [*before, *keys]
        self._remove_log(log)
        self._add_log(_Log(all_keys[-MAX_LOG_KEYS:]))
        result = AppendResult(numbers, stripped=stripped, place=self._logs[-1].place)
        return result, own[_count_known(keys, log.keys) :]

    def exclude_broken(self, numbers: Sequence[int]) -> None:
        """Exclude an incomplete reply from recall until it is repeated.

        If a history contained the same reply before, its archived message is not marked as broken and stays as it is.
        """
        rows: list[MessageRow] = self.memory.store.read_messages(Select(scope=self.scope, ids=tuple(numbers)))
        broken = [row for row in rows if row.message.is_broken]
        exclusion.exclude(self.memory.store, broken, excluded=True, time=self.memory.clock(), until_repeated=True)

    def _choose_log(self, own: Sequence[Message], *, caller: object, after: str | None) -> tuple[_Log, archive.Placing]:
        """Choose the history that messages follow, and return whether that is certain.

        A caller that waits for a reply appends that reply. Another caller may have received any of the replies; a
        history that already contains the reply shows which request it answers.

        If the chosen history continues that of a waiting request, it already contains the reply to that request, and
        the same words again are another message. There is one exception: if callers that cannot be distinguished made
        the same request twice, and one reply was appended, the other reply may still come.
        """
        if after:
            for log in reversed(self._logs):
                if log.place == after:
                    return log, "certain"
            return _Log([], start=after), "certain"
        if not self._logs:
            rows = archive.newest_messages(self.memory.store, self.scope, limit=len(own) + 1)
            return _Log([Key(row.message.digest, row.nonce) for row in rows]), "likely"
        waiting = [log for log in self._logs if log.is_waiting]
        mine = [log for log in waiting if log.caller is not None and log.caller == caller]
        chosen = self._logs[-1]
        if mine:
            chosen = mine[-1]
        # An empty place is that of a request for which memory failed: its history is not among the logs.
        if waiting == [chosen] and after is None:
            return chosen, "certain"
        candidates: list[_Log] = []
        for log in waiting:
            may_be_mine = not mine or log.caller is None or log.caller == caller
            may_still_come = log.has_twin and caller is None
            if may_be_mine and (may_still_come or not chosen.is_after(log)):
                candidates.append(log)
        if candidates and own[0].role != "user":  # a reply may be archived already, from the history of a later request
            archived = self.memory.store.find(self.scope, [own[0].digest]).numbers.get(own[0].digest, {})
            for log in (chosen, *candidates):
                if not archived.keys().isdisjoint(archive.nonces_of(log.place)):
                    return log, "likely"
        return chosen, "likely"

    def _remove_log(self, answered: _Log) -> None:
        """Remove the log of a request that has its reply, and mark those of requests with the same history."""
        left: list[_Log] = []
        for log in self._logs:
            if log is answered:
                continue
            if log.is_waiting and log.place == answered.place:
                log = replace(log, has_twin=True)  # noqa: PLW2901 - the marked log takes its place
            left.append(log)
        self._logs = left

    def _add_log(self, log: _Log) -> None:
        """Add the newest log, and drop the others unless their requests still wait for a reply."""
        waiting = [other for other in self._logs if other.is_waiting]
        self._logs = [*waiting, log][-MAX_LOGS:]

    def _count_repeated(self, own: Sequence[Message], log: Sequence[Key]) -> int:
        """Count how many of the last known messages the new ones begin with."""
        digests = [message.digest for message in own]
        if len(own) > 1 and self._is_first(digests[0]):
            return len(log)  # it is the whole history, from its first message on
        if len(own) == 1 and own[0].role == "user":  # the user may say the same words twice
            return 0
        known = [key.digest for key in log]
        for size in range(min(len(known), len(digests)), 0, -1):
            if known[-size:] == digests[:size]:
                return size
        return 0

    def _is_first(self, digest: str) -> bool:
        """Return whether the session begins with this message, or did so before the message was forgotten."""
        known = self.memory.store.find(self.scope, [digest])
        nonces = known.numbers.get(digest, {})
        for place in archive.follow_forgotten(archive.FIRST, known.forgotten):
            for nonce in archive.nonces_of(place):
                if nonce in nonces:
                    return True
        return False

    # --- questions about the history -----------------------------------------------------

    def detect_format(self, *, default: str) -> str:
        """Name the format of the newest message that shows one."""
        return providers.format_of([item.message for item in self.messages], default=default)

    def find_question(self, *, max_messages: int, newest: str = "") -> tuple[str, ...]:
        """Return what the user asks, newest last: the newest message, and earlier ones if it has too few words.

        Messages without words are skipped. `newest` is a question that is not in the history yet.
        """
        users = (item.message for item in reversed(self.messages) if item.message.role == "user")
        texts = (unwrap(message.text) for message in users)  # read one by one: most questions need only the newest
        return select_texts(chain((unwrap(newest),), texts), max_texts=max_messages)

    def find_question_numbers(self, texts: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of the messages whose texts `find_question` returned, in the same order.

        A question that is not in the history has none.
        """
        left = list(texts)
        numbers: list[int] = []
        for item in reversed(self.messages):
            if not left:
                break
            if item.message.role != "user":
                continue
            text = unwrap(item.message.text)
            if not text.strip():
                continue
            if text != left[-1]:
                left.pop()  # the caller sends this question after the history
            if not left or text != left[-1]:
                break
            left.pop()
            numbers.append(item.id)
        return tuple(reversed(numbers))

    def add_pairs(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Add the messages that these cannot be sent without: the call of a result, and the results of a call."""
        wanted = set(ids)
        for unit in units([item.message for item in self.messages]):
            together = {item.id for item in self.messages[unit.start : unit.stop]}
            if not together.isdisjoint(wanted):
                wanted |= together
        return tuple(sorted(wanted - {0}))

    # --- shared --------------------------------------------------------------------------

    def _normalise(self, given: Sequence[Incoming]) -> Sequence[Given]:
        return providers.normalise(given, known=self._given, first=len(self._given_system))

    def _read(self, given: Sequence[Given], format: str | None) -> tuple[list[Message | None], list[str]]:
        """Read messages, None for those that were nothing but recalled text; also list what was removed."""
        return archive.strip_recalled(providers.read(given, format=format), self.memory.marks)

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
        archived = archive.append(
            self.memory.store,
            masked,
            scope=self.scope,
            time=self.memory.clock(),
            before=before,
            place=place,
            marks=self.memory.marks,
            placing=placing,
        )
        replies: set[int] = set()
        for number, message in zip(archived.numbers, masked, strict=True):
            if message.role == "assistant" and number in archived.repeated:
                replies.add(number)
        if replies:  # a broken reply that is repeated may be recalled from now on: see `exclude_broken`
            exclusion.include_repeated(self.memory.store, self.scope, replies, time=self.memory.clock())
        return archived.numbers, archived.keys


def _read_reply(given: Sequence[Incoming], format: str | None) -> list[Message]:
    return providers.read(_copy(providers.normalise(given)), format=format, keep_malformed=True)


def _count_system(messages: Sequence[Given]) -> int:
    """Count the system messages that a conversation begins with."""
    count = 0
    for message in messages:
        role: object
        if isinstance(message, Message):
            role = message.role
        else:
            role = message.get("role")
        if role not in {"system", "developer"}:
            break
        count += 1
    return count


def _has_changed(before: Sequence[Given], now: Sequence[Given]) -> bool:
    """Return whether two system prompts differ, or come in different forms."""
    if list(before) != list(now):
        return True
    return _count_unchanged(before, now) < len(before)


def _count_unchanged(known: Sequence[Given], now: Sequence[Given]) -> int:
    """Count how many known messages a history begins with in the form in which they came before."""
    for index, (old, new) in enumerate(zip(known, now, strict=False)):
        if old is not new and not _has_same_form(old, new):
            return index
    return len(known)


def _has_same_form(old: Given, new: Given) -> bool:
    """Return whether two equal messages are rendered the same."""
    if not isinstance(old, Message) or not isinstance(new, Message):
        return True  # a dict is its own form
    return old.digest == new.digest and same(_find_form(old), _find_form(new))


def _find_form(message: Message) -> Mapping[str, Any] | None:
    """Return the form that a message was read from; None if it was not read."""
    if message.origin is None:
        return None
    return message.origin.data


def _estimate_size(message: Given) -> int:
    """Estimate the bytes that a message takes: its strings, which all of its forms share, and objects around them."""
    return MESSAGE_BYTES + _measure_strings(message)


def _measure_strings(value: Any) -> int:
    if isinstance(value, str):
        size = sys.getsizeof(value)
        if value.startswith("data:"):  # the picture in a data URL is kept without its head too
            return 2 * size
        return size
    if isinstance(value, Mapping):
        return sum(map(_measure_strings, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_measure_strings, value))
    if is_dataclass(value):
        size = 0
        for attribute in fields(value):
            if attribute.name != "origin":  # the wire form, whose strings are those of the message
                size += _measure_strings(getattr(value, attribute.name))
        return size
    return 0


def _copy(value: Any) -> Any:
    """Copy a message, so that its caller can no longer change it."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def _count_known(keys: Sequence[Key], log: Sequence[Key]) -> int:
    """Count the messages up to the last one that a history contains already."""
    known = set(log)
    for count in range(len(keys), 0, -1):
        if keys[count - 1] in known:
            return count
    return 0
