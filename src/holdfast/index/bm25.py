"""BM25 of passages, windows and sessions, in one pass over the postings of a query's terms.

A posting list holds the windows that a term occurs in, and how often. Everything else is derived: a passage is its
windows, a session its passages. Document frequency and length are those of the visible passages, so one tenant's
archive never affects another's ranking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import structs

from holdfast.index.columns import Columns
from holdfast.index.postings import NO_OCCURRENCES, Postings
from holdfast.search.arrays import Bools, Floats

K1: Final = 1.5
B: Final = 0.75
MAX_TERMS: Final = 48
"""Of a longer query only the rarest terms are used."""

MIN_IDF_PASSAGES: Final = 100
"""In a smaller memory the share of a missing word is computed as if there were so many passages."""

FEW_TERMS: Final = 2.5
"""Fewer terms than this may occur together by chance."""

MAX_POSTINGS: Final = 300_000
"""The number of windows that are read for one query, those of its rarest terms first: in a large store common terms
cost more than they contribute."""

N = TypeVar("N", np.float32, np.uint8)
Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The visible passages, their number and average number of terms, and the visible terms of each session.

    If `whole`, all passages are visible; forgotten ones are in no posting list.
    """

    columns: Columns
    visible: Bools
    whole: bool
    total: int
    average: float
    session_lengths: Doubles

    @classmethod
    def of(cls, columns: Columns, visible: Bools) -> Corpus:
        """Return the corpus of the visible passages."""
        total = int(np.count_nonzero(visible))
        lengths = columns["length"] if total == columns.passages else columns["length"] * visible
        return cls(
            columns=columns,
            visible=visible,
            whole=total == int(np.count_nonzero(columns["alive"])),
            total=total,
            average=max(1.0, float(lengths.sum()) / max(1, total)),
            session_lengths=np.bincount(columns["scope"], weights=lengths).astype(np.float64),
        )


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a query: where it occurs, its weight, and related terms, each with what it counts beside it."""

    postings: Postings
    weight: float
    related: Sequence[tuple[Postings, float]] = ()


@dataclass(frozen=True, slots=True)
class Keywords:
    """The scores of the visible passages for the terms of a query, and the postings of each term with its weight.

    `passages` and `sessions` are BM25; `share` is the share of the query (by inverse document frequency) in each
    passage, and `together` that in its best window, reduced for one or two words.
    """

    passages: Floats
    sessions: Floats
    share: Floats
    together: Floats
    terms: list[tuple[Postings, float]]

    def windows(self, numbers: npt.NDArray[np.int64], columns: Columns) -> Floats:
        """Return BM25 of windows (in ascending order), to choose the part of a passage to quote."""
        lengths = columns["window_length"][numbers]
        average = max(1.0, float(lengths.mean())) if len(numbers) else 1.0
        wanted = numbers.astype(np.uint32)
        lists = [postings for postings, _ in self.terms]
        sizes = np.array([[len(one.windows)] for one in lists], np.intp).reshape(-1, 1)
        places = np.array([one.windows.searchsorted(wanted) for one in lists], np.intp).reshape(len(lists), len(wanted))
        places = np.minimum(places, sizes - 1) + sizes.cumsum(axis=0) - sizes
        found = np.concatenate([NO_OCCURRENCES[0], *(one.windows for one in lists)]).take(places) == wanted
        times = np.concatenate([NO_OCCURRENCES[1], *(one.counts for one in lists)]).take(places) * found
        weights = np.array([[weight] for _, weight in self.terms], np.float32).reshape(-1, 1)
        scores: Floats = (weights * _saturate(times.astype(np.float32), lengths, average)).sum(axis=0, dtype=np.float32)
        return scores


def score(terms: Sequence[Term], corpus: Corpus) -> Keywords:
    """Score the visible passages for the terms of a query, each with its weight.

    A term that occurs nowhere adds to no score, but counts as the rarest one in the share.
    """
    columns = corpus.columns
    terms = _select_terms(terms, corpus)
    seen = [term.postings for term in terms]
    weights = np.array([term.weight for term in terms])
    idf = weights * [_idf(len(one.passages), corpus.total) for one in seen]
    counted = [len(one.passages) for one in seen]
    passages = np.concatenate([np.zeros(0, np.intp), *(one.passages for one in seen)])
    times = np.concatenate([np.zeros(0, np.float32), *(one.times for one in seen)])
    each = np.repeat(idf.astype(np.float32), counted)
    each *= _saturate(times, columns["length"].take(passages), corpus.average)
    part = weights * [_idf(len(one.passages), max(corpus.total, MIN_IDF_PASSAGES)) for one in seen]
    part = (part / (part.sum() or 1)).astype(np.float32)
    scores = _sums(passages, each, columns.passages)
    _add_related(scores, terms, idf.tolist(), corpus)
    return Keywords(
        passages=scores,
        sessions=_sessions(passages, times, weights=weights, counted=counted, corpus=corpus),
        share=_sums(passages, np.repeat(part, counted), columns.passages),
        together=_best_window(seen, part, columns),
        terms=[(one, float(weight)) for one, weight in zip(seen, idf, strict=True) if len(one.passages)],
    )


def _add_related(scores: Floats, terms: Sequence[Term], idf: Sequence[float], corpus: Corpus) -> None:
    """Add the best related term of each term to the scores of passages that do not have the term itself."""
    lengths, best = corpus.columns["length"], np.zeros_like(scores)
    for term, most in zip(terms, idf, strict=True):
        lists = [(one, share) for one, share in term.related if len(one.passages)]
        if not lists:
            continue
        values = [min(most, term.weight * _idf(len(one.passages), corpus.total)) * share for one, share in lists]
        places = np.concatenate([one.passages for one, _ in lists])
        times = np.concatenate([one.times for one, _ in lists])
        each = np.repeat(np.array(values, np.float32), [len(one.passages) for one, _ in lists])
        np.maximum.at(best, places, each * _saturate(times, lengths.take(places), corpus.average))
        best[term.postings.passages] = 0
        scores[places] += best[places]
        best[places] = 0


def _best_window(postings: Sequence[Postings], part: Floats, columns: Columns) -> Floats:
    """Return the weight of the terms in each passage's best window; fewer than `FEW_TERMS` count only in part."""
    windows = np.concatenate([np.zeros(0, np.uint32), *(one.windows for one in postings)]).astype(np.intp)
    is_dense = 2 * len(windows) > columns.windows  # then all windows in their order take less time than these in theirs
    weights = _sums(windows, np.repeat(part, [len(one.windows) for one in postings]), columns.windows)
    weights = weights if is_dense else weights.take(windows)
    counts = _sums(windows, np.uint8(1), columns.windows)
    counts = counts if is_dense else counts.take(windows)
    few = np.arange(MAX_TERMS + 1) / min(FEW_TERMS, max(1, len(postings)))
    weights *= np.minimum(1, few).astype(np.float32).take(counts)
    best = np.zeros(columns.passages, np.float32)
    np.maximum.at(best, columns["passage"] if is_dense else columns["passage"].take(windows), weights)
    return best


