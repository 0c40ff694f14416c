"""Select and read the rows of a store with tables.

Every function works inside the transaction of its caller. Rows whose checksum or form is wrong are left out, and listed
as gaps in the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec

from holdfast.cache import LruCache
from holdfast.index.database import Database
from holdfast.index.query import PassageText
from holdfast.index.scopes import Scopes, scope_condition
from holdfast.store.base import (
    Across,
    FactRow,
    Gap,
    Job,
    Kind,
    Known,
    MessageRow,
    Record,
    Scope,
    Select,
    SessionSpan,
    TypedRecord,
)
from holdfast.store.codec import (
    DAMAGE,
    bytes_text,
    decode_message,
    decode_words,
    unpack_json,
    unpack_text,
    unpack_typed,
)

if TYPE_CHECKING:  # rows are read without numpy
    from holdfast.index.reader import Index

T = TypeVar("T")

PINNED: Final = 1
EXCLUDED: Final = 2
"""Bits of `messages.flags`."""
DIGESTS_PER_STATEMENT: Final = 1000
MAX_CACHED_FACTS: Final = 2**14
"""Versions of facts that are kept decoded, since every recall reads all of its agent. They never change."""
MAX_CACHED_CHARS: Final = 1 << 20
"""For how many characters of messages the decoded text is kept. The recalls of a conversation read many of the same."""
_MAX_GAPS: Final = 16
"""The numbers of the messages of a window have few gaps. With up to so many, comparing numbers with the bounds of each
takes less time than looking up each number."""
_ALL: Final = 2**62
"""A limit that no table reaches."""

KEY: Final = {"message": "id", "passage": "number", "fact": "version", "record": "id", "job": "id"}
_COLUMNS: Final = {
    "message": "id, scope, nonce, flags, body",
    "passage": "number, scope, message, speaker, time, start, windows, text",
    "fact": "version, scope, id, data",
    "record": "id, scope, kind, key, time, data",
    "job": "id, scope, kind, time, data",
}
"""The number of a row and of its scope come first: `_decode_each` relies on it."""


class TableCache:
    """Everything that a process keeps of the tables of a store, or of one tenant, for the next transaction.

    Attributes:
        scopes: The scopes by their number.
        index: The search index; None before the first search.
        gaps: The damaged rows that reads have left out, in the order they were met.
        texts: The texts of messages by their encoded form, so that none of them is ever outdated.
    """

    def __init__(self) -> None:
        self.scopes = Scopes()
        self.index: Index | None = None
        self.gaps: dict[Gap, None] = {}
        self.texts: LruCache[bytes, str] = LruCache(MAX_CACHED_CHARS, weigh=len)

    def clear(self) -> None:
        """Drop what may differ from the tables after a failed transaction."""
        self.index = None
        self.scopes.clear()


class Tables(Database, Protocol):
    """A database in a transaction, and what is cached of its tables."""

    cache: TableCache


# --- which rows ---------------------------------------------------------------------------


def where(
    db: Database, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None
) -> tuple[str, list[object]]:
    """Return the SQL condition, order and limit of a selection, and the values of its `?`.

    The scope is always part of the condition. `name` is the kind of a record or job; `keys` are keys of records or ids
    of facts.
    """
    key = KEY[kind]
    owner, values = _owner_condition(db, select)
    clauses = [db.own + owner]
    if kind == "passage":
        clauses.append("alive = 1")
        select = _to_own_numbers(select, db.first_passage)
    if select.ids is not None:
        clause, wanted = db.among(key, select.ids)
        clauses.append(clause)
        values += wanted
    if keys is not None:
        column = "key"
        if kind == "fact":
            column = "id"
        clause, wanted = db.among(column, keys)
        clauses.append(clause)
        values += wanted
    if name is not None:
        clauses.append("kind = ?")
        values.append(name)
    if select.after is not None:
        clauses.append(f"{key} > ?")
        values.append(select.after)
    if select.before is not None:
        clauses.append(f"{key} < ?")
        values.append(select.before)
    order = key
    if keys is not None:
        # The plus keeps SQLite from walking the table in order: the few rows with these keys are found, then sorted.
        order = f"+{key}"
    if select.newest:
        order += " DESC"
    limit = _ALL
    if select.limit is not None:
        limit = select.limit
    values.append(limit)
    return f"{' AND '.join(clauses)} ORDER BY {order} LIMIT ?", values


def _owner_condition(db: Database, select: Select) -> tuple[str, list[object]]:
    """Return the condition that the reader may see a row."""
    condition, values = scope_condition(db, select.scope.required(select.across))
    owner = f"(SELECT id FROM scopes WHERE {condition})"
    if not select.across:
        return f"scope = {owner}", values
    if select.limit is None or select.ids is not None:
        return f"scope IN {owner}", values
    # Only the first few rows are wanted, so the table is walked in order. The plus keeps SQLite from using the index on
    # scopes, which would make it sort all rows of the scopes.
    return f"+scope IN {owner}", values


def _to_own_numbers(select: Select, first: int) -> Select:
    """Return a selection with the numbers that passages have in the tables of their tenant."""
    if not first:
        return select
    if select.ids is not None:
        select = replace(select, ids=tuple(number - first for number in select.ids))
    if select.after is not None:
        select = replace(select, after=select.after - first)
    if select.before is not None:
        select = replace(select, before=select.before - first)
    return select


# --- reading ------------------------------------------------------------------------------


def read_messages(db: Tables, select: Select) -> list[MessageRow]:
    """Read messages, oldest first."""
    return _read(db, "message", select, _decode_messages)


def read_passages(db: Tables, select: Select) -> list[PassageText]:
    """Read passages, oldest first."""
    return _read(db, "passage", select, _decode_passages)


def read_facts(db: Tables, select: Select, *, keys: Sequence[str] | None) -> list[FactRow]:
    """Read versions of facts, oldest first."""
    return _read(db, "fact", select, _decode_facts, keys=keys)


def read_records(db: Tables, select: Select, *, name: str | None, keys: Sequence[str] | None) -> list[Record]:
    """Read records, oldest first."""
    return _read(db, "record", select, _decode_records, name=name, keys=keys)


def read_typed_records(db: Tables, select: Select, *, name: str, form: type[T]) -> list[TypedRecord[T]]:
    """Read records of a kind, oldest first, their documents decoded into a type."""
    decoder = msgspec.json.Decoder(form)

    def decode_record(_: Scopes, row: Any) -> TypedRecord[T]:
        number, _, _, key, time, data = row
        document: T | None
        try:
            document = unpack_typed(data, decoder)
        except msgspec.ValidationError:  # a later version may write other documents
            document = None
        return TypedRecord(id=number, key=key, time=int(time), data=document)

    def decode(db: Tables, stored: Sequence[Any]) -> list[TypedRecord[T]]:
        return list(_decode_each(db, "record", stored, decode_record))

    return _read(db, "record", select, decode, name=name)


def read_jobs(db: Tables, select: Select, *, name: str | None) -> list[Job]:
    """Read jobs, oldest first."""
    return _read(db, "job", select, _decode_jobs, name=name)


def read_sessions(
    db: Tables, scope: Scope, *, across: Across, since: int | None, until: int | None, limit: int
) -> list[SessionSpan]:
    """Read the sessions with the newest passages, the newest first; only those that overlap a period.

    The first and the last passage of each session are looked up in the index: the others are not read.
    """
    db.cache.scopes.load(db)
    condition, values = scope_condition(db, scope.required(across))
    passages = f"SELECT time FROM passages WHERE {db.own}passages.scope = scopes.id AND alive = 1 ORDER BY number"
    query = (
        f"SELECT id, first, last FROM (SELECT id, ({passages} LIMIT 1) AS first, ({passages} DESC LIMIT 1) AS last"
        f" FROM scopes WHERE {condition}) AS spans"
        " WHERE last IS NOT NULL AND last >= ? AND first < ? ORDER BY last DESC, id DESC LIMIT ?"
    )
    if since is None:
        since = -_ALL
    if until is None:
        until = _ALL
    found: list[SessionSpan] = []
    for number, first, last in db.execute(query, (*values, since, until, limit)).fetchall():
        found.append(SessionSpan(scope=db.cache.scopes[number], first_time=int(first), last_time=int(last)))
    return found


def has_passages(db: Tables, scope: Scope, *, across: Across, without_messages: Collection[int]) -> bool:
    """Return whether the reader may see a passage of any message but some."""
    readable, values = scope_condition(db, scope.required(across))
    ordered = sorted(without_messages)
    gaps = [(before, after) for before, after in pairwise(ordered) if after - before > 1]
    numbers: list[object]
    if ordered and len(gaps) <= _MAX_GAPS:
        others = " OR ".join(["message < ? OR message > ?", *["message > ? AND message < ?"] * len(gaps)])
        numbers = [ordered[0], ordered[-1], *chain.from_iterable(gaps)]
    else:
        left_out, numbers = db.among("message", ordered)
        others = f"NOT {left_out}"
    query = (
        f"SELECT 1 FROM passages WHERE {db.own}scope IN (SELECT id FROM scopes WHERE {readable})"
        f" AND alive = 1 AND ({others}) LIMIT 1"
    )
    return db.execute(query, (*values, *numbers)).fetchone() is not None


def read_any_passages(db: Tables, numbers: Sequence[int]) -> list[PassageText]:
    """Read passages of any scope by their number in the tables, oldest first."""
    wanted, values = db.among("number", numbers)
    query = f"SELECT {_COLUMNS['passage']} FROM passages WHERE {db.own}{wanted} ORDER BY number"
    stored = db.execute(query, values).fetchall()
    db.cache.scopes.load_for(db, stored)
    return _decode_passages(db, stored)


def read_any_jobs(db: Tables, name: str, *, limit: int) -> list[Job]:
    """Read jobs of a kind and any scope, oldest first."""
    query = f"SELECT {_COLUMNS['job']} FROM jobs WHERE {db.own}kind = ? ORDER BY id"
    stored = db.execute(query, (name,)).fetchall()
    db.cache.scopes.load_for(db, stored)
    readable = _decode_each(db, "job", stored, _decode_job)
    return list(islice(readable, limit))


def _read(
    db: Tables,
    kind: Kind,
    select: Select,
    decode: Callable[[Tables, Sequence[Any]], list[T]],
    *,
    name: str | None = None,
    keys: Sequence[str] | None = None,
) -> list[T]:
    condition, values = where(db, kind, select, name=name, keys=keys)
    stored = db.execute(f"SELECT {_COLUMNS[kind]} FROM {kind}s WHERE {condition}", values).fetchall()
    db.cache.scopes.load_for(db, stored)
    rows = decode(db, stored)
    if select.newest:
        rows.reverse()
    left_out = len(stored) - len(rows)
    if not left_out or len(stored) != select.limit:
        return rows
    # Damaged rows do not count towards the limit: read as many more from where this read stopped.
    last = stored[-1][0]
    if kind == "passage":
        last += db.first_passage
    if select.newest:
        rest = replace(select, limit=left_out, before=last)
        return [*_read(db, kind, rest, decode, name=name, keys=keys), *rows]
    rest = replace(select, limit=left_out, after=last)
    return [*rows, *_read(db, kind, rest, decode, name=name, keys=keys)]


def find_messages(db: Database, scope: Scope, digests: Sequence[str], *, has_forgotten: bool = True) -> Known:
    """Return the archived messages of a session with these digests.

    `has_forgotten` is False for a read-only file of an earlier version, whose table lacks the nonces.
    """
    numbers: dict[str, dict[str, int]] = {}
    forgotten: dict[str, list[str]] = {}
    condition, owner = scope_condition(db, scope.required(()))
    own = f"{db.own}scope = (SELECT id FROM scopes WHERE {condition})"
    unique = set(digests)
    if has_forgotten:
        query = f"SELECT words, nonce FROM forgotten WHERE {own} AND words IS NOT NULL"
        for words, nonce in db.execute(query, owner):
            digest = words.hex()
            name = bytes_text(nonce)
            forgotten.setdefault(name, []).append(digest)
            if digest in unique:
                numbers.setdefault(digest, {})[name] = 0
    wanted = sorted(unique)
    for start in range(0, len(wanted), DIGESTS_PER_STATEMENT):
        some = [bytes.fromhex(digest) for digest in wanted[start : start + DIGESTS_PER_STATEMENT]]
        stored, values = db.among("digest", some)
        query = f"SELECT digest, nonce, id FROM messages WHERE {own} AND {stored}"
        # Sorted here: with ORDER BY, SQLite would read the whole table in the order of ids instead of an index.
        for found, nonce, number in sorted(db.execute(query, [*owner, *values]), key=itemgetter(2)):
            numbers.setdefault(found.hex(), {})[bytes_text(nonce)] = number
    return Known(numbers=numbers, forgotten=forgotten)


# --- decoding -----------------------------------------------------------------------------


def _decode_each(
    db: Tables,
    kind: Kind,
    stored: Iterable[Any],
    decode: Callable[[Scopes, Any], T],
    damaged: list[Any] | None = None,
) -> Iterator[T]:
    """Decode rows. Those that are damaged are noted as gaps, and added to `damaged`."""
    scopes = db.cache.scopes
    for row in stored:
        try:
            yield decode(scopes, row)
        except DAMAGE:
            db.cache.gaps[Gap(scope=scopes[row[1]], kind=kind, id=row[0])] = None
            if damaged is not None:
                damaged.append(row)


def _decode_messages(db: Tables, stored: Sequence[Any]) -> list[MessageRow]:
    return list(_decode_each(db, "message", stored, _decode_message))


def _decode_records(db: Tables, stored: Sequence[Any]) -> list[Record]:
    return list(_decode_each(db, "record", stored, _decode_record))


def _decode_jobs(db: Tables, stored: Sequence[Any]) -> list[Job]:
    return list(_decode_each(db, "job", stored, _decode_job))


def _decode_facts(db: Tables, stored: Sequence[Any]) -> list[FactRow]:
    damaged: list[Any] = []
    found = list(_decode_each(db, "fact", stored, _decode_fact, damaged))
    if not damaged:
        return found
    # An older version must not stand for one that cannot be read.
    unknown = {(db.cache.scopes[row[1]], row[2]) for row in damaged}
    return [fact for fact in found if (fact.scope, fact.id) not in unknown]


def _decode_passages(db: Tables, stored: Sequence[Any]) -> list[PassageText]:
    # A passage without a text of its own is a part of its message, which most are.
    messages = list({row[2] for row in stored if row[7] is None})
    wanted, values = db.among("id", messages)
    bodies = db.execute(f"SELECT id, scope, body FROM messages WHERE {db.own}{wanted}", values)
    known = db.cache.texts

    def decode_text(_: Scopes, row: Any) -> tuple[tuple[int, int], str]:
        number, scope, body = row
        if body not in known:
            known[body] = decode_words(body)
        return (number, scope), known[body]

    damaged: list[Any] = []
    texts = dict(_decode_each(db, "message", bodies, decode_text, damaged))
    unread = {(number, scope) for number, scope, _ in damaged}

    def decode(_: Scopes, row: Any) -> PassageText:
        number, scope, message, speaker, time, start, windows, text = row
        spans = _decode_spans(windows)
        if text is None:
            size = spans[-1][1]
            text = texts[message, scope][start : start + size]
        else:
            text = unpack_text(text)
        return PassageText(
            start=start,
            text=text,
            windows=spans,
            number=db.first_passage + number,
            message=message,
            speaker=bytes_text(speaker),
            time=int(time),
        )

    readable: list[Any] = []
    for row in stored:
        is_part_of_damaged = row[7] is None and (row[2], row[1]) in unread
        if not is_part_of_damaged:  # otherwise the gap of the message is enough
            readable.append(row)
    return list(_decode_each(db, "passage", readable, decode))


@lru_cache(maxsize=4096)
def _decode_spans(windows: bytes) -> tuple[tuple[int, int], ...]:
    """Return the start and stop of each window. The third number of each is for the index: how many terms it has."""
    numbers = memoryview(windows).cast("I").tolist()
    return tuple([(start, stop) for start, stop, _ in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True)])


def _decode_message(scopes: Scopes, row: Any) -> MessageRow:
    number, scope, nonce, flags, body = row
    return MessageRow(
        scope=scopes[scope],
        message=decode_message(body),
        id=number,
        nonce=bytes_text(nonce),
        pinned=bool(flags & PINNED),
        excluded=bool(flags & EXCLUDED),
    )


def _decode_fact(scopes: Scopes, row: Any) -> FactRow:
    scope, name, data = row[1:]
    fact = _decode_fact_data(data, scope=scopes[scope])
    if fact.id != name:
        raise ValueError("the data of another fact")
    return fact


@lru_cache(maxsize=MAX_CACHED_FACTS)
def _decode_fact_data(data: bytes, *, scope: Scope) -> FactRow:
    fields = unpack_json(data)
    for name in ("evidence", "questions"):
        fields[name] = tuple(fields.get(name, ()))
    return FactRow(scope=scope, **fields)


def _decode_record(scopes: Scopes, row: Any) -> Record:
    number, scope, kind, key, time, data = row
    if not isinstance(key, str):
        raise TypeError("not a key")
    return Record(scope=scopes[scope], kind=kind, key=key, time=int(time), data=unpack_json(data), id=number)


def _decode_job(scopes: Scopes, row: Any) -> Job:
    number, scope, kind, time, data = row
    return Job(scope=scopes[scope], kind=kind, time=int(time), data=unpack_json(data), id=number)
