"""Search over the notes of a workspace: `MEMORY.md`, `memory/**/*.md`, extra paths, and past sessions.

Notes are documents in a store as the archive is: a file is a session, and its chunks are messages. The store is a
separate file, so that it can be deleted at any time, has its own embedder, and is part of no export. A record for each
file has the messages of its chunks, and their lines. Chunks that are no longer in a file stay in the store as a cache
of their vectors, but are not found.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Final, Self, TypeAlias, TypeVar

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
from holdfast_agent.qmd import Collection, Qmd, custom_collections
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
"""A chunk that contains this share of the question's words is a hit, with any vectors."""
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
    """The record of a file: its state when it was read, and the numbers of its chunks.

    `lines` has the first and the last line of each chunk by its digest; what it does not name is cached.
    """

    kind: Kind
    mtime: int
    size: int
    signature: str
    numbers: dict[str, int]
    lines: dict[str, list[tuple[int, int]]]

    def time(self, path: str, now: int) -> float:
        """Return the time from which a file ages, in Unix milliseconds.

        It is the date in the name of a daily note. Other notes of the workspace do not age; further files age from
        their last change.
        """
        dated = _DATED.search(f"/{path}")
        if dated is not None:
            try:
                return datetime.fromisoformat(dated[1]).replace(tzinfo=UTC).timestamp() * 1000
            except ValueError:  # such as 2026-02-30
                return now
        if self.kind == "memory" and path.startswith(("MEMORY.md", "memory.md", "memory/")):
            return now
        return self.mtime / _MILLISECOND


def _choose(settings: Embedding) -> Choice:
    return choose(settings, allow_remote=settings.allow_remote)


