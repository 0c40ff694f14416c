"""GitHub Copilot CLI: `~/.copilot/session-state/<id>/events.jsonl`, with `workspace.yaml` next to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from holdfast.messages import Image, Message, Opaque, Part, Text, Thinking, ToolCall
from holdfast.providers.wire import find
from holdfast.transcripts.entry import Entry, Item, Json, make_entry, mapping, objects, string, text
from holdfast.transcripts.lines import open_binary
from holdfast.transcripts.reader import Reader, claims_if, facts, folder_with, make_call, make_result, read_entries

NAME: Final = "copilot"
_EVENTS: Final = "events.jsonl"
_WORKSPACE: Final = "workspace.yaml"
_MAX_WORKSPACE_BYTES: Final = 1 << 20
_PREFIXES: Final = ("session.", "user.message", "assistant.", "system.message", "tool.execution")


def _is_event(data: Json) -> bool:
    return (text(data, "type") or "").startswith(_PREFIXES) and isinstance(data.get("data"), Mapping)


def _stream(path: Path) -> Iterator[Item]:
    """Yield the workspace file, which has only `key: value` lines, as one entry, then every event."""
    events = path
    if path.is_dir():
        events = path / _EVENTS
        with open_binary(path / _WORKSPACE) as file:
            lines = file.read(_MAX_WORKSPACE_BYTES).decode(errors="replace").splitlines()
        pairs = (line.partition(": ") for line in lines if not line.startswith((" ", "#")))
        data = {key: value.strip().strip("'\"") for key, colon, value in pairs if colon}
        yield Entry(type="workspace", data=data, line=1)
    yield from read_entries(events, partial(_read_messages, assets={}, tools={}), _frame)


def _frame(data: Json, line: int) -> Entry:
    return make_entry(data, line, sidechain=find(data, "data.parentToolCallId") is not None)


def _read_messages(entry: Entry, assets: dict[str, Json], tools: dict[str, str]) -> Sequence[Message]:
    """Read an event. Later ones refer to images by their id, and to the names of tools by the call."""
    data = mapping(entry.data.get("data"))
    match entry.type:
        case "session.binary_asset" if isinstance(data.get("assetId"), str):
            assets[data["assetId"]] = data
        case "system.message":
            return (Message(role="system", parts=(Text(text=string(data, "content")),)),)
        case "user.message":
            attached = [_read_attachment(item, assets) for item in objects(data, "attachments")]
            return (Message(role="user", parts=(*_read_text(data, "content"), *attached)),)
        case "assistant.message":
            thinking = [Thinking(text=part.text) for part in _read_text(data, "reasoningText")]
            calls = list(map(_read_call, objects(data, "toolRequests")))
            tools |= {call.id: call.name for call in calls}
            parts: tuple[Part, ...] = (*thinking, *_read_text(data, "content"), *calls)
            return (Message(role="assistant", parts=parts, model=text(data, "model")),)
        case "tool.execution_complete":
            call_id, name = string(data, "toolCallId"), text(data, "toolName")
            output, failed = _read_text(data, "result.content", "error.message"), data.get("success") is False
            return make_result(call_id, output, is_error=failed, name=name or tools.get(call_id))
    return ()


def _read_text(data: Json, *paths: str) -> list[Text]:
    return [Text(text=content)] if (content := text(data, *paths)) else []


def _read_call(data: Json) -> ToolCall:
    call = make_call(string(data, "toolCallId"), string(data, "name"), data.get("arguments"))
    return call.read_from(data, format=NAME)


def _read_attachment(data: Json, assets: Mapping[str, Json]) -> Part:
    content = assets.get(str(data.get("assetId")), data)
    media_type, inline = text(content, "mimeType"), text(content, "data")
    part: Part = Opaque(kind=str(data.get("type", "attachment")), data=data)
    if media_type is not None and media_type.startswith("image/") and inline is not None:
        part = Image(media_type=media_type, data=inline)
    return part.read_from(data, format=NAME)


_WORKSPACE_FACTS: Final = facts(session="id", cwd="cwd", title="name")
_EVENT_FACTS: Final = facts(session="data.sessionId", cwd="data.context.cwd", model="data.newModel data.model")

COPILOT: Final = Reader(
    name=NAME,
    claims=claims_if(_is_event),
    stream=_stream,
    describe=lambda data: _EVENT_FACTS if "type" in data else _WORKSPACE_FACTS,
    folder=folder_with(_EVENTS, _WORKSPACE, claims=claims_if(_is_event)),
)
