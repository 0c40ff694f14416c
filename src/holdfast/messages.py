"""The canonical message: one immutable form that every format is read into and rendered from.

A message is a role and a tuple of parts. Parts and messages compare by content; where they were read from
(`origin`) does not count. A renderer returns the original wire form as long as it still matches the part, so
unedited messages are rendered byte for byte as they were read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
"""The role of a message. A message with tool results is a `tool` message in every format."""


PLAIN: Final = "plain"
"""The format of a message without any mark of a provider: roles and texts that read the same in several formats."""
_SHARED: Final = frozenset({"anthropic", "openai_chat", "openai_responses", "pi"})
"""The formats in which a plain message may be sent unchanged."""


class Origin(NamedTuple):
    """The origin of a value: its wire form, and the fields that were read from it."""

    format: str
    data: Mapping[str, Any]
    said: Mapping[str, Any]

    def is_of(self, format: str) -> bool:
        """Return whether the wire form is one of this format."""
        return self.format == format or (self.format == PLAIN and format in _SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FromWire:
    """The base of messages and parts: an origin that is ignored in comparisons."""

    origin: Origin | None = field(default=None, compare=False, repr=False)

    def read_from(self, data: Mapping[str, Any], *, format: str) -> Self:
        """Record the wire form that this value was read from. Only for readers, on values that they have just made."""
        object.__setattr__(self, "origin", Origin(format, data, self._content()))
        return self

    def wire(self, format: str) -> Mapping[str, Any] | None:
        """Return the original wire form, if it is of this format and the value was not edited."""
        origin = self.origin
        if origin is None or not origin.is_of(format) or not same(origin.said, self._content()):
            return None
        return origin.data

    def as_read(self) -> Self:
        """Return the value as it was read, without edits."""
        return self if self.origin is None else replace(self, **self.origin.said)

    def _content(self) -> dict[str, Any]:
        """Return every field that an edit may change."""
        return {name: getattr(self, name) for name in type(self).__slots__}


def same(left: object, right: object) -> bool:
    """Return whether two values are the same JSON. `1`, `1.0` and `true` are different values."""
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right and repr(left) == repr(right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(_FromWire):
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking(_FromWire):
    """Reasoning in clear text. A signed one may only be kept or dropped as a whole."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedThinking(_FromWire):
    """Reasoning that only the provider can read."""

    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(_FromWire):
    """A model's request to run a tool.

    `arguments` is the JSON object the model wrote, or its text if that is not a JSON object.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(_FromWire):
    """An image, inline (`data`, base64) or by reference (`url`)."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque(_FromWire):
    """A block that is not interpreted: stored, counted, and rendered unchanged. Its text is not searched."""

    kind: str
    data: Any


ResultContent: TypeAlias = Text | Image | Opaque
"""The content of a tool result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(_FromWire):
    """The result of the tool call with the same id."""

    call_id: str
    content: tuple[ResultContent, ...] = ()
    is_error: bool = False
    name: str | None = None

    @property
    def text(self) -> str:
        """The readable text of the result, blocks joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


Part: TypeAlias = Text | Thinking | RedactedThinking | ToolCall | ToolResult | Image | Opaque
"""One part of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The tokens of one request, as the provider reported them."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0

    @property
    def context(self) -> int:
        """Tokens in the window after the reply. Zero means that nothing was reported."""
        return self.total or self.input + self.output + self.cache_read + self.cache_write


_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_BROKEN: Final = frozenset({"error", "aborted"})
_PLAIN: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True, default=str)
"""The encoder of digests. Archives use digests as keys, so it must never change, and neither must `_to_plain`.

