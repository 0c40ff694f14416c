"""What a compaction will do, decided before any model is asked. Pure: it is what a dry run shows.

The region is everything that is in the window now: what an earlier compaction kept is part of it. The newest
units that fit stay, the newest one in any case; what is pinned or has no number stays as well, and so does the
request of a turn that still runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from holdfast.compaction import chunks, frame
from holdfast.compaction.activity import Activity, activity
from holdfast.compaction.dialogue import words
from holdfast.context.budget import Budget
from holdfast.context.edits import Compacted, Edit, Item, tokens, without_thinking
from holdfast.messages import Image, Message, units
from holdfast.settings import Compaction
from holdfast.tokens import TokenCounter, count_message, count_text

__all__ = ["CompactionPlan", "Outcome", "Span", "plan", "spans"]

Outcome: TypeAlias = Literal["ready", "nothing", "impossible"]
"""Whether there is something to do: `nothing` is fine as it is, `impossible` has to be told."""

LEAST_GAIN: Final = 200
"""History that takes fewer tokens than this is not worth a summary."""
_LARGEST_SUMMARY: Final = 6_000
_SUMMARY_SHARE: Final = 10
_SHORT_SUMMARY: Final = 800


@dataclass(frozen=True, slots=True)
class Span:
    """Items that stay or go together. `stays` is whether they must stay."""

    items: tuple[Item, ...]
    stays: bool = False

    @property
    def tokens(self) -> int:
        """What they take, without what was recalled beside them."""
        return sum(item.tokens for item in self.items)

    @property
    def ids(self) -> frozenset[int]:
        """Their archive numbers."""
        return frozenset(item.id for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What a compaction would do.

    Attributes:
        outcome: Whether it can be done.
        reason: Why, or why not, for a person.
        dropped: The oldest history where there is too much of it to be told at once; summarised apart.
        history: The history that becomes the summary.
        prefix: The beginning of a turn whose end stays; summarised apart.
        kept: What stays in the window, in order.
        previous: The summary so far, which the new one takes over.
        request: What the user asked for last, wherever that stands.
        tokens_before: What the window takes now.
        tokens_kept: What is kept takes.
        replaced: What the summary stands for takes; it must stay below that.
        summary_tokens: The most that the summary may take, told.
        activity: Files, failures, commands and plans in what is summarised.
        oversized: The numbers of messages too large to be read by a summariser as they are, or to be kept as recent.
        thinking_removed: Kept messages that lose thinking bound to a history which is gone, and what they take then.
    """

    outcome: Outcome
    reason: str
    dropped: tuple[Item, ...] = ()
    history: tuple[Item, ...] = ()
    prefix: tuple[Item, ...] = ()
    kept: tuple[Item, ...] = ()
    previous: str = ""
    request: str = ""
    tokens_before: int = 0
    tokens_kept: int = 0
    replaced: int = 0
    summary_tokens: int = 0
    activity: Activity = field(default_factory=Activity)
    oversized: tuple[int, ...] = ()
    thinking_removed: tuple[tuple[int, int], ...] = ()

    @property
    def summarised(self) -> tuple[Item, ...]:
        """Everything that leaves the window, in order."""
        return (*self.dropped, *self.history, *self.prefix)

    @property
    def ids(self) -> tuple[int, ...]:
        """The archive numbers that the summary stands for."""
        return tuple(item.id for item in self.summarised)

    @property
    def first_kept(self) -> Item | None:
        """The first message of the conversation that stays."""
        return next((item for item in self.kept if item.kind == "message"), None)

    @property
    def splits_turn(self) -> bool:
        """Whether the cut goes through a turn."""
        return bool(self.prefix)

    def to_json(self) -> dict[str, Any]:
        """The plan as a dry run shows it."""
        stages = {"dropped": self.dropped, "history": self.history, "prefix": self.prefix, "kept": self.kept}
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            **{name: [item.id for item in items] for name, items in stages.items()},
            "tokensBefore": self.tokens_before,
            "tokensKept": self.tokens_kept,
            "summaryTokens": self.summary_tokens,
            "readFiles": list(self.activity.read),
            "modifiedFiles": list(self.activity.modified),
            "toolFailures": [str(failure) for failure in self.activity.failures],
            "oversized": list(self.oversized),
        }

    def edit(self, told: str, *, cost: int, reason: str = "compacted") -> Edit:
        """The change to record: `told` is what the window says instead, `cost` what that takes."""
        kept = [item for item in self.kept if item.kind == "message" and item.id]
        asked = next((item.id for item in reversed(kept) if words(item.message) == self.request), 0)
        last = max(self.ids, default=0)
        return Edit(
            change=Compacted(summary=told, thinking_removed=self.thinking_removed, asked=asked),
            ids=self.ids,
            reason=reason,
            tokens_before=sum(item.tokens for item in self.summarised),
            tokens_after=cost,
            anchors=tuple(item.id for item in kept if item.id > last),
        )


