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
    arguments = data.get("input")
    if not isinstance(arguments, str):
        arguments = wire.limit_depth(expect(data, "input", dict, where, default={}), where)
    return ToolCall(
        id=expect(data, "id", str, where, default=""),
        name=expect(data, "name", str, where, default=""),
        arguments=arguments,
    )


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
    if isinstance(data.get("content"), str):  # as in most messages, and every turn asks this about all
        return False
    return any("cache_control" in block or wire.kind_of(block) == "thinking" for block in wire.blocks_of(data))


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; neighbours of one role that are rebuilt become one message.

    The provider refuses empty messages and blank text: neither is rebuilt.
    """
    turns: list[Json] = []
    was_new = False
    for message in messages:
        sent = wire.rebuild(message, _make_message, format=NAME)
        if sent is None:
            continue
        is_new = not wire_of(message, NAME)
        if turns and is_new and was_new and turns[-1]["role"] == sent["role"]:
            turns[-1] = {**turns[-1], "content": [*_list_blocks(turns[-1]), *_list_blocks(sent)]}
        else:
            turns.append(sent)
        was_new = is_new
    return turns


def _list_blocks(sent: Json) -> list[Json]:
    content: str | list[Json] = sent["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content


def _make_message(message: Message, old: Json) -> Json | None:
    content = _make_content(message.parts, old.get("content"))
    if not content:
        return None
    return {"role": _role_of(message), "content": content}


def _role_of(message: Message) -> Role:
    """Return the role of a message on the wire: results are the user's."""
    return "user" if message.role == "tool" else message.role


def _make_content(parts: Sequence[Part], old: object = None) -> str | list[Json]:
    content = wire.render_content(parts, old, _make_block, format=NAME)
    if isinstance(content, str) and not content.strip():
        return ""
    return content


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
    allowed = part.content
    if part.is_error and not old:
        allowed = tuple(block for block in part.content if isinstance(block, Text))
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id}
    content = _make_content(allowed, old.get("content"))
    if content:
        result["content"] = content
    if part.is_error:
        result["is_error"] = True
    return result


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
    shaped = [_drop_reply_fields(message) for message in messages[lead:]]
    shaped = shaping.assign_ids(shaped, log, is_plain=True, is_unique=True)
    shaped = shaping.change_messages(shaped, _fit_message, log, "content")
    shaped = shaping.drop_empty(shaped, log)
    joined: list[Message] = []
    for side in shaping.group_sides(shaped):
        joined += _join_side(side, log)
    shaped = shaping.change_messages(joined, _order_thinking, log, "thinking")
    shaped = shaping.drop_empty(shaped, log)
    shaped = _place_instructions(shaped, log)
    shaped = shaping.start_with_user(shaped, log)
    shaped = _strip_last_reply(shaped, log)
    return [*messages[:lead], *shaped]


def _drop_reply_fields(message: Message) -> Message:
    """Drop what only replies have, such as usage. Clients send whole replies back: that is no repair to report."""
    if REPLY_FIELDS.intersection(wire_of(message, NAME)):
        return replace(message, origin=None)
    return message


def _fit_message(message: Message) -> Message:
    old = wire_of(message, NAME)
    role = _role_of(message)
    has_other_role = old.get("role", role) != role
    if has_other_role or shaping.has_client_fields(message):
        message = replace(message, origin=None)
    # White space alone is refused only if no other text block of the message has more.
    allows_blank = any(isinstance(part, Text) and not shaping.is_blank(part) for part in message.parts)
    fitted = shaping.change_parts(message, partial(_fit_part, allows_blank=allows_blank))
    return _move_out_of_errors(shaping.replace_pictures(fitted))


def _fit_part(part: Part, *, allows_blank: bool) -> Part | None:
    match part:
        case Text():
            is_refused = not part.text or (shaping.is_blank(part) and not allows_blank)
            return None if is_refused else part
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
    if arguments is call.arguments:
        return call
    return replace(call, arguments=arguments)


def _fit_thinking(part: Thinking | RedactedThinking) -> Part | None:
    """Keep thinking that Anthropic signed; turn other thinking into text, if it has any."""
    signature = part.signature if isinstance(part, Thinking) else part.data
    if signature and not wire.is_sealed_elsewhere(part):
        return part
    if isinstance(part, Thinking) and part.text.strip():
        return Text(text=part.text)
    return None


