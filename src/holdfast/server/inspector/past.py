"""The past of a session: what each turn sent, what left the window and why, and where it came back."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from threading import Lock
from typing import Final, Literal

from holdfast.cache import LruCache
from holdfast.context.edits import Edit, Forgotten, Item, Pinned, Pruned, Recalled, Relevance, Restored, Trimmed
from holdfast.errors import InputError
from holdfast.memory.archive import unwrap
from holdfast.memory.query import find_subject
from holdfast.report import ContextReport, Window
from holdfast.search.fuse import Parts
from holdfast.search.relevance import EAGERNESS
from holdfast.server.inspector.data import EVERYTHING, MessageView, view_part
from holdfast.session import Session
from holdfast.settings import Settings
from holdfast.store.base import FactRow, Scope, Select, Store
from holdfast.store.figures import TURN
from holdfast.timeline import CUT_KINDS, PastEdit, PastTurn, list_history, read_edits, read_turns, rebuild_window
from holdfast.tokens import count_message

MAX_SESSIONS: Final = 16
"""Sessions whose turns and edits are kept."""
MIN_FOLDED: Final = 4
"""Unchanged messages in a row from which on they are folded."""
MAX_OPEN: Final = 60
"""Messages in a row that are shown unfolded."""
MAX_LISTED: Final = 200
"""Messages that left in one turn that are listed."""
MAX_RETURNS: Final = 50
"""Turns in which a message came back that are listed."""
MAX_PASSAGE: Final = 1_200
"""Characters of a passage that just missed."""
MAX_WORDS: Final = 160
"""Characters of a message in a list."""


# --- turns and edits ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True)  # no slots: `_stops` is kept once it was asked for
class Past:
    """The recorded turns and edits of a session, oldest first."""

    scope: Scope
    turns: tuple[PastTurn, ...] = ()
    edits: tuple[PastEdit, ...] = ()

    @cached_property
    def _stops(self) -> list[int]:
        return [turn.source.edits[1] for turn in self.turns]

    @property
    def last(self) -> int:
        """The number of the last turn; 0 if there is none."""
        return self.turns[-1].number if self.turns else 0

    def find_turn(self, number: int) -> PastTurn | None:
        """Return the turn with a number; of two processes at the same turn, the newest."""
        for turn in reversed(self.turns):
            if turn.number == number:
                return turn
        return None

    def find_turn_of(self, edit: int) -> PastTurn | None:
        """Return the turn that made an edit; for a compaction, the turn after it."""
        place = bisect_right(self._stops, edit)
        return self.turns[place] if place < len(self.turns) else None

    def edits_of(self, turn: PastTurn) -> list[PastEdit]:
        """Return the edits that a turn made, and those of a compaction before it."""
        stop = turn.source.edits[1]
        found: list[PastEdit] = []
        for past in reversed(self.edits):
            if past.number < 0 or past.number >= stop or past.edit is None:
                continue
            owner = self.find_turn_of(past.number)
            if owner is None or owner.key != turn.key:
                break
            found.append(past)
        return found[::-1]

    def cuts_before(self, stop: int) -> dict[int, PastEdit]:
        """Return, by message, the edit by which it left the window and did not come back, of the edits before one."""
        gone: dict[int, PastEdit] = {}
        for past in self.edits:
            if past.edit is None or past.number >= stop:
                continue
            if past.edit.kind in {"trimmed", "compacted"}:
                gone |= dict.fromkeys(past.edit.ids, past)
            elif brings_back(past.edit):
                for number in past.edit.ids:
                    gone.pop(number, None)
        return gone

    def shortened_before(self, stop: int) -> dict[int, PastEdit]:
        """Return, by message, the last edit that shortened it, of the edits before one."""
        shortened: dict[int, PastEdit] = {}
        for past in self.edits:
            if past.edit is not None and past.number < stop and past.edit.kind == "pruned":
                shortened |= dict.fromkeys(past.edit.ids, past)
        return shortened


def brings_back(edit: Edit) -> bool:
    """Return whether an edit brings messages back into the window."""
    match edit.change:
        case Restored():
            return True
        case Pinned(on=on):
            return on
        case _:
            return False


class Pasts:
    """The past of the sessions that were looked at last. Only what is new is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = Lock()
        self._known: LruCache[Scope, Past] = LruCache(MAX_SESSIONS)

    def read(self, scope: Scope) -> Past:
        """Return the past of a session."""
        with self._lock:  # pages are made in threads
            past = self._update(self._known.get(scope) or Past(scope=scope))
            self._known[scope] = past
            return past

    def _update(self, known: Past) -> Past:
        scope = known.scope
        last_turn = known.turns[-1].record if known.turns else 0
        last_edit = known.edits[-1].record if known.edits else 0
        turns = read_turns(self._store, scope, after=last_turn)
        edits = read_edits(self._store, scope, after=last_edit)
        if known.turns and self._is_outdated(known, turns, edits):
            return self._update(Past(scope=scope))
        if not turns and not edits:
            return known
        return Past(scope=scope, turns=(*known.turns, *turns), edits=(*known.edits, *edits))

    def _is_outdated(self, known: Past, turns: Sequence[PastTurn], edits: Sequence[PastEdit]) -> bool:
        """Return whether something was forgotten: then records that were read before are changed or gone."""
        if any(past.edit is not None and isinstance(past.edit.change, Forgotten) for past in edits):
            return True
        if turns:
            return turns[0].number <= known.last
        newest = self._store.read_records(Select(scope=known.scope, newest=True, limit=1), kind="window")
        return not newest or newest[-1].id != known.turns[-1].record


