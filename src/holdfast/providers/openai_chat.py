"""OpenAI Chat Completions: calls in a field of their own, one tool message for each result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    ResultContent,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from holdfast.providers import rules, shaping, wire
from holdfast.providers.anthropic import USAGE as ANTHROPIC_USAGE
from holdfast.providers.format import Format
from holdfast.providers.rules import Turn, Violation, Wire, blocks, kind, quote
from holdfast.providers.shaping import Log
from holdfast.providers.wire import Json, expect, wire_of

NAME: Final = "openai_chat"
ROLES: Final[dict[str, Role]] = {**wire.ROLES, "tool": "tool", "function": "tool"}
MAX_NAME_CHARS: Final = 64
_USAGE: Final = {
    "input": "prompt_tokens input_tokens",
    "output": "completion_tokens output_tokens",
    "cache_read": "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens",
}
_ANTHROPIC_CACHE: Final = frozenset({ANTHROPIC_USAGE["cache_read"], ANTHROPIC_USAGE["cache_write"]})
_THINKING_KEYS: Final = ("reasoning_content", "reasoning")
_IMAGE_BELOW: Final = "(see the image below)"


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of a Chat Completions request or response."""
    role = wire.expect_role(data, ROLES, where, format=NAME)
    content = wire.read_content(data.get("content"), _PARTS, f"{where}.content", format=NAME)
    name = expect(data, "name", str, where, default="") or None
    parts: tuple[Part, ...]
    if role == "tool":
        call_id = expect(data, "tool_call_id", str, where, default=name or "")  # the `function` role has only a name
        parts = (ToolResult(call_id=call_id, content=content, name=name).read_from(data, format=NAME),)
        return Message(role=role, parts=parts, usage=read_usage(data.get("usage"))).read_from(data, format=NAME)
    parts = (*_read_thinking(data), *content, *_read_calls(data, where))
    model = data.get("model")
    message = Message(
        role=role,
        parts=parts,
        usage=read_usage(data.get("usage")),
        model=model if isinstance(model, str) and model else None,
        name=name,
    )
    return message.read_from(data, format=NAME)


def _read_image(data: Json, where: str) -> Image:
    source = wire.expect_object(data.get("image_url"), f"{where}.image_url")
    return wire.image_from_url(expect(source, "url", str, f"{where}.image_url"))


_PARTS: Final[dict[str, Callable[[Json, str], ResultContent]]] = {
    "text": wire.read_text,
    "refusal": lambda data, where: Text(text=expect(data, "refusal", str, where)),
    "image_url": _read_image,
}


def _read_thinking(data: Json) -> tuple[Thinking, ...]:
    """Read the reasoning of a reply from the first field that has some."""
    for key in _THINKING_KEYS:
        text = data.get(key)
        if isinstance(text, str) and text:
            return (Thinking(text=text),)
    return ()


def _read_calls(data: Json, where: str) -> list[Text | ToolCall]:
    """Read the other fields of a message: a refusal, calls, and a call in the old field."""
    parts: list[Text | ToolCall] = []
    text = data.get("refusal")
    if isinstance(text, str) and text:
        # Its wire form without a type distinguishes it from a refusal in the content.
        parts.append(Text(text=text).read_from({"refusal": text}, format=NAME))
    for index, call in enumerate(expect(data, "tool_calls", list, where, default=[])):
        parts.append(_read_call(call, f"{where}.tool_calls[{index}]"))
    legacy = data.get("function_call")
    if isinstance(legacy, Mapping):
        name = expect(legacy, "name", str, f"{where}.function_call", default="")
        parts.append(_read_function(legacy, f"{where}.function_call", call_id=name).read_from(legacy, format=NAME))
    return parts


def _read_call(entry: Any, where: str) -> ToolCall:
    data = wire.expect_object(entry, where)
    call_id = expect(data, "id", str, where, default="")
    if data.get("type") == "custom":
        custom = wire.expect_object(data.get("custom"), f"{where}.custom")
        name = expect(custom, "name", str, f"{where}.custom", default="")
        text = expect(custom, "input", str, f"{where}.custom", default="")
        return ToolCall(id=call_id, name=name, arguments=text).read_from(data, format=NAME)
    function = wire.expect_object(data.get("function"), f"{where}.function")
    return _read_function(function, f"{where}.function", call_id=call_id).read_from(data, format=NAME)


def _read_function(data: Json, where: str, *, call_id: str) -> ToolCall:
    value = data.get("arguments")
    if not isinstance(value, Mapping):  # some servers send the object itself
        value = wire.decode_arguments(expect(data, "arguments", str, where, default=""))
    arguments = wire.limit_depth(value, f"{where}.arguments")
    return ToolCall(id=call_id, name=expect(data, "name", str, where, default=""), arguments=arguments)