def _fit_result(result: ToolResult) -> ToolResult:
    """Drop empty text blocks and blocks that have no place; an error gets a text."""
    content: list[ResultContent] = []
    for block in result.content:
        is_empty_block = isinstance(block, Text) and not block.text and bool(wire_of(block, NAME))
        if not is_empty_block and not shaping.has_no_place(block, NAME):
            content.append(block)
    if result.is_error and all(map(shaping.is_blank, content)):
        content = [Text(text=shaping.NO_OUTPUT)]
    if tuple(content) == result.content:
        return result
    return replace(result, content=tuple(content))


def _move_out_of_errors(message: Message) -> Message:
    """Move what an error must not hold, anything but text, after the results."""
    moved: list[ResultContent] = []

    def change(part: Part) -> Part:
        if not isinstance(part, ToolResult) or not part.is_error:
            return part
        others = [block for block in part.content if not isinstance(block, Text)]
        if not others:
            return part
        moved.extend(others)
        texts = tuple(block for block in part.content if isinstance(block, Text) and not shaping.is_blank(block))
        return replace(part, content=texts or (Text(text=shaping.SHOWN_BELOW),))

    new = shaping.change_parts(message, change)
    if not moved:
        return message
    return replace(new, parts=(*new.parts, *moved))


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
    if any(one.calls for one in group):  # only results may follow a call
        return True
    if shaping.is_thinking(last.parts[-1]):  # something must follow thinking
        return True
    return shaping.is_thinking(group[0].parts[0]) and not any(map(shaping.is_thinking, message.parts))


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
    if len(parts) == len(message.parts):
        return message
    return replace(message, parts=parts)


def _place_instructions(messages: Sequence[Message], log: Log) -> list[Message]:
    """Move system messages in the middle of a conversation after the text of the user: only there they are allowed.

    One that nothing of the user comes before or after, or that is not the last one of several, is sent as the user's.
    """
    placed: list[Message] = []
    for side in shaping.group_sides(messages):
        last = _find_last_instruction(side)
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


def _find_last_instruction(side: Sequence[Message]) -> Message | None:
    """Return the last system message of a side that was read from a list; None if nobody else is on that side."""
    system = [message for message in side if message.role == "system"]
    if len(system) == len(side):
        return None
    for message in reversed(system):
        if wire_of(message, NAME):
            return message
    return None


def _strip_last_reply(messages: list[Message], log: Log) -> list[Message]:
    """Remove white space at the end of a last reply, which the model is to continue."""
    if not messages:
        return messages
    reply = messages[-1]
    if reply.role != "assistant" or not reply.parts:
        return messages
    *parts, last = reply.parts
    if not isinstance(last, Text) or last.text == last.text.rstrip():
        return messages
    log.note("trailing-space", len(messages) - 1, "removed white space at the end of the last reply")
    if last.text.strip():
        parts.append(replace(last, text=last.text.rstrip()))
    return [*messages[:-1], replace(reply, parts=tuple(parts))]


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
        where = f"messages[{index}]"
        role = message.get("role")
        found += _check_place(sent, index, where)
        found += _check_message(message, where)
        calls: Sequence[str] = ()
        results: Sequence[str] = ()
        if role == "assistant":
            found += _check_thinking(message, where)
            calls = _ids(message, "tool_use", "id")
        elif role == "user":
            results = _ids(message, "tool_result", "tool_use_id")
        turns.append(Turn(where, calls, results))
    found += check_pairs(turns, is_unique=True)
    found += _check_end(sent[-1], f"messages[{len(sent) - 1}]")
    return found


def _check_end(last: Wire, where: str) -> Iterator[Violation]:
    """A last reply, which the model is to continue, does not end in white space."""
    if last.get("role") != "assistant":
        return
    text = last.get("content")
    listed = blocks(text)
    if listed:
        text = listed[-1].get("text") if kind(listed[-1]) == "text" else None
    if isinstance(text, str) and text != text.rstrip():
        yield Violation("trailing-space", where, "the last reply ends in white space")


def _check_place(sent: Sequence[Wire], index: int, where: str) -> Iterator[Violation]:
    """The first message is the user's; a system message in the list comes after the user and before the assistant."""
    role = sent[index].get("role")
    if role == "user":
        return
    if role == "assistant":
        if index == 0:
            yield Violation("first-user", where, "the first message is not the user's")
        return
    before = sent[index - 1].get("role") if index else None
    following = sent[index + 1].get("role") if index + 1 < len(sent) else "assistant"
    if before != "user" or following != "assistant":
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
    for block in content:
        match kind(block):
            case "thinking":
                is_signed = bool(block.get("signature")) and isinstance(block.get("thinking"), str)
            case "redacted_thinking":
                is_signed = bool(block.get("data"))
            case _:
                continue
        if not is_signed:
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
