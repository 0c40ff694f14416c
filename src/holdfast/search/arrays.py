"""The types of arrays that a search works with, and the places of their highest values."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_SAMPLE: Final = 4_096
"""The size of the even sample that gives a lower bound."""


def highest(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64]:
    """Return the places of the `count` highest values, in ascending order."""
    if len(values) <= count:
        return np.arange(len(values))
    places, step = None, len(values) // _SAMPLE
    if step > 1:  # only the places among which the highest values must be, by an even sample
        sample, expected = values[::step], count / step
        rank = len(sample) - int(expected + 4 * math.sqrt(expected) + 4)
        places = np.flatnonzero(values >= np.partition(sample, rank)[rank]) if rank > 0 else None
    if places is None or len(places) < count:
        return np.sort(np.argpartition(values, len(values) - count)[len(values) - count :])
    few = values.take(places)
    return places.take(np.sort(np.argpartition(few, len(few) - count)[len(few) - count :]))
