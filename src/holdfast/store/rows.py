"""Select, decode and add the rows of a store with tables."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from holdfast.errors import ConflictError
from holdfast.index.database import Database, Rows
from holdfast.index.scopes import Scopes, scope_condition, scope_number
from holdfast.messages import Message
from holdfast.store.base import FactRow, Gap, Job, Kind, Known, MessageRow, PassageText, Record, Scope, Select
from holdfast.store.codec import (
    DAMAGE,
    bytes_text,
    clamp_time,
    decode_message,
    decode_words,
    encode_message,
    pack_json,
    pack_text,
    text_bytes,
    unpack_json,
    unpack_text,
    words,
)

if TYPE_CHECKING:  # rows are read without numpy
    from holdfast.index.reader import Index

T = TypeVar("T")

PINNED: Final = 1
EXCLUDED: Final = 2
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


def where(
    db: Database, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None
) -> tuple[str, list[object]]:
    """Return the SQL condition of a selection; the scope is always part of it."""
    key = KEY[kind]
    owner, values = _owner(db, select)
    clauses, chosen = [db.own + owner], select
    if kind == "passage":
        clauses.append("alive = 1")
        chosen = _to_own_numbers(select, db.first_passage)
    for column, wanted in ((key, chosen.ids), ("id" if kind == "fact" else "key", keys)):
        if wanted is not None:
            clause, more = db.among(column, wanted)
            clauses.append(clause)
            values += more
    for clause, value in (("kind = ?", name), (f"{key} > ?", chosen.after), (f"{key} < ?", chosen.before)):
        if value is not None:
            clauses.append(clause)
            values.append(value)
    # A few by their keys are found first and sorted then.
    order = f"ORDER BY {key if keys is None else f'+{key}'} {'DESC' if select.newest else 'ASC'}"
    return f"{' AND '.join(clauses)} {order} LIMIT ?", [*values, _ALL if select.limit is None else select.limit]


def _to_own_numbers(select: Select, first: int) -> Select:
    """Return a selection with the numbers that the passages of a tenant have in its tables."""
    after, before = (None if number is None else number - first for number in (select.after, select.before))
    ids = None if select.ids is None else tuple(number - first for number in select.ids)
    return replace(select, ids=ids, after=after, before=before)


def _owner(db: Database, select: Select) -> tuple[str, list[object]]:
    condition, values = scope_condition(db, select.scope.required(select.across))
    owner = f"(SELECT id FROM scopes WHERE {condition})"
    # Where only a few are wanted they are looked for in order: the plus keeps the database from sorting all first.
    few = "+" if select.limit is not None and select.ids is None else ""
    return f"{few}scope IN {owner}" if select.across else f"scope = {owner}", values


class RowReader:
    """Reads rows of a store, or of one tenant. `db` is the database of the present read.

    It keeps what was read of the index and of the scopes, where the number of each is its place, and the damaged rows
    that were left out.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        self.index: Index | None = None
        self.scopes = Scopes()
        self.gaps: dict[Gap, None] = {}

    def clear(self) -> None:
        """Drop what was cached."""
        self.index = None
        self.scopes.clear()

    def read(
        self, kind: Kind, select: Select, *, name: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Any]:
        """Read the rows of a kind that a selection names."""
        condition, values = where(self.db, kind, select, name=name, keys=keys)
        scopes = self.scopes.find_new(self.db)  # both statements are answered together
        found_rows = self.db.execute(f"SELECT {_COLUMNS[kind]} FROM {kind}s WHERE {condition}", values)
        self.scopes.add(self.db, scopes)
        rows = found_rows.fetchall()
        found = self._decode_passages(rows) if kind == "passage" else self._decode(kind, rows)
        if select.newest:
            found.reverse()
        if len(found) < len(rows) == select.limit:  # as many more as were left out
            last = rows[-1][0] + (self.db.first_passage if kind == "passage" else 0)
            side = {"before" if select.newest else "after": last}
            more = self.read(kind, replace(select, limit=len(rows) - len(found), **side), name=name, keys=keys)
            return [*more, *found] if select.newest else [*found, *more]
        return found

    def passages_of_all(self, numbers: Sequence[int]) -> list[PassageText]:
        """Read passages of any scope."""
        wanted, values = self.db.among("number", numbers)
        query = f"SELECT {_COLUMNS['passage']} FROM passages WHERE {self.db.own}{wanted} ORDER BY number"
        return self._decode_passages(self.db.execute(query, values).fetchall())

    def jobs_of_all(self, name: str, *, limit: int) -> list[Job]:
        """Read jobs of a kind and any scope."""
        query = f"SELECT {_COLUMNS['job']} FROM jobs WHERE {self.db.own}kind = ? ORDER BY id"
        return list(islice(self._readable("job", self.db.execute(query, (name,)), self._job, []), limit))

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
        wanted, values = self.db.among("id", list({row[2] for row in rows if row[7] is None}))
        shared = self.db.execute(f"SELECT id, scope, body FROM messages WHERE {self.db.own}{wanted}", values)
        damaged: list[Any] = []
        texts = dict(self._readable("message", shared, lambda row: (row[:2], decode_words(row[2])), damaged))
        unread = {row[:2] for row in damaged}

        def decode(row: Any) -> PassageText:
            number, scope, message, speaker, time, start, windows, text = row
            places = memoryview(windows).cast("I").tolist()
            spans = tuple([span[:2] for span in zip(places[::3], places[1::3], places[2::3], strict=True)])
            return PassageText(
                start=start,
                text=texts[message, scope][start : start + spans[-1][1]] if text is None else unpack_text(text),
                windows=spans,
                number=self.db.first_passage + number,
                message=message,
                speaker=bytes_text(speaker),
                time=int(time),
            )

        readable = [row for row in rows if row[7] is not None or (row[2], row[1]) not in unread]
        return list(self._readable("passage", readable, decode, []))


