"""The vectors of a large tenant, which stay on the server: an index over their signs proposes windows to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
from psycopg import sql

from holdfast.search.columns import Bools, Columns, Floats
from holdfast.search.embed.base import Space
from holdfast.search.vectors import Matrix, quantise

if TYPE_CHECKING:
    from holdfast.store.postgres_database import Connection, PostgresDatabase

PROPOSED: Final = 2048
"""Windows that the index proposes for a query."""
FEW: Final = 16_384
"""Where a reader sees fewer windows, all of them are compared."""
_SEARCH: Final = (
    "SELECT set_config('hnsw.ef_search', '400', true), set_config('hnsw.iterative_scan', 'relaxed_order', true)"
)


def sign_bits(vector: npt.NDArray[np.int8]) -> str:
    """Return which parts of a vector are above 0, as digits."""
    return (vector > 0).astype(np.uint8).tobytes().translate(_DIGITS).decode()


_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


class ServerMatrix(Matrix):
    """The vectors of one space of a tenant; only those that a query needs are read."""

    def __init__(
        self, db: PostgresDatabase, number: int, space: Space, columns: Columns, scopes: Sequence[int] | None
    ) -> None:
        super().__init__(space.dimension)
        self._db, self._number, self._scopes = db, number, scopes
        self._first, self._owner = columns["first_window"], columns["passage"]
        self._read: dict[int, npt.NDArray[np.int8]] = {}

    def cosine(self, query: Floats, *, windows: int, visible: Bools | None = None) -> Floats:
        """How alike the query is to the windows that the index proposes; the others have 0."""
        wanted = quantise(query[None, :].astype(np.float32))
        if visible is not None and np.count_nonzero(visible) <= FEW:
            return self._cosine_of(np.flatnonzero(visible), wanted, windows)
        bits, own = f"bit({self.dimension})", f"tenant = {self._db.tenant} AND space = {self._number}"
        seen = "" if self._scopes is None else " AND scope = ANY(?)"
        self._db.execute(_SEARCH)
        rows = self._db.execute(
            f"SELECT passage, place, data FROM vectors WHERE {own}{seen}"
            f" ORDER BY (signs::{bits}) <~> ?::{bits} LIMIT {PROPOSED}",
            (*([] if self._scopes is None else [list(self._scopes)]), sign_bits(wanted[0])),
        )
        self._keep(rows.fetchall())
        return self._cosine_of(np.array(sorted(self._read), np.int64), wanted, windows)

    def _keep(self, rows: Sequence[tuple[int, int, bytes]]) -> None:
        for passage, place, data in rows:
            self._read[int(self._first[passage]) + place] = np.frombuffer(data, np.int8)

    def _rows(self, windows: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Read the vectors of some windows."""
        missing = [window for window in windows.tolist() if window not in self._read]
        if missing:
            passages = np.unique(self._owner[missing]).tolist()
            query = f"SELECT passage, place, data FROM vectors WHERE {self._db.own}space = ? AND passage = ANY(?)"
            self._keep(self._db.execute(query, (self._number, passages)).fetchall())
        found = np.zeros((len(windows), self.dimension), np.int8)
        for place, window in enumerate(windows.tolist()):
            if window in self._read:
                found[place] = self._read[window]
        return found


def index_vectors(connection: Connection, schema: str, *, windows: int) -> list[str]:
    """Make the missing indexes of tenants with at least so many windows; return their names. Writers go on."""
    connection.execute("SELECT set_config('search_path', %s || ', public', false)", (schema,))
    connection.execute(
        "SELECT set_config('maintenance_work_mem', '512MB', false), set_config('holdfast.tenant', '-1', false)"
    )
    large = connection.execute(
        "SELECT spaces.tenant, spaces.id, dimension FROM spaces JOIN (SELECT tenant FROM blocks GROUP BY tenant"
        " HAVING sum(windows) >= %s) AS large ON large.tenant = spaces.tenant",
        (windows,),
    ).fetchall()
    made = []
    for tenant, space, dimension in large:
        name = f"vectors_near_{tenant}_{space}"
        query = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
        known = connection.execute(query, (name,)).fetchone()
        query = "SELECT tableoid::regclass::text FROM vectors WHERE tenant = %s AND space = %s LIMIT 1"
        table = connection.execute(query, (tenant, space)).fetchone()
        if known and not known[0]:  # it was interrupted
            connection.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(name)))
        if table and not (known and known[0]):
            statement = (
                f"CREATE INDEX CONCURRENTLY {name} ON {table[0]} USING hnsw ((signs::bit({dimension})) bit_hamming_ops)"
                f" WHERE tenant = {tenant} AND space = {space}"
            )
            connection.execute(statement.encode())
            made.append(name)
    return made
