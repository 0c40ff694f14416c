"""Maximal marginal relevance: passages that repeat a better one are ranked lower.

Off by default: answers often lie in several similar passages, and this separates them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Floats

_LETTERS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """A search result: its score, and its text or its vector."""

    score: float
    text: str = ""
    vector: Floats | None = field(default=None, repr=False)


def mmr(items: Sequence[Item], *, relevance_weight: float = 0.7, limit: int | None = None) -> list[Item]:
    """Order items, at most `limit`, by relevance and variety.

    `relevance_weight` is 1 for relevance alone, 0 for variety alone. The similarity of two items is that of their
    vectors, or where one has none that of their letter trigrams.
    """
    scores = np.array([item.score for item in items])
    lowest, highest = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    relevance = (scores - lowest) / (highest - lowest) if highest > lowest else np.ones_like(scores)
    similarity = _similarities(items)
    closest = np.zeros(len(items))
    left = np.ones(len(items), np.bool_)
    chosen: list[Item] = []
    for _ in range(len(items) if limit is None else min(limit, len(items))):
        values = relevance_weight * relevance - (1 - relevance_weight) * closest
        best = int(np.where(left, values, -np.inf).argmax())
        chosen.append(items[best])
        left[best] = False
        closest = np.maximum(closest, similarity[best])
    return chosen


def _similarities(items: Sequence[Item]) -> npt.NDArray[np.float64]:
    similarity = np.zeros((len(items), len(items)))
    trigrams = [_trigrams(item.text) for item in items]
    for row, first in enumerate(items):
        for column, second in enumerate(items[:row]):
            if first.vector is not None and second.vector is not None:
                lengths = float(np.linalg.norm(first.vector) * np.linalg.norm(second.vector))
                value = float(first.vector @ second.vector) / lengths if lengths > 0 else 0.0
            else:
                value = len(trigrams[row] & trigrams[column]) / max(1, len(trigrams[row] | trigrams[column]))
            similarity[row, column] = similarity[column, row] = value
    return similarity


def _trigrams(text: str) -> set[str]:
    plain = text.lower()
    return {plain[start : start + _LETTERS] for start in range(max(1, len(plain) - _LETTERS + 1))} - {""}