def fact_digest(fact: str) -> bytes:
    """Return the digest that is kept of a forgotten fact."""
    return hashlib.sha256(b"fact:" + text_bytes(fact)).digest()[:16]


def message_digest(digest: bytes, nonce: bytes) -> bytes:
    """Return the digest that is kept of a forgotten message: of its words and its nonce."""
    return hashlib.sha256(b"message:" + digest + nonce).digest()[:16]


# --- adding: in the caller's transaction ------------------------------------------------

_AT_ONCE: Final = 1000
"""Digests that are looked up with one statement."""
NewMessage: TypeAlias = tuple[Message, Sequence[PassageText], int, int]
"""An archived message, its passages, and the numbers of its scope and of itself."""
_MessageKey: TypeAlias = tuple[int, bytes, bytes]
"""The number of the scope, the digest and the nonce."""


def add_messages(db: Database, rows: Sequence[MessageRow], *, numbers_of: Sequence[int] = ()) -> list[int]:
    """Add messages with their passages; return the number of each.

    `numbers_of` are the numbers that new messages get, one for each row; by default the database gives them.
    """
    scopes = {scope: scope_number(db, scope) for scope in dict.fromkeys(row.scope for row in rows)}
    keys = [(scopes[row.scope], bytes.fromhex(row.message.digest), text_bytes(row.nonce)) for row in rows]
    ends = find_ends(db, scopes.values())  # a server answers in one round trip
    numbers = _look_up(db, keys)
    new: dict[_MessageKey, MessageRow] = {}
    for key, row in zip(keys, rows, strict=True):
        if key not in numbers:
            new.setdefault(key, row)
    values = [
        (*key, PINNED * row.pinned | EXCLUDED * row.excluded, encode_message(row.message)) for key, row in new.items()
    ]
    if numbers_of:
        reserved = dict(zip(reversed(keys), reversed(numbers_of), strict=True))  # the first of the same key counts
        added = [reserved[key] for key in new]
        with_numbers = [(number, *value) for number, value in zip(added, values, strict=True)]
        db.insert("messages", "id, scope, digest, nonce, flags, body", with_numbers)
    else:
        added = db.insert_numbered("messages", "scope, digest, nonce, flags, body", values)
    numbers.update(zip(new, added, strict=True))
    if new:
        added_to = [(row.message, row.passages, key[0], numbers[key]) for key, row in new.items()]
        add_passages(db, added_to, ends)
    return [numbers[key] for key in keys]


