"""The embedded store: one SQLite file, opened by any number of processes at once.

Write-ahead logging with a full sync on every commit: what was stored survives a crash of the machine.
Every write is one transaction, so a store is never half of anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from holdfast.errors import StorageError
from holdfast.files import only_process
from holdfast.index.database import Database
from holdfast.store import rows
from holdfast.store.base import Gap, Job, Kind, Known, PassageText, Scope, Select, VectorRow
from holdfast.store.connection import (
    COPIED_BLOCKS,
    COUNTS,
    SqliteDatabase,
    check_version,
    connect,
    connect_readonly,
    delete_securely,
    find_file_number,
    identity,
    is_error,
    is_readonly,
    migrate,
    note_open_file,
    refuse_second_library,
    translate_errors,
    write_transaction,
)
from holdfast.store.rows import Tables
from holdfast.store.tables import R, TableStore

if TYPE_CHECKING:
    from holdfast.embed.base import Space
    from holdfast.settings.schema import Secret

T = TypeVar("T")
P = ParamSpec("P")

# Modules that need numpy are imported by the functions that use them: messages and facts are read without it, so that a
# command that only reads rows starts in half of the time.


class SqliteStore(TableStore):
    """A store in one file. Safe to use from several threads and processes.

    It reads and writes over two connections, so that a search does not wait for a write of this or another process. A
    write waits up to `wait` seconds for other processes. A file that cannot be written is opened `readonly`, and every
    write is an error. A file with `copied_blocks` blocks of vectors or more has a copy of them next to it, which is
    mapped instead of read. With a `key`, the file is encrypted, and there is no such copy.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        key: Secret | None = None,
        wait: float = 120.0,
        copied_blocks: int = COPIED_BLOCKS,
    ) -> None:
        self.path = Path(path)
        self._key = key
        self.readonly = is_readonly(self.path)
        self._wait = wait
        self._copied_blocks = copied_blocks
        self._write_lock = threading.RLock()
        self._read_lock = threading.Lock()
        has_key = key is not None
        if self.path.exists():
            refuse_second_library(self.path, has_key=has_key)
        with ExitStack() as opened:
            if self.readonly:
                self._reader = opened.enter_context(closing(connect_readonly(self.path, key=key)))
                self._writer = self._reader
            else:
                self._writer = opened.enter_context(closing(connect(self.path, wait=wait, key=key)))
                with translate_errors(self.path):
                    migrate(self._writer, path=self.path)
                    # In KB. Few written pages are needed again: the other connection reads.
                    self._writer.execute("PRAGMA cache_size = -1024")
                self._reader = opened.enter_context(closing(connect(self.path, wait=wait, key=key)))
            opened.enter_context(note_open_file(self.path, is_encrypted=has_key))
            self._closing = opened.pop_all()
        self._identity = identity(self.path)
        self.has_figures = not self.readonly or _has_figures(self._reader)

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
        return tuple(self._reader.cache.gaps)

    # --- transactions ---------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes of a block one; fail if the file was replaced or has tables of a newer version."""
        if self.readonly:
            raise StorageError(
                "the file or its disk is read-only: make it writable or choose another place", path=self.path
            )
        with self._write_lock, translate_errors(self.path):
            if self._writer.in_transaction:  # a part of the one that this thread has begun
                yield
                return
            try:
                with write_transaction(self._writer):
                    check_version(self._writer, path=self.path)
                    yield
                    self._check_identity()
            except BaseException as error:
                self._writer.cache.clear()  # it may have scopes that were rolled back
                self._writer = self._renew(self._writer, error)
                raise

    def _check_identity(self) -> None:
        """Fail if the path leads to another file now: what is written to a deleted file is lost."""
        for file, number in self._identity.items():
            if find_file_number(file) != number:
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

    @contextmanager
    def _reading(self) -> Iterator[SqliteDatabase]:
        """Run one read transaction. If it fails, what was cached of the tables is dropped."""
        with self._read_lock, translate_errors(self.path):
            self._reader.execute("BEGIN")
            try:
                check_version(self._reader, path=self.path)
                yield self._reader
            except BaseException as error:
                self._reader.cache.clear()
                self._reader = self._renew(self._reader, error)
                raise
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("COMMIT")

    def _renew(self, connection: SqliteDatabase, error: BaseException) -> SqliteDatabase:
        """Replace a connection that has met a page which cannot be decrypted; return another one as it is.

        SQLCipher refuses everything after that on the same connection, also intact pages.
        """
        if not connection.is_encrypted or not is_error(error, "SQLITE_CORRUPT"):
            return connection
        if self.readonly:
            renewed = connect_readonly(self.path, key=self._key)
        else:
            renewed = connect(self.path, wait=self._wait, key=self._key)
        self._closing.callback(renewed.close)
        renewed.cache.gaps = connection.cache.gaps
        connection.close()
        return renewed

    def read(
        self,
        tenant: str,  # noqa: ARG002 - one file has the rows of all tenants
        work: Callable[Concatenate[Tables, P], T],
        /,
        *args: P.args,
        **values: P.kwargs,
    ) -> T:
        """Call a function with the tables, as of one moment."""
        with self._reading() as db:
            return work(db, *args, **values)

    def write(
        self,
        tenant: str,  # noqa: ARG002 - as above
        work: Callable[Concatenate[Tables, P], T],
        /,
        *args: P.args,
        **values: P.kwargs,
    ) -> T:
        """Call a function that changes the tables in one transaction."""
        with self.transaction():
            return work(self._writer, *args, **values)

    # --- writing --------------------------------------------------------------------

    def _add(self, new: Sequence[R], add: Callable[[Database, Sequence[R]], list[int]]) -> list[int]:
        is_durable = any(getattr(row, "is_durable", True) for row in new)  # only records may be not
        if is_durable:
            with self.transaction():
                return add(self._writer, new)
        with self._unsynced_transaction():
            return add(self._writer, new)

    def add_vectors(self, new: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""
        from holdfast.store import sqlite_vectors, vector_file  # noqa: PLC0415 - see above

        with self._unsynced_transaction():  # a vector that is lost is made again
            last = self._writer.last_number("vector_blocks")
            count = sqlite_vectors.add_vectors(self._writer, new)
            has_new_blocks = self._writer.last_number("vector_blocks") > last
        # There is no copy next to an encrypted store: it would be readable.
        if has_new_blocks and not self._writer.in_transaction and not self._writer.is_encrypted:
            # Over a connection of its own, so that other threads can write meanwhile.
            with closing(connect(self.path, wait=self._wait)) as other:
                vector_file.write_copies(other, least=self._copied_blocks)
        return count

    def _remove(self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None) -> int:
        from holdfast.store import forgetting  # noqa: PLC0415 - see above

        condition, values = rows.where(self._writer, kind, select, name=name, keys=keys)
        with self._write_lock:
            with self.transaction(), delete_securely(self._writer):
                count = forgetting.remove(self._writer, kind, condition, values)
            if count and kind in {"message", "fact"}:
                self._reader.cache.gaps = {}  # those that are left are met again
                with translate_errors(self.path):
                    forgetting.delete_copies(forgetting.damaged_copies(self.path))
                    forgetting.delete_copies(forgetting.unfinished_copies(self.path))
                    forgetting.scrub(self._writer, path=self.path, copied_blocks=self._copied_blocks)
        return count

    # --- reading --------------------------------------------------------------------

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        """Return the archived messages of a session with these digests."""
        return self.read(scope.tenant, rows.find_messages, scope, digests, has_forgotten=not self.readonly)

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet, oldest first."""
        from holdfast.store import sqlite_vectors  # noqa: PLC0415 - see above

        with self._reading() as db:
            number = sqlite_vectors.space_number(db, space, create=False)
            missing = sqlite_vectors.passages_without_vectors(db, number, limit=limit)
            return rows.read_any_passages(db, missing)

    def waiting(self, kind: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope, oldest first."""
        with self._reading() as db:
            return rows.read_any_jobs(db, kind, limit=limit)

    def lock_work(self, space: Space | None, *, tenant: str | None = None) -> AbstractContextManager[bool]:  # noqa: ARG002 - one process for all
        """Let one process at a time do the pending work; yield whether this one may."""
        return only_process(self.path.with_suffix(".worker"))

    def listen(self, notify: Callable[[], None]) -> None:
        """Do nothing: a file does not tell what others have left."""

    def embedded(self, space: Space) -> int:
        """Count the passages that have vectors in this space."""
        from holdfast.store import sqlite_vectors  # noqa: PLC0415 - see above

        with self._reading() as db:
            number = sqlite_vectors.space_number(db, space, create=False)
            return sqlite_vectors.count_embedded(db, number)

    def tenants(self) -> list[str]:
        """List the tenants that have rows."""
        with self._reading() as db:
            return [name for (name,) in db.execute("SELECT DISTINCT tenant FROM scopes ORDER BY tenant")]

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""
        with self._reading() as db:
            db.cache.scopes.load(db)
            counts = db.execute("SELECT scope, count(*) FROM messages GROUP BY scope ORDER BY max(id) DESC")
            return {db.cache.scopes[scope]: count for scope, count in counts}

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""
        with self._reading() as db:
            db.cache.scopes.load(db)
            numbers = db.execute("SELECT scope FROM messages UNION SELECT scope FROM facts")
            return sorted(db.cache.scopes[scope] for (scope,) in numbers)

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions, facts and bytes."""
        with self._reading() as db:
            found = {name: int(db.execute(query).fetchone()[0]) for name, query in COUNTS.items()}
            (pages,) = db.execute("PRAGMA page_count").fetchone()
            (page_size,) = db.execute("PRAGMA page_size").fetchone()
            return found | {"bytes": pages * int(page_size)}  # SQLCipher returns it as text


def _has_figures(db: SqliteDatabase) -> bool:
    """Return whether a file that cannot be changed has the tables of figures. That of an earlier version has none."""
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'").fetchone() is not None
