"""Long-term memories: facts of the agent that the model or the user chose to keep, for every session.

They are stored as facts of the agent without project and session, so they are masked, shown and forgotten as facts
are. They are in the same store as everything else, or in a separate one if `agent.long_term.db_path` names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Final, Literal, TypeAlias

import msgspec

from holdfast.embed import Choice, choose
from holdfast.engine import Engine
from holdfast.errors import EmbeddingError, StorageError
from holdfast.memory import facts
from holdfast.memory.archive import unwrap
from holdfast.memory.block import strip_text
from holdfast.memory.facts import FactHit
from holdfast.memory.memory import Memory
from holdfast.patterns import compile_once, load
from holdfast.settings import Embedding
from holdfast.signals import has_signal, without_questions
from holdfast.store.base import FactRow, FactType, Record, Scope, Select
from holdfast.store.keys import find_key
from holdfast.store.opening import open_store, store_file
from holdfast.text import is_unsegmented
from holdfast_agent.settings import ChatSettings, LongTermEmbedding

Category: TypeAlias = Literal["preference", "fact", "decision", "entity", "other"]

CATEGORIES: Final[tuple[Category, ...]] = ("preference", "fact", "decision", "entity", "other")
STANDING: Final[frozenset[Category]] = frozenset({"preference", "decision"})
"""The categories that hold whatever is asked."""
DEFAULT_IMPORTANCE: Final = 0.7
MAX_RECALLED: Final = 3
"""The maximum number of memories in the recall block of a prompt."""
MIN_RECALL_SCORE: Final = 0.3
MIN_PROMPT_CHARS: Final = 5
"""A shorter prompt recalls no memories."""
_TYPES: Final[Mapping[Category, FactType]] = {"decision": "decision"}
_WORD: Final = re.compile(r"\w+")


def derive_embedding(archive: Embedding, provider: str, **own: object) -> Embedding:
    """Return the settings of an embedder; what `own` does not set is as for the archive.

    Another provider than that of the archive does not get its model, key or address.
    """
    changes: dict[str, object] = {"provider": provider}
    if provider != archive.provider:
        changes |= {"model": None, "dimension": None, "base_url": None, "api_key": None}
    for name, value in own.items():
        if value is not None:
            changes[name] = value
    return msgspec.structs.replace(archive, **changes)


def embedding_settings(settings: ChatSettings) -> Embedding:
    """Return how memories are embedded; what `agent.long_term.embedding` does not set is as for the archive.

    A separate API key is for the provider that is set; if none is set, for OpenAI, as in the plugin.
    """
    given = settings.agent.long_term.embedding
    archive = settings.embedding
    provider = given.provider
    if provider is None:
        provider = archive.provider
        has_address = given.base_url or archive.base_url
        if provider == "auto" and given.api_key is not None and not has_address:
            provider = "openai"
    return derive_embedding(
        archive,
        provider,
        model=given.model,
        dimension=given.dimensions,
        base_url=given.base_url,
        api_key=given.api_key,
    )


@dataclass(slots=True)
class Memories:
    """The memories of an agent.

    Threads may share it. A separate store is opened when it is first needed. `failure` is why only words are compared,
    if an embedder is set.
    """

    engine: Engine
    settings: ChatSettings
    agent: str = "main"
    failure: str = field(default="", init=False)
    _own: Memory | None = field(default=None, init=False, repr=False)
    _choice: Choice | None = field(default=None, init=False, repr=False)
    _lock: RLock = field(default_factory=RLock, init=False, repr=False)

    @property
    def scope(self) -> Scope:
        """The owner: the agent, in all projects and sessions."""
        return Scope(agent=self.agent)

    @property
    def memory(self) -> Memory:
        """The store: the agent's memory, or the one that `agent.long_term.db_path` names."""
        settings = self.settings.agent.long_term
        shared = self.engine._memory
        if settings.db_path is None or not settings.enabled:
            return shared
        with self._lock:
            if self._own is None:
                if "://" in settings.db_path:
                    raise StorageError(
                        "agent.long_term.db_path must be a folder or a .db file on this machine", path=settings.db_path
                    )
                file = store_file(settings.db_path, settings=shared.settings)
                if file.resolve() == shared.store.path.resolve():
                    self._own = shared
                else:
                    self._own = self._open(file)
            return self._own

    def _open(self, file: Path) -> Memory:
        shared = self.engine._memory
        return Memory(
            store=open_store(file, key=find_key(shared.settings.archive.encryption_key)),
            settings=shared.settings,
            choice=shared.choice,
            clock=shared.clock,
            new_id=shared.new_id,
            timer=shared.timer,
        )

    @property
    def choice(self) -> Choice:
        """The embedder, and why it was chosen: that of `agent.long_term.embedding`, else that of the archive."""
        settings = self.settings
        if settings.agent.long_term.embedding == LongTermEmbedding():
            return self.engine._memory.choice
        with self._lock:
            if self._choice is None:
                given = embedding_settings(settings)
                self._choice = choose(given, allow_remote=given.allow_remote)
                if self._choice.embedder is None and given.provider != "none":
                    self.failure = "; ".join(self._choice.reasons)
            return self._choice

    def close(self) -> None:
        """Close a separate store; it is opened again when it is needed."""
        with self._lock:
            if self._own is not None and self._own is not self.engine._memory:
                self._own.close()
            self._own = None

    def rows(self) -> list[FactRow]:
        """List every memory, oldest first. The subject of the fact is its category."""
        return self.memory.facts(scope=self.scope)

    def store(
        self, text: str, *, category: Category = "other", importance: float = DEFAULT_IMPORTANCE
    ) -> tuple[FactRow, bool]:
        """Store a memory; return it and whether it is new. The same words again are not a new memory."""
        words = _WORD.findall(text.casefold())
        for known in self.rows():
            if _WORD.findall(known.content.casefold()) == words:
                return known, False
        row = self.memory.remember(text, scope=self.scope, type=_TYPES.get(category, "config"), subject=category)
        details = {"category": category, "importance": importance}
        record = Record(scope=self.scope, kind=facts.LONG_TERM, key=row.id, data=details, time=row.time)
        self.memory.store.add_records([record])
        return row, True

    def recall(self, query: str, *, limit: int = 5, min_score: float = 0.1) -> list[FactHit]:
        """Find the memories that match a question by words or by vectors, best first; the higher of both counts."""
        rows = self.rows()
        scores = {hit.fact.id: hit.score for hit in facts.find(rows, query, limit=len(rows))}
        for row, similarity in zip(rows, self._compare(query, rows), strict=True):
            scores[row.id] = max(similarity, scores.get(row.id, 0.0))
        hits: list[FactHit] = []
        for row in rows:
            score = min(1.0, scores[row.id])
            if score >= min_score:
                hits.append(FactHit(fact=row, score=score))
        hits.sort(key=lambda hit: (-hit.score, -hit.fact.time))
        return hits[:limit]

    def _compare(self, query: str, rows: Sequence[FactRow]) -> list[float]:
        """Return the similarity of each memory to a question by vectors; 0 without an embedder, or if it fails."""
        embedder = self.choice.embedder
        if embedder is None or not rows:
            return [0.0] * len(rows)
        texts = [query, *(row.content for row in rows)]
        try:
            vectors = embedder.embed(texts, kind="query")  # vectors of questions are cached: each is made once
        except EmbeddingError as error:
            self.failure = str(error)
            return [0.0] * len(rows)
        self.failure = ""
        similarities: list[float] = (vectors[1:] @ vectors[0]).tolist()
        return similarities

    def recall_facts(self, prompt: str) -> list[FactRow]:
        """Return the memories for the recall block of a prompt, best first, of `recall_max_chars` at most."""
        settings = self.settings.agent.long_term
        if not (settings.enabled and settings.auto_recall) or len(prompt.strip()) < MIN_PROMPT_CHARS:
            return []
        recalled: list[FactRow] = []
        room = settings.recall_max_chars
        for hit in self.recall(prompt, limit=MAX_RECALLED, min_score=MIN_RECALL_SCORE):
            room -= len(hit.fact.content)
            if room >= 0:
                recalled.append(hit.fact)
        return recalled

    def list_standing(self) -> list[FactRow]:
        """Return the preferences and decisions that an overview shows, if the settings allow it."""
        settings = self.settings.agent.long_term
        if not (settings.enabled and settings.auto_recall):
            return []
        return [row for row in self.rows() if row.subject in STANDING]

    def capture(self, texts: Iterable[str]) -> list[FactRow]:
        """Store memories from user messages, if the settings allow it; return the new ones."""
        settings = self.settings.agent.long_term
        if not (settings.enabled and settings.auto_capture):
            return []
        own = [strip_text(text, self.engine._memory.marks) for text in texts]
        new: list[FactRow] = []
        for text in capture(own, settings.capture_max_chars):
            memory, is_new = self.store(text, category=category_of(text))
            if is_new:
                new.append(memory)
        return new

    def forget(self, memory_id: str) -> bool:
        """Forget a memory for good, with every recall block that quotes it."""
        shared = self.engine._memory
        projects = {Scope(project=scope.project, agent=self.agent) for scope in shared.store.sessions()}
        if self.memory is shared:
            projects.discard(self.scope)  # the memory itself is there, and is forgotten below
        for row in self.rows():
            if row.id != memory_id:
                continue
            # Quotes of a fact are found in its own project only, so each project gets a copy to forget.
            for scope in projects:
                copy = replace(row, id=shared.new_id(), scope=scope)
                shared.store.add_facts([copy])
                shared.forget(scope=scope, fact_ids=[copy.id], across=True)
        count = self.memory.forget(scope=self.scope, fact_ids=[memory_id], across=True)
        self.memory.store.remove_records(Select(scope=self.scope), kind=facts.LONG_TERM, keys=(memory_id,))
        return count > 0


