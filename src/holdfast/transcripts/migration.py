"""Older session files, and damaged ones, brought to version 3; a copy of the old file is always kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Final

from holdfast.errors import TranscriptError
from holdfast.transcripts import journal
from holdfast.transcripts.entry import Problem
from holdfast.transcripts.lines import Line, read_lines
from holdfast.transcripts.records import TYPES, VERSION, encode, is_header, iso_time, version_of

__all__ = ["settle", "upgrade"]

_TREE_VERSION: Final = 2
_HEADER_START: Final = b'{"type":"session"'


# --- records -----------------------------------------------------------------


def upgrade(lines: Iterable[Line]) -> Iterator[tuple[Line, dict[str, Any] | None]]:
    """Each line of a session file with its record as version 3 writes it; None where the line holds no record.

    Version 1 had no ids: an entry gets its place in the file as one, the same however often the file is read.
    A record that needs no change is handed on itself.
    """
    version = VERSION
    index = 0
    last: str | None = None
    named: dict[int, str] = {}
    for line in lines:
        if line.data is None:
            yield line, None
            continue
        if index == 0:
            version = version_of(line.data) if is_header(line.data) else VERSION
        record = line.data
        if version < VERSION:
            record = _upgrade_header(record) if is_header(record) else _rename_hook(record)
        if version < _TREE_VERSION and not is_header(record):
            record = _place(record, index=index, last=last, named=named)
            last = record["id"]
        index += 1
        yield line, record


def _upgrade_header(header: dict[str, Any]) -> dict[str, Any]:
    return {"type": header["type"], **header, "version": VERSION}


def _rename_hook(record: dict[str, Any]) -> dict[str, Any]:
    message = record.get("message")
    if not isinstance(message, Mapping) or message.get("role") != "hookMessage":
        return record
    return {**record, "message": {**message, "role": "custom"}}


def _place(record: dict[str, Any], *, index: int, last: str | None, named: dict[int, str]) -> dict[str, Any]:
    """A version 1 entry with its place in the tree: a line, each entry after the one before it."""
    own = record.get("id")
    if isinstance(own, str) and own:
        named[index] = own
    entry_id = named.get(index, _place_id(index))
    first = {"type": record.get("type"), "id": entry_id, "parentId": last}
    placed = {**first, **record, "id": entry_id}
    if record.get("type") == "compaction" and "firstKeptEntryId" not in record:
        kept = placed.pop("firstKeptEntryIndex", None)
        if isinstance(kept, int):
            # It counts all records, the header too. One that lies ahead keeps nothing; the header stands for the start.
            kept = min(max(kept, 1), index)
            placed["firstKeptEntryId"] = named.get(kept, _place_id(kept))
    return placed


def _place_id(index: int) -> str:
    return f"{index:08x}"


# --- files -------------------------------------------------------------------


def settle(
    path: Path, descriptor: int, *, now: int, new_header: Callable[[], Mapping[str, Any]]
) -> tuple[Problem, ...]:
    """Make sure that a file is a session of version 3; the caller holds its lock and opens it anew afterwards.

    `new_header` makes one for a file that has lost its own.

    Raises:
        TranscriptError: The file is none of ours, or newer than we are.
    """
    first = next((line for line in read_lines(path) if line.data is not None), None)
    if first is None or first.data is None:
        return _begin(path, descriptor, new_header())
    if not is_header(first.data):
        return _adopt(path, now=now, new_header=new_header)
    version = version_of(first.data)
    if version > VERSION:
        raise TranscriptError(f"version {version}, we know up to {VERSION}: update holdfast", path=path, line=1)
    if version == VERSION:
        return ()
    old = journal.back_up(path, stamp=_stamps(now))
    journal.replace(path, (_written(line, record) for line, record in upgrade(read_lines(path))))
    return (Problem(first.number, f"version {version} brought to {VERSION}; the old file is kept as {old.name}"),)


def _written(line: Line, record: dict[str, Any] | None) -> bytes:
    if record is not None and record is not line.data:
        return encode(record, strict=False)
    return line.raw if line.raw.endswith(b"\n") else line.raw + b"\n"


def _begin(path: Path, descriptor: int, header: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Give a header to a file that holds nothing yet, or nothing but torn headers."""
    torn = [line.raw for line in read_lines(path) if line.problem is not None]
    if not all(_HEADER_START.startswith(raw.rstrip(b"\n")[: len(_HEADER_START)]) for raw in torn):
        raise TranscriptError("no line of it can be read: this is no session", path=path)
    ends = all(raw.endswith(b"\n") for raw in torn)
    journal.append(descriptor, (b"" if ends else b"\n") + encode(header), durable=True)
    return (Problem(1, "the session had no header: it has one now"),)


def _adopt(path: Path, *, now: int, new_header: Callable[[], Mapping[str, Any]]) -> tuple[Problem, ...]:
    """Put a header before entries that have lost theirs: the one found further down, else a new one."""
    records = [line.data for line in read_lines(path) if line.data is not None]
    if not _are_entries(records):
        raise TranscriptError("no session header: this is no session, or one of another agent", path=path, line=1)
    found = next(filter(is_header, records), None)
    linked = any("parentId" in record for record in records)
    own = {**(found or new_header()), "version": VERSION if linked else 1}
    lines = chain([Line(0, encode(own, strict=False), own)], read_lines(path))
    old = journal.back_up(path, stamp=_stamps(now))
    journal.replace(path, (_written(line, record) for line, record in upgrade(lines)))
    return (Problem(1, f"the session had no header: it has one now; the old file is kept as {old.name}"),)


def _are_entries(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these can only be a session's: linked or of a known type all of them, and one at least known."""
    return any(map(_is_known, records)) and all(is_header(record) or _is_entry(record) for record in records)


def _is_known(record: Mapping[str, Any]) -> bool:
    return str(record.get("type")) in TYPES


def _is_entry(record: Mapping[str, Any]) -> bool:
    linked = "parentId" in record and isinstance(record.get("id"), str)
    return linked or (_is_known(record) and isinstance(record.get("timestamp"), str))


def _stamps(now: int) -> Iterator[str]:
    stamp = iso_time(now).replace(":", "-")
    return (f"{stamp}.{number}" if number else stamp for number in count())
