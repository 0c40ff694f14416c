"""OpenAI Chat Completions: calls beside the content, one tool message for each result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import (
    ABSENT,
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
from holdfast.messages import Image, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult, Usage

__all__ = ["OPENAI_CHAT", "read_usage"]

NAME: Final = "openai_chat"
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
_THINKING_KEYS: Final = ("reasoning_content", "reasoning")


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of a Chat Completions request or response."""
    name = expect(data, "role", str, where)
    role = _ROLES.get(name)
    if role is None:
        raise FormatError(f"role {name!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    content = _read_content(data.get("content"), f"{where}.content")
    parts = (_result(data, content, where),) if role == "tool" else (*_thinking(data), *content, *_calls(data, where))
    message = Message(role=role, parts=parts, usage=read_usage(data.get("usage")))
    return message.read_from(data, format=NAME)


def _read_content(content: Any, where: str) -> tuple[Text | Image | Opaque, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        raise FormatError(f"expected text or a list of parts, found {type(content).__name__}", where=where, format=NAME)
    return tuple(_read_part(child(part, f"{where}[{i}]"), f"{where}[{i}]") for i, part in enumerate(content))


def _read_part(data: Json, where: str) -> Text | Image | Opaque:
    kind = expect(data, "type", str, where)
    part: Text | Image | Opaque
    if kind == "text":
        part = Text(text=expect(data, "text", str, where))
    elif kind == "image_url":
        source = child(data.get("image_url"), f"{where}.image_url")
        part = image_from_url(expect(source, "url", str, f"{where}.image_url"))
    else:
        part = Opaque(kind=kind, data=data)
    return part.read_from(data, format=NAME)


def _thinking(data: Json) -> tuple[Thinking, ...]:
    texts = (data.get(key) for key in _THINKING_KEYS)
    return tuple(Thinking(text=text) for text in texts if isinstance(text, str) and text)[:1]


def _calls(data: Json, where: str) -> tuple[ToolCall, ...]:
    calls = [
        _read_call(child(call, f"{where}.tool_calls[{i}]"), f"{where}.tool_calls[{i}]")
        for i, call in enumerate(expect(data, "tool_calls", list, where, default=[]))
    ]
    legacy = data.get("function_call")
    if isinstance(legacy, Mapping):
        calls.append(_read_function(legacy, f"{where}.function_call", call_id=str(legacy.get("name", ""))))
    return tuple(calls)


def _read_call(data: Json, where: str) -> ToolCall:
    call_id = expect(data, "id", str, where, default="")
    if data.get("type") == "custom":
        custom = child(data.get("custom"), f"{where}.custom")
        name, text = (expect(custom, key, str, f"{where}.custom", default="") for key in ("name", "input"))
        return ToolCall(id=call_id, name=name, arguments=text).read_from(data, format=NAME)
    function = child(data.get("function"), f"{where}.function")
    return _read_function(function, f"{where}.function", call_id=call_id).read_from(data, format=NAME)


def _read_function(data: Json, where: str, *, call_id: str) -> ToolCall:
    arguments = data.get("arguments")
    return ToolCall(
        id=call_id,
        name=expect(data, "name", str, where, default=""),
        arguments=arguments if isinstance(arguments, Mapping) else decode_arguments(arguments or ""),
    )


def _result(data: Json, content: tuple[Text | Image | Opaque, ...], where: str) -> ToolResult:
    name = expect(data, "name", str, where, default="")
    call_id = expect(data, "tool_call_id", str, where, default=name)  # the old `function` role names the function only
    return ToolResult(call_id=call_id, content=content, name=name or None)


def read_usage(data: Any) -> Usage | None:
    """Read a usage object of Chat Completions; cached tokens are part of its prompt tokens."""
    if not isinstance(data, Mapping) or not isinstance(data.get("prompt_tokens"), int):
        return None
    details = data.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else 0
    cached = cached if isinstance(cached, int) else 0
    output = data.get("completion_tokens")
    return Usage(
        input=data["prompt_tokens"] - cached, output=output if isinstance(output, int) else 0, cache_read=cached
    )


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; a message with several results becomes one tool message for each."""
    return [wire for message in messages for wire in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    wire = message.wire(NAME)
    if wire is not None:
        return [wire]
    old = kept(message, NAME)
    if message.role == "assistant":
        return _render_assistant(message, old)
    if message.role == "tool":
        return _render_results(message, old)
    content = _render_content(message.parts, old)
    return [overlay(old, {"role": old.get("role", message.role), "content": content})] if content else []


def _render_assistant(message: Message, old: Json) -> list[Json]:
    calls = [_render_call(call) for call in message.calls]
    content = _render_content(message.parts, old)
    if not calls and not content and message.parts:
        return []  # nothing but thinking: there is no field that may be sent back
    thinking = "\n".join(part.text for part in message.parts if isinstance(part, Thinking))
    fields: dict[str, object] = {"role": "assistant", "content": content or (None if calls else "")}
    fields.update({key: thinking or ABSENT for key in _THINKING_KEYS if key in old})
    fields["tool_calls"] = calls or ABSENT
    if not calls:
        fields["function_call"] = ABSENT
    return [overlay(old, fields)]


def _render_results(message: Message, old: Json) -> list[Json]:
    rendered: list[Json] = []
    for result in message.results:
        fields = {"role": old.get("role", "tool"), "tool_call_id": result.call_id}
        content = _render_content(result.content, old) or ""
        rendered.append(overlay(old, {**fields, "content": content}))
    rest = _render_content(tuple(part for part in message.parts if not isinstance(part, ToolResult)), {})
    return [*rendered, {"role": "user", "content": rest}] if rest else rendered


def _render_content(parts: Sequence[Part], old: Json) -> str | list[Json]:
    said = [part for part in parts if isinstance(part, Text | Image | Opaque)]
    rendered = [block for part in said if (block := _render_part(part)) is not None]
    if isinstance(old.get("content"), list) or any(not isinstance(part, Text) for part in said):
        return rendered
    return "\n".join(part.text for part in said if isinstance(part, Text))


def _render_part(part: Text | Image | Opaque) -> Json | None:
    wire = part.wire(NAME)
    if wire is not None:
        return wire
    old = kept(part, NAME)
    if isinstance(part, Text):
        return overlay(old, {"type": "text", "text": part.text})
    if isinstance(part, Image):
        return overlay(old, {"type": "image_url", "image_url": {"url": image_url(part)}})
    return None


def _render_call(call: ToolCall) -> Json:
    wire = call.wire(NAME)
    if wire is not None:
        return wire
    function = {"name": call.name, "arguments": encode_arguments(call.arguments)}
    return overlay(kept(call, NAME), {"id": call.id, "type": "function", "function": function})


# --- recognising -------------------------------------------------------------

_OWN_PARTS: Final = frozenset({"image_url", "input_audio", "file", "refusal"})


def marks(data: Json) -> str | None:
    """What only Chat Completions has: calls beside the content, its own roles and content parts."""
    if isinstance(data.get("tool_calls"), list):
        return "a tool_calls field"
    if data.get("role") in {"developer", "tool", "function"} and "type" not in data:
        return f"the role {data['role']!r}"
    content = data.get("content")
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and part.get("type") in _OWN_PARTS and "source" not in part:
            return f"a {part['type']} part"
    return None


OPENAI_CHAT: Final = Format(name=NAME, read=read, render=render, marks=marks)