def make_window(session: Session, past: Past, number: int) -> Window:
    """Make the window of a past turn again.

    Raises:
        InputError: There is no such turn, or its window was not recorded or is forgotten.
    """
    resources = session._resources
    return rebuild_window(
        resources.memory.store, session.scope, number, count=resources.count, turns=past.turns, edits=past.edits
    )


# --- the window of a turn ----------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockView:
    """Text that memory put into a window: its title, the text and its tokens."""

    title: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GapView:
    """Messages that left the window earlier, at their place: by which edit, in which turn, and how many."""

    kind: str
    edit: int
    turn: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRow:
    """A message of a window as the model got it, what memory added to it, and what is missing before it."""

    message: MessageView
    blocks: tuple[BlockView, ...] = ()
    gaps: tuple[GapView, ...] = ()
    mark: str = ""


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
        shortened: The messages that are shortened.
        known: The numbers of the messages that were in the window before.
    """

    items: tuple[Item, ...]
    before: tuple[Item, ...] | None
    gaps: Mapping[int, tuple[GapView, ...]]
    shortened: Mapping[int, PastEdit]
    cuts: Mapping[int, PastEdit]

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
        if item.id in self.shortened:
            edit = self.shortened[item.id].edit
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
        gone = 0
        for place in range(start, stop):
            gone += sum(gap.messages for gap in self.gaps.get(place, ()))
        return Stretch(
            kind=kind,
            start=start,
            stop=stop,
            count=count,
            tokens=sum(item.total for item in self.items[start:stop]),
            gone=gone,
            is_folded=is_folded,
            rows=() if is_folded else self.rows(start, stop),
        )

    def _make_left(self, items: Sequence[Item]) -> Stretch:
        left: list[LeftRow] = []
        for item in items[:MAX_LISTED]:
            cut = self.cuts.get(item.id)
            left.append(
                LeftRow(
                    id=item.id,
                    role=item.message.name or item.message.role,
                    kind=cut.edit.kind if cut is not None and cut.edit is not None else "replaced",
                    words=shorten_words(item.message.whole_text),
                    tokens=item.total,
                )
            )
        return Stretch(kind="left", count=len(items), tokens=sum(item.total for item in items), left=tuple(left))

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


def _mark(item: Item, before: Item | None) -> str:
    """Say what is different about a message since the turn before."""
    if before is None:
        return "new"
    if item.sent.digest == before.sent.digest:
        return ""
    if item.message.digest != before.message.digest:
        return "shortened now" if item.kind == "message" else "new"
    if len(item.blocks) < len(before.blocks):
        return "its block left"
    return "block added"


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


def view_window(past: Past, turn: PastTurn, window: Window, before: Window | None) -> WindowView:
    """Prepare the window of a turn to be shown next to the one before it."""
    stop = turn.source.edits[1]
    cuts = past.cuts_before(stop)
    present = {item.id for item in window.items}
    shown_before = {item.id for item in before.items} if before is not None else set()
    missing: dict[int, list[PastEdit]] = {}
    place = 0
    places = {item.id: index for index, item in enumerate(window.items) if item.id}
    for number in list_history(past.turns, turn.key):
        if number in present:
            place = places[number] + 1
        elif number in cuts and number not in shown_before:  # what left in this turn is listed with its words
            missing.setdefault(place, []).append(cuts[number])
    gaps = {index: _group_gaps(past, edits) for index, edits in missing.items()}
    shortened = past.shortened_before(stop)
    return WindowView(
        items=window.items,
        before=before.items if before is not None else None,
        gaps=gaps,
        shortened=shortened,
        cuts=cuts,
    )


def _group_gaps(past: Past, edits: Iterable[PastEdit]) -> tuple[GapView, ...]:
    counts: dict[int, GapView] = {}
    for cut in edits:
        if cut.edit is None:
            continue
        known = counts.get(cut.number)
        if known is None:
            turn = past.find_turn_of(cut.number)
            number = turn.number if turn is not None else 0
            known = GapView(kind=cut.edit.kind, edit=cut.number, turn=number, messages=0)
        counts[cut.number] = replace(known, messages=known.messages + 1)
    return tuple(counts.values())


# --- changes, and why --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """Edits of one turn that are alike: their kind and reason, the messages, and their tokens before and after."""

    kind: str
    edits: tuple[int, ...]
    reason: str
    rule: str
    messages: tuple[int, ...]
    tokens_before: int
    tokens_after: int
    limit: int = 0
    relevance: Relevance | None = None

    @property
    def freed(self) -> int:
        """The tokens that they freed; negative if they added some."""
        return self.tokens_before - self.tokens_after


def list_changes(past: Past, turn: PastTurn, settings: Settings) -> list[ChangeView]:
    """Return what changed in a turn; edits that are alike are one change."""
    found: dict[tuple[str, str, str], ChangeView] = {}
    for one in past.edits_of(turn):
        edit = one.edit
        if edit is None:
            continue
        rule = explain_rule(edit, settings)
        key = (edit.kind, edit.reason, rule)
        known = found.get(key)
        if known is None:
            change = edit.change
            found[key] = ChangeView(
                kind=edit.kind,
                edits=(one.number,),
                reason=edit.reason,
                rule=rule,
                messages=edit.ids,
                tokens_before=edit.tokens_before,
                tokens_after=edit.tokens_after,
                limit=change.limit if isinstance(change, Trimmed) else 0,
                relevance=change.relevance if isinstance(change, Trimmed) else None,
            )
        else:
            found[key] = replace(
                known,
                edits=(*known.edits, one.number),
                messages=(*known.messages, *edit.ids),
                tokens_before=known.tokens_before + edit.tokens_before,
                tokens_after=known.tokens_after + edit.tokens_after,
            )
    return list(found.values())


_PRUNING_RULES: Final = {
    "adaptive": (
        "Tool results that are older than the last {keep} replies are shortened once the window is {soft:.0%} full,"
        ' if that frees at least 5 % of it (pruning.mode = "adaptive"). What was said is never shortened.'
    ),
    "cache-ttl": (
        "Tool results that are older than the last {keep} replies are shortened once the provider's cache has expired"
        ' and the window is {soft:.0%} full (pruning.mode = "cache-ttl").'
    ),
    "aggressive": 'All tool results older than the last {keep} replies are cleared (pruning.mode = "aggressive").',
    "the newest messages alone do not fit": (
        "The messages that must stay did not fit into the window, so their largest tool results were shortened,"
        " whatever their age."
    ),
}
_TRIM_RULES: Final = {
    "least to do with the question": (
        "The window was too full. The newest {recent} messages and the last request stay (trim.protected_recent);"
        " of the others, those left that share the least with the question, and of equal ones the oldest, until"
        " {step:.0%} of the window was free again (trim.hysteresis)."
    ),
    "oldest": (
        "The window was too full, and no message that could leave shares a word with the question. The newest {recent}"
        " messages and the last request stay (trim.protected_recent); of the others, the oldest left."
    ),
    "too large to stay next to what is new": (
        "The newest messages alone did not fit, so the largest of them left, except those that the next reply answers."
    ),
    "room for what is new": "The window was too full, and everything that could leave has left.",
    "earlier blocks made room for a new one": (
        "Blocks that were recalled earlier took the room for a new one. No message left."
    ),
}


def explain_rule(edit: Edit, settings: Settings) -> str:
    """Return the rule that decided an edit, with the settings that change it."""
    match edit.change:
        case Pruned(keep=keep):
            rule = _PRUNING_RULES.get(edit.reason, edit.reason)
            done = "shortened to its beginning, its end and lines about errors" if keep else "cleared"
            sentence = rule.format(keep=settings.pruning.keep_last_assistants, soft=settings.pruning.soft_trim_ratio)
            return f"{sentence} It was {done}; the archive has all of it."
        case Trimmed():
            rule = _TRIM_RULES.get(edit.reason, edit.reason)
            return rule.format(recent=settings.trim.protected_recent, step=settings.trim.hysteresis)
        case _:
            return {
                "compacted": (
                    "Older messages were replaced by a summary of them (compaction)."
                    " The archive has all of them, and each can be recalled."
                ),
                "recalled": "Memory matched the question and put what it found next to it.",
                "overview": "A session begins with an overview of its project, and gets a new one after a cut.",
                "restored": "A person or a program undid the last cut.",
                "pinned": "A person or a program pinned the message, or no longer does.",
            }.get(edit.kind, edit.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A change of one message: what happened to it, in which turn, and the message's own part in it.

    Attributes:
        change: The change, with all messages that it is about.
        turn: The number of the turn; 0 if no turn followed.
        time: When, in Unix milliseconds.
        total: The tokens of that turn's request, after the change.
        window: The tokens of the model's window.
        question: The question that the turn answered.
        score: The relevance of the message to it; None if relevance did not decide.
        tokens: The tokens of the message that were freed; None if it is not known.
    """

    change: ChangeView
    turn: int
    time: int
    total: int = 0
    window: int = 0
    question: tuple[str, ...] = ()
    score: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Return:
    """A turn in which a message that had left came back, and how."""

    turn: int
    time: int
    how: str
    question: tuple[str, ...] = ()


