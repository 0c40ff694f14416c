"""Hermes: on each line the turns that were in context at that moment, as lists of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from holdfast.errors import FormatError
from holdfast.formats import FORMATS
from holdfast.formats.wire import child
from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head
from holdfast.transcripts.reader import About, Json, Reader, say, timestamp
from holdfast.transcripts.rows import read_rows
from holdfast.transcripts.snapshots import Conversation

__all__ = ["HERMES"]


def claims(_path: Path, head: Head) -> bool:
    """A list of turns, each a list of messages."""
    return any(_is_snapshot(value) for value in head.values[:3])


def _is_snapshot(value: Any) -> bool:
    turns = value if isinstance(value, list) else []
    return bool(turns) and all(isinstance(turn, list) and turn and _is_message(turn[0]) for turn in turns)


def _is_message(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("role"), str) and "content" in value


def stream(path: Path) -> Iterator[Item]:
    """Each line as an entry with the messages that are new in it; its record is the line under `turns`."""
    said = Conversation()

    def messages(entry: Entry) -> Sequence[Message]:
        return said.new(list(_snapshot(entry.data["turns"], f"line {entry.line}")))

    for row in read_rows(path):
        if isinstance(row, Problem):
            yield row
        else:
            yield from say(Entry(type="snapshot", data={"turns": row[1]}, line=row[0]), messages)


def _snapshot(turns: Any, where: str) -> Iterator[Message]:
    if not isinstance(turns, list) or not all(isinstance(turn, list) for turn in turns):
        raise FormatError("expected a list of turns, each a list of messages", where=where)
    for data in (child(data, where) for turn in turns for data in turn):
        yield replace(FORMATS["openai_chat"].read(data, where), timestamp=timestamp(data.get("timestamp")))


def notes(_data: Json) -> About:
    """Snapshots say nothing about their session."""
    return About()


HERMES: Final = Reader(name="hermes", claims=claims, stream=stream, notes=notes)
