"""Forget for good in a SQLite store: rows, posting lists, vectors, free pages, write-ahead log."""

from __future__ import annotations

import glob
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import StorageError
from holdfast.search import columns as columnar
from holdfast.search.columns import Columns
from holdfast.search.postings import decode, encode, pages_with, without
from holdfast.store.base import Kind
from holdfast.store.index_tables import BLOCK_PASSAGES, mark_rewritten, read_columns, wipe_vectors
from holdfast.store.sqlite_rows import KEY, fact_digest, message_digest


def remove(connection: sqlite3.Connection, kind: Kind, condition: str, values: Sequence[object]) -> int:
    """Delete rows from every table, in the caller's transaction. Call `scrub` after it to erase their text."""
    key = KEY[kind]
    connection.execute("PRAGMA secure_delete = ON")
    try:
        query = f"SELECT {key} FROM {kind}s WHERE {condition}"
        numbers = sorted(number for (number,) in connection.execute(query, values))
        if numbers and kind == "message":
            _forget_messages(connection, numbers)
        for number in numbers if kind == "fact" else ():
            scope, fact = connection.execute("SELECT scope, id FROM facts WHERE version = ?", (number,)).fetchone()
            insert = "INSERT OR IGNORE INTO forgotten(scope, digest) VALUES (?, ?)"
            connection.execute(insert, (scope, fact_digest(fact)))
        connection.executemany(f"DELETE FROM {kind}s WHERE {key} = ?", ((number,) for number in numbers))
        if numbers and kind in {"message", "fact"}:
            connection.execute("UPDATE counters SET value = 1 WHERE name = 'unscrubbed'")
    finally:
        connection.execute("PRAGMA secure_delete = OFF")
    return len(numbers)


def _forget_messages(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Delete everything derived from messages; keep only their digests."""
    passages: list[int] = []
    for number in numbers:
        query = "SELECT scope, digest, nonce FROM messages WHERE id = ?"
        scope, digest, nonce = connection.execute(query, (number,)).fetchone()
        remember = "INSERT OR IGNORE INTO forgotten(scope, digest, words, nonce) VALUES (?, ?, ?, ?)"
        connection.execute(remember, (scope, message_digest(digest, nonce), digest, nonce))
        query = "SELECT number FROM passages WHERE message = ?"
        passages += [passage for (passage,) in connection.execute(query, (number,))]
    passages.sort()
    wipe_vectors(connection, passages)
    connection.executemany("DELETE FROM pending WHERE number = ?", ((passage,) for passage in passages))
    # The windows stay, as numbers without words: those of later passages are counted from them.
    connection.executemany(
        "UPDATE passages SET alive = 0, text = NULL, time = 0, human = 0, speaker = x'', start = 0,"
        " windows = zeroblob(length(windows)) WHERE number = ?",
        ((passage,) for passage in passages),
    )
    found: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]  # the windows that are indexed
    for first in sorted({passage // BLOCK_PASSAGES * BLOCK_PASSAGES for passage in passages}):
        block = connection.execute("SELECT first_window FROM blocks WHERE first = ?", (first,)).fetchone()
        if block is not None:
            columns = Columns()
            read_columns(connection, columns, first=first, stop=first + BLOCK_PASSAGES)
            connection.execute("UPDATE blocks SET data = ? WHERE first = ?", (columnar.encode(columns), first))
            found.append(np.flatnonzero(np.isin(columns["passage"] + first, np.array(passages))) + block[0])
    _remove_postings(connection, passages, np.concatenate(found))
    mark_rewritten(connection)


def _remove_postings(connection: sqlite3.Connection, passages: Sequence[int], windows: npt.NDArray[np.int64]) -> None:
    """Remove windows from every posting list of the runs that these passages are in."""
    for first, stop in connection.execute("SELECT first, stop FROM runs").fetchall():
        if not any(first <= passage < stop for passage in passages):
            continue
        query = "SELECT term, data FROM postings WHERE run = ? ORDER BY term"
        pages = connection.execute(query, (first,)).fetchall()
        for number in pages_with(windows, [data for _, data in pages]):
            term, data = pages[number]
            kept = without(decode(data), windows)
            if len(kept.terms):
                update = "UPDATE postings SET data = ? WHERE run = ? AND term = ?"
                connection.execute(update, (encode(kept), first, term))
            else:
                connection.execute("DELETE FROM postings WHERE run = ? AND term = ?", (first, term))


def damaged_copies(path: Path) -> list[Path]:
    """List the damaged files that repairs of a store have kept beside it, and their logs."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.damaged.*"))


def delete_damaged_copies(path: Path) -> None:
    """Delete damaged copies of a store: they may contain forgotten rows, which cannot be removed from them."""
    for copy in damaged_copies(path):
        try:
            copy.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"forgotten, but not deleted: {error.strerror}. Delete it.", path=copy) from error


def scrub(connection: sqlite3.Connection, *, path: Path) -> None:
    """Rewrite the file and empty the log, so that no page contains forgotten text.

    Deleting with zeros is not enough: when pages are balanced, copies of rows stay in the gaps.
    """
    connection.execute("VACUUM")
    connection.execute("UPDATE counters SET value = 0 WHERE name = 'unscrubbed'")
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StorageError(
            "forgotten, but another process still reads the write-ahead log: run `holdfast vacuum` when it is done",
            path=path,
        )
