"""The past of a session: its recorded turns and edits, and what has become of its messages."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Final

from holdfast.cache import LruCache
from holdfast.context.edits import Edit, Forgotten, Item, Pinned, Restored
from holdfast.errors import InputError
from holdfast.memory.archive import unwrap
from holdfast.report import ContextReport, Window
from holdfast.session import Session
from holdfast.store.base import Record, Scope, Select, Store
from holdfast.store.figures import TURN
from holdfast.timeline import (
    CUT_KINDS,
    WHOLE_TURNS,
    WINDOW,
    Histories,
    PastEdit,
    PastTurn,
    read_edits,
    read_turns,
    remake_items,
    remake_window,
)

MAX_SESSIONS: Final = 4
"""Sessions whose turns and edits are kept."""
MAX_SEARCHED: Final = 64
"""Sessions whose first turns of messages are kept for searches."""
MAX_NEWEST: Final = WHOLE_TURNS + 100
"""Turns that are read for the first page of a session, the newest.

A turn with its whole history is among them before the last two, and some turns may have been recorded twice.
"""
MAX_NEWEST_SEARCHED: Final = 2_000
"""Turns of a session among which a search looks for the first one that sent a message, the newest."""
LAST_MESSAGES: Final = 40
"""Messages among which the question of a turn is looked for, if its report does not name it."""

KIND_NAMES: Final = {
    "pruned": "pruned",
    "trimmed": "cut",
    "compacted": "compacted",
    "recalled": "recalled",
    "overview": "overview added",
}
"""The words of the pages for kinds of changes; other kinds are words already."""


@dataclass(frozen=True, kw_only=True, eq=False)  # no slots: what was asked for once is kept
class Past:
    """The recorded turns and edits of a session, oldest first.

    Attributes:
        scope: The session.
        turns: Its turns; only the newest unless it `is_whole`.
        around: Earlier turns, around one that is looked at. Between them and `turns`, some may be missing.
        edits: All of its edits.
        is_whole: Whether all turns were read.
    """

    scope: Scope
    turns: tuple[PastTurn, ...] = ()
    around: tuple[PastTurn, ...] = ()
    edits: tuple[PastEdit, ...] = ()
    is_whole: bool = True

    @cached_property
    def _known(self) -> tuple[PastTurn, ...]:
        return (*self.around, *self.turns)

    @cached_property
    def _stops(self) -> list[int]:
        return [turn.source.edits[1] for turn in self._known]

    @cached_property
    def histories(self) -> Histories:
        """The histories of the turns."""
        return Histories(self._known)

    @cached_property
    def by_number(self) -> dict[int, PastEdit]:
        """The edits by number."""
        return {past.number: past for past in self.edits}

    @cached_property
    def first_turns(self) -> dict[int, int]:
        """The number of the turn in which each message was sent first, of the turns that were read.

        A client may send again what it had taken back. So if earlier turns were not read, a message that is older than
        one of an earlier turn may have been sent before, and is not among them.
        """
        found: dict[int, int] = {}
        newest = 0
        for place, turn in enumerate(self._known):
            sent = (*turn.source.system, *turn.source.added)
            if self.is_whole or turn.number == 1:
                new = [number for number in sent if number not in found]
            elif place and turn.source.base:
                new = [number for number in sent if number not in found and number > newest]
            else:
                new = []  # of a whole history, or the first turn that was read: nothing is known of those before it
            found |= dict.fromkeys(new, turn.number)
            newest = max(newest, max(sent, default=0))
        return found

    @cached_property
    def compactions(self) -> int:
        """How often the conversation was compacted. The edits of one compaction have one time."""
        return len({past.time for past in self.edits if past.edit is not None and past.edit.kind == "compacted"})

    @cached_property
    def last_cut_turn(self) -> int:
        """The number of the turn with the last cut that can be undone, as `Session.undo_trim` does it; 0 for none."""
        cuts: dict[int, set[int]] = {}
        for past in self.edits:
            if past.edit is None:
                continue
            match past.edit.kind:
                case "trimmed":
                    cuts[past.number] = {*past.edit.ids}
                case "restored":
                    cuts = {number: ids.difference(past.edit.ids) for number, ids in cuts.items()}
                case "compacted":
                    cuts = {}
                case _:
                    pass
        last = max((number for number, ids in cuts.items() if ids), default=-1)
        turn = self.find_turn_of(last) if last >= 0 else None
        return turn.number if turn is not None else 0

    @property
    def last(self) -> int:
        """The number of the last turn; 0 if there is none."""
        return self.turns[-1].number if self.turns else 0

    def find_turn(self, number: int) -> PastTurn | None:
        """Return the turn with a number; of two processes at the same turn, the newest."""
        for turn in reversed(self._known):
            if turn.number == number:
                return turn
        return None

    def has(self, *, turn: int = 0, message: int = 0) -> bool:
        """Return whether a turn and a message can be shown.

        The windows of the turn (0 is the last one) and of the one before can be made again, and the turn in which the
        message was sent first was read.
        """
        if self.is_whole:
            return True
        if message and message not in self.first_turns:
            return False
        number = turn or self.last
        for wanted in range(max(1, number - 1), number + 1):
            found = self.find_turn(wanted)
            if found is None or not self.histories.has_all_of(found.key):
                return False
        return True

    def find_turn_of(self, edit: int) -> PastTurn | None:
        """Return the turn that made an edit; for a compaction, the turn after it. None if it was not read."""
        place = bisect_right(self._stops, edit)
        if place == len(self._known):
            return None
        turn = self._known[place]
        if not self.is_whole and edit < turn.source.edits[0]:
            before = self._known[place - 1].number if place else 0
            if before + 1 < turn.number:  # turns in between were not read, and one of them may have made it
                return None
        return turn

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

    def cuts_before(self, stop: int) -> dict[int, int]:
        """Return, by message, the number of the edit by which it left and stayed out, of the edits before one."""
        gone: dict[int, int] = {}
        for past in self.edits:
            if past.edit is None or past.number >= stop:
                continue
            if past.edit.kind in {"trimmed", "compacted"}:
                for number in past.edit.ids:
                    gone[number] = past.number
            elif brings_back(past.edit):
                for number in past.edit.ids:
                    gone.pop(number, None)
        return gone

    def pruned_before(self, stop: int) -> dict[int, PastEdit]:
        """Return, by message, the last edit that pruned it, of the edits before one."""
        pruned: dict[int, PastEdit] = {}
        for past in self.edits:
            if past.edit is not None and past.number < stop and past.edit.kind == "pruned":
                pruned |= dict.fromkeys(past.edit.ids, past)
        return pruned


def _read_number(record: Record) -> int:
    """Return the number of the turn of a record."""
    return int(record.key[:8])


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

    def __init__(self, store: Store, *, max_newest: int = MAX_NEWEST) -> None:
        self._store = store
        self._max_newest = max_newest
        self._lock = Lock()
        self._known: LruCache[Scope, Past] = LruCache(MAX_SESSIONS)

    def read(self, scope: Scope) -> Past:
        """Return the past of a session."""
        with self._lock:  # pages are made in threads
            return self._complete(self._read_new(scope))

    def read_some(self, scope: Scope, *, turn: int = 0, message: int = 0) -> Past:
        """Return the past of a session with at least its newest turns, and those around a turn and around a message.

        What the windows of that turn, by default the last one, and of the one before consist of is known, and the
        turn in which the message was sent first.
        """
        with self._lock:
            known = self._read_new(scope)
            if known.has(turn=turn, message=message):
                return known
            wanted = turn or known.last
            if message and not turn:
                wanted = self._find_first_turn(known, message)
            some = self._add_around(known, wanted)
            if some.has(turn=turn, message=message):
                return some
            return self._complete(known)

    def _read_new(self, scope: Scope) -> Past:
        """Read what is new in a session, or its newest turns if nothing is known that still holds."""
        known = self._known.get(scope)
        if known is not None:
            known = self._update(known)
        if known is None:
            turns = tuple(read_turns(self._store, scope, newest=True, limit=self._max_newest))
            edits = tuple(read_edits(self._store, scope))
            known = Past(scope=scope, turns=turns, edits=edits, is_whole=len(turns) < self._max_newest)
        self._known[scope] = known
        return known

    def _add_around(self, known: Past, turn: int) -> Past:
        """Add the turns that the windows of an early turn and of the one before are made of, and some after it.

        They are not kept: a thread reads all of them after the first page of a session.
        """
        first = (turn - 1) // WHOLE_TURNS * WHOLE_TURNS  # which recorded its whole history
        stop = known.turns[0].record
        start = self._find_last(known.scope, lambda record: _read_number(record) < first, stop=stop)
        around = read_turns(self._store, known.scope, after=start, before=stop, limit=self._max_newest)
        return replace(known, around=tuple(around))

    def _find_first_turn(self, known: Past, message: int) -> int:
        """Return the number of the first turn that may have sent a message, of those before the known ones."""

        def is_before(record: Record) -> bool:
            return max(record.data["added"], default=0) < message

        stop = known.turns[0].record
        last = self._find_last(known.scope, is_before, stop=stop)
        following = Select(scope=known.scope, after=last, before=stop, limit=1)
        records = self._store.read_records(following, kind=WINDOW)
        return _read_number(records[0]) if records else 1

    def _find_last(self, scope: Scope, is_before: Callable[[Record], bool], *, stop: int) -> int:
        """Return the number of the last record of a turn that is before something; 0 if there is none.

        Only records before `stop` count, and each of them is before all that are not.
        """
        low = 0
        high = stop
        while low < high:  # the records of a session lie apart, among those of others
            middle = (low + high) // 2
            following = Select(scope=scope, after=middle, before=stop, limit=1)
            records = self._store.read_records(following, kind=WINDOW)
            if records and is_before(records[0]):
                low = records[0].id
            else:
                high = middle
        return low

    def _complete(self, known: Past) -> Past:
        """Read the turns before those that are known."""
        if known.is_whole:
            return known
        earlier = read_turns(self._store, known.scope, before=known.turns[0].record)
        known = replace(known, turns=(*earlier, *known.turns), is_whole=True)
        self._known[known.scope] = known
        return known

    def _update(self, known: Past) -> Past | None:
        """Add what is new; None if what is known no longer holds."""
        scope = known.scope
        last_turn = known.turns[-1].record if known.turns else 0
        last_edit = known.edits[-1].record if known.edits else 0
        turns = read_turns(self._store, scope, after=last_turn)
        edits = read_edits(self._store, scope, after=last_edit)
        if known.turns and self._is_outdated(known, turns, edits):
            return None
        if turns or edits:
            known = replace(known, turns=(*known.turns, *turns), edits=(*known.edits, *edits))
        return known

    def _is_outdated(self, known: Past, turns: Sequence[PastTurn], edits: Sequence[PastEdit]) -> bool:
        """Return whether something was forgotten: then records that were read before are changed or gone."""
        if any(past.edit is not None and isinstance(past.edit.change, Forgotten) for past in edits):
            return True
        if turns:
            return turns[0].number <= known.last
        newest = self._store.read_records(Select(scope=known.scope, newest=True, limit=1), kind=WINDOW)
        return not newest or newest[-1].id != known.turns[-1].record


class FirstTurns:
    """The turns in which messages were sent first, kept for the sessions that were asked for last."""

    def __init__(self, store: Store, *, max_newest: int = MAX_NEWEST_SEARCHED) -> None:
        self._store = store
        self._max_newest = max_newest
        self._lock = Lock()
        self._known: LruCache[tuple[Scope, int], dict[int, int]] = LruCache(MAX_SEARCHED)

    def find(self, messages: Sequence[tuple[Scope, int]], *, seconds: float) -> dict[tuple[Scope, int], int]:
        """Return the turns of messages, as many as can be read in some seconds, of the newest turns of each session."""
        end = time.monotonic() + seconds
        turns: dict[Scope, dict[int, int]] = {}
        for scope in dict.fromkeys(scope for scope, _ in messages):
            if time.monotonic() > end:
                break
            turns[scope] = self._read(scope)
        found = {(scope, message): turns.get(scope, {}).get(message, 0) for scope, message in messages}
        return {key: turn for key, turn in found.items() if turn}

    def _read(self, scope: Scope) -> dict[int, int]:
        newest = self._store.read_records(Select(scope=scope, newest=True, limit=1), kind=WINDOW)
        if not newest:
            return {}
        key = (scope, newest[0].id)
        with self._lock:
            known = self._known.get(key)
        if known is None:
            turns = tuple(read_turns(self._store, scope, newest=True, limit=self._max_newest))
            known = Past(scope=scope, turns=turns, is_whole=len(turns) < self._max_newest).first_turns
            with self._lock:
                self._known[key] = known
        return known


def make_window(session: Session, past: Past, turn: PastTurn) -> Window:
    """Make the window of a past turn again.

    Raises:
        InputError: It is forgotten.
    """
    resources = session._resources
    history = past.histories.read(turn.key)
    store = resources.memory.store
    return remake_window(store, session.scope, turn, history=history, edits=past.edits, count=resources.count)


def make_items_before(session: Session, past: Past, turn: PastTurn) -> tuple[Item, ...] | None:
    """Make the messages of the window of the turn before again; None if there is none, or they are forgotten.

    They are made before the window of the turn itself, whose history continues theirs.
    """
    before = past.find_turn(turn.number - 1)
    if before is None:
        return None
    resources = session._resources
    history = past.histories.read(before.key)
    store = resources.memory.store
    try:
        return remake_items(store, session.scope, before, history=history, edits=past.edits, count=resources.count)
    except InputError:
        return None


def read_report(store: Store, turn: PastTurn, scope: Scope) -> ContextReport | None:
    """Read the report of a turn; None if it is forgotten."""
    for record in store.read_records(Select(scope=scope), kind=TURN, keys=[turn.key]):
        return ContextReport.from_json(record.data)
    return None


def read_question(store: Store, past: Past, turn: PastTurn, report: ContextReport | None) -> tuple[str, ...]:
    """Return the words of the question of a turn, newest last; nothing if they are not archived."""
    numbers = report.question if report is not None else ()
    if not numbers:  # of a report by an earlier version
        numbers = tuple(past.histories.read(turn.key)[-LAST_MESSAGES:])
    rows = store.read_messages(Select(scope=past.scope, ids=numbers))
    texts = [unwrap(row.message.text) for row in rows if row.message.role == "user" and row.message.text.strip()]
    if report is not None and report.question:
        return tuple(texts)
    return tuple(texts[-1:])


def find_states(past: Past, turn: PastTurn, window: Window, numbers: Collection[int]) -> dict[int, tuple[str, str]]:
    """Return what had become of messages in a turn, and why. Those that were sent later have no state in it."""
    wanted = set(numbers)
    stop = turn.source.edits[1]
    states: dict[int, tuple[str, str]] = {}
    for past_edit in past.edits:
        edit = past_edit.edit
        if edit is None or past_edit.number >= stop or wanted.isdisjoint(edit.ids):
            continue
        if edit.kind in CUT_KINDS:
            states |= dict.fromkeys(wanted.intersection(edit.ids), (edit.kind, edit.reason))
    shown = {item.id for item in window.items}
    quoted = {hit.message for hit in window.report.recalled}
    for number in wanted & (shown | quoted):
        state, reason = states.get(number, ("", ""))
        if number in shown:
            states[number] = (state, reason) if state == "pruned" else ("in window", "")
        else:
            states[number] = (
                "recalled",
                f"left the window ({KIND_NAMES.get(state, 'another session')}), quoted in the block of this turn",
            )
    return states
