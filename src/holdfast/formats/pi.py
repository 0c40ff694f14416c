"""pi and OpenClaw: the messages inside their session files, in every spelling that real files hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import (
    Format,
    Json,
    blocks,
    bounded,
    child,
    decode_arguments,
    expect,
    kept,
    kind_of,
    number,
    object_arguments,
    rebuild,
    sealed_elsewhere,
)
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
    Usage,
)

__all__ = ["BRANCH_SUMMARY", "COMPACTION_SUMMARY", "PI", "bash_text"]

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

# One thing, many spellings: the first is the one that we write where the file had none.
_CALL_ID: Final = ("id", "call_id")
_ARGUMENTS: Final = ("arguments", "input", "args", "params")
_RESULT_ID: Final = ("toolCallId", "toolUseId", "tool_use_id", "call_id")
_RESULT_NAME: Final = ("toolName", "name")
_IS_ERROR: Final = ("isError", "is_error")
_SIGNATURE: Final = ("thinkingSignature", "signature")

COMPACTION_SUMMARY: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
)
BRANCH_SUMMARY: Final = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "</summary>",
)
_TOLD: Final = frozenset({"bashExecution", "branchSummary", "compactionSummary"})
"""Roles whose text is put together from fields."""
_TOLD_FROM: Final = frozenset({"role", "command", "output", "fullOutputPath", "summary"})


def _spelling(data: Json, names: Sequence[str]) -> str:
    """Which of the names an object uses."""
    for name in names:
        if data.get(name) is not None:
            return name
    return names[0]


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of a session entry."""
    name = expect(data, "role", str, where)
    role, parts = _read_parts(name, data, where)
    message = Message(
        role=role,
        parts=parts if _signs(data) else tuple(map(_unsigned, parts)),
        timestamp=number(data.get("timestamp")),
        usage=read_usage(data.get("usage")),
        model=expect(data, "model", str, where, default="") or None,
        stop=expect(data, "stopReason", str, where, default="") or None,
    )
    return message.read_from(data, format=NAME)


def _read_parts(name: str, data: Json, where: str) -> tuple[Role, tuple[Part, ...]]:
    if name in _ROLES:
        return _ROLES[name], _read_content(data.get("content"), f"{where}.content")
    if name in RESULT_ROLES:
        return "tool", (_read_result(data, where).read_from(data, format=NAME),)
    if name == "tool_call":
        return "assistant", (_read_call(data, where).read_from(data, format=NAME),)
    if name == "bashExecution":
        return "user", () if data.get("excludeFromContext") else (Text(text=bash_text(data)),)
    if name in _TOLD:
        before, after = BRANCH_SUMMARY if name == "branchSummary" else COMPACTION_SUMMARY
        return "user", (Text(text=before + expect(data, "summary", str, where, default="") + after),)
    known = ", ".join([*_ROLES, *RESULT_ROLES, "tool_call", *sorted(_TOLD)])
    raise FormatError(f"role {name[:40]!r} is not one of {known}", where=f"{where}.role", format=NAME)


def _signs(data: Json) -> bool:
    """Tell whether signatures in a message are Anthropic's; other providers' seals stay in the wire form only."""
    api = data.get("api")
    return not isinstance(api, str) or api.startswith(("anthropic", "bedrock"))


def _unsigned(part: Part) -> Part:
    if not isinstance(part, Thinking) or part.signature is None or part.origin is None:
        return part
    return replace(part, signature=None).read_from(part.origin.data, format=NAME)


