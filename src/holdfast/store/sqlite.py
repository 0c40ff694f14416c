"""The embedded store: one SQLite file, opened by any number of processes at once.

Write-ahead logging with a full sync on every commit: what was stored survives a crash of the machine.
Every write is one transaction, so a store is never half of anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import StorageError
from holdfast.files import only_process
from holdfast.index.database import Database
from holdfast.store.base import Gap, Job, Kind, Known, PassageText, Scope, Select, VectorRow
from holdfast.store.connection import (
    COPIED_BLOCKS,
    COUNTS,
    check_version,
    connect,
    connect_readonly,
    delete_securely,
    identity,
    is_readonly,
    migrate,
    translate_errors,
    write_transaction,
)
from holdfast.store.rows import RowReader, find_messages, where
from holdfast.store.tables import R, TableStore

if TYPE_CHECKING:
    from holdfast.embed.base import Space

T = TypeVar("T")

# The index is imported where it is used: messages and facts are read without numpy.


class SqliteStore(TableStore):
    """A store in one file. Safe to use from several threads and processes.

    It reads and writes over two connections: a search does not wait for a write of this or another process. A write
    waits up to `wait` seconds for other processes. A file that cannot be written is opened `readonly`, and every write
    is an error. Beside one with `copied_blocks` blocks of vectors is a copy of them, which is mapped instead of read.
    """

    def __init__(self, path: Path | str, *, wait: float = 120.0, copied_blocks: int = COPIED_BLOCKS) -> None:
        self.path, self._wait, self._copied_blocks = Path(path), wait, copied_blocks
        self.readonly = is_readonly(self.path)
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        with ExitStack() as opened:
            if self.readonly:
                self._writer = self._reader = opened.enter_context(closing(connect_readonly(self.path)))
            else:
                self._writer = opened.enter_context(closing(connect(self.path, wait=wait)))
                with translate_errors(self.path):
                    migrate(self._writer, path=self.path)
                    # In KB. Few written pages are needed again: the other connection reads.
                    self._writer.execute("PRAGMA cache_size = -1024")
                self._reader = opened.enter_context(closing(connect(self.path, wait=wait)))
            self._closing = opened.pop_all()
        self._identity = identity(self.path)
        self._rows = RowReader(self._reader)

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def close(self) -> None:
        """Close the file."""
        with self._write_lock, self._read_lock:
            self._closing.close()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damaged rows that reads have left out so far."""
        return tuple(self._rows.gaps)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes of a block one; fail where the file was replaced or has tables of a newer version."""
        if self.readonly:
            raise StorageError(
                "the file or its disk is read-only: make it writable or choose another place", path=self.path
            )
        with self._write_lock, translate_errors(self.path):
            if self._writer.in_transaction:  # a part of the one that this thread has begun
                yield
                return
            with write_transaction(self._writer):
                check_version(self._writer, path=self.path)
                yield
                if not self._identity.items() <= identity(self.path).items():
                    raise StorageError(
                        "was deleted, moved or replaced while it was open, so nothing can be kept in it: put it back,"
                        " or start this program again",
                        path=self.path,
                    )

    @contextmanager
    def _unsynced_transaction(self) -> Iterator[None]:
        """Make the writes of a block one, without waiting for the disk; the next transaction waits for them too."""
        with self._write_lock, translate_errors(self.path):
            if self.readonly or self._writer.in_transaction:
                with self.transaction():
                    yield
                return
            self._writer.execute("PRAGMA synchronous = NORMAL")
            try:
                with self.transaction():
                    yield
            finally:
                self._writer.execute("PRAGMA synchronous = FULL")

    def _add(self, rows: Sequence[R], add: Callable[[Database, Sequence[R]], list[int]]) -> list[int]:
        is_durable = any(getattr(row, "is_durable", True) for row in rows)
        with self.transaction() if is_durable else self._unsynced_transaction():
            return add(self._writer, rows)

    def change_rows(self, tenant: str, work: Callable[[Database], T]) -> T:  # noqa: ARG002 - one file for all
        """Change rows in one transaction."""
        with self.transaction():
            return work(self._writer)

    def add_vectors(self, rows: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""
        from holdfast.store import sqlite_vectors, vector_file  # noqa: PLC0415 - see above

        with self._unsynced_transaction():  # a vector that is lost is made again
            last = self._writer.last_number("vector_blocks")
            count = sqlite_vectors.add_vectors(self._writer, rows)
            has_blocks = self._writer.last_number("vector_blocks") > last
        if has_blocks and not self._writer.in_transaction:
            with closing(connect(self.path, wait=self._wait)) as other:  # so that writers of this process go on
                vector_file.write_copies(other, least=self._copied_blocks)
        return count

    def read_rows(self, tenant: str, work: Callable[[RowReader], T]) -> T:  # noqa: ARG002 - as above
        """Read rows, as of one moment."""
        with self._reading() as rows:
            return work(rows)

    @contextmanager
    def _reading(self) -> Iterator[RowReader]:
        """Run one read transaction. Where it fails, what was cached of the index is dropped."""
        with self._read_lock, translate_errors(self.path):
            self._reader.execute("BEGIN")
            try:
                check_version(self._reader, path=self.path)
                yield self._rows
            except BaseException:
                self._rows.clear()
                raise
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("COMMIT")

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        """Return what a session knows of the messages with these digests."""
        with self._reading():
            return find_messages(self._reader, scope, digests, has_forgotten=not self.readonly)

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet, oldest first."""
        from holdfast.store import sqlite_vectors  # noqa: PLC0415 - see above

        with self._reading() as rows:
            rows.scopes.load(rows.db)
            number = sqlite_vectors.space_number(self._reader, space, create=False)
            return rows.passages_of_all(sqlite_vectors.passages_without_vectors(self._reader, number, limit=limit))

    def waiting(self, kind: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope, oldest first."""
        with self._reading() as rows:
            rows.scopes.load(rows.db)
            return rows.jobs_of_all(kind, limit=limit)

    def tenants(self) -> list[str]:
        """List the tenants that have rows."""
        with self._reading():
            return [name for (name,) in self._reader.execute("SELECT DISTINCT tenant FROM scopes ORDER BY tenant")]

    def take_job(self, kind: str) -> Job | None:
        """Read the oldest job of a kind and any scope."""
        return next(iter(self.waiting(kind, limit=1)), None)

    def lock_work(self, space: Space | None) -> AbstractContextManager[bool]:  # noqa: ARG002 - one process for all
        """Let one process at a time do the pending work; yield whether this one may."""
        return only_process(self.path.with_suffix(".worker"))

    def listen(self, notify: Callable[[], None]) -> None:
        """Do nothing: a file does not tell what others have left."""

    def embedded(self, space: Space) -> int:
        """Count the passages that have vectors in this space."""
        from holdfast.store import sqlite_vectors  # noqa: PLC0415 - see above

        with self._reading():
            number = sqlite_vectors.space_number(self._reader, space, create=False)
            return sqlite_vectors.count_embedded(self._reader, number)

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""
        with self._reading() as rows:
            rows.scopes.load(rows.db)
            counts = self._reader.execute("SELECT scope, count(*) FROM messages GROUP BY scope ORDER BY max(id) DESC")
            return {rows.scopes[scope]: count for scope, count in counts}

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""
        with self._reading() as rows:
            rows.scopes.load(rows.db)
            numbers = self._reader.execute("SELECT scope FROM messages UNION SELECT scope FROM facts")
            return sorted(rows.scopes[scope] for (scope,) in numbers)

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions, facts and bytes."""
        with self._reading():
            found = {name: self._reader.execute(query).fetchone()[0] for name, query in COUNTS.items()}
            pages, size = (self._reader.execute(f"PRAGMA page_{name}").fetchone()[0] for name in ("count", "size"))
            return found | {"bytes": pages * size}

    def _remove(self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None) -> int:
        from holdfast.store import forgetting  # noqa: PLC0415 - see above

        condition, values = where(self._writer, kind, select, name=name, keys=keys)
        with self._write_lock:
            with self.transaction(), delete_securely(self._writer):
                count = forgetting.remove(self._writer, kind, condition, values)
            if count and kind in {"message", "fact"}:
                self._rows.gaps = {}  # those that are left are met again
                with translate_errors(self.path):
                    forgetting.delete_copies(forgetting.damaged_copies(self.path))
                    forgetting.scrub(self._writer, path=self.path, copied_blocks=self._copied_blocks)
        return count
