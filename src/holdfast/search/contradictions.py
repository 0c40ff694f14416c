"""Find out whether two statements give one property two values: the same words, and another number, date or name.

Whether the later one replaces the earlier one is a separate question. It does if it says so ("no longer",
"from now on", 改成), or if nothing but a number, a date or the like differs.

`python -m benchmarks conflicts` counts pairs of facts that contradict each other or only look alike; some of them were
written after the figures below were chosen.

This module compares stored facts, each of which is one plain statement. `corrections` compares what people say in
conversations as the answer to a question.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain
from typing import Final

from holdfast.patterns import compile_once, load
from holdfast.search.corrections import Statement, are_about_two_things, has_weak_word, is_correction
from holdfast.search.opposites import are_opposed, find_opposites, list_terms
from holdfast.search.related import find_related
from holdfast.text import is_unsegmented, terms

MIN_SHARE: Final = 0.6
"""The share of the words of the shorter statement that the other must have, if numbers differ."""
MIN_RELATED: Final = 0.4
"""The minimum similarity of two words that count as the same."""
MAX_NAME_TERMS: Final = 3
"""An answer of more words than this is a description, not a name."""
MAX_CHARS: Final = 300
"""A longer text is not one statement."""
_UNIT_CHARS: Final = 3
"""How many characters of a unit are compared: enough to distinguish units, and the same in singular and plural."""
_NUMBER_WORDS: Final = (
    ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"],
    ["一", "二", "三", "四", "五", "六", "七", "八", "九", "十"],
)
_NUMBERS: Final = {word: number for words in _NUMBER_WORDS for number, word in enumerate(words, start=1)}
"""The values of the words that `values.amount` of the patterns takes for a number."""
_PROPER: Final = re.compile(r"(?<=\s)[A-Z][\w'’-]+")
"""A word with a capital letter that is not the first one: the "Oslo" of "The office in Oslo", not its "The"."""
_FLAGS: Final = re.IGNORECASE | re.VERBOSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The parts of a statement.

    Attributes:
        text: The statement.
        topic: The words that say what it is about, in order, without values and words of change.
        values: The numbers, dates and the like in it, by their kind or unit.
        subject, verb, answer: The parts of a plain statement such as "backups are stored in Frankfurt"; empty for any
            other statement.
        preposition: What the answer begins with: "in", "called", "hosted on".
        names: The numbers that are names: those in its subject ("gate 3 is open"), and those of tickets and the like.
        place: The number of the room or the like that is its whole answer ("the printer is in room 12"). It may be a
            name too, but one thing has one of them at a time.
        is_role: Whether it says who or what has a role: "Tom is the release manager".
        proper: The terms of the names in it that begin with a capital letter, without the first word.
        is_change: Whether it says that something changed.
        is_weak_change: Whether it says "now" or the like.
        is_ending: Whether it says that something is no longer so.
        ended: The words before that: the printer, in "the printer no longer works".
        opposites: The words of each group of opposites in its topic, such as staging and production.
    """

    text: str
    topic: tuple[str, ...]
    values: Mapping[str, frozenset[str]]
    subject: tuple[str, ...] = ()
    verb: str = ""
    answer: frozenset[str] = frozenset()
    preposition: str = ""
    names: frozenset[str] = frozenset()
    place: str = ""
    is_role: bool = False
    proper: frozenset[str] = frozenset()
    is_change: bool = False
    is_weak_change: bool = False
    is_ending: bool = False
    ended: frozenset[str] = frozenset()
    opposites: Mapping[int, frozenset[str]] = field(default_factory=dict)


@lru_cache(maxsize=2**14)
def read_claim(text: str) -> Claim | None:
    """Read the parts of a statement; None if it is too long or has no words."""
    plain = unicodedata.normalize("NFKC", text).strip().rstrip(".。!！")
    if not plain or len(plain) > MAX_CHARS:
        return None
    words = load("contradictions")["words"]
    labelled = compile_once(words["labelled"], _FLAGS)
    labels = frozenset(match["number"] for match in labelled.finditer(plain))
    place = _find_place(plain)
    plain = labelled.sub(r"\g<label> ", plain)  # these numbers are names, and no values
    bare, values = _cut_values(plain)
    topic = _find_topic(bare)
    if not topic:
        return None
    ending = compile_once(words["ending"], _FLAGS).search(plain)
    ended: Iterable[str] = ()
    if ending is not None:
        ended = _find_topic(plain[: ending.start()])
    claim = Claim(
        text=plain,
        topic=topic,
        values=values,
        names=labels - {place},
        place=place,
        proper=frozenset(chain.from_iterable(map(terms, _PROPER.findall(plain)))),
        is_change=is_correction(plain),
        is_weak_change=has_weak_word(plain),
        is_ending=ending is not None,
        ended=frozenset(ended),
        opposites=find_opposites(topic),
    )
    parts = _match_statement(plain)
    if parts is None:
        return claim
    return _add_parts(claim, subject=parts["subject"], verb=parts["verb"].casefold(), answer=parts["answer"])


