"""Rank passages by all signals together.

The default recipe was chosen by measurement (docs/benchmarks.md). Two others are optional: the weighted sum of the
original plugin, and reciprocal rank fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from holdfast.search.arrays import Floats, Ints, highest
from holdfast.search.candidates import Candidates
from holdfast.search.dates import Range

Fusion: TypeAlias = Literal["recipe", "weighted", "rrf"]

MAX_RANKED: Final = 400
"""The maximum number of passages that are ranked."""
# Estimates of the size of a quote and its header: passages are ordered for quoting before their texts are read.
MAX_QUOTE_CHARS: Final = 340
HEADER_CHARS: Final = 31
TYPICAL_QUOTE_CHARS: Final = 245
"""The size of a usual quote with its header. Shorter quotes are preferred, longer ones rank lower."""
_MEASURED_QUOTES: Final = 20
"""How many of the best passages are used to estimate how long the quotes of a block are."""

_DAY_MS: Final = 86_400_000
_RRF_CONSTANT: Final = 60
"""The constant of reciprocal rank fusion, as it was published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The weights of the default order.

    Attributes:
        vector: The weight of vectors in the first score; keywords have the rest.
        together: The weight of query words that occur in one window.
        human: The factor for messages of a person in a chat.
        near, far: The share of the score that a person's message in a chat gains from adjacent messages, and from those
            two away.
        reach: The length in characters up to which a message gains all of it; a longer one gains less.
        session, date: The bonus for the best session, and for a date that the query names.
        brevity, plenty: How much short quotes are preferred, and how much more is quoted if all are short.
        best: How many of the best passages come before all others, and get more room.
    """

    vector: float = 0.5
    together: float = 0.75
    human: float = 1.4
    near: float = 0.3
    far: float = 0.12
    reach: int = 400
    session: float = 0.18
    date: float = 0.4
    brevity: float = 0.2
    plenty: float = 0.45
    best: int = 3

    def score(self, signals: Signals, stages: dict[str, Floats]) -> Floats:
        """Combine words and vectors, each relative to the best; then add neighbours, session and dates."""
        found = signals.candidates
        first = stages["keyword"]
        if found.cosine is not None:
            vector = np.float32(self.vector * signals.vector_weight)
            first = first * (1 - vector) + stages["vector"] * vector
        first = relative(first)
        chat = np.float32(measure_chat(found))
        first = np.where(found.human, first * (1 + np.float32(self.human - 1) * chat), first)
        # In a conversation the answer is often next to the message that has the words of the question.
        gained = np.zeros(len(found), np.float32)
        padded = np.append(first, np.float32(0))  # -1 means none, and is the place after the last
        for links in (found.previous, found.following):
            gained += np.float32(self.near) * padded[links]
            gained += np.float32(self.far) * padded[found.follow(links, links)]
        reach = np.float32(self.reach) / np.maximum(1, found.sizes).astype(np.float32)
        stages["neighbours"] = chat * gained * np.minimum(1, reach) * (found.human & found.eligible)
        scores = relative(first + stages["neighbours"])
        stages["session"] = np.float32(self.session) * found.session_keyword * (scores > 0)
        scores = scores + stages["session"]
        inside = np.zeros(len(found), np.bool_)
        for start, stop in signals.dates:
            inside |= (found.times >= start) & (found.times < stop)
        stages["date"] = (inside & (scores > 0)) * np.float32(self.date)
        total: Floats = scores + stages["date"] * scores.max(initial=0)
        return total


# Both were chosen with `python -m benchmarks other-words`.
_AGENT_SHARE: Final = 0.2
"""The share of passages by a person up to which a session is that of an agent."""
_CHAT_SHARE: Final = 0.45
"""The share from which a session is a chat."""


def measure_chat(found: Candidates) -> float:
    """Return how much the passages are a chat, 0 to 1, by the share of them that a person wrote.

    In a chat, people say what they want to be remembered. To an agent they give orders and ask questions, and later
    questions are about its replies and about tool output.
    """
    if not len(found):
        return 1.0
    share = float(found.human.mean())
    return min(1.0, max(0.0, (share - _AGENT_SHARE) / (_CHAT_SHARE - _AGENT_SHARE)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """The original plugin's formula: cosine and relative BM25 with fixed weights, less with each day of age."""

    vector: float = 0.7
    keyword: float = 0.3
    decay: float = 0.995
    least: float = 0.7

    def score(self, signals: Signals, stages: dict[str, Floats]) -> Floats:
        """Score with fixed weights; 0 below the minimum, relative to the weights of the signals that a passage has."""
        found = signals.candidates
        vector = self.vector
        if found.cosine is None:
            vector = 0.0
        now = signals.now
        if now is None:
            now = int(found.times.max(initial=0))
        days = np.where(found.times > 0, np.maximum(0, float(now) - found.times) / _DAY_MS, 0)
        stages["decay"] = (np.float64(self.decay) ** days).astype(np.float32)
        scores = (vector * stages["cosine"] + self.keyword * stages["keyword"]) * stages["decay"]
        channels = vector * (stages["cosine"] > 0) + self.keyword * (stages["keyword"] > 0)
        passed = scores >= np.float32(self.least) * np.maximum(channels, np.float32(1e-6))
        kept: Floats = np.where(passed, scores, 0).astype(np.float32)
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How passages are ordered: how words and vectors are combined, and with which weights.

    `weighted` is the formula of the original plugin. `variety` is the weight of relevance against variety (see
    `holdfast.search.mmr`); None for relevance alone.
    """

    fusion: Fusion = "recipe"
    recipe: Recipe = field(default_factory=Recipe)
    weighted: Weighted = field(default_factory=Weighted)
    variety: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The signals that passages are ranked by.

    Attributes:
        candidates: The passages, with the signals from the store.
        dates: The dates that the query names.
        length: The number of words in the query, without those of scripts without spaces.
        words: The number of words in the query, in any script.
        vector_weight: How much vectors count for this query, 0 to 1.
        reference: How much the query refers to something that both sides know, 0 to 1.
        is_asking: Whether the query asks something, and does not only state it.
        now: The time of the query, in Unix milliseconds.
    """

    candidates: Candidates
    dates: Sequence[Range] = ()
    length: float = 0.0
    words: float = 0.0
    vector_weight: float = 1.0
    reference: float = 0.0
    is_asking: bool = True
    now: int | None = None

    def without_vectors(self) -> Signals:
        """Return the signals of words alone."""
        return replace(self, candidates=self.candidates.without_vectors())


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a passage's score.

    `keyword` and `vector` are relative to the best passage; `share` and `cosine` are absolute.
    """

    keyword: float
    vector: float
    share: float
    cosine: float
    neighbours: float
    session: float
    date: float
    decay: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The places of the best candidates, best first, and the score of every candidate with its parts."""

    order: Ints
    scores: Floats
    stages: dict[str, Floats]

    def for_quoting(self, sizes: Ints, recipe: Recipe) -> tuple[Ints, Floats]:
        """Return the best candidates, then the others by worth, and the worth of each in a block.

        That is the score, less for a long quote, and more for all if quotes are short.
        """
        cost = (np.minimum(sizes[self.order], MAX_QUOTE_CHARS) + HEADER_CHARS) / TYPICAL_QUOTE_CHARS
        worth = relative(self.scores[self.order]) * cost**-recipe.brevity
        order = np.argsort(-worth[recipe.best :], kind="stable") + recipe.best
        order = np.concatenate([np.arange(min(recipe.best, len(worth))), order])
        if len(cost):
            worth = worth * cost[:_MEASURED_QUOTES].mean() ** -recipe.plenty
        return self.order[order], worth[order].astype(np.float32)

    def parts(self, places: Sequence[int]) -> list[Parts]:
        """Return the parts of the scores of some candidates."""
        columns = (self.stages[part.name][places].tolist() for part in fields(Parts))
        return list(map(Parts, *columns))