def plan(
    items: Sequence[Item],
    *,
    settings: Compaction,
    budget: Budget,
    previous_summary: str | None = None,
    force: bool = False,
    sent: int | None = None,
    count: TokenCounter = count_text,
) -> CompactionPlan:
    """Decide what becomes a summary and what stays.

    Args:
        items: The window as it is now: system prompt first, the previous summary where there is one.
        settings: How much of the newest history stays, and how summaries are made.
        budget: The limits of the window.
        previous_summary: The summary so far; it need not be among the items.
        force: Cut even where everything is recent: the user asked for it, or the provider says it does not fit.
        sent: What the window takes without messages that were trimmed; unset, what `items` take. A forced cut keeps
            at most half of it, so that the next window is smaller than the last one.
        count: What counts tokens.
    """
    region = spans([item for item in items if item.kind == "message"])
    cap = min(_LARGEST_SUMMARY, budget.window // _SUMMARY_SHARE)
    room = partial(_keep, items=items, settings=settings, budget=budget, cap=cap, force=force, sent=sent)
    keep = room(region)
    cut = _cut(region, keep)
    asked = _request_place(region)
    if asked is not None and asked < cut:
        region[asked] = replace(region[asked], stays=True)
        keep = room(region)
        cut = _cut(region, keep)
    gone = _going(region, cut)
    if sum(span.tokens for span in gone.values()) < LEAST_GAIN:
        return _idle(items, list(gone.values()), budget=budget)
    turn = _turn_start(region, cut)
    previous = frame.bare(previous_summary or "")
    before, prefix = _split(gone, turn, alone=not previous)
    dropped, history = chunks.prune(before, budget.history) if settings.mode == "safeguard" else ([], before)
    return _ready(
        items,
        dropped=_flat(dropped),
        history=_flat(history),
        prefix=_flat(prefix),
        previous=previous,
        cap=cap,
        window=budget.window,
        keep=keep,
        count=count,
    )


def spans(items: Sequence[Item]) -> list[Span]:
    """Group items into what may be cut as a whole."""
    grouped = units([item.message for item in items])
    return [
        Span(together, stays=any(item.pinned or not item.id for item in together))
        for together in (tuple(items[unit.start : unit.stop]) for unit in grouped)
    ]


def _request_place(region: Sequence[Span]) -> int | None:
    """Where the user's request stands while its turn runs, so that all of it stays; None once it was answered."""
    last = region[-1].items[-1].message if region else None
    if last is None or (last.role == "assistant" and not last.calls):
        return None
    return next((index for index in range(len(region) - 1, -1, -1) if _asks(region[index].items[0].message)), None)


def _asks(message: Message) -> bool:
    """Tell whether a user says something here, and not a program in the user's name."""
    return message.role == "user" and (bool(words(message)) or any(isinstance(part, Image) for part in message.parts))


# --- where to cut ------------------------------------------------------------


def _keep(
    region: Sequence[Span],
    *,
    items: Sequence[Item],
    settings: Compaction,
    budget: Budget,
    cap: int,
    force: bool,
    sent: int | None,
) -> int:
    """How many tokens of the newest history may stay: what is asked for, as far as there is room for it."""
    free = sum(span.tokens for span in region if not span.stays)
    fixed = sum(item.tokens for item in items if item.kind == "system") + sum(s.tokens for s in region if s.stays)
    keep = min(settings.keep_recent_tokens, budget.history, max(0, budget.prompt - fixed - cap))
    if not force:
        return keep
    return min(keep, (free if sent is None else min(free, sent)) // 2)


def _cut(region: Sequence[Span], keep: int) -> int:
    """Where the kept tail begins: the newest spans that fit, the newest of all in any case."""
    kept = 0
    for index in range(len(region) - 1, -1, -1):
        kept += 0 if region[index].stays else region[index].tokens
        if kept > keep and index < len(region) - 1:
            return index + 1
    return 0


def _going(region: Sequence[Span], cut: int) -> dict[int, Span]:
    """What goes, by its place: everything before the cut that may, and that shares no message with what stays."""
    gone = {index: span for index, span in enumerate(region[:cut]) if not span.stays}
    held = {number for index, span in enumerate(region) if index not in gone for number in span.ids}
    while caught := [index for index, span in gone.items() if not held.isdisjoint(span.ids)]:
        for index in caught:  # one message may be sent twice
            held |= gone.pop(index).ids
    return gone


def _turn_start(region: Sequence[Span], cut: int) -> int:
    """Where the turn begins that the cut goes through; the cut itself where it goes through none."""
    if region[cut].items[0].message.role == "user":
        return cut
    asked = (index for index in range(cut - 1, -1, -1) if region[index].items[0].message.role == "user")
    return next(asked, cut)


def _split(gone: Mapping[int, Span], turn: int, *, alone: bool) -> tuple[list[Span], list[Span]]:
    """What goes, before a turn and from its beginning on; together where it is `alone`, without anything before it."""
    before = [span for index, span in gone.items() if index < turn]
    prefix = [span for index, span in gone.items() if index >= turn]
    return (prefix, []) if alone and not before else (before, prefix)


# --- what comes of it --------------------------------------------------------


def _idle(items: Sequence[Item], gone: Sequence[Span], *, budget: Budget) -> CompactionPlan:
    """The plan to do nothing: because nothing has to be done, or because nothing can be."""
    total = tokens(items)
    small = f"only {sum(span.tokens for span in gone):,} tokens could be summarised" if gone else "all of it is recent"
    over = total > budget.prompt
    advice = "prune tool results (pruning.mode), unpin messages, shorten the system prompt, or use a larger window"
    return CompactionPlan(
        outcome="impossible" if over else "nothing",
        reason=f"the window takes {total:,} tokens of {budget.prompt:,}, but {small}: {advice}"
        if over
        else f"nothing to compact: {small}",
        kept=tuple(items),
        request=_request(items),
        tokens_before=total,
        tokens_kept=total,
    )


def _ready(
    items: Sequence[Item],
    *,
    dropped: tuple[Item, ...],
    history: tuple[Item, ...],
    prefix: tuple[Item, ...],
    previous: str,
    cap: int,
    window: int,
    keep: int,
    count: TokenCounter,
) -> CompactionPlan:
    gone = (*dropped, *history, *prefix)
    kept = _left(items, gone)
    thinking_removed = {item.id: cost for item in kept if (cost := _tokens_without_thinking(item, count)) is not None}
    cost = sum(item.tokens for item in gone)
    replaced = cost + sum(item.tokens for item in items if item.kind == "summary")
    read, modified = frame.files(previous)
    return CompactionPlan(
        outcome="ready",
        reason=f"{len(gone):,} messages of {cost:,} tokens become a summary",
        dropped=dropped,
        history=history,
        prefix=prefix,
        kept=kept,
        previous=previous,
        request=_request(items),
        tokens_before=tokens(items),
        tokens_kept=sum(thinking_removed.get(item.id, item.tokens) if item.id else item.total for item in kept),
        replaced=replaced,
        summary_tokens=_summary_tokens(replaced, cap),
        activity=activity([item.message for item in gone]).after(read=read, modified=modified),
        oversized=_oversized(gone, kept, window=window, keep=keep),
        thinking_removed=tuple(thinking_removed.items()),
    )


def _left(items: Sequence[Item], gone: Sequence[Item]) -> tuple[Item, ...]:
    """What stays when some messages go: the system prompt and the other messages; the summary so far is taken over."""
    ids = {item.id for item in gone}
    return tuple(item for item in items if item.kind == "system" or (item.kind == "message" and item.id not in ids))


def _summary_tokens(replaced: int, cap: int) -> int:
    """A third of what it stands for; of little, two thirds."""
    return min(cap, max(replaced // 3, min(_SHORT_SUMMARY, replaced * 2 // 3)))


def _request(items: Sequence[Item]) -> str:
    asked = (words(item.message) for item in reversed(items) if item.kind == "message" and item.message.role == "user")
    return next((text for text in asked if text), "")


def _tokens_without_thinking(item: Item, count: TokenCounter) -> int | None:
    """What a kept message takes without its sealed thinking; None where it has none."""
    left = without_thinking(item.message)
    if item.kind != "message" or not item.id or left is item.message:
        return None
    return max(0, item.tokens - count_message(item.message, count=count) + count_message(left, count=count))


def _oversized(gone: Sequence[Item], kept: Sequence[Item], *, window: int, keep: int) -> tuple[int, ...]:
    large = [item.id for item in gone if chunks.is_oversized(item, window)]
    return (*large, *(item.id for item in kept if item.kind == "message" and item.id and item.tokens > keep))


def _flat(found: Sequence[Span]) -> tuple[Item, ...]:
    return tuple(item for span in found for item in span.items)
