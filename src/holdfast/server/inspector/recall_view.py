"""What memory was asked in a turn, how sure it was, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.context.edits import Recalled
from holdfast.context.plan import HAS_BLOCK
from holdfast.memory.query import find_subject
from holdfast.memory.recall import ALL_HERE_IN_WINDOW, ALL_IN_WINDOW, IN_WINDOW
from holdfast.report import Window
from holdfast.search.fuse import Parts
from holdfast.search.relevance import EAGERNESS
from holdfast.server.inspector.data import EVERYTHING
from holdfast.server.inspector.past import Past, read_question
from holdfast.session import Session
from holdfast.store.base import FactRow, Scope, Select
from holdfast.timeline import PastTurn

MAX_PASSAGE: Final = 1_200
"""Characters of a passage that just missed."""
MAX_SEARCHED: Final = 20
"""Passages among which the best match in the window is looked for."""
_MATCH_IS_SHOWN: Final = frozenset({IN_WINDOW, ALL_IN_WINDOW, ALL_HERE_IN_WINDOW})
"""The reasons for no block with which the window may have the best match."""


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
        block_turn: The turn that made the block of the question, if the reason is that it has one; 0 if not known.
        is_in_window: Whether the reason is that the best match is in the window.
        match: The message in the window that matches best, if that or the whole archive is in it; 0 if it is not known.
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
    block_turn: int = 0
    is_in_window: bool = False
    match: int = 0

    @property
    def best(self) -> float:
        """The best score, which is 100 %."""
        return max((hit.score for hit in (*self.hits, *self.missed)), default=0.0)


def view_recall(session: Session, past: Past, turn: PastTurn, window: Window) -> RecallView:
    """Return what memory was asked in a turn, and what came of it."""
    report = window.report
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
        block_turn=_find_block_turn(past, turn) if report.recall_reason == HAS_BLOCK else 0,
        is_in_window=report.recall_reason == IN_WINDOW,
        match=_find_match(session, window, question) if report.recall_reason in _MATCH_IS_SHOWN else 0,
    )


def _find_block_turn(past: Past, turn: PastTurn) -> int:
    """Return the turn that made the last block until a turn; 0 if it was not read."""
    for one in reversed(past.edits):
        if one.number >= turn.source.edits[1] or one.edit is None or one.edit.kind != "recalled":
            continue
        owner = past.find_turn_of(one.number)
        return owner.number if owner is not None else 0
    return 0


def _find_match(session: Session, window: Window, question: Sequence[str]) -> int:
    """Return the message of a window that matches a question best; 0 if there is none.

    Reports do not name it, so it is searched for again.
    """
    asked = set(window.report.question)
    shown = {item.id for item in window.items} - asked
    if not question or not question[-1].strip():
        return 0
    for hit in session._memory.search(question[-1], scope=session.scope, limit=MAX_SEARCHED):
        if hit.message in shown:
            return hit.message
    return 0