def _add_parts(claim: Claim, *, subject: str, verb: str, answer: str) -> Claim:
    """Add the parts of a plain statement to what is known of it without them."""
    words = load("contradictions")["words"]
    bare_subject, numbers = _cut_values(subject)
    preposition = ""
    begin = compile_once(words["preposition"], _FLAGS).search(answer)
    if begin is not None:
        preposition = " ".join(begin[0].casefold().split())
    return replace(
        claim,
        subject=_find_topic(bare_subject),
        verb=verb,
        answer=frozenset(_find_topic(answer)),
        preposition=preposition,
        names=claim.names.union(*numbers.values()),
        is_role=compile_once(words["role"], _FLAGS).match(f"{verb} {answer}") is not None,
    )


def contradict(earlier: Claim, later: Claim) -> bool:
    """Return whether two statements cannot both be up to date, judging by their words."""
    if earlier.is_ending != later.is_ending and _ends(earlier, later):
        return True
    if are_contrasted(earlier, later) or not _differ(earlier, later):
        return False
    return not are_about_two_things(_read(earlier.text), _read(later.text))  # at last, because it takes longest


def _differ(earlier: Claim, later: Claim) -> bool:
    """Return whether a statement says something else about what an earlier one is about."""
    if later.is_change and not earlier.is_change and _changes(earlier, later):
        return not ends_another(later, earlier)
    if _find_kinds(earlier, later):
        return _are_about_same(earlier, later)
    if earlier.values or later.values:  # the values are of other kinds, or the same: they say different things
        return False
    return _have_other_names(earlier, later) or _have_same_role(earlier, later) or _have_other_places(earlier, later)


@lru_cache(maxsize=2**14)
def _read(text: str) -> Statement:
    """Read the text of a claim as a statement of a conversation. Each is compared with many others."""
    return Statement.read(text)


def ends_another(later: Claim, earlier: Claim) -> bool:
    """Return whether a statement says that something ends, and an earlier one is not about it.

    "My nephew no longer uses Elasticsearch" does not end "we use Elasticsearch for the search".
    """
    return bool(later.ended) and len(_find_own(later.ended, earlier.topic)) == len(later.ended)


def are_contrasted(left: Claim, right: Claim) -> bool:
    """Return whether two statements name different things of one group: staging and production, or gates 3 and 4."""
    return left.names != right.names or are_opposed(left.opposites, right.opposites)


def are_about_others(left: Claim, right: Claim) -> bool:
    """Return whether both statements name one of a group, and not the same one.

    In a sentence of another form, a number may be a name in one and a value in the other: "two approvals".
    """
    have_other_names = bool(left.names) and bool(right.names) and left.names.isdisjoint(right.names)
    return have_other_names or are_opposed(left.opposites, right.opposites)


def may_contradict(left: Claim, right: Claim) -> bool:
    """Return whether two statements may be about one property: other values of one kind, and some words in common."""
    if are_contrasted(left, right) or not _find_kinds(left, right):
        return False
    ours = _find_own(left.topic, right.topic)
    theirs = _find_own(right.topic, left.topic)
    begin_alike = left.topic[0] not in ours or right.topic[0] not in theirs
    return begin_alike and len(ours) < len(left.topic)


def replaces(later: Claim, earlier: Claim) -> bool:
    """Return whether the later of two contradicting statements certainly replaces the other."""
    if later.is_change:
        return True
    if not later.values.keys() & earlier.values.keys():
        return False
    if later.is_weak_change:
        return True
    # In "cat 3 likes fish" the number may be a name; in "the port is 8443" it is not.
    return bool(later.verb) and set(later.topic) == set(earlier.topic)


# --- comparing -------------------------------------------------------------------------


