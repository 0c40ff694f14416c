"""Forget for good: rows, posting lists, vectors; of a SQLite store also free pages and the write-ahead log."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.errors import StorageError
from holdfast.index.database import Database
from holdfast.index.tables import remove_from_index
from holdfast.store import figures
from holdfast.store.adding import empty_passages, fact_digest, message_digest
from holdfast.store.base import Kind
from holdfast.store.connection import COPIED_BLOCKS, SqliteDatabase
from holdfast.store.rows import KEY
from holdfast.store.vector_file import list_copies, write_copies

REPAIR_FOLDER: Final = ".repair-"
"""How the name begins of the folder in which a repair reads a copy of the store."""
REPAIR_COPY: Final = "copy.db"
"""The name of that copy."""
CONVERTED: Final = ".converted"
"""How the name ends of the file that a conversion writes."""
_STAMP: Final = "[0-9]" * 8 + "T" + "[0-9]" * 6 + "Z"
"""The time in the names of files that a repair writes, as a pattern."""


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
    file = path.resolve()  # they are next to the file, not next to a link to it
    return sorted(file.parent.glob(f"{glob.escape(file.name)}.damaged.*"))


def unfinished_copies(path: Path) -> list[Path]:
    """List what killed repairs and conversions of a store have left next to it: parts of copies, which nobody needs."""
    file = path.resolve()
    found: list[Path] = []
    for ending in (f".repaired.{_STAMP}", CONVERTED):
        for log in ("", "-*"):
            found += file.parent.glob(f"{glob.escape(file.name)}{ending}{log}")
    for folder in file.parent.glob(f"{REPAIR_FOLDER}*"):
        if not folder.is_symlink():  # else the files are somewhere else, and not ours
            found += folder.glob(f"{REPAIR_COPY}*")
    return sorted(found)


def delete_copies(copies: Iterable[Path]) -> None:
    """Delete copies next to a store: they may contain forgotten rows, which cannot be removed from them."""
    for copy in copies:
        try:
            copy.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"could not be deleted: {error.strerror}. It may contain what is forgotten: delete it.", path=copy
            ) from error
        if copy.parent.name.startswith(REPAIR_FOLDER):
            with suppress(OSError):  # there are more of them
                copy.parent.rmdir()


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
