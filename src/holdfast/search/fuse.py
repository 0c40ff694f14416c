"""From evidence to one order: what each passage has to do with the question, all things considered.

The default recipe was chosen by measurement (docs/benchmarks.md). Two others are there on request: the weighted
sum of the original plugin, and reciprocal rank fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.search.bm25 import Keywords
from holdfast.search.columns import Bools, Columns, Floats
from holdfast.search.dates import Range

__all__ = ["Fusion", "Parts", "Ranking", "Recipe", "rank"]

Fusion: TypeAlias = Literal["recipe", "weighted", "rrf"]

_DAY: Final = 86_400_000
_RRF: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The weights of the default order.

    Attributes:
        vector: The vectors' share of the first score; the keywords have the rest.
        human: How much more a person's words weigh.
        near: What a person's message takes over from the messages right beside it.
        far: What it takes over from those two away.
        session: What the best session adds.
        date: What a day that the question names adds.
    """

    vector: float = 0.5
    human: float = 1.3
    near: float = 0.15
    far: float = 0.10
    session: float = 0.25
    date: float = 0.3


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


@dataclass(frozen=True, slots=True)
class Ranking:
    """Passages by rank, their scores, and the arrays that the scores were made of."""

    order: npt.NDArray[np.int64]
    scores: Floats
    relevance: Floats
    stages: dict[str, Floats]

    def parts(self, passage: int) -> Parts:
        """Why this passage stands where it stands."""
        return Parts(**{name: float(values[passage]) for name, values in self.stages.items()})


def rank(
    columns: Columns,
    *,
    visible: Bools,
    keywords: Keywords,
    cosine: Floats | None,
    dates: Sequence[Range] = (),
    recipe: Recipe = Recipe(),  # noqa: B008 - frozen
    limit: int = 400,
) -> Ranking:
    """Order the visible passages by the recipe. Passages that have nothing to do with the question are left out."""
    alike = _best_window(columns, cosine)
    keyword = _relative(keywords.passages)
    vector = _relative(np.maximum(alike, 0) * visible)
    weight = recipe.vector if cosine is not None else 0.0
    human = columns["human"]
    first = _relative((1 - weight) * keyword + weight * vector) * np.where(
        human, np.float32(recipe.human), np.float32(1)
    )
    neighbours = np.where(human, _neighbours(first, columns, visible, recipe), np.float32(0))
    scores = _relative(first + neighbours)
    session = recipe.session * _relative(keywords.sessions)[columns["scope"]] if columns.passages else scores
    scores = np.where(scores > 0, scores + session, 0)
    date = _dated(scores, columns["time"], dates) * np.float32(recipe.date)
    scores = (scores + date * scores.max(initial=0)).astype(np.float32) * visible
    return Ranking(
        order=_best(scores, limit),
        scores=scores,
        relevance=relevance(keywords.share, alike if cosine is not None else None),
        stages={
            "keyword": keyword,
            "vector": vector,
            "share": keywords.share,
            "cosine": alike,
            "neighbours": neighbours,
            "session": session,
            "date": date,
        },
    )


def relevance(share: Floats, cosine: Floats | None) -> Floats:
    """How much a passage has to do with the question, on a scale that does not depend on the others."""
    return share if cosine is None else ((share + np.maximum(cosine, 0)) / 2).astype(np.float32)


def _best_window(columns: Columns, cosine: Floats | None) -> Floats:
    """The likeness of each passage's best window."""
    if cosine is None or not columns.passages:
        return np.zeros(columns.passages, np.float32)
    best: Floats = np.maximum.reduceat(cosine, columns["first_window"])
    return best


def _relative(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values


def _neighbours(scores: Floats, columns: Columns, visible: Bools, recipe: Recipe) -> Floats:
    """What each passage takes over from those around it in the same session."""
    padded = np.append(scores * visible, np.float32(0))  # index -1 is "none"
    before = np.append(columns["previous"], -1)
    after = np.append(columns.following(), -1)
    near = padded[before] + padded[after]
    far = padded[before[before]] + padded[after[after]]
    taken: Floats = (recipe.near * near + recipe.far * far)[:-1].astype(np.float32)
    return taken


def _dated(scores: Floats, times: npt.NDArray[np.int64], dates: Sequence[Range]) -> Floats:
    """1 for what was said on the days that the question points at."""
    inside = np.zeros(len(scores), np.bool_)
    for start, stop in dates:
        inside |= (times >= start) & (times < stop)
    return (inside & (scores > 0)).astype(np.float32)


def _best(scores: Floats, limit: int) -> npt.NDArray[np.int64]:
    """The passages with the highest scores, best first; the older one first where two are equal."""
    chosen = np.sort(np.argpartition(-scores, limit)[:limit]) if len(scores) > limit else np.arange(len(scores))
    chosen = chosen[scores[chosen] > 0]
    return chosen[np.argsort(-scores[chosen], kind="stable")]
