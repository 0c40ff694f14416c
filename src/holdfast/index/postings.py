"""Posting lists: in which windows a term stands, and how often.

The lists of many terms lie end to end in a few arrays, so that making, merging and cutting them is a handful of
array operations however many terms there are. At rest they are pages of some kilobytes, each a stretch of terms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain as flatten
from struct import Struct
from typing import Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from holdfast.index.columns import Columns
from holdfast.search.arrays import Floats

PAGE: Final = 4032
"""Bytes of a page, but for a term whose list alone is longer: what fits on one page of SQLite's."""
_HEAD: Final = 8
_PER_TERM: Final = 12
_PER_WINDOW: Final = 5
_MOST: Final = 255
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_INVERSE: Final = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_STIR: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_TOGETHER: Final = 8192  # terms that are computed together: what they take fits into the processor's cache
_WINDOW_BITS: Final = 32
_ARRAY_BYTES: Final = 112  # of an array beside its data
_NUMBER, _NUMBERS = Struct("<I"), Struct("<II")

Windows: TypeAlias = npt.NDArray[np.uint32]
Counts: TypeAlias = npt.NDArray[np.uint8]
Occurrences: TypeAlias = tuple[Windows, Counts]
"""Windows in rising order, and how often a term stands in each."""
NO_OCCURRENCES: Final[Occurrences] = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))


def term_ids(terms: Sequence[str]) -> npt.NDArray[np.int64]:
    """A stable 64-bit number for each term, so that no index needs a dictionary.

    A polynomial of its characters, stirred. Many terms are computed together: powers run on from one term to the next,
    and an odd base allows to divide what stood before a term out again.
    """
    parts = [np.zeros(0, np.int64)]
    for start in range(0, len(terms), _TOGETHER):
        some = terms[start : start + _TOGETHER]
        lengths = np.fromiter(map(len, some), np.int64, len(some))
        stops = lengths.cumsum()
        starts = stops - lengths
        characters = np.frombuffer("".join(some).encode("utf-32-le", "surrogatepass"), np.uint32)
        size = 1 << len(characters).bit_length()
        sums = np.zeros(len(characters) + 1, np.uint64)
        np.cumsum((characters + np.uint32(1)) * _powers(_BASE, size)[1 : len(sums)], out=sums[1:])
        numbers = (sums[stops] - sums[starts]) * _powers(_INVERSE, size)[starts]
        numbers ^= numbers >> _HALF
        numbers *= _STIR
        numbers ^= numbers >> _HALF
        parts.append(numbers.view(np.int64))
    return np.concatenate(parts)


@lru_cache(maxsize=32)
def _powers(base: np.uint64, count: int) -> npt.NDArray[np.uint64]:
    """The powers of a number from the zeroth on."""
    powers = np.full(count, base)
    powers[0] = 1
    return powers.cumprod(dtype=np.uint64)


