"""Message lists of any provider: a JSON array, `{"messages": [...]}`, or one message or conversation on each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast import providers
from holdfast.errors import FormatError
from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Item, Json, Problem, make_entry, mapping
from holdfast.transcripts.lines import Head, read_head
from holdfast.transcripts.pi import CLAWDBOT, TOOL_CALL
from holdfast.transcripts.reader import Reader, attach_messages, facts, read_rows

_LISTS: Final = ("messages", "traj", "conversation", "input", "contents")


def _claims(_path: Path, head: Head) -> bool:
    records = [record for value in head.values for record in _flatten(value)]
    return any(isinstance(record, Mapping) and (_is_message(record) or _get_list(record)) for record in records)


def _is_message(data: Json) -> bool:
    has_content = isinstance(data.get("role"), str) and ("content" in data or "tool_calls" in data)
    return has_content or not _detect_formats(data).isdisjoint({"openai_responses", "gemini"})


def _detect_formats(data: Json) -> set[str]:
    """Return the formats whose marks a message has; a tool call as a role of its own is Clawdbot's."""
    if data.get("role") == TOOL_CALL:
        return {TOOL_CALL}
    return {name for name, format_ in providers.FORMATS.items() if format_.is_own(data)}


def _get_list(data: Json) -> list[Any]:
    lists = (data.get(key) for key in _LISTS)
    return next((one for one in lists if isinstance(one, list) and one and _is_message(mapping(one[0]))), [])


def _flatten(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _flatten(item)
    else:
        yield value


def _read_records(path: Path, head: Head) -> Iterator[tuple[int, Any] | Problem]:
    """Yield every record with its line, or its position if the file is one document."""
    if head.document:
        yield from enumerate(_flatten(head.values[0]), start=1)
        return
    for row in read_rows(path):
        if isinstance(row, Problem):
            yield row
        else:
            yield from ((row.number, record) for record in _flatten(row.value))


def _stream(path: Path) -> Iterator[Item]:
    """Yield every message or conversation of a file.

    The marks of a format may appear late in a list: JSON Lines are read twice, first for the marks.
    """
    head = read_head(path)
    records = (row[1] for row in _read_records(path, head) if isinstance(row, tuple))
    detected = set[str]().union(*(_detect_formats(record) for record in records if isinstance(record, Mapping)))
    if TOOL_CALL in detected:
        yield from CLAWDBOT.stream(path)
        return
    format_ = detected.pop() if len(detected) == 1 else "pi" if "pi" in detected else None
    for row in _read_records(path, head):
        if isinstance(row, Problem):
            yield row
        elif isinstance(row[1], Mapping):
            yield from attach_messages(_frame(row[1], row[0]), partial(_read_messages, format_=format_))
        else:
            yield Problem(row[0], f"a JSON {type(row[1]).__name__}, not a message")


def _frame(data: Json, line: int) -> Entry:
    kind = str(data.get("role") or data.get("type") or "conversation")
    return make_entry(data, line, type=kind, parent="", time="timestamp" if "timestamp" in data else "created_at")


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


MESSAGE_LIST: Final = Reader(
    name="message_list", claims=_claims, stream=_stream, describe=facts(session="session_id sessionId", model="model")
)
