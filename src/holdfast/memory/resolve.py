"""What becomes of a fact that was just read: ADD, UPDATE, SUPERSEDE or NONE, decided by rule.

Only a newer statement of the same property (slot) of the same subject takes the place of an older one. Where that
cannot be told, both stay, and the pair is handed back as unclear for whoever can judge it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from holdfast.memory import facts
from holdfast.memory.claims import same_subject
from holdfast.memory.draft import Draft, row
from holdfast.memory.rules import value_of
from holdfast.memory.values import kind_of, same_value
from holdfast.store.base import FactRow, Scope
from holdfast.text import terms

__all__ = ["Action", "Decision", "Ledger", "resolve"]

_NEAR: Final = 0.4
_LONGER: Final = 1.2

Action: TypeAlias = Literal["ADD", "UPDATE", "SUPERSEDE", "DELETE", "NONE"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What becomes of a draft, why, and the rows that make it so.

    Attributes:
        action: What is done.
        reason: Why, in a few words.
        rows: What to add to the store, in order.
        rivals: The ids of facts that it may replace, where no rule can tell.
    """

    action: Action
    reason: str
    rows: tuple[FactRow, ...] = ()
    rivals: tuple[str, ...] = ()


class Ledger:
    """The facts of a scope while others are added to them."""

    def __init__(self, known: Iterable[FactRow]) -> None:
        self.rows = list(known)

    @property
    def current(self) -> list[FactRow]:
        """The facts that hold."""
        return facts.current(self.rows)

    def versions(self, fact_id: str) -> list[FactRow]:
        """Every version of a fact."""
        return [version for version in self.rows if version.id == fact_id]

    def add(self, rows: Iterable[FactRow]) -> None:
        """Take rows in."""
        self.rows += rows


def resolve(draft: Draft, *, scope: Scope, ledger: Ledger) -> Decision:
    """Decide what becomes of a draft, by its subject, its slot and its evidence."""
    new = row(draft, scope=scope)
    versions = ledger.versions(new.id)
    if versions and _known(new, versions):
        return Decision(action="NONE", reason="known")
    current = ledger.current
    rivals = _rivals(draft, current)
    twin = next((fact for fact in current if _says_the_same(draft, fact, rivals)), None)
    if twin is not None:
        return _detailed(draft, twin)
    if not rivals:
        near = tuple(fact.id for fact in current if _is_near(draft, fact))
        return Decision(action="ADD", reason="unclear" if near else "new", rows=(new,), rivals=near)
    if draft.additive:
        return Decision(action="ADD", reason="one more", rows=(new,))
    return _replace(draft, new, rivals, scope=scope)


def _known(new: FactRow, versions: Sequence[FactRow]) -> bool:
    """Tell whether a fact was already read from the same messages, or still holds."""
    latest = versions[-1]
    if latest.deleted or (latest.superseded_by is None):
        return True
    return any(set(new.evidence) <= set(version.evidence) for version in versions) or not _newer(new, latest)


def _rivals(draft: Draft, current: Sequence[FactRow]) -> list[FactRow]:
    """The facts that state the same property of the same subject."""
    if not draft.slot:
        return []
    about = [fact for fact in current if fact.slot and same_subject(fact.subject, draft.subject)]
    same = [fact for fact in about if fact.slot == draft.slot]
    if same or not draft.kin:
        return same
    related = [fact for fact in about if fact.slot in draft.kin]
    return related if len(related) == 1 else []


def _is_near(draft: Draft, fact: FactRow) -> bool:
    """Tell whether a fact is about the same thing in much the same words, though not by slot."""
    if not draft.subject or not same_subject(draft.subject, fact.subject):
        return False
    ours, theirs = set(terms(draft.content)), set(terms(fact.content))
    return len(ours & theirs) >= _NEAR * len(ours | theirs)


def _says_the_same(draft: Draft, fact: FactRow, rivals: Sequence[FactRow]) -> bool:
    if fact in rivals:
        value = _value(fact)
        return bool(value and draft.value) and same_value(value, draft.value)
    if fact.slot != draft.slot or not same_subject(fact.subject, draft.subject):
        return False
    return fact.type == draft.type and same_value(fact.content, draft.content)


def _detailed(draft: Draft, twin: FactRow) -> Decision:
    """A fact that is known already: its words stay, unless the new ones hold all of them and more."""
    ours, theirs = set(terms(draft.content)), set(terms(twin.content))
    longer = theirs < ours and len(draft.content) > _LONGER * len(twin.content)
    if not longer or twin.pinned or not _newer_than(draft, twin):
        return Decision(action="NONE", reason="known")
    evidence = tuple(sorted({*twin.evidence, *draft.evidence}))
    update = replace(twin, content=draft.content, quote=draft.quote, evidence=evidence, time=max(draft.time, twin.time))
    return Decision(action="UPDATE", reason="more detail", rows=(update,))


def _replace(draft: Draft, new: FactRow, rivals: Sequence[FactRow], *, scope: Scope) -> Decision:
    """A new value of a known property: the old fact gives way where it is sure that it is over."""
    newer = [fact for fact in rivals if not _newer_than(draft, fact)]
    if newer:
        return Decision(action="NONE", reason="older than what is known")
    over = [fact for fact in rivals if not draft.doubtful and _gives_way(draft, fact, alone=len(rivals) == 1)]
    if not over:
        return Decision(action="ADD", reason="unclear", rows=(new,), rivals=tuple(fact.id for fact in rivals))
    slot = over[0].slot
    settled = row(replace(draft, slot=slot), scope=scope)
    rows = (settled, *(facts.supersede(fact, settled)[1] for fact in over))
    return Decision(action="SUPERSEDE", reason=f"a newer {slot}", rows=rows)


def _gives_way(draft: Draft, fact: FactRow, *, alone: bool) -> bool:
    """Tell whether a fact is over: the only one of its slot, with a value of the same sort; or its value is named."""
    if fact.pinned:
        return False
    value = _value(fact)
    if draft.old and value and same_value(draft.old, value):
        return True
    return alone and not draft.old and (not value or not draft.value or kind_of(value) == kind_of(draft.value))


def _value(fact: FactRow) -> str:
    """The value that a fact states, as far as rules can read it."""
    return value_of(fact.content)


def _newer_than(draft: Draft, fact: FactRow) -> bool:
    """Tell whether a draft was said after a fact: later in the archive, and not at an earlier time."""
    if fact.evidence and draft.evidence and max(draft.evidence) <= max(fact.evidence):
        return False
    return not draft.time or not fact.time or draft.time >= fact.time


def _newer(new: FactRow, old: FactRow) -> bool:
    return new.time >= old.time and max(new.evidence, default=0) > max(old.evidence, default=0)
