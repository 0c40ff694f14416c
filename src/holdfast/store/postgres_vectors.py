"""The vectors of a large tenant, which stay on the server: only those that a query needs are read.

Their signs, a bit for each dimension, tell which. A process loads the signs of all windows; of a very large tenant they
stay on the server, too, and an index over them proposes windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import psycopg
import simsimd
from psycopg import sql

from holdfast.index.columns import Columns
from holdfast.index.database import Database, Rows
from holdfast.index.vectors import LOOKED_INTO, ONE_IN, Bytes, Matrix, Signs, count_shared, quantise
from holdfast.search.arrays import Bools, Floats, highest

Windows = npt.NDArray[np.int64]
_Sent = tuple[Windows, Rows]
"""Windows whose vectors were asked for, and the answer."""

MAX_SIGNS: Final = 8 << 20
"""The signs of a tenant with more windows stay on the server."""
COMPARED: Final = 2048
"""Windows that are compared with a query by all of their bytes."""
_LOADED: Final = 50_000
"""Passages whose signs are loaded at once."""
_ROW: Final = "int4send(passage) || int4send(place) || tidsend(ctid) || data"
_AT: Final = np.dtype("V6")
_TOGETHER: Final = 16_384
"""Windows whose signs are compared at once: what fits into the processor's cache."""
_LEAST: Final = np.float32(1e-6)
_SEARCH: Final = (
    "SELECT set_config('hnsw.ef_search', '400', true), set_config('hnsw.iterative_scan', 'relaxed_order', true)"
)


def sign_bits(vector: Bytes) -> str:
    """Return which parts of a vector are above 0, as digits."""
    return (vector > 0).astype(np.uint8).tobytes().translate(_DIGITS).decode()


_DIGITS: Final = bytes.maketrans(b"\0\1", b"01")


def has_vectors_after(db: Database) -> str:
    """Return the condition that there are vectors after a number.

    It is checked once for a statement: a server without statistics would read all vectors to find the new ones.
    """
    return f"(SELECT value FROM counters WHERE {db.own}name = 'vectors') > ?"