def find_ends(db: Database, scopes: Iterable[int]) -> tuple[Rows, dict[int, Rows]]:
    """Select the number of the next passage, and of the latest of each scope."""
    query = f"SELECT coalesce(max(number), -1) FROM passages WHERE {db.own}scope = ?"
    latest = {scope: db.execute(query, (scope,)) for scope in scopes}
    return db.execute(f"SELECT coalesce(max(number) + 1, 0) FROM passages WHERE {db.own}true"), latest


def add_passages(db: Database, new: Sequence[NewMessage], ends: tuple[Rows, Mapping[int, Rows]]) -> None:
    """Add the passages of messages, numbered on from the last, and index them."""
    from holdfast.index.tables import encode_windows, index_passages  # noqa: PLC0415 - messages are read without numpy

    first = int(ends[0].fetchone()[0])
    latest = {scope: one.fetchone()[0] for scope, one in ends[1].items()}
    rows: list[tuple[object, ...]] = []
    added: list[PassageText] = []
    for message, passages, scope, number in new:
        text = words(message) if passages else ""
        speaker = text_bytes(message.name or message.role)
        for passage in passages:
            is_human = int(message.role == "user")
            about = (number, scope, clamp_time(message.timestamp or 0), latest[scope], is_human, speaker)
            latest[scope] = first + len(rows)
            # The message has the text of most passages, at the same place.
            windows, is_whole = encode_windows(passage), passage.windows[-1][1] == len(passage.text)
            is_shared = is_whole and text.startswith(passage.text, passage.start)
            stored = None if is_shared else pack_text(passage.text)
            rows.append((first + len(rows), *about, passage.start, windows, stored))
            added.append(passage)
    columns = "number, message, scope, time, previous, human, speaker, start, windows, text"
    db.insert("passages", columns, rows)
    index_passages(db, first, added)


def _look_up(db: Database, keys: Sequence[_MessageKey]) -> dict[_MessageKey, int]:
    """Return the numbers of the messages that are stored, by scope, digest and nonce; 0 for a forgotten one."""
    found: dict[_MessageKey, int] = {}
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        for scope in {key[0] for key in some}:
            mine = {key: message_digest(key[1], key[2]) for key in some if key[0] == scope}
            stored, values = db.among("digest", list({key[1] for key in mine}))
            # Version 0.1 kept the digest of the words alone: what was forgotten then stays out.
            gone, digests = db.among("digest", list({*mine.values(), *(key[1] for key in mine)}))
            query = f"SELECT digest, nonce, id FROM messages WHERE {db.own}scope = ? AND {stored}"
            messages = db.execute(query, [scope, *values])
            query = f"SELECT digest FROM forgotten WHERE {db.own}scope = ? AND {gone}"
            forgotten = {bytes(digest) for (digest,) in db.execute(query, [scope, *digests])}
            found.update(((scope, bytes(digest), bytes(nonce)), number) for digest, nonce, number in messages)
            found.update((key, 0) for key, digest in mine.items() if forgotten & {digest, key[1]})
    return found


