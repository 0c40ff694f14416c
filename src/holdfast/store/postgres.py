"""The store on a PostgreSQL server, for any number of processes on any number of machines.

Writers of one tenant take turns, as those of a SQLite file do; tenants do not wait for each other. A write is durable
when it returns. A call whose connection is lost is repeated if that is safe.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

import numpy as np
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool, PoolTimeout

from holdfast.cache import LruCache
from holdfast.embed.base import Space
from holdfast.errors import StorageError, UnavailableError
from holdfast.index.check import check_index
from holdfast.index.database import Database, Rows
from holdfast.index.vectors import MANY
from holdfast.store import adding, forgetting, rows
from holdfast.store.base import Gap, Job, Kind, PassageText, Scope, Select, VectorRow
from holdfast.store.postgres_database import (
    ALL_TENANTS,
    NO_TENANT,
    PASSAGES_PER_TENANT,
    ROLE,
    ArrayDumper,
    Connection,
    PostgresDatabase,
    can_bypass,
    check_version,
    column_types,
    create_tenant,
    describe_error,
    find_pgvector,
    migrate,
    translate_errors,
)
from holdfast.store.postgres_vectors import MAX_SIGNS, index_vectors
from holdfast.store.rows import TableCache, Tables
from holdfast.store.tables import R, TableStore
from holdfast.store.upkeep import Extract, Health, Progress, list_unreadable, reindex_tables
from holdfast.text import plural

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("holdfast.store")
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # errors are raised, not printed

MAX_TENANTS: Final = 64
"""Tenants whose index a process keeps in memory."""
_PAUSE_SECONDS: Final = 0.05
"""Before a call is repeated; it doubles each time."""
_POLL_SECONDS: Final = 1.0
_SHORT_WAIT_SECONDS: Final = 0.2
"""How long to wait for a connection to a server that did not answer the last time."""
_FIRST_VECTOR_INDEX: Final = 20_000
"""From this number of passages on, a process that has embedded all of them looks whether an index of vectors is due."""
_COUNTS: Final = {
    "messages": "SELECT count(*) FROM messages",
    "passages": "SELECT count(*) FROM passages WHERE alive = 1",
    "sessions": "SELECT count(*) FROM (SELECT DISTINCT tenant, scope FROM messages) AS found",
    "facts": "SELECT count(*) FROM (SELECT DISTINCT tenant, scope, id FROM facts) AS found",
    "bytes": "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
    " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'",
}


@dataclass(slots=True)
class _Tenant:
    """A tenant that this process has read: its number, and a cache of its tables, which the lock guards."""

    number: int
    cache: TableCache = field(default_factory=TableCache)
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Thread(threading.local):
    """The state of one thread.

    Attributes:
        db: The database of the write transaction that the thread is in, if any.
        lock: The answer to the statement that locked the tenant: the number of the transaction.
        tenant: Inside `lock_work`, the one tenant whose work is found.
    """

    db: PostgresDatabase | None = None
    lock: Rows | None = None
    tenant: str | None = None


class PostgresStore(TableStore):
    """A store in one schema of a database, `postgresql://user:password@host:port/database`."""

    readonly = False

    def __init__(
        self,
        address: str,
        *,
        home: Path,
        schema: str = "holdfast",
        partitions: int = 8,
        connections: int = 8,
        timeout: float = 60.0,
        wait: float = 5.0,
        max_loaded_windows: int = MANY,
        max_loaded_signs: int = MAX_SIGNS,
    ) -> None:
        """Connect to a server.

        Args:
            address: The address of the database.
            home: The folder of local files.
            schema: The schema of the tables. It is created if it does not exist.
            partitions: The number of partitions by tenant, if the tables are created.
            connections: The maximum number of connections of this process.
            timeout: The seconds that a statement may take; 0 for any time.
            wait: The seconds to wait for a connection, or to repeat a call whose connection was lost.
            max_loaded_windows: From this number of windows on, the vectors of a tenant stay on the server. Only their
                signs are loaded.
            max_loaded_signs: From this number of windows on, the signs stay there too, and an index proposes windows,
                if the database has pgvector.
        """
        self.path = home
        self._place = hide_password(address)
        # The cluster of a system without a locale has no encoding, and would answer in bytes.
        self._address = make_conninfo(address, client_encoding="utf8")
        self._schema = schema
        self._timeout = timeout
        self._wait = wait
        self._max_loaded_windows = max_loaded_windows
        self._max_loaded_signs = max_loaded_signs
        self._local = _Thread()
        self._lock = threading.Lock()
        self._tenants: LruCache[str, _Tenant] = LruCache(MAX_TENANTS)
        self._numbers: dict[str, int] = {}
        self._gaps: dict[Gap, None] = {}
        self._next_vector_index = _FIRST_VECTOR_INDEX
        self._is_down = False
        self._failed_calls = 0
        self._down_since = 0.0
        self._closed = threading.Event()
        self._listener: threading.Thread | None = None
        options = {"autocommit": True, "application_name": "holdfast", "connect_timeout": max(2, round(wait))}
        with translate_errors(self._place), psycopg.connect(self._address, **options) as connection:  # type: ignore[arg-type]
            check_version(connection, self._place)
            migrate(connection, schema=schema, partitions=partitions, place=self._place)
            self._types = column_types(connection, schema)
            self._role = ROLE if can_bypass(connection) else "none"
            pgvector = find_pgvector(connection)
        self._has_pgvector = pgvector is not None
        self._search_path = f"{schema}, {pgvector}" if self._has_pgvector else schema
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            self._address,
            min_size=1,
            max_size=max(2, connections),
            timeout=wait,
            reconnect_timeout=0,  # else a pool waits ever longer before it looks for the server again
            kwargs=options,
            configure=lambda connection: connection.adapters.register_dumper(np.ndarray, ArrayDumper),
            open=True,
            name="holdfast",
        )

    @property
    def place(self) -> str:
        """The address without its password."""
        return self._place

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The damaged rows that reads have left out so far."""
        return tuple(self._gaps)

    def close(self) -> None:
        """Close all connections."""
        self._closed.set()
        if self._listener is not None:
            self._listener.join(2 * _POLL_SECONDS)
        self._pool.close()

    # --- connections --------------------------------------------------------------

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        """Take a connection of the pool.

        A server that did not answer the last time gets little time to answer now: a turn makes many calls, and each
        would wait. If it does answer, the usual time begins.
        """
        has_short_wait = self._is_down
        deadline = time.monotonic() + (_SHORT_WAIT_SECONDS if has_short_wait else self._wait)
        connection = None
        while connection is None:
            remaining = deadline - time.monotonic()
            try:  # every call makes a pool that has lost its connections try again
                connection = self._pool.getconn(min(_POLL_SECONDS, max(_SHORT_WAIT_SECONDS, remaining)))
            except PoolTimeout:
                if time.monotonic() < deadline:
                    continue
                self._check_server()  # its error has the reason
                if not has_short_wait:
                    raise  # the server is there, but all connections of this process are in use
                has_short_wait = False
                deadline = time.monotonic() + self._wait
        self._is_down = False
        self._log_answer()
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    def _check_server(self) -> None:
        self._is_down = True
        try:
            psycopg.connect(self._address, connect_timeout=2).close()
        except psycopg.Error as error:
            self._log_failure(error)
            raise
        self._is_down = False

    def _log_failure(self, error: psycopg.Error) -> None:
        """Log that the server does not answer, once until it answers again: every turn makes many calls."""
        with self._lock:
            self._failed_calls += 1
            is_first = self._failed_calls == 1
            if is_first:
                self._down_since = time.monotonic()
        if is_first:
            log.warning("%s does not answer: %s", self.place, describe_error(error))

    def _log_answer(self) -> None:
        """Log that the server answers again, if it did not before."""
        if not self._failed_calls:
            return
        with self._lock:
            failed = self._failed_calls
            self._failed_calls = 0
            seconds = time.monotonic() - self._down_since
        if failed:
            log.warning(
                "%s answers again after %.0f s, in which %s failed", self.place, seconds, plural(failed, "call")
            )

    def _retry(self, work: Callable[[], T]) -> T:
        """Repeat work whose connection was lost before anything was committed.

        Once no connection was found, later calls are tried once, until one is: a turn makes many calls.
        """
        deadline = time.monotonic() + (0 if self._is_down else self._wait)
        pause = _PAUSE_SECONDS
        while True:
            try:
                return work()
            except UnavailableError as error:
                is_part = self._local.db is not None  # only the whole transaction can be repeated
                if not error.can_retry or is_part or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause *= 2
            with suppress(psycopg.Error):
                self._pool.check()

    # --- transactions -------------------------------------------------------------

    @contextmanager
    def _reading(self, tenant: int, name: str, cache: TableCache | None = None) -> Iterator[PostgresDatabase]:
        """Run a read transaction; statements are sent together until the rows of one are read."""
        with translate_errors(self.place), self._connect() as connection:
            db = PostgresDatabase(
                connection,
                tenant=tenant,
                name=name,
                types=self._types,
                cache=cache,
                max_loaded_windows=self._max_loaded_windows,
                max_loaded_signs=self._max_loaded_signs if self._has_pgvector else sys.maxsize,
            )
            try:
                with connection.pipeline():
                    db.begin(self._role, self._search_path, self._timeout, is_read=True)
                    yield db
                    connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make the writes of a block one: all or none, durable when the block ends."""
        if self._local.db is not None:  # a part of the one that this thread has begun
            yield
            return
        with translate_errors(self.place), self._connect() as connection:
            db = PostgresDatabase(connection, tenant=ALL_TENANTS, name="", types=self._types)
            self._local.db = db
            self._local.lock = None
            transaction = ""
            try:
                with connection.pipeline():
                    db.begin(self._role, self._search_path, self._timeout, is_read=False)
                    yield
                    transaction = self._transaction_number()
                    connection.execute("COMMIT")
            except psycopg.OperationalError:
                self._local.db = None  # so that `_retry` repeats the question below
                # Without an answer to the commit, the server is asked whether it was done.
                if not transaction or not self._retry(lambda: self._has_committed(transaction)):
                    _roll_back(connection)
                    raise
            except psycopg.errors.ReadOnlySqlTransaction:
                connection.close()  # after a failover a new one may find the primary; this one never writes
                raise
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                self._local.db = None

    def _transaction_number(self) -> str:
        """Return the number of this thread's transaction; empty if it has locked no tenant, and so written nothing."""
        if self._local.lock is None:
            return ""
        (number,) = self._local.lock.fetchone() or ("",)
        return str(number)

    def _has_committed(self, transaction: str) -> bool:
        with translate_errors(self.place), psycopg.connect(self._address, autocommit=True) as connection:
            deadline = time.monotonic() + self._wait
            while time.monotonic() < deadline:
                try:
                    query = "SELECT pg_xact_status(%s::text::xid8)"
                    (status,) = connection.execute(query, (transaction,)).fetchone() or ("",)
                except psycopg.DataError:  # a server that has never seen it, after a failover
                    return False
                if status != "in progress":
                    return bool(status == "committed")
                time.sleep(_PAUSE_SECONDS)
            return False

    def read(self, tenant: str, work: Callable[Concatenate[Tables, P], T], /, *args: P.args, **values: P.kwargs) -> T:
        """Call a function with the tables of a tenant, as of one moment."""

        def read_once() -> T:
            known = self._find_tenant(tenant)
            with known.lock, self._reading(known.number, tenant, known.cache) as db:
                try:
                    return work(db, *args, **values)
                except BaseException:
                    known.cache.clear()
                    raise
                finally:
                    self._gaps.update(known.cache.gaps)

        return self._retry(read_once)

    def write(self, tenant: str, work: Callable[Concatenate[Tables, P], T], /, *args: P.args, **values: P.kwargs) -> T:
        """Call a function that changes the tables of a tenant; other writers of that tenant wait for it."""

        def write_once() -> T:
            with self.transaction():
                return work(self._write_as(tenant), *args, **values)

        return self._retry(write_once)

    def _read_all(self, query: str, *values: object) -> list[tuple[object, ...]]:
        """Run a query over the rows of all tenants."""

        def read_once() -> list[tuple[object, ...]]:
            with self._reading(ALL_TENANTS, "") as db:
                return db.execute(query, values).fetchall()

        return self._retry(read_once)

    # --- tenants ------------------------------------------------------------------

    def _number(self, name: str, *, create: bool = False) -> int:
        """Return the number of a tenant; `NO_TENANT` if it has no rows yet."""
        if name in self._numbers:
            return self._numbers[name]
        with self._reading(ALL_TENANTS, "") as db:
            known = db.execute("SELECT tenant FROM tenants WHERE name = ?", (name,)).fetchone()
        if known:
            return self._numbers.setdefault(name, int(known[0]))
        if not create:
            return NO_TENANT
        with translate_errors(self.place), self._connect() as connection, connection.transaction():
            db = PostgresDatabase(connection, tenant=ALL_TENANTS, name="", types=self._types)
            connection.execute("SELECT set_config('search_path', %s, true)", (self._search_path,))
            connection.execute("SELECT set_config('role', %s, true)", (self._role,))
            connection.execute("SELECT set_config('holdfast.tenant', '-1', true)")
            return create_tenant(db, name)

    def _find_tenant(self, name: str) -> _Tenant:
        """Return what is kept of a tenant; nothing is kept of one that has no rows yet."""
        number = self._number(name)
        with self._lock:
            tenant = self._tenants.get(name)
            if tenant is None:
                tenant = _Tenant(number)
                if number != NO_TENANT:
                    self._tenants[name] = tenant
            return tenant

    def _write_as(self, name: str, number: int | None = None) -> PostgresDatabase:
        """Let the transaction of this thread write rows of a tenant; other writers of that tenant wait for it."""
        db = self._local.db
        assert db is not None
        if number is None:
            number = self._number(name, create=True)
        if db.tenant != number:
            db.use(number, name)
            self._local.lock = db.lock()
        return db

    # --- writing ------------------------------------------------------------------

    def _add(self, new: Sequence[R], add: Callable[[Database, Sequence[R]], list[int]]) -> list[int]:
        def add_once() -> list[int]:
            numbers = [0] * len(new)
            with self.transaction():
                for tenant in sorted({row.scope.tenant for row in new}):
                    places = [place for place, row in enumerate(new) if row.scope.tenant == tenant]
                    added = add(self._write_as(tenant), [new[place] for place in places])
                    for place, number in zip(places, added, strict=True):
                        numbers[place] = number
            return numbers

        return self._retry(add_once)

    def add_jobs(self, new: Sequence[Job], /) -> list[int]:
        """Store jobs, and wake the processes that listen."""

        def add(db: Database, mine: Sequence[Job]) -> list[int]:
            numbers = adding.add_jobs(db, mine)
            self._notify(db, "work")
            return numbers

        return self._add(new, add)

    def add_vectors(self, new: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""

        def add_once() -> int:
            count = 0
            with self.transaction():
                for tenant in sorted({row.passage // PASSAGES_PER_TENANT for row in new}):
                    mine = [row for row in new if row.passage // PASSAGES_PER_TENANT == tenant]
                    count += self._write_as("", tenant).add_vectors(mine)
            return count

        return self._retry(add_once)

    def _remove(self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None) -> int:
        def remove(db: Tables) -> int:
            condition, values = rows.where(db, kind, select, name=name, keys=keys)
            count = forgetting.remove(db, kind, condition, values)
            if count and kind == "message":
                self._notify(db, "rewritten")
            return count

        if self._local.db is not None:
            raise StorageError("nothing can be removed in a transaction", path=self.place)
        count = self.write(select.scope.tenant, remove)
        if count and kind in {"message", "fact"}:
            self._gaps.clear()
        return count

    def _notify(self, db: Database, what: str) -> None:
        db.execute("SELECT pg_notify(?, ?)", (self._schema, f"{what} {db.fixed['tenant']}"))

    # --- upkeep -------------------------------------------------------------------

    def reindex(self, *, extract: Extract | None = None, progress: Progress | None = None) -> int:
        """Rebuild the index of every tenant, one after the other; return the number of passages.

        For `extract` see `reindex_tables`.
        """
        count = 0
        for tenant in self.tenants():
            count += self.write(tenant, reindex_tables, place=self.place, extract=extract, progress=progress)
        self.index_vectors()
        return count

    def index_vectors(self) -> list[str]:
        """Make the missing indexes of vectors; return their names. Needs pgvector, and the owner of the tables."""
        if not self._has_pgvector:
            return []
        with translate_errors(self.place), psycopg.connect(self._address, autocommit=True) as connection:
            return index_vectors(connection, self._search_path, windows=self._max_loaded_signs)

    def check(self, *, is_thorough: bool = True) -> Health:
        """Check every row, and whether the index of each tenant matches its rows; only counters if not thorough."""
        damage: list[str] = []
        index: list[str] = []
        for tenant in self.tenants() if is_thorough else ():
            damage += [f"tenant {tenant}: {what}" for what in self.read(tenant, list_unreadable)]
            index += [f"tenant {tenant}: {what}" for what in self.read(tenant, check_index)]
        counts = {name: count for name, count in self.counts().items() if name != "bytes"}
        unscrubbed = self._read_all("SELECT count(*) FROM counters WHERE name = 'unscrubbed' AND value = 1")
        warnings = self._list_missing_indexes()
        if unscrubbed != [(0,)]:
            warnings.append("forgotten text may still be in free pages: run `holdfast vacuum`")
        return Health(
            path=self.place, counts=counts, damage=tuple(damage), index=tuple(index), warnings=tuple(warnings)
        )

    def _list_missing_indexes(self) -> list[str]:
        """Name the tenants for which an index of vectors is due that only pgvector can make."""
        if self._has_pgvector:
            return []
        query = (
            "SELECT name, sum(windows) FROM blocks JOIN tenants ON tenants.tenant = blocks.tenant GROUP BY name"
            " HAVING sum(windows) >= ? ORDER BY name"
        )
        return [
            f"tenant {name} has {windows:,} windows of vectors, and every process that searches loads the signs of all:"
            " install pgvector 0.8 or newer on the server, run `CREATE EXTENSION vector` as a superuser, restart"
            " Holdfast, and run `holdfast reindex`"
            for name, windows in self._read_all(query, self._max_loaded_signs)
        ]

    def vacuum(self) -> tuple[int, int]:
        """Rewrite all tables without deleted rows; return their size before and after. Others wait meanwhile.

        A login that may not do it is a StorageError.
        """
        before = self.counts()["bytes"]
        notices: list[tuple[str | None, str | None]] = []
        with translate_errors(self.place), psycopg.connect(self._address, autocommit=True) as connection:
            connection.add_notice_handler(lambda one: notices.append((one.severity_nonlocalized, one.message_primary)))
            for (table,) in self._read_all(_TABLES):
                connection.execute(
                    sql.SQL("VACUUM (FULL, ANALYZE) {}").format(sql.Identifier(self._schema, str(table)))
                )
        skipped = [text for level, text in notices if level == "WARNING"]
        if skipped:  # PostgreSQL skips the tables of others with a warning
            raise StorageError(
                f"{len(skipped)} tables were not rewritten ({skipped[0]}): run `holdfast vacuum` with the address of"
                " the login that owns the tables",
                path=self.place,
            )
        self._retry(self._mark_scrubbed)
        return before, self.counts()["bytes"]

    def _mark_scrubbed(self) -> None:
        with self.transaction():
            assert self._local.db is not None
            self._local.db.execute("UPDATE counters SET value = 0 WHERE name = 'unscrubbed'")

    # --- of all scopes ----------------------------------------------------------------

    def tenants(self) -> list[str]:
        """List the tenants."""
        return self._tenants_with("SELECT 1")

    def waiting(self, kind: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope, tenant by tenant, oldest first."""
        found: list[Job] = []
        for tenant in self._tenants_with(_HAS_JOBS, kind):
            if len(found) < limit:
                found += self.read(tenant, rows.read_any_jobs, kind, limit=limit - len(found))
        return found

    @contextmanager
    def lock_work(self, space: Space | None, *, tenant: str | None = None) -> Iterator[bool]:
        """Let this process alone work for one tenant; yield whether there is one whose work no other process does."""
        if tenant is not None:
            tenants = [tenant]
        elif space is not None:
            tenants = self._tenants_with(_LACKS_VECTORS, space.name, space.dimension, space.digest)
        else:
            tenants = self._tenants_with("SELECT 1 FROM jobs WHERE jobs.tenant = tenants.tenant")
        with translate_errors(self.place), self._connect() as connection:
            for name in tenants:
                lock = (self._schema, f"{self._schema} {name}")
                query = "SELECT pg_try_advisory_lock(hashtext(%s), hashtext(%s))"
                (is_locked,) = connection.execute(query, lock).fetchone() or (False,)
                if not is_locked:
                    continue
                self._local.tenant = name
                try:
                    yield True
                finally:
                    self._local.tenant = None
                    with suppress(psycopg.Error):  # a lost connection has released it
                        connection.execute("SELECT pg_advisory_unlock(hashtext(%s), hashtext(%s))", lock)
                return
        yield False

    def listen(self, notify: Callable[[], None]) -> None:
        """Call a function whenever a process has left work; what others have rewritten is dropped from memory."""
        self._listener = threading.Thread(target=self._listen, args=(notify,), name="holdfast-listener", daemon=True)
        self._listener.start()

    def _listen(self, notify: Callable[[], None]) -> None:
        while not self._closed.is_set():
            with suppress(psycopg.Error), psycopg.connect(self._address, autocommit=True) as connection:
                connection.execute(f"LISTEN {self._schema}".encode())
                while not self._closed.is_set():
                    for found in connection.notifies(timeout=_POLL_SECONDS, stop_after=1):
                        what, _, tenant = found.payload.partition(" ")
                        if what == "rewritten":
                            with self._lock:
                                self._tenants.pop(tenant)
                        notify()
            self._closed.wait(_PAUSE_SECONDS)

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet, tenant by tenant, oldest first."""

        def read_missing(db: Tables, count: int) -> list[PassageText]:
            assert isinstance(db, PostgresDatabase)
            return rows.read_any_passages(db, db.passages_without_vectors(space, limit=count))

        found: list[PassageText] = []
        for tenant in self._tenants_with(_LACKS_VECTORS, space.name, space.dimension, space.digest):
            if len(found) < limit:
                found += self.read(tenant, read_missing, limit - len(found))
        if not found:
            self._index_vectors_if_due()
        return found

    def _index_vectors_if_due(self) -> None:
        """Make the missing indexes of vectors now that all passages are embedded; next when there are twice as many."""
        passages = self.counts()["passages"]
        if passages > self._next_vector_index:
            self._next_vector_index = 2 * passages
            with suppress(StorageError):  # a login that does not own the tables: `holdfast reindex` reports it
                self.index_vectors()

    def _tenants_with(self, condition: str, *values: object) -> list[str]:
        """Return the names of the tenants for which a subquery has rows; inside `lock_work` only of one tenant."""
        found = self._read_all(f"SELECT name FROM tenants WHERE EXISTS ({condition}) ORDER BY tenant", *values)
        names = [str(name) for (name,) in found]
        if self._local.tenant is None:
            return names
        return [name for name in names if name == self._local.tenant]

    def embedded(self, space: Space) -> int:
        """Count the passages that have vectors in this space."""
        query = (
            "SELECT count(*) FROM vectors JOIN spaces ON spaces.tenant = vectors.tenant AND spaces.id = space"
            " WHERE place = 0 AND name = ? AND dimension = ? AND digest = ?"
        )
        ((count,),) = self._read_all(query, space.name, space.dimension, space.digest)
        return int(str(count))

    def counts(self) -> dict[str, int]:
        """Count messages, passages, sessions, facts and bytes."""
        columns = ", ".join(f"({query})" for query in _COUNTS.values())
        ((*counts,),) = self._read_all(f"SELECT {columns}")
        return {name: int(str(count)) for name, count in zip(_COUNTS, counts, strict=True)}

    def sessions(self) -> dict[Scope, int]:
        """Count the messages of each session; the session with the newest message comes first."""
        rows = self._read_all(
            f"SELECT {_SCOPE}, counted FROM (SELECT tenant, scope, count(*) AS counted, max(stored) AS newest,"
            f" max(id) AS last FROM messages GROUP BY tenant, scope) AS found {_JOIN} ORDER BY newest DESC, last DESC"
        )
        return {_scope(names): int(str(count)) for *names, count in rows}

    def scopes(self) -> list[Scope]:
        """List the scopes that have messages or facts."""
        found = "(SELECT tenant, scope FROM messages UNION SELECT tenant, scope FROM facts) AS found"
        return sorted(_scope(names) for names in self._read_all(f"SELECT {_SCOPE} FROM {found} {_JOIN}"))


_TABLES: Final = "SELECT relname FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'"
_HAS_JOBS: Final = "SELECT 1 FROM jobs WHERE jobs.tenant = tenants.tenant AND kind = ?"
_SCOPE: Final = "tenants.name, project, agent, session"
_JOIN: Final = (
    "JOIN scopes ON scopes.tenant = found.tenant AND scopes.id = found.scope"
    " JOIN tenants ON tenants.tenant = found.tenant"
)
_LACKS_VECTORS: Final = (
    "SELECT 1 WHERE coalesce((SELECT value FROM counters JOIN spaces ON spaces.tenant = counters.tenant"
    " AND counters.name = 'embedded ' || id WHERE counters.tenant = tenants.tenant"
    " AND spaces.name = ? AND dimension = ? AND digest = ?), 0) <= (SELECT number FROM passages"
    " WHERE passages.tenant = tenants.tenant AND alive = 1 ORDER BY number DESC LIMIT 1)"
)


def _scope(names: Sequence[object]) -> Scope:
    tenant, project, agent, session = map(str, names)
    return Scope(tenant=tenant, project=project, agent=agent, session=session)


def _roll_back(connection: Connection) -> None:
    """End a failed transaction; a connection that is lost has ended it already."""
    with suppress(psycopg.Error):
        connection.execute("ROLLBACK")


def hide_password(address: str) -> str:
    """Return an address as messages name it; refuse what is not one."""
    try:
        parts = conninfo_to_dict(address)
    except psycopg.Error as error:
        fault = str(error).partition(': "')[0].strip()  # what follows quotes the address, and maybe the password
        raise StorageError(f"this is not an address: {fault}", path="postgresql://…") from None
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{parts.get('host', 'localhost')}{port}/{parts.get('dbname', '')}"
