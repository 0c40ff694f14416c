"""Grok CLI: `~/.grok/sessions/<folder>/<id>/` with `updates.jsonl` and `summary.json`.

`updates.jsonl` holds updates of the Agent Client Protocol, and is what Grok itself resumes a session from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.lines import Head, read_document, read_head
from holdfast.transcripts.reader import Json, Reader, SessionInfo, mapping, objects, read_entries, text, timestamp

__all__ = ["GROK"]

NAME: Final = "grok"
_UPDATES: Final = "updates.jsonl"
_SUMMARY: Final = "summary.json"
_CHUNKS: Final = frozenset({"user_message_chunk", "agent_message_chunk", "agent_thought_chunk"})
_DONE: Final = frozenset({"completed", "failed"})


def _claims(_path: Path, head: Head) -> bool:
    return any(_get_update(record).get("sessionUpdate") for record in head.records)


def _get_update(data: Json) -> Json:
    """Return the update of a record whose method is `session/update`, else an empty object."""
    is_update = str(data.get("method", "")).endswith("session/update")
    return mapping(mapping(data.get("params")).get("update")) if is_update else {}


def _find_folder(path: Path) -> Path | None:
    """Return the folder with the updates, for itself and for the files in it."""
    home = path if path.is_dir() else path.parent
    if path not in {home, home / _UPDATES, home / _SUMMARY} or not (home / _SUMMARY).is_file():
        return None
    try:
        return home if _claims(home, read_head(home / _UPDATES)) else None
    except TranscriptError:
        return None


def _stream(path: Path) -> Iterator[Item]:
    """Yield the summary as one entry, then every update. The first of a run of chunks gets the whole message."""
    updates = path
    if path.is_dir():
        updates = path / _UPDATES
        try:
            yield Entry(type="summary", data=mapping(read_document(path / _SUMMARY)), line=1)
        except ValueError as error:
            raise TranscriptError(f"not JSON: {error}", path=path / _SUMMARY) from error
    items = read_entries(updates, frame=_frame, messages=_Updates().read)
    for chunk_type, group in groupby(items, key=_get_chunk_type):
        if not chunk_type:
            yield from group
            continue
        chunks = [item for item in group if isinstance(item, Entry)]
        yield replace(chunks[0], messages=(reduce(_join, (chunk.messages[0] for chunk in chunks)),))


def _get_chunk_type(item: Item) -> str:
    """Return the type of a chunk with a message; empty for any other item."""
    return item.type if isinstance(item, Entry) and item.type in _CHUNKS and item.messages else ""


def _join(first: Message, second: Message) -> Message:
    """Join the messages of two chunks; text continues where it stopped."""
    *before, last = first.parts
    part, *after = second.parts
    if isinstance(last, Text | Thinking) and type(part) is type(last):
        return replace(first, parts=(*before, replace(last, text=last.text + part.text), *after))
    return replace(first, parts=(*first.parts, *second.parts))


def _frame(data: Json, line: int) -> Entry:
    meta = mapping(mapping(data.get("params")).get("_meta"))
    return Entry(
        type=str(_get_update(data).get("sessionUpdate", "")),
        data=data,
        line=line,
        id=text(meta.get("eventId")),
        timestamp=timestamp(meta.get("agentTimestampMs")) or timestamp(data.get("timestamp")),
    )


@dataclass(slots=True)
class _Updates:
    """Reads updates, and keeps the names of tools by the call."""

    tools: dict[str, str] = field(default_factory=dict)

    def read(self, entry: Entry) -> Sequence[Message]:
        update = _get_update(entry.data)
        model = text(mapping(update.get("_meta")).get("modelId"))
        match entry.type:
            case "user_message_chunk":
                return (Message(role="user", parts=(_read_block(update.get("content")),)),)
            case "agent_message_chunk":
                return (Message(role="assistant", parts=(_read_block(update.get("content")),), model=model),)
            case "agent_thought_chunk":
                thinking = Thinking(text=str(mapping(update.get("content")).get("text", "")))
                return (Message(role="assistant", parts=(thinking,)),)
            case "tool_call":
                return (Message(role="assistant", parts=(self._read_call(update),)),)
            case "tool_call_update" if update.get("status") in _DONE:
                return (Message(role="tool", parts=(self._read_result(update),)),)
        return ()

    def _read_call(self, update: Json) -> ToolCall:
        tool = mapping(mapping(update.get("_meta")).get("x.ai/tool"))
        call_id, name = str(update.get("toolCallId", "")), text(tool.get("name")) or str(update.get("title", ""))
        self.tools[call_id] = name
        arguments = update.get("rawInput")
        return ToolCall(id=call_id, name=name, arguments=arguments if isinstance(arguments, str | Mapping) else {})

    def _read_result(self, update: Json) -> ToolResult:
        call_id = str(update.get("toolCallId", ""))
        blocks = [_read_block(item.get("content", item)) for item in objects(update.get("content"))]
        content: list[ResultContent] = [block for block in blocks if isinstance(block, Text | Image | Opaque)]
        return ToolResult(
            call_id=call_id,
            content=tuple(content),
            is_error=update.get("status") == "failed",
            name=self.tools.get(call_id),
        )


def _read_block(value: object) -> Part:
    data = mapping(value)
    match data.get("type"):
        case "text":
            return Text(text=str(data.get("text", "")))
        case "image" if isinstance(data.get("data"), str):
            return Image(media_type=str(data.get("mimeType", "")), data=data["data"])
    return Opaque(kind=str(data.get("type", "content")), data=data)


def _describe(data: Json) -> SessionInfo:
    info, update = mapping(data.get("info")), _get_update(data)
    title = text(data.get("generated_title")) or text(data.get("session_summary"))
    return SessionInfo(
        session=text(info.get("id")) or text(mapping(data.get("params")).get("sessionId")),
        cwd=text(info.get("cwd")),
        title=title,
        model=text(data.get("current_model_id")) or text(mapping(update.get("_meta")).get("modelId")),
    )


GROK: Final = Reader(name=NAME, claims=_claims, stream=_stream, describe=_describe, folder=_find_folder)
