"""The recorded edits of a session: which of them hold for a history, and the window that they make of it.

Any number of processes may record edits of one session. Edits are numbered without gaps, and each is stored under its
number: of two processes that record at the same time, one gets a conflict, reads the other's edit, and decides again.
Internal: `Session` is the public object, and its lock guards every use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from holdfast.context import edits as editing
from holdfast.context.edits import (
    EDIT,
    Edit,
    Forgotten,
    Item,
    OverviewAdded,
    Pinned,
    Recalled,
    branch_edits,
    drop_forgotten,
    find_forgotten,
)
from holdfast.errors import ConflictError, FormatError
from holdfast.store.base import Job, Record, Scope, Select, Store
from holdfast.store.forgetting_mark import read_mark

MAX_TRIES: Final = 8
"""Number of attempts to record edits while other processes record edits too."""
EDIT_BYTES: Final = 2_000
"""Bytes that an edit takes in memory, estimated; see tests/behaviour/test_kept_sessions.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The edits of other processes that a call read.

    Attributes:
        forgotten: The numbers of all messages that were forgotten, if there are new ones among them.
        warnings: One line for each edit that could not be read.
    """

    forgotten: frozenset[int] = frozenset()
    warnings: tuple[str, ...] = ()


NOTHING_FETCHED: Final = Fetched()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The result of recording edits.

    Attributes:
        numbers: The number of the first recorded edit, and of the first one after them; None after a conflict.
        conflict: The error of the store if another process recorded an edit meanwhile. Then nothing was recorded, and
            that edit is known.
        fetched: What was read from other processes.
    """

    numbers: tuple[int, int] | None
    conflict: ConflictError | None = None
    fetched: Fetched = NOTHING_FETCHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A window after the recorded edits, and the edits that hold for it."""

    items: tuple[Item, ...]
    edits: tuple[Edit, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _LastReplay:
    """The last window whose edits are all recorded, and what it was made of. The next replay continues it.

    Attributes:
        items: The window.
        limit: The limit that its edits were in force for.
        edits: The number of edits on its branch.
        system: The number of its system prompts.
        messages: The number of messages of its history.
        last: The last of these messages; None if there are none.
    """

    items: tuple[Item, ...]
    limit: int
    edits: int
    system: int
    messages: int
    last: Item | None

    def is_continued_by(self, messages: Sequence[Item], *, limit: int, edits: int) -> bool:
        """Return whether a replay only has to add the messages after those of this one.

        Three things make other items of the old messages: another limit, at which other edits hold; another edit on
        the branch; and another history. A history changes only at its end: `History` keeps the items before a change,
        and makes new ones after it. So if the last message is the same object, all before it are. Forgetting, which
        changes items in the middle, drops the whole replay.
        """
        if limit != self.limit or edits != self.edits or len(messages) < self.messages:
            return False
        return self.last is None or messages[self.messages - 1] is self.last


class EditLog:
    """Every recorded edit of a session that this process has read.

    Attributes:
        edits: The edits, in the order in which they were recorded.
        forgetting: The mark of the last time that something was forgotten before they were read.
    """

    def __init__(self, scope: Scope, store: Store) -> None:
        self.scope = scope
        self.store = store
        self.edits: list[Edit] = []
        self.forgetting = ""
        self._last_record = 0
        self._unreadable = 0
        self._last_replay: _LastReplay | None = None

    def copy(self) -> EditLog:
        """Return a log with a list of its own: a thread that hangs in the store may change the old one later."""
        copied = EditLog(self.scope, self.store)
        copied.edits = self.edits.copy()
        copied.forgetting = self.forgetting
        copied._last_record = self._last_record
        copied._unreadable = self._unreadable
        copied._last_replay = self._last_replay
        return copied

    @property
    def held_bytes(self) -> int:
        """The bytes that the log takes, estimated. Threads without the lock of the session may ask too."""
        return EDIT_BYTES * len(self.edits)

    # --- reading -----------------------------------------------------------------------

    def load(self) -> Fetched:
        """Read the edits that were recorded since the last call, by any process."""
        self.forgetting = read_mark(self.store, self.scope)
        edits, warnings = self._fetch()
        if not any(isinstance(edit.change, Forgotten) for edit in edits):
            self.edits += edits
            return Fetched(warnings=tuple(warnings))
        # Forgetting has changed or removed records of older edits, with the words in them: read all of them again.
        self.edits = []
        self._last_record = 0
        self._last_replay = None
        edits, more_warnings = self._fetch()
        self.edits += edits
        return Fetched(forgotten=find_forgotten(edits), warnings=(*warnings, *more_warnings))

    def _fetch(self) -> tuple[list[Edit], list[str]]:
        """Read the edits that are not known yet, and warn of those that cannot be read."""
        records = self.store.read_records(Select(scope=self.scope, after=self._last_record), kind=EDIT)
        edits: list[Edit] = []
        warnings: list[str] = []
        for record in records:
            self._last_record = record.id
            try:
                edits.append(editing.from_json(record.data))
            except FormatError as error:
                self._unreadable += 1
                warnings.append(f"edit {record.key} of the session is ignored: {error}")
        return edits, warnings

    # --- recording ---------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """The number of the next edit to record. Edits that cannot be read have their numbers too."""
        return len(self.edits) + self._unreadable

    def record(self, edits: Sequence[Edit], *, time: int, newest: int = 0, jobs: Sequence[Job] = ()) -> Recorded:
        """Record new edits, durably, before a window made with them is sent; with jobs that belong to them.

        An edit that names no anchors is anchored to `newest`, the newest message of the history it was made for: it
        does not hold for a client that goes back to before that message.
        """
        first = self.next_number
        if not edits:
            return Recorded(numbers=(first, first))
        rows = self._make_rows(edits, time=time, newest=newest)
        known = len(self.edits)
        is_forgotten = False
        try:
            with self.store.transaction():
                if any(isinstance(edit.change, Recalled | OverviewAdded) for edit in edits):
                    is_forgotten = read_mark(self.store, self.scope) != self.forgetting
                if not is_forgotten:
                    record_ids = self.store.add_records(rows)
                    self.store.add_jobs(jobs)
        except ConflictError as error:
            fetched = self.load()
            if len(self.edits) == known:
                # The rows in the way cannot be read. How many there are is not known, so each try skips twice as many.
                self._unreadable = 2 * self._unreadable + 1
            return Recorded(numbers=None, conflict=error, fetched=fetched)
        if is_forgotten:  # perhaps what a block of these edits quotes
            conflict = ConflictError("something was forgotten while the window was made", path=self.store.place)
            return Recorded(numbers=None, conflict=conflict, fetched=self.load())
        fetched = NOTHING_FETCHED
        if self._unreadable or any(isinstance(edit.change, Forgotten) for edit in edits):
            fetched = self.load()
        else:
            # Their numbers were free, so no other process has recorded an edit between the last load and these. They
            # are read from the rows, so that an edit is the same value here and in every other process.
            for row in rows:
                self.edits.append(editing.from_json(row.data))
            self._last_record = record_ids[-1]
        return Recorded(numbers=(first, first + len(edits)), fetched=fetched)

    def _make_rows(self, edits: Sequence[Edit], *, time: int, newest: int) -> list[Record]:
        rows: list[Record] = []
        for number, edit in enumerate(edits, start=self.next_number):
            if newest and not edit.anchors and not isinstance(edit.change, Pinned | Forgotten):
                edit = structs.replace(edit, anchors=(newest,))  # noqa: PLW2901 - the edit as it is stored
            data = editing.to_json(edit)
            # `is_new` makes the store refuse a key that exists: that is the conflict with another process.
            rows.append(Record(scope=self.scope, kind=EDIT, key=f"{number:08d}", data=data, time=time, is_new=True))
        return rows

    # --- replaying ---------------------------------------------------------------------

    def branch(self, messages: Sequence[Item]) -> list[Edit]:
        """Return the edits that belong to a history, without those of another branch of the conversation."""
        if not self.edits:
            return []
        return branch_edits(self.edits, {item.id for item in messages})

    def find_in_force(self, messages: Sequence[Item], *, limit: int) -> tuple[Edit, ...]:
        """Return the edits that hold for the next request with these messages."""
        return editing.in_force(self.branch(messages), limit=limit)

    def replay(self, system: Sequence[Item], messages: Sequence[Item], *, limit: int) -> Replay:
        """Apply the edits that hold for the next request to its history."""
        branch = self.branch(messages)
        standing = editing.in_force(branch, limit=limit)
        last = self._last_replay
        if last is None or not last.is_continued_by(messages, limit=limit, edits=len(branch)):
            items = editing.apply([*system, *drop_forgotten(messages)], standing)
            return Replay(items=items, edits=standing)
        # Blocks at the head hold for one request only, and the system prompt may be another one each time.
        kept = [item for item in last.items[last.system :] if item.kind != "recall"]
        kept += messages[last.messages :]
        return Replay(items=(*system, *drop_forgotten(kept)), edits=standing)

    def remember_window(
        self, items: tuple[Item, ...], *, system: Sequence[Item], messages: Sequence[Item], limit: int
    ) -> None:
        """Keep a window, all of whose edits are recorded, so that the next replay can continue it."""
        self._last_replay = None
        last = None
        if messages:
            last = messages[-1]
        if items:
            self._last_replay = _LastReplay(
                items=items,
                limit=limit,
                edits=len(self.branch(messages)),
                system=len(system),
                messages=len(messages),
                last=last,
            )

    def find_last_trim(self, messages: Sequence[Item]) -> tuple[int, ...]:
        """Return what the last cut removed and nothing brought back; nothing after a compaction."""
        cuts: list[set[int]] = []
        # With a limit of 0, a larger window brings nothing back: all cuts hold.
        for edit in self.find_in_force(messages, limit=0):
            if edit.kind == "trimmed":
                cuts.append(set(edit.ids))
            elif edit.kind == "restored":
                cuts = [cut.difference(edit.ids) for cut in cuts]
        for cut in reversed(cuts):
            if cut:
                return tuple(sorted(cut))
        return ()
