"""Vectors of hashed letter triples: no weights, no meaning, the same on every machine.

Kept for memory folders that were written with it. On three of four public sets it finds less than words alone,
so `auto` never takes it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from holdfast.search.embed.base import Floats, Purpose, Space, text_digest, unit

if TYPE_CHECKING:
    import regex

__all__ = ["HashEmbedder"]

DIMENSION: Final = 384
LONGEST: Final = 2_000
"""UTF-16 units of a text that count."""

# The blanks of JavaScript, which differ from Python's: vectors must agree with those already written.
_BLANKS: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_BLANK_RUN: Final = re.compile(f"[{_BLANKS}]+")
_WINDOW: Final = 3


class HashEmbedder:
    """Embeds by hashing every three letters. Two texts are alike as far as they are spelled alike."""

    def __init__(self, *, dimension: int = DIMENSION) -> None:
        self._space = Space(name="hash", dimension=dimension, digest=text_digest("hash", "sha256-trigrams", "1"))

    @property
    def space(self) -> Space:
        """The space of all hash embedders of this dimension."""
        return self._space

    def __repr__(self) -> str:
        return f"HashEmbedder(dimension={self._space.dimension})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:  # noqa: ARG002 - questions and passages are one
        """Count each text's triples, with the sign of their hash, at the place of their hash."""
        rows = np.zeros((len(texts), self._space.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            counts = [0] * len(row)
            for feature in _features(_normal(text)):
                number, sign = _hashed(feature)
                counts[number % len(row)] += sign
            row[:] = counts
        return unit(rows)


def _normal(text: str) -> str:
    """Lower case, letters and digits and a few signs; everything else is a space."""
    if len(text) > LONGEST // 2:
        text = text.encode("utf-16-le", "surrogatepass")[: 2 * LONGEST].decode("utf-16-le", "surrogatepass")
    return _dropped().sub(" ", _BLANK_RUN.sub(" ", text.lower())).strip(" ")


def _features(text: str) -> list[str]:
    """Each window of three UTF-16 units, or the whole text where it is no longer than that.

    A window may hold half of a letter beyond the first plane; the half counts as U+FFFD.
    """
    units = text.encode("utf-16-le")
    if len(units) <= 2 * _WINDOW:
        return [text] if text else []
    padded = f" {text} "
    if len(units) == 2 * len(text):
        return [padded[start : start + _WINDOW] for start in range(len(padded) - _WINDOW + 1)]
    units = padded.encode("utf-16-le")
    starts = range(0, len(units) - 2 * _WINDOW + 1, 2)
    return [units[start : start + 2 * _WINDOW].decode("utf-16-le", "replace") for start in starts]


@lru_cache(maxsize=1 << 16)
def _hashed(feature: str) -> tuple[int, int]:
    """The number of a feature, and its sign."""
    hashed = hashlib.sha256(feature.encode()).digest()
    return int.from_bytes(hashed[:4], "little"), -1 if hashed[4] % 2 else 1


@cache
def _dropped() -> regex.Pattern[str]:
    import regex  # noqa: PLC0415 - needed only where this embedder is in use

    return regex.compile(rf"[^\p{{L}}\p{{N}}{_BLANKS}@.+\-]")
