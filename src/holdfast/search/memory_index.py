"""The index of a store that has no index of its own: columns, posting lists and vectors in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from holdfast.search.columns import Columns, PassageRow
from holdfast.search.postings import Lists, Occurrences, Postings, gather, term_ids
from holdfast.search.unindexed import Unindexed

__all__ = ["MemoryIndex"]

BLOCK_PASSAGES: Final = 1024
"""Passages whose terms become posting lists together."""


class MemoryIndex:
    """An index that only grows."""

    def __init__(self) -> None:
        self.columns = Columns()
        self._runs: list[Lists] = []
        self._unindexed = Unindexed()

    def insert(self, row: PassageRow, terms: Iterable[str]) -> int:
        """Add a passage with the terms of its windows, one after the other; its number is returned."""
        if self._unindexed.stop - self._unindexed.first >= BLOCK_PASSAGES:
            self._runs.append(gather(*self._unindexed.occurrences(self.columns)))
            self._unindexed = Unindexed(self._unindexed.stop)
        number = self.columns.append(row)
        self._unindexed.append(term_ids(list(terms)))
        return number

    def postings(self, terms: Mapping[str, float]) -> list[tuple[Postings, float]]:
        """The posting list of each term, with its weight; empty for a term that stands nowhere."""
        numbers = term_ids(list(terms))
        runs = [*self._runs, self._unindexed.lists(numbers, self.columns)]
        lists = [_joined(runs, number) for number in numbers.tolist()]
        return list(zip(Postings.of(lists, self.columns), terms.values(), strict=True))


def _joined(runs: Iterable[Lists], term: int) -> Occurrences:
    """The list of a term in runs that follow each other."""
    windows, counts = map(np.concatenate, zip(*(run.of(term) for run in runs), strict=True))
    return windows, counts