def read_report(store: Store, turn: PastTurn, scope: Scope) -> ContextReport | None:
    """Read the report of a turn; None if it is forgotten."""
    for record in store.read_records(Select(scope=scope), kind=TURN, keys=[turn.key]):
        return ContextReport.from_json(record.data)
    return None


def read_question(store: Store, past: Past, turn: PastTurn, report: ContextReport | None) -> tuple[str, ...]:
    """Return the words of the question of a turn, newest last; nothing if they are not archived."""
    numbers = report.question if report is not None else ()
    if not numbers:  # of a report by an earlier version
        numbers = tuple(list_history(past.turns, turn.key)[-40:])
    rows = store.read_messages(Select(scope=past.scope, ids=numbers))
    texts = [unwrap(row.message.text) for row in rows if row.message.role == "user" and row.message.text.strip()]
    if report is not None and report.question:
        return tuple(texts)
    return tuple(texts[-1:])


def list_events(session: Session, past: Past, message: int) -> list[Event]:
    """Return what happened to a message, oldest first: shortened, removed, summarised, brought back, pinned."""
    store = session._memory.store
    events: list[Event] = []
    for one in past.edits:
        edit = one.edit
        if edit is None or one.number < 0 or message not in edit.ids:
            continue
        if edit.kind not in CUT_KINDS and edit.kind not in {"restored", "pinned"}:
            continue
        turn = past.find_turn_of(one.number)
        change = ChangeView(
            kind=edit.kind,
            edits=(one.number,),
            reason=edit.reason,
            rule=explain_rule(edit, session.settings),
            messages=edit.ids,
            tokens_before=edit.tokens_before,
            tokens_after=edit.tokens_after,
        )
        if turn is None:
            events.append(Event(change=change, turn=0, time=one.time))
            continue
        for known in list_changes(past, turn, session.settings):
            if one.number in known.edits:
                change = known
        events.append(
            replace(
                make_event(store, past, change, turn),
                score=_find_score(change.relevance, message),
                tokens=edit.tokens_before - edit.tokens_after if edit.kind == "pruned" else None,
            )
        )
    return events


