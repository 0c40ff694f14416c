"""The search index inside the SQLite file: posting lists in sorted runs, columns in blocks, vectors by passage.

New passages wait in `pending`, where a search reads them one by one. When enough have gathered they are
sealed into a run; runs of one size are merged into one of the next, so that their number stays small. All of
it happens in the transaction of the write that caused it: what is archived can be found in the same moment.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.search import columns as columnar
from holdfast.search.bm25 import Postings, decode_postings, encode_postings, term_id
from holdfast.search.columns import Columns, PassageRow
from holdfast.search.vectors import Matrix
from holdfast.store.base import PassageText, Space

__all__ = ["Index"]

SEALED: Final = 1024
"""Passages in a new run."""
FAN: Final = 8
"""Runs of one level that become one of the next."""


class Index:
    """What one process knows of the index: the columns, the terms still pending, the vectors it has loaded."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reset()

    def reset(self) -> None:
        """Forget what was learned, as after a transaction that was rolled back."""
        self.columns = Columns()
        self._sealed = 0
        self._pending: list[npt.NDArray[np.int64]] = []
        self._saved = 0
        self._gathered: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None = None
        self._matrices: dict[int, tuple[Matrix, int]] = {}
        self._forgotten = -1

    # --- reading -----------------------------------------------------------

    def refresh(self) -> None:
        """Learn what was written since the last time, by whatever process."""
        forgotten = self._connection.execute("SELECT value FROM counters WHERE name = 'forgotten'").fetchone()[0]
        if forgotten != self._forgotten:
            self.reset()
            self._forgotten = forgotten
        self._load_blocks()
        self._load_passages()
        self._load_pending()

    def _load_blocks(self) -> None:
        query = "SELECT data FROM blocks WHERE first >= ? ORDER BY first"
        for (data,) in self._connection.execute(query, (self.columns.passages,)):
            self.columns.extend(columnar.decode(data))

    def _load_passages(self) -> None:
        columns = "message, scope, time, previous, human, alive, windows"
        query = f"SELECT {columns} FROM passages WHERE number >= ? ORDER BY number"
        for message, scope, time, previous, human, alive, windows in self._connection.execute(
            query, (self.columns.passages,)
        ):
            spans = decode_windows(windows)
            number = self.columns.append(
                PassageRow(
                    message=message,
                    scope=scope,
                    time=time,
                    previous=previous,
                    human=bool(human),
                    size=int(spans[-1, 1] - spans[0, 0]),
                    window_lengths=tuple(spans[:, 2].tolist()),
                )
            )
            if not alive:
                self.columns.bury(number)

    def _load_pending(self) -> None:
        sealed = int(self._connection.execute("SELECT coalesce(max(stop), 0) FROM runs").fetchone()[0])
        if sealed != self._sealed:
            self._pending, self._gathered, self._sealed, self._saved = [], None, sealed, sealed
        query = "SELECT number, terms FROM pending WHERE number >= ? ORDER BY number"
        for number, data in self._connection.execute(query, (self._saved,)):
            while self._sealed + len(self._pending) < number:  # forgotten before it was sealed
                self._pending.append(np.zeros(0, np.int64))
            self._pending.append(np.frombuffer(data, np.int64))
            self._saved = number + 1
            self._gathered = None

    def postings(self, terms: Iterable[str]) -> list[Postings]:
        """The posting list of each term, empty for one that stands nowhere."""
        query = "SELECT data FROM postings WHERE run IN (SELECT first FROM runs) AND term = ? ORDER BY run"
        found: list[Postings] = []
        for number in map(term_id, terms):
            sealed = decode_postings([data for (data,) in self._connection.execute(query, (number,))])
            windows, counts = self._pending_postings(number)
            if len(windows):
                sealed = np.concatenate([sealed[0], windows]), np.concatenate([sealed[1], counts])
            found.append(sealed)
        return found

    def _pending_postings(self, term: int) -> Postings:
        if self._gathered is None:
            numbers = range(self._sealed, self._sealed + len(self._pending))
            self._gathered = _joined([_spread(self.columns, n) for n in numbers]), _joined(self._pending)
        windows, terms = self._gathered
        hits, counts = np.unique(windows[terms == term], return_counts=True)
        return hits.astype(np.uint32), np.minimum(counts, 255).astype(np.uint8)

    def matrix(self, space_id: int, space: Space) -> Matrix:
        """The vectors of a space, those of the newest passages included."""
        matrix, loaded = self._matrices.get(space_id, (Matrix(space.dimension), 0))
        first = self.columns["first_window"]
        query = "SELECT id, passage, data FROM vectors WHERE space = ? AND id > ? ORDER BY id"
        for number, passage, data in self._connection.execute(query, (space_id, loaded)):
            matrix.put(int(first[passage]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
            loaded = number
        self._matrices[space_id] = (matrix, loaded)
        return matrix

    # --- writing, inside the caller's transaction --------------------------

    def insert(self, passage: PassageText, row: PassageRow, encoded: bytes) -> None:
        """Add a passage. `seal` must follow in the same transaction."""
        number = self.columns.append(row)
        self._connection.execute(
            "INSERT INTO passages(number, message, scope, time, previous, human, start, windows, text)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(number, row.message, row.scope, row.time, row.previous, row.human),
                *(passage.start, encode_windows(passage), encoded),
            ),
        )
        terms = [term_id(term) for window in passage.terms for term in window]
        self._pending.append(np.array(terms, np.int64))
        self._gathered = None

    def seal(self) -> None:
        """Put full batches of new passages into runs, keep the rest as pending, merge runs that have become many."""
        while len(self._pending) >= SEALED:
            self._seal_run()
        self._connection.executemany(
            "INSERT INTO pending(number, terms) VALUES (?, ?)",
            (
                (number, self._pending[number - self._sealed].tobytes())
                for number in range(self._saved, self._sealed + len(self._pending))
            ),
        )
        self._saved = self._sealed + len(self._pending)
        level = 0
        while self._merge(level):
            level += 1

    def _seal_run(self) -> None:
        first, stop = self._sealed, self._sealed + SEALED
        windows = _joined([_spread(self.columns, number) for number in range(first, stop)])
        terms, lists = encode_postings(windows.astype(np.uint32), _joined(self._pending[:SEALED]))
        self._write_run(first, stop, 0, zip(terms.tolist(), lists, strict=True))
        self._connection.execute("DELETE FROM pending WHERE number < ?", (stop,))
        columns = columnar.encode(self.columns.cut(first, stop))
        self._connection.execute("INSERT INTO blocks(first, data) VALUES (?, ?)", (first, columns))
        self._pending, self._gathered = self._pending[SEALED:], None
        self._sealed, self._saved = stop, max(self._saved, stop)

    def _write_run(self, first: int, stop: int, level: int, lists: Iterable[tuple[int, bytes]]) -> None:
        self._connection.execute("INSERT INTO runs(first, stop, level) VALUES (?, ?, ?)", (first, stop, level))
        self._connection.executemany(
            "INSERT INTO postings(run, term, data) VALUES (?, ?, ?)", ((first, term, data) for term, data in lists)
        )

    def _merge(self, level: int) -> bool:
        query = "SELECT first, stop FROM runs WHERE level = ? ORDER BY first"
        runs = self._connection.execute(query, (level,)).fetchall()
        if len(runs) < FAN:
            return False
        merged = list(self._merged([first for first, _ in runs]))
        for first, _ in runs:
            self._connection.execute("DELETE FROM postings WHERE run = ?", (first,))
            self._connection.execute("DELETE FROM runs WHERE first = ?", (first,))
        self._write_run(runs[0][0], runs[-1][1], level + 1, merged)
        return True

    def _merged(self, runs: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        query = "SELECT term, data FROM postings WHERE run = ? ORDER BY term"
        streams = [self._connection.execute(query, (run,)) for run in runs]
        for term, rows in groupby(heapq.merge(*streams, key=itemgetter(0)), key=itemgetter(0)):
            lists = [data for _, data in rows]
            ends = [len(data) // 5 * 4 for data in lists]
            windows = b"".join(data[:end] for data, end in zip(lists, ends, strict=True))
            counts = b"".join(data[end:] for data, end in zip(lists, ends, strict=True))
            yield term, windows + counts


def encode_windows(passage: PassageText) -> bytes:
    """Where the windows of a passage start and stop in its text, and how many terms each has."""
    rows = [(start, stop, len(terms)) for (start, stop), terms in zip(passage.windows, passage.terms, strict=True)]
    return np.array(rows, np.uint32).reshape(-1, 3).tobytes()


def decode_windows(data: bytes) -> npt.NDArray[np.uint32]:
    """Rows of start, stop and number of terms."""
    return np.frombuffer(data, np.uint32).reshape(-1, 3)


def _spread(columns: Columns, number: int) -> npt.NDArray[np.int64]:
    """The window of each term occurrence of a passage; none for one that was forgotten."""
    windows = columns.window_range(number) if columns["alive"][number] else range(0)
    return np.repeat(np.arange(windows.start, windows.stop), columns["window_length"][windows.start : windows.stop])


def _joined(arrays: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
