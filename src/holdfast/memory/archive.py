"""The archive: stores every message word for word, with secrets masked, before anything else uses it.

A message becomes a row, and its searchable text becomes passages. Recalled blocks are removed first, so that memory is
never built from its own output. Noise (acknowledgements, heartbeats) is archived, but not indexed.

A message is archived once: if it comes again in the same place, with the same id or with the same time, it is the same
message if its digest is the same. Fields of a block that are not read into a part, such as the citations of a text, are
stored with the message but are not part of its digest. If a client sends a message again with other such fields, the
archive keeps those that came first; the window has those that the client sends.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from holdfast import patterns
from holdfast.host_text import remove_host_text, remove_notes
from holdfast.memory.block import NO_MARKS, Marks, strip_message, strip_text
from holdfast.messages import Message, Text, Thinking, ToolCall, ToolResult
from holdfast.redaction import redact_value
from holdfast.store.base import Known, MessageRow, PassageText, Scope, Select, Store
from holdfast.store.codec import encode_json, from_json, text_bytes, to_json
from holdfast.store.cutting import cut
from holdfast.text import is_unsegmented


class Key(NamedTuple):
    """The identity of an archived message in its session: the digest of its content, and a nonce."""

    digest: str
    nonce: str

    @property
    def next_nonce(self) -> str:
        """The nonce of a message that follows this one and has neither an id nor a time."""
        name = f"{_place_of(self.nonce)}\n{self.digest}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(name).hexdigest()
        return f"{FIRST}{digest[:32]}"


FIRST: Final = "after:"
"""The nonce of the first message of a session. Later messages have this prefix and a hash of all messages before."""
APPENDED: Final = "appended:"
"""The prefix, instead of `after:`, of the nonce of a message that was appended in a likely place.

If several requests wait for a reply, the reply is appended after the most likely one. A history that contains it in
another place contains the same message.
"""
ROWS_READ: Final = 64
"""How many archived messages, in addition to those of a history, are compared with a reply in another form."""
_THOUGHTS: Final = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
"""Tags around reasoning at the beginning of a reply's text. Clients remove it when they send the reply back."""
Placing: TypeAlias = Literal["history", "certain", "likely"]
"""The source of a message's position: a history, or an append after a known or a likely request."""


def _place_of(nonce: str) -> str:
    """Return the nonce that a history gives to a message in the same place."""
    if nonce.startswith(APPENDED):
        return FIRST + nonce.removeprefix(APPENDED)
    return nonce


def _appended_nonce(place: str) -> str:
    """Return the nonce of a message that was appended in a likely place."""
    return APPENDED + place.removeprefix(FIRST)


def nonces_of(place: str) -> tuple[str, str]:
    """Return both nonces that a message in a place can have: from a history, and appended."""
    return place, _appended_nonce(place)


class AppendResult(list[int]):
    """The numbers of messages that were archived.

    Attributes:
        stripped: The recalled text that was removed from them, one line for each message.
        place: The place after them, for `after` of `Session.append`; empty if it is not known.
    """

    def __init__(self, numbers: Iterable[int], *, stripped: Iterable[str] = (), place: str = "") -> None:
        super().__init__(numbers)
        self.stripped = tuple(stripped)
        self.place = place


def strip_recalled(messages: Sequence[Message], marks: Marks) -> tuple[list[Message | None], list[str]]:
    """Remove recalled text from messages; None for a message that contained nothing else.

    Also returns one line for each message that was changed.
    """
    own: list[Message | None] = []
    removed: list[str] = []
    for message in messages:
        stripped = strip_message(message, marks)
        own.append(stripped)
        if stripped is not message:
            characters = _size(message) - _size(stripped)
            removed.append(
                f"recalled text that came back was removed from a message ({message.role}): {characters:,} characters"
            )
    return own, removed


