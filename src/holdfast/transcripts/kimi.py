"""Kimi Code: `~/.kimi-code/sessions/**/session_<id>/agents/<agent>/wire.jsonl`, beside the agents `state.json`."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers.wire import decode_arguments, image_from_url
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head, read_document
from holdfast.transcripts.reader import (
    Json,
    Reader,
    SessionInfo,
    delay_items,
    mapping,
    objects,
    read_entries,
    text,
    timestamp,
)

__all__ = ["KIMI"]

NAME: Final = "kimi"
_MAIN: Final = Path("agents", "main", "wire.jsonl")
_STATE: Final = "state.json"
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def _claims(_path: Path, head: Head) -> bool:
    return any(_is_own(record) for record in head.records)


def _is_own(data: Json) -> bool:
    """Whether a record is the protocol line that opens a file, or adds to the context."""
    kind = data.get("type")
    return (kind == "metadata" and "protocol_version" in data) or str(kind).startswith("context.append_")


def _find_folder(path: Path) -> Path | None:
    """Return the session's folder, for itself, its state file and the main agent's records."""
    homes = [path, *path.parents[: len(_MAIN.parts)]]
    home = next((home for home in homes if (home / _MAIN).is_file()), None)
    return home if home is not None and path in {home, home / _STATE, home / _MAIN} else None


def _stream(path: Path) -> Iterator[Item]:
    """Yield every record of the main agent, then those of its sub-agents."""
    if not path.is_dir():
        yield from _stream_agent(path)
        return
    yield from _read_state(path / _STATE)
    yield from _stream_agent(path / _MAIN)
    for wire in sorted(path.glob("agents/*/wire.jsonl")):
        if wire != path / _MAIN:
            yield from (
                replace(item, sidechain=True) if isinstance(item, Entry) else item for item in _stream_agent(wire)
            )


def _read_state(path: Path) -> Iterator[Item]:
    if not path.is_file():
        return
    try:
        state = mapping(read_document(path))
    except (ValueError, TranscriptError) as error:
        yield Problem(1, f"{path.name}: {error}")
    else:
        yield Entry(type="state", data=state, line=1, timestamp=timestamp(state.get("createdAt")))


def _stream_agent(path: Path) -> Iterator[Item]:
    return delay_items(read_entries(path, frame=_frame, messages=_read_messages), _set_usage)


def _frame(data: Json, line: int) -> Entry:
    kind, event = str(data.get("type", "")), mapping(data.get("event"))
    return Entry(
        type=f"{kind}:{event['type']}" if "type" in event else kind,
        data=data,
        line=line,
        id=text(event.get("uuid")) or text(mapping(data.get("message")).get("id")),
        parent=text(event.get("parentUuid")) or text(event.get("stepUuid")),
        timestamp=timestamp(data.get("time", data.get("created_at"))),
        sidechain=data.get("agentId", "main") != "main",
    )


def _read_messages(entry: Entry) -> Sequence[Message]:
    event = mapping(entry.data.get("event"))
    match event.get("type"):
        case "content.part":
            return (Message(role="assistant", parts=(_read_part(mapping(event.get("part"))),)),)
        case "tool.call":
            return (Message(role="assistant", parts=(_read_call(event, arguments=event.get("args")),)),)
        case "tool.result":
            return (Message(role="tool", parts=(_read_result(event),)),)
    if entry.type == "context.append_message":
        return (_read_message(mapping(entry.data.get("message"))),)
    return ()


def _read_message(data: Json) -> Message:
    role = _ROLES.get(str(data.get("role")), "user")
    content = _read_parts(data.get("content"))
    if role == "tool":
        output = tuple(part for part in content if isinstance(part, Text | Image | Opaque))
        return Message(role=role, parts=(ToolResult(call_id=str(data.get("toolCallId", "")), content=output),))
    calls = (_read_message_call(item) for item in objects(data.get("toolCalls")))
    return Message(role=role, parts=(*content, *calls))


def _read_parts(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    return tuple(_read_part(item) for item in objects(content))


def _read_part(data: Json) -> Part:
    kind = str(data.get("type", ""))
    url = mapping(data.get("imageUrl") or data.get("image_url")).get("url")
    part: Part = Opaque(kind=kind, data=data)
    if kind == "text" and isinstance(data.get("text"), str):
        part = Text(text=data["text"])
    elif kind == "think" and isinstance(data.get("think"), str):
        part = Thinking(text=data["think"], signature=text(data.get("encrypted")))
    elif isinstance(url, str):
        part = image_from_url(url)
    return part.read_from(data, format=NAME)


def _read_message_call(data: Json) -> ToolCall:
    """Read a call in a message, in OpenAI's shape or the agent's own."""
    function = mapping(data.get("function")) or data
    return _read_call(
        {**function, "toolCallId": data.get("id")}, arguments=function.get("arguments", function.get("args"))
    )


def _read_call(data: Json, *, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        arguments = decode_arguments(arguments)
    return ToolCall(
        id=str(data.get("toolCallId") or ""),
        name=str(data.get("name") or ""),
        arguments=arguments if isinstance(arguments, Mapping | str) else {},
    )


def _read_result(event: Json) -> ToolResult:
    result = mapping(event.get("result"))
    parts = _read_parts(result.get("output"))
    return ToolResult(
        call_id=str(event.get("toolCallId") or ""),
        content=tuple(part for part in parts if isinstance(part, Text | Image | Opaque)),
        is_error=bool(result.get("isError")),
    )


def _set_usage(delayed: deque[Item], entry: Entry) -> None:
    """Set usage and stop reason of the last message of a step, from the record that ends the step."""
    event = mapping(entry.data.get("event"))
    if event.get("type") != "step.end":
        return
    for index in range(len(delayed) - 1, -1, -1):
        item = delayed[index]
        if isinstance(item, Entry) and item.messages and mapping(item.data.get("event")).get("stepUuid") == entry.id:
            message = replace(
                item.messages[-1], usage=_read_usage(event.get("usage")), stop=text(event.get("finishReason"))
            )
            delayed[index] = replace(item, messages=(message,))
            return


def _read_usage(data: Any) -> Usage | None:
    counts = {key: value for key, value in mapping(data).items() if isinstance(value, int)}
    if not counts:
        return None
    return Usage(
        input=counts.get("inputOther", 0),
        output=counts.get("output", 0),
        cache_read=counts.get("inputCacheRead", 0),
        cache_write=counts.get("inputCacheCreation", 0),
    )


def _describe(data: Json) -> SessionInfo:
    if "agents" in data and "type" not in data:  # the state file
        return SessionInfo(session=text(data.get("id")), cwd=text(data.get("cwd")), title=text(data.get("title")))
    disclosed = mapping(data.get("environmentDisclosure"))
    model = data.get("model") if data.get("type") == "llm.request" else None
    return SessionInfo(cwd=text(disclosed.get("cwd")), model=text(model))


KIMI: Final = Reader(name=NAME, claims=_claims, stream=_stream, describe=_describe, folder=_find_folder)
