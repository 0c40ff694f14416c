"""Gemini: `contents` of parts; a call and its response are parts, matched by id or else by name and order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdfast.errors import FormatError
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
from holdfast.providers import shaping, wire
from holdfast.providers.format import Format
from holdfast.providers.rules import Violation, Wire, blocks, quote
from holdfast.providers.shaping import Log
from holdfast.providers.wire import Json, expect, wire_of

NAME: Final = "gemini"
_ROLES: Final[dict[str, Role]] = {"user": "user", "model": "assistant", "function": "tool", "system": "system"}

# The REST API writes camel case and accepts snake case: the first spelling is the one that we write.
_CALL: Final = ("functionCall", "function_call")
_RESPONSE: Final = ("functionResponse", "function_response")
_INLINE: Final = ("inlineData", "inline_data")
_FILE: Final = ("fileData", "file_data")
_SIGNATURE: Final = ("thoughtSignature", "thought_signature")
_MEDIA_TYPE: Final = ("mimeType", "mime_type")
_URI: Final = ("fileUri", "file_uri")
USAGE: Final = {
    "input": "promptTokenCount prompt_token_count input",
    "output": "candidatesTokenCount candidates_token_count output",
    "cache_read": "cachedContentTokenCount cached_content_token_count cached",
    "thinking": "thoughtsTokenCount thoughts_token_count thoughts",
}
"""The token counts of the API in both spellings, and of Gemini CLI. Cached tokens are part of the input."""


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one content."""
    role = wire.expect_role(data, _ROLES, where, format=NAME, default="user")
    parts = _read_parts(data.get("parts"), f"{where}.parts")
    if any(isinstance(part, ToolResult) for part in parts):
        role = "tool"
    return Message(role=role, parts=parts).read_from(data, format=NAME)


