"""Select and decode the rows of a SQLite store."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, TypeVar

from holdfast.store.base import FactRow, Gap, Job, Kind, MessageRow, PassageText, Record, Scope, Select
from holdfast.store.codec import (
    DAMAGE,
    bytes_text,
    decode_message,
    pack_json,
    text_bytes,
    unpack_json,
    unpack_text,
    words,
)

__all__ = [
    "EXCLUDED",
    "KEY",
    "PINNED",
    "clamp_time",
    "fact_data",
    "fact_digest",
    "is_forgotten",
    "jobs",
    "load_scopes",
    "message_digest",
    "passages",
    "read",
    "where",
]

T = TypeVar("T")

PINNED: Final = 1
EXCLUDED: Final = 2
_LATEST: Final = 2**63 - 1

KEY: Final = {"message": "id", "passage": "number", "fact": "version", "record": "id", "job": "id"}
_COLUMNS: Final = {
    "message": "id, scope, nonce, flags, body",
    "passage": "number, scope, message, speaker, time, start, windows, text",
    "fact": "version, scope, id, data",
    "record": "id, scope, kind, key, time, data",
    "job": "id, scope, kind, time, data",
}


def where(select: Select) -> tuple[str, list[object]]:
    """Return the SQL condition of a selection; the scope is always part of it."""
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
    """Return the SQL condition on the scope."""
    required = select.scope.required(select.across)
    values: list[object] = list(required.values())
    owner = f"(SELECT id FROM scopes WHERE {' AND '.join(f'{name} = ?' for name in required)}"
    if not select.across:
        return f"scope = {owner})", values
    # Where only a few are wanted they are looked for in order: the plus keeps SQLite from sorting all first.
    few = select.limit is not None and select.ids is None
    return f"{'+' if few else ''}scope IN {owner})", values


def _order(select: Select) -> str:
    sorting = "+" if select.keys is not None else ""  # a few by their keys are found first and sorted then
    return f"ORDER BY {sorting}{KEY[select.kind]} {'DESC' if select.newest else 'ASC'}"


def load_scopes(connection: sqlite3.Connection, scopes: list[Scope]) -> None:
    """Add the scopes that are not known yet; the number of each is its place in the list.

    Raises:
        ValueError: One of them is missing or damaged.
    """
    query = "SELECT id, tenant, project, agent, session FROM scopes WHERE id >= ? ORDER BY id"
    for number, *names in connection.execute(query, (len(scopes),)):
        if number != len(scopes) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"scope {len(scopes)} is missing or damaged")
        tenant, project, agent, session = names
        scopes.append(Scope(tenant=tenant, project=project, agent=agent, session=session))


def read(
    connection: sqlite3.Connection, select: Select, *, scopes: Sequence[Scope], gaps: dict[Gap, None]
) -> list[Any]:
    """Read the rows of a selection, oldest first. Damaged ones are left out and added to `gaps`."""
    condition, values = where(select)
    query = f"SELECT {_COLUMNS[select.kind]} FROM {select.kind}s WHERE {condition}"
    rows = connection.execute(query, values).fetchall()
    if select.kind == "passage":
        found: list[Any] = _passages(connection, rows, scopes, gaps)
    else:
        reader = _READERS[select.kind]
        found, damaged = _decode_rows(rows, lambda row: reader(row, scopes))
        _add_gaps(damaged, select.kind, scopes, gaps)
        if select.kind == "fact":  # an older version must not stand for one that cannot be read
            unknown = {(scopes[row[1]], row[2]) for row in damaged}
            found = [fact for fact in found if (fact.scope, fact.id) not in unknown]
    if select.newest:
        found.reverse()
    if len(found) < len(rows) == select.limit:  # as many more as were left out
        rest = replace(select, limit=len(rows) - len(found), **{"before" if select.newest else "after": rows[-1][0]})
        more = read(connection, rest, scopes=scopes, gaps=gaps)
        return [*more, *found] if select.newest else [*found, *more]
    return found


def passages(
    connection: sqlite3.Connection, numbers: Sequence[int], *, scopes: Sequence[Scope], gaps: dict[Gap, None]
) -> list[PassageText]:
    """Read passages of any scope. Damaged ones are left out and added to `gaps`."""
    query = (
        f"SELECT {_COLUMNS['passage']} FROM passages WHERE number IN (SELECT value FROM json_each(?)) ORDER BY number"
    )
    return _passages(connection, connection.execute(query, (json.dumps(numbers),)).fetchall(), scopes, gaps)


def jobs(
    connection: sqlite3.Connection, name: str, *, limit: int, scopes: Sequence[Scope], gaps: dict[Gap, None]
) -> list[Job]:
    """Read jobs of a kind and any scope. Damaged ones are left out and added to `gaps`."""
    query = f"SELECT {_COLUMNS['job']} FROM jobs WHERE kind = ? ORDER BY id"
    found, damaged = _decode_rows(connection.execute(query, (name,)), lambda row: _job(row, scopes), limit=limit)
    _add_gaps(damaged, "job", scopes, gaps)
    return found


def _decode_rows(
    rows: Iterable[Sequence[Any]], reader: Callable[[Sequence[Any]], T], *, limit: int | None = None
) -> tuple[list[T], list[Sequence[Any]]]:
    """Decode rows, at most `limit`; return also the rows that cannot be decoded."""
    found: list[T] = []
    damaged: list[Sequence[Any]] = []
    for row in rows:
        if len(found) == limit:
            break
        try:
            found.append(reader(row))
        except DAMAGE:
            damaged.append(row)
    return found, damaged


def _add_gaps(rows: Iterable[Sequence[Any]], kind: Kind, scopes: Sequence[Scope], gaps: dict[Gap, None]) -> None:
    """Add damaged rows to `gaps`; each begins with its number and its scope."""
    gaps.update((Gap(scope=scopes[row[1]], kind=kind, id=row[0]), None) for row in rows)


def _message(row: Sequence[Any], scopes: Sequence[Scope]) -> MessageRow:
    number, scope, nonce, flags, body = row
    return MessageRow(
        scope=scopes[scope],
        message=decode_message(body),
        id=number,
        nonce=bytes_text(nonce),
        pinned=bool(flags & PINNED),
        excluded=bool(flags & EXCLUDED),
    )


def _fact(row: Sequence[Any], scopes: Sequence[Scope]) -> FactRow:
    _, scope, name, data = row
    fact = FactRow(scope=scopes[scope], **unpack_json(data))
    if fact.id != name:
        raise ValueError("the data of another fact")
    return replace(fact, evidence=tuple(fact.evidence))


def _record(row: Sequence[Any], scopes: Sequence[Scope]) -> Record:
    number, scope, kind, key, time, data = row
    if not isinstance(key, str):
        raise TypeError("not a key")
    return Record(scope=scopes[scope], kind=kind, key=key, time=int(time), data=unpack_json(data), id=number)


def _job(row: Sequence[Any], scopes: Sequence[Scope]) -> Job:
    number, scope, kind, time, data = row
    return Job(scope=scopes[scope], kind=kind, time=int(time), data=unpack_json(data), id=number)


_READERS: Final[dict[str, Callable[[Sequence[Any], Sequence[Scope]], Any]]] = {
    "message": _message,
    "fact": _fact,
    "record": _record,
    "job": _job,
}


def _passages(
    connection: sqlite3.Connection, rows: Sequence[Sequence[Any]], scopes: Sequence[Scope], gaps: dict[Gap, None]
) -> list[PassageText]:
    query = "SELECT id, scope, body FROM messages WHERE id IN (SELECT value FROM json_each(?))"
    shared = connection.execute(query, (json.dumps(list({row[2] for row in rows if row[7] is None})),))
    bodies, undecoded = _decode_rows(shared, lambda row: ((row[0], row[1]), words(decode_message(row[2]))))
    _add_gaps(undecoded, "message", scopes, gaps)
    unread = {(row[0], row[1]) for row in undecoded}
    texts = dict(bodies)
    readable = [row for row in rows if row[7] is not None or (row[2], row[1]) not in unread]
    found, damaged = _decode_rows(readable, lambda row: _passage(row, texts))
    _add_gaps(damaged, "passage", scopes, gaps)
    return found


def _passage(row: Sequence[Any], bodies: Mapping[tuple[int, int], str]) -> PassageText:
    number, scope, message, speaker, time, start, windows, text = row
    places = memoryview(windows).cast("I")
    spans = tuple((first, last) for first, last, _ in zip(places[::3], places[1::3], places[2::3], strict=True))
    return PassageText(
        start=start,
        text=bodies[message, scope][start : start + spans[-1][1]] if text is None else unpack_text(text),
        windows=spans,
        number=number,
        message=message,
        speaker=bytes_text(speaker),
        time=int(time),
    )


def fact_data(row: FactRow) -> bytes:
    """Encode a fact without its scope."""
    data = asdict(row)
    del data["scope"]
    return pack_json(data)


def clamp_time(milliseconds: int) -> int:
    """Clamp a time to what a column can hold."""
    return max(-_LATEST, min(milliseconds, _LATEST))


def fact_digest(fact: str) -> bytes:
    """Return the digest that is kept of a forgotten fact."""
    return hashlib.sha256(b"fact:" + text_bytes(fact)).digest()[:16]


def message_digest(digest: bytes, nonce: bytes) -> bytes:
    """Return the digest that is kept of a forgotten message: of its words and its nonce."""
    return hashlib.sha256(b"message:" + digest + nonce).digest()[:16]


def is_forgotten(connection: sqlite3.Connection, scope: int, *digests: bytes) -> bool:
    """Return whether any of these digests was forgotten in this scope."""
    query = f"SELECT 1 FROM forgotten WHERE scope = ? AND digest IN ({', '.join('?' * len(digests))})"
    return connection.execute(query, (scope, *digests)).fetchone() is not None
