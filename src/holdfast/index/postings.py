"""Posting lists: the windows that a term occurs in, and how often.

The lists of many terms are stored end to end in a few arrays, so that building, merging and cutting them takes a few
array operations, however many terms there are. On disk they are pages of some kilobytes, each for a range of terms.
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
"""The maximum bytes of a page, so that it fits on one page of SQLite. Only the list of a single term may be longer."""
MAX_COUNT: Final = 255
"""Occurrences in one window are counted in a byte."""
_HEADER_BYTES: Final = 8  # the number of terms and of windows
_TERM_BYTES: Final = 12  # the number of a term, and where its list stops
_WINDOW_BYTES: Final = 5  # a window and a count
_ARRAY_BYTES: Final = 112  # of an array in addition to its data
_WINDOW_BITS: Final = 32
_NUMBER: Final = Struct("<I")
_NUMBERS: Final = Struct("<II")

# The constants of the hash of a term. The base is odd, so that it has an inverse modulo 2**64.
_BASE: Final = np.uint64(0x9E3779B97F4A7C15)
_INVERSE: Final = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_MIXER: Final = np.uint64(0xD6E8FEB86659FD93)
_HALF: Final = np.uint64(32)
_TERMS_AT_ONCE: Final = 8192
"""How many terms are hashed together, so that their arrays fit into the processor's cache."""

Windows: TypeAlias = npt.NDArray[np.uint32]
Counts: TypeAlias = npt.NDArray[np.uint8]
Occurrences: TypeAlias = tuple[Windows, Counts]
"""Windows in ascending order, and how often a term occurs in each."""
NO_OCCURRENCES: Final[Occurrences] = (np.zeros(0, np.uint32), np.zeros(0, np.uint8))


