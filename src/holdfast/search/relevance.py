"""Measure how well the memory matches a query, and choose the size of the recalled block by it.

A match is measured by the words of the query, or by words and vectors together. Vectors only add: `word_relevance` is
the same with any vectors and with none. The scale is absolute: it does not depend on other queries.

The constants were chosen with `python -m benchmarks recall` and `python -m benchmarks other-words`, checked by leaving
out whole data sets (docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.search.arrays import Bools, Floats
from holdfast.search.fuse import Signals, measure_chat
from holdfast.search.passages import LINES

MIN_WINDOW_SHARE: Final = 0.36
"""The share of the query that must be in one window."""
MIN_LINE_SHARE: Final = 0.27
"""The same in text that is cut into lines, because in a short line fewer words occur together by chance."""
MIN_COSINE: Final = 0.22
"""The cosine that windows must have if the passage also contains the words of the query.

It was chosen for the static models of a default installation (docs/benchmarks.md, "Vectors of our own").
"""
MIN_FOUND_COSINE: Final = 0.2
"""The cosine from which a search lists a passage without any word of the query."""
MIN_LISTED_MATCH: Final = 0.4
"""The cosine that the best passage of a search must have if no passage has a word of the query, or a related word.

The nearest passages of 360 messages have a cosine of up to 0.4 to words that have nothing to do with any of them.
"""
TYPICAL_WINDOWS: Final = 2000
"""The size of a memory at which the minimum values above apply as they are.

In a larger memory more windows match by chance, so the minimum rises with their number; in a smaller one it falls.
"""
GROWTH: Final = 0.05
"""The exponent of the relative size for words, and for vectors in a memory smaller than `TYPICAL_WINDOWS`."""
COSINE_GROWTH: Final = 0.2
"""The exponent of the relative size for vectors in a memory larger than `TYPICAL_WINDOWS`."""

_LONG_QUERY_WORDS: Final = 8
"""A query of more words is rarely repeated as a whole, so a smaller share of it is enough."""
_WORDLESS_SHARE: Final = 0.5
"""The share of the similarity that counts without any word in common."""


def word_relevance(signals: Signals) -> float:
    """Return the share of the query that is in one window, relative to what is enough."""
    found = signals.candidates
    is_lines = (found.windows > 1) & (found.sizes <= LINES * found.windows)
    enough = np.where(is_lines, np.float32(MIN_LINE_SHARE), np.float32(MIN_WINDOW_SHARE))
    best = float((found.together * found.eligible / enough).max(initial=0))
    length = max(1.0, signals.length / _LONG_QUERY_WORDS)
    return best * float(np.cbrt(length)) / math.pow(_relative_size(signals), GROWTH)


def find_relevant(signals: Signals) -> Bools:
    """Return for each candidate whether it matches the query: by its words, by related words, or by vectors.

    A candidate with less than half of the words of the best one matches only if they are a good part of the query. The
    question itself, which is archived before it is asked, does not count as the best one: it has all words, so that
    half of them would be too much for any answer. A short reply to an earlier copy of it matches without any word.
    """
    found = signals.candidates
    share = found.share.copy()
    share[found.asked] = 0
    enough = min(MIN_LINE_SHARE, float(share.max(initial=0)) / 2)
    is_relevant = np.where(found.share > 0, found.share >= enough, found.keyword > 0)
    is_relevant[found.answers] = True
    if found.cosine is None:
        return is_relevant
    return is_relevant | (signals.vector_weight * found.cosine >= MIN_FOUND_COSINE)


def measure_matches(signals: Signals) -> Floats:
    """Return how well each candidate matches the query, 0 to 1: the share of its words, or the cosine, if higher.

    A candidate with related words alone counts as one with a small share.
    """
    found = signals.candidates
    matches = np.where(found.keyword > 0, np.maximum(found.share, np.float32(MIN_LISTED_MATCH)), found.share)
    if found.cosine is not None:
        matches = np.maximum(matches, np.float32(signals.vector_weight) * found.cosine)
    return matches


def combined_relevance(signals: Signals) -> float:
    """Return the similarity to the query, relative to what is enough; 0 without vectors for its script.

    That is the larger of two values: the mean similarity of the nearest windows, half of it in proportion to the share
    of the query's words that a passage has; and the similarity of the nearest window in that proportion.
    """
    found = signals.candidates
    if found.cosine is None:
        return 0.0
    share = float((found.share * found.eligible).max(initial=0))
    by_many = float(found.nearest.mean()) * (_WORDLESS_SHARE + (1 - _WORDLESS_SHARE) * share)
    by_one = float(found.nearest.max()) * share
    size = _relative_size(signals)
    growth = GROWTH
    if size > 1:
        growth = COSINE_GROWTH
    enough = MIN_COSINE * math.pow(size, growth)
    return signals.vector_weight * max(by_many, by_one) / enough


def _relative_size(signals: Signals) -> float:
    return max(1, signals.candidates.total_windows) / TYPICAL_WINDOWS


# --- the size of a block --------------------------------------------------------------

_ENOUGH_WORDS: Final = 8
"""A match counts in full for a query with this many words."""
_BREVITY: Final = 0.75
"""The exponent of the share of `_ENOUGH_WORDS` that a shorter query has: its match counts less."""


def measure_confidence(signals: Signals) -> float:
    """Return the confidence that the memory contains something about the query. At about 1 it certainly does.

    A short query is matched by chance: one of its two words is half of it. The words of "Why do cats purr?" are in any
    archive of everyday conversations. A query that refers to something known ("the old service", "did we") is about
    the memory.
    """
    matched = max(word_relevance(signals), combined_relevance(signals))
    length = min(1.0, signals.words / _ENOUGH_WORDS)
    return matched * math.pow(length, _BREVITY) + signals.reference


_AGENT_CONFIDENCE: Final = 0.25
"""How much higher a confidence counts in the session of an agent, for the size of a block.

