"""BM25 over passages, windows and sessions in one pass over the postings of a question's terms.

A posting list says in which windows a term stands, and how often. Everything else is derived: a passage
is its windows, a session its passages. Document frequency and length are those of the passages that may
be seen, so one tenant's archive never colours another's ranking.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Bools, Columns, Floats
from holdfast.search.postings import Postings

__all__ = ["K1", "B", "Corpus", "Keywords", "affordable", "score", "telling"]

K1: Final = 1.5
B: Final = 0.75
MOST_TERMS: Final = 48
"""A longer question is asked by its rarest terms."""

SMALL: Final = 100
"""In a memory of fewer passages a word that is missing says no more than it would in one of so many."""

FEW_TERMS: Final = 2.5
"""Fewer terms than this may stand together by chance."""

MOST_POSTINGS: Final = 300_000
"""So many windows are looked at for one question, those of its rarest terms first: in a large store, common ones cost
more than they tell."""

Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What may be seen, and its sizes.

    Attributes:
        columns: All passages and windows.
        visible: Which passages may be seen.
        whole: Whether that is all that there is: what is forgotten is in no posting list.
        total: How many passages may be seen.
        average: How many terms they have on average.
        session_lengths: How many terms of each session may be seen, by scope number.
    """

    columns: Columns
    visible: Bools
    whole: bool
    total: int
    average: float
    session_lengths: Doubles

    @classmethod
    def of(cls, columns: Columns, visible: Bools) -> Corpus:
        """The corpus that is visible."""
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
class Keywords:
    """What the terms of a question say about everything that may be seen.

    Attributes:
        passages: BM25 of each passage.
        sessions: BM25 of each session, by scope number.
        share: How much of the question (by inverse document frequency) each passage holds, 0 to 1.
        together: How much of it stands in one of its windows; less where that is only one of its words, or two.
        terms: The postings of each term that was found, and its weight.
    """

    passages: Floats
    sessions: Floats
    share: Floats
    together: Floats
    terms: list[tuple[Postings, float]]

    def windows(self, numbers: npt.NDArray[np.int64], columns: Columns) -> Floats:
        """BM25 of some windows (in rising order), to choose what of a passage to show."""
        found = np.zeros(len(numbers), np.float32)
        lengths = columns["window_length"][numbers]
        average = max(1.0, float(lengths.mean())) if len(numbers) else 1.0
        wanted = numbers.astype(np.uint32)
        for postings, weight in self.terms:
            windows, counts = postings.windows, postings.counts
            places = np.minimum(np.searchsorted(windows, wanted), len(windows) - 1)
            times = np.where(windows[places] == wanted, counts[places], 0).astype(np.float32)
            found += weight * _saturate(times, lengths, average)
        return found


def score(postings: Sequence[tuple[Postings, float]], corpus: Corpus) -> Keywords:
    """Score everything visible against the terms of a question, each with its weight.

    A term that stands nowhere adds to no score, but it weighs as the rarest of all in the share.
    """
    columns = corpus.columns
    seen = [(_seen(one, corpus), weight) for one, weight in _asked(postings, corpus)]
    weights = np.array([weight for _, weight in seen])
    idf = weights * [_idf(len(one.passages), corpus.total) for one, _ in seen]
    counted = [len(one.passages) for one, _ in seen]
    passages = np.concatenate([np.zeros(0, np.intp), *(one.passages for one, _ in seen)])
    times = np.concatenate([np.zeros(0, np.float32), *(one.times for one, _ in seen)])
    each = np.repeat(idf.astype(np.float32), counted)
    scores = each * _saturate(times, columns["length"].take(passages), corpus.average)
    part = weights * [_idf(len(one.passages), max(corpus.total, SMALL)) for one, _ in seen]
    part /= part.sum() or 1
    share = np.bincount(passages, np.repeat(part, counted), columns.passages)
    together = _best_window([one for one, _ in seen], part, columns)
    return Keywords(
        passages=np.bincount(passages, scores, columns.passages).astype(np.float32),
        sessions=_sessions(passages, times, weights=weights, counted=counted, corpus=corpus),
        share=share.astype(np.float32),
        together=together,
        terms=[(one, float(weight)) for (one, _), weight in zip(seen, idf, strict=True) if len(one.passages)],
    )


