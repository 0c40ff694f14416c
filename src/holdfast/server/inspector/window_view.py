"""The window of a turn, message by message, next to the one before it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, Literal

from holdfast.context.edits import Item, Recalled
from holdfast.report import Window
from holdfast.server.inspector.data import MessageView, view_part
from holdfast.server.inspector.past import KIND_NAMES, Past
from holdfast.timeline import PastEdit, PastTurn

MIN_FOLDED: Final = 4
"""Unchanged messages in a row from which on they are folded."""
MAX_OPEN: Final = 60
"""Messages in a row that are shown unfolded."""
MAX_LEFT: Final = 8
"""Messages that left in one turn that are listed unfolded."""
MAX_LISTED: Final = 200
"""Messages that left in one turn that are listed."""
MAX_WORDS: Final = 160
"""Characters of a message in a list."""

PRODUCTS: Final = {
    "anthropic": "Anthropic",
    "openai_chat": "OpenAI Chat Completions",
    "openai_responses": "OpenAI Responses",
    "gemini": "Gemini",
    "pi": "pi",
}
"""The names of products by wire format."""
_REPAIR: Final = re.compile(r"message (?P<place>\d+): (?P<what>.+)", re.DOTALL)
"""A repair of one message in a report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockView:
    """Text that memory put into a window: its title, the text and its tokens."""

    title: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GapView:
    """Messages that left the window earlier, at their place: how, how many, in which turns, and by which last edit.

    The number of a turn that was not read is 0.
    """

    kind: str
    messages: int
    first_turn: int
    last_turn: int
    edit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    """A message of a window as the model got it, what memory added to it, and what is missing before it."""

    message: MessageView
    blocks: tuple[BlockView, ...] = ()
    gaps: tuple[GapView, ...] = ()
    mark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairGroup:
    """Changes of a request for the rules of its provider that are alike: what was done, and to which messages of it."""

    what: str
    places: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRow:
    """A message that left the window: its number, role and first words, its tokens, and its relevance if it decided."""

    id: int
    role: str
    kind: str
    words: str
    tokens: int
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Messages in a row that are the same as in the turn before, that are new or changed, or that left.

    Attributes:
        kind: Which of these.
        start, stop: The places of the messages in the window.
        count, tokens: How many they are, and their tokens.
        gone: How many messages left earlier between them.
        verb: How messages left, in one word: "cut", "compacted", or "left" if in more than one way.
        pruned: The numbers of those among them that are pruned.
        blocks: The numbers of those with a recalled block, and the turn that made it; 0 if that is not known.
        is_folded: Whether the rows are loaded only when a person asks for them.
        rows: The messages, unless they are folded.
        left: The messages that left.
    """

    kind: Literal["same", "new", "left"]
    start: int = 0
    stop: int = 0
    count: int = 0
    tokens: int = 0
    gone: int = 0
    verb: str = "left"
    pruned: tuple[int, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    is_folded: bool = False
    rows: tuple[WindowRow, ...] = ()
    left: tuple[LeftRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WindowView:
    """The window of a turn, to be shown message by message.

    Attributes:
        items: Its messages.
        before: The window of the turn before; None if it is not stored.
        gaps: What left earlier, by the place in the window before which it was.
        pruned: The messages that are pruned.
        kinds: How messages left in this turn, by number.
        block_turns: The turn that made the block of a message, by the number of the message.
    """

    items: tuple[Item, ...]
    before: tuple[Item, ...] | None
    gaps: Mapping[int, tuple[GapView, ...]]
    pruned: Mapping[int, PastEdit]
    kinds: Mapping[int, str]
    block_turns: Mapping[int, int]

    def rows(self, start: int, stop: int) -> tuple[WindowRow, ...]:
        """Return the rows of a part of the window."""
        known = {item.id: item for item in self.before or ()}
        rows: list[WindowRow] = []
        for place in range(max(0, start), min(stop, len(self.items))):
            item = self.items[place]
            mark = ""
            if self.before is not None:
                mark = _mark(item, known.get(item.id))
            rows.append(
                WindowRow(
                    message=self._view(item),
                    blocks=_view_blocks(item),
                    gaps=self.gaps.get(place, ()),
                    mark=mark,
                )
            )
        return tuple(rows)

    def _view(self, item: Item) -> MessageView:
        state = {"summary": "summary", "recall": "recalled", "overview": "recalled"}.get(item.kind, "")
        reason = ""
        if item.id in self.pruned:
            edit = self.pruned[item.id].edit
            state = "pruned"
            reason = edit.reason if edit is not None else ""
        return MessageView(
            id=item.id,
            role=item.message.name or item.message.role,
            time=item.message.timestamp or 0,
            parts=tuple(map(view_part, item.message.parts)),
            state=state,
            reason=reason,
            tokens=item.total,
            pinned=item.pinned,
            kind=item.kind,
            model=item.message.model or "",
        )

    def stretches(self, *, unfolded: Iterable[int] = ()) -> list[Stretch]:
        """Return the window in stretches; those that begin at a place of `unfolded` are not folded."""
        open_at = set(unfolded)
        found: list[Stretch] = []
        for kind, left, start, stop in self._compare():
            if left:
                found.append(self._make_left(left))
            if stop > start:
                found.append(self._make_stretch(kind, start, stop, is_open=start in open_at))
        return found

    def _make_stretch(self, kind: Literal["same", "new"], start: int, stop: int, *, is_open: bool) -> Stretch:
        count = stop - start
        is_folded = not is_open and (count > MAX_OPEN if kind == "new" else count >= MIN_FOLDED)
        items = self.items[start:stop]
        gaps: list[GapView] = []
        for place in range(start, stop):
            gaps += self.gaps.get(place, ())
        return Stretch(
            kind=kind,
            start=start,
            stop=stop,
            count=count,
            tokens=sum(item.total for item in items),
            gone=sum(gap.messages for gap in gaps),
            verb=_find_verb(gap.kind for gap in gaps),
            pruned=tuple(item.id for item in items if item.id in self.pruned),
            blocks=tuple((item.id, self.block_turns.get(item.id, 0)) for item in items if item.block is not None),
            is_folded=is_folded,
            rows=() if is_folded else self.rows(start, stop),
        )

    def _make_left(self, items: Sequence[Item]) -> Stretch:
        left: list[LeftRow] = []
        for item in items[:MAX_LISTED]:
            left.append(
                LeftRow(
                    id=item.id,
                    role=item.message.name or item.message.role,
                    kind=self.kinds.get(item.id, "replaced"),
                    words=shorten_words(item.message.whole_text),
                    tokens=item.total,
                )
            )
        return Stretch(
            kind="left",
            count=len(items),
            tokens=sum(item.total for item in items),
            verb=_find_verb(row.kind for row in left),
            left=tuple(left),
        )

    def _compare(self) -> list[tuple[Literal["same", "new"], list[Item], int, int]]:
        """Return stretches of the window: whether they are new, what left before them, and their places."""
        if self.before is None:
            return [("new", [], 0, len(self.items))]
        old = [(item.id, item.sent.digest) for item in self.before]
        new = [(item.id, item.sent.digest) for item in self.items]
        here = {item.id for item in self.items if item.id}
        first = 0  # most windows only grow at their end
        while first < min(len(old), len(new)) and old[first] == new[first]:
            first += 1
        found: list[tuple[Literal["same", "new"], list[Item], int, int]] = []
        if first:
            found.append(("same", [], 0, first))
        matcher = SequenceMatcher(None, old[first:], new[first:], autojunk=False)
        for kind, low, high, start, stop in matcher.get_opcodes():
            left = [] if kind == "equal" else list(self.before[first + low : first + high])
            left = [item for item in left if item.id not in here]
            found.append(("same" if kind == "equal" else "new", left, first + start, first + stop))
        return found


def _find_verb(kinds: Iterable[str]) -> str:
    """Return the word for how messages left; "left" if they did in more than one way."""
    found = set(kinds)
    if len(found) != 1:
        return "left"
    kind = found.pop()
    return KIND_NAMES.get(kind, kind)


def _mark(item: Item, before: Item | None) -> str:
    """Say what is different about a message since the turn before."""
    if before is None:
        return "new"
    if item.sent.digest == before.sent.digest:
        return ""
    if item.message.digest != before.message.digest:
        return "changed" if item.kind == "message" else "new"
    if len(item.blocks) < len(before.blocks):
        return "block removed"
    return "block added"


def group_repairs(repairs: Iterable[str], *, provider: str) -> list[RepairGroup]:
    """Group the repairs of a report that are alike, with the product's name in place of that of the format."""
    found: dict[str, list[int]] = {}
    for repair in repairs:
        match = _REPAIR.fullmatch(repair)
        what = match["what"] if match is not None else repair
        places = found.setdefault(what.replace(f" {provider} ", f" {name_product(provider)} "), [])
        if match is not None:
            places.append(int(match["place"]))
    return [RepairGroup(what=what, places=tuple(places)) for what, places in found.items()]