Everyday questions have few words in common with code and logs: in real sessions, 49 of 50 unrelated questions have a
confidence below 0.56, and half of those in other words one above 0.8. Between 0.2 and 0.3, 34 or 35 of 93 questions in
other words are answered instead of 27, for 10 to 20 tokens more for an unrelated one (`python -m benchmarks
other-words TRANSCRIPTS --half choose`).
"""


def weigh_confidence(confidence: float, signals: Signals) -> float:
    """Return how much a confidence counts for the size of a block."""
    return confidence + _AGENT_CONFIDENCE * (1 - measure_chat(signals.candidates))


_AGENT_FACTOR: Final = 0.8
"""How much larger the smallest block is in the session of an agent, whose passages are longer than those of a chat."""
_REFERENCE_FACTOR: Final = 2.4
"""How much larger the smallest block is for each unit of reference of the query."""
_STATEMENT_FACTOR: Final = 0.5
"""The factor for the smallest block if the message asks nothing and only states something."""


def scale_smallest_block(signals: Signals) -> float:
    """Return how much larger than usual the block for a weak match is."""
    agent = 1 - measure_chat(signals.candidates)
    scale = 1 + _AGENT_FACTOR * agent + _REFERENCE_FACTOR * signals.reference
    if not signals.is_asking:
        scale *= _STATEMENT_FACTOR
    return scale


_LARGEST_BLOCK: Final = 4_000
"""The tokens that a block grows to, if its cap is not higher.

A small cap ends the growth, but does not slow it: an answer takes as many tokens in a small window as in a large one.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagerness:
    """The size of a block by confidence.

    Attributes:
        min_tokens: The size for a weak match: a few lines.
        low: The confidence up to which a match is weak.
        high: The confidence from which a block has its largest size. Between the two the size grows linearly.
    """

    min_tokens: int
    low: float
    high: float

    def choose_size(self, confidence: float, *, cap: int, scale: float = 1.0) -> int:
        """Return the maximum tokens of a block. `scale` multiplies the size for a weak match."""
        smallest = self.min_tokens * scale
        largest = max(cap, _LARGEST_BLOCK)
        share = (confidence - self.low) / (self.high - self.low)
        share = min(1.0, max(0.0, share))
        return min(cap, round(smallest + share * (largest - smallest)))


SHY: Final = Eagerness(min_tokens=0, low=0.9, high=1.6)
"""Nothing for a weak match. Its limits were not measured: it is for users who count every token."""
NORMAL: Final = Eagerness(min_tokens=250, low=0.7, high=1.6)
"""Chosen so that unrelated questions get at most 300 tokens on average and public data sets at most 2,200."""
GENEROUS: Final = Eagerness(min_tokens=1_000, low=0.6, high=1.2)
"""More of what may be relevant; unrelated questions get 850 to 1,230 tokens."""
ALWAYS: Final = Eagerness(min_tokens=0, low=-2.0, high=-1.0)
"""The whole cap for every query: for measuring what is ranked first."""
EAGERNESS: Final[Mapping[str, Eagerness]] = {"shy": SHY, "normal": NORMAL, "generous": GENEROUS}
