"""Cosines relative to the mean of the visible vectors.

All passages of a conversation are somewhat similar: the same people, the same tone. Subtracting their mean separates
them. The mean is that of the passages the reader may see, computed for each query: nothing is stored, and nothing
crosses from one scope to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Floats

__all__ = ["MAX_CENTERED_WINDOWS", "Centering", "center_cosines"]

MAX_CENTERED_WINDOWS: Final = 2048
"""The number of windows, those most similar to the query, whose cosines are centred."""
_MIN_SQUARE: Final = np.float32(1e-3)


@dataclass(frozen=True, slots=True)
class Centering:
    """The mean of the visible windows' vectors.

    Attributes:
        length: The length of the mean, 0 to 1: the more similar the windows, the longer.
        question: The cosine of the query with the mean.
        windows: The windows whose cosines are centred.
        cosines: The cosine of each of them with the mean.
        known: The share of the visible windows that have a vector, by the same sample.
    """

    length: float
    question: float
    windows: npt.NDArray[np.int64]
    cosines: Floats
    known: float = 1.0


def center_cosines(cosine: Floats, centre: Centering) -> Floats:
    """Return the cosine with the query of each window in `centre`, after the mean is subtracted from both.

    Three cosines and one length are enough, since all vectors have length 1.
    """
    common = np.float32(centre.length) * centre.cosines
    query = centre.length * centre.question
    square = centre.length**2
    window_side = np.sqrt(np.maximum(1 - 2 * common + square, _MIN_SQUARE))
    query_side = max(1 - 2 * query + square, float(_MIN_SQUARE)) ** 0.5
    centred: Floats = (cosine[centre.windows] - common - query + square) / (window_side * query_side)
    return centred
