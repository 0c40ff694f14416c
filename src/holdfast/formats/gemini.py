"""Gemini: `contents` of parts; a call and its response are parts, matched by id or else by name and order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import Format, Json, bounded, child, expect, kept, object_arguments, rebuild
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
)

__all__ = ["GEMINI", "read_parts", "render_parts"]

NAME: Final = "gemini"
_ROLES: Final[dict[str, Role]] = {"user": "user", "model": "assistant", "function": "tool", "system": "system"}
_IMAGE: Final = "image/png"

# The REST API writes camel case and takes snake case as well: the first spelling is the one that we write.
_CALL: Final = ("functionCall", "function_call")
_RESPONSE: Final = ("functionResponse", "function_response")
_INLINE: Final = ("inlineData", "inline_data")
_FILE: Final = ("fileData", "file_data")
_SIGNATURE: Final = ("thoughtSignature", "thought_signature")
_MEDIA_TYPE: Final = ("mimeType", "mime_type")
_URI: Final = ("fileUri", "file_uri")


def _spelling(data: Json, names: Sequence[str]) -> str:
    """Which of the names an object uses."""
    return next((name for name in names if data.get(name) is not None), names[0])


def _has(data: Json, names: Sequence[str]) -> bool:
    return isinstance(data.get(_spelling(data, names)), Mapping)


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one content."""
    name = expect(data, "role", str, where, default="user")
    if name not in _ROLES:
        raise FormatError(f"role {name[:40]!r} is not one of {', '.join(_ROLES)}", where=f"{where}.role", format=NAME)
    parts = read_parts(data.get("parts"), f"{where}.parts")
    role: Role = "tool" if any(isinstance(part, ToolResult) for part in parts) else _ROLES[name]
    return Message(role=role, parts=parts).read_from(data, format=NAME)


def read_parts(listed: Any, where: str) -> tuple[Part, ...]:
    """Read the parts of a content or of the system instruction."""
    if listed is None:
        return ()
    if not isinstance(listed, list):
        raise FormatError(f"expected a list of parts, found {type(listed).__name__}", where=where, format=NAME)
    seen: Counter[str] = Counter()
    return tuple(_read_part(part, f"{where}[{index}]", seen) for index, part in enumerate(listed))


def _read_part(value: Any, where: str, seen: Counter[str]) -> Part:
    data = child(value, where)
    part: Part
    if _has(data, _CALL):
        part = _read_call(data[_spelling(data, _CALL)], f"{where}.functionCall", seen)
    elif _has(data, _RESPONSE):
        part = _read_response(data[_spelling(data, _RESPONSE)], f"{where}.functionResponse", seen)
    elif isinstance(data.get("text"), str):
        part = _read_text(data, where)
    else:
        part = _read_file(data, where)
    return part.read_from(data, format=NAME)


def _read_text(data: Json, where: str) -> Part:
    signature = expect(data, _spelling(data, _SIGNATURE), str, where, default="")
    if data.get("thought") is True:
        return Thinking(text=data["text"], signature=signature or None)
    # A stream ends in a part that holds nothing but the signature.
    return Text(text=data["text"]) if data["text"] or not signature else RedactedThinking(data=signature)


def _read_file(data: Json, where: str) -> Image | Opaque:
    inline, file = (data.get(_spelling(data, names)) for names in (_INLINE, _FILE))
    if isinstance(inline, Mapping) and _is_image(inline) and isinstance(inline.get("data"), str):
        return Image(media_type=inline[_spelling(inline, _MEDIA_TYPE)], data=inline["data"])
    if isinstance(file, Mapping) and _is_image(file) and isinstance(url := file.get(_spelling(file, _URI)), str):
        return Image(media_type=file[_spelling(file, _MEDIA_TYPE)], url=url)
    kind = next((key for key, inside in data.items() if isinstance(inside, Mapping)), "part")
    return Opaque(kind=kind, data=bounded(data, where))


def _is_image(data: Json) -> bool:
    return str(data.get(_spelling(data, _MEDIA_TYPE))).startswith("image/")


def _read_call(data: Json, where: str, seen: Counter[str]) -> ToolCall:
    name = expect(data, "name", str, where, default="")
    arguments = bounded(expect(data, "args", dict, where, default={}), f"{where}.args")
    return ToolCall(id=_id(data, name, where, seen), name=name, arguments=arguments)


