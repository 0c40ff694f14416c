"""The vectors of a SQLite store.

New vectors are rows, one for each passage. Once all passages of a range have theirs, they become a block, which is read
at once.
"""

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
    """Return the number of a space; None if nothing was embedded in it and it is not created."""
    values = (space.name, space.dimension, space.digest)
    query = "SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?"
    known = connection.execute(query, values).fetchone()
    if known is not None:
        return int(known[0])
    if not create:
        return None
    return connection.insert_numbered("spaces", "name, dimension, digest", [values])[0]


def _first_of_block(passage: int) -> int:
    """Return the first passage of the block that a passage belongs to."""
    return passage // VECTOR_BLOCK_PASSAGES * VECTOR_BLOCK_PASSAGES


def add_vectors(connection: Database, rows: Sequence[VectorRow]) -> int:
    """Store the vectors of passages, and merge complete ranges into blocks; return how many passages exist."""
    added: dict[Space, list[int]] = {}
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
        added.setdefault(row.space, []).append(row.passage)
    last_complete = _first_of_block(count_passages(connection)) - VECTOR_BLOCK_PASSAGES
    for row_space, passages in added.items():
        for first in sorted({_first_of_block(passage) for passage in passages}):
            if first <= last_complete:
                _merge_vectors(connection, row_space, first)
    return sum(len(passages) for passages in added.values())


def _merge_vectors(connection: Database, space: Space, first: int) -> None:
    """Merge the vectors of a range of passages into its block, if all of them have theirs."""
    number = space_number(connection, space, create=True)
    stop = first + VECTOR_BLOCK_PASSAGES
    block = connection.execute(
        "SELECT data FROM vector_blocks WHERE space = ? AND first = ?", (number, first)
    ).fetchone()
    in_range = "space = ? AND passage >= ? AND passage < ?"
    (known,) = connection.execute(f"SELECT count(*) FROM vectors WHERE {in_range}", (number, first, stop)).fetchone()
    query = "SELECT count(*) FROM passages WHERE number >= ? AND number < ? AND alive = 1"
    (alive,) = connection.execute(query, (first, stop)).fetchone()
    if block is None and known < alive:
        return
    starts = _window_starts(connection, first)
    vectors = np.zeros((starts[-1], space.dimension), np.int8)
    if block is not None:
        vectors[:] = np.frombuffer(block[0], np.int8).reshape(vectors.shape)
    query = f"SELECT passage, data FROM vectors WHERE {in_range}"
    for passage, data in connection.execute(query, (number, first, stop)):
        rows = np.frombuffer(data, np.int8).reshape(-1, space.dimension)
        place = passage - first
        vectors[starts[place] : starts[place + 1]] = rows
    connection.execute(_WRITE_BLOCK, (number, first, vectors.tobytes()))
    connection.execute(f"DELETE FROM vectors WHERE {in_range}", (number, first, stop))


def _window_starts(connection: Database, first: int) -> npt.NDArray[np.int64]:
    """Return the first window of each passage of a block, and the end of the last one."""
    query = "SELECT length(windows) / 12 FROM passages WHERE number >= ? AND number < ? ORDER BY number"
    counts = [windows for (windows,) in connection.execute(query, (first, first + VECTOR_BLOCK_PASSAGES))]
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def wipe_vectors(connection: Database, passages: Sequence[int]) -> None:
    """Zero the vectors of these passages (in ascending order), in every space."""
    connection.executemany("DELETE FROM vectors WHERE passage = ?", [(passage,) for passage in passages])
    for first, group in groupby(passages, key=_first_of_block):
        members = list(group)
        query = "SELECT space, dimension, data FROM vector_blocks JOIN spaces ON spaces.id = space WHERE first = ?"
        for space, dimension, data in connection.execute(query, (first,)).fetchall():
            starts = _window_starts(connection, first)
            vectors = np.frombuffer(data, np.int8).reshape(-1, dimension).copy()
            for passage in members:
                place = passage - first
                vectors[starts[place] : starts[place + 1]] = 0
            connection.execute(_WRITE_BLOCK, (space, first, vectors.tobytes()))


def drop_vectors(connection: Database, passages: Iterable[int]) -> None:
    """Delete the vectors of passages whose windows have changed, and their blocks: they are made again."""
    for passage in passages:
        connection.execute("DELETE FROM vectors WHERE passage = ?", (passage,))
        connection.execute("DELETE FROM vector_blocks WHERE first = ?", (_first_of_block(passage),))


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
