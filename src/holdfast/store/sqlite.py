"""The embedded store: one SQLite file, opened by any number of processes at once.

Write-ahead logging with a full sync on every commit: what was stored survives a crash of the machine.
Every write is one transaction, so a store is never half of anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from holdfast.errors import ConflictError, StorageError
from holdfast.store.base import (
    FactRow,
    Gap,
    Job,
    Kind,
    MessageRow,
    PassageText,
    Record,
    Scope,
    SearchQuery,
    Select,
    VectorRow,
)
from holdfast.store.codec import DAMAGE, bytes_text, encode_message, pack_json, text_bytes
from holdfast.store.connection import (
    COUNTS,
    check_version,
    connect,
    connect_readonly,
    identity,
    is_readonly,
    migrate,
    translate_errors,
    write_transaction,
)
from holdfast.store.sqlite_rows import (
    EXCLUDED,
    PINNED,
    RowReader,
    clamp_time,
    fact_data,
    fact_digest,
    is_forgotten,
    message_digest,
    where,
)

if TYPE_CHECKING:
    from holdfast.search.candidates import Candidates
    from holdfast.search.embed.base import Space
    from holdfast.store.index_tables import NewMessage
    from holdfast.store.sqlite_index import Index

# The index is imported where it is used: messages and facts are read without numpy.

SCOPE_ID: Final = "SELECT id FROM scopes WHERE tenant = ? AND project = ? AND agent = ? AND session = ?"


class SqliteStore:
    """A store in one file. Safe to use from several threads and processes.

    It reads and writes over two connections: a search does not wait for a write of this or another process. A write
    waits up to `wait` seconds for other processes. A file that cannot be written is opened `readonly`, and every write
    is an error.
    """

    def __init__(self, path: Path | str, *, wait: float = 120.0) -> None:
        self.path = Path(path)
        self.readonly = is_readonly(self.path)
        self._write_lock, self._read_lock = threading.RLock(), threading.Lock()
        with ExitStack() as opened:
            if self.readonly:
                self._writer = self._reader = opened.enter_context(closing(connect_readonly(self.path)))
            else:
                self._writer = opened.enter_context(closing(connect(self.path, wait=wait)))
                with translate_errors(self.path):
                    migrate(self._writer, path=self.path)
                self._reader = opened.enter_context(closing(connect(self.path, wait=wait)))
            self._closing = opened.pop_all()
        self._identity = identity(self.path)
        self._index: Index | None = None
        self._rows = RowReader(self._reader)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._write_lock, self._read_lock:
            self._closing.close()

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damaged rows that reads have left out so far."""
        return tuple(self._rows.gaps)

    # --- writing -------------------------------------------------------------

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

    def add_messages(self, rows: Sequence[MessageRow], /) -> list[int]:
        """Store messages with their passages."""
        numbers: list[int] = []
        new: list[NewMessage] = []
        query = "SELECT id FROM messages WHERE scope = ? AND digest = ? AND nonce = ?"
        insert = "INSERT INTO messages(scope, digest, nonce, flags, body) VALUES (?, ?, ?, ?, ?)"
        with self.transaction():
            for row in rows:
                scope = self._scope(row.scope)
                digest, nonce = bytes.fromhex(row.message.digest), text_bytes(row.nonce)
                # Version 0.1 kept the digest of the words alone: what was forgotten then stays out.
                if is_forgotten(self._writer, scope, message_digest(digest, nonce), digest):
                    numbers.append(0)
                elif known := self._writer.execute(query, (scope, digest, nonce)).fetchone():
                    numbers.append(int(known[0]))
                else:
                    flags = PINNED * row.pinned | EXCLUDED * row.excluded
                    numbers.append(self._insert(insert, (scope, digest, nonce, flags, encode_message(row.message))))
                    new.append((row.message, row.passages, scope, numbers[-1]))
            if new:
                from holdfast.store import index_tables  # noqa: PLC0415 - see above

                index_tables.add_passages(self._writer, new)
        return numbers

    def set_flags(self, select: Select, /, *, pinned: bool | None = None, excluded: bool | None = None) -> int:
        """Set the flags of messages that are not None."""
        flags = ((PINNED, pinned), (EXCLUDED, excluded))
        on = sum(bit for bit, value in flags if value)
        off = sum(bit for bit, value in flags if value is False)
        condition, values = where("message", select)
        update = f"UPDATE messages SET flags = (flags | ?) & ~? WHERE id IN (SELECT id FROM messages WHERE {condition})"
        with self.transaction():
            return self._writer.execute(update, (on, off, *values)).rowcount

    def add_facts(self, rows: Sequence[FactRow], /) -> list[int]:
        """Store versions of facts."""
        numbers: list[int] = []
        insert = "INSERT INTO facts(scope, id, data) VALUES (?, ?, ?)"
        with self.transaction():
            for row in rows:
                scope = self._scope(row.scope)
                forgotten = is_forgotten(self._writer, scope, fact_digest(row.id))
                numbers.append(0 if forgotten else self._insert(insert, (scope, row.id, fact_data(row))))
        return numbers

    def add_records(self, rows: Sequence[Record], /) -> list[int]:
        """Store records, each in place of the record of the same kind and key."""
        numbers: list[int] = []
        with self.transaction():
            for row in rows:
                key = (self._scope(row.scope), row.kind, row.key)
                values = (clamp_time(row.time), pack_json(row.data))
                query = "SELECT id FROM records WHERE scope = ? AND kind = ? AND key = ?"
                known = self._writer.execute(query, key).fetchone()
                if known and row.is_new:
                    raise ConflictError(f"another process has recorded {row.kind} {row.key}: try again", path=self.path)
                if known:
                    self._writer.execute("UPDATE records SET time = ?, data = ? WHERE id = ?", (*values, *known))
                    numbers.append(int(known[0]))
                else:
                    insert = "INSERT INTO records(scope, kind, key, time, data) VALUES (?, ?, ?, ?, ?)"
                    numbers.append(self._insert(insert, (*key, *values)))
        return numbers

    def add_jobs(self, rows: Sequence[Job], /) -> list[int]:
        """Store jobs."""
        insert = "INSERT INTO jobs(scope, kind, time, data) VALUES (?, ?, ?, ?)"
        with self.transaction():
            return [
                self._insert(insert, (self._scope(row.scope), row.kind, clamp_time(row.time), pack_json(row.data)))
                for row in rows
            ]

    def add_vectors(self, rows: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""
        from holdfast.store import index_tables  # noqa: PLC0415 - see above

        with self.transaction():
            return index_tables.add_vectors(self._writer, rows)

    def _insert(self, statement: str, values: tuple[object, ...]) -> int:
        return int(self._writer.execute(statement, values).lastrowid or 0)

    def _scope(self, scope: Scope) -> int:
        values = (scope.tenant, scope.project, scope.agent, scope.session)
        if known := self._writer.execute(SCOPE_ID, values).fetchone():
            return int(known[0])
        insert = "INSERT INTO scopes VALUES ((SELECT coalesce(max(id) + 1, 0) FROM scopes), ?, ?, ?, ?)"
        return self._insert(insert, values)

    # --- reading ---------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[RowReader]:
        """Run one read transaction. Where it fails, what was cached of the index is dropped."""
        with self._read_lock, translate_errors(self.path):
            self._reader.execute("BEGIN")
            try:
                check_version(self._reader, path=self.path)
                self._rows.load_scopes()
                yield self._rows
            except BaseException:
                self._index = None
                self._rows.scopes.clear()
                raise
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("COMMIT")

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        """Read messages that the reader may see, oldest first."""
        with self._reading() as rows:
            return rows.read("message", select)

    def read_passages(self, select: Select, /) -> list[PassageText]:
        """Read passages that the reader may see, oldest first."""
        with self._reading() as rows:
            return rows.read("passage", select)

    def read_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> list[FactRow]:
        """Read versions of facts that the reader may see, oldest first."""
        with self._reading() as rows:
            return rows.read("fact", select, keys=keys)

    def read_records(
        self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Record]:
        """Read records that the reader may see, oldest first."""
        with self._reading() as rows:
            return rows.read("record", select, name=kind, keys=keys)

    def read_jobs(self, select: Select, /, *, kind: str | None = None) -> list[Job]:
        """Read jobs that the reader may see, oldest first."""
        with self._reading() as rows:
            return rows.read("job", select, name=kind)

    def find(self, scope: Scope, digests: Sequence[str], /) -> dict[str, dict[str, int]]:
        """Return, for each digest that is known in a session, the numbers of its messages by nonce."""
        query = "SELECT nonce, id FROM messages WHERE scope = :scope AND digest = :digest"
        if not self.readonly:  # an older file that cannot be written has no nonces of what was forgotten
            query += " UNION ALL SELECT nonce, 0 FROM forgotten WHERE scope = :scope AND words = :digest ORDER BY id"
        owner = (scope.tenant, scope.project, scope.agent, scope.session)
        found: dict[str, dict[str, int]] = {}
        with self._reading():
            known = self._reader.execute(SCOPE_ID, owner).fetchone()
            for digest in set(digests) if known else ():
                values = {"scope": known[0], "digest": bytes.fromhex(digest)}
                rows = self._reader.execute(query, values).fetchall()
                if rows:
                    found[digest] = {bytes_text(nonce): number for nonce, number in rows}
        return found

    def search(self, query: SearchQuery, /) -> Candidates:
        """Find the passages that are most promising by words and by vector, and those beside them."""
        from holdfast.store.sqlite_index import Index  # noqa: PLC0415 - see above

        with self._reading() as rows:
            try:
                self._index = self._index or Index(self._reader)
                return self._index.search(query, scopes=len(rows.scopes))
            except DAMAGE as error:
                raise StorageError(
                    "the index is damaged. Run `holdfast reindex`: no message is lost.", path=self.path
                ) from error

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet, oldest first."""
        from holdfast.store import index_tables  # noqa: PLC0415 - see above

        with self._reading() as rows:
            number = index_tables.space_number(self._reader, space, create=False)
            return rows.passages_of_all(index_tables.passages_without_vectors(self._reader, number, limit=limit))

    def waiting(self, kind: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope, oldest first."""
        with self._reading() as rows:
            return rows.jobs_of_all(kind, limit=limit)

    def embedded(self, space: Space) -> int:
        """Count the passages that have vectors in this space."""
        from holdfast.store import index_tables  # noqa: PLC0415 - see above

        with self._reading():
            number = index_tables.space_number(self._reader, space, create=False)
            return index_tables.count_embedded(self._reader, number)

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""
        with self._reading() as rows:
            counts = self._reader.execute("SELECT scope, count(*) FROM messages GROUP BY scope ORDER BY max(id) DESC")
            return {rows.scopes[scope]: count for scope, count in counts}

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""
        with self._reading() as rows:
            numbers = self._reader.execute("SELECT scope FROM messages UNION SELECT scope FROM facts")
            return sorted(rows.scopes[scope] for (scope,) in numbers)

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions, facts and bytes."""
        with self._reading():
            found = {name: self._reader.execute(query).fetchone()[0] for name, query in COUNTS.items()}
            pages, size = (self._reader.execute(f"PRAGMA page_{name}").fetchone()[0] for name in ("count", "size"))
            return found | {"bytes": pages * size}

    # --- forgetting ------------------------------------------------------------

    def remove_messages(self, select: Select, /) -> int:
        """Forget messages for good, with passages and vectors: from tables, index and log."""
        return self._remove("message", *where("message", select))

    def remove_facts(self, select: Select, /, *, keys: Sequence[str] | None = None) -> int:
        """Forget facts for good, from tables and log."""
        return self._remove("fact", *where("fact", select, keys=keys))

    def remove_records(self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None) -> int:
        """Delete records."""
        return self._remove("record", *where("record", select, name=kind, keys=keys))

    def remove_jobs(self, select: Select, /) -> int:
        """Delete jobs."""
        return self._remove("job", *where("job", select))

    def _remove(self, kind: Kind, condition: str, values: Sequence[object]) -> int:
        from holdfast.store import forgetting  # noqa: PLC0415 - see above

        with self._write_lock:
            with self.transaction():
                count = forgetting.remove(self._writer, kind, condition, values)
            if count and kind in {"message", "fact"}:
                self._rows.gaps = {}  # those that are left are met again
                with translate_errors(self.path):
                    forgetting.delete_damaged_copies(self.path)
                    forgetting.scrub(self._writer, path=self.path)
        return count
