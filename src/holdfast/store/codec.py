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
    Usage,
)

__all__ = [
    "bytes_text",
    "decode_message",
    "encode_message",
    "from_json",
    "pack_text",
    "text_bytes",
    "to_json",
    "unpack_text",
    "words",
]

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
_READABLE: Final = frozenset({*formats.FORMATS, PLAIN})
_META: Final = ("id", "timestamp", "model", "stop", "name")
_COMPRESS_FROM: Final = 200
_FIELDS: Final = {kind: tuple(field.name for field in fields(kind)) for kind in _NAMES}
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def to_json(message: Message) -> dict[str, Any]:
    """A message as plain JSON."""
    data: dict[str, Any] = {key: value for key in _META if (value := getattr(message, key)) is not None}
    if message.usage is not None:
        data["usage"] = {field.name: getattr(message.usage, field.name) for field in fields(message.usage)}
    if (wire := _wire(message)) is not None:
        return data | wire
    return data | {"role": message.role, "parts": [_part_to_json(part) for part in message.parts]}


def _wire(value: Message | Part) -> dict[str, Any] | None:
    """The provider's own form, where it still stands for the value and we could read it again."""
    origin = value.origin
    if origin is None or origin.format not in _READABLE or value.wire(origin.format) is None:
        return None
    return {"format": origin.format, "wire": origin.data}


def _part_to_json(part: Part) -> dict[str, Any]:
    data: dict[str, Any] = {"type": _NAMES[type(part)]}
    for name in _FIELDS[type(part)]:
        value = getattr(part, name)
        if name == "origin":
            data |= _wire(part) or {}
        else:
            data[name] = [_part_to_json(block) for block in value] if name == "content" else value
    return data


def from_json(data: Mapping[str, Any]) -> Message:
    """The message that `to_json` wrote."""
    meta: dict[str, Any] = {key: data.get(key) for key in _META}
    meta["usage"] = Usage(**data["usage"]) if "usage" in data else None
    if "wire" in data:
        return replace(formats.read([data["wire"]], format=data["format"])[0], **meta)
    if "parts" not in data:
        raise InputError("neither a wire form nor parts: this is not an archived message")
    return Message(role=data["role"], parts=tuple(_part_from_json(part) for part in data["parts"]), **meta)


def _part_from_json(data: Mapping[str, Any]) -> Part:
    values = {key: value for key, value in data.items() if key not in {"type", "format", "wire"}}
    if data["type"] == "tool_result":
        values["content"] = tuple(_part_from_json(block) for block in values["content"])
    part = _PARTS[data["type"]](**values)
    return part.read_from(data["wire"], format=data["format"]) if "wire" in data else part


def words(message: Message) -> str:
    """The readable text of a message, tool results included. A passage that is a part of it needs no copy."""
    return "\n".join(part.text for part in message.parts if isinstance(part, Text | ToolResult))


def encode_message(message: Message) -> bytes:
    """A message as bytes at rest."""
    return pack_text(_ENCODER.encode(to_json(message)))


def decode_message(data: bytes) -> Message:
    """The message that `encode_message` wrote."""
    return from_json(json.loads(unpack_text(data)))


def pack_text(text: str) -> bytes:
    """Text as bytes, compressed where that pays. The first byte says which."""
    raw = text_bytes(text)
    if len(raw) < _COMPRESS_FROM:
        return b"\0" + raw
    return b"\1" + zlib.compress(raw, 1)


def unpack_text(data: bytes) -> str:
    """The text that `pack_text` wrote."""
    return bytes_text(zlib.decompress(data[1:]) if data[:1] == b"\1" else data[1:])


def text_bytes(text: str) -> bytes:
    """Text as bytes, halves of surrogate pairs included, which JSON can carry."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """The text that `text_bytes` wrote."""
    return data.decode("utf-8", "surrogatepass")
