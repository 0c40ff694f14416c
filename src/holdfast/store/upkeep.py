"""Check a store without changing it and rebuild its index; copy and shrink a SQLite file, while others use it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.errors import EncryptionError, StorageError
from holdfast.index.check import check_index
from holdfast.index.database import Database
from holdfast.index.query import PassageText
from holdfast.index.tables import (
    BLOCK_PASSAGES,
    count_passages,
    index_full_batches,
    mark_rewritten,
    reindex_passages,
)
from holdfast.messages import Message
from holdfast.search.passages import CUTTING, passages
from holdfast.settings.schema import Secret
from holdfast.store.adding import NewMessage, empty_passages, find_ends, insert_passages, update_passages
from holdfast.store.codec import DAMAGE, decode_message, unpack_json, unpack_text
from holdfast.store.connection import (
    COUNTS,
    FOREIGN,
    MIGRATIONS,
    SAVED_TABLES,
    SqliteDatabase,
    connect,
    connect_readonly,
    create_file,
    is_readonly,
    migrate,
    newer_version,
    open_file,
    translate_errors,
    write_transaction,
)
from holdfast.store.cutting import cut, cut_again, window_terms
from holdfast.store.forgetting import scrub
from holdfast.store.rows import TableCache, Tables, read_any_passages

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the number done and the total."""
Extract: TypeAlias = Callable[[Message], str]
"""Returns the searchable text of a message."""

_WAIT: Final = 600.0
_PAGES: Final = 4096
_MESSAGES_PER_READ: Final = 500

_ORPHANS: Final = {
    "passages without their message": "SELECT count(*) FROM passages WHERE alive AND message NOT IN"
    " (SELECT id FROM messages)",
    "vectors without their passage": "SELECT count(*) FROM vectors WHERE passage NOT IN"
    " (SELECT number FROM passages WHERE alive)",
    **{
        f"{table} without their scope": f"SELECT count(*) FROM {table} WHERE scope NOT IN (SELECT id FROM scopes)"
        for table in ("messages", "passages", "facts", "records", "jobs")
    },
}
_NOTES: Final = {
    "passages are cut as an earlier version did: run `holdfast reindex` to find single lines of logs": "SELECT count(*)"
    f" FROM passages WHERE NOT EXISTS (SELECT 1 FROM counters WHERE name = 'cutting' AND value = {CUTTING})",
    "forgotten text may still be in free pages: run `holdfast vacuum`": "SELECT value FROM counters"
    " WHERE name = 'unscrubbed'",
}
_MAX_FAULTS: Final = 20
_CHECKED: Final[tuple[tuple[str, str, str, Callable[[bytes], object]], ...]] = (
    ("message", "id", "body", decode_message),
    ("passage", "number", "text", unpack_text),
    ("fact", "version", "data", unpack_json),
    ("record", "id", "data", unpack_json),
    ("job", "id", "data", unpack_json),
)
"""Columns with a checksum: the kind of row, its number, the column, and its decoder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The result of a check.

    Attributes:
        path: The file or address.
        counts: How many rows there are, by kind.
        damage: What is broken in the archive. `repair` keeps the rest.
        index: What is wrong with the index. `reindex` builds it again, and nothing is lost.
        warnings: What is worth knowing, though nothing is broken.
    """

    path: Path | str
    counts: dict[str, int]
    damage: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage and not self.index


def check(path: Path, *, key: Secret | None = None, is_thorough: bool = True) -> Health:
    """Check the file's structure, every row, and whether the index matches the rows.

    A database of another program or of a newer version is refused with a StorageError.
    Without `is_thorough`, only what takes no longer for a large store: whether it opens, its schema, and its counters.
    """
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    structure: tuple[str, ...] = ()
    try:
        with translate_errors(path), ExitStack() as opened:
            # Not `connect`, which sets up the log and changes the file: a check changes nothing.
            if is_readonly(path):
                connection = opened.enter_context(closing(connect_readonly(path, key=key)))
            else:
                connection = opened.enter_context(closing(open_file(path, key=key, timeout=60)))
            connection.execute("PRAGMA query_only = ON")
            if is_thorough:
                faults = connection.execute(f"PRAGMA integrity_check({_MAX_FAULTS})")
                structure = tuple(text for (text,) in faults if text != "ok")
            version = _count(connection, "PRAGMA user_version")
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if 0 < version <= len(MIGRATIONS):
                return _check_rows(connection, path=path, structure=structure, is_thorough=is_thorough)
    except EncryptionError:
        raise
    except StorageError as error:
        return Health(path=path, counts={}, damage=structure or (str(error),))
    if structure:  # then the version may be what is damaged
        return Health(path=path, counts={}, damage=structure)
    if version:
        raise newer_version(version, path=path)
    if not tables:
        return Health(path=path, counts={})
    if not tables.issuperset(SAVED_TABLES):
        raise StorageError(f"{FOREIGN}. Choose another file.", path=path)
    return Health(path=path, counts={}, damage=("the header is not that of a Holdfast store",))


