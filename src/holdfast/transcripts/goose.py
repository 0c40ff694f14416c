"""Goose: `~/.local/share/goose/sessions/sessions.db`, the content of each message as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Part, Text, ToolCall, ToolResult
from holdfast.providers.wire import find
from holdfast.transcripts import reader
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, objects, string, text
from holdfast.transcripts.lines import decode
from holdfast.transcripts.reader import Database, Reader, facts, read_block, read_blocks

NAME: Final = "goose"


def _stream(path: Path) -> Iterator[Item]:
    with reader.open_session(path) as (query, session):
        session_rows = query("SELECT * FROM sessions WHERE id = ?", session)
        rows = query("SELECT * FROM messages WHERE session_id = ? ORDER BY created_timestamp, rowid", session)
    for row in session_rows:
        yield Entry(type="session", data=row, line=1, id=text(row, "id"))
    for line, row in enumerate(rows, start=2):
        try:
            data = {**row, "content": decode(row["content_json"])}
        except (TypeError, ValueError) as error:
            yield Problem(line, f"message {row.get('message_id') or line}: {error}")
            continue
        entry = make_entry(data, line, type=str(row["role"]), id="message_id", parent="", time="created_timestamp")
        yield from reader.attach_messages(entry, _read_messages)


def _read_messages(entry: Entry) -> Sequence[Message]:
    """Read a row. User text and tool results may share a row; they become two messages."""
    blocks = objects(entry.data, "content")
    results = tuple(_read_result(block) for block in blocks if block.get("type") == "toolResponse")
    parts = tuple(_read_part(block) for block in blocks if block.get("type") != "toolResponse")
    messages = [Message(role="tool", parts=results)] if results else []
    if parts:
        messages.append(Message(role="assistant" if entry.type == "assistant" else "user", parts=parts))
    return messages


def _read_part(block: Json) -> Part:
    if block.get("type") not in ("toolRequest", "frontendToolRequest"):
        return read_block(block, NAME)
    arguments = mapping(find(block, "toolCall.value.arguments"))
    call = ToolCall(id=string(block, "id"), name=string(block, "toolCall.value.name"), arguments=arguments)
    return call.read_from(block, format=NAME)


def _read_result(block: Json) -> ToolResult:
    failed = find(block, "toolResult.status") == "error" or bool(find(block, "toolResult.value.isError"))
    is_list = isinstance(find(block, "toolResult.value"), list)
    parts = read_blocks(block, "toolResult.value" if is_list else "toolResult.value.content", NAME)
    if failed and not parts:
        parts = (Text(text=string(block, "toolResult.error")),)
    (message,) = reader.make_result(string(block, "id"), parts, is_error=failed)
    return message.results[0].read_from(block, format=NAME)


_FACTS: Final = facts(session="id", cwd="working_dir", topic="name description", model="model_config_json.model_name")

GOOSE: Final = Reader(
    name=NAME,
    stream=_stream,
    describe=lambda data: _FACTS if "working_dir" in data else {},  # the row of a session
    database=Database(
        columns=("messages.session_id", "messages.content_json", "sessions.working_dir"),
        sessions="SELECT session_id AS id, max(created_timestamp) * 1000 AS modified, sum(length(content_json)) AS size"
        " FROM messages GROUP BY session_id",
    ),
)