def term_ids(terms: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return a stable 64-bit number for each term, so that no index needs a dictionary.

    It is a polynomial of the term's characters, mixed. Many terms are computed together: the powers of the base
    continue from one term to the next, and are divided out again by those of its inverse.
    """
    parts = [np.zeros(0, np.int64)]
    for start in range(0, len(terms), _TERMS_AT_ONCE):
        some = terms[start : start + _TERMS_AT_ONCE]
        lengths = np.fromiter(map(len, some), np.int64, len(some))
        stops = lengths.cumsum()
        starts = stops - lengths
        characters = np.frombuffer("".join(some).encode("utf-32-le", "surrogatepass"), np.uint32)
        size = 1 << len(characters).bit_length()
        sums = np.zeros(len(characters) + 1, np.uint64)
        np.cumsum((characters + np.uint32(1)) * _powers(_BASE, size)[1 : len(sums)], out=sums[1:])
        numbers = (sums[stops] - sums[starts]) * _powers(_INVERSE, size)[starts]
        numbers ^= numbers >> _HALF
        numbers *= _MIXER
        numbers ^= numbers >> _HALF
        parts.append(numbers.view(np.int64))
    return np.concatenate(parts)


@lru_cache(maxsize=32)
def _powers(base: np.uint64, count: int) -> npt.NDArray[np.uint64]:
    """Return the first powers of a number, the zeroth included."""
    powers = np.full(count, base)
    powers[0] = 1
    return powers.cumprod(dtype=np.uint64)


class Postings(msgspec.Struct, frozen=True):
    """The windows and the passages that one term occurs in.

    Attributes:
        windows: The windows, in ascending order.
        counts: How often it occurs in each window, at most `MAX_COUNT`.
        passages: The passages, in ascending order.
        times: How often it occurs in each passage.
    """

    windows: Windows
    counts: Counts
    passages: npt.NDArray[np.intp]
    times: Floats

    @classmethod
    def of(cls, lists: Sequence[Sequence[Occurrences]], columns: Columns) -> list[Postings]:
        """Return the postings of terms; `lists` has one or more lists of each, in the order of their windows.

        All terms are computed together: most lists are short, and a call of numpy costs more than their data.
        """
        parts = [NO_OCCURRENCES, *flatten.from_iterable(lists)]
        windows = np.concatenate([part_windows for part_windows, _ in parts])
        counts = np.concatenate([part_counts for _, part_counts in parts])
        sizes = [sum([len(part_windows) for part_windows, _ in term_lists]) for term_lists in lists]
        stops = np.cumsum(sizes, dtype=np.int64)

        # A new passage starts at each window at which the passage or the term changes.
        owners = columns["passage"].take(windows)
        is_start = np.append(_find_changes(owners), True)
        is_start[stops] = True
        first = np.flatnonzero(is_start[:-1])
        passages = owners.take(first).astype(np.intp)
        sums = np.zeros(len(counts) + 1, np.uint32)  # differences of running sums are faster than many small sums
        np.cumsum(counts, out=sums[1:])
        times = np.diff(sums.take(first), append=sums[-1:]).astype(np.float32)

        found: list[Postings] = []
        start = 0
        passage_start = 0
        passage_stops = np.searchsorted(first, stops).tolist()
        for stop, passage_stop in zip(stops.tolist(), passage_stops, strict=True):
            own_passages = slice(passage_start, passage_stop)
            found.append(cls(windows[start:stop], counts[start:stop], passages[own_passages], times[own_passages]))
            start = stop
            passage_start = passage_stop
        return found

    @property
    def nbytes(self) -> int:
        """The memory that it takes."""
        arrays = (self.windows, self.counts, self.passages, self.times)
        return sum(array.nbytes + _ARRAY_BYTES for array in arrays)

    def copy(self) -> Postings:
        """Return a copy with arrays of its own: a view of a larger array would keep all of it in memory."""
        return Postings(self.windows.copy(), self.counts.copy(), self.passages.copy(), self.times.copy())

    @classmethod
    def join(cls, earlier: Sequence[Postings], later: Sequence[Postings]) -> list[Postings]:
        """Join the postings of each term with those in later passages: all terms together, as in `of`."""
        joined = list(earlier)
        grown: list[int] = []
        for number, postings in enumerate(later):
            if not len(earlier[number].windows):
                joined[number] = postings
            elif len(postings.windows):
                grown.append(number)
        if not grown:
            return joined
        parts: list[Postings] = []
        for number in grown:
            parts += (earlier[number], later[number])
        windows = np.concatenate([part.windows for part in parts])
        counts = np.concatenate([part.counts for part in parts])
        passages = np.concatenate([part.passages for part in parts])
        times = np.concatenate([part.times for part in parts])
        start = 0
        passage_start = 0
        for number in grown:
            stop = start + len(earlier[number].windows) + len(later[number].windows)
            passage_stop = passage_start + len(earlier[number].passages) + len(later[number].passages)
            own_passages = slice(passage_start, passage_stop)
            joined[number] = cls(windows[start:stop], counts[start:stop], passages[own_passages], times[own_passages])
            start = stop
            passage_start = passage_stop
        return joined


@dataclass(frozen=True, slots=True)
class Lists:
    """The posting lists of many terms, end to end: the terms in ascending order, and where the list of each stops."""

    terms: npt.NDArray[np.int64]
    stops: npt.NDArray[np.int64]
    windows: Windows
    counts: Counts

    def by_term(self) -> dict[int, Occurrences]:
        """Return the list of each term."""
        lists: dict[int, Occurrences] = {}
        start = 0
        for term, stop in zip(self.terms.tolist(), self.stops.tolist(), strict=True):
            lists[term] = (self.windows[start:stop], self.counts[start:stop])
            start = stop
        return lists

    def is_sound(self, low: int, high: int) -> bool:
        """Return whether terms and windows ascend, and all windows are from `low` up to `high`.

        Raises:
            IndexError: A list stops after the last window.
        """
        if not (self.terms[1:] > self.terms[:-1]).all():
            return False
        is_start = np.zeros(len(self.windows) + 1, np.bool_)
        is_start[self.stops] = True
        ascends = is_start[1:-1] | (self.windows[1:] > self.windows[:-1])
        if not ascends.all():
            return False
        return not len(self.windows) or bool(low <= self.windows.min() and self.windows.max() < high)


def gather(windows: Windows, terms: npt.NDArray[np.int64]) -> Lists:
    """Turn occurrences (the window and the term of each) into posting lists."""
    # Two unstable sorts are faster than one stable sort.
    order = np.argsort(terms)
    terms = terms[order]
    is_new_term = _find_changes(terms)
    term_places = is_new_term.cumsum() - 1
    pairs = np.sort(term_places << _WINDOW_BITS | windows[order])
    return _cut_lists(pairs, terms[is_new_term])


def _cut_lists(pairs: npt.NDArray[np.int64], terms: npt.NDArray[np.int64]) -> Lists:
    """Turn occurrences into posting lists.

    Each of the sorted `pairs` is the place of a term among `terms` in the upper half, and a window in the lower half.
    """
    first = np.flatnonzero(_find_changes(pairs))
    counts = np.minimum(np.diff(first, append=len(pairs)), MAX_COUNT).astype(np.uint8)
    pairs = pairs.take(first)
    term_places = pairs >> _WINDOW_BITS
    starts = np.flatnonzero(_find_changes(term_places))
    stops = np.append(starts[1:], len(first))[: len(starts)]
    return Lists(terms.take(term_places.take(starts)), stops, pairs.astype(np.uint32), counts)


def _find_changes(values: npt.NDArray[np.generic]) -> npt.NDArray[np.bool_]:
    """Return for each value whether it differs from the one before it; True for the first."""
    changed = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def merge(runs: Sequence[Lists]) -> Lists:
    """Merge the lists of runs, which are in the order of their windows."""
    if len(runs) == 1:
        return runs[0]
    terms = np.concatenate([run.terms for run in runs])
    sizes = np.concatenate([np.diff(run.stops, prepend=0) for run in runs])
    starts = np.cumsum(sizes) - sizes

    # Sort whole lists by their term. A stable sort keeps those of one term in the order of their runs.
    order = np.argsort(terms, kind="stable")
    terms = terms[order]
    sizes = sizes[order]
    stops = np.cumsum(sizes)
    total = 0
    if len(stops):
        total = int(stops[-1])
    places = np.arange(total) + np.repeat(starts[order] - stops + sizes, sizes)
    windows = np.concatenate([run.windows for run in runs])[places]
    counts = np.concatenate([run.counts for run in runs])[places]

    # The lists of one term are now one list, which ends with the last of them.
    first = np.flatnonzero(_find_changes(terms))
    last = np.append(first[1:], len(terms))[: len(first)] - 1
    return Lists(terms[first], stops[last], windows, counts)


def chain(parts: Sequence[Lists]) -> Lists:
    """Join lists of ranges of terms that follow each other."""
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
    """Return the lists without some windows; the lists themselves if they have none of these."""
    is_removed = np.isin(lists.windows, windows)
    if not is_removed.any():
        return lists
    is_kept = ~is_removed
    stops = np.append(0, np.cumsum(is_kept))[lists.stops]
    has_windows = np.diff(stops, prepend=0) > 0
    return Lists(lists.terms[has_windows], stops[has_windows], lists.windows[is_kept], lists.counts[is_kept])


# --- terms that are in no posting list yet -------------------------------------------

Terms = npt.NDArray[np.int64]
"""The terms of a passage, window after window."""


class Unindexed:
    """The terms of the passages from `first` up to `stop`, which are in no posting list yet."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.stop = first
        # Passages up to `_joined` are in the arrays. Those after it wait in a list, so that adding one copies nothing.
        self._joined = first
        self._new: list[Terms] = []
        self._windows = np.zeros(0, np.uint32)
        self._terms = np.zeros(0, np.int64)
        self._low_bits = np.zeros(0, np.uint16)

    def append(self, terms: Terms) -> None:
        """Add the terms of the next passage."""
        self._new.append(terms)
        self.stop += 1

    def pad(self, stop: int) -> None:
        """Skip passages up to `stop`: they have no terms, because they were forgotten."""
        self.stop = max(stop, self.stop)

    def occurrences(self, columns: Columns) -> tuple[npt.NDArray[np.uint32], Terms]:
        """Return the window and the term of each occurrence."""
        if self._joined < self.stop:
            start = int(columns["first_window"][self._joined])
            windows = np.arange(start, columns.windows, dtype=np.uint32)
            self._windows = np.append(self._windows, windows.repeat(columns["window_length"][start:]))
            self._terms = np.concatenate([self._terms, *self._new])
            self._low_bits = self._terms.astype(np.uint16)
            self._joined = self.stop
            self._new = []
        return self._windows, self._terms

    def lists(self, terms: Terms, columns: Columns) -> Lists:
        """Return the posting lists of these terms.

        All occurrences are compared once, by the low 16 bits of their terms: a table maps these bits to the wanted
        term. Few other terms have the same bits; they are removed afterwards.
        """
        windows, all_terms = self.occurrences(columns)
        wanted = np.sort(terms)
        low_bits = wanted.astype(np.uint16)
        table = np.full(1 << 16, -1, np.min_scalar_type(-max(1, len(wanted))))
        table[low_bits] = np.arange(len(wanted))
        places = table.take(self._low_bits)
        hits = np.flatnonzero(places >= 0)
        found = all_terms.take(hits)
        places = places.take(hits)
        if len(set(low_bits.tolist())) < len(wanted):  # two wanted terms share their low bits: the table has only one
            places = np.minimum(wanted.searchsorted(found), len(wanted) - 1)
        is_wanted = wanted.take(places) == found
        places = places[is_wanted].astype(np.int64)
        windows = windows.take(hits[is_wanted])
        # Windows ascend already, so sorting by term is enough. Numpy sorts small numbers in one pass.
        order = np.argsort(places.astype(np.min_scalar_type(len(wanted))), kind="stable")
        return _cut_lists(places.take(order) << _WINDOW_BITS | windows.take(order), wanted)


# --- on disk -------------------------------------------------------------------------


def pages(lists: Lists) -> Iterator[tuple[int, bytes]]:
    """Divide lists into pages; yield the first term of each page and its bytes."""
    ends = _TERM_BYTES * np.arange(1, len(lists.terms) + 1) + _WINDOW_BYTES * lists.stops
    first = 0
    written = 0
    while first < len(ends):
        stop = int(np.searchsorted(ends, written + PAGE - _HEADER_BYTES, side="right"))
        stop = max(first + 1, stop)  # a page has at least one term
        low = 0
        if first:
            low = int(lists.stops[first - 1])
        high = int(lists.stops[stop - 1])
        part = Lists(
            lists.terms[first:stop], lists.stops[first:stop] - low, lists.windows[low:high], lists.counts[low:high]
        )
        yield int(lists.terms[first]), encode(part)
        first = stop
        written = int(ends[stop - 1])


def encode(lists: Lists) -> bytes:
    """Encode lists as one page."""
    sizes = np.array([len(lists.terms), len(lists.windows)], np.uint32)
    parts = (sizes, lists.terms, lists.stops.astype(np.uint32), lists.windows, lists.counts)
    return b"".join([part.tobytes() for part in parts])


def decode(data: bytes) -> Lists:
    """Decode the lists of a page.

    Raises:
        ValueError: It is not a page.
    """
    terms, windows = _read_sizes(data)
    stops_at = _HEADER_BYTES + 8 * terms
    windows_at = _HEADER_BYTES + _TERM_BYTES * terms
    return Lists(
        np.frombuffer(data, np.int64, terms, _HEADER_BYTES),
        np.frombuffer(data, np.uint32, terms, stops_at).astype(np.int64),
        np.frombuffer(data, np.uint32, windows, windows_at),
        np.frombuffer(data, np.uint8, windows, windows_at + 4 * windows),
    )


def find(data: bytes, term: int) -> Occurrences | None:
    """Return the list of one term in a page, without decoding the others; None if it is not there."""
    count, windows = _read_sizes(data)
    stops_at = _HEADER_BYTES + 8 * count
    windows_at = _HEADER_BYTES + _TERM_BYTES * count
    terms = memoryview(data)[_HEADER_BYTES:stops_at].cast("q")
    place = bisect_left(terms, term)
    if place == count or terms[place] != term:
        return None
    if place:
        start, stop = _NUMBERS.unpack_from(data, stops_at + 4 * (place - 1))
    else:
        start = 0
        (stop,) = _NUMBER.unpack_from(data, stops_at)
    found = np.frombuffer(data, np.uint32, stop - start, windows_at + 4 * start)
    counts = np.frombuffer(data, np.uint8, stop - start, windows_at + 4 * windows + start)
    return found, counts


def windows_of_one(length: int) -> int:
    """Return how many windows a page of this length has if it is the page of a single term."""
    return (length - _HEADER_BYTES - _TERM_BYTES) // _WINDOW_BYTES


def pages_with(windows: npt.NDArray[np.int64], data: Sequence[bytes]) -> list[int]:
    """Return the places of the pages that contain any of these windows."""
    parts: list[bytes] = []
    sizes: list[int] = []
    for page in data:
        terms, size = _read_sizes(page)
        windows_at = _HEADER_BYTES + _TERM_BYTES * terms
        parts.append(page[windows_at : windows_at + 4 * size])
        sizes.append(size)
    hits = np.flatnonzero(np.isin(np.frombuffer(b"".join(parts), np.uint32), windows))
    found: list[int] = np.unique(np.searchsorted(np.cumsum(sizes), hits, side="right")).tolist()
    return found


def _read_sizes(data: bytes) -> tuple[int, int]:
    """Return how many terms and windows a page has.

    Raises:
        ValueError: Its length does not match these numbers.
    """
    terms = 0
    windows = 0
    if len(data) >= _HEADER_BYTES:
        terms, windows = _NUMBERS.unpack_from(data)
    if len(data) != _HEADER_BYTES + _TERM_BYTES * terms + _WINDOW_BYTES * windows:
        raise ValueError("a page of posting lists does not have the length in its header")
    return terms, windows
