"""Forget for good: rows, posting lists, vectors; of a SQLite store also free pages and the write-ahead log."""

from __future__ import annotations

import glob
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from holdfast.errors import StorageError
from holdfast.index import columns as columnar
from holdfast.index.columns import Columns
from holdfast.index.database import Database
from holdfast.index.postings import decode, encode, pages_with, without
from holdfast.index.tables import BLOCK_PASSAGES, mark_rewritten, read_columns
from holdfast.store.adding import empty_passages, fact_digest, message_digest
from holdfast.store.base import Kind
from holdfast.store.connection import COPIED_BLOCKS
from holdfast.store.rows import KEY
from holdfast.store.vector_file import list_copies, write_copies


def remove(db: Database, kind: Kind, condition: str, values: Sequence[object]) -> int:
    """Delete rows from every table, in the caller's transaction."""
    key = KEY[kind]
    query = f"SELECT {key} FROM {kind}s WHERE {condition}"
    numbers = sorted(number for (number,) in db.execute(query, values))
    if numbers and kind == "message":
        _forget_messages(db, numbers)
    if numbers and kind == "fact":
        wanted, some = db.among("version", numbers)
        facts = db.execute(f"SELECT DISTINCT scope, id FROM facts WHERE {db.own}{wanted}", some).fetchall()
        remember = "INSERT INTO forgotten(scope, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
        db.executemany(remember, [(scope, fact_digest(fact)) for scope, fact in facts])
    db.executemany(f"DELETE FROM {kind}s WHERE {db.own}{key} = ?", [(number,) for number in numbers])
    if numbers and kind in {"message", "fact"}:
        db.execute(f"UPDATE counters SET value = 1 WHERE {db.own}name = 'unscrubbed'")
    return len(numbers)


def _forget_messages(db: Database, numbers: Sequence[int]) -> None:
    """Delete everything derived from messages; keep only their digests."""
    wanted, values = db.among("id", numbers)
    query = f"SELECT scope, digest, nonce FROM messages WHERE {db.own}{wanted}"
    rows = db.execute(query, values).fetchall()
    remember = "INSERT INTO forgotten(scope, digest, words, nonce) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    db.executemany(remember, [(scope, message_digest(digest, nonce), digest, nonce) for scope, digest, nonce in rows])
    wanted, values = db.among("message", numbers)
    query = f"SELECT number FROM passages WHERE {db.own}{wanted} ORDER BY number"
    passages = [passage for (passage,) in db.execute(query, values)]
    db.wipe_vectors(passages)
    places = [(passage,) for passage in passages]
    db.executemany(f"DELETE FROM pending WHERE {db.own}number = ?", places)
    empty_passages(db, passages)
    found: list[npt.NDArray[np.int64]] = [np.zeros(0, np.int64)]  # the windows that are indexed
    for first in sorted({passage // BLOCK_PASSAGES * BLOCK_PASSAGES for passage in passages}):
        block = db.execute(f"SELECT first_window FROM blocks WHERE {db.own}first = ?", (first,)).fetchone()
        if block is not None:
            columns = Columns()
            read_columns(db, columns, first=first, stop=first + BLOCK_PASSAGES)
            db.execute(f"UPDATE blocks SET data = ? WHERE {db.own}first = ?", (columnar.encode(columns), first))
            found.append(np.flatnonzero(np.isin(columns["passage"] + first, np.array(passages))) + block[0])
    _remove_postings(db, passages, np.concatenate(found))
    mark_rewritten(db)


def _remove_postings(db: Database, passages: Sequence[int], windows: npt.NDArray[np.int64]) -> None:
    """Remove windows from every posting list of the runs that these passages are in."""
    for first, stop in db.execute(f"SELECT first, stop FROM runs WHERE {db.own}true").fetchall():
        if not any(first <= passage < stop for passage in passages):
            continue
        query = f"SELECT term, data FROM postings WHERE {db.own}run = ? ORDER BY term"
        pages = db.execute(query, (first,)).fetchall()
        for number in pages_with(windows, [data for _, data in pages]):
            term, data = pages[number]
            kept = without(decode(data), windows)
            if len(kept.terms):
                update = f"UPDATE postings SET data = ? WHERE {db.own}run = ? AND term = ?"
                db.execute(update, (encode(kept), first, term))
            else:
                db.execute(f"DELETE FROM postings WHERE {db.own}run = ? AND term = ?", (first, term))


def damaged_copies(path: Path) -> list[Path]:
    """List the damaged files that repairs of a store have kept beside it, and their logs."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.damaged.*"))


def delete_copies(copies: Iterable[Path]) -> None:
    """Delete copies beside a store: they may contain forgotten rows, which cannot be removed from them."""
    for copy in copies:
        try:
            copy.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"forgotten, but not deleted: {error.strerror}. Delete it.", path=copy) from error


def scrub(connection: sqlite3.Connection, *, path: Path, copied_blocks: int = COPIED_BLOCKS) -> None:
    """Rewrite the file and empty the log, so that no page contains forgotten text.

    Deleting with zeros is not enough: when pages are balanced, copies of rows stay in the gaps. Copies of vectors are
    written anew.
    """
    delete_copies(list_copies(connection))
    connection.execute("VACUUM")
    connection.execute("UPDATE counters SET value = 0 WHERE name = 'unscrubbed'")
    busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if busy:
        raise StorageError(
            "forgotten, but another process still reads the write-ahead log: run `holdfast vacuum` when it is done",
            path=path,
        )
    write_copies(connection, least=copied_blocks)
