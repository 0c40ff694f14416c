"""Trim: remove whole messages from a window that is nearly full, the least relevant first.

Some messages are protected. Of the others, the least relevant to the question are removed, or the oldest where the
question says nothing. A cut goes well below the limit, so that cuts are rare and the provider's cache holds between
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Trimmed, tokens
from holdfast.context.pairing import added_tokens, added_tokens_of
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message, Text, Unit, units
from holdfast.settings import Trim

__all__ = ["has_overflow", "protected_items", "trim"]

_NO_SCORES: Final[Mapping[int, float]] = {}


@dataclass(frozen=True, slots=True)
class _Span:
    """Items that stay or go together, and their tokens without recalled blocks."""

    items: Sequence[Item]
    tokens: int
    protected: bool


def has_overflow(items: Sequence[Item], budget: Budget, *, settings: Trim) -> bool:
    """Whether a window has to be cut."""
    return not _fits(items, _usual_limit(budget, settings), budget)


def trim(
    items: Sequence[Item],
    *,
    budget: Budget,
    settings: Trim,
    query: str = "",
    scores: Mapping[int, float] = _NO_SCORES,
    last_resort: bool = False,
) -> tuple[Edit, ...]:
    """Return the cut that makes a window fit; none where it does. `scores` are relevances to the query.

    Where what is protected fits only without a recalled block, the block gets less room; as a last resort the reply
    does.

    Raises:
        WindowTooSmallError: What is protected does not fit.
    """
    usual = _usual_limit(budget, settings)
    if _fits(items, usual, budget):
        return ()
    spans = _group_spans(items, settings.protected_recent)
    needed = _span_tokens(span for span in spans if span.protected)
    limits = (usual, budget.prompt, budget.ceiling if last_resort else budget.prompt)
    limit = next((limit for limit in limits if needed <= limit), None)
    if limit is None:
        raise WindowTooSmallError(needed=needed, limit=limits[-1])
    if _fits(items, limit, budget):
        return ()
    is_relevant = bool(scores) and len(query.strip()) >= settings.min_query_chars
    target = max(limit - int(settings.hysteresis * budget.window), (needed + limit) // 2)
    removed = _choose(spans, scores if is_relevant else _NO_SCORES, _span_tokens(spans) - target)
    reason = "least to do with the question" if is_relevant else "oldest"
    cut = [item for item in items if item.id in removed]
    return (
        Edit(
            change=Trimmed(limit=budget.safe_limit),
            ids=tuple(item.id for item in cut),
            reason=reason if removed else "room for what is new",
            tokens_before=sum(item.tokens for item in cut),
            tokens_after=0,
        ),
    )


def _usual_limit(budget: Budget, settings: Trim) -> int:
    """Return the limit at which trimming begins. Switched off, it only keeps a window from overflowing."""
    return budget.safe_limit if settings.enabled else budget.prompt


def _fits(items: Sequence[Item], limit: int, budget: Budget) -> bool:
    """Whether a window fits. Recalled blocks have room of their own beside the limit, as much as one may take."""
    live = min(budget.recall, sum(item.block.tokens for item in items if item.block))
    total = tokens(items) + added_tokens_of([item.message for item in items])
    return total - live <= limit and total <= max(limit, budget.prompt)


def _span_tokens(spans: Iterable[_Span]) -> int:
    """Return the tokens of spans, with all that validation may add."""
    return added_tokens(()) + sum(span.tokens for span in spans)


def _choose(spans: Iterable[_Span], scores: Mapping[int, float], excess: int) -> set[int]:
    """Choose the messages to remove: the lowest scores first, of equal scores the oldest."""
    removed: set[int] = set()
    order = [span for span in spans if not span.protected]
    for span in sorted(order, key=lambda span: max(scores.get(item.id, 0.0) for item in span.items)):
        if excess <= 0:
            break
        excess -= span.tokens
        removed.update(item.id for item in span.items)
    return removed


# --- protection --------------------------------------------------------------


def protected_items(items: Sequence[Item], *, settings: Trim) -> list[Item]:
    """Return the items that are never trimmed."""
    spans = _group_spans(items, settings.protected_recent)
    return [item for span in spans if span.protected for item in span.items]


def _group_spans(items: Sequence[Item], recent: int) -> list[_Span]:
    grouped = units([item.message for item in items])
    protected = _protected_indexes(items, grouped, recent)
    spans = [_make_span(items, unit, protected) for unit in grouped]
    # One message may be there twice.
    ids = {item.id for span in spans if span.protected for item in span.items}
    return [replace(span, protected=not ids.isdisjoint(item.id for item in span.items)) for span in spans]


def _make_span(items: Sequence[Item], unit: Unit, protected: AbstractSet[int]) -> _Span:
    together = items[unit.start : unit.stop]
    cost = sum(item.tokens for item in together if item.kind != "recall")
    return _Span(
        items=together,
        tokens=cost + added_tokens([unit]) - added_tokens(()),
        protected=not protected.isdisjoint(range(unit.start, unit.stop)),
    )


def _protected_indexes(items: Sequence[Item], grouped: Sequence[Unit], recent: int) -> set[int]:
    """Return the indexes of what is never trimmed.

    These are the system prompt, the summary, recalled blocks, pinned items and items without a number, the newest
    messages, the last request and the last tool calls.
    """
    words = [index for index, item in enumerate(items) if item.kind == "message" and _has_words(item.message)]
    requests = [index for index in words if items[index].message.role == "user"]
    tools = next((unit for unit in reversed(grouped) if any(message.calls for message in unit.messages)), None)
    return {
        *(index for index, item in enumerate(items) if item.kind != "message" or item.pinned or not item.id),
        *words[len(words) - min(max(recent, 1), len(words)) :],
        *requests[-1:],  # however old: it is what the agent works on
        *(range(tools.start, tools.stop) if tools else ()),
    }


def _has_words(message: Message) -> bool:
    """Whether a message is the user's or the assistant's, or a tool message with text of the user."""
    if message.role == "tool":
        return any(isinstance(part, Text) for part in message.parts)
    return message.role in {"user", "assistant"}
