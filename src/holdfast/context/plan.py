"""The path of a window up to the recall, decided: old edits replayed, then pruned, then trimmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply, in_force
from holdfast.context.prune import prune, relieve
from holdfast.context.trim import overflows, protected, trim
from holdfast.errors import WindowTooSmallError
from holdfast.settings import Settings
from holdfast.tokens import TokenCounter, count_text

__all__ = ["Plan", "decide", "plan"]

Scores: TypeAlias = Callable[[], Mapping[int, float]]
"""What each message has to do with the query, by archive number."""
RELIEF: Final = 0.1
"""How much more than necessary is saved where what is protected did not fit, as a share of the limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A window that fits, and what is new about it: the edits to record before anything is sent."""

    items: tuple[Item, ...]
    edits: tuple[Edit, ...] = ()

    def then(self, edits: tuple[Edit, ...]) -> Plan:
        """The plan after some more edits."""
        return Plan(apply(self.items, edits), (*self.edits, *edits)) if edits else self


def _no_scores() -> Mapping[int, float]:
    return {}


def plan(
    items: Sequence[Item],
    edits: Sequence[Edit],
    *,
    budget: Budget,
    settings: Settings,
    query: str = "",
    scores: Scores = _no_scores,
    idle: timedelta | None = None,
    tool: str = "",
    count: TokenCounter = count_text,
) -> Plan:
    """Replay the recorded edits and decide on new ones.

    Raises:
        WindowTooSmallError: What is protected does not fit.
    """
    standing = in_force(edits, limit=budget.safe_limit)
    return decide(
        apply(items, standing),
        standing,
        budget=budget,
        settings=settings,
        query=query,
        scores=scores,
        idle=idle,
        tool=tool,
        count=count,
    )


def decide(
    items: tuple[Item, ...],
    standing: Sequence[Edit],
    *,
    budget: Budget,
    settings: Settings,
    query: str = "",
    scores: Scores = _no_scores,
    idle: timedelta | None = None,
    tool: str = "",
    count: TokenCounter = count_text,
) -> Plan:
    """Decide on what is new about a window in which the standing edits are replayed.

    `scores` are asked for only where something has to go. Where what is protected does not fit, the longest
    tool results shrink, whatever their age, and then the room for the reply, before the request is given up. `tool` is
    the name of the tool that shows archived messages, where the model has one.

    Raises:
        WindowTooSmallError: What is protected does not fit even so.
    """
    planned = Plan(items)
    prunes = prune(
        planned.items, standing, pruning=settings.pruning, window=budget.window, idle=idle, tool=tool, count=count
    )
    planned = planned.then(prunes)
    if not overflows(planned.items, budget, settings=settings.trim):
        return planned
    known = scores() if len(query.strip()) >= settings.trim.min_query_chars else {}
    cut = partial(trim, budget=budget, settings=settings.trim, query=query, scores=known)
    shrink = partial(relieve, pruning=settings.pruning, limit=budget.safe_limit, tool=tool, count=count)
    return _fitted(planned, standing, cut=cut, shrink=shrink, settings=settings)


def _fitted(
    planned: Plan,
    standing: Sequence[Edit],
    *,
    cut: Callable[..., tuple[Edit, ...]],
    shrink: Callable[..., tuple[Edit, ...]],
    settings: Settings,
) -> Plan:
    """Cut a window. Where what is protected does not fit, its results are shortened first, and cleared at the last."""
    try:
        return planned.then(cut(planned.items))
    except WindowTooSmallError as error:
        too_small = error
    for clear in (False, True):
        excess = too_small.needed - too_small.limit + int(RELIEF * too_small.limit)
        stays = protected(planned.items, settings=settings.trim)
        planned = planned.then(shrink(stays, (*standing, *planned.edits), excess=excess, clear=clear))
        try:
            return planned.then(cut(planned.items, last_resort=True))
        except WindowTooSmallError as error:
            too_small = error
    raise too_small
