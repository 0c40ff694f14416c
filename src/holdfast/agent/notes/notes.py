"""Search over the notes of a workspace: looked at again when they change, found by words and by meaning."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Final, Self

from holdfast.agent.notes.chunks import Chunk, chunks
from holdfast.agent.notes.embedding import Fallback, Vectors
from holdfast.agent.notes.found import Found, Hit
from holdfast.agent.notes.index import TELLING, Index, Match, build, match, snippet, stretches_of
from holdfast.agent.notes.qmd import CommandError, Qmd
from holdfast.agent.notes.sources import Source, memory_sources, read_lines, session_sources
from holdfast.agent.notes.table import Table
from holdfast.search.vectors import quantise
from holdfast.settings import Settings
from holdfast.store.connection import translate_errors

__all__ = ["Found", "Hit", "Notes", "Synced"]

VERSION: Final = "1"
GROWN_BYTES: Final = 100_000
GROWN_LINES: Final = 50
"""A session that goes on is read again when it has grown by so much."""
BATCH: Final = 16
"""Chunks that are embedded together."""
PATIENCE: Final = 0.05
"""Seconds of embedding before a search; the rest is found by words until there is time."""
_MILLISECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """What a look at the files has changed in the index."""

    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(slots=True)
class Notes:
    """The notes of a workspace, open for search. Threads may share it.

    Attributes:
        root: The workspace.
        settings: The settings in force.
        file: Where the index is kept.
        sessions: The folder of past sessions, where they are to be searched.
        clock: The time in Unix milliseconds.
        qmd: QMD, where it is the backend; our own index is searched when it fails.
    """

    root: Path
    settings: Settings
    file: Path
    sessions: Path | None = None
    clock: Callable[[], int] = field(default=lambda: time.time_ns() // _MILLISECOND)
    vectors: Vectors = field(init=False)
    qmd: Qmd | None = field(init=False, default=None)
    _lock: RLock = field(default_factory=RLock)
    _table: Table | None = None
    _index: Index | None = None
    _seen: object = None

    def __post_init__(self) -> None:
        self.vectors = Vectors(self.settings)
        if self.settings.memory.backend == "qmd":
            of_agent = self.file.parent if self.sessions is None else self.sessions.parent
            self.qmd = Qmd(self.root, self.settings, of_agent / "qmd", self.sessions, self.clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the index."""
        if self.qmd is not None:
            self.qmd.close()
        with self._lock:
            if self._table is not None:
                self._table.close()
            self._table = self._index = None

    @property
    def table(self) -> Table:
        """The index on disk, opened when it is first needed."""
        if self._table is None:
            cut = self.settings.memory_search.chunking
            signature = f"{VERSION}:{cut.tokens}:{cut.overlap}:{self.settings.archive.redaction}"
            self._table = Table(self.file, signature=signature)
        return self._table

    @contextmanager
    def _using(self) -> Iterator[None]:
        """One thread at a time; what SQLite refuses is a StorageError."""
        with self._lock, translate_errors(self.file):
            yield

    # --- looking at the files --------------------------------------------------

    def start(self) -> Synced:
        """To be called at the start of a session: looks at every file, if the settings say so."""
        if self.qmd is not None:
            self.qmd.start()
            return Synced()
        if not self.settings.memory_search.sync.on_session_start:
            return Synced()
        self.vectors.reset()
        return self.sync(whole=True)

    def poll(self) -> Synced:
        """To be called now and then: takes in what has changed and been quiet for a while, if the settings say so."""
        if self.qmd is not None:
            self.qmd.poll()
            return Synced()
        watch = self.settings.memory_search.sync
        return self.sync(quiet=watch.watch_debounce_ms) if watch.watch else Synced()

    def sync(self, *, quiet: int = 0, whole: bool = False) -> Synced:
        """Bring the index up to date: changed files are cut again, deleted ones go.

        Args:
            quiet: Milliseconds that a file must not have been touched for.
            whole: Take in also what little a session has grown, and embed all that is new.
        """
        with self._using():
            known, present = self.table.files(), self._sources()
            gone = tuple(path for path in known if path not in present)
            if gone:
                self.table.drop(gone)
            problems = list(self.table.notes)
        changed: list[str] = []
        for source in present.values():
            if self._is_stale(source, known.get(source.name), quiet=quiet, whole=whole):
                try:
                    changed += self._take(source)
                except OSError as error:
                    problems.append(f"{source.name}: {error.strerror}")
        if whole:
            self.embed()
        return Synced(changed=tuple(changed), removed=gone, problems=tuple(problems))

    def _is_stale(self, source: Source, known: tuple[int, int] | None, *, quiet: int, whole: bool) -> bool:
        """Whether a file is to be read again now."""
        if known == (source.mtime, source.size):
            return False
        if quiet and source.mtime > (self.clock() - quiet) * _MILLISECOND:
            return False
        return whole or known is None or _has_grown(source, known[1])

    def _sources(self) -> dict[str, Source]:
        asked = self.settings.memory_search
        found: list[Source] = []
        if "memory" in asked.sources:
            found += memory_sources(self.root, asked.extra_paths)
        if "sessions" in asked.sources and asked.experimental.session_memory and self.sessions is not None:
            found += session_sources(self.sessions)
        return {source.name: source for source in found}

    def _take(self, source: Source) -> list[str]:
        """Cut a file, and put it into the index if it says something else than before."""
        cut = self.settings.memory_search.chunking
        lines = read_lines(source, mask=self.settings.archive.redaction)
        fresh = chunks(lines, tokens=cut.tokens, overlap=cut.overlap)
        with self._using():
            if fresh and self.table.digests(source.name) == [_key(chunk) for chunk in fresh]:
                self.table.touch(source)
                return []
            self.table.put(source, fresh)
            return [source.name]

    def embed(self, *, seconds: float | None = None) -> int:
        """Give chunks that have none yet their vectors; how many were given is returned.

        `seconds` is how long to go on after a first batch; whoever searches meanwhile waits for a batch at most.
        """
        until = None if seconds is None else time.monotonic() + seconds
        done = given = self._embed_some()
        while given and (until is None or time.monotonic() < until):
            given = self._embed_some()
            done += given
        return done

    def _embed_some(self) -> int:
        cache = self.settings.memory_search.cache
        with self._using():
            embedder = self.vectors.embedder
            missing = {} if embedder is None else self.table.without_vectors(embedder.space, limit=BATCH)
            parts = {digest: stretches_of(text) for digest, text in missing.items()}
            made = self.vectors.embed([part for of in parts.values() for part in of], kind="passage") if parts else None
            if made is None:
                return 0
            rows = iter(quantise(made[1]))
            kept = {digest: b"".join(next(rows).tobytes() for _ in of) for digest, of in parts.items()}
            self.table.keep_vectors(made[0].space, kept, most=cache.max_entries if cache.enabled else 0)
            return len(kept)

    # --- searching -------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> Found:
        """The stretches that have most to do with a question.

        Without a least score of the caller's own, a stretch that holds nearly all of the question's words is a hit
        whatever the vectors say, and where nothing is good enough the best by words are. With QMD as the backend its
        own order counts; when it fails, the answer says why and is that of our own index.
        """
        if self.qmd is None:
            return self._search(query, max_results=max_results, min_score=min_score)
        try:
            return self.qmd.search(query, max_results=max_results, min_score=min_score)
        except CommandError as error:
            found = self._search(query, max_results=max_results, min_score=min_score)
            return _instead(found, wanted="qmd", reason=str(error))

    def _search(self, query: str, *, max_results: int | None, min_score: float | None) -> Found:
        asked = self.settings.memory_search
        limit = max_results or asked.query.max_results
        synced = self.sync() if asked.sync.on_search or self.qmd is not None else Synced()
        self.embed(seconds=PATIENCE)
        with self._using():
            made = self.vectors.embed([query], kind="query") if query.strip() else None
            matches = match(
                self._current(),
                query,
                vector=None if made is None else made[1][0],
                hybrid=asked.query.hybrid,
                trust=self.vectors.trust(query),
                now=self.clock(),
                limit=limit,
            )
            with_words = "hybrid" if asked.query.hybrid.enabled else "vectors"
            return Found(
                hits=tuple(_hit(each, query) for each in _chosen(matches, min_score, asked.query.min_score)[:limit]),
                provider=self.vectors.provider,
                model="" if made is None else made[0].space.name,
                fallback=self.vectors.fallback,
                mode="words" if made is None else with_words,
                warnings=synced.problems,
            )

    def _current(self) -> Index:
        """The index in memory, made anew when anything was written."""
        embedder = self.vectors.embedder
        seen = (self.table.revision(), None if embedder is None else embedder.space)
        if self._index is None or seen != self._seen:
            vectors = None if embedder is None else self.table.vectors(embedder.space)
            dimension = 0 if embedder is None else embedder.space.dimension
            self._index, self._seen = build(self.table.rows(), vectors, dimension=dimension), seen
        return self._index