def name_product(form: str) -> str:
    """Return the name of the product that has a wire format."""
    return PRODUCTS.get(form, form)


def shorten_words(text: str) -> str:
    """Return the first words of a text on one line."""
    words = " ".join(text[: 4 * MAX_WORDS].split())
    return words if len(words) <= MAX_WORDS else f"{words[:MAX_WORDS]}…"


def _view_blocks(item: Item) -> tuple[BlockView, ...]:
    blocks: list[BlockView] = []
    if item.overview is not None:
        blocks.append(BlockView(title="Overview of the project", text=item.overview.text, tokens=item.overview.tokens))
    if item.block is not None:
        blocks.append(BlockView(title="Recalled from memory", text=item.block.text, tokens=item.block.tokens))
    return tuple(blocks)


def view_window(past: Past, turn: PastTurn, window: Window, before: tuple[Item, ...] | None) -> WindowView:
    """Prepare the window of a turn to be shown next to the messages of the one before it."""
    stop = turn.source.edits[1]
    cuts = past.cuts_before(stop)
    present = {item.id for item in window.items}
    left_now = {item.id for item in before or ()} - present
    history = past.histories.read(turn.key)
    kinds: dict[int, str] = {}
    for number in left_now:  # listed with its words, and not as a gap
        cut = cuts.pop(number, None)
        edit = past.by_number[cut].edit if cut is not None else None
        if edit is not None:
            kinds[number] = edit.kind
    gaps: dict[int, tuple[GapView, ...]] = {}
    begin = 0
    for place, item in enumerate(window.items):
        if item.kind != "message" or not item.id:
            continue
        try:
            end = history.index(item.id, begin)
        except ValueError:  # a message that another branch has
            continue
        missing = Counter(map(cuts.get, history[begin:end]))  # without a loop: there may be 100,000 messages
        counts = {cut: count for cut, count in missing.items() if cut is not None}
        if counts:
            gaps[place] = _group_gaps(past, counts)
        begin = end + 1
    return WindowView(
        items=window.items,
        before=before,
        gaps=gaps,
        pruned=past.pruned_before(stop),
        kinds=kinds,
        block_turns=_find_block_turns(past, stop),
    )


