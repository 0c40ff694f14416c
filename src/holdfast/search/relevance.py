"""How well the memory matches a query, and how large the block is that follows from it.

The words of the query count, or words and vectors together. Vectors only add: `word_relevance` is the same with any
vectors and with none. The scale is absolute: it does not depend on other queries.

The figures were chosen with `python -m benchmarks recall` and `python -m benchmarks other-words` by leaving out whole
data sets (docs/benchmarks.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.search.arrays import Bools
from holdfast.search.fuse import Signals, measure_chat
from holdfast.search.passages import LINES

MIN_WINDOW_SHARE: Final = 0.36
"""The share of the query that must be in one window."""
MIN_LINE_SHARE: Final = 0.27
"""The same in text that is cut into lines, where fewer words occur together by chance."""
MIN_COSINE: Final = 0.25
"""The cosine that windows must have, if the words of the query are there too."""
MIN_FOUND_COSINE: Final = 0.2
"""The cosine from which a search lists a passage without any word of the query."""
TYPICAL_WINDOWS: Final = 2000
"""With more windows more is similar by chance, and more is needed; with fewer, less: their number to the power of"""
GROWTH: Final = 0.05
"""for words, and for vectors where windows are few; of"""
COSINE_GROWTH: Final = 0.2
"""for vectors where they are many."""

_LONG_QUERY_WORDS: Final = 8
"""A query of more words is rarely repeated as a whole: less of it is enough."""
_WORDLESS_SHARE: Final = 0.5
"""The part of the similarity that counts without any word in common."""


def word_relevance(signals: Signals) -> float:
    """Return the share of the query that is in one window, relative to what is enough."""
    found = signals.candidates
    is_lines = (found.windows > 1) & (found.sizes <= LINES * found.windows)
    enough = np.where(is_lines, np.float32(MIN_LINE_SHARE), np.float32(MIN_WINDOW_SHARE))
    best = float((found.together * found.eligible / enough).max(initial=0))
    size = _relative_size(signals)
    return best * float(np.cbrt(max(1.0, signals.length / _LONG_QUERY_WORDS))) / math.pow(size, GROWTH)


def find_relevant(signals: Signals) -> Bools:
    """Tell of each candidate whether it has anything to do with the query: words of it, related words, or its meaning.

    Less than half of the words that the best candidate has are enough only if they are a good part of the query.
    """
    found = signals.candidates
    enough = min(MIN_LINE_SHARE, float(found.share.max(initial=0)) / 2)
    is_relevant = np.where(found.share > 0, found.share >= enough, found.keyword > 0)
    if found.cosine is None:
        return is_relevant
    return is_relevant | (signals.vector_weight * found.cosine >= MIN_FOUND_COSINE)


def combined_relevance(signals: Signals) -> float:
    """Return the similarity to the query, relative to what is enough; 0 without vectors for its script.

    Either a few windows are similar, and half of that counts only as far as the words of the query are there too; or
    one window is, which counts as far as the words are there.
    """
    found = signals.candidates
    if found.cosine is None:
        return 0.0
    share, best = float((found.share * found.eligible).max(initial=0)), found.nearest
    similarity = max(float(best.mean()) * (_WORDLESS_SHARE + (1 - _WORDLESS_SHARE) * share), float(best.max()) * share)
    size = _relative_size(signals)
    enough = MIN_COSINE * math.pow(size, COSINE_GROWTH if size > 1 else GROWTH)
    return signals.vector_weight * similarity / enough


def _relative_size(signals: Signals) -> float:
    return max(1, signals.candidates.total_windows) / TYPICAL_WINDOWS


# --- the size of a block --------------------------------------------------------------

_ENOUGH_WORDS: Final = 8
"""A match counts in full for a query with this many words."""
_BREVITY: Final = 0.75
"""How much less it counts for a shorter query: the share of its words to this power."""


def measure_confidence(signals: Signals) -> float:
    """Return how sure it is that the memory has to do with the query; from about 1 on it is sure.

    A short query is matched by chance: one of its two words is half of it. "Why do cats purr?" finds its words in any
    archive of everyday talk. A query that refers to something known ("the old service", "did we") asks about it.
    """
    matched = max(word_relevance(signals), combined_relevance(signals))
    return matched * math.pow(min(1.0, signals.words / _ENOUGH_WORDS), _BREVITY) + signals.reference


_AGENT_FACTOR: Final = 0.8
"""How much larger the smallest block is in the session of an agent, where passages are longer than in a chat."""
_REFERENCE_FACTOR: Final = 2.4
"""How much larger the smallest block is for a query that refers to something known, for each unit of reference."""


def scale_smallest_block(signals: Signals) -> float:
    """Return how much larger than usual the block for a weak match is."""
    agent = 1 - measure_chat(signals.candidates)
    return 1 + _AGENT_FACTOR * agent + _REFERENCE_FACTOR * signals.reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagerness:
    """How large a block is by confidence.

    Attributes:
        min_tokens: The size for a weak match: a few lines.
        low: The confidence up to which a match is weak.
        high: The confidence from which on a block may take the whole cap. In between the size grows evenly.
    """

    min_tokens: int
    low: float
    high: float

    def choose_size(self, confidence: float, *, cap: int, scale: float = 1.0) -> int:
        """Return the most tokens of a block. `scale` is that of the size for a weak match."""
        smallest = self.min_tokens * scale
        share = (confidence - self.low) / (self.high - self.low)
        share = min(1.0, max(0.0, share))
        return min(cap, round(smallest + share * (cap - smallest)))


SHY: Final = Eagerness(min_tokens=0, low=0.9, high=1.6)
"""Nothing for a weak match. Its limits were not measured: it is for people who count every token."""
NORMAL: Final = Eagerness(min_tokens=250, low=0.7, high=1.6)
GENEROUS: Final = Eagerness(min_tokens=1_000, low=0.6, high=1.2)
ALWAYS: Final = Eagerness(min_tokens=0, low=-2.0, high=-1.0)
"""The whole cap for every query: for measuring what is ranked first."""
EAGERNESS: Final[Mapping[str, Eagerness]] = {"shy": SHY, "normal": NORMAL, "generous": GENEROUS}
