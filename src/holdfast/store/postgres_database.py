"""One tenant's part of a PostgreSQL server as a `Database`; its tables, and errors with the fix in their messages.

Every statement runs in a transaction that begins with the number of the tenant: `own` compares with it, and so does the
row security of every table. All settings are local to the transaction, so a pooler may hand out connections per
transaction.
"""

from __future__ import annotations

import os
import shlex
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg_pool import PoolTimeout

from holdfast.embed.base import Space
from holdfast.errors import HoldfastError, InputError, StorageError, UnavailableError
from holdfast.index.columns import Columns
from holdfast.index.vectors import MANY, Matrix
from holdfast.search.passages import CUTTING
from holdfast.store.base import VectorRow
from holdfast.store.codec import DAMAGE
from holdfast.store.postgres_vectors import MAX_SIGNS, ServerMatrix, SignMatrix, has_vectors_after, sign_bits
from holdfast.store.rows import KEY, TableCache
from holdfast_memory.distribution import UPGRADE

Connection = psycopg.Connection[tuple[Any, ...]]

ALL_TENANTS: Final = -1
NO_TENANT: Final = -2
PASSAGES_PER_TENANT: Final = 1 << 32
"""A passage's number is that of its tenant times this, plus its place there. 2 million tenants have numbers that a
program with 53-bit integers can read."""
ROLE: Final = "holdfast_tenant"
"""The role of every transaction of a login that could bypass row security."""

_BEGIN: Final = {
    False: "BEGIN ISOLATION LEVEL READ COMMITTED",
    True: "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY",  # one state for all statements of a read
}
# Every statement has an index in its order. Before a table is analyzed, the server would rather collect the rows first.
_LOCAL: Final = "SELECT set_config('enable_bitmapscan', 'off', true), " + ", ".join(
    f"set_config('{name}', %s, true)" for name in ("role", "search_path", "statement_timeout", "holdfast.tenant")
)
_MAX_INTEGER: Final = 1 << 31
_COUNTERS: Final = ("rewritten", "unscrubbed", "messages", "facts", "records", "jobs", "vectors")


