"""Rank passages by all signals together.

The default recipe was chosen by measurement (docs/benchmarks.md). Two others are optional: the weighted sum of the
original plugin, and reciprocal rank fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.search.bm25 import Keywords
from holdfast.search.centering import Centering, center_cosines
from holdfast.search.columns import Bools, Columns, Floats, Ints
from holdfast.search.dates import Range
from holdfast.search.highest import highest

__all__ = ["Fusion", "Order", "Parts", "Ranking", "Recipe", "Signals", "Weighted", "rank"]

Fusion: TypeAlias = Literal["recipe", "weighted", "rrf"]

MAX_QUOTE_CHARS: Final = 340
HEADER_CHARS: Final = 31
TYPICAL_QUOTE_CHARS: Final = 200
"""Estimates of the size of a quote and its header, before the text is read."""

SHORTLIST: Final = 2048
"""The number of passages that are scored in full, with those beside them."""

_DAY_MS: Final = 86_400_000
_RRF_CONSTANT: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The weights of the default order.

    Attributes:
        vector: The weight of vectors in the first score; keywords have the rest.
        together: The weight of query words that occur in one window.
        human: The factor for messages of a person.
        near: The share of the score that a person's message gains from the messages beside it.
        far: The share that it gains from those two away.
        reach: The length in characters up to which a message gains all of it; a longer one gains less.
        session: The bonus for the best session.
        date: The bonus for a date that the query names.
        brevity: How much short quotes are preferred.
        best: The number of best passages that come before all others, and get more room.
    """

    vector: float = 0.5
    together: float = 0.75
    human: float = 1.3
    near: float = 0.25
    far: float = 0.1
    reach: int = 300
    session: float = 0.15
    date: float = 0.3
    brevity: float = 0.2
    best: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighted:
    """The original plugin's formula: cosine and relative BM25 with fixed weights, less with each day of age."""

    vector: float = 0.7
    keyword: float = 0.3
    decay: float = 0.995
    least: float = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How passages are ordered.

    Attributes:
        fusion: How words and vectors are combined.
        recipe: The weights of the default recipe.
        weighted: The weights of the original plugin's formula.
        variety: The weight of relevance against variety (see `holdfast.search.mmr`); None for relevance alone.
    """

    fusion: Fusion = "recipe"
    recipe: Recipe = field(default_factory=Recipe)
    weighted: Weighted = field(default_factory=Weighted)
    variety: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """The signals that passages are ranked by.

    Attributes:
        columns: All passages.
        visible: Those that may be ranked.
        keywords: The scores by terms.
        cosine: The cosine of each window with the query; None without vectors.
        centre: The mean of the visible windows; None where it is not known.
        dates: The dates that the query names.
        length: The number of words in the query, without those of scripts without spaces.
        vector_weight: How much vectors count for this query, 0 to 1.
        now: The time of the query, in Unix milliseconds.
    """

    columns: Columns
    visible: Bools
    keywords: Keywords
    cosine: Floats | None = None
    centre: Centering | None = None
    dates: Sequence[Range] = ()
    length: float = 0.0
    vector_weight: float = 1.0
    now: int | None = None

    def without_vectors(self) -> Signals:
        """Return the signals of words alone."""
        return replace(self, cosine=None, centre=None)

    def best_cosines(self) -> Floats:
        """Return the centred cosine of each visible passage's best window, at least 0."""
        columns = self.columns
        if self.cosine is None or not columns.passages:
            return np.zeros(columns.passages, np.float32)
        best: Floats
        if self.centre is None:
            best = np.maximum.reduceat(self.cosine, columns["first_window"])
        else:
            best = np.zeros(columns.passages, np.float32)
            owners = columns["passage"].take(self.centre.windows)
            np.maximum.at(best, owners, center_cosines(self.cosine, self.centre))
        return np.maximum(best, 0) * self.visible


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Passages by rank, with their scores.

    Attributes:
        order: The best passages, best first.
        passages: All passages that were scored, in ascending order: in a large archive only the most promising.
        scores: The score of each of those.
        stages: The parts of the scores, in the same places.
    """

    order: Ints
    passages: Ints
    scores: Floats
    stages: dict[str, Floats]

    def score(self, passages: npt.ArrayLike) -> Floats:
        """Return the scores of passages; 0 for one that was not scored."""
        return self._look_up(self.scores, passages)

    def _look_up(self, values: Floats, passages: npt.ArrayLike) -> Floats:
        places = np.minimum(np.searchsorted(self.passages, passages), len(self.passages) - 1)
        return np.where(self.passages[places] == passages, values[places], np.float32(0))

    def for_quoting(self, columns: Columns, *, brevity: float, best: int) -> Ints:
        """Return the best passages, then the others by score for their size."""
        first, others = self.order[:best], self.order[best:]
        cost = (np.minimum(columns["size"][others], MAX_QUOTE_CHARS) + HEADER_CHARS) / TYPICAL_QUOTE_CHARS
        return np.concatenate([first, others[np.argsort(-self.score(others) * cost**-brevity, kind="stable")]])

    def parts(self, passage: int) -> Parts:
        """Return the parts of a passage's score."""
        return Parts(**{name: float(self._look_up(values, passage)) for name, values in self.stages.items()})


