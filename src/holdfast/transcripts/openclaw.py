"""OpenClaw since 2026.7: `~/.openclaw/agents/<id>/agent/openclaw-agent.sqlite`, the entries of pi as rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from holdfast.errors import MissingExtraError
from holdfast.transcripts.database import Database, open_session
from holdfast.transcripts.entry import Item, Problem
from holdfast.transcripts.pi import PI_SESSION
from holdfast.transcripts.reader import say
from holdfast.transcripts.records import messages_of, read_entry

__all__ = ["OPENCLAW"]

_DATABASE: Final = Database(
    columns=frozenset({"transcript_events.session_id", "transcript_events.event_json"}),
    sessions=(
        "SELECT session_id AS id, max(created_at) AS modified, sum(length(event_json)) AS size"
        " FROM transcript_events GROUP BY session_id"
    ),
)


def stream(path: Path) -> Iterator[Item]:
    """Every entry of a session, branches and all."""
    with open_session(path) as (query, session):
        rows = query("SELECT * FROM transcript_events WHERE session_id = ? ORDER BY seq", session)
    for line, row in enumerate(rows, start=1):
        try:
            record = json.loads(_event(row))
        except ValueError as error:
            yield Problem(line, f"event {row['seq']}: {error}")
            continue
        if isinstance(record, dict):
            yield from say(read_entry(record, line=line), messages_of)
        else:
            yield Problem(line, f"event {row['seq']}: {type(record).__name__}, not an entry")


def _event(row: dict[str, Any]) -> bytes | str:
    """The JSON of an event; large ones are compressed."""
    plain, packed = row["event_json"], row.get("event_zstd")
    return str(plain) if packed is None else _unpack(packed)


def _unpack(packed: bytes) -> bytes:
    zstd = _zstd()
    try:
        return bytes(zstd.decompress(packed))
    except zstd.ZstdError as error:
        raise ValueError(f"damaged: {error}") from error


def _zstd() -> Any:
    """The zstd module of Python 3.14, or the extra that brings it to earlier versions."""
    for name in ("compression.zstd", "backports.zstd"):
        with suppress(ImportError):
            return import_module(name)
    raise MissingExtraError("reading OpenClaw's compressed events", extra="zstd")


OPENCLAW: Final = replace(
    PI_SESSION, name="openclaw", claims=lambda _path, _head: False, stream=stream, database=_DATABASE
)
