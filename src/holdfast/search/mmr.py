"""Maximal marginal relevance: passages that repeat a better one are ranked lower.

Off by default: answers often lie in several similar passages, and this separates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

_LETTERS: Final = 3
"""Two texts are compared by their parts with this many letters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """A search result: its score and its text."""

    score: float
    text: str = ""


def mmr(items: Sequence[Item], *, relevance_weight: float = 0.7) -> list[Item]:
    """Order items by relevance and variety.

    `relevance_weight` is 1 for relevance alone, 0 for variety alone. The similarity of two items is that of their
    letter trigrams.
    """
    scores = np.array([item.score for item in items])
    lowest = scores.min(initial=np.inf)
    highest = scores.max(initial=-np.inf)
    relevance = np.ones_like(scores)
    if highest > lowest:
        relevance = (scores - lowest) / (highest - lowest)
    similarity = np.zeros((len(items), len(items)))
    trigrams = [_trigrams(item.text) for item in items]
    for row, first in enumerate(trigrams):
        for column, second in enumerate(trigrams[:row]):
            shared = len(first & second) / max(1, len(first | second))
            similarity[row, column] = shared
            similarity[column, row] = shared
    closest = np.zeros(len(items))
    left = np.ones(len(items), np.bool_)
    chosen: list[Item] = []
    for _ in items:
        values = relevance_weight * relevance - (1 - relevance_weight) * closest
        best = int(np.where(left, values, -np.inf).argmax())
        chosen.append(items[best])
        left[best] = False
        closest = np.maximum(closest, similarity[best])
    return chosen


def _trigrams(text: str) -> set[str]:
    plain = text.lower()
    if not plain:
        return set()
    starts = range(max(1, len(plain) - _LETTERS + 1))  # a shorter text is compared as a whole
    return {plain[start : start + _LETTERS] for start in starts}
