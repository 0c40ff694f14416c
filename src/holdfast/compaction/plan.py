"""Plan a compaction before any model is called. Pure: a dry run shows the plan.

The region is everything in the window, including what an earlier compaction kept. The newest units that fit are kept,
but at least the newest one. Pinned messages, messages without a number and the request of a running turn are kept too.

A long history is split into chunks that a summariser can read: by share or by size, never inside a unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, Literal, Protocol, TypeAlias, TypeVar

from holdfast.compaction.dialogue import own_words
from holdfast.compaction.sections import read_file_lists, unwrap_summary
from holdfast.compaction.tool_calls import Activity, find_activity
from holdfast.context.budget import Budget
from holdfast.context.edits import Edit, Item, Summarised, tokens, without_thinking
from holdfast.messages import Image, units
from holdfast.settings import Compaction
from holdfast.text import plural
from holdfast.tokens import TokenCounter, count_message, count_text

Outcome: TypeAlias = Literal["ready", "nothing", "impossible"]
"""Whether a compaction is possible. `nothing`: none is needed. `impossible`: one is needed, which is reported."""

MIN_GAIN: Final = 200
"""History of fewer tokens than this is not worth a summary."""
_MAX_SUMMARY: Final = 6_000
"""The maximum tokens of a summary."""
_SUMMARY_SHARE: Final = 10
"""The size of the window is divided by this to get the maximum size of a summary."""
_SHORT_SUMMARY: Final = 800
"""A summary may have this many tokens even if that is more than a third of the tokens that it replaces."""
_ADVICE: Final = "prune tool results (pruning.mode), unpin messages, shorten the system prompt, or use a larger window"


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
        reason: Why, or why not. It is shown to people.
        dropped: The oldest history, if there is too much for one summary; summarised separately.
        history: The history that becomes the summary.
        prefix: The beginning of a turn whose end is kept; summarised separately.
        kept: What is kept in the window, in order.
        previous: The previous summary, which the new one includes.
        request: The last request of the user, kept or not.
        tokens_before: The tokens of the window now.
        tokens_kept: The tokens of what is kept.
        replaced: The tokens of what the summary replaces; the summary must be smaller.
        summary_tokens: The maximum tokens of the summary, with its frame.
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
        for item in self.kept:
            if item.kind == "message":
                return item
        return None

    @property
    def covered(self) -> tuple[Item, ...]:
        """The messages up to the last one that is summarised, in order, with those among them that are kept.

        In a tool loop the request is kept, and the calls after it are summarised.
        """
        last = max(self.ids, default=0)
        kept = [item for item in self.kept if item.kind == "message" and item.id <= last]
        return tuple(sorted([*self.summarised, *kept], key=lambda item: item.id))

    @property
    def kept_after(self) -> tuple[Item, ...]:
        """The messages that are kept and come after what is summarised; pinned ones may be older."""
        last = max(self.ids, default=0)
        return tuple(item for item in self.kept if item.kind == "message" and item.id > last)

    @property
    def splits_turn(self) -> bool:
        """Whether the cut goes through a turn."""
        return bool(self.prefix)

    def edit(self, summary: str, *, cost: int, instructions: str = "") -> Edit:
        """Make the edit to record, with the framed summary and its tokens; its reason names the instructions."""
        reason = self.reason
        if instructions:
            reason = f"{self.reason}; instructions: {instructions}"
        kept = [item for item in self.kept if item.kind == "message" and item.id]
        request_id = 0
        for item in reversed(kept):
            if own_words(item.message) == self.request:
                request_id = item.id
                break
        last = max(self.ids, default=0)
        return Edit(
            change=Summarised(summary=summary, thinking_removed=self.thinking_removed, asked=request_id),
            ids=self.ids,
            reason=reason,
            tokens_before=self.replaced or count_tokens(self.summarised),  # `replaced` includes the previous summary
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
    """Decide which items of a window are summarised and which are kept.

    The items begin with the system prompt and the previous summary, which need not be among them. With `force` even
    recent messages are compacted: on request, or after an overflow. `sent` are the tokens of the window without trimmed
    messages, by default those of `items`. A forced compaction keeps at most half of them, so that the next window is
    smaller than the last one.
    """
    region = _Region(spans([item for item in items if item.kind == "message"]))
    cap = min(_MAX_SUMMARY, budget.window // _SUMMARY_SHARE)
    room = budget.prompt - cap - sum(item.tokens for item in items if item.kind == "system")
    max_kept = min(settings.keep_recent_tokens, budget.history)
    keep, cut = region.find_cut(max_kept=max_kept, room=room, force=force, sent=sent)
    # The next reply answers the request of a running turn. If that is before the cut, it is kept, and takes room from
    # other messages.
    request = region.find_running_request()
    if request is not None and request < cut:
        region.spans[request] = replace(region.spans[request], stays=True)
        keep, cut = region.find_cut(max_kept=max_kept, room=room, force=force, sent=sent)
    gone = region.removable(cut)
    removable_tokens = count_tokens(gone.values())
    if removable_tokens < MIN_GAIN:
        total = tokens(items)
        cause = "all of it is recent"
        if gone:
            cause = f"only {removable_tokens:,} tokens could be summarised"
        outcome: Outcome = "nothing"
        reason = f"nothing to compact: {cause}"
        if total > budget.prompt:
            outcome = "impossible"
            reason = f"the window takes {total:,} tokens of {budget.prompt:,}, but {cause}: {_ADVICE}"
        return CompactionPlan(
            outcome=outcome,
            reason=reason,
            kept=tuple(items),
            request=find_request(items),
            tokens_before=total,
            tokens_kept=total,
        )
    previous = unwrap_summary(previous_summary or "")
    history, prefix = region.split_turn(cut, gone, previous=previous)
    dropped: list[Span] = []
    if settings.mode == "safeguard":
        dropped, history = drop_oldest(history, budget.history)
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
    grouped: list[Span] = []
    for unit in units([item.message for item in items]):
        together = tuple(items[unit.start : unit.stop])
        stays = any(item.pinned or not item.id for item in together)
        grouped.append(Span(together, stays=stays))
    return grouped


def _flatten(spans: Sequence[Span]) -> tuple[Item, ...]:
    return tuple(chain.from_iterable(span.items for span in spans))


@dataclass(frozen=True, slots=True)
class _Region:
    """The messages of a window, in spans."""

    spans: list[Span]

    def find_cut(self, *, max_kept: int, room: int, force: bool, sent: int | None) -> tuple[int, int]:
        """Return the tokens of the newest history that may be kept, and its first span; at least one span is kept."""
        free = sum(span.tokens for span in self.spans if not span.stays)
        fixed = sum(span.tokens for span in self.spans if span.stays)
        keep = min(max_kept, max(0, room - fixed))
        if force:
            if sent is not None:
                free = min(free, sent)
            keep = min(keep, free // 2)
        kept = 0
        for index in range(len(self.spans) - 1, -1, -1):
            if not self.spans[index].stays:
                kept += self.spans[index].tokens
            if kept > keep and index < len(self.spans) - 1:
                return keep, index + 1
        return keep, 0

    def find_running_request(self) -> int | None:
        """Find the user's request of a turn that is still running, which is kept; None once it was answered."""
        if not self.spans:
            return None
        last = self.spans[-1].items[-1].message
        if last.role == "assistant" and not last.calls:
            return None
        for index in range(len(self.spans) - 1, -1, -1):
            message = self.spans[index].items[0].message
            if message.role != "user":
                continue
            has_image = any(isinstance(part, Image) for part in message.parts)
            if has_image or own_words(message):  # otherwise a program wrote it
                return index
        return None

    def removable(self, cut: int) -> dict[int, Span]:
        """Return the spans to remove, by index: those before the cut that share no message with a kept one."""
        gone: dict[int, Span] = {}
        held: set[int] = set()  # the numbers of kept messages
        for index, span in enumerate(self.spans):
            if index < cut and not span.stays:
                gone[index] = span
            else:
                held |= span.ids
        # A client may send a message twice. Each span that is kept because of that may hold others back.
        while True:
            shared = [index for index, span in gone.items() if not held.isdisjoint(span.ids)]
            if not shared:
                return gone
            for index in shared:
                held |= gone.pop(index).ids

    def split_turn(self, cut: int, gone: Mapping[int, Span], *, previous: str) -> tuple[list[Span], list[Span]]:
        """Split what is removed into history and the beginning of a turn whose end is kept."""
        turn = cut
        for index in range(cut, -1, -1):
            if self.spans[index].items[0].message.role == "user":
                turn = index
                break
        before = [span for index, span in gone.items() if index < turn]
        prefix = [span for index, span in gone.items() if index >= turn]
        if not before and not previous:  # the beginning of the turn is the whole history
            return prefix, []
        return before, prefix


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
    gone_ids = {item.id for item in gone}
    kept: list[Item] = []  # without the previous summary, which becomes part of the new one
    for item in items:
        if item.kind == "system" or (item.kind == "message" and item.id not in gone_ids):
            kept.append(item)
    numbered = [item for item in kept if item.kind == "message" and item.id]
    # Signed thinking is only valid after the history that it was written for.
    thinking_removed: dict[int, int] = {}
    for item in numbered:
        left = without_thinking(item.message)
        if left is not item.message:
            saved = count_message(item.message, count=count) - count_message(left, count=count)
            thinking_removed[item.id] = max(0, item.tokens - saved)
    tokens_kept = 0
    for item in kept:
        if item.id:
            tokens_kept += thinking_removed.get(item.id, item.tokens)
        else:
            tokens_kept += item.total
    cost = count_tokens(gone)
    replaced = cost + sum(item.tokens for item in items if item.kind == "summary")
    short = min(_SHORT_SUMMARY, replaced * 2 // 3)
    read, modified = read_file_lists(previous)
    too_large_to_read = [item.id for item in gone if is_oversized(item, window)]
    too_large_to_keep = [item.id for item in numbered if item.tokens > keep]
    return CompactionPlan(
        outcome="ready",
        reason=f"a summary replaces {plural(len(gone), 'message')} of {cost:,} tokens",
        dropped=dropped,
        history=history,
        prefix=prefix,
        kept=tuple(kept),
        previous=previous,
        request=find_request(items),
        tokens_before=tokens(items),
        tokens_kept=tokens_kept,
        replaced=replaced,
        summary_tokens=min(cap, max(replaced // 3, short)),
        activity=find_activity([item.message for item in gone]).add_files(read=read, modified=modified),
        oversized=(*too_large_to_read, *too_large_to_keep),
        thinking_removed=tuple(thinking_removed.items()),
    )


def find_request(items: Sequence[Item]) -> str:
    """Return the last request of the user, in their own words."""
    for item in reversed(items):
        if item.kind == "message" and item.message.role == "user":
            words = own_words(item.message)
            if words:
                return words
    return ""


# --- chunks ------------------------------------------------------------------

BASE_RATIO: Final = 0.4
"""The share of the summariser's window for one chunk."""
MIN_RATIO: Final = 0.15
"""The share for one chunk if messages are large."""
MARGIN: Final = 1.2
"""The factor by which the real number of tokens may exceed the estimate."""
OVERHEAD: Final = 4_096
"""Tokens of a request in addition to the chunk: instructions, the previous summary, thinking."""
PARTS: Final = 2
"""The number of parts that are summarised separately and then merged."""
_LARGE_SHARE: Final = 0.1
"""If the average piece takes more than this share of the window, chunks are smaller."""
_OVERSIZED_SHARE: Final = 0.5
"""A piece that takes more than this share of the window is not summarised whole."""
_MIN_SHARE: Final = 8
"""A chunk may always have the size of the window divided by this."""


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
    """Return whether a piece would fill most of a summariser's window."""
    return piece.tokens * MARGIN > window * _OVERSIZED_SHARE


def split_by_share(pieces: Sequence[P], parts: int = PARTS) -> list[list[P]]:
    """Split pieces into `parts` runs of about the same size; fewer if there are not enough pieces."""
    return _split(pieces, count_tokens(pieces) / max(1, parts), parts)


def split_by_size(pieces: Sequence[P], max_tokens: int) -> list[list[P]]:
    """Split pieces into runs of at most `max_tokens`, counted with the margin; a larger piece is a separate run."""
    return _split(pieces, max_tokens / MARGIN, len(pieces))


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


def drop_oldest(pieces: Sequence[P], limit: int) -> tuple[list[P], list[P]]:
    """Drop the oldest runs until the rest is at most `limit` tokens; return what was dropped, and the rest."""
    dropped: list[P] = []
    rest = list(pieces)
    while count_tokens(rest) > limit:
        runs = split_by_share(rest, PARTS)
        if len(runs) <= 1:
            break
        dropped += runs[0]
        rest = rest[len(runs[0]) :]
    return dropped, rest


def count_tokens(pieces: Iterable[Sized]) -> int:
    """Add up the tokens of pieces."""
    return sum(piece.tokens for piece in pieces)
