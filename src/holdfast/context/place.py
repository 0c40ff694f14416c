"""Place a recalled block in a window, and compute how much room it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Recalled, Trimmed, newest_turn, tokens
from holdfast.context.pairing import added_tokens_of
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_text

__all__ = ["Position", "clear_blocks", "place", "recall_room"]

Position: TypeAlias = Literal["tail", "head"]
"""`tail`: the last part of the newest user turn. `head`: a message of its own, after system prompt and summary."""


def recall_room(items: Sequence[Item], budget: Budget, *, position: Position) -> int:
    """Return how many tokens the next block may take.

    It is at most the cap, and at most what is left of the window. At the tail all blocks in the window count together,
    and a question that has a block gets no second one, so that the same request gives the same window.
    """
    left = budget.prompt - tokens(items) - added_tokens_of([item.message for item in items])
    room = min(budget.recall, left)
    if position == "head":
        return max(0, room - MESSAGE_TOKENS)
    if _newest_named(items) is None or _has_block(items):
        return 0
    return max(0, min(room, budget.live_recall - _block_tokens(items)))


def clear_blocks(items: Sequence[Item], budget: Budget, *, position: Position) -> tuple[Edit, ...]:
    """Return the edit that removes earlier blocks, where they leave a new one less than half its room.

    Without it nothing could be recalled after a few questions, until the next cut.
    """
    live = _block_tokens(items)
    if position == "head" or not live or _has_block(items) or budget.live_recall - live >= budget.recall // 2:
        return ()
    reason = "earlier blocks made room for a new one"
    return (Edit(change=Trimmed(limit=budget.safe_limit), ids=(), reason=reason, tokens_before=live, tokens_after=0),)


def _block_tokens(items: Sequence[Item]) -> int:
    return sum(item.block.tokens for item in items if item.block)


def _has_block(items: Sequence[Item]) -> bool:
    """Whether a block was placed since the last user message. Tool results are no new question."""
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
    """Return the edit that places a block; None where there is no block, or no user turn to put it into.

    `ids` are the archived messages that the block quotes, `passages` the passages of them.
    """
    newest = _newest_named(items) if position == "tail" else None
    if not text or (position == "tail" and newest is None):
        return None
    return Edit(
        change=Recalled(text=text, into=newest.id if newest else None, passages=tuple(passages)),
        ids=tuple(ids),
        reason=f"recalled at the {position}",
        tokens_before=0,
        tokens_after=count(text) + (0 if newest else MESSAGE_TOKENS),
    )


def _newest_named(items: Sequence[Item]) -> Item | None:
    """Return the newest user turn; None where it has no archive number that an edit could name."""
    newest = newest_turn(items)
    return newest if newest is not None and newest.id else None