def _check_rows(connection: SqliteDatabase, *, path: Path, structure: Sequence[str], is_thorough: bool) -> Health:
    """Check the rows and the index of a store. `structure` is what is wrong with its pages."""
    connection.execute("BEGIN")
    health = Health(
        path=path,
        counts={name: _count(connection, query) for name, query in COUNTS.items()},
        warnings=tuple(note for note, query in _NOTES.items() if _count(connection, query)),
    )
    if not is_thorough:
        return health
    orphans: list[str] = []
    for what, query in _ORPHANS.items():
        found = _count(connection, query)
        if found:
            orphans.append(f"{found} {what}")
    damage = (*structure, *list_unreadable(connection), *orphans)
    return replace(health, damage=damage, index=tuple(check_index(connection)))


def _count(db: Database, query: str) -> int:
    return int(db.execute(query).fetchone()[0])


def list_unreadable(db: Database) -> list[str]:
    """List the rows that cannot be read."""
    found: list[str] = []
    for kind, key, column, read in _CHECKED:
        query = f"SELECT {key}, {column} FROM {kind}s WHERE {db.own}{column} IS NOT NULL ORDER BY {key}"
        for number, data in db.execute(query):
            try:
                read(data)
            except DAMAGE:
                found.append(f"{kind} {number} cannot be read{_describe_owner(db, kind, key, number)}")
    return found


def _describe_owner(db: Database, kind: str, key: str, number: int) -> str:
    """Return the session that a row belongs to, and what it is if the kind of row does not say it."""
    what = "''"
    if kind in {"record", "job"}:
        what = "kind || ' of '"
    query = f"SELECT {what}, scope FROM {kind}s WHERE {db.own}{key} = ?"
    for name, scope in db.execute(query, (number,)):
        for (session,) in db.execute(f"SELECT session FROM scopes WHERE {db.own}id = ?", (scope,)):
            if not session:
                return f" ({name}no session)"
            return f" ({name}session {session})"
    return ""


# --- changing a store ------------------------------------------------------------------


@contextmanager
def _open_store(path: Path, *, key: Secret | None) -> Iterator[SqliteDatabase]:
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    with closing(connect(path, wait=_WAIT, key=key)) as connection, translate_errors(path):
        migrate(connection, path=path)
        yield connection


def reindex(
    path: Path, *, key: Secret | None = None, extract: Extract | None = None, progress: Progress | None = None
) -> int:
    """Rebuild the index of a file; return the number of passages.

    Searches use the old index until the new one is complete, writers wait. For `extract` see `reindex_tables`.
    """
    with _open_store(path, key=key) as connection, write_transaction(connection):
        return reindex_tables(connection, place=str(path), extract=extract, progress=progress)


def reindex_tables(db: Tables, *, place: str, extract: Extract | None = None, progress: Progress | None = None) -> int:
    """Rebuild the keyword index, in the caller's transaction; return the number of passages.

    Passages are divided into windows again. With `extract`, which returns the searchable text of a message, they are
    also cut from the messages again. Vectors stay, except those of passages that have changed.
    """
    for table in ("pending", "runs", "postings", "blocks"):
        db.execute(f"DELETE FROM {table} WHERE {db.own}true")
    db.cache = TableCache()  # its gaps are then those of these tables
    if extract is not None:
        _cut_messages(db, extract)
    total = count_passages(db)
    for first in range(0, total, BLOCK_PASSAGES):
        stop = min(first + BLOCK_PASSAGES, total)
        query = f"SELECT number FROM passages WHERE {db.own}number >= ? AND number < ? AND alive = 1"
        alive = [number for (number,) in db.execute(query, (first, stop))]
        found = read_any_passages(db, alive)
        if db.cache.gaps:
            gap = next(iter(db.cache.gaps))
            raise StorageError(f"{gap}. Nothing was changed.", path=place)
        divided: list[PassageText] = []
        changed: list[int] = []
        for old in found:
            new = cut_again(old)
            if new.windows != old.windows:
                changed.append(new.number - db.first_passage)
            divided.append(replace(new, terms=window_terms(new)))
        db.drop_vectors(changed)
        reindex_passages(db, divided)
        index_full_batches(db, stop=stop)
        if progress is not None:
            progress(stop, total)
    db.execute(f"DELETE FROM counters WHERE {db.own}name = 'cutting'")
    db.insert("counters", "name, value", [("cutting", CUTTING)])
    mark_rewritten(db)
    return total


