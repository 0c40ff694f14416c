"""What may be quoted of what was found, and in which order: the passages, the answers behind them, their windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from holdfast.calls import Deadline
from holdfast.memory import block
from holdfast.memory.request import Request
from holdfast.search.columns import Columns, Floats
from holdfast.search.fuse import Ranking, Signals
from holdfast.search.pack import MAX_EXCERPT_CHARS, MIN_EXCERPT_CHARS, Candidate, Quote, pack
from holdfast.store.base import PassageText, Select, Store

__all__ = ["Found", "Quotable", "detail_of", "texts_of"]

_BATCH: Final = 32
_ASKED: Final = 10
"""So many of the best passages may have been questions;"""
_ANSWERED: Final = 3
"""the answers stand in so many passages behind them,"""
_CURT: Final = 100
"""and are so short that they say nothing by themselves."""
_ONE: Final = np.ones(1, np.float32)


@dataclass(frozen=True, slots=True)
class Found:
    """What was found, what was missing, and the passages that were read so far."""

    signals: Signals
    ranking: Ranking
    weights: dict[str, float]
    texts: dict[int, PassageText]
    notes: tuple[str, ...]


def texts_of(store: Store, request: Request, numbers: Sequence[int]) -> list[PassageText]:
    """Passages with their texts, as far as they are still there and the request may see them."""
    return store.fetch(Select(kind="passage", scope=request.scope, across=request.across, ids=tuple(numbers)))


class Quotable:
    """Reads what may be quoted, in the order in which it is worth its room, a batch of texts at a time."""

    def __init__(self, store: Store, request: Request, found: Found, deadline: Deadline) -> None:
        self._store, self._request, self._found, self._deadline = store, request, found, deadline
        recipe, order = request.order.recipe, found.ranking.order
        if request.order.fusion == "recipe" and request.order.variety is None:
            order = found.ranking.for_quoting(found.signals.columns, brevity=recipe.brevity, best=recipe.best)
        answered = request.order.fusion == "recipe" and request.neighbours > 0
        self._order = _with_answers(order.tolist(), found.signals) if answered else order.tolist()
        self._best = frozenset(order[: recipe.best].tolist())
        self._places = {number: place for place, number in enumerate(self._order)}
        self._scores = _WindowScores(found.signals, self._order)

    def pack(
        self,
        *,
        room: float,
        measure: Callable[[str], float],
        after: Sequence[Quote] = (),
        limit: int | None = None,
    ) -> list[Quote]:
        """Quote what fits into `room`, as `holdfast.search.pack.pack` does."""
        sizes = zip(self._order, self._found.signals.columns["size"][self._order].tolist(), strict=True)
        weights = self._found.weights
        return pack(sizes, self._read, room=room, weights=weights, measure=measure, after=after, limit=limit)

    def _read(self, number: int) -> Candidate | None:
        """A passage that may be quoted; None where it is no longer there."""
        passages = self._found.texts
        if number not in passages:
            self._deadline.check()
            place = self._places[number]
            missing = [near for near in self._order[place : place + _BATCH] if near not in passages]
            passages.update((passage.number, passage) for passage in texts_of(self._store, self._request, missing))
        passage = passages.get(number)
        if passage is None:
            return None
        detail = detail_of(passage, self._found.signals.columns, text="")
        return Candidate(
            passage=number,
            text=passage.text,
            windows=passage.windows,
            window_scores=self._scores[number],
            header=block.header(detail),
            brief=block.brief_header(detail),
            group=block.moment(detail),
            room=MAX_EXCERPT_CHARS if number in self._best else MIN_EXCERPT_CHARS,
        )


def _with_answers(order: list[int], signals: Signals) -> list[int]:
    """The passages with the curt ones that follow the best: what a tool answered holds no word of the question."""
    columns, visible = signals.columns, signals.visible
    found: dict[int, None] = {}
    for place, number in enumerate(order):
        found[number] = None
        after = np.array([number])
        for _ in range(_ANSWERED if place < _ASKED else 0):
            after = columns.beside(after, "following")
            follower = int(after[0])
            if follower < 0 or columns["human"][follower]:
                break
            if columns["size"][follower] <= _CURT and visible[follower]:
                found[follower] = None
    return list(found)


def detail_of(passage: PassageText, columns: Columns, *, text: str) -> block.Detail:
    """A passage, or some words of it, as the block tells it."""
    session = int(columns["scope"][passage.number])
    return block.Detail(role=passage.speaker, time=passage.time, text=text, session=session)


class _WindowScores:
    """How good each window of some passages is, by words and by vector: 0 to 1 within its passage."""

    def __init__(self, signals: Signals, passages: Sequence[int]) -> None:
        columns, cosine = signals.columns, signals.cosine
        firsts = columns["first_window"]
        chosen = np.sort(np.array(passages, np.int64))
        counts = np.append(firsts[1:], columns.windows)[chosen] - firsts[chosen]
        chosen, counts = chosen[counts > 1], counts[counts > 1]
        places = np.cumsum(counts) - counts
        numbers = np.arange(counts.sum()) + np.repeat(firsts[chosen] - places, counts)
        self._parts = dict(zip(chosen.tolist(), map(slice, places.tolist(), (places + counts).tolist()), strict=True))
        self._words = signals.keywords.windows(numbers, columns)
        self._vectors = None if cosine is None else np.maximum(cosine[numbers], 0)

    def __getitem__(self, number: int) -> Floats:
        part = self._parts.get(number)
        if part is None:
            return _ONE
        words = _relative(self._words[part])
        if self._vectors is None:
            return words
        return (words + _relative(self._vectors[part])) / np.float32(2)


def _relative(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values
