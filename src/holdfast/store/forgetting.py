"""Forget for good: rows, posting lists, vectors; of a SQLite store also free pages and the write-ahead log."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from pathlib import Path

from holdfast.errors import StorageError
from holdfast.index.database import Database
from holdfast.index.tables import remove_from_index
from holdfast.store import figures
from holdfast.store.adding import empty_passages, fact_digest, message_digest
from holdfast.store.base import Kind
from holdfast.store.connection import COPIED_BLOCKS, SqliteDatabase
from holdfast.store.rows import KEY
from holdfast.store.vector_file import list_copies, write_copies


def remove(db: Database, kind: Kind, condition: str, values: Sequence[object]) -> int:
    """Delete rows from every table, in the caller's transaction; return their number."""
    key = KEY[kind]
    query = f"SELECT {key} FROM {kind}s WHERE {condition}"
    numbers = sorted(number for (number,) in db.execute(query, values))
    if not numbers:
        return 0
    if kind == "message":
        _remember_messages(db, numbers)
        _remove_passages(db, numbers)
    elif kind == "fact":
        _remember_facts(db, numbers)
    if kind in {"message", "record"}:
        figures.remove(db, kind, numbers)
    db.executemany(f"DELETE FROM {kind}s WHERE {db.own}{key} = ?", [(number,) for number in numbers])
    if kind in {"message", "fact"}:
        db.execute(f"UPDATE counters SET value = 1 WHERE {db.own}name = 'unscrubbed'")
    return len(numbers)


def _remember_messages(db: Database, numbers: Sequence[int]) -> None:
    """Keep the digests of messages, so that they are not archived again."""
    wanted, values = db.among("id", numbers)
    query = f"SELECT scope, digest, nonce FROM messages WHERE {db.own}{wanted}"
    kept: list[tuple[int, bytes, bytes, bytes]] = []
    for scope, digest, nonce in db.execute(query, values).fetchall():
        kept.append((scope, message_digest(digest, nonce), digest, nonce))
    insert = "INSERT INTO forgotten(scope, digest, words, nonce) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    db.executemany(insert, kept)


def _remember_facts(db: Database, numbers: Sequence[int]) -> None:
    """Keep the digests of facts, so that they are not learned again."""
    wanted, values = db.among("version", numbers)
    facts = db.execute(f"SELECT DISTINCT scope, id FROM facts WHERE {db.own}{wanted}", values).fetchall()
    insert = "INSERT INTO forgotten(scope, digest) VALUES (?, ?) ON CONFLICT DO NOTHING"
    db.executemany(insert, [(scope, fact_digest(fact)) for scope, fact in facts])


def _remove_passages(db: Database, messages: Sequence[int]) -> None:
    """Empty the passages of messages, and remove them from the index."""
    wanted, values = db.among("message", messages)
    query = f"SELECT number FROM passages WHERE {db.own}{wanted} ORDER BY number"
    passages = [passage for (passage,) in db.execute(query, values)]
    db.wipe_vectors(passages)
    empty_passages(db, passages)
    remove_from_index(db, passages)


def damaged_copies(path: Path) -> list[Path]:
    """List the damaged files that repairs of a store have kept next to it, and their logs."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.damaged.*"))


def delete_copies(copies: Iterable[Path]) -> None:
    """Delete copies next to a store: they may contain forgotten rows, which cannot be removed from them."""
    for copy in copies:
        try:
            copy.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"forgotten, but not deleted: {error.strerror}. Delete it.", path=copy) from error


def scrub(connection: SqliteDatabase, *, path: Path, copied_blocks: int = COPIED_BLOCKS) -> None:
    """Rewrite the file and empty the log, so that no page contains forgotten text.

    Deleting with zeros is not enough: when pages are balanced, copies of rows stay in the gaps. Copies of vectors are
    rewritten.
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
    if not connection.is_encrypted:  # a copy would be readable
        write_copies(connection, least=copied_blocks)
