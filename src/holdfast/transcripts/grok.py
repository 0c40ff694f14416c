"""Grok CLI: `~/.grok/sessions/<folder>/<id>/` with `updates.jsonl` and `summary.json`.

`updates.jsonl` holds updates of the Agent Client Protocol, and is what Grok itself resumes a session from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.head import Head, read_document, read_head
from holdfast.transcripts.reader import About, Json, Reader, mapping, objects, read_entries, text, timestamp

__all__ = ["GROK"]

NAME: Final = "grok"
_UPDATES: Final = "updates.jsonl"
_SUMMARY: Final = "summary.json"
_CHUNKS: Final = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})
_DONE: Final = frozenset({"completed", "failed"})


def claims(_path: Path, head: Head) -> bool:
    """Updates: a method, with the update under `params`."""
    return any(isinstance(value, Mapping) and _update(value).get("sessionUpdate") for value in head.values)


def _update(data: Json) -> Json:
    is_update = str(data.get("method", "")).endswith("session/update")
    return mapping(mapping(data.get("params")).get("update")) if is_update else {}


def folder(path: Path) -> Path | None:
    """The folder with the updates, for itself and for the files in it."""
    home = path if path.is_dir() else path.parent
    if path not in {home, home / _UPDATES, home / _SUMMARY} or not (home / _SUMMARY).is_file():
        return None
    try:
        return home if claims(home, read_head(home / _UPDATES)) else None
    except TranscriptError:
        return None


def stream(path: Path) -> Iterator[Item]:
    """Every update, after what the summary says. The chunks of one message are joined in the first of them."""
    home, updates = (path, path / _UPDATES) if path.is_dir() else (path.parent, path)
    if path.is_dir():
        try:
            yield Entry(type="summary", data=mapping(read_document(home / _SUMMARY)), line=1)
        except ValueError as error:
            raise TranscriptError(f"not JSON: {error}", path=home / _SUMMARY) from error
    held: Entry | None = None
    for item in read_entries(updates, frame=_frame, messages=_Known().messages):
        if held is not None and isinstance(item, Entry) and item.type == held.type and item.messages:
            held = replace(held, messages=(_joined(held.messages[0], item.messages[0]),))
            continue
        if held is not None:
            yield held
        held = item if isinstance(item, Entry) and item.type in _CHUNKS and item.messages else None
        if held is None:
            yield item
    if held is not None:
        yield held


def _joined(first: Message, second: Message) -> Message:
    """One message of two chunks: text goes on where it stopped."""
    *before, last = first.parts
    part, *after = second.parts
    if isinstance(last, Text | Thinking) and type(part) is type(last):
        return replace(first, parts=(*before, replace(last, text=last.text + part.text), *after))
    return replace(first, parts=(*first.parts, *second.parts))


def _frame(data: Json, line: int) -> Entry:
    meta = mapping(mapping(data.get("params")).get("_meta"))
    return Entry(
        type=str(_update(data).get("sessionUpdate", "")),
        data=data,
        line=line,
        id=text(meta.get("eventId")),
        timestamp=timestamp(meta.get("agentTimestampMs")) or timestamp(data.get("timestamp")),
    )


@dataclass(slots=True)
class _Known:
    """The names of tools by the call."""

    tools: dict[str, str] = field(default_factory=dict)

    def messages(self, entry: Entry) -> Sequence[Message]:
        """What an update says to the model."""
        update = _update(entry.data)
        model = text(mapping(update.get("_meta")).get("modelId"))
        match entry.type:
            case "user_message_chunk":
                return (Message(role="user", parts=(_block(update.get("content")),)),)
            case "agent_message_chunk":
                return (Message(role="assistant", parts=(_block(update.get("content")),), model=model),)
            case "agent_thought_chunk":
                said = str(mapping(update.get("content")).get("text", ""))
                return (Message(role="assistant", parts=(Thinking(text=said),)),)
            case "tool_call":
                return (Message(role="assistant", parts=(self._call(update),)),)
            case "tool_call_update" if update.get("status") in _DONE:
                return (Message(role="tool", parts=(self._result(update),)),)
        return ()

    def _call(self, update: Json) -> ToolCall:
        tool = mapping(mapping(update.get("_meta")).get("x.ai/tool"))
        call_id, name = str(update.get("toolCallId", "")), text(tool.get("name")) or str(update.get("title", ""))
        self.tools[call_id] = name
        given = update.get("rawInput")
        return ToolCall(id=call_id, name=name, arguments=given if isinstance(given, str | Mapping) else {})

    def _result(self, update: Json) -> ToolResult:
        call_id = str(update.get("toolCallId", ""))
        blocks = [_block(item.get("content", item)) for item in objects(update.get("content"))]
        content: list[ResultContent] = [block for block in blocks if isinstance(block, Text | Image | Opaque)]
        return ToolResult(
            call_id=call_id,
            content=tuple(content),
            is_error=update.get("status") == "failed",
            name=self.tools.get(call_id),
        )


def _block(value: object) -> Part:
    """A content block of the protocol."""
    data = mapping(value)
    match data.get("type"):
        case "text":
            return Text(text=str(data.get("text", "")))
        case "image" if isinstance(data.get("data"), str):
            return Image(media_type=str(data.get("mimeType", "")), data=data["data"])
    return Opaque(kind=str(data.get("type", "content")), data=data)


def notes(data: Json) -> About:
    """The summary has the session, its folder and title; an update names the session and the model."""
    info, update = mapping(data.get("info")), _update(data)
    title = text(data.get("generated_title")) or text(data.get("session_summary"))
    return About(
        session=text(info.get("id")) or text(mapping(data.get("params")).get("sessionId")),
        cwd=text(info.get("cwd")),
        title=title,
        model=text(data.get("current_model_id")) or text(mapping(update.get("_meta")).get("modelId")),
    )


GROK: Final = Reader(name=NAME, claims=claims, stream=stream, notes=notes, folder=folder)
