"""The canonical message: one immutable form that every format is read into and rendered from.

A message is a role and a tuple of parts. Parts and messages compare by what they say; where they were
read from (`origin`) does not count. A renderer hands the original back for as long as it still stands
for the part, so whatever nobody edited leaves byte for byte as it came.
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

__all__ = [
    "PLAIN",
    "Image",
    "Message",
    "Opaque",
    "Origin",
    "Part",
    "RedactedThinking",
    "ResultContent",
    "Role",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolResult",
    "Unit",
    "Usage",
    "units",
]

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]
"""Who speaks. A message that carries tool results is a `tool` message in every format."""


PLAIN: Final = "plain"
"""The format of a message without any mark of a provider: roles and texts that read the same in several formats."""
_SHARED: Final = frozenset({"anthropic", "openai_chat", "openai_responses", "pi"})
"""The formats in which a plain message may be sent as it came."""


class Origin(NamedTuple):
    """Where a value was read from: the wire form as it came, and what it was read as."""

    format: str
    data: Mapping[str, Any]
    said: Mapping[str, Any]

    def is_of(self, format: str) -> bool:
        """Tell whether the wire form is one of this format."""
        return self.format == format or (self.format == PLAIN and format in _SHARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _FromWire:
    """What messages and parts share: an origin that never counts in comparisons."""

    origin: Origin | None = field(default=None, compare=False, repr=False)

    def read_from(self, data: Mapping[str, Any], *, format: str) -> Self:
        """Note the wire form that this value was read from. For readers, of values that they have just made."""
        object.__setattr__(self, "origin", Origin(format, data, self._said()))
        return self

    def wire(self, format: str) -> Mapping[str, Any] | None:
        """The original wire form, if it is of this format and still says the same."""
        origin = self.origin
        if origin is None or not origin.is_of(format) or not same(origin.said, self._said()):
            return None
        return origin.data

    def as_read(self) -> Self:
        """The value before anybody edited it."""
        return self if self.origin is None else replace(self, **self.origin.said)

    def _said(self) -> dict[str, Any]:
        """Every field that an edit may change."""
        return {name: getattr(self, name) for name in type(self).__slots__}


def same(left: object, right: object) -> bool:
    """Tell whether two values are the same as JSON, where `1`, `1.0` and `true` are three things."""
    if left is right:
        return True
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(value, right[key]) for key, value in left.items())
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right and repr(left) == repr(right)


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(_FromWire):
    """Words for a person or a model."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking(_FromWire):
    """Reasoning in clear text. A signature binds it to its place: keep it whole or drop it whole."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactedThinking(_FromWire):
    """Reasoning that only the provider can read."""

    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(_FromWire):
    """A model's request to run a tool.

    `arguments` is the JSON object the model wrote, or its text where that is not a JSON object.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(_FromWire):
    """A picture, inline (`data`, base64) or by reference (`url`)."""

    media_type: str | None = None
    data: str | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opaque(_FromWire):
    """Anything we do not interpret: carried, counted, handed back as it came."""

    kind: str
    data: Any


ResultContent: TypeAlias = Text | Image | Opaque
"""What a tool result may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(_FromWire):
    """What a tool answered to the call of the same id."""

    call_id: str
    content: tuple[ResultContent, ...] = ()
    is_error: bool = False
    name: str | None = None

    @property
    def text(self) -> str:
        """The readable text of the result, blocks joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


