"""OpenAI Responses: a flat list of items; one item is one message here, so that each can come back untouched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Any, Final, TypeAlias

from holdfast.errors import FormatError
from holdfast.formats.wire import (
    Format,
    Json,
    blocks,
    bounded,
    child,
    decode_arguments,
    encode_arguments,
    expect,
    image_from_url,
    image_url,
    kept,
    kind_of,
    object_arguments,
    rebuild,
    text_arguments,
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

__all__ = ["OPENAI_RESPONSES", "reasoned"]

NAME: Final = "openai_responses"
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_ENVELOPE: Final = frozenset({"type", "id", "call_id", "status", "action"})
_IMAGES: Final = frozenset({"input_image", "computer_screenshot"})

_Content: TypeAlias = Text | Image | Opaque


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one input or output item."""
    kind = expect(data, "type", str, where, default="message")
    if kind == "message":
        return _read_message(data, where).read_from(data, format=NAME)
    part = _read_item(data, kind, where).read_from(data, format=NAME)
    role: Role = "tool" if isinstance(part, ToolResult) else "assistant"
    return Message(role=role, parts=(part,)).read_from(data, format=NAME)


def _read_message(data: Json, where: str) -> Message:
    name = expect(data, "role", str, where)
    if name not in _ROLES:
        raise FormatError(f"role {name[:40]!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    message_id = expect(data, "id", str, where, default="") or None
    return Message(role=_ROLES[name], parts=_read_content(data.get("content"), f"{where}.content"), id=message_id)


def _read_content(content: Any, where: str) -> tuple[_Content, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        found = "missing" if content is None else type(content).__name__
        raise FormatError(f"expected text or a list of parts, found {found}", where=where, format=NAME)
    return tuple(_read_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _read_part(block: Any, where: str) -> _Content:
    data = child(block, where)
    kind = expect(data, "type", str, where)
    part: _Content
    if kind in _TEXTS:
        part = Text(text=expect(data, "text", str, where))
    elif kind == "refusal":
        part = Text(text=expect(data, "refusal", str, where))
    elif kind in _IMAGES and isinstance(data.get("image_url"), str):
        part = image_from_url(data["image_url"])
    else:
        part = Opaque(kind=kind, data=bounded(data, where))
    return part.read_from(data, format=NAME)


def _read_item(data: Json, kind: str, where: str) -> Part:
    if kind == "reasoning":
        return _read_reasoning(data, where)
    if kind.endswith("_call_output") or (kind.endswith("_output") and isinstance(data.get("call_id"), str)):
        return _read_result(data, kind, where)
    if kind.endswith("_call") and isinstance(data.get("call_id"), str):
        return _read_call(data, kind, where)
    return Opaque(kind=kind, data=bounded(data, where))


def _read_reasoning(data: Json, where: str) -> Part:
    listed = [*expect(data, "summary", list, where, default=[]), *expect(data, "content", list, where, default=[])]
    text = "\n\n".join(str(block.get("text", "")) for block in listed if isinstance(block, Mapping))
    sealed = expect(data, "encrypted_content", str, where, default="")
    return Thinking(text=text, signature=sealed or None) if text else RedactedThinking(data=sealed)


def _read_call(data: Json, kind: str, where: str) -> ToolCall:
    arguments: Mapping[str, Any] | str
    name = expect(data, "name", str, where, default="")
    if kind == "function_call":
        arguments = decode_arguments(expect(data, "arguments", str, where, default=""))
    elif kind == "custom_tool_call":
        arguments = expect(data, "input", str, where, default="")
    else:  # local shell, computer and their like: the tool is named by the item's type
        name, arguments = kind.removesuffix("_call"), _action(data)
    return ToolCall(id=data["call_id"], name=name, arguments=bounded(arguments, where))


def _action(data: Json) -> Json:
    action = data.get("action")
    return action if isinstance(action, Mapping) else {k: v for k, v in data.items() if k not in _ENVELOPE}


def _read_result(data: Json, kind: str, where: str) -> ToolResult:
    output = data.get("output")
    content: tuple[_Content, ...] = ()
    if isinstance(output, str | list):
        content = _read_content(output, f"{where}.output")
    elif isinstance(output, Mapping) and isinstance(output.get("type"), str):
        content = (_read_part(output, f"{where}.output"),)
    elif output is not None or not kind.endswith("_call_output"):  # an answer in a shape or in fields of its own
        content = (Opaque(kind=kind, data=bounded(data, where)).read_from(data, format=NAME),)
    return ToolResult(call_id=expect(data, "call_id", str, where, default=str(data.get("id") or "")), content=content)


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; each call, result and stretch of words becomes an item of its own."""
    return [item for message in messages for item in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    wire = message.wire(NAME)
    if wire is not None:
        return [wire]
    old = kept(message, NAME)
    is_message = bool(old) and kind_of(old) in {"", "message"}
    worded = (Text, Image, Opaque) if is_message else (Text, Image)
    origin = message.origin if is_message else None
    items: list[Json | None] = []
    for spoken, group in groupby(message.parts, key=lambda part: isinstance(part, worded)):
        parts = tuple(group)
        if spoken:
            items.append(rebuild(replace(message, parts=parts, origin=origin), _make_words, format=NAME))
            origin = None  # one item is one message: what follows it is new
        else:
            items += [rebuild(part, _make_item, format=NAME) for part in parts]
    return [item for item in items if item is not None]


def _make_words(message: Message, old: Json) -> Json | None:
    content = _make_content(message.parts, old.get("content"), message.role)
    spoken = "user" if message.role == "tool" else message.role
    role = old["role"] if _ROLES.get(old.get("role", "")) == spoken else spoken
    return {"role": role, "content": content} if content else None


def _make_content(parts: Sequence[Part], old: object, role: Role) -> str | list[Json]:
    """Content as one string where that is what it was, or where it is one plain text, else as a list of parts."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    bare = len(parts) == 1 and not isinstance(old, list) and not kept(parts[0], NAME)
    if len(texts) == len(parts) and (bare or isinstance(old, str)):
        return "\n".join(texts)
    make = partial(_make_part, role=role)
    rendered = (rebuild(part, make, format=NAME) for part in parts if isinstance(part, _Content))
    return [part for part in rendered if part is not None]


def _make_part(part: _Content, old: Json, *, role: Role) -> Json | None:
    match part:
        case Text() if "refusal" in old:
            return {"type": "refusal", "refusal": part.text} if part.text else None
        case Text():
            kind = "output_text" if role == "assistant" else "input_text"
            return {"type": kind, "text": part.text} if part.text else None
        case Image():
            return {"type": "input_image", "image_url": image_url(part)}
        case Opaque():
            return part.data if old else None


def _make_item(part: Part, old: Json) -> Json | None:
    match part:
        case ToolCall():
            return _make_call(part, old)
        case ToolResult():
            return {
                "type": "function_call_output",
                "call_id": part.call_id,
                "output": _make_output(part.content, old.get("output")),
            }
        case Opaque():
            return part.data if old else None
        case _:
            # Reasoning is kept whole or dropped whole, and that of another provider cannot be read here.
            return None


def _make_call(call: ToolCall, old: Json) -> Json:
    if old.get("type") == "custom_tool_call":
        return {"call_id": call.id, "name": call.name, "input": text_arguments(call.arguments)}
    if old.get("type", "function_call") == "function_call":
        fields = {"call_id": call.id, "name": call.name, "arguments": encode_arguments(call.arguments)}
        return {"type": "function_call", **fields}
    action = object_arguments(call.arguments)
    return {"call_id": call.id, **({"action": action} if isinstance(old.get("action"), Mapping) else action)}


def _make_output(content: Sequence[Part], old: object) -> object:
    if all(isinstance(block, Text) and not kept(block, NAME) for block in content) and not isinstance(old, list):
        return "\n".join(block.text for block in content if isinstance(block, Text))
    rendered = _make_content(content, old if isinstance(old, list) else [], "tool")
    return rendered[0] if isinstance(old, Mapping) and rendered else rendered or ""


def reasoned(messages: Iterable[Message]) -> dict[str, str]:
    """The reasoning item that each item of a conversation came after, by their ids.

    The provider refuses an item that it knows where that reasoning is not there.
    """
    found: dict[str, str] = {}
    reasoning = ""
    for message in messages:
        old = kept(message, NAME)
        own = old.get("id")
        if message.role != "assistant":
            reasoning = ""
        elif not isinstance(own, str):
            continue
        elif kind_of(old) == "reasoning":
            reasoning = own
        elif reasoning:
            found[own] = reasoning
    return found


# --- recognising -------------------------------------------------------------

_OWN_PARTS: Final = frozenset({"input_text", "output_text", "input_image", "input_file"})
_OWN_ITEMS: Final = frozenset({"reasoning", "item_reference", "compaction"})


def marks(data: Json) -> str | None:
    """What only Responses has: typed items and its own content parts."""
    kind = kind_of(data)
    if kind in _OWN_ITEMS or kind.endswith(("_call", "_call_output")):
        return f"a {kind} item"
    kinds = (kind_of(part) for part in blocks(data))
    return next((f"an {kind} part" for kind in kinds if kind in _OWN_PARTS), None)


OPENAI_RESPONSES: Final = Format(name=NAME, read=read, render=render, marks=marks)
