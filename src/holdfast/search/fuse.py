"""From evidence to one order: what each passage has to do with the question, all things considered.

The default recipe was chosen by measurement (docs/benchmarks.md). Two others are there on request: the weighted
sum of the original plugin, and reciprocal rank fusion.
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

LONGEST_QUOTE: Final = 340
HEADER: Final = 31
TYPICAL_QUOTE: Final = 200
"""Characters of a quote and its header, as far as they can be known before the text is read."""

SHORTLIST: Final = 2048
"""So many passages, and those around them, are weighed in full."""

_DAY: Final = 86_400_000
_RRF: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The weights of the default order.

    Attributes:
        vector: The vectors' share of the first score; the keywords have the rest.
        together: What the words of the question add that stand in one window.
        human: How much more a person's words weigh.
        near: What a person's message takes over from the messages right beside it.
        far: What it takes over from those two away.
        reach: Up to how many characters a message takes over all of it; a longer one less.
        session: What the best session adds.
        date: What a day that the question names adds.
        brevity: How much a short quote is preferred where room is scarce.
        best: So many of the best passages come before all others, and get more room.
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
    """The original plugin's formula: cosine and relative BM25 by fixed weights, less with each day of age."""

    vector: float = 0.7
    keyword: float = 0.3
    decay: float = 0.995
    least: float = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """How passages are ordered.

    Attributes:
        fusion: How words and vectors come together.
        recipe: The weights of the measured recipe.
        weighted: Those of the original plugin's formula.
        variety: The weight of relevance against variety (see `holdfast.search.mmr`); None for relevance alone.
    """

    fusion: Fusion = "recipe"
    recipe: Recipe = field(default_factory=Recipe)
    weighted: Weighted = field(default_factory=Weighted)
    variety: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What is known before anything is ordered.

    Attributes:
        columns: All passages.
        visible: Those that may be ranked.
        keywords: What the terms of the question say.
        cosine: How alike each window is to the question; None without vectors.
        centre: What the visible windows have in common; None where that is not known.
        dates: The days that the question points at.
        length: How many words the question has, without those of scripts that do not put spaces between them.
        vector_weight: How much vectors count for this query, 0 to 1.
        now: The moment of the question, in Unix milliseconds.
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
        """What is known by words alone."""
        return replace(self, cosine=None, centre=None)

    def alike(self) -> Floats:
        """The likeness of each visible passage's best window, 0 at least, apart from what all have in common."""
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
    """Why a passage stands where it stands.

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
    """Passages by rank, and why they stand there.

    Attributes:
        order: The best passages, best first.
        passages: All that were weighed, in rising order: in a large archive only those that may be among the best.
        scores: The score of each of those.
        stages: What the scores were made of, in the same places.
    """

    order: Ints
    passages: Ints
    scores: Floats
    stages: dict[str, Floats]

    def score(self, passages: npt.ArrayLike) -> Floats:
        """The scores of some passages; 0 for one that was not weighed."""
        return self._of(self.scores, passages)

    def _of(self, values: Floats, passages: npt.ArrayLike) -> Floats:
        places = np.minimum(np.searchsorted(self.passages, passages), len(self.passages) - 1)
        return np.where(self.passages[places] == passages, values[places], np.float32(0))

    def for_quoting(self, columns: Columns, *, brevity: float, best: int) -> Ints:
        """The best passages, then the others in the order in which they are worth their room."""
        first, others = self.order[:best], self.order[best:]
        cost = (np.minimum(columns["size"][others], LONGEST_QUOTE) + HEADER) / TYPICAL_QUOTE
        return np.concatenate([first, others[np.argsort(-self.score(others) * cost**-brevity, kind="stable")]])

    def parts(self, passage: int) -> Parts:
        """Why this passage stands where it stands."""
        return Parts(**{name: float(self._of(values, passage)) for name, values in self.stages.items()})


def rank(signals: Signals, *, order: Order = Order(), limit: int = 400) -> Ranking:  # noqa: B008 - frozen
    """Order the visible passages. Those that have nothing to do with the question are left out."""
    words, alike = _relative(signals.keywords.passages * signals.visible), signals.alike()
    if order.fusion == "recipe":
        words = _relative(words + np.float32(order.recipe.together) * signals.keywords.together * signals.visible)
    first = _first(words, alike, signals, order.recipe) if order.fusion == "recipe" else words
    passages = _shortlist(first, signals.columns) if order.fusion == "recipe" else np.arange(len(words))
    nothing = np.zeros(len(passages), np.float32)
    cosine = alike.take(passages)
    stages = {
        "keyword": words.take(passages),
        "vector": _relative(cosine),
        "share": signals.keywords.share.take(passages),
        "cosine": cosine,
        "neighbours": nothing,
        "session": nothing,
        "date": nothing,
        "decay": np.ones_like(nothing),
    }
    match order.fusion:
        case "weighted":
            scores = _weighted(signals, stages, order.weighted)
        case "rrf":
            scores = _reciprocal(stages)
        case "recipe":
            scores = _recipe(first, signals, passages=passages, stages=stages, recipe=order.recipe)
    scores = scores * signals.visible.take(passages)
    return Ranking(order=passages[_best(scores, limit)], passages=passages, scores=scores, stages=stages)


# --- the recipe ------------------------------------------------------------------


def _first(words: Floats, alike: Floats, signals: Signals, recipe: Recipe) -> Floats:
    """Words and vectors, each relative to the best, a person's with more weight."""
    first = words
    if signals.cosine is not None:
        vector = np.float32(recipe.vector * signals.vector_weight)
        first = words * (1 - vector)
        first += alike * (vector / (alike.max(initial=0) or np.float32(1)))
    first = _relative(first)
    return np.multiply(first, np.float32(recipe.human), out=first.copy(), where=signals.columns["human"])


