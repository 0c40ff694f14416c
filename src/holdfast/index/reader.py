"""The search index of a store, or of one tenant, as one process has read it: columns, unindexed terms, vectors.

It is read from the tables and nothing else, so it is right whichever process wrote them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import numpy as np

from holdfast.embed.base import Space
from holdfast.index import columns as columnar
from holdfast.index.bm25 import Corpus, Term, score, select_cheapest, select_rarest
from holdfast.index.candidates import select_candidates
from holdfast.index.columns import Columns
from holdfast.index.database import Database, Rows
from holdfast.index.postings import (
    NO_OCCURRENCES,
    PAGE,
    Occurrences,
    Postings,
    Unindexed,
    find,
    term_ids,
    windows_of_one,
)
from holdfast.index.query import SearchQuery
from holdfast.index.scopes import Scopes, scope_condition
from holdfast.index.tables import PASSAGE_COLUMNS, extend_columns
from holdfast.index.vectors import Matrix
from holdfast.search.arrays import Bools
from holdfast.search.candidates import Candidates

MAX_CACHED_BYTES: Final = 24 << 20
"""Posting lists cached in memory: the queries of one conversation share their words."""

MAX_CACHED_SIZES: Final = 50_000

MAX_CHEAP_WINDOWS: Final = 1_000_000
"""Where the terms of a query occur in no more windows than this, all of their lists are read at once, and those of
related terms."""


_NO_LIMIT: Final = 2**31
"""More bytes than a page has."""

_NO_VECTOR: Final = np.zeros(0, np.float32)


class _PostingCache:
    """The indexed postings of the terms that were used last, and in how many windows terms occur that were not used."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
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
    """The vectors of a space, and the number of the last row that was read of each table of vectors."""

    matrix: Matrix
    last: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _TermLists:
    """The posting lists of a term by run: those that were read, and the sizes of those that were not."""

    lists: dict[int, Occurrences] = field(default_factory=dict)
    unread: dict[int, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of windows that the term occurs in."""
        return sum(len(windows) for windows, _ in self.lists.values()) + sum(self.unread.values())


@dataclass(frozen=True, slots=True)
class _Seek:
    """A search for the posting lists of terms that were not cached."""

    terms: list[int]
    longest: int
    rows: Rows | None

    def read(self) -> dict[int, _TermLists]:
        """Read the lists of terms in every run, except those in pages that are too long."""
        found = {term: _TermLists() for term in self.terms}
        for term, run, first, length, data in self.rows or ():
            if data is not None:
                if held := find(data, term):
                    found[term].lists[run] = held
            elif first == term:
                found[term].unread[run] = windows_of_one(length)
        return found


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The terms to use, their lists that are not cached, those of new passages, and long ones that were asked for."""

    terms: Sequence[int]
    unread: dict[int, _TermLists]
    fresh: Mapping[int, Occurrences]
    asked: _Seek

    def read_lists(self) -> list[list[Occurrences]]:
        """Read all windows of each term that is not cached, by run."""
        found = (self.unread | self.asked.read()).values()
        return [[lists.lists[run] for run in sorted(lists.lists)] for lists in found]


class Index:
    """The index as of the last search."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop everything that was read."""
        self.columns = Columns()
        self._unindexed = Unindexed()
        self._cache = _PostingCache()
        self._loaded: dict[Space, _LoadedVectors] = {}
        self._opened: dict[Space, Matrix] = {}
        self._whole: Corpus | None = None
        self._rewritten: int | None = None

    def search(self, db: Database, scopes: Scopes, query: SearchQuery) -> Candidates:
        """Search the present tables, in the caller's transaction.

        Whatever any process has written since the last search is read first. Everything is selected before anything is
        read, so that a server answers in one round trip.
        """
        space = query.space if query.vector is not None else None
        vector = _NO_VECTOR if query.vector is None else query.vector
        condition, values = scope_condition(db, query.scope.required(query.across))
        new_scopes = scopes.find_new(db)
        allowed = db.execute(f"SELECT id FROM scopes WHERE {condition}", values)
        changes = self._find_changes(db)
        words = list(dict.fromkeys(chain(query.terms, *query.related.values())))
        wanted, own = term_ids(words).tolist(), len(query.terms)
        seek = self._seek(db, *self._missing(wanted, own))
        vectors = self._find_vectors(db, space)
        scopes.add(db, new_scopes)
        readable = np.zeros(len(scopes), np.bool_)
        readable[[number for (number,) in allowed]] = True
        if not self._take_changes(*changes):
            self.reset()
            return self.search(db, scopes, query)
        corpus = self.corpus(readable)
        chosen = self._choose_terms(db, wanted, own, seek)
        cosine = centre = None
        matrix = self._matrix(db, space, vectors, None if corpus.whole else readable)
        if matrix is not None:
            seen = None if corpus.whole else corpus.visible.take(self.columns["passage"])
            matrix.prefetch(vector, windows=self.columns.windows, visible=seen)
        keywords = score(_make_terms(query, dict(zip(words, wanted, strict=True)), self._make_postings(chosen)), corpus)
        if matrix is not None:
            cosine = matrix.cosine(vector, windows=self.columns.windows, visible=seen)
            centre = matrix.centre(vector, cosine, visible=seen)
        found = select_candidates(
            corpus.columns,
            keywords,
            visible=corpus.visible,
            eligible=_eligible(corpus.columns, corpus.visible, query, first=db.first_passage),
            cosine=cosine,
            centre=centre,
            limit=query.limit,
            neighbours=query.neighbours,
        )
        return replace(found, passages=found.passages + db.first_passage) if db.first_passage else found

    def _find_changes(self, db: Database) -> tuple[Rows, Rows, Rows, Rows]:
        """Select what was written since the last search: counters, blocks, passages, terms that are not indexed."""
        own, known = db.own, self._unindexed.first
        # Passages that were read one by one are read again as a part of their block.
        since = f"{own}number >= (SELECT coalesce(max(stop), ?) FROM runs WHERE {own}stop > ?) ORDER BY number"
        counters = (
            f"SELECT (SELECT value FROM counters WHERE {own}name = 'rewritten'),"
            f" (SELECT coalesce(max(stop), 0) FROM runs WHERE {own}true)"
        )
        return (
            db.execute(counters),
            db.execute(f"SELECT data FROM blocks WHERE {own}first >= ? ORDER BY first", (known,)),
            db.execute(f"{PASSAGE_COLUMNS} WHERE {since}", (self.columns.passages, known)),
            db.execute(f"SELECT number, terms FROM pending WHERE {since}", (self._unindexed.stop, known)),
        )

    def _take_changes(self, counters: Rows, blocks: Rows, passages: Rows, pending: Rows) -> bool:
        """Take over what `_find_changes` selected; False where the index was rewritten and must be read anew."""
        rewritten, stop = counters.fetchone()
        if self._rewritten not in {None, rewritten}:
            return False
        self._rewritten = rewritten
        if stop > self._unindexed.first:
            self.columns.truncate(self._unindexed.first)
            self.columns.extend(*(columnar.decode(data) for (data,) in blocks))
            self._unindexed = Unindexed(stop)
            self._cache = _PostingCache()
        extend_columns(self.columns, passages.fetchall())
        for number, data in pending:
            self._unindexed.pad(number)
            self._unindexed.append(np.frombuffer(data, np.int64))
        self._unindexed.pad(self.columns.passages)
        return True

    def corpus(self, scopes: Bools) -> Corpus:
        """Return the corpus of these scopes. That of all scopes is cached."""
        columns = self.columns.snapshot()
        if not scopes.all():
            return Corpus.of(columns, columns["alive"] & scopes.take(columns["scope"]))
        if self._whole is None or self._whole.columns.passages < columns.passages:
            self._whole = Corpus.of(columns, columns["alive"])
        return self._whole

    def _missing(self, terms: Sequence[int], own: int) -> tuple[list[int], int]:
        """Return the terms that are not cached, and the longest page to read; 0 before the first passage.

        The first `own` terms are those of the query; others are related to them, and left out of a large store.
        """
        if not self.columns.passages:
            return list(terms), 0
        if own * self.columns.windows <= MAX_CHEAP_WINDOWS:
            return [term for term in terms if term not in self._cache], _NO_LIMIT
        return [term for term in terms[:own] if term not in self._cache and term not in self._cache.sizes], PAGE

    @staticmethod
    def _seek(db: Database, missing: list[int], longest: int) -> _Seek:
        """Select the lists of terms, and only the size of a longer one."""
        if not missing or not longest:
            return _Seek([], longest, None)
        each, value = db.each(missing)
        query = (
            "WITH place(wanted, run, page) AS MATERIALIZED (SELECT value, first,"
            f" (SELECT max(term) FROM postings WHERE {db.own}run = first AND term <= value)"
            f" FROM {each} CROSS JOIN runs WHERE {db.own}true)"
            " SELECT wanted, postings.run, term, length(data), CASE WHEN length(data) <= ? THEN data END"
            f" FROM place CROSS JOIN postings WHERE {db.own}postings.run = place.run AND term = page"
        )
        return _Seek(missing, longest, db.execute(query, (value, longest)))

    def _choose_terms(self, db: Database, terms: Sequence[int], own: int, seek: _Seek) -> _Chosen:
        """Choose the terms whose lists are read, and ask for those that are long.

        In a large store these are the terms that tell most and can be looked at in time.
        """
        terms = terms if self.columns.passages else []
        missing, longest = self._missing(terms, own)
        if longest != seek.longest or not set(missing) <= set(seek.terms):  # the index has changed since
            seek = self._seek(db, missing, longest)
        sought = seek.read()
        fresh = self._unindexed.lists(np.array(terms, np.int64), self.columns).by_term()
        chosen = terms if longest == _NO_LIMIT else self._select_terms(terms[:own], sought, fresh)
        if skipped := [term for term in chosen if term not in sought and term not in self._cache]:
            sought |= self._seek(db, skipped, longest).read()
        unread = {term: sought[term] for term in chosen if term in sought}
        asked = self._seek(db, [term for term, lists in unread.items() if lists.unread], _NO_LIMIT)
        return _Chosen(chosen, unread, fresh, asked)

    def _make_postings(self, chosen: _Chosen) -> dict[int, Postings]:
        """Return the postings of the chosen terms; empty for a term that does not occur."""
        sealed = {term: self._cache[term] for term in chosen.terms if term not in chosen.unread}
        lists = [*chosen.read_lists(), *([chosen.fresh.get(term, NO_OCCURRENCES)] for term in chosen.terms)]
        made = Postings.of(lists, self.columns)
        for term, postings in zip(chosen.unread, made, strict=False):
            sealed[term] = self._cache[term] = postings.copy()
        joined = Postings.join([sealed[term] for term in chosen.terms], made[len(chosen.unread) :])
        return dict(zip(chosen.terms, joined, strict=True))

    def _select_terms(
        self, terms: Sequence[int], sought: Mapping[int, _TermLists], fresh: Mapping[int, Occurrences]
    ) -> list[int]:
        """Choose the terms that distinguish most and can be read in time."""
        cache, known = self._cache, self._cache.sizes
        known.update((term, lists.size) for term, lists in sought.items())
        sizes = [len(cache[term].windows) if term in cache else known[term] for term in terms]
        sizes = [size + len(fresh.get(term, NO_OCCURRENCES)[0]) for term, size in zip(terms, sizes, strict=True)]
        if len(known) > MAX_CACHED_SIZES:
            known.clear()
        chosen = set(select_cheapest(sizes)).intersection(select_rarest(sizes))
        return [terms[number] for number in sorted(chosen)]

    def _matrix(
        self, db: Database, space: Space | None, found: Mapping[str, Rows], readable: Bools | None
    ) -> Matrix | None:
        """Return the vectors of a space: all of them, or those on the server if there are very many."""
        if space is None:
            return None
        if self.columns.windows >= db.max_loaded_windows:
            self._loaded.clear()
            scopes = None if readable is None else np.flatnonzero(readable).tolist()
            matrix = db.open_matrix(space, self.columns, scopes, self._opened.get(space))
            self._opened = {} if matrix is None else {space: matrix}
            return matrix
        if space not in self._loaded:
            self._loaded[space], found = _LoadedVectors(*db.open_vectors(space)), {}
        loaded, first_window = self._loaded[space], self.columns["first_window"]
        for table, rows in (found or self._find_vectors(db, space)).items():
            for number, passage, data in rows:
                vectors = np.frombuffer(data, np.int8).reshape(-1, space.dimension)
                loaded.matrix.store(int(first_window[passage]), vectors)
                loaded.last[table] = number
        return loaded.matrix if loaded.last else None

    def _find_vectors(self, db: Database, space: Space | None) -> Mapping[str, Rows]:
        """Select the vectors of a space that are not read yet, by table; none before their number is known."""
        if space is None or not 0 < self.columns.windows < db.max_loaded_windows:
            return {}
        loaded = self._loaded.get(space)
        return db.find_vectors(space, after={} if loaded is None else loaded.last)


def _make_terms(query: SearchQuery, numbers: Mapping[str, int], postings: Mapping[int, Postings]) -> list[Term]:
    """Return the terms of a query that were read, each with its related ones."""
    found = {word: postings[number] for word, number in numbers.items() if number in postings}
    terms: list[Term] = []
    for word in filter(found.__contains__, query.terms):
        related = query.related.get(word, {})
        near = [(found[other], share) for other, share in related.items() if other in found]
        terms.append(Term(found[word], query.terms[word], near))
    return terms


def _eligible(columns: Columns, visible: Bools, query: SearchQuery, *, first: int) -> Bools:
    """Return which of the visible passages the query does not exclude; `first` is the number of the first of all."""
    kept = visible
    if query.since is not None:
        times = columns["time"]
        kept = kept & ((times <= 0) | (times >= query.since))
    if query.newest is not None:
        numbers = np.flatnonzero(kept)
        kept = kept.copy()
        kept[numbers[: max(0, len(numbers) - query.newest)]] = False
    if query.without_messages:
        kept = kept & ~np.isin(columns["message"], np.fromiter(query.without_messages, np.int64))
    if query.without_passages:
        kept = kept.copy()
        numbers = np.array(list(query.without_passages), np.int64) - first
        kept[numbers[(numbers >= 0) & (numbers < len(kept))]] = False
    return kept
