"""Vectors of windows as small integers, scanned exactly.

A vector is kept as one signed byte for each dimension, scaled to its own largest part: cosine does not
care for length, a quarter of the memory is enough, and the order of the results stays what it was.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import simsimd

from holdfast.search.centre import LOOKED_AT, Centre
from holdfast.search.columns import Bools, Floats
from holdfast.search.highest import highest

__all__ = ["Bytes", "Matrix", "quantise"]

Bytes = npt.NDArray[np.int8]

PAGE: Final = 8192
"""Windows in one piece of a matrix: it grows without being copied."""
FEW: Final = 0.5
"""Where fewer of a page may be seen, only those are compared."""

MANY: Final = 1_000_000
"""From so many windows on a scan of all would take too long."""
GROUP: Final = 4
"""Windows of a group. They stand beside each other, most of them in one passage."""
LOOKED_INTO: Final = 24
"""One in so many groups, the best, is looked into."""

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
    """The vectors of one embedding space, by window number; windows without a vector are rows of zeros.

    From `many` windows on, a question is compared with groups of neighbours first.
    """

    def __init__(self, dimension: int, *, many: int = MANY) -> None:
        self.dimension = dimension
        self._many = many
        self._pages: dict[int, Bytes] = {}
        self._lengths: dict[int, Floats] = {}
        self._rough: dict[int, Bytes] = {}
        self._known_mean: tuple[int, Floats | None] = (-1, None)

    def put(self, first: int, rows: Bytes) -> None:
        """Set the vectors of the windows from `first` on."""
        self._known_mean = (-1, None)
        while len(rows):
            number, offset = divmod(first, PAGE)
            if number not in self._pages:
                self._pages[number] = np.zeros((PAGE, self.dimension), np.int8)
            part = rows[: PAGE - offset]
            self._lengths.pop(number, None)
            self._rough.pop(number, None)
            self._pages[number][offset : offset + len(part)] = part
            first, rows = first + len(part), rows[len(part) :]

    def cosine(self, query: Floats, *, windows: int, visible: Bools | None = None) -> Floats:
        """How alike the query is to each of the first `windows` windows; 0 without a vector, or out of sight.

        Of very many windows only those are compared whose neighbourhood is like the query; the others have 0 too.
        """
        wanted = quantise(query[None, :].astype(np.float32))
        if not wanted.any():
            return np.zeros(windows, np.float32)
        if windows >= self._many and (visible is None or np.count_nonzero(visible) >= self._many):
            return self._cosine_of_best(wanted, windows, visible)
        return self._cosine_of_all(wanted, windows, visible)

    def _cosine_of_all(self, wanted: Bytes, windows: int, visible: Bools | None) -> Floats:
        alike = np.zeros(windows, np.float32)
        length = np.float32(np.linalg.norm(wanted.astype(np.float32)))
        for number, page in self._pages.items():
            part = alike[number * PAGE : (number + 1) * PAGE]
            rows, lengths = page[: len(part)], self._lengths_of(number)[: len(part)] * length
            seen = None if visible is None else visible[number * PAGE : (number + 1) * PAGE]
            if seen is not None and np.count_nonzero(seen) < FEW * len(part):
                part[seen] = _products(wanted, rows[seen]) / lengths[seen]
            else:
                np.divide(_products(wanted, rows), lengths, out=part)
                if seen is not None:
                    part *= seen
        return alike

    def _lengths_of(self, number: int) -> Floats:
        """The lengths of a page's vectors, 1 at least: reckoned once, where every question needs them."""
        if number not in self._lengths:
            page = self._pages[number]
            squares = np.asarray(simsimd.sqeuclidean(page, np.zeros_like(page)), np.float32)
            self._lengths[number] = np.sqrt(np.maximum(squares, 1))
        return self._lengths[number]

    def _cosine_of_best(self, wanted: Bytes, windows: int, visible: Bools | None) -> Floats:
        """Compare groups first, then every window of the best groups."""
        rough = np.zeros(-(-windows // GROUP), np.float32)
        for number, page in self._pages.items():
            if number not in self._rough:
                self._rough[number] = _grouped(page)
            part = rough[number * PAGE // GROUP : (number + 1) * PAGE // GROUP]
            part[:] = _cosine(wanted, self._rough[number][: len(part)])
        groups = highest(rough, len(rough) // LOOKED_INTO)
        chosen = (groups[:, None] * GROUP + np.arange(GROUP)).ravel()
        chosen = chosen[: np.searchsorted(chosen, windows)]
        if visible is not None:
            chosen = chosen[visible[chosen]]
        alike = np.zeros(windows, np.float32)
        alike[chosen] = _cosine(wanted, self._rows(chosen))
        return alike

    def centre(self, query: Floats, cosine: Floats, *, visible: Bools | None = None) -> Centre | None:
        """What the visible windows have in common, by an even sample; None where none has a vector.

        `cosine` is that of all windows with the query: those most like it are held against the centre.
        """
        mean = self._mean(len(cosine), visible)
        if mean is None:
            return None
        length = float(np.linalg.norm(mean))
        asked = float(query @ mean) / max(1e-9, length * float(np.linalg.norm(query)))
        best = highest(cosine, LOOKED_AT)
        if visible is not None and len(cosine) <= LOOKED_AT:
            best = np.flatnonzero(visible)
        return Centre(length, asked, best, _cosine(quantise(mean[None, :]), self._rows(best)))

    def _mean(self, windows: int, visible: Bools | None) -> Floats | None:
        """The mean of an even sample of the visible windows; None where none has a vector.

        That of all windows is kept until there are others.
        """
        if visible is None and self._known_mean[0] == windows:
            return self._known_mean[1]
        seen = np.arange(windows) if visible is None else np.flatnonzero(visible)
        rows = self._rows(seen[:: max(1, len(seen) // SAMPLE)]).astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        known = lengths > 0
        # einsum, not a product of matrices: for so little, the threads of linear algebra cost more than they do.
        total = np.einsum("i,ij->j", 1 / lengths[known], rows[known]) if known.any() else None
        mean = None if total is None else total / (np.count_nonzero(known) + FEW_WINDOWS)
        if visible is None:
            self._known_mean = windows, mean
        return mean

    def _rows(self, windows: npt.NDArray[np.int64]) -> Bytes:
        """The vectors of some windows, in rising order."""
        rows = np.zeros((len(windows), self.dimension), np.int8)
        pages = np.arange(windows[-1] // PAGE + 2 if len(windows) else 1) * PAGE
        for number, (first, last) in enumerate(pairwise(np.searchsorted(windows, pages).tolist())):
            if last > first and number in self._pages:
                np.take(self._pages[number], windows[first:last] - number * PAGE, axis=0, out=rows[first:last])
        return rows


def _grouped(page: Bytes) -> Bytes:
    """The sum of each group of windows, as far as a byte can say it."""
    quarters = page >> 2
    grouped: Bytes = quarters[0::GROUP] + quarters[1::GROUP]
    for place in range(2, GROUP):
        grouped += quarters[place::GROUP]
    return grouped


def _products(wanted: Bytes, rows: Bytes) -> Floats:
    """The product of a vector with each row."""
    if not len(rows):
        return np.zeros(0, np.float32)
    found: Floats = np.asarray(simsimd.cdist(wanted, rows, "dot", out_dtype="f32"))[0]
    return found


def _cosine(wanted: Bytes, rows: Bytes) -> Floats:
    if not len(rows):
        return np.zeros(0, np.float32)
    alike: Floats = 1 - np.asarray(simsimd.cdist(wanted, rows, "cosine", out_dtype="f32"))[0]
    return alike
