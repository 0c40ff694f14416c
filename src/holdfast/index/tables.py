"""The tables of the index of a store: passages and posting lists.

The terms of new passages go to the table `pending`, which a search reads whole. Every 512 passages are indexed: their
columns become a block, their posting lists a run. Four runs of one size are merged into one of the next, so that there
are few. All of it happens in the caller's transaction: what is archived can be found at once, and a rollback undoes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, pairwise
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
"""Passages in a block and in a new run."""
RUNS_PER_MERGE: Final = 4
"""Runs of one level that become one of the next."""
MAX_MERGES: Final = 3
"""How often a run is merged. The largest has 32,768 passages; merging more would make one writer wait for seconds."""

_SPAN: Final = 12
"""Bytes of a window: its start, its stop, and its number of terms."""


def index_passages(db: Database, first: int, passages: Sequence[PassageText]) -> None:
    """Index passages that were just stored with the numbers from `first` on."""
    _add_unindexed(db, range(first, first + len(passages)), passages)
    if (first + len(passages)) // BLOCK_PASSAGES > first // BLOCK_PASSAGES:
        index_full_batches(db)


def reindex_passages(db: Database, passages: Sequence[PassageText]) -> None:
    """Add stored passages to an index that was emptied, with their present windows and terms."""
    numbers = [passage.number - db.first_passage for passage in passages]
    update = f"UPDATE passages SET windows = ? WHERE {db.own}number = ?"
    db.executemany(update, list(zip(map(encode_windows, passages), numbers, strict=True)))
    _add_unindexed(db, numbers, passages)


def _add_unindexed(db: Database, numbers: Iterable[int], passages: Sequence[PassageText]) -> None:
    """Store the terms of passages until they are indexed."""
    by_window = chain.from_iterable(passage.terms for passage in passages)
    terms = term_ids(list(chain.from_iterable(by_window)))
    stops = accumulate((sum(map(len, passage.terms)) for passage in passages), initial=0)
    spans = zip(numbers, pairwise(stops), strict=True)
    db.insert("pending", "number, terms", [(number, terms[start:stop].tobytes()) for number, (start, stop) in spans])


def encode_windows(passage: PassageText) -> bytes:
    """Encode the start, stop and number of terms of each window of a passage."""
    if not passage.windows or len(passage.windows) != len(passage.terms):
        raise InputError("a passage has at least one window, and terms for each")
    rows = [(start, stop, len(terms)) for (start, stop), terms in zip(passage.windows, passage.terms, strict=True)]
    return np.array(rows, np.uint32).tobytes()


def decode_windows(data: bytes) -> npt.NDArray[np.uint32]:
    """Decode rows of start, stop and number of terms."""
    return np.frombuffer(data, np.uint32).reshape(-1, 3)


def count_passages(db: Database) -> int:
    """Count the passages, forgotten ones included."""
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
    """Add rows of passages to columns."""
    if not rows:
        return
    *values, blobs = zip(*rows, strict=True)
    spans = decode_windows(b"".join(blobs))
    counts = np.fromiter(map(len, blobs), np.int64) // _SPAN
    starts = counts.cumsum() - counts
    names = ("message", "scope", "time", "previous", "human", "alive")
    columns.extend(
        {
            **{name: np.array(value, PASSAGE_TYPES[name]) for name, value in zip(names, values, strict=True)},
            "size": spans[starts + counts - 1, 1] - spans[starts, 0],
            "length": np.add.reduceat(spans[:, 2], starts),
            "first_window": starts,
            "passage": np.arange(len(rows)).repeat(counts),
            "window_length": spans[:, 2],
        }
    )


def index_full_batches(db: Database, *, stop: int | None = None) -> None:
    """Put full batches of unindexed passages (up to `stop`) into blocks and runs, and merge runs."""
    first, stop = count_indexed(db), count_passages(db) if stop is None else stop
    for start in range(first, stop - BLOCK_PASSAGES + 1, BLOCK_PASSAGES):
        end = start + BLOCK_PASSAGES
        columns = Columns()
        read_columns(db, columns, first=start, stop=end)
        query = f"SELECT first_window, windows FROM blocks WHERE {db.own}true ORDER BY first DESC LIMIT 1"
        last = db.execute(query).fetchone()
        first_window = sum(last or ())
        block = (start, first_window, columns.windows, columnar.encode(columns))
        db.insert("blocks", "first, first_window, windows, data", [block])
        query = f"SELECT terms FROM pending WHERE {db.own}number >= ? AND number < ? ORDER BY number"
        terms = np.frombuffer(b"".join(data for (data,) in db.execute(query, (start, end))), np.int64)
        windows = np.arange(first_window, first_window + columns.windows, dtype=np.uint32)
        _write_run(db, (start, end, 0), posting.gather(windows.repeat(columns["window_length"]), terms))
        db.execute(f"DELETE FROM pending WHERE {db.own}number < ?", (end,))
    for level in range(MAX_MERGES if stop - first >= BLOCK_PASSAGES else 0):
        while _merge(db, level):
            pass


def _write_run(db: Database, run: tuple[int, int, int], lists: Lists) -> None:
    db.insert("runs", "first, stop, level", [run])
    db.insert("postings", "run, term, data", [(run[0], term, data) for term, data in posting.pages(lists)])


def _merge(db: Database, level: int) -> bool:
    """Merge the oldest runs of a level into one, where there are enough."""
    query = f"SELECT first, stop FROM runs WHERE {db.own}level = ? ORDER BY first LIMIT ?"
    runs = db.execute(query, (level, RUNS_PER_MERGE)).fetchall()
    if len(runs) < RUNS_PER_MERGE:
        return False
    merged = posting.merge([read_run(db, first) for first, _ in runs])
    for first, _ in runs:
        db.execute(f"DELETE FROM postings WHERE {db.own}run = ?", (first,))
        db.execute(f"DELETE FROM runs WHERE {db.own}first = ?", (first,))
    _write_run(db, (runs[0][0], runs[-1][1], level + 1), merged)
    return True


def read_run(db: Database, run: int) -> Lists:
    """Read all posting lists of a run."""
    query = f"SELECT data FROM postings WHERE {db.own}run = ? ORDER BY term"
    return posting.chain([posting.decode(data) for (data,) in db.execute(query, (run,))])
