"""The archive: every message verbatim, secrets masked, before anything else is done with it.

A message becomes a row, and its searchable text becomes passages. Recalled blocks are removed first, so that memory is
never built from its own output. Noise (acknowledgements, heartbeats) is archived, but not indexed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from holdfast import patterns
from holdfast.memory.block import NO_MARKS, Marks, strip_message, strip_text
from holdfast.messages import Message, Text, Thinking, ToolCall, ToolResult
from holdfast.redaction import redact_value
from holdfast.store.base import Known, MessageRow, PassageText, Scope, Select, Store
from holdfast.store.codec import from_json, to_json
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
        return f"{FIRST}{hashlib.sha256(name).hexdigest()[:32]}"


FIRST: Final = "after:"
"""The nonce of the first message of a session. The nonce of another one is this and a hash of all before it."""
APPENDED: Final = "appended:"
"""Begins the nonce of a message that was appended in a likely place, instead of `after:`.

If several requests wait for a reply, it is put after the most likely one. A history that contains it in another place
contains the same message.
"""
ROWS_READ: Final = 64
"""Archived messages, next to those of a history, that are compared with a reply in another form."""
_THOUGHTS: Final = (("<think>", "</think>"), ("<thinking>", "</thinking>"))
"""Marks of reasoning at the beginning of a reply's text. Clients remove it when they send the reply back."""
Placing: TypeAlias = Literal["history", "certain", "likely"]
"""The source of a message's position: a history, or an append after a known or a likely request."""


def _place_of(nonce: str) -> str:
    """Return the nonce that a history gives to a message in the same place."""
    return FIRST + nonce.removeprefix(APPENDED) if nonce.startswith(APPENDED) else nonce


def nonces_of(place: str) -> tuple[str, str]:
    """Return the nonces of a message in a place: from a history, and appended."""
    return place, APPENDED + place.removeprefix(FIRST)


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
    """Remove recalled text from messages; None for those that were nothing else. Also list what was removed."""
    own = [strip_message(message, marks) for message in messages]
    changed = [(old, new) for old, new in zip(messages, own, strict=True) if new is not old]
    return own, [
        f"recalled text that came back was taken out of a message ({old.role}): "
        f"{_size(old) - (_size(new) if new is not None else 0):,} characters"
        for old, new in changed
    ]


def _size(message: Message) -> int:
    return len(message.text) + sum(len(result.text) for result in message.results)


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
) -> tuple[list[int], list[Key]]:
    """Archive messages without recalled text, secrets masked; return their numbers and keys.

    A message that is archived already keeps its number. One without a timestamp gets `time`, in Unix milliseconds.
    `before` are the keys of the messages before them, oldest first; at least the last one. If there are none, the
    first message is in `place`.
    """
    digests = [message.digest for message in messages]
    looked_up = digests + [key.digest for key in before[-1:]]
    found = store.find(scope, looked_up)
    keys = identify(messages, known=found, before=before, place=place, placing=placing)
    if _are_known(keys, found):  # nothing is written
        return [found.numbers[key.digest][key.nonce] for key in keys], keys
    forms = _read_forms(store, scope, messages, keys, found, before=before, placing=placing)
    if forms:
        looked_up += [form.digest for some in forms.values() for form in some]
        found = store.find(scope, looked_up)
        keys = identify(messages, known=found, before=before, place=place, placing=placing, hints=Hints(forms=forms))
        if _are_known(keys, found):
            return [found.numbers[key.digest][key.nonce] for key in keys], keys
    hints = replace(_read_hints(store, scope, messages, keys, found), forms=forms)
    passages = [tuple(passages_of(message, marks)) for message in messages]

    def make_rows(known: Known) -> list[MessageRow]:
        """Identify the messages again: no other writer comes between this and the rows."""
        keys[:] = identify(messages, known=known, before=before, place=place, placing=placing, hints=hints)
        rows: list[MessageRow] = []
        for message, key, texts in zip(messages, keys, passages, strict=True):
            # The archived form of a reply does not change.
            form = next((one for one in forms.get(message.digest, ()) if one.digest == key.digest), message)
            dated = form if form.timestamp is not None else replace(form, timestamp=time)
            rows.append(MessageRow(scope=scope, message=dated, nonce=key.nonce, passages=texts))
        return rows

    return store.merge_messages(scope, looked_up, make_rows), keys


