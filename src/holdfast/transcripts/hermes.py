"""Hermes: `state.db`, or exports whose lines each hold the turns that were in context at that time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.providers.wire import expect_object
from holdfast.transcripts.entry import Entry, Item, Problem, mapping, timestamp
from holdfast.transcripts.lines import decode
from holdfast.transcripts.reader import Database, Reader, attach_messages, facts, open_session, read_values
from holdfast.transcripts.request_log import Conversation


def _is_snapshot(value: Any) -> bool:
    turns = value if isinstance(value, list) else []
    firsts = [mapping(turn[0] if isinstance(turn, list) and turn else None) for turn in turns]
    return bool(firsts) and all(isinstance(first.get("role"), str) and "content" in first for first in firsts)


def _stream(path: Path) -> Iterator[Item]:
    """Yield each row of a database, or each line of a file with the messages that are new in it."""
    if path.is_file():
        read_new = partial(_read_snapshot, conversation=Conversation())
        for value in read_values(path):
            if isinstance(value, Problem):
                yield value
            else:
                yield from attach_messages(Entry(type="snapshot", data={"turns": value[1]}, line=value[0]), read_new)
        return
    with open_session(path) as (query, session):
        session_rows = query("SELECT id, title, cwd, model FROM sessions WHERE id = ?", session)
        rows = query("SELECT * FROM messages WHERE session_id = ? ORDER BY id", session)
    for row in session_rows:
        yield Entry(type="session", data=row, line=1)
    for line, row in enumerate(rows, start=2):
        entry = Entry(type="message", data=row, line=line, id=str(row["id"]), timestamp=timestamp(row["timestamp"]))
        yield from attach_messages(entry, _read_row)


def _read_row(entry: Entry) -> Sequence[Message]:
    row, where = entry.data, f"message {entry.data['id']}"
    wire = {"role": row["role"], "content": row["content"] or ""}
    try:
        if row["tool_calls"]:
            wire["tool_calls"] = decode(row["tool_calls"])
    except ValueError as error:
        raise FormatError(f"its calls are not JSON: {error}", where=where) from error
    if row["role"] == "tool":
        wire |= {"tool_call_id": row["tool_call_id"] or "", "name": row["tool_name"] or ""}
    return (FORMATS["openai_chat"].read(wire, where),)


def _read_snapshot(entry: Entry, conversation: Conversation) -> Sequence[Message]:
    turns, where = entry.data["turns"], f"line {entry.line}"
    if not isinstance(turns, list) or not all(isinstance(turn, list) for turn in turns):
        raise FormatError("expected a list of turns, each a list of messages", where=where)
    wires = [expect_object(data, where) for turn in turns for data in turn]
    read = FORMATS["openai_chat"].read
    return conversation.take_new(
        [replace(read(wire, where), timestamp=timestamp(wire.get("timestamp"))) for wire in wires]
    )


_FACTS: Final = facts(session="id", cwd="cwd", title="title", model="model")

HERMES: Final = Reader(
    name="hermes",
    claims=lambda _path, head: any(map(_is_snapshot, head.values[:3])),
    stream=_stream,
    describe=lambda data: _FACTS if "cwd" in data else {},  # the row of a session
    database=Database(
        columns=("messages.tool_call_id", "messages.tool_calls", "sessions.cwd"),
        sessions="SELECT session_id AS id, max(timestamp) * 1000 AS modified, sum(length(content)) AS size"
        " FROM messages GROUP BY session_id",
    ),
)
