"""Anthropic Messages: content blocks; tool results inside user messages; the system prompt beside the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import Format, Json, child, expect, kept, merge_turns, object_arguments, overlay
from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    ResultContent,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)

__all__ = ["ANTHROPIC", "read_block", "read_usage", "render_block"]

NAME: Final = "anthropic"
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
_WIRE_ROLES: Final[dict[Role, str]] = {"user": "user", "assistant": "assistant", "system": "system", "tool": "user"}


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of the Messages API, request or response."""
    name = expect(data, "role", str, where)
    if name not in _ROLES:
        raise FormatError(f"role {name!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    parts = _read_content(data.get("content"), f"{where}.content")
    role: Role = "tool" if any(isinstance(part, ToolResult) for part in parts) else _ROLES[name]
    message = Message(
        role=role,
        parts=parts,
        id=expect(data, "id", str, where, default="") or None,
        usage=read_usage(data.get("usage")),
        model=expect(data, "model", str, where, default="") or None,
        stop=expect(data, "stop_reason", str, where, default="") or None,
    )
    return message.read_from(data, format=NAME)


def _read_content(content: Any, where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        found = "missing" if content is None else type(content).__name__
        raise FormatError(f"expected text or a list of blocks, found {found}", where=where, format=NAME)
    return tuple(read_block(child(block, f"{where}[{i}]"), f"{where}[{i}]") for i, block in enumerate(content))


def read_block(data: Json, where: str) -> Part:
    """Read one content block; blocks of a type we do not interpret become opaque parts."""
    kind = expect(data, "type", str, where)
    reader = _READERS.get(kind)
    part = reader(data, where) if reader is not None else Opaque(kind=kind, data=data)
    return part.read_from(data, format=NAME)


def _read_text(data: Json, where: str) -> Part:
    return Text(text=expect(data, "text", str, where))


def _read_thinking(data: Json, where: str) -> Part:
    signature = expect(data, "signature", str, where, default="")
    return Thinking(text=expect(data, "thinking", str, where), signature=signature or None)


def _read_redacted(data: Json, where: str) -> Part:
    return RedactedThinking(data=expect(data, "data", str, where))


def _read_call(data: Json, where: str) -> Part:
    return ToolCall(
        id=expect(data, "id", str, where, default=""),
        name=expect(data, "name", str, where, default=""),
        arguments=data["input"]
        if isinstance(data.get("input"), str)
        else expect(data, "input", dict, where, default={}),
    )


def _read_result(data: Json, where: str) -> Part:
    content = data.get("content")
    blocks = () if content is None else _read_content(content, f"{where}.content")
    return ToolResult(
        call_id=expect(data, "tool_use_id", str, where, default=""),
        content=tuple(_inside_result(block) for block in blocks),
        is_error=expect(data, "is_error", bool, where, default=False),
    )


def _inside_result(part: Part) -> ResultContent:
    """A block as a tool result may hold it; anything but text and images is carried as it is."""
    if isinstance(part, Text | Image | Opaque):
        return part
    data = part.origin.data if part.origin is not None else {}
    return Opaque(kind=str(data.get("type", "")), data=data).read_from(data, format=NAME)


def _read_image(data: Json, where: str) -> Part:
    source = child(data.get("source"), f"{where}.source")
    if source.get("type") == "base64":
        return Image(
            media_type=expect(source, "media_type", str, f"{where}.source", default="") or None,
            data=expect(source, "data", str, f"{where}.source"),
        )
    if source.get("type") == "url":
        return Image(url=expect(source, "url", str, f"{where}.source"))
    return Opaque(kind="image", data=data)


_READERS: Final[dict[str, Callable[[Json, str], Part]]] = {
    "text": _read_text,
    "thinking": _read_thinking,
    "redacted_thinking": _read_redacted,
    "tool_use": _read_call,
    "tool_result": _read_result,
    "image": _read_image,
}


def read_usage(data: Any) -> Usage | None:
    """Read a usage object; null, foreign and half-filled ones are no usage."""
    if not isinstance(data, Mapping):
        return None
    counts = {key: value if isinstance(value := data.get(key), int) else 0 for key in _USAGE_KEYS}
    return Usage(
        input=counts["input_tokens"],
        output=counts["output_tokens"],
        cache_read=counts["cache_read_input_tokens"],
        cache_write=counts["cache_creation_input_tokens"],
    )


_USAGE_KEYS: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; results that other formats send one by one are put into one user message."""
    rendered = [_render_message(message) for message in messages]
    return merge_turns([pair for pair in rendered if pair is not None], join=_join)


def _render_message(message: Message) -> tuple[dict[str, Any], bool] | None:
    """The wire form, and whether it is of our making; None when nothing of the message can be said here."""
    wire = message.wire(NAME)
    if wire is not None:
        return wire, False  # type: ignore[return-value]  # handed back as it came, never changed
    old = kept(message, NAME)
    blocks = [block for part in message.parts if (block := render_block(part)) is not None]
    if not blocks and message.parts:
        return None
    content: object = blocks
    if isinstance(old.get("content"), str) and all(isinstance(part, Text) for part in message.parts):
        content = message.text
    return overlay(old, {"role": _WIRE_ROLES[message.role], "content": content}), not old


def _join(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    return left | {"content": [*left["content"], *right["content"]]}


def render_block(part: Part) -> Json | None:
    """Render one part; None where Anthropic has no place for it (thinking that only another provider can read)."""
    wire = part.wire(NAME)
    if wire is not None:
        return wire
    fields = _fields(part)
    return None if fields is None else overlay(kept(part, NAME), fields)


def _fields(part: Part) -> dict[str, Any] | None:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return _thinking_fields(part)
        case ToolCall():
            arguments = object_arguments(part.arguments)
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        case ToolResult():
            content = [block for item in part.content if (block := render_block(item)) is not None]
            error = {"is_error": True} if part.is_error else {}
            return {"type": "tool_result", "tool_use_id": part.call_id, "content": content, **error}
        case Image():
            return {"type": "image", "source": _image_source(part)}
        case RedactedThinking() | Opaque():
            return None


def _thinking_fields(part: Thinking) -> dict[str, Any] | None:
    # Unsigned thinking is refused by the provider: it can only be said as plain words.
    if part.signature is None:
        return {"type": "text", "text": part.text} if part.text else None
    return {"type": "thinking", "thinking": part.text, "signature": part.signature}


def _image_source(part: Image) -> dict[str, Any]:
    if part.data is not None:
        return {"type": "base64", "media_type": part.media_type or "image/png", "data": part.data}
    return {"type": "url", "url": part.url or ""}


# --- recognising -------------------------------------------------------------

_OWN_BLOCKS: Final = frozenset(
    {"tool_use", "tool_result", "redacted_thinking", "server_tool_use", "document", "web_search_tool_result"}
)


def marks(data: Json) -> str | None:
    """What only Anthropic's format has: its tool blocks, signatures, image sources, response envelope."""
    if data.get("type") == "message" and "stop_reason" in data:
        return "a response envelope"
    content = data.get("content")
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, Mapping):
            continue
        kind = block.get("type")
        if kind in _OWN_BLOCKS:
            return f"a {kind} block"
        if (kind == "thinking" and "signature" in block) or (kind == "image" and "source" in block):
            return f"a {kind} block"
        if "cache_control" in block:
            return "a cache_control mark"
    return None


ANTHROPIC: Final = Format(name=NAME, read=read, render=render, marks=marks)
