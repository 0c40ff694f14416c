"""Memory: an archive, its index and its facts, behind one small face."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, cast, get_args

from holdfast.errors import InputError, StorageError
from holdfast.memory import facts
from holdfast.memory.home import STORE_NAME, Home, default_path, open_home, store_file
from holdfast.memory.marks import NO_MARKS, UNKEPT, Marks, open_marks
from holdfast.messages import Message
from holdfast.settings import Settings
from holdfast.store.base import Across, FactRow, FactType, Gap, MessageRow, Question, Scope, Select
from holdfast.text import terms

if TYPE_CHECKING:  # search and its vectors are loaded by the first question: listing facts does not wait for them
    from holdfast.memory.archive import Ingested
    from holdfast.memory.recall import Hit, Recall, Request
    from holdfast.search.embed.base import Embedder
    from holdfast.search.embed.choice import Choice

__all__ = ["STORE_NAME", "Memory", "Stats", "default_path", "store_file"]

_EMBED_BATCH: Final = 256


def _now() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What memory holds."""

    path: str
    messages: int
    passages: int
    sessions: int
    facts: int
    embedded: int
    bytes: int
    embedder: str | None
    notes: tuple[str, ...]


class Memory:
    """An open memory. One for each process is enough; any number of processes may have one.

    The clock and the maker of ids come in, so that nothing here is left to chance in a test. The embedder is the one
    that the settings ask for, unless a `choice` is given.
    """

    def __init__(
        self,
        *,
        store: Home,
        settings: Settings,
        choice: Choice | None = None,
        clock: Callable[[], int] = _now,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.store, self.settings = store, settings
        self.clock, self.new_id, self.timer = clock, new_id, timer
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
    ) -> Self:
        """Open the memory in a folder (or a `.db` file), made where it does not exist yet.

        A memory-context folder is opened in place, and stays readable by the plugin. `clock` returns the time in Unix
        milliseconds.
        """
        known = settings if settings is not None else Settings()
        return cls(store=open_home(store_file(path, settings=known)), settings=known, clock=clock)

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def choice(self) -> Choice:
        """The embedder that is taken, and why; its model is loaded when it is first needed."""
        from holdfast.search.embed.choice import choose  # noqa: PLC0415 - see above

        return choose(self.settings.embedding, allow_remote=self.settings.embedding.allow_remote)

    @property
    def embedder(self) -> Embedder | None:
        """What turns text into vectors; None where search goes by words alone."""
        return self.choice.embedder

    @property
    def marks(self) -> Marks:
        """What the recalled blocks of this memory are known by."""
        if not self._marks.keys:
            self._marks = open_marks(self.store)
        return self._marks

    @property
    def home(self) -> Path:
        """The folder that the store is in, or is."""
        path = self.store.path
        return path if path.is_dir() else path.parent

    # --- writing ---------------------------------------------------------------

    def ingest(self, messages: Iterable[Message], *, scope: Scope) -> Ingested:
        """Archive a conversation from its first message on; durable and findable when this returns.

        Known messages keep their number. Messages without a timestamp get the time of arrival. Recalled text is taken
        out and reported.
        """
        from holdfast.memory import archive  # noqa: PLC0415 - see above

        found, stripped = archive.strip_recalled(list(messages), self.marks)
        own = [message for message in found if message is not None]
        masked = [archive.mask(message) for message in own] if self.settings.archive.redaction else own
        numbers, _ = archive.append(self.store, masked, scope=scope, time=self.clock(), marks=self.marks)
        return archive.Ingested(numbers, stripped=stripped)

    def embed(self, *, limit: int | None = None) -> int:
        """Give passages that have none yet their vectors, oldest first; how many were given is returned.

        Each batch is kept once it is made, so whoever stops or fails goes on where they were: after a change of
        the model too, when nothing has a vector yet. `waiting` says how many are left. Words find all meanwhile.
        """
        from holdfast.memory.embedding import vector_rows  # noqa: PLC0415 - see above

        embedder, done = self.embedder, 0
        while embedder is not None and (limit is None or done < limit):
            batch = _EMBED_BATCH if limit is None else min(_EMBED_BATCH, limit - done)
            missing = self.store.without_vectors(embedder.space, limit=batch)
            if not missing:
                break
            self.store.add(vector_rows(missing, embedder))
            done += len(missing)
        return done

    def remember(
        self,
        content: str,
        *,
        scope: Scope,
        type: FactType = "decision",  # noqa: A002 - the domain's own word
        subject: str = "",
        slot: str = "",
        pinned: bool = False,
    ) -> FactRow:
        """Keep a fact, secrets masked. One that stands already is not kept twice; the same slot gives way."""
        from holdfast.redact import redact  # noqa: PLC0415 - see above

        words = redact(content) if self.settings.archive.redaction else content
        if not words.strip():
            raise InputError("there is nothing to remember: say it in a sentence")
        if type not in get_args(FactType):
            raise InputError(f"type={type!r}: a fact is one of {', '.join(get_args(FactType))}")
        own = self.facts(scope=scope)
        known = {row.id: row for row in (*own, *facts.current(facts.known(self.store, scope)))}
        seen = known.values() if scope.session else own  # what is kept for no session is not replaced by a session's
        for row in seen:
            if (row.content.casefold(), row.type) == (words.casefold(), type):
                return row
        fact = FactRow(
            scope=scope,
            id=self.new_id(),
            type=type,
            content=words,
            time=self.clock(),
            subject=subject,
            slot=slot,
            pinned=pinned,
        )
        old = [row for row in known.values() if slot and (row.subject, row.slot) == (subject, slot)]
        self.store.add([fact, *(facts.supersede(row, fact)[1] for row in old)])
        return fact

    def pin(self, ids: Sequence[int], *, scope: Scope, across: bool = False, pinned: bool = True) -> int:
        """Keep messages in every window (or no longer)."""
        return self._flag(ids, scope=scope, across=across, pinned=pinned)

    def bury(self, ids: Sequence[int], *, scope: Scope, across: bool = False, buried: bool = True) -> int:
        """Never recall messages (or do again)."""
        return self._flag(ids, scope=scope, across=across, buried=buried)

    def _flag(self, ids: Sequence[int], *, scope: Scope, across: bool, **flags: bool) -> int:
        rows = self.get(ids, scope=scope, across=across)
        self.store.add([replace(row, **flags) for row in rows])  # type: ignore[arg-type]  # flags are booleans
        return len(rows)

    def forget(
        self,
        *,
        scope: Scope,
        ids: Sequence[int] | None = None,
        fact_ids: Sequence[str] | None = None,
        across: bool = False,
    ) -> int:
        """Forget messages, facts and what was made of them for good; with neither named, all of the scope."""
        from holdfast.memory.forget import forget  # noqa: PLC0415 - see above

        return forget(self.store, scope=scope, ids=ids, fact_ids=fact_ids, across=across)

    # --- reading -----------------------------------------------------------------

    def get(self, ids: Sequence[int], *, scope: Scope, across: Across = False, around: int = 0) -> list[MessageRow]:
        """Archived messages by number, with so many neighbours of the same session on both sides.

        Raises:
            StorageError: One of those that were asked for is damaged.
        """
        select = Select(kind="message", scope=scope, across=across, ids=tuple(ids))
        rows: dict[int, MessageRow] = {row.id: row for row in self.store.fetch(select)}
        seen = self.gaps(scope, across=across)
        lost = [gap for gap in seen if gap.kind == "message" and gap.id in ids and gap.id not in rows]
        if lost:
            raise StorageError("; ".join(map(str, lost)), path=self.store.path)
        for row in list(rows.values()) if around else ():
            for side in (
                Select(kind="message", scope=row.scope, before=row.id, newest=True, limit=around),
                Select(kind="message", scope=row.scope, after=row.id, limit=around),
            ):
                rows.update((near.id, near) for near in self.store.fetch(side))
        return [rows[number] for number in sorted(rows)]

    def gaps(self, scope: Scope, *, across: Across = True) -> list[Gap]:
        """The damaged rows of a scope's agent that reading met since this memory was opened, and left out."""
        mine = scope.required(across)
        return [gap for gap in self.store.gaps if gap.scope.required(across) == mine]

    def facts(self, *, scope: Scope, across: Across = False, time: int | None = None) -> list[FactRow]:
        """The facts that hold now, or held at a moment."""
        rows = self.store.fetch(Select(kind="fact", scope=scope, across=across))
        return facts.current(rows) if time is None else facts.as_of(rows, time=time)

    def request(
        self,
        texts: Sequence[str],
        *,
        scope: Scope,
        across: Across | None = None,
        cap: int | None = None,
        in_window: Collection[int] = (),
        automatic: bool = False,
    ) -> Request:
        """A request as the settings want it; see `request_of`."""
        from holdfast.memory.request import request_of  # noqa: PLC0415 - see above

        return request_of(
            self.settings,
            texts,
            scope=scope,
            now=self.clock(),
            across=across,
            cap=cap,
            in_window=in_window,
            automatic=automatic,
        )

    def search(self, query: str, *, scope: Scope, across: Across = False, limit: int = 10) -> list[Hit]:
        """The passages that have most to do with a question, best first.

        Raises:
            InputError: The question is empty, or `limit` is below 1.
        """
        if not query.strip():
            raise InputError("the search is empty: say what to look for")
        if limit < 1:
            raise InputError(f"limit={limit}: ask for at least one passage")
        from holdfast.memory.recall import search  # noqa: PLC0415 - see above

        request = self.request((query,), scope=scope, across=across)
        return search(self.store, request, embedder=self.embedder, limit=limit)

    def recall(self, request: Request) -> Recall:
        """The block for a question. What the search had to do without is in its notes."""
        from holdfast.memory.recall import recall  # noqa: PLC0415 - see above

        if request.seconds is not None:
            self._make_ready(request.scope)
        notes = () if self.embedder is not None else self.choice.reasons
        try:
            marks = self.marks
        except StorageError as error:  # a memory that may only be read can still be asked
            marks, notes = UNKEPT, (*notes, f"the block will not be known again: {error}")
        found = recall(self.store, request, marks=marks, embedder=self.embedder, timer=self.timer)
        return replace(
            found, notes=(*notes, *found.notes, *map(str, self.gaps(request.scope, across=request.across or True)))
        )

    def _make_ready(self, scope: Scope) -> None:
        """Load the index before the first question with a deadline: that is not the question's fault."""
        if self._is_warm:
            return
        import numpy as np  # noqa: PLC0415 - see above

        space = None if self.embedder is None else self.embedder.space
        vector = None if space is None else np.eye(1, space.dimension, dtype=np.float32)[0]
        self.store.match(Question(scope=scope, terms={}, vector=vector, space=space))
        self._is_warm = True

    def scores(self, texts: Sequence[str], *, scope: Scope) -> dict[int, float]:
        """What each message of a session has to do with a question, by its words; 0 is left out."""
        asked = Counter(term for text in texts for term in terms(text))
        evidence = self.store.match(Question(scope=scope, terms={term: float(n) for term, n in asked.items()}))
        found = evidence.keywords.passages
        best: dict[int, float] = {}
        for passage in found.nonzero()[0].tolist():
            message = int(evidence.columns["message"][passage])
            best[message] = max(best.get(message, 0.0), float(found[passage]))
        return best

    def waiting(self) -> int:
        """How many passages have no vectors of the present embedder yet; 0 where there is none."""
        if self.embedder is None:
            return 0
        return max(0, self.store.counts()["passages"] - self.store.embedded(self.embedder.space))

    def missing(self) -> tuple[str, ...]:
        """What search has to do without, in sentences; nothing where it has all."""
        if self.embedder is None:
            return self.choice.reasons
        waiting = self.waiting()
        name = self.embedder.space.name
        note = f"{waiting:,} passages have no vectors of {name} yet and are found by their words: `holdfast reindex`"
        return (note,) if waiting else ()

    def stats(self) -> Stats:
        """What memory holds, and what is missing."""
        counted = self.store.counts()
        embedder = self.embedder
        embedded = self.store.embedded(embedder.space) if embedder is not None else 0
        return Stats(
            path=str(self.store.path),
            **cast("dict[str, Any]", counted),
            embedded=embedded,
            embedder=embedder.space.name if embedder is not None else None,
            notes=(*self.choice.reasons, *map(str, self.store.gaps)),
        )
