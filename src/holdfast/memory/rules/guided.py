"""Changes that are told in words no pattern knows, understood by what is known already.

A sentence that names all of a known fact's subject, holds one other value of the same sort, and says nothing beside
that but words of change, puts the new value in the place of the old one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

from holdfast.memory.claims import slot_words, subject_key
from holdfast.memory.draft import Draft
from holdfast.memory.values import fits, kind_of, same_value
from holdfast.store.base import FactRow
from holdfast.text import terms

__all__ = ["change_of"]

_CHANGE: Final = """
    move switch change update upgrade bump raise lower increase reduce set put go goes went use run sit live stay get
    got gave make made become became now instead today yesterday week month morning since push slip shift postpone
    delay extend double halve cut replace swap migrate relocate transfer point map remap reconfigure bind listen serve
    host deploy store keep save pin own lead take took hand pass assign please actually correction fyi note remember
    again new number ok
"""
_TYPED: Final = frozenset({"url", "path", "version", "number", "date"})
_UNIT: Final = r"(?: (?:[kMG]B|ms|seconds?|minutes?|hours?|days?|weeks?|euros?|dollars?)\b)?"
_TOKEN: Final = re.compile(rf"[A-Z][a-z]{{2,8}} \d{{1,2}}\b|[^\s,;()\"“”]+{_UNIT}")


def change_of(sentence: str, known: Sequence[tuple[FactRow, str]]) -> Draft | None:
    """The change that a sentence tells of one of the known facts (each with its value); None if it is not just one."""
    said = set(subject_key(sentence))
    values = [token for found in _TOKEN.findall(sentence) if kind_of(token := found.strip(".!:'`")) in _TYPED]
    if not values:
        return None
    beside = said - _change_terms() - {term for value in values for term in subject_key(value)}
    found = [
        Draft(type=fact.type, content=sentence, subject=fact.subject, slot=fact.slot, value=value)
        for fact, old in known
        if (value := _new_value(fact, old, values, said))
        and beside <= {*subject_key(fact.subject), *slot_words(fact.slot)}
    ]
    return found[0] if len(found) == 1 else None


def _new_value(fact: FactRow, old: str, values: Sequence[str], said: set[str]) -> str:
    """The one value that a fact's property may have got; nothing where the sentence is about something else."""
    kind = kind_of(old)
    if kind not in _TYPED or not _is_about(fact, kind, said):
        return ""
    others = {value for value in values if kind_of(value) == kind and not same_value(value, old)}
    return others.pop() if len(others) == 1 and fits(fact.slot, next(iter(others))) else ""


def _is_about(fact: FactRow, kind: str, said: set[str]) -> bool:
    """Whether a sentence names what the fact is about; of a number also its property: everything has many numbers."""
    about = set(subject_key(fact.subject))
    named = kind != "number" or fact.slot == "value" or bool(said & slot_words(fact.slot))
    return bool(about) and about <= said and named


@cache
def _change_terms() -> frozenset[str]:
    return frozenset(terms(_CHANGE))
