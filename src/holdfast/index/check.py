"""Check whether the index matches the passages, without changing it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from holdfast.index import columns as columnar
from holdfast.index.database import Database
from holdfast.index.postings import decode
from holdfast.index.tables import BLOCK_PASSAGES, count_indexed, count_passages, decode_windows


def check_index(db: Database) -> list[str]:
    """List the differences between the index and the passages."""
    return list(_find_index_faults(db))


def _find_index_faults(db: Database) -> Iterator[str]:
    total = count_passages(db)
    indexed = count_indexed(db)
    if total != _count(db, f"SELECT count(*) FROM passages WHERE {db.own}true"):
        yield "numbers of passages are missing"
        return
    before = f"SELECT max(stop) FROM runs AS earlier WHERE {db.own}earlier.first < runs.first"
    if indexed > total or _count(db, f"SELECT count(*) FROM runs WHERE {db.own}first != coalesce(({before}), 0)"):
        yield "the runs of the index do not follow each other"
        return
    yield from _check_blocks(db, indexed)
    pending = dict(db.execute(f"SELECT number, terms FROM pending WHERE {db.own}true").fetchall())
    query = f"SELECT number, windows FROM passages WHERE {db.own}number >= ? AND alive = 1 ORDER BY number"
    for number, windows in db.execute(query, (indexed,)):
        terms = pending.get(number)
        if terms is None or len(terms) != 8 * int(decode_windows(windows)[:, 2].sum()):
            yield f"passage {number} is not in the index"
    if strays := _count(db, f"SELECT count(*) FROM pending WHERE {db.own}number < {indexed}"):
        yield f"{strays} passages are pending and sealed at once"
    yield from _check_postings(db)


def _check_blocks(db: Database, indexed: int) -> Iterator[str]:
    expected = 0
    window = 0
    blocks = f"SELECT first, first_window, windows, data FROM blocks WHERE {db.own}true ORDER BY first"
    for first, first_window, windows, data in db.execute(blocks).fetchall():
        query = f"SELECT alive, windows FROM passages WHERE {db.own}number >= ? AND number < ? ORDER BY number"
        rows = db.execute(query, (first, first + BLOCK_PASSAGES)).fetchall()
        alive = [bool(is_alive) for is_alive, _ in rows]
        lengths = np.concatenate([np.zeros(0, np.uint32), *[decode_windows(spans)[:, 2] for _, spans in rows]])
        try:
            arrays = columnar.decode(data)
            is_same = arrays["alive"].tolist() == alive and np.array_equal(arrays["window_length"], lengths)
        except (ValueError, IndexError):
            is_same = False
        if not is_same or (first, first_window, windows) != (expected, window, len(lengths)):
            yield f"the block of passages {first} to {first + BLOCK_PASSAGES - 1} does not match them"
        expected = first + BLOCK_PASSAGES
        window = first_window + windows
    if expected != indexed:
        yield f"{expected} passages are in blocks, {indexed} in runs"


def _check_postings(db: Database) -> Iterator[str]:
    for first, stop in db.execute(f"SELECT first, stop FROM runs WHERE {db.own}true ORDER BY first").fetchall():
        query = "SELECT min(first_window), max(first_window + windows) FROM blocks"
        query += f" WHERE {db.own}first >= ? AND first < ?"
        low, high = db.execute(query, (first, stop)).fetchone()
        for term, data in db.execute(f"SELECT term, data FROM postings WHERE {db.own}run = ?", (first,)):
            try:
                is_sound = low is not None and isinstance(data, bytes) and decode(data).is_sound(low, high)
            except (ValueError, IndexError):
                is_sound = False
            if not is_sound:
                yield f"the posting list of term {term} in run {first} is broken"
                break
    strays = _count(
        db,
        f"SELECT count(DISTINCT run) FROM postings WHERE {db.own}run NOT IN"
        f" (SELECT first FROM runs WHERE {db.own}true)",
    )
    if strays:
        yield f"{strays} runs of posting lists belong to nothing"


def _count(db: Database, query: str) -> int:
    return int(db.execute(query).fetchone()[0])
