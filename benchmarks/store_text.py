"""Text for measuring a store: words as common and as rare as those of real text, a fifth of it Chinese."""

from __future__ import annotations

import random
from typing import Final

import numpy as np
import numpy.typing as npt

__all__ = ["Writer"]

WORDS: Final = 50_000
CHARACTERS: Final = 3_000
CHINESE: Final = 0.2
_FIRST: Final = 0x4E00
_SENTENCE: Final = 12
"""Words of a sentence, about."""


class Writer:
    """Writes passages of about 1,000 characters, and questions about them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - text for a benchmark
        self._draw = np.random.default_rng(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(self._chance.choices(letters, k=self._chance.randint(3, 10))) for _ in range(WORDS)]
        self._by_rarity = {count: _cumulative(count) for count in (WORDS, CHARACTERS)}

    def text(self) -> str:
        """About 1,000 characters."""
        return self._chinese() if self._chance.random() < CHINESE else self._english()

    def _english(self) -> str:
        words = [self._words[number] for number in self._numbers(WORDS, 140)]
        for place in self._draw.integers(0, 140, 140 // _SENTENCE).tolist():
            words[place] = words[place].rstrip(".") + "."
        return " ".join(words)

    def _chinese(self) -> str:
        return "".join(chr(_FIRST + number) + ("。" if number % 17 == 0 else "") for number in self._numbers(3000, 330))

    def _numbers(self, count: int, size: int) -> list[int]:
        """Numbers below `count`, low ones far more often than high ones."""
        found: list[int] = np.searchsorted(self._by_rarity[count], self._draw.random(size)).tolist()
        return found

    def question(self, text: str) -> str:
        """A dozen words of a text."""
        start = self._chance.randrange(max(1, len(text) - 90))
        return text[start : start + (90 if text.isascii() else 12)]


def _cumulative(count: int) -> npt.NDArray[np.float64]:
    """How often one of so many words is drawn at most this high, by Zipf's law."""
    weights = 1 / np.arange(1, count + 1) ** 1.05
    sums: npt.NDArray[np.float64] = np.cumsum(weights)[:-1] / weights.sum()
    return sums
