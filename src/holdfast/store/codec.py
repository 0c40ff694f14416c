"""Encode a message as bytes for storage, with all of its fields, and decode it.

A message that still is what some provider wrote is kept in that provider's own form, so it can be sent
again byte for byte; any other is kept in the canonical form.

Text on disk has a checksum: that of zlib if it is compressed, a CRC-32 if it is short. So text that was changed on disk
is never mistaken for what was archived.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from holdfast.errors import HoldfastError, InputError
from holdfast.json_text import decode_json
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

T = TypeVar("T")
Value: TypeAlias = int | float | str | bytes | None
"""A value of a SQLite column."""

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
_META: Final = ("id", "timestamp", "model", "stop", "name")
_COMPRESS_FROM: Final = 200
_PLAIN: Final = b"\0"
_COMPRESSED: Final = b"\1"
_CHECKED: Final = b"\6"
"""The encoding of a text, by its first byte. `_PLAIN` is older than checksums; it differs in two bits."""
_SUM: Final = 4
_LATEST: Final = 2**63 - 1

DAMAGE: Final = (zlib.error, ValueError, KeyError, TypeError, IndexError, AttributeError, HoldfastError)
"""The errors that decoding a damaged row can raise."""
_FIELDS: Final = {kind: tuple(field.name for field in fields(kind)) for kind in _NAMES}
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=str)


def to_json(message: Message) -> dict[str, Any]:
    """Encode a message as plain JSON."""
    data: dict[str, Any] = {}
    for key in _META:
        value = getattr(message, key)
        if value is not None:
            data[key] = value
    if message.usage is not None:
        data["usage"] = {field.name: getattr(message.usage, field.name) for field in fields(message.usage)}
    wire = _wire(message)
    if wire is not None:
        return data | wire
    return data | {"role": message.role, "parts": [_part_to_json(part) for part in message.parts]}


def _wire(value: Message | Part) -> dict[str, Any] | None:
    """Return the provider's own form, if it still equals the value and can be parsed again."""
    from holdfast import providers  # noqa: PLC0415 - counting and listing decode no message

    origin = value.origin
    if origin is None or origin.format not in {*providers.FORMATS, PLAIN} or value.wire(origin.format) is None:
        return None
    return {"format": origin.format, "wire": origin.data}


def _part_to_json(part: Part) -> dict[str, Any]:
    data: dict[str, Any] = {"type": _NAMES[type(part)]}
    for name in _FIELDS[type(part)]:
        value = getattr(part, name)
        if name == "origin":
            data |= _wire(part) or {}
        elif name == "content":
            data[name] = [_part_to_json(block) for block in value]
        else:
            data[name] = value
    return data


def from_json(data: Mapping[str, Any]) -> Message:
    """Decode the message that `to_json` wrote."""
    meta: dict[str, Any] = {key: data.get(key) for key in _META}
    meta["usage"] = None  # and not what a reader finds in the wire form
    if "usage" in data:
        meta["usage"] = Usage(**data["usage"])
    if "wire" in data:
        from holdfast import providers  # noqa: PLC0415 - as in `_wire`

        (message,) = providers.read([data["wire"]], format=data["format"], keep_malformed=True)[:1]
        return replace(message, **meta)
    if "parts" not in data:
        raise InputError("neither a wire form nor parts: this is not an archived message")
    return Message(role=data["role"], parts=tuple(_part_from_json(part) for part in data["parts"]), **meta)


def _part_from_json(data: Mapping[str, Any]) -> Part:
    values = {key: value for key, value in data.items() if key not in {"type", "format", "wire"}}
    if data["type"] == "tool_result":
        values["content"] = tuple(_part_from_json(block) for block in values["content"])
    part = _PARTS[data["type"]](**values)
    if "wire" in data:
        return part.read_from(data["wire"], format=data["format"])
    return part


def words(message: Message) -> str:
    """Return the readable text of a message, tool results included. A passage that is part of it needs no copy."""
    return "\n".join(part.text for part in message.parts if isinstance(part, Text | ToolResult))


_SILENT: Final = frozenset({"thinking", "toolCall", "tool_use", "image", "image_url"})
_NO_TEXT: Final = frozenset(
    {"role", "content", "parts", "id", "name", "timestamp", "model", "stop", "usage", "format", "wire", "tool_calls"}
    | {"tool_call_id", "api", "provider", "stopReason", "toolCallId", "toolName", "isError", "details"}
)
"""Keys of a message under which there is no text, but for `content` and `parts`."""


