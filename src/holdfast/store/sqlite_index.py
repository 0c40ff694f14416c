"""What one process knows of the search index inside a SQLite store: columns, pending terms, vectors.

It is learned from the tables and from nothing else, so it is right whoever wrote them.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.search import columns as columnar
from holdfast.search.bm25 import Corpus, score, select_cheapest, select_rarest
from holdfast.search.centering import Centering
from holdfast.search.columns import Bools, Columns, Floats
from holdfast.search.embed.base import Space
from holdfast.search.pending import Pending
from holdfast.search.postings import PAGE, Lists, Postings, term_ids
from holdfast.search.vectors import Matrix
from holdfast.store import posting_table, vector_table
from holdfast.store.base import Evidence, Question, Scope
from holdfast.store.posting_table import EVERYTHING, Sought
from holdfast.store.sealing import count, read_columns, sealed

__all__ = ["Index"]

REMEMBERED: Final = 24 << 20
"""Bytes of posting lists that are kept in memory, those asked for last: questions of one talk share their words."""

CHEAP: Final = 1_000_000
"""Where the terms of a question cannot stand in more windows than this, all of their lists are read at once."""


class _Remembered:
    """The sealed postings of the terms that were asked for last."""

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
        while self._size > REMEMBERED and len(self._postings) > 1:
            _, oldest = self._postings.popitem(last=False)
            self._size -= oldest.nbytes


@dataclass(slots=True)
class _Loaded:
    """The vectors of a space, and the numbers of the last block and row that are among them."""

    matrix: Matrix
    block: int = 0
    row: int = 0


class Index:
    """The index as of the last refresh."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reset()

    def reset(self) -> None:
        """Forget what was learned."""
        self.columns = Columns()
        self._pending = Pending()
        self._remembered = _Remembered()
        self._loaded: dict[int, _Loaded] = {}
        self._whole: Corpus | None = None
        self._rewritten = -1

    def match(self, question: Question, scopes: Sequence[Scope]) -> Evidence:
        """Say what every visible passage has to do with a question, by what is written now."""
        self.refresh()
        corpus = self.corpus(self._may_see(question, len(scopes)))
        keywords = score(self.postings(question.terms), corpus)
        cosine, centre = self._likeness(question, None if corpus.whole else corpus.visible)
        return Evidence(corpus.columns, corpus.visible, keywords, cosine, tuple(scopes), centre)

    def _may_see(self, question: Question, count: int) -> Bools:
        required = question.scope.required(question.across)
        query = f"SELECT id FROM scopes WHERE {' AND '.join(f'{name} = ?' for name in required)}"
        mine = np.zeros(count, np.bool_)
        mine[[number for (number,) in self._connection.execute(query, tuple(required.values()))]] = True
        return mine

    def _likeness(self, question: Question, visible: Bools | None) -> tuple[Floats | None, Centering | None]:
        if question.vector is None or question.space is None:
            return None, None
        number = vector_table.space_number(self._connection, question.space, create=False)
        if number is None:
            return None, None
        seen = None if visible is None else visible.take(self.columns["passage"])
        matrix = self.matrix(number, question.space)
        cosine = matrix.cosine(question.vector, windows=self.columns.windows, visible=seen)
        return cosine, matrix.centre(question.vector, cosine, visible=seen)

    def refresh(self) -> None:
        """Learn what was written since the last time, by whatever process. Runs in a transaction of the caller."""
        (rewritten,) = self._connection.execute("SELECT value FROM counters WHERE name = 'rewritten'").fetchone()
        if rewritten != self._rewritten:
            self.reset()
            self._rewritten = rewritten
        total = count(self._connection)
        if total > self.columns.passages:
            self._learn_sealed()
            read_columns(self._connection, self.columns, first=self.columns.passages, stop=total)
            self._learn_pending()

    def _learn_sealed(self) -> None:
        known, stop = self._pending.first, sealed(self._connection)
        if stop == known:
            return
        # Passages that were read one by one are read again, as a part of their block.
        self.columns.truncate(known)
        query = "SELECT data FROM blocks WHERE first >= ? ORDER BY first"
        self.columns.extend(*(columnar.decode(data) for (data,) in self._connection.execute(query, (known,))))
        self._pending = Pending(stop)
        self._remembered = _Remembered()

    def _learn_pending(self) -> None:
        query = "SELECT number, terms FROM pending WHERE number >= ? ORDER BY number"
        for number, data in self._connection.execute(query, (self._pending.stop,)):
            self._pending.pad(number)
            self._pending.append(np.frombuffer(data, np.int64))
        self._pending.pad(self.columns.passages)

    def corpus(self, scopes: Bools) -> Corpus:
        """What a reader may see who may see these scopes. Of one who may see all, it is reckoned once."""
        if self._whole is None or self._whole.columns.passages < self.columns.passages:
            columns = self.columns.snapshot()
            self._whole = Corpus.of(columns, columns["alive"])
        if scopes.all():
            return self._whole
        columns = self._whole.columns
        return Corpus.of(columns, columns["alive"] & scopes.take(columns["scope"]))

    def postings(self, terms: Mapping[str, float]) -> list[tuple[Postings, float]]:
        """The postings of terms, with their weights; empty for a term that stands nowhere.

        In a large store only those terms are read that tell most and can be looked at in time.
        """
        numbers = term_ids(list(terms))
        weights = dict(zip(numbers.tolist(), terms.values(), strict=True))
        cheap = len(weights) * self.columns.windows <= CHEAP
        missing = [term for term in weights if term not in self._remembered]
        sought = posting_table.seek(self._connection, missing, longest=EVERYTHING if cheap else PAGE)
        fresh = self._pending.lists(numbers, self.columns)
        chosen = list(weights) if cheap else self._worth_reading(list(weights), sought, fresh)
        sealed = {term: self._remembered[term] for term in chosen if term not in sought}
        unread = [term for term in chosen if term in sought]
        lists = [posting_table.read(self._connection, sought[term]) for term in unread]
        made = Postings.of([*lists, *map(fresh.of, chosen)], self.columns)
        for term, postings in zip(unread, made, strict=False):
            sealed[term] = self._remembered[term] = postings.copy()
        later = dict(zip(chosen, made[len(unread) :], strict=True))
        return [(sealed[term].then(later[term]), weights[term]) for term in chosen]

    def _worth_reading(self, terms: Sequence[int], sought: Mapping[int, Sought], fresh: Lists) -> list[int]:
        """Which terms tell most, and can be afforded."""
        known = [sought[term].size if term in sought else len(self._remembered[term].windows) for term in terms]
        sizes = [size + len(fresh.of(term)[0]) for term, size in zip(terms, known, strict=True)]
        chosen = set(select_cheapest(sizes)).intersection(select_rarest(sizes))
        return [terms[number] for number in sorted(chosen)]

    def matrix(self, number: int, space: Space) -> Matrix:
        """The vectors of a space, those of the newest passages included."""
        loaded = self._loaded.setdefault(number, _Loaded(Matrix(space.dimension)))
        first_window = self.columns["first_window"]
        for block, first, data in vector_table.read_blocks(self._connection, number, after=loaded.block):
            loaded.matrix.put(int(first_window[first]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
            loaded.block = block
        for row, passage, data in vector_table.read_rows(self._connection, number, after=loaded.row):
            loaded.matrix.put(int(first_window[passage]), np.frombuffer(data, np.int8).reshape(-1, space.dimension))
            loaded.row = row
        return loaded.matrix
