"""How rare a term is: the inverse document frequency of BM25, for passages, facts and questions alike."""

from __future__ import annotations

import math


def measure_rarity(frequency: int, *, total: int) -> float:
    """Return how rare a term is that `frequency` of `total` texts have: nearly 0 if all of them have it."""
    return math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))
