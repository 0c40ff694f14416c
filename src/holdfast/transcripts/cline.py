"""Cline: `tasks/<id>/api_conversation_history.json`, the messages of the Anthropic API in a folder for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import read_document
from holdfast.transcripts.reader import About, Json, Reader, mapping, say, text, timestamp

__all__ = ["CLINE"]

_HISTORY: Final = "api_conversation_history.json"
_BESIDE: Final = frozenset({_HISTORY, "ui_messages.json", "task_metadata.json", "context_history.json"})


def folder(path: Path) -> Path | None:
    """The folder of a task, for itself and the files in it."""
    home = path.parent if path.name in _BESIDE else path
    return home if (home / _HISTORY).is_file() else None


def stream(path: Path) -> Iterator[Item]:
    """The task's own record, then every message."""
    try:
        listed = read_document(path / _HISTORY)
    except ValueError as error:
        raise TranscriptError(f"not a JSON document: {error}", path=path / _HISTORY) from error
    yield Entry(type="task", data={"task": path.name}, line=1, id=path.name)
    for line, record in enumerate(listed if isinstance(listed, list) else [], start=2):
        data = mapping(record)
        if not data:
            yield Problem(line, f"{type(record).__name__}, not a message")
            continue
        stamp = timestamp(data.get("ts"))
        yield from say(Entry(type=str(data.get("role", "")), data=data, line=line, timestamp=stamp), _messages)


def _messages(entry: Entry) -> Sequence[Message]:
    return (FORMATS["anthropic"].read(entry.data, f"message {entry.line - 1}"),)


def notes(data: Json) -> About:
    """The folder names the task; replies may name their model."""
    return About(session=text(data.get("task")), model=text(mapping(data.get("modelInfo")).get("modelId")))


CLINE: Final = Reader(name="cline", claims=lambda _path, _head: False, stream=stream, notes=notes, folder=folder)