def _size(message: Message | None) -> int:
    if message is None:
        return 0
    return len(message.text) + sum(len(result.text) for result in message.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """Messages in the archive.

    Attributes:
        numbers: Their numbers.
        keys: Their keys.
        repeated: The numbers of those that were archived before.
    """

    numbers: list[int]
    keys: list[Key]
    repeated: frozenset[int]


def append(
    store: Store,
    messages: Sequence[Message],
    *,
    scope: Scope,
    time: int,
    before: Sequence[Key] = (),
    place: str = FIRST,
    marks: Marks = NO_MARKS,
    placing: Placing = "history",
) -> Archived:
    """Archive messages without recalled text, secrets masked.

    A message that is archived already keeps its number. One without a timestamp gets `time`, in Unix milliseconds.
    `before` are the keys of the messages before them, oldest first; at least the last one. If there are none, the
    first message is in `place`.
    """
    # Messages are identified up to three times. First by what their digests find, which is enough for a client that
    # sends its history again. If some are not found, again with more that is read from the archive. Last in the
    # transaction that writes them. Slow work, such as cutting text into passages, is done before the transaction, so
    # that it is short.
    looked_up = [message.digest for message in messages]
    if before:
        looked_up.append(before[-1].digest)
    found = store.find(scope, looked_up)
    keys = identify(messages, known=found, before=before, place=place, placing=placing)
    if _are_known(keys, found):  # nothing is written
        return _find_archived(keys, found)
    forms = _read_forms(store, scope, messages, keys, found, before=before, placing=placing)
    if forms:
        for replies in forms.values():
            looked_up += [reply.digest for reply in replies]
        found = store.find(scope, looked_up)
        keys = identify(messages, known=found, before=before, place=place, placing=placing, hints=Hints(forms=forms))
        if _are_known(keys, found):
            return _find_archived(keys, found)
    hints = replace(_read_hints(store, scope, messages, keys, found), forms=forms)
    passages: dict[Key, tuple[PassageText, ...]] = {}
    for message, key in zip(messages, keys, strict=True):
        if not _is_known(key, found):  # known ones, such as the last reply that a client sends again, have theirs
            passages[key] = tuple(passages_of(message, marks))

    repeated: set[int] = set()

    def make_rows(known: Known) -> list[MessageRow]:
        """Identify the messages again: no other writer comes between this and the rows."""
        repeated.clear()
        keys[:] = identify(messages, known=known, before=before, place=place, placing=placing, hints=hints)
        rows: list[MessageRow] = []
        for message, key in zip(messages, keys, strict=True):
            texts = passages.get(key, ())
            if _is_known(key, known):
                repeated.add(known.numbers[key.digest][key.nonce])
            elif key not in passages:  # another process has forgotten it meanwhile
                texts = tuple(passages_of(message, marks))
            row_message = message
            for form in forms.get(message.digest, ()):
                if form.digest == key.digest:  # the archived form of a reply does not change
                    row_message = form
                    break
            if row_message.timestamp is None:
                row_message = replace(row_message, timestamp=time)
            rows.append(MessageRow(scope=scope, message=row_message, nonce=key.nonce, passages=texts))
        return rows

    numbers = store.merge_messages(scope, looked_up, make_rows)
    return Archived(numbers=numbers, keys=keys, repeated=frozenset(repeated))  # as `make_rows` identified them


def _find_archived(keys: list[Key], known: Known) -> Archived:
    """Return messages that are archived already."""
    numbers = [known.numbers[key.digest][key.nonce] for key in keys]
    return Archived(numbers=numbers, keys=keys, repeated=frozenset(numbers))


def _is_known(key: Key, known: Known) -> bool:
    return key.nonce in known.numbers.get(key.digest, {})


def _are_known(keys: Iterable[Key], known: Known) -> bool:
    return all(_is_known(key, known) for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Data to identify messages that were not found in their place.

    Attributes:
        times: The times of archived messages, by number.
        newest: The number of the newest message of the session; 0 if it is not needed.
        forms: By the digest of a reply, the archived replies that it may repeat in another form, the likeliest first.
    """

    times: Mapping[int, int | None] = field(default_factory=dict)
    newest: int = 0
    forms: Mapping[str, Sequence[Message]] = field(default_factory=dict)


def _read_forms(
    store: Store,
    scope: Scope,
    messages: Sequence[Message],
    keys: Sequence[Key],
    known: Known,
    *,
    before: Sequence[Key],
    placing: Placing,
) -> dict[str, list[Message]]:
    """Read the archived replies that unknown replies may repeat in another form; usually there are none."""
    unknown: list[Message] = []
    for message, key in zip(messages, keys, strict=True):
        if message.role == "assistant" and not _is_known(key, known):
            unknown.append(message)
    if not unknown:
        return {}
    after = None
    if before:
        after = known.numbers.get(before[-1].digest, {}).get(before[-1].nonce)
    rows = _read_near(store, Select(scope=scope, after=after, limit=ROWS_READ + 4 * len(messages)))
    replies = {row.message.digest: row.message for row in rows if row.message.role == "assistant"}
    contents = {digest: ReplyContent.read([reply]) for digest, reply in replies.items()}
    forms: dict[str, list[Message]] = {}
    for message in unknown:
        own = ReplyContent.read([message])
        ids = [call.id for call in message.calls]
        same_ids: list[Message] = []
        other_ids: list[Message] = []
        for digest, reply in replies.items():
            if digest == message.digest or not own.repeats(contents[digest]):
                continue
            if [call.id for call in reply.calls] == ids:
                same_ids.append(reply)
            elif placing == "history":  # a reply from the provider with other ids is another reply
                other_ids.append(reply)
        if same_ids or other_ids:
            forms[message.digest] = same_ids + other_ids
    return forms


def _read_near(store: Store, select: Select) -> list[MessageRow]:
    """Read the rows after a number up to the limit, and the newest rows up to the same limit."""
    first: list[MessageRow] = []
    if select.after is not None:
        first = store.read_messages(select)
        if select.limit is None or len(first) < select.limit:
            return first
    return [*first, *store.read_messages(replace(select, newest=True))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyContent:
    """The content of a reply, in a form that does not change when a client sends the reply back.

    Clients drop the reasoning, trim spaces, join parts, reformat the arguments of tool calls and rename the calls.

    Attributes:
        text: Its text without whitespace.
        calls: The names of its tool calls, with their arguments as JSON.
        rest: Its reasoning and everything else, without whitespace.
    """

    text: str
    calls: tuple[tuple[str, str], ...]
    rest: str

    @classmethod
    def read(cls, messages: Sequence[Message]) -> ReplyContent:
        """Read the messages of one reply."""
        words: list[str] = []
        calls: list[tuple[str, str]] = []
        rest: list[str] = []
        for message in messages:
            text = "".join(part.text for part in message.parts if isinstance(part, Text))
            thoughts, answer = _split_thoughts(text)
            words.append(answer)
            rest.append(thoughts)
            for part in message.parts:
                match part:
                    case Text():
                        pass
                    case ToolCall():
                        calls.append((part.name, _normalise_arguments(part.arguments)))
                    case Thinking():
                        rest.append(part.text)
                    case _:
                        rest.append(repr(part))
        return cls(text=_squeeze(words), calls=tuple(calls), rest=_squeeze(rest))

    def repeats(self, archived: ReplyContent) -> bool:
        """Return whether this repeats an archived reply and adds nothing to it."""
        if self.calls != archived.calls or self.rest not in archived.rest:
            return False
        if self.calls and not self.text:  # some clients keep only the calls
            return True
        return self.text == archived.text


def _squeeze(texts: Iterable[str]) -> str:
    return "".join("".join(text.split()) for text in texts)


def _split_thoughts(text: str) -> tuple[str, str]:
    """Split reasoning at the beginning of a text from the answer."""
    for opening, closing in _THOUGHTS:
        thoughts, is_closed, answer = text.partition(closing)
        thoughts = thoughts.lstrip()
        if is_closed and thoughts.startswith(opening):
            return thoughts.removeprefix(opening), answer
    return "", text


def _normalise_arguments(arguments: Mapping[str, Any] | str) -> str:
    value: Any = arguments
    if isinstance(arguments, str):
        if not arguments.strip():  # a call without arguments comes back with an empty object
            arguments = "{}"
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return arguments.strip()
    return json.dumps(_normalise_numbers(value), sort_keys=True, default=str)


def _normalise_numbers(value: Any) -> Any:
    """Write whole numbers without a fraction: a client that parses JSON may send 1.0 back as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, Mapping):
        return {key: _normalise_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_normalise_numbers(item) for item in value]
    return value


def _read_hints(store: Store, scope: Scope, messages: Sequence[Message], keys: Sequence[Key], known: Known) -> Hints:
    """Read what identifies messages that were not found in their place; usually nothing."""
    missing = {key.digest for key in keys if not _is_known(key, known)}
    has_known = any(_is_known(key, known) for key in keys)
    numbers: set[int] = set()
    for message in messages:
        if message.timestamp is not None and message.digest in missing:
            numbers.update(known.numbers.get(message.digest, {}).values())
    times: dict[int, int | None] = {}
    if numbers - {0}:
        rows: list[MessageRow] = store.read_messages(Select(scope=scope, ids=tuple(sorted(numbers))))
        times = {row.id: row.message.timestamp for row in rows}
    newest = 0
    if not has_known and known.numbers.get(keys[-1].digest):
        for row in newest_messages(store, scope, limit=1):
            newest = row.id
    return Hints(times=times, newest=newest)


def newest_messages(store: Store, scope: Scope, *, limit: int) -> list[MessageRow]:
    """Read the newest messages of a session, oldest first, without system prompts."""
    wanted = limit
    while True:
        rows: list[MessageRow] = store.read_messages(Select(scope=scope, newest=True, limit=wanted))
        messages = [row for row in rows if row.message.role != "system"]
        if len(messages) >= limit or len(rows) < wanted:
            return messages[-limit:]
        wanted *= 2


def identify(
    messages: Sequence[Message],
    *,
    known: Known,
    before: Sequence[Key] = (),
    place: str = FIRST,
    placing: Placing = "history",
    hints: Hints = Hints(),
) -> list[Key]:
    """Give each message its key; for the arguments see `append`.

    A message is identified by its id, by its time, or by its place: the same content after the same messages is the
    same message, and the same content elsewhere is not. A forgotten message before it may be missing. A client that
    changes or drops older messages moves the messages that follow. These are recognised by the message after them, or
    by the ids of their tool calls. An appended message is recognised in any later place. A reply that the client sends
    back in another form gets the key of the archived one.
    """
    keys: list[Key] = []
    digests = [message.digest for message in messages]
    among = frozenset(digests)
    used = {key for key in before if key.digest in among}
    last = 0
    if before:
        place = before[-1].next_nonce
        last = known.numbers.get(before[-1].digest, {}).get(before[-1].nonce, 0)
    has_known = bool(before)
    follows_known = bool(before)
    branches = _Branches(digests, known)
    for index, message in enumerate(messages):
        forms = _digests_of_forms(digests[index], hints)
        places = follow_forgotten(place, known.forgotten)
        # The usual case: it is archived with its id, or in the same place.
        key = None
        for candidate in _keys_in_place(message, places, forms):
            if _is_known(candidate, known) and candidate not in used:
                key = candidate
                break
        if key is None:
            # Not before the loop: if all messages have the same content, listing them for each takes quadratic time.
            free = _find_unused(forms, known, used)
            if message.timestamp is not None:  # it was read from the archive
                key = _find_sent_at(message.timestamp, free, hints)
        # The client has changed or dropped messages before it. One with an id or a time was found above, if at all.
        if key is None and _own_nonce(message) is None:
            following: dict[str, int] = {}
            if index + 1 < len(digests):
                for digest in _digests_of_forms(digests[index + 1], hints):
                    following |= known.numbers.get(digest, {})
            can_adopt = placing == "history" and follows_known
            key = _find_moved(message, free, following, last=last, can_adopt=can_adopt)
            if key is None:
                key = branches.find(index, free, last=last)
            is_last = index + 1 == len(messages)
            if key is None and is_last and not has_known and placing != "certain":
                # The message is all that is left of a history.
                key = _find_number(hints.newest, free)
        follows_known = key is not None
        if key is not None:
            has_known = True
            last = known.numbers[key.digest][key.nonce] or last
        else:
            key = _make_key(message, places[-1], used, placing=placing)
        keys.append(key)
        used.add(key)
        place = key.next_nonce
    return keys


def _make_key(message: Message, place: str, used: Container[Key], *, placing: Placing) -> Key:
    """Make the key of a message that is not in the archive."""
    digest = message.digest
    nonce = _own_nonce(message)
    if nonce is None or Key(digest, nonce) in used:
        nonce = place
        if placing == "likely":
            nonce = _appended_nonce(place)
    key = Key(digest, nonce)
    while key in used:  # the same words several times in a history
        key = Key(digest, key.next_nonce)
    return key


def _digests_of_forms(digest: str, hints: Hints) -> list[str]:
    """Return the digest of a message, and those of the archived replies that it may repeat in another form."""
    return [digest, *(form.digest for form in hints.forms.get(digest, ()))]


def _find_unused(digests: Iterable[str], known: Known, used: Container[Key]) -> dict[Key, int]:
    """Return the archived messages with one of these digests that no other message was identified with."""
    unused: dict[Key, int] = {}
    for digest in digests:
        for nonce, number in known.numbers.get(digest, {}).items():
            key = Key(digest, nonce)
            if key not in used:
                unused[key] = number
    return unused


def _find_sent_at(time: int, free: Mapping[Key, int], hints: Hints) -> Key | None:
    for key, number in free.items():
        if hints.times.get(number) == time:
            return key
    return None


def _find_number(wanted: int, free: Mapping[Key, int]) -> Key | None:
    if wanted == 0:
        return None
    for key, number in free.items():
        if number == wanted:
            return key
    return None


def follow_forgotten(place: str, forgotten: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a place, and those after forgotten messages there: a client may have dropped them."""
    places = [place]
    for known_place in places:  # the list grows, because several messages in a row may be forgotten
        for nonce in nonces_of(known_place):
            places += [Key(digest, nonce).next_nonce for digest in forgotten.get(nonce, ())]
    return places


def _keys_in_place(message: Message, places: Sequence[str], forms: Sequence[str]) -> Iterator[Key]:
    """Yield the keys of an archived message with the same id, or in the same place, as a message."""
    own = _own_nonce(message)
    if own is not None:
        for digest in forms:
            yield Key(digest, own)
    for place in places:
        for nonce in nonces_of(place):
            for digest in forms:
                yield Key(digest, nonce)


def _find_moved(
    message: Message, free: Mapping[Key, int], after: Mapping[str, int], *, last: int, can_adopt: bool
) -> Key | None:
    """Find the archived message that is the same as a message, although another message is before it now.

    If `can_adopt`, it may be one that was appended in a likely place. That is only possible for a message that follows
    an archived one.
    """
    has_tools = bool(message.calls or message.results)
    following = {_place_of(nonce) for nonce in after}
    for key, number in free.items():
        is_later = number > last or not number
        is_appended = can_adopt and key.nonce.startswith(APPENDED)
        is_followed = key.next_nonce in following or (number > 0 and number + 1 in after.values())
        has_same_ids = has_tools and key.digest == message.digest
        if has_same_ids or (is_later and (is_appended or is_followed)):
            return key
    return None


class _Branches:
    """Finds messages of a history that an earlier request moved after a changed one, which is newer than they are.

    Args:
        digests: The digests of the history.
        known: What is archived.
    """

    def __init__(self, digests: Sequence[str], known: Known) -> None:
        self._digests = digests
        self._known = known
        self._refused: set[Key] = set()  # so that no part of the archive is followed twice

    def find(self, index: int, free: Iterable[Key], *, last: int) -> Key | None:
        """Find the archived message that is the same as the one at `index`, after the message with the number `last`.

        It is the same if the history follows the archive from there on, up to a message that is newer than `last`: that
        one was archived with the changed message before it.
        """
        for key in free:
            if key.digest == self._digests[index] and self._leads_to_newer(key, index, last=last):
                return key
        return None

    def _leads_to_newer(self, key: Key, index: int, *, last: int) -> bool:
        for place in range(index + 1, len(self._digests)):
            if key in self._refused:
                return False
            self._refused.add(key)
            digest = self._digests[place]
            numbers = self._known.numbers.get(digest, {})
            following = [nonce for nonce in nonces_of(key.next_nonce) if nonce in numbers]
            if not following:
                return False
            key = Key(digest, following[0])
            if numbers[key.nonce] > last:
                return True
        return False


def _own_nonce(message: Message) -> str | None:
    """Return the nonce of a message that has an id or a time; None for one that only its place identifies."""
    if message.id is not None:
        return f"id:{message.id}"
    if message.timestamp is not None:
        return f"at:{message.timestamp}"
    return None


def passages_of(message: Message, marks: Marks = NO_MARKS) -> list[PassageText]:
    """Cut the searchable text of a message into passages."""
    return cut(extract_text(message, marks), speaker=message.name or "")


def mask(message: Message) -> Message:
    """Mask the secrets of a message; return the message itself if it has none."""
    data: Any = to_json(message)
    masked: Any = redact_value(data)
    if masked is data:
        return message
    return from_json(masked)


def _hash_stored(message: Message) -> bytes:
    """Hash all that is stored of a message: two messages with the same digest may differ in other fields."""
    return hashlib.sha256(text_bytes(encode_json(message))).digest()


class Masks:
    """Messages that were masked in advance, before the lock of their session is acquired."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._made = {id(message): (message, mask(message)) for message in messages}

    def mask(self, message: Message) -> Message:
        """Return the masked message; mask it now if it was not masked in advance or has changed since."""
        if not self._made:
            return mask(message)
        made = self._made.get(id(message))  # of a message that is kept here, so that no other one can have its id
        if made is not None:
            return made[1]
        masked = self._by_content.get(_hash_stored(message))
        if masked is None:
            return mask(message)
        return masked

    @cached_property
    def _by_content(self) -> dict[bytes, Message]:
        """The masked messages for those that were read twice."""
        return {_hash_stored(message): masked for message, masked in self._made.values()}


NO_MASKS: Final = Masks()
"""For messages that were not masked in advance."""


def extract_text(message: Message, marks: Marks = NO_MARKS) -> str:
    """Extract the searchable text of a message: words, tool calls and results, without what channels and hosts add."""
    if message.role == "system":
        return ""  # the same in every session, and always in the window
    if message.role in {"user", "assistant"} and not message.calls:
        words = unwrap(message.text, keep_outputs=True)
        if is_noise(words):
            return ""
        return words
    texts: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                texts.append(unwrap(part.text, keep_outputs=True))
            case ToolCall():  # a call may repeat recalled text
                texts.append(strip_text(f"{part.name}: {_render_arguments(part.arguments)}", marks))
            case ToolResult():
                output = remove_notes(part.text)
                if not _NO_OUTPUT.fullmatch(output.strip()):
                    texts.append(output)
    return "\n".join(text for text in texts if text)


def _render_arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_render_arguments(item)}" for key, item in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)


_TOKENS: Final = frozenset({"NO_REPLY", "HEARTBEAT_OK"})
"""The whole reply of an agent that has nothing to say."""
_COMMAND: Final = re.compile(r"/[a-z][\w:-]{0,60}(?: [^\s/]{1,60}){0,2}", re.IGNORECASE)
"""A command to the host, such as `/clear` or `/model gpt-5`."""
_NO_OUTPUT: Final = re.compile(r"[(<\[]?(?:no|empty) (?:output|content|result)s?[)>\]]?\.?", re.IGNORECASE)
"""The text that hosts write for a tool that printed nothing."""
_NO_LETTERS: Final = re.compile(r"[\W_]+")
_MAX_ACKNOWLEDGEMENT: Final = 100
"""A message with more characters is not only an acknowledgement."""
_UNSPACED: Final = ("chinese", "japanese", "korean")
"""Languages in which one phrase follows another without a space."""
_MIN_LETTERS: Final = 6
"""A message with at most this many characters is noise: "hm, ok"."""
_HEAD_CHARS: Final = 800
"""How many characters of a message are searched for the instructions of a host, which are at its beginning."""


def unwrap(text: str, *, keep_outputs: bool = False) -> str:
    """Return the words of a person without what a channel or host adds to them: envelopes, queue marks, reminders.

    With `keep_outputs`, the output of commands that a host put into the message stays.
    """
    for mark, pattern in patterns.load("noise")["wrapping"].items():
        if mark in text:
            text = patterns.compile_once(pattern).sub("", text)
    return remove_host_text(text, keep_outputs=keep_outputs)


def weigh_letters(text: str) -> int:
    """Count the letters of a text; a character of a script without spaces counts as three."""
    weight = 0
    for character in text:
        weight += 1
        if is_unsegmented(character):
            weight += 2
    return weight


def is_noise(text: str) -> bool:
    """Return whether an unwrapped message contains nothing worth searching for, or was written by a program."""
    words = text.strip()
    bare = words.strip(" \t\r\n.!?…,。！？，、~*`'\"").lower()
    if weigh_letters(bare[: _MIN_LETTERS + 1]) <= _MIN_LETTERS:
        return True
    if is_acknowledgement(words):
        return True
    if _COMMAND.fullmatch(words) is not None:
        return True
    return _is_from_program(words)


def is_acknowledgement(text: str) -> bool:
    """Return whether an unwrapped message is only "thanks", "go on", "hello" and the like, or has no letters."""
    beginning = text.strip()[: _MAX_ACKNOWLEDGEMENT + 1]
    if len(beginning) > _MAX_ACKNOWLEDGEMENT:
        return False
    plain = unicodedata.normalize("NFKC", beginning.lower())
    words = _NO_LETTERS.sub(" ", plain).strip()
    if not words:
        return True
    table = patterns.load("noise")["acknowledgements"]
    if patterns.compile_once(table["alone"]).fullmatch(words) is not None:
        return True
    return _is_made_of_phrases(words)


def _is_made_of_phrases(words: str) -> bool:
    """Return whether a text consists of phrases that ask nothing and filler, with at least one phrase.

    Every place is matched once. One pattern that repeats all of them would try all divisions of a long text.
    """
    phrases, filler = _phrase_patterns()
    has_phrase = {0: False}  # by the places that phrases and filler reach, whether there is a phrase before
    for place in range(len(words)):
        if place not in has_phrase:
            continue
        for pattern in (*phrases, *filler):
            match = pattern.match(words, place)
            if match is not None:
                end = match.end()
                has_phrase[end] = has_phrase.get(end, False) or has_phrase[place] or pattern in phrases
    return has_phrase.get(len(words), False)


@cache
def _phrase_patterns() -> tuple[list[re.Pattern[str]], list[re.Pattern[str]]]:
    """Return the patterns of phrases, and those of filler. In a script with spaces they match whole words."""
    table = patterns.load("noise")["acknowledgements"]
    phrases: list[re.Pattern[str]] = []
    for language, pattern in table["phrases"].items():
        end = r"\b"
        if language in _UNSPACED:
            end = ""
        phrases.append(re.compile(f"(?:{pattern}){end} ?"))
    filler = [re.compile(rf"(?:{table['filler']})\b ?"), re.compile(f"(?:{table['asian_filler']}) ?")]
    return phrases, filler


def _is_from_program(words: str) -> bool:
    """Return whether a program wrote a message in the user's place."""
    if words.strip("*`_ .") in _TOKENS:
        return True
    beginning = words[:_HEAD_CHARS]
    for marks in patterns.load("compactions")["instructions"].values():
        if any(mark in beginning for mark in marks):
            return True  # a host asks for a summary of the conversation
    if words.startswith("[Audio]") and "file_key" in words:
        return True
    return "HEARTBEAT.md" in words and ("HEARTBEAT_OK" in words or words.startswith("Read HEARTBEAT.md"))
