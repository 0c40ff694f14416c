"""pi and OpenClaw: the messages inside their session files, in every spelling that real files hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from holdfast.providers.rules import Turn, Violation, Wire, blocks, check_pairs, kind, quote
from holdfast.providers.shaping import Log
from holdfast.providers.wire import Json, expect, wire_of

NAME: Final = "pi"
CALL_TYPES: Final = ("toolCall", "toolUse", "tool_use", "functionCall")
RESULT_ROLES: Final = ("toolResult", "tool", "tool_result")
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "custom": "user",
    "hookMessage": "user",
}

# One field, several names: the first is the one that we write if the file had none.
CALL_IDS: Final = ("id", "call_id")
RESULT_IDS: Final = ("toolCallId", "toolUseId", "tool_use_id", "call_id")
_ARGUMENTS: Final = ("arguments", "input", "args", "params")
_RESULT_NAMES: Final = ("toolName", "name")
_IS_ERROR: Final = ("isError", "is_error")
_USAGE: Final = {
    "input": "input",
    "output": "output",
    "total": "totalTokens",
    "cache_read": "cacheRead",
    "cache_write": "cacheWrite",
}
_SIGNATURE: Final = ("thinkingSignature", "signature")

COMPACTION_SUMMARY: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
)
BRANCH_SUMMARY: Final = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "</summary>",
)
_COMPOSED_ROLES: Final = frozenset({"bashExecution", "branchSummary", "compactionSummary"})
"""Roles whose text is composed from fields."""
_COMPOSED_FIELDS: Final = frozenset({"role", "command", "output", "fullOutputPath", "summary"})


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of a session entry."""
    role, parts = _read_parts(expect(data, "role", str, where), data, where)
    api = data.get("api")
    if isinstance(api, str) and not api.startswith(("anthropic", "bedrock")):
        parts = tuple(map(_drop_signature, parts))  # only Anthropic's signatures can be sent on
    message = Message(
        role=role,
        parts=parts,
        timestamp=wire.number(data.get("timestamp")),
        usage=wire.read_usage(data.get("usage"), _USAGE, is_partial=True),
        model=expect(data, "model", str, where, default="") or None,
        stop=expect(data, "stopReason", str, where, default="") or None,
    )
    return message.read_from(data, format=NAME)


def _drop_signature(part: Part) -> Part:
    if not isinstance(part, Thinking) or part.signature is None or part.origin is None:
        return part
    return replace(part, signature=None).read_from(part.origin.data, format=NAME)


def _read_parts(name: str, data: Json, where: str) -> tuple[Role, tuple[Part, ...]]:
    if name in _ROLES:
        return _ROLES[name], wire.read_content(data.get("content"), _BLOCKS, f"{where}.content", format=NAME)
    if name in RESULT_ROLES:
        return "tool", (_read_result(data, where).read_from(data, format=NAME),)
    if name == "tool_call":
        return "assistant", (_read_call(data, where).read_from(data, format=NAME),)
    if name == "bashExecution":
        if data.get("excludeFromContext"):
            return "user", ()
        return "user", (Text(text=_describe_command(data)),)
    if name in _COMPOSED_ROLES:
        before, after = BRANCH_SUMMARY if name == "branchSummary" else COMPACTION_SUMMARY
        return "user", (Text(text=before + expect(data, "summary", str, where, default="") + after),)
    known = ", ".join([*_ROLES, *RESULT_ROLES, "tool_call", *sorted(_COMPOSED_ROLES)])
    raise FormatError(f"role {name[:40]!r} is not one of {known}", where=f"{where}.role", format=NAME)


def _read_thinking(data: Json, where: str) -> Part:
    signature = expect(data, wire.spelling(data, _SIGNATURE), str, where, default="")
    if data.get("redacted"):
        return RedactedThinking(data=signature)
    return Thinking(text=expect(data, "thinking", str, where, default=""), signature=signature or None)


def _read_call(data: Json, where: str) -> Part:
    key = wire.spelling(data, _ARGUMENTS)
    value = data.get(key)
    arguments = wire.decode_arguments(value) if isinstance(value, str) else expect(data, key, dict, where, default={})
    return ToolCall(
        id=expect(data, wire.spelling(data, CALL_IDS), str, where, default=""),
        name=expect(data, "name", str, where, default=""),
        arguments=wire.limit_depth(arguments, f"{where}.{key}"),
    )