def _instead(found: Found, *, wanted: str, reason: str) -> Found:
    """An answer of our own index in the place of another's, with what was said of a provider before."""
    before = () if found.fallback is None else (f"{found.fallback.wanted}: {found.fallback.reason}",)
    told = f'memory.backend = "{wanted}" could not be asked, our own index was searched: {reason}'
    return replace(found, fallback=Fallback(wanted=wanted, reason=reason), warnings=(told, *before, *found.warnings))


def _key(chunk: Chunk) -> tuple[int, int, str]:
    return chunk.start, chunk.end, chunk.digest


def _has_grown(source: Source, before: int) -> bool:
    """Whether a file that was changed is worth reading again: a note always, a session when enough was said."""
    if source.kind == "memory" or not before <= source.size < before + GROWN_BYTES:
        return True
    with suppress(OSError), source.path.open("rb") as file:
        file.seek(before)
        return file.read(GROWN_BYTES).count(b"\n") >= GROWN_LINES
    return False


def _chosen(matches: Sequence[Match], given: float | None, usual: float) -> list[Match]:
    if given is not None:
        return [each for each in matches if each.score >= given]
    good = [each for each in matches if each.score >= usual or each.share >= TELLING]
    return good or [each for each in matches if each.share > 0]


def _hit(found: Match, query: str) -> Hit:
    row = found.row
    return Hit(
        path=row.path,
        start=row.start,
        end=row.end,
        score=round(min(1.0, found.score), 4),
        snippet=snippet(row.text, query),
        kind=row.kind,
    )