def _ends(left: Claim, right: Claim) -> bool:
    """Return whether one of two statements says that the other no longer holds."""
    ending = left
    other = right
    if right.is_ending:
        ending = right
        other = left
    return not ending.values and not _find_own(ending.topic, other.topic)


def _changes(earlier: Claim, later: Claim) -> bool:
    """Return whether a statement about a change is about what an earlier one says."""
    kinds = earlier.values.keys() & later.values.keys()
    is_new = any(later.values[kind] - earlier.values[kind] for kind in kinds)
    if earlier.values and not is_new:
        return False
    if not earlier.values and set(later.topic) <= set(earlier.topic):
        return False
    return 1 - len(_find_own(earlier.topic, later.topic)) / len(earlier.topic) >= MIN_SHARE


def _find_kinds(left: Claim, right: Claim) -> set[str]:
    """Return the kinds of values of which both statements have one; none if they have a value in common."""
    kinds = left.values.keys() & right.values.keys()
    if any(left.values[kind] & right.values[kind] for kind in kinds):
        return set()
    return set(kinds)


def _are_about_same(left: Claim, right: Claim) -> bool:
    """Return whether statements with different values are about the same property."""
    ours = _find_own(left.topic, right.topic)
    theirs = _find_own(right.topic, left.topic)
    if left.topic[0] in ours and right.topic[0] in theirs:
        return False  # a statement begins with what it is about
    if ours & left.proper and theirs & right.proper:
        return False  # the office in Oslo, the office in Bergen
    has_subjects = left.subject and right.subject and not is_unsegmented(left.subject[0][0])
    if has_subjects and _find_own(left.subject, right.topic) and _find_own(right.subject, left.topic):
        return False  # neither names the subject of the other
    shares = (1 - len(ours) / len(left.topic), 1 - len(theirs) / len(right.topic))
    return max(shares) >= MIN_SHARE


def _have_other_names(left: Claim, right: Claim) -> bool:
    """Return whether two plain statements with the same subject name different things in the same place."""
    if not left.answer or not right.answer or not left.subject or not right.subject:
        return False
    if _find_own(left.subject, right.subject) or _find_own(right.subject, left.subject):
        return False
    ours = left.answer - right.answer
    theirs = right.answer - left.answer
    if not ours or not theirs:
        return False
    if max(_count_words(ours), _count_words(theirs)) > MAX_NAME_TERMS:
        return False
    if left.is_change or right.is_change or left.is_weak_change or right.is_weak_change:
        return True
    several = compile_once(load("contradictions")["words"]["several"], _FLAGS)
    if several.fullmatch(left.verb) or several.fullmatch(right.verb):
        return False
    has_same_place = left.preposition == right.preposition != ""
    is_property = bool(_property_terms() & (set(left.subject) | set(right.subject)))
    return has_same_place or is_property or bool(left.answer & right.answer)


def _have_same_role(left: Claim, right: Claim) -> bool:
    """Return whether two statements give one role to different people or things."""
    if not left.is_role or not right.is_role or left.answer != right.answer or not left.answer:
        return False
    ours = set(left.subject) - set(right.subject)
    theirs = set(right.subject) - set(left.subject)
    if not ours or not theirs:
        return False
    return max(_count_words(left.subject), _count_words(right.subject)) <= MAX_NAME_TERMS


def _have_other_places(left: Claim, right: Claim) -> bool:
    """Return whether two statements say that the same thing is in places with different numbers."""
    if not left.place or not right.place or left.place == right.place:
        return False
    return (left.topic, left.verb, left.preposition) == (right.topic, right.verb, right.preposition)


def _count_words(found: Iterable[str]) -> float:
    """Count words; two characters of a script without spaces are about one."""
    count = 0.0
    for term in found:
        if is_unsegmented(term[0]):
            count += 0.5
        else:
            count += 1.0
    return count


def _find_own(some: Collection[str], others: Collection[str]) -> set[str]:
    """Return the terms that only the first ones have: neither these nor related ones are among the others.

    A term of the others that the first ones have too stands for nothing else: "Elasticsearch" is not also "search".
    """
    own = set(some).difference(others)
    if not own:
        return own
    for term in set(others).difference(some):
        own -= _find_synonyms(term)
    return own


