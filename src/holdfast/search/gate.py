"""Whether a question has anything to do with the memory at all.

The scale is absolute: it depends neither on the other questions nor on how many passages there are. A few windows
must be like the question, and half of that counts only as far as its words are there too; or one window, which
counts as far as the words do. For scripts that the vectors know nothing of, where everything is like everything,
the words decide.

Vectors can add to what the words say, never take away from it. Where a good part of the question stands in one
window, the words prove that it belongs there, whatever the vectors say. In logs, tables and code less of it is a
proof: chance brings fewer words together in a line than in a paragraph, and vectors know little of such text.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.search.columns import Floats, Ints
from holdfast.search.fuse import Signals
from holdfast.search.passages import LINES

__all__ = ["LEAST", "LEAST_BY_SIGNS", "LEAST_BY_WORDS", "PROVEN", "PROVEN_BY_LINE", "least", "proven", "relevance"]

LEAST: Final = 0.25
"""The relevance from which on a block is worth its room."""
LEAST_BY_SIGNS: Final = 0.37
"""The same for a question in a script without spaces, to vectors that do not know it."""
LEAST_BY_WORDS: Final = 0.25
"""The same where there are no vectors: words alone tell off-topic questions less well."""
PROVEN: Final = 0.5
"""The part of the question that stands in one window where the words prove that it belongs there."""
PROVEN_BY_LINE: Final = 0.35
"""The same in text that is cut into lines."""

_WINDOWS: Final = 5
_FREE: Final = 0.5
"""The part of the likeness that counts without any word in common."""


def least(signals: Signals) -> float:
    """The relevance that a question must have to get a block."""
    if signals.cosine is None:
        return LEAST_BY_WORDS
    return signals.trust * LEAST + (1 - signals.trust) * LEAST_BY_SIGNS


def relevance(signals: Signals) -> float:
    """How much the best of memory has to do with the question, 0 to 1; what the words prove is enough for a block."""
    share = float((signals.keywords.share * signals.visible).max(initial=0))
    if signals.cosine is None:
        return share
    best = _best(signals.cosine, signals)
    meant = max(float(best.mean()) * (_FREE + (1 - _FREE) * share), float(best.max()) * share)
    proof = float(_proof(signals).max(initial=0))
    return max(signals.trust * meant + (1 - signals.trust) * share, least(signals) * min(proof, 1.0))


def proven(signals: Signals, *, limit: int) -> Ints:
    """The passages that the words prove, those with most of the question first: the same whatever the vectors say."""
    keywords = signals.keywords
    found = np.flatnonzero(_proof(signals) >= 1)
    return found[np.lexsort((-keywords.passages[found], -keywords.together[found]))][:limit]


def _proof(signals: Signals) -> Floats:
    """How much of what proves a passage stands in one of its windows; 0 out of sight."""
    columns = signals.columns
    windows = np.diff(columns["first_window"], append=columns.windows)
    by_line = (windows > 1) & (columns["size"] <= LINES * windows)
    needed = np.where(by_line, np.float32(PROVEN_BY_LINE), np.float32(PROVEN))
    return (signals.keywords.together * signals.visible / needed).astype(np.float32)


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
