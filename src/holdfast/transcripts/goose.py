"""Goose: `~/.local/share/goose/sessions/sessions.db`, the content of each message as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Image, Message, Opaque, Part, ResultContent, Text, Thinking, ToolCall, ToolResult
from holdfast.transcripts.database import Database, open_session
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.reader import About, Json, Reader, mapping, objects, say, text, timestamp

__all__ = ["GOOSE"]

NAME: Final = "goose"
_DATABASE: Final = Database(
    columns=frozenset({"messages.session_id", "messages.content_json", "sessions.working_dir"}),
    sessions=(
        "SELECT session_id AS id, max(created_timestamp) * 1000 AS modified, sum(length(content_json)) AS size"
        " FROM messages GROUP BY session_id"
    ),
)


def stream(path: Path) -> Iterator[Item]:
    """The session's own row, then every message."""
    with open_session(path) as (query, session):
        about = query("SELECT * FROM sessions WHERE id = ?", session)
        rows = query("SELECT * FROM messages WHERE session_id = ? ORDER BY created_timestamp, rowid", session)
    for row in about:
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
        yield from say(entry, _messages)


def _messages(entry: Entry) -> Sequence[Message]:
    """What a row says: the user's words and the results of tools share a row, and are two messages."""
    blocks = objects(entry.data["content"])
    results = tuple(_result(block) for block in blocks if block.get("type") == "toolResponse")
    said = tuple(_part(block) for block in blocks if block.get("type") != "toolResponse")
    messages = [Message(role="tool", parts=results)] if results else []
    if said:
        messages.append(Message(role="assistant" if entry.type == "assistant" else "user", parts=said))
    return messages


def _part(block: Json) -> Part:
    part: Part = Opaque(kind=str(block.get("type", "")), data=block)
    match block.get("type"):
        case "text":
            part = Text(text=str(block.get("text") or ""))
        case "thinking":
            part = Thinking(text=str(block.get("thinking") or ""), signature=text(block.get("signature")))
        case "image":
            part = _image(block)
        case "toolRequest" | "frontendToolRequest":
            call = mapping(mapping(block.get("toolCall")).get("value"))
            part = ToolCall(
                id=str(block.get("id") or ""),
                name=str(call.get("name") or ""),
                arguments=mapping(call.get("arguments")),
            )
    return part.read_from(block, format=NAME)


def _image(block: Json) -> Image:
    return Image(media_type=str(block.get("mimeType") or ""), data=str(block.get("data") or ""))


def _result(block: Json) -> ToolResult:
    result = mapping(block.get("toolResult"))
    value: Any = result.get("value")
    content = objects(value) or objects(mapping(value).get("content"))
    failed = result.get("status") == "error" or bool(mapping(value).get("isError"))
    said: list[ResultContent] = [_content(item) for item in content]
    if failed and not said:
        said = [Text(text=str(result.get("error") or ""))]
    return ToolResult(call_id=str(block.get("id") or ""), content=tuple(said), is_error=failed).read_from(
        block, format=NAME
    )


def _content(item: Json) -> ResultContent:
    match item.get("type"):
        case "text":
            return Text(text=str(item.get("text") or ""))
        case "image":
            return _image(item)
    return Opaque(kind=str(item.get("type", "")), data=item)


def notes(data: Json) -> About:
    """The session's own row names it."""
    if "working_dir" not in data:
        return About()
    model = mapping(data.get("model_config_json")).get("model_name")
    title = text(data.get("name")) or text(data.get("description"))
    return About(session=text(data.get("id")), cwd=text(data.get("working_dir")), topic=title, model=text(model))


GOOSE: Final = Reader(name=NAME, claims=lambda _path, _head: False, stream=stream, notes=notes, database=_DATABASE)
