"""Vectors of windows as small integers, scanned exactly.

A vector is kept as one signed byte for each dimension, scaled to its own largest part: cosine does not
care for length, a quarter of the memory is enough, and the order of the results stays what it was.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import simsimd

from holdfast.search.centre import LOOKED_AT, Centre
from holdfast.search.columns import Bools, Floats

__all__ = ["Bytes", "Matrix", "quantise"]

Bytes = npt.NDArray[np.int8]

PAGE: Final = 8192
"""Windows in one piece of a matrix: it grows without being copied."""
FEW: Final = 0.5
"""Where fewer of a page may be seen, only those are compared."""

SAMPLE: Final = 1024
"""Windows, evenly spaced, that tell what all of them have in common."""
FEW_WINDOWS: Final = 20
"""So many windows have in common half of what they seem to."""


def quantise(vectors: Floats) -> Bytes:
    """Vectors (one a row) as signed bytes.

    One that is all zeros, or holds anything but numbers, becomes zeros, which are similar to nothing.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    scaled = np.divide(vectors, largest, out=np.zeros_like(vectors), where=usable) * 127
    rounded: Bytes = np.rint(scaled).astype(np.int8)
    return rounded


class Matrix:
    """The vectors of one embedding space, by window number; windows without a vector are rows of zeros."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._pages: dict[int, Bytes] = {}

    def put(self, first: int, rows: Bytes) -> None:
        """Set the vectors of the windows from `first` on."""
        while len(rows):
            number, offset = divmod(first, PAGE)
            if number not in self._pages:
                self._pages[number] = np.zeros((PAGE, self.dimension), np.int8)
            part = rows[: PAGE - offset]
            self._pages[number][offset : offset + len(part)] = part
            first, rows = first + len(part), rows[len(part) :]

    def cosine(self, query: Floats, *, windows: int, visible: Bools | None = None) -> Floats:
        """How alike the query is to each of the first `windows` windows; 0 without a vector, or out of sight."""
        alike = np.zeros(windows, np.float32)
        wanted = quantise(query[None, :].astype(np.float32))
        if not wanted.any():
            return alike
        for number, page in self._pages.items():
            part = alike[number * PAGE : (number + 1) * PAGE]
            seen = None if visible is None else visible[number * PAGE : (number + 1) * PAGE]
            if seen is None:
                part[:] = _cosine(wanted, page[: len(part)])
            elif np.count_nonzero(seen) < FEW * len(part):
                part[seen] = _cosine(wanted, page[: len(part)][seen])
            else:
                part[:] = _cosine(wanted, page[: len(part)]) * seen
        return alike

    def centre(self, query: Floats, cosine: Floats, *, visible: Bools | None = None) -> Centre | None:
        """What the visible windows have in common, by an even sample; None where none has a vector.

        `cosine` is that of all windows with the query: those most like it are held against the centre.
        """
        seen = np.arange(len(cosine)) if visible is None else np.flatnonzero(visible)
        rows = self._rows(seen[:: max(1, len(seen) // SAMPLE)]).astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        known = lengths > 0
        if not known.any():
            return None
        mean = (1 / lengths[known]) @ rows[known] / (np.count_nonzero(known) + FEW_WINDOWS)
        length = float(np.linalg.norm(mean))
        asked = float(query @ mean) / max(1e-9, length * float(np.linalg.norm(query)))
        best = np.sort(np.argpartition(-cosine, LOOKED_AT)[:LOOKED_AT]) if len(cosine) > LOOKED_AT else seen
        return Centre(length, asked, best, _cosine(quantise(mean[None, :]), self._rows(best)))

    def _rows(self, windows: npt.NDArray[np.int64]) -> Bytes:
        """The vectors of some windows, in rising order."""
        rows = np.zeros((len(windows), self.dimension), np.int8)
        for number, page in self._pages.items():
            first, last = np.searchsorted(windows, [number * PAGE, (number + 1) * PAGE])
            rows[first:last] = page[windows[first:last] - number * PAGE]
        return rows


def _cosine(wanted: Bytes, rows: Bytes) -> Floats:
    if not len(rows):
        return np.zeros(0, np.float32)
    alike: Floats = 1 - np.asarray(simsimd.cdist(wanted, rows, "cosine", out_dtype="f32"))[0]
    return alike
