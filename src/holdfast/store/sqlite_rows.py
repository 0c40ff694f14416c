"""Select and decode the rows of a SQLite store."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from typing import Any, Final, TypeVar

from holdfast.store.base import FactRow, Gap, Job, Kind, MessageRow, PassageText, Record, Scope, Select
from holdfast.store.codec import (
    DAMAGE,
    bytes_text,
    decode_message,
    decode_words,
    pack_json,
    text_bytes,
    unpack_json,
    unpack_text,
)

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


def where(
    kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None
) -> tuple[str, list[object]]:
    """Return the SQL condition of a selection; the scope is always part of it."""
    key = KEY[kind]
    owner, values = _owner(select)
    clauses = [owner, *(["alive = 1"] if kind == "passage" else [])]
    for column, wanted in ((key, select.ids), ("id" if kind == "fact" else "key", keys)):
        if wanted is not None:
            clauses.append(f"{column} IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(wanted, ensure_ascii=False))
    for clause, value in (("kind = ?", name), (f"{key} > ?", select.after), (f"{key} < ?", select.before)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    by_key = "" if keys is None else "+"  # a few by their keys are found first and sorted then
    order = f"ORDER BY {by_key}{key} {'DESC' if select.newest else 'ASC'}"
    return f"{' AND '.join(clauses)} {order} LIMIT ?", [*values, -1 if select.limit is None else select.limit]


def _owner(select: Select) -> tuple[str, list[object]]:
    """Return the SQL condition on the scope."""
    required = select.scope.required(select.across)
    owner = f"(SELECT id FROM scopes WHERE {' AND '.join(f'{part} = ?' for part in required)})"
    # Where only a few are wanted they are looked for in order: the plus keeps SQLite from sorting all first.
    few = "+" if select.limit is not None and select.ids is None else ""
    return f"{few}scope IN {owner}" if select.across else f"scope = {owner}", list(required.values())


class RowReader:
    """Reads rows over one connection.

    Attributes:
        scopes: The scopes that were read so far; the number of each is its place in the list.
        gaps: The damaged rows that were left out.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.scopes: list[Scope] = []
        self.gaps: dict[Gap, None] = {}

    def load_scopes(self) -> None:
        """Read the scopes that are not known yet.

        Raises:
            ValueError: One of them is missing or damaged.
        """
        query = "SELECT id, tenant, project, agent, session FROM scopes WHERE id >= ? ORDER BY id"
        for number, *names in self._connection.execute(query, (len(self.scopes),)):
            if number != len(self.scopes) or not all(isinstance(name, str) for name in names):
                raise ValueError(f"scope {len(self.scopes)} is missing or damaged")
            tenant, project, agent, session = names
            self.scopes.append(Scope(tenant=tenant, project=project, agent=agent, session=session))

    def read(
        self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Any]:
        """Read the rows of a kind that a selection names."""
        condition, values = where(kind, select, name=name, keys=keys)
        query = f"SELECT {_COLUMNS[kind]} FROM {kind}s WHERE {condition}"
        rows = self._connection.execute(query, values).fetchall()
        found = self._decode_passages(rows) if kind == "passage" else self._decode(kind, rows)
        if select.newest:
            found.reverse()
        if len(found) < len(rows) == select.limit:  # as many more as were left out
            side = {"before" if select.newest else "after": rows[-1][0]}
            more = self.read(kind, replace(select, limit=len(rows) - len(found), **side), name=name, keys=keys)
            return [*more, *found] if select.newest else [*found, *more]
        return found

    def passages_of_all(self, numbers: Sequence[int]) -> list[PassageText]:
        """Read passages of any scope."""
        wanted = "number IN (SELECT value FROM json_each(?)) ORDER BY number"
        query = f"SELECT {_COLUMNS['passage']} FROM passages WHERE {wanted}"
        return self._decode_passages(self._connection.execute(query, (json.dumps(numbers),)).fetchall())

    def jobs_of_all(self, name: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope."""
        rows = self._connection.execute(f"SELECT {_COLUMNS['job']} FROM jobs WHERE kind = ? ORDER BY id", (name,))
        return list(islice(self._readable("job", rows, self._job, []), limit))

    def _decode(self, kind: Kind, rows: Iterable[Any]) -> list[Any]:
        damaged: list[Any] = []
        decoders = {"message": self._message, "fact": self._fact, "record": self._record, "job": self._job}
        found: list[Any] = list(self._readable(kind, rows, decoders[kind], damaged))
        if kind == "fact" and damaged:  # an older version must not stand for one that cannot be read
            unknown = {(self.scopes[row[1]], row[2]) for row in damaged}
            found = [fact for fact in found if (fact.scope, fact.id) not in unknown]
        return found

    def _readable(self, kind: Kind, rows: Iterable[Any], decode: Callable[[Any], T], damaged: list[Any]) -> Iterator[T]:
        """Decode rows; those that are damaged are added to `damaged` and to `gaps`."""
        for row in rows:
            try:
                yield decode(row)
            except DAMAGE:
                damaged.append(row)
                self.gaps[Gap(scope=self.scopes[row[1]], kind=kind, id=row[0])] = None

    def _message(self, row: Any) -> MessageRow:
        number, scope, nonce, flags, body = row
        return MessageRow(
            scope=self.scopes[scope],
            message=decode_message(body),
            id=number,
            nonce=bytes_text(nonce),
            pinned=bool(flags & PINNED),
            excluded=bool(flags & EXCLUDED),
        )

    def _fact(self, row: Any) -> FactRow:
        _, scope, name, data = row
        fact = FactRow(scope=self.scopes[scope], **unpack_json(data))
        if fact.id != name:
            raise ValueError("the data of another fact")
        return replace(fact, evidence=tuple(fact.evidence))

    def _record(self, row: Any) -> Record:
        number, scope, kind, key, time, data = row
        if not isinstance(key, str):
            raise TypeError("not a key")
        return Record(scope=self.scopes[scope], kind=kind, key=key, time=int(time), data=unpack_json(data), id=number)

    def _job(self, row: Any) -> Job:
        number, scope, kind, time, data = row
        return Job(scope=self.scopes[scope], kind=kind, time=int(time), data=unpack_json(data), id=number)

    def _decode_passages(self, rows: Sequence[Any]) -> list[PassageText]:
        query = "SELECT id, scope, body FROM messages WHERE id IN (SELECT value FROM json_each(?))"
        shared = self._connection.execute(query, (json.dumps(list({row[2] for row in rows if row[7] is None})),))
        damaged: list[Any] = []
        texts = dict(self._readable("message", shared, lambda row: (row[:2], decode_words(row[2])), damaged))
        unread = {row[:2] for row in damaged}

        def decode(row: Any) -> PassageText:
            number, scope, message, speaker, time, start, windows, text = row
            places = memoryview(windows).cast("I")
            spans = tuple((first, last) for first, last, _ in zip(places[::3], places[1::3], places[2::3], strict=True))
            return PassageText(
                start=start,
                text=texts[message, scope][start : start + spans[-1][1]] if text is None else unpack_text(text),
                windows=spans,
                number=number,
                message=message,
                speaker=bytes_text(speaker),
                time=int(time),
            )

        readable = [row for row in rows if row[7] is not None or (row[2], row[1]) not in unread]
        return list(self._readable("passage", readable, decode, []))


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