class Postings(msgspec.Struct, frozen=True):
    """Where one term stands: by window, and by passage.

    Attributes:
        windows: The windows, in rising order.
        counts: How often it stands in each, at most 255.
        passages: The passages, in rising order.
        times: How often it stands in each.
    """

    windows: Windows
    counts: Counts
    passages: npt.NDArray[np.intp]
    times: Floats

    @classmethod
    def of(cls, lists: Sequence[Sequence[Occurrences]], columns: Columns) -> list[Postings]:
        """The postings of terms, from the lists of each that follow each other: all together, since most are short."""
        parts = [NO_OCCURRENCES, *flatten.from_iterable(lists)]
        windows = np.concatenate([held for held, _ in parts])
        counts = np.concatenate([counted for _, counted in parts])
        stops = np.cumsum([sum([len(held) for held, _ in one]) for one in lists], dtype=np.int64)
        owners = columns["passage"].take(windows)
        changes = np.append(_changes(owners), True)
        changes[stops] = True
        first = np.flatnonzero(changes[:-1])
        sums = np.zeros(len(counts) + 1, np.uint32)  # faster than adding up each stretch
        np.cumsum(counts, out=sums[1:])
        times = np.diff(sums.take(first), append=sums[-1:]).astype(np.float32)
        passages = owners.take(first).astype(np.intp)
        found, start, begin = [], 0, 0
        for stop, end in zip(stops.tolist(), np.searchsorted(first, stops).tolist(), strict=True):
            found.append(cls(windows[start:stop], counts[start:stop], passages[begin:end], times[begin:end]))
            start, begin = stop, end
        return found

    @property
    def nbytes(self) -> int:
        """The memory it takes."""
        arrays = (self.windows, self.counts, self.passages, self.times)
        return sum(array.nbytes + _ARRAY_BYTES for array in arrays)

    def copy(self) -> Postings:
        """The same in arrays of its own: a part of a larger one would keep the whole of it in memory."""
        return Postings(self.windows.copy(), self.counts.copy(), self.passages.copy(), self.times.copy())

    @classmethod
    def join(cls, earlier: Sequence[Postings], later: Sequence[Postings]) -> list[Postings]:
        """The postings of terms and those of each in later passages: all together, as in `of`."""
        joined = list(earlier)
        grown = [number for number, one in enumerate(later) if len(one.windows)]
        if not grown:
            return joined
        parts = [one for number in grown for one in (earlier[number], later[number])]
        windows = np.concatenate([one.windows for one in parts])
        counts = np.concatenate([one.counts for one in parts])
        passages = np.concatenate([one.passages for one in parts])
        times = np.concatenate([one.times for one in parts])
        start = begin = 0
        for number in grown:
            stop = start + len(earlier[number].windows) + len(later[number].windows)
            end = begin + len(earlier[number].passages) + len(later[number].passages)
            joined[number] = cls(windows[start:stop], counts[start:stop], passages[begin:end], times[begin:end])
            start, begin = stop, end
        return joined


@dataclass(frozen=True, slots=True)
class Lists:
    """The posting lists of many terms, end to end: the terms in rising order, and where the list of each stops."""

    terms: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    windows: Windows
    counts: Counts

    def by_term(self) -> dict[int, Occurrences]:
        """The list of each term."""
        stops: list[int] = self.stops.tolist()
        places = zip(self.terms.tolist(), [0, *stops], stops, strict=False)
        return {term: (self.windows[start:stop], self.counts[start:stop]) for term, start, stop in places}

    def is_sound(self, low: int, high: int) -> bool:
        """Tell whether all of it is in order, and its windows are from `low` to `high`."""
        begins = np.zeros(len(self.windows) + 1, np.bool_)
        begins[self.stops] = True
        rising = begins[1:-1] | (self.windows[1:] > self.windows[:-1])
        within = not len(self.windows) or low <= self.windows.min() <= self.windows.max() < high
        return bool(within and rising.all() and (self.terms[1:] > self.terms[:-1]).all())


def gather(windows: Windows, terms: npt.NDArray[np.int64]) -> Lists:
    """Turn occurrences (window and term of each) into posting lists."""
    # Two sorts that need not keep the order of equals are faster than one that has to.
    order = np.argsort(terms)
    terms = terms[order]
    new_term = _changes(terms)
    return _cut_lists(np.sort(new_term.cumsum() - 1 << _WINDOW_BITS | windows[order]), terms[new_term])


def _cut_lists(pairs: npt.NDArray[np.int64], terms: npt.NDArray[np.int64]) -> Lists:
    """Turn occurrences into posting lists: sorted pairs of the place of a term among `terms`, and a window."""
    first = np.flatnonzero(_changes(pairs))
    counts = np.minimum(np.diff(first, append=len(pairs)), _MOST).astype(np.uint8)
    pairs = pairs.take(first)
    numbers = pairs >> _WINDOW_BITS
    starts = np.flatnonzero(_changes(numbers))
    stops = np.append(starts[1:], len(first))[: len(starts)]
    return Lists(terms.take(numbers.take(starts)), stops, pairs.astype(np.uint32), counts)


