"""Where a recalled block goes, and how much of one there is room for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Recalled, Trimmed, newest_turn, tokens
from holdfast.context.pairing import additions_of
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_text

__all__ = ["Position", "allowance", "cleared", "place"]

Position: TypeAlias = Literal["tail", "head"]
"""`tail`: the last part of the newest user turn. `head`: a message of its own, after system prompt and summary."""


def allowance(items: Sequence[Item], budget: Budget, *, position: Position) -> int:
    """How many tokens the next block may take, everything counted.

    It is never above the cap, nor above what is left of the window. At the tail all blocks that are still there
    count together, and a question that has one gets no second: asked again, it is answered the same.
    """
    left = budget.prompt - tokens(items) - additions_of([item.message for item in items])
    room = min(budget.recall, left)
    if position == "tail":
        if _newest(items) is None or _is_answered(items):
            return 0
        return max(0, min(room, budget.live_recall - _live(items)))
    return max(0, room - MESSAGE_TOKENS)


def cleared(items: Sequence[Item], budget: Budget, *, position: Position) -> tuple[Edit, ...]:
    """The edit that takes earlier blocks out, where they leave a new one less than half its room; else none.

    Without it memory would fall silent after a few questions, until the next cut.
    """
    live = _live(items)
    if position == "head" or not live or _is_answered(items) or budget.live_recall - live >= budget.recall // 2:
        return ()
    reason = "earlier blocks made room for a new one"
    return (Edit(change=Trimmed(limit=budget.safe_limit), ids=(), reason=reason, tokens_before=live, tokens_after=0),)


def _live(items: Sequence[Item]) -> int:
    return sum(item.block.tokens for item in items if item.block)


def _is_answered(items: Sequence[Item]) -> bool:
    """Whether a block was placed since the user last spoke: what tools answer meanwhile is no new question."""
    for item in reversed(items):
        if item.block is not None:
            return True
        if item.kind == "message" and item.message.role == "user":
            return False
    return False


def place(
    items: Sequence[Item],
    text: str,
    *,
    position: Position,
    ids: Iterable[int] = (),
    passages: Iterable[int] = (),
    count: TokenCounter = count_text,
) -> Edit | None:
    """The edit that puts a block into a window; None where there is no block or no turn of the user to put it into.

    `ids` are the archived messages that the block quotes, `passages` what of them.
    """
    newest = _newest(items) if position == "tail" else None
    if not text or (position == "tail" and newest is None):
        return None
    return Edit(
        change=Recalled(text=text, into=newest.id if newest else None, passages=tuple(passages)),
        ids=tuple(ids),
        reason=f"recalled at the {position}",
        tokens_before=0,
        tokens_after=count(text) + (0 if newest else MESSAGE_TOKENS),
    )


def _newest(items: Sequence[Item]) -> Item | None:
    """The newest turn of the user; None where no edit can name it."""
    newest = newest_turn(items)
    return newest if newest is not None and newest.id else None
