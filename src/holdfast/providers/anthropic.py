"""Anthropic Messages: content blocks; tool results inside user messages; the system prompt in a field of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

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
from holdfast.providers.rules import MAX_ID_CHARS, Turn, Violation, Wire, blocks, check_pairs, has_text, kind, quote
from holdfast.providers.shaping import Log
from holdfast.providers.wire import Json, expect, wire_of

NAME: Final = "anthropic"
ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant", "system": "system"}
MAX_NAME_CHARS: Final = 128
REPLY_FIELDS: Final = frozenset({"id", "type", "model", "usage", "stop_reason", "stop_sequence", "container"})
"""Fields of a reply that are refused in a request."""
USAGE: Final = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_input_tokens",
    "cache_write": "cache_creation_input_tokens",
}


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of the Messages API, request or response."""
    role = wire.expect_role(data, ROLES, where, format=NAME)
    parts = _read_content(data.get("content"), f"{where}.content")
    message = Message(
        role="tool" if any(isinstance(part, ToolResult) for part in parts) else role,
        parts=parts,
        id=expect(data, "id", str, where, default="") or None,
        usage=wire.read_usage(data.get("usage"), USAGE),
        model=expect(data, "model", str, where, default="") or None,
        stop=expect(data, "stop_reason", str, where, default="") or None,
    )
    return message.read_from(data, format=NAME)


def _read_content(content: Any, where: str) -> tuple[Part, ...]:
    return wire.read_content(content, _BLOCKS, where, format=NAME, is_required=True)


def _read_thinking(data: Json, where: str) -> Thinking:
    signature = expect(data, "signature", str, where, default="")
    return Thinking(text=expect(data, "thinking", str, where), signature=signature or None)


def _read_call(data: Json, where: str) -> Part:
    value = data.get("input")
    arguments = (
        value if isinstance(value, str) else wire.limit_depth(expect(data, "input", dict, where, default={}), where)
    )
    call_id, name = (expect(data, key, str, where, default="") for key in ("id", "name"))
    return ToolCall(id=call_id, name=name, arguments=arguments)


def _read_result(data: Json, where: str) -> ToolResult:
    return ToolResult(
        call_id=expect(data, "tool_use_id", str, where, default=""),
        content=wire.read_content(data.get("content"), _RESULT_BLOCKS, f"{where}.content", format=NAME),
        is_error=expect(data, "is_error", bool, where, default=False),
    )


def _read_image(data: Json, where: str) -> Image | Opaque:
    path = f"{where}.source"
    source = wire.expect_object(data.get("source"), path)
    if source.get("type") == "base64":
        media_type = expect(source, "media_type", str, path, default="")
        return Image(media_type=media_type or None, data=expect(source, "data", str, path))
    if source.get("type") == "url":
        return Image(url=expect(source, "url", str, path))
    return wire.carry(data, where)


_RESULT_BLOCKS: Final[dict[str, Callable[[Json, str], ResultContent]]] = {"text": wire.read_text, "image": _read_image}
_BLOCKS: Final[dict[str, Callable[[Json, str], Part]]] = {
    **_RESULT_BLOCKS,
    "thinking": _read_thinking,
    "redacted_thinking": lambda data, where: RedactedThinking(data=expect(data, "data", str, where)),
    "tool_use": _read_call,
    "tool_result": _read_result,
}
"""The functions that read the blocks of a message, by type.

Only `text` blocks are read into `Text`: `_fit_message`, `_order_thinking` and `_strip_last_reply` take every `Text` for
one, and `check` looks at the type of the block.
"""


# --- recognising -------------------------------------------------------------

_OWN_BLOCKS: Final = ("tool_use", "tool_result", "redacted_thinking", "document", "search_result")
"""The endings of the block types that only Anthropic has, such as `server_tool_use`.

A message in a list without a named format is recognised by them; one with blocks of a type that is missing here is not.
"""
_OWN_KEYS: Final = {"thinking": "signature", "image": "source"}
"""For block types that others have too, the field that only Anthropic's have."""


