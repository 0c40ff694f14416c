"""pi, OpenClaw, Moltbot and Clawdbot.

pi and OpenClaw write JSON Lines trees, versions 1 to 3, which are read in file order. OpenClaw since 2026.7 stores the
same entries as rows of `~/.openclaw/agents/<id>/agent/openclaw-agent.sqlite`. Clawdbot's first session files have a
message on each line, with tool calls and results as roles of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

from holdfast.errors import MissingExtraError
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.providers import FORMATS
from holdfast.transcripts import reader
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping, string, text
from holdfast.transcripts.lines import decode
from holdfast.transcripts.reader import Database, Facts, Reader, claims_if, facts
from holdfast.transcripts.records import is_forgotten, is_header, messages_of, read_entry

ARCHIVED: Final = re.compile(r"\.jsonl\.(reset|deleted|bak)\.[\dT.:Z-]+$")
"""Matches the names of sessions that OpenClaw has archived: they are still sessions."""

_COPY: Final = re.compile(r"\.checkpoint\.[^.]+\.jsonl$|\.trajectory\.jsonl$")


def is_copy(path: Path) -> bool:
    """Return whether a file is a copy from before a compaction, or a trace, and so not a session."""
    return _COPY.search(path.name) is not None


def _is_own(data: Json) -> bool:
    """Return whether a record is a session header or a message entry of a tree."""
    is_message = data.get("type") == "message" and "parentId" in data and "role" in mapping(data.get("message"))
    return is_header(data) or is_message


def _read_messages(entry: Entry) -> Sequence[Message]:
    """Read the messages of an entry; the marker of a forgotten one is not a message."""
    return () if is_forgotten(entry) else messages_of(entry)


_HEADER_FACTS: Final = facts(session="id", cwd="cwd", model="modelId")
_TITLE_FACTS: Final = facts(title="name")
_ENTRY_FACTS: Final = facts(model="modelId message.model")


def _describe(data: Json) -> Facts:
    if is_header(data):
        return _HEADER_FACTS
    return _TITLE_FACTS if data.get("type") == "session_info" else _ENTRY_FACTS


PI_SESSION: Final = Reader(
    name="pi",
    claims=claims_if(_is_own),
    stream=lambda path: reader.read_entries(path, _read_messages, read_entry),
    describe=_describe,
)


def _stream(path: Path) -> Iterator[Item]:
    with reader.open_session(path) as (query, session):
        rows = query("SELECT * FROM transcript_events WHERE session_id = ? ORDER BY seq", session)
    for line, row in enumerate(rows, start=1):
        packed = row.get("event_zstd")
        try:
            record = decode(str(row["event_json"]) if packed is None else _decompress(packed))
        except ValueError as error:
            yield Problem(line, f"event {row['seq']}: {error}")
            continue
        if isinstance(record, dict):
            yield from reader.attach_messages(read_entry(record, line), messages_of)
        else:
            yield Problem(line, f"event {row['seq']}: {type(record).__name__}, not an entry")


def _decompress(packed: bytes) -> bytes:
    """Decompress a large event with the zstd module of Python 3.14, or with the extra for earlier versions."""
    zstd: Any = None
    for name in ("backports.zstd", "compression.zstd"):
        with suppress(ImportError):
            zstd = import_module(name)
    if zstd is None:
        raise MissingExtraError("reading OpenClaw's compressed events", extra="zstd")
    try:
        return bytes(zstd.decompress(packed))
    except zstd.ZstdError as error:
        raise ValueError(f"damaged: {error}") from error


OPENCLAW: Final = Reader(
    name="openclaw",
    stream=_stream,
    describe=_describe,
    database=Database(
        columns=("transcript_events.session_id", "transcript_events.event_json"),
        sessions="SELECT session_id AS id, max(created_at) AS modified, sum(length(event_json)) AS size"
        " FROM transcript_events GROUP BY session_id",
    ),
)


TOOL_CALL: Final = "tool_call"
_CALL_IDS: Final = ("id", "toolCallId", "tool_call_id", "call_id")


def _read_clawdbot(entry: Entry, pending: list[ToolCall], numbers: Iterator[int]) -> Sequence[Message]:
    """Read a line. A result without an id belongs to the first call of its name that has none yet."""
    data = entry.data
    if "role" not in data:
        return ()
    call_id = text(data, *_CALL_IDS)
    if entry.type == TOOL_CALL:
        arguments, number = mapping(data.get("params") or data.get("arguments")), next(numbers)
        pending.append(ToolCall(id=call_id or f"call-{number}", name=string(data, "name"), arguments=arguments))
        message = Message(role="assistant", parts=(pending[-1],))
    elif entry.type == "tool_result":
        message = Message(role="tool", parts=(_read_result(data, call_id, pending),))
    else:
        message = FORMATS["pi"].read(data, f"line {entry.line}")
    return (message.read_from(data, format="clawdbot"),)


def _read_result(data: Json, call_id: str | None, pending: list[ToolCall]) -> ToolResult:
    name, content = text(data, "name"), data.get("content")
    calls = [call for call in pending if call.id == call_id or (not call_id and call.name == name)]
    if calls:
        pending.remove(calls[0])
    return ToolResult(
        call_id=calls[0].id if calls else call_id or "",
        content=(Text(text=str(content)),) if content else (),
        is_error=bool(data.get("isError") or data.get("error")),
        name=name,
    )


CLAWDBOT: Final = Reader(
    name="clawdbot",
    claims=claims_if(lambda record: record.get("role") == TOOL_CALL),
    stream=lambda path: reader.read_entries(
        path,
        partial(_read_clawdbot, pending=[], numbers=count(1)),
        lambda data, line: make_entry(data, line, type=string(data, "role") or string(data, "type"), id="", parent=""),
    ),
    describe=facts(model="model"),
)