def read_usage(data: Any) -> Usage | None:
    """Read a usage object of Chat Completions or Responses; cached tokens are part of the input.

    A reply of Anthropic with text alone looks like one of Chat Completions. The names in its usage tell them apart;
    some gateways add them to the `prompt_tokens` of OpenAI.
    """
    if isinstance(data, Mapping) and "prompt_tokens" not in data and not _ANTHROPIC_CACHE.isdisjoint(data):
        return wire.read_usage(data, ANTHROPIC_USAGE)
    return wire.read_usage(data, _USAGE, has_cached_input=True)


# --- recognising -------------------------------------------------------------

_OWN_PARTS: Final = frozenset({"image_url", "file"})


def is_own(data: Json) -> bool:
    """Return whether a message has calls in a field of their own, or roles and content parts of Chat Completions."""
    if isinstance(data.get("tool_calls"), list) or isinstance(data.get("function_call"), Mapping):
        return True
    if data.get("role") in ("tool", "function") and "type" not in data:
        return True
    return any(wire.kind_of(part) in _OWN_PARTS for part in wire.blocks_of(data) if "source" not in part)


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages: a tool message for each result, and after the last of them what tool messages cannot hold."""
    rendered: list[Json] = []
    pending: list[Json] = []
    for message in messages:
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if message.calls or not message.results:
            words = replace(message, parts=others) if message.results else message
            sent = wire.rebuild(words, _make_message, format=NAME)
            rendered += pending
            if sent is not None:
                rendered.append(sent)
            pending = _render_beside(message.results, ())
        else:
            pending += _render_beside(message.results, others)
        rendered += [wire.rebuild_always(result, _make_result, format=NAME) for result in message.results]
    return rendered + pending


def _make_message(message: Message, old: Json) -> Json | None:
    content = _make_content(message.parts, old)
    if message.role == "assistant" or message.calls:
        fields = {"content": content or None, **_make_fields(message)}
        if not any(fields.values()):  # a message of nothing but thinking cannot be sent back
            return None
        return {"role": "assistant", **fields, **_make_thinking(message, old)}
    if not content:
        return None
    role: str = "user" if message.role == "tool" else message.role
    if ROLES.get(old.get("role", "")) == role:  # another name of the same role
        role = old["role"]
    return {"role": role, "content": content}


def _make_fields(message: Message) -> Json:
    refusals = [part.text for part in message.parts if isinstance(part, Text) and _is_refusal_field(part)]
    listed: list[Json] = []
    legacy: list[Json] = []
    for call in message.calls:
        sent = wire.rebuild_always(call, _make_call, format=NAME)
        if _is_legacy(call):
            legacy.append(sent)
        else:
            listed.append(sent)
    fields: dict[str, Any] = {}
    refusal = "\n".join(refusals)
    if refusal:
        fields["refusal"] = refusal
    if listed:
        fields["tool_calls"] = listed
    if legacy:
        fields["function_call"] = legacy[0]
    return fields


def _make_thinking(message: Message, old: Json) -> Json:
    """Render thinking only for a server that sent it, under the names that it used."""
    text = "\n".join(part.text for part in message.parts if isinstance(part, Thinking))
    if not text:
        return {}
    return {key: text for key in _THINKING_KEYS if old.get(key)}


def _is_refusal_field(part: Text) -> bool:
    """Return whether a text was read from the refusal field."""
    old = wire_of(part, NAME)
    return "refusal" in old and "type" not in old


def _is_legacy(part: Part) -> bool:
    """Return whether a call was read from the old `function_call` field, or a result from the old `function` role."""
    old = wire_of(part, NAME)
    if isinstance(part, ToolCall):
        return bool(old) and "function" not in old and "custom" not in old
    return isinstance(part, ToolResult) and old.get("role") == "function"


def _make_content(parts: Sequence[Part], old: Json) -> str | list[Json]:
    """Render content as one string if it is only text and was not a list, else as a list of parts."""
    inside: list[ResultContent] = []
    for part in parts:
        is_field = isinstance(part, Text) and _is_refusal_field(part)
        if isinstance(part, ResultContent) and not is_field:
            inside.append(part)
    texts = [part.text for part in inside if isinstance(part, Text)]
    is_list = isinstance(old.get("content"), list) or any(wire_of(part, NAME) for part in inside)
    if len(texts) == len(inside) and not is_list:
        return "\n".join(texts)
    content: list[Json] = []
    for block in inside:
        sent = wire.rebuild(block, _make_part, format=NAME)
        if sent is not None:
            content.append(sent)
    return content


def _make_part(part: ResultContent, old: Json) -> Json | None:
    match part:
        case Text():
            key = "refusal" if "refusal" in old else "text"
            return {"type": key, key: part.text} if part.text else None
        case Image():
            return {"type": "image_url", "image_url": {"url": wire.image_url(part)}}
        case Opaque():
            return part.data if old else None


def _make_call(call: ToolCall, old: Json) -> Json:
    if "custom" in old:
        custom = {"name": call.name, "input": wire.text_arguments(call.arguments)}
        return {"id": call.id, "type": "custom", "custom": custom}
    function = {"name": call.name, "arguments": wire.encode_arguments(call.arguments)}
    if _is_legacy(call):
        return function
    return {"id": call.id, "type": "function", "function": function}


def _make_result(result: ToolResult, old: Json) -> Json:
    if old.get("role") == "function":
        return {"role": "function", "name": result.call_id, "content": _make_content(result.content, old)}
    # A tool message may hold only text; images that were read from one stay there.
    inside = result.content
    if not old:
        inside = tuple(block for block in result.content if not isinstance(block, Image))
    content = _make_content(inside, old)
    if not content and len(inside) < len(result.content):
        content = _IMAGE_BELOW
    if not content:
        content = ""
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}


def _render_beside(results: Sequence[ToolResult], words: Sequence[Part]) -> list[Json]:
    """Render the images in results, and the text with them, as a user message."""
    images: list[Part] = []
    for result in results:
        if not wire_of(result, NAME):
            images += [block for block in result.content if isinstance(block, Image)]
    content = _make_content([*images, *words], {})
    if not content:
        return []
    return [{"role": "user", "content": content}]


# --- shape -------------------------------------------------------------------


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Change messages so that Chat Completions accepts them."""
    shaped = shaping.change_messages(messages, _drop_empty_calls, log, "empty-calls")
    shaped = shaping.assign_ids(shaped, log, is_plain=False, is_unique=False)
    shaped = shaping.change_messages(shaped, _fit_message, log, "content")
    shaped = shaping.drop_empty(shaped, log, lambda part: shaping.is_blank(part) or shaping.is_thinking(part))
    joined: list[Message] = []
    for side in shaping.group_sides(_renew_legacy(shaped)):
        joined += _join_side(side, log)
    return joined


