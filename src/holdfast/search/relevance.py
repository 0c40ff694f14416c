"""How relevant the memory is to a query: 1 is enough for a recall block.

A block is made if the words of the query are enough, or if words and vectors together are. Vectors only add:
`word_relevance` is the same with any vectors and with none.

The scale is absolute: it depends neither on other queries nor on the number of passages. The figures were chosen by
leaving out whole data sets (docs/benchmarks.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.search.columns import Floats
from holdfast.search.fuse import Signals
from holdfast.search.passages import LINES

__all__ = ["MIN_COSINE", "MIN_LINE_SHARE", "MIN_WINDOW_SHARE", "combined_relevance", "relevance", "word_relevance"]

MIN_WINDOW_SHARE: Final = 0.36
"""The share of the query that must be in one window."""
MIN_LINE_SHARE: Final = 0.27
"""The same in text that is cut into lines, where fewer words occur together by chance."""
MIN_COSINE: Final = 0.25
"""The cosine that windows must have, if the words of the query are there too."""

_LONG_QUERY_WORDS: Final = 8
"""A query of more words is rarely repeated as a whole: less of it is enough."""
_BEST_WINDOWS: Final = 5
_WORDLESS_SHARE: Final = 0.5
"""The part of the similarity that counts without any word in common."""


def relevance(signals: Signals) -> float:
    """Return the relevance of the best passages; 1 or more is enough for a block."""
    return max(word_relevance(signals), combined_relevance(signals))


def word_relevance(signals: Signals) -> float:
    """Return the share of the query that is in one window, relative to what is enough."""
    columns = signals.columns
    windows = np.diff(columns["first_window"], append=columns.windows)
    is_lines = (windows > 1) & (columns["size"] <= LINES * windows)
    enough = np.where(is_lines, np.float32(MIN_LINE_SHARE), np.float32(MIN_WINDOW_SHARE))
    best = float((signals.keywords.together * signals.visible / enough).max(initial=0))
    return best * float(np.cbrt(max(1.0, signals.length / _LONG_QUERY_WORDS)))


def combined_relevance(signals: Signals) -> float:
    """Return the similarity to the query, relative to what is enough; 0 without vectors for its script.

    Either a few windows are similar, and half of that counts only as far as the words of the query are there too; or
    one window is, which counts as far as the words are there.
    """
    if signals.cosine is None:
        return 0.0
    share = float((signals.keywords.share * signals.visible).max(initial=0))
    best = _best_cosines(signals.cosine, signals)
    similarity = max(float(best.mean()) * (_WORDLESS_SHARE + (1 - _WORDLESS_SHARE) * share), float(best.max()) * share)
    return signals.vector_weight * similarity / MIN_COSINE


def _best_cosines(cosine: Floats, signals: Signals) -> Floats:
    """Return the cosines of the few visible windows that are most similar to the query, at least 0."""
    owners = signals.columns["passage"]
    if signals.centre is not None:  # the best of all windows, unless too many of them are not visible
        windows = signals.centre.windows
        visible = windows[signals.visible.take(owners.take(windows))]
        if len(visible) >= _BEST_WINDOWS:
            return _highest(cosine[visible])
    return _highest(cosine * signals.visible.take(owners))


def _highest(values: Floats) -> Floats:
    count = min(_BEST_WINDOWS, len(values))
    if not count:
        return np.zeros(1, np.float32)
    return np.maximum(np.partition(values, len(values) - count)[-count:], 0)
