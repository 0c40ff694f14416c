"""Message lists of any provider: a JSON array, `{"messages": [...]}`, or one message or conversation on each line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head, read_head
from holdfast.transcripts.pi import CLAWDBOT, TOOL_CALL
from holdfast.transcripts.reader import (
    Json,
    Reader,
    Row,
    SessionInfo,
    attach_messages,
    mapping,
    read_line_rows,
    text,
    timestamp,
)

__all__ = ["MESSAGE_LIST"]

_LISTS: Final = ("messages", "traj", "conversation", "input", "contents")


def _claims(_path: Path, head: Head) -> bool:
    """Whether there are messages or conversations."""
    records = [record for value in head.values for record in _flatten(value)]
    return any(isinstance(record, Mapping) and (_is_message(record) or _get_list(record)) for record in records)


def _is_message(data: Json) -> bool:
    has_content = isinstance(data.get("role"), str) and ("content" in data or "tool_calls" in data)
    return has_content or not _detect_formats(data).isdisjoint({"openai_responses", "gemini"})


def _detect_formats(data: Json) -> set[str]:
    """Return the formats whose marks a message has."""
    return {name for name, format_ in providers.FORMATS.items() if format_.is_own(data)}


def _get_list(data: Json) -> list[Any]:
    """Return the messages of a record that holds a whole conversation."""
    lists = (data.get(key) for key in _LISTS)
    return next((one for one in lists if isinstance(one, list) and one and _is_message(mapping(one[0]))), [])


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


def _stream(path: Path) -> Iterator[Item]:
    """Yield every message or conversation of a file.

    The marks of a format may appear late in a list: JSON Lines are read twice, first for the marks.
    """
    rows = _open_rows(path)
    detected = _scan_formats(rows())
    if TOOL_CALL in detected:
        yield from CLAWDBOT.stream(path)
        return
    format_ = "pi" if "pi" in detected else next(iter(detected)) if len(detected) == 1 else None
    for row in rows():
        yield from [row] if isinstance(row, Problem) else _make_items(*row, format_)


def _scan_formats(rows: Iterator[Row]) -> set[str]:
    """Return the formats whose marks a file has; a tool call as a role of its own is Clawdbot's."""
    detected: set[str] = set()
    for row in rows:
        if isinstance(row, tuple) and isinstance(row[1], Mapping):
            detected |= {TOOL_CALL} if row[1].get("role") == TOOL_CALL else _detect_formats(row[1])
    return detected


def _open_rows(path: Path) -> Callable[[], Iterator[Row]]:
    """Return a function that iterates over the records of a file, as often as needed."""
    head = read_head(path)
    if not head.document:
        return lambda: _flatten_lines(path)
    records = list(enumerate(_flatten(head.values[0]), start=1))
    return lambda: iter(records)


def _flatten_lines(path: Path) -> Iterator[Row]:
    for row in read_line_rows(path):
        if isinstance(row, Problem):
            yield row
        else:
            yield from ((row[0], record) for record in _flatten(row[1]))


def _make_items(line: int, record: Any, format_: str | None) -> Iterator[Item]:
    if not isinstance(record, Mapping):
        yield Problem(line, f"a JSON {type(record).__name__}, not a message")
        return
    entry = Entry(
        type=str(record.get("role") or record.get("type") or "conversation"),
        data=record,
        line=line,
        id=text(record.get("id")),
        timestamp=timestamp(record.get("timestamp", record.get("created_at"))),
    )
    yield from attach_messages(entry, lambda entry: _read_messages(entry, format_))


def _read_messages(entry: Entry, format_: str | None) -> Sequence[Message]:
    data = entry.data
    listed = _get_list(data)
    if listed and "role" not in data:
        return providers.read_request({"messages": listed} | {key: data[key] for key in ("system",) if key in data})
    if str(data.get("role", "")).startswith("_"):  # checkpoints and counters between the messages
        return ()
    if {"role", "type", "parts"}.isdisjoint(data):
        raise FormatError("neither a message nor a list of messages", where=f"line {entry.line}")
    return (providers.FORMATS[format_ or providers.detect([data])].read(data, f"line {entry.line}"),)


def _describe(data: Json) -> SessionInfo:
    return SessionInfo(
        session=text(data.get("session_id")) or text(data.get("sessionId")), model=text(data.get("model"))
    )


MESSAGE_LIST: Final = Reader(name="message_list", claims=_claims, stream=_stream, describe=_describe)
