"""The parts that all readers share: the Reader type, the way from records to entries, SQLite access, and JSON casts."""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Message
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Head, Line, read_head, read_lines
from holdfast.transcripts.records import read_time

__all__ = [
    "Database",
    "Json",
    "Reader",
    "Row",
    "SessionInfo",
    "StoredSession",
    "attach_messages",
    "database_file",
    "delay_items",
    "has_columns",
    "list_sessions",
    "make_entry",
    "mapping",
    "merge_info",
    "objects",
    "open_session",
    "read_entries",
    "read_line_rows",
    "read_rows",
    "select_session",
    "text",
    "timestamp",
]

Json: TypeAlias = Mapping[str, Any]
"""A record as it was decoded."""

Row: TypeAlias = tuple[int, Any] | Problem
"""A JSON value with its line, or the problem in its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """Facts about a session that a record, or a whole file, states. `topic` is a title that the agent made up."""

    session: str | None = None
    cwd: str | None = None
    title: str | None = None
    topic: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """How an agent stores sessions in an SQLite file.

    Attributes:
        columns: Columns that identify the agent's files, as `table.column`.
        sessions: A query for the `id`, `modified` (Unix milliseconds) and `size` of every session.
    """

    columns: frozenset[str]
    sessions: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """The reader of one agent's session format.

    Attributes:
        name: The name that callers use.
        stream: Yields every record of a session in order, lazily where the format allows it.
        describe: Returns what one record states about the session.
        claims: Whether a file is of this agent, judged by its name and its first lines alone.
        folder: The folder that is the whole session, for that folder and for a file inside; None elsewhere.
        database: How the agent stores sessions in an SQLite file, where it does.
    """

    name: str
    stream: Callable[[Path], Iterator[Item]]
    describe: Callable[[Json], SessionInfo] = lambda _record: SessionInfo()
    claims: Callable[[Path, Head], bool] = lambda _path, _head: False
    folder: Callable[[Path], Path | None] = lambda _path: None
    database: Database | None = None


def merge_info(records: Iterable[Json], describe: Callable[[Json], SessionInfo]) -> SessionInfo:
    """Merge what the records state: the first session and folder, the last title and model."""
    merged = SessionInfo()
    for record in records:
        info = describe(record)
        merged = SessionInfo(
            session=merged.session or info.session,
            cwd=merged.cwd or info.cwd,
            title=info.title or merged.title,
            topic=info.topic or merged.topic,
            model=info.model or merged.model,
        )
    return merged


# --- from records to entries ---------------------------------------------------


def _read_filled_lines(path: Path) -> Iterator[Line | Problem]:
    """Yield the lines that are not blank.

    A file that cannot be opened raises; one that fails later ends with a problem.
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


def read_rows(path: Path) -> Iterator[Row]:
    """Yield every JSON object and list of a document or a JSON Lines file with its line; the rest as problems."""
    head = read_head(path)
    if head.document:
        yield 1, head.values[0]
    else:
        yield from read_line_rows(path)


def read_line_rows(path: Path) -> Iterator[Row]:
    """Yield the same for a file that is known to be JSON Lines."""
    for line in _read_filled_lines(path):
        if isinstance(line, Problem):
            yield line
        elif line.data is not None or isinstance(line.value, list):
            yield line.number, line.value if line.data is None else line.data
        else:
            yield Problem(line.number, line.problem or "not a record")


def read_entries(
    path: Path,
    *,
    frame: Callable[[Json, int], Entry],
    messages: Callable[[Entry], Sequence[Message]],
) -> Iterator[Item]:
    """Stream a JSON Lines file. `frame` makes an entry of a record, `messages` reads the entry's messages.

    A record whose message cannot be read becomes an entry without messages, and a problem. A line that repeats
    an earlier record with the same id is skipped; the repeats are reported once.
    """
    seen: set[tuple[str, int]] = set()  # ids and hashes only, so that a large file needs little memory
    repeats = first_repeat = 0
    for line in _read_filled_lines(path):
        if isinstance(line, Problem):
            yield line
            continue
        if line.data is None:
            yield Problem(line.number, line.problem or "not a record")
            continue
        entry = frame(line.data, line.number)
        key = (entry.id or "", hash(line.raw.rstrip()))
        if entry.id is None or key not in seen:
            seen.add(key)
            yield from attach_messages(entry, messages)
        else:
            repeats += 1
            first_repeat = first_repeat or entry.line
    if repeats:
        yield Problem(first_repeat, f"{repeats} lines repeat an earlier record word for word and were read once")


def make_entry(
    data: Json,
    line: int,
    *,
    type: str | None = None,  # noqa: A002 - the field's name
    id: str = "id",  # noqa: A002 - the field's name
    parent: str = "parentId",
    sidechain: bool = False,
) -> Entry:
    """Make an entry of a record; `id` and `parent` are the keys that hold them."""
    return Entry(
        type=str(data.get("type", "")) if type is None else type,
        data=data,
        line=line,
        id=text(data.get(id)),
        parent=text(data.get(parent)),
        timestamp=timestamp(data.get("timestamp")),
        sidechain=sidechain,
    )


