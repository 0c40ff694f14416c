"""OpenHands: `~/.openhands/conversations/<id>/events/event-<n>-<id>.json`, one file for each event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult
from holdfast.providers.wire import decode_arguments, image_from_url
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head, read_document
from holdfast.transcripts.reader import Json, Reader, SessionInfo, attach_messages, make_entry, mapping, objects, text

__all__ = ["OPENHANDS"]

NAME: Final = "openhands"
_EVENTS: Final = "event-*.json"
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def _claims(_path: Path, head: Head) -> bool:
    return any(_is_event(record) for record in head.records)


def _is_event(data: Json) -> bool:
    return str(data.get("kind", "")).endswith("Event") and "source" in data


def _find_folder(path: Path) -> Path | None:
    """Return the conversation's folder, for itself, its folder of events and any event."""
    if path.is_dir() and path.name != "events":
        return path if _list_events(path) else None
    events = path if path.is_dir() else path.parent
    inside = path == events or path.match(_EVENTS)
    return events.parent if inside and events.name == "events" and _list_events(events.parent) else None


def _list_events(home: Path) -> list[Path]:
    events = home / "events"
    return sorted(events.glob(_EVENTS)) if events.is_dir() else []


def _stream(path: Path) -> Iterator[Item]:
    """Yield every event, in the order of the file names."""
    files = _list_events(path) if path.is_dir() else [path]
    for line, file in enumerate(files, start=1):
        try:
            data = read_document(file)
        except (ValueError, TranscriptError) as error:
            yield Problem(line, f"{file.name}: {error}")
            continue
        if isinstance(data, Mapping):
            yield from attach_messages(_frame(data, line), _read_messages)
        else:
            yield Problem(line, f"{file.name}: a JSON {type(data).__name__}, not an object")


def _frame(data: Json, line: int) -> Entry:
    return make_entry(data, line, type=str(data.get("kind", "")), parent="action_id")


def _read_messages(entry: Entry) -> Sequence[Message]:
    reader = _READERS.get(entry.type)
    return () if reader is None else (reader(entry.data),)


def _read_system(data: Json) -> Message:
    blocks = (mapping(data.get(key)) for key in ("system_prompt", "dynamic_context"))
    return Message(role="system", parts=tuple(part for block in blocks if block for part in _read_parts([block])))


def _read_message(data: Json) -> Message:
    message = mapping(data.get("llm_message"))
    role = _ROLES.get(str(message.get("role")), "user")
    return Message(role=role, parts=(*_read_thinking(message), *_read_parts(message.get("content"))))


def _read_action(data: Json) -> Message:
    call = mapping(data.get("tool_call"))
    arguments = call.get("arguments")
    tool_call = ToolCall(
        id=str(data.get("tool_call_id") or ""),
        name=str(data.get("tool_name") or ""),
        arguments=decode_arguments(arguments) if isinstance(arguments, str) else mapping(data.get("action")),
    )
    return Message(role="assistant", parts=(*_read_thinking(data), *_read_parts(data.get("thought")), tool_call))


def _read_thinking(data: Json) -> Iterator[Part]:
    blocks = objects(data.get("thinking_blocks"))
    for block in blocks:
        yield Thinking(text=str(block.get("thinking") or ""), signature=text(block.get("signature")))
    if not blocks and (content := text(data.get("reasoning_content"))):
        yield Thinking(text=content)


def _read_observation(data: Json) -> Message:
    observation = mapping(data.get("observation"))
    content = _read_parts(observation.get("content"))
    return _read_result(data, content, is_error=bool(observation.get("is_error")))


def _read_failure(data: Json) -> Message:
    reason = data.get("error" if data.get("kind") == "AgentErrorEvent" else "rejection_reason")
    return _read_result(data, (Text(text=str(reason or "")),), is_error=True)


def _read_result(data: Json, content: tuple[Part, ...], *, is_error: bool) -> Message:
    result = ToolResult(
        call_id=str(data.get("tool_call_id") or ""),
        content=tuple(part for part in content if isinstance(part, Text | Image | Opaque)),
        is_error=is_error,
        name=text(data.get("tool_name")),
    )
    return Message(role="tool", parts=(result,))


def _read_parts(content: Any) -> tuple[Part, ...]:
    return tuple(part.read_from(block, format=NAME) for block in objects(content) for part in _read_block(block))


def _read_block(data: Json) -> list[Part]:
    urls = data.get("image_urls")
    if isinstance(urls, list):
        return [image_from_url(str(url)) for url in urls]
    if isinstance(data.get("text"), str):
        return [Text(text=data["text"])]
    return [Opaque(kind=str(data.get("type", "")), data=data)]


_READERS: Final[dict[str, Callable[[Json], Message]]] = {
    "SystemPromptEvent": _read_system,
    "MessageEvent": _read_message,
    "ActionEvent": _read_action,
    "ObservationEvent": _read_observation,
    "AgentErrorEvent": _read_failure,
    "UserRejectObservation": _read_failure,
}


def _describe(data: Json) -> SessionInfo:
    return SessionInfo(model=text(data.get("model")))


OPENHANDS: Final = Reader(name=NAME, claims=_claims, stream=_stream, describe=_describe, folder=_find_folder)
