"""Find facts that contradict each other: they hold now, and give one property of one subject different values.

Facts with a subject and a slot are compared by these, others by their words (`holdfast.search.contradictions`). If a
newer fact certainly replaces another, that one is superseded when the newer one is stored. The user decides about the
others, which are found here.

`FactIndex` compares one fact with those that have most words in common with it, and is part of every recall.
`find_conflicts` compares all facts, and ignores frequent words: otherwise it would compare nearly every pair.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from heapq import nlargest
from typing import Final, TypeAlias

from holdfast import signals
from holdfast.memory import facts
from holdfast.search.contradictions import (
    Claim,
    are_about_others,
    contradict,
    ends_another,
    may_contradict,
    read_claim,
    replaces,
)
from holdfast.search.corrections import Statement, is_supposed, may_take_back
from holdfast.store.base import FactRow
from holdfast.text import terms

MAX_NEAR: Final = 30
"""A fact is compared with those of its slot, and with this many others that have most words in common with it."""
MAX_LISTED_NEAR: Final = 10
"""The same for a list of all contradictions, for which every fact is compared."""
MAX_FREQUENCY: Final = 300
"""In such a list, a word that more facts contain does not show which of them belong together."""
MAX_CACHED: Final = 2**14
"""For how many facts the words are cached: more than most memories have."""

Pairs: TypeAlias = AbstractSet[frozenset[str]]
"""The ids of two facts each, which the user has said both hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Facts that contradict each other, or may, oldest first.

    Attributes:
        facts: The facts; all of them hold now.
        subject, slot: What they are about, if they say so.
        is_possible: Whether it is not certain: a later fact probably replaces an earlier one.
    """

    facts: tuple[FactRow, ...]
    subject: str = ""
    slot: str = ""
    is_possible: bool = False


def are_contradictory(left: FactRow, right: FactRow) -> bool:
    """Return whether two facts that hold at the same time give one property different values."""
    if not _are_comparable(left, right):
        return False
    if left.slot and right.slot:
        return not facts.state_same_value(left, right)
    claims = _read_claims(left, right)
    return claims is not None and contradict(*claims)


def may_be_contradictory(left: FactRow, right: FactRow) -> bool:
    """Return whether two facts, at least one of them without a slot, may be about one property."""
    if (left.slot and right.slot) or not _are_comparable(left, right):
        return False
    claims = _read_claims(left, right)
    return claims is not None and may_contradict(*claims)


def _are_comparable(left: FactRow, right: FactRow) -> bool:
    """Return whether two facts of one owner may be about one property, and neither only adds a value to it."""
    if left.id == right.id or _owner(left) != _owner(right):
        return False
    have_slots = bool(left.slot and right.slot)
    if have_slots and facts.normalise_slot(left.slot) != facts.normalise_slot(right.slot):
        return False
    have_subjects = have_slots or bool(left.subject and right.subject)
    if have_subjects and not facts.same_subject(left.subject, right.subject):
        return False
    return not _is_additive(left.content) and not _is_additive(right.content)


@lru_cache(maxsize=MAX_CACHED)
def _is_additive(content: str) -> bool:
    return signals.is_additive(content)


def _read_claims(left: FactRow, right: FactRow) -> tuple[Claim, Claim] | None:
    """Read what two facts say, the older one first."""
    ours = read_claim(left.content)
    theirs = read_claim(right.content)
    if ours is None or theirs is None:
        return None
    if left.time > right.time:
        return theirs, ours
    return ours, theirs


@lru_cache(maxsize=MAX_CACHED)
def _may_take_back(content: str) -> bool:
    return may_take_back(content) and not signals.is_question(content)


def may_be_replaced(fact: FactRow, later: FactRow) -> bool:
    """Return whether a later fact says that something changed, and is probably about what a fact states.

    It has enough words in common with it. It is not certain that it replaces it.
    """
    is_later = _read_moment(later) > _read_moment(fact) and set(fact.evidence).isdisjoint(later.evidence)
    if not is_later or not _may_take_back(later.content):  # most do not, and the rest takes longer
        return False
    claims = _read_claims(fact, later)
    if claims is None or are_about_others(*claims) or ends_another(claims[1], claims[0]):
        return False
    return Statement.read(later.content).takes_back(Statement.read(fact.content))


def _read_moment(fact: FactRow) -> tuple[int, int]:
    """Return when a fact was said: its time, and its last message, since messages of one time are in order."""
    return fact.time, max(fact.evidence, default=0)


def find_replaced(fact: FactRow, known: Iterable[FactRow]) -> list[FactRow]:
    """Find the facts that a new one certainly replaces, judging by its words. Pinned facts stay."""
    later = read_claim(fact.content)
    if later is None or is_supposed(fact.content) or signals.is_question(fact.content):
        return []
    over: list[FactRow] = []
    endings: list[FactRow] = []
    for row in FactIndex(known, wanted=[fact]).find_near(fact):
        if row.pinned or (row.slot and fact.slot) or not are_contradictory(row, fact):
            continue
        earlier = read_claim(row.content)
        if earlier is None or not replaces(later, earlier):
            continue
        new = Statement.read(fact.content)
        old = Statement.read(row.content)
        if new.carries_out(old) or new.denies_same(old):
            continue
        if later.is_ending and not later.values:
            endings.append(row)
        else:
            over.append(row)
    if len(endings) == 1:  # "we no longer use Kafka" may be about any of several facts
        over += endings
    return over


class FactIndex:
    """Facts by slot and by word, so that one fact is compared only with those that may contradict it.

    `wanted` are the facts whose rivals will be searched for, by default any. Facts that share no word with them are not
    in the index by words.
    """

    def __init__(
        self, rows: Iterable[FactRow], *, wanted: Iterable[FactRow] | None = None, settled: Pairs = frozenset()
    ) -> None:
        self._rows = list(rows)
        self._settled = settled
        self._by_slot: dict[str, list[FactRow]] = defaultdict(list)
        self._by_word: dict[str, list[int]] = defaultdict(list)
        words: frozenset[str] | None = None
        if wanted is not None:
            words = frozenset().union(*(_read_words(fact.content) for fact in wanted))
        for place, row in enumerate(self._rows):
            if row.slot:
                self._by_slot[facts.normalise_slot(row.slot)].append(row)
            if words is not None and words.isdisjoint(facts.read_words(row)):
                continue
            for word in _read_words(row.content):
                self._by_word[word].append(place)

    def find_rivals(self, fact: FactRow) -> list[FactRow]:
        """Find the facts that contradict one fact, without those that it takes back."""
        rivals = [row for row in self.find_near(fact) if self._differ(row, fact) and are_contradictory(row, fact)]
        return [row for row in rivals if not may_be_replaced(row, fact)]

    def find_possible_rivals(self, fact: FactRow, shown: Iterable[FactRow]) -> list[FactRow]:
        """Find the facts among `shown` that may contradict one fact."""
        return [row for row in shown if self._differ(row, fact) and may_be_contradictory(row, fact)]

    def find_corrections(self, fact: FactRow) -> list[FactRow]:
        """Find the later facts that probably replace one fact."""
        return [row for row in self.find_near(fact) if self._differ(row, fact) and may_be_replaced(fact, row)]

    def _differ(self, left: FactRow, right: FactRow) -> bool:
        return frozenset((left.id, right.id)) not in self._settled

    def find_near(self, fact: FactRow) -> list[FactRow]:
        """Return the facts that may contradict one fact: those of its subject and slot, and the nearest by words."""
        near: list[FactRow] = []
        if fact.slot:
            for row in self._by_slot.get(facts.normalise_slot(fact.slot), ()):
                if facts.same_subject(row.subject, fact.subject):
                    near.append(row)
        common: Counter[int] = Counter()
        for word in _read_words(fact.content):
            common.update(self._by_word.get(word, ()))
        others: list[tuple[int, int]] = []
        for place, count in common.items():
            if not (fact.slot and self._rows[place].slot):
                others.append((count, place))
        for place in sorted(place for _, place in nlargest(MAX_NEAR, others)):
            near.append(self._rows[place])
        return near


@lru_cache(maxsize=MAX_CACHED)
def _read_words(content: str) -> frozenset[str]:
    return frozenset(terms(content))


def find_conflicts(rows: Sequence[FactRow], *, settled: Pairs = frozenset()) -> list[Conflict]:
    """Find the contradictions among facts that hold now, those with the newest fact first; without settled pairs.

    A fact that a later one probably replaces is a possible contradiction.
    """
    groups: dict[tuple[str, str, str], list[FactRow]] = defaultdict(list)
    for row in rows:
        groups[_owner(row)].append(row)
    found: list[Conflict] = []
    for group in groups.values():
        pairs = _find_pairs(group, settled=settled)
        certain = {group[place].id for pair, is_certain in pairs.items() if is_certain for place in pair}
        for together in _join(group, pairs):
            ordered = sorted(together, key=lambda row: row.time)
            newest = ordered[-1]
            named = next((row for row in reversed(ordered) if row.slot), newest)
            is_possible = all(row.id not in certain for row in ordered)
            found.append(
                Conflict(facts=tuple(ordered), subject=named.subject, slot=named.slot, is_possible=is_possible)
            )
    return sorted(found, key=lambda conflict: -conflict.facts[-1].time)


def _owner(fact: FactRow) -> tuple[str, str, str]:
    return fact.scope.tenant, fact.scope.project, fact.scope.agent


def note_conflict(fact: FactRow, rivals: Collection[FactRow], *, possible_rivals: Collection[FactRow] = ()) -> str:
    """Return the note on a fact that others contradict, or may contradict: its date, and theirs; empty if none do."""
    if rivals:
        dates = sorted({facts.name_day(row) for row in rivals})
        other = f"{len(rivals)} other facts"
        if len(rivals) == 1:
            other = "another fact"
        return f"of {facts.name_day(fact)}; contradicts {other}: {', '.join(dates)}"
    if not possible_rivals:
        return ""
    dates = sorted({facts.name_day(row) for row in possible_rivals})
    return f"of {facts.name_day(fact)}; may contradict what is said on {', '.join(dates)}"


def _find_pairs(rows: Sequence[FactRow], *, settled: Pairs) -> dict[tuple[int, int], bool]:
    """Map the pairs of facts, by place, that contradict each other or may, to whether that is certain."""
    pairs: dict[tuple[int, int], bool] = {}
    places: dict[str, list[int]] = defaultdict(list)
    properties: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        common: Counter[int] = Counter()
        for word in _read_words(row.content):
            if len(places[word]) <= MAX_FREQUENCY:
                common.update(places[word])
            places[word].append(place)
        # Of facts with the same number of words in common, the newest are compared.
        nearest = nlargest(MAX_LISTED_NEAR, zip(common.values(), common.keys(), strict=True))
        near = {other for _, other in nearest}
        if row.slot:
            same = properties[facts.normalise_slot(row.slot), facts.subject_name(row.subject)]
            near.update(same)
            same.append(place)
        for other in sorted(near):
            if frozenset((rows[other].id, row.id)) in settled:
                continue
            if are_contradictory(rows[other], row):
                pairs[other, place] = True
            elif may_be_replaced(rows[other], row) or may_be_replaced(row, rows[other]):
                pairs[other, place] = False
    return pairs


def _join(rows: Sequence[FactRow], pairs: Iterable[tuple[int, int]]) -> list[list[FactRow]]:
    """Join pairs that have a fact in common."""
    parents: dict[int, int] = {}

    def find_root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]  # shortens the path for the next search
            place = parents[place]
        return place

    for left, right in pairs:
        parents.setdefault(left, left)
        parents.setdefault(right, right)
        parents[find_root(right)] = find_root(left)
    groups: dict[int, list[int]] = defaultdict(list)
    for place in parents:
        groups[find_root(place)].append(place)
    joined: list[list[FactRow]] = []
    for group in groups.values():
        joined.append([rows[place] for place in sorted(group)])
    return joined