def is_own(data: Json) -> bool:
    """Return whether a message has tool blocks, signatures, image sources or the response envelope of Anthropic."""
    if data.get("type") == "message" and "stop_reason" in data:
        return True
    return any(
        wire.kind_of(block).endswith(_OWN_BLOCKS) or _OWN_KEYS.get(wire.kind_of(block)) in block
        for block in wire.blocks_of(data)
    )


def has_hints(data: Json) -> bool:
    """Return whether a message has something that Anthropic introduced, though other providers accept it too."""
    return any("cache_control" in block or wire.kind_of(block) == "thinking" for block in wire.blocks_of(data))


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; neighbours of one role that are rebuilt become one message.

    The provider refuses empty messages and blank text: neither is rebuilt.
    """
    turns: list[Json] = []
    was_new = False
    for message in messages:
        sent, is_new = wire.rebuild(message, _make_message, format=NAME), not wire_of(message, NAME)
        if sent is None:
            continue
        if turns and is_new and was_new and turns[-1]["role"] == sent["role"]:
            turns[-1] = {**turns[-1], "content": [*_list_blocks(turns[-1]), *_list_blocks(sent)]}
        else:
            turns.append(sent)
        was_new = is_new
    return turns


def _list_blocks(sent: Json) -> list[Json]:
    content = sent["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _make_message(message: Message, old: Json) -> Json | None:
    content = _make_content(message.parts, old.get("content"))
    return {"role": "user" if message.role == "tool" else message.role, "content": content} if content else None


def _make_content(parts: Sequence[Part], old: object = None) -> str | list[Json]:
    content = wire.render_content(parts, old, _make_block, format=NAME)
    return "" if isinstance(content, str) and not content.strip() else content


def _make_block(part: Part, old: Json) -> Json | None:
    match part:
        case Thinking() if part.signature is not None and not wire.is_sealed_elsewhere(part):
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case Text() | Thinking() if part.text.strip():  # unsigned thinking is refused: it can only be sent as text
            return {"type": "text", "text": part.text}
        case RedactedThinking() if not wire.is_sealed_elsewhere(part):
            return {"type": "redacted_thinking", "data": part.data}
        case ToolCall():
            arguments = wire.object_arguments(part.arguments)
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments}
        case ToolResult():
            return _make_result(part, old)
        case Image():
            return _make_image(part)
        case Opaque() if old:
            return dict(part.data)
    return None


def _make_result(part: ToolResult, old: Json) -> Json:
    # An error may hold only text; other blocks that were read from an error stay there.
    allowed = tuple(block for block in part.content if old or not part.is_error or isinstance(block, Text))
    content = _make_content(allowed, old.get("content"))
    fields = {"content": content} if content else {}
    error = {"is_error": True} if part.is_error else {}
    return {"type": "tool_result", "tool_use_id": part.call_id, **fields, **error}


def _make_image(part: Image) -> Json | None:
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type or "image/png", "data": part.data}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        return None
    return {"type": "image", "source": source}


def render_system(messages: Sequence[Message]) -> str | list[Json]:
    """Render the system prompt: as blocks if it was read from blocks, else as one text."""
    parts = [part for message in messages for part in message.parts]
    if any(wire_of(part, NAME) for part in parts):
        return _make_content(parts)
    return "\n\n".join(message.text for message in messages)


# --- shape -------------------------------------------------------------------


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Change messages so that Anthropic accepts them."""
    messages = shaping.move_system_prompt(messages, log)
    lead = wire.leading_system(messages, NAME)
    shaped = shaping.assign_ids(messages[lead:], log, is_plain=True, is_unique=True)
    shaped = shaping.drop_empty(shaping.change_messages(shaped, _fit_message, log, "content"), log)
    shaped = [message for side in shaping.group_sides(shaped) for message in _join_side(side, log)]
    shaped = shaping.drop_empty(shaping.change_messages(shaped, _order_thinking, log, "thinking"), log)
    shaped = _strip_last_reply(shaping.start_with_user(_place_instructions(shaped, log), log), log)
    return [*messages[:lead], *shaped]


def _fit_message(message: Message) -> Message:
    old = wire_of(message, NAME)
    role = "user" if message.role == "tool" else message.role
    if REPLY_FIELDS.intersection(old) or old.get("role", role) != role or shaping.has_client_fields(message):
        message = replace(message, origin=None)
    # White space alone is refused only if no other text block of the message has more.
    allows_blank = any(isinstance(part, Text) and not shaping.is_blank(part) for part in message.parts)
    fitted = shaping.change_parts(message, partial(_fit_part, allows_blank=allows_blank))
    return _move_out_of_errors(shaping.replace_pictures(fitted))