A block that was `Opaque` and is now read into another part changes the digest of its message too: if a client sends it
again, it may be archived a second time.
"""


@dataclass(frozen=True, kw_only=True)
class Message(_FromWire):
    """One message of a conversation.

    Attributes:
        role: The role.
        parts: The content, in order.
        id: The entry's or the provider's id, if any.
        timestamp: Its time, in Unix milliseconds.
        usage: The usage that the provider reported for the request of this reply.
        model: The model that wrote it.
        stop: The provider's stop reason; `error` and `aborted` mark a broken reply.
        name: The name of the speaker, if several share a role.
    """

    role: Role
    parts: tuple[Part, ...]
    id: str | None = None
    timestamp: int | None = None
    usage: Usage | None = None
    model: str | None = None
    stop: str | None = None
    name: str | None = None

    def _content(self) -> dict[str, Any]:
        # Ids, times and usage often come from outside the wire form: setting them is not an edit of it.
        return {"role": self.role, "parts": self.parts}

    @property
    def text(self) -> str:
        """The text parts of the message, joined by line breaks."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def whole_text(self) -> str:
        """The text with the calls and results of tools, as a person reads them."""
        calls = [f"{call.name}({json.dumps(call.arguments, ensure_ascii=False)})" for call in self.calls]
        results = [result.text for result in self.results]
        return "\n".join(part for part in (self.text, *calls, *results) if part)

    @property
    def is_broken(self) -> bool:
        """Whether this is a reply that failed or was cut off."""
        return self.stop in _BROKEN

    @property
    def is_thought(self) -> bool:
        """Whether this is an assistant message with nothing but thinking."""
        thoughts = (isinstance(part, Thinking | RedactedThinking) for part in self.parts)
        return self.role == "assistant" and bool(self.parts) and all(thoughts)

    @cached_property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in this message."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @cached_property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results in this message."""
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    @cached_property
    def is_encodable(self) -> bool:
        """Whether it can be written as UTF-8: lone surrogates, which JSON allows, are refused by providers."""
        data = self.origin.data if self.origin is not None else None
        encoded = json.dumps([data, *map(_to_plain, self.parts)], ensure_ascii=False, default=str)
        return encoded.isascii() or _LONE_SURROGATE.search(encoded) is None

    @cached_property
    def digest(self) -> str:
        """A stable digest of role and parts, independent of format, id and time, and of texts without a character.

        It is independent of fields that no part has, such as the citations of a text. See `holdfast.memory.archive`.
        """
        content = [self.role, *(_to_plain(part) for part in self.parts if not isinstance(part, Text) or part.text)]
        return hashlib.sha256(_PLAIN.encode(content).encode()).hexdigest()[:32]


def _to_plain(part: Part) -> list[Any]:
    """Return the content of a part as plain JSON, without its origin."""
    match part:
        case Text():
            return ["text", part.text]
        case Thinking():
            return ["thinking", part.text, part.signature]
        case RedactedThinking():
            return ["redacted_thinking", part.data]
        case ToolCall():
            return ["tool_call", part.id, part.name, part.arguments]
        case ToolResult():
            return ["tool_result", part.call_id, part.is_error, [_to_plain(block) for block in part.content]]
        case Image():
            return ["image", part.media_type, part.data, part.url]
        case Opaque():
            return ["opaque", part.kind, part.data]


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest thing that can be removed: a message, or an assistant reply with calls and all of its results.

    `start` is the index of its first message in the list it was taken from.
    """

    start: int
    messages: tuple[Message, ...]

    @property
    def stop(self) -> int:
        """The index after its last message."""
        return self.start + len(self.messages)

    @property
    def pending(self) -> frozenset[str]:
        """Ids of calls that have no result in this unit."""
        calls = {call.id for message in self.messages for call in message.calls}
        return frozenset(calls - {result.call_id for message in self.messages for result in message.results})


def units(messages: Sequence[Message]) -> list[Unit]:
    """Group a conversation into units, in order, with every message in exactly one.

    Consecutive assistant messages are one unit if one of them has a call (some formats write one reply over several
    lines), with everything up to the last of their results before the next assistant message. Without a call,
    everything from a message of only thinking on is one unit: a provider refuses an item without its reasoning.
    A broken reply is not part of the reply after it.
    """
    grouped: list[Unit] = []
    start = 0
    for stop in _find_ends(messages):
        grouped.append(Unit(start, tuple(messages[start:stop])))
        start = stop
    return grouped


def _find_ends(messages: Sequence[Message]) -> Iterator[int]:
    start = 0
    while start < len(messages):
        if messages[start].role != "assistant":  # most messages: a unit of their own
            start += 1
            yield start
            continue
        ends = (i for i in range(start + 1, len(messages)) if messages[i].role != "assistant" or messages[i].is_broken)
        reply_end = start + 1 if messages[start].is_broken else next(ends, len(messages))
        waiting = {call.id for message in messages[start:reply_end] for call in message.calls}
        if waiting:
            stop = _find_last_result(messages, reply_end, waiting)
            yield stop
        else:  # no call: each message is a unit, unless it follows reasoning
            stop = reply_end
            reasoned = next((index for index in range(start, stop) if messages[index].is_thought), stop)
            yield from sorted({*range(start + 1, reasoned + 1), stop})
        start = stop


def _find_last_result(messages: Sequence[Message], start: int, waiting: AbstractSet[str]) -> int:
    """Return the end of the last result of these calls before the next assistant message."""
    end = start
    for index in range(start, len(messages)):
        if messages[index].role == "assistant":
            break
        if any(result.call_id in waiting for result in messages[index].results):
            end = index + 1
    return end


def count_equal(before: Sequence[object], now: Sequence[object]) -> int:
    """Count how many values two lists begin with alike."""
    if before == now[: len(before)]:  # most often the old list is the beginning of the new one
        return len(before)
    count = 0
    for old, new in zip(before, now, strict=False):
        if old != new:
            break
        count += 1
    return count
