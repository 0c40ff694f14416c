"""What stands around a hit comes along with it, as the original plugin does it.

The measured recipe has its own way; this is for the other two orders.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from holdfast.search.fuse import Ranking, Signals

__all__ = ["with_neighbours"]

_LESS: Final = 0.15
"""What a neighbour has less for each step that it is away."""
_MOST: Final = 400


def with_neighbours(ranking: Ranking, signals: Signals, *, reach: int) -> Ranking:
    """The ranking with the passages up to `reach` before and after each hit in the same session, under the hit."""
    columns = signals.columns
    hits = np.zeros(columns.passages + 1, np.float32)  # -1 is none, and stands one behind the last
    hits[ranking.order] = ranking.score(ranking.order)
    scores = hits[:-1].copy()
    first = last = np.arange(columns.passages)
    for distance in range(1, reach + 1):
        first, last = columns.beside(first, "previous"), columns.beside(last, "following")
        near = np.maximum(hits[first], hits[last]) * np.float32(max(0.0, 1 - _LESS * distance))
        np.maximum(scores, near, out=scores)
    taken = np.where(signals.visible, scores, np.float32(0))
    found = np.flatnonzero(taken > 0)
    order = found[np.argsort(-taken[found], kind="stable")][:_MOST]
    gained = np.where(taken > hits[:-1], taken - hits[:-1], np.float32(0))
    return replace(ranking, order=order, scores=taken, stages={**ranking.stages, "neighbours": gained})
