"""The index of notes: chunks and vectors in a SQLite file that can be deleted at any time, and the search over them.

Terms, posting lists, vectors and ranking functions are those of the archive.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
from msgspec.structs import replace

from holdfast.agent.note_files import Chunk, Fallback, Kind, NoteHit, Source
from holdfast.errors import EmbeddingError
from holdfast.search.bm25 import Corpus, score
from holdfast.search.columns import Floats, PassageRow
from holdfast.search.embed import Choice, Embedder, Purpose, RemoteEmbedder, choose
from holdfast.search.embed.base import Space, behind_cache
from holdfast.search.embed.static import vector_weight
from holdfast.search.mmr import Item, mmr
from holdfast.search.passages import windows
from holdfast.search.postings import MemoryIndex
from holdfast.search.vectors import Matrix
from holdfast.settings import Embedding, Settings
from holdfast.settings.schema import Hybrid
from holdfast.store.connection import translate_errors
from holdfast.text import head, terms

__all__ = ["ChunkRow", "Embedders", "Index", "Match", "Table", "forget_files", "make_snippet"]

MAX_SNIPPET_CHARS: Final = 700
MAX_CANDIDATES: Final = 200
_DATED: Final = re.compile(r"(?:^|/)memory/(?:.*/)?(\d{4}-\d{2}-\d{2})[^/]*\.md$")
_DAY: Final = 86_400_000
_SCHEMA: Final = """
    CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS files(path TEXT PRIMARY KEY, source TEXT, mtime INTEGER, size INTEGER);
    CREATE TABLE IF NOT EXISTS chunks(
        id INTEGER PRIMARY KEY, path TEXT, source TEXT, start_line INTEGER, end_line INTEGER, mtime INTEGER,
        hash TEXT, text TEXT, terms TEXT
    );
    CREATE INDEX IF NOT EXISTS chunks_by_path ON chunks(path);
    CREATE TABLE IF NOT EXISTS vectors(space TEXT, hash TEXT, vector BLOB, UNIQUE(space, hash));
