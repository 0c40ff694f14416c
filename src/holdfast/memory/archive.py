"""The archive: every message verbatim, secrets masked, before anything else is done with it.

A message becomes a row, and what can be found of it passages. Recalled blocks are taken out first, so that
memory never feeds on itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.memory.block import strip_message, strip_text
from holdfast.memory.marks import NO_MARKS, Marks
from holdfast.memory.noise import is_noise, unwrap
from holdfast.messages import Message, Part, Text, ToolCall, ToolResult
from holdfast.redact import redact_value
from holdfast.search.passages import Passage, passages
from holdfast.store.base import MessageRow, PassageText, Scope
from holdfast.store.codec import from_json, to_json
from holdfast.text import terms

__all__ = ["cut", "mask", "passages_of", "rows", "searchable"]


def rows(
    messages: Iterable[Message],
    *,
    scope: Scope,
    redact: bool = True,
    seen: Counter[str] | None = None,
    marks: Marks = NO_MARKS,
) -> list[MessageRow]:
    """Messages as rows of the archive, in order; those that held nothing but recalled text are left out.

    `marks` are what recalled text is known by. `seen` counts what came before them in the same conversation, by
    digest, and is added to.
    """
    found: list[MessageRow] = []
    seen = Counter() if seen is None else seen
    for message in messages:
        own = strip_message(message, marks)
        if own is None:
            continue
        kept = mask(own) if redact else own
        nonce = _nonce(kept, seen[kept.digest])
        seen[kept.digest] += 1
        found.append(MessageRow(scope=scope, message=kept, nonce=nonce, passages=tuple(passages_of(kept, marks))))
    return found


def passages_of(message: Message, marks: Marks = NO_MARKS) -> list[PassageText]:
    """What can be found of an archived message."""
    return cut(searchable(message, marks), speaker=message.name or "")


def _nonce(message: Message, before: int) -> str:
    """What tells a message from another of the same words: its id, its time, or how many came before it."""
    if message.id is not None:
        return f"id:{message.id}"
    return f"at:{message.timestamp}" if message.timestamp is not None else f"nr:{before}"


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
