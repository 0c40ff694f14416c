"""The embedded store: one SQLite file, opened by any number of processes at once.

Write-ahead logging with a full sync on every commit: what `add` returned survives a crash of the machine.
Every write is one transaction, so a store is never half of anything.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from holdfast.errors import StorageError
from holdfast.search.bm25 import score
from holdfast.search.columns import PassageRow
from holdfast.store.base import (
    Evidence,
    FactRow,
    Job,
    MessageRow,
    PassageText,
    Question,
    Record,
    Row,
    Scope,
    Select,
    Space,
    VectorRow,
)
from holdfast.store.codec import decode_message, encode_message, pack_text, unpack_text
from holdfast.store.forgetting import forget_messages, wipe_log
from holdfast.store.schema import migrate
from holdfast.store.sqlite_index import Index, decode_windows

__all__ = ["SqliteStore"]

_PINNED: Final = 1
_BURIED: Final = 2
_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA mmap_size = 1073741824",
    "PRAGMA cache_size = -16384",
)


class SqliteStore:
    """A store in one file. Safe to use from several threads and processes."""

    def __init__(self, path: Path | str, *, wait: float = 60.0) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        _create_private(self.path)
        with _explained(self.path):
            self._connection = sqlite3.connect(
                self.path, timeout=wait, isolation_level=None, check_same_thread=False, cached_statements=256
            )
            for pragma in _PRAGMAS:
                self._connection.execute(pragma)
            migrate(self._connection, path=str(self.path))
        self._index = Index(self._connection)
        self._scopes: list[Scope] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    # --- writing -------------------------------------------------------------

    def add(self, rows: Sequence[Row], /) -> list[int]:
        """Keep rows, all or none, durable when this returns."""
        with self._writing():
            self._index.refresh()
            numbers = [self._add(row) for row in rows]
            self._index.seal()
        return numbers

    def _add(self, row: Row) -> int:
        match row:
            case MessageRow():
                return self._add_message(row)
            case VectorRow():
                return self._add_vectors(row)
            case FactRow():
                return self._insert(
                    "INSERT INTO facts(scope, id, data) VALUES (?, ?, ?)",
                    (self._scope(row.scope), row.id, _fact_to_json(row)),
                )
            case Record():
                return self._insert(
                    "INSERT OR REPLACE INTO records(scope, kind, key, time, data) VALUES (?, ?, ?, ?, ?)",
                    (self._scope(row.scope), row.kind, row.key, row.time, _to_json(row.data)),
                )
            case Job():
                return self._insert(
                    "INSERT INTO jobs(scope, kind, time, data) VALUES (?, ?, ?, ?)",
                    (self._scope(row.scope), row.kind, row.time, _to_json(row.data)),
                )

    def _insert(self, statement: str, values: tuple[object, ...]) -> int:
        return int(self._connection.execute(statement, values).lastrowid or 0)

    def _add_message(self, row: MessageRow) -> int:
        scope = self._scope(row.scope)
        digest = bytes.fromhex(row.message.digest)
        flags = _PINNED * row.pinned | _BURIED * row.buried
        if row.id:  # a known message: only its flags may change
            self._connection.execute("UPDATE messages SET flags = ? WHERE id = ? AND scope = ?", (flags, row.id, scope))
            return row.id
        if self._one("SELECT 1 FROM forgotten WHERE scope = ? AND digest = ?", (scope, digest)):
            return 0
        key = (scope, digest, row.nonce)
        if known := self._one("SELECT id FROM messages WHERE scope = ? AND digest = ? AND nonce = ?", key):
            return int(known)
        number = self._insert(
            "INSERT INTO messages(scope, digest, nonce, flags, body) VALUES (?, ?, ?, ?, ?)",
            (*key, flags, encode_message(row.message)),
        )
        for passage in row.passages:
            self._add_passage(passage, row, scope, number)
        return number

    def _add_passage(self, passage: PassageText, row: MessageRow, scope: int, message: int) -> None:
        last = self._one("SELECT max(number) FROM passages WHERE scope = ?", (scope,))
        columns = PassageRow(
            message=message,
            scope=scope,
            time=row.message.timestamp or 0,
            previous=-1 if last is None else int(last),
            human=row.message.role == "user",
            size=len(passage.text),
            window_lengths=tuple(len(terms) for terms in passage.terms),
        )
        self._index.insert(passage, columns, pack_text(passage.text))

    def _add_vectors(self, row: VectorRow) -> int:
        space = self._space(row.space, create=True)
        assert space is not None
        return self._insert(
            "INSERT OR REPLACE INTO vectors(space, passage, data) VALUES (?, ?, ?)",
            (space, row.passage, row.vectors.astype(np.int8).tobytes()),
        )

    # --- reading ---------------------------------------------------------------

    def fetch(self, select: Select, /) -> list[Any]:
        """Read rows of one kind that the reader may see, oldest first."""
        with self._reading():
            scopes = self._visible_scopes(select.scope, across=select.across)
            where, values = _where(select, scopes)
            order = f"ORDER BY {_KEY[select.kind]} {'DESC' if select.newest else 'ASC'}"
            limit = f"LIMIT {select.limit}" if select.limit is not None else ""
            query = f"SELECT {_COLUMNS[select.kind]} FROM {select.kind}s WHERE {where} {order} {limit}"
            found = [self._read(select.kind, values) for values in self._connection.execute(query, values)]
        return found[::-1] if select.newest else found

    def _read(self, kind: str, values: Sequence[Any]) -> Any:
        if kind == "passage":
            number, message, start, windows, text = values
            spans = tuple((int(a), int(b)) for a, b, _ in decode_windows(windows).tolist())
            return PassageText(start=start, text=unpack_text(text), windows=spans, number=number, message=message)
        scope = self._scopes[values[1]]
        if kind == "message":
            number, _, nonce, flags, body = values
            pinned, buried = bool(flags & _PINNED), bool(flags & _BURIED)
            return MessageRow(
                scope=scope, message=decode_message(body), id=number, nonce=nonce, pinned=pinned, buried=buried
            )
        if kind == "fact":
            return _fact_from_json(values[2], scope)
        if kind == "record":
            number, _, name, key, time, data = values
            return Record(scope=scope, kind=name, key=key, time=time, data=json.loads(data), id=number)
        number, _, name, time, data = values
        return Job(scope=scope, kind=name, time=time, data=json.loads(data), id=number)

    def match(self, question: Question, /) -> Evidence:
        """Say what every visible passage has to do with a question."""
        with self._reading():
            self._index.refresh()
            scopes = self._visible_scopes(question.scope, across=question.across)
            columns = self._index.columns
            mine = np.zeros(len(self._scopes), np.bool_)
            mine[scopes] = True
            visible = columns["alive"] & mine[columns["scope"]]
            postings = self._index.postings(question.terms)
            weighted = list(zip(postings, question.terms.values(), strict=True))
            cosine = None
            if question.vector is not None and question.space is not None:
                space = self._space(question.space, create=False)
                if space is not None:
                    matrix = self._index.matrix(space, question.space)
                    cosine = matrix.cosine(question.vector, windows=columns.windows)
            return Evidence(columns, visible, score(weighted, columns, visible=visible), cosine, tuple(self._scopes))

    def without_vectors(self, space: Space, *, limit: int) -> list[PassageText]:
        """Passages that have no vectors in this space yet, oldest first."""
        with self._reading():
            number = self._space(space, create=False) or 0
            query = (
                f"SELECT {_COLUMNS['passage']} FROM passages WHERE alive = 1 AND number NOT IN"
                " (SELECT passage FROM vectors WHERE space = ?) ORDER BY number LIMIT ?"
            )
            return [self._read("passage", values) for values in self._connection.execute(query, (number, limit))]

    # --- forgetting ------------------------------------------------------------

    def remove(self, select: Select, /) -> int:
        """Forget rows for good: from tables, index and log."""
        with self._writing():
            scopes = self._visible_scopes(select.scope, across=select.across)
            where, values = _where(select, scopes)
            key = _KEY[select.kind]
            query = f"SELECT {key} FROM {select.kind}s WHERE {where} ORDER BY {key}"
            numbers = [number for (number,) in self._connection.execute(query, values)]
            if select.kind == "message":
                forget_messages(self._connection, numbers)
            else:
                delete = f"DELETE FROM {select.kind}s WHERE {key} = ?"
                self._connection.executemany(delete, ((number,) for number in numbers))
        if numbers and select.kind in {"message", "fact"}:
            with self._lock, _explained(self.path):
                wipe_log(self._connection, path=self.path)
        return len(numbers)

    # --- the house -------------------------------------------------------------

    def _one(self, query: str, values: tuple[object, ...]) -> Any:
        row = self._connection.execute(query, values).fetchone()
        return None if row is None else row[0]

    def _scope(self, scope: Scope) -> int:
        values = (scope.tenant, scope.project, scope.agent, scope.session)
        known = self._one(
            "SELECT id FROM scopes WHERE tenant = ? AND project = ? AND agent = ? AND session = ?", values
        )
        if known is not None:
            return int(known)
        number = self._one("SELECT coalesce(max(id) + 1, 0) FROM scopes", ())
        return self._insert("INSERT INTO scopes VALUES (?, ?, ?, ?, ?)", (number, *values))

    def _visible_scopes(self, scope: Scope, *, across: bool) -> list[int]:
        query = "SELECT tenant, project, agent, session FROM scopes WHERE id >= ? ORDER BY id"
        for tenant, project, agent, session in self._connection.execute(query, (len(self._scopes),)):
            self._scopes.append(Scope(tenant=tenant, project=project, agent=agent, session=session))
        where = "tenant = ? AND project = ? AND agent = ?" + ("" if across else " AND session = ?")
        values = (scope.tenant, scope.project, scope.agent, *(() if across else (scope.session,)))
        return [number for (number,) in self._connection.execute(f"SELECT id FROM scopes WHERE {where}", values)]

    def _space(self, space: Space, *, create: bool) -> int | None:
        values = (space.name, space.dimension, space.digest)
        known = self._one("SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?", values)
        if known is None and create:
            return self._insert("INSERT INTO spaces(name, dimension, digest) VALUES (?, ?, ?)", values)
        return None if known is None else int(known)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock, _explained(self.path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._index.reset()
                self._scopes.clear()
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._lock, _explained(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("COMMIT")


_KEY: Final = {"message": "id", "passage": "number", "fact": "version", "record": "id", "job": "id"}
_COLUMNS: Final = {
    "message": "id, scope, nonce, flags, body",
    "passage": "number, message, start, windows, text",
    "fact": "version, scope, data",
    "record": "id, scope, kind, key, time, data",
    "job": "id, scope, kind, time, data",
}


def _where(select: Select, scopes: Sequence[int]) -> tuple[str, list[object]]:
    """The condition of a selection; the scope is always a part of it."""
    key = _KEY[select.kind]
    name_column = "id" if select.kind == "fact" else "key"
    clauses = [f"scope IN ({','.join(map(str, scopes)) or 'NULL'})"]
    values: list[object] = []
    if select.kind == "passage":
        clauses.append("alive = 1")
    for column, wanted in ((key, select.ids), (name_column, select.keys)):
        if wanted is not None:
            clauses.append(f"{column} IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(wanted))
    for clause, value in (("kind = ?", select.name), (f"{key} > ?", select.after), (f"{key} < ?", select.before)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    return " AND ".join(clauses), values


def _to_json(data: object) -> bytes:
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode()


def _fact_to_json(row: FactRow) -> bytes:
    data = asdict(row)
    del data["scope"]
    return _to_json(data)


def _fact_from_json(data: bytes, scope: Scope) -> FactRow:
    fact = FactRow(scope=scope, **json.loads(data))
    return replace(fact, evidence=tuple(fact.evidence))


def _create_private(path: Path) -> None:
    """Make the file, and the folder it is in, readable by its owner only."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StorageError(f"could not be made: {error.strerror}. Choose another place.", path=path) from error


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite says into an error that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(_advice(error), path=path) from error


def _advice(error: sqlite3.Error) -> str:
    name = getattr(error, "sqlite_errorname", "")
    for prefix, advice in _ADVICE.items():
        if name.startswith(prefix):
            return advice
    return f"{error}"


_ADVICE: Final = {
    "SQLITE_FULL": "the disk is full. Nothing was lost: make room and try again.",
    "SQLITE_READONLY": "the file or its disk is read-only. Nothing was lost: make it writable or choose another place.",
    "SQLITE_BUSY": "another process is writing for a very long time. Nothing was lost: try again.",
    "SQLITE_CORRUPT": "the file is damaged. Run `holdfast doctor --repair` to keep what is intact.",
    "SQLITE_NOTADB": "this is not a Holdfast store. Choose another file, or run `holdfast doctor --repair`.",
    "SQLITE_IOERR": "the disk could not be read or written. Nothing that was acknowledged is lost: check the disk.",
    "SQLITE_CANTOPEN": "could not be opened. Check that the folder exists and is yours.",
}
