"""Whole messages leave a window that is nearly full: what matters least to the question first.

Three layers. Some messages are protected. Of the others those go that have least to do with the question, or
the oldest where the question says nothing. A cut goes well below the limit, so that cuts are rare and the
provider's cache lives between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Trimmed, tokens
from holdfast.context.pairing import additions, additions_of
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message, Text, Unit, units
from holdfast.settings import Trim

__all__ = ["overflows", "protected", "trim"]

_NO_SCORES: Final[Mapping[int, float]] = {}


@dataclass(frozen=True, slots=True)
class _Span:
    """Items that stay or go together, and what they cost without what was recalled beside them."""

    items: Sequence[Item]
    tokens: int
    protected: bool


def overflows(items: Sequence[Item], budget: Budget, *, settings: Trim) -> bool:
    """Tell whether a window has to be cut: then scores are worth having."""
    return not _fits(items, _usual(budget, settings), budget)


def trim(
    items: Sequence[Item],
    *,
    budget: Budget,
    settings: Trim,
    query: str = "",
    scores: Mapping[int, float] = _NO_SCORES,
    last_resort: bool = False,
) -> tuple[Edit, ...]:
    """The cut that makes a window fit; nothing where it does. `scores` say what each message has to do with the query.

    Where what is protected fits, but not with a recalled block beside it, there is less room for the block; as
    a last resort there is less for the reply.

    Raises:
        WindowTooSmallError: What is protected does not fit.
    """
    if not overflows(items, budget, settings=settings):
        return ()
    grouped = units([item.message for item in items])
    spans = _spans(items, grouped, settings.protected_recent)
    must = _cost(span for span in spans if span.protected)
    limit = _fitting(must, (_usual(budget, settings), budget.prompt, budget.ceiling if last_resort else budget.prompt))
    if _fits(items, limit, budget):
        return ()
    relevant = bool(scores) and len(query.strip()) >= settings.min_query_chars
    target = max(limit - int(settings.hysteresis * budget.window), (must + limit) // 2)
    gone = _least(spans, scores if relevant else _NO_SCORES, _cost(spans) - target)
    reason = "least to do with the question" if relevant else "oldest"
    return (_edit(items, gone, budget.safe_limit, reason if gone else "room for what is new"),)


def _cost(spans: Iterable[_Span]) -> int:
    """What spans take, with all that may have to be added to them."""
    return additions(()) + sum(span.tokens for span in spans)


def _usual(budget: Budget, settings: Trim) -> int:
    """Where trimming begins. Switched off, it only keeps a window from overflowing."""
    return budget.safe_limit if settings.enabled else budget.prompt


def _fits(items: Sequence[Item], limit: int, budget: Budget) -> bool:
    """Tell whether a window fits. Recalled blocks have room of their own beside the limit, as much as one may take."""
    live = min(budget.recall, sum(item.block.tokens for item in items if item.block))
    total = tokens(items) + additions_of([item.message for item in items])
    return total - live <= limit and total <= max(limit, budget.prompt)


def _fitting(must: int, limits: Sequence[int]) -> int:
    """The first of the limits that what must stay fits into."""
    for limit in limits:
        if must <= limit:
            return limit
    raise WindowTooSmallError(needed=must, limit=limits[-1])


def _least(spans: Iterable[_Span], scores: Mapping[int, float], excess: int) -> set[int]:
    """The messages that go: those of the lowest score, of the same score the oldest, until the excess is gone."""
    gone: set[int] = set()
    order = [span for span in spans if not span.protected]
    for span in sorted(order, key=lambda span: max(scores.get(item.id, 0.0) for item in span.items)):
        if excess <= 0:
            break
        excess -= span.tokens
        gone.update(item.id for item in span.items)
    return gone


def _edit(items: Sequence[Item], gone: set[int], limit: int, reason: str) -> Edit:
    cut = [item for item in items if item.id in gone]
    cost = sum(item.tokens for item in cut)
    return Edit(
        change=Trimmed(limit=limit),
        ids=tuple(item.id for item in cut),
        reason=reason,
        tokens_before=cost,
        tokens_after=0,
    )


# --- what stays --------------------------------------------------------------


def protected(items: Sequence[Item], *, settings: Trim) -> list[Item]:
    """The items that no trimming takes, with all that belongs to them."""
    spans = _spans(items, units([item.message for item in items]), settings.protected_recent)
    return [item for span in spans if span.protected for item in span.items]


def _spans(items: Sequence[Item], grouped: Sequence[Unit], recent: int) -> list[_Span]:
    stays = _protected(items, grouped, recent)
    spans = [_span(items, unit, stays) for unit in grouped]
    held = {item.id for span in spans if span.protected for item in span.items}  # one message may be sent twice
    return [replace(span, protected=not held.isdisjoint(item.id for item in span.items)) for span in spans]


def _span(items: Sequence[Item], unit: Unit, stays: AbstractSet[int]) -> _Span:
    together = items[unit.start : unit.stop]
    cost = sum(item.tokens for item in together if item.kind != "recall")
    return _Span(
        items=together,
        tokens=cost + additions([unit]) - additions(()),
        protected=not stays.isdisjoint(range(unit.start, unit.stop)),
    )


def _protected(items: Sequence[Item], grouped: Sequence[Unit], recent: int) -> set[int]:
    """What never goes: prompt, summary, recall, pins, the request, the newest words, the last tools, the nameless."""
    spoken = [index for index, item in enumerate(items) if item.kind == "message" and _speaks(item.message)]
    request = [index for index in spoken if items[index].message.role == "user"]
    tools = next((unit for unit in reversed(grouped) if any(message.calls for message in unit.messages)), None)
    return {
        *(index for index, item in enumerate(items) if item.kind != "message" or item.pinned or not item.id),
        *spoken[len(spoken) - min(max(recent, 1), len(spoken)) :],
        *request[-1:],  # however long ago: it is what the agent works on
        *(range(tools.start, tools.stop) if tools else ()),
    }


def _speaks(message: Message) -> bool:
    """Tell whether a person or the model speaks, beside tools or not."""
    if message.role == "tool":
        return any(isinstance(part, Text) for part in message.parts)
    return message.role in {"user", "assistant"}
