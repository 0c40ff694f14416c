"""What the readers of other agents' files share: what a reader is, and the way from lines to entries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Message
from holdfast.transcripts.database import Database
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head
from holdfast.transcripts.lines import Line, read_lines
from holdfast.transcripts.records import read_time

__all__ = [
    "About",
    "Json",
    "Reader",
    "about",
    "look_back",
    "mapping",
    "objects",
    "read_entries",
    "readable",
    "say",
    "text",
    "timestamp",
]

Json: TypeAlias = Mapping[str, Any]
"""A record as it came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What a record, or a whole file, tells about its session. A `topic` is a title that nobody has given it."""

    session: str | None = None
    cwd: str | None = None
    title: str | None = None
    topic: str | None = None
    model: str | None = None


def _no_folder(_path: Path) -> Path | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One agent's way to keep sessions.

    Attributes:
        name: The name that callers use.
        claims: Whether a file is of this agent, judged by its name and its first lines alone.
        stream: Every record of a session in order, lazily where the format allows it.
        notes: What one record tells about the session.
        folder: The folder that is the whole session, for that folder and for a file inside; None elsewhere.
        database: How the agent keeps sessions in an SQLite file, where it does.
    """

    name: str
    claims: Callable[[Path, Head], bool]
    stream: Callable[[Path], Iterator[Item]]
    notes: Callable[[Json], About]
    folder: Callable[[Path], Path | None] = _no_folder
    database: Database | None = None


def about(records: Iterable[Json], notes: Callable[[Json], About]) -> About:
    """What the records tell together: the first session and folder named, the last title and model."""
    known = About()
    for record in records:
        note = notes(record)
        known = About(
            session=known.session or note.session,
            cwd=known.cwd or note.cwd,
            title=note.title or known.title,
            topic=note.topic or known.topic,
            model=note.model or known.model,
        )
    return known


# --- from lines to entries ---------------------------------------------------


def readable(path: Path) -> Iterator[Line | Problem]:
    """The lines that are not blank.

    What cannot be opened at all is an error; a file that breaks off later ends in a problem.
    """
    number = 0
    try:
        for line in read_lines(path, skip_long=True):
            number = line.number
            if not line.raw.isspace():
                yield line
    except TranscriptError as error:
        if number == 0:
            raise
        yield Problem(number + 1, f"the rest is lost: {error}")


def read_entries(
    path: Path,
    *,
    frame: Callable[[Json, int], Entry],
    messages: Callable[[Entry], Sequence[Message]],
) -> Iterator[Item]:
    """Stream a JSON Lines file. `frame` makes the entry, `messages` reads what it says to the model.

    A record whose message cannot be read is an entry without messages, and a problem. A record with an
    id that was read before is left out when it is the same line again, and the repeats are reported once.
    """
    seen = _Seen()
    for line in readable(path):
        if isinstance(line, Problem) or line.data is None:
            yield line if isinstance(line, Problem) else Problem(line.number, line.problem or "not a record")
            continue
        entry = frame(line.data, line.number)
        if not seen.again(entry, line.raw):
            yield from say(entry, messages)
    if seen.repeats:
        yield Problem(seen.first, f"{seen.repeats} lines repeat an earlier record word for word and were read once")


@dataclass(slots=True)
class _Seen:
    """Which records were read: ids and hashes only, so that a large file needs little memory."""

    keys: set[tuple[str, int]] = field(default_factory=set)
    repeats: int = 0
    first: int = 0

    def again(self, entry: Entry, raw: bytes) -> bool:
        """Whether this line was read before; what has no id of its own may well be said twice."""
        if entry.id is None:
            return False
        key = (entry.id, hash(raw.rstrip()))
        if key not in self.keys:
            self.keys.add(key)
            return False
        self.repeats += 1
        self.first = self.first or entry.line
        return True


def say(entry: Entry, messages: Callable[[Entry], Sequence[Message]]) -> Iterator[Item]:
    """The entry with its messages, which take its id and time where they have none of their own."""
    try:
        said = tuple(_stamped(message, entry) for message in messages(entry))
    except FormatError as error:
        yield entry
        yield Problem(entry.line, f"kept without its message: {error}")
        return
    yield replace(entry, messages=said) if said else entry


def _stamped(message: Message, entry: Entry) -> Message:
    stamp = entry.timestamp if message.timestamp is None else message.timestamp
    id_ = entry.id or message.id
    return message if (message.id, message.timestamp) == (id_, stamp) else replace(message, id=id_, timestamp=stamp)


_REACH: Final = 32


def look_back(items: Iterable[Item], amend: Callable[[deque[Item], Entry], None]) -> Iterator[Item]:
    """Pass items on, so late that `amend` may still change the last few messages before the entry that it is shown.

    Agents write what a reply cost after the reply, or on each of its lines.
    """
    held: deque[Item] = deque()
    spoken = 0
    for item in items:
        if isinstance(item, Entry):
            amend(held, item)
            spoken += bool(item.messages)
        held.append(item)
        while spoken > _REACH:
            oldest = held.popleft()
            spoken -= isinstance(oldest, Entry) and bool(oldest.messages)
            yield oldest
    yield from held


# --- careful reading of foreign JSON -----------------------------------------

_SECONDS_UNTIL: Final = 100_000_000_000


def timestamp(value: object) -> int | None:
    """A time in Unix milliseconds, from ISO text, seconds or milliseconds; None where it is none of these."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return read_time(value)
    if not abs(value) < float("inf"):
        return None
    return int(value * 1000) if abs(value) < _SECONDS_UNTIL else int(value)


def text(value: object) -> str | None:
    """A string that says something, else None."""
    return value if isinstance(value, str) and value else None


def objects(value: object) -> list[Json]:
    """The JSON objects in a list; none where it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def mapping(value: object) -> Json:
    """A JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}
