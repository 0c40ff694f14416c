"""Helpers of the `shape` functions of all providers. None of them changes a message that the provider accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import is_
from typing import Final, TypeVar

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
from holdfast.providers.rules import MAX_ID_CHARS
from holdfast.providers.wire import wire_of
from holdfast.text import digest

CONTINUED: Final = "[Earlier messages are not shown.]"
"""The first user message if a provider requires one and the conversation has none."""
PICTURE: Final = "(image)"
"""The text that replaces a picture in a message of the assistant."""
NO_OUTPUT: Final = "(no output)"
"""The text of a tool result that must not be empty."""
SHOWN_BELOW: Final = "(shown below)"
"""The text of a tool result whose pictures follow it."""

_PICTURE_BLOCKS: Final = frozenset({"image", "input_image", "computer_screenshot"})
"""The types of the blocks of Anthropic and of Responses that have a picture."""
_PLAIN_FIELDS: Final = frozenset({"role", "content"})
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_DIGEST_CHARS: Final = 12

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One change that made a window valid: the rule, the index of the message (None for several), and what changed."""

    rule: str
    where: int | None = None
    what: str

    def __str__(self) -> str:
        place = "" if self.where is None else f"message {self.where}: "
        return f"{place}{self.what} ({self.rule})"


@dataclass(slots=True)
class Log:
    """The repairs of one window, and the reasoning item that each item of the conversation came after, by their ids."""

    format: str
    reasoning: Mapping[str, str] = field(default_factory=dict)
    repairs: list[Repair] = field(default_factory=list)

    def note(self, rule: str, where: int | None, what: str) -> None:
        """Add a repair."""
        self.repairs.append(Repair(rule=rule, where=where, what=what))


def is_blank(part: Part) -> bool:
    """Return whether a part is a text of nothing but white space."""
    return isinstance(part, Text) and (not part.text or part.text.isspace())


def is_empty(message: Message) -> bool:
    """Return whether a message holds nothing but blank text."""
    return all(map(is_blank, message.parts))


def is_thinking(part: Part) -> bool:
    """Return whether a part is thinking, readable or not."""
    return isinstance(part, Thinking | RedactedThinking)


def is_picture(part: Part) -> bool:
    """Whether a part is a picture, also one that only the provider has, under the id of a file."""
    return isinstance(part, Image) or (isinstance(part, Opaque) and part.kind in _PICTURE_BLOCKS)


def has_client_fields(message: Message) -> bool:
    """Return whether a plain message has fields other than role and content, which a provider may refuse."""
    origin = message.origin
    return origin is not None and origin.format == PLAIN and not _PLAIN_FIELDS.issuperset(origin.data)


def has_no_place(part: Part, format: str) -> bool:
    """Return whether a format cannot express a part: another provider's own block, or an image without data and URL."""
    match part:
        case Opaque():
            return not wire_of(part, format)
        case Image():
            return part.data is None and part.url is None and not wire_of(part, format)
        case _:
            return False


def change_parts(message: Message, change: Callable[[Part], Part | None]) -> Message:
    """Change each part of a message, or drop it if the change is None; return the message itself if none changed."""
    changed = map(change, message.parts)
    parts = tuple(part for part in changed if part is not None)
    if len(parts) == len(message.parts) and all(map(is_, parts, message.parts)):
        return message
    if parts == message.parts:  # only their spelling changed: the wire form of the message holds the old one
        return replace(message, parts=parts, origin=None)
    return replace(message, parts=parts)


def change_messages(
    messages: Iterable[Message], change: Callable[[Message], Message], log: Log, rule: str
) -> list[Message]:
    """Change each message. A change is logged if the message came in this format, or if content is lost."""
    changed: list[Message] = []
    for index, message in enumerate(messages):
        new = change(message)
        changed.append(new)
        if new is message:
            continue
        is_content_lost = len(_content(new)) < len(_content(message))
        if wire_of(message, log.format) or is_content_lost:
            lost = sorted(_opaque_kinds(message) - _opaque_kinds(new))
            what = f"changed what {log.format} would refuse"
            if lost:
                what = f"left out {', '.join(lost)}, for which {log.format} has no place"
            log.note(rule, index, what)
    return changed


def _content(message: Message) -> list[Part]:
    """List all parts, those in results too, without thinking: another provider's thinking is no loss."""
    inside = [block for result in message.results for block in result.content]
    return [*(part for part in message.parts if not is_thinking(part)), *inside]


