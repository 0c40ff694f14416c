"""What is asked of memory, and how the settings shape it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from holdfast.search.columns import Bools, Columns
from holdfast.search.fuse import Order, Recipe, Weighted
from holdfast.settings import Settings
from holdfast.store.base import Across, FactRow, Scope
from holdfast.text import terms

__all__ = ["Bounds", "Request", "order_of", "question", "request_of"]

_DAY: Final = 86_400_000
_ENOUGH: Final = 4
"""Terms that make a question; what says less is read with what was said before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much of the archive is searched. The archive itself keeps everything.

    Attributes:
        passages: Only so many of the newest passages; None for all.
        days: Only what was said in the last so many days, or at an unknown time; None for all.
    """

    passages: int | None = None
    days: int | None = None

    def within(self, visible: Bools, columns: Columns, *, now: int | None) -> Bools:
        """Those of the visible passages that are within bounds."""
        kept = visible
        if self.days is not None:
            times = columns["time"]
            newest = int(times.max(initial=0)) if now is None else now
            kept = kept & ((times <= 0) | (times >= newest - self.days * _DAY))
        if self.passages is not None:
            numbers = np.flatnonzero(kept)
            kept = kept.copy()
            kept[numbers[: max(0, len(numbers) - self.passages)]] = False
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of memory. `request_of` makes one by the settings.

    Attributes:
        texts: The last things the user said, newest last; the newest weighs most.
        scope: Whose memory is asked.
        across: Whether passages of the agent's other sessions may be seen; facts always are.
        cap: The most tokens the whole block may have, tags and headers included.
        now: The moment of the question, in Unix milliseconds, for "two weeks ago".
        in_window: Archived messages that the model sees anyway.
        quoted: Passages that it sees in an earlier block.
        gate: The relevance from which on there is a block of passages; 0 for every question.
        knowledge_share: The part of the cap that facts may take; what they leave goes to passages, and back.
        max_facts: The most facts in the block.
        min_chars: A shorter question gets no block.
        neighbours: How far around a passage others may come along with it.
        order: How passages are ordered.
        bounds: How much of the archive is searched.
        seconds: After so long there is no block; None to wait for it.
        facts: Facts that the caller has chosen for this question; they come before those that are found by words.
    """

    texts: Sequence[str]
    scope: Scope
    across: Across = False
    cap: int = 4000
    now: int | None = None
    in_window: Collection[int] = ()
    quoted: Collection[int] = ()
    gate: float = 1.0
    knowledge_share: float = 0.3
    max_facts: int = 10
    min_chars: int = 0
    neighbours: int = 2
    order: Order = field(default_factory=Order)
    bounds: Bounds = field(default_factory=Bounds)
    seconds: float | None = None
    facts: Sequence[FactRow] = ()


def request_of(
    settings: Settings,
    texts: Sequence[str],
    *,
    scope: Scope,
    now: int | None = None,
    cap: int | None = None,
    across: Across | None = None,
    in_window: Collection[int] = (),
    automatic: bool = False,
    facts: Sequence[FactRow] = (),
) -> Request:
    """A request as the settings want it.

    `cap` and `across` are theirs unless given. One that nobody asked for by name is `automatic`: it has a
    deadline.
    """
    recall = settings.recall
    return Request(
        texts=tuple(texts),
        scope=scope,
        across=settings.archive.cross_session if across is None else across,
        cap=recall.hard_cap_tokens if cap is None else cap,
        now=now,
        in_window=in_window,
        knowledge_share=recall.knowledge_share,
        max_facts=recall.max_facts,
        min_chars=recall.min_query_chars,
        neighbours=recall.neighbours,
        order=order_of(settings),
        bounds=bounds_of(settings),
        seconds=recall.deadline_ms / 1000 if automatic else None,
        facts=facts,
    )


def order_of(settings: Settings) -> Order:
    """The order that settings ask for."""
    search = settings.search
    weights = Weighted(
        vector=search.vector_weight,
        keyword=search.bm25_weight,
        decay=search.time_decay,
        least=settings.recall.min_score,
    )
    variety = search.mmr.relevance_weight if search.mmr.enabled else None
    return Order(fusion=search.fusion, recipe=_recipe(settings.recall.neighbours), weighted=weights, variety=variety)


def _recipe(neighbours: int) -> Recipe:
    """The measured recipe; what it takes over from messages further away than allowed is nothing."""
    recipe = Recipe()
    return replace(recipe, near=recipe.near * (neighbours >= 1), far=recipe.far * (neighbours > 1))


def bounds_of(settings: Settings) -> Bounds:
    """How much of the archive the settings let be searched."""
    return Bounds(passages=settings.archive.max_segments, days=settings.archive.eviction_days or None)


def question(said: Iterable[str], *, most: int) -> tuple[str, ...]:
    """What the user asks, newest last: the newest of what was `said`, and what came before while it says too little.

    `said` is newest first, without what a channel wrapped around it; `most` is `recall.query_messages`.
    """
    asked: list[str] = []
    spoken = 0
    for words in said:
        if words.strip():
            asked.append(words)
            spoken += len(terms(words))
        if spoken >= _ENOUGH or len(asked) >= most:
            break
    return tuple(reversed(asked))
