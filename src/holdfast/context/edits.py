"""The items of a window, and the recorded edits that are replayed on it.

Edits are stored per session and applied to every later request, so that the same message is rendered the same way each
time. An edit contains only what a replay needs: for a shortened text the positions that are kept, never its words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.errors import FormatError
from holdfast.messages import Message, Part, RedactedThinking, Text, Thinking, ToolResult
from holdfast.providers.wire import is_sealed_elsewhere
from holdfast.tokens import TokenCounter, count_message

EDIT: Final = "edit"
"""The kind of the records that hold edits, by their number."""
ItemKind: TypeAlias = Literal["system", "summary", "overview", "recall", "message"]

GAP: Final = "\n[...]\n"
"""The mark between two kept parts of a shortened text."""


@dataclass(frozen=True, slots=True)
class Block:
    """Recalled text next to a message, its tokens, and the passages that it quotes in full."""

    text: str
    tokens: int
    passages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message of a window, after the edits so far, and what memory put next to it: an overview, a recalled block.

    `id` is its number in the archive, by which edits name it; 0 if it has none, and negative while it cannot be
    archived. A pinned one may not be edited.
    """

    message: Message
    id: int
    tokens: int
    kind: ItemKind = "message"
    pinned: bool = False
    block: Block | None = None
    overview: Block | None = None

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What memory put next to the message, in the order in which it is sent."""
        if self.block is None and self.overview is None:  # the usual case, made fast: every turn reads all items
            return ()
        return tuple(block for block in (self.overview, self.block) if block is not None)

    @property
    def block_tokens(self) -> int:
        """The tokens of what memory put next to the message, or in a message of its own."""
        if self.kind == "overview":
            return self.tokens
        return sum(block.tokens for block in self.blocks)

    @property
    def total(self) -> int:
        """The tokens of the item with its blocks."""
        if self.block is None and self.overview is None:
            return self.tokens
        return self.tokens + sum(block.tokens for block in self.blocks)

    @property
    def sent(self) -> Message:
        """The message with its blocks as the last parts."""
        if self.block is None and self.overview is None:
            return self.message
        added = [Text(text=block.text) for block in self.blocks]
        return replace(self.message, parts=(*self.message.parts, *added))


def make_items(messages: Sequence[Message], numbers: Sequence[int], *, count: TokenCounter) -> list[Item]:
    """Count messages, and give them their numbers in the archive."""
    items: list[Item] = []
    for message, number in zip(messages, numbers, strict=True):
        kind: ItemKind = "message"
        if message.role == "system":
            kind = "system"
        items.append(Item(message=message, id=number, tokens=count_message(message, count=count), kind=kind))
    return items


def tokens(items: Iterable[Item]) -> int:
    """Return the tokens of a window."""
    return sum([item.total for item in items])  # a list, because a generator is slower and a turn calls this often


# --- changes -----------------------------------------------------------------


class Pruned(msgspec.Struct, frozen=True, kw_only=True, tag="pruned", tag_field="kind"):
    """A tool result was shortened or cleared.

    Attributes:
        part: Its index among the parts of the message.
        keep: The parts of its text that are kept, as start and stop.
        note: The text in place of the rest.
        limit: The limit that it did not fit into, if that was the only reason.
    """

    part: int
    keep: tuple[tuple[int, int], ...] = ()
    note: str
    limit: int | None = None


class Relevance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The scores that decided which messages a cut removed. Messages that are kept or removed together count as one.

    Attributes:
        scores: The numbers and scores of removed messages; one that is not listed shares no word with the question.
        least_kept: The lowest score of a message that could have been removed too; None if all of them were removed.
        best: The highest score of a message that could have been removed.
    """

    scores: tuple[tuple[int, float], ...] = ()
    least_kept: float | None = None
    best: float = 0.0

    def top(self, score: float | None = None) -> float:
        """Return the highest score, which is shown as 100 %; `score` is that of a message that is shown too."""
        return max([self.best, score or 0.0, *(one for _, one in self.scores)])


class Trimmed(msgspec.Struct, frozen=True, kw_only=True, tag="trimmed", tag_field="kind", omit_defaults=True):
    """Messages, and all blocks recalled before, left the window.

    The overview leaves with them, unless only recalled blocks made room for a new one.

    Attributes:
        limit: The limit that they did not fit into.
        keeps_overview: Whether the overview stays.
        relevance: The scores that decided which messages left; None if their age or size decided.
    """

    limit: int
    keeps_overview: bool = False
    relevance: Relevance | None = None