def attach_messages(entry: Entry, messages: Callable[[Entry], Sequence[Message]]) -> Iterator[Item]:
    """Yield the entry with its messages, which get its id, and its time where they have none."""
    try:
        stamped = tuple(
            replace(
                message,
                id=entry.id or message.id,
                timestamp=entry.timestamp if message.timestamp is None else message.timestamp,
            )
            for message in messages(entry)
        )
    except FormatError as error:
        yield entry
        yield Problem(entry.line, f"kept without its message: {error}")
        return
    yield replace(entry, messages=stamped) if stamped else entry


_MAX_DELAYED: Final = 32


def delay_items(items: Iterable[Item], amend: Callable[[deque[Item], Entry], None]) -> Iterator[Item]:
    """Yield items late enough that `amend` may still change the last messages before the entry that it receives.

    Agents write the usage of a reply after the reply, or on each of its lines.
    """
    delayed: deque[Item] = deque()
    with_messages = 0
    for item in items:
        if isinstance(item, Entry):
            amend(delayed, item)
            with_messages += bool(item.messages)
        delayed.append(item)
        while with_messages > _MAX_DELAYED:
            oldest = delayed.popleft()
            with_messages -= isinstance(oldest, Entry) and bool(oldest.messages)
            yield oldest
    yield from delayed


# --- JSON of other programs ------------------------------------------------------

_MAX_SECONDS: Final = 100_000_000_000


def timestamp(value: object) -> int | None:
    """Convert ISO text, seconds or milliseconds to Unix milliseconds; None where the value is none of these."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return read_time(value)
    if not abs(value) < float("inf"):
        return None
    return int(value * 1000) if abs(value) < _MAX_SECONDS else int(value)


def text(value: object) -> str | None:
    """Return a string that is not empty, else None."""
    return value if isinstance(value, str) and value else None


def objects(value: object) -> list[Json]:
    """Return the JSON objects in a list, none where the value is not a list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def mapping(value: object) -> Json:
    """Return a JSON object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


# --- SQLite files ----------------------------------------------------------------
# A file holds many sessions. A session is addressed as a path below the file: `opencode.db/ses_1`.

_MAGIC: Final = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session in an SQLite file."""

    path: Path
    modified: int
    size: int


def database_file(path: Path) -> Path | None:
    """Return the SQLite file that a path names, or names a session of; None for any other path."""
    file = next((one for one in (path, *path.parents) if os.path.isfile(one)), None)  # noqa: PTH113 - never raises
    try:
        if file is None:
            return None
        with file.open("rb") as opened:
            return file if opened.read(len(_MAGIC)) == _MAGIC else None
    except OSError:
        return None


def has_columns(file: Path, columns: frozenset[str]) -> bool:
    """Whether an SQLite file has these columns, each given as `table.column`."""
    with _connect(file) as query:
        sql = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
        return all(query(sql, *column.split(".")) for column in sorted(columns))


def list_sessions(file: Path, database: Database) -> list[StoredSession]:
    """List every session of a file, the oldest first."""
    with _connect(file) as query:
        rows = query(database.sessions)
    stored = [StoredSession(file / str(row["id"]), int(row["modified"] or 0), int(row["size"] or 0)) for row in rows]
    return sorted(stored, key=lambda one: (one.modified, one.path))


def select_session(path: Path, file: Path, database: Database) -> Path:
    """Return the path of the session that a path names; a file with one session needs no name.

    Raises:
        TranscriptError: There is no such session, or none of several is named.
    """
    stored = [one.path for one in list_sessions(file, database)]
    if path in stored:
        return path
    if path != file:
        raise TranscriptError(f"no session of that name in {file}", path=path)
    if not stored:
        raise TranscriptError("a database without a session", path=file)
    if len(stored) > 1:
        raise TranscriptError(f"holds {len(stored):,} sessions: name one, for example {stored[-1]}", path=file)
    return stored[0]


@contextmanager
def open_session(path: Path) -> Iterator[tuple[Callable[..., list[dict[str, Any]]], str]]:
    """Yield a function that runs a query, and the id of the session that the path names."""
    file = database_file(path)
    if file is None:
        raise TranscriptError("not a session in an SQLite file", path=path)
    with _connect(file) as query:
        yield query, path.relative_to(file).as_posix()


@contextmanager
def _connect(file: Path) -> Iterator[Callable[..., list[dict[str, Any]]]]:
    try:
        with closing(_open_read_only(file)) as connection:
            connection.row_factory = sqlite3.Row
            yield lambda sql, *values: [dict(row) for row in connection.execute(sql, values)]
    except sqlite3.Error as error:
        raise TranscriptError(f"could not be read: {error}", path=file) from error


def _open_read_only(file: Path) -> sqlite3.Connection:
    """Open a file for reading; in a read-only folder without the log that SQLite would create beside it."""
    address = f"file:{quote(str(file.absolute()))}"
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=10)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        connection.close()
        if not isinstance(error, sqlite3.OperationalError):
            raise
        return sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)
    return connection
