"""Messages as OpenAI's Responses takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from holdfast.context.shape.parts import (
    NO_OUTPUT,
    Ids,
    Log,
    bare,
    edited,
    identified,
    is_stray,
    is_thought,
    named,
    placed,
    unpictured,
    without_empty,
)
from holdfast.formats.wire import Json, kept, kind_of
from holdfast.messages import Message, Part, RedactedThinking, Role, Text, Thinking, ToolCall, ToolResult

__all__ = ["shape"]

NAME: Final = "openai_responses"
_LONGEST_NAME: Final = 64
_OUTPUT_KINDS: Final = frozenset({"output_text", "refusal"})
_TEXT_KINDS: Final[dict[Role, frozenset[str]]] = {
    "assistant": _OUTPUT_KINDS,
    **dict.fromkeys(("system", "user", "tool"), frozenset({"input_text"})),
}
_CALL_TEXT: Final = {"function_call": "arguments", "custom_tool_call": "input"}
_WITH_OUTPUT: Final = frozenset({"function_call_output", "custom_tool_call_output"})


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Messages that are in order already, as Responses takes them."""
    said = identified(messages, Ids(plain=False, unique=True), log)
    said = placed(said, _sayable, log, "content")
    return _led(_known(without_empty(said, log), log), log)


def _sayable(message: Message) -> Message:
    message = replace(message, origin=None) if is_stray(message) else message
    return unpictured(edited(message, partial(_part, role=message.role)))


def _part(part: Part, *, role: Role) -> Part | None:
    match part:
        case Text():
            return _worded(part, role)
        case ToolCall():
            return named(part if _is_worded(kept(part, NAME)) else replace(part, origin=None), _LONGEST_NAME)
        case ToolResult():
            return _answer(part)
        case Thinking() | RedactedThinking():
            return part if isinstance(kept(part, NAME).get("summary"), list) else None
        case _:
            return None if bare(part, NAME) else part


def _worded(part: Text, role: Role) -> Text | None:
    """A text, in the spelling of who says it."""
    if not part.text:
        return None
    return part if kind_of(kept(part, NAME)) in {"", *_TEXT_KINDS[role]} else replace(part, origin=None)


def _is_worded(old: Json) -> bool:
    """Tell whether a call came with its arguments as text, where it should have."""
    key = _CALL_TEXT.get(kind_of(old))
    return key is None or isinstance(old.get(key), str)


def _answer(result: ToolResult) -> ToolResult:
    old = kept(result, NAME)
    if not result.content and kind_of(old) in _WITH_OUTPUT and old.get("output") is None:
        return replace(result, content=(Text(text=NO_OUTPUT),))
    content = tuple(block for block in result.content if not bare(block, NAME))
    return result if len(content) == len(result.content) else replace(result, content=content)


def _known(messages: Sequence[Message], log: Log) -> list[Message]:
    """The messages with each of the provider's own item ids there once, and behind the reasoning that it came after.

    The provider knows an item by its id. What it would refuse under that id is sent as if it were new.
    """
    seen: set[str] = set()
    found: list[Message] = []
    for index, message in enumerate(messages):
        ids = {str(old["id"]) for value in (message, *message.parts) if _is_own(old := kept(value, NAME))}
        if not seen.isdisjoint(ids):
            log.note("repeated-item", index, "sent an item that has been there before without its id")
            found += _anew(message)
        elif not seen.issuperset(log.reasoned[item] for item in ids if item in log.reasoned):
            log.note("reasoning-missing", index, "sent an item whose reasoning is not there without its id")
            found += _anew(message)
        else:
            found.append(message)
        seen |= ids
    return found


def _anew(message: Message) -> list[Message]:
    """The message as if it had never been an item; thinking is one or nothing."""
    parts = tuple(replace(part, origin=None) for part in message.parts if not is_thought(part))
    return [replace(message, parts=parts, origin=None)] if parts else []


def _is_own(old: Json) -> bool:
    """Tell whether an item has an id of its own; the output of a local shell has that of its call."""
    return bool(old.get("id")) and (not kind_of(old).endswith("_output") or "call_id" in old)


def _led(messages: Sequence[Message], log: Log) -> list[Message]:
    """The messages without reasoning that nothing of the assistant follows."""
    found: list[Message] = []
    followed = False
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        parts = message.parts
        while parts and not followed and is_thought(parts[-1]):
            parts = parts[:-1]
        if len(parts) != len(message.parts):
            log.note("reasoning-alone", index, "dropped reasoning that led to nothing")
            message = replace(message, parts=parts)
        if parts:
            found.append(message)
            followed = message.role == "assistant"
    return found[::-1]
