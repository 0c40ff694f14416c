"""Plan the edits of a window: prune, then trim, and place what is recalled.

Trimming removes whole messages from a window that is nearly full. Some are protected. Of the others, the least
relevant to the question are removed, or the oldest where the question says nothing. A cut goes well below the limit,
so that cuts are rare and the provider's cache holds between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Recalled, Trimmed, apply, tokens
from holdfast.context.prune import prune, shrink_results
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message, Text, Unit, units
from holdfast.settings import Settings, Trim
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_text

EXTRA_SHARE: Final = 0.1
"""How much more than necessary is saved where protected messages do not fit, as a share of the limit."""
MISSING_TOKENS: Final = 64
"""The most tokens of a result that validation inserts."""
VALIDATION_MARGIN: Final = 32
"""The most tokens of anything else that it inserts, such as a first user message."""
Position: TypeAlias = Literal["tail", "head"]
"""`tail`: the last part of the newest user turn. `head`: a message of its own, after system prompt and summary."""
Scores: TypeAlias = Callable[[], Mapping[int, float]]
"""Returns the relevance of messages by archive number. It is called only where something has to go."""


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
    scores: Scores = dict,
    idle: timedelta | None = None,
    tool: str = "",
    count: TokenCounter = count_text,
) -> Plan:
    """Plan the new edits of a window up to the recall.

    `items` are the window with the `standing` edits applied, `idle` is the time since the last request, and `tool` the
    name of the tool that shows archived messages, where the model has one. Where protected messages do not fit, the
    longest tool results shrink, whatever their age, and then the room for the reply.

    Raises:
        WindowTooSmallError: What is protected does not fit.
    """
    pruning, excess = settings.pruning, 0
    plan = Plan(items)
    plan = plan.add(prune(items, standing, pruning=pruning, window=budget.window, idle=idle, tool=tool, count=count))
    shrink = partial(shrink_results, pruning=pruning, limit=budget.safe_limit, tool=tool, count=count)
    for clear in (None, False, True):
        if clear is not None:
            protected = protected_items(plan.items, settings=settings.trim)
            plan = plan.add(shrink(protected, (*standing, *plan.edits), excess=excess, clear=clear))
        cut = partial(trim, last_resort=clear is not None, query=query, scores=scores)
        try:
            return plan.add(cut(plan.items, budget=budget, settings=settings.trim))
        except WindowTooSmallError as error:
            too_small = error
            excess = error.needed - error.limit + int(EXTRA_SHARE * error.limit)
    raise too_small


_REASONS: Final = ("oldest", "least to do with the question")


@dataclass(frozen=True, slots=True)
class _Span:
    """Items that stay or go together, and their tokens without recalled blocks."""

    items: Sequence[Item]
    tokens: int
    protected: bool


def trim(
    items: Sequence[Item],
    *,
    budget: Budget,
    settings: Trim,
    query: str = "",
    scores: Scores = dict,
    last_resort: bool = False,
) -> tuple[Edit, ...]:
    """Return the cut that makes a window fit; none where it does.

    Where what is protected fits only without a recalled block, the block gets less room; as a last resort the reply
    does. Switched off, trimming only keeps a window from overflowing.

    Raises:
        WindowTooSmallError: What is protected does not fit.
    """
    usual = budget.safe_limit if settings.enabled else budget.prompt
    if _fits(items, usual, budget):
        return ()
    spans = _group_spans(items, settings.protected_recent)
    margin = added_tokens(())
    needed = margin + sum(span.tokens for span in spans if span.protected)
    limits = (usual, budget.prompt, budget.ceiling if last_resort else budget.prompt)
    if needed > max(limits):
        raise WindowTooSmallError(needed=needed, limit=limits[-1])
    limit = next(limit for limit in limits if needed <= limit)
    if _fits(items, limit, budget):
        return ()
    known = scores() if len(query.strip()) >= settings.min_query_chars else {}
    target = max(limit - int(settings.hysteresis * budget.window), (needed + limit) // 2)
    excess = margin + sum(span.tokens for span in spans) - target
    return (_make_cut(items, spans, known, excess=excess, limit=budget.safe_limit),)


def _fits(items: Sequence[Item], limit: int, budget: Budget) -> bool:
    """Whether a window fits. Recalled blocks have room of their own beside the limit, as much as one may take."""
    live = min(budget.recall, _block_tokens(items))
    total = tokens(items) + added_tokens_of([item.message for item in items])
    return total - live <= limit and total <= max(limit, budget.prompt)


def _make_cut(
    items: Sequence[Item], spans: Iterable[_Span], scores: Mapping[int, float], *, excess: int, limit: int
) -> Edit:
    """Choose the messages to remove: the lowest scores first, of equal scores the oldest."""
    removed: set[int] = set()
    for span in sorted(spans, key=lambda span: max(scores.get(item.id, 0.0) for item in span.items)):
        if excess > 0 and not span.protected:
            excess -= span.tokens
            removed.update(item.id for item in span.items)
    cut = [item for item in items if item.id in removed]
    return Edit(
        change=Trimmed(limit=limit),
        ids=tuple(item.id for item in cut),
        reason=_REASONS[bool(scores)] if cut else "room for what is new",
        tokens_before=sum(item.tokens for item in cut),
        tokens_after=0,
    )


def added_tokens(grouped: Iterable[Unit]) -> int:
    """Return the most tokens that validation may add to units: missing results, and a first user message."""
    return VALIDATION_MARGIN + MISSING_TOKENS * sum(len(unit.pending) for unit in grouped)


def added_tokens_of(messages: Sequence[Message]) -> int:
    """Return `added_tokens` of a conversation; where every call is answered in place, without grouping it."""
    waiting: set[str] = set()
    for message in messages:
        if calls := message.calls:
            if waiting or message.role != "assistant":
                return added_tokens(units(messages))
            waiting.update(call.id for call in calls)
        elif waiting:
            if message.role == "assistant":
                return added_tokens(units(messages))
            waiting.difference_update(result.call_id for result in message.results)
    return added_tokens(units(messages)) if waiting else VALIDATION_MARGIN


def protected_items(items: Sequence[Item], *, settings: Trim) -> list[Item]:
    """Return the items that are never trimmed."""
    spans = _group_spans(items, settings.protected_recent)
    return [item for span in spans if span.protected for item in span.items]


def _group_spans(items: Sequence[Item], recent: int) -> list[_Span]:
    grouped = units([item.message for item in items])
    indexes = _protected_indexes(items, grouped, recent)
    groups = [(unit, items[unit.start : unit.stop]) for unit in grouped]
    kept = (group for unit, group in groups if not indexes.isdisjoint(range(unit.start, unit.stop)))
    ids = {item.id for group in kept for item in group}  # one message may be there twice
    margin = added_tokens(())
    spans: list[_Span] = []
    for unit, group in groups:
        cost = sum(item.tokens for item in group if item.kind != "recall") + added_tokens([unit]) - margin
        spans.append(_Span(group, cost, protected=not ids.isdisjoint(item.id for item in group)))
    return spans


def _protected_indexes(items: Sequence[Item], grouped: Sequence[Unit], recent: int) -> set[int]:
    """Return what is never trimmed: all but numbered messages, pinned and newest ones, the last request and calls."""
    words = [index for index, item in enumerate(items) if item.kind == "message" and _has_words(item.message)]
    requests = [index for index in words if items[index].message.role == "user"]
    tools = next((unit for unit in reversed(grouped) if any(message.calls for message in unit.messages)), None)
    return {
        *(index for index, item in enumerate(items) if item.kind != "message" or item.pinned or not item.id),
        *words[-max(recent, 1) :],
        *requests[-1:],  # however old: it is what the agent works on
        *(range(tools.start, tools.stop) if tools else ()),
    }


def _has_words(message: Message) -> bool:
    """Whether a message is the user's or the assistant's, or a tool message with text of the user."""
    return message.role != "tool" or any(isinstance(part, Text) for part in message.parts)


def recall_room(items: Sequence[Item], budget: Budget, *, position: Position) -> int:
    """Return how many tokens the next block may take.

    It is at most the cap, and at most what is left of the window. At the tail all blocks in the window count together,
    and a question that has a block gets no second one, so that the same request gives the same window.
    """
    left = budget.prompt - tokens(items) - added_tokens_of([item.message for item in items])
    room = min(budget.recall, left)
    if position == "head":
        return max(0, room - MESSAGE_TOKENS)
    if not _newest_id(items) or _has_block(items):
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

    `ids` are the archived messages that the block quotes, `passages` those that it quotes whole.
    """
    into = _newest_id(items) if position == "tail" else None
    if not text or into == 0:
        return None
    return Edit(
        change=Recalled(text=text, into=into, passages=tuple(passages)),
        ids=tuple(ids),
        reason=f"recalled at the {position}",
        tokens_before=0,
        tokens_after=count(text) + (MESSAGE_TOKENS if into is None else 0),
    )


def _newest_id(items: Sequence[Item]) -> int:
    """Return the archive number of the newest user message or tool result; 0 where there is none or it has none."""
    newest = (item.id for item in reversed(items) if item.kind == "message" and item.message.role in {"user", "tool"})
    return next(newest, 0)


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
