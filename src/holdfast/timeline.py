"""The requests that a session has made: the last window, a record of every turn, and how to rebuild a past window.

Internal: `Session` is the public object, and its lock guards every use of a `Timeline`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import Final

import msgspec
from msgspec import Struct, structs

from holdfast import providers
from holdfast.context import edits as editing
from holdfast.context.edits import EDIT, Edit, Item, Summarised, branch_edits, make_items
from holdfast.context.validate import ValidWindow, validate
from holdfast.errors import FormatError, InputError, InvalidWindowError
from holdfast.memory.fact_recalls import count_recalls
from holdfast.memory.memory import Memory
from holdfast.messages import Message, count_equal
from holdfast.report import ContextReport, Window
from holdfast.store.base import MessageRow, Record, Scope, Select, Store
from holdfast.store.figures import REPLY, TURN
from holdfast.store.forgetting_mark import read_mark
from holdfast.tokens import TokenCounter, count_message, is_estimate, reported_prompt, scale_of

MAX_WAITING: Final = 16
"""How many turns without a reply are kept. Requests of one session may overlap."""
MAX_ERROR_CHARS: Final = 200
"""Characters of a provider's error that are recorded with a turn."""
MAX_SENT_TURNS: Final = 4
"""How many turns of an earlier process are read to know which messages were sent.

`was_sent` is only called for the newest message of the user or of a tool, and that came with one of the last turns.
"""
WHOLE_TURNS: Final = 1_000
"""Turns after which the whole history of a request is recorded.

Other records hold only what is new. A page of a session with 20,000 turns would have to read all of them to make its
newest window again.
"""
WINDOW: Final = "window"
"""The kind of the records that hold the source of past windows, by the key of their turn."""

