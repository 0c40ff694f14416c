"""The archive: every message verbatim, secrets masked, before anything else is done with it.

A message becomes a row, and what can be found of it passages. Recalled blocks are taken out first, so that
memory never feeds on itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from holdfast.memory.block import strip_message, strip_text
from holdfast.memory.marks import NO_MARKS, Marks
from holdfast.memory.noise import is_noise, unwrap
from holdfast.messages import Message, Part, Text, ToolCall, ToolResult
from holdfast.redact import redact_value
from holdfast.search.passages import Passage, passages
from holdfast.store.base import MessageRow, PassageText, Scope, Store
from holdfast.store.codec import from_json, to_json
from holdfast.text import terms

__all__ = ["FIRST", "Ingested", "Key", "append", "cut", "mask", "passages_of", "rows", "searchable", "strip_recalled"]


class Key(NamedTuple):
    """What tells an archived message from every other one of its session: its words, and its nonce."""

    digest: str
    nonce: str

    @property
    def next_nonce(self) -> str:
        """The nonce of a message that comes right after this one and has neither an id nor a time."""
        name = f"{self.nonce}\n{self.digest}".encode("utf-8", "surrogatepass")
        return f"after:{hashlib.sha256(name).hexdigest()[:32]}"


FIRST: Final = "after:"
"""The nonce of the first message of a session."""


class Ingested(list[int]):
    """The numbers of messages that were archived.

    Attributes:
        stripped: What was taken out of them because it was recalled text, one line for each message.
    """

    def __init__(self, numbers: Iterable[int], *, stripped: Iterable[str] = ()) -> None:
        super().__init__(numbers)
        self.stripped = tuple(stripped)


def strip_recalled(messages: Sequence[Message], marks: Marks) -> tuple[list[Message | None], list[str]]:
    """Return messages without recalled text, None for those that were nothing else, and what was taken out."""
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
    """Archive messages that come after the messages with the keys `before`.

    A message that is there already keeps its number. One without a timestamp gets `time`.

    Args:
        store: The store to write to.
        messages: Messages as they are archived: recalled text removed, secrets masked.
        scope: Who owns the messages.
        time: When they arrived, in Unix milliseconds.
        before: The keys of the messages before them, oldest first; at least the last one.
        marks: What recalled text is known by.

    Returns:
        The numbers and the keys of the messages.
    """
    known = store.find(scope, [message.digest for message in messages] + [key.digest for key in before[-1:]])
    keys = _identify(messages, known=known, before=before)
    made = _rows(messages, keys, scope=scope, time=time, marks=marks)
    return store.add(made), keys


def rows(
    messages: Iterable[Message], *, scope: Scope, redact: bool = True, marks: Marks = NO_MARKS
) -> list[MessageRow]:
    """Return a conversation as rows of an archive that has none of it."""
    stripped, _ = strip_recalled(list(messages), marks)
    own = [mask(message) if redact else message for message in stripped if message is not None]
    return _rows(own, _identify(own, known={}, before=()), scope=scope, time=None, marks=marks)


def _rows(
    messages: Sequence[Message], keys: Sequence[Key], *, scope: Scope, time: int | None, marks: Marks
) -> list[MessageRow]:
    return [
        MessageRow(
            scope=scope,
            message=message if message.timestamp is not None else replace(message, timestamp=time),
            nonce=key.nonce,
            passages=tuple(passages_of(message, marks)),
        )
        for message, key in zip(messages, keys, strict=True)
    ]


def _identify(
    messages: Sequence[Message], *, known: Mapping[str, Mapping[str, int]], before: Sequence[Key]
) -> list[Key]:
    """Give each message its key. `known` has the numbers of archived messages by digest and nonce.

    A message is known by its id, by its time, or by its place: the same words after the same message are the same
    message, and the same words somewhere else are not. A client that changes or drops older messages moves what
    follows to another place; those messages are recognised by what comes after them, or by the ids of their tools.
    """
    keys: list[Key] = []
    used = set(before)
    place = before[-1].next_nonce if before else FIRST
    last = known.get(before[-1].digest, {}).get(before[-1].nonce, 0) if before else 0
    for message, following in zip_longest(messages, messages[1:]):
        digest = message.digest
        found = {nonce: number for nonce, number in known.get(digest, {}).items() if Key(digest, nonce) not in used}
        own = _own_nonce(message)
        new = place if own is None or Key(digest, own) in used else own
        after = {} if following is None else known.get(following.digest, {})
        moved = _moved(message, found, after=after, last=last) if own is None else []
        nonce = next((nonce for nonce in (new, place, *moved) if nonce in found), new)
        keys.append(Key(digest, nonce))
        used.add(keys[-1])
        last = found.get(nonce, last)
        place = keys[-1].next_nonce
    return keys


def _moved(message: Message, found: Mapping[str, int], *, after: Mapping[str, int], last: int) -> list[str]:
    """The nonces of archived messages of the same words that may be this one in another place, oldest first.

    The ids of tools are enough. Other words need the message `after` them, and come after the `last` that was known.
    """
    if message.calls or message.results:
        return list(found)
    digest = message.digest
    later = ((nonce, number) for nonce, number in found.items() if not 0 < number <= last)
    return [nonce for nonce, number in later if _is_followed(Key(digest, nonce), number, after)]


def _is_followed(key: Key, number: int, after: Mapping[str, int]) -> bool:
    """Whether one of the messages `after` comes right after an archived or forgotten message."""
    return key.next_nonce in after or (number > 0 and number + 1 in after.values())


def _own_nonce(message: Message) -> str | None:
    if message.id is not None:
        return f"id:{message.id}"
    return f"at:{message.timestamp}" if message.timestamp is not None else None


def passages_of(message: Message, marks: Marks = NO_MARKS) -> list[PassageText]:
    """What can be found of an archived message."""
    return cut(searchable(message, marks), speaker=message.name or "")


def mask(message: Message) -> Message:
    """A message with its secrets masked; itself where it has none."""
    data: Any = to_json(message)
    masked: Any = redact_value(data)
    return message if masked is data else from_json(masked)


def searchable(message: Message, marks: Marks = NO_MARKS) -> str:
    """What of a message can be found: words, tool calls and results, without what the channel wrapped around."""
    if message.role == "system":
        return ""  # the same in every session, and always in the window
    if message.role in {"user", "assistant"} and not message.calls:
        words = unwrap(message.text)
        return "" if is_noise(words) else words
    return "\n".join(words for part in message.parts if (words := _words(part, marks)))


def _words(part: Part, marks: Marks) -> str:
    match part:
        case Text():
            return unwrap(part.text)
        case ToolCall():
            return strip_text(f"{part.name}: {_flat(part.arguments)}", marks)  # a call may hand on what was recalled
        case ToolResult():
            return part.text
        case _:
            return ""


def _flat(value: Any) -> str:
    """Arguments as a person would read them."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "\n".join(f"{key}: {_flat(item)}" for key, item in value.items())
    return json.dumps(value, ensure_ascii=False, default=str)


def cut(text: str, *, speaker: str = "") -> list[PassageText]:
    """A text as the passages of the index; a speaker's name counts as a word of each window."""
    named = tuple(terms(speaker))
    return [_passage(text, passage, named) for passage in passages(text)]


def _passage(text: str, passage: Passage, named: tuple[str, ...]) -> PassageText:
    start = passage.start
    return PassageText(
        start=start,
        text=text[start : passage.stop],
        windows=tuple((first - start, last - start) for first, last in passage.windows),
        terms=tuple(tuple(terms(text[first:last])) + named for first, last in passage.windows),
    )