class PostgresDatabase:
    """The rows of one tenant, in one transaction over one connection; of all tenants, if `tenant` is `ALL_TENANTS`."""

    def __init__(
        self,
        connection: Connection,
        *,
        tenant: int,
        name: str,
        types: Mapping[tuple[str, str], str],
        cache: TableCache | None = None,
        max_loaded_windows: int = MANY,
        max_loaded_signs: int = MAX_SIGNS,
    ) -> None:
        self.connection = connection
        if cache is None:
            cache = TableCache()
        self.cache = cache
        self.max_loaded_windows = max_loaded_windows
        self.max_loaded_signs = max_loaded_signs
        self._types = types
        self.use(tenant, name)

    def use(self, tenant: int, name: str) -> None:
        """Set the tenant whose rows all later statements use."""
        self.tenant = tenant
        self.own = ""
        if tenant != ALL_TENANTS:
            # A constant: the server plans for one partition, once for all calls of a prepared statement.
            self.own = f"tenant = {tenant} AND "
        self._counters: psycopg.Cursor[tuple[Any, ...]] | dict[str, int] = {}
        self.fixed: Mapping[str, str] = {"tenant": name}
        self.first_passage = max(0, tenant) * PASSAGES_PER_TENANT

    def begin(self, role: str, path: str, timeout: float, *, is_read: bool) -> None:
        """Begin a transaction. Nothing is sent before the first statement whose rows are read."""
        self.connection.execute(_BEGIN[is_read])
        self.connection.execute(_LOCAL, (role, path, f"{timeout * 1000:.0f}", str(self.tenant)))

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement."""
        return self.connection.execute(_translate(statement), values, binary=True)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> None:
        """Run a statement for each row of values."""
        for row in rows:  # in a pipeline: all are sent together
            self.connection.execute(_translate(statement), row)

    def insert(self, table: str, columns: str, rows: Sequence[Sequence[object]], conflict: str = "") -> None:
        """Insert rows at once, as arrays: COPY does not work with row security."""
        if rows:
            arrays = ", ".join(f"%b::{self._types[table, column]}[]" for column in columns.split(", "))
            statement = f"INSERT INTO {table}({columns}) SELECT * FROM unnest({arrays}) {conflict}"
            self.connection.execute(statement.encode(), [list(values) for values in zip(*rows, strict=True)])

    def insert_numbered(self, table: str, columns: str, rows: Sequence[Sequence[object]]) -> list[int]:
        """Insert rows that get the next numbers of the tenant, and return the numbers."""
        numbers = self.next_numbers(table, len(rows))
        with_numbers = [(number, *row) for number, row in zip(numbers, rows, strict=True)]
        self.insert(table, f"{KEY[table.removesuffix('s')]}, {columns}", with_numbers)
        return list(numbers)

    def next_numbers(self, name: str, count: int) -> range:
        """Take the next numbers of a counter. The lock of the tenant keeps others from taking them."""
        if not count:
            return range(0)
        if not isinstance(self._counters, dict):
            self._counters = dict(self._counters.fetchall())
        first = self._counters.get(name, 0) + 1
        self._counters[name] = first + count - 1
        self.execute(f"UPDATE counters SET value = ? WHERE {self.own}name = ?", (self._counters[name], name))
        return range(first, first + count)

    def last_number(self, table: str) -> int:
        """Return the last number that was given to a row of a table; 0 before the first."""
        query = f"SELECT value FROM counters WHERE {self.own}name = ?"
        (last,) = self.execute(query, (table,)).fetchone() or (0,)
        return int(last)

    def skip_numbers(self, table: str, last: int) -> None:
        """Give new rows of a table only numbers above `last`."""
        self.execute(f"UPDATE counters SET value = greatest(value, ?) WHERE {self.own}name = ?", (last, table))

    def lock(self) -> psycopg.Cursor[tuple[Any, ...]]:
        """Let other writers of the tenant wait; select the number of the transaction. Nothing is read yet."""
        self.execute("SELECT set_config('holdfast.tenant', ?, true)", (str(self.tenant),))
        found = self.execute(f"SELECT pg_current_xact_id()::text FROM tenants WHERE {self.own}true FOR UPDATE")
        self._counters = self.execute(f"SELECT name, value FROM counters WHERE {self.own}true")
        return found

    def each(self, numbers: Sequence[int]) -> tuple[str, object]:
        """Return a table of numbers, its column named `value`, and the value of its `?`."""
        return "unnest(?::bigint[]) AS given(value)", list(numbers)

    def among(self, column: str, wanted: Sequence[int] | Sequence[str] | Sequence[bytes]) -> tuple[str, list[object]]:
        """Return the condition that a column is one of some values, and the values of its `?`."""
        values: list[Any] = list(wanted)
        if column in {"number", "passage", "run"}:  # of the column's type: only those are looked up in a hash table
            kind = "integer"
            values = [value for value in values if abs(value) < _MAX_INTEGER]
        elif values and isinstance(values[0], str):
            kind = "text"
        elif values and isinstance(values[0], bytes):
            kind = "bytea"
        else:
            kind = "bigint"
        if not values:
            return "false", []
        return f"{column} = ANY(?::{kind}[])", [values]

    # --- vectors ------------------------------------------------------------------

    def find_vectors(self, space: Space, *, after: Mapping[str, int]) -> dict[str, psycopg.Cursor[tuple[Any, ...]]]:
        """Select vectors of a space, those of each passage together."""
        query = (
            "SELECT id, passage, string_agg(data, ''::bytea ORDER BY place) FROM vectors"
            f" WHERE {self.own}space = {self._space} AND id > ? AND {has_vectors_after(self)}"
            " GROUP BY id, passage ORDER BY id"
        )
        last = after.get("vectors", 0)
        return {"vectors": self.execute(query, (*_key(space), last, last))}

    def open_vectors(self, space: Space) -> tuple[Matrix, dict[str, int]]:
        """Return a matrix without vectors: all are read."""
        return Matrix(space.dimension), {}

    def open_matrix(
        self, space: Space, columns: Columns, scopes: Sequence[int] | None, known: Matrix | None
    ) -> ServerMatrix | None:
        """Return the vectors of a space, which stay on the server; None if there are none."""
        kind: type[ServerMatrix] = ServerMatrix
        if columns.windows < self.max_loaded_signs:
            kind = SignMatrix
        if not isinstance(known, ServerMatrix) or type(known) is not kind:
            (number,) = self.execute(f"SELECT {self._space}", _key(space)).fetchone() or (None,)
            if number is None:
                return None
            known = kind(space.dimension, number)
        known.refresh(self, columns, scopes)
        return known

    def wipe_vectors(self, passages: Sequence[int]) -> None:
        """Delete the vectors of passages, in every space."""
        wanted, values = self.among("passage", passages)
        self.execute(f"DELETE FROM vectors WHERE {self.own}{wanted}", values)

    def drop_vectors(self, passages: Sequence[int]) -> None:
        """Delete the vectors of passages that were divided otherwise: they are made again."""
        if passages:
            self.wipe_vectors(passages)
            update = f"UPDATE counters SET value = least(value, ?) WHERE {self.own}starts_with(name, 'embedded ')"
            self.execute(update, (min(passages),))

    def add_vectors(self, rows: Sequence[VectorRow]) -> int:
        """Store the vectors of passages in place of earlier ones; return how many of the passages exist."""
        wanted, values = self.among("number", [row.passage - self.first_passage for row in rows])
        query = f"SELECT number, scope, length(windows) / 12 FROM passages WHERE {self.own}alive = 1 AND {wanted}"
        known = {number: (scope, windows) for number, scope, windows in self.execute(query, values)}
        spaces: dict[Space, dict[int, VectorRow]] = {}
        for row in rows:
            passage = row.passage - self.first_passage
            if passage in known:
                shape = (known[passage][1], row.space.dimension)
                if row.vectors.shape != shape or row.vectors.dtype != np.int8:
                    raise InputError(f"passage {row.passage} takes {shape[0]} vectors of {shape[1]} signed bytes")
                spaces.setdefault(row.space, {})[passage] = row
        for space, mine in spaces.items():
            number = self._space_number(space)
            numbers = self.next_numbers("vectors", len(mine))
            new: list[tuple[object, ...]] = []
            for one, (passage, row) in zip(numbers, mine.items(), strict=True):
                scope = known[passage][0]
                for place, vector in enumerate(row.vectors):
                    new.append((number, passage, place, one, scope, vector.tobytes(), sign_bits(vector)))
            self.insert(
                "vectors",
                "space, passage, place, id, scope, data, signs",
                new,
                "ON CONFLICT (tenant, space, passage, place) DO UPDATE"
                " SET id = excluded.id, data = excluded.data, signs = excluded.signs",
            )
            self._advance(number, max(mine))
        return sum(map(len, spaces.values()))

    def _space_number(self, space: Space) -> int:
        """Return the number of a space, which is created if it is new."""
        known = self.execute(f"SELECT {self._space}", _key(space)).fetchone()
        if known and known[0] is not None:
            return int(known[0])
        (number,) = self.execute(f"SELECT coalesce(max(id) + 1, 1) FROM spaces WHERE {self.own}true").fetchone() or (1,)
        self.insert("spaces", "id, name, dimension, digest", [(number, *_key(space))])
        self.insert("counters", "name, value", [(f"embedded {number}", 0)])
        return int(number)

    def _advance(self, space: int, last: int) -> None:
        """Move the mark below which all passages have vectors."""
        mark = f"(SELECT value FROM counters WHERE {self.own}name = ?)"
        missing = (
            f"SELECT number FROM passages WHERE {self.own}number >= {mark} AND number <= ? AND alive = 1"
            f" AND {self._lacks_vectors('?')} ORDER BY number LIMIT 1"
        )
        update = f"UPDATE counters SET value = greatest(value, coalesce(({missing}), ?)) WHERE {self.own}name = ?"
        name = f"embedded {space}"
        self.execute(update, (name, last, space, last + 1, name))

    def passages_without_vectors(self, space: Space, *, limit: int) -> list[int]:
        """List passages that have no vectors in a space yet, oldest first."""
        mark = f"SELECT value FROM counters WHERE {self.own}name = 'embedded ' || {self._space}"
        query = (
            f"SELECT number FROM passages WHERE {self.own}alive = 1 AND number >= coalesce(({mark}), 0)"
            f" AND {self._lacks_vectors(self._space)} ORDER BY number LIMIT ?"
        )
        return [number for (number,) in self.execute(query, (*_key(space), *_key(space), limit))]

    def _lacks_vectors(self, space: str) -> str:
        # The whole key of one row: before the table is analyzed, the server takes any index for a part of it.
        return f"(SELECT 1 FROM vectors WHERE {self.own}space = {space} AND passage = number AND place = 0) IS NULL"

    @property
    def _space(self) -> str:
        return f"(SELECT id FROM spaces WHERE {self.own}name = ? AND dimension = ? AND digest = ?)"


def _key(space: Space) -> tuple[str, int, str]:
    return space.name, space.dimension, space.digest


class ArrayDumper(Dumper):
    """Sends an array of 32-bit integers, or of places of rows, as it is, without a Python object for each."""

    format = psycopg.pq.Format.BINARY

    def dump(self, array: npt.NDArray[np.int32] | npt.NDArray[np.void], /) -> bytes:
        """Return dimensions, NULLs, type, length and lower bound, then the size and value of each element."""
        if array.dtype.kind == "V":
            kind = "tid"
            values: npt.NDArray[Any] = array
        else:
            kind = "int4"
            values = array.astype(">i4")
        elements = np.empty(len(array), [("size", ">i4"), ("value", values.dtype)])
        elements["size"] = values.itemsize
        elements["value"] = values
        return struct.pack("!5i", 1, 0, psycopg.postgres.types[kind].oid, len(array), 1) + elements.tobytes()


@lru_cache(maxsize=4096)
def _translate(statement: str) -> bytes:
    return statement.replace("?", "%b").encode()


# --- tables -----------------------------------------------------------------------------

MIGRATIONS: Final = tuple(
    (Path(__file__).parent / "migrations" / f"postgres-{number}.sql").read_text("utf-8") for number in (1, 2, 3)
)


MIN_VERSION: Final = 14
"""The oldest version of PostgreSQL."""
_MIN_PGVECTOR: Final = (0, 8)
"""The first version with `hnsw.iterative_scan`."""
_NO_EXTENSION: Final = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.FeatureNotSupported,  # the server has no such extension
    psycopg.errors.UndefinedFile,  # the same of older versions
)


def migrate(connection: Connection, *, schema: str, partitions: int, place: str) -> None:
    """Run the missing migrations, one process at a time."""
    if _version(connection, schema, place) < len(MIGRATIONS):
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast migration'))")
            for version in range(_version(connection, schema, place), len(MIGRATIONS)):
                if version == 0:
                    _create_schema(connection, schema, place)
                script = MIGRATIONS[version].replace("{schema}", schema).replace("{partitions}", str(partitions))
                connection.execute(script.encode())
                connection.execute(
                    sql.SQL("COMMENT ON SCHEMA {} IS {}").format(sql.Identifier(schema), f"holdfast {version + 1}")
                )
            if not can_bypass(connection):
                return
            # The role that cannot bypass row security may change rows of the tables.
            if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
                connection.execute(f"CREATE ROLE {ROLE} NOLOGIN".encode())
            for grant in (
                f"GRANT USAGE ON SCHEMA {schema} TO {ROLE}",
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {ROLE}",
            ):
                connection.execute(grant.encode())


def _create_schema(connection: Connection, schema: str, place: str) -> None:
    try:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{schema}"'.encode())
    except psycopg.errors.InsufficientPrivilege as error:
        missing = f'GRANT CREATE ON DATABASE "{connection.info.dbname}" TO "{connection.info.user}"'
        message = f"the login may not create the tables ({error.diag.message_primary}): as a superuser, run {missing}"
        raise StorageError(message, path=place) from error
    with suppress(*_NO_EXTENSION), connection.transaction():  # only a very large tenant needs it
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")


def find_pgvector(connection: Connection) -> str | None:
    """Return the schema of pgvector; None if the database lacks it, or has a version that is too old for us."""
    query = "SELECT extnamespace::regnamespace::text, extversion FROM pg_extension WHERE extname = 'vector'"
    for schema, version in connection.execute(query):
        major, minor, *_ = version.split(".")
        if (int(major), int(minor)) >= _MIN_PGVECTOR:
            return str(schema)
    return None


def check_version(connection: Connection, place: str) -> None:
    """Refuse a server that is too old."""
    if connection.info.server_version < MIN_VERSION * 10_000:
        version = connection.info.parameter_status("server_version")
        raise StorageError(
            f"this is PostgreSQL {version}, and Holdfast needs {MIN_VERSION} or newer: upgrade the server", path=place
        )


def _version(connection: Connection, schema: str, place: str) -> int:
    query = (
        "SELECT obj_description(oid, 'pg_namespace'), has_schema_privilege(oid, 'USAGE') FROM pg_namespace"
        " WHERE nspname = %s"
    )
    found = connection.execute(query, (schema,)).fetchone()
    version = int(str(found[0]).removeprefix("holdfast ")) if found and found[0] else 0
    if version and found and not found[1]:
        login = connection.info.user
        raise StorageError(
            f'the login may not use the tables: as their owner, run GRANT USAGE ON SCHEMA "{schema}" TO "{login}"; '
            f'GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" TO "{login}"',
            path=place,
        )
    if version > len(MIGRATIONS):
        raise StorageError(
            f"written by a newer Holdfast (schema {version}, this one knows {len(MIGRATIONS)}): {UPGRADE}",
            path=place,
        )
    return version


def can_bypass(connection: Connection) -> bool:
    """Return whether row security does not apply to this login."""
    query = "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = session_user"
    found = connection.execute(query).fetchone()
    return bool(found and found[0])


def column_types(connection: Connection, schema: str) -> dict[tuple[str, str], str]:
    """Return the type of every column, by table and column."""
    rows = connection.execute(
        "SELECT relname, attname, format_type(atttypid, atttypmod) FROM pg_attribute JOIN pg_class"
        " ON pg_class.oid = attrelid WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p') AND attnum > 0"
        " AND NOT relispartition",
        (schema,),
    )
    return {(table, column): kind for table, column, kind in rows}


def create_tenant(db: PostgresDatabase, name: str) -> int:
    """Return the number of a tenant, which is created if it is new; `db` has all tenants."""
    db.execute("SELECT pg_advisory_xact_lock(hashtext('holdfast tenants'))")
    query = "INSERT INTO tenants SELECT coalesce(max(tenant) + 1, 0), ? FROM tenants ON CONFLICT DO NOTHING"
    db.execute(query, (name,))
    (number,) = db.execute("SELECT tenant FROM tenants WHERE name = ?", (name,)).fetchone() or (NO_TENANT,)
    counters = [(number, counter, CUTTING if counter == "cutting" else 0) for counter in (*_COUNTERS, "cutting")]
    insert = "INSERT INTO counters(tenant, name, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
    db.executemany(insert, counters)
    return int(number)


# --- errors -----------------------------------------------------------------------------

_ADVICE: Final = {
    "53100": "the server's disk is full. Nothing was lost: make room and try again.",
    "25006": "the server only reads: it is a replica, or is set to read-only. Use the address of the primary.",
    "42501": "the login lacks a right ({said}): GRANT USAGE ON SCHEMA and SELECT, INSERT, UPDATE, DELETE ON ALL TABLES "
    "IN SCHEMA to it, or use the login that created the tables.",
    "42P01": "the tables are gone, or the login may not use their schema ({said}): restart the program to see which.",
    "28": "the server refused the login ({said}): check user and password in the address, `PGPASSWORD` or ~/.pgpass, "
    "and the server's pg_hba.conf.",
    "3D": "{said}: create it (`createdb`), or check the address.",
    "58P01": "the server lacks the extension pgvector ({said}): install it there.",
    "08": "{said}: start the server, or check host and port of the address.",
}
_BUSY: Final = {
    "57014": "the statement took longer than `postgres.timeout_seconds`. Nothing was changed: try again.",
    "53300": "the server has no free connection ({said}). Nothing was changed: raise the limit (`max_connections`, or "
    "that of the role), lower `postgres.connections`, or use a pooler.",
}
_RETRY: Final = ("08", "40", "57P0", "53300", "55P03")
_REFUSED: Final = {
    "too many ": "53300",
    "connection slots": "53300",
    "password authentication": "28P01",
    "no password": "28P01",
    "pg_hba.conf": "28000",
    'role "': "28000",
    'database "': "3D000",
}
"""The code of a refused connection by words of the server: libpq does not tell the code."""


def _has_prefix(code: str, prefixes: Iterable[str]) -> bool:
    return any(code.startswith(prefix) for prefix in prefixes)


def describe_error(error: psycopg.Error) -> str:
    """Return the message of an error on one line, without libpq's question whether the server is running."""
    if error.diag.message_primary:
        return error.diag.message_primary
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("Is the server running"))


