"""Vectors of windows as small integers, scanned exactly.

A vector is kept as one signed byte for each dimension, scaled to its own largest part: cosine does not
care for length, a quarter of the memory is enough, and the order of the results stays what it was.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import simsimd

from holdfast.search.columns import Floats

__all__ = ["Bytes", "Matrix", "quantise"]

Bytes = npt.NDArray[np.int8]


def quantise(vectors: Floats) -> Bytes:
    """Vectors (one a row) as signed bytes; an all-zero vector stays one and is similar to nothing."""
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    scaled = np.divide(vectors * 127, largest, out=np.zeros_like(vectors), where=largest > 0)
    rounded: Bytes = np.rint(scaled).astype(np.int8)
    return rounded


class Matrix:
    """The vectors of one embedding space, by window number; windows without a vector are rows of zeros."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._rows: Bytes = np.zeros((1024, dimension), np.int8)

    def put(self, first: int, rows: Bytes) -> None:
        """Set the vectors of the windows from `first` on."""
        stop = first + len(rows)
        if stop > len(self._rows):
            more = max(stop, 2 * len(self._rows)) - len(self._rows)
            self._rows = np.concatenate([self._rows, np.zeros((more, self.dimension), np.int8)])
        self._rows[first:stop] = rows

    def clear(self, windows: range) -> None:
        """Forget the vectors of these windows."""
        self._rows[windows.start : windows.stop] = 0

    def cosine(self, query: Floats, *, windows: int) -> Floats:
        """How alike the query is to each of the first `windows` windows; 0 for those without a vector."""
        alike = np.zeros(windows, np.float32)
        known = min(windows, len(self._rows))
        if known and query.any():
            wanted = quantise(query[None, :].astype(np.float32))
            alike[:known] = 1 - np.asarray(simsimd.cdist(wanted, self._rows[:known], "cosine"))[0]
        return alike
