"""Find facts in other words than those of a question: "signed in" finds a fact about a session or a login.

A fact is a line of about twenty tokens. An unneeded one costs little, but a missing one costs the answer. So the few
that match best are recalled, however weakly they match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from holdfast.memory.facts import MIN_FACTS, FactHit, read_words
from holdfast.memory.query import weigh_terms
from holdfast.search.rarity import measure_rarity
from holdfast.search.related import find_related
from holdfast.store.base import FactRow

MIN_SHARE: Final = 0.05
"""The share of a question that a fact must have, with related words."""
MIN_OF_BEST: Final = 0.5
"""The share of the best match that others must reach. If a fact has the words of the question, weak ones are dropped.

Both were chosen with every second question of three sheets of `benchmarks/data` (docs/benchmarks.md)."""


def find_related_facts(rows: Sequence[FactRow], question: str, *, limit: int) -> list[FactHit]:
    """Find the facts that have words of a question or related ones, best first."""
    wanted = weigh_terms([question])
    related = find_related(wanted)
    near = set(wanted).union(*related.values())
    found = [read_words(row) & near for row in rows]
    rarity = _measure_rarity(found, near)
    whole = sum(weight * rarity[term] for term, weight in wanted.items())
    hits: list[FactHit] = []
    for row, words in zip(rows, found, strict=True):
        if words:
            share = _weigh_words(words, wanted, related, rarity) / whole
            hits.append(FactHit(fact=row, score=share))
    hits.sort(key=lambda hit: (-hit.score, -hit.fact.time))
    min_score = MIN_SHARE
    if hits:
        min_score = max(min_score, MIN_OF_BEST * hits[0].score)
    return [hit for hit in hits[:limit] if hit.score >= min_score]


def _measure_rarity(found: Sequence[AbstractSet[str]], near: AbstractSet[str]) -> dict[str, float]:
    """Return how rare each term is among the facts."""
    frequency: Counter[str] = Counter()
    for words in found:
        frequency.update(words)
    count = max(len(found), MIN_FACTS)
    return {term: measure_rarity(frequency[term], total=count) for term in near}


def _weigh_words(
    words: AbstractSet[str],
    wanted: Mapping[str, float],
    related: Mapping[str, Mapping[str, float]],
    rarity: Mapping[str, float],
) -> float:
    """Add up the terms of a question that a fact contains: each term itself, or else the best term related to it.

    A related term never counts more than the term itself, and less if many facts contain it.
    """
    total = 0.0
    for term, weight in wanted.items():
        if term in words:
            total += weight * rarity[term]
            continue
        best = 0.0
        for other, share in related.get(term, {}).items():
            if other in words:
                best = max(best, share * min(rarity[term], rarity[other]))
        total += weight * best
    return total