def decode_words(data: bytes) -> str:
    """Return the readable text of an encoded message; of the usual forms without parsing the rest of it."""
    text = unpack_text(data)
    known = decode_json(text)
    wire = known.get("wire", known)
    blocks: Any = None
    if isinstance(wire, dict) and wire.keys() <= _NO_TEXT:
        blocks = wire.get("content", wire.get("parts"))
    return _join_texts(blocks) or words(from_json(known))


def _join_texts(blocks: Any) -> str:
    """Return the text of content blocks of the usual types; empty if one is of another type."""
    if not isinstance(blocks, list):
        return blocks or ""
    texts: list[str] = []
    for block in blocks:
        if not isinstance(block, dict):
            return ""
        kind = block.get("type")
        text = block.get("text")
        if kind == "text" and isinstance(text, str) and text:
            texts.append(text)
        elif kind not in _SILENT:
            return ""
    return "\n".join(texts)


def encode_message(message: Message) -> bytes:
    """Encode a message as bytes."""
    return pack_text(encode_json(message))


def encode_json(message: Message) -> str:
    """Encode a message as JSON text: all that is stored of it, also what its digest leaves out."""
    return _ENCODER.encode(to_json(message))


def decode_message(data: bytes) -> Message:
    """Decode the message that `encode_message` wrote."""
    return from_json(decode_json(unpack_text(data)))


def pack_text(text: str) -> bytes:
    """Encode text with a checksum, compressed if that is shorter. The first byte is the kind."""
    raw = text_bytes(text)
    if len(raw) < _COMPRESS_FROM:
        return _checked(raw)
    return _COMPRESSED + zlib.compress(raw, 1)


def _checked(raw: bytes) -> bytes:
    return _CHECKED + zlib.crc32(raw).to_bytes(_SUM) + raw


def unpack_text(data: bytes) -> str:
    """Decode the text that `pack_text` wrote; raises a ValueError or zlib.error for other bytes."""
    return bytes_text(_unpack_bytes(data))


def _unpack_bytes(data: bytes) -> bytes:
    kind = data[:1]
    if kind == _CHECKED:
        start = 1 + _SUM
        raw = data[start:]
        if zlib.crc32(raw).to_bytes(_SUM) != data[1:start]:
            raise ValueError("the checksum does not match")
        return raw
    if kind == _COMPRESSED:
        return zlib.decompress(data[1:])
    if kind == _PLAIN:
        return data[1:]
    raise ValueError("not text that Holdfast wrote")


def pack_json(data: object) -> bytes:
    """Encode a document with a checksum; what JSON cannot hold is an InputError."""
    # msgspec is ten times as fast, but it refuses lone surrogates and very large numbers.
    with suppress(TypeError, ValueError, OverflowError):
        return _checked(msgspec.json.encode(data))
    try:
        return _checked(json.dumps(data, separators=(",", ":")).encode())
    except (TypeError, ValueError) as error:
        raise InputError(f"cannot be kept as JSON: {error}") from error


def unpack_json(data: bytes) -> dict[str, Any]:
    """Decode the document that `pack_json` wrote, or the bare JSON of a store without checksums."""
    found = decode_json(_unpack_document(data))
    if not isinstance(found, dict):
        raise TypeError("not a document")
    return found


def unpack_typed(data: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode the document that `pack_json` wrote into the type of a decoder."""
    raw = _unpack_document(data)
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeError):  # as in `decode_json`
        return msgspec.convert(json.loads(bytes_text(raw)), decoder.type)


def _unpack_document(data: bytes) -> bytes:
    if data[:1] == b"{":  # of a store without checksums
        return data
    return _unpack_bytes(data)


def add_checksum(data: Value) -> Value:
    """Add a checksum to text or a document that has none; return anything else unchanged."""
    if not isinstance(data, bytes):
        return data
    if data[:1] == _PLAIN:
        return _checked(data[1:])
    if data[:1] == b"{":
        return _checked(data)
    return data


def text_bytes(text: str) -> bytes:
    """Encode text, lone surrogates included, which JSON allows."""
    return text.encode("utf-8", "surrogatepass")


def bytes_text(data: bytes) -> str:
    """Decode the text that `text_bytes` wrote."""
    return data.decode("utf-8", "surrogatepass")


def clamp_time(milliseconds: int) -> int:
    """Clamp a time to what a column can hold."""
    return max(-_LATEST, min(milliseconds, _LATEST))
