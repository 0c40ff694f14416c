"""Anthropic Messages: content blocks; tool results inside user messages; the system prompt beside the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import (
    Format,
    Json,
    blocks,
    bounded,
    child,
    expect,
    kept,
    kind_of,
    merge_turns,
    number,
    object_arguments,
    rebuild,
    sealed_elsewhere,
)
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

__all__ = ["ANTHROPIC", "hints", "read_block", "read_content", "read_usage", "render_block", "render_content"]

NAME: Final = "anthropic"
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of the Messages API, request or response."""
    name = expect(data, "role", str, where)
    if name not in _ROLES:
        raise FormatError(f"role {name[:40]!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    parts = read_content(data.get("content"), f"{where}.content")
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


def read_content(content: Any, where: str) -> tuple[Part, ...]:
    """Read the content of a message or of the system prompt: text, or a list of blocks."""
    if isinstance(content, str):
        return (Text(text=content),)
    return tuple(read_block(block, f"{where}[{index}]") for index, block in enumerate(_listed(content, where)))


def _listed(content: Any, where: str) -> list[Any]:
    if isinstance(content, list):
        return content
    found = "missing" if content is None else type(content).__name__
    raise FormatError(f"expected text or a list of blocks, found {found}", where=where, format=NAME)


def read_block(block: Any, where: str) -> Part:
    """Read one content block; blocks of a type we do not interpret become opaque parts."""
    data = child(block, where)
    kind = expect(data, "type", str, where)
    reader = _READERS.get(kind)
    part = reader(data, where) if reader is not None else Opaque(kind=kind, data=bounded(data, where))
    return part.read_from(data, format=NAME)


def _read_text(data: Json, where: str) -> Text:
    return Text(text=expect(data, "text", str, where))


def _read_thinking(data: Json, where: str) -> Part:
    seal = expect(data, "signature", str, where, default="")
    return Thinking(text=expect(data, "thinking", str, where), signature=seal or None)


def _read_redacted(data: Json, where: str) -> Part:
    return RedactedThinking(data=expect(data, "data", str, where))


def _read_call(data: Json, where: str) -> Part:
    found = data.get("input")
    arguments = found if isinstance(found, str) else bounded(expect(data, "input", dict, where, default={}), where)
    call_id, name = (expect(data, key, str, where, default="") for key in ("id", "name"))
    return ToolCall(id=call_id, name=name, arguments=arguments)


def _read_result(data: Json, where: str) -> Part:
    return ToolResult(
        call_id=expect(data, "tool_use_id", str, where, default=""),
        content=_read_inside(data.get("content"), f"{where}.content"),
        is_error=expect(data, "is_error", bool, where, default=False),
    )


def _read_inside(content: Any, where: str) -> tuple[ResultContent, ...]:
    """What a tool result holds: text and images; anything else, calls and results too, is carried as it is."""
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    return tuple(_read_inner(block, f"{where}[{index}]") for index, block in enumerate(_listed(content, where)))


def _read_inner(block: Any, where: str) -> ResultContent:
    data = child(block, where)
    kind = expect(data, "type", str, where)
    part: ResultContent
    if kind == "text":
        part = _read_text(data, where)
    elif kind == "image":
        part = _read_image(data, where)
    else:
        part = Opaque(kind=kind, data=bounded(data, where))
    return part.read_from(data, format=NAME)


def _read_image(data: Json, where: str) -> Image | Opaque:
    source, path = child(data.get("source"), f"{where}.source"), f"{where}.source"
    if source.get("type") == "base64":
        media_type = expect(source, "media_type", str, path, default="")
        return Image(media_type=media_type or None, data=expect(source, "data", str, path))
    if source.get("type") == "url":
        return Image(url=expect(source, "url", str, path))
    return Opaque(kind="image", data=bounded(data, where))


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
    if not isinstance(data, Mapping) or (sent := number(data.get("input_tokens"))) is None:
        return None
    return Usage(
        input=sent,
        output=number(data.get("output_tokens")) or 0,
        cache_read=number(data.get("cache_read_input_tokens")) or 0,
        cache_write=number(data.get("cache_creation_input_tokens")) or 0,
    )


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; results that other formats send one by one are put into one user message.

    The provider refuses empty messages and blank text: of what we make ourselves, nothing such is rendered.
    """
    rendered = ((rebuild(message, _make_message, format=NAME), not kept(message, NAME)) for message in messages)
    return merge_turns([(wire, made) for wire, made in rendered if wire is not None], join=_join)


def _make_message(message: Message, old: Json) -> Json | None:
    content = render_content(message.parts, old.get("content"))
    return {"role": "user" if message.role == "tool" else message.role, "content": content} if content else None


def render_content(parts: Sequence[Part], old: object = None) -> str | list[Json]:
    """Render parts as one string where that is what `old` was, or where they are one plain text, else as blocks."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    bare = len(parts) == 1 and not isinstance(old, list) and not kept(parts[0], NAME)
    if len(texts) == len(parts) and (bare or isinstance(old, str)):
        text = "\n".join(texts)
        return text if text.strip() else ""
    return [block for part in parts if (block := render_block(part)) is not None]


def _join(turns: Sequence[Json]) -> Json:
    contents = [turn["content"] for turn in turns]
    joined = [[{"type": "text", "text": content}] if isinstance(content, str) else content for content in contents]
    return {**turns[0], "content": [block for content in joined for block in content]}


def render_block(part: Part) -> Json | None:
    """Render one part; None where Anthropic has no place for it (what only another provider can read)."""
    return rebuild(part, _make_block, format=NAME)


def _make_block(part: Part, old: Json) -> Json | None:
    match part:
        case Text():
            return {"type": "text", "text": part.text} if part.text.strip() else None
        case Thinking() | RedactedThinking():
            return _make_thinking(part)
        case ToolCall():
            arguments = object_arguments(part.arguments)
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        case ToolResult():
            return _make_result(part, old)
        case Image():
            return _make_image(part)
        case Opaque():
            return part.data if old else None


def _make_thinking(part: Thinking | RedactedThinking) -> Json | None:
    if isinstance(part, RedactedThinking):
        return None if sealed_elsewhere(part) else {"type": "redacted_thinking", "data": part.data}
    if part.signature is not None and not sealed_elsewhere(part):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    # Unsigned thinking is refused by the provider: it can only be said as plain words.
    return {"type": "text", "text": part.text} if part.text.strip() else None


def _make_result(part: ToolResult, old: Json) -> Json:
    # An error may hold nothing but text; what was read from one is left there all the same.
    allowed = tuple(block for block in part.content if old or not part.is_error or isinstance(block, Text))
    content = render_content(allowed, old.get("content"))
    said = {"content": content} if content else {}
    error = {"is_error": True} if part.is_error else {}
    return {"type": "tool_result", "tool_use_id": part.call_id, **said, **error}


def _make_image(part: Image) -> Json | None:
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type or "image/png", "data": part.data}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        return None
    return {"type": "image", "source": source}


# --- recognising -------------------------------------------------------------

_OWN_BLOCKS: Final = ("tool_use", "tool_result", "redacted_thinking", "document", "search_result")
_OWN_KEYS: Final = {"thinking": "signature", "image": "source"}


def marks(data: Json) -> str | None:
    """What only Anthropic's format has: its tool blocks, signatures, image sources, response envelope."""
    if data.get("type") == "message" and "stop_reason" in data:
        return "a response envelope"
    for block in blocks(data):
        kind = kind_of(block)
        if kind.endswith(_OWN_BLOCKS) or _OWN_KEYS.get(kind) in block:
            return f"a {kind} block"
    return None


def hints(data: Json) -> bool:
    """Tell whether something stands in a message that began with Anthropic, though others have taken it over."""
    return any("cache_control" in block or kind_of(block) == "thinking" for block in blocks(data))


ANTHROPIC: Final = Format(name=NAME, read=read, render=render, marks=marks)