Part: TypeAlias = Text | Thinking | RedactedThinking | ToolCall | ToolResult | Image | Opaque
"""One piece of a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the provider charged for one request, in tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total: int = 0

    @property
    def context(self) -> int:
        """Tokens in the window after the reply. Zero means that nothing was reported."""
        return self.total or self.input + self.output + self.cache_read + self.cache_write


_HALF: Final = re.compile("[\ud800-\udfff]")
_BROKEN: Final = frozenset({"error", "aborted"})
_PLAIN: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True, default=str)
"""How a message is written to be digested. Archives are keyed by it: it never changes."""


@dataclass(frozen=True, kw_only=True)
class Message(_FromWire):
    """One message of a conversation.

    Attributes:
        role: Who speaks.
        parts: What is said, in order.
        id: The entry's or the provider's id, where there is one.
        timestamp: When it was said, in Unix milliseconds.
        usage: What the provider reported for the request that made this reply.
        model: Which model wrote it.
        stop: Why the model stopped, in the provider's word; `error` and `aborted` mark a broken reply.
        name: What the speaker is called, where several speak in one role.
    """

    role: Role
    parts: tuple[Part, ...]
    id: str | None = None
    timestamp: int | None = None
    usage: Usage | None = None
    model: str | None = None
    stop: str | None = None
    name: str | None = None

    def _said(self) -> dict[str, Any]:
        # Ids, times and usage are often known from elsewhere than the wire form: they are no edit of it.
        return {"role": self.role, "parts": self.parts}

    @property
    def text(self) -> str:
        """The words of the message (text parts only), joined by line breaks."""
        return "\n".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def is_broken(self) -> bool:
        """Whether this is a reply that failed or was cut off."""
        return self.stop in _BROKEN

    @property
    def is_thought(self) -> bool:
        """Whether this is a message of the assistant that holds nothing but thinking."""
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
        """Whether it can be written as UTF-8: a text may hold half of a surrogate pair, which no provider takes."""
        data = self.origin.data if self.origin is not None else None
        written = json.dumps([data, *map(_essence, self.parts)], ensure_ascii=False, default=str)
        return written.isascii() or _HALF.search(written) is None

    @cached_property
    def digest(self) -> str:
        """A stable digest of what is said: role and parts, whatever the format, id or time."""
        content = [self.role, *(_essence(part) for part in self.parts)]
        return hashlib.sha256(_PLAIN.encode(content).encode()).hexdigest()[:32]


def _essence(part: Part) -> list[Any]:
    """What a part says, as plain JSON, without its origin."""
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
            return ["tool_result", part.call_id, part.is_error, [_essence(block) for block in part.content]]
        case Image():
            return ["image", part.media_type, part.data, part.url]
        case Opaque():
            return ["opaque", part.kind, part.data]


@dataclass(frozen=True, slots=True)
class Unit:
    """What may be cut as a whole: a message, or an assistant turn with calls and all of its results.

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
    """Group a conversation into what may be cut as a whole, in order, leaving no message out.

    Assistant messages that follow each other belong together where one of them holds a call (some formats
    write one reply over several lines), and so does everything up to the last of their results before the
    assistant speaks again. Without a call, everything from a message of nothing but thinking on belongs
    together: a provider refuses an item without the reasoning that led to it. A broken reply is no part of the
    reply that came after it.
    """
    grouped: list[Unit] = []
    start = 0
    for stop in _ends(messages):
        grouped.append(Unit(start, tuple(messages[start:stop])))
        start = stop
    return grouped


def _ends(messages: Sequence[Message]) -> Iterator[int]:
    start = 0
    while start < len(messages):
        if messages[start].role != "assistant":  # most messages: nothing to look at
            start += 1
            yield start
            continue
        spoken = _reply_end(messages, start)
        waiting = {call.id for message in messages[start:spoken] for call in message.calls}
        if waiting:
            stop = _last_result(messages, spoken, waiting)
            yield stop
        else:  # nothing here waits for a result: each message stands alone, unless reasoning led to it
            stop = max(spoken, start + 1)
            reasoned = next((index for index in range(start, stop) if messages[index].is_thought), stop)
            yield from (*range(start + 1, reasoned + 1), *([stop] if reasoned < stop else ()))
        start = stop


def _reply_end(messages: Sequence[Message], start: int) -> int:
    """Where the reply that begins at `start` ends; `start` itself where it is not the assistant who speaks."""
    if messages[start].role == "assistant" and messages[start].is_broken:
        return start + 1
    for index in range(start, len(messages)):
        if messages[index].role != "assistant" or messages[index].is_broken:
            return index
    return len(messages)


def _last_result(messages: Sequence[Message], start: int, waiting: AbstractSet[str]) -> int:
    """Where the last result of the waiting calls ends, before the assistant speaks again."""
    end = start
    for index in range(start, len(messages)):
        if messages[index].role == "assistant":
            break
        if any(result.call_id in waiting for result in messages[index].results):
            end = index + 1
    return end
