"""The archive: every message verbatim, secrets masked, before anything else is done with it.

A message becomes a row, and its searchable text becomes passages. Recalled blocks are removed first, so that memory is
never built from its own output. Noise (acknowledgements, heartbeats) is archived, but not indexed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from holdfast import patterns
from holdfast.memory.block import NO_MARKS, Marks, strip_message, strip_text
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.redact import redact_value
from holdfast.store.base import MessageRow, PassageText, Scope, Store
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
        name = f"{self.nonce}\n{self.digest}".encode("utf-8", "surrogatepass")
        return f"after:{hashlib.sha256(name).hexdigest()[:32]}"


FIRST: Final = "after:"
"""The nonce of the first message of a session."""


class Ingested(list[int]):
    """The numbers of messages that were archived.

    Attributes:
        stripped: The recalled text that was removed from them, one line for each message.
    """

    def __init__(self, numbers: Iterable[int], *, stripped: Iterable[str] = ()) -> None:
        super().__init__(numbers)
        self.stripped = tuple(stripped)


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
    marks: Marks = NO_MARKS,
) -> tuple[list[int], list[Key]]:
    """Archive messages without recalled text, secrets masked; return their numbers and keys.

    A message that is archived already keeps its number. One without a timestamp gets `time`, in Unix milliseconds.
    `before` are the keys of the messages before them, oldest first; at least the last one.
    """
    known = store.find(scope, [message.digest for message in messages] + [key.digest for key in before[-1:]])
    keys = identify(messages, known=known, before=before)
    numbers = [known.get(key.digest, {}).get(key.nonce, 0) for key in keys]
    if all(numbers):  # all are archived: nothing is written
        return numbers, keys
    rows: list[MessageRow] = []
    for message, key in zip(messages, keys, strict=True):
        passages = tuple(passages_of(message, marks))
        dated = message if message.timestamp is not None else replace(message, timestamp=time)
        rows.append(MessageRow(scope=scope, message=dated, nonce=key.nonce, passages=passages))
    return store.add_messages(rows), keys


def identify(
    messages: Sequence[Message], *, known: Mapping[str, Mapping[str, int]], before: Sequence[Key]
) -> list[Key]:
    """Give each message its key. `known` has the numbers of archived messages by digest and nonce.

    A message is identified by its id, by its time, or by its place: the same content after the same message is the same
    message, and the same content elsewhere is not. A client that changes or drops older messages moves the messages
    that follow; those are recognised by the message after them, or by the ids of their tool calls.
    """
    keys: list[Key] = []
    digests = list(map(attrgetter("digest"), messages))
    among = frozenset(digests)
    used = {key for key in before if key.digest in among}
    place, last = FIRST, 0
    if before:
        place, last = before[-1].next_nonce, known.get(before[-1].digest, {}).get(before[-1].nonce, 0)
    for message, digest, following in zip(messages, digests, [*digests[1:], ""], strict=False):
        free = {nonce: number for nonce, number in known.get(digest, {}).items() if Key(digest, nonce) not in used}
        own = _own_nonce(message)
        nonce = own if own is not None and Key(digest, own) not in used else place
        if nonce not in free:
            moved = _find_moved(message, free, known.get(following, {}), last=last) if own is None else ()
            nonce = place if place in free else next(iter(moved), nonce)
        keys.append(Key(digest, nonce))
        used.add(keys[-1])
        last = free.get(nonce, last)
        place = keys[-1].next_nonce
    return keys


def _find_moved(message: Message, free: Mapping[str, int], after: Mapping[str, int], *, last: int) -> Iterator[str]:
    """Find archived messages that a message may be, though another message is before it now."""
    has_tools = bool(message.calls or message.results)
    for nonce, number in free.items():
        key = Key(message.digest, nonce)
        is_followed = key.next_nonce in after or (number > 0 and number + 1 in after.values())
        if has_tools or (is_followed and (number > last or not number)):
            yield nonce


def _own_nonce(message: Message) -> str | None:
    if message.id is not None:
        return f"id:{message.id}"
    return f"at:{message.timestamp}" if message.timestamp is not None else None


def passages_of(message: Message, marks: Marks = NO_MARKS) -> list[PassageText]:
    """Cut the searchable text of a message into passages."""
    return cut(extract_text(message, marks), speaker=message.name or "")


def mask(message: Message) -> Message:
    """Mask the secrets of a message; return the message itself where it has none."""
    data: Any = to_json(message)
    masked: Any = redact_value(data)
    return message if masked is data else from_json(masked)


def extract_text(message: Message, marks: Marks = NO_MARKS) -> str:
    """Extract the searchable text of a message: words, tool calls and results, without channel envelopes."""
    if message.role == "system":
        return ""  # the same in every session, and always in the window
    if message.role in {"user", "assistant"} and not message.calls:
        words = unwrap(message.text)
        return "" if is_noise(words) else words
    texts: list[str] = []
    for part in message.parts:
        match part:
            case Text():
                texts.append(unwrap(part.text))
            case ToolCall():  # a call may repeat recalled text
                texts.append(strip_text(f"{part.name}: {_render_arguments(part.arguments)}", marks))
            case ToolResult():
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
_NO_LETTERS: Final = re.compile(r"[\W_]*")
_MIN_LETTERS: Final = 6
_HEAD_CHARS: Final = 800


def unwrap(text: str) -> str:
    """Remove what a channel puts around a message: envelopes, queue marks, metadata, attachment notes."""
    for mark, pattern in patterns.load("noise")["wrapping"].items():
        if mark in text:
            text = patterns.compile_once(pattern).sub("", text)
    return text.strip()


def weigh_letters(text: str) -> int:
    """Count the letters of a text; a character of a script without spaces counts as three."""
    return sum(3 if is_unsegmented(character) else 1 for character in text)


def is_noise(text: str) -> bool:
    """Tell whether an unwrapped message contains nothing worth searching for, or was written by a program."""
    words = text.strip()
    bare = words.strip(" \t\r\n.!?…,。！？，、~*`'\"").lower()
    is_short = weigh_letters(bare[: _MIN_LETTERS + 1]) <= _MIN_LETTERS
    if is_short or bare in patterns.load("noise")["words"]["acknowledgements"] or _NO_LETTERS.fullmatch(words):
        return True
    return _is_of_program(words)


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
