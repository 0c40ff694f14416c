"""Term occurrences of passages that are in no posting list yet. A search looks through all of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Columns
from holdfast.search.postings import Lists, gather

__all__ = ["Terms", "Unindexed"]

Terms = npt.NDArray[np.int64]
"""The terms of a passage, window after window."""


class Unindexed:
    """The terms of the passages from `first` on."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self._terms: list[Terms] = []
        self._occurrences: tuple[npt.NDArray[np.uint32], Terms] | None = None
        self._ends: npt.NDArray[np.uint16] | None = None

    @property
    def stop(self) -> int:
        """The number of the passage after the last."""
        return self.first + len(self._terms)

    def append(self, terms: Terms) -> None:
        """Add the terms of the next passage."""
        self._terms.append(terms)
        self._occurrences = self._ends = None

    def pad(self, stop: int) -> None:
        """Leave room for passages that have no terms, because they were forgotten."""
        if stop > self.stop:
            self._terms += [np.zeros(0, np.int64)] * (stop - self.stop)
            self._occurrences = self._ends = None

    def occurrences(self, columns: Columns) -> tuple[npt.NDArray[np.uint32], Terms]:
        """All occurrences: the window and the term of each."""
        if self._occurrences is None:
            start = columns.window_range(self.first).start if self._terms else columns.windows
            lengths = columns["window_length"][start:]
            windows = np.repeat(np.arange(start, columns.windows, dtype=np.uint32), lengths)
            self._occurrences = windows, np.concatenate(self._terms or [np.zeros(0, np.int64)])
        return self._occurrences

    def lists(self, terms: Terms, columns: Columns) -> Lists:
        """The posting lists of these terms: all occurrences are looked through once."""
        windows, all_terms = self.occurrences(columns)
        if self._ends is None:
            self._ends = all_terms.astype(np.uint16)
        wanted = np.zeros(1 << 16, np.bool_)
        wanted[terms.astype(np.uint16)] = True
        hits = np.flatnonzero(wanted.take(self._ends))  # by the end of their numbers; few others have the same
        hits = hits[np.isin(all_terms[hits], terms)]
        return gather(windows[hits], all_terms[hits])
