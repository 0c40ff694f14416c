"""Find the highest of many values without sorting the others."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["highest"]

_SAMPLE: Final = 4_096
"""The size of the even sample that gives a lower bound."""


def highest(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64]:
    """Return the places of the `count` highest values, in ascending order."""
    if len(values) <= count:
        return np.arange(len(values))
    places = _narrow(values, count)
    if places is None:
        return np.sort(np.argpartition(values, len(values) - count)[len(values) - count :])
    few = values[places]
    return places[np.sort(np.argpartition(few, len(few) - count)[len(few) - count :])]


def _narrow(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64] | None:
    """Return places among which the highest values must be, by an even sample; None where that does not help."""
    step = len(values) // _SAMPLE
    if step <= 1:
        return None
    sample = values[::step]
    expected = count / step
    rank = len(sample) - int(expected + 4 * math.sqrt(expected) + 4)
    if rank <= 0:
        return None
    places = np.flatnonzero(values >= np.partition(sample, rank)[rank])
    return places if len(places) >= count else None
