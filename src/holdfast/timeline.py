"""The requests that a session has made: what was sent last, a record of every turn, and any past window again.

Internal: `Session` is the public object, and its lock guards every use of a `Timeline`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import Struct, structs

from holdfast import providers
from holdfast.context import edits as editing
from holdfast.context.edits import EDIT, Edit, Item, branch_edits, make_items
from holdfast.context.validate import ValidWindow, validate
from holdfast.errors import InputError, InvalidWindowError
from holdfast.memory.memory import Memory
from holdfast.memory.sessions import TURN
from holdfast.messages import Message, count_equal
from holdfast.report import ContextReport, Window
from holdfast.store.base import Record, Scope, Select, Store
from holdfast.tokens import TokenCounter, count_message, is_estimate, reported_prompt, scale_of

MAX_SENT_TURNS: Final = 4
"""Turns of an earlier process whose new messages are known to have been sent."""
WINDOW: Final = "window"
"""The kind of the records that hold the source of past windows, by the key of their turn."""


class WindowSource(Struct, frozen=True, kw_only=True):
    """Data to rebuild a past window, and its size. It is stored next to the report of its turn.

    Attributes:
        base: The key of the turn whose history this one continues; empty for none.
        kept: How many messages of that history it has.
        added: The numbers of the messages after them.
        system: The numbers of the system prompts.
        edits: The number of the first edit that is new in this turn, and of the first one after them.
        limit: The tokens that it had to fit into.
        provider: The provider that it was made for.
        window: The tokens of the model's window.
        sizes: The tokens of each category of the report.
        changes: The kinds of the new edits.
    """

    base: str
    kept: int
    added: tuple[int, ...]
    system: tuple[int, ...]
    edits: tuple[int, int]
    limit: int
    provider: str
    window: int
    sizes: tuple[int, ...]
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedTurn:
    """The last turn whose window can be made again: its key, and the numbers of its history."""

    key: str = ""
    numbers: tuple[int, ...] = ()


class Timeline:
    """The requests of a session so far.

    Attributes:
        turn: How many requests there were.
        last_time: When the last one was made, in Unix milliseconds; None before the first.
        sent: The window that was sent last; empty if this process has sent none.
        scale: Tokens that the provider counted for each estimated one, by its last report; None before one.
        reported_edits: How many recorded edits are in earlier reports; None before the first request of this process.
    """

    def __init__(self, scope: Scope, memory: Memory, count: TokenCounter) -> None:
        self.scope = scope
        self.memory = memory
        self.count = count
        self.turn = 0
        self.last_time: int | None = None
        self.sent: tuple[Item, ...] = ()
        self.scale: float | None = None
        self.reported_edits: int | None = None
        self._is_loaded = False
        self._sent_by_others: set[int] = set()  # numbers of messages that an earlier process has sent
        self._sent_tokens = 0  # of `sent`, estimated; 0 once they were compared with reported usage
        self._recorded = _RecordedTurn()

    def copy(self) -> Timeline:
        """Return a timeline that a thread that hangs in the store does not change later."""
        copied = Timeline(self.scope, self.memory, self.count)
        copied.turn = self.turn
        copied.last_time = self.last_time
        copied.sent = self.sent
        copied.scale = self.scale
        copied.reported_edits = self.reported_edits
        copied._is_loaded = self._is_loaded
        copied._sent_by_others = self._sent_by_others.copy()
        copied._sent_tokens = self._sent_tokens
        copied._recorded = self._recorded
        return copied

    def load(self) -> None:
        """Read the last turn of an earlier process, once."""
        if self._is_loaded:
            return
        store = self.memory.store
        for record in store.read_records(Select(scope=self.scope, newest=True, limit=1), kind=TURN):
            self.turn = record.data.get("turn", 0)
            self.last_time = record.time
            if record.data.get("is_calibrated"):
                self.scale = record.data.get("token_scale")
        for record in store.read_records(Select(scope=self.scope, newest=True, limit=MAX_SENT_TURNS), kind=WINDOW):
            self._sent_by_others.update(record.data.get("added", ()))
        self._is_loaded = True

    # --- the last request ----------------------------------------------------------------

    def was_sent(self, item: Item) -> bool:
        """Return whether an earlier request has shown a message."""
        if item.id in self._sent_by_others:
            return True
        for sent in self.sent:
            # A message that could not be archived was sent without a number.
            if sent.id in {0, item.id} and sent.message.digest == item.message.digest:
                return True
        return False

    @property
    def token_scale(self) -> float:
        """Tokens that the provider may count for each estimated one: by its last report, else with the margin."""
        if self.scale:
            return self.scale
        if is_estimate(self.count):
            return 1 + self.memory.settings.tokens.margin
        return 1.0

    def calibrate(self, new: Iterable[Message]) -> None:
        """Compare the usage that the provider reported for the last request with the estimate.

        `new` are the messages that came after it; those before the reported usage were part of the request.
        """
        estimated = self._sent_tokens
        if not estimated:
            return
        for message in new:
            prompt = reported_prompt(message)
            if prompt:
                self.scale = scale_of(prompt, estimated) or self.scale
                self._sent_tokens = 0
                return
            estimated += count_message(message, count=self.count)

    def end_calibration(self) -> None:
        """Ignore later reports of usage: they are about a request that is not known yet."""
        self._sent_tokens = 0

    def add_turn(self, report: ContextReport, items: tuple[Item, ...], *, edits: int) -> None:
        """Make a request the last one. `edits` is how many recorded edits its report and earlier ones contain."""
        self.turn = report.turn
        self.sent = items
        self._sent_tokens = report.total_tokens
        self.reported_edits = edits

    # --- records of turns ----------------------------------------------------------------

    def record(
        self,
        report: ContextReport,
        *,
        time: int,
        edits: tuple[int, int] | None,
        limit: int,
        provider: str,
        system: Sequence[Item],
        numbers: Sequence[int],
    ) -> None:
        """Record the report of a turn, and how to make its window again if its `edits` were recorded."""
        key = f"{report.turn:08d}:{self.memory.new_id()}"  # another process may be at the same turn
        rows = [Record(scope=self.scope, kind=TURN, key=key, data=report.to_json(), time=time, is_durable=False)]
        if edits is not None:
            kept = count_equal(self._recorded.numbers, tuple(numbers))
            source = WindowSource(
                base=self._recorded.key if kept else "",
                kept=kept,
                added=tuple(numbers[kept:]),
                system=tuple(item.id for item in system),
                edits=edits,
                limit=limit,
                provider=provider,
                window=report.raw_max_tokens,
                sizes=tuple(part.tokens for part in report.categories),
                changes=tuple(change.kind for change in report.changes),
            )
            data = structs.asdict(source)
            rows.append(Record(scope=self.scope, kind=WINDOW, key=key, data=data, time=time, is_durable=False))
        self.memory.store.add_records(rows)
        if edits is not None:
            self._recorded = _RecordedTurn(key=key, numbers=tuple(numbers))


def read_reports(store: Store, scope: Scope) -> list[ContextReport]:
    """List the reports of all past turns of a session, oldest first."""
    records = store.read_records(Select(scope=scope), kind=TURN)
    return [ContextReport.from_json(record.data) for record in records]


def rebuild_window(store: Store, scope: Scope, turn: int, *, count: TokenCounter) -> Window:
    """Make the window of a past turn again, from the archive and the recorded edits.

    Raises:
        InputError: There is no such turn, or its window was not recorded or is forgotten.
    """
    sources: dict[str, WindowSource] = {}
    key = ""
    for record in store.read_records(Select(scope=scope), kind=WINDOW):
        sources[record.key] = msgspec.convert(record.data, WindowSource)
        if record.key.startswith(f"{turn:08d}:"):  # of two processes at the same turn, the newest
            key = record.key
    reports: list[Record] = []
    if key:
        reports = store.read_records(Select(scope=scope), kind=TURN, keys=[key])
    if not reports:
        raise InputError(f"the window of turn {turn} of session {scope.session!r} is not stored; see Session.timeline")
    source = sources[key]
    history = _follow(sources, key)
    standing, new = _read_edits(store, scope, source, present={*source.system, *history})
    items = _read_items(store, scope, (*source.system, *history), (*standing, *new), count=count)
    items = editing.apply(editing.apply(items, standing), new)
    had_messages = bool(source.added or source.kept)
    is_forgotten = had_messages and all(item.kind == "system" for item in items)
    valid = None if is_forgotten else _validate(items, source.provider)
    if valid is None:
        raise InputError(
            f"messages of turn {turn} of session {scope.session!r} were forgotten, and the rest is not a valid window;"
            " see Session.timeline for other turns"
        )
    report = ContextReport.from_json(reports[-1].data)
    return Window(items=items, provider=source.provider, valid=valid, report=report)


def _validate(items: Sequence[Item], provider: str) -> ValidWindow | None:
    """Return the valid form of a past window; None if messages were forgotten that it cannot be sent without."""
    if not items:  # the caller sent its question after it
        return ValidWindow(provider=provider, messages=(), wire=(), repairs=())
    links = providers.link_reasoning([item.message for item in items])
    try:
        return validate([item.sent for item in items], provider, reasoning=links)
    except InvalidWindowError:
        return None


def _follow(sources: Mapping[str, WindowSource], key: str) -> list[int]:
    """Return the history of a turn. Each record holds only what is new since another turn."""
    chain: list[WindowSource] = []
    while source := sources.get(key):
        chain.append(source)
        key = source.base
    history: list[int] = []
    for source in reversed(chain):
        history[source.kept :] = source.added
    return [number for number in history if number]


def _read_edits(
    store: Store, scope: Scope, source: WindowSource, *, present: set[int]
) -> tuple[tuple[Edit, ...], list[Edit]]:
    """Return the edits that held before a turn, and those that it made."""
    first, stop = source.edits
    before: list[Edit] = []
    new: list[Edit] = []
    for record in store.read_records(Select(scope=scope), kind=EDIT):
        number = int(record.key) if record.key.isdecimal() else -1  # forgetting has no number, and always holds
        if number >= stop:
            continue
        edit = editing.from_json(record.data)
        if number >= first:
            new.append(edit)
        else:
            before.append(edit)
    return editing.in_force(branch_edits(before, present), limit=source.limit), new


def _read_items(
    store: Store, scope: Scope, numbers: tuple[int, ...], edits: tuple[Edit, ...], *, count: TokenCounter
) -> tuple[Item, ...]:
    """Read the messages of a window; those that left it are not read."""
    gone = editing.removed(edits)
    wanted = tuple(number for number in numbers if number not in gone)
    by_number = {row.id: row.message for row in store.read_messages(Select(scope=scope, ids=wanted))}
    found = [number for number in wanted if number in by_number]
    return tuple(make_items([by_number[number] for number in found], found, count=count))
