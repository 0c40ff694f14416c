"""Goose: `~/.local/share/goose/sessions/sessions.db`, the content of each message as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.reader import (
    Database,
    Json,
    Reader,
    SessionInfo,
    attach_messages,
    mapping,
    objects,
    open_session,
    text,
    timestamp,
)

__all__ = ["GOOSE"]

NAME: Final = "goose"
_DATABASE: Final = Database(
    columns=frozenset({"messages.session_id", "messages.content_json", "sessions.working_dir"}),
    sessions=(
        "SELECT session_id AS id, max(created_timestamp) * 1000 AS modified, sum(length(content_json)) AS size"
        " FROM messages GROUP BY session_id"
    ),
)


def _stream(path: Path) -> Iterator[Item]:
    with open_session(path) as (query, session):
        session_rows = query("SELECT * FROM sessions WHERE id = ?", session)
        rows = query("SELECT * FROM messages WHERE session_id = ? ORDER BY created_timestamp, rowid", session)
    for row in session_rows:
        yield Entry(type="session", data=row, line=1, id=text(row["id"]))
    for line, row in enumerate(rows, start=2):
        try:
            content = json.loads(row["content_json"])
        except (TypeError, ValueError) as error:
            yield Problem(line, f"message {row.get('message_id') or line}: {error}")
            continue
        entry = Entry(
            type=str(row["role"]),
            data={**row, "content": content},
            line=line,
            id=text(row.get("message_id")),
            timestamp=timestamp(row.get("created_timestamp")),
        )
        yield from attach_messages(entry, _read_messages)


def _read_messages(entry: Entry) -> Sequence[Message]:
    """Read a row. User text and tool results may share a row; they become two messages."""
    blocks = objects(entry.data["content"])
    results = tuple(_read_result(block) for block in blocks if block.get("type") == "toolResponse")
    parts = tuple(_read_part(block) for block in blocks if block.get("type") != "toolResponse")
    messages = [Message(role="tool", parts=results)] if results else []
    if parts:
        messages.append(Message(role="assistant" if entry.type == "assistant" else "user", parts=parts))
    return messages


def _read_part(block: Json) -> Part:
    part: Part = Opaque(kind=str(block.get("type", "")), data=block)
    match block.get("type"):
        case "text":
            part = Text(text=str(block.get("text") or ""))
        case "thinking":
            part = Thinking(text=str(block.get("thinking") or ""), signature=text(block.get("signature")))
        case "image":
            part = _read_image(block)
        case "toolRequest" | "frontendToolRequest":
            call = mapping(mapping(block.get("toolCall")).get("value"))
            part = ToolCall(
                id=str(block.get("id") or ""),
                name=str(call.get("name") or ""),
                arguments=mapping(call.get("arguments")),
            )
    return part.read_from(block, format=NAME)


def _read_image(block: Json) -> Image:
    return Image(media_type=str(block.get("mimeType") or ""), data=str(block.get("data") or ""))


def _read_result(block: Json) -> ToolResult:
    result = mapping(block.get("toolResult"))
    value: Any = result.get("value")
    failed = result.get("status") == "error" or bool(mapping(value).get("isError"))
    items = objects(value) or objects(mapping(value).get("content"))
    content: list[ResultContent] = [_read_content(item) for item in items]
    if failed and not content:
        content = [Text(text=str(result.get("error") or ""))]
    return ToolResult(call_id=str(block.get("id") or ""), content=tuple(content), is_error=failed).read_from(
        block, format=NAME
    )


def _read_content(item: Json) -> ResultContent:
    match item.get("type"):
        case "text":
            return Text(text=str(item.get("text") or ""))
        case "image":
            return _read_image(item)
    return Opaque(kind=str(item.get("type", "")), data=item)


def _describe(data: Json) -> SessionInfo:
    if "working_dir" not in data:  # a message
        return SessionInfo()
    model = mapping(data.get("model_config_json")).get("model_name")
    title = text(data.get("name")) or text(data.get("description"))
    return SessionInfo(session=text(data.get("id")), cwd=text(data.get("working_dir")), topic=title, model=text(model))


GOOSE: Final = Reader(name=NAME, stream=_stream, describe=_describe, database=_DATABASE)