def _changes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Where a value is not the one before it."""
    changed = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def merge(runs: Sequence[Lists]) -> Lists:
    """The lists of runs that follow each other in window order as those of one."""
    if len(runs) == 1:
        return runs[0]
    terms = np.concatenate([run.terms for run in runs])
    sizes = np.concatenate([np.diff(run.stops, prepend=0) for run in runs])
    starts = np.cumsum(sizes) - sizes
    order = np.argsort(terms, kind="stable")
    terms, sizes = terms[order], sizes[order]
    stops = np.cumsum(sizes)
    places = np.arange(len(terms) and stops[-1]) + np.repeat(starts[order] - stops + sizes, sizes)
    windows = np.concatenate([run.windows for run in runs])[places]
    counts = np.concatenate([run.counts for run in runs])[places]
    first = np.flatnonzero(_changes(terms))
    return Lists(terms[first], stops[np.append(first[1:], len(terms))[: len(first)] - 1], windows, counts)


def chain(parts: Sequence[Lists]) -> Lists:
    """Lists of stretches of terms that follow each other as one."""
    if not parts:
        return gather(np.zeros(0, np.uint32), np.zeros(0, np.int64))
    ends = np.cumsum([0, *(len(part.windows) for part in parts)]).tolist()
    return Lists(
        np.concatenate([part.terms for part in parts]),
        np.concatenate([part.stops + end for part, end in zip(parts, ends, strict=False)]),
        np.concatenate([part.windows for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


def without(lists: Lists, windows: npt.NDArray[np.int64]) -> Lists:
    """The lists without some windows; the same object where they had none of them."""
    gone = np.isin(lists.windows, windows)
    if not gone.any():
        return lists
    kept = np.append(0, np.cumsum(~gone))[lists.stops]
    left = np.diff(kept, prepend=0) > 0
    return Lists(lists.terms[left], kept[left], lists.windows[~gone], lists.counts[~gone])


# --- terms that are in no posting list yet -------------------------------------------

Terms = npt.NDArray[np.int64]
"""The terms of a passage, window after window."""


class Unindexed:
    """The terms of the passages from `first` on."""

    def __init__(self, first: int = 0) -> None:
        self.first = self.stop = self._joined = first
        self._new: list[Terms] = []
        self._windows, self._terms = np.zeros(0, np.uint32), np.zeros(0, np.int64)
        self._ends = np.zeros(0, np.uint16)

    def append(self, terms: Terms) -> None:
        """Add the terms of the next passage."""
        self._new.append(terms)
        self.stop += 1

    def pad(self, stop: int) -> None:
        """Leave room for passages that have no terms, because they were forgotten."""
        self.stop = max(stop, self.stop)

    def occurrences(self, columns: Columns) -> tuple[npt.NDArray[np.uint32], Terms]:
        """All occurrences: the window and the term of each. Those of new passages are joined to the others."""
        if self._joined < self.stop:
            start = int(columns["first_window"][self._joined])
            numbers = np.arange(start, columns.windows, dtype=np.uint32)
            self._windows = np.append(self._windows, numbers.repeat(columns["window_length"][start:]))
            self._terms = np.concatenate([self._terms, *self._new])
            self._ends = self._terms.astype(np.uint16)
            self._joined, self._new = self.stop, []
        return self._windows, self._terms

    def lists(self, terms: Terms, columns: Columns) -> Lists:
        """The posting lists of these terms: all occurrences are looked through once."""
        windows, all_terms = self.occurrences(columns)
        rising = np.sort(terms)
        ends = rising.astype(np.uint16)
        places = np.full(1 << 16, -1, np.min_scalar_type(-max(1, len(rising))))  # of terms by the end of their numbers
        places[ends] = np.arange(len(rising))
        numbers = places.take(self._ends)
        hits = np.flatnonzero(numbers >= 0)  # few others have the same end
        found, numbers = all_terms.take(hits), numbers.take(hits)
        if len(set(ends.tolist())) < len(rising):  # two of them have the same
            numbers = np.minimum(rising.searchsorted(found), len(rising) - 1)
        same = rising.take(numbers) == found
        numbers, windows = numbers[same].astype(np.int64), windows.take(hits[same])
        # The windows rise already, and small numbers are sorted in one pass.
        order = np.argsort(numbers.astype(np.min_scalar_type(len(rising))), kind="stable")
        return _cut_lists(numbers.take(order) << _WINDOW_BITS | windows.take(order), rising)


# --- at rest ---------------------------------------------------------------------


def pages(lists: Lists) -> Iterator[tuple[int, bytes]]:
    """The lists as pages: the first term of each, and its bytes."""
    ends = _PER_TERM * np.arange(1, len(lists.terms) + 1) + _PER_WINDOW * lists.stops
    first, written = 0, 0
    while first < len(ends):
        stop = max(first + 1, int(np.searchsorted(ends, written + PAGE - _HEAD, side="right")))
        low, high = int(lists.stops[first - 1]) if first else 0, int(lists.stops[stop - 1])
        part = Lists(
            lists.terms[first:stop], lists.stops[first:stop] - low, lists.windows[low:high], lists.counts[low:high]
        )
        yield int(lists.terms[first]), encode(part)
        first, written = stop, int(ends[stop - 1])


def encode(lists: Lists) -> bytes:
    """Some lists as one page."""
    sizes = np.array([len(lists.terms), len(lists.windows)], np.uint32)
    parts = (sizes, lists.terms, lists.stops.astype(np.uint32), lists.windows, lists.counts)
    return b"".join([part.tobytes() for part in parts])


def windows_of_one(length: int) -> int:
    """How many windows the list of a single term has that fills a page of so many bytes."""
    return (length - _HEAD - _PER_TERM) // _PER_WINDOW


def find(data: bytes, term: int) -> Occurrences | None:
    """The list of one term in a page, read without the others; None where it is not there."""
    count, windows = _sizes(data)
    terms = memoryview(data)[_HEAD : _HEAD + 8 * count].cast("q")
    place = bisect_left(terms, term)
    if place == count or terms[place] != term:
        return None
    stops = _HEAD + 8 * count
    start, stop = _NUMBERS.unpack_from(data, stops + 4 * place - 4) if place else (0, *_NUMBER.unpack_from(data, stops))
    base = _HEAD + _PER_TERM * count
    held = np.frombuffer(data, np.uint32, stop - start, base + 4 * start)
    return held, np.frombuffer(data, np.uint8, stop - start, base + 4 * windows + start)


def pages_with(windows: npt.NDArray[np.int64], data: Sequence[bytes]) -> list[int]:
    """Which of these pages say anything of some windows."""
    sizes = [_sizes(page) for page in data]
    starts = [_HEAD + _PER_TERM * terms for terms, _ in sizes]
    held = b"".join([page[start : start + 4 * size[1]] for page, start, size in zip(data, starts, sizes, strict=True)])
    ends = np.cumsum([size for _, size in sizes])
    hits = np.flatnonzero(np.isin(np.frombuffer(held, np.uint32), windows))
    found: list[int] = np.unique(np.searchsorted(ends, hits, side="right")).tolist()
    return found


def _sizes(data: bytes) -> tuple[int, int]:
    """How many terms and windows a page has."""
    terms, windows = _NUMBERS.unpack_from(data) if len(data) >= _HEAD else (0, 0)
    if len(data) != _HEAD + _PER_TERM * terms + _PER_WINDOW * windows:
        raise ValueError("a page of posting lists has not the length that it says")
    return terms, windows


def decode(data: bytes) -> Lists:
    """The lists of a page; a ValueError where it is none."""
    terms, windows = _sizes(data)
    stops = np.frombuffer(data, np.uint32, terms, _HEAD + 8 * terms).astype(np.int64)
    start = _HEAD + _PER_TERM * terms
    return Lists(
        np.frombuffer(data, np.int64, terms, _HEAD),
        stops,
        np.frombuffer(data, np.uint32, windows, start),
        np.frombuffer(data, np.uint8, windows, start + 4 * windows),
    )
