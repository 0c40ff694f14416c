"""A window as items, and the recorded changes that are replayed on it.

Edits are kept by whoever owns the session and applied to every later request, so that the same message is
rendered the same way each time. A change says all that rendering it again needs, and no more: of a shortened
text the places that stay, never its words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any, Final, Literal, TypeAlias

import msgspec

from holdfast.errors import FormatError
from holdfast.formats.wire import sealed_elsewhere
from holdfast.messages import Message, Part, RedactedThinking, Text, Thinking, ToolResult

__all__ = [
    "GAP",
    "Block",
    "Change",
    "Compacted",
    "Edit",
    "Forgotten",
    "Item",
    "ItemKind",
    "Pinned",
    "Pruned",
    "Recalled",
    "Restored",
    "Trimmed",
    "apply",
    "from_json",
    "in_force",
    "messages_of",
    "newest_turn",
    "shorten",
    "to_json",
    "tokens",
    "without_thinking",
]

ItemKind: TypeAlias = Literal["system", "summary", "recall", "message"]

GAP: Final = "\n[...]\n"
"""What stands between two kept stretches of a shortened text."""


@dataclass(frozen=True, slots=True)
class Block:
    """Recalled text beside a message, and what it costs."""

    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One message of a window.

    Attributes:
        message: What is sent, after the edits so far.
        id: Its number in the archive, by which edits know it; 0 for what no edit can name.
        tokens: What the message costs.
        kind: What it is to the window.
        pinned: It stays as it is.
        block: What was recalled beside it.
    """

    message: Message
    id: int
    tokens: int
    kind: ItemKind = "message"
    pinned: bool = False
    block: Block | None = None

    @property
    def total(self) -> int:
        """What the item costs with its block."""
        return self.tokens + (self.block.tokens if self.block else 0)


def tokens(items: Iterable[Item]) -> int:
    """What a window costs."""
    return sum(item.total for item in items)


def newest_turn(items: Sequence[Item]) -> Item | None:
    """The newest turn of the user: what was said, or what tools answered."""
    turns = (item for item in reversed(items) if item.kind == "message" and item.message.role in {"user", "tool"})
    return next(turns, None)


def messages_of(items: Iterable[Item]) -> list[Message]:
    """The messages of a window, recalled blocks in their places: each is the last part of its message."""
    return [_with_block(item.message, item.block) if item.block else item.message for item in items]


def _with_block(message: Message, block: Block) -> Message:
    return replace(message, parts=(*message.parts, Text(text=block.text)))


# --- changes -----------------------------------------------------------------


class Pruned(msgspec.Struct, frozen=True, kw_only=True, tag="pruned", tag_field="kind"):
    """A tool result was shortened or cleared.

    Attributes:
        part: Which part of the message it is.
        keep: The stretches of its text that stay; none where it was cleared.
        note: What is said in place of the rest.
        limit: What it did not fit into, where only that was why.
    """

    part: int
    keep: tuple[tuple[int, int], ...] = ()
    note: str
    limit: int | None = None


class Trimmed(msgspec.Struct, frozen=True, kw_only=True, tag="trimmed", tag_field="kind"):
    """Messages left the window, and so did every block recalled before. `limit` is what they did not fit into."""

    limit: int


class Compacted(msgspec.Struct, frozen=True, kw_only=True, tag="compacted", tag_field="kind"):
    """A summary stands for messages, and every block recalled before is gone.

    Attributes:
        summary: What the user is said to have said instead of them.
        unthought: Messages that stay without their signed thinking, and what they cost then.
        asked: The one of them whose words it holds as well: what the user asked for last.
    """

    summary: str
    unthought: tuple[tuple[int, int], ...] = ()
    asked: int = 0


class Recalled(msgspec.Struct, frozen=True, kw_only=True, tag="recalled", tag_field="kind"):
    """A block was placed: in the message with the number `into`, or in one of its own after the system prompt.

    `passages` are those that it quotes.
    """

    text: str
    into: int | None = None
    passages: tuple[int, ...] = ()


