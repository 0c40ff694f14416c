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
from holdfast.transcripts.head import Head, read_document
from holdfast.transcripts.reader import About, Json, Reader, look_back, mapping, objects, read_entries, text, timestamp

__all__ = ["KIMI"]

NAME: Final = "kimi"
_MAIN: Final = Path("agents", "main", "wire.jsonl")
_STATE: Final = "state.json"
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def claims(_path: Path, head: Head) -> bool:
    """The protocol line that opens the file, or the records that build up the context."""
    return any(isinstance(value, Mapping) and _is_own(value) for value in head.values)


def _is_own(data: Json) -> bool:
    kind = data.get("type")
    return (kind == "metadata" and "protocol_version" in data) or str(kind).startswith("context.append_")


def folder(path: Path) -> Path | None:
    """The session's folder, for itself, its state file and the main agent's records."""
    homes = [path, *path.parents[: len(_MAIN.parts)]]
    home = next((home for home in homes if (home / _MAIN).is_file()), None)
    return home if home is not None and path in {home, home / _STATE, home / _MAIN} else None


def stream(path: Path) -> Iterator[Item]:
    """Every record of the main agent, then those of its sub-agents."""
    if not path.is_dir():
        yield from _stream_agent(path)
        return
    yield from _state(path / _STATE)
    yield from _stream_agent(path / _MAIN)
    for wire in sorted(path.glob("agents/*/wire.jsonl")):
        if wire != path / _MAIN:
            yield from (
                replace(item, sidechain=True) if isinstance(item, Entry) else item for item in _stream_agent(wire)
            )


def _state(path: Path) -> Iterator[Item]:
    if not path.is_file():
        return
    try:
        state = mapping(read_document(path))
    except (ValueError, TranscriptError) as error:
        yield Problem(1, f"{path.name}: {error}")
    else:
        yield Entry(type="state", data=state, line=1, timestamp=timestamp(state.get("createdAt")))


def _stream_agent(path: Path) -> Iterator[Item]:
    return look_back(read_entries(path, frame=_frame, messages=_messages), _charge)


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


def _messages(entry: Entry) -> Sequence[Message]:
    event = mapping(entry.data.get("event"))
    match event.get("type"):
        case "content.part":
            return (Message(role="assistant", parts=(_part(mapping(event.get("part"))),)),)
        case "tool.call":
            return (Message(role="assistant", parts=(_call(event, arguments=event.get("args")),)),)
        case "tool.result":
            return (Message(role="tool", parts=(_result(event),)),)
    if entry.type == "context.append_message":
        return (_message(mapping(entry.data.get("message"))),)
    return ()


def _message(data: Json) -> Message:
    role = _ROLES.get(str(data.get("role")), "user")
    content = _parts(data.get("content"))
    if role == "tool":
        inside = tuple(part for part in content if isinstance(part, Text | Image | Opaque))
        return Message(role=role, parts=(ToolResult(call_id=str(data.get("toolCallId", "")), content=inside),))
    calls = (_asked(item) for item in objects(data.get("toolCalls")))
    return Message(role=role, parts=(*content, *calls))


def _parts(content: Any) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (Text(text=content),)
    return tuple(_part(item) for item in objects(content))


def _part(data: Json) -> Part:
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


def _asked(data: Json) -> ToolCall:
    """A call as it stands in a message: OpenAI's shape, or the agent's own."""
    function = mapping(data.get("function")) or data
    return _call({**function, "toolCallId": data.get("id")}, arguments=function.get("arguments", function.get("args")))


def _call(data: Json, *, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        arguments = decode_arguments(arguments)
    return ToolCall(
        id=str(data.get("toolCallId") or ""),
        name=str(data.get("name") or ""),
        arguments=arguments if isinstance(arguments, Mapping | str) else {},
    )


def _result(event: Json) -> ToolResult:
    result = mapping(event.get("result"))
    parts = _parts(result.get("output"))
    return ToolResult(
        call_id=str(event.get("toolCallId") or ""),
        content=tuple(part for part in parts if isinstance(part, Text | Image | Opaque)),
        is_error=bool(result.get("isError")),
    )


def _charge(held: deque[Item], entry: Entry) -> None:
    """The end of a step says what it cost, and why the model stopped: that goes to the last thing it said."""
    event = mapping(entry.data.get("event"))
    if event.get("type") != "step.end":
        return
    for index in range(len(held) - 1, -1, -1):
        item = held[index]
        if isinstance(item, Entry) and item.messages and mapping(item.data.get("event")).get("stepUuid") == entry.id:
            message = replace(item.messages[-1], usage=_usage(event.get("usage")), stop=text(event.get("finishReason")))
            held[index] = replace(item, messages=(message,))
            return


def _usage(data: Any) -> Usage | None:
    counts = {key: value for key, value in mapping(data).items() if isinstance(value, int)}
    if not counts:
        return None
    return Usage(
        input=counts.get("inputOther", 0),
        output=counts.get("output", 0),
        cache_read=counts.get("inputCacheRead", 0),
        cache_write=counts.get("inputCacheCreation", 0),
    )


def notes(data: Json) -> About:
    """The state file names session, folder and title; each request its model."""
    if "agents" in data and "type" not in data:
        return About(session=text(data.get("id")), cwd=text(data.get("cwd")), title=text(data.get("title")))
    disclosed = mapping(data.get("environmentDisclosure"))
    model = data.get("model") if data.get("type") == "llm.request" else None
    return About(cwd=text(disclosed.get("cwd")), model=text(model))


KIMI: Final = Reader(name=NAME, claims=claims, stream=stream, notes=notes, folder=folder)
