"""The store on a PostgreSQL server, for any number of processes on any number of machines.

Writers of one tenant take turns, as those of a SQLite file do; tenants do not wait for each other. A write is durable
when it returns. A call whose connection is lost is repeated where that is safe.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import numpy as np
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolTimeout

from holdfast.embed.base import Space
from holdfast.errors import StorageError, UnavailableError
from holdfast.index.database import Database
from holdfast.index.vectors import MANY
from holdfast.store import forgetting
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
    column_types,
    create_tenant,
    migrate,
    translate_errors,
)
from holdfast.store.postgres_vectors import MAX_SIGNS, index_vectors
from holdfast.store.rows import RowReader, add_jobs, where
from holdfast.store.tables import R, TableStore
from holdfast.store.upkeep import Health, Progress, check_index, reindex_tables, unreadable

T = TypeVar("T")

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # errors are raised, not printed

MAX_TENANTS: Final = 64
"""Tenants whose index a process keeps in memory."""
_PAUSE: Final = 0.05
_POLL: Final = 1.0
_QUICK: Final = 0.2
"""Seconds to wait for a connection to a server that did not answer the last time."""
_LEASE: Final = timedelta(minutes=10)
"""How long a job is left to the process that took it."""
_COUNTS: Final = {
    "messages": "SELECT count(*) FROM messages",
    "passages": "SELECT count(*) FROM passages WHERE alive = 1",
    "sessions": "SELECT count(*) FROM (SELECT DISTINCT tenant, scope FROM messages)",
    "facts": "SELECT count(*) FROM (SELECT DISTINCT tenant, scope, id FROM facts)",
    "bytes": "SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint FROM pg_class"
    " WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r'",
}


class _Tenant:
    """What a process has read of a tenant."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.rows: RowReader | None = None
        self.lock = threading.Lock()


