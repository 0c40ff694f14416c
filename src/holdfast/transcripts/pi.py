"""pi, OpenClaw, Clawdbot, Moltbot: JSON Lines trees, versions 1 to 3, read as they stand in the file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Item
from holdfast.transcripts.forgetting import is_forgotten
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, mapping, read_entries, text
from holdfast.transcripts.records import is_header, messages_of, read_entry

__all__ = ["ARCHIVED", "PI_SESSION", "is_copy"]

ARCHIVED: Final = re.compile(r"\.jsonl\.(reset|deleted|bak)\.[\dT.:Z-]+$")
"""Names of sessions that OpenClaw has put away: they are still sessions."""

_COPY: Final = re.compile(r"\.checkpoint\.[^.]+\.jsonl$|\.trajectory\.jsonl$")


def is_copy(path: Path) -> bool:
    """Whether a file beside the sessions is no session: a copy from before a compaction, or a trace."""
    return _COPY.search(path.name) is not None


def claims(_path: Path, head: Head) -> bool:
    """A session header; without one, message entries of a tree."""
    records = [value for value in head.values if isinstance(value, Mapping)]
    return any(is_header(record) or _is_entry(record) for record in records)


def _is_entry(data: Json) -> bool:
    return data.get("type") == "message" and "parentId" in data and "role" in mapping(data.get("message"))


def stream(path: Path) -> Iterator[Item]:
    """Every entry in file order, branches and all; the path to the leaf is the session's own business."""
    return read_entries(path, frame=_frame, messages=_said)


def _said(entry: Entry) -> tuple[Message, ...]:
    return () if is_forgotten(entry) else messages_of(entry)


def _frame(data: Json, line: int) -> Entry:
    return read_entry(data, line=line)


def notes(data: Json) -> About:
    """The header names session and folder, `session_info` the title, replies and changes the model."""
    if is_header(data):
        return About(session=text(data.get("id")), cwd=text(data.get("cwd")), model=text(data.get("modelId")))
    if data.get("type") == "session_info":
        return About(title=text(data.get("name")))
    return About(model=text(data.get("modelId")) or text(mapping(data.get("message")).get("model")))


PI_SESSION: Final = Reader(name="pi", claims=claims, stream=stream, notes=notes)
