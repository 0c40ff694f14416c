"""What one process knows of the search index inside a SQLite store: columns, pending terms, vectors.

It is learned from the tables and from nothing else, so it is right whoever wrote them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.search import columns as columnar
from holdfast.search.bm25 import (
    FEW_TERMS,
    MOST_POSTINGS,
    POSTING,
    Postings,
    affordable,
    decode_postings,
    telling,
    term_id,
)
from holdfast.search.columns import Columns
from holdfast.search.embed.base import Space
from holdfast.search.pending import Pending
from holdfast.search.vectors import Matrix
from holdfast.store import vector_table
from holdfast.store.sealing import count, read_columns, sealed

__all__ = ["Index"]


@dataclass(slots=True)
class _Loaded:
    """The vectors of a space, and the numbers of the last block and row that are among them."""

    matrix: Matrix
    block: int = 0
    row: int = 0


class Index:
    """The index as of the last refresh."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reset()

    def reset(self) -> None:
        """Forget what was learned."""
        self.columns = Columns()
        self._pending = Pending()
        self._loaded: dict[int, _Loaded] = {}
        self._rewritten = -1

    def refresh(self) -> None:
        """Learn what was written since the last time, by whatever process. Runs in a transaction of the caller."""
        (rewritten,) = self._connection.execute("SELECT value FROM counters WHERE name = 'rewritten'").fetchone()
        if rewritten != self._rewritten:
            self.reset()
            self._rewritten = rewritten
        total = count(self._connection)
        if total > self.columns.passages:
            self._learn_sealed()
            read_columns(self._connection, self.columns, first=self.columns.passages, stop=total)
            self._learn_pending()

    def _learn_sealed(self) -> None:
        known, stop = self._pending.first, sealed(self._connection)
        if stop == known:
            return
        # Passages that were read one by one are read again, as a part of their block.
        self.columns.truncate(known)
        query = "SELECT data FROM blocks WHERE first >= ? ORDER BY first"
        for (data,) in self._connection.execute(query, (known,)):
            self.columns.extend(columnar.decode(data))
        self._pending = Pending(stop)

    def _learn_pending(self) -> None:
        query = "SELECT number, terms FROM pending WHERE number >= ? ORDER BY number"
        for number, data in self._connection.execute(query, (self._pending.stop,)):
            self._pending.pad(number)
            self._pending.append(np.frombuffer(data, np.int64))
        self._pending.pad(self.columns.passages)

    def postings(self, terms: Mapping[str, float], *, common: bool) -> list[tuple[Postings, float]]:
        """The posting lists of terms, with their weights; empty for a term that stands nowhere.

        Lists of terms too `common` to tell anything are long: they are read only on request, and never more than
        can be looked at in time.
        """
        numbers = [term_id(term) for term in terms]
        weights = list(terms.values())
        pending = [self._pending.postings(number, self.columns) for number in numbers]
        chosen = (
            range(len(numbers))
            if self._is_cheap(len(numbers), common=common)
            else self._chosen(numbers, pending, common=common)
        )
        return [(self._read(numbers[place], pending[place]), weights[place]) for place in chosen]

    def _is_cheap(self, terms: int, *, common: bool) -> bool:
        return terms * self.columns.windows <= MOST_POSTINGS and (common or terms <= FEW_TERMS)

    def _chosen(self, numbers: Sequence[int], pending: Sequence[Postings], *, common: bool) -> Sequence[int]:
        """Which terms are worth reading, and can be afforded."""
        sizes = [self._size(number) + len(fresh[0]) for number, fresh in zip(numbers, pending, strict=True)]
        telling_ones = range(len(sizes)) if common else telling(sizes, windows=self.columns.windows)
        return sorted(set(affordable(sizes)).intersection(telling_ones))

    def _size(self, term: int) -> int:
        query = "SELECT coalesce(sum(length(data)), 0) FROM postings WHERE run IN (SELECT first FROM runs) AND term = ?"
        return int(self._connection.execute(query, (term,)).fetchone()[0]) // POSTING

    def _read(self, term: int, pending: Postings) -> Postings:
        query = "SELECT data FROM postings WHERE run IN (SELECT first FROM runs) AND term = ? ORDER BY run"
        windows, counts = decode_postings([data for (data,) in self._connection.execute(query, (term,))])
        if not len(pending[0]):
            return windows, counts
        return np.concatenate([windows, pending[0]]), np.concatenate([counts, pending[1]])

    def matrix(self, number: int, space: Space) -> Matrix:
        """The vectors of a space, those of the newest passages included."""
        loaded = self._loaded.setdefault(number, _Loaded(Matrix(space.dimension)))
        first_window = self.columns["first_window"]
        for block, first, data in vector_table.read_blocks(self._connection, number, after=loaded.block):
            loaded.matrix.put(int(first_window[first]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
            loaded.block = block
        for row, passage, data in vector_table.read_rows(self._connection, number, after=loaded.row):
            loaded.matrix.put(int(first_window[passage]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
            loaded.row = row
        return loaded.matrix
