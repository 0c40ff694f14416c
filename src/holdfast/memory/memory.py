"""Memory: an archive, its index and its facts. Internal: `Engine` and `Session` are the public objects."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, get_args

from msgspec import structs

from holdfast.errors import EmbeddingError, InputError, StorageError
from holdfast.memory import conflicts, exclusion, facts
from holdfast.memory.block import NO_MARKS, UNKEPT, Marks, open_marks
from holdfast.messages import Message, Text
from holdfast.settings import Settings
from holdfast.store.base import (
    MIN_ID_CHARS,
    Across,
    FactRow,
    FactType,
    Gap,
    MessageRow,
    Scope,
    SearchQuery,
    Select,
    Store,
)
from holdfast.store.opening import open_memory_store
from holdfast.telemetry import observe
from holdfast.text import plural, terms
from holdfast.tokens import TokenCounter, count_text

# Search needs numpy and the embedders, which take more than half of the time of an import. The functions below import
# them when they are called, so that a command that only lists or stores facts does not wait for them.
if TYPE_CHECKING:
    from holdfast.embed.base import Embedder
    from holdfast.embed.choice import Choice
    from holdfast.memory.archive import AppendResult
    from holdfast.memory.learning_state import LearningState
    from holdfast.memory.overview import Overview
    from holdfast.memory.passage_search import Hit
    from holdfast.memory.query import RecallQuery, Shown
    from holdfast.memory.recall import Recall

CALLER_MARK: Final = "@"
"""Separates an agent from the caller of a server that other people use too: `main@k-3f2a…`."""
MAX_FACT_CHARS: Final = 2_000
"""The maximum characters of a fact: a sentence, which is shown whole in recalled blocks, overviews and lists."""
_EMBED_BATCH: Final = 256
"""How many passages are embedded and stored at a time. An interrupted run loses at most this many."""
_NO_LIMIT: Final = 2**62
_MAX_TAKEN_OVER: Final = 2_000
"""How many vectors of a memory-context folder a search takes over before it begins, in half a second."""
_ANY_QUESTION: Final = "Which database did we choose?"
"""A question that is recalled for in full, whatever the memory contains."""
_MAX_SCORED: Final = 20_000
"""How many passages of a session are scored for trimming: more than a window can hold."""


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """The contents of a memory, in numbers. `facts` are those that hold, `former_facts` those that no longer do.

    `vectors` names the model whose vectors serve until all passages have those of `embedder`; empty once they have.
    """

    path: str
    messages: int
    passages: int
    sessions: int
    facts: int
    former_facts: int
    embedded: int
    bytes: int
    embedder: str | None
    vectors: str
    warnings: tuple[str, ...]
    learning: LearningState


def _check_questions(questions: Sequence[str]) -> tuple[str, ...]:
    """Return the questions of a fact that the user states, without those that contain a secret."""
    if not questions:
        return ()
    from holdfast.memory.extract import MAX_QUESTIONS, read_questions  # noqa: PLC0415 - see above

    if isinstance(questions, str) or not all(isinstance(question, str) for question in questions):
        raise InputError(f"questions={questions!r}: give a list of texts, such as ['Which port?']")
    if len(questions) > MAX_QUESTIONS:
        raise InputError(f"{len(questions)} questions: give at most {MAX_QUESTIONS} that the fact answers")
    return read_questions(list(questions))


class Memory:
    """An open memory. One for each process is enough; any number of processes may open the same store.

    The clock and the ids come in as arguments, so that tests are deterministic. The embedder is the one that the
    settings name, unless a `choice` is given.
    """

    def __init__(
        self,
        *,
        store: Store,
        settings: Settings,
        choice: Choice | None = None,
        clock: Callable[[], int] = _now,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        timer: Callable[[], float] = time.thread_time,
        is_personal: bool = False,
    ) -> None:
        self.store = store
        self.settings = settings
        self.clock = clock
        self.new_id = new_id
        self.timer = timer
        self.is_personal = is_personal
        self._is_warm = False
        self._marks = NO_MARKS
        if choice is not None:
            self.choice = choice

    @classmethod
    def open(
        cls,
        path: Path | str | None = None,
        *,
        settings: Settings | None = None,
        clock: Callable[[], int] = _now,
        is_personal: bool = False,
    ) -> Self:
        """Open the memory in a folder (or a `.db` file, or on a server); create it if it does not exist yet.

        A memory-context folder is opened in place, and stays readable by the plugin. `clock` returns the time in Unix
        milliseconds. For `is_personal` see `Engine.open`.
        """
        if settings is None:
            settings = Settings()
        store = open_memory_store(path, settings=settings)
        return cls(store=store, settings=settings, clock=clock, is_personal=is_personal)

    def with_settings(self, settings: Settings) -> Memory:
        """Return this memory with other settings; those of the store, the embedder and the server stay."""
        own = self.settings
        archive = structs.replace(settings.archive, path=own.archive.path, encryption_key=own.archive.encryption_key)
        shared = structs.replace(
            settings, archive=archive, embedding=own.embedding, postgres=own.postgres, server=own.server
        )
        memory = Memory(
            store=self.store,
            settings=shared,
            choice=self.choice,
            clock=self.clock,
            new_id=self.new_id,
            timer=self.timer,
            is_personal=self.is_personal,
        )
        memory._marks = self._marks
        return memory

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def choice(self) -> Choice:
        """The embedder in use, and why; its model is loaded when it is first needed."""
        from holdfast.embed.choice import choose  # noqa: PLC0415 - see above

        return choose(self.settings.embedding, allow_remote=self.settings.embedding.allow_remote)

    @property
    def embedder(self) -> Embedder | None:
        """The embedder; None if search goes by words alone. A static model stands in for one that cannot be opened."""
        return self.choice.embedder or self.choice.interim

    @property
    def interim(self) -> Embedder | None:
        """The static model that serves until `embedder` has embedded the archive; None if it needs none."""
        if self.choice.embedder is None:
            return None
        return self.choice.interim

    @property
    def embedders(self) -> tuple[Embedder, ...]:
        """The embedders whose vectors are stored: the static model first, whose vectors are there at once."""
        return tuple(one for one in (self.interim, self.embedder) if one is not None)

    @property
    def marks(self) -> Marks:
        """The keys that recalled blocks of this memory are recognised by."""
        if not self._marks.keys:
            self._marks = open_marks(self.store)
        return self._marks

    @property
    def known_marks(self) -> Marks:
        """The keys that recalled blocks are recognised by, as far as they are known without the store."""
        return self._marks

    @property
    def home(self) -> Path:
        """The folder of the store, or of local files if it is on a server."""
        path = self.store.path
        if path.is_dir():
            return path
        return path.parent

    # --- writing ---------------------------------------------------------------

    def ingest(self, messages: Iterable[Message], *, scope: Scope) -> AppendResult:
        """Archive a conversation from its first message on; durable and searchable when this returns.

        Known messages keep their number. Messages without a timestamp get the current time. Recalled text is removed
        and reported.
        """
        from holdfast.memory import archive  # noqa: PLC0415 - see above

        found, stripped = archive.strip_recalled(list(messages), self.marks)
        own = [message for message in found if message is not None]
        if self.settings.archive.redaction:
            own = [archive.mask(message) for message in own]
        numbers = archive.append(self.store, own, scope=scope, time=self.clock(), marks=self.marks).numbers
        return archive.AppendResult(numbers, stripped=stripped)

    def set_title(self, title: str, *, scope: Scope) -> None:
        """Record the title that a host gave to a session, secrets masked."""
        from holdfast.memory.sessions import record_title  # noqa: PLC0415 - see above
        from holdfast.redaction import redact  # noqa: PLC0415 - see above

        if self.settings.archive.redaction:
            title = redact(title)
        record_title(self.store, title, scope=scope, time=self.clock())

    def set_host(self, name: str, *, scope: Scope) -> None:
        """Record the program that a session is from, such as `Claude Code`."""
        from holdfast.memory.sessions import read_host, record_host  # noqa: PLC0415 - see above

        if name and read_host(self.store, scope) != name:
            record_host(self.store, name, scope=scope, time=self.clock())

    def add_host(self, name: str, *, scope: Scope) -> None:
        """Record the program that a session is from, unless one is recorded: an imported transcript knows it better."""
        from holdfast.memory.sessions import read_host, record_host  # noqa: PLC0415 - see above

        if not read_host(self.store, scope):
            record_host(self.store, name, scope=scope, time=self.clock())

    def embed(self, *, limit: int | None = None, is_quick: bool = False) -> int:
        """Embed passages that have no vectors yet, oldest first, and return how many; each counts once for a model.

        Each batch is stored when it is done, so an interrupted run continues where it stopped. `waiting` returns how
        many are left. Those are found by the vectors of the static model, or only by their words. Vectors of a
        memory-context folder count too. If `is_quick`, a sentence model is left to the background.
        """
        done = 0
        for embedder in self.embedders[:1] if is_quick else self.embedders:
            left = None
            if limit is not None:
                left = limit - done
            done += self.embed_with(embedder, limit=left)
        return done

    def embed_with(self, embedder: Embedder, *, limit: int | None = None) -> int:
        """Embed passages that have no vectors of one of the `embedders` yet, and return how many."""
        from holdfast.memory.embedding import vector_rows  # noqa: PLC0415 - see above

        done = 0
        if embedder is self.embedder:
            done = self._take_over_vectors(limit=limit)
        while limit is None or done < limit:
            batch = _EMBED_BATCH
            if limit is not None:
                batch = min(_EMBED_BATCH, limit - done)
            missing = self.store.without_vectors(embedder.space, limit=batch)
            if not missing:
                break
            self.store.add_vectors(vector_rows(missing, embedder))
            done += len(missing)
            if len(missing) < batch:  # these were the last ones, and asking again takes time
                break
        return done

    def _take_over_vectors(self, *, limit: int | None) -> int:
        """Use the vectors that a memory-context folder has, if the embedder makes the same; return how many are new."""
        embedder = self.embedder
        if embedder is None or not self.store.path.is_dir():  # a SQLite store is a file
            return 0
        from holdfast.store.folder import FolderStore  # noqa: PLC0415 - see above

        if not isinstance(self.store, FolderStore):
            return 0
        if limit is None:
            limit = _NO_LIMIT
        try:
            return self.store.take_over_vectors(embedder, limit=limit)
        except EmbeddingError:  # the query or the next batch reports it
            return 0

    def remember(
        self,
        content: str,
        *,
        scope: Scope,
        type: FactType = "decision",  # noqa: A002 - the domain's own word
        subject: str = "",
        slot: str = "",
        questions: Sequence[str] = (),
    ) -> FactRow:
        """Store a fact, secrets masked. A known fact is not stored twice; one that was excluded is recalled again.

        Up to three `questions` that it answers, in other words than its own, are searched too.

        It supersedes facts of the same subject and slot, and the one decision that its words replace. Without a slot,
        both are read from words that set a value (`API_PORT=8080`) or correct one. Otherwise the words are compared: a
        fact that says the same with another number, or that something is no longer so, supersedes the other. If that is
        not clear, both stay, and `conflicts` lists them.
        """
        from holdfast.redaction import redact  # noqa: PLC0415 - see above

        words = content
        if self.settings.archive.redaction:
            words = redact(content)
            subject = redact(subject)
            slot = redact(slot)
        if not words.strip():
            raise InputError("there is nothing to remember: give the fact in a sentence")
        if len(words) > MAX_FACT_CHARS:
            raise InputError(
                f"a fact has at most {MAX_FACT_CHARS:,} characters, and this one {len(words):,}: say it in a sentence. "
                "Long text belongs in a message: messages are archived whole and searched"
            )
        if type not in get_args(FactType):
            raise InputError(f"type={type!r}: a fact is one of {', '.join(get_args(FactType))}")
        own = {row.id: row for row in self.facts(scope=scope)}
        known = own | {row.id: row for row in facts.current(facts.load(self.store, scope))}
        comparable = own  # a fact without a session is never the same as one of a session
        if scope.session:
            comparable = known
        for row in comparable.values():
            if row.type == type and row.content.casefold() == words.casefold():
                if self.exclusions(scope=scope).hides(row):  # whoever asks to remember it wants it recalled
                    exclusion.exclude(self.store, [row], excluded=False, time=self.clock())
                return row
        draft = facts.read_statement(words, subject=subject, slot=slot)
        fact = FactRow(
            scope=scope,
            id=self.new_id(),
            type=type,
            content=words,
            time=self.clock(),
            subject=draft.subject,
            slot=draft.slot,
            questions=_check_questions(questions),
        )
        over = facts.find_superseded(draft, known.values())
        if not over and not draft.additive:
            over = conflicts.find_replaced(fact, known.values())
        self.store.add_facts([fact, *(facts.supersede(row, fact) for row in over)])
        return fact

    def pin(self, ids: Sequence[int], *, scope: Scope, pinned: bool = True) -> int:
        """Keep messages in every window from now on; with `pinned=False`, no longer."""
        return self.store.set_flags(Select(scope=scope, ids=tuple(ids)), pinned=pinned)

    def exclude(
        self,
        ids: Sequence[int] = (),
        *,
        scope: Scope,
        fact_ids: Sequence[str] = (),
        across: Across = False,
        excluded: bool = True,
    ) -> int:
        """Exclude messages and facts from recall, or include them again, and return how many were found."""
        rows: list[MessageRow | FactRow] = []
        if ids:
            rows += self.store.read_messages(Select(scope=scope, across=across, ids=tuple(ids)))
        if fact_ids:
            rows += [row for row in self.facts(scope=scope, across=across) if row.id in fact_ids]
        return exclusion.exclude(self.store, rows, excluded=excluded, time=self.clock())

    def exclusions(self, *, scope: Scope, across: Across = True) -> exclusion.Exclusions:
        """Return the messages and facts that recall leaves out."""
        return exclusion.read_exclusions(self.store, scope, across=across)

    def forget(
        self,
        *,
        scope: Scope,
        ids: Sequence[int] | None = None,
        fact_ids: Sequence[str] | None = None,
        across: bool = False,
    ) -> int:
        """Forget messages and facts for good, with what was derived from them; with neither named, all of the scope."""
        from holdfast.memory.forget import forget  # noqa: PLC0415 - see above

        return forget(self.store, scope=scope, ids=ids, fact_ids=fact_ids, across=across)

    # --- reading -----------------------------------------------------------------

    def get(self, ids: Sequence[int], *, scope: Scope, across: Across = False, around: int = 0) -> list[MessageRow]:
        """Read archived messages by number, with `around` neighbours of the same session on both sides.

        Raises:
            StorageError: One of the messages is damaged.
        """
        select = Select(scope=scope, across=across, ids=tuple(ids))
        rows = {row.id: row for row in self.store.read_messages(select)}
        gaps = self.gaps(scope, across=across)
        missing = set(ids) - rows.keys()
        lost = [gap for gap in gaps if gap.kind == "message" and gap.id in missing]
        if lost:
            raise StorageError("; ".join(map(str, lost)), path=self.store.place)
        if around:
            for row in list(rows.values()):
                before = Select(scope=row.scope, before=row.id, newest=True, limit=around)
                after = Select(scope=row.scope, after=row.id, limit=around)
                for near in (*self.store.read_messages(before), *self.store.read_messages(after)):
                    rows[near.id] = near
        return [rows[number] for number in sorted(rows)]

    def gaps(self, scope: Scope, *, across: Across = True) -> list[Gap]:
        """List the damaged rows of a scope's agent that were skipped since this memory was opened."""
        mine = scope.required(across)
        return [gap for gap in self.store.gaps if gap.scope.required(across) == mine]

    def facts(self, *, scope: Scope, across: Across = False) -> list[FactRow]:
        """List the facts that hold now."""
        return facts.current(self.store.read_facts(Select(scope=scope, across=across)))

    def conflicts(self, *, scope: Scope, across: Across = True) -> list[conflicts.Conflict]:
        """List the facts that contradict each other, newest first, without those that recall leaves out."""
        hidden = self.exclusions(scope=scope, across=across)
        rows = facts.current(facts.load(self.store, scope, across=across))
        shown = [row for row in rows if not hidden.hides(row)]
        return conflicts.find_conflicts(shown, settled=hidden.pairs)

    def keep_fact(self, fact_id: str, *, scope: Scope, across: Across = True) -> list[FactRow]:
        """Resolve a contradiction: keep one fact, supersede those that contradict it, and return them.

        Their history stays. The first 8 characters of an id are enough.

        Raises:
            InputError: No fact contradicts it, or several ids begin with these characters.
        """
        found: dict[str, tuple[FactRow, conflicts.Conflict]] = {}
        for conflict in self.conflicts(scope=scope, across=across):
            for row in conflict.facts:
                if row.id == fact_id or (len(fact_id) >= MIN_ID_CHARS and row.id.startswith(fact_id)):
                    found[row.id] = (row, conflict)
        if not found:
            raise InputError(f"no fact contradicts {fact_id}: see `holdfast facts --conflicts`")
        if len(found) > 1:
            raise InputError(f"{fact_id} is the beginning of several ids: {', '.join(found)}")
        kept, conflict = next(iter(found.values()))
        others = [row for row in conflict.facts if row.id != kept.id]
        now = self.clock()
        self.store.add_facts([facts.supersede(row, kept, time=now) for row in others])
        return others

    def keep_all_facts(
        self, fact_ids: Sequence[str], *, scope: Scope, across: Across = True, settled: bool = True
    ) -> list[FactRow]:
        """Resolve a contradiction: keep all of these facts, no longer report them, and return them.

        With `settled=False`, they contradict each other again. The first 8 characters of an id are enough.

        Raises:
            InputError: Fewer than two facts are named, or one of them is not known.
        """
        known = self.facts(scope=scope, across=across)
        found: dict[str, FactRow] = {}
        for fact_id in fact_ids:
            matches = [row for row in known if row.id == fact_id]
            if not matches and len(fact_id) >= MIN_ID_CHARS:
                matches = [row for row in known if row.id.startswith(fact_id)]
            if not matches:
                raise InputError(f"{fact_id} is not a fact that holds: see `holdfast facts`")
            if len(matches) > 1:
                raise InputError(f"{fact_id} is the beginning of several ids: see `holdfast facts`")
            found[matches[0].id] = matches[0]
        if len(found) <= 1:
            raise InputError("name at least two facts that both hold")
        exclusion.settle(self.store, list(found.values()), settled=settled, time=self.clock())
        return list(found.values())

    def pin_facts(self, fact_ids: Sequence[str], *, scope: Scope, pinned: bool = True) -> list[FactRow]:
        """Pin or unpin facts, and return those that changed. A pinned fact is in every block, and never replaced."""
        rows: list[FactRow] = []
        for row in self.facts(scope=scope, across=True):
            if row.id in fact_ids and row.pinned != pinned:
                rows.append(replace(row, pinned=pinned))
        self.store.add_facts(rows)
        return rows

    def reach_of(self, scope: Scope) -> bool:
        """Return whether passages of the other sessions of a project are recalled, unless a query sets it.

        By default they are recalled for the owner of a personal memory. The sessions of another caller, whose name is
        part of the agent, may be those of several people.
        """
        chosen = self.settings.archive.cross_session
        if chosen is not None:
            return chosen
        return self.is_personal and CALLER_MARK not in scope.agent

    def search(
        self,
        query: str,
        *,
        scope: Scope,
        across: Across = False,
        limit: int = 10,
        without_messages: Collection[int] = (),
    ) -> list[Hit]:
        """Find the passages that match a question best, best first, except those of `without_messages`."""
        if not query.strip():
            raise InputError("the search is empty: give the words to search for")
        if limit < 1:
            raise InputError(f"limit={limit}: ask for at least one passage")
        from holdfast.memory.passage_search import search  # noqa: PLC0415 - see above
        from holdfast.memory.query import Shown, build_query  # noqa: PLC0415 - see above

        if not self.store.progress:  # new segments that are not indexed yet are found by their words
            self._take_over_vectors(limit=_MAX_TAKEN_OVER)
        question = build_query(
            self.settings,
            (query,),
            scope=scope,
            now=self.clock(),
            across=across,
            shown=Shown(messages=without_messages),
        )
        return search(self.store, question, embedder=self.embedder, interim=self.interim, limit=limit)

    def recall(
        self,
        texts: Sequence[str],
        *,
        scope: Scope,
        automatic: bool = False,
        across: Across | None = None,
        cap: int | None = None,
        now: int | None = None,
        shown: Shown | None = None,
        facts: Sequence[FactRow] = (),
        max_facts: int | None = None,
    ) -> Recall:
        """Make the block for a question.

        All recalls go through this function: those of turns, hooks, servers and commands.

        Args:
            texts: The last user messages, newest last.
            scope: Who asks.
            automatic: Whether the user did not ask for it. Then `recall.automatic` may turn it off, and it has a
                deadline.
            across: Whether passages of the other sessions are searched; by default as `reach_of` returns.
            cap: The maximum tokens of the block; by default `recall.hard_cap_tokens`.
            now: The time of the question; by default the current one.
            shown: What the window of the question shows already.
            facts: Facts that the caller chose; they go into the block first.
            max_facts: The maximum number of facts in the block; by default `recall.max_facts`.

        Returns:
            The block, or the reason why there is none. Its warnings list what the search lacked.
        """
        from holdfast.memory.query import NOTHING_SHOWN, build_query, find_recall_switch  # noqa: PLC0415 - see above
        from holdfast.memory.recall import Recall  # noqa: PLC0415 - see above

        why_off = find_recall_switch(self.settings, automatic=automatic)
        if why_off:
            return Recall(reason=why_off)
        if now is None:
            now = self.clock()
        if across is None:
            across = self.reach_of(scope)
        if shown is None:
            shown = NOTHING_SHOWN
        query = build_query(
            self.settings,
            texts,
            scope=scope,
            now=now,
            across=across,
            cap=cap,
            shown=shown,
            automatic=automatic,
            facts=facts,
            max_facts=max_facts,
        )
        with observe("recall", session=scope.session) as operation:
            found = self._answer(query)
            operation.set(
                tokens=found.tokens, passages=len(found.hits), facts=len(found.facts), confidence=found.confidence
            )
            return found

    def prepare(self, scope: Scope, *, across: Across) -> None:
        """Load what the first question would wait for: index, embedder, patterns, and the words of the facts.

        A remote embedder is not called, and no recall is counted.
        """
        from holdfast.memory.archive import extract_text  # noqa: PLC0415 - see above
        from holdfast.memory.query import build_query, find_recall_switch  # noqa: PLC0415 - see above
        from holdfast.memory.recall import recall  # noqa: PLC0415 - see above

        extract_text(Message(role="user", parts=(Text(text=_ANY_QUESTION),)))
        count_text(_ANY_QUESTION)
        if find_recall_switch(self.settings, automatic=False):
            return
        self._load_index(scope)
        # The index reads and caches the words of the facts: a fact that matches a question is compared with all others.
        conflicts.FactIndex(facts.load(self.store, scope, across=across)[-conflicts.MAX_CACHED :])
        recall(self.store, build_query(self.settings, (_ANY_QUESTION,), scope=scope, now=self.clock(), across=across))

    def make_overview(
        self,
        *,
        scope: Scope,
        across: Across | None = None,
        cap: int | None = None,
        has_own: bool = False,
        archive_tool: str = "",
        standing: Sequence[FactRow] = (),
        count: TokenCounter = count_text,
    ) -> Overview:
        """Make the overview of a project for a new session, or for one that was cut.

        Args:
            scope: Who asks.
            across: Whose facts and sessions are included; by default those of the project, sessions as `reach_of` says.
            cap: The maximum tokens; by default `recall.overview_tokens`, at most `recall.hard_cap_tokens`.
            has_own: Whether the session itself is listed, because nothing of it is in the window any more.
            archive_tool: The name of the tool that shows archived messages, if the model has one.
            standing: Facts of the caller that go first.
            count: The token counter.
        """
        from holdfast.memory.overview import make_overview  # noqa: PLC0415 - see above

        recall = self.settings.recall
        if cap is None:
            cap = min(recall.overview_tokens, recall.hard_cap_tokens)
        has_sessions = True
        if across is None:  # facts are those of the project in any case, sessions only as `reach_of` says
            across = True
            has_sessions = self.reach_of(scope)
        return make_overview(
            self.store,
            scope,
            cap=cap,
            marks=self.marks,
            across=across,
            has_sessions=has_sessions,
            has_own=has_own,
            archive_tool=archive_tool,
            standing=standing,
            count=count,
        )

    def _answer(self, query: RecallQuery) -> Recall:
        """Answer a query, and add warnings about what the search lacked."""
        from holdfast.memory.recall import recall  # noqa: PLC0415 - see above

        def load_index() -> None:
            if query.seconds is not None and not self._is_warm:  # without a deadline, the search itself loads it
                self._load_index(query.scope)

        warnings: tuple[str, ...] = ()
        is_chosen = self.settings.embedding.provider == "none"  # then it is not worth a warning in every report
        if self.choice.embedder is None and not (is_chosen and query.is_automatic):
            warnings = self.choice.reasons
        if self.store.progress:
            warnings = (*warnings, self.store.progress)
        try:
            marks = self.marks
        except StorageError as error:  # a read-only memory can still be searched
            marks = UNKEPT
            warnings = (*warnings, f"the block will not be recognised when it comes back: {error}")
        result = recall(
            self.store,
            query,
            marks=marks,
            embedder=self.embedder,
            interim=self.interim,
            load_index=load_index,
            timer=self.timer,
        )
        across: Across = query.across or True  # facts of the agent's other sessions are read in any case
        gaps = map(str, self.gaps(query.scope, across=across))
        return replace(result, warnings=(*warnings, *result.warnings, *gaps))

    def _load_index(self, scope: Scope) -> None:
        """Load index and model before the first query with a deadline, which does not include loading."""
        import numpy as np  # noqa: PLC0415 - see above

        from holdfast.embed.base import behind_cache  # noqa: PLC0415 - see above
        from holdfast.embed.remote import RemoteEmbedder  # noqa: PLC0415 - see above

        if not self.store.progress:  # as in `search`
            self._take_over_vectors(limit=_MAX_TAKEN_OVER)
        embedders = self.embedders
        if self.interim is not None and not self.waiting():  # its vectors are not searched
            embedders = embedders[1:]
        search = SearchQuery(scope=scope, terms={})
        if not embedders:
            self.store.search(search)
        for embedder in embedders:
            if not isinstance(behind_cache(embedder), RemoteEmbedder):
                with suppress(EmbeddingError):  # the query reports it
                    embedder.embed(["-"], kind="query")
            space = embedder.space  # a search for any vector loads those of the index
            vector = np.eye(1, space.dimension, dtype=np.float32)[0]
            self.store.search(replace(search, vector=vector, space=space))
        self._is_warm = True

    def scores(self, texts: Sequence[str], *, scope: Scope) -> dict[int, float]:
        """Score the messages of a session by the words that they share with a question. Scores of 0 are left out."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(terms(text))
        weights = {term: float(count) for term, count in counts.items()}
        found = self.store.search(SearchQuery(scope=scope, terms=weights, limit=_MAX_SCORED))
        best: dict[int, float] = {}
        for message, score in zip(found.messages.tolist(), found.keyword.tolist(), strict=True):
            if score:
                best[message] = max(best.get(message, 0.0), score)
        return best

    def waiting(self, embedder: Embedder | None = None) -> int:
        """Count the passages without vectors of an embedder, by default of the current one; 0 if there is none."""
        embedder = embedder or self.embedder
        if embedder is None:
            return 0
        return max(0, self.store.counts()["passages"] - self.store.embedded(embedder.space))

    def missing(self) -> tuple[str, ...]:
        """Return what search lacks, in sentences."""
        if self.store.progress:  # counting the rest would wait until all is indexed
            return (self.store.progress,)
        if self.embedder is None or self.choice.embedder is None:
            return self.choice.reasons
        waiting = self.waiting()
        if not waiting:
            return ()
        name = self.embedder.space.name
        if self.interim is not None:
            return (self._describe_interim(self.interim, waiting=waiting, name=name),)
        rest = f"have no vectors of {name} yet and are found by their words"
        if waiting == 1:
            rest = f"has no vectors of {name} yet and is found by its words"
        return (f"{plural(waiting, 'passage')} {rest}: `holdfast reindex`",)

    def _describe_interim(self, interim: Embedder, *, waiting: int, name: str) -> str:
        """Return which vectors serve, and how many are still to come."""
        from holdfast.memory.passage_search import covers  # noqa: PLC0415 - see above

        total = self.store.counts()["passages"]
        serving = interim.space.name
        if covers(total - waiting, total, has_next=True):
            serving = name
        return (
            f"vectors of {serving} serve; those of {name} for {waiting:,} of {plural(total, 'passage')} are still to"
            " come: in the background, or now by `holdfast reindex`"
        )

    def stats(self, *, readers: Collection[str] = ()) -> Stats:
        """Count what memory contains, and list what is missing. The settings do not name the models of `readers`."""
        from holdfast.memory.learning_state import read_state  # noqa: PLC0415 - see above

        embedder_name: str | None = None
        vectors = ""
        embedded = 0
        if self.embedder is not None:
            embedder_name = self.embedder.space.name
            embedded = self.store.embedded(self.embedder.space)
            if self.interim is not None:
                vectors = " ".join(self.missing())
        counts = self.store.counts()
        fact_count = facts.count_facts(self.store)
        return Stats(
            path=self.store.place,
            messages=counts["messages"],
            passages=counts["passages"],
            sessions=counts["sessions"],
            facts=fact_count.holding,
            former_facts=fact_count.former,
            bytes=counts["bytes"],
            embedded=embedded,
            embedder=embedder_name,
            vectors=vectors,
            warnings=(*self.choice.reasons, *map(str, self.store.gaps)),
            learning=read_state(self.store, self.settings, now=self.clock(), readers=readers),
        )
