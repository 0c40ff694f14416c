"""Choose the passages that a search returns, and put their signals together."""

from __future__ import annotations

import numpy as np

from holdfast.index.bm25 import Keywords
from holdfast.index.columns import Columns
from holdfast.index.vectors import Centering, center_cosines
from holdfast.search.arrays import Bools, Floats, Ints, highest
from holdfast.search.candidates import MAX_NEAREST, Candidates, WindowScores


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
    """Choose the most promising of the passages that are `visible` to a reader, with their neighbours.

    The `eligible` ones may be ranked. `cosine` is that of every window. If there are no more than `limit` visible
    passages, all are chosen.
    """
    best: Floats | None = None
    nearest = np.zeros(1, np.float32)
    if cosine is not None:
        best = _best_cosines(columns, cosine, centre)
        nearest = _nearest(columns, cosine, centre, eligible)
    if np.count_nonzero(visible) > limit:
        numbers = _shortlist(columns, keywords, best, visible, eligible, limit=limit, neighbours=neighbours)
    else:
        numbers = np.flatnonzero(visible)
    firsts = columns["first_window"].take(numbers)
    stops = columns["first_window"].take(numbers + 1, mode="clip")
    counts = np.where(numbers + 1 < columns.passages, stops, columns.windows) - firsts
    # The place of each passage among the chosen ones. There is one extra place at the end: a neighbour that does not
    # exist has the number -1, which is the last place.
    places = np.full(columns.passages + 1, -1, np.int32)
    places[numbers] = np.arange(len(numbers))
    top_session = keywords.sessions.max(initial=0) or np.float32(1)
    total = columns.windows
    if not visible.all():
        total = int(np.count_nonzero(visible.take(columns["passage"])))
    embedded = 0
    if centre is not None:
        embedded = round(centre.known * total)
    chosen_cosine: Floats | None = None
    if best is not None:
        chosen_cosine = best.take(numbers)

    def score_windows(places: Ints) -> WindowScores:
        """Score the windows of some passages, by words and by vector. Only quoted passages need it."""
        chosen = counts[places]
        starts = np.cumsum(chosen) - chosen
        windows = np.arange(chosen.sum()) + np.repeat(firsts[places] - starts, chosen)
        words = keywords.windows(windows, columns)
        if cosine is None:
            return words, None
        return words, cosine[windows]

    return Candidates(
        passages=numbers,
        messages=columns["message"].take(numbers),
        sessions=columns["scope"].take(numbers),
        times=columns["time"].take(numbers),
        sizes=columns["size"].take(numbers),
        windows=counts,
        human=columns["human"].take(numbers),
        eligible=eligible.take(numbers),
        previous=places.take(columns.find_neighbours(numbers, "previous")).astype(np.int64),
        following=places.take(columns.find_neighbours(numbers, "following")).astype(np.int64),
        keyword=keywords.passages.take(numbers),
        share=keywords.share.take(numbers),
        together=keywords.together.take(numbers),
        session_keyword=keywords.sessions.take(columns["scope"].take(numbers)) / top_session,
        cosine=chosen_cosine,
        nearest=nearest,
        total_windows=total,
        embedded_windows=embedded,
        score_windows=score_windows,
        rarity=keywords.rarity,
    )


def _best_cosines(columns: Columns, cosine: Floats, centre: Centering | None) -> Floats:
    """Return the cosine of each passage's best window, at least 0; with a centre, the cosine relative to it."""
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
    """Return the eligible passages with the highest sums of all signals, and their visible neighbours."""
    promise = keywords.passages / (keywords.passages.max(initial=0) or np.float32(1))
    promise += keywords.together
    if cosine is not None:
        similar = np.flatnonzero(cosine > 0)  # in a large store these are few: only the best windows have a cosine
        promise[similar] += cosine[similar] / (cosine.max(initial=0) or np.float32(1))
    if not eligible.all():
        promise *= eligible
    best = highest(promise, limit)
    chosen = np.zeros(columns.passages + 1, np.bool_)  # with a last place for -1, a neighbour that does not exist
    chosen[best] = True
    for side in ("previous", "following"):
        reached = best
        for _ in range(neighbours):
            reached = columns.find_neighbours(reached, side)
            chosen[reached] = True
    numbers = np.flatnonzero(chosen[:-1])
    return numbers[visible.take(numbers)]


def _nearest(columns: Columns, cosine: Floats, centre: Centering | None, eligible: Bools) -> Floats:
    """Return the cosines of the few eligible windows that are most similar to the query, at least 0."""
    owners = columns["passage"]
    values = cosine
    if centre is not None:  # its windows are the best of all, which is enough unless too many are excluded
        values = cosine[centre.windows[eligible.take(owners.take(centre.windows))]]
    if centre is None or len(values) < MAX_NEAREST:
        values = cosine * eligible.take(owners)
    if not len(values):
        return np.zeros(1, np.float32)
    return np.maximum(values[highest(values, MAX_NEAREST)], 0)
