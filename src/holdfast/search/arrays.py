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
"""The size of the sample that gives a lower bound of the highest values."""


def highest(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64]:
    """Return the places of the `count` highest values, in ascending order."""
    if len(values) <= count:
        return np.arange(len(values))
    step = len(values) // _SAMPLE
    if step > 1:
        # Partitioning all values takes long. An even sample gives a lower bound that more than `count` values reach,
        # with four standard deviations to spare. If too few reach it, all values are partitioned after all.
        sample = values[::step]
        expected = count / step
        rank = len(sample) - int(expected + 4 * math.sqrt(expected) + 4)
        if rank > 0:
            bound = np.partition(sample, rank)[rank]
            places = np.flatnonzero(values >= bound)
            if len(places) >= count:
                return places.take(_highest_of_all(values.take(places), count))
    return _highest_of_all(values, count)


def _highest_of_all(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64]:
    rank = len(values) - count
    return np.sort(np.argpartition(values, rank)[rank:])