def _sums(places: npt.NDArray[np.integer], values: npt.NDArray[N] | N, size: int) -> npt.NDArray[N]:
    """Return the sum of the values at each of `size` places: `bincount` with small numbers instead of large ones."""
    sums = np.zeros(size, values.dtype)
    np.add.at(sums, places, values)
    return sums


def select_rarest(sizes: Sequence[int]) -> list[int]:
    """Return the numbers of the rarest terms, by the number of windows of each; one without windows is always in."""
    absent = [number for number, size in enumerate(sizes) if not size]
    rarest = sorted((number for number, size in enumerate(sizes) if size), key=sizes.__getitem__)
    return absent + rarest[:MAX_TERMS]


def select_cheapest(sizes: Sequence[int]) -> list[int]:
    """Return the numbers of the terms that can be read within `MAX_POSTINGS`, by the number of windows of each."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [
        number
        for number, spent in zip(order, accumulate(sizes[n] for n in order), strict=True)
        if spent <= MAX_POSTINGS or number == order[0]
    ]


def _select_terms(terms: Sequence[Term], corpus: Corpus) -> Sequence[Term]:
    """Return the rarest terms, with their postings in visible passages. Other windows stay, and are never read."""
    if len(terms) > MAX_TERMS:
        windows = np.ones(corpus.columns.windows, np.bool_)
        if not corpus.whole:
            windows = corpus.visible.take(corpus.columns["passage"])
        sizes = [int(np.count_nonzero(windows.take(term.postings.windows))) for term in terms]
        terms = [terms[number] for number in select_rarest(sizes)]
    if corpus.whole:
        return terms

    def see(one: Postings) -> Postings:
        seen = corpus.visible.take(one.passages)
        return structs.replace(one, passages=one.passages[seen], times=one.times[seen])

    return [Term(see(term.postings), term.weight, [(see(one), share) for one, share in term.related]) for term in terms]


def _sessions(
    passages: npt.NDArray[np.intp], times: Floats, *, weights: Doubles, counted: Sequence[int], corpus: Corpus
) -> Floats:
    """Return BM25 of whole sessions, with the document frequency of terms in sessions."""
    lengths = corpus.session_lengths
    used = int(np.count_nonzero(lengths))
    if used <= 1:
        return np.zeros(len(lengths), np.float32)
    shape = (len(counted), len(lengths))
    rows = np.repeat(np.arange(len(counted)) * len(lengths), counted)
    places = corpus.columns["scope"].take(passages) + rows
    frequency = np.bincount(places, times, shape[0] * shape[1]).reshape(shape) * weights[:, None]
    average = max(1.0, float(lengths.sum()) / used)
    idf = np.array([_idf(hits, used) for hits in np.count_nonzero(frequency, axis=1).tolist()])
    scores: Doubles = idf @ _saturate(frequency.astype(np.float32), lengths, average)
    return scores.astype(np.float32)


def _idf(frequency: int, total: int) -> float:
    return math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))


def _saturate(frequency: Floats, lengths: npt.NDArray[np.number], average: float) -> Floats:
    norm = lengths.astype(np.float32)
    norm *= np.float32(K1 * B / average)
    norm += np.float32(K1 * (1 - B))
    saturated: Floats = frequency * np.float32(K1 + 1) / (norm + frequency)
    return saturated