class ServerMatrix(Matrix):
    """The vectors of one space of a tenant; an index over their signs proposes those that are compared."""

    def __init__(self, dimension: int, number: int) -> None:
        super().__init__(dimension)
        self.number = number

    def refresh(self, db: Database, columns: Columns, scopes: Sequence[int] | None) -> None:
        """Read from this transaction from now on; `scopes` are those of the reader, None for all."""
        self._db = db
        self._scopes = scopes
        self._own = f"{db.own}space = {self.number}"
        self._visible: Bools | None = None
        self._first = columns["first_window"]
        self._owner = columns["passage"]
        self._cached = np.zeros(0, np.int64)
        self._vectors = np.zeros((0, self.dimension), np.int8)
        self._sent: _Sent | None = None

    def prefetch(self, query: Floats, *, windows: int, visible: Bools | None = None) -> None:
        """Choose the most promising windows, and let the server read their vectors meanwhile."""
        self._visible = visible
        self._wanted = quantise(query[None, :].astype(np.float32))
        self._are_all = visible is not None and np.count_nonzero(visible) <= COMPARED
        if visible is not None and self._are_all:
            self._chosen = np.flatnonzero(visible)
        else:
            self._chosen = self._propose(self._wanted[0], windows, visible)
        self._sent = self._send(self._chosen)

    def cosine(self, query: Floats, *, windows: int, visible: Bools | None = None) -> Floats:  # noqa: ARG002
        """Return the cosine of the query of `prefetch` with the windows chosen then; the others have 0."""
        alike = self._cosine_of(self._chosen, self._wanted, windows)
        if not self._are_all:  # more than a window that was not read has
            alike[self._chosen] = np.maximum(alike[self._chosen], _LEAST)
        return alike

    def _propose(self, wanted: Bytes, windows: int, visible: Bools | None) -> Windows:  # noqa: ARG002 - of a subclass
        """Return the windows (in ascending order) that share most signs with a vector."""
        bits = f"bit({self.dimension})"
        condition = self._own
        values: list[object] = []
        if self._scopes is not None:
            condition += " AND scope = ANY(?)"
            values.append(list(self._scopes))
        query = f"SELECT passage, place FROM vectors WHERE {condition} ORDER BY (signs::{bits}) <~> ?::{bits} LIMIT ?"
        self._db.execute(_SEARCH)
        rows = self._db.execute(query, (*values, sign_bits(wanted), COMPARED))
        found = np.array(rows.fetchall(), np.int64).reshape(-1, 2)
        return np.sort(self._first[found[:, 0]] + found[:, 1])

    def _send(self, windows: Windows) -> _Sent:
        """Ask for the vectors of some windows, which are read later."""
        owner = self._owner[windows]
        key = f"{self._own} AND passage = wanted AND place = nth"
        query = (  # one value, not thousands of rows
            f"SELECT string_agg((SELECT {_ROW} FROM vectors WHERE {key}), ''::bytea)"
            " FROM unnest(?::integer[], ?::integer[]) AS given(wanted, nth)"
        )
        return windows, self._db.execute(query, (owner, (windows - self._first[owner]).astype(np.int32)))

    def _read(self, sent: _Sent) -> Bytes:
        """Return the vectors that were asked for; zeros for windows without one."""
        places, rows = self._read_rows(sent)
        vectors = np.zeros((len(sent[0]), self.dimension), np.int8)
        vectors[places] = rows["vector"]
        return vectors

    def _read_rows(self, sent: _Sent) -> tuple[Windows, npt.NDArray[np.void]]:
        """Return the rows of windows that were asked for, and the place of each among them."""
        windows, answer = sent
        ((data,),) = answer.fetchall()
        kinds = [("passage", ">i4"), ("nth", ">i4"), ("at", _AT), ("vector", np.int8, self.dimension)]
        rows = np.frombuffer(data or b"", kinds)
        places = _find(self._first[rows["passage"]] + rows["nth"], windows)
        return places[places >= 0], rows[places >= 0]

    def _rows(self, windows: Windows) -> Bytes:
        """Return the vectors of some windows (in ascending order). Visible ones are read once for a search."""
        if self._sent is not None:
            self._cached = self._sent[0]
            self._vectors = self._read(self._sent)
            self._sent = None
        if windows is self._cached:
            return self._vectors
        visible = windows if self._visible is None else windows[self._visible[windows]]
        if len(missing := visible[_find(visible, self._cached) < 0]):
            read = np.concatenate([self._cached, missing])
            order = np.argsort(read)
            vectors = np.concatenate([self._vectors, self._read(self._send(missing))])
            self._cached, self._vectors = read[order], vectors[order]
        places = _find(windows, self._cached)
        found = np.zeros((len(windows), self.dimension), np.int8)
        found[places >= 0] = self._vectors[places[places >= 0]]
        return found


def _find(wanted: Windows, among: Windows) -> Windows:
    """Return the place of each window among others in ascending order; -1 if it is not there."""
    places = np.searchsorted(among, wanted)
    return np.where(np.append(among, -1)[places] == wanted, places, -1)