CUT_KINDS: Final = frozenset({"pruned", "trimmed", "compacted"})
"""The kinds of edits that take something out of the window."""
MAX_ABOUT: Final = 3
"""How many messages of a cut are quoted to describe it."""
MAX_ABOUT_CHARS: Final = 120
"""The maximum characters of each of these quotes."""
MAX_CUT_CHARS: Final = 20_000
"""The characters of a cut that are shown at a time by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Something that left the windows of a session at one time. All of it is in the archive.

    Attributes:
        id: Its number, by which `Session.expand_cut` shows it.
        kind: `pruned` (tool results were shortened), `trimmed` (messages were removed) or `compacted` (messages were
            replaced by a summary).
        time: When, in Unix milliseconds.
        reason: Why.
        tokens: The tokens that left.
        messages: The numbers of the messages; those that came back or were forgotten are not among them.
        about: The first words of some of them.
        summary: The summary in their place, if there is one.
    """

    id: int
    kind: str
    time: int
    reason: str
    tokens: int
    messages: tuple[int, ...]
    about: tuple[str, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutText:
    """Messages of a cut, word for word.

    Attributes:
        cut: The cut.
        messages: The messages, from the requested one on; the last of them may be shortened.
        next: The number of the message to continue from; None if these were the last ones.
    """

    cut: Cut
    messages: tuple[CutMessage, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CutMessage:
    """A message of a cut: `text` has its text, calls and results, and `left_out` counts characters after them."""

    number: int
    role: str
    time: int
    text: str
    left_out: int = 0


class WindowSource(Struct, frozen=True, kw_only=True, gc=False):
    """Data to rebuild a past window, and its size. It is stored next to the report of its turn.

    There is one for each turn of a session (see `TypedRecord`).

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
        quoted: The numbers of the messages that its new block quotes.
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
    quoted: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecordedTurn:
    """The last turn whose window can be rebuilt: its key, and the numbers of its history."""

    key: str = ""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _WaitingTurn:
    """A turn of this process whose reply is not archived yet.

    Attributes:
        key: The key of its record.
        time: When it was made, in Unix milliseconds.
        milliseconds: How long its reply took, if that was measured.
    """

    key: str
    time: int
    milliseconds: int | None = None


class ReplyRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the reply to a turn. It is stored under the key of the turn.

    Attributes:
        message: The number of the archived reply, which has its usage and its model; 0 if there is none.
        milliseconds: The time from the window to the reply; None if it came with the next request.
        error: Why there is no reply.
    """

    message: int = 0
    milliseconds: int | None = None
    error: str = ""


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
        self._waiting: dict[str, _WaitingTurn] = {}  # by the place of the reply, the newest last

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
        copied._waiting = self._waiting.copy()
        return copied

    def load(self) -> None:
        """Read the last turn of an earlier process, once."""
        if self._is_loaded:
            return
        store = self.memory.store
        turns = store.read_records(Select(scope=self.scope, newest=True, limit=1), kind=TURN)
        for record in turns:
            self.turn = record.data.get("turn", 0)
            self.last_time = record.time
            if record.data.get("is_calibrated"):
                self.scale = record.data.get("token_scale")
        if turns:  # each window is recorded with its turn
            windows = store.read_records(Select(scope=self.scope, newest=True, limit=MAX_SENT_TURNS), kind=WINDOW)
            for record in windows:
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
        place: str,
        forgetting: str,
    ) -> None:
        """Record the report of a turn, and how to rebuild its window if its `edits` were recorded.

        `place` is that of the reply. If something was forgotten since the mark `forgetting`, what was recalled is left
        out of the report.
        """
        store = self.memory.store
        key = f"{report.turn:08d}:{self.memory.new_id()}"  # another process may be at the same turn
        # Nothing here is durable: after a power cut only a report is missing, and each turn saves a wait for the disk.
        turn = Record(scope=self.scope, kind=TURN, key=key, data=report.to_json(), time=time, is_durable=False)
        rows = [turn]
        if edits is not None:
            kept = count_equal(self._recorded.numbers, tuple(numbers))
            if report.turn % WHOLE_TURNS == 0:
                kept = 0
            base = ""
            if kept:
                base = self._recorded.key
            source = WindowSource(
                base=base,
                kept=kept,
                added=tuple(numbers[kept:]),
                system=tuple(item.id for item in system),
                edits=edits,
                limit=limit,
                provider=provider,
                window=report.raw_max_tokens,
                sizes=tuple(part.tokens for part in report.categories),
                changes=tuple(change.kind for change in report.changes),
                quoted=tuple(sorted({hit.message for hit in report.recalled})),
            )
            data = structs.asdict(source)
            rows.append(Record(scope=self.scope, kind=WINDOW, key=key, data=data, time=time, is_durable=False))
        rows += count_recalls(store, report.recalled_facts, scope=self.scope, time=time)
        store.add_records(rows)
        # Whoever changes the mark after this cleans the records that are there.
        if (report.recalled or report.recalled_facts) and read_mark(store, self.scope) != forgetting:
            cleaned = replace(report, recalled=(), recalled_facts=())
            store.add_records([replace(turn, data=cleaned.to_json())])
        if edits is not None:
            self._recorded = _RecordedTurn(key=key, numbers=tuple(numbers))
        self._waiting.pop(place, None)  # a request that is made again becomes the newest entry
        self._waiting[place] = _WaitingTurn(key=key, time=time)
        if len(self._waiting) > MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]

    # --- replies -------------------------------------------------------------------------

    def record_reply(
        self, messages: Sequence[Message], numbers: Sequence[int], *, place: str | None = None, now: int | None = None
    ) -> None:
        """Record which message is the reply to a turn, and how long it took.

        Args:
            messages: The messages after the request, archived under `numbers`.
            numbers: Their numbers.
            place: The place of the reply; None for the newest turn that has none yet.
            now: When the reply was handed in, in Unix milliseconds; None if that is not known.
        """
        for message, number in zip(messages, numbers, strict=False):
            if message.role != "assistant":
                continue
            turn = self._take_waiting(place)
            if turn is not None:
                milliseconds = turn.milliseconds
                # If there are tool results among the messages, the time of the tools would be counted too.
                if milliseconds is None and now is not None and all(other.role == "assistant" for other in messages):
                    milliseconds = max(0, now - turn.time)
                self._add_reply(turn, ReplyRecord(message=number, milliseconds=milliseconds))
            return

    def note_reply_time(self, milliseconds: int, *, place: str) -> None:
        """Remember how long the reply to a turn took. It is recorded with the reply."""
        turn = self._waiting.get(place)
        if turn is not None:
            self._waiting[place] = replace(turn, milliseconds=milliseconds)

    def record_refusal(self, error: str, *, place: str) -> None:
        """Record that a turn got no reply."""
        turn = self._take_waiting(place)
        if turn is not None:
            self._add_reply(turn, ReplyRecord(error=error[:MAX_ERROR_CHARS] or "no reply"))

    def _take_waiting(self, place: str | None) -> _WaitingTurn | None:
        if place is not None:  # it is empty for a request for which memory failed
            return self._waiting.pop(place, None)
        if not self._waiting:
            return None
        return self._waiting.popitem()[1]

    def _add_reply(self, turn: _WaitingTurn, reply: ReplyRecord) -> None:
        data = msgspec.to_builtins(reply)
        record = Record(scope=self.scope, kind=REPLY, key=turn.key, data=data, time=turn.time, is_durable=False)
        self.memory.store.add_records([record])


