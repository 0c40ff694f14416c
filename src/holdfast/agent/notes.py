"""Search over the notes of a workspace: `MEMORY.md`, `memory/**/*.md`, extra paths, and past sessions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from typing import Final, Self

from holdfast.agent.note_files import (
    Fallback,
    Line,
    NoteHit,
    NoteResults,
    Source,
    expand_paths,
    find_notes,
    find_sessions,
    number_lines,
    read_lines,
    read_messages,
    split_chunks,
)
from holdfast.agent.note_index import Embedders, Index, Match, Table
from holdfast.agent.paths import Bounds, locate, read_bytes
from holdfast.agent.qmd import Collection, CommandError, Qmd, custom_collections
from holdfast.errors import InputError
from holdfast.search.passages import windows
from holdfast.search.vectors import quantise
from holdfast.settings import Settings
from holdfast.store.connection import translate_errors

__all__ = ["Excerpt", "NoteHit", "NoteResults", "Notes", "SyncResult"]

INDEX_VERSION: Final = "1"
MIN_GROWN_BYTES: Final = 100_000
MIN_GROWN_LINES: Final = 50
"""A session in use is read again when it has grown by this much."""
EMBED_BATCH: Final = 16
"""Chunks that are embedded together."""
EMBED_SECONDS: Final = 0.05
"""How long a search embeds new chunks; the others are found by words until there is time."""
MIN_WORD_SHARE: Final = 0.75
"""A chunk that contains this share of the question's words is a hit, whatever the vectors say."""
MAX_EXCERPT_LINES: Final = 120
MAX_EXCERPT_CHARS: Final = 12_000
_SESSIONS: Final = "sessions/"
_MILLISECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """What an update has changed in the index."""

    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of a note; empty if there is no such note. `following` is the next line, if there are more."""

    path: str
    text: str
    following: int | None = None


@dataclass(slots=True)
class Notes:
    """The notes of a workspace, open for search. Threads may share it.

    Attributes:
        root: The workspace.
        settings: The settings in force.
        file: The file of the index.
        sessions: The folder of past sessions, if they are searched.
        clock: Returns the time in Unix milliseconds.
        embedders: What embeds the notes.
        qmd: QMD, if it is the backend; our own index is searched when it fails.
    """

    root: Path
    settings: Settings
    file: Path
    sessions: Path | None = None
    clock: Callable[[], int] = field(default=lambda: time.time_ns() // _MILLISECOND)
    embedders: Embedders = field(init=False)
    qmd: Qmd | None = field(init=False, default=None)
    _lock: RLock = field(default_factory=RLock)
    _table: Table | None = None
    _index: Index | None = None
    _index_key: object = None

    def __post_init__(self) -> None:
        self.embedders = Embedders(self.settings)
        if self.settings.memory.backend == "qmd":
            folder = self.file.parent if self.sessions is None else self.sessions.parent
            self.qmd = Qmd(self.root, self.settings, folder / "qmd", self.sessions, self.clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the index."""
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
            chunking = self.settings.memory_search.chunking
            signature = f"{INDEX_VERSION}:{chunking.tokens}:{chunking.overlap}:{self.settings.archive.redaction}"
            self._table = Table(self.file, signature=signature)
        return self._table

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the lock; errors of SQLite become `StorageError`."""
        with self._lock, translate_errors(self.file):
            yield

    # --- updating ----------------------------------------------------------------

    def start(self) -> SyncResult:
        """Read every file at the start of a session, if the settings say so."""
        if self.qmd is not None:
            self.qmd.start()
            return SyncResult()
        if not self.settings.memory_search.sync.on_session_start:
            return SyncResult()
        self.embedders.reset()
        return self.sync(whole=True)

    def poll(self) -> SyncResult:
        """Read files that have changed and are not being edited any more, if the settings say so."""
        if self.qmd is not None:
            self.qmd.poll()
            return SyncResult()
        sync = self.settings.memory_search.sync
        return self.sync(quiet=sync.watch_debounce_ms) if sync.watch else SyncResult()

    def sync(self, *, quiet: int = 0, whole: bool = False) -> SyncResult:
        """Update the index: read changed files again, and remove deleted ones.

        Args:
            quiet: Milliseconds for which a file must not have been changed.
            whole: Read also sessions that have grown only a little, and embed everything new.
        """
        with self._exclusive():
            known, present = self.table.files(), self._find_sources()
            gone = tuple(path for path in known if path not in present)
            if gone:
                self.table.delete(gone)
            problems = list(self.table.problems)
        changed: list[str] = []
        for source in present.values():
            if self._is_stale(source, known.get(source.name), quiet=quiet, whole=whole):
                try:
                    changed += [source.name] if self._index_file(source) else []
                except OSError as error:
                    problems.append(f"{source.name}: {error.strerror}")
        if whole:
            self.embed()
        return SyncResult(changed=tuple(changed), removed=gone, problems=tuple(problems))

    def _is_stale(self, source: Source, known: tuple[int, int] | None, *, quiet: int, whole: bool) -> bool:
        """Whether a file must be read again now."""
        if known == (source.mtime, source.size):
            return False
        if quiet and source.mtime > (self.clock() - quiet) * _MILLISECOND:
            return False
        return whole or known is None or _has_grown(source, known[1])

    def _find_sources(self) -> dict[str, Source]:
        search = self.settings.memory_search
        sources: list[Source] = []
        if "memory" in search.sources:
            sources += find_notes(self.root, search.extra_paths)
        if "sessions" in search.sources and search.experimental.session_memory and self.sessions is not None:
            sources += find_sessions(self.sessions)
        return {source.name: source for source in sources}

    def _index_file(self, source: Source) -> bool:
        """Read a file and replace its chunks; return whether they have changed."""
        chunking = self.settings.memory_search.chunking
        lines = read_lines(source, mask=self.settings.archive.redaction)
        chunks = split_chunks(lines, tokens=chunking.tokens, overlap=chunking.overlap)
        with self._exclusive():
            return self.table.replace_chunks(source, chunks)

    def embed(self, *, seconds: float | None = None) -> int:
        """Embed chunks that have no vectors yet, and return how many.

        `seconds` limits the time after a first batch; a search in another thread waits for one batch at most.
        """
        until = None if seconds is None else time.monotonic() + seconds
        total = count = self._embed_batch()
        while count and (until is None or time.monotonic() < until):
            count = self._embed_batch()
            total += count
        return total

    def _embed_batch(self) -> int:
        cache = self.settings.memory_search.cache
        with self._exclusive():
            embedder = self.embedders.current
            missing = {} if embedder is None else self.table.without_vectors(embedder.space, limit=EMBED_BATCH)
            # A few sentences each: a vector of many things is similar to none of them.
            parts = {digest: [text[start:end] for start, end in windows(text)] for digest, text in missing.items()}
            texts = [part for each in parts.values() for part in each]
            made = self.embedders.embed(texts, kind="passage") if texts else None
            if made is None:
                return 0
            rows = iter(quantise(made[1]))
            vectors = {digest: b"".join(next(rows).tobytes() for _ in each) for digest, each in parts.items()}
            self.table.store_vectors(made[0].space, vectors, max_unused=cache.max_entries if cache.enabled else 0)
            return len(vectors)

    # --- searching ---------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> NoteResults:
        """Find the notes that match a question, best first.

        Without `min_score`, a chunk with nearly all words of the question is a hit whatever the vectors say, and if
        nothing reaches the minimum of the settings, the best matches by words are returned. With QMD as the backend
        its own order counts; if it fails, our own index is searched and the result says why.
        """
        if self.qmd is None:
            return self._search_index(query, max_results=max_results, min_score=min_score)
        try:
            return self.qmd.search(query, max_results=max_results, min_score=min_score)
        except CommandError as error:
            found = self._search_index(query, max_results=max_results, min_score=min_score)
            other = () if found.fallback is None else (f"{found.fallback.wanted}: {found.fallback.reason}",)
            warning = f'memory.backend = "qmd" is not available, our own index was searched: {error}'
            return replace(
                found,
                fallback=Fallback(wanted="qmd", reason=str(error)),
                warnings=(warning, *other, *found.warnings),
            )

    def _search_index(self, query: str, *, max_results: int | None, min_score: float | None) -> NoteResults:
        settings = self.settings.memory_search
        limit = max_results or settings.query.max_results
        synced = self.sync() if settings.sync.on_search or self.qmd is not None else SyncResult()
        self.embed(seconds=EMBED_SECONDS)
        with self._exclusive():
            made = self.embedders.embed([query], kind="query") if query.strip() else None
            matches = self._load_index().search(
                query,
                vector=None if made is None else made[1][0],
                hybrid=settings.query.hybrid,
                vector_weight=self.embedders.weigh(query),
                now=self.clock(),
                limit=limit,
            )
            best = _apply_min_score(matches, min_score, settings.query.min_score)[:limit]
            with_words = "hybrid" if settings.query.hybrid.enabled else "vectors"
            return NoteResults(
                hits=tuple(match.to_hit(query) for match in best),
                provider=self.embedders.provider,
                model="" if made is None else made[0].space.name,
                fallback=self.embedders.fallback,
                mode="words" if made is None else with_words,
                warnings=synced.problems,
            )

    def _load_index(self) -> Index:
        """Return the index in memory, built again after every write."""
        embedder = self.embedders.current
        key = (self.table.revision(), None if embedder is None else embedder.space)
        if self._index is None or key != self._index_key:
            vectors = None if embedder is None else self.table.vectors(embedder.space)
            dimension = 0 if embedder is None else embedder.space.dimension
            self._index, self._index_key = Index(self.table.rows(), vectors, dimension=dimension), key
        return self._index

    # --- reading -----------------------------------------------------------------

    def read(self, path: str, *, start: int = 1, count: int | None = None) -> Excerpt:
        """Read some lines of a note, of a file in an extra path, or of a past session.

        Raises:
            InputError: The path is not one that `search` covers.
        """
        lines = [line for line in self._read_lines(path) if line[0] >= start]
        if count is not None:
            lines = [line for line in lines if line[0] < start + count]
        kept = _fit_lines(lines[:MAX_EXCERPT_LINES] if count is None else lines)
        following = lines[len(kept)][0] if len(kept) < len(lines) else None
        return Excerpt(path=path, text="\n".join(text for _, text in kept), following=following)

    def _read_lines(self, path: str) -> list[Line]:
        if path.startswith(_SESSIONS) and self.sessions is not None and self._has_sessions():
            file = locate(Bounds(root=self.sessions), path.removeprefix(_SESSIONS)).path
            return read_messages(file, mask=self.settings.archive.redaction) if file.is_file() else []
        extra = expand_paths(self.root, self.settings.memory_search.extra_paths)
        collections = custom_collections(self.root, self.settings.memory.qmd) if self.qmd is not None else []
        bounds = Bounds(root=self.root, allowed=(*extra, *(each.path for each in collections)))
        file = locate(bounds, path).path
        if not _is_note(file, self.root, extra, collections):
            raise InputError(
                f"{path!r} is not a note: use a path that memory_search returned, such as MEMORY.md or "
                "memory/2026-02-10.md; `read` shows other files"
            )
        return number_lines(read_bytes(bounds, path).decode("utf-8", "replace")) if file.is_file() else []

    def _has_sessions(self) -> bool:
        """Whether past sessions are searched, by our own index or by QMD."""
        is_in_qmd = self.qmd is not None and self.settings.memory.qmd.sessions.enabled
        return is_in_qmd or "sessions" in self.settings.memory_search.sources


def _has_grown(source: Source, before: int) -> bool:
    """Whether a changed file is worth reading again: a note always, a session when it has grown enough."""
    if source.kind == "memory" or not before <= source.size < before + MIN_GROWN_BYTES:
        return True
    with suppress(OSError), source.path.open("rb") as file:
        file.seek(before)
        return file.read(MIN_GROWN_BYTES).count(b"\n") >= MIN_GROWN_LINES
    return False


def _is_note(file: Path, root: Path, extra: Sequence[Path], collections: Sequence[Collection]) -> bool:
    """Whether a resolved file is a note of the workspace, or is in an extra path or a collection."""
    base = root.resolve()
    places = (base / "memory", *(place.resolve() for place in extra))
    is_inside = any(file.is_relative_to(place) for place in places)
    is_note = file.suffix.lower() == ".md" and (is_inside or file in {base / "MEMORY.md", base / "memory.md"})
    return is_note or any(each.contains(file) for each in collections)


def _fit_lines(lines: Sequence[Line]) -> list[Line]:
    """Return as many lines as fit; of a first line that does not fit, its beginning."""
    kept: list[Line] = []
    room = MAX_EXCERPT_CHARS
    for number, text in lines:
        if len(text) >= room:
            return kept or [(number, text[:MAX_EXCERPT_CHARS])]
        kept.append((number, text))
        room -= len(text) + 1
    return kept


def _apply_min_score(matches: Sequence[Match], given: float | None, default: float) -> list[Match]:
    if given is not None:
        return [match for match in matches if match.score >= given]
    good = [match for match in matches if match.score >= default or match.share >= MIN_WORD_SHARE]
    return good or [match for match in matches if match.share > 0]