class PostgresStore(TableStore):
    """A store in one schema of a database, `postgresql://user:password@host:port/database`.

    The schema is created if it does not exist, its tables in so many `partitions` by tenant. `connections` are the most
    of this process. A statement may take `timeout` seconds; `wait` are the seconds to wait for a connection, or to
    repeat a call whose connection was lost. The vectors of a tenant with more than `max_loaded_windows` stay on the
    server, but for their signs; with more than `max_loaded_signs` the signs stay there too, and an index proposes
    windows.
    """

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
        self.path = home
        self._address, self._place = address, hide_password(address)
        self._timeout, self._wait, self._max_signs = timeout, wait, max_loaded_signs
        self._limits = {"max_loaded_windows": max_loaded_windows, "max_loaded_signs": max_loaded_signs}
        self._local = threading.local()
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._numbers: dict[str, int] = {}
        self._gaps: dict[Gap, None] = {}
        self._id, self._schema = uuid4().hex, schema
        self._vectors_indexed, self._is_down = 20_000, False
        self._closed = threading.Event()
        self._listener: threading.Thread | None = None
        options = {"autocommit": True, "application_name": "holdfast", "connect_timeout": max(2, round(wait))}
        with translate_errors(self._place), psycopg.connect(address, **options) as connection:  # type: ignore[arg-type]
            migrate(connection, schema=schema, partitions=partitions, place=self._place)
            self._types = column_types(connection, schema)
            self._role = ROLE if can_bypass(connection) else "none"
            query = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector'"
            (vectors,) = connection.execute(query).fetchone() or ("public",)
            self._search_path = f"{schema}, {vectors}"
        self._pool: ConnectionPool[Connection] = ConnectionPool(
            address,
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
            self._listener.join(2 * _POLL)
        self._pool.close()

    # --- transactions -------------------------------------------------------------

    @contextmanager
    def _connect(self) -> Iterator[Connection]:
        connection, was_down = None, self._is_down
        deadline = time.monotonic() + (_QUICK if was_down else self._wait)
        while connection is None:
            try:  # every call makes a pool that has lost its connections try again
                connection = self._pool.getconn(min(_POLL, max(_QUICK, deadline - time.monotonic())))
            except PoolTimeout:
                if time.monotonic() >= deadline:
                    self._check_server()  # its error says why
                    if not was_down:
                        raise
                    was_down, deadline = False, time.monotonic() + self._wait
        self._is_down = False
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    def _check_server(self) -> None:
        self._is_down = True
        psycopg.connect(self._address, connect_timeout=2).close()
        self._is_down = False

    @contextmanager
    def _reading(self, tenant: int, name: str) -> Iterator[PostgresDatabase]:
        """Run a read transaction; statements are sent together until the rows of one are read."""
        with translate_errors(self.place), self._connect() as connection:
            db = PostgresDatabase(connection, tenant=tenant, name=name, types=self._types, **self._limits)
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
        if getattr(self._local, "db", None) is not None:  # a part of the one that this thread has begun
            yield
            return
        with translate_errors(self.place), self._connect() as connection:
            db = PostgresDatabase(connection, tenant=ALL_TENANTS, name="", types=self._types)
            self._local.db, self._local.lock = db, None
            transaction = ""
            try:
                with connection.pipeline():
                    db.begin(self._role, self._search_path, self._timeout, is_read=False)
                    yield
                    if self._local.lock is not None:
                        (transaction,) = self._local.lock.fetchone() or ("",)
                    connection.execute("COMMIT")
            except psycopg.OperationalError:
                self._local.db = None
                # Without an answer to the commit, the server is asked.
                if not transaction or not self._retry(lambda: self._has_committed(transaction)):
                    _roll_back(connection)
                    raise
            except BaseException:
                _roll_back(connection)
                raise
            finally:
                self._local.db = None

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
                time.sleep(_PAUSE)
            return False

    def _retry(self, work: Callable[[], T]) -> T:
        """Repeat work whose connection was lost before anything was committed.

        Once no connection was found, later calls are tried once, until one is: a turn makes many calls.
        """
        deadline, pause = time.monotonic() + (0 if self._is_down else self._wait), _PAUSE
        while True:
            try:
                return work()
            except UnavailableError as error:
                is_part = getattr(self._local, "db", None) is not None
                if not error.can_retry or is_part or time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause *= 2
            with suppress(psycopg.Error):
                self._pool.check()

    # --- tenants ------------------------------------------------------------------

    def _number(self, name: str, *, create: bool = False) -> int:
        """Return the number of a tenant; `NO_TENANT` where it has no rows yet."""
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

    def _write_as(self, name: str, number: int | None = None) -> Database:
        """Let the transaction of this thread write rows of a tenant; other writers of that tenant wait for it."""
        db: PostgresDatabase = self._local.db
        tenant = self._number(name, create=True) if number is None else number
        if db.tenant != tenant:
            db.use(tenant, name)
            self._local.lock = db.lock()
        return db

    # --- what every store with tables does ------------------------------------------

    def read_rows(self, tenant: str, work: Callable[[RowReader], T]) -> T:
        """Read rows of a tenant, as of one moment."""
        return self._retry(lambda: self._read_once(tenant, work))

    def _read_once(self, name: str, work: Callable[[RowReader], T]) -> T:
        number = self._number(name)
        with self._lock:
            tenant = self._tenants.get(name) or _Tenant(number)
            if number != NO_TENANT:
                self._tenants[name] = tenant
                self._tenants.move_to_end(name)
            while len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
        with tenant.lock, self._reading(tenant.number, name) as db:
            rows = tenant.rows = tenant.rows or RowReader(db)
            rows.db = db
            try:
                return work(rows)
            except BaseException:
                rows.clear()
                raise
            finally:
                self._gaps.update(rows.gaps)

    def _add(self, rows: Sequence[R], add: Callable[[Database, Sequence[R]], list[int]]) -> list[int]:
        def work() -> list[int]:
            numbers: dict[int, int] = {}
            with self.transaction():
                for tenant in sorted({row.scope.tenant for row in rows}):
                    mine = {place: row for place, row in enumerate(rows) if row.scope.tenant == tenant}
                    numbers.update(zip(mine, add(self._write_as(tenant), list(mine.values())), strict=True))
            return [numbers[place] for place in range(len(rows))]

        return self._retry(work)

    def change_rows(self, tenant: str, work: Callable[[Database], T]) -> T:
        """Change rows of a tenant in one transaction; other writers of that tenant wait for it."""

        def once() -> T:
            with self.transaction():
                return work(self._write_as(tenant))

        return self._retry(once)

    def _remove(self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None) -> int:
        def work(db: Database) -> int:
            condition, values = where(db, kind, select, name=name, keys=keys)
            count = forgetting.remove(db, kind, condition, values)
            if count and kind == "message":
                self._notify(db, "rewritten")
            return count

        if getattr(self._local, "db", None) is not None:
            raise StorageError("nothing can be removed in a transaction", path=self.place)
        count = self.change_rows(select.scope.tenant, work)
        if count and kind in {"message", "fact"}:
            self._gaps.clear()
        return count

    def add_vectors(self, rows: Sequence[VectorRow], /) -> int:
        """Store the vectors of passages."""

        def work() -> int:
            count = 0
            with self.transaction():
                for tenant in sorted({row.passage // PASSAGES_PER_TENANT for row in rows}):
                    mine = [row for row in rows if row.passage // PASSAGES_PER_TENANT == tenant]
                    db = self._write_as("", tenant)
                    assert isinstance(db, PostgresDatabase)
                    count += db.add_vectors(mine)
            return count

        return self._retry(work)

    def _read_all(self, query: str, *values: object) -> list[tuple[object, ...]]:
        def work() -> list[tuple[object, ...]]:
            with self._reading(ALL_TENANTS, "") as db:
                return db.execute(query, values).fetchall()

        return self._retry(work)

    # --- upkeep -------------------------------------------------------------------

    def reindex(self, *, progress: Progress | None = None) -> int:
        """Rebuild the index of every tenant, one after the other; return the number of passages."""
        work = partial(reindex_tables, place=self.place, progress=progress)
        count = sum(self.change_rows(name, work) for name in self.tenants())
        self.index_vectors()
        return count

    def index_vectors(self) -> list[str]:
        """Make the missing indexes of vectors; return their names. Needs the owner of the tables."""
        with translate_errors(self.place), psycopg.connect(self._address, autocommit=True) as connection:
            return index_vectors(connection, self._schema, windows=self._max_signs)

    def check(self) -> Health:
        """Check every row, and whether the index of each tenant matches its rows."""
        damage: list[str] = []
        index: list[str] = []
        for name in self.tenants():
            self.read_rows(name, lambda rows: damage.extend(f"tenant {name}: {what}" for what in unreadable(rows.db)))  # noqa: B023 - called at once
            self.read_rows(name, lambda rows: index.extend(f"tenant {name}: {what}" for what in check_index(rows.db)))  # noqa: B023 - called at once
        counts = {name: count for name, count in self.counts().items() if name != "bytes"}
        unscrubbed = self._read_all("SELECT count(*) FROM counters WHERE name = 'unscrubbed' AND value = 1")
        note = "forgotten text may still be in free pages: run `holdfast vacuum`"
        notes = (note,) if unscrubbed != [(0,)] else ()
        return Health(path=self.place, counts=counts, damage=tuple(damage), index=tuple(index), notes=notes)

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
        skipped = [said for level, said in notices if level == "WARNING"]
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
            self._local.db.execute("UPDATE counters SET value = 0 WHERE name = 'unscrubbed'")

    # --- of all scopes ----------------------------------------------------------------

    def tenants(self) -> list[str]:
        """List the tenants."""
        return self._names("SELECT 1")

    def waiting(self, kind: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope, tenant by tenant, oldest first."""

        def work(rows: RowReader) -> list[Job]:
            return _loaded(rows).jobs_of_all(kind, limit=limit - len(found))

        found: list[Job] = []
        for name in self._names(_HAS_JOBS, kind):
            if len(found) < limit:
                found += self.read_rows(name, work)
        return found

    def take_job(self, kind: str) -> Job | None:
        """Take the oldest job of a kind and any scope that no other process has taken lately."""
        claim = (
            "UPDATE jobs SET claimed = now() + ?, claimer = ? WHERE {own}id = (SELECT id FROM jobs"
            " WHERE {own}kind = ? AND (claimed < now() OR claimer = ?) ORDER BY id LIMIT 1"
            " FOR UPDATE SKIP LOCKED) RETURNING id"
        )
        values = (_LEASE, self._id, kind, self._id)
        for name in self._names(_HAS_JOBS, kind):
            if taken := self.change_rows(name, lambda db: db.execute(claim.format(own=db.own), values).fetchone()):
                select = Select(scope=Scope(tenant=name), across=("project", "agent", "session"), ids=(taken[0],))
                return next(iter(self.read_jobs(select)), None)
        return None

    @contextmanager
    def lock_work(self, space: Space | None) -> Iterator[bool]:
        """Let this process alone work for one tenant; yield whether there is one whose work no other process does."""
        condition, key = "SELECT 1 FROM jobs WHERE jobs.tenant = tenants.tenant", tuple[object, ...]()
        if space is not None:
            condition, key = f"{condition} UNION ALL {_LACKS_VECTORS}", (space.name, space.dimension, space.digest)
        names = self._names(condition, *key)
        with translate_errors(self.place), self._connect() as connection:
            for name in names:
                lock = (self._schema, f"{self._schema} {name}")
                query = "SELECT pg_{}(hashtext(%s), hashtext(%s))"
                if (connection.execute(query.format("try_advisory_lock").encode(), lock).fetchone() or (False,))[0]:
                    self._local.only = name
                    try:
                        yield True
                    finally:
                        self._local.only = None
                        with suppress(psycopg.Error):  # a lost connection has released it
                            connection.execute(query.format("advisory_unlock").encode(), lock)
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
                    for found in connection.notifies(timeout=_POLL, stop_after=1):
                        what, _, name = found.payload.partition(" ")
                        if what == "rewritten":
                            with self._lock:
                                self._tenants.pop(name, None)
                        notify()
            self._closed.wait(_PAUSE)

    def add_jobs(self, rows: Sequence[Job], /) -> list[int]:
        """Store jobs, and wake the processes that listen."""

        def add(db: Database, mine: Sequence[Job]) -> list[int]:
            numbers = add_jobs(db, mine)
            self._notify(db, "work")
            return numbers

        return self._add(rows, add)

    def _notify(self, db: Database, what: str) -> None:
        db.execute("SELECT pg_notify(?, ?)", (self._schema, f"{what} {db.fixed['tenant']}"))

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Read passages of any scope that have no vectors in this space yet, tenant by tenant, oldest first."""

        def work(rows: RowReader) -> list[PassageText]:
            db = rows.db
            assert isinstance(db, PostgresDatabase)
            return _loaded(rows).passages_of_all(db.passages_without_vectors(space, limit=limit - len(found)))

        found: list[PassageText] = []
        for name in self._names(_LACKS_VECTORS, space.name, space.dimension, space.digest):
            if len(found) < limit:
                found += self.read_rows(name, work)
        if not found and (size := self.counts()["passages"]) > self._vectors_indexed:
            self._vectors_indexed = 2 * size  # all are embedded: look again when there are twice as many
            with suppress(StorageError):  # a login that does not own the tables: `holdfast reindex` says so
                self.index_vectors()
        return found

    def _names(self, condition: str, *values: object) -> list[str]:
        """Return the names of the tenants with rows of some kind."""
        rows = self._read_all(f"SELECT name FROM tenants WHERE EXISTS ({condition}) ORDER BY tenant", *values)
        only = getattr(self._local, "only", None)
        return [str(name) for (name,) in rows if only in {None, name}]

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


def _loaded(rows: RowReader) -> RowReader:
    rows.scopes.load(rows.db)
    return rows


def _roll_back(connection: Connection) -> None:
    """End a failed transaction; a connection that is lost has ended it already."""
    with suppress(psycopg.Error):
        connection.execute("ROLLBACK")


def hide_password(address: str) -> str:
    """Return an address as messages name it; refuse what is not one."""
    try:
        parts = conninfo_to_dict(address)
    except psycopg.Error as error:
        raise StorageError(f"this is not an address: {error}", path="postgresql://…") from error
    port = f":{parts['port']}" if parts.get("port") else ""
    return f"postgresql://{parts.get('host', 'localhost')}{port}/{parts.get('dbname', '')}"