def read_reports(store: Store, scope: Scope) -> list[ContextReport]:
    """List the reports of all past turns of a session, oldest first."""
    records = store.read_records(Select(scope=scope), kind=TURN)
    return [ContextReport.from_json(record.data) for record in records]


def read_replies(store: Store, scope: Scope, keys: Sequence[str]) -> dict[str, ReplyRecord]:
    """Read what is known of the replies to turns, by the keys of the turns."""
    found: dict[str, ReplyRecord] = {}
    for record in store.read_records(Select(scope=scope), kind=REPLY, keys=keys):
        try:
            found[record.key] = msgspec.convert(record.data, ReplyRecord)
        except msgspec.ValidationError:  # of a later version
            continue
    return found


def read_cuts(store: Store, scope: Scope) -> list[Cut]:
    """List what left the windows of a session, oldest first. Edits of one request that are alike are one cut."""
    cuts: dict[tuple[str, int], Cut] = {}
    forgotten: set[int] = set()
    for past in read_edits(store, scope):
        edit = past.edit
        if edit is None:  # assembling warns of it
            continue
        key = (edit.kind, past.time)
        if edit.kind == "forgotten":
            forgotten.update(edit.ids)
        elif edit.kind == "restored":
            for cut_key, cut in cuts.items():
                if cut.kind == "trimmed":
                    cuts[cut_key] = _without(cut, edit.ids)
        elif edit.kind in CUT_KINDS and past.number >= 0:
            cuts[key] = _add_edit(cuts.get(key), edit, number=past.number, time=past.time)
    found: list[Cut] = []
    for cut in cuts.values():
        known = _without(cut, forgotten)
        if known.messages:
            found.append(known)
    return found


def _without(cut: Cut, numbers: Iterable[int]) -> Cut:
    return replace(cut, messages=tuple(sorted(set(cut.messages).difference(numbers))))


def _add_edit(cut: Cut | None, edit: Edit, *, number: int, time: int) -> Cut:
    tokens = edit.tokens_before - edit.tokens_after
    if cut is None:
        summary = ""
        if isinstance(edit.change, Summarised):
            summary = edit.change.summary
        return Cut(
            id=number,
            kind=edit.kind,
            time=time,
            reason=edit.reason,
            tokens=tokens,
            messages=tuple(sorted(edit.ids)),
            summary=summary,
        )
    return replace(cut, tokens=cut.tokens + tokens, messages=tuple(sorted({*cut.messages, *edit.ids})))


def describe_cut(store: Store, scope: Scope, cut: Cut) -> Cut:
    """Add the first words of some messages of a cut, of messages with text rather than calls and results."""
    # A few more than are shown, because most messages of an agent are calls and results.
    rows = store.read_messages(Select(scope=scope, ids=cut.messages[: 4 * MAX_ABOUT]))
    rows.sort(key=lambda row: not row.message.text)
    about: list[str] = []
    for row in rows[:MAX_ABOUT]:
        words = " ".join(row.message.whole_text.split())
        if len(words) > MAX_ABOUT_CHARS:
            words = f"{words[:MAX_ABOUT_CHARS]}…"
        about.append(f"[{row.id}] {row.message.role}: {words}")
    return replace(cut, about=tuple(about))


def expand_cut(store: Store, scope: Scope, cut: Cut, *, start: int, max_chars: int) -> CutText:
    """Read the messages of a cut, from the number `start` on, up to `max_chars` characters."""
    numbers = tuple(number for number in cut.messages if number >= start)
    shown: list[CutMessage] = []
    left = max_chars
    for row in store.read_messages(Select(scope=scope, ids=numbers)):
        text = row.message.whole_text
        if shown and len(text) > left:
            return CutText(cut=cut, messages=tuple(shown), next=row.id)
        kept = text[:left]
        left -= len(kept)
        shown.append(
            CutMessage(
                number=row.id,
                role=row.message.role,
                time=row.message.timestamp or 0,
                text=kept,
                left_out=len(text) - len(kept),
            )
        )
    return CutText(cut=cut, messages=tuple(shown))


