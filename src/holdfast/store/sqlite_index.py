"""The search index of a SQLite store as one process has read it: columns, unindexed terms, vectors.

It is read from the tables and nothing else, so it is right whichever process wrote them.
"""

from __future__ import annotations

import json
import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from holdfast.search import columns as columnar
from holdfast.search.bm25 import Corpus, score, select_cheapest, select_rarest
from holdfast.search.candidates import Candidates, select_candidates
from holdfast.search.columns import Bools, Columns
from holdfast.search.embed.base import Space
from holdfast.search.postings import PAGE, Lists, Occurrences, Postings, Unindexed, find, term_ids, windows_of_one
from holdfast.search.vectors import Matrix
from holdfast.store.base import SearchQuery
from holdfast.store.index_tables import count_indexed, count_passages, read_columns, space_number

MAX_CACHED_BYTES: Final = 24 << 20
"""Posting lists cached in memory: the queries of one conversation share their words."""

MAX_CHEAP_WINDOWS: Final = 1_000_000
"""Where the terms of a query occur in no more windows than this, all of their lists are read at once."""


_NO_LIMIT: Final = 2**31
"""More bytes than a page has."""

_NO_OCCURRENCES: Final[Occurrences] = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))

_SEEK: Final = """
WITH place(wanted, run, page) AS MATERIALIZED (
    SELECT value, first, (SELECT max(term) FROM postings WHERE run = first AND term <= value)
    FROM json_each(:terms) CROSS JOIN runs
)
SELECT wanted, postings.run, term, length(data), CASE WHEN length(data) <= :longest THEN data END
FROM place CROSS JOIN postings ON postings.run = place.run AND term = page
"""


class _PostingCache:
    """The indexed postings of the terms that were used last."""

    def __init__(self) -> None:
        self._postings: OrderedDict[int, Postings] = OrderedDict()
        self._size = 0

    def __contains__(self, term: int) -> bool:
        return term in self._postings

    def __getitem__(self, term: int) -> Postings:
        self._postings.move_to_end(term)
        return self._postings[term]

    def __setitem__(self, term: int, postings: Postings) -> None:
        self._postings[term] = postings
        self._size += postings.nbytes
        while self._size > MAX_CACHED_BYTES and len(self._postings) > 1:
            _, oldest = self._postings.popitem(last=False)
            self._size -= oldest.nbytes


@dataclass(slots=True)
class _LoadedVectors:
    """The vectors of a space, and the numbers of the last block and row that were read."""

    matrix: Matrix
    block: int = 0
    row: int = 0


