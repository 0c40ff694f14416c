"""The data that every reader yields, and how it takes values from the JSON of other programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.messages import Message
from holdfast.providers.wire import find

Json: TypeAlias = Mapping[str, Any]
"""A record as it was decoded."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A part of a file that could not be used, and how it was handled."""

    line: int
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record of a session file, and its messages to or from the model; none for metadata.

    The type is the agent's name for it. `line` counts from 1; if the file is one JSON document it is a position. The
    time is in Unix milliseconds. A `sidechain` is a sub-agent's conversation.
    """

    type: str
    data: Json = field(repr=False)
    line: int
    id: str | None = None
    parent: str | None = None
    timestamp: int | None = None
    messages: tuple[Message, ...] = ()
    sidechain: bool = False


Item: TypeAlias = Entry | Problem
"""A record of a file, or the problem in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A whole session as its reader returns it.

    Attributes:
        path: The file, or the folder if an agent keeps one session in several files.
        format: The reader's name.
        session: The session's id.
        entries: Every record, in file order.
        problems: Parts that could not be used.
        cwd: The folder the agent worked in.
        title: The title that the agent gave the session.
        model: The last model named.
    """

    path: Path
    format: str
    session: str
    entries: tuple[Entry, ...]
    problems: tuple[Problem, ...] = ()
    cwd: str | None = None
    title: str | None = None
    model: str | None = None

    @property
    def host(self) -> str:
        """The name of the program that writes files of this format; empty if any program may."""
        return _HOSTS.get(self.format, "")

    @property
    def messages(self) -> list[Message]:
        """The main conversation in order; a sub-agent's if the file holds nothing else."""
        main = [message for entry in self.entries if not entry.sidechain for message in entry.messages]
        return main or [message for entry in self.entries for message in entry.messages]


_HOSTS: Final = {
    "aider": "Aider",
    "claude_code": "Claude Code",
    "clawdbot": "OpenClaw",
    "cline": "Cline",
    "codex": "Codex",
    "copilot": "Copilot",
    "cursor": "Cursor",
    "gemini": "Gemini CLI",
    "goose": "Goose",
    "grok": "Grok",
    "hermes": "Hermes Agent",
    "kimi": "Kimi",
    "openclaw": "OpenClaw",
    "opencode": "OpenCode",
    "openhands": "OpenHands",
    "pi": "pi",
    "qwen": "Qwen Code",
}
"""The programs that write each format; a list of messages and a log of requests may be from any."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SECONDS: Final = 100_000_000_000


def text(data: object, *paths: str) -> str | None:
    """Return the first string at these paths that is not empty, else None."""
    for path in paths:
        value = find(data, path)
        if isinstance(value, str) and value:
            return value
    return None


def string(data: Json, path: str) -> str:
    """Return the value at a path as a string; empty if there is none."""
    return str(find(data, path) or "")


def objects(data: object, path: str) -> list[Json]:
    """Return the JSON objects in the list at a path; none if it is not a list."""
    value = find(data, path)
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def mapping(value: object) -> Json:
    """Return a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def timestamp(value: object) -> int | None:
    """Convert ISO text, seconds or milliseconds to Unix milliseconds; None if the value is none of these.

    A text without a zone is in UTC.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return None
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        return None
    return int(value * 1000) if abs(value) < _MAX_SECONDS else int(value)


def make_entry(
    data: Json,
    line: int,
    *,
    type: str | None = None,  # noqa: A002 - the field's name
    id: str = "id",  # noqa: A002 - the field's name
    parent: str = "parentId",
    time: str = "timestamp",
    sidechain: bool = False,
) -> Entry:
    """Make an entry of a record; `id`, `parent` and `time` are the paths of the keys that hold them."""
    return Entry(
        type=text(data, "type") or "" if type is None else type,
        data=data,
        line=line,
        id=text(data, id),
        parent=text(data, parent),
        timestamp=timestamp(find(data, time)),
        sidechain=sidechain,
    )


def stamp(message: Message, entry: Entry) -> Message:
    """Give a message the id of its entry, and the entry's time if it has none."""
    id_ = entry.id or message.id
    time = entry.timestamp if message.timestamp is None else message.timestamp
    return message if id_ == message.id and time == message.timestamp else replace(message, id=id_, timestamp=time)
