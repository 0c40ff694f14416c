"""Maximal marginal relevance: an order in which what says the same as something above it stands further down.

Off by default: answers often lie in several passages that resemble each other, and this parts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Floats

__all__ = ["Item", "mmr"]

_GRAM: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """Something that was found: how good it is, and what it says, in words or as a vector."""

    score: float
    text: str = ""
    vector: Floats | None = field(default=None, repr=False)


def mmr(items: Sequence[Item], *, relevance_weight: float = 0.7, limit: int | None = None) -> list[Item]:
    """The items, at most `limit`, in an order of relevance and variety.

    `relevance_weight` is 1 for relevance alone, 0 for variety alone. Two items are as alike as their vectors, or
    where one has none as their groups of three letters; one that has neither is like nothing.
    """
    relevance = _between(np.array([item.score for item in items]))
    alike = _alike(items)
    closest = np.zeros(len(items))
    left = np.ones(len(items), np.bool_)
    chosen: list[Item] = []
    for _ in range(len(items) if limit is None else min(limit, len(items))):
        values = relevance_weight * relevance - (1 - relevance_weight) * closest
        best = int(np.where(left, values, -np.inf).argmax())
        chosen.append(items[best])
        left[best] = False
        closest = np.maximum(closest, alike[best])
    return chosen


def _between(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Scores from 0 to 1; all 1 where they are equal."""
    lowest, highest = scores.min(initial=np.inf), scores.max(initial=-np.inf)
    return (scores - lowest) / (highest - lowest) if highest > lowest else np.ones_like(scores)


def _alike(items: Sequence[Item]) -> npt.NDArray[np.float64]:
    alike = np.zeros((len(items), len(items)))
    grams = [_grams(item.text) for item in items]
    for row, first in enumerate(items):
        for column, second in enumerate(items[:row]):
            if first.vector is not None and second.vector is not None:
                value = _cosine(first.vector, second.vector)
            else:
                value = len(grams[row] & grams[column]) / max(1, len(grams[row] | grams[column]))
            alike[row, column] = alike[column, row] = value
    return alike


def _grams(text: str) -> set[str]:
    plain = text.lower()
    return {plain[start : start + _GRAM] for start in range(max(1, len(plain) - _GRAM + 1))} - {""}


def _cosine(first: Floats, second: Floats) -> float:
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(first @ second) / lengths if lengths > 0 else 0.0