def _cut_messages(db: Tables, extract: Extract) -> None:
    """Replace the passages of messages whose searchable text is another one by the present rules."""
    query = f"SELECT id, scope, body FROM messages WHERE {db.own}id > ? ORDER BY id LIMIT {_MESSAGES_PER_READ}"
    last = 0
    while rows := db.execute(query, (last,)).fetchall():
        last = rows[-1][0]
        stored = _read_passages_of(db, [number for number, _, _ in rows])
        for number, scope, body in rows:
            try:
                message = decode_message(body)
            except DAMAGE:  # its passages are reported as a gap
                continue
            text = extract(message)
            old = stored.get(number, [])
            present = [(one.start, text[one.start : one.stop]) for one in passages(text)]
            if present != [(one.start, one.text) for one in old]:
                new = cut(text, speaker=message.name or "")
                _replace_passages(db, NewMessage(number=number, scope=scope, message=message, passages=new), old)


def _read_passages_of(db: Tables, messages: Sequence[int]) -> dict[int, list[PassageText]]:
    """Read the passages of messages, by the number of the message."""
    wanted, values = db.among("message", messages)
    numbers = [
        number for (number,) in db.execute(f"SELECT number FROM passages WHERE {db.own}alive = 1 AND {wanted}", values)
    ]
    found: dict[int, list[PassageText]] = {}
    for passage in read_any_passages(db, numbers):
        found.setdefault(passage.message, []).append(passage)
    return found


def _replace_passages(db: Tables, message: NewMessage, old: Sequence[PassageText]) -> None:
    """Replace the passages of a message, in their places as far as there are any: they lie between their neighbours."""
    numbers = [passage.number - db.first_passage for passage in old]
    new = message.passages
    db.drop_vectors(numbers)
    update_passages(db, message.message, dict(zip(numbers, new, strict=False)))
    if len(new) < len(old):
        empty_passages(db, numbers[len(new) :])
    if len(new) > len(old):
        ends = find_ends(db, [message.scope])
        rest = replace(message, passages=new[len(old) :])
        insert_passages(db, [rest], ends, first=int(ends.next.fetchone()[0]))


def backup(path: Path, target: Path, *, key: Secret | None = None) -> None:
    """Copy a store to a new file that only its owner can read, while others write. It has the same key."""
    part = target.with_name(f"{target.name}.part")
    with _open_store(path, key=key) as connection, translate_errors(target):
        try:
            if target.exists():
                raise StorageError("is there already. Choose another name for the copy.", path=target)
            part.unlink(missing_ok=True)
            create_file(part, key=key)
        except OSError as error:
            raise StorageError(f"could not be made: {error.strerror}. Choose another place.", path=target) from error
        try:
            with closing(open_file(part, key=key)) as copy:
                # One state of the store is read throughout; otherwise each write by others would start the copy over.
                connection.execute("BEGIN")
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                connection.backup(copy, pages=_PAGES)
                connection.execute("COMMIT")
                copy.execute("PRAGMA journal_mode = DELETE")
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)  # of a failed copy


def vacuum(path: Path, *, key: Secret | None = None) -> tuple[int, int]:
    """Rewrite the file without free pages and deleted text; return its size before and after."""
    with _open_store(path, key=key) as connection:
        before = _size(connection)
        scrub(connection, path=path)
        return before, _size(connection)


def _size(connection: sqlite3.Connection) -> int:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (size,) = connection.execute("PRAGMA page_size").fetchone()
    return int(pages) * int(size)