def _id(data: Json, name: str, where: str, seen: Counter[str]) -> str:
    """The id of a call or response; without one, its name and which of that name it is in its content."""
    seen[name] += 1
    return expect(data, "id", str, where, default="") or f"call_{name}_{seen[name]}"


def _read_response(data: Json, where: str, seen: Counter[str]) -> ToolResult:
    name = expect(data, "name", str, where, default="")
    response = bounded(data.get("response"), f"{where}.response")
    said = _said(response)
    files = expect(data, "parts", list, where, default=[])
    return ToolResult(
        call_id=_id(data, name, where, seen),
        content=(*((Text(text=said),) if said else ()), *(_read_inside(file, f"{where}.parts") for file in files)),
        is_error=isinstance(response, Mapping) and "error" in response,
        name=name or None,
    )


def _read_inside(value: Any, where: str) -> ResultContent:
    data = child(value, where)
    return _read_file(data, where).read_from(data, format=NAME)


def _key(response: Any) -> str | None:
    """The field that is all of a response, where that is a text."""
    if not isinstance(response, Mapping) or len(response) != 1:
        return None
    ((key, value),) = response.items()
    return key if isinstance(value, str) else None


def _said(response: Any) -> str:
    """A response as text: its one text, or all of it as JSON."""
    key = _key(response)
    if key is not None:
        return str(response[key])
    return json.dumps(response, ensure_ascii=False, default=str) if response else ""


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages as contents."""
    names: dict[str, str] = {}
    contents: list[Json] = []
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        wire = rebuild(message, partial(_make_message, names=names), format=NAME)
        contents += [wire] if wire is not None else []
    return contents


def _make_message(message: Message, old: Json, *, names: Mapping[str, str]) -> Json:
    role = "model" if message.role == "assistant" else "user"
    if old.get("role") == "function" and message.role == "tool":
        role = "function"
    return {"role": role, "parts": render_parts(message.parts, names)}


def render_parts(parts: Sequence[Part], names: Mapping[str, str] | None = None) -> list[Json]:
    """Render parts; those that Gemini has no place for are left out."""
    rendered: list[Json] = []
    for part in parts:
        wire = rebuild(part, partial(_make_part, names=names or {}), format=NAME)
        rendered += [wire] if wire is not None else []
        if isinstance(part, ToolResult) and not kept(part, NAME):
            rendered += [_make_image(block) for block in part.content if isinstance(block, Image)]
    return rendered


def _make_part(part: Part, old: Json, *, names: Mapping[str, str]) -> Json | None:
    match part:
        case Text():
            return {"text": part.text}
        case Thinking() if old:
            return {"text": part.text, "thought": True}
        case ToolCall():
            spelling = _spelling(old, _CALL)
            known = {} if old and "id" not in old.get(spelling, {}) else {"id": part.id}
            return {spelling: {**known, "name": part.name, "args": object_arguments(part.arguments)}}
        case ToolResult():
            return _make_response(part, old, names)
        case Image():
            return _make_image(part)
        case Opaque() if old:
            return part.data if isinstance(part.data, Mapping) else None
        case _:
            return None


def _make_response(result: ToolResult, old: Json, names: Mapping[str, str]) -> Json:
    spelling = _spelling(old, _RESPONSE)
    before = old.get(spelling, {})
    known = {} if old and "id" not in before else {"id": result.call_id}
    name = before.get("name") or names.get(result.call_id) or result.name or "unknown"  # as a call without a name
    files = [wire for block in result.content if old and (wire := kept(block, NAME))]
    response = _make_output(result, before.get("response"))
    return {spelling: {**known, "name": name, "response": response, **({"parts": files} if files else {})}}


def _make_output(result: ToolResult, response: Any) -> Any:
    """The response as it came where it says what the result does, else one that does, under the same key."""
    if response is not None and result.text == _said(response):
        return response
    return {_key(response) or ("error" if result.is_error else "output"): result.text}


def _make_image(part: Image) -> Json:
    media_type = part.media_type or _IMAGE
    if part.data is not None:
        return {"inlineData": {"mimeType": media_type, "data": part.data}}
    return {"fileData": {"mimeType": media_type, "fileUri": part.url}}


# --- recognising -------------------------------------------------------------


def marks(data: Json) -> str | None:
    """What only Gemini has: a list of parts in place of the content."""
    return "a list of parts" if isinstance(data.get("parts"), list) and "content" not in data else None


GEMINI: Final = Format(name=NAME, read=read, render=render, marks=marks)
