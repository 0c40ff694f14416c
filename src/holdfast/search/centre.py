"""What the passages of an archive have in common, and how alike they are apart from it.

In one conversation everything resembles everything a little: the same people, the same tone. Vectors that are
taken from their own mean tell such passages apart. The mean is that of what the reader may see, and is made
anew for each question, so nothing is kept and nothing crosses from one reader to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Floats

__all__ = ["LOOKED_AT", "Centre", "centred"]

LOOKED_AT: Final = 2048
"""So many windows, those most like the question, are worth seeing from the centre."""
_SMALLEST: Final = np.float32(1e-3)


@dataclass(frozen=True, slots=True)
class Centre:
    """The mean of the visible windows' vectors.

    Attributes:
        length: How long it is, 0 to 1: the more alike the windows, the longer.
        question: The cosine of the question with it.
        windows: The windows that were looked at.
        cosines: The cosine of each of them with it.
        known: The share of the visible windows that have a vector, by the same sample.
    """

    length: float
    question: float
    windows: npt.NDArray[np.int64]
    cosines: Floats
    known: float = 1.0


def centred(cosine: Floats, centre: Centre) -> Floats:
    """The cosine with the question of each window that was looked at, both seen from the centre.

    Only three cosines and one length are needed, since all vectors are of length 1.
    """
    common = np.float32(centre.length) * centre.cosines
    asked = centre.length * centre.question
    square = centre.length**2
    window_side = np.sqrt(np.maximum(1 - 2 * common + square, _SMALLEST))
    question_side = max(1 - 2 * asked + square, float(_SMALLEST)) ** 0.5
    found: Floats = (cosine[centre.windows] - common - asked + square) / (window_side * question_side)
    return found
