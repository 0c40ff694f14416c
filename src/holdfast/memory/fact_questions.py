"""How well a question matches the questions that a fact answers.

A model that extracts a fact also writes down questions that it answers, in other words than those of the fact. Such a
question is compared as a whole, in both directions: the words that both have count, related words count less, and each
is weighted by its rarity. So a single word in common is not enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from holdfast.search.rarity import measure_rarity

MIN_MATCH: Final = 0.5
"""The minimum match that counts; chosen with `python -m benchmarks learning`, which asks unrelated questions too."""
MIN_QUESTIONS: Final = 100
"""Rarity is computed as if there were at least this many questions."""
_MAX_QUESTION_TERMS: Final = 60
"""The maximum terms of a question. A longer message states or pastes something, and cannot be compared as a whole."""


def match_questions(questions: Sequence[Sequence[str]], query: str) -> list[float]:
    """Return how well a question matches the best of each fact's questions, 0 to 1."""
    if not any(questions):
        return [0.0] * len(questions)
    wanted = _weigh(query)
    if not 0 < len(wanted) <= _MAX_QUESTION_TERMS:
        return [0.0] * len(questions)
    from holdfast.search.related import find_related  # noqa: PLC0415 - listing facts needs no tables

    related = find_related(wanted)
    near = set(wanted).union(*related.values())
    stored = [[_weigh(question) for question in of_fact] for of_fact in questions]
    frequency: Counter[str] = Counter()
    for of_fact in stored:
        for weights in of_fact:
            frequency.update(weights.keys())
    count = max(MIN_QUESTIONS, sum(map(len, stored)))
    found: list[float] = []
    for of_fact in stored:
        best = 0.0
        for weights in of_fact:
            if not near.isdisjoint(weights):
                best = max(best, _match(wanted, weights, related, frequency=frequency, count=count))
        found.append(best)
    return found


def _match(
    wanted: Mapping[str, float],
    weights: Mapping[str, float],
    related: Mapping[str, Mapping[str, float]],
    *,
    frequency: Counter[str],
    count: int,
) -> float:
    """Return the harmonic mean of the shares that two questions have of each other."""

    def rarity(term: str) -> float:
        return measure_rarity(frequency[term], total=count)

    common = 0.0  # the weight of the terms of the question that the stored one has
    met: dict[str, float] = {}  # how well the question has each term of the stored one
    for term, weight in wanted.items():
        best = 0.0
        if term in weights:
            best = 1.0
            met[term] = 1.0
        else:
            for other, share in related.get(term, {}).items():
                if other in weights:
                    best = max(best, share)
                    met[other] = max(met.get(other, 0.0), share)
        common += best * weight * rarity(term)
    if not common:
        return 0.0
    asked = common / sum(weight * rarity(term) for term, weight in wanted.items())
    answered = sum(share * weights[term] * rarity(term) for term, share in met.items())
    answered /= sum(weight * rarity(term) for term, weight in weights.items())
    return 2 * asked * answered / (asked + answered)


@lru_cache(maxsize=16_384)
def _weigh(question: str) -> Mapping[str, float]:
    """Weigh the terms of a question; words that questions are made of weigh little."""
    from holdfast.memory.query import weigh_terms  # noqa: PLC0415 - as above

    return weigh_terms((question,))
