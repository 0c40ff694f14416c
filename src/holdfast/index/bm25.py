"""BM25 of passages, windows and sessions, in one pass over the postings of a query's terms.

A posting list has the windows that a term occurs in, and how often. Everything else is derived: the windows of a
passage and the passages of a session are added up. Document frequency and length are those of the visible passages, so
the archive of one tenant never affects the ranking of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from msgspec import structs

from holdfast.index.columns import Columns
from holdfast.index.postings import NO_OCCURRENCES, Postings
from holdfast.search.arrays import Bools, Floats
from holdfast.search.rarity import measure_rarity

# The usual parameters of BM25: how soon more occurrences count for less, and how much the length of a text counts.
K1: Final = 1.5
B: Final = 0.75
MAX_TERMS: Final = 48
"""How many terms of a query are used, the rarest ones."""
MIN_IDF_PASSAGES: Final = 100
"""In a smaller memory, the share of a word in the query is computed as if there were 100 passages: with only a few, a
word that occurs in one of them would not look rare."""
FEW_TERMS: Final = 2.5
"""Fewer terms than this may occur together by chance."""
WINDOW_SHARE: Final = 0.5
"""How much a related term counts for a window, relative to a passage. Windows decide which part of a passage is quoted.
Chosen with `python -m benchmarks other-words --half choose`: with 1.0, fewer questions in own words are answered."""
MAX_POSTINGS: Final = 300_000
"""How many windows are read for one query, those of its rarest terms first. In a large store, common terms cost more
than they contribute."""

N = TypeVar("N", np.float32, np.uint8)
Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The visible passages, their number and average number of terms, and the visible terms of each session.

    If `whole`, all passages are visible; forgotten ones are in no posting list.
    """

    columns: Columns
    visible: Bools
    whole: bool
    total: int
    average: float
    session_lengths: Doubles

    @classmethod
    def of(cls, columns: Columns, visible: Bools) -> Corpus:
        """Return the corpus of the visible passages."""
        total = int(np.count_nonzero(visible))
        lengths = columns["length"]
        if total < columns.passages:
            lengths = lengths * visible
        return cls(
            columns=columns,
            visible=visible,
            whole=total == int(np.count_nonzero(columns["alive"])),
            total=total,
            average=max(1.0, float(lengths.sum()) / max(1, total)),
            session_lengths=np.bincount(columns["scope"], weights=lengths).astype(np.float64),
        )


@dataclass(frozen=True, slots=True)
class Term:
    """A term of a query: its postings, its weight, related terms with their shares of that weight, and its word."""

    postings: Postings
    weight: float
    related: Sequence[tuple[Postings, float]] = ()
    word: str = ""


@dataclass(frozen=True, slots=True)
class Keywords:
    """The scores of the visible passages for the terms of a query, and the postings of each term with its weight.

    `passages` and `sessions` are BM25; `share` is the share of the query (by inverse document frequency) in each
    passage, and `together` that in its best window, reduced for one or two words. `rarity` is the inverse document
    frequency of each word, without its weight. `terms` has related terms too.
    """

    passages: Floats
    sessions: Floats
    share: Floats
    together: Floats
    terms: list[tuple[Postings, float]]
    rarity: dict[str, float]

    def windows(self, numbers: npt.NDArray[np.int64], columns: Columns) -> Floats:
        """Return BM25 of windows (in ascending order), to choose the part of a passage to quote."""
        no_windows, no_counts = NO_OCCURRENCES
        lengths = columns["window_length"][numbers]
        average = 1.0
        if len(numbers):
            average = max(1.0, float(lengths.mean()))
        wanted = numbers.astype(np.uint32)
        lists = [postings for postings, _ in self.terms]

        # A row for each term, a column for each wanted window: the position of the window in the list of the term, and
        # then in all lists end to end.
        sizes = np.array([len(posting.windows) for posting in lists], np.intp).reshape(-1, 1)
        places = np.array([posting.windows.searchsorted(wanted) for posting in lists], np.intp)
        places = places.reshape(len(lists), len(wanted))
        places = np.minimum(places, sizes - 1) + sizes.cumsum(axis=0) - sizes
        all_windows = np.concatenate([no_windows, *[posting.windows for posting in lists]])
        all_counts = np.concatenate([no_counts, *[posting.counts for posting in lists]])
        is_found = all_windows.take(places) == wanted
        times = np.where(is_found, all_counts.take(places), 0).astype(np.float32)

        weights = np.array([weight for _, weight in self.terms], np.float32).reshape(-1, 1)
        scores: Floats = (weights * _saturate(times, lengths, average)).sum(axis=0, dtype=np.float32)
        return scores