def make_event(store: Store, past: Past, change: ChangeView, turn: PastTurn) -> Event:
    """Return a change with the turn and the question that it belongs to."""
    report = read_report(store, turn, past.scope)
    return Event(
        change=change,
        turn=turn.number,
        time=turn.time,
        total=report.total_tokens if report is not None else sum(turn.source.sizes[:-2]),
        window=turn.source.window,
        question=read_question(store, past, turn, report),
    )


def _find_score(relevance: Relevance | None, message: int) -> float | None:
    if relevance is None:
        return None
    return dict(relevance.scores).get(message, 0.0)


def list_returns(session: Session, past: Past, message: int, *, after: int) -> list[Return]:
    """Return the turns in which a message came back, of those from `after` on, oldest first."""
    store = session._memory.store
    ways: dict[str, tuple[PastTurn, str]] = {}
    for turn in past.turns:
        if message in turn.source.quoted:
            ways[turn.key] = (turn, "quoted in the recalled block")
    for one in past.edits:
        edit = one.edit
        if edit is None or one.number < 0 or message not in edit.ids:
            continue
        how = {"recalled": "quoted in the recalled block", "overview": "quoted in the overview"}.get(edit.kind, "")
        if brings_back(edit):
            how = "back in the window: pinned" if edit.kind == "pinned" else "back in the window: the cut was undone"
        owner = past.find_turn_of(one.number)
        if how and owner is not None:
            ways.setdefault(owner.key, (owner, how))
    found: list[Return] = []
    for turn, how in sorted(ways.values(), key=lambda way: way[0].record):
        if turn.number < after or len(found) == MAX_RETURNS:
            continue
        question = read_question(store, past, turn, read_report(store, turn, past.scope))
        found.append(Return(turn=turn.number, time=turn.time, how=how, question=question))
    return found