"""
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_BUSY_SECONDS: Final = 30.0


# --- on disk -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChunkRow:
    """A chunk in the index."""

    path: str
    kind: Kind
    start: int
    end: int
    mtime: int
    digest: str
    text: str
    terms: tuple[str, ...]


class Table:
    """An open index.

    Attributes:
        problems: What had to be repaired to open it.
    """

    def __init__(self, path: Path, *, signature: str) -> None:
        self.problems: list[str] = []
        self._connection = self._open(path)
        with self._transaction() as write:
            (known,) = write.execute("SELECT (SELECT value FROM meta WHERE key = 'signature')").fetchone()
            if known != signature:  # other chunk sizes: nothing fits
                write.execute("DELETE FROM files")
                write.execute("DELETE FROM chunks")
                write.execute("REPLACE INTO meta VALUES ('signature', ?)", (signature,))

    def _open(self, path: Path) -> sqlite3.Connection:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return _connect(path)
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "") in _DAMAGED:
                self.problems.append(f"{path} was damaged and is built again")
                for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
                    path.with_name(name).unlink(missing_ok=True)
                return _connect(path)
            self.problems.append(f"{path} cannot be used ({error}): the index of notes is kept in memory")
        except OSError as error:
            self.problems.append(f"{path} cannot be used ({error.strerror}): the index of notes is kept in memory")
        return _connect(":memory:")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def revision(self) -> tuple[int, int]:
        """Return a value that changes with every write, in this process or in another."""
        (other,) = self._connection.execute("PRAGMA data_version").fetchone()
        return int(other), self._connection.total_changes

    def files(self) -> dict[str, tuple[int, int]]:
        """Return the indexed files with their time and size."""
        rows = self._connection.execute("SELECT path, mtime, size FROM files")
        return {path: (mtime, size) for path, mtime, size in rows}

    def replace_chunks(self, source: Source, chunks: Sequence[Chunk]) -> bool:
        """Replace the chunks of a file; return whether anything has changed."""
        query = "SELECT start_line, end_line, hash FROM chunks WHERE path = ? ORDER BY id"
        before = self._connection.execute(query, (source.name,)).fetchall()
        is_same = bool(chunks) and before == [(chunk.start, chunk.end, chunk.digest) for chunk in chunks]
        file = (source.name, source.kind, source.mtime, source.size)
        with self._transaction() as write:
            if is_same:
                write.execute("REPLACE INTO files VALUES (?, ?, ?, ?)", file)
                return False
            _delete(write, [source.name])
            write.execute("INSERT INTO files VALUES (?, ?, ?, ?)", file)
            write.executemany(
                "INSERT INTO chunks VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (
                        *(source.name, source.kind, chunk.start, chunk.end, source.mtime, chunk.digest, chunk.text),
                        " ".join(terms(chunk.text)),
                    )
                    for chunk in chunks
                ),
            )
        return True

    def delete(self, paths: Sequence[str]) -> None:
        """Remove files from the index."""
        with self._transaction() as write:
            _delete(write, paths)

    def rows(self) -> list[ChunkRow]:
        """Load every chunk."""
        query = "SELECT path, source, start_line, end_line, mtime, hash, text, terms FROM chunks ORDER BY id"
        rows = self._connection.execute(query)
        return [
            ChunkRow(path, kind, start, end, mtime, digest, text, tuple(words.split()))
            for path, kind, start, end, mtime, digest, text, words in rows
        ]

    def without_vectors(self, space: Space, *, limit: int) -> dict[str, str]:
        """Return texts that have no vector in a space yet, by digest."""
        query = (
            "SELECT hash, min(text) FROM chunks WHERE hash NOT IN (SELECT hash FROM vectors WHERE space = ?) "
            "GROUP BY hash LIMIT ?"
        )
        return dict(self._connection.execute(query, (_space_key(space), limit)).fetchall())

    def vectors(self, space: Space) -> dict[str, bytes]:
        """Return the vectors of chunks in a space, by digest."""
        query = "SELECT hash, vector FROM vectors WHERE space = ? AND hash IN (SELECT hash FROM chunks)"
        return dict(self._connection.execute(query, (_space_key(space),)).fetchall())

    def store_vectors(self, space: Space, vectors: Mapping[str, bytes], *, max_unused: int) -> None:
        """Store vectors; of texts that are no longer in any note, keep only the newest `max_unused`."""
        with self._transaction() as write:
            rows = ((_space_key(space), digest, vector) for digest, vector in vectors.items())
            write.executemany("REPLACE INTO vectors VALUES (?, ?, ?)", rows)
            write.execute(
                "DELETE FROM vectors WHERE rowid IN (SELECT rowid FROM vectors "
                "WHERE hash NOT IN (SELECT hash FROM chunks) ORDER BY rowid DESC LIMIT -1 OFFSET ?)",
                (max_unused,),
            )


def forget_files(path: Path, names: Sequence[str]) -> None:
    """Remove files and their vectors from an index on disk, also from free pages and the write-ahead log."""
    if not path.exists():
        return
    with translate_errors(path), closing(_connect(path)) as connection:
        _delete(connection, names)
        connection.execute("DELETE FROM vectors WHERE hash NOT IN (SELECT hash FROM chunks)")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _connect(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
    except sqlite3.Error:
        connection.close()
        raise
    if isinstance(path, Path):
        path.chmod(0o600)
    return connection


def _delete(write: sqlite3.Connection, paths: Sequence[str]) -> None:
    names = (json.dumps(list(paths)),)
    write.execute("DELETE FROM files WHERE path IN (SELECT value FROM json_each(?))", names)
    write.execute("DELETE FROM chunks WHERE path IN (SELECT value FROM json_each(?))", names)


def _space_key(space: Space) -> str:
    return f"{space.name}:{space.dimension}:{space.digest}"


# --- in memory ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that matches: its score from 0 to 1, and the share of the question's words that it contains."""

    row: ChunkRow
    score: float
    share: float

    def to_hit(self, query: str) -> NoteHit:
        """Return the match as a search returns it."""
        row, snippet = self.row, make_snippet(self.row.text, query)
        rounded = round(min(1.0, self.score), 4)
        return NoteHit(path=row.path, start=row.start, end=row.end, score=rounded, snippet=snippet, kind=row.kind)