@lru_cache(maxsize=2**14)
def _find_synonyms(term: str) -> frozenset[str]:
    """Return the words that count as the same as a term."""
    same: set[str] = set()
    for row in find_related((term,)).values():
        same.update(word for word, share in row.items() if share >= MIN_RELATED)
    return frozenset(same)


# --- reading ---------------------------------------------------------------------------


def _match_statement(plain: str) -> re.Match[str] | None:
    """Match a plain statement: what it is about, its verb, and what it says."""
    forms = load("contradictions")["statements"]
    pattern = forms["spaced"]
    if any(map(is_unsegmented, plain)):
        pattern = forms["unsegmented"]
    return compile_once(pattern, _FLAGS).fullmatch(plain)


def _find_place(plain: str) -> str:
    """Return the number in an answer that is nothing but a numbered place ("in room 12"); empty for any other one."""
    parts = _match_statement(plain)
    if parts is None:
        return ""
    words = load("contradictions")["words"]
    begin = compile_once(words["preposition"], _FLAGS).match(parts["answer"])
    if begin is None:
        return ""
    label = compile_once(words["labelled"], _FLAGS).fullmatch(parts["answer"][begin.end() :].strip())
    if label is None:
        return ""
    return label["number"]


def _find_topic(text: str) -> tuple[str, ...]:
    """Return the terms of a text without words of change; of a script without spaces, pairs of characters."""
    bare = compile_once(load("contradictions")["words"]["filler"], _FLAGS).sub(" ", text)
    found: dict[str, None] = {}
    for word in bare.split():
        for term in terms(word):
            if not term.isdigit() and (len(term) > 1 or not is_unsegmented(term)):
                found[term] = None
    return tuple(found)


def _cut_values(text: str) -> tuple[str, dict[str, frozenset[str]]]:
    """Return a text without its values, and the values by their kind or unit.

    One kind is cut after the other, so that the number in a date or an address is not read again as an amount.
    """
    found: dict[str, set[str]] = {}
    for name, pattern in load("contradictions")["values"].items():
        pieces: list[str] = []
        done = 0
        for match in compile_once(pattern, re.IGNORECASE).finditer(text):
            kind, value, rest = _read_value(name, match)
            found.setdefault(kind, set()).add(value)
            pieces.append(f"{text[done : match.start()]} {rest} ")
            done = match.end()
        text = "".join([*pieces, text[done:]])
    return text, {kind: frozenset(values) for kind, values in found.items()}


def _read_value(name: str, match: re.Match[str]) -> tuple[str, str, str]:
    """Return the kind of a value, the value in the unit of that kind, and what of the match belongs to the text."""
    if name != "amount":
        return name, "".join(match[0].casefold().split()), ""
    number = _to_number(match["number"].casefold().replace(",", ""))
    unit = (match["unit"] or "").casefold()
    if match["sign"]:
        return "money", f"{number}", unit
    for kind, factors in _units().items():
        for form in (unit, unit.removesuffix("s")):
            if form in factors:
                return kind, f"{number * factors[form]:g}", ""
    if not unit or terms(unit) == []:  # "8443 and", "8443 in": not a unit
        return "number", f"{number:g}", unit
    if is_unsegmented(unit[0]):
        return unit[0], f"{number:g}", unit[1:]
    return unit[:_UNIT_CHARS], f"{number:g}", ""


def _to_number(word: str) -> float:
    """Return the value of a number in digits or words."""
    if word in _NUMBERS:
        return float(_NUMBERS[word])
    try:
        return float(word)
    except ValueError:
        # A number of several Chinese characters, or with several points. Its value does not matter, as long as
        # different numbers differ, and a number has the same value in every process.
        return float(sum(ord(character) * 31**place for place, character in enumerate(word)))


@cache
def _units() -> Mapping[str, Mapping[str, float]]:
    """Return the units of each kind, with what each is worth: 3,600 for an hour of a duration."""
    units: dict[str, dict[str, float]] = {}
    for kind, table in load("contradictions")["units"].items():
        words = table.split()
        units[kind] = {unit: float(factor) for unit, factor in zip(words[::2], words[1::2], strict=True)}
    return units


@cache
def _property_terms() -> frozenset[str]:
    """Return the terms of the nouns of properties: owner, region, 负责人."""
    nouns: Mapping[str, str] = load("facts")["nouns"]
    found: set[str] = set()
    for words in nouns.values():
        for word in words.replace("_", " ").split():
            found.update(list_terms(word))
    return frozenset(found)