def _fit_part(part: Part, *, allows_blank: bool) -> Part | None:
    match part:
        case Text():
            return part if part.text and (allows_blank or not shaping.is_blank(part)) else None
        case Thinking() | RedactedThinking():
            return _fit_thinking(part)
        case ToolCall():
            return _fit_call(shaping.fit_name(part, MAX_NAME_CHARS))
        case ToolResult():
            return _fit_result(part)
        case _:
            return None if shaping.has_no_place(part, NAME) else part


def _fit_call(call: ToolCall) -> ToolCall:
    old = wire_of(call, NAME)
    if old and old.get("input") is None:
        return replace(call, origin=None)
    arguments = wire.object_arguments(call.arguments)
    return call if arguments is call.arguments else replace(call, arguments=arguments)


def _fit_thinking(part: Thinking | RedactedThinking) -> Part | None:
    """Keep thinking that Anthropic signed; turn other thinking into text, if it has any."""
    signature, text = (part.signature, part.text) if isinstance(part, Thinking) else (part.data, "")
    if signature and not wire.is_sealed_elsewhere(part):
        return part
    return Text(text=text) if text.strip() else None


def _fit_result(result: ToolResult) -> ToolResult:
    """Drop empty text blocks and blocks that have no place; an error gets a text."""
    content: tuple[ResultContent, ...] = tuple(
        block
        for block in result.content
        if not (isinstance(block, Text) and not block.text and wire_of(block, NAME))
        and not shaping.has_no_place(block, NAME)
    )
    if result.is_error and all(map(shaping.is_blank, content)):
        content = (Text(text=shaping.NO_OUTPUT),)
    return result if content == result.content else replace(result, content=content)


def _move_out_of_errors(message: Message) -> Message:
    """Move what an error must not hold, anything but text, after the results."""
    moved: list[ResultContent] = []

    def change(part: Part) -> Part:
        if not isinstance(part, ToolResult) or not part.is_error or all(isinstance(b, Text) for b in part.content):
            return part
        moved.extend(block for block in part.content if not isinstance(block, Text))
        texts = tuple(block for block in part.content if isinstance(block, Text) and not shaping.is_blank(block))
        return replace(part, content=texts or (Text(text=shaping.SHOWN_BELOW),))

    new = shaping.change_parts(message, change)
    return replace(new, parts=(*new.parts, *moved)) if moved else message


def _join_side(messages: Sequence[Message], log: Log) -> list[Message]:
    """Join messages of one side if they would be refused one by one."""
    joined: list[Message] = []
    for run in shaping.group(shaping.group(messages, _belongs), _are_rendered_together):
        group = [message for group in run for message in group]
        if len(group) == 1 and _has_results_first(group[0]):
            joined.append(group[0])
            continue
        if any(wire_of(message, NAME) for message in group):
            log.note("joined", None, f"joined {len(group)} message(s) of one side, results first")
        joined.append(shaping.join_messages(group))
    return joined


def _belongs(group: Sequence[Message], message: Message) -> bool:
    """Return whether a message cannot be apart from those before it."""
    last = group[-1]
    if "system" in {message.role, last.role}:
        return False
    if message.role != "assistant":
        return bool(last.results and message.results)  # the results of one batch go together
    # After a call only results may follow, after thinking something must.
    is_open = shaping.is_thinking(last.parts[-1]) or any(one.calls for one in group)
    return is_open or (shaping.is_thinking(group[0].parts[0]) and not any(map(shaping.is_thinking, message.parts)))


def _are_rendered_together(run: list[list[Message]], group: list[Message]) -> bool:
    """Return whether two neighbours are both rebuilt: then they are rendered as one."""
    is_new = len(run) > 1 or _is_new(run[-1])
    return is_new and _is_new(group) and "system" not in {run[-1][-1].role, group[0].role}


def _is_new(group: Sequence[Message]) -> bool:
    return len(group) > 1 or not wire_of(group[0], NAME) or not _has_results_first(group[0])


