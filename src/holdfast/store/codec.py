"""A message as bytes at rest, and back, with everything it knows about itself.

A message that still is what some provider wrote is kept in that provider's own form, so it can be sent
again byte for byte; any other is kept in the canonical form.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from holdfast import formats
from holdfast.errors import InputError
from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

__all__ = ["decode_message", "encode_message", "from_json", "pack_text", "to_json", "unpack_text"]

_PARTS: Final[dict[str, type[Part]]] = {
    "text": Text,
    "thinking": Thinking,
    "redacted_thinking": RedactedThinking,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "image": Image,
    "opaque": Opaque,
}
_NAMES: Final = {kind: name for name, kind in _PARTS.items()}
_META: Final = ("id", "timestamp", "model", "stop")
_COMPRESS_FROM: Final = 200


def to_json(message: Message) -> dict[str, Any]:
    """A message as plain JSON."""
    data: dict[str, Any] = {key: value for key in _META if (value := getattr(message, key)) is not None}
    if message.usage is not None:
        data["usage"] = {field.name: getattr(message.usage, field.name) for field in fields(message.usage)}
    origin = message.origin
    if origin is not None and message.wire(origin.format) is not None:
        return data | {"format": origin.format, "wire": origin.data}
    return data | {"role": message.role, "parts": [_part_to_json(part) for part in message.parts]}


def _part_to_json(part: Part) -> dict[str, Any]:
    data: dict[str, Any] = {"type": _NAMES[type(part)]}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name == "origin":
            continue
        data[field.name] = [_part_to_json(block) for block in value] if field.name == "content" else value
    return data


def from_json(data: Mapping[str, Any]) -> Message:
    """The message that `to_json` wrote."""
    meta: dict[str, Any] = {key: data[key] for key in _META if key in data}
    if "usage" in data:
        meta["usage"] = Usage(**data["usage"])
    if "wire" in data:
        message = formats.read([data["wire"]], format=data["format"])[0]
        return replace(message, **meta)
    if "parts" not in data:
        raise InputError("neither a wire form nor parts: this is not an archived message")
    return Message(role=data["role"], parts=tuple(_part_from_json(part) for part in data["parts"]), **meta)


def _part_from_json(data: Mapping[str, Any]) -> Part:
    values = {key: value for key, value in data.items() if key != "type"}
    if data["type"] == "tool_result":
        values["content"] = tuple(_part_from_json(block) for block in values["content"])
    return _PARTS[data["type"]](**values)


def encode_message(message: Message) -> bytes:
    """A message as bytes at rest."""
    return pack_text(json.dumps(to_json(message), ensure_ascii=False, separators=(",", ":"), default=str))


def decode_message(data: bytes) -> Message:
    """The message that `encode_message` wrote."""
    return from_json(json.loads(unpack_text(data)))


def pack_text(text: str) -> bytes:
    """Text as bytes, compressed where that pays. The first byte says which."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) < _COMPRESS_FROM:
        return b"\0" + raw
    return b"\1" + zlib.compress(raw, 1)


def unpack_text(data: bytes) -> str:
    """The text that `pack_text` wrote."""
    raw = zlib.decompress(data[1:]) if data[:1] == b"\1" else data[1:]
    return raw.decode("utf-8", "surrogatepass")
