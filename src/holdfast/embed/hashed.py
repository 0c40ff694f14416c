"""Vectors of hashed letter trigrams: no weights, no meaning, the same on every machine.

Kept for memory folders that were written with it. On three of four public data sets it finds less than words alone,
so `auto` never uses it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from holdfast.embed.base import Floats, Purpose, Space, make_digest, unit

DIMENSION: Final = 384
MAX_UNITS: Final = 2_000
"""UTF-16 code units of a text that are used."""

# White space as JavaScript defines it, not Python: vectors must agree with those already written.
_BLANKS: Final = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_BLANK_RUN: Final = re.compile(f"[{_BLANKS}]+")
_OTHERS: Final = rf"[^\p{{L}}\p{{N}}{_BLANKS}@.+\-]"
_WINDOW: Final = 3


class HashEmbedder:
    """Embeds by hashing trigrams. Two texts are similar as far as they are spelled alike."""

    def __init__(self, *, dimension: int = DIMENSION) -> None:
        self.space = Space(name="hash", dimension=dimension, digest=make_digest("hash", "sha256-trigrams", "1"))

    def __repr__(self) -> str:
        return f"HashEmbedder(dimension={self.space.dimension})"

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:  # noqa: ARG002 - both are the same
        """Count each text's trigrams, with the sign of their hash, at the place of their hash."""
        rows = np.zeros((len(texts), self.space.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            counts = [0] * len(row)
            for trigram in _trigrams(text):
                number, sign = _hash(trigram)
                counts[number % len(row)] += sign
            row[:] = counts
        return unit(rows)


def _trigrams(text: str) -> list[str]:
    """Return each run of three UTF-16 code units of a text; half of a surrogate pair counts as U+FFFD."""
    import regex  # noqa: PLC0415 - needed only if this embedder is in use

    if len(text) > MAX_UNITS // 2:
        text = text.encode("utf-16-le", "surrogatepass")[: 2 * MAX_UNITS].decode("utf-16-le", "surrogatepass")
    text = regex.sub(_OTHERS, " ", _BLANK_RUN.sub(" ", text.lower())).strip(" ")
    units = f" {text} ".encode("utf-16-le")
    if len(units) <= 2 * _WINDOW + 4:
        return [text] if text else []
    if len(units) == 2 * len(text) + 4:
        return [f" {text} "[start : start + _WINDOW] for start in range(len(text) + 3 - _WINDOW)]
    starts = range(0, len(units) - 2 * _WINDOW + 1, 2)
    return [units[start : start + 2 * _WINDOW].decode("utf-16-le", "replace") for start in starts]


@lru_cache(maxsize=1 << 16)
def _hash(trigram: str) -> tuple[int, int]:
    """Return the number of a trigram, and its sign."""
    digest = hashlib.sha256(trigram.encode()).digest()
    return int.from_bytes(digest[:4], "little"), -1 if digest[4] % 2 else 1