def _shortlist(first: Floats, columns: Columns) -> Ints:
    """The passages that may be among the best: those with the highest scores, and those around them."""
    if len(first) <= SHORTLIST:
        return np.arange(len(first))
    best = highest(first, SHORTLIST)
    promising = np.zeros(len(first) + 1, np.bool_)  # -1 is none, and stands one behind the last
    promising[best] = True
    for name in ("previous", "following"):
        beside = columns.beside(best, name)
        promising[beside] = promising[columns.beside(beside, name)] = True
    return np.flatnonzero(promising[:-1])


def _recipe(first: Floats, signals: Signals, *, passages: Ints, stages: dict[str, Floats], recipe: Recipe) -> Floats:
    columns = signals.columns
    takes_over = (columns["human"] & signals.visible).take(passages)
    stages["neighbours"] = _neighbours(first, passages, columns, recipe) * takes_over
    scores = _relative(first.take(passages) + stages["neighbours"])
    if len(passages):
        session = np.float32(recipe.session) * _relative(signals.keywords.sessions)
        stages["session"] = session.take(columns["scope"].take(passages)) * (scores > 0)
    scores = scores + stages["session"]
    if signals.dates:
        stages["date"] = _dated(scores, columns["time"].take(passages), signals.dates) * np.float32(recipe.date)
        scores = scores + stages["date"] * scores.max(initial=0)
    return scores


def _neighbours(first: Floats, passages: Ints, columns: Columns, recipe: Recipe) -> Floats:
    """What each passage takes over from those around it in the same session."""
    taken = np.zeros(len(passages), np.float32)
    known = np.append(first, np.float32(0))  # -1 is none, and stands one behind the last
    for name in ("previous", "following"):
        beside = columns.beside(passages, name)
        taken += np.float32(recipe.near) * known.take(beside)
        taken += np.float32(recipe.far) * known.take(columns.beside(beside, name))
    sizes = np.maximum(1, columns["size"].take(passages)).astype(np.float32)
    scaled: Floats = taken * np.minimum(1, np.float32(recipe.reach) / sizes)
    return scaled


def _dated(scores: Floats, times: npt.NDArray[np.int64], dates: Sequence[Range]) -> Floats:
    """1 for what was said on the days that the question points at."""
    inside = np.zeros(len(scores), np.bool_)
    for start, stop in dates:
        inside |= (times >= start) & (times < stop)
    return (inside & (scores > 0)).astype(np.float32)


# --- the others --------------------------------------------------------------------


def _weighted(signals: Signals, stages: dict[str, Floats], weights: Weighted) -> Floats:
    """Fixed weights; what is under the least score, by the weights of the channels that found it, is out."""
    vector = weights.vector if signals.cosine is not None else 0.0
    stages["decay"] = _decay(signals, weights.decay)
    scores = (vector * stages["cosine"] + weights.keyword * stages["keyword"]) * stages["decay"]
    channels = vector * (stages["cosine"] > 0) + weights.keyword * (stages["keyword"] > 0)
    passed = scores >= np.float32(weights.least) * np.maximum(channels, np.float32(1e-6))
    kept: Floats = np.where(passed, scores, 0).astype(np.float32)
    return kept


def _decay(signals: Signals, left: float) -> Floats:
    """What is left of a score after the days that went by; all of it where the day is not known."""
    times = signals.columns["time"]
    now = signals.now if signals.now is not None else int(times.max(initial=0))
    days = np.where(times > 0, np.maximum(0, float(now) - times) / _DAY, 0)
    return (np.float64(left) ** days).astype(np.float32)


def _reciprocal(stages: dict[str, Floats]) -> Floats:
    """The sum of 1 / (60 + rank) over the lists that a passage is in."""
    scores = np.zeros_like(stages["keyword"])
    for name in ("keyword", "vector"):
        found = _best(stages[name], len(scores))
        scores[found] += (1 / (_RRF + 1 + np.arange(len(found)))).astype(np.float32)
    return scores


def _relative(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values


def _best(scores: Floats, limit: int) -> Ints:
    """The passages with the highest scores, best first; the older one first where two are equal."""
    chosen = highest(scores, limit)
    chosen = chosen[scores[chosen] > 0]
    return chosen[np.argsort(-scores[chosen], kind="stable")]
