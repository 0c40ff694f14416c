"""Find facts in other words than those of a question: "signed in" finds a fact about a session or a login.

A fact is a line of about twenty tokens. An unneeded one costs little, but a missing one costs the answer. So the few
that match best are recalled, however weakly they match, by related words and by vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

import numpy as np

from holdfast.calls import NO_DEADLINE, Deadline
from holdfast.embed.base import Embedder, Floats
from holdfast.errors import EmbeddingError
from holdfast.memory.facts import MIN_FACTS, FactHit, read_words
from holdfast.memory.query import weigh_terms
from holdfast.search.rarity import measure_rarity
from holdfast.search.related import find_related
from holdfast.store.base import FactRow
from holdfast.text import is_unsegmented

MIN_MATCH: Final = 0.05
"""The minimum match of a fact."""
MIN_OF_BEST: Final = 0.5
"""The share of the best match that others must reach, so that a fact in the words of the question comes alone."""
MAX_RELATED: Final = 8
"""The maximum number of these facts.

All three were chosen with every second question of the sheets of `benchmarks/data` (docs/benchmarks.md)."""
_MAX_EMBEDDED: Final = 1_000
"""How many facts are compared by vector, the newest ones. The embedder keeps the vectors of 4,096 texts, also for the
passages that are indexed meanwhile; vectors of more facts would be made again for every question."""
_EMBEDDED_AT_ONCE: Final = 100
"""How many of them are embedded before the time is looked at: 5 to 30 ms in a process that has not embedded them."""
_PRIOR: Final = 4
"""The mean similarity is computed as if there were so many other facts that are not similar at all. Otherwise the only
fact would be no more similar than the mean. With 1, 10 or 30 the same facts are found, but for one or two."""


def find_related_facts(
    rows: Sequence[FactRow],
    question: str,
    *,
    limit: int,
    embedder: Embedder | None = None,
    deadline: Deadline = NO_DEADLINE,
) -> list[FactHit]:
    """Find the facts that match a question by related words, or by the vectors of an embedder; best first.

    The match is the share of the question that a fact contains, plus how much more similar to it than most facts it is.
    A question without any known word has no similar facts.
    After the deadline no further facts are embedded.
    """
    matches = _measure_shares(rows, question)
    if embedder is not None and rows and (matches.any() or _has_known_word(question)):
        with suppress(EmbeddingError):  # the search for passages embeds the question too, and reports it
            matches += _measure_similarity(rows, question, embedder, deadline)
    enough = max(MIN_MATCH, MIN_OF_BEST * float(matches.max(initial=0)))
    hits: list[FactHit] = []
    for place in np.flatnonzero(matches >= enough).tolist():
        hits.append(FactHit(fact=rows[place], score=float(matches[place])))
    hits.sort(key=lambda hit: (-hit.score, -hit.fact.time))
    return hits[: min(limit, MAX_RELATED)]


def _has_known_word(question: str) -> bool:
    """Return whether a question has a word that some other word is related to, or one in a script without spaces.

    An embedder cuts a word that it does not know into pieces, and some fact is always the most similar to these.
    """
    return any(is_unsegmented(term[0]) or find_related((term,)) for term in weigh_terms([question]))


def _measure_similarity(rows: Sequence[FactRow], question: str, embedder: Embedder, deadline: Deadline) -> Floats:
    """Return how much more similar to a question each fact is than facts are on average, at least 0."""
    asked = embedder.embed([question], kind="query")[0]
    cosines = np.zeros(len(rows), np.float32)
    last = max(0, len(rows) - _MAX_EMBEDDED)
    start = len(rows)
    while start > last and (start == len(rows) or not deadline.is_over):  # the newest first, and some in any case
        stop = start
        start = max(last, stop - _EMBEDDED_AT_ONCE)
        vectors = embedder.embed([row.content for row in rows[start:stop]], kind="passage")
        cosines[start:stop] = vectors @ asked
    compared = cosines[start:]
    mean = compared.sum() / (len(compared) + _PRIOR)
    similarity = np.zeros(len(rows), np.float32)
    similarity[start:] = np.maximum(compared - mean, 0)
    return similarity


def _measure_shares(rows: Sequence[FactRow], question: str) -> Floats:
    """Return the share of a question that each fact has, in its words or in related ones, 0 to 1."""
    shares = np.zeros(len(rows), np.float32)
    wanted = weigh_terms([question])
    related = find_related(wanted)
    near = set(wanted).union(*related.values())
    found = [read_words(row) & near for row in rows]
    rarity = _measure_rarity(found, near)
    whole = sum(weight * rarity[term] for term, weight in wanted.items())
    for place, words in enumerate(found):
        if words:
            shares[place] = _weigh_words(words, wanted, related, rarity) / whole
    return shares


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
