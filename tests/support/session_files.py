"""What the tests of sessions share: time and ids that can be foretold, and messages in one line."""

import json
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.messages import Message, Role, Text, ToolCall, ToolResult
from holdfast.transcripts.entry import Entry
from holdfast.transcripts.records import read_entry
from holdfast.transcripts.session import Context, Session, Tree
from holdfast.transcripts.session import rebuild as rebuild_path

START = 1_770_732_000_000
"""2026-02-10T14:00:00.000Z, the time of the first tick."""


class Ticks:
    """A clock that moves one millisecond each time it is examined."""

    def __init__(self) -> None:
        self._ticks = count(START)

    def __call__(self) -> int:
        return next(self._ticks)


class Ids:
    """Ids in order: the n-th begins with n in eight hex digits."""

    def __init__(self, start: int = 1) -> None:
        self._numbers = count(start)

    def __call__(self) -> str:
        return f"{next(self._numbers):08x}-0000-4000-8000-000000000000"


def begin(folder: Path, name: str = "session.jsonl") -> Session:
    """A new session in `folder`; the header takes the first id."""
    return Session.create(folder / name, cwd="/work", clock=Ticks(), new_id=Ids())


def reopen(file: Path) -> Session:
    """The same file, read again, with ids that no one has used yet."""
    return Session.open(file, clock=Ticks(), new_id=Ids(0x1000))


def says(text: str, role: Role = "user") -> Message:
    """A message of one text."""
    return Message(role=role, parts=(Text(text=text),))


def calls(*ids: str) -> Message:
    """A reply that calls a tool, once for each id."""
    return Message(role="assistant", parts=tuple(ToolCall(id=i, name="read", arguments={"path": i}) for i in ids))


def answers(*ids: str) -> Message:
    """The results of those calls in one message."""
    return Message(role="tool", parts=tuple(ToolResult(call_id=i, content=(Text(text=f"of {i}"),)) for i in ids))


def records(file: Path) -> list[dict[str, Any]]:
    """Every line of a file that is JSON, header first."""
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def write_lines(file: Path, *lines: Mapping[str, Any] | bytes) -> Path:
    """A file of these records, or of these bytes where a line is none."""
    raw = [line if isinstance(line, bytes) else json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines]
    file.write_bytes(b"".join(raw))
    return file


def texts(session: Session) -> list[str]:
    """What the model sees, message by message."""
    return [message.text for message in session.context().messages]


def branch(session: Session, target: str | None) -> Entry:
    """Go back to an earlier entry, None for the beginning, as other writers of the format do."""
    return session.append("leaf", {"parentId": target, "targetId": target})[0]


# --- entries without a file ---------------------------------------------------


def entry(kind: str, entry_id: str, parent: str | None, **fields: Any) -> Entry:
    """An entry as it would be read from a file; the id is its line in words."""
    record = {"type": kind, "id": entry_id, "parentId": parent, "timestamp": "2026-02-10T14:00:00.000Z", **fields}
    return read_entry(record, int(entry_id, 36))


def rebuild(entries: Iterable[Entry], leaf: str | None = None) -> Context:
    """The context at a leaf, or where the entries stand."""
    tree = Tree(entries)
    return rebuild_path(tree.path(leaf if leaf in tree else tree.leaf))


def user(entry_id: str, parent: str | None, text: str = "") -> Entry:
    """A user's message that says its own id."""
    return entry("message", entry_id, parent, message={"role": "user", "content": text or entry_id})


def reply(entry_id: str, parent: str | None, model: str = "m", provider: str = "p") -> Entry:
    """A reply that says its own id."""
    content = [{"type": "text", "text": entry_id}]
    message = {"role": "assistant", "content": content, "provider": provider, "model": model, "timestamp": 7}
    return entry("message", entry_id, parent, message=message)


def compaction(entry_id: str, parent: str | None, first_kept: str | None) -> Entry:
    """A compaction whose summary names it."""
    return entry("compaction", entry_id, parent, summary=f"sum {entry_id}", firstKeptEntryId=first_kept, tokensBefore=9)