def rank(signals: Signals, *, order: Order = Order(), limit: int = 400) -> Ranking:  # noqa: B008 - frozen
    """Rank the visible passages. Those with a score of 0 are left out."""
    words, cosines = _relative(signals.keywords.passages * signals.visible), signals.best_cosines()
    if order.fusion == "recipe":
        words = _relative(words + np.float32(order.recipe.together) * signals.keywords.together * signals.visible)
    first = _first_scores(words, cosines, signals, order.recipe) if order.fusion == "recipe" else words
    passages = _shortlist(first, signals.columns) if order.fusion == "recipe" else np.arange(len(words))
    zeros = np.zeros(len(passages), np.float32)
    cosine = cosines.take(passages)
    stages = {
        "keyword": words.take(passages),
        "vector": _relative(cosine),
        "share": signals.keywords.share.take(passages),
        "cosine": cosine,
        "neighbours": zeros,
        "session": zeros,
        "date": zeros,
        "decay": np.ones_like(zeros),
    }
    match order.fusion:
        case "weighted":
            scores = _score_weighted(signals, stages, order.weighted)
        case "rrf":
            scores = _score_reciprocal(stages)
        case "recipe":
            scores = _score_recipe(first, signals, passages=passages, stages=stages, recipe=order.recipe)
    scores = scores * signals.visible.take(passages)
    return Ranking(order=passages[_top(scores, limit)], passages=passages, scores=scores, stages=stages)


# --- the recipe ------------------------------------------------------------------


def _first_scores(words: Floats, cosines: Floats, signals: Signals, recipe: Recipe) -> Floats:
    """Combine words and vectors, each relative to the best; messages of a person weigh more."""
    first = words
    if signals.cosine is not None:
        vector = np.float32(recipe.vector * signals.vector_weight)
        first = words * (1 - vector)
        first += cosines * (vector / (cosines.max(initial=0) or np.float32(1)))
    first = _relative(first)
    return np.multiply(first, np.float32(recipe.human), out=first.copy(), where=signals.columns["human"])


def _shortlist(first: Floats, columns: Columns) -> Ints:
    """Return the passages that may be among the best: those with the highest scores, and those beside them."""
    if len(first) <= SHORTLIST:
        return np.arange(len(first))
    best = highest(first, SHORTLIST)
    promising = np.zeros(len(first) + 1, np.bool_)  # -1 means none, and is the place after the last
    promising[best] = True
    for name in ("previous", "following"):
        beside = columns.beside(best, name)
        promising[beside] = promising[columns.beside(beside, name)] = True
    return np.flatnonzero(promising[:-1])