class PastTurn(Struct, frozen=True, kw_only=True, gc=False):
    """A recorded turn: the number of its record, its key, its number, its time in Unix milliseconds, and its window.

    It is a struct because a page makes thousands of them, and a dataclass takes nine times as long.
    """

    record: int
    key: str
    number: int
    time: int
    source: WindowSource


class PastEdit(Struct, frozen=True, kw_only=True, gc=False):
    """A recorded edit; `edit` is None if it cannot be read. An edit that forgets has the number -1 and always holds.

    It is a struct for the same reason as `PastTurn`.
    """

    record: int
    number: int
    time: int
    edit: Edit | None


def read_turns(
    store: Store,
    scope: Scope,
    *,
    after: int = 0,
    before: int | None = None,
    limit: int | None = None,
    newest: bool = False,
) -> list[PastTurn]:
    """Read the turns of a session whose windows were recorded, oldest first.

    Only those after a record or before one, and of these at most `limit`: the first, or the `newest`.
    """
    select = Select(scope=scope, after=after, before=before, newest=newest, limit=limit)
    found: list[PastTurn] = []
    for record in store.read_typed_records(select, kind=WINDOW, form=WindowSource):
        if record.data is None:
            continue
        found.append(
            PastTurn(
                record=record.id,
                key=record.key,
                number=int(record.key[:8]),
                time=record.time,
                source=record.data,
            )
        )
    return found


def read_edits(store: Store, scope: Scope, *, after: int = 0) -> list[PastEdit]:
    """Read the edits of a session, oldest first; only those after a record."""
    found: list[PastEdit] = []
    for record in store.read_typed_records(Select(scope=scope, after=after), kind=EDIT, form=Edit):
        number = -1
        if record.key.isdecimal():
            number = int(record.key)
        found.append(PastEdit(record=record.id, number=number, time=record.time, edit=record.data))
    return found


class Histories:
    """The messages that the client sent for past turns, whether or not they were in the window.

    Each record holds only what is new since another turn. The history that was read last is kept: most turns continue
    the one before.
    """

    def __init__(self, turns: Iterable[PastTurn]) -> None:
        self._sources = {turn.key: turn.source for turn in turns}
        self._last: tuple[str, list[int]] = ("", [])

    def has_all_of(self, key: str) -> bool:
        """Return whether the history of a turn can be read: all turns that it continues are known."""
        at = key
        while at in self._sources:
            at = self._sources[at].base
        return not at

    def read(self, key: str) -> list[int]:
        """Return the numbers of the messages of a turn; 0 for those that were not archived."""
        last_key, last = self._last
        chain: list[WindowSource] = []
        at = key
        while at != last_key and at in self._sources:
            source = self._sources[at]
            chain.append(source)
            at = source.base
        history: list[int] = []
        if at == last_key:
            history = last.copy()
        for source in reversed(chain):
            history[source.kept :] = source.added
        self._last = (key, history)
        return history


def read_conversation(store: Store, scope: Scope) -> list[MessageRow]:
    """Read the messages of the last request of a session and what was archived after it, without system prompts.

    A message that the client took back or changed before that request is not among them.
    """
    turns = read_turns(store, scope)
    rows = [row for row in store.read_messages(Select(scope=scope)) if row.message.role != "system"]
    if not turns:
        return rows
    last = turns[-1]
    sent = set(Histories(turns).read(last.key))
    replies = read_replies(store, scope, [turn.key for turn in turns])
    reply = replies.get(last.key)
    if reply is not None and reply.message:
        first_after = reply.message
    else:
        # No reply is recorded. Then messages came after the last turn if no turn sent them and no turn was answered
        # with them.
        first_after = 1
        for turn in turns:
            for number in turn.source.added:
                first_after = max(first_after, number + 1)
        for other in replies.values():
            first_after = max(first_after, other.message + 1)
    return [row for row in rows if row.id in sent or row.id >= first_after]


