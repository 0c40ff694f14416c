"""Messages as OpenAI's Chat Completions takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from holdfast.context.pairing import is_blank
from holdfast.context.shape.parts import (
    Ids,
    Log,
    bare,
    edited,
    identified,
    is_thought,
    join,
    named,
    placed,
    runs,
    unpictured,
)
from holdfast.formats.wire import kept
from holdfast.messages import Message, Opaque, Part, Text, ToolCall, ToolResult

__all__ = ["shape"]

NAME: Final = "openai_chat"
_LONGEST_NAME: Final = 64


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Messages that are in order already, as Chat Completions takes them."""
    said = placed(messages, _without_empty_calls, log, "empty-calls")
    said = identified(said, Ids(plain=False, unique=False), log)
    said = [message for message in placed(said, _sayable, log, "content") if _is_said(message, log)]
    return [joined for run in runs(_renewed(said)) for joined in _joined(run, log)]


def _without_empty_calls(message: Message) -> Message:
    """The message without a list of calls that holds none."""
    origin = message.origin
    if origin is None or kept(message, NAME).get("tool_calls") != []:
        return message
    data = {key: value for key, value in origin.data.items() if key != "tool_calls"}
    return replace(message, origin=origin._replace(data=data))


def _sayable(message: Message) -> Message:
    # A thinking block is no part of the content here: only a message that is written anew is without it.
    if kept(message, NAME).get("content") == [] or any(is_thought(part) and kept(part, NAME) for part in message.parts):
        message = replace(message, origin=None)
    message = unpictured(edited(message, _part))
    return edited(message, _spoken) if message.role == "assistant" else message


def _spoken(part: Part) -> Part | None:
    """What the assistant may say: of the blocks in its content only text."""
    return None if kept(part, NAME) and isinstance(part, Opaque) else part


def _part(part: Part) -> Part | None:
    match part:
        case Text():
            return part if part.text or not kept(part, NAME) else None
        case ToolCall():
            return _spelled(named(part, _LONGEST_NAME))
        case ToolResult():
            return _answer(part)
        case _:
            return None if bare(part, NAME) else part


def _answer(result: ToolResult) -> ToolResult:
    old = kept(result, NAME)
    if old and old.get("content") in (None, []):
        return replace(result, origin=None)
    content = tuple(block for block in result.content if _part(block) is not None)
    return result if len(content) == len(result.content) else replace(result, content=content)


def _spelled(call: ToolCall) -> ToolCall:
    """The call; one whose arguments were not written as text is written anew."""
    old = kept(call, NAME)
    called, key = (old["custom"], "input") if old.get("type") == "custom" else (old.get("function", old), "arguments")
    is_text = isinstance(called, Mapping) and isinstance(called.get(key), str)
    return call if not old or is_text else replace(call, origin=None)


def _is_said(message: Message, log: Log) -> bool:
    """Tell whether anything of a message can be sent: thinking alone cannot."""
    said = any(not is_thought(part) and not is_blank(part) for part in message.parts)
    if not said and kept(message, NAME):
        log.note("empty-message", None, "dropped a message of which nothing can be sent")
    return said


def _renewed(messages: Sequence[Message]) -> list[Message]:
    """The messages with calls in the spelling of today, but for old ones that were answered in the old spelling."""
    found = list(messages)
    for index, message in enumerate(messages):
        before = messages[index - 1] if index else None
        following = messages[index + 1] if index + 1 < len(messages) else None
        old = any(map(_is_old, message.parts))
        if old and not _is_pair(message, following) and not (before is not None and _is_pair(before, message)):
            found[index] = edited(message, lambda part: replace(part, origin=None) if _is_old(part) else part)
    return found


def _is_old(part: Part) -> bool:
    """Tell whether a call or a result was spelled as before there were tools."""
    wire = kept(part, NAME)
    if isinstance(part, ToolCall):
        return bool(wire) and "function" not in wire and "custom" not in wire
    return isinstance(part, ToolResult) and wire.get("role") == "function"


def _is_pair(asked: Message, answered: Message | None) -> bool:
    """Tell whether one old call is answered by one old result."""
    calls, results = asked.calls, answered.results if answered else ()
    if not len(calls) == len(results) == 1 or calls[0].name != results[0].call_id:
        return False
    return _is_old(calls[0]) and _is_old(results[0])


def _joined(run: Sequence[Message], log: Log) -> list[Message]:
    """What one side says; from its first call on the assistant says it in one message."""
    first = next((index for index, message in enumerate(run) if message.calls), len(run))
    if len(run) - first <= 1:
        return list(run)
    if any(kept(message, NAME) for message in run[first:]):
        log.note("joined", None, "joined the calls of one reply")
    return [*run[:first], join(run[first:])]
