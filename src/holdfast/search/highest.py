"""The highest of many values, without sorting the others."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["highest"]

_SAMPLE: Final = 4_096
"""So many values, evenly spaced, tell from where on to look."""


def highest(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64]:
    """Where the `count` highest values stand, in rising order of place."""
    if len(values) <= count:
        return np.arange(len(values))
    places = _promising(values, count)
    if places is None:
        return np.sort(np.argpartition(values, len(values) - count)[len(values) - count :])
    few = values[places]
    return places[np.sort(np.argpartition(few, len(few) - count)[len(few) - count :])]


def _promising(values: npt.NDArray[np.number], count: int) -> npt.NDArray[np.int64] | None:
    """Where values stand among which the highest must be, told by an even sample; None where that is no help."""
    step = len(values) // _SAMPLE
    if step <= 1:
        return None
    sample = values[::step]
    expected = count / step
    about = len(sample) - int(expected + 4 * math.sqrt(expected) + 4)
    if about <= 0:
        return None
    places = np.flatnonzero(values >= np.partition(sample, about)[about])
    return places if len(places) >= count else None
