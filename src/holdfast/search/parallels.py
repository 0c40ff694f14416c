"""Recognise two statements of one form about two things: "Lyon has a budget of 900 euros", "Porto has one of 700".

Their words are aligned. Where one has another value, the later may be the new one. Where a name differs as well, they
are about different things, and both hold.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from holdfast.patterns import compile_once
from holdfast.text import terms

MIN_ALIGNED: Final = 0.3
"""The share of the telling words of the shorter statement that must be in the same order in the other."""
MIN_ALIGNED_CHARACTERS: Final = 0.5
"""The same in a script without spaces, in which any two statements have many characters in common."""
MAX_NAMES: Final = 1
"""Two statements may differ in so many names if one is to replace the other: in the value itself."""
_MAX_NAME_WORDS: Final = 6
"""More words, or characters of a script without spaces, are a description of what happened."""
_VALUE: Final = "#"
_WORD: Final = r"""
    (?P<value>
      \d{4}-\d\d-\d\d | \d+月\d+[日号號]  # a date
      | (?<![\w-])\d+(?:[.,:]\d+)*%?(?![\w-]|\.\w) | \d+  # a number or a time, but not the 311 of "PAY-311"
      | [一二三四五六七八九十百千万两]+(?=[折成天日月号點点个個元块年次％%])  # a number before what it counts
      | \b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b
      | \b(?:january|february|march|april|may(?=\s\d)|june|july|august|september|october|november|december)\b
      | (?<=[周期曜])[一二三四五六日天末] | [月火水木金土日월화수목금토일](?=曜|요일)  # a day of the week
    )
    | [぀-ヿ㐀-鿿가-힣]  # a character of a script without spaces
    | [~\w.-]*(?:/[\w.-]+)+  # a path
    | @+(?:['’.-]@+)*  # a word
    """.replace("@", r"(?:(?![぀-ヿ㐀-鿿가-힣])[^\W_])")
"""Compiled with the first two statements that are compared: it takes 30 ms, too long for the start of a process."""
_MAX_NUMBER_PLACE: Final = 2
"""How many words may be before the number of a name."""
_LINKS: Final = frozenset(
    (
        *("a", "an", "the", "and", "or", "of", "to", "in", "on", "at", "by", "with", "for", "from", "per", "via"),
        *("every", "each", "until", "till", "um", "am", "im", "mit", "bei", "von", "für", "der", "die", "das"),
        *("und", "bis", "的", "和", "与", "在", "由", "每", "于", "で", "と", "の", "に", "へ", "を", "에", "로"),
        "version",
    )
)
"""Words that link a value to a name."""
_COPULAS: Final = frozenset(("is", "are", "was", "were", "has", "have", "had", "will"))
_SCOPES: Final = frozenset(("in", "for", "für", "im"))
"""Words before the name of what a value is for: "19% VAT in Germany"."""
_DIRECTIONS: Final = (frozenset(("to", "nach")), frozenset(("from", "von", "aus")))
_ORDERS: Final = frozenset(("rememb", "note", "correct", "pleas", "mein", "unser"))
"""Terms that tell nothing: those that a statement begins with, and whose something is."""
_DENIALS: Final = frozenset(("no", "not", "never", "不", "没", "別", "别"))


@dataclass(frozen=True, slots=True)
class _Words:
    """The words of a statement, with the same sign in the place of every value, and the values by their place."""

    forms: list[str]
    values: dict[int, str]

    @classmethod
    def read(cls, text: str) -> _Words:
        forms: list[str] = []
        values: dict[int, str] = {}
        for match in compile_once(_WORD, re.IGNORECASE | re.VERBOSE).finditer(text):
            word = match[0]
            if match["value"]:
                values[len(forms)] = word.casefold()
                word = _VALUE
            elif not word.isupper():  # "US" is not the word "us"
                word = word.casefold()
            forms.append(word)
        return cls(forms, values)


@dataclass(frozen=True, slots=True)
class _Difference:
    """What one statement has in the place of something else in the other, and where that is in the earlier one."""

    ours: Sequence[str]
    theirs: Sequence[str]
    start: int
    stop: int


def are_parallel(earlier: str, later: str, *, common: Collection[str], units: Collection[str], denies: bool) -> bool:
    """Return whether two statements have the same form, and are about two things.

    Args:
        earlier: The one statement.
        later: The other.
        common: Terms that name nothing, such as "now" and "moved".
        units: Terms of units among them. Another unit is another value: euros, dollars.
        denies: Whether the later one says that something is no longer so. Then it gives no other value, and one other
            name is enough.
    """
    ours = _Words.read(earlier)
    theirs = _Words.read(later)
    aligned = _align(ours, theirs)
    enough = MIN_ALIGNED
    if not earlier.isascii() or not later.isascii():
        enough = MIN_ALIGNED_CHARACTERS
    telling = min(len(_find_names(ours.forms, _ORDERS)), len(_find_names(theirs.forms, _ORDERS)))
    same = len(_find_names([ours.forms[place] for place in aligned.same], _ORDERS))
    if not same or same < enough * telling:
        return False
    # A word that both have was only moved.
    shared = {*_find_names(ours.forms, common)} & {*_find_names(theirs.forms, common)}
    names = [one for one in aligned.differences if _differ_in_name(one, shared.union(common))]
    if len(names) > MAX_NAMES or (names and denies):
        return True
    # "Sent to Olga on Mondays", "sent to Viktor on Thursdays": nothing but links stand between the two. They are what
    # changed of one thing.
    values = list(aligned.other_values)
    values += [one.stop - 1 for one in aligned.differences if _differ_in_name(one, ()) and _is_unit(one, units)]
    if values and any(map(_turns_around, aligned.differences)):
        return True
    for name in names:
        if any(_is_value_of(ours, aligned, value, name) for value in values):
            return True
    changed = [*values, *(name.stop - 1 for name in names)]
    numbers = [place for place in aligned.other_values if _is_number_of_name(ours, place)]
    return any(_says_between(ours, aligned, number, place) for number in numbers for place in changed)


@dataclass(frozen=True, slots=True)
class _Alignment:
    """What two statements have in common, and what differs.

    Attributes:
        same: The places of the words of the earlier one that the other has in the same order.
        differences: What is between them in both.
        other_values: The places of the values of the earlier one in whose place the later one has another.
    """

    same: Sequence[int]
    differences: Sequence[_Difference]
    other_values: Sequence[int]


def _align(ours: _Words, theirs: _Words) -> _Alignment:
    """Align the words of two statements."""
    same: list[int] = []
    differences: list[_Difference] = []
    other_values: list[int] = []
    matcher = SequenceMatcher(a=ours.forms, b=theirs.forms, autojunk=False)
    for tag, start, stop, first, last in matcher.get_opcodes():
        if tag == "equal":
            same += range(start, stop)
            for place in range(start, stop):
                if place in ours.values and ours.values[place] != theirs.values[first + place - start]:
                    other_values.append(place)
        elif tag == "replace":
            here = _without_value(ours.forms, start, stop)
            there = _without_value(theirs.forms, first, last)
            differences.append(_Difference(here, there, start, stop))
            if any(place in theirs.values for place in range(first, last)):
                other_values += [place for place in range(start, stop) if place in ours.values]
    return _Alignment(same, differences, other_values)


def _is_value_of(ours: _Words, aligned: _Alignment, value: int, name: _Difference) -> bool:
    """Return whether a value is that of a name: "web-01 has 16 GB", "19% VAT in Germany"."""
    if not _COPULAS.isdisjoint(ours.forms[name.start : name.stop]):
        return True
    if value >= name.stop:
        return _says_between(ours, aligned, name.stop, value)
    return ours.forms[name.start - 1] in _SCOPES and _says_between(ours, aligned, value, name.start)


def _turns_around(difference: _Difference) -> bool:
    """Return whether one statement is about the way there, and the other about the way back."""
    there, back = _DIRECTIONS
    ours = frozenset(difference.ours)
    theirs = frozenset(difference.theirs)
    return bool((ours & there and theirs & back) or (ours & back and theirs & there))


def _says_between(ours: _Words, aligned: _Alignment, start: int, stop: int) -> bool:
    """Return whether both statements say something between two places: "is", "takes", and not only "on" or "with"."""
    return any(start <= place < stop and _is_telling(ours.forms[place]) for place in aligned.same)


def _is_telling(form: str) -> bool:
    return form != _VALUE and form not in _LINKS


def _is_number_of_name(ours: _Words, place: int) -> bool:
    """Return whether a number belongs to the name at the beginning of a statement: "Run 1", "the flat 3"."""
    if place > _MAX_NUMBER_PLACE or place not in ours.values or not ours.values[place].replace(".", "").isdigit():
        return False
    is_at_beginning = place == 1 or (place > 1 and ours.forms[0] in _LINKS)  # not "we run 3 replicas"
    return is_at_beginning and bool(terms(ours.forms[place - 1]))


def _without_value(forms: Sequence[str], start: int, stop: int) -> Sequence[str]:
    """Return some of the words, without a name that is a part of the value behind them, as in "Postgres 16"."""
    if stop < len(forms) and forms[stop] == _VALUE:
        return forms[start : stop - 1]
    return forms[start:stop]


def _differ_in_name(difference: _Difference, common: Collection[str]) -> bool:
    """Return whether both statements have a name there. "Requires" and "no longer accepts" are none."""
    if max(len(difference.ours), len(difference.theirs)) > _MAX_NAME_WORDS:
        return False
    theirs = _find_names(difference.theirs, common)
    if not _DENIALS.isdisjoint(difference.theirs):  # in a script without spaces, a name may stand before it
        theirs = [name for name in theirs if not name.isascii() and name not in _DENIALS]
    return bool(theirs) and bool(_find_names(difference.ours, common))


def _is_unit(difference: _Difference, units: Collection[str]) -> bool:
    both = (*difference.ours, *difference.theirs)
    return all(term in units for term in terms(" ".join(both)))


def _find_names(forms: Sequence[str], common: Collection[str]) -> list[str]:
    """Return the words that may name something."""
    names: list[str] = []
    for form in forms:
        if form == _VALUE or form in common:
            continue
        if (form.isupper() and form != "I") or not form.isascii():
            names.append(form)
        else:
            names += [term for term in terms(form) if term not in common]
    return names
