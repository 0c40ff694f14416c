"""Search over the notes of a workspace: `MEMORY.md`, `memory/**/*.md`, extra paths, and past sessions.

Notes are documents in a store as the archive is: a file is a session, and its chunks are messages. The store is a file
of its own, so that it can be deleted at any time, has its own embedder, and is part of no export. A record for each
file says which messages its chunks are, and their lines. Chunks that are no longer in a file stay in the store as a
cache of their vectors, but are not found.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Final, Self, TypeVar

import msgspec
import numpy as np

from holdfast.calls import Deadline
from holdfast.embed import Choice, Embedder, choose
from holdfast.embed.base import behind_cache
from holdfast.embed.remote import RemoteEmbedder
from holdfast.embed.static import vector_weight
from holdfast.errors import EmbeddingError, InputError, StorageError
from holdfast.memory import archive
from holdfast.memory.memory import Memory
from holdfast.messages import Message, Text, ToolResult
from holdfast.search.arrays import Floats
from holdfast.search.mmr import Item, mmr
from holdfast.search.passages import windows
from holdfast.settings import Embedding, Settings
from holdfast.store.base import MessageRow, Record, Scope, SearchQuery, Select
from holdfast.store.sqlite import SqliteStore
from holdfast.text import digest, head, terms
from holdfast_agent import note_files
from holdfast_agent.memories import derive_embedding
from holdfast_agent.note_files import Fallback, Kind, Line, NoteHit, NoteResults, Source, read_messages
from holdfast_agent.paths import Bounds, locate, read_bytes
from holdfast_agent.qmd import Qmd, custom_collections
from holdfast_agent.settings import ChatSettings
from holdfast_agent.shell import CommandError

T = TypeVar("T")

INDEX_VERSION: Final = "2"
MIN_GROWN_BYTES: Final = 100_000
MIN_GROWN_LINES: Final = 50
"""A session in use is read again when it has grown by this much."""
EMBED_BATCH: Final = 16
"""Chunks that a search embeds together; more at the start of a session."""
EMBED_SECONDS: Final = 0.05
"""How long a search embeds new chunks; the others are found by words until there is time."""
MIN_WORD_SHARE: Final = 0.75
"""A chunk that contains this share of the question's words is a hit, whatever the vectors say."""
MIN_FALLBACK_SHARE: Final = 0.15
"""The share of the question's words in a chunk that is returned if nothing reaches the minimum score."""
MAX_CANDIDATES: Final = 200
MAX_SNIPPET_CHARS: Final = 700
MAX_EXCERPT_LINES: Final = 120
MAX_EXCERPT_CHARS: Final = 12_000
_RECORD: Final = "note"
_SESSIONS: Final = "sessions/"
_DATED: Final = re.compile(r"(?:^|/)memory/(?:.*/)?(\d{4}-\d{2}-\d{2})[^/]*\.md$")
_DAY: Final = 86_400_000
_MILLISECOND: Final = 1_000_000


class Indexed(msgspec.Struct, frozen=True):
    """What the record of a file says: its state when it was read, and the numbers of its chunks.

    `lines` has the first and the last line of each chunk by its digest; what it does not name is cached.
    """

    kind: Kind
    mtime: int
    size: int
    signature: str
    numbers: dict[str, int]
    lines: dict[str, list[tuple[int, int]]]

    def time(self, path: str, now: int) -> float:
        """Return the date in the name of a daily note. Notes without a date do not age."""
        dated = _DATED.search(f"/{path}")
        if dated is not None:
            with suppress(ValueError):
                return datetime.fromisoformat(dated[1]).replace(tzinfo=UTC).timestamp() * 1000
            return now
        is_evergreen = self.kind == "memory" and path.startswith(("MEMORY.md", "memory.md", "memory/"))
        return now if is_evergreen else self.mtime / _MILLISECOND


@dataclass(slots=True)
class Embedders:
    """The embedder of notes: the configured one, the fallback if it fails, else none. Opened when first needed."""

    settings: ChatSettings
    choose: Callable[[Embedding], Choice] = field(default=lambda given: choose(given, allow_remote=given.allow_remote))
    fallback: Fallback | None = None
    _choices: list[Embedding] | None = None
    _embedder: Embedder | None = None
    _provider: str = ""

    def reset(self) -> None:
        """Try the configured provider again."""
        self._choices, self.fallback = None, None

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
        if self._choices is None:
            notes, archive = self.settings.agent.memory_search, self.settings.embedding
            wanted = derive_embedding(
                archive,
                archive.provider if notes.provider == "auto" else notes.provider,
                model=notes.local.model_path or notes.model,
                dimension=notes.output_dimensionality,
                base_url=notes.remote.base_url,
                api_key=notes.remote.api_key,
            )
            spare = derive_embedding(msgspec.structs.replace(archive, provider=""), notes.fallback)
            self._choices = [wanted, spare]
            self._open_next(wanted.provider)
        return self._embedder

    def _open_next(self, wanted: str, failure: str = "") -> None:
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
            self.fallback = Fallback(wanted=wanted, reason=failure)

    def call(self, use: Callable[[Embedder], T]) -> T | None:
        """Use the embedder; one that fails is replaced by the next. None if there is none."""
        while (embedder := self.current) is not None:
            try:
                return use(embedder)
            except EmbeddingError as error:
                self._open_next(self._provider, str(error))
        return None