MAX_CAPTURED: Final = 3
"""The maximum number of memories of one turn."""
MIN_CHARS: Final = 10
"""Shorter messages are not captured."""
CHARS_PER_IDEOGRAPH: Final = 3
"""A character of a script without spaces counts as three letters."""


def capture(texts: Iterable[str], max_chars: int = 500) -> list[str]:
    """Return the user messages that are worth remembering: those with a preference, a decision, a name or emphasis.

    The rules are those of the long-term memory plugin, in more languages. Messages with instructions to the machine
    or markup are refused, and questions are left out.
    """
    captured: list[str] = []
    for text in texts:
        statement = without_questions(unwrap(text))
        if not refuse(statement, max_chars=max_chars):
            captured.append(statement)
    return captured[:MAX_CAPTURED]


def refuse(text: str, *, max_chars: int = 500) -> str:
    """Return why a message is not worth remembering; empty if it is."""
    length = 0
    for letter in text.strip()[:MIN_CHARS]:
        length += CHARS_PER_IDEOGRAPH if is_unsegmented(letter) else 1
    if length < MIN_CHARS:
        return "too short"
    if len(text) > max_chars:  # before the patterns: their time grows with the text
        return f"longer than {max_chars} characters"
    if not without_questions(text):
        return "a question"
    for reason, pattern in load("memories")["refused"].items():
        if compile_once(pattern).search(text):
            return str(reason)
    if has_signal(text, "remember", "preference", "decision"):
        return ""
    if _says("emphasis", text) or _says("entity", text):
        return ""
    return "nothing to remember"


def _says(what: str, text: str) -> bool:
    return compile_once(load("memories")["says"][what]).search(text) is not None


def category_of(text: str) -> Category:
    """Return the category of a memory."""
    if has_signal(text, "preference"):
        return "preference"
    if has_signal(text, "decision"):
        return "decision"
    if _says("entity", text):
        return "entity"
    if _says("fact", text):
        return "fact"
    return "other"
