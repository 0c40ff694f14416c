"""Messages as Gemini takes them: turns that alternate strictly, and their wire form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.context.pairing import is_blank
from holdfast.context.shape.parts import (
    Log,
    begun,
    edited,
    is_thought,
    join,
    leading_system,
    placed,
    runs,
    without_empty,
)
from holdfast.formats.wire import object_arguments
from holdfast.messages import Image, Message, Opaque, Part, Text, ToolCall, ToolResult

__all__ = ["render", "shape"]

NAME: Final = "gemini"
_IMAGE: Final = "image/png"


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Messages that are in order already, as turns that alternate; the user begins."""
    lead = leading_system(messages, NAME)
    said = without_empty(placed(messages[lead:], _said, log, "content"), log)
    turns = [run[0] if len(run) == 1 else join(run) for run in runs(begun(said, log))]
    return [*messages[:lead], *turns]


def _said(message: Message) -> Message:
    """The message in a role that a turn can have, with what Gemini has a place for."""
    return edited(message if message.role != "system" else replace(message, role="user"), _part)


def _part(part: Part) -> Part | None:
    """What Gemini has a place for. Thinking of others means nothing to it."""
    match part:
        case Text():
            return None if is_blank(part) else part
        case Image():
            return part if part.data or part.url else None
        case _:
            return None if isinstance(part, Opaque) or is_thought(part) else part


def render(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """The `contents` of a request; the system prompt goes beside them."""
    names: dict[str, str] = {}
    contents: list[Mapping[str, Any]] = []
    for message in messages[leading_system(messages, NAME) :]:
        names |= {call.id: call.name for call in message.calls}
        role = "model" if message.role == "assistant" else "user"
        contents.append({"role": role, "parts": [wire for part in message.parts for wire in _wires(part, names)]})
    return contents


def _wires(part: Part, names: Mapping[str, str]) -> list[Mapping[str, Any]]:
    match part:
        case Text():
            return [{"text": part.text}]
        case ToolCall():
            return [{"functionCall": {"id": part.id, "name": part.name, "args": object_arguments(part.arguments)}}]
        case ToolResult():
            key = "error" if part.is_error else "output"
            answer = {"id": part.call_id, "name": names.get(part.call_id, ""), "response": {key: part.text}}
            images = [_image(block) for block in part.content if isinstance(block, Image)]
            return [{"functionResponse": answer}, *images]
        case Image():
            return [_image(part)]
        case _:
            return []


def _image(part: Image) -> Mapping[str, Any]:
    media_type = part.media_type or _IMAGE
    if part.data is not None:
        return {"inlineData": {"mimeType": media_type, "data": part.data}}
    return {"fileData": {"mimeType": media_type, "fileUri": part.url}}
