"""A memory-context folder as a store: the plugin's files in place, and a SQLite store beside them.

    segments.jsonl       messages of users and assistants      shared with the plugin
    knowledge.jsonl      facts                                 shared with the plugin
    vectors.bin          vectors of the segments               the plugin's; read and written only to forget
    holdfast-folder.db   every row, and the index              ours

Lines that the plugin appended are copied into the database before every call. Rows that are added here go into the
database first, then to the end of the plugin's files.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import filterfalse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Self, TypeVar

from holdfast.errors import StorageError
from holdfast.store.base import FactRow, Gap, MessageRow, Record, Scope, Select
from holdfast.store.codec import DAMAGE, from_json
from holdfast.store.connection import connect_readonly, translate_errors
from holdfast.store.cutting import cut
from holdfast.store.plugin_files import (
    FOREIGN,
    ContentKey,
    Problem,
    append_lines,
    content_key,
    content_of,
    encode_line,
    fact_line,
    line_problem,
    read_fact,
    remove_vectors,
    scope_from_json,
    scope_of,
    scope_to_json,
    segment_key,
    segment_line,
    segment_of,
    segment_row,
    write_vectors,
)
from holdfast.store.rows import fact_digest
from holdfast.store.sqlite import SqliteStore
from holdfast.transcripts import journal
from holdfast.transcripts.lines import Line, parse_line

if TYPE_CHECKING:
    from holdfast.search.columns import Floats
    from holdfast.search.embed.base import Space

SEGMENTS: Final = "segments.jsonl"
KNOWLEDGE: Final = "knowledge.jsonl"
VECTORS: Final = "vectors.bin"
DATABASE: Final = "holdfast-folder.db"
JOURNAL: Final = "holdfast.jsonl"
"""Where version 0.1 kept messages that are not segments. It is read once, into a new database."""

_FILES: Final = (SEGMENTS, KNOWLEDGE)
_OWNER: Final = Scope(tenant="", project="", agent="folder", session="")
"""The scope of this module's own records; no reader has it."""
_FOREVER: Final = 2**63 - 1
_BATCH: Final = 500

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class _State:
    """What the database knows of the files, kept as a record in it.

    By file: `read` has its device and inode, and how many bytes of it are in the database; `unwritten` the lines of
    rows that may not have reached it yet. With `is_forgetting` the files may still hold rows that were removed.
    """

    read: dict[str, list[int]] = field(default_factory=dict)
    unwritten: dict[str, list[str]] = field(default_factory=dict)
    is_forgetting: bool = False

    def record(self) -> Record:
        data = {"read": self.read, "unwritten": self.unwritten, "is_forgetting": self.is_forgetting}
        return Record(scope=_OWNER, kind="state", key="", data=data)

    def offset(self, name: str, identity: Sequence[int]) -> int:
        device, inode, offset = self.read.get(name, (0, 0, 0))
        return offset if [device, inode] == list(identity[:2]) and offset <= identity[2] else 0


def _read_synced(method: Callable[Concatenate[SqliteStore, P], T]) -> Callable[Concatenate[FolderStore, P], T]:
    """Make a method that reads the database once it has everything that is in the files."""

    @wraps(method)
    def read(self: FolderStore, /, *args: P.args, **values: P.kwargs) -> T:
        return method(self._synced(), *args, **values)

    return read


def _write_locked(
    method: Callable[Concatenate[SqliteStore, P], T], *, is_removal: bool = False
) -> Callable[Concatenate[FolderStore, P], T]:
    """Make a method that writes to the database while nobody else does; nothing is removed in a transaction."""

    @wraps(method)
    def write(self: FolderStore, /, *args: P.args, **values: P.kwargs) -> T:
        with self._writing() if is_removal else self.transaction():
            return method(self._store, *args, **values)

    return write