def rebuild_window(store: Store, scope: Scope, turn: int, *, count: TokenCounter) -> Window:
    """Rebuild the window of a past turn from the archive and the recorded edits.

    Raises:
        InputError: There is no such turn, or its window was not recorded or is forgotten.
        FormatError: An edit before it cannot be read.
    """
    turns = read_turns(store, scope)
    for past in reversed(turns):  # of two processes at the same turn, the newest
        if past.number == turn:
            history = Histories(turns).read(past.key)
            return remake_window(store, scope, past, history=history, edits=read_edits(store, scope), count=count)
    raise InputError(f"the window of turn {turn} of session {scope.session!r} is not stored; see Session.timeline")


def remake_window(
    store: Store,
    scope: Scope,
    past: PastTurn,
    *,
    history: Sequence[int],
    edits: Sequence[PastEdit],
    count: TokenCounter,
) -> Window:
    """Rebuild the window of a past turn from its history and the edits of the session.

    Raises:
        InputError: It is forgotten.
        FormatError: An edit before it cannot be read.
    """
    reports = store.read_records(Select(scope=scope), kind=TURN, keys=[past.key])
    if not reports:
        raise InputError(
            f"the window of turn {past.number} of session {scope.session!r} is not stored; see Session.timeline"
        )
    items = remake_items(store, scope, past, history=history, edits=edits, count=count)
    valid = _validate(items, past.source.provider)
    if valid is None:
        raise _make_forgotten_error(past, scope)
    report = ContextReport.from_json(reports[-1].data)
    return Window(items=items, provider=past.source.provider, valid=valid, report=report)


def remake_items(
    store: Store,
    scope: Scope,
    past: PastTurn,
    *,
    history: Sequence[int],
    edits: Sequence[PastEdit],
    count: TokenCounter,
) -> tuple[Item, ...]:
    """Rebuild the messages of the window of a past turn.

    Raises:
        InputError: They are forgotten.
        FormatError: An edit before it cannot be read.
    """
    source = past.source
    standing, new = _split_edits(edits, source, present={*source.system, *history})
    outcome = editing.combine((*standing, *new))
    items = outcome.apply(_read_items(store, scope, (*source.system, *history), gone=outcome.gone, count=count))
    had_messages = bool(source.added or source.kept)
    if had_messages and not any(item.kind != "system" for item in items):
        raise _make_forgotten_error(past, scope)
    return items


def _make_forgotten_error(past: PastTurn, scope: Scope) -> InputError:
    return InputError(
        f"messages of turn {past.number} of session {scope.session!r} were forgotten, and the rest is not a valid"
        " window; see Session.timeline for other turns"
    )


def _validate(items: Sequence[Item], provider: str) -> ValidWindow | None:
    """Return the valid form of a past window; None if it cannot be sent without the messages that were forgotten."""
    if not items:  # the caller sent its question after it
        return ValidWindow(provider=provider, messages=(), wire=(), repairs=())
    links = providers.link_reasoning([item.message for item in items])
    try:
        return validate([item.sent for item in items], provider, reasoning=links)
    except InvalidWindowError:
        return None


def _split_edits(
    edits: Sequence[PastEdit], source: WindowSource, *, present: set[int]
) -> tuple[tuple[Edit, ...], list[Edit]]:
    """Return the edits that held before a turn, and those that it made."""
    first, stop = source.edits
    before: list[Edit] = []
    new: list[Edit] = []
    for past in edits:
        if past.number >= stop:  # of a later turn
            continue
        if past.edit is None:
            raise FormatError(f"edit {past.number} of the session cannot be read")
        if past.number >= first:
            new.append(past.edit)
        else:
            before.append(past.edit)
    return editing.in_force(branch_edits(before, present), limit=source.limit), new


def _read_items(
    store: Store, scope: Scope, numbers: Sequence[int], *, gone: Collection[int], count: TokenCounter
) -> tuple[Item, ...]:
    """Read the messages of a window; those that left it are not read."""
    # Few of a hundred thousand messages are left in the window of a long session.
    left = filterfalse(gone.__contains__, numbers)
    wanted = tuple(number for number in left if number)
    by_number = {row.id: row.message for row in store.read_messages(Select(scope=scope, ids=wanted))}
    found = [number for number in wanted if number in by_number]
    return tuple(make_items([by_number[number] for number in found], found, count=count))
