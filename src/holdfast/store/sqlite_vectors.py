"""The vectors of a SQLite store: rows while they are new; blocks, which are read at once, when all passages of a range
have theirs.
"""  # noqa: D205 - one sentence

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.embed.base import Space
from holdfast.errors import InputError
from holdfast.index.database import Database
from holdfast.index.tables import count_passages, decode_windows
from holdfast.store.base import VectorRow

VECTOR_BLOCK_PASSAGES: Final = 4096
"""Passages in a block of vectors."""

_WRITE_BLOCK: Final = "INSERT OR REPLACE INTO vector_blocks(space, first, data) VALUES (?, ?, ?)"


def space_number(connection: Database, space: Space, *, create: bool) -> int | None:
    """Return the number of a space; None where nothing was embedded in it."""
    values = (space.name, space.dimension, space.digest)
    query = "SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?"
    known = connection.execute(query, values).fetchone()
    if known is not None:
        return int(known[0])
    if not create:
        return None
    return connection.insert_numbered("spaces", "name, dimension, digest", [values])[0]


def add_vectors(connection: Database, rows: Sequence[VectorRow]) -> int:
    """Store the vectors of passages, and merge complete ranges into blocks; return how many passages exist."""
    touched: dict[Space, list[int]] = {}
    for row in rows:
        query = "SELECT windows FROM passages WHERE number = ? AND alive = 1"
        known = connection.execute(query, (row.passage,)).fetchone()
        if known is None:
            continue
        shape = (len(decode_windows(known[0])), row.space.dimension)
        if row.vectors.shape != shape or row.vectors.dtype != np.int8:
            raise InputError(f"passage {row.passage} takes {shape[0]} vectors of {shape[1]} signed bytes")
        insert = "INSERT OR REPLACE INTO vectors(space, passage, data) VALUES (?, ?, ?)"
        space = space_number(connection, row.space, create=True)
        connection.execute(insert, (space, row.passage, row.vectors.tobytes()))
        touched.setdefault(row.space, []).append(row.passage)
    complete = count_passages(connection) // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES
    for row_space, passages in touched.items():
        for first in sorted({passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES for passage in passages}):
            if first < complete:
                _merge_vectors(connection, row_space, first)
    return sum(map(len, touched.values()))


def _merge_vectors(connection: Database, space: Space, first: int) -> None:
    """Merge the vectors of a range of passages into its block, where all of them have theirs."""
    bounds = (space_number(connection, space, create=True), first, first + VECTOR_BLOCK_PASSAGES)
    query = "SELECT passage, data FROM vectors WHERE space = ? AND passage >= ? AND passage < ?"
    known = connection.execute(f"SELECT count(*) FROM ({query})", bounds).fetchone()[0]
    block = connection.execute("SELECT data FROM vector_blocks WHERE space = ? AND first = ?", bounds[:2]).fetchone()
    alive = "SELECT count(*) FROM passages WHERE number >= ? AND number < ? AND alive = 1"
    if block is None and known < connection.execute(alive, bounds[1:]).fetchone()[0]:
        return
    starts = _starts(connection, first)
    vectors = np.zeros((starts[-1], space.dimension), np.int8)
    if block is not None:
        vectors[:] = np.frombuffer(block[0], np.int8).reshape(vectors.shape)
    for passage, data in connection.execute(query, bounds):
        rows = np.frombuffer(data, np.int8).reshape(-1, space.dimension)
        vectors[starts[passage - first] : starts[passage - first + 1]] = rows
    connection.execute(_WRITE_BLOCK, (*bounds[:2], vectors.tobytes()))
    connection.execute("DELETE FROM vectors WHERE space = ? AND passage >= ? AND passage < ?", bounds)


def _starts(connection: Database, first: int) -> npt.NDArray[np.int64]:
    """Return where the windows of each passage of a range begin, counted from its first, and where the last ends."""
    query = "SELECT length(windows) / 12 FROM passages WHERE number >= ? AND number < ? ORDER BY number"
    counts = [windows for (windows,) in connection.execute(query, (first, first + VECTOR_BLOCK_PASSAGES))]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def wipe_vectors(connection: Database, passages: Sequence[int]) -> None:
    """Zero the vectors of these passages (in rising order), in every space."""
    connection.executemany("DELETE FROM vectors WHERE passage = ?", ((passage,) for passage in passages))
    for first, group in groupby(passages, key=lambda passage: passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES):
        mine = list(group)
        query = "SELECT space, dimension, data FROM vector_blocks JOIN spaces ON spaces.id = space WHERE first = ?"
        for space, dimension, data in connection.execute(query, (first,)).fetchall():
            starts = _starts(connection, first)
            vectors = np.frombuffer(data, np.int8).reshape(-1, dimension).copy()
            for passage in mine:
                vectors[starts[passage - first] : starts[passage - first + 1]] = 0
            connection.execute(_WRITE_BLOCK, (space, first, vectors.tobytes()))


def drop_vectors(connection: Database, passages: Iterable[int]) -> None:
    """Delete the vectors of passages whose windows have changed, and their blocks: they are made again."""
    for passage in passages:
        connection.execute("DELETE FROM vectors WHERE passage = ?", (passage,))
        connection.execute(
            "DELETE FROM vector_blocks WHERE first = ?", (passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES,)
        )


def passages_without_vectors(connection: Database, space: int | None, *, limit: int) -> list[int]:
    """List passages that have no vectors in a space yet, oldest first."""
    query = "SELECT first FROM vector_blocks WHERE space = ?"
    blocks = {first for (first,) in connection.execute(query, (space,))}
    missing: list[int] = []
    query = (
        "SELECT number FROM passages WHERE number >= ? AND number < ? AND alive = 1 AND number NOT IN"
        " (SELECT passage FROM vectors WHERE space = ?) ORDER BY number LIMIT ?"
    )
    for first in range(0, count_passages(connection), VECTOR_BLOCK_PASSAGES):
        if first not in blocks and len(missing) < limit:
            values = (first, first + VECTOR_BLOCK_PASSAGES, space, limit - len(missing))
            missing += [number for (number,) in connection.execute(query, values)]
    return missing


def count_embedded(connection: Database, space: int | None) -> int:
    """Count the passages that have vectors in a space."""
    query = (
        "SELECT (SELECT count(*) FROM vectors WHERE space = ?) + (SELECT count(*) FROM vector_blocks JOIN passages"
        " ON number >= first AND number < first + ? AND alive = 1 WHERE space = ?)"
    )
    return int(connection.execute(query, (space, VECTOR_BLOCK_PASSAGES, space)).fetchone()[0])
