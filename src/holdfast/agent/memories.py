"""Long-term memories: what the agent or its user chose to keep, for every session of the agent.

They are facts of the agent itself, of no session, in the same archive as everything else; so they are masked, shown
and forgotten for good as facts are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from holdfast.agent.capture import CATEGORIES, IMPORTANCE, Captured, Category, capture
from holdfast.engine import Engine
from holdfast.errors import EmbeddingError
from holdfast.memory import facts
from holdfast.store.base import FactRow, FactType, Record, Scope, Select

__all__ = ["Memories", "Remembered"]

RECALLED: Final = 3
LEAST_RECALLED: Final = 0.3
SHORTEST_PROMPT: Final = 5
_DETAILS: Final = "memory"
_TYPES: Final[Mapping[Category, FactType]] = {"decision": "decision"}
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A memory; `score` says how much it has to do with the question, 0 to 1."""

    id: str
    text: str
    category: Category
    importance: float
    time: int
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Memories:
    """The memories of an agent."""

    engine: Engine
    agent: str = "main"

    @property
    def scope(self) -> Scope:
        """Whose they are: the agent's, in whatever session."""
        return Scope(agent=self.agent)

    def all(self) -> list[Remembered]:
        """Every memory, oldest first."""
        memory = self.engine.memory
        select = Select(kind="record", scope=self.scope, name=_DETAILS)
        details = {record.key: record.data for record in memory.store.fetch(select)}
        return [_remembered(row, details.get(row.id, {})) for row in memory.facts(scope=self.scope)]

    def store(
        self, text: str, *, category: Category = "other", importance: float = IMPORTANCE
    ) -> tuple[Remembered, bool]:
        """Keep a memory, and tell whether it is new. The same words again are no new memory; other words always are."""
        memory = self.engine.memory
        said = _words(text)
        twin = next((known for known in self.all() if _words(known.text) == said), None)
        if twin is not None:
            return twin, False
        row = memory.remember(text, scope=self.scope, type=_TYPES.get(category, "config"), subject=category)
        details = {"category": category, "importance": importance}
        memory.store.add([Record(scope=self.scope, kind=_DETAILS, key=row.id, data=details, time=row.time)])
        return _remembered(row, details), True

    def recall(self, query: str, *, limit: int = 5, least: float = 0.1) -> list[Remembered]:
        """The memories that have to do with a question, best first."""
        known = self.all()
        scores = self._scores(query, known)
        found = [
            Remembered(
                id=each.id,
                text=each.text,
                category=each.category,
                importance=each.importance,
                time=each.time,
                score=score,
            )
            for each, score in zip(known, scores, strict=True)
            if score >= least
        ]
        return sorted(found, key=lambda each: (-each.score, -each.time))[:limit]

    def _scores(self, query: str, known: Sequence[Remembered]) -> list[float]:
        """By words and by vectors, the better of the two."""
        rows = self.engine.memory.facts(scope=self.scope)
        words = {hit.fact.id: hit.score for hit in facts.find(rows, query, limit=len(rows))}
        by_words = [words.get(each.id, 0.0) for each in known]
        embedder = self.engine.memory.embedder
        if embedder is None or not known:
            return by_words
        try:  # as questions: those are remembered, so that a memory is embedded once
            vectors = embedder.embed([query, *(each.text for each in known)], kind="query")
        except EmbeddingError:
            return by_words
        alike = (vectors[1:] @ vectors[0]).tolist()
        return [max(0.0, min(1.0, max(pair))) for pair in zip(by_words, alike, strict=True)]

    def forget(self, memory_id: str) -> bool:
        """Forget a memory for good."""
        gone = self.engine.memory.forget(scope=self.scope, fact_ids=[memory_id], across=True)
        self.engine.memory.store.remove(Select(kind="record", scope=self.scope, name=_DETAILS, keys=(memory_id,)))
        return gone > 0

    # --- by themselves ---------------------------------------------------------

    def capture(self, texts: Sequence[str]) -> list[Remembered]:
        """Keep what the user's new messages say to remember, where the settings allow it; what is new is returned."""
        settings = self.engine.settings.long_term
        if not (settings.enabled and settings.auto_capture):
            return []
        return [kept for found in capture(texts, max_chars=settings.capture_max_chars) for kept in self._keep(found)]

    def _keep(self, found: Captured) -> list[Remembered]:
        kept, is_new = self.store(found.text, category=found.category, importance=found.importance)
        return [kept] if is_new else []

    def recallable(self, prompt: str) -> list[FactRow]:
        """The memories that may go into the recall block of a prompt, within the settings' room; best first."""
        settings = self.engine.settings.long_term
        if not (settings.enabled and settings.auto_recall) or len(prompt.strip()) < SHORTEST_PROMPT:
            return []
        rows = {row.id: row for row in self.engine.memory.facts(scope=self.scope)}
        found: list[FactRow] = []
        room = settings.recall_max_chars
        for each in self.recall(prompt, limit=RECALLED, least=LEAST_RECALLED):
            room -= len(each.text)
            if room >= 0:
                found.append(rows[each.id])
        return found


def _remembered(row: FactRow, details: Mapping[str, Any]) -> Remembered:
    category = details.get("category", row.subject)
    return Remembered(
        id=row.id,
        text=row.content,
        category=cast("Category", category) if category in CATEGORIES else "other",
        importance=float(details.get("importance", IMPORTANCE)),
        time=row.time,
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
