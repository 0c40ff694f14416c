"""GitHub Copilot CLI: `~/.copilot/session-state/<id>/events.jsonl`, beside it `workspace.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.head import Head, read_head
from holdfast.transcripts.lines import open_binary
from holdfast.transcripts.reader import About, Json, Reader, mapping, objects, read_entries, text, timestamp

__all__ = ["COPILOT"]

NAME: Final = "copilot"
_EVENTS: Final = "events.jsonl"
_WORKSPACE: Final = "workspace.yaml"
_PREFIXES: Final = ("session.", "user.message", "assistant.", "system.message", "tool.execution")


def claims(_path: Path, head: Head) -> bool:
    """Events: a dotted type, with its data under `data`."""
    return any(isinstance(value, Mapping) and _is_event(value) for value in head.values)


def _is_event(data: Json) -> bool:
    kind = data.get("type")
    return isinstance(kind, str) and kind.startswith(_PREFIXES) and isinstance(data.get("data"), Mapping)


def folder(path: Path) -> Path | None:
    """The folder with the events, for itself and for the file of events in it."""
    home = path if path.is_dir() else path.parent
    events = home / _EVENTS
    if path not in {home, events} or not (home / _WORKSPACE).is_file():
        return None
    try:
        return home if claims(events, read_head(events)) else None
    except TranscriptError:
        return None


def stream(path: Path) -> Iterator[Item]:
    """Every event, after what the workspace file says."""
    known = _Known()
    if not path.is_dir():
        yield from read_entries(path, frame=_frame, messages=known.messages)
        return
    yield Entry(type="workspace", data=_read_workspace(path / _WORKSPACE), line=1)
    yield from read_entries(path / _EVENTS, frame=_frame, messages=known.messages)


_WORKSPACE_BYTES: Final = 1 << 20


def _read_workspace(path: Path) -> dict[str, str]:
    """The `key: value` lines of the workspace file, which are all that it has."""
    with open_binary(path) as file:
        pairs = (line.partition(": ") for line in file.read(_WORKSPACE_BYTES).decode(errors="replace").splitlines())
    return {key: value.strip().strip("'\"") for key, colon, value in pairs if colon and not key.startswith((" ", "#"))}


def _frame(data: Json, line: int) -> Entry:
    return Entry(
        type=str(data.get("type", "")),
        data=data,
        line=line,
        id=text(data.get("id")),
        parent=text(data.get("parentId")),
        timestamp=timestamp(data.get("timestamp")),
        sidechain=mapping(data.get("data")).get("parentToolCallId") is not None,
    )


@dataclass(slots=True)
class _Known:
    """What later events refer to: pictures by their id, the names of tools by the call."""

    assets: dict[str, Json] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)

    def messages(self, entry: Entry) -> Sequence[Message]:
        """What an event says to the model."""
        say: Callable[[Json], Message] | None = {
            "system.message": _system,
            "user.message": self._user,
            "assistant.message": self._assistant,
            "tool.execution_complete": self._result,
        }.get(entry.type)
        data = mapping(entry.data.get("data"))
        if entry.type == "session.binary_asset" and isinstance(data.get("assetId"), str):
            self.assets[data["assetId"]] = data
        return () if say is None else (say(data),)

    def _user(self, data: Json) -> Message:
        words: list[Part] = [Text(text=said)] if (said := text(data.get("content"))) else []
        attached = [self._attachment(item) for item in objects(data.get("attachments"))]
        return Message(role="user", parts=(*words, *attached))

    def _attachment(self, data: Json) -> Part:
        content = self.assets.get(str(data.get("assetId")), data)
        media_type, inline = (text(content.get(key)) for key in ("mimeType", "data"))
        part: Part = Opaque(kind=str(data.get("type", "attachment")), data=data)
        if media_type is not None and media_type.startswith("image/") and inline is not None:
            part = Image(media_type=media_type, data=inline)
        return part.read_from(data, format=NAME)

    def _assistant(self, data: Json) -> Message:
        thought = [Thinking(text=said)] if (said := text(data.get("reasoningText"))) else []
        words = [Text(text=said)] if (said := text(data.get("content"))) else []
        calls = [self._call(item) for item in objects(data.get("toolRequests"))]
        return Message(role="assistant", parts=(*thought, *words, *calls), model=text(data.get("model")))

    def _call(self, data: Json) -> ToolCall:
        call_id, name = str(data.get("toolCallId", "")), str(data.get("name", ""))
        self.tools[call_id] = name
        arguments = data.get("arguments")
        call = ToolCall(id=call_id, name=name, arguments=arguments if isinstance(arguments, str | Mapping) else {})
        return call.read_from(data, format=NAME)

    def _result(self, data: Json) -> Message:
        call_id = str(data.get("toolCallId", ""))
        said = mapping(data.get("result")).get("content") or mapping(data.get("error")).get("message")
        result = ToolResult(
            call_id=call_id,
            content=(Text(text=said),) if isinstance(said, str) else (),
            is_error=data.get("success") is False,
            name=text(data.get("toolName")) or self.tools.get(call_id),
        )
        return Message(role="tool", parts=(result,))


def _system(data: Json) -> Message:
    return Message(role="system", parts=(Text(text=str(data.get("content") or "")),))


def notes(data: Json) -> About:
    """The workspace file has the title, the first event session and folder, replies and changes the model."""
    if "type" not in data:
        return About(session=text(data.get("id")), cwd=text(data.get("cwd")), title=text(data.get("name")))
    event = mapping(data.get("data"))
    return About(
        session=text(event.get("sessionId")),
        cwd=text(mapping(event.get("context")).get("cwd")),
        model=text(event.get("newModel")) or text(event.get("model")),
    )


COPILOT: Final = Reader(name=NAME, claims=claims, stream=stream, notes=notes, folder=folder)
