"""pi and OpenClaw: the messages inside their session files, in every spelling that real files hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats.wire import Format, Json, child, decode_arguments, expect, kept, object_arguments, overlay
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

__all__ = ["BRANCH_SUMMARY", "COMPACTION_SUMMARY", "PI"]

NAME: Final = "pi"
CALL_TYPES: Final = ("toolCall", "toolUse", "tool_use", "functionCall")
RESULT_ROLES: Final = ("toolResult", "tool", "tool_result")
_RESULT_IDS: Final = ("toolCallId", "toolUseId", "tool_use_id", "call_id")
_ARGUMENTS: Final = ("arguments", "input", "args")
_ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "user": "user",
    "assistant": "assistant",
    "custom": "user",
    "hookMessage": "user",
}

COMPACTION_SUMMARY: Final = (
    "The conversation history before this point was compacted into the following summary:\n\n<summary>\n",
    "\n</summary>",
)
BRANCH_SUMMARY: Final = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n",
    "</summary>",
)


# --- reading -----------------------------------------------------------------


def read(data: Json, where: str) -> Message:
    """Read one message of a session entry."""
    name = expect(data, "role", str, where)
    parts = _read_parts(name, data, where)
    role: Role = "tool" if name in RESULT_ROLES else _ROLES.get(name, "user")
    stamp = data.get("timestamp")
    message = Message(
        role=role,
        parts=parts,
        timestamp=int(stamp) if isinstance(stamp, int | float) else None,
        usage=read_usage(data.get("usage")),
        model=expect(data, "model", str, where, default="") or None,
        stop=expect(data, "stopReason", str, where, default="") or None,
    )
    return message.read_from(data, format=NAME)


def _read_parts(name: str, data: Json, where: str) -> tuple[Part, ...]:
    if name in RESULT_ROLES:
        return (_read_result(data, where),)
    if name in _ROLES:
        return _read_content(data.get("content"), f"{where}.content")
    if name == "bashExecution":
        return () if data.get("excludeFromContext") else (Text(text=bash_text(data)),)
    if name in {"branchSummary", "compactionSummary"}:
        before, after = BRANCH_SUMMARY if name == "branchSummary" else COMPACTION_SUMMARY
        return (Text(text=before + expect(data, "summary", str, where, default="") + after),)
    known = ", ".join([*_ROLES, *RESULT_ROLES, "bashExecution", "branchSummary", "compactionSummary"])
    raise FormatError(f"role {name!r} is not one of {known}", where=f"{where}.role", format=NAME)


def _read_content(content: Any, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (Text(text=content),)
    if not isinstance(content, list):
        raise FormatError(
            f"expected text or a list of blocks, found {type(content).__name__}", where=where, format=NAME
        )
    return tuple(_read_block(child(block, f"{where}[{i}]"), f"{where}[{i}]") for i, block in enumerate(content))


def _read_block(data: Json, where: str) -> Part:
    kind = expect(data, "type", str, where)
    reader = _READERS.get(kind)
    part = reader(data, where) if reader is not None else Opaque(kind=kind, data=data)
    return part.read_from(data, format=NAME)


def _read_text(data: Json, where: str) -> Part:
    return Text(text=expect(data, "text", str, where, default=""))


def _read_thinking(data: Json, where: str) -> Part:
    signature = expect(data, "thinkingSignature", str, where, default=str(data.get("signature") or ""))
    if data.get("redacted"):
        return RedactedThinking(data=signature)
    return Thinking(text=expect(data, "thinking", str, where, default=""), signature=signature or None)


def _read_call(data: Json, where: str) -> Part:
    found: Any = next((data[key] for key in _ARGUMENTS if data.get(key) is not None), {})
    if isinstance(found, str):
        found = decode_arguments(found)
    if not isinstance(found, Mapping | str):
        raise FormatError(f"expected an object, found {type(found).__name__}", where=f"{where}.arguments", format=NAME)
    call_id, name = (expect(data, key, str, where, default="") for key in ("id", "name"))
    return ToolCall(id=call_id or str(data.get("call_id") or ""), name=name, arguments=found)


def _read_image(data: Json, where: str) -> Part:
    source = data.get("source")
    if isinstance(source, Mapping):  # Anthropic's spelling
        return Image(media_type=source.get("media_type"), data=source.get("data"), url=source.get("url"))
    media_type = expect(data, "mimeType", str, where, default="")
    return Image(media_type=media_type or None, data=expect(data, "data", str, where, default=""))


_READERS: Final[dict[str, Callable[[Json, str], Part]]] = {
    "text": _read_text,
    "thinking": _read_thinking,
    "image": _read_image,
    **dict.fromkeys(CALL_TYPES, _read_call),
}


def _read_result(data: Json, where: str) -> ToolResult:
    blocks = _read_content(data.get("content"), f"{where}.content")
    return ToolResult(
        call_id=next((value for key in _RESULT_IDS if isinstance(value := data.get(key), str)), ""),
        content=tuple(_inside_result(block) for block in blocks),
        is_error=expect(data, "isError", bool, where, default=bool(data.get("is_error"))),
        name=expect(data, "toolName", str, where, default=str(data.get("name") or "")) or None,
    )


def _inside_result(part: Part) -> ResultContent:
    if isinstance(part, Text | Image | Opaque):
        return part
    data = part.origin.data if part.origin is not None else {}
    return Opaque(kind=str(data.get("type", "")), data=data).read_from(data, format=NAME)


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
    counts = [int(value) if isinstance(value := data.get(key), int | float) else 0 for key in keys]
    return Usage(input=counts[0], output=counts[1], cache_read=counts[2], cache_write=counts[3], total=counts[4])


# --- rendering ---------------------------------------------------------------


def render(messages: Sequence[Message]) -> list[Json]:
    """Render messages; a message with several results becomes one toolResult for each."""
    return [wire for message in messages for wire in _render_message(message)]


def _render_message(message: Message) -> list[Json]:
    wire = message.wire(NAME)
    if wire is not None:
        return [wire]
    old = kept(message, NAME)
    if message.role == "tool":
        return _render_results(message, old)
    content = [_render_block(part) for part in message.parts]
    role = old.get("role", message.role)
    fields: dict[str, object] = {"role": role if role in _ROLES else message.role, "content": content}
    if isinstance(old.get("content"), str) and all(isinstance(part, Text) for part in message.parts):
        fields["content"] = message.text
    return [overlay(old, fields | _meta(message, old))]


def _render_results(message: Message, old: Json) -> list[Json]:
    rendered: list[Json] = []
    for result in message.results:
        id_key = next((key for key in _RESULT_IDS if key in old), "toolCallId")
        fields = {"role": old.get("role", "toolResult"), id_key: result.call_id}
        if result.name is not None:
            fields["toolName"] = result.name
        content = [_render_block(block) for block in result.content]
        rendered.append(overlay(old, {**fields, "content": content, "isError": result.is_error, **_meta(message, old)}))
    rest = [_render_block(part) for part in message.parts if not isinstance(part, ToolResult)]
    return [*rendered, {"role": "user", "content": rest}] if rest else rendered


def _meta(message: Message, old: Json) -> dict[str, object]:
    """What a message made elsewhere knows about itself, under pi's names."""
    if old:
        return {}
    known = {"model": message.model, "stopReason": message.stop, "timestamp": message.timestamp}
    return {key: value for key, value in known.items() if value is not None}


