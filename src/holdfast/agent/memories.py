"""Long-term memories: what the agent or its user chose to keep, for every session of the agent.

They are facts of the agent itself, of no session, so they are masked, shown and forgotten for good as facts are. They
rest in the same archive as everything else, or in one of their own where `long_term.db_path` names it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, Final, cast

import msgspec

from holdfast.agent.capture import CATEGORIES, IMPORTANCE, Captured, Category, capture
from holdfast.engine import Engine
from holdfast.errors import EmbeddingError, StorageError
from holdfast.memory import facts
from holdfast.memory.block import strip_text
from holdfast.memory.facts import FactHit
from holdfast.memory.home import open_home, store_file
from holdfast.memory.memory import Memory
from holdfast.search.embed import Choice, choose
from holdfast.settings import Embedding, LongTermEmbedding, Settings
from holdfast.store.base import FactRow, FactType, Record, Scope, Select

__all__ = ["Memories", "Remembered", "wanted"]

RECALLED: Final = 3
LEAST_RECALLED: Final = 0.3
SHORTEST_PROMPT: Final = 5
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


def wanted(settings: Settings) -> Embedding:
    """How memories are to be embedded; what `long_term.embedding` leaves open is as for the archive.

    A key of their own is for the provider that is set. Where none is, it is OpenAI's, as in the plugin.
    """
    asked, usual = settings.long_term.embedding, settings.embedding
    addressed = asked.base_url or usual.base_url
    keyed = asked.api_key is not None and usual.provider == "auto" and not addressed
    provider = asked.provider or ("openai" if keyed else usual.provider)
    another = {} if provider == usual.provider else dict.fromkeys(("model", "dimension", "base_url", "api_key"))
    named = {"model": asked.model, "dimension": asked.dimensions, "base_url": asked.base_url, "api_key": asked.api_key}
    given = {name: value for name, value in named.items() if value is not None}
    return msgspec.structs.replace(usual, **{**another, **given, "provider": provider})


@dataclass(slots=True)
class Memories:
    """The memories of an agent. Threads may share them; a store of their own is opened when it is first needed.

    Attributes:
        engine: The agent's memory, with the settings in force.
        agent: Whose they are.
        trouble: Why they are found by their words alone, where something else was asked for.
    """

    engine: Engine
    agent: str = "main"
    trouble: str = field(default="", init=False)
    _own: Memory | None = field(default=None, init=False, repr=False)
    _choice: Choice | None = field(default=None, init=False, repr=False)
    _lock: RLock = field(default_factory=RLock, init=False, repr=False)

    @property
    def scope(self) -> Scope:
        """Whose they are: the agent's, in whatever session."""
        return Scope(agent=self.agent)

    # --- where they rest -------------------------------------------------------

    @property
    def memory(self) -> Memory:
        """Where they rest: in the agent's memory, or in the one that `long_term.db_path` names.

        Raises:
            StorageError: That one cannot be opened.
        """
        asked = self.engine.settings.long_term
        place = asked.db_path if asked.enabled else None
        if place is None:
            return self.engine.memory
        with self._lock:
            if self._own is None:
                self._own = self._opened(place)
            return self._own

    def _opened(self, place: str) -> Memory:
        usual = self.engine.memory
        if "://" in place:
            raise StorageError("long_term.db_path must be a folder or a .db file on this machine", path=place)
        file = store_file(place, settings=usual.settings)
        if file.resolve() == usual.store.path.resolve():
            return usual
        return Memory(
            store=open_home(file),
            settings=usual.settings,
            choice=usual.choice,
            clock=usual.clock,
            new_id=usual.new_id,
            timer=usual.timer,
        )

    @property
    def apart(self) -> bool:
        """Whether they rest in a store of their own."""
        return self.memory is not self.engine.memory

    @property
    def choice(self) -> Choice:
        """What embeds them, and why: what `long_term.embedding` asks for, else what embeds everything."""
        settings = self.engine.settings
        if settings.long_term.embedding == LongTermEmbedding():
            return self.engine.memory.choice
        with self._lock:
            if self._choice is None:
                asked = wanted(settings)
                self._choice = choose(asked, allow_remote=asked.allow_remote)
                failed = self._choice.embedder is None and asked.provider != "none"
                self.trouble = "; ".join(self._choice.reasons) if failed else ""
            return self._choice

    def close(self) -> None:
        """Let go of a store of their own; it is opened again when it is needed."""
        with self._lock:
            own, self._own = self._own, None
            if own is not None and own is not self.engine.memory:
                own.close()

    # --- keeping and finding ---------------------------------------------------

    def all(self) -> list[Remembered]:
        """Every memory, oldest first."""
        select = Select(kind="record", scope=self.scope, name=facts.LONG_TERM)
        details = {record.key: record.data for record in self.memory.store.fetch(select)}
        return [_remembered(row, details.get(row.id, {})) for row in self.rows()]

    def rows(self) -> list[FactRow]:
        """Every memory as the fact that it is."""
        return self.memory.facts(scope=self.scope)

    def store(
        self, text: str, *, category: Category = "other", importance: float = IMPORTANCE
    ) -> tuple[Remembered, bool]:
        """Keep a memory, and tell whether it is new. The same words again are no new memory; other words always are."""
        memory = self.memory
        said = _words(text)
        twin = next((known for known in self.all() if _words(known.text) == said), None)
        if twin is not None:
            return twin, False
        row = memory.remember(text, scope=self.scope, type=_TYPES.get(category, "config"), subject=category)
        details = {"category": category, "importance": importance}
        memory.store.add([Record(scope=self.scope, kind=facts.LONG_TERM, key=row.id, data=details, time=row.time)])
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

    def facts(self, query: str, *, limit: int = 5) -> list[FactHit]:
        """The facts of the agent, learned in any session, that have to do with a question, best first."""
        return facts.find(facts.current(facts.load(self.engine.memory.store, self.scope)), query, limit=limit)

    def _scores(self, query: str, known: Sequence[Remembered]) -> list[float]:
        """By words and by vectors, the better of the two."""
        rows = self.rows()
        words = {hit.fact.id: hit.score for hit in facts.find(rows, query, limit=len(rows))}
        by_words = [words.get(each.id, 0.0) for each in known]
        embedder = self.choice.embedder
        if embedder is None or not known:
            return by_words
        try:  # as questions: those are remembered, so that a memory is embedded once
            vectors = embedder.embed([query, *(each.text for each in known)], kind="query")
        except EmbeddingError as error:
            self.trouble = str(error)
            return by_words
        self.trouble = ""
        alike = (vectors[1:] @ vectors[0]).tolist()
        return [max(0.0, min(1.0, max(pair))) for pair in zip(by_words, alike, strict=True)]

    def forget(self, memory_id: str) -> bool:
        """Forget a memory for good, and what quotes it."""
        if self.apart:
            self._forget_quotes(memory_id)
        gone = self.memory.forget(scope=self.scope, fact_ids=[memory_id], across=True)
        self.memory.store.remove(Select(kind="record", scope=self.scope, name=facts.LONG_TERM, keys=(memory_id,)))
        return gone > 0

    def _forget_quotes(self, memory_id: str) -> None:
        """Blocks that quote a memory rest in the agent's memory, which finds them by a fact that it knows."""
        usual = self.engine.memory
        usual.store.add([row for row in self.rows() if row.id == memory_id])
        usual.forget(scope=self.scope, fact_ids=[memory_id], across=True)

    # --- by themselves ---------------------------------------------------------

    def capture(self, texts: Sequence[str]) -> list[Remembered]:
        """Keep what the user's new messages say to remember, where the settings allow it; what is new is returned."""
        settings = self.engine.settings.long_term
        if not (settings.enabled and settings.auto_capture):
            return []
        own = [strip_text(text, self.engine.memory.marks) for text in texts]
        return [kept for found in capture(own, max_chars=settings.capture_max_chars) for kept in self._keep(found)]

    def _keep(self, found: Captured) -> list[Remembered]:
        kept, is_new = self.store(found.text, category=found.category, importance=found.importance)
        return [kept] if is_new else []

    def recallable(self, prompt: str) -> list[FactRow]:
        """The memories that may go into the recall block of a prompt, within the settings' room; best first."""
        settings = self.engine.settings.long_term
        if not (settings.enabled and settings.auto_recall) or len(prompt.strip()) < SHORTEST_PROMPT:
            return []
        rows = {row.id: row for row in self.rows()}
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
