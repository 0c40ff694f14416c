"""Plan a compaction before any model is called. Pure: a dry run shows the plan.

The region is everything in the window, including what an earlier compaction kept. The newest units that fit are kept,
and always the newest one; pinned messages, messages without a number and the request of a running turn are kept too.

A long history is split into chunks that a summariser can read: by share or by size, never inside a unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from holdfast.compaction.dialogue import own_words
from holdfast.compaction.sections import read_file_lists, unwrap_summary
from holdfast.compaction.tool_calls import Activity, find_activity
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Summarised, tokens, without_thinking
from holdfast.messages import Image, units
from holdfast.settings import Compaction
from holdfast.tokens import TokenCounter, count_message, count_text

Outcome: TypeAlias = Literal["ready", "nothing", "impossible"]
"""Whether there is something to do: with `nothing` all is well, `impossible` is reported."""

MIN_GAIN: Final = 200
"""History of fewer tokens than this is not worth a summary."""
_MAX_SUMMARY: Final = 6_000
_SUMMARY_SHARE: Final = 10
_SHORT_SUMMARY: Final = 800


@dataclass(frozen=True, slots=True)
class Span:
    """Items that are kept or removed together; `stays` if they must be kept."""

    items: tuple[Item, ...]
    stays: bool = False

    @property
    def tokens(self) -> int:
        """Their tokens, without the recall blocks next to them."""
        return count_tokens(self.items)

    @property
    def ids(self) -> frozenset[int]:
        """Their numbers in the archive."""
        return frozenset(item.id for item in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The plan of a compaction.

    Attributes:
        outcome: Whether it can be done.
        reason: Why, or why not, for people.
        dropped: The oldest history, if there is too much for one summary; summarised separately.
        history: The history that becomes the summary.
        prefix: The beginning of a turn whose end is kept; summarised separately.
        kept: What stays in the window, in order.
        previous: The previous summary, which the new one includes.
        request: The last request of the user, kept or not.
        tokens_before: The tokens of the window now.
        tokens_kept: The tokens of what is kept.
        replaced: The tokens of what the summary replaces; the summary must be smaller.
        summary_tokens: The most tokens of the summary, with its frame.
        activity: Files, failures, commands and plans in what is summarised.
        oversized: The numbers of messages that are too large for a summariser, or to be kept as recent.
        thinking_removed: Kept messages that lose thinking bound to removed history, and their tokens without it.
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
        """Everything that is removed from the window, in order."""
        return (*self.dropped, *self.history, *self.prefix)

    @property
    def ids(self) -> tuple[int, ...]:
        """The archive numbers of what the summary replaces."""
        return tuple(item.id for item in self.summarised)

    @property
    def first_kept(self) -> Item | None:
        """The first message that is kept."""
        return next((item for item in self.kept if item.kind == "message"), None)

    @property
    def splits_turn(self) -> bool:
        """Whether the cut goes through a turn."""
        return bool(self.prefix)

    def edit(self, summary: str, *, cost: int, reason: str = "compacted") -> Edit:
        """Make the edit to record, with the framed summary and its tokens."""
        kept = [item for item in self.kept if item.kind == "message" and item.id]
        request_id = next((item.id for item in reversed(kept) if own_words(item.message) == self.request), 0)
        last = max(self.ids, default=0)
        return Edit(
            change=Summarised(summary=summary, thinking_removed=self.thinking_removed, asked=request_id),
            ids=self.ids,
            reason=reason,
            tokens_before=self.replaced or count_tokens(self.summarised),  # with the summary before it
            tokens_after=cost,
            anchors=tuple(item.id for item in kept if item.id > last),
        )


def plan_compaction(
    items: Sequence[Item],
    *,
    settings: Compaction,
    budget: Budget,
    previous_summary: str | None = None,
    force: bool = False,
    sent: int | None = None,
    count: TokenCounter = count_text,
) -> CompactionPlan:
    """Decide what is summarised and what is kept of a window: system prompt first, then the previous summary.

    The previous summary need not be among the items. With `force` even what is recent is compacted: by hand, or after
    an overflow. `sent` are the tokens of the window without trimmed messages, by default those of `items`: a forced
    compaction keeps at most half of them, so that the next window is smaller than the last one.
    """
    region = _Region(spans([item for item in items if item.kind == "message"]))
    cap = min(_MAX_SUMMARY, budget.window // _SUMMARY_SHARE)
    room = budget.prompt - cap - sum(item.tokens for item in items if item.kind == "system")
    most = min(settings.keep_recent_tokens, budget.history)
    keep, cut = region.find_cut(most=most, room=room, force=force, sent=sent)
    request = region.find_running_request()
    if request is not None and request < cut:
        region.spans[request] = replace(region.spans[request], stays=True)
        keep, cut = region.find_cut(most=most, room=room, force=force, sent=sent)
    gone = region.removable(cut)
    if count_tokens(gone.values()) < MIN_GAIN:
        total, left = tokens(items), count_tokens(gone.values())
        reason = f"only {left:,} tokens could be summarised" if gone else "all of it is recent"
        advice = "prune tool results (pruning.mode), unpin messages, shorten the system prompt, or use a larger window"
        outcome: Outcome = "nothing"
        what = f"nothing to compact: {reason}"
        if total > budget.prompt:
            outcome = "impossible"
            what = f"the window takes {total:,} tokens of {budget.prompt:,}, but {reason}: {advice}"
        return CompactionPlan(
            outcome=outcome,
            reason=what,
            kept=tuple(items),
            request=find_request(items),
            tokens_before=total,
            tokens_kept=total,
        )
    previous = unwrap_summary(previous_summary or "")
    before, prefix = region.split_turn(cut, gone, previous=previous)
    dropped, history = drop_oldest(before, budget.history) if settings.mode == "safeguard" else ([], before)
    return _make_plan(
        items,
        dropped=_flatten(dropped),
        history=_flatten(history),
        prefix=_flatten(prefix),
        previous=previous,
        cap=cap,
        window=budget.window,
        keep=keep,
        count=count,
    )


def spans(items: Sequence[Item]) -> list[Span]:
    """Group items into units that are kept or removed together."""
    grouped = units([item.message for item in items])
    return [
        Span(together, stays=any(item.pinned or not item.id for item in together))
        for together in (tuple(items[unit.start : unit.stop]) for unit in grouped)
    ]


def _flatten(spans: Sequence[Span]) -> tuple[Item, ...]:
    return tuple(item for span in spans for item in span.items)


@dataclass(frozen=True, slots=True)
class _Region:
    """The messages of a window, in spans."""

    spans: list[Span]

    def find_cut(self, *, most: int, room: int, force: bool, sent: int | None) -> tuple[int, int]:
        """Return the tokens of the newest history that may be kept, and where it begins; the newest span always is."""
        free = sum(span.tokens for span in self.spans if not span.stays)
        keep = min(most, max(0, room - sum(span.tokens for span in self.spans if span.stays)))
        if force:
            keep = min(keep, (free if sent is None else min(free, sent)) // 2)
        kept = 0
        for index in range(len(self.spans) - 1, -1, -1):
            kept += 0 if self.spans[index].stays else self.spans[index].tokens
            if kept > keep and index < len(self.spans) - 1:
                return keep, index + 1
        return keep, 0

    def find_running_request(self) -> int | None:
        """Find the user's request of a turn that is still running, which is kept; None once it was answered."""
        last = self.spans[-1].items[-1].message if self.spans else None
        if last is None or (last.role == "assistant" and not last.calls):
            return None
        for index in range(len(self.spans) - 1, -1, -1):
            message = self.spans[index].items[0].message
            has_image = any(isinstance(part, Image) for part in message.parts)
            if message.role == "user" and (has_image or own_words(message)):  # else a program wrote it
                return index
        return None

    def removable(self, cut: int) -> dict[int, Span]:
        """List the spans to remove by place: those before the cut that may go and share no message with a kept one."""
        gone = {index: span for index, span in enumerate(self.spans[:cut]) if not span.stays}
        held = {number for index, span in enumerate(self.spans) if index not in gone for number in span.ids}
        while caught := [index for index, span in gone.items() if not held.isdisjoint(span.ids)]:
            for index in caught:  # one message may be sent twice
                held |= gone.pop(index).ids
        return gone

    def split_turn(self, cut: int, gone: Mapping[int, Span], *, previous: str) -> tuple[list[Span], list[Span]]:
        """Split what is removed into history and the beginning of a turn whose end is kept."""
        users = [index for index in range(cut + 1) if self.spans[index].items[0].message.role == "user"]
        turn = users[-1] if users else cut
        before = [span for index, span in gone.items() if index < turn]
        prefix = [span for index, span in gone.items() if index >= turn]
        return (before, prefix) if before or previous else (prefix, [])