def _find_block_turns(past: Past, stop: int) -> dict[int, int]:
    """Return the turn that made the last block of each message, of the edits before one."""
    turns: dict[int, int] = {}
    for one in past.edits:
        if one.edit is None or one.number >= stop:
            continue
        change = one.edit.change
        owner = past.find_turn_of(one.number)
        if isinstance(change, Recalled) and change.into is not None and owner is not None:
            turns[change.into] = owner.number
    return turns


def _group_gaps(past: Past, counts: Mapping[int, int]) -> tuple[GapView, ...]:
    """Group what left at one place by kind: over a long session many cuts leave one gap. `counts` are by edit."""
    by_kind: dict[str, list[int]] = {}
    for number in sorted(counts):
        edit = past.by_number[number].edit
        if edit is not None:
            by_kind.setdefault(edit.kind, []).append(number)
    gaps: list[GapView] = []
    for kind, numbers in by_kind.items():
        first = past.find_turn_of(numbers[0])
        last = past.find_turn_of(numbers[-1])
        gaps.append(
            GapView(
                kind=kind,
                messages=sum(counts[number] for number in numbers),
                first_turn=first.number if first is not None else 0,
                last_turn=last.number if last is not None else 0,
                edit=numbers[-1],
            )
        )
    return tuple(gaps)
