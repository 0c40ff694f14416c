"""Posting lists in a SQLite store: looking up a term in every run."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from holdfast.search.postings import PAGE, Occurrences, find, windows_of_one

__all__ = ["EVERYTHING", "Sought", "read", "seek"]

EVERYTHING: Final = 2**31
"""Bytes that no page has."""

NOWHERE: Final[Occurrences] = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))

_SEEK: Final = """
WITH place(run, page) AS MATERIALIZED (
    SELECT first, (SELECT max(term) FROM postings WHERE run = first AND term <= :term) FROM runs
)
SELECT postings.run, term, length(data), CASE WHEN length(data) <= :longest THEN data END
FROM place CROSS JOIN postings ON postings.run = place.run AND term = page
"""


@dataclass(frozen=True, slots=True)
class Sought:
    """The lists of a term: by run, those that were read and the sizes of those that were not."""

    term: int
    lists: dict[int, Occurrences] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """In how many windows the term stands."""
        return sum(len(windows) for windows, _ in self.lists.values()) + sum(self.unread.values())


def seek(connection: sqlite3.Connection, term: int, *, longest: int = PAGE) -> Sought:
    """Look for a term in every run, and read its lists, but for those in pages longer than that."""
    found = Sought(term)
    for run, first, length, data in connection.execute(_SEEK, {"term": term, "longest": longest}):
        if data is not None:
            if held := find(data, term):
                found.lists[run] = held
        elif first == term:
            found.unread[run] = windows_of_one(length)
    return found


def read(connection: sqlite3.Connection, sought: Sought) -> Occurrences:
    """All windows of a term."""
    lists = dict(sought.lists)
    query = "SELECT data FROM postings WHERE run = ? AND term = ?"
    for run in sought.unread:
        (data,) = connection.execute(query, (run, sought.term)).fetchone()
        lists[run] = find(data, sought.term) or NOWHERE
    parts = [lists[run] for run in sorted(lists)]
    if len(parts) == 1:
        return parts[0]
    windows, counts = zip(NOWHERE, *parts, strict=True)
    return np.concatenate(windows), np.concatenate(counts)