def _drop_empty_calls(message: Message) -> Message:
    origin = message.origin
    if origin is None or wire_of(message, NAME).get("tool_calls") != []:
        return message
    data = {key: value for key, value in origin.data.items() if key != "tool_calls"}
    return replace(message, origin=origin._replace(data=data))


def _fit_message(message: Message) -> Message:
    # A thinking block has no place in the content: the message has to be rebuilt without it.
    has_thinking = any(shaping.is_thinking(part) and wire_of(part, NAME) for part in message.parts)
    if has_thinking or wire_of(message, NAME).get("content") == []:
        message = replace(message, origin=None)
    message = shaping.replace_pictures(shaping.change_parts(message, _fit_part))
    if message.role != "assistant":
        return message
    # Of the blocks in its content, the assistant may have only text.
    return shaping.change_parts(
        message, lambda part: None if isinstance(part, Opaque) and wire_of(part, NAME) else part
    )


def _fit_part(part: Part) -> Part | None:
    match part:
        case Text():
            return part if part.text or not wire_of(part, NAME) else None
        case ToolCall():
            return _fit_call(shaping.fit_name(part, MAX_NAME_CHARS))
        case ToolResult():
            return _fit_result(part)
        case _:
            return None if shaping.has_no_place(part, NAME) else part


def _fit_call(call: ToolCall) -> ToolCall:
    """Rebuild a call whose arguments were not sent as text."""
    old = wire_of(call, NAME)
    if not old:
        return call
    if old.get("type") == "custom":
        inside = old["custom"]
        key = "input"
    else:
        inside = old.get("function", old)
        key = "arguments"
    if isinstance(inside, Mapping) and isinstance(inside.get(key), str):
        return call
    return replace(call, origin=None)


def _fit_result(result: ToolResult) -> ToolResult:
    old = wire_of(result, NAME)
    if old and old.get("content") in (None, []):
        return replace(result, origin=None)
    content = tuple(block for block in result.content if _fit_part(block) is not None)
    if len(content) == len(result.content):
        return result
    return replace(result, content=content)


