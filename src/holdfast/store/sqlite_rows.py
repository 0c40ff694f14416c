"""Rows of a SQLite store: which to select, and what they are."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.errors import HoldfastError, StorageError
from holdfast.store.base import FactRow, Job, MessageRow, PassageText, Record, Scope, Select
from holdfast.store.codec import bytes_text, decode_message, unpack_text, words
from holdfast.store.sealing import decode_windows

__all__ = ["BURIED", "KEY", "PINNED", "data_to_json", "fact_to_json", "jobs", "passages", "read", "where"]

T = TypeVar("T")

PINNED: Final = 1
BURIED: Final = 2

KEY: Final = {"message": "id", "passage": "number", "fact": "version", "record": "id", "job": "id"}
_COLUMNS: Final = {
    "message": "id, scope, nonce, flags, body",
    "passage": "number, message, speaker, time, start, windows, text",
    "fact": "version, scope, data",
    "record": "id, scope, kind, key, time, data",
    "job": "id, scope, kind, time, data",
}
_DAMAGE: Final = (zlib.error, ValueError, KeyError, TypeError, IndexError, AttributeError, HoldfastError)
"""What reading a row can raise when its bytes are not what was written."""


def where(select: Select) -> tuple[str, list[object]]:
    """The condition of a selection; the scope is always a part of it."""
    key = KEY[select.kind]
    owner, values = _owner(select)
    clauses = [owner, *(["alive = 1"] if select.kind == "passage" else [])]
    for column, wanted in ((key, select.ids), ("id" if select.kind == "fact" else "key", select.keys)):
        if wanted is not None:
            clauses.append(f"{column} IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(wanted, ensure_ascii=False))
    for clause, value in (("kind = ?", select.name), (f"{key} > ?", select.after), (f"{key} < ?", select.before)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    return f"{' AND '.join(clauses)} {_order(select)} LIMIT ?", [*values, -1 if select.limit is None else select.limit]


def _owner(select: Select) -> tuple[str, list[object]]:
    """Whose rows may be seen."""
    scope = select.scope
    values: list[object] = [scope.tenant, scope.project, scope.agent]
    owner = "(SELECT id FROM scopes WHERE tenant = ? AND project = ? AND agent = ?"
    if not select.across:
        return f"scope = {owner} AND session = ?)", [*values, scope.session]
    # Where only a few are wanted they are looked for in order: the plus keeps SQLite from sorting all first.
    few = select.limit is not None and select.ids is None
    return f"{'+' if few else ''}scope IN {owner})", values


def _order(select: Select) -> str:
    sorting = "+" if select.keys is not None else ""  # a few by their keys are found first and sorted then
    return f"ORDER BY {sorting}{KEY[select.kind]} {'DESC' if select.newest else 'ASC'}"


def read(connection: sqlite3.Connection, select: Select, *, scopes: Sequence[Scope], path: Path) -> list[Any]:
    """The rows of a selection, oldest first.

    Raises:
        StorageError: A row is damaged.
    """
    condition, values = where(select)
    query = f"SELECT {_COLUMNS[select.kind]} FROM {select.kind}s WHERE {condition}"
    rows = connection.execute(query, values).fetchall()
    if select.newest:
        rows.reverse()
    if select.kind == "passage":
        return _passages(connection, rows, path)
    reader = _READERS[select.kind]
    return list(_each(rows, lambda row: reader(row, scopes), select.kind, path))


def passages(connection: sqlite3.Connection, numbers: Sequence[int], *, path: Path) -> list[PassageText]:
    """Passages of whatever scope, for upkeep."""
    query = (
        f"SELECT {_COLUMNS['passage']} FROM passages WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
    )
    return _passages(connection, connection.execute(query, (json.dumps(numbers),)).fetchall(), path)


def jobs(connection: sqlite3.Connection, name: str, *, limit: int, scopes: Sequence[Scope]) -> list[Job]:
    """Jobs of a kind, of whatever scope, for the worker."""
    query = f"SELECT {_COLUMNS['job']} FROM jobs WHERE kind = ? ORDER BY id LIMIT ?"
    return [_job(row, scopes) for row in connection.execute(query, (name, limit)).fetchall()]


def _each(rows: Iterable[Sequence[Any]], reader: Callable[[Sequence[Any]], T], kind: str, path: Path) -> Iterator[T]:
    for row in rows:
        try:
            yield reader(row)
        except _DAMAGE as error:
            raise StorageError(
                f"{kind} {row[0]} is damaged. Run `holdfast doctor --repair` to keep what is intact.", path=path
            ) from error


def _message(row: Sequence[Any], scopes: Sequence[Scope]) -> MessageRow:
    number, scope, nonce, flags, body = row
    return MessageRow(
        scope=scopes[scope],
        message=decode_message(body),
        id=number,
        nonce=bytes_text(nonce),
        pinned=bool(flags & PINNED),
        buried=bool(flags & BURIED),
    )


def _fact(row: Sequence[Any], scopes: Sequence[Scope]) -> FactRow:
    fact = FactRow(scope=scopes[row[1]], **json.loads(row[2]))
    return replace(fact, evidence=tuple(fact.evidence))


def _record(row: Sequence[Any], scopes: Sequence[Scope]) -> Record:
    number, scope, kind, key, time, data = row
    return Record(scope=scopes[scope], kind=kind, key=key, time=time, data=json.loads(data), id=number)


def _job(row: Sequence[Any], scopes: Sequence[Scope]) -> Job:
    number, scope, kind, time, data = row
    return Job(scope=scopes[scope], kind=kind, time=time, data=json.loads(data), id=number)


_READERS: Final[dict[str, Callable[[Sequence[Any], Sequence[Scope]], Any]]] = {
    "message": _message,
    "fact": _fact,
    "record": _record,
    "job": _job,
}


def _passages(connection: sqlite3.Connection, rows: Sequence[Sequence[Any]], path: Path) -> list[PassageText]:
    query = "SELECT id, body FROM messages WHERE id IN (SELECT value FROM json_each(?))"
    shared = connection.execute(query, (json.dumps(sorted({row[1] for row in rows if row[6] is None})),))
    bodies = dict(_each(shared, lambda row: (row[0], words(decode_message(row[1]))), "message", path))
    return list(_each(rows, lambda row: _passage(row, bodies), "passage", path))


def _passage(row: Sequence[Any], bodies: Mapping[int, str]) -> PassageText:
    number, message, speaker, time, start, windows, text = row
    spans = tuple((first, last) for first, last, _ in decode_windows(windows).tolist())
    return PassageText(
        start=start,
        text=bodies[message][start : start + spans[-1][1]] if text is None else unpack_text(text),
        windows=spans,
        number=number,
        message=message,
        speaker=bytes_text(speaker),
        time=time,
    )


def data_to_json(data: object) -> bytes:
    """A document as it is kept."""
    return json.dumps(data, ensure_ascii=True, separators=(",", ":")).encode()


def fact_to_json(row: FactRow) -> bytes:
    """A fact as it is kept: everything but its scope."""
    data = asdict(row)
    del data["scope"]
    return data_to_json(data)