def _read_content(content: Any, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        found = type(content).__name__
        raise FormatError(f"expected text or a list of blocks, found {found}", where=where, format=NAME)
    return tuple(_read_block(block, f"{where}[{index}]") for index, block in enumerate(content))


def _read_block(block: Any, where: str) -> Part:
    data = child(block, where)
    kind = expect(data, "type", str, where)
    reader = _READERS.get(kind)
    part = reader(data, where) if reader is not None else Opaque(kind=kind, data=bounded(data, where))
    return part.read_from(data, format=NAME)


def _read_text(data: Json, where: str) -> Part:
    return Text(text=expect(data, "text", str, where, default=""))


def _read_thinking(data: Json, where: str) -> Part:
    seal = expect(data, _spelling(data, _SIGNATURE), str, where, default="")
    if data.get("redacted"):
        return RedactedThinking(data=seal)
    return Thinking(text=expect(data, "thinking", str, where, default=""), signature=seal or None)


def _read_call(data: Json, where: str) -> Part:
    key = _spelling(data, _ARGUMENTS)
    found = data.get(key)
    arguments = decode_arguments(found) if isinstance(found, str) else expect(data, key, dict, where, default={})
    call_id, name = (expect(data, key, str, where, default="") for key in (_spelling(data, _CALL_ID), "name"))
    return ToolCall(id=call_id, name=name, arguments=bounded(arguments, f"{where}.{key}"))


def _read_image(data: Json, where: str) -> Part:
    if isinstance(data.get("source"), Mapping):  # Anthropic's spelling
        source, where, media_key = data["source"], f"{where}.source", "media_type"
    else:
        source, media_key = data, "mimeType"
    media_type, inline, url = (expect(source, key, str, where, default="") for key in (media_key, "data", "url"))
    return Image(media_type=media_type or None, data=inline or None, url=url or None)


def _read_carried(data: Json, where: str) -> Part:
    """What another format's opaque part was wrapped in."""
    return Opaque(kind=expect(data, "kind", str, where, default="opaque"), data=bounded(data.get("data"), where))


_READERS: Final[dict[str, Callable[[Json, str], Part]]] = {
    "text": _read_text,
    "thinking": _read_thinking,
    "image": _read_image,
    "opaque": _read_carried,
    **dict.fromkeys(CALL_TYPES, _read_call),
}


def _read_result(data: Json, where: str) -> ToolResult:
    parts = _read_content(data.get("content"), f"{where}.content")
    return ToolResult(
        call_id=expect(data, _spelling(data, _RESULT_ID), str, where, default=""),
        content=tuple(_inside_result(part) for part in parts),
        is_error=expect(data, _spelling(data, _IS_ERROR), bool, where, default=False),
        name=expect(data, _spelling(data, _RESULT_NAME), str, where, default="") or None,
    )


def _inside_result(part: Part) -> ResultContent:
    """A block as a tool result may hold it; anything but text and images is carried as it is."""
    if isinstance(part, Text | Image | Opaque):
        return part
    data = kept(part, NAME)
    return Opaque(kind=kind_of(data), data=data).read_from(data, format=NAME)


def bash_text(data: Json) -> str:
    """What the model is told of a command that the user ran."""
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


def read_usage(data: Any) -> Usage | None:
    """Read pi's usage; the zero usage of mirrored rows is read as it is and counts as none."""
    if not isinstance(data, Mapping):
        return None
    keys = ("input", "output", "cacheRead", "cacheWrite", "totalTokens")
    counts = [number(data.get(key)) or 0 for key in keys]
    return Usage(input=counts[0], output=counts[1], cache_read=counts[2], cache_write=counts[3], total=counts[4])


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; a message with several results becomes one toolResult for each."""
    return [wire for message in messages for wire in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    wire = message.wire(NAME)
    if wire is not None:
        return [wire]
    results = [_render_result(result, message) for result in message.results]
    if not results:
        answered = kept(message, NAME).get("role") in RESULT_ROLES  # and its result is gone
        return [_render_spoken(replace(message, origin=None) if answered else message)]
    said = tuple(part for part in message.parts if not isinstance(part, ToolResult))
    spoken = [_render_spoken(replace(message, parts=said, origin=None))] if said else []
    return [*spoken, *results] if message.calls else [*results, *spoken]


def _render_spoken(message: Message) -> Json:
    old = kept(message, NAME)
    if old.get("role") == "tool_call" and len(message.calls) == len(message.parts) == 1:
        return _render_block(message.calls[0])
    if old.get("role") in _TOLD:  # edited words can no longer be told from the fields: these go
        rest = {key: value for key, value in old.items() if key not in _TOLD_FROM}
        return {"role": "user", **rest, "content": [_render_block(part) for part in message.parts]}
    wire = rebuild(message, _make_message, format=NAME)
    assert wire is not None  # every message can be said
    return wire


def _make_message(message: Message, old: Json) -> Json:
    role = "user" if message.role == "tool" else message.role
    return {"role": role, "content": _make_content(message.parts, old), **({} if old else _meta(message))}


def _make_content(parts: Sequence[Part], old: Json) -> str | list[Json]:
    texts = [part.text for part in parts if isinstance(part, Text)]
    if isinstance(old.get("content"), str) and len(texts) == len(parts):
        return "\n".join(texts)
    return [_render_block(part) for part in parts]


def _meta(message: Message) -> dict[str, object]:
    """What a message made elsewhere knows about itself, under pi's names."""
    known = {"model": message.model, "stopReason": message.stop, "timestamp": message.timestamp}
    return {key: value for key, value in known.items() if value is not None}


def _render_result(result: ToolResult, message: Message) -> Json:
    wire = rebuild(result, _make_result, format=NAME)
    assert wire is not None  # every result can be said
    return wire if kept(result, NAME) or message.timestamp is None else {**wire, "timestamp": message.timestamp}


def _make_result(result: ToolResult, old: Json) -> Json:
    name = {_spelling(old, _RESULT_NAME): result.name} if result.name is not None else {}
    return {
        "role": "toolResult",
        _spelling(old, _RESULT_ID): result.call_id,
        **name,
        "content": _make_content(result.content, old),
        _spelling(old, _IS_ERROR): result.is_error,
    }


def _render_block(part: Part) -> Json:
    wire = rebuild(part, _make_block, format=NAME)
    assert wire is not None  # whatever pi does not know is carried
    return wire


def _make_block(part: Part, old: Json) -> Json:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking() | RedactedThinking():
            return _make_thinking(part, old)
        case ToolCall():
            call_id, arguments = _spelling(old, _CALL_ID), _spelling(old, _ARGUMENTS)
            fields = {call_id: part.id, "name": part.name, arguments: object_arguments(part.arguments)}
            return {"type": "toolCall", **fields}
        case Image():
            return _make_image(part, old)
        case Opaque():
            carried = {"type": "opaque", "kind": part.kind, "data": part.data}
            return carried if kind_of(old) in {"", "opaque"} else part.data
        case ToolResult():
            raise AssertionError("a result is a message of its own, never a block")


def _make_thinking(part: Thinking | RedactedThinking, old: Json) -> Json:
    key = _spelling(old, _SIGNATURE)
    if isinstance(part, Thinking):
        sealed = {} if part.signature is None or sealed_elsewhere(part) else {key: part.signature}
        return {"type": "thinking", "thinking": part.text, **sealed}
    if sealed_elsewhere(part):  # nothing for Anthropic, whose redacted thinking this would be taken for
        return {"type": "opaque", "kind": "reasoning", "data": part.data}
    return {"type": "thinking", "thinking": "", key: part.data, "redacted": True}


def _make_image(part: Image, old: Json) -> Json:
    if isinstance(old.get("source"), Mapping):
        known = {"media_type": part.media_type, "data": part.data, "url": part.url}
        return {"type": "image", "source": {key: value for key, value in known.items() if value is not None}}
    if part.data is None:  # pi has no place for a reference
        return {"type": "text", "text": f"[image: {part.url or 'none'}]"}
    return {"type": "image", "data": part.data, "mimeType": part.media_type or "image/png"}


# --- recognising -------------------------------------------------------------

_OWN_ROLES: Final = ("toolResult", "tool_call", "tool_result", "custom", "hookMessage", *sorted(_TOLD))
_OWN_KEYS: Final = frozenset({"thinkingSignature", "mimeType", "thoughtSignature", "textSignature"})


def marks(data: Json) -> str | None:
    """What only pi's format has: its roles, its spellings of a call and of a result's id, its keys."""
    role = data.get("role")
    if role in _OWN_ROLES:
        return f"the role {role!r}"
    if "stopReason" in data:
        return "a stopReason field"
    if role in RESULT_ROLES and any(key in data for key in _RESULT_ID):
        return f"the field {_spelling(data, _RESULT_ID)}"
    for block in blocks(data):
        kind = kind_of(block)
        if kind in {"toolCall", "toolUse", "functionCall"}:
            return f"a {kind} block"
        if not _OWN_KEYS.isdisjoint(block):
            return "a block with pi's keys"
    return None


PI: Final = Format(name=NAME, read=read, render=render, marks=marks)
