"""Recognise replies that only say that something is not known.

Such a reply ("You have not told me who your dentist is") has the words of the question, so it would be quoted in the
place of the answer when the question is asked again.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from holdfast.patterns import compile_once, load
from holdfast.signals import sentences, without_questions

MAX_CHARS: Final = 400
"""The maximum characters of such a reply. A longer one says more."""
_DIGIT: Final = re.compile(r"\d")
_MORE: Final = re.compile(
    r"[,:;，：；、–—]|\s-\s|\b(?:but|because|so|since|and|although|though|aber|weil)\b|不过|但是?|所以|因为",
    re.IGNORECASE,
)
"""What begins another clause."""
_APOSTROPHES: Final = str.maketrans("’ʼ", "''")


@lru_cache(maxsize=4096)
def is_no_answer(text: str) -> bool:
    """Return whether a reply says that something is not known, and nothing else but offers and questions."""
    if len(text) > MAX_CHARS or _DIGIT.search(text):
        return False
    stated = without_questions(text).translate(_APOSTROPHES)
    is_said = False
    for sentence in sentences(stated):
        if _compile("offers").match(sentence):
            continue
        if not _is_unknown(sentence):
            return False
        is_said = True
    return is_said or _is_unknown(stated)  # it may be shorter than a sentence: 我不知道


def _is_unknown(sentence: str) -> bool:
    """Return whether a sentence says that something is not known, in one clause: what follows may be the answer.

    What is not found in a log or in a contract is a finding.
    """
    rest = _compile("excuses").sub("", sentence, count=1)
    if _MORE.search(rest.rstrip(".!。！ ")) or _compile("elsewhere").search(rest):
        return False
    return _compile("unknown").search(rest) is not None


@cache
def _compile(name: str) -> re.Pattern[str]:
    return compile_once(load("noise")["no_answers"][name], re.IGNORECASE)
