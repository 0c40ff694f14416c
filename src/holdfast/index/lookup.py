"""Find the postings of a query's terms: in the cache, in the table `postings`, and among terms not indexed yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from holdfast.cache import LruCache
from holdfast.index.bm25 import select_cheapest, select_rarest
from holdfast.index.columns import Columns
from holdfast.index.database import Database, Rows
from holdfast.index.postings import NO_OCCURRENCES, PAGE, Occurrences, Postings, Unindexed, find, windows_of_one

MAX_CACHED_BYTES: Final = 24 << 20
"""The memory for the postings of recently used terms. The queries of one conversation share many words."""
MAX_CACHED_SIZES: Final = 50_000
"""For how many terms the number of windows is kept."""
MAX_CHEAP_WINDOWS: Final = 1_000_000
"""If the terms of a query can occur in no more windows than this, all of their lists are read at once, and so are those
of related terms. In a larger store the sizes are read first."""

_NO_LIMIT: Final = 2**31
"""More bytes than a page has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTerms:
    """The numbers of a query's terms, then those of related terms, which are not used in a large store."""

    numbers: list[int]
    own: int

    @property
    def own_numbers(self) -> list[int]:
        """The terms of the query itself."""
        return self.numbers[: self.own]


@dataclass(frozen=True, slots=True)
class _TermLists:
    """The posting lists of a term by run: those that were read, and the sizes of those that were too long to read."""

    lists: dict[int, Occurrences] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of windows that the term occurs in."""
        read = sum(len(windows) for windows, _ in self.lists.values())
        return read + sum(self.unread.values())

    def in_order(self) -> list[Occurrences]:
        """Return the lists in the order of their runs, which is that of their windows."""
        return [self.lists[run] for run in sorted(self.lists)]


@dataclass(frozen=True, slots=True)
class ListRequest:
    """A statement for the posting lists of some terms, in pages of up to `max_bytes`. Nothing is read yet."""

    terms: list[int]
    max_bytes: int
    rows: Rows | None

    def read(self) -> dict[int, _TermLists]:
        """Read the lists of each term."""
        found = {term: _TermLists() for term in self.terms}
        for term, run, first_term, length, data in self.rows or ():
            if data is not None:
                occurrences = find(data, term)
                if occurrences is not None:
                    found[term].lists[run] = occurrences
            elif first_term == term:  # a long list has a page of its own
                found[term].unread[run] = windows_of_one(length)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenTerms:
    """The terms of a query that are used, and the sources of their postings.

    Attributes:
        terms: The terms, those of the query first.
        lists: The lists of the terms that are not cached, as far as they were read.
        long_lists: The statement for those that are long.
        unindexed: The occurrences in passages that are not indexed yet.
    """

    terms: Sequence[int]
    lists: Mapping[int, _TermLists]
    long_lists: ListRequest
    unindexed: Mapping[int, Occurrences]


class PostingLookup:
    """Looks up the postings of terms, and caches those of indexed passages."""

    def __init__(self) -> None:
        self._cache: LruCache[int, Postings] = LruCache(MAX_CACHED_BYTES, weigh=lambda postings: postings.nbytes)
        self._sizes: dict[int, int] = {}

    def clear(self) -> None:
        """Drop what is cached, because the lists have changed."""
        self._cache.clear()
        self._sizes.clear()

    def request(self, db: Database, terms: QueryTerms, columns: Columns) -> ListRequest:
        """Select the lists that are probably needed, before it is known what other processes have written."""
        missing, max_bytes = self._find_missing(terms, columns)
        return _select_lists(db, missing, max_bytes)

    def _find_missing(self, terms: QueryTerms, columns: Columns) -> tuple[list[int], int]:
        """Return the terms whose lists must be asked for, and the longest page to read; 0 before the first passage."""
        if not columns.passages:
            return list(terms.numbers), 0
        if terms.own * columns.windows <= MAX_CHEAP_WINDOWS:
            return [term for term in terms.numbers if term not in self._cache], _NO_LIMIT
        unknown = [term for term in terms.own_numbers if term not in self._cache and term not in self._sizes]
        return unknown, PAGE

    def choose(
        self, db: Database, terms: QueryTerms, columns: Columns, unindexed: Unindexed, request: ListRequest
    ) -> ChosenTerms:
        """Choose the terms to use, and ask for their long lists.

        In a large store these are the terms that distinguish most and can be read in time.
        """
        if not columns.passages:
            return ChosenTerms(terms=[], lists={}, long_lists=_select_lists(db, [], 0), unindexed={})
        missing, max_bytes = self._find_missing(terms, columns)
        if max_bytes != request.max_bytes or not set(missing) <= set(request.terms):
            request = _select_lists(db, missing, max_bytes)  # the index has changed since the request was made
        found = request.read()
        fresh = unindexed.lists(np.array(terms.numbers, np.int64), columns).by_term()
        chosen = terms.numbers
        if max_bytes != _NO_LIMIT:
            chosen = self._select_terms(terms.own_numbers, found, fresh)
        # For these terms only the size was known, from an earlier query.
        skipped = [term for term in chosen if term not in found and term not in self._cache]
        if skipped:
            found |= _select_lists(db, skipped, max_bytes).read()
        lists = {term: found[term] for term in chosen if term in found}
        long_terms = [term for term, known in lists.items() if known.unread]
        return ChosenTerms(
            terms=chosen, lists=lists, long_lists=_select_lists(db, long_terms, _NO_LIMIT), unindexed=fresh
        )

    def _select_terms(
        self, terms: Sequence[int], found: Mapping[int, _TermLists], fresh: Mapping[int, Occurrences]
    ) -> list[int]:
        """Choose the terms that distinguish most and can be read in time, by the number of windows of each."""
        for term, known in found.items():
            self._sizes[term] = known.size
        sizes: list[int] = []
        for term in terms:
            if term in self._cache:
                size = len(self._cache[term].windows)
            else:
                size = self._sizes[term]
            fresh_windows, _ = fresh.get(term, NO_OCCURRENCES)
            sizes.append(size + len(fresh_windows))
        if len(self._sizes) > MAX_CACHED_SIZES:
            self._sizes.clear()
        chosen = set(select_cheapest(sizes)).intersection(select_rarest(sizes))
        return [terms[place] for place in sorted(chosen)]

    def read(self, chosen: ChosenTerms, columns: Columns) -> dict[int, Postings]:
        """Return the postings of the chosen terms; empty for a term that does not occur."""
        # These are taken from the cache first, because adding others may drop them.
        indexed = {term: self._cache[term] for term in chosen.terms if term not in chosen.lists}
        by_run = {**chosen.lists, **chosen.long_lists.read()}
        lists = [known.in_order() for known in by_run.values()]
        lists += [[chosen.unindexed.get(term, NO_OCCURRENCES)] for term in chosen.terms]
        # All lists are turned into postings together: most are short, and the array operations cost more than the data.
        made = Postings.of(lists, columns)
        for term, postings in zip(by_run, made, strict=False):
            own_copy = postings.copy()
            indexed[term] = own_copy
            self._cache[term] = own_copy
        joined = Postings.join([indexed[term] for term in chosen.terms], made[len(by_run) :])
        return dict(zip(chosen.terms, joined, strict=True))


def _select_lists(db: Database, terms: list[int], max_bytes: int) -> ListRequest:
    """Select the lists of terms in every run. For a page that is longer than `max_bytes`, select only its length."""
    if not terms or not max_bytes:
        return ListRequest([], max_bytes, None)
    each, value = db.each(terms)
    query = (
        "WITH place(wanted, run, page) AS MATERIALIZED (SELECT value, first,"
        f" (SELECT max(term) FROM postings WHERE {db.own}run = first AND term <= value)"
        f" FROM {each} CROSS JOIN runs WHERE {db.own}true)"
        " SELECT wanted, postings.run, term, length(data), CASE WHEN length(data) <= ? THEN data END"
        f" FROM place CROSS JOIN postings WHERE {db.own}postings.run = place.run AND term = page"
    )
    return ListRequest(terms, max_bytes, db.execute(query, (value, max_bytes)))