def find_change(session: Session, past: Past, edit: int) -> Event:
    """Return the change that an edit is part of.

    Raises:
        InputError: There is no such edit.
    """
    turn = past.find_turn_of(edit)
    if turn is not None:
        for change in list_changes(past, turn, session.settings):
            if edit in change.edits:
                return make_event(session._memory.store, past, change, turn)
    raise InputError(f"there is no edit {edit} in session {session.id!r}")


def list_messages(session: Session, change: ChangeView) -> list[LeftRow]:
    """Return the first words of the messages of a change, those with the highest scores first."""
    store = session._memory.store
    scores = dict(change.relevance.scores) if change.relevance is not None else {}
    numbers = sorted(change.messages, key=lambda number: (-scores.get(number, 0.0), number))[:MAX_LISTED]
    rows = {row.id: row for row in store.read_messages(Select(scope=session.scope, ids=tuple(numbers)))}
    found: list[LeftRow] = []
    for number in numbers:
        row = rows.get(number)
        if row is None:
            found.append(LeftRow(id=number, role="", kind=change.kind, words="(forgotten)", tokens=0))
            continue
        found.append(
            LeftRow(
                id=number,
                role=row.message.name or row.message.role,
                kind=change.kind,
                words=shorten_words(row.message.whole_text),
                tokens=count_message(row.message, count=session._resources.count),
                score=_find_score(change.relevance, number),
            )
        )
    return found


