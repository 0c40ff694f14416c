"""The vectors of windows as signed bytes, compared with the vector of a query.

A vector is stored as one signed byte for each dimension, scaled to its own largest part. The cosine does not depend on
the length of a vector, so this takes a quarter of the memory of floats and keeps the order of results.
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
"""The number of windows in one array of a matrix, so that it grows without being copied."""
FEW: Final = 0.5
"""If a reader sees a smaller share of the windows of a page, only these windows are compared."""

# With `MANY` windows or more, a scan of all bytes takes too long. Then all signs are compared, one bit for each
# dimension, and only the windows that share most signs with the query are compared byte by byte: `LOOKED_INTO` of them,
# or one in `ONE_IN` if that is more. docs/decisions/0001-index.md has the measurement.
MANY: Final = 131_072
LOOKED_INTO: Final = 8_192
ONE_IN: Final = 96

SAMPLE: Final = 1024
"""The number of windows in the even sample from which the mean is computed."""
FEW_WINDOWS: Final = 20
"""The mean of 20 windows counts half, as if there were 20 more with nothing in common."""


def quantise(vectors: Floats) -> Bytes:
    """Return vectors (one for each row) as signed bytes.

    A vector of zeros, or one with values that are not finite, becomes zeros, which are similar to nothing.
    """
    largest = np.abs(vectors).max(axis=1, keepdims=True, initial=0.0)
    usable = np.isfinite(largest) & (largest > 0)
    scaled = np.divide(vectors, largest, out=np.zeros_like(vectors), where=usable) * 127
    rounded: Bytes = np.rint(scaled).astype(np.int8)
    return rounded


@dataclass(frozen=True, slots=True)
class _Mean:
    """The mean of a sample of windows; None if none has a vector. `known` is the share of the sample that has one."""

    sample: npt.NDArray[np.int64]
    mean: Floats | None
    known: float


class Matrix:
    """The vectors of one embedding space by window number. Windows without a vector are rows of zeros.

    With `many` windows or more, the signs of the vectors decide which `looked_into` of them a query is compared with.
    """

    def __init__(self, dimension: int, *, many: int = MANY, looked_into: int = LOOKED_INTO) -> None:
        self.dimension = dimension
        self._many = many
        self._looked_into = looked_into
        self._pages: dict[int, Bytes] = {}
        # Derived from pages, and computed once for each row.
        self._squares: dict[int, Floats] = {}
        self._signs: dict[int, Signs] = {}
        # The number of shared signs of each window. The array is reused, because allocating one takes time.
        self._shared = np.zeros(0, np.uint16)
        # The windows that the last query was compared with byte by byte, and their vectors.
        self._compared: tuple[npt.NDArray[np.int64], Bytes] | None = None
        self._last_mean: _Mean | None = None

    def store(self, first: int, rows: Bytes) -> None:
        """Set the vectors of the windows from `first` on."""
        self._last_mean = None
        while len(rows):
            number, offset = divmod(first, PAGE)
            if number not in self._pages:
                self._pages[number] = np.zeros((PAGE, self.dimension), np.int8)
            part = rows[: PAGE - offset]
            _shorten(self._squares, number, offset)
            _shorten(self._signs, number, offset)
            self._pages[number][offset : offset + len(part)] = part
            first += len(part)
            rows = rows[len(part) :]

    def take(self, number: int, rows: Bytes, signs: Signs) -> None:
        """Use an array as a page, with its signs, without copying it."""
        self._pages[number] = rows
        self._signs[number] = signs

    def prefetch(self, query: Floats, *, windows: int, visible: Bools | None = None) -> None:
        """Do nothing, because all vectors are in memory. A matrix on a server selects them here for `cosine`."""

    def cosine(self, query: Floats, *, windows: int, visible: Bools | None = None) -> Floats:
        """Return the cosine of the query with each of the first `windows` windows.

        It is 0 for a window without a vector and for one that is not visible. If there are very many windows, only the
        most promising are compared, and the others have 0 too.
        """
        wanted = quantise(query[None, :].astype(np.float32))
        self._compared = None
        if not wanted.any():
            return np.zeros(windows, np.float32)
        if windows >= self._many and (visible is None or np.count_nonzero(visible) >= self._many):
            return self._cosine_of_best(wanted, windows, visible)
        cosines = np.zeros(windows, np.float32)
        for number, page in self._pages.items():
            own = slice(number * PAGE, (number + 1) * PAGE)
            part = cosines[own]
            rows = page[: len(part)]
            squares = _derive_new(self._squares, number, rows, _squares)
            if visible is None:
                part[:] = _cosine(wanted, rows, squares)
                continue
            is_visible = visible[own]
            if np.count_nonzero(is_visible) < FEW * len(part):
                part[is_visible] = _cosine(wanted, rows[is_visible], squares[is_visible])
            else:
                part[:] = _cosine(wanted, rows, squares)
                part *= is_visible
        return cosines

    def _cosine_of_best(self, wanted: Bytes, windows: int, visible: Bools | None) -> Floats:
        """Compare the signs of all windows, then all bytes of those that share most signs with the query."""
        signs = pack_signs(wanted)
        shared = self._room_for_shared(windows)
        for number, page in self._pages.items():
            part = shared[number * PAGE : (number + 1) * PAGE]
            page_signs = _derive_new(self._signs, number, page[: len(part)], pack_signs)
            part[:] = count_shared(page_signs, signs)
        if visible is not None:
            shared *= visible
        best = highest(shared, max(self._looked_into, windows // ONE_IN))
        return self._cosine_of(best, wanted, windows)

    def _room_for_shared(self, windows: int) -> npt.NDArray[np.uint16]:
        """Return an array for the number of signs that each window shares with the query."""
        if len(self._shared) < windows:
            self._shared = np.zeros(windows + windows // 8, np.uint16)
        return self._shared[:windows]

    def _cosine_of(self, chosen: npt.NDArray[np.int64], wanted: Bytes, windows: int) -> Floats:
        """Compare with some windows (in ascending order); the others have 0."""
        cosines = np.zeros(windows, np.float32)
        rows = self._rows(chosen)
        self._compared = (chosen, rows)
        cosines[chosen] = _cosine(wanted, rows, _squares(rows))
        return cosines

    def centre(self, query: Floats, cosine: Floats, *, visible: Bools | None = None) -> Centering | None:
        """Return the mean of the visible windows, by an even sample; None if none has a vector.

        `cosine` is that of all windows with the query. The cosine with the mean is computed only for the windows most
        similar to the query.
        """
        sampled = self._sample_mean(len(cosine), visible)
        mean = sampled.mean
        if mean is None:
            return None
        length = float(np.linalg.norm(mean))
        question = float(query @ mean) / max(1e-9, length * float(np.linalg.norm(query)))
        if visible is not None and len(cosine) <= MAX_CENTERED_WINDOWS:
            best = np.flatnonzero(visible)
            rows = self._rows(best)
        elif self._compared is None:
            best = highest(cosine, MAX_CENTERED_WINDOWS)
            rows = self._rows(best)
        else:
            compared, rows = self._compared
            places = highest(cosine[compared], MAX_CENTERED_WINDOWS)
            best = compared[places]
            rows = rows[places]
        cosines = _cosine(quantise(mean[None, :]), rows, _squares(rows))
        return Centering(length, question, best, cosines, sampled.known)

    def _sample_mean(self, windows: int, visible: Bools | None) -> _Mean:
        """Return the mean of an even sample of the visible windows. It is computed once for each sample."""
        if visible is None:
            sample = np.arange(0, windows, max(1, windows // SAMPLE))
        else:
            visible_windows = np.flatnonzero(visible)
            sample = visible_windows[:: max(1, len(visible_windows) // SAMPLE)]
        if self._last_mean is None or not np.array_equal(sample, self._last_mean.sample):
            self._last_mean = self._mean_of(sample)
        return self._last_mean

    def _mean_of(self, sample: npt.NDArray[np.int64]) -> _Mean:
        rows = self._rows(sample).astype(np.float32)
        lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        has_vector = lengths > 0
        count = int(np.count_nonzero(has_vector))
        if not count:
            return _Mean(sample, None, 0.0)
        # einsum instead of a matrix product: with so few numbers, starting the threads of linear algebra costs more.
        total = np.einsum("i,ij->j", 1 / lengths[has_vector], rows[has_vector])
        return _Mean(sample, total / (count + FEW_WINDOWS), count / len(sample))

    def _rows(self, windows: npt.NDArray[np.int64]) -> Bytes:
        """Return the vectors of some windows, which are in ascending order."""
        rows = np.zeros((len(windows), self.dimension), np.int8)
        if not len(windows):
            return rows
        page_starts = np.arange(windows[-1] // PAGE + 2) * PAGE
        bounds = np.searchsorted(windows, page_starts).tolist()
        for number, (first, stop) in enumerate(pairwise(bounds)):
            if stop > first and number in self._pages:
                places = windows[first:stop] - number * PAGE
                # Every place exists. With mode="clip", numpy writes to `out` without a copy.
                np.take(self._pages[number], places, axis=0, out=rows[first:stop], mode="clip")
        return rows


def _derive_new(known: dict[int, Derived], number: int, rows: Bytes, derive: Callable[[Bytes], Derived]) -> Derived:
    """Return what is derived from the rows of a page. It is computed only for new rows, because pages mostly grow."""
    found = known.get(number)
    if found is None:
        found = derive(rows)
        known[number] = found
    elif found.shape[-1] < len(rows):
        found = np.concatenate([found, derive(rows[found.shape[-1] :])], axis=-1)
        known[number] = found
    return found[..., : len(rows)]


def _shorten(known: dict[int, Derived], number: int, length: int) -> None:
    """Drop what was derived from the rows of a page from `length` on."""
    if number in known:
        known[number] = known[number][..., :length]


def _squares(rows: Bytes) -> Floats:
    """Return the square of the length of each vector."""
    return _distances(np.zeros((1, rows.shape[1]), np.int8), rows)


def pack_signs(rows: Bytes) -> Signs:
    """Return one bit for each part of each vector, set if it is above 0.

    The result has a row for each 64 parts, with a 64-bit word for each vector.
    """
    positive = rows > 0
    missing = -rows.shape[1] % 64
    if missing:
        positive = np.pad(positive, ((0, 0), (0, missing)))
    words = np.packbits(positive.reshape(-1)).view(np.uint64)  # packing one long row is faster than many short ones
    return np.ascontiguousarray(words.reshape(len(rows), positive.shape[1] // 64).T)


def count_shared(words: Signs, signs: Signs) -> npt.NDArray[np.uint16]:
    """Return how many signs each vector shares with one vector, whose words are one column."""
    shared: npt.NDArray[np.uint16] = np.add.reduce(np.bitwise_count(words ^ ~signs), axis=0, dtype=np.uint16)
    return shared


def _distances(wanted: Bytes, rows: Bytes) -> Floats:
    """Return the squared distance of a vector from each row."""
    if not len(rows):
        return np.zeros(0, np.float32)
    found: Floats = np.asarray(simsimd.cdist(wanted, rows, "sqeuclidean", out_dtype="f32"))[0]
    return found


def _cosine(wanted: Bytes, rows: Bytes, squares: Floats) -> Floats:
    """Return the cosine of a vector with each row, from their distance and the squares of their lengths.

    On ARM, the product of `simsimd` takes twice as long as the distance, and its cosine is wrong by up to 0.0008.
    """
    square = _squares(wanted)
    twice_product = square + squares - _distances(wanted, rows)
    cosines: Floats = twice_product / (2 * np.sqrt(square) * np.sqrt(np.maximum(squares, 1)))
    return cosines


# --- cosines relative to the mean ----------------------------------------------------

MAX_CENTERED_WINDOWS: Final = 2048
"""How many windows, those most similar to the query, have their cosines centred."""
_MIN_SQUARE: Final = np.float32(1e-3)


@dataclass(frozen=True, slots=True)
class Centering:
    """The mean of the visible windows' vectors.

    Attributes:
        length: The length of the mean, 0 to 1. It is the longer, the more similar the windows are.
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
