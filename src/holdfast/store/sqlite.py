"""The embedded store: one SQLite file, opened by any number of processes at once.

Write-ahead logging with a full sync on every commit: what `add` returned survives a crash of the machine.
Every write is one transaction, so a store is never half of anything.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from holdfast.errors import ConflictError, InputError, StorageError
from holdfast.store import sqlite_rows
from holdfast.store.base import (
    FactRow,
    Gap,
    Job,
    MessageRow,
    PassageText,
    Record,
    Row,
    Scope,
    SearchQuery,
    SearchResult,
    Select,
    VectorRow,
)
from holdfast.store.codec import DAMAGE, bytes_text, encode_message, pack_json, text_bytes
from holdfast.store.connection import (
    connect,
    connect_readonly,
    identity,
    is_readonly,
    translate_errors,
    write_transaction,
)
from holdfast.store.schema import COUNTS, check_version, migrate

if TYPE_CHECKING:
    from holdfast.search.embed.base import Space
    from holdfast.store.index_merge import NewMessage
    from holdfast.store.sqlite_index import Index

# The index is imported where it is used: messages and facts are read without numpy.

__all__ = ["SqliteStore"]

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
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
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
        self._scopes: list[Scope] = []
        self._gaps: dict[Gap, None] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        with self._write_lock, self._read_lock:
            self._closing.close()

    # --- writing -------------------------------------------------------------

    def add(self, rows: Sequence[Row], /) -> list[int]:
        """Store rows, all or none, durable when this returns."""
        with self._write_lock, self._writing():
            numbers: list[int] = []
            for _, some in groupby(rows, type):
                new: list[NewMessage] = []
                numbers += [self._add(row, new) for row in some]
                self._index_messages(new)
            self._merge_vectors(rows)
        return numbers

    def _index_messages(self, new: Sequence[NewMessage]) -> None:
        if new:
            from holdfast.store import index_merge  # noqa: PLC0415 - see above

            index_merge.add_passages(self._writer, new)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run one write transaction; fail where the file was replaced or has tables of a newer version."""
        if self.readonly:
            raise StorageError(
                "the file or its disk is read-only: make it writable or choose another place", path=self.path
            )
        with translate_errors(self.path), write_transaction(self._writer):
            check_version(self._writer, path=self.path)
            yield
            if not self._identity.items() <= identity(self.path).items():
                raise StorageError(
                    "was deleted, moved or replaced while it was open, so nothing can be kept in it: put it back, or"
                    " start this program again",
                    path=self.path,
                )

    def _add(self, row: Row, new: list[NewMessage]) -> int:
        """Store a row. A new message is appended to `new`: passages of several messages are added together."""
        match row:
            case MessageRow(id=0):
                return self._add_message(row, new)
            case MessageRow():
                return self._set_flags(row)
            case VectorRow():
                from holdfast.store import vector_table  # noqa: PLC0415 - see above

                space = vector_table.space_number(self._writer, row.space, create=True)
                return vector_table.put(self._writer, row, space or 0)
            case FactRow():
                return self._add_fact(row)
            case Record():
                return self._put_record(row)
            case Job():
                return self._insert(
                    "INSERT INTO jobs(scope, kind, time, data) VALUES (?, ?, ?, ?)",
                    (self._scope(row.scope), row.kind, sqlite_rows.clamp_time(row.time), pack_json(row.data)),
                )

    def _insert(self, statement: str, values: tuple[object, ...]) -> int:
        return int(self._writer.execute(statement, values).lastrowid or 0)

    def _add_message(self, row: MessageRow, new: list[NewMessage]) -> int:
        scope = self._scope(row.scope)
        digest, nonce = bytes.fromhex(row.message.digest), text_bytes(row.nonce)
        # Version 0.1 kept the digest of the words alone: what was forgotten then stays out.
        if sqlite_rows.is_forgotten(self._writer, scope, sqlite_rows.message_digest(digest, nonce), digest):
            return 0
        key = (scope, digest, nonce)
        query = "SELECT id FROM messages WHERE scope = ? AND digest = ? AND nonce = ?"
        if known := self._writer.execute(query, key).fetchone():
            return int(known[0])
        number = self._insert(
            "INSERT INTO messages(scope, digest, nonce, flags, body) VALUES (?, ?, ?, ?, ?)",
            (*key, _flags(row), encode_message(row.message)),
        )
        new.append((row.message, row.passages, scope, number))
        return number

    def _set_flags(self, row: MessageRow) -> int:
        update = "UPDATE messages SET flags = ? WHERE id = ? AND scope = ?"
        changed = self._writer.execute(update, (_flags(row), row.id, self._scope(row.scope)))
        return row.id if changed.rowcount else 0

    def _add_fact(self, row: FactRow) -> int:
        scope = self._scope(row.scope)
        if sqlite_rows.is_forgotten(self._writer, scope, sqlite_rows.fact_digest(row.id)):
            return 0
        return self._insert(
            "INSERT INTO facts(scope, id, data) VALUES (?, ?, ?)",
            (scope, row.id, sqlite_rows.fact_data(row)),
        )

    def _put_record(self, row: Record) -> int:
        key = (self._scope(row.scope), row.kind, row.key)
        values = (sqlite_rows.clamp_time(row.time), pack_json(row.data))
        query = "SELECT id FROM records WHERE scope = ? AND kind = ? AND key = ?"
        if known := self._writer.execute(query, key).fetchone():
            if row.is_new:
                raise ConflictError(f"another process has recorded {row.kind} {row.key}: try again", path=self.path)
            self._writer.execute("UPDATE records SET time = ?, data = ? WHERE id = ?", (*values, *known))
            return int(known[0])
        insert = "INSERT INTO records(scope, kind, key, time, data) VALUES (?, ?, ?, ?, ?)"
        return self._insert(insert, (*key, *values))

    def _merge_vectors(self, rows: Sequence[Row]) -> None:
        touched: dict[Space, list[int]] = defaultdict(list)
        for row in rows:
            if isinstance(row, VectorRow):
                touched[row.space].append(row.passage)
        if not touched:
            return
        from holdfast.store import vector_table  # noqa: PLC0415 - see above

        for space, passages in touched.items():
            number = vector_table.space_number(self._writer, space, create=True) or 0
            vector_table.merge_blocks(self._writer, number, dimension=space.dimension, passages=passages)

    def _scope(self, scope: Scope) -> int:
        values = (scope.tenant, scope.project, scope.agent, scope.session)
        if known := self._writer.execute(SCOPE_ID, values).fetchone():
            return int(known[0])
        insert = "INSERT INTO scopes VALUES ((SELECT coalesce(max(id) + 1, 0) FROM scopes), ?, ?, ?, ?)"
        return self._insert(insert, values)

    # --- reading ---------------------------------------------------------------

    def fetch(self, select: Select, /) -> list[Any]:
        """Read rows of one kind that the reader may see, oldest first."""
        with self._reading():
            sqlite_rows.load_scopes(self._reader, self._scopes)
            return sqlite_rows.read(self._reader, select, scopes=self._scopes, gaps=self._gaps)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damaged rows that reads have left out so far."""
        return tuple(self._gaps)

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

    def match(self, query: SearchQuery, /) -> SearchResult:
        """Score every visible passage."""
        if query.vector is not None and query.space and query.vector.shape != (query.space.dimension,):
            raise InputError(f"a query in {query.space.name} is one vector of {query.space.dimension}")
        with self._reading():
            try:
                sqlite_rows.load_scopes(self._reader, self._scopes)
                return self._search_index().match(query, self._scopes)
            except DAMAGE as error:
                raise StorageError(
                    "the index is damaged. Run `holdfast reindex`: no message is lost.", path=self.path
                ) from error

    def _search_index(self) -> Index:
        if self._index is None:
            from holdfast.store.sqlite_index import Index  # noqa: PLC0415 - see above

            self._index = Index(self._reader)
        return self._index

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet, oldest first."""
        from holdfast.store import vector_table  # noqa: PLC0415 - see above

        with self._reading():
            number = vector_table.space_number(self._reader, space, create=False)
            sqlite_rows.load_scopes(self._reader, self._scopes)
            missing = vector_table.passages_without_vectors(self._reader, number, limit=limit)
            return sqlite_rows.passages(self._reader, missing, scopes=self._scopes, gaps=self._gaps)

    def waiting(self, name: str, *, limit: int) -> list[Job]:
        """Read jobs of this kind and any scope, oldest first."""
        with self._reading():
            sqlite_rows.load_scopes(self._reader, self._scopes)
            return sqlite_rows.jobs(self._reader, name, limit=limit, scopes=self._scopes, gaps=self._gaps)

    def embedded(self, space: Space) -> int:
        """Count the passages that have vectors in this space."""
        from holdfast.store import vector_table  # noqa: PLC0415 - see above

        with self._reading():
            number = vector_table.space_number(self._reader, space, create=False)
            return vector_table.count_embedded(self._reader, number)

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""
        with self._reading():
            sqlite_rows.load_scopes(self._reader, self._scopes)
            rows = self._reader.execute("SELECT scope, count(*) FROM messages GROUP BY scope ORDER BY max(id) DESC")
            return {self._scopes[scope]: count for scope, count in rows}

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""
        with self._reading():
            sqlite_rows.load_scopes(self._reader, self._scopes)
            rows = self._reader.execute("SELECT scope FROM messages UNION SELECT scope FROM facts")
            return sorted(self._scopes[scope] for (scope,) in rows)

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions, facts and bytes."""
        with self._reading():
            found = {name: self._reader.execute(query).fetchone()[0] for name, query in COUNTS.items()}
            pages, size = (self._reader.execute(f"PRAGMA page_{name}").fetchone()[0] for name in ("count", "size"))
            return found | {"bytes": pages * size}

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Run one read transaction. Where it fails, what was cached of the index is dropped."""
        with self._read_lock, translate_errors(self.path):
            self._reader.execute("BEGIN")
            try:
                check_version(self._reader, path=self.path)
                yield
            except BaseException:
                self._index = None
                self._scopes.clear()
                raise
            finally:
                if self._reader.in_transaction:
                    self._reader.execute("COMMIT")

    # --- forgetting ------------------------------------------------------------

    def remove(self, select: Select, /) -> int:
        """Forget messages and facts for good, from tables, index and log; delete records and jobs."""
        if select.kind == "passage":
            raise InputError("a passage goes with its message: remove that")
        from holdfast.store import forgetting  # noqa: PLC0415 - see above

        with self._write_lock:
            with self._writing():
                numbers = forgetting.remove(self._writer, select)
            if numbers and select.kind in {"message", "fact"}:
                self._gaps = {}  # those that are left are met again
                with translate_errors(self.path):
                    forgetting.delete_damaged_copies(self.path)
                    forgetting.scrub(self._writer, path=self.path)
        return numbers


def _flags(row: MessageRow) -> int:
    return sqlite_rows.PINNED * row.pinned | sqlite_rows.EXCLUDED * row.excluded
