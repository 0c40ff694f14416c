"""Message lists of any provider: a JSON array, `{"messages": [...]}`, or one message or conversation on each line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.transcripts import clawdbot
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head, read_head
from holdfast.transcripts.reader import About, Json, Reader, mapping, say, text, timestamp
from holdfast.transcripts.rows import Row, read_lines_as_rows

__all__ = ["MESSAGE_LIST"]

_LISTS: Final = ("messages", "traj", "conversation", "input", "contents")


def claims(_path: Path, head: Head) -> bool:
    """Messages, or conversations."""
    found = [record for value in head.values for record in _flat(value)]
    return any(isinstance(record, Mapping) and (_is_message(record) or _listed(record)) for record in found)


def _is_message(data: Json) -> bool:
    spoken = isinstance(data.get("role"), str) and ("content" in data or "tool_calls" in data)
    return spoken or not _marked(data).isdisjoint({"openai_responses", "gemini"})


def _marked(data: Json) -> set[str]:
    """The formats that have a mark in a message."""
    return {name for name, format_ in providers.FORMATS.items() if format_.is_own(data)}


def _listed(data: Json) -> list[Any]:
    """The messages of a record that holds a whole conversation."""
    lists = (data.get(key) for key in _LISTS)
    return next((found for found in lists if isinstance(found, list) and found and _is_message(mapping(found[0]))), [])


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def stream(path: Path) -> Iterator[Item]:
    """Every message or conversation of a file.

    What format a list is in may show late: JSON Lines are read twice, first for the marks.
    """
    rows = _rows(path)
    marked = _marks(rows())
    if clawdbot.CALL in marked:
        yield from clawdbot.CLAWDBOT.stream(path)
        return
    format_ = "pi" if "pi" in marked else next(iter(marked)) if len(marked) == 1 else None
    for row in rows():
        yield from [row] if isinstance(row, Problem) else _entry(*row, format_)


def _marks(rows: Iterator[Row]) -> set[str]:
    """The formats that show in a file; a tool call as a role of its own is none of a provider's."""
    records = (row[1] for row in rows if isinstance(row, tuple))
    marks: set[str] = set()
    for record in records:
        if isinstance(record, Mapping):
            marks |= {clawdbot.CALL} if record.get("role") == clawdbot.CALL else _marked(record)
    return marks


def _rows(path: Path) -> Callable[[], Iterator[Row]]:
    """The records of a file, to be gone through as often as needed."""
    head = read_head(path)
    if not head.document:
        return lambda: _lines(path)
    records = list(enumerate(_flat(head.values[0]), start=1))
    return lambda: iter(records)


def _lines(path: Path) -> Iterator[Row]:
    for row in read_lines_as_rows(path):
        if isinstance(row, Problem):
            yield row
        else:
            yield from ((row[0], record) for record in _flat(row[1]))


def _entry(line: int, record: Any, format_: str | None) -> Iterator[Item]:
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

    def messages(entry: Entry) -> Sequence[Message]:
        return _messages(entry, format_)

    yield from say(entry, messages)


def _messages(entry: Entry, format_: str | None) -> Sequence[Message]:
    data = entry.data
    listed = _listed(data)
    if listed and "role" not in data:
        return providers.read_request({"messages": listed} | {key: data[key] for key in ("system",) if key in data})
    if str(data.get("role", "")).startswith("_"):  # checkpoints and counters between the messages
        return ()
    if {"role", "type", "parts"}.isdisjoint(data):
        raise FormatError("neither a message nor a list of messages", where=f"line {entry.line}")
    return (providers.FORMATS[format_ or providers.detect([data])].read(data, f"line {entry.line}"),)


def notes(data: Json) -> About:
    """Records may name session and model."""
    return About(session=text(data.get("session_id")) or text(data.get("sessionId")), model=text(data.get("model")))


MESSAGE_LIST: Final = Reader(name="message_list", claims=claims, stream=stream, notes=notes)