def _score_recipe(
    first: Floats, signals: Signals, *, passages: Ints, stages: dict[str, Floats], recipe: Recipe
) -> Floats:
    columns = signals.columns
    gains = (columns["human"] & signals.visible).take(passages)
    stages["neighbours"] = _neighbours(first, passages, columns, recipe) * gains
    scores = _relative(first.take(passages) + stages["neighbours"])
    if len(passages):
        session = np.float32(recipe.session) * _relative(signals.keywords.sessions)
        stages["session"] = session.take(columns["scope"].take(passages)) * (scores > 0)
    scores = scores + stages["session"]
    if signals.dates:
        stages["date"] = _match_dates(scores, columns["time"].take(passages), signals.dates) * np.float32(recipe.date)
        scores = scores + stages["date"] * scores.max(initial=0)
    return scores


def _neighbours(first: Floats, passages: Ints, columns: Columns, recipe: Recipe) -> Floats:
    """Return what each passage gains from those beside it in the same session."""
    gained = np.zeros(len(passages), np.float32)
    scores = np.append(first, np.float32(0))  # -1 means none, and is the place after the last
    for name in ("previous", "following"):
        beside = columns.beside(passages, name)
        gained += np.float32(recipe.near) * scores.take(beside)
        gained += np.float32(recipe.far) * scores.take(columns.beside(beside, name))
    sizes = np.maximum(1, columns["size"].take(passages)).astype(np.float32)
    scaled: Floats = gained * np.minimum(1, np.float32(recipe.reach) / sizes)
    return scaled


def _match_dates(scores: Floats, times: npt.NDArray[np.int64], dates: Sequence[Range]) -> Floats:
    """Return 1 for passages in the ranges of the query."""
    inside = np.zeros(len(scores), np.bool_)
    for start, stop in dates:
        inside |= (times >= start) & (times < stop)
    return (inside & (scores > 0)).astype(np.float32)


# --- the others --------------------------------------------------------------------


def _score_weighted(signals: Signals, stages: dict[str, Floats], weights: Weighted) -> Floats:
    """Score with fixed weights; 0 below the minimum, relative to the weights of the signals that a passage has."""
    vector = weights.vector if signals.cosine is not None else 0.0
    stages["decay"] = _decay(signals, weights.decay)
    scores = (vector * stages["cosine"] + weights.keyword * stages["keyword"]) * stages["decay"]
    channels = vector * (stages["cosine"] > 0) + weights.keyword * (stages["keyword"] > 0)
    passed = scores >= np.float32(weights.least) * np.maximum(channels, np.float32(1e-6))
    kept: Floats = np.where(passed, scores, 0).astype(np.float32)
    return kept


def _decay(signals: Signals, left: float) -> Floats:
    """Return the factor for the age of each passage; 1 where its time is not known."""
    times = signals.columns["time"]
    now = signals.now if signals.now is not None else int(times.max(initial=0))
    days = np.where(times > 0, np.maximum(0, float(now) - times) / _DAY_MS, 0)
    return (np.float64(left) ** days).astype(np.float32)


def _score_reciprocal(stages: dict[str, Floats]) -> Floats:
    """Return the sum of 1 / (60 + rank) over the lists that a passage is in."""
    scores = np.zeros_like(stages["keyword"])
    for name in ("keyword", "vector"):
        order = _top(stages[name], len(scores))
        scores[order] += (1 / (_RRF_CONSTANT + 1 + np.arange(len(order)))).astype(np.float32)
    return scores


def _relative(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values


def _top(scores: Floats, limit: int) -> Ints:
    """Return the places of the highest positive scores, best first; of equal ones the older first."""
    chosen = highest(scores, limit)
    chosen = chosen[scores[chosen] > 0]
    return chosen[np.argsort(-scores[chosen], kind="stable")]