def score(terms: Sequence[Term], corpus: Corpus) -> Keywords:
    """Score the visible passages for the terms of a query, each with its weight.

    A term that occurs nowhere adds to no score, but counts as the rarest one in the share.
    """
    columns = corpus.columns
    terms = _select_terms(terms, corpus)
    postings = [term.postings for term in terms]
    frequencies = [len(posting.passages) for posting in postings]
    weights = np.array([term.weight for term in terms])
    idf = weights * [measure_rarity(frequency, total=corpus.total) for frequency in frequencies]

    # The passages of all terms, one term after the other.
    passages = np.concatenate([np.zeros(0, np.intp), *[posting.passages for posting in postings]])
    times = np.concatenate([np.zeros(0, np.float32), *[posting.times for posting in postings]])
    added = np.repeat(idf.astype(np.float32), frequencies)
    added *= _saturate(times, columns["length"].take(passages), corpus.average)
    scores = _sums(passages, added, columns.passages)
    _add_related(scores, terms, idf.tolist(), corpus)

    total = max(corpus.total, MIN_IDF_PASSAGES)
    rarity = [measure_rarity(frequency, total=total) for frequency in frequencies]
    weighted = weights * rarity
    share = (weighted / (weighted.sum() or 1)).astype(np.float32)
    found_terms: list[tuple[Postings, float]] = []
    for posting, weight in zip(postings, idf.tolist(), strict=True):
        if len(posting.passages):
            found_terms.append((posting, weight))
    for term, max_idf in zip(terms, idf.tolist(), strict=True):
        for posting, related_share in term.related:
            if len(posting.passages):
                own_idf = term.weight * measure_rarity(len(posting.passages), total=corpus.total)
                weight = min(max_idf, own_idf) * related_share
                found_terms.append((posting, WINDOW_SHARE * weight))
    return Keywords(
        passages=scores,
        sessions=_score_sessions(passages, times, weights=weights, frequencies=frequencies, corpus=corpus),
        share=_sums(passages, np.repeat(share, frequencies), columns.passages),
        together=_best_window(postings, share, columns),
        terms=found_terms,
        rarity={term.word: value for term, value in zip(terms, rarity, strict=True)},
    )


def _add_related(scores: Floats, terms: Sequence[Term], idf: Sequence[float], corpus: Corpus) -> None:
    """Add the best related term of each term to the scores of passages that do not have the term itself."""
    lengths = corpus.columns["length"]
    best = np.zeros_like(scores)
    for term, max_idf in zip(terms, idf, strict=True):
        lists: list[Postings] = []
        values: list[float] = []
        for posting, share in term.related:
            if len(posting.passages):
                lists.append(posting)
                # A related term is never worth more than the term itself, however rare it is.
                own_idf = term.weight * measure_rarity(len(posting.passages), total=corpus.total)
                values.append(min(max_idf, own_idf) * share)
        if not lists:
            continue
        passages = np.concatenate([posting.passages for posting in lists])
        times = np.concatenate([posting.times for posting in lists])
        added = np.repeat(np.array(values, np.float32), [len(posting.passages) for posting in lists])
        np.maximum.at(best, passages, added * _saturate(times, lengths.take(passages), corpus.average))
        best[term.postings.passages] = 0
        scores[passages] += best[passages]
        best[passages] = 0  # for the next term


def _best_window(postings: Sequence[Postings], share: Floats, columns: Columns) -> Floats:
    """Return the share of the query in each passage's best window; fewer than `FEW_TERMS` count only in part."""
    windows = np.concatenate([np.zeros(0, np.uint32), *[posting.windows for posting in postings]]).astype(np.intp)
    weights = _sums(windows, np.repeat(share, [len(posting.windows) for posting in postings]), columns.windows)
    counts = _sums(windows, np.uint8(1), columns.windows)
    passages = columns["passage"]
    # If most windows have a term, going through all of them in order takes less time than gathering only those.
    is_dense = 2 * len(windows) > columns.windows
    if not is_dense:
        weights = weights.take(windows)
        counts = counts.take(windows)
        passages = passages.take(windows)
    # A window that is not visible may have more than `MAX_TERMS` terms: terms that no visible window has are all kept.
    factors = np.arange(np.iinfo(counts.dtype).max + 1) / min(FEW_TERMS, max(1, len(postings)))
    weights *= np.minimum(1, factors).astype(np.float32).take(counts)
    best = np.zeros(columns.passages, np.float32)
    np.maximum.at(best, passages, weights)
    return best


