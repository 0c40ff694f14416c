"""Whether a question has anything to do with the memory at all.

The scale is absolute: it depends neither on the other questions nor on how many passages there are. A few windows
must be like the question, and that counts only as far as its words are there too: vectors of a script that a
model does not know are like everything.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from holdfast.search.fuse import Signals

__all__ = ["LEAST", "LEAST_BY_WORDS", "least", "relevance"]

LEAST: Final = 0.38
"""The relevance from which on a block is worth its room."""
LEAST_BY_WORDS: Final = 0.25
"""The same where there are no vectors: words alone tell off-topic questions less well."""

_WINDOWS: Final = 5
_FREE: Final = 0.3
_PER_SHARE: Final = 0.6
_SHARE: Final = 0.1


def least(signals: Signals) -> float:
    """The relevance that a question must have to get a block."""
    return LEAST_BY_WORDS if signals.cosine is None else LEAST


def relevance(signals: Signals) -> float:
    """How much the best of memory has to do with the question, 0 to 1."""
    share = float((signals.keywords.share * signals.visible).max(initial=0))
    if signals.cosine is None:
        return share
    cosine = signals.cosine * signals.visible[signals.columns["passage"]]
    count = min(_WINDOWS, len(cosine))
    alike = float(np.partition(cosine, len(cosine) - count)[-count:].mean()) if count else 0.0
    return (1 - _SHARE) * min(max(alike, 0.0), _FREE + _PER_SHARE * share) + _SHARE * share
