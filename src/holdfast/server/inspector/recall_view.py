"""What memory was asked in a turn, how sure it was, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.context.edits import Recalled
from holdfast.memory.query import find_subject
from holdfast.report import ContextReport
from holdfast.search.fuse import Parts
from holdfast.search.relevance import EAGERNESS
from holdfast.server.inspector.data import EVERYTHING
from holdfast.server.inspector.past import Past, read_question
from holdfast.session import Session
from holdfast.store.base import FactRow, Scope, Select
from holdfast.timeline import PastTurn

MAX_PASSAGE: Final = 1_200
"""Characters of a passage that just missed."""


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

    @property
    def best(self) -> float:
        """The best score, which is 100 %."""
        return max((hit.score for hit in (*self.hits, *self.missed)), default=0.0)


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
