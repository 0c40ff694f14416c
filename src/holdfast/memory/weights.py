"""The terms of a question, and how much each weighs.

English words that say nothing are no terms at all, and those that a question is put with weigh half. In scripts
without spaces the signs of such words are terms like any other, and a passage may need them. In a question they say
as little as in English: what is asked for is not where "what" is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final

from holdfast.text import terms

__all__ = ["weights"]

_EARLIER: Final = 0.5
_KANA: Final = re.compile(r"[\u3040-\u309f]+")
"""Hiragana alone: particles and endings, and a few words."""
_KANA_WEIGHT: Final = 0.3
_SIGNS: Final = "的了是在和有我你他她它们这那吗呢吧啊与及或也都就而被把从对为以之其于并等个什么哪谁怎几何誰"
_PAIRS: Final = ("什么", "怎么", "哪些", "哪个", "多少", "几个", "为什", "是什", "么时", "时候")
_SILENT: Final = frozenset((*_SIGNS, *_PAIRS))
"""Chinese signs that a question holds and an answer need not."""

_FRAME: Final = """
    ask become big come current ever exactly find give go happen kind know large last late long make many mean mention
    much need new often old please remember say see soon take talk tell thing think time try use want way
"""
"""English words that a question is put with and an answer need not hold: "how long did it take"."""
_FRAME_WEIGHT: Final = 0.5


def weights(texts: Sequence[str]) -> dict[str, float]:
    """The terms of a question, newest text last, whose earlier texts weigh less.

    A question of nothing but silent words is taken at its word.
    """
    found: dict[str, float] = {}
    for age, text in enumerate(reversed(texts)):
        for term, count in Counter(terms(text)).items():
            found[term] = max(found.get(term, 0.0), count * _EARLIER**age)
    telling = {term: weight * _said_by(term) for term, weight in found.items() if _said_by(term)}
    return telling or found


def _said_by(term: str) -> float:
    """How much of a term's weight counts."""
    if term in _SILENT:
        return 0.0
    if term in _frame():
        return _FRAME_WEIGHT
    return _KANA_WEIGHT if _KANA.fullmatch(term) else 1.0


@cache
def _frame() -> frozenset[str]:
    return frozenset(terms(_FRAME))
