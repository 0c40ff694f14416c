"""Facts: what was decided or learned, found again by its words.

A fact is never changed in place. A newer row of the same id is its new version, and a fact that took another's
place is named by it; so every answer can be given as of any moment, with the history behind it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.memory.claims import is_asked
from holdfast.store.base import Across, FactRow, Scope, Select, Store
from holdfast.text import terms

__all__ = ["LONG_TERM", "FactHit", "as_of", "current", "find", "history", "known", "retire", "supersede"]

LONG_TERM: Final = "memory"
"""The kind of the record that marks a fact as a long-term memory; `long_term` decides whether it is recalled."""

_MOST_TERMS_FOR_ALL: Final = 2
_MOST_TERMS_FOR_HALF: Final = 8
_SHARES: Final = (0.5, 0.34, 0.2)
MIN_FACTS: Final = 100
"""Words are weighed as among so many facts at least: with one fact, a word that it lacks would outweigh all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FactHit:
    """A fact that has to do with a question, and how much of the question (by rarity of its words) it holds."""

    fact: FactRow
    score: float


def current(rows: Iterable[FactRow]) -> list[FactRow]:
    """The facts that hold now, oldest first: the newest version of each, without those replaced or deleted."""
    latest = {row.id: row for row in rows}
    return [row for row in latest.values() if row.superseded_by is None and not row.deleted]


def as_of(rows: Iterable[FactRow], *, time: int) -> list[FactRow]:
    """The facts that held at a moment (Unix milliseconds)."""
    return current(row for row in rows if row.time <= time)


def known(store: Store, scope: Scope, *, across: Across = True) -> list[FactRow]:
    """Every version of every fact of an agent and project, in whatever session it was learned, oldest first.

    Long-term memories are not among them.
    """
    memories = {record.key for record in store.fetch(Select(kind="record", scope=scope, across=across, name=LONG_TERM))}
    rows: list[FactRow] = store.fetch(Select(kind="fact", scope=scope, across=across))
    return [row for row in rows if row.id not in memories]


def history(store: Store, fact_id: str, *, scope: Scope, across: bool = False) -> list[FactRow]:
    """Every version of a fact, and of the facts that took its place, oldest first."""
    found: list[FactRow] = []
    todo, seen = {fact_id}, set[str]()
    while todo:
        versions = store.fetch(Select(kind="fact", scope=scope, across=across, keys=tuple(todo)))
        found += versions
        seen |= todo
        todo = {row.superseded_by for row in versions if row.superseded_by is not None} - seen
    return sorted(found, key=lambda row: row.time)


def supersede(old: FactRow, new: FactRow) -> tuple[FactRow, FactRow]:
    """The rows that put a new fact in the place of an old one: add both in one call."""
    return new, replace(old, superseded_by=new.id, time=new.time)


def retire(fact: FactRow, *, time: int) -> FactRow:
    """The row that takes a fact out of sight; its history stays."""
    return replace(fact, deleted=True, time=time)


def find(rows: Sequence[FactRow], query: str, *, limit: int = 25) -> list[FactHit]:
    """The facts that have to do with a question, best first; pinned ones before all others."""
    asked = set(terms(query))
    least = _least(len(asked))
    hits = [
        FactHit(fact=row, score=score)
        for row, score in zip(rows, _shares(rows, asked), strict=True)
        if row.pinned or 0 < score >= least or is_asked(row.subject, row.slot, question=query)
    ]
    return sorted(hits, key=lambda hit: (not hit.fact.pinned, -hit.score, -hit.fact.time))[:limit]


def _shares(rows: Sequence[FactRow], asked: set[str]) -> list[float]:
    """How much of what is asked each fact holds, rare terms counting for more."""
    said = [set(terms(f"{row.content} {row.context} {row.subject}")) for row in rows]
    frequency = Counter(term for words in said for term in words)
    weights = {term: _rarity(frequency[term], max(len(rows), MIN_FACTS)) for term in asked}
    total = sum(weights.values()) or 1.0
    return [sum(weights[term] for term in asked & words) / total for words in said]


def _rarity(frequency: int, total: int) -> float:
    return math.log(1 + (total - frequency + 0.5) / (frequency + 0.5))


def _least(asked: int) -> float:
    """How much of a question a fact must hold: nearly all of a short one, a part of a long one."""
    if asked <= _MOST_TERMS_FOR_ALL:
        return _SHARES[0]
    return _SHARES[1] if asked <= _MOST_TERMS_FOR_HALF else _SHARES[2]
