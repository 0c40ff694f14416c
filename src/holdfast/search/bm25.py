"""BM25 over passages, windows and sessions in one pass over the postings of a question's terms.

A posting list says in which windows a term stands, and how often. Everything else is derived: a passage
is its windows, a session its passages. Document frequency and length are those of the passages that may
be seen, so one tenant's archive never colours another's ranking.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.search.columns import Bools, Columns, Floats

__all__ = [
    "K1",
    "B",
    "Keywords",
    "Postings",
    "affordable",
    "decode_postings",
    "drop_windows",
    "encode_postings",
    "merge_postings",
    "score",
    "telling",
    "term_id",
]

K1: Final = 1.5
B: Final = 0.75
MOST_TERMS: Final = 48
"""A longer question is asked by its rarest terms."""
FEW_TERMS: Final = 6
"""So many terms count however common they are."""
COMMON: Final = 1.1
"""Beyond the few, a term in a larger share of all windows than this tells nothing."""

MOST_POSTINGS: Final = 1_000_000
"""So many windows are looked at for one question, those of its rarest terms first: in a large store, common ones cost
more than they tell."""

POSTING: Final = 5
"""Bytes of one window in a posting list."""

Postings: TypeAlias = tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint8]]
"""Windows in rising order, and how often the term stands in each."""


@lru_cache(maxsize=1 << 18)
def term_id(term: str) -> int:
    """A stable 64-bit number for a term, so that no index needs a dictionary."""
    digest = hashlib.blake2b(term.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def encode_postings(
    windows: npt.NDArray[np.uint32], terms: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], list[bytes]]:
    """Turn term occurrences (window and term of each) into one posting list for each distinct term."""
    if not len(terms):
        return terms, []
    order = np.lexsort((windows, terms))
    terms, windows = terms[order], windows[order]
    first = np.flatnonzero(np.r_[True, (terms[1:] != terms[:-1]) | (windows[1:] != windows[:-1])])
    counts = np.minimum(np.diff(np.r_[first, len(terms)]), 255).astype(np.uint8)
    terms, windows = terms[first], windows[first].astype(np.uint32)
    starts = np.flatnonzero(np.r_[True, terms[1:] != terms[:-1]])
    stops = np.r_[starts[1:], len(terms)]
    lists = [
        windows[start:stop].tobytes() + counts[start:stop].tobytes() for start, stop in zip(starts, stops, strict=True)
    ]
    return terms[starts], lists


def decode_postings(lists: Sequence[bytes]) -> Postings:
    """Read the posting lists of one term, which follow each other in window order."""
    parts = [_decode(data) for data in lists]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.zeros(0, np.uint32), np.zeros(0, np.uint8)
    return np.concatenate([windows for windows, _ in parts]), np.concatenate([counts for _, counts in parts])


def _decode(data: bytes) -> Postings:
    count = len(data) // POSTING
    return np.frombuffer(data, np.uint32, count), np.frombuffer(data, np.uint8, count, offset=4 * count)


def merge_postings(lists: Sequence[bytes]) -> bytes:
    """One list of several that follow each other in window order."""
    if len(lists) == 1:
        return lists[0]
    ends = [len(data) // POSTING * 4 for data in lists]
    windows = [data[:end] for data, end in zip(lists, ends, strict=True)]
    counts = [data[end:] for data, end in zip(lists, ends, strict=True)]
    return b"".join([*windows, *counts])


def drop_windows(data: bytes, windows: npt.NDArray[np.int64]) -> bytes:
    """A posting list without some windows; the same object where it had none of them."""
    held, counts = _decode(data)
    kept = ~np.isin(held, windows)
    return data if kept.all() else held[kept].tobytes() + counts[kept].tobytes()


@dataclass(frozen=True, slots=True)
class _Corpus:
    """What may be seen, and its sizes."""

    columns: Columns
    visible: Bools
    whole: bool
    total: int
    windows: int
    average: float
    session_lengths: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Keywords:
    """What the terms of a question say about everything that may be seen.

    Attributes:
        passages: BM25 of each passage.
        sessions: BM25 of each session, by scope number.
        share: How much of the question (by inverse document frequency) each passage holds, 0 to 1.
        terms: The posting list of each term that was found, and its weight.
    """

    passages: Floats
    sessions: Floats
    share: Floats
    terms: list[tuple[Postings, float]]

    def windows(self, numbers: npt.NDArray[np.int64], columns: Columns) -> Floats:
        """BM25 of some windows (in rising order), to choose what of a passage to show."""
        found = np.zeros(len(numbers), np.float32)
        lengths = columns["window_length"][numbers]
        average = max(1.0, float(lengths.mean())) if len(numbers) else 1.0
        for (windows, counts), weight in self.terms:
            places = np.minimum(np.searchsorted(windows, numbers), len(windows) - 1)
            times = np.where(windows[places] == numbers, counts[places], 0).astype(np.float32)
            found += weight * _saturate(times, lengths, average)
        return found


def score(postings: Sequence[tuple[Postings, float]], columns: Columns, *, visible: Bools) -> Keywords:
    """Score everything visible against the terms of a question, each with its weight.

    A term that stands nowhere adds to no score, but it weighs as the rarest of all in the share.
    """
    corpus = _corpus(columns, visible)
    found = Keywords(
        passages=np.zeros(columns.passages, np.float32),
        sessions=np.zeros(len(corpus.session_lengths), np.float32),
        share=np.zeros(columns.passages, np.float32),
        terms=[],
    )
    seen = postings if corpus.whole else [(_seen(posting, corpus), weight) for posting, weight in postings]
    chosen = telling([len(windows) for (windows, _), _ in seen], windows=corpus.windows)
    total = sum(_add_term(found, *seen[number], corpus) for number in chosen)
    if total:
        np.divide(found.share, total, out=found.share)
    return found


def telling(sizes: Sequence[int], *, windows: int) -> list[int]:
    """Which terms, by the number of windows each stands in, can tell passages apart: the rarest.

    A common one counts only while there are few others. One that stands nowhere always counts.
    """
    absent = [number for number, size in enumerate(sizes) if not size]
    rarest = sorted((number for number, size in enumerate(sizes) if size), key=sizes.__getitem__)[:MOST_TERMS]
    common = COMMON * windows
    return absent + [number for rank, number in enumerate(rarest) if rank < FEW_TERMS or sizes[number] < common]


def affordable(sizes: Sequence[int]) -> list[int]:
    """Which terms, by the number of windows each stands in, can be looked at in time: the rarest."""
    order = sorted(range(len(sizes)), key=sizes.__getitem__)
    return [
        number
        for number, spent in zip(order, accumulate(sizes[n] for n in order), strict=True)
        if spent <= MOST_POSTINGS or number == order[0]
    ]


def _corpus(columns: Columns, visible: Bools) -> _Corpus:
    lengths = columns["length"] * visible
    total = int(np.count_nonzero(visible))
    whole = total == int(np.count_nonzero(columns["alive"]))  # what is forgotten is in no posting list
    counts = np.diff(columns["first_window"], append=columns.windows)
    return _Corpus(
        columns=columns,
        visible=visible,
        whole=whole,
        total=total,
        windows=columns.windows if whole else int(counts[visible].sum()),
        average=max(1.0, float(lengths.sum()) / max(1, total)),
        session_lengths=np.bincount(columns["scope"], weights=lengths).astype(np.float64),
    )


def _seen(posting: Postings, corpus: _Corpus) -> Postings:
    windows, counts = posting
    seen = corpus.visible.take(corpus.columns["passage"].take(windows))
    return windows[seen], counts[seen]


def _add_term(found: Keywords, posting: Postings, weight: float, corpus: _Corpus) -> float:
    """Add one term's part to every score; its weight is returned."""
    columns = corpus.columns
    windows, counts = posting
    if not len(windows):
        return weight * _idf(0, corpus.total)
    owners = columns["passage"].take(windows)
    starts = np.flatnonzero(np.concatenate(([True], owners[1:] != owners[:-1])))
    passages = owners[starts]
    frequency: Floats = np.add.reduceat(counts.astype(np.float32), starts)
    idf = weight * _idf(len(passages), corpus.total)
    found.passages[passages] += idf * _saturate(frequency, columns["length"][passages], corpus.average)
    found.share[passages] += idf
    found.terms.append((posting, idf))
    if len(found.sessions) > 1:
        _add_sessions(
            found.sessions, columns["scope"][passages], (frequency * weight).astype(np.float32), corpus.session_lengths
        )
    return idf


def _add_sessions(
    sessions: Floats, scopes: npt.NDArray[np.int32], frequency: Floats, lengths: npt.NDArray[np.float64]
) -> None:
    counted = np.bincount(scopes, weights=frequency, minlength=len(sessions))
    hit = np.flatnonzero(counted)
    used = int((lengths > 0).sum())
    average = max(1.0, float(lengths.sum()) / max(1, used))
    sessions[hit] += _idf(len(hit), used) * _saturate(counted[hit].astype(np.float32), lengths[hit], average)


def _idf(frequency: int, total: int) -> float:
    return math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))


def _saturate(frequency: Floats, lengths: npt.NDArray[np.number], average: float) -> Floats:
    norm = lengths.astype(np.float32)
    norm *= np.float32(K1 * B / average)
    norm += np.float32(K1 * (1 - B))
    norm += frequency
    return frequency * np.float32(K1 + 1) / norm