def _opaque_kinds(message: Message) -> set[str]:
    return {part.kind for part in _content(message) if isinstance(part, Opaque)}


def replace_pictures(message: Message) -> Message:
    """Replace pictures in a message of the assistant, which may hold none, by a short text."""

    def change(part: Part) -> Part:
        return Text(text=PICTURE) if is_picture(part) else part

    if message.role != "assistant":
        return message
    return change_parts(message, change)


def drop_empty(messages: Iterable[Message], log: Log, is_nothing: Callable[[Part], bool] = is_blank) -> list[Message]:
    """Drop messages that hold nothing but blank text, or other parts that are nothing to send."""
    left: list[Message] = []
    for index, message in enumerate(messages):
        if not all(map(is_nothing, message.parts)):
            left.append(message)
        elif wire_of(message, log.format):
            log.note("empty-message", index, "dropped a message of which nothing was left")
    return left


def group(items: Iterable[T], belongs: Callable[[list[T], T], bool]) -> list[list[T]]:
    """Group neighbours: an item belongs to the group before it, or begins a new one."""
    groups: list[list[T]] = []
    for item in items:
        if groups and belongs(groups[-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def group_sides(messages: Iterable[Message]) -> list[list[Message]]:
    """Group neighbours of one side: the assistant, or everybody else."""
    return group(messages, lambda side, message: (side[-1].role == "assistant") == (message.role == "assistant"))


def join_messages(messages: Sequence[Message]) -> Message:
    """Join several messages into one, results first."""
    parts = tuple(part for message in messages for part in message.parts)
    results = tuple(part for part in parts if isinstance(part, ToolResult))
    others = tuple(part for part in parts if not isinstance(part, ToolResult))
    role = "tool" if results else messages[0].role
    return replace(messages[0], role=role, parts=(*results, *others), origin=None)


def move_system_prompt(messages: Sequence[Message], log: Log) -> list[Message]:
    """Move system messages at the front of the list out of it: they are the system prompt."""
    moved = list(messages)
    for index, message in enumerate(takewhile(lambda m: m.role == "system", messages)):
        if message.origin is not None and message.origin.format == log.format:
            log.note("system-place", index, "moved the system prompt out of the list")
            moved[index] = replace(message, origin=None)
    return moved


def start_with_user(messages: list[Message], log: Log) -> list[Message]:
    """Insert a first user message if the assistant would be first."""
    if not messages or messages[0].role != "assistant":
        return messages
    log.note("first-user", 0, "inserted a first message of the user")
    return [Message(role="user", parts=(Text(text=CONTINUED),)), *messages]


def fit_name(call: ToolCall, max_chars: int) -> ToolCall:
    """Give a call a name that providers accept."""
    name = _NOT_IN_NAMES.sub("_", call.name)[:max_chars]
    if name == call.name:
        return call
    return replace(call, name=name)


def assign_ids(messages: Iterable[Message], log: Log, *, is_plain: bool, is_unique: bool) -> list[Message]:
    """Give calls whose ids would be refused new ones, and their results the same.

    A new id depends only on what came before it, so that a conversation that grows keeps its ids. If `is_plain`, ids
    hold only letters, digits, `_` and `-`; if `is_unique`, an id is used only once.
    """
    used: set[str] = set()
    current: dict[str, str] = {}

    def change(part: Part) -> Part:
        if isinstance(part, ToolCall):
            new = _fit_id(part.id, is_plain=is_plain)
            count = 1
            while is_unique and new in used:
                count += 1
                new = _fit_id(f"{part.id}_{count}", is_plain=is_plain)
            used.add(new)
            current[part.id] = new
            return part if new == part.id else replace(part, id=new)
        if isinstance(part, ToolResult) and current.get(part.call_id, part.call_id) != part.call_id:
            return replace(part, call_id=current[part.call_id])
        return part

    return change_messages(messages, lambda message: change_parts(message, change), log, "id")


def _fit_id(call_id: str, *, is_plain: bool) -> str:
    fitted = _NOT_IN_NAMES.sub("_", call_id) if is_plain else call_id
    if fitted == call_id and len(call_id) <= MAX_ID_CHARS:
        return call_id
    return f"{fitted[: MAX_ID_CHARS - _DIGEST_CHARS - 1]}_{digest(call_id)[:_DIGEST_CHARS]}"
