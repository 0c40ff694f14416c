"""Cline: `tasks/<id>/api_conversation_history.json` of the extension, `sessions/<id>/<id>.messages.json` of the CLI.

Both hold messages of the Anthropic API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from holdfast.providers import FORMATS
from holdfast.transcripts.entry import Entry, Item, Problem, make_entry, mapping
from holdfast.transcripts.lines import Head
from holdfast.transcripts.reader import Reader, attach_messages, facts, folder_with, read_object

_HISTORY: Final = "api_conversation_history.json"
_MESSAGES: Final = ".messages.json"


def _claims(path: Path, head: Head) -> bool:
    first = mapping(next(iter(head.values), None))
    return path.name.endswith(_MESSAGES) and {"sessionId", "messages"} <= first.keys()


def _stream(path: Path) -> Iterator[Item]:
    if path.is_dir():
        name, about, listed = path.name, {"task": path.name}, read_object(path / _HISTORY)
    else:
        name = path.name.removesuffix(_MESSAGES)
        beside = path.with_name(f"{name}.json")
        about = {"task": name, **(mapping(read_object(beside)) if beside.is_file() else {})}
        listed = mapping(read_object(path)).get("messages")
    yield Entry(type="task", data=about, line=1, id=name)
    read = FORMATS["anthropic"].read
    for line, data in enumerate(listed if isinstance(listed, list) else [], start=2):
        if isinstance(data, Mapping) and data:
            entry = make_entry(data, line, type=str(data.get("role", "")), id="", parent="", time="ts")
            yield from attach_messages(entry, lambda entry: (read(entry.data, f"message {entry.line - 1}"),))
        else:
            yield Problem(line, f"{type(data).__name__}, not a message")


CLINE: Final = Reader(
    name="cline",
    claims=_claims,
    stream=_stream,
    describe=facts(
        session="task session_id", cwd="cwd", title="metadata.title", model="model modelInfo.modelId modelInfo.id"
    ),
    folder=folder_with(_HISTORY, beside=("ui_messages.json", "task_metadata.json", "context_history.json")),
)