class Index:
    """Every chunk, ready to be searched.

    `vectors` are those of the windows of each chunk as signed bytes, end to end, by digest.
    """

    def __init__(
        self, rows: Sequence[ChunkRow], vectors: Mapping[str, bytes] | None = None, *, dimension: int = 0
    ) -> None:
        self._rows = rows
        self._words = MemoryIndex()
        self._matrix = None if vectors is None else Matrix(dimension)
        self._starts: list[int] = []
        self._windows = 0
        for number, row in enumerate(rows):
            self._words.insert(_make_passage(number, row), row.terms)
            if vectors is not None and self._matrix is not None:
                self._starts.append(self._windows)
                values = np.frombuffer(vectors.get(row.digest, b""), np.int8)
                parts = values[: len(values) // dimension * dimension].reshape(-1, dimension)
                self._matrix.store(self._windows, parts)
                self._windows += max(1, len(parts))  # a chunk without vectors is similar to nothing

    def search(
        self, query: str, *, vector: Floats | None, hybrid: Hybrid, vector_weight: float, now: int, limit: int
    ) -> list[Match]:
        """Find the chunks that match a question, best first.

        `vector_weight` says how much the vector of the question counts, 0 to 1. Without a vector only words count.
        """
        if not self._rows:
            return []
        counts = Counter(terms(query))
        postings = self._words.postings({term: float(count) for term, count in counts.items()})
        keywords = score(postings, Corpus.of(self._words.columns, self._words.columns["alive"]))
        scores = self._fuse(keywords.share, vector, hybrid=hybrid, vector_weight=vector_weight)
        if hybrid.temporal_decay.enabled:
            ages = np.array([max(0.0, now - _note_time(row, now)) / _DAY for row in self._rows])
            scores = scores * np.exp2(-ages / hybrid.temporal_decay.half_life_days).astype(np.float32)
        order = np.lexsort((-keywords.passages, -np.round(scores, 6)))
        count = min(MAX_CANDIDATES, limit * hybrid.candidate_multiplier)
        matches = [
            Match(self._rows[number], float(scores[number]), float(keywords.share[number]))
            for number in order[:count].tolist()
            if scores[number] > 0
        ]
        if not hybrid.mmr.enabled:
            return matches
        items = {Item(score=match.score, text=match.row.text): match for match in matches}
        return [items[item] for item in mmr(list(items), relevance_weight=hybrid.mmr.relevance_weight)]

    def _fuse(self, share: Floats, vector: Floats | None, *, hybrid: Hybrid, vector_weight: float) -> Floats:
        """Combine words and vectors by their weights; both are absolute, so that a minimum score has a meaning."""
        words = hybrid.text_weight if hybrid.enabled else 0.0
        vectors = (hybrid.vector_weight if hybrid.enabled else 1.0) * vector_weight
        if vector is None or self._matrix is None or not words + vectors:
            return share
        cosines = self._matrix.cosine(vector, windows=self._windows)
        best: Floats = np.maximum(np.maximum.reduceat(cosines, np.array(self._starts, np.int64)), 0)
        fused: Floats = ((vectors * best + words * share) / (words + vectors)).astype(np.float32)
        return fused


def _make_passage(number: int, row: ChunkRow) -> PassageRow:
    return PassageRow(
        message=number,
        scope=0,
        time=0,
        previous=-1,
        human=False,
        size=len(row.text),
        window_lengths=(len(row.terms),),
    )


def _note_time(row: ChunkRow, now: int) -> float:
    """Return the date in the name of a daily note. Notes without a date do not age."""
    dated = _DATED.search(f"/{row.path}")
    if dated is not None:
        try:
            return datetime.fromisoformat(dated[1]).replace(tzinfo=UTC).timestamp() * 1000
        except ValueError:
            return now
    is_evergreen = row.kind == "memory" and row.path.startswith(("MEMORY.md", "memory.md", "memory/"))
    return now if is_evergreen else row.mtime / 1_000_000


def make_snippet(text: str, query: str, *, most: int = MAX_SNIPPET_CHARS) -> str:
    """Return the part of a chunk that contains most words of the question."""
    if len(text) <= most:
        return text
    words = set(terms(query))
    parts = windows(text)
    hits = [len(words & set(terms(text[start:stop]))) for start, stop in parts]
    best = max(range(len(parts)), key=lambda number: (sum(hits[number : number + 2]), hits[number], -number))
    start = min(parts[best][0], max(0, len(text) - most))
    return head(text[start:], most)


# --- embedders ---------------------------------------------------------------------------


def _embedding_settings(settings: Settings) -> Embedding:
    """Return how notes are embedded; what `memory_search` does not set is as for the archive."""
    notes, archive = settings.memory_search, settings.embedding
    provider = archive.provider if notes.provider == "auto" else notes.provider
    base = archive if provider == archive.provider else _with_provider(archive, provider)
    given = {
        "model": notes.local.model_path or notes.model,
        "dimension": notes.output_dimensionality,
        "base_url": notes.remote.base_url,
        "api_key": notes.remote.api_key,
    }
    return replace(base, provider=provider, **{name: value for name, value in given.items() if value is not None})


def _with_provider(settings: Embedding, provider: str) -> Embedding:
    """Return the settings for another provider: neither the model nor the key fits it."""
    return replace(settings, provider=provider, model=None, dimension=None, base_url=None, api_key=None)


@dataclass(slots=True)
class Embedders:
    """The embedder of notes: the configured one, the fallback if it fails, else none. Opened when first needed."""

    settings: Settings
    choose: Callable[[Embedding], Choice] = field(default=lambda given: choose(given, allow_remote=given.allow_remote))
    fallback: Fallback | None = None
    _choices: list[Embedding] = field(default_factory=list)
    _embedder: Embedder | None = None
    _provider: str = ""
    _is_open: bool = False

    def reset(self) -> None:
        """Try the configured provider again."""
        self._is_open, self.fallback = False, None

    @property
    def provider(self) -> str:
        """The provider in use; `none` if only words are compared."""
        inner = behind_cache(self.current)
        if inner is None:
            return "none"
        automatic = inner.space.name.partition("/")[0] if isinstance(inner, RemoteEmbedder) else "local"
        return automatic if self._provider == "auto" else self._provider

    @property
    def current(self) -> Embedder | None:
        """The embedder in use; None if only words are compared."""
        if not self._is_open:
            self._is_open = True
            spare = _with_provider(self.settings.embedding, self.settings.memory_search.fallback)
            self._choices = [_embedding_settings(self.settings), spare]
            self._open_next("")
        return self._embedder

    def _open_next(self, failure: str) -> None:
        """Open the next provider that is available."""
        self._embedder = None
        while self._embedder is None and self._choices:
            given = self._choices.pop(0)
            if given.provider == "none":
                continue
            choice = self.choose(given)
            self._embedder, self._provider = choice.embedder, given.provider
            if choice.embedder is None:
                failure = failure or "; ".join(choice.reasons)
        if failure and self.fallback is None:
            self.fallback = Fallback(wanted=_embedding_settings(self.settings).provider, reason=failure)

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> tuple[Embedder, Floats] | None:
        """Embed texts; return the embedder and the vectors, or None if no embedder is available."""
        while (embedder := self.current) is not None:
            try:
                return embedder, embedder.embed(texts, kind=kind)
            except EmbeddingError as error:
                self._open_next(str(error))
        return None

    def weigh(self, query: str) -> float:
        """Return how much the vector of a question counts, 0 to 1."""
        return vector_weight(self.current, query)
