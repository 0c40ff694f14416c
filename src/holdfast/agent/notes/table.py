"""The index of notes on disk: files, chunks and vectors in one SQLite file. It can be thrown away at any time."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agent.notes.chunks import Chunk
from holdfast.agent.notes.sources import Kind, Source
from holdfast.search.embed.base import Space
from holdfast.store.connection import translate_errors
from holdfast.text import terms

__all__ = ["Row", "Table", "forget_files"]

_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS files(path TEXT PRIMARY KEY, source TEXT, mtime INTEGER, size INTEGER);
    CREATE TABLE IF NOT EXISTS chunks(
        id INTEGER PRIMARY KEY, path TEXT, source TEXT, start_line INTEGER, end_line INTEGER, mtime INTEGER,
        hash TEXT, text TEXT, terms TEXT
    );
    CREATE INDEX IF NOT EXISTS chunks_by_path ON chunks(path);
    CREATE TABLE IF NOT EXISTS vectors(space TEXT, hash TEXT, vector BLOB, UNIQUE(space, hash));
"""
_BROKEN: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_WAIT: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A chunk in the index."""

    path: str
    kind: Kind
    start: int
    end: int
    mtime: int
    digest: str
    text: str
    terms: tuple[str, ...]


class Table:
    """An open index.

    Attributes:
        notes: What had to be done to open it.
    """

    def __init__(self, path: Path, *, signature: str) -> None:
        self.notes: list[str] = []
        self._connection = self._open(path)
        with self._writing() as write:
            (known,) = write.execute("SELECT (SELECT value FROM meta WHERE key = 'signature')").fetchone()
            if known != signature:  # cut in another way: nothing of it fits
                write.execute("DELETE FROM files")
                write.execute("DELETE FROM chunks")
                write.execute("REPLACE INTO meta VALUES ('signature', ?)", (signature,))

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _connected(path)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "") in _BROKEN:
                self.notes.append(f"{path} was damaged and is made anew")
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                return _connected(path)
            self.notes.append(f"{path} cannot be used ({error}): the index of notes is kept in memory")
        except OSError as error:
            self.notes.append(f"{path} cannot be used ({error.strerror}): the index of notes is kept in memory")
        return _connected(":memory:")

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # --- files and chunks ------------------------------------------------------

    def revision(self) -> tuple[int, int]:
        """What changes whenever somebody has written, in this process or in another."""
        (other,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(other), self._connection.total_changes

    def files(self) -> dict[str, tuple[int, int]]:
        """The files in the index, with the time and size they had."""
        rows = self._connection.execute("SELECT path, mtime, size FROM files")
        return {path: (mtime, size) for path, mtime, size in rows}

    def put(self, source: Source, chunks: Sequence[Chunk]) -> None:
        """Put the chunks of a file in the place of those it had."""
        with self._writing() as write:
            _drop(write, [source.name])
            write.execute(
                "INSERT INTO files VALUES (?, ?, ?, ?)", (source.name, source.kind, source.mtime, source.size)
            )
            write.executemany(
                "INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        source.name,
                        source.kind,
                        chunk.start,
                        chunk.end,
                        source.mtime,
                        chunk.digest,
                        chunk.text,
                        " ".join(terms(chunk.text)),
                    )
                    for chunk in chunks
                ),
            )

    def touch(self, source: Source) -> None:
        """Note that a file was looked at and says what it said."""
        with self._writing() as write:
            write.execute(
                "UPDATE files SET mtime = ?, size = ? WHERE path = ?", (source.mtime, source.size, source.name)
            )

    def drop(self, paths: Sequence[str]) -> None:
        """Take files out of the index."""
        with self._writing() as write:
            _drop(write, paths)

    def digests(self, path: str) -> list[tuple[int, int, str]]:
        """First line, last line and digest of each chunk of a file."""
        query = "SELECT start_line, end_line, hash FROM chunks WHERE path = ? ORDER BY id"
        return self._connection.execute(query, (path,)).fetchall()

    def rows(self) -> list[Row]:
        """Every chunk."""
        query = "SELECT path, source, start_line, end_line, mtime, hash, text, terms FROM chunks ORDER BY id"
        return [
            Row(
                path=path,
                kind=kind,
                start=start,
                end=end,
                mtime=mtime,
                digest=digest,
                text=text,
                terms=tuple(words.split()),
            )
            for path, kind, start, end, mtime, digest, text, words in self._connection.execute(query)
        ]

    # --- vectors ---------------------------------------------------------------

    def without_vectors(self, space: Space, *, limit: int) -> dict[str, str]:
        """Texts that have no vector in this space yet, by their digest."""
        query = (
            "SELECT hash, min(text) FROM chunks WHERE hash NOT IN (SELECT hash FROM vectors WHERE space = ?) "
            "GROUP BY hash LIMIT ?"
        )
        return dict(self._connection.execute(query, (_name(space), limit)).fetchall())

    def vectors(self, space: Space) -> dict[str, bytes]:
        """The vectors of chunks in this space, by digest."""
        query = "SELECT hash, vector FROM vectors WHERE space = ? AND hash IN (SELECT hash FROM chunks)"
        return dict(self._connection.execute(query, (_name(space),)).fetchall())

    def keep_vectors(self, space: Space, vectors: Mapping[str, bytes], *, most: int) -> None:
        """Keep vectors; of texts that are in no note any more, only the newest `most`."""
        with self._writing() as write:
            rows = ((_name(space), digest, vector) for digest, vector in vectors.items())
            write.executemany("REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            write.execute(
                "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors "
                "WHERE hash NOT IN (SELECT hash FROM chunks) ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
                (most,),
            )


def forget_files(path: Path, names: Sequence[str]) -> None:
    """Take files out of an index on disk, with their vectors; free pages and the log keep no copy of their words."""
    if not path.exists():
        return
    with translate_errors(path), closing(_connected(path)) as connection:
        _drop(connection, names)
        connection.execute("DELETE FROM vectors WHERE hash NOT IN (SELECT hash FROM chunks)")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _connected(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_WAIT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    if isinstance(path, Path):
        path.chmod(0o600)
    return connection


def _drop(write: sqlite3.Connection, paths: Sequence[str]) -> None:
    names = (json.dumps(list(paths)),)
    write.execute("DELETE FROM files WHERE path IN (SELECT value FROM json_each(?))", names)
    write.execute("DELETE FROM chunks WHERE path IN (SELECT value FROM json_each(?))", names)


def _name(space: Space) -> str:
    return f"{space.name}:{space.dimension}:{space.digest}"
