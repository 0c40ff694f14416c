"""Find facts that contradict each other: they hold now, and give one property of one subject different values.

Facts with a subject and a slot are compared by these, others by their words (`holdfast.search.contradictions`). What a
newer fact replaces without doubt is superseded when it is stored; what is left here is for the user to decide.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nlargest
from typing import Final

from holdfast import signals
from holdfast.memory import facts
from holdfast.moments import minute
from holdfast.search.contradictions import Claim, contradict, may_contradict, read_claim, replaces
from holdfast.store.base import FactRow
from holdfast.text import terms

MAX_NEAR: Final = 30
"""A fact is compared with those of its slot, and with this many others that have most words in common with it."""
MAX_LISTED_NEAR: Final = 10
"""The same for a list of all contradictions, for which every fact is compared."""
MAX_FREQUENCY: Final = 300
"""A word of more facts than this tells nothing about which of them belong together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """Facts that contradict each other, oldest first.

    Attributes:
        facts: The facts; all of them hold now.
        subject, slot: What they are about, if they say so.
    """

    facts: tuple[FactRow, ...]
    subject: str = ""
    slot: str = ""


def are_contradictory(left: FactRow, right: FactRow) -> bool:
    """Tell whether two facts that hold at the same time give one property different values."""
    if not _are_comparable(left, right):
        return False
    if left.slot and right.slot:
        is_same_slot = facts.normalise_slot(left.slot) == facts.normalise_slot(right.slot)
        is_same_property = is_same_slot and facts.same_subject(left.subject, right.subject)
        return is_same_property and not facts.state_same_value(left, right)
    claims = _read_claims(left, right)
    return claims is not None and contradict(*claims)


def may_be_contradictory(left: FactRow, right: FactRow) -> bool:
    """Tell whether two facts, at least one of them without a slot, may be about one property."""
    if (left.slot and right.slot) or not _are_comparable(left, right):
        return False
    claims = _read_claims(left, right)
    return claims is not None and may_contradict(*claims)


def _are_comparable(left: FactRow, right: FactRow) -> bool:
    if left.id == right.id or _owner(left) != _owner(right):
        return False
    if signals.is_additive(left.content) or signals.is_additive(right.content):
        return False
    has_slots = left.slot and right.slot
    return bool(has_slots or not left.subject or not right.subject or facts.same_subject(left.subject, right.subject))


def _read_claims(left: FactRow, right: FactRow) -> tuple[Claim, Claim] | None:
    """Read what two facts say, the older one first."""
    earlier, later = (left, right) if left.time <= right.time else (right, left)
    ours = read_claim(earlier.content)
    theirs = read_claim(later.content)
    if ours is None or theirs is None:
        return None
    return ours, theirs


def find_replaced(fact: FactRow, known: Iterable[FactRow]) -> list[FactRow]:
    """Find the facts whose place a new one takes by its words without doubt; pinned ones stay."""
    later = read_claim(fact.content)
    if later is None:
        return []
    over: list[FactRow] = []
    endings: list[FactRow] = []
    for row in _find_near(fact, known):
        if row.pinned or (row.slot and fact.slot) or not are_contradictory(row, fact):
            continue
        earlier = read_claim(row.content)
        if earlier is None or not replaces(later, earlier):
            continue
        if later.is_ending and not later.values:
            endings.append(row)
        else:
            over.append(row)
    if len(endings) == 1:  # "we no longer use Kafka" may be about any of several facts
        over += endings
    return over


def find_rivals(fact: FactRow, known: Iterable[FactRow]) -> list[FactRow]:
    """Find the facts that contradict one fact."""
    return [row for row in _find_near(fact, known) if are_contradictory(row, fact)]