@dataclass(frozen=True, slots=True)
class _TermLists:
    """The posting lists of a term by run: those that were read, and the sizes of those that were not."""

    term: int
    lists: dict[int, Occurrences] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of windows that the term occurs in."""
        return sum(len(windows) for windows, _ in self.lists.values()) + sum(self.unread.values())


class Index:
    """The index as of the last refresh."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reset()

    def reset(self) -> None:
        """Drop everything that was read."""
        self.columns = Columns()
        self._unindexed = Unindexed()
        self._cache = _PostingCache()
        self._loaded: dict[int, _LoadedVectors] = {}
        self._whole: Corpus | None = None
        self._rewritten = -1

    def search(self, query: SearchQuery, *, scopes: int) -> Candidates:
        """Search the present tables; `scopes` is how many there are."""
        self.refresh()
        required = query.scope.required(query.across)
        select = f"SELECT id FROM scopes WHERE {' AND '.join(f'{name} = ?' for name in required)}"
        readable = np.zeros(scopes, np.bool_)
        readable[[number for (number,) in self._connection.execute(select, tuple(required.values()))]] = True
        corpus = self.corpus(readable)
        keywords = score(self.postings(query.terms), corpus)
        cosine = centre = matrix = None
        if query.vector is not None and query.space is not None:
            matrix = self.matrix(query.space)
        if query.vector is not None and matrix is not None:
            seen = None if corpus.whole else corpus.visible.take(self.columns["passage"])
            cosine = matrix.cosine(query.vector, windows=self.columns.windows, visible=seen)
            centre = matrix.centre(query.vector, cosine, visible=seen)
        return select_candidates(
            corpus.columns,
            keywords,
            visible=corpus.visible,
            eligible=_eligible(corpus.columns, corpus.visible, query),
            cosine=cosine,
            centre=centre,
            limit=query.limit,
            neighbours=query.neighbours,
        )

    def refresh(self) -> None:
        """Read what any process has written since the last time, in the caller's transaction."""
        (rewritten,) = self._connection.execute("SELECT value FROM counters WHERE name = 'rewritten'").fetchone()
        if rewritten != self._rewritten:
            self.reset()
            self._rewritten = rewritten
        total = count_passages(self._connection)
        if total > self.columns.passages:
            known, stop = self._unindexed.first, count_indexed(self._connection)
            if stop > known:  # passages that were read one by one are read again, as a part of their block
                self.columns.truncate(known)
                query = "SELECT data FROM blocks WHERE first >= ? ORDER BY first"
                self.columns.extend(*(columnar.decode(data) for (data,) in self._connection.execute(query, (known,))))
                self._unindexed = Unindexed(stop)
                self._cache = _PostingCache()
            read_columns(self._connection, self.columns, first=self.columns.passages, stop=total)
            query = "SELECT number, terms FROM pending WHERE number >= ? ORDER BY number"
            for number, data in self._connection.execute(query, (self._unindexed.stop,)):
                self._unindexed.pad(number)
                self._unindexed.append(np.frombuffer(data, np.int64))
            self._unindexed.pad(total)

    def corpus(self, scopes: Bools) -> Corpus:
        """Return the corpus of these scopes. That of all scopes is cached."""
        if self._whole is None or self._whole.columns.passages < self.columns.passages:
            columns = self.columns.snapshot()
            self._whole = Corpus.of(columns, columns["alive"])
        if scopes.all():
            return self._whole
        columns = self._whole.columns
        return Corpus.of(columns, columns["alive"] & scopes.take(columns["scope"]))

    def postings(self, terms: Mapping[str, float]) -> list[tuple[Postings, float]]:
        """Read the postings of terms, with their weights; empty for a term that does not occur.

        In a large store only those terms are read that tell most and can be looked at in time.
        """
        numbers = term_ids(list(terms))
        weights = dict(zip(numbers.tolist(), terms.values(), strict=True))
        cheap = len(weights) * self.columns.windows <= MAX_CHEAP_WINDOWS
        missing = [term for term in weights if term not in self._cache]
        sought = _find_lists(self._connection, missing, longest=_NO_LIMIT if cheap else PAGE)
        fresh = self._unindexed.lists(numbers, self.columns)
        chosen = list(weights) if cheap else self._select_terms(list(weights), sought, fresh)
        sealed = {term: self._cache[term] for term in chosen if term not in sought}
        unread = [term for term in chosen if term in sought]
        lists = [_read_list(self._connection, sought[term]) for term in unread]
        made = Postings.of([*lists, *map(fresh.of, chosen)], self.columns)
        for term, postings in zip(unread, made, strict=False):
            sealed[term] = self._cache[term] = postings.copy()
        later = dict(zip(chosen, made[len(unread) :], strict=True))
        return [(sealed[term].then(later[term]), weights[term]) for term in chosen]

    def _select_terms(self, terms: Sequence[int], sought: Mapping[int, _TermLists], fresh: Lists) -> list[int]:
        """Choose the terms that distinguish most and can be read in time."""
        known = [sought[term].size if term in sought else len(self._cache[term].windows) for term in terms]
        sizes = [size + len(fresh.of(term)[0]) for term, size in zip(terms, known, strict=True)]
        chosen = set(select_cheapest(sizes)).intersection(select_rarest(sizes))
        return [terms[number] for number in sorted(chosen)]

    def matrix(self, space: Space) -> Matrix | None:
        """Return the vectors of a space, the newest included; None where there are none."""
        number = space_number(self._connection, space, create=False)
        if number is None:
            return None
        loaded = self._loaded.setdefault(number, _LoadedVectors(Matrix(space.dimension)))
        first_window = self.columns["first_window"]
        query = "SELECT id, {}, data FROM {} WHERE +space = ? AND id > ? ORDER BY id"
        blocks = self._connection.execute(query.format("first", "vector_blocks"), (number, loaded.block))
        for loaded.block, passage, data in blocks:
            loaded.matrix.store(int(first_window[passage]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
        rows = self._connection.execute(query.format("passage", "vectors"), (number, loaded.row))
        for loaded.row, passage, data in rows:
            loaded.matrix.store(int(first_window[passage]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
        return loaded.matrix


def _eligible(columns: Columns, visible: Bools, query: SearchQuery) -> Bools:
    """Return which of the visible passages the query does not exclude."""
    kept = visible
    if query.since is not None:
        times = columns["time"]
        kept = kept & ((times <= 0) | (times >= query.since))
    if query.newest is not None:
        numbers = np.flatnonzero(kept)
        kept = kept.copy()
        kept[numbers[: max(0, len(numbers) - query.newest)]] = False
    if query.without_messages:
        kept = kept & ~np.isin(columns["message"], np.array(list(query.without_messages)))
    if query.without_passages:
        kept = kept.copy()
        numbers = np.array([number for number in query.without_passages if 0 <= number < len(kept)], np.int64)
        kept[numbers] = False
    return kept


def _find_lists(connection: sqlite3.Connection, terms: Sequence[int], *, longest: int = PAGE) -> dict[int, _TermLists]:
    """Find terms in every run, and read their lists except those in pages longer than `longest`."""
    found = {term: _TermLists(term) for term in terms}
    values = {"terms": json.dumps(terms), "longest": longest}
    for term, run, first, length, data in connection.execute(_SEEK, values):
        if data is not None:
            if held := find(data, term):
                found[term].lists[run] = held
        elif first == term:
            found[term].unread[run] = windows_of_one(length)
    return found


def _read_list(connection: sqlite3.Connection, sought: _TermLists) -> Occurrences:
    """Read all windows of a term."""
    lists = dict(sought.lists)
    query = "SELECT data FROM postings WHERE run = ? AND term = ?"
    for run in sought.unread:
        (data,) = connection.execute(query, (run, sought.term)).fetchone()
        lists[run] = find(data, sought.term) or _NO_OCCURRENCES
    parts = [lists[run] for run in sorted(lists)]
    if len(parts) == 1:
        return parts[0]
    windows, counts = zip(_NO_OCCURRENCES, *parts, strict=True)
    return np.concatenate(windows), np.concatenate(counts)