# --- recall ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageView:
    """A passage in a block, or one that just missed it. `owner` is None if its message is forgotten."""

    message: int
    score: float
    speaker: str
    time: int
    text: str
    parts: Parts | None = None
    owner: Scope | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallView:
    """What memory was asked in a turn, how sure it was, and what came of it.

    Attributes:
        question: The words that memory was asked, newest last; empty if they are not archived.
        subject: The subject that was searched for instead, if the question asks for everything about it.
        confidence: How sure it was.
        low, high: The confidence up to which a match is weak, and from which on a block may have all of the cap.
        size, cap: The tokens that the confidence allowed, and those that the window allowed; 0 if not recorded.
        tokens: The tokens of the block.
        block: Its text; empty if there is none, or the caller placed it.
        facts: The facts in it.
        hits: The passages in it, best first.
        missed: The best passages that are not in it.
        reason: Why there is no block.
    """

    question: tuple[str, ...]
    subject: str
    confidence: float
    low: float
    high: float
    size: int
    cap: int
    tokens: int
    block: str
    facts: tuple[FactRow, ...]
    hits: tuple[PassageView, ...]
    missed: tuple[PassageView, ...]
    reason: str


def view_recall(session: Session, past: Past, turn: PastTurn, report: ContextReport) -> RecallView:
    """Return what memory was asked in a turn, and what came of it."""
    store = session._memory.store
    settings = session.settings.recall
    eagerness = EAGERNESS[settings.eagerness]
    question = read_question(store, past, turn, report)
    if report.recall_texts:
        question = question[-report.recall_texts :]
    block = ""
    for one in past.edits_of(turn):
        if one.edit is not None and isinstance(one.edit.change, Recalled):
            block = one.edit.change.text
    missed = [one.passage for one in report.missed]
    passages = {}
    if missed:
        select = Select(scope=session.scope, across=EVERYTHING, ids=tuple(missed))
        passages = {passage.number: passage for passage in store.read_passages(select)}
    numbers = {hit.message for hit in report.recalled} | {passage.message for passage in passages.values()}
    select = Select(scope=session.scope, across=EVERYTHING, ids=tuple(sorted(numbers)))
    owners = {row.id: row.scope for row in store.read_messages(select)} if numbers else {}
    hits: list[PassageView] = []
    for hit in sorted(report.recalled, key=lambda hit: -hit.score):
        hits.append(
            PassageView(
                message=hit.message,
                score=hit.score,
                speaker=hit.speaker,
                time=hit.time,
                text=hit.text,
                parts=hit.parts,
                owner=owners.get(hit.message),
            )
        )
    others: list[PassageView] = []
    for miss in report.missed:
        passage = passages.get(miss.passage)
        if passage is not None:
            others.append(
                PassageView(
                    message=miss.message,
                    score=miss.score,
                    speaker=passage.speaker,
                    time=passage.time,
                    text=passage.text[:MAX_PASSAGE],
                    owner=owners.get(miss.message),
                )
            )
    facts: dict[str, FactRow] = {}
    if report.recalled_facts:
        for row in store.read_facts(Select(scope=session.scope, across=EVERYTHING), keys=report.recalled_facts):
            facts[row.id] = row
    return RecallView(
        question=question,
        subject=find_subject(question[-1]) if question and report.recall_texts else "",
        confidence=report.recall_confidence,
        low=eagerness.low,
        high=eagerness.high,
        size=report.recall_size,
        cap=report.recall_cap,
        tokens=sum(change.tokens_after for change in report.changes if change.kind == "recalled"),
        block=block,
        facts=tuple(facts.values()),
        hits=tuple(hits),
        missed=tuple(others),
        reason=report.recall_reason,
    )
