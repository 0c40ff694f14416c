"""The search index of a store, or of one tenant, as one process has read it.

Everything in it comes from the tables, so it does not matter which process wrote them. It is kept between searches, and
each search first reads what was written since the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from holdfast.embed.base import Space
from holdfast.index import columns as columnar
from holdfast.index.bm25 import Corpus, Term, score
from holdfast.index.candidates import select_candidates
from holdfast.index.columns import Columns
from holdfast.index.database import Database, Rows
from holdfast.index.lookup import PostingLookup, QueryTerms
from holdfast.index.postings import Postings, Unindexed, term_ids
from holdfast.index.query import SearchQuery
from holdfast.index.scopes import Scopes, scope_condition
from holdfast.index.tables import PASSAGE_COLUMNS, extend_columns
from holdfast.index.vectors import Matrix
from holdfast.search.arrays import Bools
from holdfast.search.candidates import Candidates

_NO_VECTOR: Final = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Changes:
    """Statements for what was written since the last search."""

    counters: Rows
    blocks: Rows
    passages: Rows
    unindexed: Rows


@dataclass(slots=True)
class _LoadedVectors:
    """The vectors of a space, and the number of the last row that was read of each table of vectors."""

    matrix: Matrix
    last: dict[str, int] = field(default_factory=dict)


class Index:
    """The index as of the last search. All searches go through `search`.

    Attributes:
        columns: The data of each passage and window that ranking needs.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        """Drop everything that was read."""
        self.columns = Columns()
        self._unindexed = Unindexed()
        self._postings = PostingLookup()
        self._loaded: dict[Space, _LoadedVectors] = {}
        self._opened: dict[Space, Matrix] = {}
        self._whole: Corpus | None = None
        self._rewritten: int | None = None

    def search(self, db: Database, scopes: Scopes, query: SearchQuery) -> Candidates:
        """Find the most promising passages in the tables as they are now, in the caller's transaction.

        Statements are sent long before their rows are read. So a server answers all of the first part in one round
        trip, reads long posting lists while this process compares vectors, and reads vectors while this process ranks
        by words.
        """
        # Send the statements that are needed in any case.
        condition, values = scope_condition(db, query.scope.required(query.across))
        new_scopes = scopes.find_new(db)
        readable_scopes = db.execute(f"SELECT id FROM scopes WHERE {condition}", values)
        changes = self._find_changes(db)
        numbers = _number_terms(query)
        terms = QueryTerms(numbers=list(numbers.values()), own=len(query.terms))
        request = self._postings.request(db, terms, self.columns)
        space: Space | None = None
        vector = _NO_VECTOR
        if query.vector is not None:
            space = query.space
            vector = query.vector
        new_vectors = self._find_vectors(db, space)

        # Read what was written since the last search.
        scopes.add(db, new_scopes)
        readable = np.zeros(len(scopes), np.bool_)
        readable[[number for (number,) in readable_scopes]] = True
        if not self._apply_changes(changes):  # the tables were rewritten, and what was read before is outdated
            self._reset()
            return self.search(db, scopes, query)

        # Score the passages that the reader may see.
        corpus = self._make_corpus(readable)
        columns = corpus.columns
        chosen = self._postings.choose(db, terms, self.columns, self._unindexed, request)
        own_scopes = None  # a reader who may see all scopes needs no filter
        if not corpus.whole:
            own_scopes = readable
        matrix = self._open_matrix(db, space, new_vectors, own_scopes)
        visible_windows = None
        if matrix is not None and not corpus.whole:
            visible_windows = corpus.visible.take(self.columns["passage"])
        if matrix is not None:
            matrix.prefetch(vector, windows=self.columns.windows, visible=visible_windows)
        postings = self._postings.read(chosen, self.columns)
        keywords = score(_make_terms(query, numbers, postings), corpus)
        cosine = None
        centre = None
        if matrix is not None:
            cosine = matrix.cosine(vector, windows=self.columns.windows, visible=visible_windows)
            # Forgotten passages have no vectors. They must not count as passages whose vectors are missing.
            stored_windows = visible_windows
            if stored_windows is None and not corpus.visible.all():
                stored_windows = corpus.visible.take(self.columns["passage"])
            centre = matrix.centre(vector, cosine, visible=stored_windows)
        found = select_candidates(
            columns,
            keywords,
            visible=corpus.visible,
            eligible=_find_eligible(columns, corpus.visible, query, first=db.first_passage),
            cosine=cosine,
            centre=centre,
            limit=query.limit,
            neighbours=query.neighbours,
        )
        if db.first_passage:
            return replace(found, passages=found.passages + db.first_passage)
        return found

    # --- what was written since the last search ---------------------------------------

    def _find_changes(self, db: Database) -> _Changes:
        own = db.own
        known = self._unindexed.first
        # Passages are read one by one until their block is written, and then again as a part of the block. Blocks from
        # `known` on are not read yet. So passages are read from the end of the new blocks; if there are none, from the
        # last passage that was read.
        since = f"{own}number >= (SELECT coalesce(max(stop), ?) FROM runs WHERE {own}stop > ?) ORDER BY number"
        counters = (
            f"SELECT (SELECT value FROM counters WHERE {own}name = 'rewritten'),"
            f" (SELECT coalesce(max(stop), 0) FROM runs WHERE {own}true)"
        )
        return _Changes(
            counters=db.execute(counters),
            blocks=db.execute(f"SELECT data FROM blocks WHERE {own}first >= ? ORDER BY first", (known,)),
            passages=db.execute(f"{PASSAGE_COLUMNS} WHERE {since}", (self.columns.passages, known)),
            unindexed=db.execute(f"SELECT number, terms FROM pending WHERE {since}", (self._unindexed.stop, known)),
        )

    def _apply_changes(self, changes: _Changes) -> bool:
        """Add what was written; return False if the tables were rewritten and must be read again."""
        rewritten, indexed = changes.counters.fetchone()
        if self._rewritten is not None and self._rewritten != rewritten:
            return False
        self._rewritten = rewritten
        if indexed > self._unindexed.first:  # there are new blocks and runs
            self.columns.truncate(self._unindexed.first)
            self.columns.extend(*[columnar.decode(data) for (data,) in changes.blocks])
            self._unindexed = Unindexed(indexed)
            self._postings.clear()
        extend_columns(self.columns, changes.passages.fetchall())
        for number, data in changes.unindexed:
            self._unindexed.pad(number)
            self._unindexed.append(np.frombuffer(data, np.int64))
        self._unindexed.pad(self.columns.passages)
        return True

    def _make_corpus(self, readable: Bools) -> Corpus:
        """Return the corpus of the readable scopes. The corpus of all scopes is kept, because it takes long to make."""
        columns = self.columns.snapshot()
        if not readable.all():
            return Corpus.of(columns, columns["alive"] & readable.take(columns["scope"]))
        if self._whole is None or self._whole.columns.passages < columns.passages:
            self._whole = Corpus.of(columns, columns["alive"])
        return self._whole

    # --- vectors ----------------------------------------------------------------------

    def _find_vectors(self, db: Database, space: Space | None) -> Mapping[str, Rows]:
        """Select the vectors of a space that are not loaded yet, by table; none if they stay in the database."""
        if space is None or not 0 < self.columns.windows < db.max_loaded_windows:
            return {}
        loaded = self._loaded.get(space)
        if loaded is None:
            return db.find_vectors(space, after={})
        return db.find_vectors(space, after=loaded.last)

    def _open_matrix(
        self, db: Database, space: Space | None, new_vectors: Mapping[str, Rows], readable: Bools | None
    ) -> Matrix | None:
        """Return the vectors of a space; None if there are none. If there are very many, they stay in the database.

        `readable` are the scopes of the reader, None for all.
        """
        if space is None:
            return None
        if self.columns.windows >= db.max_loaded_windows:
            self._loaded.clear()
            scopes: list[int] | None = None
            if readable is not None:
                scopes = np.flatnonzero(readable).tolist()
            matrix = db.open_matrix(space, self.columns, scopes, self._opened.get(space))
            self._opened.clear()
            if matrix is not None:
                self._opened[space] = matrix
            return matrix
        if space not in self._loaded:
            matrix, last = db.open_vectors(space)
            self._loaded[space] = _LoadedVectors(matrix, last)
            new_vectors = {}  # they were selected as if nothing were loaded
        if not new_vectors:
            new_vectors = self._find_vectors(db, space)
        loaded = self._loaded[space]
        first_window = self.columns["first_window"]
        for table, rows in new_vectors.items():
            for number, passage, data in rows:
                vectors = np.frombuffer(data, np.int8).reshape(-1, space.dimension)
                loaded.matrix.store(int(first_window[passage]), vectors)
                loaded.last[table] = number
        if not loaded.last:  # no table has a vector of this space
            return None
        return loaded.matrix


