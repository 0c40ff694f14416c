"""OpenHands: `~/.openhands/conversations/<id>/events/event-<n>-<id>.json`, one file for each event."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, Role, Text, Thinking, ToolCall, ToolResult
from holdfast.providers.wire import decode_arguments, image_from_url
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head, read_document
from holdfast.transcripts.reader import About, Json, Reader, mapping, objects, say, text, timestamp

__all__ = ["OPENHANDS"]

NAME: Final = "openhands"
_EVENTS: Final = "event-*.json"
_ROLES: Final[dict[str, Role]] = {"system": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def claims(_path: Path, head: Head) -> bool:
    """Events in one file; usually they lie in a folder, which is recognised before."""
    return any(isinstance(value, Mapping) and _is_event(value) for value in head.values)


def _is_event(data: Json) -> bool:
    return str(data.get("kind", "")).endswith("Event") and "source" in data


def folder(path: Path) -> Path | None:
    """The conversation's folder, for itself, its folder of events and any event."""
    if path.is_dir() and path.name != "events":
        return path if _event_files(path) else None
    events = path if path.is_dir() else path.parent
    inside = path == events or path.match(_EVENTS)
    return events.parent if inside and events.name == "events" and _event_files(events.parent) else None


def _event_files(home: Path) -> list[Path]:
    events = home / "events"
    return sorted(events.glob(_EVENTS)) if events.is_dir() else []


def stream(path: Path) -> Iterator[Item]:
    """Every event, in the order of the file names."""
    files = _event_files(path) if path.is_dir() else [path]
    for line, file in enumerate(files, start=1):
        try:
            data = read_document(file)
        except (ValueError, TranscriptError) as error:
            yield Problem(line, f"{file.name}: {error}")
            continue
        if isinstance(data, Mapping):
            yield from say(_frame(data, line), _messages)
        else:
            yield Problem(line, f"{file.name}: a JSON {type(data).__name__}, not an object")


def _frame(data: Json, line: int) -> Entry:
    return Entry(
        type=str(data.get("kind", "")),
        data=data,
        line=line,
        id=text(data.get("id")),
        parent=text(data.get("action_id")),
        timestamp=timestamp(data.get("timestamp")),
    )


def _messages(entry: Entry) -> Sequence[Message]:
    reader = _READERS.get(entry.type)
    return () if reader is None else (reader(entry.data),)


def _system(data: Json) -> Message:
    spoken = (mapping(data.get(key)) for key in ("system_prompt", "dynamic_context"))
    return Message(role="system", parts=tuple(part for block in spoken if block for part in _parts([block])))


def _message(data: Json) -> Message:
    message = mapping(data.get("llm_message"))
    role = _ROLES.get(str(message.get("role")), "user")
    return Message(role=role, parts=(*_thinking(message), *_parts(message.get("content"))))


def _action(data: Json) -> Message:
    call = mapping(data.get("tool_call"))
    arguments = call.get("arguments")
    asked = ToolCall(
        id=str(data.get("tool_call_id") or ""),
        name=str(data.get("tool_name") or ""),
        arguments=decode_arguments(arguments) if isinstance(arguments, str) else mapping(data.get("action")),
    )
    return Message(role="assistant", parts=(*_thinking(data), *_parts(data.get("thought")), asked))


def _thinking(data: Json) -> Iterator[Part]:
    blocks = objects(data.get("thinking_blocks"))
    for block in blocks:
        yield Thinking(text=str(block.get("thinking") or ""), signature=text(block.get("signature")))
    if not blocks and (said := text(data.get("reasoning_content"))):
        yield Thinking(text=said)


def _observation(data: Json) -> Message:
    observed = mapping(data.get("observation"))
    content = _parts(observed.get("content"))
    return _result(data, content, is_error=bool(observed.get("is_error")))


def _error(data: Json) -> Message:
    return _result(data, (Text(text=str(data.get("error") or "")),), is_error=True)


def _rejection(data: Json) -> Message:
    return _result(data, (Text(text=str(data.get("rejection_reason") or "")),), is_error=True)


def _result(data: Json, content: tuple[Part, ...], *, is_error: bool) -> Message:
    result = ToolResult(
        call_id=str(data.get("tool_call_id") or ""),
        content=tuple(part for part in content if isinstance(part, Text | Image | Opaque)),
        is_error=is_error,
        name=text(data.get("tool_name")),
    )
    return Message(role="tool", parts=(result,))


def _parts(content: Any) -> tuple[Part, ...]:
    return tuple(part.read_from(block, format=NAME) for block in objects(content) for part in _block(block))


def _block(data: Json) -> list[Part]:
    urls = data.get("image_urls")
    if isinstance(urls, list):
        return [image_from_url(str(url)) for url in urls]
    if isinstance(data.get("text"), str):
        return [Text(text=data["text"])]
    return [Opaque(kind=str(data.get("type", "")), data=data)]


_READERS: Final[dict[str, Callable[[Json], Message]]] = {
    "SystemPromptEvent": _system,
    "MessageEvent": _message,
    "ActionEvent": _action,
    "ObservationEvent": _observation,
    "AgentErrorEvent": _error,
    "UserRejectObservation": _rejection,
}


def notes(data: Json) -> About:
    """Events do not name their session: the folder does."""
    return About(model=text(data.get("model")))


OPENHANDS: Final = Reader(name=NAME, claims=claims, stream=stream, notes=notes, folder=folder)