def _has_results_first(message: Message) -> bool:
    return all(isinstance(part, ToolResult) for part in message.parts[: len(message.results)])


def _order_thinking(message: Message) -> Message:
    """Drop thinking that is not first, and thinking that nothing follows."""
    parts = message.parts
    while parts and shaping.is_thinking(parts[-1]):
        parts = parts[:-1]
    if parts and not (shaping.is_thinking(parts[0]) or isinstance(parts[0], Opaque)):
        parts = tuple(part for part in parts if not shaping.is_thinking(part))
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _place_instructions(messages: Sequence[Message], log: Log) -> list[Message]:
    """Move system messages in the middle of a conversation after the text of the user: only there they are allowed.

    One that nothing of the user comes before or after, or that is not the last one of several, is sent as the user's.
    """
    placed: list[Message] = []
    for side in shaping.group_sides(messages):
        system = [one for one in side if one.role == "system"]
        last = next((one for one in reversed(system) if wire_of(one, NAME)), None) if len(system) < len(side) else None
        for message in side:
            if message.role != "system":
                placed.append(message)
            elif message is not last:
                log.note("system-place", len(placed), "sent a system message that is not allowed here as the user's")
                placed.append(replace(message, role="user"))
        if last is not None:
            if side[-1] is not last:
                log.note("system-place", len(placed), "moved a system message after the user's message")
            placed.append(last)
    return placed


def _strip_last_reply(messages: list[Message], log: Log) -> list[Message]:
    """Remove white space at the end of a last reply, which the model is to continue."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or not last.parts or not isinstance(last.parts[-1], Text):
        return messages
    text = last.parts[-1].text
    if text == text.rstrip():
        return messages
    log.note("trailing-space", len(messages) - 1, "removed white space at the end of the last reply")
    tail = (replace(last.parts[-1], text=text.rstrip()),) if text.strip() else ()
    return [*messages[:-1], replace(last, parts=(*last.parts[:-1], *tail))]


# --- rules -------------------------------------------------------------------

_ID: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_ID_CHARS}}}")
_NAME: Final = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_THINKING_BLOCKS: Final = frozenset({"thinking", "redacted_thinking"})
_BLOCKS_AFTER_THINKING: Final = frozenset({"text", "image", "tool_use", "tool_result"})
"""The blocks that must not come before thinking.

Blocks of other types may: what the provider itself writes before its thinking, such as the use of a tool that runs
there, it also accepts. `_order_thinking` leaves the thinking after such a block (`Opaque`) where it is.
"""


def check(sent: Sequence[Wire]) -> list[Violation]:
    """List the rules of the Messages API that a message list breaks."""
    found: list[Violation] = []
    turns: list[Turn] = []
    for index, message in enumerate(sent):
        where, role = f"messages[{index}]", message.get("role")
        found += [*_check_place(sent, index, where), *_check_message(message, where)]
        found += _check_thinking(message, where) if role == "assistant" else ()
        calls, results = _ids(message, "tool_use", "id"), _ids(message, "tool_result", "tool_use_id")
        turns.append(Turn(where, calls if role == "assistant" else (), results if role == "user" else ()))
    found += check_pairs(turns, is_unique=True)
    content = sent[-1].get("content") if sent[-1].get("role") == "assistant" else None
    last = blocks(content)[-1] if blocks(content) else {"type": "text", "text": content}
    text = last.get("text")
    if kind(last) == "text" and isinstance(text, str) and text != text.rstrip():
        found.append(Violation("trailing-space", f"messages[{len(sent) - 1}]", "the last reply ends in white space"))
    return found


def _check_place(sent: Sequence[Wire], index: int, where: str) -> Iterator[Violation]:
    """The first message is the user's; a system message in the list comes after the user and before the assistant."""
    before = sent[index - 1].get("role") if index else None
    following = sent[index + 1].get("role") if index + 1 < len(sent) else "assistant"
    if sent[index].get("role") == "assistant":
        if index == 0:
            yield Violation("first-user", where, "the first message is not the user's")
    elif sent[index].get("role") != "user" and (before != "user" or following != "assistant"):
        yield Violation("system-place", where, f"a system message between {before} and {following}")