class Restored(msgspec.Struct, frozen=True, kw_only=True, tag="restored", tag_field="kind"):
    """Messages that had been trimmed came back, because somebody asked for them."""


class Pinned(msgspec.Struct, frozen=True, kw_only=True, tag="pinned", tag_field="kind"):
    """Messages stay in every window from here on, also those that had left; or, not `on`, they no longer do."""

    on: bool = True


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, tag="forgotten", tag_field="kind"):
    """Messages were forgotten, and words of theirs went from earlier edits: whoever knows those reads them again."""


Change: TypeAlias = Pruned | Trimmed | Compacted | Recalled | Restored | Pinned | Forgotten


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded change to a window.

    Attributes:
        change: What was done.
        ids: The archived messages that it stands for.
        reason: Why.
        tokens_before: What they cost before.
        tokens_after: What is there instead.
        anchors: Messages of which a history must have one for the edit to apply to it; none where it always applies.
    """

    change: Change
    ids: tuple[int, ...]
    reason: str
    tokens_before: int
    tokens_after: int
    anchors: tuple[int, ...] = ()

    @property
    def kind(self) -> str:
        """`pruned`, `trimmed`, `compacted`, `recalled`, `restored`, `pinned` or `forgotten`."""
        return type(self.change).__name__.lower()

    @property
    def is_cut(self) -> bool:
        """Whether the window before and after share only their beginning."""
        return isinstance(self.change, Trimmed | Compacted | Restored)


def to_json(edit: Edit) -> dict[str, Any]:
    """An edit as plain JSON."""
    data: dict[str, Any] = msgspec.to_builtins(edit)
    return data


def from_json(data: Mapping[str, Any]) -> Edit:
    """The edit that `to_json` wrote."""
    try:
        return msgspec.convert(data, Edit)
    except msgspec.ValidationError as error:
        raise FormatError(f"not a recorded edit: {error}") from error


# --- replaying ---------------------------------------------------------------

_MUCH_LARGER: Final = 2
_LEAST: Final = 64
"""A limit below this is taken for it: with many tools there may be no room at all beside them."""


def in_force(edits: Sequence[Edit], *, limit: int) -> tuple[Edit, ...]:
    """The recorded edits that still hold for the next request.

    Recalled blocks hold until the next cut; those at the head for one request only. What was trimmed stays
    out until a compaction, or until the limit is at least twice the one it did not fit into, and so does what
    was shortened only because it did not fit.
    """
    cut = _last(edits, Trimmed | Compacted)
    compaction = _last(edits, Compacted)
    tightest = _tightest(edits)
    return tuple(
        edit
        for index, edit in enumerate(edits)
        if _holds(edit, after_cut=index > cut, after_compaction=index > compaction, limit=limit, tightest=tightest)
    )


def _last(edits: Sequence[Edit], kind: Any) -> int:
    return max((index for index, edit in enumerate(edits) if isinstance(edit.change, kind)), default=-1)


def _tightest(edits: Sequence[Edit]) -> Mapping[int, float]:
    """What each shortened message did not fit into; what was shortened for good never does.

    The results of one message stay shortened together: what it costs was counted with all of them.
    """
    found: dict[int, float] = {}
    for edit in edits:
        if isinstance(edit.change, Pruned):
            limit = math.inf if edit.change.limit is None else edit.change.limit
            found.update((number, max(limit, found.get(number, 0))) for number in edit.ids)
    return found


def _holds(edit: Edit, *, after_cut: bool, after_compaction: bool, limit: int, tightest: Mapping[int, float]) -> bool:
    match edit.change:
        case Recalled(into=into):
            return after_cut and into is not None
        case Trimmed(limit=too_small):
            return after_compaction and limit < _MUCH_LARGER * max(too_small, _LEAST)
        case Pruned():
            return all(limit < _MUCH_LARGER * max(tightest[number], _LEAST) for number in edit.ids)
        case _:
            return True


@dataclass(slots=True)
class _Outcome:
    """What a list of edits comes to. Nothing of it is about items that no edit can name."""

    changed: dict[int, list[tuple[Callable[[Message], Message], int]]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    pinned: dict[int, bool] = field(default_factory=dict)
    blocks: dict[int, Block] = field(default_factory=dict)
    head: Block | None = None
    summary: Item | None = None
    cut: bool = False

    def add(self, edit: Edit) -> None:
        match edit.change:
            case Pruned() as change:
                for number in edit.ids:
                    self._change(number, partial(shorten, change=change), edit.tokens_after)
            case Recalled(into=None) as change:
                self.head = Block(change.text, edit.tokens_after)
            case Recalled(into=number) as change:
                self.blocks[number] = Block(change.text, edit.tokens_after)
            case Trimmed():
                self._cut(edit.ids)
            case Compacted() as change:
                self._compact(change, edit)
            case Restored():
                self.gone.difference_update(edit.ids)
            case Pinned() as change:
                self.pinned.update(dict.fromkeys(edit.ids, change.on))
                self.gone.difference_update(edit.ids if change.on else ())

    def _compact(self, change: Compacted, edit: Edit) -> None:
        self._cut(edit.ids)
        self.summary = _spoken(change.summary, kind="summary", cost=edit.tokens_after)
        for number, cost in change.unthought:
            self._change(number, without_thinking, cost)

    def _change(self, number: int, change: Callable[[Message], Message], cost: int) -> None:
        self.changed.setdefault(number, []).append((change, cost))

    def _cut(self, ids: Iterable[int]) -> None:
        self.gone.update(ids)
        self.blocks, self.head, self.cut = {}, None, True

    def keeps(self, item: Item) -> bool:
        if item.id:
            return item.id not in self.gone
        replaced = {"recall": self.cut or self.head, "summary": self.summary}
        return not replaced.get(item.kind)

    def render(self, item: Item) -> Item:
        if not item.id:
            return item
        block = self.blocks.get(item.id) or (None if self.cut else item.block)
        pinned = self.pinned.get(item.id, item.pinned)
        if item.id not in self.changed and block == item.block and pinned == item.pinned:
            return item
        message, cost = item.message, item.tokens
        for change, after in self.changed.get(item.id, ()):
            message, cost = change(message), after
        return replace(item, message=message, tokens=cost, block=block, pinned=pinned)


def apply(items: Sequence[Item], edits: Iterable[Edit]) -> tuple[Item, ...]:
    """The window after the edits, in order. Applying them one by one or all at once is the same."""
    outcome = _Outcome()
    for edit in edits:
        outcome.add(edit)
    window = [outcome.render(item) for item in items if outcome.keeps(item)]
    if outcome.summary:
        window.insert(_leading(window, "system"), outcome.summary)
    if outcome.head:
        head = _spoken(outcome.head.text, kind="recall", cost=outcome.head.tokens)
        window.insert(_leading(window, "system", "summary"), head)
    return tuple(window)


def _leading(window: Sequence[Item], *kinds: ItemKind) -> int:
    return sum(1 for _ in takewhile(lambda item: item.kind in kinds, window))


def _spoken(text: str, *, kind: ItemKind, cost: int) -> Item:
    return Item(message=Message(role="user", parts=(Text(text=text),)), id=0, tokens=cost, kind=kind)


def without_thinking(message: Message) -> Message:
    """A message without the thinking that Anthropic sealed; itself where it has none, or nothing else."""
    parts = tuple(part for part in message.parts if not _is_sealed(part))
    return replace(message, parts=parts) if parts and len(parts) < len(message.parts) else message


def _is_sealed(part: Part) -> bool:
    return isinstance(part, Thinking | RedactedThinking) and not sealed_elsewhere(part)


def shorten(message: Message, change: Pruned) -> Message:
    """A message with one tool result shortened; itself where that part is no tool result."""
    part = message.parts[change.part] if change.part < len(message.parts) else None
    if not isinstance(part, ToolResult):
        return message
    kept = GAP.join(part.text[start:stop] for start, stop in change.keep)
    text = f"{kept}\n\n{change.note}" if kept else change.note
    shortened = replace(part, content=(Text(text=text),))
    return replace(message, parts=(*message.parts[: change.part], shortened, *message.parts[change.part + 1 :]))