def _find_ignored_password_file() -> Path | None:
    """Return the password file if libpq ignores it, because others may read it."""
    file = Path(os.environ.get("PGPASSFILE") or Path.home() / ".pgpass")
    if os.name == "nt" or not file.is_file():  # libpq does not look at modes on Windows
        return None
    return file if file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO) else None


def _make_error(error: psycopg.Error, place: str) -> StorageError:
    said = describe_error(error)
    code = error.sqlstate or ""
    if not code and isinstance(error, psycopg.OperationalError):
        code = next((code for words, code in _REFUSED.items() if words in said), "08000")
    advice = next((advice for prefix, advice in (_ADVICE | _BUSY).items() if code.startswith(prefix)), "{said}")
    message = advice.format(said=said)
    ignored = _find_ignored_password_file() if "no password" in said else None
    if ignored is not None:
        message += f" {ignored} was ignored, because others may read it: chmod 600 {shlex.quote(str(ignored))}"
    if _has_prefix(code, (*_RETRY, *_BUSY)):
        return UnavailableError(message, path=place, can_retry=_has_prefix(code, _RETRY))
    return StorageError(message, path=place)


@contextmanager
def translate_errors(place: str) -> Iterator[None]:
    """Raise errors of PostgreSQL, and of damaged rows, as errors with the fix in their messages."""
    try:
        yield
    except PoolTimeout as error:
        message = "all connections of this process are in use: raise `postgres.connections`, or retry"
        raise UnavailableError(message, path=place) from error
    except psycopg.DataError as error:
        raise InputError(f"a scope, key or kind that PostgreSQL cannot keep: {error}") from error
    except psycopg.Error as error:
        raise _make_error(error, place) from error
    except UnicodeEncodeError as error:
        raise InputError(f"a scope, key or kind is not valid Unicode: {error.object!r}") from error
    except HoldfastError:
        raise
    except DAMAGE as error:
        raise StorageError(
            f"a row is damaged ({type(error).__name__}: {error}). Run `holdfast doctor`.", path=place
        ) from error