def _check_message(message: Wire, where: str) -> Iterator[Violation]:
    if message.get("role") not in ROLES:
        yield Violation("role", where, f"unknown role {quote(message.get('role'))}")
    if extra := REPLY_FIELDS.intersection(message):
        yield Violation("reply-fields", where, f"{', '.join(sorted(extra))} cannot be sent back")
    content = message.get("content")
    if isinstance(content, str):
        if not has_text(content):
            yield Violation("empty-content", where, "blank content")
    elif not blocks(content) or len(blocks(content)) != len(content or ()):
        yield Violation("empty-content", where, "no content, or something in it is not a block")
    else:
        yield from _check_blocks(blocks(content), str(message.get("role")), f"{where}.content")
        are_results = [kind(block) == "tool_result" for block in blocks(content)]
        if not all(are_results[: sum(are_results)]):
            yield Violation("results-first", where, "something comes before a result")


def _check_blocks(content: Sequence[Wire], role: str, where: str) -> Iterator[Violation]:
    texts = [block.get("text") for block in content if kind(block) == "text"]
    if not all(texts) or (texts and not any(map(has_text, texts))):
        yield Violation("blank-text", where, "a text block without text")
    for index, block in enumerate(content):
        at = f"{where}[{index}]"
        match kind(block):
            case "tool_use":
                yield from _check_call(block, role, at)
            case "tool_result":
                yield from _check_result(block, role, at)
            case "image" if role == "assistant":
                yield Violation("role", at, "an image in a message of the assistant")
            case "thinking" | "redacted_thinking" if role != "assistant":
                yield Violation("role", at, f"thinking in a message of the {role}")


def _check_call(block: Wire, role: str, where: str) -> Iterator[Violation]:
    if role != "assistant":
        yield Violation("role", where, f"a tool call in a message of the {role}")
    if not _ID.fullmatch(str(block.get("id", ""))):
        yield Violation("id", where, f"id {quote(block.get('id'))}")
    if not _NAME.fullmatch(str(block.get("name", ""))):
        yield Violation("name", where, f"name {quote(block.get('name'))}")
    if not isinstance(block.get("input"), Mapping):
        yield Violation("arguments", where, "input is not an object")


def _check_result(block: Wire, role: str, where: str) -> Iterator[Violation]:
    if role != "user":
        yield Violation("role", where, f"a tool result in a message of the {role}")
    if not _ID.fullmatch(str(block.get("tool_use_id", ""))):
        yield Violation("id", where, f"tool_use_id {quote(block.get('tool_use_id'))}")
    content = block.get("content")
    if block.get("is_error"):
        if not content:
            yield Violation("empty-error", where, "an error without content")
        elif any(kind(inner) != "text" for inner in blocks(content)):
            yield Violation("error-content", where, "an error that holds more than text")
    if any(kind(inner) == "text" and not inner.get("text") for inner in blocks(content)):
        yield Violation("blank-text", where, "an empty text block in a result")


def _check_thinking(message: Wire, where: str) -> Iterator[Violation]:
    """Thinking is first, is followed by something, and is signed."""
    content = blocks(message.get("content"))
    kinds = [kind(block) for block in content]
    if _THINKING_BLOCKS.isdisjoint(kinds):
        return
    if kinds[0] in _BLOCKS_AFTER_THINKING:
        yield Violation("thinking-first", where, f"{kinds[0]} before thinking")
    if kinds[-1] in _THINKING_BLOCKS:
        yield Violation("thinking-last", where, "nothing follows the thinking")
    for block in (block for block in content if kind(block) in _THINKING_BLOCKS):
        seal, words = (
            (block.get("data"), "") if "redacted" in kind(block) else (block.get("signature"), block.get("thinking"))
        )
        if not seal or not isinstance(words, str):
            yield Violation("unsigned-thinking", where, "thinking without its signature")


def _ids(message: Wire, block_kind: str, key: str) -> list[str]:
    return [str(block.get(key)) for block in blocks(message.get("content")) if kind(block) == block_kind]


ANTHROPIC: Final = Format(
    name=NAME,
    read=read,
    render=render,
    is_own=is_own,
    shape=shape,
    check=check,
    system_keys=("system",),
    read_system=_read_content,
    render_system=render_system,
)
