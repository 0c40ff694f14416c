"""Add rows to a store with tables, inside the transaction of the caller."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from holdfast.errors import ConflictError
from holdfast.index.database import Database, Rows
from holdfast.index.query import PassageText
from holdfast.index.scopes import scope_number
from holdfast.messages import Message
from holdfast.store.base import FactRow, Job, MessageRow, Record, Scope, Select
from holdfast.store.codec import clamp_time, encode_message, pack_json, pack_text, text_bytes, words
from holdfast.store.rows import DIGESTS_PER_STATEMENT, EXCLUDED, PINNED, where

_MessageKey: TypeAlias = tuple[int, bytes, bytes]
"""The number of the scope, the digest and the nonce: what identifies a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message that was just stored: the numbers of itself and of its scope, and its passages, which are not yet."""

    number: int
    scope: int
    message: Message
    passages: Sequence[PassageText]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageEnds:
    """Where new passages continue: `next` selects the next number, `latest` the last passage of each scope."""

    next: Rows
    latest: Mapping[int, Rows]


# --- messages -----------------------------------------------------------------------------


def add_messages(db: Database, rows: Sequence[MessageRow], *, numbers_of: Sequence[int] = ()) -> list[int]:
    """Add messages with their passages; return the number of each.

    `numbers_of` are the numbers that new messages get, one for each row; by default the database gives them. A message
    that is stored already keeps its number; the number of a forgotten one is 0.
    """
    scopes: dict[Scope, int] = {}
    for row in rows:
        if row.scope not in scopes:
            scopes[row.scope] = scope_number(db, row.scope)
    keys = [(scopes[row.scope], bytes.fromhex(row.message.digest), text_bytes(row.nonce)) for row in rows]
    ends = find_ends(db, scopes.values())  # asked for early: a server answers in one round trip
    numbers = _find_numbers(db, keys)
    new: dict[_MessageKey, MessageRow] = {}
    for key, row in zip(keys, rows, strict=True):
        if key not in numbers and key not in new:
            new[key] = row
    reserved: dict[_MessageKey, int] = {}
    if numbers_of:
        for key, number in zip(keys, numbers_of, strict=True):
            reserved.setdefault(key, number)
    numbers.update(_insert_messages(db, new, reserved))
    if new:
        added: list[NewMessage] = []
        for key, row in new.items():
            number = numbers[key]
            added.append(NewMessage(number=number, scope=key[0], message=row.message, passages=row.passages))
        add_passages(db, added, ends)
    return [numbers[key] for key in keys]


def _insert_messages(
    db: Database, new: Mapping[_MessageKey, MessageRow], reserved: Mapping[_MessageKey, int]
) -> dict[_MessageKey, int]:
    """Insert messages with their reserved numbers, or with the next ones; return the numbers."""
    values: list[tuple[object, ...]] = []
    for key, row in new.items():
        flags = 0
        if row.pinned:
            flags |= PINNED
        if row.excluded:
            flags |= EXCLUDED
        values.append((*key, flags, encode_message(row.message)))
    columns = "scope, digest, nonce, flags, body"
    if not reserved:
        numbers = db.insert_numbered("messages", columns, values)
    else:
        numbers = [reserved[key] for key in new]
        with_numbers = [(number, *value) for number, value in zip(numbers, values, strict=True)]
        db.insert("messages", f"id, {columns}", with_numbers)
    return dict(zip(new, numbers, strict=True))


def _find_numbers(db: Database, keys: Sequence[_MessageKey]) -> dict[_MessageKey, int]:
    """Return the numbers of the messages that are stored; 0 for a forgotten one."""
    found: dict[_MessageKey, int] = {}
    for start in range(0, len(keys), DIGESTS_PER_STATEMENT):
        some = keys[start : start + DIGESTS_PER_STATEMENT]
        for scope in {key[0] for key in some}:
            _find_numbers_in(db, scope, [key for key in some if key[0] == scope], found)
    return found


def _find_numbers_in(db: Database, scope: int, keys: Sequence[_MessageKey], found: dict[_MessageKey, int]) -> None:
    """Add the numbers of stored and forgotten messages of one scope to `found`."""
    kept_digests = {key: message_digest(key[1], key[2]) for key in keys}
    digests = {key[1] for key in keys}
    condition, values = db.among("digest", list(digests))
    query = f"SELECT digest, nonce, id FROM messages WHERE {db.own}scope = ? AND {condition}"
    stored = db.execute(query, [scope, *values])
    # Version 0.1 kept the digest of the words alone of a forgotten message: what was forgotten then stays out.
    condition, values = db.among("digest", list({*kept_digests.values(), *digests}))
    query = f"SELECT digest FROM forgotten WHERE {db.own}scope = ? AND {condition}"
    forgotten = {bytes(digest) for (digest,) in db.execute(query, [scope, *values])}
    for digest, nonce, number in stored:
        found[scope, bytes(digest), bytes(nonce)] = number
    for key, kept in kept_digests.items():
        if kept in forgotten or key[1] in forgotten:
            found[key] = 0


def set_flags(db: Database, select: Select, *, pinned: bool | None, excluded: bool | None) -> int:
    """Set the flags of messages that are not None; return the number of messages."""
    added = 0
    removed = 0
    for bit, value in ((PINNED, pinned), (EXCLUDED, excluded)):
        if value is True:
            added |= bit
        elif value is False:
            removed |= bit
    condition, values = where(db, "message", select)
    wanted = f"{db.own}id IN (SELECT id FROM messages WHERE {condition})"
    update = f"UPDATE messages SET flags = (flags | ?) & ~? WHERE {wanted} RETURNING id"
    return len(db.execute(update, (added, removed, *values)).fetchall())


# --- passages -----------------------------------------------------------------------------


def find_ends(db: Database, scopes: Iterable[int]) -> PassageEnds:
    """Select the last passages of these scopes, which new passages follow."""
    # Not max(number): before a table is analyzed, PostgreSQL 14 and 15 read all rows for it.
    last = "ORDER BY number DESC LIMIT 1"
    of_scope = f"SELECT coalesce((SELECT number FROM passages WHERE {db.own}scope = ? {last}), -1)"
    of_tenant = f"SELECT coalesce((SELECT number FROM passages WHERE {db.own}true {last}) + 1, 0)"
    latest = {scope: db.execute(of_scope, (scope,)) for scope in scopes}
    return PassageEnds(next=db.execute(of_tenant), latest=latest)


def add_passages(db: Database, new: Sequence[NewMessage], ends: PassageEnds) -> None:
    """Add the passages of messages, numbered on from the last one, and index them."""
    from holdfast.index.tables import index_passages  # noqa: PLC0415 - messages are read without numpy

    first = int(ends.next.fetchone()[0])
    insert_passages(db, new, ends, first=first)
    passages: list[PassageText] = []
    for one in new:
        passages += one.passages
    index_passages(db, first, passages)


def insert_passages(db: Database, new: Sequence[NewMessage], ends: PassageEnds, *, first: int) -> None:
    """Insert the passages of messages, numbered on from `first`. The caller indexes them."""
    from holdfast.index.tables import encode_windows  # noqa: PLC0415 - messages are read without numpy

    latest = {scope: found.fetchone()[0] for scope, found in ends.latest.items()}
    rows: list[tuple[object, ...]] = []
    for one in new:
        message = one.message
        message_text = ""
        if one.passages:
            message_text = words(message)
        speaker = text_bytes(message.name or message.role)
        time = clamp_time(message.timestamp or 0)
        is_human = int(message.role == "user")
        for passage in one.passages:
            number = first + len(rows)
            windows = encode_windows(passage)
            text = _own_text(passage, message_text)
            previous = latest[one.scope]
            row = (number, one.number, one.scope, time, previous, is_human, speaker, passage.start, windows, text)
            rows.append(row)
            latest[one.scope] = number
    columns = "number, message, scope, time, previous, human, speaker, start, windows, text"
    db.insert("passages", columns, rows)


def update_passages(db: Database, message: Message, changed: Mapping[int, PassageText]) -> None:
    """Give stored passages of a message, by their numbers, another text. The caller indexes them."""
    from holdfast.index.tables import encode_windows  # noqa: PLC0415 - messages are read without numpy

    message_text = words(message)
    update = f"UPDATE passages SET start = ?, windows = ?, text = ? WHERE {db.own}number = ?"
    rows: list[tuple[object, ...]] = []
    for number, passage in changed.items():
        rows.append((passage.start, encode_windows(passage), _own_text(passage, message_text), number))
    db.executemany(update, rows)


def empty_passages(db: Database, numbers: Sequence[int]) -> None:
    """Remove everything but their numbers from passages, which are then in no search."""
    wanted, values = db.among("number", numbers)
    query = f"SELECT number, length(windows) FROM passages WHERE {db.own}{wanted}"
    sizes = db.execute(query, values).fetchall()
    # The windows stay, as numbers without words: those of later passages are counted from them.
    db.executemany(
        "UPDATE passages SET alive = 0, text = NULL, time = 0, human = 0, speaker = ?, start = 0, windows = ?"
        f" WHERE {db.own}number = ?",
        [(b"", bytes(size), number) for number, size in sizes],
    )


def _own_text(passage: PassageText, message_text: str) -> bytes | None:
    """Return the text to store with a passage; None for a part of its message, which most are: it is stored once."""
    ends_with_window = passage.windows[-1][1] == len(passage.text)
    if ends_with_window and message_text.startswith(passage.text, passage.start):
        return None
    return pack_text(passage.text)


# --- facts, records, jobs -----------------------------------------------------------------


def add_facts(db: Database, rows: Sequence[FactRow]) -> list[int]:
    """Add versions of facts; return the number of each, 0 for a forgotten fact."""
    new: list[tuple[object, ...]] = []
    is_new: list[bool] = []
    for row in rows:
        scope = scope_number(db, row.scope)
        query = f"SELECT 1 FROM forgotten WHERE {db.own}scope = ? AND digest = ?"
        is_forgotten = db.execute(query, (scope, fact_digest(row.id))).fetchone() is not None
        is_new.append(not is_forgotten)
        if not is_forgotten:
            data = asdict(row)
            del data["scope"]
            new.append((scope, row.id, pack_json(data)))
    numbers = iter(db.insert_numbered("facts", "scope, id, data", new))
    result: list[int] = []
    for added in is_new:
        if added:
            result.append(next(numbers))
        else:
            result.append(0)
    return result


def add_records(db: Database, rows: Sequence[Record], *, place: str) -> list[int]:
    """Add records, each in place of the record of the same kind and key. `place` names the store in an error."""
    numbers: list[int] = []
    for row in rows:
        key = (scope_number(db, row.scope), row.kind, row.key)
        values = (clamp_time(row.time), pack_json(row.data))
        query = f"SELECT id FROM records WHERE {db.own}scope = ? AND kind = ? AND key = ?"
        known = db.execute(query, key).fetchone()
        if known is None:
            numbers += db.insert_numbered("records", "scope, kind, key, time, data", [(*key, *values)])
            continue
        if row.is_new:
            raise ConflictError(f"another process has recorded {row.kind} {row.key}: try again", path=place)
        (number,) = known
        db.execute(f"UPDATE records SET time = ?, data = ? WHERE {db.own}id = ?", (*values, number))
        numbers.append(int(number))
    return numbers


def add_jobs(db: Database, rows: Sequence[Job]) -> list[int]:
    """Add jobs; return their numbers."""
    values = [(scope_number(db, row.scope), row.kind, clamp_time(row.time), pack_json(row.data)) for row in rows]
    return db.insert_numbered("jobs", "scope, kind, time, data", values)


# --- what is kept of forgotten rows -------------------------------------------------------


def fact_digest(fact: str) -> bytes:
    """Return the digest that is kept of a forgotten fact."""
    return hashlib.sha256(b"fact:" + text_bytes(fact)).digest()[:16]


def message_digest(digest: bytes, nonce: bytes) -> bytes:
    """Return the digest that is kept of a forgotten message: of its words and its nonce."""
    return hashlib.sha256(b"message:" + digest + nonce).digest()[:16]
