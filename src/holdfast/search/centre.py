"""What the passages of an archive have in common, and how alike they are apart from it.

In one conversation everything resembles everything a little: the same people, the same tone. Vectors that are
taken from their own mean tell such passages apart. The mean is that of what the reader may see, and is made
anew for each question, so nothing is kept and nothing crosses from one reader to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.search.columns import Floats

__all__ = ["Centre", "centred"]

_SMALLEST: Final = np.float32(1e-3)


@dataclass(frozen=True, slots=True)
class Centre:
    """The mean of the visible windows' vectors.

    Attributes:
        length: How long it is, 0 to 1: the more alike the windows, the longer.
        windows: The cosine of each window with it.
        question: The cosine of the question with it.
    """

    length: float
    windows: Floats
    question: float


def centred(cosine: Floats, centre: Centre) -> Floats:
    """The cosine of each window with the question, both seen from the centre.

    Only three cosines and one length are needed, since all vectors are of length 1. A window without a vector,
    whose cosine is 0, stays at 0.
    """
    length = np.float32(centre.length)
    common = length * centre.windows
    asked = float(length) * centre.question
    square = float(length) ** 2
    window_side = np.sqrt(np.maximum(1 - 2 * common + square, _SMALLEST))
    question_side = max(1 - 2 * asked + square, float(_SMALLEST)) ** 0.5
    moved = (cosine - common - asked + square) / (window_side * np.float32(question_side))
    kept: Floats = np.where(cosine == 0, np.float32(0), moved).astype(np.float32)
    return kept