@dataclass(slots=True)
class Embedders:
    """The embedder of notes: the configured one, the fallback if it fails, else none. Opened when first needed."""

    settings: ChatSettings
    choose: Callable[[Embedding], Choice] = _choose
    fallback: Fallback | None = None
    _choices: list[Embedding] | None = None
    _embedder: Embedder | None = None
    _provider: str = ""

    def reset(self) -> None:
        """Try the configured provider again."""
        self._choices = None
        self.fallback = None

    @property
    def provider(self) -> str:
        """The provider in use; `none` if only words are compared."""
        inner = behind_cache(self.current)
        if inner is None:
            return "none"
        if self._provider != "auto":
            return self._provider
        if isinstance(inner, RemoteEmbedder):
            return inner.space.name.partition("/")[0]
        return "local"

    @property
    def current(self) -> Embedder | None:
        """The embedder in use; None if only words are compared."""
        if self._choices is None:
            notes = self.settings.agent.memory_search
            archive = self.settings.embedding
            provider = notes.provider
            if provider == "auto":
                provider = archive.provider
            wanted = derive_embedding(
                archive,
                provider,
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
            self._embedder = choice.embedder
            self._provider = given.provider
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


_Embedded: TypeAlias = tuple[Embedder, Floats]
"""The vector of a question, and the embedder that made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """A chunk that matches a question: the number of its message, its share of the question's words, and its place."""

    number: int
    word_share: float
    hit: NoteHit


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
        """Read every file at the start of a session, if the settings ask for it; return what has changed."""
        if self.qmd is not None:
            self.qmd.start()
        elif self.settings.agent.memory_search.sync.on_session_start:
            self.embedders.reset()
            return self.sync(whole=True)
        return []

    def poll(self) -> list[str]:
        """Read files that have changed and are no longer being edited, if the settings ask for it; return them."""
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
            known = self._indexed()
            sources = self._find_sources()
            for name in known.keys() - {source.name for source in sources}:
                self.memory.forget(scope=self._scope(name))
                del known[name]
            fresh: dict[str, Indexed] = {}
            rows: dict[tuple[str, str], MessageRow] = {}
            self._unreadable = []
            for source in sources:
                if self._is_stale(source, known.get(source.name), quiet=quiet, whole=whole):
                    try:
                        fresh[source.name] = self._read(source, known.get(source.name), rows)
                    except OSError as error:
                        self._unreadable.append(f"{source.name}: {error.strerror}")
            self._files = known | fresh
            self._store(fresh, rows)
        if whole:
            self.embed()
        return [name for name, file in fresh.items() if name not in known or known[name].lines != file.lines]

    def _find_sources(self) -> list[Source]:
        search = self.settings.agent.memory_search
        sources: list[Source] = []
        if "memory" in search.sources:
            sources += note_files.find_notes(self.root, search.extra_paths)
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
        if whole or source.kind == "memory":
            return True
        has_grown_little = before.size <= source.size < before.size + MIN_GROWN_BYTES
        if not has_grown_little:
            return True
        try:
            with source.path.open("rb") as file:
                file.seek(before.size)
                new_lines = file.read(MIN_GROWN_BYTES).count(b"\n")
        except OSError:
            return False
        return new_lines >= MIN_GROWN_LINES

    @property
    def _signature(self) -> str:
        chunking = self.settings.agent.memory_search.chunking
        return f"{INDEX_VERSION}:{chunking.tokens}:{chunking.overlap}:{self.settings.archive.redaction}"

    def _read(self, source: Source, before: Indexed | None, rows: dict[tuple[str, str], MessageRow]) -> Indexed:
        """Read a file, and add rows for those chunks that are not stored yet."""
        chunking = self.settings.agent.memory_search.chunking
        numbers = {} if before is None else dict(before.numbers)
        lines = note_files.read_lines(source, mask=self.settings.archive.redaction)
        places: dict[str, list[tuple[int, int]]] = {}
        for chunk in note_files.split_chunks(lines, tokens=chunking.tokens, overlap=chunking.overlap):
            key = digest(chunk.text)
            places.setdefault(key, []).append((chunk.start, chunk.end))
            if key not in numbers:
                rows[source.name, key] = self._make_row(source, chunk.text)
        return Indexed(
            kind=source.kind,
            mtime=source.mtime,
            size=source.size,
            signature=self._signature,
            numbers=numbers,
            lines=places,
        )

    def _make_row(self, source: Source, text: str) -> MessageRow:
        """Make the row of a chunk. It is a tool result: short texts of other messages are not searched."""
        name = self.memory.new_id()
        result = ToolResult(call_id=name, content=(Text(text=text),))
        message = Message(role="tool", parts=(result,), id=name, timestamp=self.clock())
        passages = tuple(archive.passages_of(message))
        return MessageRow(scope=self._scope(source.name), message=message, nonce=name, passages=passages)

    def _store(self, fresh: dict[str, Indexed], rows: dict[tuple[str, str], MessageRow]) -> None:
        """Store new chunks and what the files have now; of chunks that no file has, keep as many as may be cached."""
        store = self.memory.store
        cache = self.settings.agent.memory_search.cache
        for (name, key), number in zip(rows, store.add_messages(list(rows.values())), strict=True):
            fresh[name].numbers[key] = number
        room = cache.max_entries if cache.enabled else 0
        for name, file in self._files.items():
            unused = [key for key in file.numbers if key not in file.lines]
            if len(unused) > room:
                dropped = unused[: len(unused) - room]
                self.memory.forget(scope=self._scope(name), ids=[file.numbers.pop(key) for key in dropped])
                fresh[name] = file
            room = max(0, room - len(unused))
        records: list[Record] = []
        for name, file in fresh.items():
            data = msgspec.to_builtins(file)
            records.append(Record(scope=self._scope(name), kind=_RECORD, key=name, data=data, time=self.clock()))
        store.add_records(records)

    def embed(self, *, seconds: float | None = None) -> int:
        """Embed chunks that have no vectors yet, and return how many. `seconds` limits the time after a first batch."""

        def embed_batch(embedder: Embedder) -> int:
            with self._lock:
                self.memory.choice = Choice(embedder=embedder, reasons=())
                return self.memory.embed(limit=EMBED_BATCH if seconds is not None else 8 * EMBED_BATCH)

        deadline = Deadline.after(seconds)
        total = 0
        while True:
            count = self.embedders.call(embed_batch)
            if not count:  # everything is embedded, or there is no embedder
                return total
            total += count
            if deadline.is_over:
                return total

    # --- searching ---------------------------------------------------------------

    def search(self, query: str, *, max_results: int | None = None, min_score: float | None = None) -> NoteResults:
        """Find the notes that match a question, best first.

        Without `min_score`, a chunk with nearly all words of the question is a hit with any vectors, and if nothing
        reaches the minimum of the settings, chunks with some of its words are returned. With QMD as the backend its own
        order counts; if it fails, our own index is searched and the result says why.
        """
        if self.qmd is None:
            return self._search_index(query, max_results=max_results, min_score=min_score)
        try:
            return self.qmd.search(query, max_results=max_results, min_score=min_score)
        except CommandError as error:
            found = self._search_index(query, max_results=max_results, min_score=min_score)
            other: tuple[str, ...] = ()
            if found.fallback is not None:
                other = (f"{found.fallback.wanted}: {found.fallback.reason}",)
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
        embedded = None
        model = ""
        mode = "words"
        if query.strip():
            embedded = self.embedders.call(lambda embedder: (embedder, embedder.embed([query], kind="query")[0]))
        if embedded is not None:
            model = embedded[0].space.name
            mode = "hybrid" if settings.query.hybrid.enabled else "vectors"
        limit = max_results or settings.query.max_results
        hits = _apply_min_score(self._rank(query, embedded, limit=limit), min_score, settings.query.min_score)
        return NoteResults(
            hits=tuple(replace(hit, snippet=make_snippet(hit.snippet, query)) for hit in hits[:limit]),
            provider=self.embedders.provider,
            model=model,
            fallback=self.embedders.fallback,
            mode=mode,
            warnings=(*self._problems, *self._unreadable),
        )

    def _rank(self, query: str, embedded: _Embedded | None, *, limit: int) -> list[_Match]:
        """Return the best chunks with their texts, best first."""
        hybrid = self.settings.agent.memory_search.query.hybrid
        matches = sorted(self._match(query, embedded), key=lambda match: (-match.hit.score, -match.word_share))
        matches = matches[: min(MAX_CANDIDATES, limit * hybrid.candidate_multiplier)]
        if not matches:
            return []
        rows = self.memory.get([match.number for match in matches], scope=self._scope(), across=True)
        texts = {row.id: row.message.results[0].text for row in rows}
        found: list[_Match] = []
        for match in matches:
            if match.number in texts:
                hit = replace(match.hit, snippet=texts[match.number])
                found.append(replace(match, hit=hit))
        if hybrid.mmr.enabled:
            items = {Item(score=match.hit.score, text=match.hit.snippet): match for match in found}
            found = [items[item] for item in mmr(list(items), relevance_weight=hybrid.mmr.relevance_weight)]
        return found

    def _match(self, query: str, embedded: _Embedded | None) -> Iterator[_Match]:
        """Yield the chunks of files that match, without their texts."""
        decay = self.settings.agent.memory_search.query.hybrid.temporal_decay
        now = self.clock()
        scores = self._score(query, embedded)
        for path, file in self._files.items():
            factor = 1.0
            if decay.enabled:
                days = max(0.0, now - file.time(path, now)) / _DAY
                factor = 2 ** (-days / decay.half_life_days)
            for key, places in file.lines.items():
                number = file.numbers[key]
                if number not in scores:
                    continue
                score, word_share = scores[number]
                aged = round(min(1.0, score * factor), 6)
                for start, end in places:
                    hit = NoteHit(path=path, start=start, end=end, score=aged, snippet="", kind=file.kind)
                    yield _Match(number=number, word_share=word_share, hit=hit)

    def _score(self, query: str, embedded: _Embedded | None) -> dict[int, tuple[float, float]]:
        """Score chunks by words and vectors; return the score and the share of the question's words by number.

        Both are absolute, so that a minimum score has a meaning.
        """
        hybrid = self.settings.agent.memory_search.query.hybrid
        embedder, vector = embedded or (None, None)
        weights = {term: float(count) for term, count in Counter(terms(query)).items()}
        space = None if embedder is None else embedder.space
        question = SearchQuery(scope=self._scope(), across=True, terms=weights, vector=vector, space=space)
        found = self.memory.store.search(question)
        share = found.share
        scores = share
        by_words = 0.0
        by_vectors = vector_weight(embedder, query)
        if hybrid.enabled:
            by_words = hybrid.text_weight
            by_vectors *= hybrid.vector_weight
        _, cosine = found.score_windows(np.arange(len(found)))
        if cosine is not None and len(share) and by_words + by_vectors:
            # The best window of each passage counts.
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
        lines = [(number, text) for number, text in self._read_lines(path) if number >= start]
        if count is not None:
            lines = [(number, text) for number, text in lines if number < start + count]
        kept: list[str] = []
        room = MAX_EXCERPT_CHARS
        for _, text in lines:
            if count is None and len(kept) == MAX_EXCERPT_LINES:
                break
            if len(text) >= room:
                if not kept:  # of a first line that does not fit, its beginning
                    kept.append(text[:MAX_EXCERPT_CHARS])
                break
            kept.append(text)
            room -= len(text) + 1
        following = lines[len(kept)][0] if len(kept) < len(lines) else None
        return "\n".join(kept), following

    def _read_lines(self, path: str) -> list[Line]:
        sessions = self._session_folder() if path.startswith(_SESSIONS) else None
        if sessions is not None:
            file = locate(Bounds(root=sessions), path.removeprefix(_SESSIONS)).path
            return read_messages(file, mask=self.settings.archive.redaction)
        settings = self.settings.agent.memory_search
        extra = note_files.expand_paths(self.root, settings.extra_paths)
        collections: list[Collection] = []
        if self.qmd is not None:
            collections = custom_collections(self.root, settings.qmd)
        bounds = Bounds(root=self.root, allowed=(*extra, *(collection.path for collection in collections)))
        file = locate(bounds, path).path
        base = self.root.resolve()
        places = {base / "memory", base / "MEMORY.md", base / "memory.md", *map(Path.resolve, extra)}
        is_note = file.suffix.lower() == ".md" and not places.isdisjoint((file, *file.parents))
        if not is_note and not any(collection.contains(file) for collection in collections):
            raise InputError(
                f"{path!r} is not a note: use a path that memory_search returned, such as MEMORY.md or "
                "memory/2026-02-10.md; `read` shows other files"
            )
        if not file.is_file():
            return []
        return note_files.number_lines(read_bytes(bounds, path).decode("utf-8", "replace"))

    def _session_folder(self) -> Path | None:
        """Return the folder of past sessions if they are searched, by our own index or by QMD."""
        settings = self.settings.agent.memory_search
        is_exported = self.qmd is not None and settings.qmd.sessions.enabled
        if is_exported or "sessions" in settings.sources:
            return self.sessions
        return None


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

    def rate(number: int) -> tuple[int, int, int]:
        # A snippet is about as long as two windows; of equal ones the first is best.
        return sum(hits[number : number + 2]), hits[number], -number

    best = max(range(len(parts)), key=rate)
    start = min(parts[best][0], len(text) - MAX_SNIPPET_CHARS)
    return head(text[start:], MAX_SNIPPET_CHARS)


def _apply_min_score(found: Sequence[_Match], given: float | None, default: float) -> list[NoteHit]:
    """Return the hits that score well enough; see `Notes.search`."""
    if given is not None:
        return [match.hit for match in found if match.hit.score >= given]
    good = [match.hit for match in found if match.hit.score >= default or match.word_share >= MIN_WORD_SHARE]
    if good:
        return good
    return [match.hit for match in found if match.word_share >= MIN_FALLBACK_SHARE]