class Summarised(msgspec.Struct, frozen=True, kw_only=True, tag="compacted", tag_field="kind"):
    """A summary replaced messages, and all blocks recalled before left the window.

    Attributes:
        summary: The summary.
        thinking_removed: The messages that are kept without their signed thinking, and their tokens after that.
        asked: The number of the last request, if the summary repeats its words; otherwise 0.
    """

    summary: str
    thinking_removed: tuple[tuple[int, int], ...] = msgspec.field(default=(), name="unthought")
    asked: int = 0


class Recalled(msgspec.Struct, frozen=True, kw_only=True, tag="recalled", tag_field="kind"):
    """A block was placed in the message with the number `into`, or in a separate message after the system prompt.

    `passages` are the passages that it quotes whole.
    """

    text: str
    into: int | None = None
    passages: tuple[int, ...] = ()


class OverviewAdded(msgspec.Struct, frozen=True, kw_only=True, tag="overview", tag_field="kind"):
    """An overview was placed: in the message with the number `into`, or in one of its own after the system prompt.

    It stays until the next cut. `facts` and `sessions` are the ids of the facts and sessions in it.
    """

    text: str
    into: int | None = None
    facts: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()


class Restored(msgspec.Struct, frozen=True, kw_only=True, tag="restored", tag_field="kind"):
    """Trimmed messages came back on request."""


class Pinned(msgspec.Struct, frozen=True, kw_only=True, tag="pinned", tag_field="kind"):
    """Messages are kept in every later window, including those that had left it; if `on` is False, no longer."""

    on: bool = True


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, tag="forgotten", tag_field="kind"):
    """Messages were forgotten and their words removed from earlier edits. Edits that were read before are outdated."""


