"""Cline: `tasks/<id>/api_conversation_history.json`, the messages of the Anthropic API in a folder for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item, Problem, make_entry
from holdfast.transcripts.reader import Reader, attach_messages, facts, folder_with, read_object

_HISTORY: Final = "api_conversation_history.json"


def _stream(path: Path) -> Iterator[Item]:
    history = read_object(path / _HISTORY)
    yield Entry(type="task", data={"task": path.name}, line=1, id=path.name)
    for line, data in enumerate(history if isinstance(history, list) else [], start=2):
        if isinstance(data, Mapping) and data:
            entry = make_entry(data, line, type=str(data.get("role", "")), id="", parent="", time="ts")
            yield from attach_messages(entry, _read_message)
        else:
            yield Problem(line, f"{type(data).__name__}, not a message")


def _read_message(entry: Entry) -> Sequence[Message]:
    return (FORMATS["anthropic"].read(entry.data, f"message {entry.line - 1}"),)


CLINE: Final = Reader(
    name="cline",
    stream=_stream,
    describe=facts(session="task", model="modelInfo.modelId"),
    folder=folder_with(_HISTORY, beside=("ui_messages.json", "task_metadata.json", "context_history.json")),
)
