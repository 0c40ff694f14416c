"""SQLite files that hold many sessions. A session in one is addressed as a path below the file: `opencode.db/ses_1`."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from holdfast.errors import TranscriptError

__all__ = ["Database", "Stored", "database_file", "list_sessions", "matches", "named_session", "open_session"]

Row: TypeAlias = dict[str, Any]

_MAGIC: Final = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """How an agent keeps sessions in an SQLite file.

    Attributes:
        columns: Columns that tell its files from those of others, as `table.column`.
        sessions: A query for the `id`, `modified` (Unix milliseconds) and `size` of every session.
    """

    columns: frozenset[str]
    sessions: str


@dataclass(frozen=True, slots=True)
class Stored:
    """A session in a database."""

    path: Path
    modified: int
    size: int


def database_file(path: Path) -> Path | None:
    """The SQLite file that a path names, or names a session of; None for any other path."""
    file = next((one for one in (path, *path.parents) if os.path.isfile(one)), None)  # noqa: PTH113 - never raises
    try:
        if file is None:
            return None
        with file.open("rb") as opened:
            return file if opened.read(len(_MAGIC)) == _MAGIC else None
    except OSError:
        return None


def matches(file: Path, columns: frozenset[str]) -> bool:
    """Whether a file has these columns."""
    with _connect(file) as query:
        found = "SELECT 1 FROM pragma_table_info(?) WHERE name = ?"
        return all(query(found, *column.split(".")) for column in sorted(columns))


def list_sessions(file: Path, database: Database) -> list[Stored]:
    """Every session of a file, the oldest first."""
    with _connect(file) as query:
        rows = query(database.sessions)
    found = [Stored(file / str(row["id"]), int(row["modified"] or 0), int(row["size"] or 0)) for row in rows]
    return sorted(found, key=lambda one: (one.modified, one.path))


def named_session(path: Path, file: Path, database: Database) -> Path:
    """The path of the session that is meant; a file of one session needs no name.

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
def open_session(path: Path) -> Iterator[tuple[Callable[..., list[Row]], str]]:
    """A function that runs a query, and the id of the session that the path names."""
    file = database_file(path)
    if file is None:
        raise TranscriptError("not a session in an SQLite file", path=path)
    with _connect(file) as query:
        yield query, path.relative_to(file).as_posix()


@contextmanager
def _connect(file: Path) -> Iterator[Callable[..., list[Row]]]:
    try:
        with closing(_open(file)) as connection:
            connection.row_factory = sqlite3.Row
            yield lambda sql, *values: [dict(row) for row in connection.execute(sql, values)]
    except sqlite3.Error as error:
        raise TranscriptError(f"could not be read: {error}", path=file) from error


def _open(file: Path) -> sqlite3.Connection:
    """Open a file for reading; where the folder is read-only, without the log that SQLite would keep beside it."""
    address = f"file:{quote(str(file.absolute()))}"
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=10)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        return sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)
    return connection