def _make_plan(
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
    kept = _without(items, gone)
    numbered = [item for item in kept if item.kind == "message" and item.id]
    thinking_removed = {
        item.id: max(0, item.tokens - count_message(item.message, count=count) + count_message(left, count=count))
        for item in numbered
        if (left := without_thinking(item.message)) is not item.message
    }
    cost = count_tokens(gone)
    replaced = cost + sum(item.tokens for item in items if item.kind == "summary")
    read, modified = read_file_lists(previous)
    large = [item.id for item in gone if is_oversized(item, window)]
    return CompactionPlan(
        outcome="ready",
        reason=f"{len(gone):,} messages of {cost:,} tokens become a summary",
        dropped=dropped,
        history=history,
        prefix=prefix,
        kept=tuple(kept),
        previous=previous,
        request=find_request(items),
        tokens_before=tokens(items),
        tokens_kept=sum(thinking_removed.get(item.id, item.tokens) if item.id else item.total for item in kept),
        replaced=replaced,
        summary_tokens=min(cap, max(replaced // 3, min(_SHORT_SUMMARY, replaced * 2 // 3))),
        activity=find_activity([item.message for item in gone]).add_files(read=read, modified=modified),
        oversized=(*large, *(item.id for item in numbered if item.tokens > keep)),
        thinking_removed=tuple(thinking_removed.items()),
    )


def _without(items: Sequence[Item], gone: Sequence[Item]) -> list[Item]:
    """Keep the system prompt and the other messages; the previous summary becomes part of the new one."""
    ids = {item.id for item in gone}
    return [item for item in items if item.kind == "system" or (item.kind == "message" and item.id not in ids)]


def find_request(items: Sequence[Item]) -> str:
    """Return the last request of the user, in their own words."""
    requests = (
        own_words(item.message) for item in reversed(items) if item.kind == "message" and item.message.role == "user"
    )
    return next((text for text in requests if text), "")


# --- chunks ------------------------------------------------------------------

BASE_RATIO: Final = 0.4
"""The share of the summariser's window for one chunk."""
MIN_RATIO: Final = 0.15
"""The share for one chunk if messages are large."""
MARGIN: Final = 1.2
"""The factor by which a token estimate may be too low."""
OVERHEAD: Final = 4_096
"""Tokens of a request besides the chunk: instructions, the previous summary, thinking."""
PARTS: Final = 2
_LARGE_SHARE: Final = 0.1
_OVERSIZED_SHARE: Final = 0.5
_MIN_SHARE: Final = 8


class Sized(Protocol):
    """Anything with a number of tokens that is not split."""

    @property
    def tokens(self) -> int: ...  # noqa: D102


P = TypeVar("P", bound=Sized)


def chunk_ratio(pieces: Sequence[Sized], window: int) -> float:
    """Return the share of the window for one chunk: less if the average piece is large."""
    if not pieces:
        return BASE_RATIO
    average = count_tokens(pieces) / len(pieces) * MARGIN / window
    if average <= _LARGE_SHARE:
        return BASE_RATIO
    return max(MIN_RATIO, BASE_RATIO - min(2 * average, BASE_RATIO - MIN_RATIO))


def chunk_tokens(pieces: Sequence[Sized], window: int) -> int:
    """Return the tokens of the largest chunk, at least an eighth of the window."""
    return max(window // _MIN_SHARE, int(window * chunk_ratio(pieces, window)) - OVERHEAD, 1)


def is_oversized(piece: Sized, window: int) -> bool:
    """Tell whether a piece would fill most of a summariser's window."""
    return piece.tokens * MARGIN > window * _OVERSIZED_SHARE


def split_by_share(pieces: Sequence[P], parts: int = PARTS) -> list[list[P]]:
    """Split pieces into `parts` runs of about the same size; fewer if there are not enough pieces."""
    return _split(pieces, count_tokens(pieces) / max(1, parts), parts)


def split_by_size(pieces: Sequence[P], most: int) -> list[list[P]]:
    """Split pieces into runs of at most `most` tokens, counted with the margin; a larger piece is a run of its own."""
    return _split(pieces, most / MARGIN, len(pieces))


def _split(pieces: Sequence[P], room: float, parts: int) -> list[list[P]]:
    runs: list[list[P]] = []
    size = 0
    for piece in pieces:
        if not runs or (size + piece.tokens > room and len(runs) < parts):
            runs.append([])
            size = 0
        runs[-1].append(piece)
        size += piece.tokens
    return runs


def drop_oldest(pieces: Sequence[P], limit: int, parts: int = PARTS) -> tuple[list[P], list[P]]:
    """Drop the oldest runs until the rest is at most `limit` tokens; return what was dropped, and the rest."""
    dropped: list[P] = []
    rest = list(pieces)
    while count_tokens(rest) > limit:
        runs = split_by_share(rest, parts)
        if len(runs) <= 1:
            break
        dropped += runs[0]
        rest = [piece for run in runs[1:] for piece in run]
    return dropped, rest


def count_tokens(pieces: Iterable[Sized]) -> int:
    """Add up the tokens of pieces."""
    return sum(piece.tokens for piece in pieces)
