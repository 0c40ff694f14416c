"""Whether a question has anything to do with the memory at all.

There is a block where the words of the question are enough, or where words and vectors together are. Vectors can
add to what the words say, never take away from it: `by_words` is the same with any vectors and with none.

The scale is absolute: it depends neither on the other questions nor on how many passages there are. 1 is enough for
a block. The figures were chosen by leaving whole data sets out (docs/benchmarks.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.search.columns import Floats
from holdfast.search.fuse import Signals
from holdfast.search.passages import LINES

__all__ = ["ENOUGH_ALIKE", "ENOUGH_IN_LINES", "ENOUGH_TOGETHER", "by_both", "by_words", "relevance"]

ENOUGH_TOGETHER: Final = 0.36
"""The part of the question that must stand in one window."""
ENOUGH_IN_LINES: Final = 0.27
"""The same in text that is cut into lines: chance brings fewer words together in a line than in a paragraph."""
ENOUGH_ALIKE: Final = 0.25
"""How alike windows must be to the question, where its words are there too."""

_LONG: Final = 8
"""A question of more words is not said again as a whole: less of it is enough."""
_WINDOWS: Final = 5
_FREE: Final = 0.5
"""The part of the likeness that counts without any word in common."""


def relevance(signals: Signals) -> float:
    """How much the best of memory has to do with the question; from 1 on there is a block."""
    return max(by_words(signals), by_both(signals))


def by_words(signals: Signals) -> float:
    """How much of the question stands in one window, as a part of what is enough."""
    columns = signals.columns
    windows = np.diff(columns["first_window"], append=columns.windows)
    is_lines = (windows > 1) & (columns["size"] <= LINES * windows)
    enough = np.where(is_lines, np.float32(ENOUGH_IN_LINES), np.float32(ENOUGH_TOGETHER))
    best = float((signals.keywords.together * signals.visible / enough).max(initial=0))
    return best * float(np.cbrt(max(1.0, signals.length / _LONG)))


def by_both(signals: Signals) -> float:
    """How alike memory is to the question, as a part of what is enough; 0 without vectors that know its script.

    A few windows must be like the question, and half of that counts only as far as its words are there too; or one
    window, which counts as far as the words do.
    """
    if signals.cosine is None:
        return 0.0
    share = float((signals.keywords.share * signals.visible).max(initial=0))
    best = _best(signals.cosine, signals)
    alike = max(float(best.mean()) * (_FREE + (1 - _FREE) * share), float(best.max()) * share)
    return signals.vector_weight * alike / ENOUGH_ALIKE


def _best(cosine: Floats, signals: Signals) -> Floats:
    """The likeness of the few visible windows that are most like the question, 0 at least."""
    owners = signals.columns["passage"]
    if signals.centre is not None:  # the best of all windows, unless too many of them are out of sight by now
        windows = signals.centre.windows
        seen = windows[signals.visible.take(owners.take(windows))]
        if len(seen) >= _WINDOWS:
            return _highest(cosine[seen])
    return _highest(cosine * signals.visible.take(owners))


def _highest(values: Floats) -> Floats:
    count = min(_WINDOWS, len(values))
    if not count:
        return np.zeros(1, np.float32)
    return np.maximum(np.partition(values, len(values) - count)[-count:], 0)
