"""The passages that a search proposes for ranking, with the signals that ranking needs.

Every store returns a bounded number of passages as one array for each signal. Ranking, the relevance test and packing
use these arrays only and are the same for all stores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

import numpy as np

from holdfast.search.arrays import Bools, Floats, Ints

WindowScores: TypeAlias = tuple[Floats, Floats | None]
"""BM25 and cosine of windows; no cosine without vectors."""


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

    def __len__(self) -> int:
        return len(self.passages)

    def without_vectors(self) -> Self:
        """Return the candidates without the signals of vectors."""
        by_both = self.score_windows
        return replace(self, cosine=None, score_windows=lambda places: (by_both(places)[0], None))

    def follow(self, places: Ints, links: Ints) -> Ints:
        """Follow `previous` or `following` from some places; -1 if there is none, and for -1."""
        if not len(links):
            return places
        return np.where(places >= 0, links[places], -1)