class SignMatrix(ServerMatrix):
    """The same with the signs of all windows in memory: those that share most with the query are compared.

    Where a window's row is in the table is known, too: so it is read without the index, which takes half the time. A
    row that has moved since then is looked up by its key.
    """

    def __init__(self, dimension: int, number: int) -> None:
        super().__init__(dimension, number)
        self._words: Signs = np.zeros((-(-dimension // 64), 0), np.uint64)
        self._at = np.zeros(0, _AT)
        self._last = 0

    def refresh(self, db: Database, columns: Columns, scopes: Sequence[int] | None) -> None:
        """Ask for the signs of windows that are new; read from this transaction from now on."""
        super().refresh(db, columns, scopes)
        if (room := columns.windows - len(self._at)) > 0:
            room += columns.windows // 8
            self._words = np.pad(self._words, ((0, 0), (0, room)))
            self._at = np.append(self._at, np.zeros(room, _AT))
        self._new = self._find_new()

    def _find_new(self) -> Rows:
        query = (
            "SELECT id, passage, string_agg(substr(varbit_send(signs), 5) || tidsend(ctid), ''::bytea ORDER BY place)"
            f" FROM vectors WHERE {self._own} AND id > ? AND {has_vectors_after(self._db)}"
            f" GROUP BY id, passage ORDER BY id LIMIT {_LOADED}"
        )
        return self._db.execute(query, (self._last, self._last))

    def _load_new(self) -> Iterator[Windows]:
        """Load the signs of windows that are new, and yield the windows."""
        size = -(-self.dimension // 8)
        while rows := self._new.fetchall():
            numbers, passages, data = zip(*rows, strict=True)
            counts = np.fromiter(map(len, data), np.int64, len(data)) // (size + _AT.itemsize)
            starts = self._first[np.array(passages)] - (np.cumsum(counts) - counts)
            found = np.frombuffer(b"".join(data), [("signs", np.uint8, size), ("at", _AT)])
            windows = np.arange(len(found)) + np.repeat(starts, counts)
            self._words[:, windows] = np.pad(found["signs"], ((0, 0), (0, -size % 8))).view(np.uint64).T
            self._at[windows] = found["at"]
            self._last = numbers[-1]
            yield windows
            if len(rows) < _LOADED:
                break
            self._new = self._find_new()

    def _send(self, windows: Windows) -> _Sent:
        query = f"SELECT string_agg({_ROW}, ''::bytea) FROM vectors WHERE {self._own} AND ctid = ANY(?::tid[])"
        return windows, self._db.execute(query, (self._at[windows],))

    def _read_rows(self, sent: _Sent) -> tuple[Windows, npt.NDArray[np.void]]:
        places, rows = super()._read_rows(sent)
        moved = np.delete(np.arange(len(sent[0])), places)
        if len(moved):
            windows = sent[0][moved]
            found, others = super()._read_rows(super()._send(windows))
            self._at[windows[found]] = others["at"]
            places, rows = np.concatenate([places, moved[found]]), np.concatenate([rows, others])
        return places, rows

    def _propose(self, wanted: Bytes, windows: int, visible: Bools | None) -> Windows:
        bits = np.packbits(wanted > 0)
        signs = np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)[:, None]
        shared = self._room_for_shared(windows)
        for start in range(0, windows, _TOGETHER):
            stop = min(start + _TOGETHER, windows)
            shared[start:stop] = count_shared(self._words[:, start:stop], signs)
        for new in self._load_new():  # only now: the server has answered meanwhile
            shared[new] = count_shared(self._words[:, new], signs)
        if visible is not None:
            shared *= visible
        likely = highest(shared, max(LOOKED_INTO, windows // ONE_IN))
        # The parts of the vector whose sign a window shares tell more than how many they are.
        bits = np.ascontiguousarray(self._words[:, likely].T).view(np.uint8)
        parts = np.unpackbits(bits, axis=1)[:, : self.dimension].view(np.int8)
        agreeing = np.asarray(simsimd.cdist(wanted[None, :], np.ascontiguousarray(parts), "dot", out_dtype="f32"))[0]
        return likely[highest(agreeing, COMPARED)]


def index_vectors(connection: psycopg.Connection[tuple[Any, ...]], search_path: str, *, windows: int) -> list[str]:
    """Make the missing indexes of tenants with at least `windows` windows; return their names. Writers do not wait."""
    connection.execute("SELECT set_config('search_path', %s, false)", (search_path,))
    connection.execute("SELECT set_config('holdfast.tenant', '-1', false)")
    connection.execute(  # a graph that does not fit is built many times slower
        "SELECT set_config('maintenance_work_mem', '512MB', false) FROM pg_settings"
        " WHERE name = 'maintenance_work_mem' AND setting::bigint < 512 * 1024"
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
