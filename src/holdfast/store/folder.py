"""A memory-context folder as a store: the plugin's files in place, and a SQLite store next to them.

    segments.jsonl       messages of users and assistants      shared with the plugin
    knowledge.jsonl      facts                                 shared with the plugin
    vectors.bin          vectors of the segments               shared with the plugin, if our embedder made them too
    holdfast-folder.db   every row, and the index              ours

Lines that the plugin appended are copied into the database before every call; many lines are copied by a thread, and
what a call needs of them first. Rows that are added here go into the database first, then to the end of the plugin's
files.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Self, TypeVar

from holdfast.errors import HoldfastError, StorageError
from holdfast.index.database import Database
from holdfast.store.adding import add_messages, fact_digest
from holdfast.store.backlog import Backlog
from holdfast.store.base import (
    Across,
    FactRow,
    Gap,
    Known,
    MessageRow,
    PassageText,
    Record,
    Scope,
    SearchQuery,
    Select,
    SessionSpan,
    TypedRecord,
    VectorRow,
)
from holdfast.store.codec import DAMAGE, from_json
from holdfast.store.connection import connect_readonly, translate_errors
from holdfast.store.cutting import cut
from holdfast.store.plugin_files import (
    FOREIGN,
    OWNER,
    SEGMENTS,
    ContentKey,
    Problem,
    append_lines,
    content_key,
    content_of,
    encode_line,
    fact_line,
    line_problem,
    read_fact,
    scope_from_json,
    scope_of,
    scope_problem,
    scope_to_json,
    segment_key,
    segment_line,
    segment_of,
    segment_row,
)
from holdfast.store.shared_vectors import SharedVectors
from holdfast.store.sqlite import SqliteStore
from holdfast.transcripts import journal
from holdfast.transcripts.lines import Line, parse_line

if TYPE_CHECKING:
    from holdfast.embed.base import Embedder, Space
    from holdfast.search.arrays import Floats
    from holdfast.search.candidates import Candidates

KNOWLEDGE: Final = "knowledge.jsonl"
DATABASE: Final = "holdfast-folder.db"
JOURNAL: Final = "holdfast.jsonl"
"""The file of version 0.1 for messages that are not segments. It is read once, into a new database."""

_FILES: Final = (SEGMENTS, KNOWLEDGE)
_FOREVER: Final = 2**63 - 1
_BATCH: Final = 500
MAX_SYNC_BYTES: Final = 256 << 10
"""New segments up to this size are copied before a call. More are a backlog, which a thread copies."""
COPY_LINES: Final = 256
"""Lines of a backlog that are copied at a time, so that others can use the folder in between."""
MAX_SESSION_LINES: Final = 1024
"""Lines of one session that are copied out of turn. Half a second is the most that a call should take for it."""
MAX_WORD_LINES: Final = 64
"""Lines that are copied out of turn because they have words of a question."""
_PAUSE_SECONDS: Final = 0.002
"""How long the thread pauses between two batches: without a pause, no other thread would get the lock."""

log = logging.getLogger("holdfast.store")

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _State:
    """The part of the files that is in the database; stored as a record in it.

    By file: `read` has its device and inode, and how many bytes of it are in the database; `unwritten` the lines of
    rows that may not have reached it yet. With `is_forgetting` the files may still hold rows that were removed.
    `reserved` are the numbers of a backlog: those of the first line that is not copied, and of the line after the last.
    """

    read: dict[str, list[int]] = field(default_factory=dict)
    unwritten: dict[str, list[str]] = field(default_factory=dict)
    is_forgetting: bool = False
    reserved: list[int] = field(default_factory=list)

    def record(self) -> Record:
        return Record(scope=OWNER, kind="state", key="", data=asdict(self))

    def offset(self, name: str, identity: Sequence[int]) -> int:
        """Return how many bytes of a file are in the database; 0 if it is another file now, or was cut."""
        device, inode, offset = self.read.get(name, (0, 0, 0))
        if [device, inode] != list(identity[:2]) or offset > identity[2]:
            return 0
        return offset


def _read_synced(method: Callable[Concatenate[SqliteStore, P], T]) -> Callable[Concatenate[FolderStore, P], T]:
    """Make a method that reads the database once it has everything that is in the files."""

    @wraps(method)
    def read(self: FolderStore, /, *args: P.args, **values: P.kwargs) -> T:
        return method(self._synced(), *args, **values)

    return read


def _write_locked(
    method: Callable[Concatenate[SqliteStore, P], T], *, is_removal: bool = False
) -> Callable[Concatenate[FolderStore, P], T]:
    """Make a method that writes to the database while no other thread does; nothing is removed in a transaction."""

    @wraps(method)
    def write(self: FolderStore, /, *args: P.args, **values: P.kwargs) -> T:
        if is_removal:
            with self._writing():
                return method(self._store, *args, **values)
        with self.transaction():
            return method(self._store, *args, **values)

    return write


class FolderStore:
    """A store in a memory-context folder. Safe to use from several threads and processes.

    Opened `readonly`, or if the folder cannot be written, nothing in it is changed: the database is then a temporary
    copy.

    Attributes:
        on_progress: Called with the number of segments that are copied, and of all in the backlog, while a call waits
            for all of them.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        readonly: bool = False,
        background: bool = True,
    ) -> None:
        """Open a folder.

        Args:
            folder: The folder. It is created if it does not exist.
            clock: Returns the time in Unix milliseconds.
            new_id: Makes the ids of new segments.
            readonly: Whether nothing in the folder may change.
            background: Whether a thread copies many new lines. Without it they are copied when they are needed.
        """
        self.path = Path(folder)
        self.on_progress: Callable[[int, int], None] | None = None
        self._clock = clock
        self._new_id = new_id
        self._lock = threading.RLock()
        self._state: _State | None = None
        self._stamps: tuple[tuple[int, ...], ...] | None = None
        self._contents: set[ContentKey] = set()
        self._contents_read: tuple[int, int, int] = (0, 0, 0)
        self._background = background
        self._backlog: Backlog | None = None
        self._copier: threading.Thread | None = None
        self._closed = threading.Event()
        self.readonly = readonly or not self._create_missing()
        with ExitStack() as opened:
            database = self.path / DATABASE
            if self.readonly:
                copy = Path(opened.enter_context(TemporaryDirectory(prefix="holdfast-"))) / DATABASE
                if database.exists():
                    with (
                        translate_errors(database),
                        closing(connect_readonly(database)) as source,
                        closing(sqlite3.connect(copy)) as target,
                    ):
                        source.backup(target)
                database = copy
            self._store = opened.enter_context(SqliteStore(database))
            self._closing = opened.pop_all()
        self._vectors = SharedVectors(self.path, self._store)
        try:
            self._synced()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database. A backlog is copied on by the next who opens the folder."""
        self._closed.set()
        if self._copier is not None:
            self._copier.join()
        self._closing.close()

    # --- reading ---------------------------------------------------------------------

    read_records = _read_synced(SqliteStore.read_records)
    read_jobs = _read_synced(SqliteStore.read_jobs)
    embedded = _read_synced(SqliteStore.embedded)
    without_vectors = _read_synced(SqliteStore.without_vectors)
    waiting = _read_synced(SqliteStore.waiting)
    update_figures = _read_synced(SqliteStore.update_figures)
    sum_usage = _read_synced(SqliteStore.sum_usage)
    sum_turns = _read_synced(SqliteStore.sum_turns)
    read_turns = _read_synced(SqliteStore.read_turns)

    def read_typed_records(self, select: Select, /, *, kind: str, form: type[T]) -> list[TypedRecord[T]]:
        """Read records of a kind that the reader may see, oldest first, their documents decoded into a type."""
        return self._synced().read_typed_records(select, kind=kind, form=form)

    def read_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> list[FactRow]:
        """Read versions of facts that the reader may see, oldest first; the plugin's facts have no session."""
        store = self._synced()
        rows = store.read_facts(select, keys=keys)
        if not select.across and select.scope == replace(Scope(), session=select.scope.session) != Scope():
            rows = [*store.read_facts(replace(select, scope=Scope()), keys=keys), *rows]
        return rows

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        """Read messages that the reader may see, oldest first."""
        return self._copied_for(select).read_messages(select)

    def read_passages(self, select: Select, /) -> list[PassageText]:
        """Read passages that the reader may see, oldest first."""
        if select.ids is not None:  # a passage has a number once it is stored: it is not in the backlog
            return self._synced().read_passages(select)
        return self._copied_for(select).read_passages(select)

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        """Return the archived messages of a session with these digests."""
        self._copy_session(scope.session)
        return self._synced().find(scope, digests)

    def has_passages(self, scope: Scope, /, *, across: Across = False, without_messages: Collection[int] = ()) -> bool:
        """Return whether the reader may see a passage of any message but some; a backlog may have some."""
        store = self._synced()
        if self._backlog is not None:
            return True
        return store.has_passages(scope, across=across, without_messages=without_messages)

    def search(self, query: SearchQuery, /) -> Candidates:
        """Find the passages that are most promising; of a backlog, the lines with the words of the question."""
        store = self._synced()
        if self._backlog is not None and (query.across or not self._copy_session(query.scope.session)):
            self._copy_words(query.terms)
        return store.search(query)

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""
        return self._copied().scopes()

    def read_sessions(
        self,
        scope: Scope,
        /,
        *,
        across: Across = True,
        since: int | None = None,
        until: int | None = None,
        limit: int,
    ) -> list[SessionSpan]:
        """Read the last sessions that the reader may see, the newest first; of a backlog, those copied so far."""
        return self._synced().read_sessions(scope, across=across, since=since, until=until, limit=limit)

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""
        return self._copied().sessions()

    @property
    def progress(self) -> str:
        """The progress of copying a backlog, as a sentence."""
        backlog = self._backlog
        if backlog is None:
            return ""
        done = self._copied_lines(backlog)
        return f"{done:,} of {len(backlog.lines):,} new segments are indexed; the others are found by their words"

    def lock_work(self, space: Space | None, *, tenant: str | None = None) -> AbstractContextManager[bool]:
        """Let one process at a time do the pending work; yield whether this one may."""
        return self._store.lock_work(space, tenant=tenant)

    def listen(self, notify: Callable[[], None]) -> None:
        """Do nothing: files do not tell what others have left."""

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damaged rows that reading has left out so far."""
        return self._store.gaps

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions and facts, and the bytes of all files."""
        counts = self._copied().counts()
        return counts | {"bytes": sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The lines of both files that cannot be used."""
        problems: list[Problem] = []
        for name in _FILES:
            lines, rest = self._read_lines(name)
            facts: dict[str, FactRow] = {}
            for line in lines:
                reason = line_problem(line, facts, is_segment=name == SEGMENTS)
                if reason:
                    problems.append(Problem(name, line.number, reason))
            if rest:
                problems.append(Problem(name, len(lines) + 1, "the last line has no end: a write was cut short"))
        return tuple(problems)

    # --- writing ---------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes of a block one. The database keeps lines for the plugin's files until they are written."""
        with self._lock:
            if self._state is not None:  # a part of the one that this thread has begun
                yield
                return
            with self._writing() as state:
                self._state = state
                try:
                    with self._store.transaction():
                        yield
                        has_lines = any(state.unwritten.values())
                        if has_lines:
                            self._store.add_records([state.record()])
                except BaseException:
                    self._forget_contents()
                    raise
                finally:
                    self._state = None
                if has_lines:
                    # The block is stored, and with it the lines: if the disk is full now, the next call appends them.
                    with suppress(StorageError, OSError):
                        self._catch_up(state)

    def _queue_lines(self, name: str, lines: Sequence[str]) -> None:
        assert self._state is not None
        self._state.unwritten.setdefault(name, []).extend(lines)

    def add_messages(self, rows: Sequence[MessageRow], /) -> list[int]:
        """Store messages with their passages; those of users and assistants are segments too."""
        for session in {row.scope.session for row in rows}:
            self._copy_session(session)  # so that what the plugin stored is not stored again
        with self.transaction():
            self._load_contents()
            known = self._find_numbers(rows)
            new = [row for place, row in enumerate(rows) if place not in known]
            lines: list[str] = []
            for row in new:  # each content is a segment once
                content = content_of(row)
                key = content_key(row.scope, row.message.role, content)
                if content and key not in self._contents:
                    self._contents.add(key)
                    lines.append(encode_line(segment_line(row, content, name=self._new_id(), now=self._clock())))
            self._queue_lines(SEGMENTS, lines)
            new_numbers = iter(self._store.add_messages(new))
            numbers: list[int] = []
            for place in range(len(rows)):
                if place in known:
                    numbers.append(known[place])
                else:
                    numbers.append(next(new_numbers))
            return numbers

    def merge_messages(
        self, scope: Scope, digests: Sequence[str], make_rows: Callable[[Known], Sequence[MessageRow]], /
    ) -> list[int]:
        """Store the messages that `make_rows` returns for what `find` returns."""
        self._copy_session(scope.session)
        with self.transaction():
            return self.add_messages(make_rows(self._store.find(scope, digests)))

    def add_facts(self, rows: Sequence[FactRow], /) -> list[int]:
        """Store versions of facts, also in the plugin's file."""
        with self.transaction():
            forgotten: dict[str, int] = {}
            if rows:
                forgotten = self._forgotten()
            lines: list[str] = []
            for row in rows:
                if _fact_key(row.scope, row.id) not in forgotten:
                    lines.append(encode_line(fact_line(row)))
            self._queue_lines(KNOWLEDGE, lines)
            return self._store.add_facts(rows)

    add_records = _write_locked(SqliteStore.add_records)
    add_jobs = _write_locked(SqliteStore.add_jobs)
    set_flags = _write_locked(SqliteStore.set_flags)

    def _find_numbers(self, rows: Sequence[MessageRow]) -> dict[int, int]:
        """Return the numbers of messages that the database has already, by place; 0 for forgotten ones."""
        digests: dict[Scope, list[str]] = defaultdict(list)
        for row in rows:
            digests[row.scope].append(row.message.digest)
        stored = {scope: self._store.find(scope, some).numbers for scope, some in digests.items()}
        forgotten: dict[str, int] = {}
        if any(stored.values()):
            forgotten = self._forgotten()
        numbers: dict[int, int] = {}
        for place, row in enumerate(rows):
            number = _find_number(row, stored[row.scope].get(row.message.digest, {}), forgotten)
            if number is not None:
                numbers[place] = number
        return numbers

    def remove_messages(self, select: Select, /) -> int:
        """Forget messages for good, from every file."""
        self._copied()
        with self._writing() as state:
            keys = (_key(row.scope, row.message.digest) for row in self._store.read_messages(select))
            until = dict.fromkeys(keys, self._clock())
            return self._forget(state, until, lambda: self._store.remove_messages(select))

    def remove_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> int:
        """Forget facts for good, from every file."""
        self._copied()
        with self._writing() as state:
            rows = self._store.read_facts(select, keys=keys)
            until = {_fact_key(row.scope, row.id): _FOREVER for row in rows}
            return self._forget(state, until, lambda: self._store.remove_facts(select, keys=keys))

    remove_records = _write_locked(SqliteStore.remove_records, is_removal=True)
    remove_jobs = _write_locked(SqliteStore.remove_jobs, is_removal=True)

    def _forget(self, state: _State, until: Mapping[str, int], remove: Callable[[], int]) -> int:
        """Remove rows. Lines that the plugin wrote for each key up to a time are ignored, now and later."""
        state.is_forgetting = True
        kept = [Record(scope=OWNER, kind="forgotten", key=key, data={"until": time}) for key, time in until.items()]
        self._store.add_records([*kept, state.record()])
        try:
            return remove()
        finally:
            self._rewrite_files(state)

    def _forgotten(self) -> dict[str, int]:
        """Return until when the words and facts of each key are forgotten."""
        records = self._store.read_records(Select(scope=OWNER), kind="forgotten")
        return {record.key: record.data["until"] for record in records}

    def _rewrite_files(self, state: _State) -> None:
        """Write every file without the lines and vectors of what was forgotten."""
        forgotten = self._forgotten()
        names: set[str] = set()
        for name in _FILES:
            names |= self._rewrite_file(state, name, forgotten)
        self._vectors.remove(names)
        state.is_forgetting = False
        self._forget_contents()
        self._catch_up(state)

    def _rewrite_file(self, state: _State, name: str, forgotten: Mapping[str, int]) -> set[str]:
        """Write a file without its forgotten lines, and return the ids of those."""
        lines, rest = self._read_lines(name)
        if rest:  # a line that the plugin has not finished yet may be forgotten too
            lines = [*lines, parse_line(rest, 0)]
        offset = state.offset(name, self._identity(name))
        sessions: dict[Scope, Known] = {}
        gone: set[str] = set()
        kept: list[bytes] = []
        kept_offset = 0  # of the kept lines, the bytes that are in the database
        place = 0
        for line in lines:
            place += len(line.raw)
            if self._is_forgotten_line(name, line, forgotten, sessions):
                gone.add(str((line.data or {}).get("id")))
                continue
            kept.append(line.raw)
            if place <= offset:
                kept_offset += len(line.raw)
        if gone:
            journal.replace(self.path / name, kept)
            state.read[name] = [*self._identity(name)[:2], kept_offset]
        return gone

    def _is_forgotten_line(
        self, name: str, line: Line, forgotten: Mapping[str, int], sessions: dict[Scope, Known]
    ) -> bool:
        """Return whether a row is forgotten; `sessions` keeps what was looked up for the lines before."""
        if name == KNOWLEDGE:
            data = line.data or {}
            if scope_problem(data, "") is not None:
                return False
            return _fact_key(scope_of(data, ""), str(data.get("id"))) in forgotten
        segment = segment_of(line)
        if segment is None:
            return False
        row = segment_row(segment)
        if row is None:
            return False
        if row.nonce.startswith(FOREIGN):
            return _is_forgotten(row, forgotten)
        if row.scope not in sessions:
            sessions[row.scope] = self._store.find(row.scope, [])
        return row.message.digest in sessions[row.scope].forgotten.get(row.nonce, ())

    # --- vectors.bin -----------------------------------------------------------------

    def take_over_vectors(self, embedder: Embedder, *, limit: int) -> int:
        """Store the plugin's vectors of segments that have none, if the embedder makes the same vectors.

        Args:
            embedder: The embedder in use.
            limit: About how many are taken over at most. A few thousand take a second.

        Returns:
            How many passages have got theirs.

        Raises:
            EmbeddingError: The embedder could not be asked.
        """
        self._synced()
        return self._vectors.take_over(embedder, limit=limit)

    def add_vectors(self, rows: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages; those of segments also in `vectors.bin`, if its vectors are of their space."""
        with self.transaction():
            count = self._store.add_vectors(rows)
        if self._state is None and not self.readonly:
            with self._locked():
                self._vectors.append(rows)
        return count

    def write_vectors(self, vectors: Mapping[int, Floats], space: Space) -> None:
        """Write a new `vectors.bin` with the vectors of segments, by the number of their message."""
        with self._locked():
            self._vectors.write(vectors, space)

    # --- keeping up with the files -----------------------------------------------------

    def _create_missing(self) -> bool:
        """Create the folder and its first file if they are missing. Return whether the folder can be written."""
        path = self.path / SEGMENTS
        if not path.exists():
            try:
                journal.create(path, [])
            except StorageError:
                if not self.path.is_dir():
                    raise
        return os.access(self.path, os.W_OK) and os.access(path, os.W_OK)

    def _identity(self, name: str) -> tuple[int, int, int]:
        """Return device, inode and size of a file; zeros if there is none."""
        try:
            status = (self.path / name).stat()
        except OSError:
            return (0, 0, 0)
        return (status.st_dev, status.st_ino, status.st_size)

    def _synced(self) -> SqliteStore:
        """Return the database after copying the lines that were appended to the files since the last call.

        Many lines become a backlog instead.
        """
        if self._backlog is not None:
            self._start_copier()
        elif self._state is None and tuple(map(self._identity, _FILES)) != self._stamps:
            with self._locked():
                self._catch_up(self._load_state())
        return self._store

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            if self.readonly:
                yield
                return
            self._create_missing()
            with journal.locked(self.path / SEGMENTS):
                yield

    @contextmanager
    def _writing(self) -> Iterator[_State]:
        """Keep others from writing, with everything read that they wrote."""
        if self.readonly:
            raise StorageError("the folder is read-only: make it writable or choose another place", path=self.path)
        with self._locked():
            state = self._load_state()
            self._catch_up(state)
            yield state

    def _load_state(self) -> _State:
        records = self._store.read_records(Select(scope=OWNER), kind="state")
        if records:
            return _State(**records[0].data)
        # Copy the messages that version 0.1 kept next to the plugin's files; delete its file once all are copied.
        rows: list[MessageRow] = []
        lines, _ = self._read_lines(JOURNAL)
        messages = [line.data for line in lines if line.data is not None and line.data.get("kind") == "message"]
        for data in messages:
            with suppress(*DAMAGE):
                message = from_json(data["body"])
                passages = tuple(cut(data.get("text", ""), speaker=message.name or ""))
                scope = scope_from_json(data["scope"])
                rows.append(MessageRow(scope=scope, message=message, nonce=data["nonce"], passages=passages))
        self._add_in_batches(rows)
        if not self.readonly and len(rows) == len(messages):
            (self.path / JOURNAL).unlink(missing_ok=True)
        return _State()

    def _catch_up(self, state: _State) -> None:
        """Append lines that a crash left unwritten, then copy lines that other programs appended."""
        own = self._append_unwritten(state)
        has_facts = self._copy_facts(state, own)
        has_segments = self._backlog is None and self._copy_segments(state, own)
        if own or has_facts or has_segments:
            state.unwritten = {}
            self._store.add_records([state.record()])
        if self._backlog is not None:
            self._start_copier()
            return
        self._stamps = tuple(map(self._identity, _FILES))
        if state.is_forgetting and not self.readonly:
            self._rewrite_files(state)

    def _append_unwritten(self, state: _State) -> set[bytes]:
        """Append the lines that are not in the files yet, and return all lines of our own that may be new in them."""
        own: set[bytes] = set()
        for name, lines in state.unwritten.items():
            encoded = dict.fromkeys(line.encode() for line in lines)
            own.update(encoded)
            if self.readonly or not encoded:
                continue
            written = set(self._read_raw(name, state.offset(name, self._identity(name))))
            missing = [line for line in encoded if line not in written]
            if missing:
                append_lines(self.path / name, missing)
        return own

    def _copy_facts(self, state: _State, own: Collection[bytes]) -> bool:
        """Copy new lines of `knowledge.jsonl`; return whether there are any."""
        identity = self._identity(KNOWLEDGE)
        offset = state.offset(KNOWLEDGE, identity)
        lines, _ = self._read_lines(KNOWLEDGE, offset)
        numbers = self._store.add_facts(self._fact_rows([line for line in lines if line.raw not in own]))
        self._advance(state, KNOWLEDGE, lines, offset, numbers)
        return bool(lines)

    def _copy_segments(self, state: _State, own: Collection[bytes]) -> bool:
        """Copy new lines of `segments.jsonl`, or make them a backlog; return whether there are any."""
        identity = self._identity(SEGMENTS)
        offset = state.offset(SEGMENTS, identity)
        # The rest of a backlog has its numbers, however short it is: lines after it may be copied already.
        has_numbers = bool(state.reserved) and state.read.get(SEGMENTS) == [*identity[:2], offset]
        if has_numbers or identity[2] - offset > MAX_SYNC_BYTES:
            self._begin_backlog(state, offset)
            return True
        lines, _ = self._read_lines(SEGMENTS, offset)
        if not lines:
            return False
        self._load_contents(offset)
        rows = self._segment_rows([line for line in lines if line.raw not in own])
        numbers = self._add_in_batches(list(rows.values()))
        state.reserved = []  # they were for a file that was replaced
        self._advance(state, SEGMENTS, lines, offset, numbers)
        self._contents_read = (*self._identity(SEGMENTS)[:2], state.read[SEGMENTS][2])
        return True

    def _advance(self, state: _State, name: str, lines: Sequence[Line], offset: int, numbers: Sequence[int]) -> None:
        """Note that lines are in the database, and whether some of them are of rows that are forgotten here."""
        state.is_forgetting = state.is_forgetting or 0 in numbers
        if lines:
            state.read[name] = [*self._identity(name)[:2], offset + sum(len(line.raw) for line in lines)]

    # --- many new lines ------------------------------------------------------------

    def _begin_backlog(self, state: _State, offset: int) -> None:
        """Reserve a number for each new line of `segments.jsonl`, so that any of them can be copied first."""
        device, inode, _ = self._identity(SEGMENTS)
        lines = self._read_raw(SEGMENTS, offset)
        if state.reserved and state.read.get(SEGMENTS, [0, 0, 0]) == [device, inode, offset]:
            first, stop = state.reserved
            lines = lines[: stop - first]
        else:
            first = self._store.write("", _reserve_numbers, len(lines))
            state.reserved = [first, first + len(lines)]
            state.read[SEGMENTS] = [device, inode, offset]
        self._backlog = Backlog(identity=(device, inode), offset=offset, lines=lines, first_number=first)
        self._load_contents(offset)
        # Lines of our own were written by a process that ended before all lines ahead of them were copied.
        for raw in lines:
            if b'"holdfast"' in raw:
                data = segment_of(parse_line(raw, 0))
                if data is not None:
                    self._contents.add(segment_key(data))

    def _start_copier(self) -> None:
        """Start the thread that copies the backlog, unless it runs."""
        if not self._background or self._closed.is_set() or (self._copier is not None and self._copier.is_alive()):
            return
        self._copier = threading.Thread(target=self._copy_backlog, name="holdfast-folder", daemon=True)
        self._copier.start()

    def _copy_backlog(self) -> None:
        """Copy the backlog until it is done or the store is closed."""
        try:
            while self._backlog is not None and not self._closed.wait(_PAUSE_SECONDS):
                self._copy_batch()
        except HoldfastError as error:  # the next call starts the thread again, and one that needs the lines raises
            log.warning("the segments of %s are not indexed: %s", self.path, error)

    def _copy_batch(self) -> None:
        """Copy the next lines of the backlog."""
        with self._locked():
            backlog = self._backlog
            if backlog is None:  # another thread has copied the last ones
                return
            state = self._load_state()
            identity = self._identity(SEGMENTS)
            offset = state.offset(SEGMENTS, identity)
            if identity[:2] != backlog.identity or offset < backlog.offset:  # the file was replaced
                self._backlog = None
                self._catch_up(state)
                return
            place = backlog.place_of(offset)
            stop = min(place + COPY_LINES, len(backlog.lines))
            is_last = stop == len(backlog.lines)
            state.read[SEGMENTS] = [*identity[:2], max(offset, backlog.offset_of(stop))]
            state.reserved = []
            if not is_last:
                state.reserved = [backlog.first_number + stop, backlog.first_number + len(backlog.lines)]
            with self._forgetting_backlog(), self._store.transaction():
                numbers = self._copy_places(backlog, range(place, stop))
                state.is_forgetting = state.is_forgetting or 0 in numbers
                self._store.add_records([state.record()])
            backlog.copied.update(range(place, stop))  # not before: a search may rely on what is copied
            self._contents_read = (*identity[:2], state.read[SEGMENTS][2])
            if is_last:
                self._backlog = None
                self._catch_up(state)

    @contextmanager
    def _forgetting_backlog(self) -> Iterator[None]:
        """Forget what was read of the file if it could not be stored, so that the next call reads it again."""
        try:
            yield
        except BaseException:
            self._backlog = None
            self._forget_contents()
            raise

    def _copy_places(self, backlog: Backlog, places: Iterable[int]) -> list[int]:
        """Copy lines of the backlog under the numbers that are reserved for them; return the numbers they have."""
        wanted = [place for place in places if place not in backlog.copied]
        rows = self._segment_rows([parse_line(backlog.lines[place], place) for place in wanted])
        if not rows:
            return []
        numbers = [backlog.first_number + place for place in rows]
        return self._store.write("", add_messages, list(rows.values()), numbers_of=numbers)

    def _copied_lines(self, backlog: Backlog) -> int:
        """Count the lines of a backlog that are in the database."""
        place = backlog.place_of(self._load_state().offset(SEGMENTS, self._identity(SEGMENTS)))
        return place + sum(1 for each in list(backlog.copied) if each >= place)  # a thread may add to them meanwhile

    def _copied(self) -> SqliteStore:
        """Return the database after copying everything that is in the files."""
        store = self._synced()
        backlog = self._backlog
        while self._backlog is not None and self._state is None:
            if self.on_progress is not None and backlog is not None:
                self.on_progress(self._copied_lines(backlog), len(backlog.lines))
            self._copy_batch()
        if self.on_progress is not None and backlog is not None:
            self.on_progress(len(backlog.lines), len(backlog.lines))
        return store

    def _copied_for(self, select: Select) -> SqliteStore:
        """Return the database after copying what a selection of messages names."""
        store = self._synced()
        backlog = self._backlog
        if backlog is None:
            return store
        if select.ids is not None:
            self._copy_first(backlog, backlog.places_of_numbers(select.ids))
            return store
        if not select.across and self._copy_session(select.scope.session):
            return store
        return self._copied()

    def _copy_session(self, session: str) -> bool:
        """Copy the lines of a session out of turn; return False if they are too many."""
        self._synced()
        backlog = self._backlog
        if backlog is None:
            return True
        places = [place for place in backlog.places_of_session(session) if place not in backlog.copied]
        if len(places) > MAX_SESSION_LINES:
            return False
        self._copy_first(backlog, places)
        return True

    def _copy_words(self, words: Mapping[str, float]) -> None:
        """Copy the lines out of turn that have most of these words."""
        backlog = self._backlog
        if backlog is not None:
            self._copy_first(backlog, backlog.places_with(words, without=backlog.copied, limit=MAX_WORD_LINES))

    def _copy_first(self, backlog: Backlog, places: Sequence[int]) -> None:
        """Copy lines out of turn, unless a transaction of this thread is under way."""
        if not places or self._state is not None:
            return
        with self._locked():
            if self._backlog is not backlog or self._identity(SEGMENTS)[:2] != backlog.identity:
                return
            with self._forgetting_backlog():
                numbers = self._copy_places(backlog, places)
            backlog.copied.update(places)
            if 0 in numbers:
                state = self._load_state()
                state.is_forgetting = True
                self._store.add_records([state.record()])

    # --- lines -----------------------------------------------------------------------

    def _read_raw(self, name: str, offset: int) -> list[bytes]:
        """Return the complete lines of a file from an offset on, each with its end."""
        path = self.path / name
        with journal.storage(path):
            if not path.exists():
                return []
            with path.open("rb") as file:
                file.seek(offset)
                lines = file.readlines()
        return [line for line in lines if line.endswith(b"\n")]

    def _read_lines(self, name: str, offset: int = 0, stop: int | None = None) -> tuple[list[Line], bytes]:
        """Return the complete lines of a part of a file, and what follows them without a line end."""
        path = self.path / name
        with journal.storage(path):
            if not path.exists():
                return [], b""
            size = -1  # all of it
            if stop is not None:
                size = stop - offset
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read(size)
        *raws, rest = data.split(b"\n")
        return [parse_line(raw + b"\n", number) for number, raw in enumerate(raws, start=1)], rest

    def _load_contents(self, stop: int | None = None) -> None:
        """Learn the content keys of the segments that are in the database, up to an offset in the file."""
        identity = self._identity(SEGMENTS)
        if stop is None:
            stop = self._load_state().offset(SEGMENTS, identity)
        device, inode, start = self._contents_read
        if [device, inode] != list(identity[:2]) or start > stop:
            self._contents = set()
            start = 0
        if start < stop:
            lines, _ = self._read_lines(SEGMENTS, start, stop)
            for line in lines:
                data = segment_of(line)
                if data is not None:
                    self._contents.add(segment_key(data))
        self._contents_read = (*identity[:2], stop)

    def _forget_contents(self) -> None:
        self._contents = set()
        self._contents_read = (0, 0, 0)

    def _segment_rows(self, lines: Sequence[Line]) -> dict[int, MessageRow]:
        """Return the messages of lines by their number, without the plugin's copies of what is known or forgotten."""
        if not lines:
            return {}
        forgotten = self._forgotten()
        rows: dict[int, MessageRow] = {}
        for line in lines:
            data = segment_of(line)
            if data is None:
                continue
            row = segment_row(data)
            if row is None:
                continue
            key = segment_key(data)
            if row.nonce.startswith(FOREIGN) and (key in self._contents or _is_forgotten(row, forgotten)):
                continue
            self._contents.add(key)
            rows[line.number] = row
        return rows

    def _fact_rows(self, lines: Sequence[Line]) -> list[FactRow]:
        """Return the versions of facts that the database does not have. Numbers of evidence mean nothing to it."""
        rows: list[FactRow] = []
        versions: dict[tuple[Scope, str], list[FactRow]] = {}
        for line in lines:
            data = line.data or {}
            if scope_problem(data, "") is not None:
                continue
            key = (scope_of(data, ""), str(data.get("id")))
            if key not in versions:
                stored = self._store.read_facts(Select(scope=key[0]), keys=(key[1],))
                versions[key] = [replace(version, evidence=()) for version in stored]
            fact = read_fact(data, before=versions[key][-1] if versions[key] else None)
            if not isinstance(fact, str) and (fact := replace(fact, evidence=())) not in versions[key]:
                versions[key].append(fact)
                rows.append(fact)
        return rows

    def _add_in_batches(self, rows: Sequence[MessageRow]) -> list[int]:
        batches = (rows[start : start + _BATCH] for start in range(0, len(rows), _BATCH))
        return [number for batch in batches for number in self._store.add_messages(batch)]


def _reserve_numbers(db: Database, count: int) -> int:
    """Reserve `count` numbers, so that new messages get higher ones; return the first of them."""
    last = db.last_number("messages")
    db.skip_numbers("messages", last + count)
    return last + 1


def _key(scope: Scope, digest: str) -> str:
    return json.dumps([*scope_to_json(scope), digest])


def _fact_key(scope: Scope, fact: str) -> str:
    return _key(scope, fact_digest(fact).hex())


def _is_forgotten(row: MessageRow, forgotten: Mapping[str, int]) -> bool:
    """Return whether these words were forgotten after they were written."""
    return (row.message.timestamp or 0) <= forgotten.get(_key(row.scope, row.message.digest), -_FOREVER)


def _find_number(row: MessageRow, numbers: Mapping[str, int], forgotten: Mapping[str, int]) -> int | None:
    """Return the number of a new message that is known, 0 if it is forgotten, None if it is new.

    `numbers` are those of the messages of its words by nonce. The plugin's segments have no nonce that others know:
    they stand for any message of the same words.
    """
    if row.nonce in numbers:
        return numbers[row.nonce]
    foreign = [number for nonce, number in numbers.items() if nonce.startswith(FOREIGN)]
    if not foreign or any(foreign):
        return max(foreign, default=None)
    until = forgotten.get(_key(row.scope, row.message.digest), _FOREVER)
    return 0 if (row.message.timestamp or 0) <= until else None