def _read_image(data: Json, where: str) -> Image:
    source = data
    media_key = "mimeType"
    if isinstance(data.get("source"), Mapping):  # Anthropic's spelling
        source = data["source"]
        where = f"{where}.source"
        media_key = "media_type"
    return Image(
        media_type=expect(source, media_key, str, where, default="") or None,
        data=expect(source, "data", str, where, default="") or None,
        url=expect(source, "url", str, where, default="") or None,
    )


_RESULT_BLOCKS: Final[dict[str, Callable[[Json, str], ResultContent]]] = {
    "text": lambda data, where: Text(text=expect(data, "text", str, where, default="")),
    "image": _read_image,
    "opaque": lambda data, where: Opaque(  # a part of another format, as `_make_block` carries it
        kind=expect(data, "kind", str, where, default="opaque"), data=wire.limit_depth(data.get("data"), where)
    ),
}
_BLOCKS: Final[dict[str, Callable[[Json, str], Part]]] = {
    **_RESULT_BLOCKS,
    "thinking": _read_thinking,
    **dict.fromkeys(CALL_TYPES, _read_call),
}


def _read_result(data: Json, where: str) -> ToolResult:
    return ToolResult(
        call_id=expect(data, wire.spelling(data, RESULT_IDS), str, where, default=""),
        content=wire.read_content(data.get("content"), _RESULT_BLOCKS, f"{where}.content", format=NAME),
        is_error=expect(data, wire.spelling(data, _IS_ERROR), bool, where, default=False),
        name=expect(data, wire.spelling(data, _RESULT_NAMES), str, where, default="") or None,
    )


def _describe_command(data: Json) -> str:
    """Describe a command that the user ran to the model."""
    output = str(data.get("output") or "")
    text = f"Ran `{data.get('command', '')}`\n" + (f"```\n{output}\n```" if output else "(no output)")
    code = data.get("exitCode")
    if data.get("cancelled"):
        text += "\n\n(command cancelled)"
    elif code not in (None, 0):
        text += f"\n\nCommand exited with code {code}"
    if data.get("truncated") and data.get("fullOutputPath"):
        text += f"\n\n[Output truncated. Full output: {data['fullOutputPath']}]"
    return text


# --- recognising -------------------------------------------------------------

_OWN_ROLES: Final = ("toolResult", "tool_call", "tool_result", "custom", "hookMessage", *sorted(_COMPOSED_ROLES))
_OWN_KEYS: Final = frozenset({"thinkingSignature", "mimeType", "thoughtSignature", "textSignature"})
_OWN_CALLS: Final = frozenset({"toolCall", "toolUse", "functionCall"})


