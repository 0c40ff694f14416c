"""Extraction: facts out of messages, by a model where there is one, by rule where there is none.

Nothing is taken on a model's word: each fact has a quote that is checked to stand in a message, and whether it
takes the place of another is decided by rule. What no rule can tell, the model may be asked once; and even then
nothing is removed, only succeeded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from threading import Event

from holdfast.memory import rules
from holdfast.memory.draft import Draft
from holdfast.memory.judge import Verdicts, judge
from holdfast.memory.marks import NO_MARKS, Marks
from holdfast.memory.reader import Dropped, Reader
from holdfast.memory.reading import pieces
from holdfast.memory.resolve import Decision, Ledger, resolve
from holdfast.models.base import Model
from holdfast.settings import Settings
from holdfast.store.base import FactRow, MessageRow, Scope

__all__ = ["Dropped", "Extraction", "extract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What was learned.

    Attributes:
        rows_to_add: Rows for the store, in order; add them in one call.
        dropped: What a model said that could not be proved, with the reason.
        actions: How often each of ADD, UPDATE, SUPERSEDE, DELETE and NONE was decided.
        calls: How often a model was asked.
        unread: Archived messages that a failing model did not get to read; extract them again.
        trouble: Why they were not read; nothing where all was well.
    """

    rows_to_add: tuple[FactRow, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    actions: tuple[tuple[str, int], ...] = ()
    calls: int = 0
    unread: tuple[int, ...] = ()
    trouble: str = ""


def extract(
    messages: Sequence[MessageRow],
    *,
    scope: Scope,
    model: Model | None,
    known: Sequence[FactRow],
    settings: Settings,
    now: int,
    marks: Marks = NO_MARKS,
    timeout: float | None = None,
    cancel: Event | None = None,
) -> Extraction:
    """Read the facts out of messages, and decide what becomes of each.

    The same messages give the same facts with the same ids, so that doing it again adds nothing.

    Args:
        messages: Archived messages, oldest first.
        scope: Whose facts they will be.
        model: Who reads them; None for the rules alone.
        known: Every version of every fact that the scope may see, oldest first.
        settings: `knowledge` says whether to extract at all, and whether a model may delete.
        now: The moment, for messages that do not say when they were said.
        marks: What recalled text is known by.
        timeout: Seconds for each question to the model.
        cancel: When set, the model is not waited for any longer.
    """
    if not settings.knowledge.extraction:
        return Extraction()
    ledger = Ledger(known)
    before = len(ledger.rows)
    if model is None:
        decisions = _by_rule(rules.own_words(messages, marks), scope=scope, ledger=ledger, now=now)
        return Extraction(rows_to_add=tuple(ledger.rows[before:]), actions=_counted(decisions))
    reader = Reader(model=model, known=ledger.current, timeout=timeout, cancel=cancel)
    decisions = _settle(reader.read(pieces(messages, marks)), scope=scope, ledger=ledger, now=now)
    unclear = [decision for decision in decisions if decision.rivals]
    verdicts, calls, trouble = Verdicts(), reader.calls, reader.trouble
    if unclear and not trouble:
        allowed = settings.knowledge.allow_delete
        verdicts = judge(unclear, ledger=ledger, model=model, allow_delete=allowed, timeout=timeout, cancel=cancel)
        ledger.add(verdicts.rows)
        calls, trouble = calls + 1, verdicts.trouble
    return Extraction(
        rows_to_add=tuple(ledger.rows[before:]),
        dropped=tuple(reader.dropped),
        actions=_counted(decisions, verdicts.actions),
        calls=calls,
        unread=tuple(sorted({piece.id for piece in reader.unread})),
        trouble=trouble,
    )


def _by_rule(rows: Sequence[MessageRow], *, scope: Scope, ledger: Ledger, now: int) -> list[Decision]:
    """Read message by message: what was said before helps to understand what is said next."""
    decisions: list[Decision] = []
    for row in rows:
        decisions += _settle(rules.stated(row, known=ledger.current), scope=scope, ledger=ledger, now=now)
    return decisions + _settle(rules.lessons(rows), scope=scope, ledger=ledger, now=now)


def _settle(drafts: Iterable[Draft], *, scope: Scope, ledger: Ledger, now: int) -> list[Decision]:
    """Decide about drafts one after the other, each in the light of those before it."""
    decisions: list[Decision] = []
    for draft in drafts:
        decision = resolve(replace(draft, time=draft.time or now), scope=scope, ledger=ledger)
        ledger.add(decision.rows)
        decisions.append(decision)
    return decisions


def _counted(decisions: Iterable[Decision], more: Iterable[str] = ()) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(Counter((*(decision.action for decision in decisions), *more)).items()))