def _are_known(keys: Iterable[Key], known: Known) -> bool:
    return all(key.nonce in known.numbers.get(key.digest, {}) for key in keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Other ways to identify messages that are not in their place.

    Attributes:
        times: When archived messages were sent, by number.
        newest: The number of the newest message of the session; 0 if it does not count.
        forms: For the digest of a reply, the archived replies that it may repeat in another form, likely ones first.
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
    """Read the archived replies that unknown replies may repeat in another form; most often nothing."""
    unknown = [
        message
        for message, key in zip(messages, keys, strict=True)
        if message.role == "assistant" and key.nonce not in known.numbers.get(key.digest, {})
    ]
    if not unknown:
        return {}
    after = None
    if before:
        after = known.numbers.get(before[-1].digest, {}).get(before[-1].nonce)
    rows = _read_near(store, Select(scope=scope, after=after, limit=ROWS_READ + 4 * len(messages)))
    replies = {row.message.digest: row.message for row in rows if row.message.role == "assistant"}
    said = {digest: Said.read([reply]) for digest, reply in replies.items()}
    forms: dict[str, list[Message]] = {}
    for message in unknown:
        own = Said.read([message])
        ids = [call.id for call in message.calls]
        same_ids: list[Message] = []
        other_ids: list[Message] = []
        for digest, reply in replies.items():
            if digest == message.digest or not own.repeats(said[digest]):
                continue
            if [call.id for call in reply.calls] == ids:
                same_ids.append(reply)
            elif placing == "history":  # a reply of the provider with other ids is another reply
                other_ids.append(reply)
        if same_ids or other_ids:
            forms[message.digest] = same_ids + other_ids
    return forms


def _read_near(store: Store, select: Select) -> list[MessageRow]:
    """Read the rows after a number up to the limit, and as many of the newest ones."""
    first: list[MessageRow] = []
    if select.after is not None:
        first = store.read_messages(select)
        if select.limit is None or len(first) < select.limit:
            return first
    return [*first, *store.read_messages(replace(select, newest=True))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The content of a reply, in a form that does not change when a client sends the reply back.

    Clients drop the reasoning, trim spaces, join parts, reformat the arguments of tool calls and rename the calls.

    Attributes:
        text: Its words without white space.
        calls: The names of its tool calls, with their arguments as JSON.
        rest: Its reasoning without white space, and everything else that it contains.
    """

    text: str
    calls: tuple[tuple[str, str], ...]
    rest: str

    @classmethod
    def read(cls, messages: Sequence[Message]) -> Said:
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

    def repeats(self, archived: Said) -> bool:
        """Whether this is an archived reply, and says nothing that is not in it."""
        if self.calls != archived.calls or self.rest not in archived.rest:
            return False
        is_dropped = bool(self.calls) and not self.text
        return is_dropped or self.text == archived.text


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
        try:
            value = json.loads(arguments) if arguments.strip() else {}
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
    """Read what identifies messages that were not found in their place; most often nothing."""
    is_known = [key.nonce in known.numbers.get(key.digest, {}) for key in keys]
    missing = [key.digest for key, is_found in zip(keys, is_known, strict=True) if not is_found]
    dated = {message.digest for message in messages if message.timestamp is not None}
    numbers = {number for digest in dated.intersection(missing) for number in known.numbers.get(digest, {}).values()}
    times: dict[int, int | None] = {}
    if numbers - {0}:
        rows: list[MessageRow] = store.read_messages(Select(scope=scope, ids=tuple(sorted(numbers))))
        times = {row.id: row.message.timestamp for row in rows}
    newest = 0
    if not any(is_known) and known.numbers.get(keys[-1].digest):
        newest = next((row.id for row in newest_messages(store, scope, limit=1)), 0)
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
    changes or drops older messages moves the messages that follow; those are recognised by the message after them, or
    by the ids of their tool calls. What was appended is recognised in any later place. A reply that the client sends
    back in another form has the key of the archived one.
    """
    keys: list[Key] = []
    digests = [message.digest for message in messages]
    among = frozenset(digests)
    used = {key for key in before if key.digest in among}
    last = 0
    if before:
        place = before[-1].next_nonce
        last = known.numbers.get(before[-1].digest, {}).get(before[-1].nonce, 0)
    has_known = is_known = bool(before)
    for index, message in enumerate(messages):
        forms = [digests[index], *_form_digests(digests[index], hints)]
        places = follow_forgotten(place, known.forgotten)
        key = None
        for candidate in _keys_in_place(message, places, forms):
            if candidate.nonce in known.numbers.get(candidate.digest, {}) and candidate not in used:
                key = candidate
                break
        if key is None:
            # Only now: to list all messages with the same content, for each of them, takes long if all are the same.
            free = {
                Key(digest, nonce): number
                for digest in forms
                for nonce, number in known.numbers.get(digest, {}).items()
                if Key(digest, nonce) not in used
            }
            if message.timestamp is not None:  # it was read from the archive
                key = next((one for one, number in free.items() if hints.times.get(number) == message.timestamp), None)
        if key is None and _own_nonce(message) is None:
            following: dict[str, int] = {}
            if index + 1 < len(digests):
                for digest in (digests[index + 1], *_form_digests(digests[index + 1], hints)):
                    following |= known.numbers.get(digest, {})
            can_adopt = placing == "history" and is_known
            key = next(_find_moved(message, free, following, last=last, can_adopt=can_adopt), None)
            is_last = index + 1 == len(messages)
            is_place_open = placing != "certain" and not has_known
            if key is None and is_place_open and is_last:  # all that is left of a history
                key = next((one for one, number in free.items() if 0 < number == hints.newest), None)
        is_known = key is not None
        if key is not None:
            has_known = True
            last = known.numbers[key.digest][key.nonce] or last
        else:
            nonce = _own_nonce(message)
            if nonce is None or Key(digests[index], nonce) in used:
                nonce = nonces_of(places[-1])[1 if placing == "likely" else 0]
            while Key(digests[index], nonce) in used:
                nonce = Key(digests[index], nonce).next_nonce
            key = Key(digests[index], nonce)
        keys.append(key)
        used.add(key)
        place = key.next_nonce
    return keys


def _form_digests(digest: str, hints: Hints) -> list[str]:
    """Return the digests of the archived replies that a message may repeat in another form."""
    return [form.digest for form in hints.forms.get(digest, ())]


def follow_forgotten(place: str, forgotten: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a place, and those after forgotten messages there: a client may have dropped them."""
    places = [place]
    for one in places:
        for nonce in nonces_of(one):
            places += [Key(digest, nonce).next_nonce for digest in forgotten.get(nonce, ())]
    return places


def _keys_in_place(message: Message, places: Sequence[str], forms: Sequence[str]) -> Iterator[Key]:
    """Yield the keys that an archived message with the id or in the place of a message has."""
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
) -> Iterator[Key]:
    """Find archived messages that a message may be, though another message is before it now.

    What was appended in a likely place is it if we `can_adopt` that: only what follows an archived message can have
    been archived before.
    """
    has_tools = bool(message.calls or message.results)
    following = {_place_of(nonce) for nonce in after}
    for key, number in free.items():
        is_later = number > last or not number
        is_appended = can_adopt and key.nonce.startswith(APPENDED)
        is_followed = key.next_nonce in following or (number > 0 and number + 1 in after.values())
        has_same_ids = has_tools and key.digest == message.digest
        if has_same_ids or (is_later and (is_appended or is_followed)):
            yield key


def _own_nonce(message: Message) -> str | None:
    if message.id is not None:
        return f"id:{message.id}"
    return f"at:{message.timestamp}" if message.timestamp is not None else None


def passages_of(message: Message, marks: Marks = NO_MARKS) -> list[PassageText]:
    """Cut the searchable text of a message into passages."""
    return cut(extract_text(message, marks), speaker=message.name or "")


def mask(message: Message) -> Message:
    """Mask the secrets of a message; return the message itself if it has none."""
    data: Any = to_json(message)
    masked: Any = redact_value(data)
    return message if masked is data else from_json(masked)


class Masks:
    """Messages that were masked ahead, before the lock of their session is taken."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._made = {message.digest: (message, mask(message)) for message in messages}

    def mask(self, message: Message) -> Message:
        """Return the masked message; it is masked now if it was not masked ahead, or has changed."""
        original, masked = self._made.get(message.digest, (None, message))
        return masked if original == message else mask(message)


NO_MASKS: Final = Masks()
"""For messages that were not masked ahead."""


def extract_text(message: Message, marks: Marks = NO_MARKS) -> str:
    """Extract the searchable text of a message: words, tool calls and results, without channel envelopes."""
    if message.role == "system":
        return ""  # the same in every session, and always in the window
    if message.role in {"user", "assistant"} and not message.calls:
        words = unwrap(message.text, keep_context=True)
        return "" if is_noise(words) else words
    texts: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                texts.append(unwrap(part.text, keep_context=True))
            case ToolCall():  # a call may repeat recalled text
                texts.append(strip_text(f"{part.name}: {_render_arguments(part.arguments)}", marks))
            case ToolResult() if not _NO_OUTPUT.fullmatch(part.text.strip()):
                texts.append(part.text)
    return "\n".join(filter(None, texts))


def _render_arguments(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_render_arguments(item)}" for key, item in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)


_MARKERS: Final = ("Pre-compaction memory flush", "[Post-compaction context refresh]")
_TOKENS: Final = frozenset({"NO_REPLY", "HEARTBEAT_OK"})
_COMMAND: Final = re.compile(r"/[a-z][\w:-]{0,60}(?: [^\s/]{1,60}){0,2}", re.IGNORECASE)
"""A command to the host, such as `/clear` or `/model gpt-5`."""
_NO_OUTPUT: Final = re.compile(r"[(<\[]?(?:no|empty) (?:output|content|result)s?[)>\]]?\.?", re.IGNORECASE)
"""The text that hosts write for a tool that printed nothing."""
_DONE: Final = re.compile(r"(?:done|finished)(?: with (?:it|that|this|\d+))?")
_NO_LETTERS: Final = re.compile(r"[\W_]*")
_MIN_LETTERS: Final = 6
_HEAD_CHARS: Final = 800


def unwrap(text: str, *, keep_context: bool = False) -> str:
    """Remove what a channel or host puts around a message: envelopes, queue marks, reminders, attachment notes.

    The instructions of a project, which a host repeats in every session, stay if `keep_context`.
    """
    noise = patterns.load("noise")
    wrappings = [noise["wrapping"]] if keep_context else [noise["wrapping"], noise["context"]]
    for wrapping in wrappings:
        for mark, pattern in wrapping.items():
            if mark in text:
                text = patterns.compile_once(pattern).sub("", text)
    return text.strip()


def weigh_letters(text: str) -> int:
    """Count the letters of a text; a character of a script without spaces counts as three."""
    return sum(3 if is_unsegmented(character) else 1 for character in text)


def is_noise(text: str) -> bool:
    """Tell whether an unwrapped message contains nothing worth searching for, or was written by a program."""
    words = text.strip()
    is_short = weigh_letters(_strip_marks(words)[: _MIN_LETTERS + 1]) <= _MIN_LETTERS
    return is_short or is_acknowledgement(words) or _COMMAND.fullmatch(words) is not None or _is_of_program(words)


def is_acknowledgement(text: str) -> bool:
    """Tell whether an unwrapped message says only "thanks", "go on", "hello" and the like, or has no letters."""
    words = text.strip()
    bare = _strip_marks(words)
    is_known = bare in patterns.load("noise")["words"]["acknowledgements"] or _DONE.fullmatch(bare) is not None
    return is_known or _NO_LETTERS.fullmatch(words) is not None


def _strip_marks(words: str) -> str:
    return words.strip(" \t\r\n.!?…,。！？，、~*`'\"").lower()


def _is_of_program(words: str) -> bool:
    """Tell whether a program wrote a message in the user's place."""
    if words.strip("*`_ .") in _TOKENS or words.startswith(_MARKERS):
        return True
    beginning = words[:_HEAD_CHARS]
    if any(mark in beginning for marks in patterns.load("compactions")["instructions"].values() for mark in marks):
        return True  # a host asks for a summary of the conversation
    if words.startswith("[Audio]") and "file_key" in words:
        return True
    return "HEARTBEAT.md" in words and ("HEARTBEAT_OK" in words or words.startswith("Read HEARTBEAT.md"))
