"""The index of a store that has no index of its own: columns, posting lists and vectors in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from holdfast.search.bm25 import Postings, decode_postings, encode_postings, term_id
from holdfast.search.columns import Columns, PassageRow
from holdfast.search.pending import Pending

__all__ = ["MemoryIndex"]

SEALED: Final = 1024
"""Passages whose terms become posting lists together."""


class MemoryIndex:
    """An index that only grows."""

    def __init__(self) -> None:
        self.columns = Columns()
        self._runs: list[dict[int, bytes]] = []
        self._pending = Pending()

    def insert(self, row: PassageRow, terms: Iterable[str]) -> int:
        """Add a passage with the terms of its windows, one after the other; its number is returned."""
        if self._pending.stop - self._pending.first >= SEALED:
            numbers, lists = encode_postings(*self._pending.gathered(self.columns))
            self._runs.append(dict(zip(numbers.tolist(), lists, strict=True)))
            self._pending = Pending(self._pending.stop)
        number = self.columns.append(row)
        self._pending.append(np.fromiter(map(term_id, terms), np.int64))
        return number

    def postings(self, terms: Mapping[str, float]) -> list[tuple[Postings, float]]:
        """The posting list of each term, with its weight; empty for a term that stands nowhere."""
        return [(self._postings(term_id(term)), weight) for term, weight in terms.items()]

    def _postings(self, term: int) -> Postings:
        windows, counts = decode_postings([run[term] for run in self._runs if term in run])
        fresh, times = self._pending.postings(term, self.columns)
        return np.concatenate([windows, fresh]), np.concatenate([counts, times])
