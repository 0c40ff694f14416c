"""GitHub Copilot CLI: `~/.copilot/session-state/<id>/events.jsonl`, beside it `workspace.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.lines import Head, open_binary, read_head
from holdfast.transcripts.reader import Json, Reader, SessionInfo, make_entry, mapping, objects, read_entries, text

__all__ = ["COPILOT"]

NAME: Final = "copilot"
_EVENTS: Final = "events.jsonl"
_WORKSPACE: Final = "workspace.yaml"
_PREFIXES: Final = ("session.", "user.message", "assistant.", "system.message", "tool.execution")


def _claims(_path: Path, head: Head) -> bool:
    return any(_is_event(record) for record in head.records)


def _is_event(data: Json) -> bool:
    """Whether a record has a dotted type, with its data under `data`."""
    kind = data.get("type")
    return isinstance(kind, str) and kind.startswith(_PREFIXES) and isinstance(data.get("data"), Mapping)


def _find_folder(path: Path) -> Path | None:
    """Return the folder with the events, for itself and for the file of events in it."""
    home = path if path.is_dir() else path.parent
    events = home / _EVENTS
    if path not in {home, events} or not (home / _WORKSPACE).is_file():
        return None
    try:
        return home if _claims(events, read_head(events)) else None
    except TranscriptError:
        return None


def _stream(path: Path) -> Iterator[Item]:
    """Yield the workspace file as one entry, then every event."""
    events = path
    if path.is_dir():
        events = path / _EVENTS
        yield Entry(type="workspace", data=_read_workspace(path / _WORKSPACE), line=1)
    yield from read_entries(events, frame=_frame, messages=_Events().read)


_MAX_WORKSPACE_BYTES: Final = 1 << 20


def _read_workspace(path: Path) -> dict[str, str]:
    """Read the workspace file, which has only `key: value` lines."""
    with open_binary(path) as file:
        pairs = (line.partition(": ") for line in file.read(_MAX_WORKSPACE_BYTES).decode(errors="replace").splitlines())
    return {key: value.strip().strip("'\"") for key, colon, value in pairs if colon and not key.startswith((" ", "#"))}


def _frame(data: Json, line: int) -> Entry:
    return make_entry(data, line, sidechain=mapping(data.get("data")).get("parentToolCallId") is not None)


@dataclass(slots=True)
class _Events:
    """Reads events, and keeps what later ones refer to: images by their id, tool names by the call."""

    assets: dict[str, Json] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)

    def read(self, entry: Entry) -> Sequence[Message]:
        data = mapping(entry.data.get("data"))
        match entry.type:
            case "session.binary_asset" if isinstance(data.get("assetId"), str):
                self.assets[data["assetId"]] = data
            case "system.message":
                return (Message(role="system", parts=(Text(text=str(data.get("content") or "")),)),)
            case "user.message":
                attached: list[Part] = [self._read_attachment(item) for item in objects(data.get("attachments"))]
                return (Message(role="user", parts=(*_read_text(data, "content"), *attached)),)
            case "assistant.message":
                return (self._read_reply(data),)
            case "tool.execution_complete":
                return (self._read_result(data),)
        return ()

    def _read_attachment(self, data: Json) -> Part:
        content = self.assets.get(str(data.get("assetId")), data)
        media_type, inline = (text(content.get(key)) for key in ("mimeType", "data"))
        part: Part = Opaque(kind=str(data.get("type", "attachment")), data=data)
        if media_type is not None and media_type.startswith("image/") and inline is not None:
            part = Image(media_type=media_type, data=inline)
        return part.read_from(data, format=NAME)

    def _read_reply(self, data: Json) -> Message:
        thinking = [Thinking(text=part.text) for part in _read_text(data, "reasoningText")]
        calls = [self._read_call(item) for item in objects(data.get("toolRequests"))]
        parts: tuple[Part, ...] = (*thinking, *_read_text(data, "content"), *calls)
        return Message(role="assistant", parts=parts, model=text(data.get("model")))

    def _read_call(self, data: Json) -> ToolCall:
        call_id, name = str(data.get("toolCallId", "")), str(data.get("name", ""))
        self.tools[call_id] = name
        arguments = data.get("arguments")
        call = ToolCall(id=call_id, name=name, arguments=arguments if isinstance(arguments, str | Mapping) else {})
        return call.read_from(data, format=NAME)

    def _read_result(self, data: Json) -> Message:
        call_id = str(data.get("toolCallId", ""))
        output = mapping(data.get("result")).get("content") or mapping(data.get("error")).get("message")
        result = ToolResult(
            call_id=call_id,
            content=(Text(text=output),) if isinstance(output, str) else (),
            is_error=data.get("success") is False,
            name=text(data.get("toolName")) or self.tools.get(call_id),
        )
        return Message(role="tool", parts=(result,))


def _read_text(data: Json, key: str) -> list[Text]:
    return [Text(text=content)] if (content := text(data.get(key))) else []


def _describe(data: Json) -> SessionInfo:
    if "type" not in data:  # the workspace file
        return SessionInfo(session=text(data.get("id")), cwd=text(data.get("cwd")), title=text(data.get("name")))
    event = mapping(data.get("data"))
    return SessionInfo(
        session=text(event.get("sessionId")),
        cwd=text(mapping(event.get("context")).get("cwd")),
        model=text(event.get("newModel")) or text(event.get("model")),
    )


COPILOT: Final = Reader(name=NAME, claims=_claims, stream=_stream, describe=_describe, folder=_find_folder)
