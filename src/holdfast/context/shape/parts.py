"""What the shapes of all providers share: edits that leave alone whatever is right already."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, takewhile
from operator import is_
from typing import Final

from holdfast.context.pairing import Repair, says_nothing
from holdfast.formats.wire import kept
from holdfast.messages import (
    PLAIN,
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from holdfast.text import digest

__all__ = [
    "CONTINUED",
    "NO_OUTPUT",
    "SHOWN_BELOW",
    "Ids",
    "Log",
    "bare",
    "begun",
    "edited",
    "identified",
    "is_stray",
    "is_thought",
    "join",
    "named",
    "placed",
    "prompted",
    "runs",
    "unpictured",
    "without_empty",
]

CONTINUED: Final = "[Earlier messages are not shown.]"
"""What the user says at the beginning where a provider wants the user to begin."""
PICTURE: Final = "(image)"
"""What stands for a picture in a message of the assistant."""
NO_OUTPUT: Final = "(no output)"
"""What an answer says that must not be empty."""
SHOWN_BELOW: Final = "(shown below)"
"""What an answer says whose pictures stand behind it."""

_PLAIN_FIELDS: Final = frozenset({"role", "content"})
_UNNAMED: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_ID: Final = 64
_DIGEST: Final = 12


@dataclass(slots=True)
class Log:
    """What was changed so that a provider takes it.

    Attributes:
        format: The form of the provider's own messages.
        reasoned: The reasoning item that each item of the conversation came after, by their ids.
        repairs: The changes.
    """

    format: str
    reasoned: Mapping[str, str] = field(default_factory=dict)
    repairs: list[Repair] = field(default_factory=list)

    def note(self, rule: str, where: int | None, what: str) -> None:
        """Add a repair."""
        self.repairs.append(Repair(rule=rule, where=where, what=what))


def edited(message: Message, change: Callable[[Part], Part | None]) -> Message:
    """The message with each part changed, or dropped where the change is None; itself where nothing was."""
    parts = tuple(new for part in message.parts if (new := change(part)) is not None)
    if len(parts) == len(message.parts) and all(map(is_, parts, message.parts)):
        return message
    # Where the words are the same, it is the spelling that has to go: the wire form of the message holds it too.
    return replace(message, parts=parts, origin=None if parts == message.parts else message.origin)


def placed(messages: Iterable[Message], change: Callable[[Message], Message], log: Log, rule: str) -> list[Message]:
    """Each message changed. It is a repair where the message came in this form, or where words or deeds are lost."""
    found: list[Message] = []
    for index, message in enumerate(messages):
        new = change(message)
        if new is not message and (kept(message, log.format) or len(_said(new)) < len(_said(message))):
            left = {part.kind for part in _said(new) if isinstance(part, Opaque)}
            lost = sorted({part.kind for part in _said(message) if isinstance(part, Opaque)} - left)
            what = f"left out {', '.join(lost)}, for which it has no place" if lost else "changed what it would refuse"
            log.note(rule, index, f"{what} ({log.format})")
        found.append(new)
    return found


def _said(message: Message) -> list[Part]:
    """All that is said and done, in results too. Thinking of others means nothing here; it is no loss."""
    inside = [block for result in message.results for block in result.content]
    return [*(part for part in message.parts if not is_thought(part)), *inside]


def is_stray(message: Message) -> bool:
    """Tell whether a message without a mark has fields that only the client knows: not every provider takes them."""
    origin = message.origin
    return origin is not None and origin.format == PLAIN and not _PLAIN_FIELDS.issuperset(origin.data)


def bare(part: Part, format_name: str) -> bool:
    """Tell whether a part has no place in a format: what only another provider knows, an image that is not there."""
    match part:
        case Opaque():
            return not kept(part, format_name)
        case Image():
            return part.data is None and part.url is None and not kept(part, format_name)
        case _:
            return False


def unpictured(message: Message) -> Message:
    """The message; of the assistant without pictures, which only others may show."""
    if message.role != "assistant":
        return message
    return edited(message, lambda part: Text(text=PICTURE) if _is_picture(part) else part)


def _is_picture(part: Part) -> bool:
    return isinstance(part, Image) or (isinstance(part, Opaque) and part.kind == "image")


def is_thought(part: Part) -> bool:
    """Tell whether a part is thinking, readable or not."""
    return isinstance(part, Thinking | RedactedThinking)


def without_empty(messages: Iterable[Message], log: Log) -> list[Message]:
    """The messages that have something left."""
    found: list[Message] = []
    for index, message in enumerate(messages):
        if not says_nothing(message):
            found.append(message)
        elif kept(message, log.format):
            log.note("empty-message", index, "dropped a message of which nothing was left")
    return found


def join(messages: Sequence[Message]) -> Message:
    """Several messages as one; results come first."""
    parts = tuple(part for message in messages for part in message.parts)
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    role = "tool" if results else messages[0].role
    return replace(messages[0], role=role, parts=(*results, *others), origin=None)


def prompted(messages: Sequence[Message], log: Log) -> list[Message]:
    """The messages; a system message that the list begins with is the system prompt, which goes beside the list."""
    found = list(messages)
    for index, message in enumerate(takewhile(lambda m: m.role == "system", messages)):
        if message.origin is not None and message.origin.format == log.format:
            log.note("system-place", index, "moved the system prompt out of the list")
            found[index] = replace(message, origin=None)
    return found


def begun(messages: list[Message], log: Log) -> list[Message]:
    """The messages with the user speaking first."""
    if not messages or messages[0].role != "assistant":
        return messages
    log.note("first-user", 0, "let the user speak first")
    return [Message(role="user", parts=(Text(text=CONTINUED),)), *messages]


# --- ids and names -----------------------------------------------------------


def named(call: ToolCall, longest: int) -> ToolCall:
    """The call under a name that providers accept."""
    name = _UNNAMED.sub("_", call.name)[:longest]
    return call if name == call.name else replace(call, name=name)


@dataclass(slots=True)
class Ids:
    """New ids for calls whose own would be refused, the same for a call and its results.

    A name depends on nothing but what came before, so that a conversation that grows keeps its names.
    """

    plain: bool
    unique: bool
    used: set[str] = field(default_factory=set)
    now: dict[str, str] = field(default_factory=dict)

    def call(self, call: ToolCall) -> ToolCall:
        """The call with an id that can be used, noted for its results."""
        new = _fit(call.id, plain=self.plain)
        count = 1
        while self.unique and new in self.used:
            count += 1
            new = _fit(f"{call.id}_{count}", plain=self.plain)
        self.used.add(new)
        self.now[call.id] = new
        return call if new == call.id else replace(call, id=new)

    def result(self, result: ToolResult) -> ToolResult:
        """The result with the id of its call."""
        new = self.now.get(result.call_id, result.call_id)
        return result if new == result.call_id else replace(result, call_id=new)


def _fit(call_id: str, *, plain: bool) -> str:
    fitted = _UNNAMED.sub("_", call_id) if plain else call_id
    if fitted == call_id and len(call_id) <= _LONGEST_ID:
        return call_id
    return f"{fitted[: _LONGEST_ID - _DIGEST - 1]}_{digest(call_id)[:_DIGEST]}"


def identified(messages: Iterable[Message], ids: Ids, log: Log) -> list[Message]:
    """The messages with ids that can be used."""

    def change(part: Part) -> Part:
        if isinstance(part, ToolCall):
            return ids.call(part)
        return ids.result(part) if isinstance(part, ToolResult) else part

    return placed(messages, lambda message: edited(message, change), log, "id")


def runs(messages: Sequence[Message]) -> list[list[Message]]:
    """The messages in runs of one speaker; the user and the tools speak for the same side."""
    found = [[messages[0]]] if messages else []
    for before, message in pairwise(messages):
        if (before.role == "assistant") == (message.role == "assistant"):
            found[-1].append(message)
        else:
            found.append([message])
    return found
