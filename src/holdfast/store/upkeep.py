"""Rebuild the index of a SQLite store, copy it, and shrink it, while others use it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.errors import StorageError
from holdfast.search.passages import CUTTING
from holdfast.store.base import PassageText
from holdfast.store.connection import connect, migrate, translate_errors, write_transaction
from holdfast.store.cutting import cut_again, window_terms
from holdfast.store.forgetting import scrub
from holdfast.store.index_tables import (
    BLOCK_PASSAGES,
    count_passages,
    drop_vectors,
    index_full_batches,
    mark_rewritten,
    reindex_passages,
)
from holdfast.store.sqlite_rows import RowReader

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number done and the total."""

_WAIT: Final = 600.0
_PAGES: Final = 4096


@contextmanager
def _open_store(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    with closing(connect(path, wait=_WAIT)) as connection, translate_errors(path):
        migrate(connection, path=path)
        yield connection


def reindex(
    path: Path,
    *,
    terms_of: Callable[[PassageText], tuple[tuple[str, ...], ...]] = window_terms,
    progress: Progress | None = None,
) -> int:
    """Divide the passages into windows again and rebuild the keyword index; return the number of passages.

    Searches go on with the old index until the new one is complete, writers wait. Vectors stay, except those of
    passages that were cut otherwise.
    """
    with _open_store(path) as connection, write_transaction(connection):
        for table in ("pending", "runs", "postings", "blocks"):
            connection.execute(f"DELETE FROM {table}")
        total = count_passages(connection)
        rows = RowReader(connection)
        rows.load_scopes()
        for first in range(0, total, BLOCK_PASSAGES):
            stop = min(first + BLOCK_PASSAGES, total)
            query = "SELECT number FROM passages WHERE number >= ? AND number < ? AND alive = 1"
            alive = [number for (number,) in connection.execute(query, (first, stop))]
            found = rows.passages_of_all(alive)
            if rows.gaps:
                raise StorageError(f"{next(iter(rows.gaps))}. Nothing was changed.", path=path)
            cut = [cut_again(passage) for passage in found]
            pairs = zip(cut, found, strict=True)
            drop_vectors(connection, [new.number for new, old in pairs if new.windows != old.windows])
            reindex_passages(connection, [replace(passage, terms=terms_of(passage)) for passage in cut])
            index_full_batches(connection, stop=stop)
            if progress is not None:
                progress(stop, total)
        connection.execute("INSERT OR REPLACE INTO counters VALUES ('cutting', ?)", (CUTTING,))
        mark_rewritten(connection)
    return total


def backup(path: Path, target: Path, *, progress: Progress | None = None) -> None:
    """Copy a store to a new file that only its owner can read, while others write."""
    if target.exists():
        raise StorageError("is there already. Choose another name for the copy.", path=target)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    with _open_store(path) as connection, translate_errors(target):
        try:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        except OSError as error:
            raise StorageError(f"could not be made: {error.strerror}. Choose another place.", path=target) from error
        with closing(sqlite3.connect(part)) as copy:
            # One state of the store is read throughout; otherwise each write by others would start the copy over.
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            report = progress or (lambda _done, _total: None)
            connection.backup(copy, pages=_PAGES, progress=lambda _, left, total: report(total - left, total))
            connection.execute("COMMIT")
            copy.execute("PRAGMA journal_mode = DELETE")
    part.replace(target)


def vacuum(path: Path) -> tuple[int, int]:
    """Rewrite the file without free pages and deleted text; return its size before and after."""
    with _open_store(path) as connection:
        before = _size(connection)
        scrub(connection, path=path)
        return before, _size(connection)


def _size(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)