def _renew_legacy(messages: Sequence[Message]) -> list[Message]:
    """Rebuild `function_call` fields and `function` results, unless one answers the other."""
    renewed = list(messages)
    for index, message in enumerate(messages):
        before = messages[index - 1] if index else None
        following = messages[index + 1] if index + 1 < len(messages) else None
        is_paired = _is_legacy_pair(message, following) or (before is not None and _is_legacy_pair(before, message))
        if any(map(_is_legacy, message.parts)) and not is_paired:
            renewed[index] = shaping.change_parts(message, lambda p: replace(p, origin=None) if _is_legacy(p) else p)
    return renewed


def _is_legacy_pair(message: Message, following: Message | None) -> bool:
    if following is None:
        return False
    calls = message.calls
    results = following.results
    if not len(calls) == len(results) == 1 or calls[0].name != results[0].call_id:
        return False
    return _is_legacy(calls[0]) and _is_legacy(results[0])


def _join_side(messages: Sequence[Message], log: Log) -> list[Message]:
    """Join the messages of one side from its first call on."""
    first = 0
    while first < len(messages) and not messages[first].calls:
        first += 1
    if len(messages) - first <= 1:
        return list(messages)
    if any(wire_of(message, NAME) for message in messages[first:]):
        log.note("joined", None, "joined the calls of one reply")
    return [*messages[:first], shaping.join_messages(messages[first:])]


# --- rules -------------------------------------------------------------------

_LEGACY: Final = "function "
"""The prefix that distinguishes the name of a legacy function from the id of a call."""
_FIELDS_WITHOUT_CONTENT: Final = ("tool_calls", "function_call", "refusal", "audio")


def check(sent: Sequence[Wire]) -> list[Violation]:
    """List the rules of Chat Completions that a message list breaks."""
    found: list[Violation] = []
    turns: list[Turn] = []
    for index, message in enumerate(sent):
        where = f"messages[{index}]"
        role = message.get("role")
        found += _check_message(message, where)
        for part in blocks(message.get("content")):
            if kind(part) == "text" and not part.get("text"):
                found.append(Violation("blank-text", where, "a text part without text"))
            if role == "assistant" and kind(part) not in {"text", "refusal"}:
                found.append(Violation("part-role", where, f"{quote(kind(part))} in a message of the assistant"))
        if role in {"tool", "function"}:  # a result follows the call, with only other results between them
            call_id = message.get("tool_call_id") if role == "tool" else f"{_LEGACY}{message.get('name')}"
            turns.append(Turn(where, results=[str(call_id)], closes=False))
        else:
            found += _check_calls(message, where)
            turns.append(Turn(where, [call_id for _, call_id, _ in _calls(message)]))
    return [*found, *rules.check_pairs(turns)]


def _check_message(message: Wire, where: str) -> Iterator[Violation]:
    role = message.get("role")
    content = message.get("content")
    if role not in ROLES:
        yield Violation("role", where, f"unknown role {quote(role)}")
    if message.get("tool_calls") == []:
        yield Violation("empty-calls", where, "an empty list of calls")
    is_empty = not isinstance(content, str) and not blocks(content)
    if content is None and role == "assistant":
        is_empty = not any(map(message.get, _FIELDS_WITHOUT_CONTENT))
    if is_empty or (content == "" and role in {"system", "developer", "user"}):
        yield Violation("empty-content", where, "no content")


def _calls(message: Wire) -> list[tuple[Wire, str, Wire]]:
    """List the calls of a message, each with the id that its result must have, and its function."""
    calls: list[tuple[Wire, str, Wire]] = []
    for call in blocks(message.get("tool_calls")):
        function = call.get("custom" if kind(call) == "custom" else "function")
        if not isinstance(function, Mapping):
            function = {}
        calls.append((call, str(call.get("id") or ""), function))
    legacy = message.get("function_call")
    if isinstance(legacy, Mapping):
        calls.append((legacy, _LEGACY + str(legacy.get("name")), legacy))
    return calls


def _check_calls(message: Wire, where: str) -> Iterator[Violation]:
    calls = _calls(message)
    if calls and message.get("role") != "assistant":
        yield Violation("role", where, f"a tool call in a message of the {message.get('role')}")
    for call, call_id, function in calls:
        if not 1 <= len(call_id.removeprefix(_LEGACY)) <= rules.MAX_ID_CHARS:
            yield Violation("id", where, f"id {quote(call_id)}")
        if not rules.OPENAI_NAME.fullmatch(str(function.get("name", ""))):
            yield Violation("name", where, f"name {quote(function.get('name'))}")
        arguments = function.get("input" if kind(call) == "custom" else "arguments")
        if not isinstance(arguments, str):
            yield Violation("arguments", where, "arguments are not text")
    yield from rules.check_unique(((where, call_id) for _, call_id, _ in calls), "repeated-id")


OPENAI_CHAT: Final = Format(name=NAME, read=read, render=render, is_own=is_own, shape=shape, check=check)
