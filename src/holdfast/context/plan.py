"""Plan the edits of a window up to the recall: prune, then trim."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, apply
from holdfast.context.prune import prune, shrink_results
from holdfast.context.trim import has_overflow, protected_items, trim
from holdfast.errors import WindowTooSmallError
from holdfast.settings import Settings
from holdfast.tokens import TokenCounter, count_text

__all__ = ["Plan", "plan_edits"]

EXTRA_SHARE: Final = 0.1
"""How much more than necessary is saved where protected messages do not fit, as a share of the limit."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A window that fits, and its new edits, which have to be recorded before it is sent."""

    items: tuple[Item, ...]
    edits: tuple[Edit, ...] = ()

    def add(self, edits: tuple[Edit, ...]) -> Plan:
        """Return the plan with more edits."""
        return Plan(apply(self.items, edits), (*self.edits, *edits)) if edits else self


def plan_edits(
    items: tuple[Item, ...],
    standing: Sequence[Edit],
    *,
    budget: Budget,
    settings: Settings,
    query: str = "",
    scores: Callable[[], Mapping[int, float]] = dict,
    idle: timedelta | None = None,
    tool: str = "",
    count: TokenCounter = count_text,
) -> Plan:
    """Plan the new edits of a window.

    Where protected messages do not fit, the longest tool results shrink, whatever their age, and then the room for the
    reply.

    Args:
        items: The window with the standing edits applied.
        standing: The recorded edits that still hold.
        budget: The limits of the request.
        settings: How to prune and trim.
        query: The question, by which messages are trimmed.
        scores: Returns the relevance of messages to the query by archive number. It is called only where something has
            to go.
        idle: The time since the last request.
        tool: The name of the tool that shows archived messages, where the model has one.
        count: Counts tokens.

    Raises:
        WindowTooSmallError: What is protected does not fit.
    """
    plan = Plan(items)
    plan = plan.add(
        prune(items, standing, pruning=settings.pruning, window=budget.window, idle=idle, tool=tool, count=count)
    )
    if not has_overflow(plan.items, budget, settings=settings.trim):
        return plan
    known = scores() if len(query.strip()) >= settings.trim.min_query_chars else {}
    cut = partial(trim, budget=budget, settings=settings.trim, query=query, scores=known)
    try:
        return plan.add(cut(plan.items))
    except WindowTooSmallError as error:
        too_small = error
    for clear in (False, True):
        excess = too_small.needed - too_small.limit + int(EXTRA_SHARE * too_small.limit)
        plan = plan.add(
            shrink_results(
                protected_items(plan.items, settings=settings.trim),
                (*standing, *plan.edits),
                excess=excess,
                clear=clear,
                pruning=settings.pruning,
                limit=budget.safe_limit,
                tool=tool,
                count=count,
            )
        )
        try:
            return plan.add(cut(plan.items, last_resort=True))
        except WindowTooSmallError as error:
            too_small = error
    raise too_small
