"""The passages that a search proposes for ranking, with the signals that ranking needs.

This is what every store returns: a bounded number of passages, one array for each signal. Ranking, the relevance test
and packing are above it and are the same for all stores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias

import numpy as np

from holdfast.search.bm25 import Keywords
from holdfast.search.columns import Bools, Columns, Floats, Ints, highest
from holdfast.search.vectors import Centering, center_cosines

WindowScores: TypeAlias = tuple[Floats, Floats | None]
"""BM25 and cosine of windows; no cosine without vectors."""

MAX_NEAREST: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Passages in the order they were archived; each array has one value for each passage.

    Attributes:
        passages, messages, sessions: The number of each passage, of its message, and one for its session.
        times: When it was said, in Unix milliseconds; 0 where that is not known.
        sizes, windows: The number of characters, and of windows.
        human: Whether a person said it.
        eligible: Whether it may be ranked; a neighbour that the query excludes is here only as a link to others.
        previous, following: The places of the passages before and after it in its session; -1 where one is not here.
        keyword: BM25 of the query's terms.
        share: The share of the query (by inverse document frequency) in the passage, 0 to 1.
        together: The share of the query in its best window; reduced for one or two words.
        session_keyword: BM25 of its whole session, relative to the best session that the reader sees.
        cosine: The cosine of its best window, relative to the mean of what the reader sees; None without vectors.
        nearest: The highest cosines of single windows that may be ranked, not relative to the mean.
        total_windows, embedded_windows: How many windows the reader sees, and how many have a vector, by a sample.
        score_windows: Returns BM25 and cosine of each window of the passages at the given places (ascending), one
            after the other.
    """

    passages: Ints
    messages: Ints
    sessions: Ints
    times: Ints
    sizes: Ints
    windows: Ints
    human: Bools
    eligible: Bools
    previous: Ints
    following: Ints
    keyword: Floats
    share: Floats
    together: Floats
    session_keyword: Floats
    cosine: Floats | None
    nearest: Floats
    total_windows: int
    embedded_windows: int
    score_windows: Callable[[Ints], WindowScores]

    def __len__(self) -> int:
        return len(self.passages)

    def without_vectors(self) -> Self:
        """Return the same without the signals of vectors."""
        by_both = self.score_windows
        return replace(self, cosine=None, score_windows=lambda places: (by_both(places)[0], None))

    def beside(self, places: Ints, links: Ints) -> Ints:
        """Follow `previous` or `following` from some places; -1 where there is none, and for -1."""
        return np.where(places >= 0, links[places], -1) if len(links) else places


def select_candidates(
    columns: Columns,
    keywords: Keywords,
    *,
    visible: Bools,
    eligible: Bools,
    cosine: Floats | None = None,
    centre: Centering | None = None,
    limit: int,
    neighbours: int,
) -> Candidates:
    """Choose the most promising of the passages that are `visible` to a reader, with those beside them.

    `eligible` ones may be ranked. `cosine` is that of every window. Of no more than `limit` visible passages all are
    chosen.
    """
    best = None if cosine is None else _best_cosines(columns, cosine, centre)
    if np.count_nonzero(visible) > limit:
        numbers = _shortlist(columns, keywords, best, visible, eligible, limit=limit, neighbours=neighbours)
    else:
        numbers = np.flatnonzero(visible)
    firsts = columns["first_window"].take(numbers)
    stops = columns["first_window"].take(numbers + 1, mode="clip")
    counts = np.where(numbers + 1 < columns.passages, stops, columns.windows) - firsts
    places = np.full(columns.passages + 1, -1, np.int32)  # -1 means none, and is the place after the last
    places[numbers] = np.arange(len(numbers))
    top_session = keywords.sessions.max(initial=0) or np.float32(1)
    total = columns.windows if visible.all() else int(np.count_nonzero(visible.take(columns["passage"])))

    def score_windows(places: Ints) -> WindowScores:
        chosen = counts[places]
        starts = np.cumsum(chosen) - chosen
        windows = np.arange(chosen.sum()) + np.repeat(firsts[places] - starts, chosen)
        return keywords.windows(windows, columns), None if cosine is None else cosine[windows]

    return Candidates(
        passages=numbers,
        messages=columns["message"].take(numbers),
        sessions=columns["scope"].take(numbers),
        times=columns["time"].take(numbers),
        sizes=columns["size"].take(numbers),
        windows=counts,
        human=columns["human"].take(numbers),
        eligible=eligible.take(numbers),
        previous=places.take(columns.beside(numbers, "previous")).astype(np.int64),
        following=places.take(columns.beside(numbers, "following")).astype(np.int64),
        keyword=keywords.passages.take(numbers),
        share=keywords.share.take(numbers),
        together=keywords.together.take(numbers),
        session_keyword=keywords.sessions.take(columns["scope"].take(numbers)) / top_session,
        cosine=None if best is None else best.take(numbers),
        nearest=np.zeros(1, np.float32) if cosine is None else _nearest(columns, cosine, centre, eligible),
        total_windows=total,
        embedded_windows=0 if centre is None else round(centre.known * total),
        score_windows=score_windows,
    )


def _best_cosines(columns: Columns, cosine: Floats, centre: Centering | None) -> Floats:
    """Return the cosine of each passage's best window, at least 0; relative to the centre for those it knows."""
    best = np.zeros(columns.passages, np.float32)
    if centre is not None:
        np.maximum.at(best, columns["passage"].take(centre.windows), center_cosines(cosine, centre))
    elif columns.passages:
        np.maximum.reduceat(cosine, columns["first_window"], out=best)
        np.maximum(best, 0, out=best)
    return best


def _shortlist(
    columns: Columns,
    keywords: Keywords,
    cosine: Floats | None,
    visible: Bools,
    eligible: Bools,
    *,
    limit: int,
    neighbours: int,
) -> Ints:
    """Return the eligible passages with the highest sums of all signals, and the visible ones beside them."""
    promise = keywords.passages / (keywords.passages.max(initial=0) or np.float32(1))
    promise += keywords.together
    if cosine is not None:
        similar = np.flatnonzero(cosine > 0)  # few: in a large store only the best windows have a cosine
        promise[similar] += cosine[similar] / (cosine.max(initial=0) or np.float32(1))
    if not eligible.all():
        promise *= eligible
    best = highest(promise, limit)
    chosen = np.zeros(columns.passages + 1, np.bool_)  # -1 means none, and is the place after the last
    chosen[best] = True
    for side in ("previous", "following"):
        beside = best
        for _ in range(neighbours):
            beside = columns.beside(beside, side)
            chosen[beside] = True
    numbers = np.flatnonzero(chosen[:-1])
    return numbers[visible.take(numbers)]


def _nearest(columns: Columns, cosine: Floats, centre: Centering | None, eligible: Bools) -> Floats:
    """Return the cosines of the few eligible windows that are most similar to the query, at least 0."""
    owners = columns["passage"]
    values = cosine
    if centre is not None:  # the best of all windows, unless too many of them are excluded
        values = cosine[centre.windows[eligible.take(owners.take(centre.windows))]]
    if centre is None or len(values) < MAX_NEAREST:
        values = cosine * eligible.take(owners)
    if not len(values):
        return np.zeros(1, np.float32)
    return np.maximum(values[highest(values, MAX_NEAREST)], 0)
