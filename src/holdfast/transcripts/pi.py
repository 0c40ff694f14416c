"""pi, OpenClaw, Moltbot and Clawdbot.

pi and OpenClaw write JSON Lines trees, versions 1 to 3, which are read in file order. OpenClaw since 2026.7 stores the
same entries as rows of `~/.openclaw/agents/<id>/agent/openclaw-agent.sqlite`. Clawdbot's first session files have a
message on each line, with tool calls and results as roles of their own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from holdfast.errors import MissingExtraError
from holdfast.messages import Message, Text, ToolCall, ToolResult
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head
from holdfast.transcripts.reader import (
    Database,
    Json,
    Reader,
    SessionInfo,
    attach_messages,
    make_entry,
    mapping,
    open_session,
    read_entries,
    text,
)
from holdfast.transcripts.records import is_forgotten, is_header, messages_of, read_entry

__all__ = ["ARCHIVED", "CLAWDBOT", "OPENCLAW", "PI_SESSION", "TOOL_CALL", "is_copy"]

ARCHIVED: Final = re.compile(r"\.jsonl\.(reset|deleted|bak)\.[\dT.:Z-]+$")
"""Matches the names of sessions that OpenClaw has archived: they are still sessions."""

_COPY: Final = re.compile(r"\.checkpoint\.[^.]+\.jsonl$|\.trajectory\.jsonl$")


def is_copy(path: Path) -> bool:
    """Whether a file is a copy from before a compaction, or a trace, and so not a session."""
    return _COPY.search(path.name) is not None


# --- pi --------------------------------------------------------------------------


def _claims_pi(_path: Path, head: Head) -> bool:
    """Whether there is a session header or a message entry of a tree."""
    return any(is_header(record) or _is_tree_message(record) for record in head.records)


def _is_tree_message(data: Json) -> bool:
    return data.get("type") == "message" and "parentId" in data and "role" in mapping(data.get("message"))


def _stream_pi(path: Path) -> Iterator[Item]:
    """Yield every entry in file order, branches included."""
    return read_entries(path, frame=lambda data, line: read_entry(data, line=line), messages=_read_messages)


def _read_messages(entry: Entry) -> Sequence[Message]:
    """Read the messages of an entry; the marker of a forgotten one is not a message."""
    return () if is_forgotten(entry) else messages_of(entry)


def _describe_pi(data: Json) -> SessionInfo:
    if is_header(data):
        return SessionInfo(session=text(data.get("id")), cwd=text(data.get("cwd")), model=text(data.get("modelId")))
    if data.get("type") == "session_info":
        return SessionInfo(title=text(data.get("name")))
    return SessionInfo(model=text(data.get("modelId")) or text(mapping(data.get("message")).get("model")))


PI_SESSION: Final = Reader(name="pi", claims=_claims_pi, stream=_stream_pi, describe=_describe_pi)


# --- OpenClaw's database -----------------------------------------------------------


def _stream_openclaw(path: Path) -> Iterator[Item]:
    with open_session(path) as (query, session):
        rows = query("SELECT * FROM transcript_events WHERE session_id = ? ORDER BY seq", session)
    for line, row in enumerate(rows, start=1):
        packed = row.get("event_zstd")
        try:
            record = json.loads(str(row["event_json"]) if packed is None else _decompress(packed))
        except ValueError as error:
            yield Problem(line, f"event {row['seq']}: {error}")
            continue
        if isinstance(record, dict):
            yield from attach_messages(read_entry(record, line=line), messages_of)
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
    stream=_stream_openclaw,
    describe=_describe_pi,
    database=Database(
        columns=frozenset({"transcript_events.session_id", "transcript_events.event_json"}),
        sessions=(
            "SELECT session_id AS id, max(created_at) AS modified, sum(length(event_json)) AS size"
            " FROM transcript_events GROUP BY session_id"
        ),
    ),
)


# --- Clawdbot's first files ----------------------------------------------------------

TOOL_CALL: Final = "tool_call"
_CALL_IDS: Final = ("id", "toolCallId", "tool_call_id", "call_id")


def _stream_clawdbot(path: Path) -> Iterator[Item]:
    return read_entries(path, frame=_frame_clawdbot, messages=_PendingCalls().read)


def _frame_clawdbot(data: Json, line: int) -> Entry:
    return make_entry(data, line, type=str(data.get("role") or data.get("type") or ""), id="", parent="")


@dataclass(slots=True)
class _PendingCalls:
    """The calls that have no result yet. Lines without ids are paired by name, in order."""

    pending: list[ToolCall] = field(default_factory=list)
    count: int = 0

    def read(self, entry: Entry) -> Sequence[Message]:
        data = entry.data
        if "role" not in data:
            return ()
        if entry.type == TOOL_CALL:
            message = Message(role="assistant", parts=(self._read_call(data),))
        elif entry.type == "tool_result":
            message = Message(role="tool", parts=(self._read_result(data),))
        else:
            message = FORMATS["pi"].read(data, f"line {entry.line}")
        return (message.read_from(data, format="clawdbot"),)

    def _read_call(self, data: Json) -> ToolCall:
        self.count += 1
        call = ToolCall(
            id=_get_call_id(data) or f"call-{self.count}",
            name=str(data.get("name") or ""),
            arguments=mapping(data.get("params") or data.get("arguments")),
        )
        self.pending.append(call)
        return call

    def _read_result(self, data: Json) -> ToolResult:
        name, call_id, content = text(data.get("name")), _get_call_id(data), data.get("content")
        candidates = [call for call in self.pending if call.id == call_id or (not call_id and call.name == name)]
        if candidates:
            self.pending.remove(candidates[0])
        return ToolResult(
            call_id=candidates[0].id if candidates else call_id or "",
            content=(Text(text=content if isinstance(content, str) else str(content)),) if content else (),
            is_error=bool(data.get("isError") or data.get("error")),
            name=name,
        )


def _get_call_id(data: Json) -> str | None:
    return next((value for key in _CALL_IDS if (value := text(data.get(key)))), None)


CLAWDBOT: Final = Reader(
    name="clawdbot",
    claims=lambda _path, head: any(record.get("role") == TOOL_CALL for record in head.records),
    stream=_stream_clawdbot,
    describe=lambda data: SessionInfo(model=text(data.get("model"))),
)