@dataclass(slots=True)
class Notes:
    """The notes of a workspace, and the sessions in a folder, open for search. Threads may share it.

    The index is in `file`; `clock` returns the time in Unix milliseconds. With QMD as the backend, our own index is
    searched when it fails.
    """

    root: Path
    settings: ChatSettings
    file: Path
    sessions: Path | None = None
    clock: Callable[[], int] = field(default=lambda: time.time_ns() // _MILLISECOND)
    embedders: Embedders = field(init=False)
    qmd: Qmd | None = field(init=False, default=None)
    _lock: RLock = field(default_factory=RLock)
    _memory: Memory | None = None
    _closing: ExitStack = field(default_factory=ExitStack)
    _problems: tuple[str, ...] = ()
    _unreadable: list[str] = field(default_factory=list)
    _files: dict[str, Indexed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.embedders = Embedders(self.settings)
        if self.settings.agent.memory_search.backend == "qmd":
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
            self._closing.close()
            self._memory = None

    @property
    def memory(self) -> Memory:
        """The store of the notes, opened when it is first needed."""
        with self._lock:
            if self._memory is None:
                memory = Memory(store=self._open(), settings=Settings(), clock=self.clock)
                self._memory = self._closing.enter_context(memory)
            return self._memory

    def _open(self) -> SqliteStore:
        """Open the file. A damaged one is built again; if it cannot be used, a temporary one replaces it."""
        try:
            store, self._problems = _open_store(self.file)
            if not store.readonly:
                return store
            store.close()
            reason = "read-only"
        except (StorageError, OSError) as error:
            reason = str(error)
        folder = TemporaryDirectory(prefix="holdfast-notes-", ignore_cleanup_errors=True)
        self._problems = (f"{self.file} cannot be used ({reason}): the index of notes is temporary",)
        return SqliteStore(Path(self._closing.enter_context(folder), "notes.db"))

    def _scope(self, path: str = "") -> Scope:
        return Scope(project=str(self.root), session=path)

    def _indexed(self) -> dict[str, Indexed]:
        records = self.memory.store.read_records(Select(scope=self._scope(), across=True), kind=_RECORD)
        return {record.key: msgspec.convert(record.data, Indexed) for record in records}

    # --- updating ----------------------------------------------------------------

    def start(self) -> list[str]:
        """Read every file at the start of a session, if the settings say so; return what has changed."""
        if self.qmd is not None:
            self.qmd.start()
        elif self.settings.agent.memory_search.sync.on_session_start:
            self.embedders.reset()
            return self.sync(whole=True)
        return []

    def poll(self) -> list[str]:
        """Read files that have changed and are not being edited any more, if the settings say so; return them."""
        sync = self.settings.agent.memory_search.sync
        if self.qmd is not None:
            self.qmd.poll()
        elif sync.watch:
            return self.sync(quiet=sync.watch_debounce_ms)
        return []

    def sync(self, *, quiet: int = 0, whole: bool = False) -> list[str]:
        """Update the index: read changed files again, whose names are returned, and remove deleted ones.

        A file must not have been changed for `quiet` milliseconds. With `whole`, read also sessions that have grown
        only a little, and embed everything new.
        """
        with self._lock:
            known, sources, self._unreadable = self._indexed(), self._find_sources(), []
            for name in known.keys() - {source.name for source in sources}:
                self.memory.forget(scope=self._scope(name))
                del known[name]
            fresh: dict[str, Indexed] = {}
            rows: dict[tuple[str, str], MessageRow] = {}
            for source in sources:
                if self._is_stale(source, known.get(source.name), quiet=quiet, whole=whole):
                    try:
                        fresh[source.name] = self._read(source, known.get(source.name), rows)
                    except OSError as error:
                        self._unreadable.append(f"{source.name}: {error.strerror}")
            before, self._files = known, known | fresh
            self._store(fresh, rows)
        if whole:
            self.embed()
        return [name for name, file in fresh.items() if name not in before or before[name].lines != file.lines]

    def _find_sources(self) -> list[Source]:
        search = self.settings.agent.memory_search
        sources = note_files.find_notes(self.root, search.extra_paths) if "memory" in search.sources else []
        if "sessions" in search.sources and search.experimental.session_memory and self.sessions is not None:
            sources += note_files.find_sessions(self.sessions)
        return sources

    def _is_stale(self, source: Source, before: Indexed | None, *, quiet: int, whole: bool) -> bool:
        """Whether a file must be read again: a changed note always, a session when it has grown enough."""
        if quiet and source.mtime > (self.clock() - quiet) * _MILLISECOND:
            return False
        if before is None or before.signature != self._signature:
            return True
        if (before.mtime, before.size) == (source.mtime, source.size):
            return False
        if whole or source.kind == "memory" or not before.size <= source.size < before.size + MIN_GROWN_BYTES:
            return True
        with suppress(OSError), source.path.open("rb") as file:
            file.seek(before.size)
            return file.read(MIN_GROWN_BYTES).count(b"\n") >= MIN_GROWN_LINES
        return False

    @property
    def _signature(self) -> str:
        chunking = self.settings.agent.memory_search.chunking
        return f"{INDEX_VERSION}:{chunking.tokens}:{chunking.overlap}:{self.settings.archive.redaction}"

    def _read(self, source: Source, before: Indexed | None, rows: dict[tuple[str, str], MessageRow]) -> Indexed:
        """Read a file, and add rows for those chunks that are not stored yet."""
        chunking, numbers = self.settings.agent.memory_search.chunking, {} if before is None else before.numbers
        lines = note_files.read_lines(source, mask=self.settings.archive.redaction)
        places: dict[str, list[tuple[int, int]]] = {}
        for chunk in note_files.split_chunks(lines, tokens=chunking.tokens, overlap=chunking.overlap):
            key = digest(chunk.text)
            places.setdefault(key, []).append((chunk.start, chunk.end))
            if key not in numbers:
                name, scope = self.memory.new_id(), self._scope(source.name)
                result = ToolResult(call_id=name, content=(Text(text=chunk.text),))  # no text is too short for a note
                message = Message(role="tool", parts=(result,), id=name, timestamp=self.clock())
                passages = tuple(archive.passages_of(message))
                rows[source.name, key] = MessageRow(scope=scope, message=message, nonce=name, passages=passages)
        return Indexed(source.kind, source.mtime, source.size, self._signature, dict(numbers), places)

    def _store(self, fresh: dict[str, Indexed], rows: dict[tuple[str, str], MessageRow]) -> None:
        """Store new chunks and what the files have now; of chunks that no file has, keep as many as may be cached."""
        store, cache = self.memory.store, self.settings.agent.memory_search.cache
        for (name, key), number in zip(rows, store.add_messages(list(rows.values())), strict=True):
            fresh[name].numbers[key] = number
        room = cache.max_entries * cache.enabled
        for name, file in self._files.items():
            unused = [key for key in file.numbers if key not in file.lines]
            if len(unused) > room:
                dropped = unused[: len(unused) - room]
                self.memory.forget(scope=self._scope(name), ids=[file.numbers.pop(key) for key in dropped])
                fresh[name] = file
            room -= min(room, len(unused))
        known = [(self._scope(name), name, msgspec.to_builtins(file)) for name, file in fresh.items()]
        store.add_records(
            [Record(scope=scope, kind=_RECORD, key=name, data=data, time=self.clock()) for scope, name, data in known]
        )

    def embed(self, *, seconds: float | None = None) -> int:
        """Embed chunks that have no vectors yet, and return how many. `seconds` limits the time after a first batch."""

        def embed_batch(embedder: Embedder) -> int:
            with self._lock:
                self.memory.choice = Choice(embedder=embedder, reasons=())
                return self.memory.embed(limit=EMBED_BATCH if seconds is not None else 8 * EMBED_BATCH)

        deadline, total = Deadline.after(seconds), 0
        while count := self.embedders.call(embed_batch) or 0:
            total += count
            if deadline.is_over:
                break
        return total

    # --- searching ---------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> NoteResults:
        """Find the notes that match a question, best first.

        Without `min_score`, a chunk with nearly all words of the question is a hit whatever the vectors say, and if
        nothing reaches the minimum of the settings, chunks with some of its words are returned. With QMD as the
        backend its own order counts; if it fails, our own index is searched and the result says why.
        """
        if self.qmd is None:
            return self._search_index(query, max_results=max_results, min_score=min_score)
        try:
            return self.qmd.search(query, max_results=max_results, min_score=min_score)
        except CommandError as error:
            found = self._search_index(query, max_results=max_results, min_score=min_score)
            other = () if found.fallback is None else (f"{found.fallback.wanted}: {found.fallback.reason}",)
            warning = f'agent.memory_search.backend = "qmd" is not available, our own index was searched: {error}'
            fallback = Fallback(wanted="qmd", reason=str(error))
            return replace(found, fallback=fallback, warnings=(warning, *other, *found.warnings))

    def _search_index(self, query: str, *, max_results: int | None, min_score: float | None) -> NoteResults:
        settings = self.settings.agent.memory_search
        if settings.sync.on_search or self.qmd is not None:
            self.sync()
        else:
            self._files = self._indexed()
        self.embed(seconds=EMBED_SECONDS)
        made = None
        if query.strip():
            made = self.embedders.call(lambda embedder: (embedder, embedder.embed([query], kind="query")[0]))
        limit = max_results or settings.query.max_results
        hits = _apply_min_score(self._rank(query, made, limit=limit), min_score, settings.query.min_score)
        with_words = "hybrid" if settings.query.hybrid.enabled else "vectors"
        return NoteResults(
            hits=tuple(replace(hit, snippet=make_snippet(hit.snippet, query)) for hit in hits[:limit]),
            provider=self.embedders.provider,
            model="" if made is None else made[0].space.name,
            fallback=self.embedders.fallback,
            mode="words" if made is None else with_words,
            warnings=(*self._problems, *self._unreadable),
        )

    def _rank(self, query: str, made: tuple[Embedder, Floats] | None, *, limit: int) -> list[tuple[float, NoteHit]]:
        """Return the best chunks with their texts, best first, each with its share of the question's words."""
        settings = self.settings.agent.memory_search.query
        places = sorted(self._match(query, made), key=lambda place: (-round(place[2].score, 6), -place[1]))
        places = places[: min(MAX_CANDIDATES, limit * settings.hybrid.candidate_multiplier)]
        ids = [number for number, _, _ in places]
        rows = self.memory.get(ids, scope=self._scope(), across=True) if ids else []
        texts = {row.id: row.message.results[0].text for row in rows}
        found = [(share, replace(hit, snippet=texts[number])) for number, share, hit in places if number in texts]
        if settings.hybrid.mmr.enabled:
            items = {Item(score=pair[1].score, text=pair[1].snippet): pair for pair in found}
            found = [items[item] for item in mmr(list(items), relevance_weight=settings.hybrid.mmr.relevance_weight)]
        return found

    def _match(self, query: str, made: tuple[Embedder, Floats] | None) -> Iterator[tuple[int, float, NoteHit]]:
        """Yield the chunks of files that match: number, share of the question's words, and place."""
        decay, now = self.settings.agent.memory_search.query.hybrid.temporal_decay, self.clock()
        scores = self._score(query, made)
        for path, file in self._files.items():
            age = max(0.0, now - file.time(path, now)) / _DAY if decay.enabled else 0.0
            for key, places in file.lines.items():
                number = file.numbers[key]
                score, share = scores.get(number, (0.0, 0.0))
                aged = round(min(1.0, score * 2 ** (-age / decay.half_life_days)), 6)
                for start, end in places if score else ():
                    hit = NoteHit(path=path, start=start, end=end, score=aged, snippet="", kind=file.kind)
                    yield number, share, hit

    def _score(self, query: str, made: tuple[Embedder, Floats] | None) -> dict[int, tuple[float, float]]:
        """Score chunks by words and vectors; both are absolute, so that a minimum score has a meaning."""
        hybrid = self.settings.agent.memory_search.query.hybrid
        embedder, vector = made or (None, None)
        weights = {term: float(count) for term, count in Counter(terms(query)).items()}
        space = None if embedder is None else embedder.space
        question = SearchQuery(scope=self._scope(), across=True, terms=weights, vector=vector, space=space)
        found = self.memory.store.search(question)
        scores = share = found.share
        by_words = hybrid.text_weight * hybrid.enabled
        by_vectors = (hybrid.vector_weight if hybrid.enabled else 1.0) * vector_weight(embedder, query)
        _, cosine = found.score_windows(np.arange(len(found)))
        if cosine is not None and len(share) and by_words + by_vectors:
            cosines = np.maximum(np.maximum.reduceat(cosine, found.windows.cumsum() - found.windows), 0)
            scores = ((by_vectors * cosines + by_words * share) / (by_words + by_vectors)).astype(np.float32)
        best: dict[int, tuple[float, float]] = {}
        for number, score, part in zip(found.messages.tolist(), scores.tolist(), share.tolist(), strict=True):
            if score > 0:
                best[number] = max(best.get(number, (0.0, 0.0)), (score, part))
        return best

    # --- reading -----------------------------------------------------------------

    def read(self, path: str, *, start: int = 1, count: int | None = None) -> tuple[str, int | None]:
        """Read some lines of a note, of a file in an extra path, or of a past session; no other files.

        Returns the text, empty if there is no such note, and the number of the next line, if there are more.
        """
        stop = float("inf") if count is None else start + count
        lines = [line for line in self._read_lines(path) if start <= line[0] < stop]
        kept: list[str] = []
        room = MAX_EXCERPT_CHARS
        for _, text in lines[: MAX_EXCERPT_LINES if count is None else None]:
            if len(text) >= room:
                kept += [] if kept else [text[:MAX_EXCERPT_CHARS]]  # of a first line that does not fit, its beginning
                break
            kept.append(text)
            room -= len(text) + 1
        return "\n".join(kept), lines[len(kept)][0] if len(kept) < len(lines) else None

    def _read_lines(self, path: str) -> list[Line]:
        sessions = self._session_folder() if path.startswith(_SESSIONS) else None
        if sessions is not None:
            file = locate(Bounds(root=sessions), path.removeprefix(_SESSIONS)).path
            return read_messages(file, mask=self.settings.archive.redaction)
        settings = self.settings.agent.memory_search
        extra = note_files.expand_paths(self.root, settings.extra_paths)
        collections = custom_collections(self.root, settings.qmd) if self.qmd is not None else []
        bounds = Bounds(root=self.root, allowed=(*extra, *(each.path for each in collections)))
        file, base = locate(bounds, path).path, self.root.resolve()
        places = {base / "memory", base / "MEMORY.md", base / "memory.md", *map(Path.resolve, extra)}
        is_note = file.suffix.lower() == ".md" and not places.isdisjoint((file, *file.parents))
        if not is_note and not any(each.contains(file) for each in collections):
            raise InputError(
                f"{path!r} is not a note: use a path that memory_search returned, such as MEMORY.md or "
                "memory/2026-02-10.md; `read` shows other files"
            )
        return note_files.number_lines(read_bytes(bounds, path).decode("utf-8", "replace")) if file.is_file() else []

    def _session_folder(self) -> Path | None:
        """Return the folder of past sessions if they are searched, by our own index or by QMD."""
        is_exported = self.qmd is not None and self.settings.agent.memory_search.qmd.sessions.enabled
        return self.sessions if is_exported or "sessions" in self.settings.agent.memory_search.sources else None


def forget_notes(file: Path, names: Sequence[str]) -> None:
    """Remove files from an index on disk for good, whatever workspace they belong to."""
    if not file.exists():
        return
    with Memory(store=_open_store(file)[0], settings=Settings()) as memory:
        for scope in memory.store.sessions():
            if scope.session in names:
                memory.forget(scope=scope)


def _open_store(file: Path) -> tuple[SqliteStore, tuple[str, ...]]:
    """Open an index; one that is damaged or of another kind is built again, which is returned as a problem."""
    try:
        return SqliteStore(file), ()
    except StorageError as error:
        is_damaged = getattr(error.__cause__, "sqlite_errorname", "") in {"SQLITE_CORRUPT", "SQLITE_NOTADB"}
        if not is_damaged and "another program" not in str(error):
            raise
        for name in (file.name, f"{file.name}-wal", f"{file.name}-shm"):
            file.with_name(name).unlink(missing_ok=True)
        return SqliteStore(file), (f"{file} was damaged and is built again",)


def make_snippet(text: str, query: str) -> str:
    """Return the part of a chunk that contains most words of the question."""
    if len(text) <= MAX_SNIPPET_CHARS:
        return text
    words = set(terms(query))
    parts = windows(text)
    hits = [len(words & set(terms(text[start:stop]))) for start, stop in parts]
    best = max(range(len(parts)), key=lambda number: (sum(hits[number : number + 2]), hits[number], -number))
    return head(text[min(parts[best][0], len(text) - MAX_SNIPPET_CHARS) :], MAX_SNIPPET_CHARS)


def _apply_min_score(found: Sequence[tuple[float, NoteHit]], given: float | None, default: float) -> list[NoteHit]:
    if given is not None:
        return [hit for _, hit in found if hit.score >= given]
    good = [hit for share, hit in found if hit.score >= default or share >= MIN_WORD_SHARE]
    return good or [hit for share, hit in found if share >= MIN_FALLBACK_SHARE]