def _find_near(fact: FactRow, known: Iterable[FactRow]) -> list[FactRow]:
    """Return the facts that may contradict one fact: those of its slot, and the nearest by words."""
    slot = facts.normalise_slot(fact.slot)
    words = _read_words(fact.content)
    of_slot: list[FactRow] = []
    others: list[tuple[int, int, FactRow]] = []
    for place, row in enumerate(known):
        if row.slot and slot:
            if facts.normalise_slot(row.slot) == slot:
                of_slot.append(row)
            continue
        common = len(words & _read_words(row.content))
        if common:
            others.append((common, place, row))
    nearest = sorted(nlargest(MAX_NEAR, others, key=lambda one: one[:2]), key=lambda one: one[1])
    return [*of_slot, *(row for _, _, row in nearest)]


@lru_cache(maxsize=2**15)
def _read_words(content: str) -> frozenset[str]:
    return frozenset(terms(content))


def find_conflicts(rows: Sequence[FactRow]) -> list[Conflict]:
    """Find the contradictions among facts that hold now, those with the newest fact first."""
    groups: dict[tuple[str, str, str], list[FactRow]] = defaultdict(list)
    for row in rows:
        groups[_owner(row)].append(row)
    found: list[Conflict] = []
    for group in groups.values():
        for together in _join(group, _find_pairs(group)):
            ordered = sorted(together, key=lambda row: row.time)
            newest = ordered[-1]
            named = next((row for row in reversed(ordered) if row.slot), newest)
            found.append(Conflict(facts=tuple(ordered), subject=named.subject, slot=named.slot))
    return sorted(found, key=lambda conflict: -conflict.facts[-1].time)


def _owner(fact: FactRow) -> tuple[str, str, str]:
    return fact.scope.tenant, fact.scope.project, fact.scope.agent


def note_conflict(fact: FactRow, rivals: Collection[FactRow], *, shown: Iterable[FactRow] = ()) -> str:
    """Return the note on a fact that others contradict: its date, and theirs; empty if there are none.

    Of those that are `shown` with it, some may be about the same property in other words; the note says so.
    """
    if rivals:
        dates = sorted({_day(row) for row in rivals})
        other = "another fact" if len(rivals) == 1 else f"{len(rivals)} other facts"
        return f"of {_day(fact)}; contradicts {other}: {', '.join(dates)}"
    near = [row for row in shown if may_be_contradictory(fact, row)]
    if not near:
        return ""
    dates = sorted({_day(row) for row in near})
    return f"of {_day(fact)}; may contradict what is said on {', '.join(dates)}"


def _day(fact: FactRow) -> str:
    return minute(fact.time)[:10] if fact.time else "an unknown date"


def keep(fact: FactRow, rivals: Iterable[FactRow], *, time: int) -> list[FactRow]:
    """Make the rows that say that a fact takes the place of those that contradict it; their history stays."""
    return [replace(row, superseded_by=fact.id, time=time) for row in rivals]


def _find_pairs(rows: Sequence[FactRow]) -> list[tuple[int, int]]:
    """Find the pairs of facts, by place, that contradict each other."""
    pairs: list[tuple[int, int]] = []
    places: dict[str, list[int]] = defaultdict(list)
    properties: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        near: Counter[int] = Counter()
        for word in _read_words(row.content):
            if len(places[word]) <= MAX_FREQUENCY:
                near.update(places[word])
            places[word].append(place)
        nearest = {other for other, _ in near.most_common(MAX_LISTED_NEAR)}
        if row.slot:
            same = properties[facts.normalise_slot(row.slot), facts.subject_name(row.subject)]
            nearest.update(same)
            same.append(place)
        pairs += ((other, place) for other in sorted(nearest) if are_contradictory(rows[other], row))
    return pairs


def _join(rows: Sequence[FactRow], pairs: Iterable[tuple[int, int]]) -> list[list[FactRow]]:
    """Join pairs that have a fact in common."""
    group_of: dict[int, set[int]] = {}
    for left, right in pairs:
        joined = group_of.get(left, {left}) | group_of.get(right, {right})
        for place in joined:
            group_of[place] = joined
    unique: Mapping[int, set[int]] = {id(group): group for group in group_of.values()}
    return [[rows[place] for place in sorted(group)] for group in unique.values()]