def rank(signals: Signals, *, order: Order = Order()) -> Ranking:
    """Rank the candidates. Those with a score of 0 are left out."""
    found = signals.candidates
    words = relative(found.keyword * found.eligible)
    if order.fusion == "recipe":
        words = relative(words + np.float32(order.recipe.together) * found.together * found.eligible)
    zeros = np.zeros(len(found), np.float32)
    cosine = zeros
    if found.cosine is not None:
        cosine = found.cosine * found.eligible
    stages = {
        "keyword": words,
        "vector": relative(cosine),
        "share": found.share,
        "cosine": cosine,
        "neighbours": zeros,
        "session": zeros,
        "date": zeros,
        "decay": np.ones_like(zeros),
    }
    match order.fusion:
        case "weighted":
            scores = order.weighted.score(signals, stages)
        case "rrf":
            scores = np.zeros_like(words)  # the sum of 1 / (60 + rank) over the lists that a passage is in
            for name in ("keyword", "vector"):
                ranked = top(stages[name], len(found))
                scores[ranked] += (1 / (_RRF_CONSTANT + 1 + np.arange(len(ranked)))).astype(np.float32)
        case "recipe":
            scores = order.recipe.score(signals, stages)
    scores = scores * found.eligible
    return Ranking(order=top(scores, MAX_RANKED), scores=scores, stages=stages)


def relative(values: Floats) -> Floats:
    """Divide values by the largest of them."""
    largest = values.max(initial=0)
    if largest <= 0:
        return values
    shares: Floats = values / largest
    return shares


def top(scores: Floats, limit: int) -> Ints:
    """Return the places of the highest positive scores, best first; of equal scores, the oldest passage first."""
    chosen = highest(scores, limit)
    chosen = chosen[scores[chosen] > 0]
    return chosen[np.argsort(-scores[chosen], kind="stable")]
