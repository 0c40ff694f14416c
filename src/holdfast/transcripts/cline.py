"""Cline: `tasks/<id>/api_conversation_history.json`, the messages of the Anthropic API in a folder for each task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import read_document
from holdfast.transcripts.reader import Json, Reader, SessionInfo, attach_messages, mapping, text, timestamp

__all__ = ["CLINE"]

_HISTORY: Final = "api_conversation_history.json"
_BESIDE: Final = frozenset({_HISTORY, "ui_read_message.json", "task_metadata.json", "context_history.json"})


def _find_folder(path: Path) -> Path | None:
    """Return the folder of a task, for itself and the files in it."""
    home = path.parent if path.name in _BESIDE else path
    return home if (home / _HISTORY).is_file() else None


def _stream(path: Path) -> Iterator[Item]:
    try:
        history = read_document(path / _HISTORY)
    except ValueError as error:
        raise TranscriptError(f"not a JSON document: {error}", path=path / _HISTORY) from error
    yield Entry(type="task", data={"task": path.name}, line=1, id=path.name)
    for line, record in enumerate(history if isinstance(history, list) else [], start=2):
        data = mapping(record)
        if not data:
            yield Problem(line, f"{type(record).__name__}, not a message")
            continue
        stamp = timestamp(data.get("ts"))
        yield from attach_messages(
            Entry(type=str(data.get("role", "")), data=data, line=line, timestamp=stamp), _read_message
        )


def _read_message(entry: Entry) -> Sequence[Message]:
    return (FORMATS["anthropic"].read(entry.data, f"message {entry.line - 1}"),)


def _describe(data: Json) -> SessionInfo:
    return SessionInfo(session=text(data.get("task")), model=text(mapping(data.get("modelInfo")).get("modelId")))


CLINE: Final = Reader(name="cline", stream=_stream, describe=_describe, folder=_find_folder)