class FolderStore:
    """A store in a memory-context folder. Safe to use from several threads and processes.

    Opened `readonly`, or where the folder cannot be written, nothing in it is changed: the database is then a temporary
    copy.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        readonly: bool = False,
    ) -> None:
        self.path = Path(folder)
        self._clock, self._new_id = clock, new_id
        self._lock = threading.RLock()
        self._state: _State | None = None
        self._stamps: tuple[tuple[int, ...], ...] | None = None
        self._contents: set[ContentKey] = set()
        self._contents_read: tuple[int, int, int] = (0, 0, 0)
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
        """Close the database."""
        self._closing.close()

    # --- reading ---------------------------------------------------------------------

    read_messages = _read_synced(SqliteStore.read_messages)
    read_passages = _read_synced(SqliteStore.read_passages)
    read_records = _read_synced(SqliteStore.read_records)
    read_jobs = _read_synced(SqliteStore.read_jobs)
    find = _read_synced(SqliteStore.find)
    search = _read_synced(SqliteStore.search)
    scopes = _read_synced(SqliteStore.scopes)
    sessions = _read_synced(SqliteStore.sessions)
    embedded = _read_synced(SqliteStore.embedded)
    without_vectors = _read_synced(SqliteStore.without_vectors)
    waiting = _read_synced(SqliteStore.waiting)
    take_job = _read_synced(SqliteStore.take_job)

    def read_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> list[FactRow]:
        """Read versions of facts that the reader may see, oldest first; the plugin's facts have no session."""
        store = self._synced()
        rows = store.read_facts(select, keys=keys)
        if not select.across and select.scope == replace(Scope(), session=select.scope.session) != Scope():
            rows = [*store.read_facts(replace(select, scope=Scope()), keys=keys), *rows]
        return rows

    def lock_work(self, space: Space | None) -> AbstractContextManager[bool]:
        """Let one process at a time do the pending work; yield whether this one may."""
        return self._store.lock_work(space)

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
        counts = self._synced().counts()
        return counts | {"bytes": sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The lines of both files that cannot be used."""
        problems: list[Problem] = []
        for name in _FILES:
            lines, rest = self._read_lines(name)
            facts: dict[str, FactRow] = {}
            reasons = ((line.number, line_problem(line, facts, is_segment=name == SEGMENTS)) for line in lines)
            problems += [Problem(name, number, reason) for number, reason in reasons if reason]
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
                        if has_lines := any(state.unwritten.values()):
                            self._store.add_records([state.record()])
                except BaseException:
                    self._contents, self._contents_read = set(), (0, 0, 0)
                    raise
                finally:
                    self._state = None
                if has_lines:
                    self._catch_up(state)

    def _queue_lines(self, name: str, lines: Sequence[str]) -> None:
        assert self._state is not None
        self._state.unwritten.setdefault(name, []).extend(lines)

    def add_messages(self, rows: Sequence[MessageRow], /) -> list[int]:
        """Store messages with their passages; those of users and assistants are segments too."""
        with self.transaction():
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
            numbers = iter(self._store.add_messages(new))
            return [known[place] if place in known else next(numbers) for place in range(len(rows))]

    def add_facts(self, rows: Sequence[FactRow], /) -> list[int]:
        """Store versions of facts, also in the plugin's file."""
        with self.transaction():
            forgotten = self._forgotten() if rows else {}
            kept = [row for row in rows if _fact_key(row.scope, row.id) not in forgotten]
            self._queue_lines(KNOWLEDGE, [encode_line(fact_line(row)) for row in kept])
            return self._store.add_facts(rows)

    add_records = _write_locked(SqliteStore.add_records)
    add_jobs = _write_locked(SqliteStore.add_jobs)
    add_vectors = _write_locked(SqliteStore.add_vectors)
    set_flags = _write_locked(SqliteStore.set_flags)

    def write_vectors(self, vectors: Mapping[int, Floats], space: Space) -> None:
        """Write a new `vectors.bin` with the vectors of segments, by the number of their message."""
        rows: dict[str, Floats] = {}
        lines, _ = self._read_lines(SEGMENTS)
        for data in map(segment_of, lines):
            row = None if data is None else segment_row(data)
            if data is not None and row is not None:
                known = self._store.find(row.scope, [row.message.digest]).get(row.message.digest, {})
                if (vector := vectors.get(known.get(row.nonce, 0))) is not None:
                    rows[data["id"]] = vector
        write_vectors(self.path / VECTORS, rows, dimension=space.dimension)

    def _find_numbers(self, rows: Sequence[MessageRow]) -> dict[int, int]:
        """Return the numbers of messages that the database has already, by place; 0 for forgotten ones."""
        digests: dict[Scope, list[str]] = defaultdict(list)
        for row in rows:
            digests[row.scope].append(row.message.digest)
        stored = {scope: self._store.find(scope, some) for scope, some in digests.items()}
        forgotten = self._forgotten() if any(stored.values()) else {}
        numbers = (_find_number(row, stored[row.scope].get(row.message.digest, {}), forgotten) for row in rows)
        return {place: number for place, number in enumerate(numbers) if number is not None}

    def remove_messages(self, select: Select, /) -> int:
        """Forget messages for good, from every file."""
        with self._writing() as state:
            keys = (_key(row.scope, row.message.digest) for row in self._store.read_messages(select))
            until = dict.fromkeys(keys, self._clock())
            return self._forget(state, until, lambda: self._store.remove_messages(select))

    def remove_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> int:
        """Forget facts for good, from every file."""
        with self._writing() as state:
            rows = self._store.read_facts(select, keys=keys)
            until = {_fact_key(row.scope, row.id): _FOREVER for row in rows}
            return self._forget(state, until, lambda: self._store.remove_facts(select, keys=keys))

    remove_records = _write_locked(SqliteStore.remove_records, is_removal=True)
    remove_jobs = _write_locked(SqliteStore.remove_jobs, is_removal=True)

    def _forget(self, state: _State, until: Mapping[str, int], remove: Callable[[], int]) -> int:
        """Remove rows; what the plugin wrote of each key up to a time stays out, now and later."""
        state.is_forgetting = True
        kept = [Record(scope=_OWNER, kind="forgotten", key=key, data={"until": time}) for key, time in until.items()]
        self._store.add_records([*kept, state.record()])
        try:
            return remove()
        finally:
            self._rewrite_files(state)

    def _forgotten(self) -> dict[str, int]:
        """Return until when the words and facts of each key are forgotten."""
        records = self._store.read_records(Select(scope=_OWNER), kind="forgotten")
        return {record.key: record.data["until"] for record in records}

    def _rewrite_files(self, state: _State) -> None:
        """Write every file without the lines and vectors of what was forgotten."""
        forgotten = self._forgotten()
        names = {id_ for name in _FILES for id_ in self._rewrite_file(state, name, forgotten)}
        for path in self.path.glob("*.bin"):
            remove_vectors(path, names)
        state.is_forgetting = False
        self._contents, self._contents_read = set(), (0, 0, 0)
        self._catch_up(state)

    def _rewrite_file(self, state: _State, name: str, forgotten: Mapping[str, int]) -> set[str]:
        """Write a file without its forgotten lines, and return the ids of those."""
        complete, rest = self._read_lines(name)
        lines = [*complete, parse_line(rest, 0)] if rest else complete
        offset = state.offset(name, self._identity(name))
        gone = {line.number for line in lines if self._is_forgotten_line(name, line, forgotten)}
        if gone:
            before, place = 0, 0
            for line in lines:
                place += len(line.raw)
                before += len(line.raw) if place <= offset and line.number not in gone else 0
            journal.replace(self.path / name, [line.raw for line in lines if line.number not in gone])
            state.read[name] = [*self._identity(name)[:2], before]
        return {str((line.data or {}).get("id")) for line in lines if line.number in gone}

    def _is_forgotten_line(self, name: str, line: Line, forgotten: Mapping[str, int]) -> bool:
        if name == KNOWLEDGE:
            data = line.data or {}
            return _fact_key(scope_of(data, ""), str(data.get("id"))) in forgotten
        segment = segment_of(line)
        row = None if segment is None else segment_row(segment)
        if row is None:
            return False
        if row.nonce.startswith(FOREIGN):
            return _is_forgotten(row, forgotten)
        return self._store.find(row.scope, [row.message.digest]).get(row.message.digest, {}).get(row.nonce) == 0

    # --- keeping up with the files -----------------------------------------------------

    def _create_missing(self) -> bool:
        """Create the folder and its first file where they are missing. Return whether the folder can be written."""
        path = self.path / SEGMENTS
        if not path.exists():
            try:
                journal.create(path, [])
            except StorageError:
                if not self.path.is_dir():
                    raise
        return os.access(self.path, os.W_OK) and os.access(path, os.W_OK)

    def _identity(self, name: str) -> tuple[int, int, int]:
        """Return device, inode and size of a file; zeros where there is none."""
        try:
            status = (self.path / name).stat()
        except OSError:
            return (0, 0, 0)
        return (status.st_dev, status.st_ino, status.st_size)

    def _synced(self) -> SqliteStore:
        """Return the database after copying the lines that were appended to the files since the last call."""
        if self._state is None and tuple(map(self._identity, _FILES)) != self._stamps:
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
        records = self._store.read_records(Select(scope=_OWNER), kind="state")
        if records:
            return _State(**records[0].data)
        # Copy the messages that version 0.1 kept beside the plugin's files; delete its file once all are copied.
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
        has_lines = [self._catch_up_file(state, name) for name in _FILES]
        if any(has_lines) or any(state.unwritten.values()):
            state.unwritten = {}
            self._store.add_records([state.record()])
        self._contents_read = (*self._identity(SEGMENTS)[:2], state.read.get(SEGMENTS, [0, 0, 0])[2])
        self._stamps = tuple(map(self._identity, _FILES))
        if state.is_forgetting and not self.readonly:
            self._rewrite_files(state)

    def _catch_up_file(self, state: _State, name: str) -> bool:
        identity = self._identity(name)
        offset = state.offset(name, identity)
        if name == SEGMENTS:
            self._read_contents(identity, offset)
        lines, _ = self._read_lines(name, offset)
        written = {line.raw for line in lines}
        own = dict.fromkeys(line.encode() for line in state.unwritten.get(name, ()))
        if not self.readonly and (missing := list(filterfalse(written.__contains__, own))):
            append_lines(self.path / name, missing)
            lines, _ = self._read_lines(name, offset)
        others = [line for line in lines if line.raw not in own]
        if name == SEGMENTS:
            numbers = self._add_in_batches(self._segment_rows(others))
        else:
            numbers = self._store.add_facts(self._fact_rows(others))
        state.is_forgetting |= 0 in numbers  # lines of rows that are forgotten here
        if lines:
            state.read[name] = [*self._identity(name)[:2], offset + sum(len(line.raw) for line in lines)]
        return bool(lines)

    def _read_lines(self, name: str, offset: int = 0, stop: int | None = None) -> tuple[list[Line], bytes]:
        """Return the complete lines of a part of a file, and what follows them without a line end."""
        path = self.path / name
        with journal.storage(path):
            if not path.exists():
                return [], b""
            with path.open("rb") as file:
                file.seek(offset)
                data = file.read() if stop is None else file.read(stop - offset)
        *raws, rest = data.split(b"\n")
        return [parse_line(raw + b"\n", number) for number, raw in enumerate(raws, start=1)], rest

    def _read_contents(self, identity: Sequence[int], stop: int) -> None:
        """Learn the content keys of the segments before a place, which are in the database."""
        device, inode, start = self._contents_read
        if [device, inode] != list(identity[:2]) or start > stop:
            self._contents, start = set(), 0
        if start < stop:
            lines, _ = self._read_lines(SEGMENTS, start, stop)
            self._contents |= {segment_key(data) for data in map(segment_of, lines) if data is not None}

    def _segment_rows(self, lines: Sequence[Line]) -> list[MessageRow]:
        """Return the messages of lines, without the plugin's copies of what is known or forgotten."""
        forgotten = self._forgotten() if lines else {}
        rows: list[MessageRow] = []
        for data in map(segment_of, lines):
            row = None if data is None else segment_row(data)
            if data is None or row is None:
                continue
            key = segment_key(data)
            if row.nonce.startswith(FOREIGN) and (key in self._contents or _is_forgotten(row, forgotten)):
                continue
            self._contents.add(key)
            rows.append(row)
        return rows

    def _fact_rows(self, lines: Sequence[Line]) -> list[FactRow]:
        """Return the versions of facts that the database does not have. Numbers of evidence mean nothing to it."""
        rows: list[FactRow] = []
        versions: dict[tuple[Scope, str], list[FactRow]] = {}
        for line in lines:
            data = line.data or {}
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


def _key(scope: Scope, digest: str) -> str:
    return json.dumps([*scope_to_json(scope), digest])


def _fact_key(scope: Scope, fact: str) -> str:
    return _key(scope, fact_digest(fact).hex())


def _is_forgotten(row: MessageRow, forgotten: Mapping[str, int]) -> bool:
    """Return whether these words were forgotten after they were written."""
    return (row.message.timestamp or 0) <= forgotten.get(_key(row.scope, row.message.digest), -_FOREVER)


def _find_number(row: MessageRow, numbers: Mapping[str, int], forgotten: Mapping[str, int]) -> int | None:
    """Return the number of a new message that is known, 0 where it is forgotten, None where it is new.

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
