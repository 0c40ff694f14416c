"""Vectors in a SQLite store: rows while they are new, blocks once all passages of a range have theirs.

A block is read at once, so that a store of a million passages opens quickly. Everything here runs in the caller's
transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.search.embed.base import Space
from holdfast.search.vectors import Bytes
from holdfast.store.base import VectorRow
from holdfast.store.index_merge import count_passages, decode_windows

__all__ = [
    "BLOCK_PASSAGES",
    "count_embedded",
    "drop",
    "merge_blocks",
    "passages_without_vectors",
    "put",
    "read_blocks",
    "read_rows",
    "space_number",
    "wipe",
]

BLOCK_PASSAGES: Final = 4096
"""The number of passages in a block."""


def space_number(connection: sqlite3.Connection, space: Space, *, create: bool) -> int | None:
    """Return the number of a space; None where nothing was embedded in it."""
    values = (space.name, space.dimension, space.digest)
    query = "SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?"
    known = connection.execute(query, values).fetchone()
    if known is not None:
        return int(known[0])
    if not create:
        return None
    insert = "INSERT INTO spaces(name, dimension, digest) VALUES (?, ?, ?)"
    return int(connection.execute(insert, values).lastrowid or 0)


def put(connection: sqlite3.Connection, row: VectorRow, space: int) -> int:
    """Store the vectors of a passage; return 0 where that passage does not exist."""
    query = "SELECT windows FROM passages WHERE number = ? AND alive = 1"
    known = connection.execute(query, (row.passage,)).fetchone()
    if known is None:
        return 0
    shape = (len(decode_windows(known[0])), row.space.dimension)
    if row.vectors.shape != shape or row.vectors.dtype != np.int8:
        raise InputError(f"passage {row.passage} takes {shape[0]} vectors of {shape[1]} signed bytes")
    insert = "INSERT OR REPLACE INTO vectors(space, passage, data) VALUES (?, ?, ?)"
    return int(connection.execute(insert, (space, row.passage, row.vectors.tobytes())).lastrowid or 0)


def merge_blocks(connection: sqlite3.Connection, space: int, *, dimension: int, passages: Iterable[int]) -> None:
    """Merge the vectors of every complete range with one of these passages into its block."""
    complete = count_passages(connection) // BLOCK_PASSAGES * BLOCK_PASSAGES
    for first in sorted({passage // BLOCK_PASSAGES * BLOCK_PASSAGES for passage in passages}):
        if first < complete:
            _merge_block(connection, space, dimension=dimension, first=first)


def _merge_block(connection: sqlite3.Connection, space: int, *, dimension: int, first: int) -> None:
    bounds = (first, first + BLOCK_PASSAGES)
    query = "SELECT passage, data FROM vectors WHERE space = ? AND passage >= ? AND passage < ?"
    known = connection.execute(f"SELECT count(*) FROM ({query})", (space, *bounds)).fetchone()[0]
    block = connection.execute(
        "SELECT data FROM vector_blocks WHERE space = ? AND first = ?", (space, first)
    ).fetchone()
    alive = "SELECT count(*) FROM passages WHERE number >= ? AND number < ? AND alive = 1"
    if block is None and known < connection.execute(alive, bounds).fetchone()[0]:
        return
    starts = _starts(connection, first)
    vectors = np.zeros((starts[-1], dimension), np.int8)
    if block is not None:
        vectors[:] = np.frombuffer(block[0], np.int8).reshape(vectors.shape)
    for passage, data in connection.execute(query, (space, *bounds)):
        vectors[starts[passage - first] : starts[passage - first + 1]] = np.frombuffer(data, np.int8).reshape(
            -1, dimension
        )
    _write_block(connection, space, first, vectors)
    connection.execute("DELETE FROM vectors WHERE space = ? AND passage >= ? AND passage < ?", (space, *bounds))


def _starts(connection: sqlite3.Connection, first: int) -> npt.NDArray[np.int64]:
    """Return where the windows of each passage of a range begin, counted from its first, and where the last ends."""
    query = "SELECT length(windows) / 12 FROM passages WHERE number >= ? AND number < ? ORDER BY number"
    counts = [windows for (windows,) in connection.execute(query, (first, first + BLOCK_PASSAGES))]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _write_block(connection: sqlite3.Connection, space: int, first: int, vectors: Bytes) -> None:
    insert = "INSERT OR REPLACE INTO vector_blocks(space, first, data) VALUES (?, ?, ?)"
    connection.execute(insert, (space, first, vectors.tobytes()))


def wipe(connection: sqlite3.Connection, passages: Sequence[int]) -> None:
    """Zero the vectors of these passages (in rising order), in every space."""
    connection.executemany("DELETE FROM vectors WHERE passage = ?", ((passage,) for passage in passages))
    for first, group in groupby(passages, key=lambda passage: passage // BLOCK_PASSAGES * BLOCK_PASSAGES):
        mine = list(group)
        query = "SELECT space, dimension, data FROM vector_blocks JOIN spaces ON spaces.id = space WHERE first = ?"
        for space, dimension, data in connection.execute(query, (first,)).fetchall():
            starts = _starts(connection, first)
            vectors = np.frombuffer(data, np.int8).reshape(-1, dimension).copy()
            for passage in mine:
                vectors[starts[passage - first] : starts[passage - first + 1]] = 0
            _write_block(connection, space, first, vectors)


def drop(connection: sqlite3.Connection, passages: Iterable[int]) -> None:
    """Delete the vectors of passages whose windows have changed, and their blocks: they are made again."""
    for passage in passages:
        connection.execute("DELETE FROM vectors WHERE passage = ?", (passage,))
        connection.execute("DELETE FROM vector_blocks WHERE first = ?", (passage // BLOCK_PASSAGES * BLOCK_PASSAGES,))


def read_blocks(connection: sqlite3.Connection, space: int, *, after: int) -> Iterator[tuple[int, int, bytes]]:
    """Read blocks written since: number, first passage, vectors."""
    query = "SELECT id, first, data FROM vector_blocks WHERE +space = ? AND id > ? ORDER BY id"
    return connection.execute(query, (space, after))


def read_rows(connection: sqlite3.Connection, space: int, *, after: int) -> Iterator[tuple[int, int, bytes]]:
    """Read rows written since: number, passage, vectors."""
    query = "SELECT id, passage, data FROM vectors WHERE +space = ? AND id > ? ORDER BY id"
    return connection.execute(query, (space, after))


def passages_without_vectors(connection: sqlite3.Connection, space: int | None, *, limit: int) -> list[int]:
    """List passages that have no vectors in a space yet, oldest first."""
    query = "SELECT first FROM vector_blocks WHERE space = ?"
    blocks = {first for (first,) in connection.execute(query, (space,))}
    missing: list[int] = []
    query = (
        "SELECT number FROM passages WHERE number >= ? AND number < ? AND alive = 1 AND number NOT IN"
        " (SELECT passage FROM vectors WHERE space = ?) ORDER BY number LIMIT ?"
    )
    for first in range(0, count_passages(connection), BLOCK_PASSAGES):
        if first not in blocks and len(missing) < limit:
            values = (first, first + BLOCK_PASSAGES, space, limit - len(missing))
            missing += [number for (number,) in connection.execute(query, values)]
    return missing


def count_embedded(connection: sqlite3.Connection, space: int | None) -> int:
    """Count the passages that have vectors in a space."""
    query = (
        "SELECT (SELECT count(*) FROM vectors WHERE space = :space) + (SELECT count(*) FROM vector_blocks JOIN passages"
        " ON number >= first AND number < first + :block AND alive = 1 WHERE space = :space)"
    )
    return int(connection.execute(query, {"space": space, "block": BLOCK_PASSAGES}).fetchone()[0])
