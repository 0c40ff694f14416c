"""OpenAI Responses: a flat list of items; one item is one message here, so that each can come back untouched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import (
    Format,
    Json,
    child,
    decode_arguments,
    encode_arguments,
    expect,
    image_from_url,
    image_url,
    kept,
    overlay,
)
from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

__all__ = ["OPENAI_RESPONSES"]

NAME: Final = "openai_responses"
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one input or output item."""
    kind = expect(data, "type", str, where, default="message")
    if kind == "message":
        message = _read_message(data, where)
    elif kind == "reasoning":
        message = Message(role="assistant", parts=(_read_reasoning(data, where),))
    elif kind.endswith("_call_output"):
        message = Message(role="tool", parts=(_read_result(data, where),))
    elif kind.endswith("_call") and isinstance(data.get("call_id"), str):
        message = Message(role="assistant", parts=(_read_call(data, kind, where),))
    else:
        message = Message(role="assistant", parts=(Opaque(kind=kind, data=data),))
    return message.read_from(data, format=NAME)


def _read_message(data: Json, where: str) -> Message:
    name = expect(data, "role", str, where)
    if name not in _ROLES:
        raise FormatError(f"role {name!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    message_id = expect(data, "id", str, where, default="") or None
    return Message(role=_ROLES[name], parts=_read_content(data.get("content"), f"{where}.content"), id=message_id)


def _read_content(content: Any, where: str) -> tuple[Text | Image | Opaque, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        found = "missing" if content is None else type(content).__name__
        raise FormatError(f"expected text or a list of parts, found {found}", where=where, format=NAME)
    return tuple(_read_part(child(part, f"{where}[{i}]"), f"{where}[{i}]") for i, part in enumerate(content))


def _read_part(data: Json, where: str) -> Text | Image | Opaque:
    kind = expect(data, "type", str, where)
    part: Text | Image | Opaque = Opaque(kind=kind, data=data)
    if kind in _TEXTS:
        part = Text(text=expect(data, "text", str, where))
    elif kind == "input_image" and isinstance(data.get("image_url"), str):
        part = image_from_url(data["image_url"])
    return part.read_from(data, format=NAME)


def _read_reasoning(data: Json, where: str) -> Part:
    blocks = [*expect(data, "summary", list, where, default=[]), *expect(data, "content", list, where, default=[])]
    text = "\n\n".join(str(block.get("text", "")) for block in blocks if isinstance(block, Mapping))
    sealed = expect(data, "encrypted_content", str, where, default="")
    return Thinking(text=text, signature=sealed or None) if text else RedactedThinking(data=sealed)


def _read_call(data: Json, kind: str, where: str) -> ToolCall:
    if kind == "function_call":
        name, arguments = (
            expect(data, "name", str, where, default=""),
            decode_arguments(expect(data, "arguments", str, where, default="")),
        )
    elif kind == "custom_tool_call":
        name, arguments = expect(data, "name", str, where, default=""), expect(data, "input", str, where, default="")
    else:  # local shell, computer and their like: the tool is named by the item's type
        action = data.get("action")
        name, arguments = kind.removesuffix("_call"), action if isinstance(action, Mapping) else {}
    return ToolCall(id=expect(data, "call_id", str, where), name=name, arguments=arguments)


def _read_result(data: Json, where: str) -> ToolResult:
    output = data.get("output")
    content: tuple[Text | Image | Opaque, ...]
    if isinstance(output, str | list):
        content = _read_content(output, f"{where}.output")
    else:
        content = () if output is None else (Opaque(kind="output", data=output),)
    call_id = expect(data, "call_id", str, where, default=str(data.get("id") or ""))
    return ToolResult(call_id=call_id, content=content)


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; each call, result and stretch of words becomes an item of its own."""
    return [item for message in messages for item in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    wire = message.wire(NAME)
    if wire is not None:
        return [wire]
    old = kept(message, NAME)
    items: list[Json] = []
    words: list[Part] = []
    for part in message.parts:
        if isinstance(part, Text | Image):
            words.append(part)
            continue
        items += _render_words(message.role, words, old)
        words = []
        items += _render_item(part, old)
    return items + _render_words(message.role, words, old)


def _render_words(role: Role, words: Sequence[Part], old: Json) -> list[Json]:
    if not words:
        return []
    old = old if old.get("type", "message") == "message" else {}
    wire_role = old.get("role", "user" if role == "tool" else role)
    if isinstance(old.get("content"), str) and all(isinstance(part, Text) for part in words):
        return [overlay(old, {"content": "\n".join(part.text for part in words if isinstance(part, Text))})]
    content = [_render_part(part, role) for part in words]
    return [overlay(old or {"type": "message"}, {"role": wire_role, "content": content})]


def _render_part(part: Part, role: Role) -> Json:
    wire = part.wire(NAME)
    if wire is not None:
        return wire
    old = kept(part, NAME)
    if isinstance(part, Image):
        return overlay(old, {"type": "input_image", "image_url": image_url(part)})
    assert isinstance(part, Text)
    return overlay({"type": "output_text" if role == "assistant" else "input_text"} | dict(old), {"text": part.text})


def _render_item(part: Part, old: Json) -> list[Json]:
    match part:
        case ToolCall():
            return [_render_call(part, old)]
        case ToolResult():
            blocks = [_render_part(block, "tool") for block in part.content if isinstance(block, Text | Image)]
            output = part.text if all(isinstance(block, Text) for block in part.content) else blocks
            own = old if str(old.get("type", "")).endswith("_call_output") else {"type": "function_call_output"}
            return [overlay(own, {"call_id": part.call_id, "output": output})]
        case _:
            # Reasoning of another provider cannot be read here, and opaque parts belong to their own format.
            return []


def _render_call(call: ToolCall, old: Json) -> Json:
    if old.get("type") == "custom_tool_call" and isinstance(call.arguments, str):
        return overlay(old, {"call_id": call.id, "name": call.name, "input": call.arguments})
    own = old if old.get("type") == "function_call" else {"type": "function_call"}
    return overlay(own, {"call_id": call.id, "name": call.name, "arguments": encode_arguments(call.arguments)})


# --- recognising -------------------------------------------------------------

_OWN_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
_OWN_ITEMS: Final = frozenset({"reasoning", "item_reference", "compaction"})


def marks(data: Json) -> str | None:
    """What only Responses has: typed items and its own content parts."""
    kind = data.get("type")
    if isinstance(kind, str) and (kind in _OWN_ITEMS or kind.endswith(("_call", "_call_output"))):
        return f"a {kind} item"
    content = data.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") in _OWN_PARTS:
            return f"an {part['type']} part"
    return None


OPENAI_RESPONSES: Final = Format(name=NAME, read=read, render=render, marks=marks)