# --- the query ------------------------------------------------------------------------


def _number_terms(query: SearchQuery) -> dict[str, int]:
    """Return the number of each term of a query, then of those related to them."""
    words = dict.fromkeys(query.terms)
    for related in query.related.values():
        words.update(dict.fromkeys(related))
    return dict(zip(words, term_ids(list(words)).tolist(), strict=True))


def _make_terms(query: SearchQuery, numbers: Mapping[str, int], postings: Mapping[int, Postings]) -> list[Term]:
    """Return the terms of a query whose postings were read, with their related terms that were read too."""
    terms: list[Term] = []
    for word, weight in query.terms.items():
        own = postings.get(numbers[word])
        if own is None:
            continue
        related: list[tuple[Postings, float]] = []
        for other, share in query.related.get(word, {}).items():
            found = postings.get(numbers[other])
            if found is not None:
                related.append((found, share))
        terms.append(Term(own, weight, related, word))
    return terms


def _find_eligible(columns: Columns, visible: Bools, query: SearchQuery, *, first: int) -> Bools:
    """Return which of the visible passages the query does not exclude; `first` is the number of the first passage."""
    eligible = visible
    if query.since is not None:
        times = columns["time"]
        eligible = eligible & ((times <= 0) | (times >= query.since))  # a time of 0 or less is not known
    if query.newest is not None:
        numbers = np.flatnonzero(eligible)
        older = max(0, len(numbers) - query.newest)
        eligible = eligible.copy()
        eligible[numbers[:older]] = False
    if query.without_messages:
        eligible = eligible & ~np.isin(columns["message"], np.fromiter(query.without_messages, np.int64))
    if query.without_passages:
        numbers = np.array(list(query.without_passages), np.int64) - first
        is_known = (numbers >= 0) & (numbers < len(eligible))
        eligible = eligible.copy()
        eligible[numbers[is_known]] = False
    return eligible