def is_own(data: Json) -> bool:
    """Return whether a message has the roles, the spellings of calls and results, or the keys of pi."""
    role = data.get("role")
    if role in _OWN_ROLES or "stopReason" in data:
        return True
    if role in RESULT_ROLES and any(key in data for key in RESULT_IDS):
        return True
    return any(wire.kind_of(block) in _OWN_CALLS or not _OWN_KEYS.isdisjoint(block) for block in wire.blocks_of(data))


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; a message with several results becomes one toolResult for each."""
    return [sent for message in messages for sent in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    sent = message.wire(NAME)
    if sent is not None:
        return [sent]
    if not message.results:
        if wire_of(message, NAME).get("role") in RESULT_ROLES:  # an edit removed its result
            message = replace(message, origin=None)
        return [_render_words(message)]
    others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    words = [_render_words(replace(message, parts=others, origin=None))] if others else []
    make = partial(_make_result, timestamp=message.timestamp)
    results = [wire.rebuild_always(result, make, format=NAME) for result in message.results]
    if message.calls:
        return [*words, *results]
    return [*results, *words]


def _render_words(message: Message) -> Json:
    old = wire_of(message, NAME)
    if old.get("role") == "tool_call" and len(message.calls) == len(message.parts) == 1:
        return wire.rebuild_always(message.calls[0], _make_block, format=NAME)
    if old.get("role") in _COMPOSED_ROLES:  # the fields do not match an edited text: they go
        rest = {key: value for key, value in old.items() if key not in _COMPOSED_FIELDS}
        return {"role": "user", **rest, "content": _make_content(message.parts, {})}
    return wire.rebuild_always(message, _make_message, format=NAME)


def _make_message(message: Message, old: Json) -> Json:
    role = "user" if message.role == "tool" else message.role
    made: dict[str, Any] = {"role": role, "content": _make_content(message.parts, old)}
    if not old:
        details = {"model": message.model, "stopReason": message.stop, "timestamp": message.timestamp}
        made |= {key: value for key, value in details.items() if value is not None}
    return made


def _make_content(parts: Sequence[Part], old: Json) -> str | list[Json]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if isinstance(old.get("content"), str) and len(texts) == len(parts):
        return "\n".join(texts)
    return [wire.rebuild_always(part, _make_block, format=NAME) for part in parts]


def _make_result(result: ToolResult, old: Json, *, timestamp: int | None) -> Json:
    made: dict[str, Any] = {"role": "toolResult", wire.spelling(old, RESULT_IDS): result.call_id}
    if result.name is not None:
        made[wire.spelling(old, _RESULT_NAMES)] = result.name
    made["content"] = _make_content(result.content, old)
    made[wire.spelling(old, _IS_ERROR)] = result.is_error
    if not old and timestamp is not None:
        made["timestamp"] = timestamp
    return made


def _make_block(part: Part, old: Json) -> Json:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking() | RedactedThinking():
            return _make_thinking(part, old)
        case ToolCall():
            return {
                "type": "toolCall",
                wire.spelling(old, CALL_IDS): part.id,
                "name": part.name,
                wire.spelling(old, _ARGUMENTS): wire.object_arguments(part.arguments),
            }
        case Image():
            return _make_image(part, old)
        case Opaque():
            carried = {"type": "opaque", "kind": part.kind, "data": part.data}
            return carried if wire.kind_of(old) in {"", "opaque"} else part.data
        case ToolResult():
            raise AssertionError("a result is a message, never a block")


def _make_thinking(part: Thinking | RedactedThinking, old: Json) -> Json:
    key = wire.spelling(old, _SIGNATURE)
    if isinstance(part, Thinking):
        signed = {} if part.signature is None or wire.is_sealed_elsewhere(part) else {key: part.signature}
        return {"type": "thinking", "thinking": part.text, **signed}
    if wire.is_sealed_elsewhere(part):  # it would be read as redacted thinking of Anthropic
        return {"type": "opaque", "kind": "reasoning", "data": part.data}
    return {"type": "thinking", "thinking": "", key: part.data, "redacted": True}


def _make_image(part: Image, old: Json) -> Json:
    if isinstance(old.get("source"), Mapping):
        known = {"media_type": part.media_type, "data": part.data, "url": part.url}
        return {"type": "image", "source": {key: value for key, value in known.items() if value is not None}}
    if part.data is None:  # pi has no place for a reference
        return {"type": "text", "text": f"[image: {part.url or 'none'}]"}
    return {"type": "image", "data": part.data, "mimeType": part.media_type or "image/png"}


# --- shape -------------------------------------------------------------------


def shape(messages: Sequence[Message], log: Log) -> list[Message]:
    """Return messages that are paired already. pi sends them on to any provider and follows its rules itself."""

    def change(message: Message) -> Message:
        return replace(message, origin=None) if wire_of(message, NAME).get("role") == "developer" else message

    return shaping.change_messages(messages, change, log, "role")


# --- rules -------------------------------------------------------------------


def check(sent: Sequence[Wire]) -> list[Violation]:
    """List the rules that a message list breaks: every call has one result before the next reply."""
    found: list[Violation] = []
    turns: list[Turn] = []
    was_reply = False
    for index, message in enumerate(sent):
        where = f"messages[{index}]"
        role = message.get("role")
        if not isinstance(role, str):
            found.append(Violation("role", where, f"unknown role {quote(role)}"))
        is_reply = role in ("assistant", "tool_call")
        listed = [block for block in blocks(message.get("content")) if kind(block) in CALL_TYPES]
        if role == "tool_call":
            listed = [message]
        calls = [_first_of(call, CALL_IDS) for call in listed]
        results = [_first_of(message, RESULT_IDS)] if role in RESULT_ROLES else ()
        turns.append(Turn(where, calls, results, closes=is_reply and not was_reply))
        was_reply = is_reply
    return [*found, *check_pairs(turns)]


def _first_of(data: Wire, names: Sequence[str]) -> str:
    for name in names:
        if data.get(name) is not None:
            return str(data[name])
    return ""


PI: Final = Format(name=NAME, read=read, render=render, is_own=is_own, shape=shape, check=check)
