"""Long-term memories: facts of the agent that the model or the user chose to keep, for every session.

They are stored as facts of the agent without project and session, so they are masked, shown and forgotten as facts
are. They are in the same store as everything else, or in one of their own if `agent.long_term.db_path` names it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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
from holdfast.store.opening import open_store, store_file
from holdfast.text import is_unsegmented
from holdfast_agent.settings import ChatSettings, LongTermEmbedding

Category: TypeAlias = Literal["preference", "fact", "decision", "entity", "other"]

CATEGORIES: Final[tuple[Category, ...]] = ("preference", "fact", "decision", "entity", "other")
DEFAULT_IMPORTANCE: Final = 0.7
MAX_RECALLED: Final = 3
MIN_RECALL_SCORE: Final = 0.3
MIN_PROMPT_CHARS: Final = 5
_TYPES: Final[Mapping[Category, FactType]] = {"decision": "decision"}
_WORD: Final = re.compile(r"\w+")


def derive_embedding(archive: Embedding, provider: str, **own: object) -> Embedding:
    """Return the settings of an embedder; what `own` does not set is as for the archive.

    Another provider than that of the archive does not get its model, key or address.
    """
    unset = {} if provider == archive.provider else dict.fromkeys(("model", "dimension", "base_url", "api_key"))
    given = {name: value for name, value in own.items() if value is not None}
    return msgspec.structs.replace(archive, **{**unset, **given, "provider": provider})


def embedding_settings(settings: ChatSettings) -> Embedding:
    """Return how memories are embedded; what `agent.long_term.embedding` does not set is as for the archive.

    An API key of their own is for the provider that is set; if none is set, for OpenAI, as in the plugin.
    """
    given, archive = settings.agent.long_term.embedding, settings.embedding
    is_openai = given.api_key is not None and archive.provider == "auto" and not (given.base_url or archive.base_url)
    return derive_embedding(
        archive,
        given.provider or ("openai" if is_openai else archive.provider),
        model=given.model,
        dimension=given.dimensions,
        base_url=given.base_url,
        api_key=given.api_key,
    )


@dataclass(slots=True)
class Memories:
    """The memories of an agent. Threads may share it. A store of their own is opened when it is first needed.

    `trouble` says why only words are compared, if the settings say otherwise.
    """

    engine: Engine
    settings: ChatSettings
    agent: str = "main"
    trouble: str = field(default="", init=False)
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
        settings, shared = self.settings.agent.long_term, self.engine.memory
        if settings.db_path is None or not settings.enabled:
            return shared
        with self._lock:
            if self._own is None:
                if "://" in settings.db_path:
                    raise StorageError(
                        "agent.long_term.db_path must be a folder or a .db file on this machine", path=settings.db_path
                    )
                file = store_file(settings.db_path, settings=shared.settings)
                is_shared = file.resolve() == shared.store.path.resolve()
                self._own = shared if is_shared else self._open(file)
            return self._own

    def _open(self, file: Path) -> Memory:
        shared = self.engine.memory
        return Memory(
            store=open_store(file),
            settings=shared.settings,
            choice=shared.choice,
            clock=shared.clock,
            new_id=shared.new_id,
            timer=shared.timer,
        )

    @property
    def choice(self) -> Choice:
        """The embedder, and why: what `agent.long_term.embedding` says, else that of the archive."""
        settings = self.settings
        if settings.agent.long_term.embedding == LongTermEmbedding():
            return self.engine.memory.choice
        with self._lock:
            if self._choice is None:
                given = embedding_settings(settings)
                self._choice = choose(given, allow_remote=given.allow_remote)
                failed = self._choice.embedder is None and given.provider != "none"
                self.trouble = "; ".join(self._choice.reasons) if failed else ""
            return self._choice

    def close(self) -> None:
        """Close a store of their own; it is opened again when it is needed."""
        with self._lock:
            own, self._own = self._own, None
            if own is not None and own is not self.engine.memory:
                own.close()

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
        rows, embedder = self.rows(), self.choice.embedder
        scores = {hit.fact.id: hit.score for hit in facts.find(rows, query, limit=len(rows))}
        if embedder is not None and rows:
            try:  # embedded as questions: those are cached, so that a memory is embedded once
                vectors = embedder.embed([query, *(row.content for row in rows)], kind="query")
                cosines = zip(rows, (vectors[1:] @ vectors[0]).tolist(), strict=True)
                scores = {row.id: max(cosine, scores.get(row.id, 0.0)) for row, cosine in cosines}
                self.trouble = ""
            except EmbeddingError as error:
                self.trouble = str(error)
        hits = [FactHit(fact=row, score=max(0.0, min(1.0, scores.get(row.id, 0.0)))) for row in rows]
        matches = [hit for hit in hits if hit.score >= min_score]
        return sorted(matches, key=lambda hit: (-hit.score, -hit.fact.time))[:limit]

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

    def capture(self, texts: Iterable[str]) -> list[FactRow]:
        """Store what user messages say to remember, if the settings allow it; return what is new."""
        settings = self.settings.agent.long_term
        if not (settings.enabled and settings.auto_capture):
            return []
        own = [strip_text(text, self.engine.memory.marks) for text in texts]
        stored = [self.store(text, category=category_of(text)) for text in capture(own, settings.capture_max_chars)]
        return [memory for memory, is_new in stored if is_new]

    def forget(self, memory_id: str) -> bool:
        """Forget a memory for good, with every recall block that quotes it."""
        shared, is_separate = self.engine.memory, self.memory is not self.engine.memory
        projects = {Scope(project=scope.project, agent=self.agent) for scope in shared.store.sessions()}
        for row in (row for row in self.rows() if row.id == memory_id):
            # Quotes of a fact are found in its own project only, so each project gets a copy to forget.
            for scope in projects if is_separate else projects - {self.scope}:
                copy = replace(row, id=shared.new_id(), scope=scope)
                shared.store.add_facts([copy])
                shared.forget(scope=scope, fact_ids=[copy.id], across=True)
        count = self.memory.forget(scope=self.scope, fact_ids=[memory_id], across=True)
        self.memory.store.remove_records(Select(scope=self.scope), kind=facts.LONG_TERM, keys=(memory_id,))
        return count > 0


MAX_CAPTURED: Final = 3
"""The most memories of one turn."""
MIN_CHARS: Final = 10
CHARS_PER_IDEOGRAPH: Final = 3
"""A character of a script without spaces counts as three letters."""


def capture(texts: Iterable[str], max_chars: int = 500) -> list[str]:
    """Return the user messages that are worth remembering: those with a preference, a decision, a name or emphasis.

    The rules are those of the long-term memory plugin, in more languages. Messages with instructions to the machine
    or markup are refused, and questions are left out.
    """
    messages = (without_questions(unwrap(text)) for text in texts)
    return [text for text in messages if not refuse(text, max_chars=max_chars)][:MAX_CAPTURED]


def refuse(text: str, *, max_chars: int = 500) -> str:
    """Return why a message is not worth remembering; empty if it is."""
    if sum(1 + (CHARS_PER_IDEOGRAPH - 1) * is_unsegmented(letter) for letter in text.strip()[:MIN_CHARS]) < MIN_CHARS:
        return "too short"
    if len(text) > max_chars:  # before the patterns: their time grows with the text
        return f"longer than {max_chars} characters"
    if not without_questions(text):
        return "a question"
    for reason, pattern in load("memories")["refused"].items():
        if compile_once(pattern).search(text):
            return str(reason)
    is_telling = has_signal(text, "remember", "preference", "decision") or _says("emphasis", text)
    return "" if is_telling or _says("entity", text) else "nothing to remember"


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
    return "fact" if _says("fact", text) else "other"