def _render_block(part: Part) -> Json:
    wire = part.wire(NAME)
    return wire if wire is not None else overlay(kept(part, NAME), _fields(part))


def _fields(part: Part) -> dict[str, Any]:
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            signature = {"thinkingSignature": part.signature} if part.signature is not None else {}
            return {"type": "thinking", "thinking": part.text, **signature}
        case RedactedThinking():
            return {"type": "thinking", "thinking": "", "thinkingSignature": part.data, "redacted": True}
        case ToolCall():
            arguments = object_arguments(part.arguments)
            return {"type": "toolCall", "id": part.id, "name": part.name, "arguments": arguments}
        case Image():
            return {"type": "image", "data": part.data or part.url or "", "mimeType": part.media_type or "image/png"}
        case ToolResult() | Opaque():
            return (
                dict(part.data) if isinstance(part, Opaque) and isinstance(part.data, Mapping) else {"type": "opaque"}
            )


# --- recognising -------------------------------------------------------------

_OWN_ROLES: Final = frozenset(
    {"toolResult", "tool_result", "bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary"}
)
_OWN_KEYS: Final = frozenset({"thinkingSignature", "mimeType", "thoughtSignature", "textSignature"})


def marks(data: Json) -> str | None:
    """What only pi's format has: its roles, its spellings of a call, its keys."""
    if data.get("role") in _OWN_ROLES:
        return f"the role {data['role']!r}"
    if "stopReason" in data:
        return "a stopReason field"
    content = data.get("content")
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, Mapping):
            continue
        if block.get("type") in {"toolCall", "toolUse", "functionCall"}:
            return f"a {block['type']} block"
        if not _OWN_KEYS.isdisjoint(block):
            return "a block with pi's keys"
    return None


PI: Final = Format(name=NAME, read=read, render=render, marks=marks)
