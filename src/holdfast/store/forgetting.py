"""Forgetting for good in the SQLite store: rows, posting lists, vectors, write-ahead log."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import StorageError
from holdfast.search import columns as columnar

__all__ = ["forget_messages", "wipe_log"]


def forget_messages(connection: sqlite3.Connection, numbers: Sequence[int]) -> None:
    """Take messages and all that was derived from them out of every table; remember only their digests."""
    for number in numbers:
        connection.execute(
            "INSERT OR IGNORE INTO forgotten(scope, digest) SELECT scope, digest FROM messages WHERE id = ?", (number,)
        )
        passages = [row[0] for row in connection.execute("SELECT number FROM passages WHERE message = ?", (number,))]
        for passage in passages:
            connection.execute("DELETE FROM vectors WHERE passage = ?", (passage,))
            connection.execute("DELETE FROM pending WHERE number = ?", (passage,))
            connection.execute("UPDATE passages SET alive = 0, text = NULL WHERE number = ?", (passage,))
        _unpost(connection, passages)
        connection.execute("DELETE FROM messages WHERE id = ?", (number,))
    if numbers:
        connection.execute("UPDATE counters SET value = value + 1 WHERE name = 'forgotten'")


def _unpost(connection: sqlite3.Connection, passages: Sequence[int]) -> None:
    """Take passages out of the sealed part of the index."""
    for first, data in connection.execute("SELECT first, data FROM blocks").fetchall():
        arrays = columnar.decode(data)
        mine = [passage - first for passage in passages if first <= passage < first + len(arrays["message"])]
        if not mine:
            continue
        alive = arrays["alive"].copy()
        alive[mine] = False
        connection.execute(
            "UPDATE blocks SET data = ? WHERE first = ?", (columnar.encode(arrays | {"alive": alive}), first)
        )
        windows = np.flatnonzero(np.isin(arrays["passage"], np.array(passages)))
        _unpost_windows(connection, first + mine[0], windows + int(arrays["first_window"][0]))


def _unpost_windows(connection: sqlite3.Connection, passage: int, windows: npt.NDArray[np.int64]) -> None:
    run = connection.execute("SELECT first FROM runs WHERE first <= ? AND stop > ?", (passage, passage)).fetchone()
    if run is None:
        return
    for term, data in connection.execute("SELECT term, data FROM postings WHERE run = ?", run).fetchall():
        count = len(data) // 5
        held = np.frombuffer(data, np.uint32, count)
        kept = ~np.isin(held, windows)
        if kept.all():
            continue
        if not kept.any():
            connection.execute("DELETE FROM postings WHERE run = ? AND term = ?", (*run, term))
            continue
        counts = np.frombuffer(data, np.uint8, count, offset=4 * count)
        encoded = held[kept].tobytes() + counts[kept].tobytes()
        connection.execute("UPDATE postings SET data = ? WHERE run = ? AND term = ?", (encoded, *run, term))


def wipe_log(connection: sqlite3.Connection, *, path: Path) -> None:
    """Write the log into the file and empty it, so that no old page keeps what was forgotten."""
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StorageError(
            "forgotten, but another process still reads the write-ahead log: run `holdfast doctor` when it is done",
            path=path,
        )