Change: TypeAlias = Pruned | Trimmed | Summarised | Recalled | OverviewAdded | Restored | Pinned | Forgotten


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded change to a window.

    Attributes:
        change: The change.
        ids: The archived messages that it changes or replaces.
        reason: Why it was made.
        tokens_before: The tokens of these messages before it.
        tokens_after: The tokens of what replaces them.
        anchors: The edit applies to a history that has at least one of these messages; without anchors, to any.
    """

    change: Change
    ids: tuple[int, ...]
    reason: str
    tokens_before: int
    tokens_after: int
    anchors: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """`pruned`, `trimmed`, `compacted`, `recalled`, `overview`, `restored`, `pinned` or `forgotten`."""
        return str(self.change.__struct_config__.tag)  # the word that is stored, whatever the class is called


def to_json(edit: Edit) -> dict[str, Any]:
    """Return an edit as plain JSON."""
    data: dict[str, Any] = msgspec.to_builtins(edit)
    return data


def from_json(data: Mapping[str, Any]) -> Edit:
    """Read an edit that `to_json` wrote."""
    try:
        return msgspec.convert(data, Edit)
    except msgspec.ValidationError as error:
        raise FormatError(f"not a recorded edit: {error}") from error


# --- replaying ---------------------------------------------------------------

RESTORE_FACTOR: Final = 2
"""How many times larger the limit must be before trimmed messages come back."""
MIN_LIMIT: Final = 64
"""Smaller limits count as this one: many tool definitions may leave no room at all."""


def in_force(edits: Sequence[Edit], *, limit: int) -> tuple[Edit, ...]:
    """Return the recorded edits that apply to the next request.

    Recalled blocks apply until the next cut; those at the head for one request only. An overview applies until messages
    leave the window. Trimmed messages stay out until a compaction, or until the limit is at least twice the one they
    did not fit into; the same is true of results that were shortened only because they did not fit.
    """
    # The results of one message were counted together, so if one of them stays shortened, all do.
    prune_limits: dict[int, float] = {}
    for edit in edits:
        if isinstance(edit.change, Pruned):
            too_small: float = math.inf
            if edit.change.limit is not None:
                too_small = edit.change.limit
            for number in edit.ids:
                prune_limits[number] = max(too_small, prune_limits.get(number, 0))
    # From the newest to the oldest: whether an edit holds depends on the cuts after it.
    held: list[Edit] = []
    is_cut = False
    is_begun = False
    is_compacted = False
    for edit in reversed(edits):
        if _holds(edit, limit, prune_limits, is_cut=is_cut, is_begun=is_begun, is_compacted=is_compacted):
            held.append(edit)
        if begins_window(edit):
            is_begun = True
        if isinstance(edit.change, Trimmed):
            is_cut = True
        elif isinstance(edit.change, Summarised):
            is_cut = True
            is_compacted = True
    return tuple(reversed(held))


def begins_window(edit: Edit) -> bool:
    """Return whether an edit removed messages from the window and the overview with them, so that a new one is due."""
    if isinstance(edit.change, Trimmed):
        return not edit.change.keeps_overview
    return isinstance(edit.change, Summarised)


def needs_overview(items: Iterable[Item], edits: Iterable[Edit], *, is_first: bool) -> bool:
    """Return whether a window lacks an overview: the first one, one after a cut, or one whose overview has left.

    An overview leaves with its message if the client drops that message, or goes back and says something else. If it
    quoted messages that are forgotten now, its edit is gone too; but then the window has changed anyway.
    """
    if any(item.overview is not None or item.kind == "overview" for item in items):
        return False
    if is_first:
        return True
    for edit in edits:
        if begins_window(edit) or isinstance(edit.change, OverviewAdded | Forgotten):
            return True
    return False


def lost_overview(edits: Collection[Edit]) -> bool:
    """Return whether the only overview of a session may be gone because it quoted messages that are forgotten now."""
    is_forgotten = any(isinstance(edit.change, Forgotten) for edit in edits)
    return is_forgotten and not any(isinstance(edit.change, OverviewAdded) for edit in edits)


def _holds(
    edit: Edit, limit: int, prune_limits: Mapping[int, float], *, is_cut: bool, is_begun: bool, is_compacted: bool
) -> bool:
    """Return whether an edit applies. `is_cut`, `is_begun` and `is_compacted` are about the edits after it."""
    match edit.change:
        case Recalled(into=into):
            return not is_cut and into is not None
        case OverviewAdded():
            return not is_begun
        case Trimmed(limit=too_small):
            return not is_compacted and limit < RESTORE_FACTOR * max(too_small, MIN_LIMIT)
        case Pruned():
            return all(limit < RESTORE_FACTOR * max(prune_limits[number], MIN_LIMIT) for number in edit.ids)
        case _:
            return True


@dataclass(slots=True)
class Outcome:
    """The combined effect of a list of edits.

    Attributes:
        changed: By number, the functions that change a message, and its tokens after each.
        gone: The messages that leave the window.
        pinned: The messages that were pinned, or no longer are.
        blocks: The blocks, by the message that contains them; None for the one at the head.
        overviews: The overviews, in the same way.
        summary: The last summary.
        is_cut: Whether messages were trimmed or summarised, so that earlier blocks leave the window.
        is_begun: Whether messages left the window, so that an earlier overview leaves it too.
    """

    changed: dict[int, list[tuple[Callable[[Message], Message], int]]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    pinned: dict[int, bool] = field(default_factory=dict)
    blocks: dict[int | None, Block] = field(default_factory=dict)
    overviews: dict[int | None, Block] = field(default_factory=dict)
    summary: Item | None = None
    is_cut: bool = False
    is_begun: bool = False

    def add(self, edit: Edit) -> None:
        """Add the effect of an edit."""
        match edit.change:
            case Pruned() as change:
                for number in edit.ids:
                    self.changed.setdefault(number, []).append((partial(shorten, change=change), edit.tokens_after))
            case Recalled() as change:
                self.blocks[change.into] = Block(change.text, edit.tokens_after, change.passages)
            case OverviewAdded() as change:
                self.overviews[change.into] = Block(change.text, edit.tokens_after)
            case Trimmed() | Summarised() as change:
                self.gone.update(edit.ids)
                self.blocks = {}
                self.is_cut = True
                if begins_window(edit):
                    self.overviews = {}
                    self.is_begun = True
                if isinstance(change, Summarised):
                    self.summary = _make_item(change.summary, kind="summary", cost=edit.tokens_after)
                    for number, cost in change.thinking_removed:
                        self.changed.setdefault(number, []).append((without_thinking, cost))
            case Restored():
                self.gone.difference_update(edit.ids)
            case Pinned() as change:
                for number in edit.ids:
                    self.pinned[number] = change.on
                if change.on:
                    self.gone.difference_update(edit.ids)

    def keeps(self, item: Item) -> bool:
        """Return whether an item stays in the window."""
        if item.id:
            return item.id not in self.gone
        if item.kind == "recall":
            return not self.is_cut and None not in self.blocks
        if item.kind == "overview":
            return not self.is_begun and None not in self.overviews
        if item.kind == "summary":
            return self.summary is None
        return True

    @property
    def is_addition(self) -> bool:
        """Whether nothing leaves the window, and nothing is inserted between its messages."""
        has_head = None in self.blocks or None in self.overviews
        return not (self.is_cut or self.gone or self.summary or has_head)

    def render(self, item: Item) -> Item:
        """Apply the edits to an item; return the item itself if they do not change it."""
        if not item.id:
            return item
        block = self.blocks.get(item.id)
        if block is None and not self.is_cut:
            block = item.block
        overview = self.overviews.get(item.id)
        if overview is None and not self.is_begun:
            overview = item.overview
        pinned = self.pinned.get(item.id, item.pinned)
        is_same = block == item.block and overview == item.overview and pinned == item.pinned
        if item.id not in self.changed and is_same:
            return item
        message = item.message
        cost = item.tokens
        for change, tokens_after in self.changed.get(item.id, ()):
            message = change(message)
            cost = tokens_after
        return replace(item, message=message, tokens=cost, block=block, overview=overview, pinned=pinned)

    def apply(self, items: Sequence[Item]) -> tuple[Item, ...]:
        """Return a window after the edits."""
        if self == Outcome():
            return tuple(items)
        if self.is_addition:  # the usual case: most items are not changed at all
            named = {*self.blocks, *self.overviews, *self.changed, *self.pinned}
            rendered: list[Item] = []
            for item in items:
                if item.id in named:
                    rendered.append(self.render(item))
                else:
                    rendered.append(item)
            return tuple(rendered)
        window = [self.render(item) for item in items if self.keeps(item)]
        if self.summary:
            window.insert(_count_leading(window, "system"), self.summary)
        head = self.overviews.get(None)
        if head is not None:
            overview = _make_item(head.text, kind="overview", cost=head.tokens)
            window.insert(_count_leading(window, "system", "summary"), overview)
        head = self.blocks.get(None)
        if head is not None:
            block = _make_item(head.text, kind="recall", cost=head.tokens)
            window.insert(_count_leading(window, "system", "summary", "overview"), block)
        return tuple(window)


def combine(edits: Iterable[Edit]) -> Outcome:
    """Return the combined effect of edits, in order."""
    outcome = Outcome()
    for edit in edits:
        outcome.add(edit)
    return outcome


def apply(items: Sequence[Item], edits: Iterable[Edit]) -> tuple[Item, ...]:
    """Apply edits to a window, in order. Applying them one by one gives the same result."""
    return combine(edits).apply(items)


def branch_edits(edits: Sequence[Edit], present: set[int]) -> list[Edit]:
    """Return the edits whose anchors the history still has: a client that goes back starts another branch."""
    known = present
    forgotten = find_forgotten(edits)
    if forgotten:
        known = present | forgotten
    absent = [edit for edit in edits if edit.anchors and known.isdisjoint(edit.anchors)]
    if not absent:  # the most frequent case
        return list(edits)
    # A client that drops old messages itself has only newer ones: edits that are anchored before them still hold.
    first = min(present - {0}, default=0)
    lost = {id(edit) for edit in absent if max(edit.anchors) >= first}
    return [edit for edit in edits if id(edit) not in lost]


def find_forgotten(edits: Iterable[Edit]) -> frozenset[int]:
    """Return the numbers of the messages that were forgotten."""
    numbers: set[int] = set()
    for edit in edits:
        if isinstance(edit.change, Forgotten):
            numbers.update(edit.ids)
    return frozenset(numbers)


def drop_forgotten(history: Sequence[Item]) -> Sequence[Item]:
    """Return a history without forgotten messages, which have no number.

    Those since the last message of the user stay: the next reply answers them.
    """
    if all(item.id or item.kind != "message" for item in history):
        return history
    last_request = 0
    for index, item in enumerate(history):
        if item.message.role == "user":
            last_request = index
    kept: list[Item] = []
    for index, item in enumerate(history):
        if item.id or item.kind != "message" or index >= last_request:
            kept.append(item)
    return kept


def _count_leading(items: Iterable[Item], *kinds: ItemKind) -> int:
    count = 0
    for item in items:
        if item.kind not in kinds:
            break
        count += 1
    return count


def _make_item(text: str, *, kind: ItemKind, cost: int) -> Item:
    return Item(message=Message(role="user", parts=(Text(text=text),)), id=0, tokens=cost, kind=kind)


def without_thinking(message: Message) -> Message:
    """Remove thinking that Anthropic signed; return the message itself if it has none, or nothing else."""
    parts: list[Part] = []
    for part in message.parts:
        if not isinstance(part, Thinking | RedactedThinking) or is_sealed_elsewhere(part):
            parts.append(part)
    if not parts or len(parts) == len(message.parts):
        return message
    return replace(message, parts=tuple(parts))


def shorten(message: Message, change: Pruned) -> Message:
    """Shorten one tool result of a message; return the message itself if that part is not a tool result."""
    if change.part >= len(message.parts):
        return message
    part = message.parts[change.part]
    if not isinstance(part, ToolResult):
        return message
    kept = GAP.join(part.text[start:stop] for start, stop in change.keep)
    text = change.note
    if kept:
        text = f"{kept}\n\n{change.note}"
    shortened = replace(part, content=(Text(text=text),))
    return replace(message, parts=(*message.parts[: change.part], shortened, *message.parts[change.part + 1 :]))
