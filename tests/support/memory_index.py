"""An index in memory, to check scores against."""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.index.columns import Columns
from holdfast.index.postings import NO_OCCURRENCES, Lists, Postings, Unindexed, gather, term_ids
from support.passage_rows import PassageRow, append

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
        number = append(self.columns, row)
        self._unindexed.append(term_ids(list(terms)))
        return number

    def postings(self, terms: Mapping[str, float]) -> list[tuple[Postings, float]]:
        """The posting list of each term, with its weight; empty for a term that stands nowhere."""
        numbers = term_ids(list(terms))
        runs = [run.by_term() for run in (*self._runs, self._unindexed.lists(numbers, self.columns))]
        lists = [[run.get(number, NO_OCCURRENCES) for run in runs] for number in numbers.tolist()]
        return list(zip(Postings.of(lists, self.columns), terms.values(), strict=True))
