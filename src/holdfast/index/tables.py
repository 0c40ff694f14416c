"""Write the tables of the index.

    passages   one row for each passage; the index uses its numbers, windows and flags (rows are written by the store)
    pending    the terms of passages that are not indexed yet; a search reads all of it
    blocks     the columns of 512 passages each
    runs       the ranges of passages whose posting lists are together
    postings   the posting lists of a run, in pages

Passages are indexed 512 at a time: their columns become a block, their posting lists a run. Four runs of one size are
merged into one of the next size, so that there are few. All of it happens in the caller's transaction: archived
messages can be found at once, and a rollback undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.index import columns as columnar
from holdfast.index import postings as posting
from holdfast.index.columns import PASSAGE_TYPES, Columns
from holdfast.index.database import Database
from holdfast.index.postings import Lists, term_ids
from holdfast.index.query import PassageText

BLOCK_PASSAGES: Final = 512
"""The number of passages in a block and in a new run."""
RUNS_PER_MERGE: Final = 4
"""How many runs of one level are merged into one of the next."""
MAX_MERGES: Final = 3
"""How often a run is merged. The largest has 32,768 passages. A larger merge would make one writer wait for seconds."""

_WINDOW_BYTES: Final = 12
"""The size of a window in `passages.windows`: its start, its stop, and its number of terms."""


def index_passages(db: Database, first: int, passages: Sequence[PassageText]) -> None:
    """Index passages that were just stored with the numbers from `first` on."""
    _add_unindexed(db, range(first, first + len(passages)), passages)
    if (first + len(passages)) // BLOCK_PASSAGES > first // BLOCK_PASSAGES:
        index_full_batches(db)


def reindex_passages(db: Database, passages: Sequence[PassageText]) -> None:
    """Add stored passages to an index that was emptied, with their present windows and terms."""
    numbers = [passage.number - db.first_passage for passage in passages]
    windows = [encode_windows(passage) for passage in passages]
    update = f"UPDATE passages SET windows = ? WHERE {db.own}number = ?"
    db.executemany(update, list(zip(windows, numbers, strict=True)))
    _add_unindexed(db, numbers, passages)


def _add_unindexed(db: Database, numbers: Iterable[int], passages: Sequence[PassageText]) -> None:
    """Store the terms of passages until they are indexed."""
    words: list[str] = []
    stops: list[int] = []
    for passage in passages:
        for window_terms in passage.terms:
            words += window_terms
        stops.append(len(words))
    terms = term_ids(words)  # for all passages together, which takes a fraction of the time
    rows: list[tuple[int, bytes]] = []
    start = 0
    for number, stop in zip(numbers, stops, strict=True):
        rows.append((number, terms[start:stop].tobytes()))
        start = stop
    db.insert("pending", "number, terms", rows)


def encode_windows(passage: PassageText) -> bytes:
    """Encode the start, stop and number of terms of each window of a passage."""
    if not passage.windows or len(passage.windows) != len(passage.terms):
        raise InputError("a passage has at least one window, and terms for each")
    rows: list[tuple[int, int, int]] = []
    for (start, stop), terms in zip(passage.windows, passage.terms, strict=True):
        rows.append((start, stop, len(terms)))
    return np.array(rows, np.uint32).tobytes()


def decode_windows(data: bytes) -> npt.NDArray[np.uint32]:
    """Decode rows of start, stop and number of terms."""
    return np.frombuffer(data, np.uint32).reshape(-1, 3)


def count_passages(db: Database) -> int:
    """Count the passages, including forgotten ones."""
    return int(db.execute(f"SELECT coalesce(max(number) + 1, 0) FROM passages WHERE {db.own}true").fetchone()[0])


def count_indexed(db: Database) -> int:
    """Count the passages that are in runs."""
    return int(db.execute(f"SELECT coalesce(max(stop), 0) FROM runs WHERE {db.own}true").fetchone()[0])


def mark_rewritten(db: Database) -> None:
    """Make every process read the index again."""
    db.execute(f"UPDATE counters SET value = value + 1 WHERE {db.own}name = 'rewritten'")


PASSAGE_COLUMNS: Final = "SELECT message, scope, time, previous, human, alive, windows FROM passages"


def read_columns(db: Database, columns: Columns, *, first: int, stop: int) -> None:
    """Add the passages from `first` up to `stop` to columns."""
    query = f"{PASSAGE_COLUMNS} WHERE {db.own}number >= ? AND number < ? ORDER BY number"
    extend_columns(columns, db.execute(query, (first, stop)).fetchall())


def extend_columns(columns: Columns, rows: Sequence[Any]) -> None:
    """Add rows that `PASSAGE_COLUMNS` selected to columns."""
    if not rows:
        return
    *values, windows = zip(*rows, strict=True)
    arrays: dict[str, npt.NDArray[Any]] = {}
    names = ("message", "scope", "time", "previous", "human", "alive")
    for name, column in zip(names, values, strict=True):
        arrays[name] = np.array(column, PASSAGE_TYPES[name])
    spans = decode_windows(b"".join(windows))
    counts = np.fromiter(map(len, windows), np.int64) // _WINDOW_BYTES
    first = counts.cumsum() - counts
    last = first + counts - 1
    arrays["size"] = spans[last, 1] - spans[first, 0]
    arrays["length"] = np.add.reduceat(spans[:, 2], first)
    arrays["first_window"] = first
    arrays["passage"] = np.arange(len(rows)).repeat(counts)
    arrays["window_length"] = spans[:, 2]
    columns.extend(arrays)


def index_full_batches(db: Database, *, stop: int | None = None) -> None:
    """Put full batches of unindexed passages (up to `stop`) into blocks and runs, and merge runs."""
    first = count_indexed(db)
    if stop is None:
        stop = count_passages(db)
    if stop - first < BLOCK_PASSAGES:
        return
    for start in range(first, stop - BLOCK_PASSAGES + 1, BLOCK_PASSAGES):
        _index_batch(db, start)
    for level in range(MAX_MERGES):
        while _merge(db, level):
            pass


def _index_batch(db: Database, start: int) -> None:
    """Write the block and the run of the passages from `start` on."""
    stop = start + BLOCK_PASSAGES
    columns = Columns()
    read_columns(db, columns, first=start, stop=stop)
    query = f"SELECT first_window + windows FROM blocks WHERE {db.own}true ORDER BY first DESC LIMIT 1"
    (first_window,) = db.execute(query).fetchone() or (0,)
    block = (start, first_window, columns.windows, columnar.encode(columns))
    db.insert("blocks", "first, first_window, windows, data", [block])
    query = f"SELECT terms FROM pending WHERE {db.own}number >= ? AND number < ? ORDER BY number"
    terms = np.frombuffer(b"".join([data for (data,) in db.execute(query, (start, stop))]), np.int64)
    windows = np.arange(first_window, first_window + columns.windows, dtype=np.uint32)
    lists = posting.gather(windows.repeat(columns["window_length"]), terms)
    _write_run(db, lists, first=start, stop=stop, level=0)
    db.execute(f"DELETE FROM pending WHERE {db.own}number < ?", (stop,))


def _write_run(db: Database, lists: Lists, *, first: int, stop: int, level: int) -> None:
    db.insert("runs", "first, stop, level", [(first, stop, level)])
    db.insert("postings", "run, term, data", [(first, term, data) for term, data in posting.pages(lists)])


def _merge(db: Database, level: int) -> bool:
    """Merge the oldest runs of a level into one of the next; return False if there are too few."""
    query = f"SELECT first, stop FROM runs WHERE {db.own}level = ? ORDER BY first LIMIT ?"
    runs = db.execute(query, (level, RUNS_PER_MERGE)).fetchall()
    if len(runs) < RUNS_PER_MERGE:
        return False
    merged = posting.merge([read_run(db, first) for first, _ in runs])
    for first, _ in runs:
        db.execute(f"DELETE FROM postings WHERE {db.own}run = ?", (first,))
        db.execute(f"DELETE FROM runs WHERE {db.own}first = ?", (first,))
    first = runs[0][0]
    stop = runs[-1][1]
    _write_run(db, merged, first=first, stop=stop, level=level + 1)
    return True


def read_run(db: Database, run: int) -> Lists:
    """Read all posting lists of a run."""
    query = f"SELECT data FROM postings WHERE {db.own}run = ? ORDER BY term"
    return posting.chain([posting.decode(data) for (data,) in db.execute(query, (run,))])


# --- forgetting -----------------------------------------------------------------------


def remove_from_index(db: Database, passages: Sequence[int]) -> None:
    """Remove passages whose rows were emptied."""
    db.executemany(f"DELETE FROM pending WHERE {db.own}number = ?", [(passage,) for passage in passages])
    windows = _rewrite_blocks(db, passages)
    _remove_postings(db, passages, windows)
    mark_rewritten(db)


def _rewrite_blocks(db: Database, passages: Sequence[int]) -> npt.NDArray[np.int64]:
    """Rewrite the blocks of these passages; return the windows of the passages that are indexed."""
    found = [np.zeros(0, np.int64)]
    for first in sorted({passage // BLOCK_PASSAGES * BLOCK_PASSAGES for passage in passages}):
        block = db.execute(f"SELECT first_window FROM blocks WHERE {db.own}first = ?", (first,)).fetchone()
        if block is None:  # not indexed yet
            continue
        (first_window,) = block
        columns = Columns()
        read_columns(db, columns, first=first, stop=first + BLOCK_PASSAGES)
        db.execute(f"UPDATE blocks SET data = ? WHERE {db.own}first = ?", (columnar.encode(columns), first))
        is_removed = np.isin(columns["passage"] + first, np.array(passages))
        found.append(np.flatnonzero(is_removed) + first_window)
    return np.concatenate(found)


def _remove_postings(db: Database, passages: Sequence[int], windows: npt.NDArray[np.int64]) -> None:
    """Remove windows from every posting list of the runs that these passages are in."""
    for first, stop in db.execute(f"SELECT first, stop FROM runs WHERE {db.own}true").fetchall():
        if not any(first <= passage < stop for passage in passages):
            continue
        query = f"SELECT term, data FROM postings WHERE {db.own}run = ? ORDER BY term"
        pages = db.execute(query, (first,)).fetchall()
        for number in posting.pages_with(windows, [data for _, data in pages]):
            term, data = pages[number]
            kept = posting.without(posting.decode(data), windows)
            if len(kept.terms):
                update = f"UPDATE postings SET data = ? WHERE {db.own}run = ? AND term = ?"
                db.execute(update, (posting.encode(kept), first, term))
            else:
                db.execute(f"DELETE FROM postings WHERE {db.own}run = ? AND term = ?", (first, term))
