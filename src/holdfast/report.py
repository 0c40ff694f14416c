"""What happened to a window: where its tokens are, what was changed and why, and how long it took.

A superset of what agents show for `/context`. A report is for people and programs beside the conversation; it is
never a part of one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item
from holdfast.memory.recall import Hit

__all__ = ["Category", "Change", "ContextReport", "categories", "change"]

CategoryKind: TypeAlias = Literal["used", "free", "buffer"]
_TOOL_ROLES: Final = frozenset({"tool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A part of the window and its tokens."""

    name: str
    tokens: int
    kind: CategoryKind = "used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One recorded edit, as it is shown."""

    kind: str
    ids: tuple[int, ...]
    reason: str
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextReport:
    """What is known about one turn.

    Attributes:
        session: Which session.
        turn: Which request of it, from 1.
        total_tokens: What the request takes, everything counted.
        raw_max_tokens: What the model can hold.
        percentage: How full that is.
        categories: Where the tokens are, with what is free and what is kept for the reply.
        changes: What was pruned, trimmed, compacted or recalled in this turn.
        recalled: The passages in the block, with the parts of their scores.
        recall_reason: Why there is no block, where there is none.
        prefix_kept: How much of the request before it (by tokens) is an unchanged beginning of this one.
        repairs: What had to be mended for the provider to take it.
        warnings: What went wrong and was passed over.
        milliseconds: Where the time went, by step.
    """

    session: str
    turn: int
    total_tokens: int
    raw_max_tokens: int
    percentage: float
    categories: tuple[Category, ...]
    changes: tuple[Change, ...] = ()
    recalled: tuple[Hit, ...] = ()
    recall_reason: str = ""
    prefix_kept: float | None = None
    repairs: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    milliseconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def over_limit(self) -> int:
        """By how many tokens the request is too large; 0 where it fits."""
        return max(0, self.total_tokens - self.raw_max_tokens)

    def to_json(self) -> dict[str, Any]:
        """The report as plain JSON."""
        return asdict(self)


def categories(items: Sequence[Item], *, budget: Budget) -> tuple[Category, ...]:
    """Where the tokens of a window are."""
    sums = dict.fromkeys(("system prompt", "tools", "summary", "messages", "tool results", "recall"), 0)
    sums["tools"] = budget.overhead
    for item in items:
        sums[_category(item)] += item.tokens
        sums["recall"] += item.block.tokens if item.block else 0
    used = sum(sums.values())
    return (
        *(Category(name=name, tokens=tokens) for name, tokens in sums.items()),
        Category(name="reserve", tokens=budget.reserve, kind="buffer"),
        Category(name="free", tokens=max(0, budget.window - budget.reserve - used), kind="free"),
    )


def _category(item: Item) -> str:
    if item.kind == "message":
        return "tool results" if item.message.role in _TOOL_ROLES else "messages"
    return {"system": "system prompt", "summary": "summary", "recall": "recall"}[item.kind]


def change(edit: Edit) -> Change:
    """An edit as it is shown."""
    return Change(
        kind=edit.kind,
        ids=edit.ids,
        reason=edit.reason,
        tokens_before=edit.tokens_before,
        tokens_after=edit.tokens_after,
    )