def _best_window(postings: Sequence[Postings], part: Doubles, columns: Columns) -> Floats:
    """The weight of the terms that stand together in one window of each passage, that of its best.

    Fewer than `FEW_TERMS` count only in part, unless the question has no more.
    """
    if not columns.passages:
        return np.zeros(0, np.float32)
    windows = np.concatenate([np.zeros(0, np.uint32), *(one.windows for one in postings)])
    each = np.repeat(part, [len(one.windows) for one in postings])
    held = np.bincount(windows, each, columns.windows)
    found = np.bincount(windows, minlength=columns.windows) / min(FEW_TERMS, max(1, len(postings)))
    return np.maximum.reduceat(held * np.minimum(1, found), columns["first_window"]).astype(np.float32)


def telling(sizes: Sequence[int]) -> list[int]:
    """Which terms, by the number of windows each stands in, tell passages apart best: the rarest.

    One that stands nowhere always counts.
    """
    absent = [number for number, size in enumerate(sizes) if not size]
    rarest = sorted((number for number, size in enumerate(sizes) if size), key=sizes.__getitem__)
    return absent + rarest[:MOST_TERMS]


def affordable(sizes: Sequence[int]) -> list[int]:
    """Which terms, by the number of windows each stands in, can be looked at in time: the rarest."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [
        number
        for number, spent in zip(order, accumulate(sizes[n] for n in order), strict=True)
        if spent <= MOST_POSTINGS or number == order[0]
    ]


def _asked(postings: Sequence[tuple[Postings, float]], corpus: Corpus) -> Sequence[tuple[Postings, float]]:
    if len(postings) <= MOST_TERMS:
        return postings
    return [postings[number] for number in telling([_size(one, corpus) for one, _ in postings])]


def _size(postings: Postings, corpus: Corpus) -> int:
    """In how many windows that may be seen a term stands."""
    if corpus.whole:
        return len(postings.windows)
    return int(np.count_nonzero(corpus.visible.take(corpus.columns["passage"].take(postings.windows))))


def _seen(postings: Postings, corpus: Corpus) -> Postings:
    """Postings without the passages that may not be seen. Their windows stay: nobody asks for them."""
    if corpus.whole:
        return postings
    seen = corpus.visible.take(postings.passages)
    return replace(postings, passages=postings.passages[seen], times=postings.times[seen])


def _sessions(
    passages: npt.NDArray[np.intp], times: Floats, *, weights: Doubles, counted: Sequence[int], corpus: Corpus
) -> Floats:
    """BM25 of whole sessions: what a term is worth is told by the sessions that it stands in."""
    lengths = corpus.session_lengths
    if len(lengths) <= 1:
        return np.zeros(len(lengths), np.float32)
    shape = (len(counted), len(lengths))
    rows = np.repeat(np.arange(len(counted)) * len(lengths), counted)
    places = corpus.columns["scope"].take(passages) + rows
    frequency = np.bincount(places, times, shape[0] * shape[1]).reshape(shape) * weights[:, None]
    used = int(np.count_nonzero(lengths))
    average = max(1.0, float(lengths.sum()) / max(1, used))
    idf = np.array([_idf(hits, used) for hits in np.count_nonzero(frequency, axis=1).tolist()])
    found: Doubles = idf @ _saturate(frequency.astype(np.float32), lengths, average)
    return found.astype(np.float32)


def _idf(frequency: int, total: int) -> float:
    return math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))


def _saturate(frequency: Floats, lengths: npt.NDArray[np.number], average: float) -> Floats:
    norm = lengths.astype(np.float32)
    norm *= np.float32(K1 * B / average)
    norm += np.float32(K1 * (1 - B))
    saturated: Floats = frequency * np.float32(K1 + 1) / (norm + frequency)
    return saturated
