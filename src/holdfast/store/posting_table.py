"""Posting lists in a SQLite store: looking up terms in every run."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from holdfast.search.postings import PAGE, Occurrences, find, windows_of_one

__all__ = ["EVERYTHING", "Sought", "read", "seek"]

EVERYTHING: Final = 2**31
"""Bytes that no page has."""

NOWHERE: Final[Occurrences] = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))

_SEEK: Final = """
WITH place(wanted, run, page) AS MATERIALIZED (
    SELECT value, first, (SELECT max(term) FROM postings WHERE run = first AND term <= value)
    FROM json_each(:terms) CROSS JOIN runs
)
SELECT wanted, postings.run, term, length(data), CASE WHEN length(data) <= :longest THEN data END
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


def seek(connection: sqlite3.Connection, terms: Sequence[int], *, longest: int = PAGE) -> dict[int, Sought]:
    """Look for terms in every run, and read their lists, but for those in pages longer than that."""
    found = {term: Sought(term) for term in terms}
    values = {"terms": json.dumps(terms), "longest": longest}
    for term, run, first, length, data in connection.execute(_SEEK, values):
        if data is not None:
            if held := find(data, term):
                found[term].lists[run] = held
        elif first == term:
            found[term].unread[run] = windows_of_one(length)
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
