"""Vectors of windows as small integers, scanned exactly.

A vector is kept as one signed byte for each dimension, scaled to its own largest part: cosine does not
care for length, a quarter of the memory is enough, and the order of the results stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import simsimd

from holdfast.search.arrays import Bools, Floats, highest

Bytes = npt.NDArray[np.int8]
Signs = npt.NDArray[np.uint64]
Derived = TypeVar("Derived", Floats, Signs)

PAGE: Final = 32_768
"""Windows in one piece of a matrix: it grows without being copied."""
FEW: Final = 0.5
"""Where fewer of a page may be seen, only those are compared."""

MANY: Final = 131_072
"""From so many windows on the signs of a vector tell which windows it is compared with byte by byte."""
LOOKED_INTO: Final = 8_192
"""So many are, those that share most signs with it; or one in `ONE_IN`, if that is more."""
ONE_IN: Final = 96

SAMPLE: Final = 1024
"""Windows, evenly spaced, that tell what all of them have in common."""
FEW_WINDOWS: Final = 20
"""So many windows have in common half of what they seem to."""


_NO_MEAN: Final = (np.full(1, -1), None, 0.0)


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

    From `many` windows on, the signs of the vectors tell which `looked_into` of them a question is compared with.
    """

    def __init__(self, dimension: int, *, many: int = MANY, looked_into: int = LOOKED_INTO) -> None:
        self.dimension = dimension
        self._many, self._looked_into = many, looked_into
        self._pages: dict[int, Bytes] = {}
        self._squares: dict[int, Floats] = {}
        self._signs: dict[int, Signs] = {}
        self._shared = np.zeros(0, np.uint16)
        # The windows that the last query was compared with, and their vectors.
        self._compared: tuple[npt.NDArray[np.int64], Bytes] | None = None
        # The windows of the last sample, and its mean.
        self._known_mean: tuple[npt.NDArray[np.int64], Floats | None, float] = _NO_MEAN

    def store(self, first: int, rows: Bytes) -> None:
        """Set the vectors of the windows from `first` on."""
        self._known_mean = _NO_MEAN
        while len(rows):
            number, offset = divmod(first, PAGE)
            if number not in self._pages:
                self._pages[number] = np.zeros((PAGE, self.dimension), np.int8)
            part = rows[: PAGE - offset]
            _shorten(self._squares, number, offset)
            _shorten(self._signs, number, offset)
            self._pages[number][offset : offset + len(part)] = part
            first, rows = first + len(part), rows[len(part) :]

    def take(self, number: int, rows: Bytes, signs: Signs) -> None:
        """Use rows as a page, with their signs, instead of copying them."""
        self._pages[number], self._signs[number] = rows, signs

    def prefetch(self, query: Floats, *, windows: int, visible: Bools | None = None) -> None:
        """Do nothing: all vectors are here. Those of a server are asked for, to be read in `cosine`."""

    def cosine(self, query: Floats, *, windows: int, visible: Bools | None = None) -> Floats:
        """How alike the query is to each of the first `windows` windows; 0 without a vector, or out of sight.

        Of very many windows only the most promising are compared; the others have 0 too.
        """
        wanted = quantise(query[None, :].astype(np.float32))
        self._compared = None
        if not wanted.any():
            return np.zeros(windows, np.float32)
        if windows >= self._many and (visible is None or np.count_nonzero(visible) >= self._many):
            return self._cosine_of_best(wanted, windows, visible)
        alike = np.zeros(windows, np.float32)
        for number, page in self._pages.items():
            part = alike[number * PAGE : (number + 1) * PAGE]
            rows = page[: len(part)]
            squares = _grown(self._squares, number, rows, _squares)
            seen = None if visible is None else visible[number * PAGE : (number + 1) * PAGE]
            if seen is not None and np.count_nonzero(seen) < FEW * len(part):
                part[seen] = _cosine(wanted, rows[seen], squares[seen])
            else:
                part[:] = _cosine(wanted, rows, squares)
                if seen is not None:
                    part *= seen
        return alike

    def _cosine_of_best(self, wanted: Bytes, windows: int, visible: Bools | None) -> Floats:
        """Compare signs first, then every window of which most are the query's."""
        signs = pack_signs(wanted)
        shared = self._room_for_shared(windows)
        for number, page in self._pages.items():
            part = shared[number * PAGE : (number + 1) * PAGE]
            part[:] = count_shared(_grown(self._signs, number, page[: len(part)], pack_signs), signs)
        if visible is not None:
            shared *= visible
        return self._cosine_of(highest(shared, max(self._looked_into, windows // ONE_IN)), wanted, windows)

    def _room_for_shared(self, windows: int) -> npt.NDArray[np.uint16]:
        """Return an array for the number of signs that each window shares; kept, since new memory takes time."""
        if len(self._shared) < windows:
            self._shared = np.zeros(windows + windows // 8, np.uint16)
        return self._shared[:windows]

    def _cosine_of(self, chosen: npt.NDArray[np.int64], wanted: Bytes, windows: int) -> Floats:
        """Compare with some windows (in rising order); the others have 0."""
        alike = np.zeros(windows, np.float32)
        rows = self._rows(chosen)
        self._compared = chosen, rows
        alike[chosen] = _cosine(wanted, rows, _squares(rows))
        return alike

    def centre(self, query: Floats, cosine: Floats, *, visible: Bools | None = None) -> Centering | None:
        """What the visible windows have in common, by an even sample; None where none has a vector.

        `cosine` is that of all windows with the query: those most like it are held against the centre.
        """
        mean, known = self._mean(len(cosine), visible)
        if mean is None:
            return None
        length = float(np.linalg.norm(mean))
        asked = float(query @ mean) / max(1e-9, length * float(np.linalg.norm(query)))
        if visible is not None and len(cosine) <= MAX_CENTERED_WINDOWS:
            best = np.flatnonzero(visible)
            rows = self._rows(best)
        elif self._compared is None:
            best = highest(cosine, MAX_CENTERED_WINDOWS)
            rows = self._rows(best)
        else:
            compared, rows = self._compared
            places = highest(cosine[compared], MAX_CENTERED_WINDOWS)
            best, rows = compared[places], rows[places]
        cosines = _cosine(quantise(mean[None, :]), rows, _squares(rows))
        return Centering(length, asked, best, cosines, known)

    def _mean(self, windows: int, visible: Bools | None) -> tuple[Floats | None, float]:
        """The mean of an even sample of the visible windows, and the share with a vector; the last one is cached."""
        seen = None if visible is None else np.flatnonzero(visible)
        count = windows if seen is None else len(seen)
        sample = np.arange(0, count, max(1, count // SAMPLE))
        sample = sample if seen is None else seen[sample]
        if np.array_equal(sample, self._known_mean[0]):
            return self._known_mean[1:]
        rows = self._rows(sample).astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        known = lengths > 0
        # einsum, not a product of matrices: for so little, the threads of linear algebra cost more than they do.
        total = np.einsum("i,ij->j", 1 / lengths[known], rows[known])
        count = int(np.count_nonzero(known))
        mean = (total / (count + FEW_WINDOWS), count / len(known)) if count else (None, 0.0)
        self._known_mean = (sample, *mean)
        return mean

    def _rows(self, windows: npt.NDArray[np.int64]) -> Bytes:
        """The vectors of some windows, in rising order."""
        rows = np.zeros((len(windows), self.dimension), np.int8)
        pages = np.arange(windows[-1] // PAGE + 2 if len(windows) else 1) * PAGE
        for number, (first, last) in enumerate(pairwise(np.searchsorted(windows, pages).tolist())):
            if last > first and number in self._pages:
                np.take(
                    self._pages[number], windows[first:last] - number * PAGE, axis=0, out=rows[first:last], mode="clip"
                )
        return rows


def _grown(known: dict[int, Derived], number: int, rows: Bytes, derive: Callable[[Bytes], Derived]) -> Derived:
    """What is derived of the rows of a page: only of those that are new, since a page mostly grows."""
    held = known.get(number)
    if held is None:
        known[number] = derive(rows)
    elif (length := held.shape[-1]) < len(rows):
        known[number] = np.concatenate([held, derive(rows[length:])], axis=-1)
    return known[number][..., : len(rows)]


def _shorten(known: dict[int, Derived], number: int, length: int) -> None:
    """Forget what was derived of the rows of a page from there on."""
    if number in known:
        known[number] = known[number][..., :length]


def _squares(rows: Bytes) -> Floats:
    """The square of the length of each vector."""
    return _distances(np.zeros((1, rows.shape[1]), np.int8), rows)


def pack_signs(rows: Bytes) -> Signs:
    """Whether each part of each vector is above 0: a row for each 64 parts, a word in it for each vector."""
    positive = rows > 0
    if missing := -rows.shape[1] % 64:
        positive = np.pad(positive, ((0, 0), (0, missing)))
    words = np.packbits(positive.reshape(-1)).view(np.uint64)  # as one row, which is faster than many
    return np.ascontiguousarray(words.reshape(len(rows), positive.shape[1] // 64).T)


def count_shared(words: Signs, signs: Signs) -> npt.NDArray[np.uint16]:
    """How many signs each vector shares with one vector, whose words are one column."""
    shared: npt.NDArray[np.uint16] = np.add.reduce(np.bitwise_count(words ^ ~signs), axis=0, dtype=np.uint16)
    return shared


def _distances(wanted: Bytes, rows: Bytes) -> Floats:
    """The squared distance of a vector from each row."""
    if not len(rows):
        return np.zeros(0, np.float32)
    found: Floats = np.asarray(simsimd.cdist(wanted, rows, "sqeuclidean", out_dtype="f32"))[0]
    return found


def _cosine(wanted: Bytes, rows: Bytes, squares: Floats) -> Floats:
    """The cosine of a vector with each row, by their distance and the squares of their lengths.

    On ARM, the product of `simsimd` takes twice as long as the distance, and its cosine is wrong by up to 0.0008.
    """
    square = _squares(wanted)
    twice = square + squares - _distances(wanted, rows)
    alike: Floats = twice / (2 * np.sqrt(square) * np.sqrt(np.maximum(squares, 1)))
    return alike


# --- cosines relative to the mean ----------------------------------------------------

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