def _sums(places: npt.NDArray[np.integer], values: npt.NDArray[N] | N, size: int) -> npt.NDArray[N]:
    """Return the sum of the values at each of `size` places, in their own type: `bincount` returns 64-bit floats."""
    sums = np.zeros(size, values.dtype)
    np.add.at(sums, places, values)
    return sums


def select_rarest(sizes: Sequence[int]) -> list[int]:
    """Return the places of the rarest terms, by the number of windows of each. Terms without windows are all kept."""
    absent = [place for place, size in enumerate(sizes) if not size]
    present = [place for place, size in enumerate(sizes) if size]
    present.sort(key=sizes.__getitem__)
    return absent + present[:MAX_TERMS]


def select_cheapest(sizes: Sequence[int]) -> list[int]:
    """Return the places of the terms that can be read within `MAX_POSTINGS`, rarest first; at least one."""
    chosen: list[int] = []
    spent = 0
    for place in sorted(range(len(sizes)), key=sizes.__getitem__):
        spent += sizes[place]
        if chosen and spent > MAX_POSTINGS:
            break
        chosen.append(place)
    return chosen


def _select_terms(terms: Sequence[Term], corpus: Corpus) -> Sequence[Term]:
    """Return the rarest terms, with their postings in visible passages.

    The windows of other passages stay in the postings; nothing reads them.
    """
    if len(terms) > MAX_TERMS:
        visible_windows = None
        if not corpus.whole:
            visible_windows = corpus.visible.take(corpus.columns["passage"])
        sizes: list[int] = []
        for term in terms:
            windows = term.postings.windows
            if visible_windows is None:
                sizes.append(len(windows))
            else:
                sizes.append(int(np.count_nonzero(visible_windows.take(windows))))
        terms = [terms[place] for place in select_rarest(sizes)]
    if corpus.whole:
        return terms
    chosen: list[Term] = []
    for term in terms:
        related = [(_keep_visible(posting, corpus), share) for posting, share in term.related]
        chosen.append(Term(_keep_visible(term.postings, corpus), term.weight, related, term.word))
    return chosen


def _keep_visible(postings: Postings, corpus: Corpus) -> Postings:
    is_visible = corpus.visible.take(postings.passages)
    return structs.replace(postings, passages=postings.passages[is_visible], times=postings.times[is_visible])


def _score_sessions(
    passages: npt.NDArray[np.intp], times: Floats, *, weights: Doubles, frequencies: Sequence[int], corpus: Corpus
) -> Floats:
    """Return BM25 of whole sessions, with the number of sessions that a term occurs in as its document frequency.

    `passages` and `times` are those of all terms, one term after the other; `frequencies` says how many each term has.
    """
    lengths = corpus.session_lengths
    used = int(np.count_nonzero(lengths))
    if used <= 1:
        return np.zeros(len(lengths), np.float32)
    # A row for each term, a column for each session: how often the term occurs in the session.
    shape = (len(frequencies), len(lengths))
    row_starts = np.repeat(np.arange(len(frequencies)) * len(lengths), frequencies)
    cells = corpus.columns["scope"].take(passages) + row_starts
    occurrences = np.bincount(cells, times, shape[0] * shape[1]).reshape(shape) * weights[:, None]
    average = max(1.0, float(lengths.sum()) / used)
    frequencies_of_sessions = np.count_nonzero(occurrences, axis=1).tolist()
    idf = np.array([measure_rarity(frequency, total=used) for frequency in frequencies_of_sessions])
    scores: Doubles = idf @ _saturate(occurrences.astype(np.float32), lengths, average)
    return scores.astype(np.float32)


def _saturate(frequency: Floats, lengths: npt.NDArray[np.number], average: float) -> Floats:
    """Return how much occurrences count: each further one counts less, and all count less in a long text."""
    norm = lengths.astype(np.float32)
    norm *= np.float32(K1 * B / average)
    norm += np.float32(K1 * (1 - B))
    saturated: Floats = frequency * np.float32(K1 + 1) / (norm + frequency)
    return saturated
