"""Copy a tenant's memory from one store with tables to another, in steps that can be repeated, and compare both.

Numbers of messages, facts, records and jobs stay the same, so that whatever names one is still right. Passages are
renumbered, and the index of words is rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from holdfast.embed.base import Space
from holdfast.errors import InputError, StorageError
from holdfast.index.database import Database
from holdfast.index.scopes import scope_condition, scope_number
from holdfast.index.tables import count_passages
from holdfast.store.base import Scope, Select, VectorRow
from holdfast.store.connection import is_error
from holdfast.store.rows import KEY, Tables
from holdfast.store.tables import TableStore
from holdfast.store.upkeep import reindex_tables

_BATCH: Final = 2000
_TABLES: Final = {
    "messages": "scope, digest, nonce, flags, body",
    "facts": "scope, id, data",
    "records": "scope, kind, key, time, data",
    "jobs": "scope, kind, time, data",
}
_PASSAGE: Final = "number, message, scope, time, previous, human, speaker, start, windows, text"
_OF_ALL: Final = Scope(tenant="", project="", agent="", session="")
"""The scope of records that belong to the store, such as the keys that sign recalled blocks."""

Progress = Callable[[str, int], None]
"""Called with the name of a table and the number of rows that were copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The rows that a tenant has in both stores, by table, and the digest of all of them."""

    tenant: str
    rows: dict[str, int]
    digest: str


def move(source: TableStore, target: TableStore, tenant: str, *, progress: Progress = lambda *_: None) -> Moved:
    """Copy the rows of a tenant, continuing an interrupted copy, and the keys of the store.

    A copy that is complete is only compared. Other rows of this tenant in the target are an InputError, a difference at
    the end is a StorageError.
    """
    copy = _Copy(source, target, tenant)
    if not copy.begin():
        found = target.read(tenant, copy.digest)
        if found != source.read(tenant, copy.digest):
            raise InputError(f"{target.place} has other rows of tenant {tenant} already: name an empty target")
        return found
    for table in (*_TABLES, "passages"):
        while True:
            count = copy.copy(table)
            if not count:
                break
            progress(table, count)
    copy.copy_forgotten()
    target.write(tenant, reindex_tables, place=target.place)
    copy.copy_vectors()
    target.add_records(source.read_records(Select(scope=_OF_ALL)))
    found = target.read(tenant, copy.digest)
    if found != source.read(tenant, copy.digest):
        raise StorageError(
            f"the copy of tenant {tenant} differs from {source.place}: nothing may write to either meanwhile. Delete"
            " the copy and repeat.",
            path=target.place,
        )
    target.write(tenant, copy.end)
    return found


def _map_scopes(db: Database, rows: Sequence[list[Any]], scopes: Sequence[Scope], place: int) -> None:
    """Replace the number of the source's scope, which is at `place` in each row, by that of the target's."""
    numbers: dict[int, int] = {}
    for row in rows:
        old = row[place]
        if old not in numbers:
            numbers[old] = scope_number(db, scopes[old])
        row[place] = numbers[old]


def _vectors(db: Database, space: Space, windows: Mapping[int, int]) -> Iterator[tuple[int, npt.NDArray[np.int8]]]:
    """Yield the vectors of each passage. A row of a SQLite file may have those of many passages."""
    for rows in db.find_vectors(space, after={}).values():
        for _, first, data in rows:
            vectors = np.frombuffer(data, np.int8).reshape(-1, space.dimension)
            passage = first
            start = 0
            while start < len(vectors):
                stop = start + windows[passage]
                yield passage, vectors[start:stop]
                start = stop
                passage += 1


def _read_counter(db: Tables, name: str) -> int:
    (value,) = db.execute(f"SELECT value FROM counters WHERE {db.own}name = ?", (name,)).fetchone()
    return int(value)


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy of what a tenant has in one store to another."""

    source: TableStore
    target: TableStore
    tenant: str

    def mine(self, db: Database) -> tuple[str, list[object]]:
        """Return the condition that a row belongs to the tenant, and the values of its `?`."""
        condition, values = scope_condition(db, {"tenant": self.tenant})
        return f"{db.own}scope IN (SELECT id FROM scopes WHERE {condition})", values

    def name(self, table: str) -> str:
        """Return the counter in the target of the last row of a table that was copied. A file has several tenants."""
        return f"moved {self.tenant} {table}"

    def begin(self) -> bool:
        """Note in the target that a copy has begun, and skip all numbers of the source, also of forgotten rows.

        False if the target has rows of the tenant without such a note.
        """
        numbers = self.source.read(self.tenant, lambda db: {each: db.last_number(each) for each in _TABLES})

        def work(db: Database) -> bool:
            mine, values = self.mine(db)
            note = db.execute(f"SELECT 1 FROM counters WHERE {db.own}name = ?", (self.name("messages"),)).fetchone()
            if note is None:
                for table in _TABLES:
                    if db.execute(f"SELECT 1 FROM {table} WHERE {mine} LIMIT 1", values).fetchone():
                        return False
                db.insert("counters", "name, value", [(self.name(table), -1) for table in (*_TABLES, "passages")])
            for table, last in numbers.items():
                db.skip_numbers(table, last)
            return True

        return self.target.write(self.tenant, work)

    def end(self, db: Tables) -> None:
        """Remove the notes of `begin`."""
        names = [(self.name(table),) for table in (*_TABLES, "passages")]
        db.executemany(f"DELETE FROM counters WHERE {db.own}name = ?", names)

    def read_batch(self, table: str, columns: str, after: int) -> tuple[list[list[Any]], list[Scope]]:
        """Read the rows after a number, the number first, and all scopes."""
        key = columns.partition(",")[0]

        def work(db: Tables) -> tuple[list[list[Any]], list[Scope]]:
            mine, values = self.mine(db)
            is_alive = "alive = 1 AND " if table == "passages" else ""
            query = f"SELECT {columns} FROM {table} WHERE {is_alive}{mine} AND {key} > ? ORDER BY {key} LIMIT ?"
            found = db.execute(query, (*values, after, _BATCH))
            db.cache.scopes.load(db)
            return [list(row) for row in found], list(db.cache.scopes)

        return self.source.read(self.tenant, work)

    def copy(self, table: str) -> int:
        """Copy the next rows of a table; return their number."""
        name = self.name(table)
        after = self.target.write(self.tenant, _read_counter, name)
        columns = _PASSAGE if table == "passages" else f"{KEY[table.removesuffix('s')]}, {_TABLES[table]}"
        rows, scopes = self.read_batch(table, columns, after)

        def work(db: Database) -> None:
            last = rows[-1][0]
            _map_scopes(db, rows, scopes, columns.split(", ").index("scope"))
            if table == "passages":  # numbered on from the last of the target, each after the one before it
                query = f"SELECT coalesce(max(number), -1) FROM passages WHERE {db.own}scope = ?"
                latest = {scope: db.execute(query, (scope,)).fetchone()[0] for scope in {row[2] for row in rows}}
                for number, row in enumerate(rows, start=count_passages(db)):
                    scope = row[2]
                    row[0] = number
                    row[4] = latest[scope]
                    latest[scope] = number
            db.insert(table, columns, rows)
            db.execute(f"UPDATE counters SET value = ? WHERE {db.own}name = ?", (last, name))

        try:
            if rows:
                self.target.write(self.tenant, work)
        except StorageError as error:
            if not is_error(error.__cause__, "SQLITE_CONSTRAINT"):
                raise
            raise InputError(
                f"{self.target.place} has rows of another tenant with the same numbers: a file has every number once,"
                f" and on a server each tenant has numbers of its own; give tenant {self.tenant} a target of its own"
            ) from error
        return len(rows)

    def copy_forgotten(self) -> None:
        """Copy the digests of forgotten messages, so that they are not archived again."""

        def read(db: Tables) -> tuple[list[list[Any]], list[Scope]]:
            mine, values = self.mine(db)
            db.cache.scopes.load(db)
            found = db.execute(f"SELECT scope, digest, words, nonce FROM forgotten WHERE {mine}", values)
            return [list(row) for row in found], list(db.cache.scopes)

        rows, scopes = self.source.read(self.tenant, read)

        def work(db: Database) -> None:
            _map_scopes(db, rows, scopes, 0)
            insert = "INSERT INTO forgotten(scope, digest, words, nonce) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
            db.executemany(insert, rows)

        self.target.write(self.tenant, work)

    def copy_vectors(self) -> None:
        """Copy vectors, except those of passages that have other windows in the target: they are made again."""
        ours = self.target.read(self.tenant, self.passages)

        def work(db: Tables) -> None:
            theirs = self.passages(db)
            places = {old[0]: new for old, new in zip(theirs, ours, strict=True) if old[1] == new[1]}
            counted = f"SELECT number, length(windows) / 12 FROM passages WHERE {db.own}true"
            windows = dict(db.execute(counted).fetchall())
            for row in db.execute(f"SELECT name, dimension, digest FROM spaces WHERE {db.own}true").fetchall():
                space = Space(name=row[0], dimension=row[1], digest=row[2])
                batch: list[VectorRow] = []
                for passage, vectors in _vectors(db, space, windows):
                    if passage in places and vectors.any():
                        batch.append(VectorRow(space=space, passage=places[passage][2], vectors=vectors))
                    if len(batch) == _BATCH:
                        self.target.add_vectors(batch)
                        batch = []
                self.target.add_vectors(batch)

        self.source.read(self.tenant, work)

    def passages(self, db: Database) -> list[tuple[int, int, int]]:
        """List the passages of the tenant in order: number in the tables, number of windows, number for others."""
        mine, values = self.mine(db)
        query = f"SELECT number, length(windows) / 12 FROM passages WHERE alive = 1 AND {mine} ORDER BY number"
        return [(number, windows, db.first_passage + number) for number, windows in db.execute(query, values)]

    def digest(self, db: Tables) -> Moved:
        """Count the rows of the tenant, and compute the digest of all that were copied as they were."""
        digest = sha256()
        counts: dict[str, int] = {}
        db.cache.scopes.load(db)
        mine, values = self.mine(db)
        for table, columns in _TABLES.items():
            key = KEY[table.removesuffix("s")]
            counts[table] = 0
            for number, scope, *content in db.execute(
                f"SELECT {key}, {columns} FROM {table} WHERE {mine} ORDER BY {key}", values
            ):
                digest.update(repr((table, number, db.cache.scopes[scope], content)).encode("utf-8", "surrogatepass"))
                counts[table] += 1
        return Moved(tenant=self.tenant, rows=counts, digest=digest.hexdigest())