def find_messages(db: Database, scope: Scope, digests: Sequence[str], *, has_forgotten: bool = True) -> Known:
    """Return what a session knows of the messages with these digests.

    A file of an earlier version that cannot be written has no nonces of forgotten messages.
    """
    numbers: dict[str, dict[str, int]] = {}
    forgotten: dict[str, list[str]] = {}
    condition, owner = scope_condition(db, scope.required(()))
    own = f"{db.own}scope = (SELECT id FROM scopes WHERE {condition})"
    unique = set(digests)
    if has_forgotten:
        query = f"SELECT words, nonce FROM forgotten WHERE {own} AND words IS NOT NULL"
        for words, nonce in db.execute(query, owner):
            digest, name = words.hex(), bytes_text(nonce)
            forgotten.setdefault(name, []).append(digest)
            if digest in unique:
                numbers.setdefault(digest, {})[name] = 0
    wanted = sorted(unique)
    for start in range(0, len(wanted), _AT_ONCE):
        stored, values = db.among("digest", [bytes.fromhex(digest) for digest in wanted[start : start + _AT_ONCE]])
        query = f"SELECT digest, nonce, id FROM messages WHERE {own} AND {stored}"
        # Sorted here: with ORDER BY, SQLite would read the whole table in the order of ids instead of an index.
        for found, nonce, number in sorted(db.execute(query, [*owner, *values]), key=itemgetter(2)):
            numbers.setdefault(found.hex(), {})[bytes_text(nonce)] = number
    return Known(numbers=numbers, forgotten=forgotten)


def set_flags(db: Database, select: Select, *, pinned: bool | None, excluded: bool | None) -> int:
    """Set the flags of messages that are not None."""
    flags = ((PINNED, pinned), (EXCLUDED, excluded))
    on = sum(bit for bit, value in flags if value)
    off = sum(bit for bit, value in flags if value is False)
    condition, values = where(db, "message", select)
    wanted = f"{db.own}id IN (SELECT id FROM messages WHERE {condition}) RETURNING id"
    update = f"UPDATE messages SET flags = (flags | ?) & ~? WHERE {wanted}"
    return len(db.execute(update, (on, off, *values)).fetchall())


def add_facts(db: Database, rows: Sequence[FactRow]) -> list[int]:
    """Add versions of facts."""
    values: dict[int, tuple[object, ...]] = {}
    for place, row in enumerate(rows):
        scope = scope_number(db, row.scope)
        query = f"SELECT 1 FROM forgotten WHERE {db.own}scope = ? AND digest = ?"
        if db.execute(query, (scope, fact_digest(row.id))).fetchone() is None:
            data = {name: value for name, value in asdict(row).items() if name != "scope"}
            values[place] = (scope, row.id, pack_json(data))
    numbers = dict(zip(values, db.insert_numbered("facts", "scope, id, data", list(values.values())), strict=True))
    return [numbers.get(place, 0) for place in range(len(rows))]


def add_records(db: Database, rows: Sequence[Record], *, place: str) -> list[int]:
    """Add records, each in place of the record of the same kind and key. `place` names the store in an error."""
    numbers: list[int] = []
    for row in rows:
        key = (scope_number(db, row.scope), row.kind, row.key)
        values = (clamp_time(row.time), pack_json(row.data))
        query = f"SELECT id FROM records WHERE {db.own}scope = ? AND kind = ? AND key = ?"
        known = db.execute(query, key).fetchone()
        if known and row.is_new:
            raise ConflictError(f"another process has recorded {row.kind} {row.key}: try again", path=place)
        if known:
            db.execute(f"UPDATE records SET time = ?, data = ? WHERE {db.own}id = ?", (*values, *known))
            numbers.append(int(known[0]))
        else:
            numbers += db.insert_numbered("records", "scope, kind, key, time, data", [(*key, *values)])
    return numbers


def add_jobs(db: Database, rows: Sequence[Job]) -> list[int]:
    """Add jobs."""
    values = [(scope_number(db, row.scope), row.kind, clamp_time(row.time), pack_json(row.data)) for row in rows]
    return db.insert_numbered("jobs", "scope, kind, time, data", values)
