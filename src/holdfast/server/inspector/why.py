"""Why a message left the window of a session, and where it came back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from holdfast.context.edits import Edit, Pruned, Relevance, Trimmed
from holdfast.errors import InputError
from holdfast.server.inspector.past import Past, brings_back, read_question, read_report
from holdfast.server.inspector.window_view import MAX_LISTED, LeftRow, shorten_words
from holdfast.session import Session
from holdfast.settings import Settings
from holdfast.store.base import Select, Store
from holdfast.text import percent
from holdfast.timeline import CUT_KINDS, PastTurn
from holdfast.tokens import count_message

MAX_RETURNS: Final = 50
"""Turns in which a message came back that are listed for each way."""
MAX_UNFOLDED: Final = 3
"""Of them, those that are not folded."""
IN_BLOCK: Final = "quoted in the recalled block"
IN_OVERVIEW: Final = "quoted in the overview"


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
            found[key] = _make_change(one.number, edit, settings)
        else:
            found[key] = replace(
                known,
                edits=(*known.edits, one.number),
                messages=(*known.messages, *edit.ids),
                tokens_before=known.tokens_before + edit.tokens_before,
                tokens_after=known.tokens_after + edit.tokens_after,
            )
    return list(found.values())


def _make_change(number: int, edit: Edit, settings: Settings) -> ChangeView:
    """Return one edit as a change."""
    change = edit.change
    return ChangeView(
        kind=edit.kind,
        edits=(number,),
        reason=edit.reason,
        rule=explain_rule(edit, settings),
        messages=edit.ids,
        tokens_before=edit.tokens_before,
        tokens_after=edit.tokens_after,
        limit=change.limit if isinstance(change, Trimmed) else 0,
        relevance=change.relevance if isinstance(change, Trimmed) else None,
    )


_PRUNING_RULES: Final = {
    "adaptive": (
        "Tool results that are older than the last {keep} replies are pruned once the window is {soft} full,"
        ' if that frees at least 5% of it (pruning.mode = "adaptive"). What was said is never pruned.'
    ),
    "cache-ttl": (
        "Tool results that are older than the last {keep} replies are pruned once the provider's cache has expired"
        ' and the window is {soft} full (pruning.mode = "cache-ttl").'
    ),
    "aggressive": 'All tool results older than the last {keep} replies are cleared (pruning.mode = "aggressive").',
    "the window is cut, and old results are long": (
        "When messages are cut, long tool results that are older than the last {keep} replies are pruned too: the"
        " provider's cache is lost anyway."
    ),
    "the newest messages alone do not fit": (
        "The messages that must stay did not fit into the window, so their largest tool results were pruned,"
        " whatever their age."
    ),
}
_TRIM_RULES: Final = {
    "least to do with the question": (
        "The window was too full. Messages that share the least with the question are cut first, the oldest first among"
        " equals, until {step} of the window is free again (trim.hysteresis). The newest {recent} messages and the last"
        " request stay (trim.protected_recent)."
    ),
    "oldest": (
        "The window was too full. No message that could be cut shared a word with the question, so the oldest were cut."
        " The newest {recent} messages and the last request stay (trim.protected_recent)."
    ),
    "oldest, as a last resort: the window is full, nothing was compacted, and recall is off": (
        "The window was full, nothing was compacted, and recall is off, so the oldest messages were cut as a last"
        " resort. The newest {recent} messages and the last request stay (trim.protected_recent)."
    ),
    "too large to stay next to what is new": (
        "The newest messages alone did not fit, so the largest of them were cut, except those that the next reply"
        " answers."
    ),
    "room for what is new": "The window was too full, and everything that could be cut was cut.",
    "earlier blocks made room for a new one": (
        "Blocks that were recalled earlier took the room for a new one, so they were removed. No message was cut."
    ),
}
_NO_SHARED_WORD: Final = "Here, no message that was cut shared a word with the question, so their age decided."


def explain_rule(edit: Edit, settings: Settings) -> str:
    """Return the rule that decided an edit, with the settings that change it."""
    match edit.change:
        case Pruned(keep=keep):
            sentence = _fill_rule(
                _PRUNING_RULES,
                edit.reason,
                keep=settings.pruning.keep_last_assistants,
                soft=percent(settings.pruning.soft_trim_ratio, 1),
            )
            kept = "A pruned result keeps its beginning, its end and lines about errors"
            if not keep:
                kept = "Nothing of a result that is cleared stays in the window"
            return f"{sentence} {kept}; the archive has all of it."
        case Trimmed(relevance=relevance):
            sentence = _fill_rule(
                _TRIM_RULES,
                edit.reason,
                recent=settings.trim.protected_recent,
                step=percent(settings.trim.hysteresis, 1),
            )
            if relevance is not None and not any(score for _, score in relevance.scores):
                return f"{sentence} {_NO_SHARED_WORD}"
            return sentence
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
            }.get(edit.kind) or _make_sentence(edit.reason)


def _fill_rule(rules: Mapping[str, str], reason: str, **values: object) -> str:
    """Return the rule of a reason, with the values of settings; the reason itself if no rule is written for it."""
    rule = rules.get(reason)
    return rule.format(**values) if rule is not None else _make_sentence(reason)


def _make_sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


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
    """A turn in which a message that had left came back, and the question that it came back for, if there is one."""

    turn: int
    time: int
    question: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Returns:
    """The turns in which a message came back in one way, oldest first; `last` is the last of all `count` turns."""

    how: str
    count: int
    last: int
    shown: tuple[Return, ...]


def list_events(session: Session, past: Past, message: int) -> list[Event]:
    """Return what happened to a message, oldest first: pruned, removed, summarised, brought back, pinned."""
    store = session._memory.store
    events: list[Event] = []
    for one in past.edits:
        edit = one.edit
        if edit is None or one.number < 0 or message not in edit.ids:
            continue
        if edit.kind not in CUT_KINDS and edit.kind not in {"restored", "pinned"}:
            continue
        turn = past.find_turn_of(one.number)
        change = _make_change(one.number, edit, session.settings)
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


def list_returns(session: Session, past: Past, message: int, *, after: int) -> list[Returns]:
    """Return how a message came back, and in which turns of those from `after` on; the way that was first is first."""
    store = session._memory.store
    ways: dict[str, tuple[PastTurn, str]] = {}
    for turn in past.turns:
        if message in turn.source.quoted:
            ways[turn.key] = (turn, IN_BLOCK)
    for one in past.edits:
        edit = one.edit
        if edit is None or one.number < 0 or message not in edit.ids:
            continue
        how = {"recalled": IN_BLOCK, "overview": IN_OVERVIEW}.get(edit.kind, "")
        if brings_back(edit):
            how = "back in the window: pinned" if edit.kind == "pinned" else "back in the window: the cut was undone"
        owner = past.find_turn_of(one.number)
        if how and owner is not None:
            ways.setdefault(owner.key, (owner, how))
    groups: dict[str, list[PastTurn]] = {}
    for turn, how in sorted(ways.values(), key=lambda way: way[0].record):
        if turn.number >= after:
            groups.setdefault(how, []).append(turn)
    found: list[Returns] = []
    for how, turns in groups.items():
        shown: list[Return] = []
        for turn in turns[:MAX_RETURNS]:
            question: tuple[str, ...] = ()
            if how != IN_OVERVIEW:  # which is made for the project, and not for a question
                question = read_question(store, past, turn, read_report(store, turn, past.scope))
            shown.append(Return(turn=turn.number, time=turn.time, question=question))
        found.append(Returns(how=how, count=len(turns), last=turns[-1].number, shown=tuple(shown)))
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
    one = past.by_number.get(edit)
    if turn is None and one is not None and one.edit is not None:  # no request followed it yet
        return Event(change=_make_change(edit, one.edit, session.settings), turn=0, time=one.time)
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
