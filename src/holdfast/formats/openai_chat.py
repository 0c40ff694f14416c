"""OpenAI Chat Completions: calls beside the content, one tool message for each result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    number,
    rebuild,
    text_arguments,
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
_IMAGE_BELOW: Final = "(see the image below)"

_Content: TypeAlias = Text | Image | Opaque


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of a Chat Completions request or response."""
    spoken = expect(data, "role", str, where)
    role = _ROLES.get(spoken)
    if role is None:
        raise FormatError(f"role {spoken[:40]!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    content = _read_content(data.get("content"), f"{where}.content")
    parts: tuple[Part, ...] = (
        (_read_result(data, content, where),)
        if role == "tool"
        else (*_read_thinking(data), *content, *_read_refusal(data), *_read_calls(data, where))
    )
    name = None if role == "tool" else expect(data, "name", str, where, default="") or None
    message = Message(role=role, parts=parts, usage=read_usage(data.get("usage")), name=name)
    return message.read_from(data, format=NAME)


def _read_content(content: Any, where: str) -> tuple[_Content, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        raise FormatError(f"expected text or a list of parts, found {type(content).__name__}", where=where, format=NAME)
    return tuple(_read_part(part, f"{where}[{index}]") for index, part in enumerate(content))


def _read_part(block: Any, where: str) -> _Content:
    data = child(block, where)
    kind = expect(data, "type", str, where)
    part: _Content
    if kind in {"text", "refusal"}:
        part = Text(text=expect(data, kind, str, where))
    elif kind == "image_url":
        source = child(data.get("image_url"), f"{where}.image_url")
        part = image_from_url(expect(source, "url", str, f"{where}.image_url"))
    else:
        part = Opaque(kind=kind, data=bounded(data, where))
    return part.read_from(data, format=NAME)


def _read_thinking(data: Json) -> tuple[Thinking, ...]:
    texts = (data.get(key) for key in _THINKING_KEYS)
    return tuple(Thinking(text=text) for text in texts if isinstance(text, str) and text)[:1]


def _read_refusal(data: Json) -> tuple[Text, ...]:
    """A refusal that stands beside the content; it knows its place by a wire form without a type."""
    text = data.get("refusal")
    return (Text(text=text).read_from({"refusal": text}, format=NAME),) if isinstance(text, str) and text else ()


def _read_calls(data: Json, where: str) -> tuple[ToolCall, ...]:
    calls = [
        _read_call(call, f"{where}.tool_calls[{index}]")
        for index, call in enumerate(expect(data, "tool_calls", list, where, default=[]))
    ]
    legacy = data.get("function_call")
    if isinstance(legacy, Mapping):
        name = expect(legacy, "name", str, f"{where}.function_call", default="")
        calls.append(_read_function(legacy, f"{where}.function_call", call_id=name).read_from(legacy, format=NAME))
    return tuple(calls)


def _read_call(entry: Any, where: str) -> ToolCall:
    data = child(entry, where)
    call_id = expect(data, "id", str, where, default="")
    if data.get("type") == "custom":
        custom = child(data.get("custom"), f"{where}.custom")
        name, text = (expect(custom, key, str, f"{where}.custom", default="") for key in ("name", "input"))
        return ToolCall(id=call_id, name=name, arguments=text).read_from(data, format=NAME)
    function = child(data.get("function"), f"{where}.function")
    return _read_function(function, f"{where}.function", call_id=call_id).read_from(data, format=NAME)


def _read_function(data: Json, where: str, *, call_id: str) -> ToolCall:
    found = data.get("arguments")
    if not isinstance(found, Mapping):  # some servers send the object itself
        found = decode_arguments(expect(data, "arguments", str, where, default=""))
    arguments = bounded(found, f"{where}.arguments")
    return ToolCall(id=call_id, name=expect(data, "name", str, where, default=""), arguments=arguments)


def _read_result(data: Json, content: tuple[_Content, ...], where: str) -> ToolResult:
    name = expect(data, "name", str, where, default="")
    call_id = expect(data, "tool_call_id", str, where, default=name)  # the old `function` role names the function only
    return ToolResult(call_id=call_id, content=content, name=name or None).read_from(data, format=NAME)


def read_usage(data: Any) -> Usage | None:
    """Read a usage object of Chat Completions; cached tokens are part of its prompt tokens."""
    if not isinstance(data, Mapping) or (sent := number(data.get("prompt_tokens"))) is None:
        return None
    details = data.get("prompt_tokens_details")
    cached = number(details.get("cached_tokens")) if isinstance(details, Mapping) else None
    cached = min(cached or 0, sent)
    return Usage(input=sent - cached, output=number(data.get("completion_tokens")) or 0, cache_read=cached)


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages: a tool message for each result, and behind the last of them what tool messages cannot hold."""
    rendered: list[Json] = []
    beside: list[Json] = []
    for message in messages:
        if message.calls or not message.results:
            rendered += [*beside, *_render_spoken(message)]
            beside = _render_beside(message.results, ())
        else:
            beside += _render_beside(message.results, _unanswered(message))
        rendered += [_render_result(result) for result in message.results]
    return rendered + beside


def _unanswered(message: Message) -> tuple[Part, ...]:
    return tuple(part for part in message.parts if not isinstance(part, ToolResult))


def _render_spoken(message: Message) -> list[Json]:
    spoken = replace(message, parts=_unanswered(message)) if message.results else message
    wire = rebuild(spoken, _make_message, format=NAME)
    return [] if wire is None else [wire]


def _make_message(message: Message, old: Json) -> Json | None:
    if message.role == "assistant" or message.calls:
        return _make_assistant(message, old)
    content = _make_content(message.parts, old)
    spoken = "user" if message.role == "tool" else message.role
    role = old["role"] if _ROLES.get(old.get("role", "")) == spoken else spoken
    return {"role": role, "content": content} if content else None


def _make_assistant(message: Message, old: Json) -> Json | None:
    content = _make_content(message.parts, old)
    said = {"content": content or None, **_make_refusal(message), **_make_calls(message.calls)}
    if not any(said.values()):
        return None  # nothing but thinking: there is no field that may be sent back
    return {"role": "assistant", **said, **_make_thinking(message, old)}


def _make_refusal(message: Message) -> Json:
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text) and _is_beside(part))
    return {"refusal": text} if text else {}


def _make_calls(calls: Sequence[ToolCall]) -> Json:
    listed = [_render_call(call) for call in calls if not _is_legacy(call)]
    legacy = [_render_call(call) for call in calls if _is_legacy(call)]
    return {**({"tool_calls": listed} if listed else {}), **({"function_call": legacy[0]} if legacy else {})}


def _make_thinking(message: Message, old: Json) -> Json:
    """Thinking goes back only to a server that sent it, under the names that it used."""
    text = "\n".join(part.text for part in message.parts if isinstance(part, Thinking))
    return {key: text for key in _THINKING_KEYS if text and old.get(key)}


def _is_beside(part: Text) -> bool:
    """Tell whether a text was read from the refusal beside the content, not from a part of it."""
    old = kept(part, NAME)
    return "refusal" in old and "type" not in old


def _is_legacy(call: ToolCall) -> bool:
    """Tell whether a call was read from the old `function_call` field."""
    old = kept(call, NAME)
    return bool(old) and "function" not in old and "custom" not in old


def _make_content(parts: Sequence[Part], old: Json) -> str | list[Json]:
    """Content as one string where words are all there is, unless it was a list."""
    said = [part for part in parts if isinstance(part, _Content) and not (isinstance(part, Text) and _is_beside(part))]
    texts = [part.text for part in said if isinstance(part, Text)]
    listed = isinstance(old.get("content"), list) or any(kept(part, NAME) for part in said)
    if len(texts) == len(said) and not listed:
        return "\n".join(texts)
    return [wire for part in said if (wire := rebuild(part, _make_part, format=NAME)) is not None]


def _make_part(part: _Content, old: Json) -> Json | None:
    match part:
        case Text():
            kind = "refusal" if "refusal" in old else "text"
            return {"type": kind, kind: part.text} if part.text else None
        case Image():
            return {"type": "image_url", "image_url": {"url": image_url(part)}}
        case Opaque():
            return part.data if old else None


def _render_call(call: ToolCall) -> Json | None:
    return rebuild(call, _make_call, format=NAME)


def _make_call(call: ToolCall, old: Json) -> Json:
    if "custom" in old:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": text_arguments(call.arguments)}}
    function = {"name": call.name, "arguments": encode_arguments(call.arguments)}
    return function if _is_legacy(call) else {"id": call.id, "type": "function", "function": function}


def _render_result(result: ToolResult) -> Json:
    wire = rebuild(result, _make_result, format=NAME)
    assert wire is not None  # every result can be said
    return wire


def _make_result(result: ToolResult, old: Json) -> Json:
    if old.get("role") == "function":
        return {"role": "function", "name": result.call_id, "content": _make_content(result.content, old)}
    # Only text may stand in a tool message; what was read from one is left there all the same.
    inside = tuple(block for block in result.content if old or not isinstance(block, Image))
    content = _make_content(inside, old) or (_IMAGE_BELOW if len(inside) < len(result.content) else "")
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


def _render_beside(results: Sequence[ToolResult], said: Sequence[Part]) -> list[Json]:
    """What is said beside results, and the images in them, as a message of the user."""
    foreign = (result for result in results if not kept(result, NAME))
    images = [block for result in foreign for block in result.content if isinstance(block, Image)]
    content = _make_content([*images, *said], {})
    return [{"role": "user", "content": content}] if content else []


# --- recognising -------------------------------------------------------------

_OWN_PARTS: Final = frozenset({"image_url", "file"})


def marks(data: Json) -> str | None:
    """What only Chat Completions has: calls beside the content, its own roles and content parts."""
    if isinstance(data.get("tool_calls"), list) or isinstance(data.get("function_call"), Mapping):
        return "a call beside the content"
    if data.get("role") in ("tool", "function") and "type" not in data:
        return f"the role {data['role']!r}"
    kinds = (kind_of(part) for part in blocks(data) if "source" not in part)
    return next((f"a {kind} part" for kind in kinds if kind in _OWN_PARTS), None)


OPENAI_CHAT: Final = Format(name=NAME, read=read, render=render, marks=marks)