def _read_parts(value: Any, where: str) -> tuple[Part, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise FormatError(f"expected a list of parts, found {type(value).__name__}", where=where, format=NAME)
    seen: Counter[str] = Counter()
    return tuple(_read_part(part, f"{where}[{index}]", seen) for index, part in enumerate(value))


def _read_part(value: Any, where: str, seen: Counter[str]) -> Part:
    data = wire.expect_object(value, where)
    call = data.get(wire.spelling(data, _CALL))
    response = data.get(wire.spelling(data, _RESPONSE))
    part: Part
    if isinstance(call, Mapping):
        part = _read_call(call, f"{where}.functionCall", seen)
    elif isinstance(response, Mapping):
        part = _read_result(response, f"{where}.functionResponse", seen)
    elif isinstance(data.get("text"), str):
        part = _read_text(data, where)
    else:
        part = _read_file(data, where)
    return part.read_from(data, format=NAME)


def _read_text(data: Json, where: str) -> Part:
    signature = expect(data, wire.spelling(data, _SIGNATURE), str, where, default="")
    if data.get("thought") is True:
        return Thinking(text=data["text"], signature=signature or None)
    if signature and not data["text"]:  # a stream ends in a part that holds nothing but the signature
        return RedactedThinking(data=signature)
    return Text(text=data["text"])


def _read_file(value: Any, where: str) -> Image | Opaque:
    data = wire.expect_object(value, where)
    for names, keys in ((_INLINE, ("data",)), (_FILE, _URI)):
        file = data.get(wire.spelling(data, names))
        if not isinstance(file, Mapping):
            continue
        media_type = file.get(wire.spelling(file, _MEDIA_TYPE))
        content = file.get(wire.spelling(file, keys))
        if isinstance(content, str) and isinstance(media_type, str) and media_type.startswith("image/"):
            image = Image(media_type=media_type, data=content)
            if keys is _URI:
                image = Image(media_type=media_type, url=content)
            return image.read_from(data, format=NAME)
    kind = next((key for key, inside in data.items() if isinstance(inside, Mapping)), "part")
    return Opaque(kind=kind, data=wire.limit_depth(data, where)).read_from(data, format=NAME)


def _read_call(data: Json, where: str, seen: Counter[str]) -> ToolCall:
    name = expect(data, "name", str, where, default="")
    arguments = wire.limit_depth(expect(data, "args", dict, where, default={}), f"{where}.args")
    return ToolCall(id=_read_id(data, name, where, seen), name=name, arguments=arguments)


def _read_id(data: Json, name: str, where: str, seen: Counter[str]) -> str:
    """Read the id of a call or response; without one, make it from the name and a count in its content."""
    seen[name] += 1
    return expect(data, "id", str, where, default="") or f"call_{name}_{seen[name]}"


def _read_result(data: Json, where: str, seen: Counter[str]) -> ToolResult:
    name = expect(data, "name", str, where, default="")
    response = wire.limit_depth(data.get("response"), f"{where}.response")
    call_id = _read_id(data, name, where, seen)
    content: list[ResultContent] = []
    text = _response_text(response)
    if text:
        content.append(Text(text=text))
    for file in expect(data, "parts", list, where, default=[]):
        content.append(_read_file(file, f"{where}.parts"))
    return ToolResult(
        call_id=call_id,
        content=tuple(content),
        is_error=isinstance(response, Mapping) and "error" in response,
        name=name or None,
    )


def _text_key(response: Any) -> str | None:
    """Return the only field of a response, if it holds a text."""
    if not isinstance(response, Mapping) or len(response) != 1:
        return None
    ((key, value),) = response.items()
    return key if isinstance(value, str) else None


def _response_text(response: Any) -> str:
    """Return a response as text: its only text, or all of it as JSON."""
    key = _text_key(response)
    if key is not None:
        return str(response[key])
    if not response:
        return ""
    return json.dumps(response, ensure_ascii=False, default=str)


def read_system(value: Any, where: str) -> tuple[Part, ...]:
    """Read the system instruction of a request: a content, or a text."""
    if isinstance(value, Mapping):
        return _read_parts(value.get("parts"), f"{where}.parts")
    if isinstance(value, str):
        return (Text(text=value),)
    raise FormatError(f"expected a string, found {type(value).__name__}", where=where)


def is_own(data: Json) -> bool:
    """Return whether an object has a list of parts in place of the content, as only Gemini has."""
    return isinstance(data.get("parts"), list) and "content" not in data


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages as contents."""
    names: dict[str, str] = {}
    contents: list[Json] = []
    for message in messages:
        names |= {call.id: call.name for call in message.calls if call.name}
        contents.append(wire.rebuild_always(message, partial(_make_message, names=names), format=NAME))
    return contents


def _make_message(message: Message, old: Json, *, names: Mapping[str, str]) -> Json:
    role = "model" if message.role == "assistant" else "user"
    if old.get("role") == "function" and message.role == "tool":
        role = "function"
    return {"role": role, "parts": _render_parts(message.parts, names)}


def _render_parts(parts: Sequence[Part], names: Mapping[str, str]) -> list[Json]:
    """Render parts; those that Gemini cannot express are left out."""
    rendered: list[Json] = []
    for part in parts:
        sent = wire.rebuild(part, partial(_make_part, names=names), format=NAME)
        if sent is not None:
            rendered.append(sent)
        if isinstance(part, ToolResult) and not wire_of(part, NAME):
            rendered += [_make_image(block) for block in part.content if isinstance(block, Image)]
    return rendered


def _make_part(part: Part, old: Json, *, names: Mapping[str, str]) -> Json | None:
    match part:
        case Text():
            return {"text": part.text}
        case Thinking() if old:
            return {"text": part.text, "thought": True}
        case ToolCall():
            key = wire.spelling(old, _CALL)
            arguments = wire.object_arguments(part.arguments)
            return {key: {**_make_id(part.id, old.get(key)), "name": part.name, "args": arguments}}
        case ToolResult():
            return _make_result(part, old, names)
        case Image():
            return _make_image(part)
        case Opaque() if old and isinstance(part.data, Mapping):
            return part.data
    return None


def _make_id(call_id: str, old: Json | None) -> Json:
    """Return the id field of a call or response, unless it was read from one without an id."""
    if old is not None and "id" not in old:
        return {}
    return {"id": call_id}


def _make_result(result: ToolResult, old: Json, names: Mapping[str, str]) -> Json:
    key = wire.spelling(old, _RESPONSE)
    before = old.get(key, {})
    name = before.get("name") or names.get(result.call_id, result.name) or "unknown"  # as a call without a name
    response = before.get("response")
    if response is None or result.text != _response_text(response):
        default_key = "error" if result.is_error else "output"
        response = {_text_key(response) or default_key: result.text}
    fields: dict[str, Any] = {**_make_id(result.call_id, old.get(key)), "name": name, "response": response}
    files: list[Json] = []
    for block in result.content:
        sent = wire_of(block, NAME)
        if sent:
            files.append(sent)
    if old and files:
        fields["parts"] = files
    return {key: fields}


def _make_image(part: Image) -> Json:
    media_type = part.media_type or "image/png"
    if part.data is not None:
        return {"inlineData": {"mimeType": media_type, "data": part.data}}
    return {"fileData": {"mimeType": media_type, "fileUri": part.url}}


def render_system(messages: Sequence[Message]) -> Json:
    """Render the system instruction of a request."""
    return {"parts": _render_parts([part for message in messages for part in message.parts], {})}


# --- shape -------------------------------------------------------------------


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Change messages so that Gemini accepts them: turns that alternate strictly, the user first."""
    messages = shaping.move_system_prompt(messages, log)
    lead = wire.leading_system(messages, NAME)
    shaped = shaping.change_messages(messages[lead:], _fit_message, log, "content")
    names: dict[str, str] = {}  # of the calls so far, by id

    def name_response(part: Part) -> Part:
        if not isinstance(part, ToolResult) or names.get(part.call_id, part.name) == part.name:
            return part
        return replace(part, name=names[part.call_id], origin=None)

    def name_responses(message: Message) -> Message:
        names.update((call.id, call.name) for call in message.calls)
        return shaping.change_parts(message, name_response)

    shaped = shaping.change_messages(shaped, name_responses, log, "name")
    shaped = shaping.drop_empty(shaped, log)
    shaped = shaping.start_with_user(shaped, log)
    joined = [_join_side(side, log) for side in shaping.group_sides(shaped)]
    return [*messages[:lead], *joined]


def _fit_message(message: Message) -> Message:
    """Give a message a role that a turn can have, and drop what Gemini cannot express."""
    old = wire_of(message, NAME)
    if message.role == "system":
        message = replace(message, role="user", origin=None)
    elif old and old.get("role") is None:  # only a request of one content may leave it out
        message = replace(message, origin=None)
    return shaping.change_parts(message, _fit_part)


def _fit_part(part: Part) -> Part | None:
    is_from_gemini = bool(wire_of(part, NAME))
    if isinstance(part, Text):
        is_refused = not part.text or (shaping.is_blank(part) and not is_from_gemini)
    elif shaping.is_thinking(part):
        is_refused = not is_from_gemini
    else:
        is_refused = shaping.has_no_place(part, NAME)
    return None if is_refused else part


def _join_side(messages: Sequence[Message], log: Log) -> Message:
    if len(messages) == 1:
        return messages[0]
    if any(wire_of(message, NAME) for message in messages):
        log.note("joined", None, f"joined {len(messages)} contents of one side, responses first")
    return shaping.join_messages(messages)


# --- rules -------------------------------------------------------------------


def check(sent: Sequence[Wire]) -> list[Violation]:
    """List the rules of generateContent that a list of contents breaks."""
    found: list[Violation] = []
    for index, turn in enumerate(sent):
        where = f"contents[{index}]"
        before = sent[index - 1] if index else None
        following = sent[index + 1] if index + 1 < len(sent) else None
        found += _check_message(turn, before, where)
        found += _check_calls(turn, following, where)
        if _names(turn, "response") and not (before and _names(before, "call")):
            found.append(Violation("orphan-result", where, "a function response does not follow a function call"))
    return found


def _check_message(turn: Wire, before: Wire | None, where: str) -> Iterator[Violation]:
    role = turn.get("role")
    parts = blocks(turn.get("parts"))
    if role not in {"user", "model", "function"}:
        yield Violation("role", where, f"unknown role {quote(role)}")
    if before is None:
        if role == "model":
            yield Violation("first-user", where, "the first turn is not the user's")
    elif (before.get("role") == "model") == (role == "model"):
        yield Violation("alternation", where, f"two turns of the {role} in a row")
    if not parts:
        yield Violation("empty-content", where, "a turn without parts")
    if any(part.get("text") == "" and not set(_SIGNATURE).intersection(part) for part in parts):
        yield Violation("blank-text", where, "a text part without text")


def _names(turn: Wire, what: str) -> list[str]:
    """List the names of the function calls or responses of a turn, in either spelling."""
    keys = (f"function{what.title()}", f"function_{what}")
    parts = blocks(turn.get("parts"))
    values = [part[key] for part in parts for key in keys if isinstance(part.get(key), Mapping)]
    return [str(value.get("name", "")) for value in values]


def _check_calls(turn: Wire, following: Wire | None, where: str) -> Iterator[Violation]:
    """The turn after function calls has as many responses, of the same names."""
    calls = _names(turn, "call")
    responses = _names(following, "response") if following else []
    if calls and sorted(calls) != sorted(responses):
        yield Violation("unanswered-call", where, f"{len(calls)} calls, {len(responses)} responses in the next turn")
    if "" in calls:
        yield Violation("name", where, "a call without a name")
    wrong = "response" if turn.get("role") == "model" else "call"
    if _names(turn, wrong):
        yield Violation("role", where, f"a function {wrong} in a turn of the {turn.get('role')}")


GEMINI: Final = Format(
    name=NAME,
    read=read,
    render=render,
    is_own=is_own,
    shape=shape,
    check=check,
    list_key="contents",
    system_keys=("systemInstruction", "system_instruction"),
    read_system=read_system,
    render_system=render_system,
)
