"""The passages that a search proposes for ranking, with the signals that ranking needs.

Every store returns a bounded number of passages as one array for each signal. Ranking, the relevance test and packing
use these arrays only and are the same for all stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

import numpy as np

from holdfast.search.arrays import Bools, Floats, Ints, highest

WindowScores: TypeAlias = tuple[Floats, Floats | None]
"""BM25 and cosine of windows; no cosine without vectors."""
MAX_NEAREST: Final = 5
"""How many of the most similar windows have their cosines returned."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Passages in the order they were archived; each array has one value for each passage.

    Attributes:
        passages, messages, sessions: The number of each passage, of its message, and one for its session.
        times: The time of its message, in Unix milliseconds; 0 if that is not known.
        sizes, windows: The number of characters, and of windows.
        human: Whether a person wrote it.
        eligible: Whether it may be ranked; a neighbour that the query excludes only links others.
        previous, following: The places of the passages before and after it in its session; -1 if there is none here.
        keyword: BM25 of the query's terms.
        share: The share of the query (by inverse document frequency) in the passage, 0 to 1.
        together: The share of the query in its best window; reduced for one or two words.
        session_keyword: BM25 of its whole session, relative to the best session that the reader sees.
        cosine: The cosine of its best window, relative to the mean of what the reader sees; None without vectors.
        nearest: The highest cosines of single windows that may be ranked, not relative to the mean.
        total_windows, embedded_windows: How many windows the reader sees, and how many have a vector, estimated by a
            sample.
        score_windows: Returns BM25 and cosine of all windows of the passages at the given places (ascending), in
            order.
        rarity: The inverse document frequency of each term of the query.
        asked: The places of the question itself, and of earlier copies of it, if they were looked for. They may not be
            ranked.
        answers: The places of short replies to the earlier copies.
    """

    passages: Ints
    messages: Ints
    sessions: Ints
    times: Ints
    sizes: Ints
    windows: Ints
    human: Bools
    eligible: Bools
    previous: Ints
    following: Ints
    keyword: Floats
    share: Floats
    together: Floats
    session_keyword: Floats
    cosine: Floats | None
    nearest: Floats
    total_windows: int
    embedded_windows: int
    score_windows: Callable[[Ints], WindowScores]
    rarity: Mapping[str, float] = field(default_factory=dict)
    asked: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    answers: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.passages)

    def without_vectors(self) -> Self:
        """Return the candidates without the signals of vectors."""
        by_both = self.score_windows
        return replace(self, cosine=None, score_windows=lambda places: (by_both(places)[0], None))

    def without_question(self, asked: Ints, *, answers: Ints) -> Self:
        """Return the candidates without the passages that only ask the question: they match best and answer nothing."""
        eligible = self.eligible.copy()
        eligible[asked] = False
        nearest = self.nearest
        if self.cosine is not None and self.eligible[asked].any():
            nearest = np.zeros(1, np.float32)
            places = np.flatnonzero(eligible)
            cosines = self.score_windows(places[highest(self.cosine[places], MAX_NEAREST)])[1]
            if cosines is not None and len(cosines):
                nearest = np.maximum(cosines[highest(cosines, MAX_NEAREST)], 0)
        return replace(self, asked=asked, answers=answers, eligible=eligible, nearest=nearest)

    def lower(self, places: Ints, *, factor: float) -> Self:
        """Return the candidates with less of the signals of words and vectors at some places."""
        if not len(places):
            return self
        weights = np.ones(len(self), np.float32)
        weights[places] = factor
        cosine = self.cosine
        if cosine is not None:
            cosine = cosine * weights
        return replace(
            self,
            keyword=self.keyword * weights,
            share=self.share * weights,
            together=self.together * weights,
            cosine=cosine,
        )

    def follow(self, places: Ints, links: Ints) -> Ints:
        """Follow `previous` or `following` from some places; -1 if there is none, and for -1."""
        if not len(links):
            return places
        return np.where(places >= 0, links[places], -1)
