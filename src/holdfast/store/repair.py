"""Repair a damaged SQLite store: copy every intact row to a new file.

The damaged file is kept, so that a repair loses nothing. Vectors are made again afterwards.

SQLite finds a row by the path of pages that leads to it, and stops if one of them is broken. The rows themselves are on
leaf pages. So SQLite is given each leaf page of a copy as a table of its own, and rows are recognised by the types of
their values. Simpler ways were tried on a store of 4,000 messages on 376 pages. Messages recovered, on average:

    damage                        leaf pages   ranges of row ids
    one random page, 60 times     3,992        3,925 (once 0)
    four random pages, 30 times   3,954        3,952
    the first page                4,000        0
    the root page of messages     4,000        0
    the second half is missing    2,637        0
    the first half is zeros       1,363        0

`.recover` of the `sqlite3` program reads leaf pages too, but it cannot be relied on: the program that Debian and Ubuntu
ship is built without what it needs, and no package for Python has it.

An encrypted file is read by ranges of row ids: SQLCipher has no way to read a page alone.
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from holdfast.errors import StorageError
from holdfast.files import sync_folder
from holdfast.messages import Message
from holdfast.settings.schema import Secret
from holdfast.store.adding import NewMessage, add_passages, find_ends
from holdfast.store.base import PassageText, Store
from holdfast.store.codec import DAMAGE, Value, decode_message, unpack_json
from holdfast.store.connection import (
    FOREIGN,
    SAVED_TABLES,
    connect,
    explain_encryption,
    is_error,
    is_store_file,
    list_errors,
    migrate,
    open_file,
    translate_errors,
    write_transaction,
)
from holdfast.store.cutting import plain_cut
from holdfast.store.forgetting import REPAIR_COPY, REPAIR_FOLDER, delete_copies, unfinished_copies
from holdfast.store.sqlite import SqliteStore
from holdfast.text import plural

Cut: TypeAlias = Callable[[Message], Sequence[PassageText]]
"""Divides a message into the passages that can be found."""
Cutter: TypeAlias = Callable[[Store], Cut]
"""Builds a `Cut` from a store that has the recovered rows, but no passages yet."""

_SHAPES: Final[dict[tuple[type, ...], str]] = {
    (str, str, str, str): "scopes",
    (int, bytes, bytes, int, bytes): "messages",
    (int, str, bytes): "facts",
    (int, str, str, int, bytes): "records",
    (int, str, int, bytes): "jobs",
}
"""Tables by the types of their values, without the number in front."""
_SCOPED_TABLES: Final = ("messages", "facts", "records", "jobs")
_LISTED: Final = (
    "SELECT 'records', id, kind FROM records INDEXED BY records_in_order",
    "SELECT 'jobs', id, kind FROM jobs INDEXED BY jobs_of_kind",
)
"""Lists of rows by index. The numbers do not show which are missing: a row that is done with is deleted."""
_DIGEST_BYTES: Final = 16
_RECOVERED: Final = "recovered"
"""The tenant of rows whose scope is lost."""

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_PAGE_SIZES: Final = {2**power for power in range(9, 16)}
_DEFAULT_PAGE_SIZE: Final = 4096
_PAGES_AT_ONCE: Final = 500
_COLUMNS: Final = "c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10"
_TABLE: Final = f"CREATE TABLE p{{}}({_COLUMNS})"
_INDEX: Final = f"CREATE TABLE p{{}}({_COLUMNS}, PRIMARY KEY(c0, c1)) WITHOUT ROWID"
_PAGE_KINDS: Final = {b"\x0d": _TABLE, b"\x0a": _INDEX, b"\x02": _INDEX}
"""The table that reads a page, by its first byte: a leaf of a table, a leaf or an inner page of an index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair, and the copy of the damaged file.

    `kept` counts the rows of each table; `lost` lists what could not be read or is missing; `unscoped` are rows whose
    scope was lost: they are in the tenant `recovered`.
    """

    path: Path
    damaged: Path
    kept: dict[str, int]
    lost: tuple[str, ...]
    unscoped: int

    @property
    def summary(self) -> str:
        """The result in a sentence or two."""
        kept = ", ".join(f"{count} {name}" for name, count in self.kept.items())
        summary = f"repaired, the damaged file is {self.damaged.name}. Saved: {kept}"
        if self.lost:
            summary += f". Lost: {'; '.join(self.lost)}"
        if self.unscoped:
            summary += f"; {self.unscoped} rows have lost their scope: see tenant {_RECOVERED!r}"
        return summary


class _RecoveredRows:
    """The rows that were found in a damaged file.

    Attributes:
        tables: Rows by table and number, without the number.
        forgotten: The rows of the table `forgotten`.
        last_numbers: The last number that each table has given.
        lost: Descriptions of what cannot be read.
        explained: The numbers of rows of each table that are unreadable or forgotten.
        listed: The kinds of the records and jobs that their indexes list, by table and number.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, list[Value]]] = {name: {} for name in SAVED_TABLES}
        self.forgotten: set[tuple[int, bytes, bytes | None, bytes | None]] = set()
        self.last_numbers: dict[str, int] = {}
        self.lost: list[str] = []
        self.explained: dict[str, set[int]] = {name: set() for name in SAVED_TABLES}
        self.listed: dict[str, dict[int, str]] = {"records": {}, "jobs": {}}

    def read(self, rows: Iterable[tuple[int | None, list[Value]]]) -> None:
        """Add rows, whatever table they are in."""
        for number, values in rows:
            match values:
                case [int(scope), bytes(digest), *more] if number is None:
                    self._add_forgotten(scope, digest, more)
                case [None, int(message), int(), int(), int(), int(), bytes(), 0, int(), bytes()]:
                    self.explained["messages"].add(message)  # a passage of a forgotten message
                case [None, *rest] if number is not None:
                    self._add(number, rest)
                case [str(name), int(last)] if name in SAVED_TABLES:
                    self.last_numbers[name] = last
                case [str(name), int(listed), str(kind)] if number is None and name in self.listed:
                    self.listed[name][listed] = kind

    def _add_forgotten(self, scope: int, digest: bytes, more: Sequence[Value]) -> None:
        words = more[0] if len(more) > 0 and isinstance(more[0], bytes) else None
        nonce = more[1] if len(more) > 1 and isinstance(more[1], bytes) else None
        # An entry of the index on `words` has no nonce, and is left out. A row of version 0.1 has neither.
        if len(digest) == _DIGEST_BYTES and (words is None) == (nonce is None):
            self.forgotten.add((scope, digest, words, nonce))

    def _add(self, number: int, values: list[Value]) -> None:
        """Add a row to the table that it looks like, if its data can be read."""
        name = _SHAPES.get(tuple(type(value) for value in values))
        if name is None:
            return
        data = values[-1]
        try:
            if name == "messages":
                assert isinstance(data, bytes)
                decode_message(data)
            elif name != "scopes":
                assert isinstance(data, bytes)
                unpack_json(data)
        except DAMAGE:
            self.lost.append(f"{name.removesuffix('s')} {number} cannot be read")
            self.explained[name].add(number)
            return
        self.tables[name][number] = values

    def is_empty(self) -> bool:
        """Return whether no row was found. Scopes do not count: any four texts look like one."""
        return not any(self.tables[name] for name in _SCOPED_TABLES)

    def list_lost(self) -> tuple[str, ...]:
        """Return what cannot be read, which messages and facts are missing, and how many records and jobs."""
        return (*self.lost, *self._describe_gaps(), *self._count_missing())

    def _count_missing(self) -> Iterator[str]:
        """Count the records and jobs of each kind that an index lists and that were not found."""
        for name, kinds in self.listed.items():
            known = self.explained[name].union(self.tables[name])
            missing = Counter(kind for number, kind in kinds.items() if number not in known)
            if missing:
                each = ", ".join(f"{count} {kind}" for kind, count in missing.most_common())
                yield f"{plural(missing.total(), name.removesuffix('s'))} ({each})"

    def _describe_gaps(self) -> list[str]:
        """Return which numbers have no message and no fact, as ranges in one sentence for each."""
        missing: list[str] = []
        for name in ("messages", "facts"):
            known = self.explained[name].union(self.tables[name])
            ranges = _list_gaps(known, last=max(self.last_numbers.get(name, 0), *known, 0))
            if ranges:
                numbers = ", ".join(ranges)
                missing.append(f"the {name} with these numbers, unless they were forgotten before: {numbers}")
        return missing

    def count_unscoped(self) -> int:
        """Count the rows whose scope is lost."""
        count = 0
        for name in _SCOPED_TABLES:
            for scope, *_ in self.tables[name].values():
                if scope not in self.tables["scopes"]:
                    count += 1
        return count

    def write(self, part: Path, *, key: Secret | None) -> None:
        """Write the rows to a new store, which has no passages yet."""
        part.unlink(missing_ok=True)
        with translate_errors(part), closing(connect(part, wait=0, key=key)) as connection:
            migrate(connection, path=part)
            with write_transaction(connection):
                scopes = self._write_scopes(connection)
                for name in _SCOPED_TABLES:
                    for number, (scope, *values) in sorted(self.tables[name].items()):
                        _insert(connection, name, (number, scopes[scope], *values))
                for scope, *kept in self.forgotten:
                    insert = "INSERT OR IGNORE INTO forgotten VALUES (?, ?, ?, ?)"
                    connection.execute(insert, (scopes.get(scope, scope), *kept))
                for name, last in self.last_numbers.items():
                    update = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
                    connection.execute(update, (last, name))

    def _write_scopes(self, connection: sqlite3.Connection) -> dict[Value, int]:
        """Write the scopes, numbered without gaps; return the new numbers by the old ones.

        A lost scope gets a new name in the tenant `recovered`, so that no other reader sees its rows.
        """
        known = self.tables["scopes"]
        used: set[Value] = set()
        for name in _SCOPED_TABLES:
            used.update(scope for scope, *_ in self.tables[name].values())
        lost = used.difference(known)
        numbers: dict[Value, int] = {}
        for old in sorted(known):
            numbers[old] = len(numbers)
            _insert(connection, "scopes", (numbers[old], *known[old]))
        for missing in sorted(lost, key=str):
            number = len(numbers)
            numbers[missing] = number
            _insert(connection, "scopes", (number, _RECOVERED, "", "main", f"{_RECOVERED} {number}"))
        return numbers


def _list_gaps(known: Collection[int], *, last: int) -> list[str]:
    """Return the numbers from 1 to the last one that are not known, as ranges."""
    gaps: list[str] = []
    for before, after in pairwise(sorted({0, *known, last + 1})):
        if after - before == 2:  # noqa: PLR2004 - one number is missing
            gaps.append(str(before + 1))
        elif after - before > 1:
            gaps.append(f"{before + 1}-{after - 1}")
    return gaps


def repair(
    path: Path, *, key: Secret | None = None, cutter: Cutter = lambda _: plain_cut, stamp: str | None = None
) -> Repaired:
    """Copy every intact row to a new file that replaces the old one, which is kept as `<name>.damaged.<stamp>`.

    `cutter` gets the store without its index and returns the function that divides a message into passages; the index
    is rebuilt with it. The stamp is the time unless one is given. No other process may have the store open. If there is
    no such file, or no room for the new one, the old one is untouched, and so is a file of another program. What killed
    repairs have left is deleted.
    """
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    path = path.resolve()  # the file is replaced, not a link to it; and its log is next to it
    if stamp is None:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    if key is None:
        refusal = explain_encryption(path, has_key=False)
        if refusal is not None:  # else all of its pages would be taken for damaged ones
            raise refusal
    part = path.with_name(f"{path.name}.repaired.{stamp}")
    damaged = path.with_name(f"{path.name}.damaged.{stamp}")
    try:
        if _is_foreign(path):  # some of its rows may look like ours
            raise StorageError(f"{FOREIGN}, which is left as it is. Choose another file.", path=path)
        rows = _recover(path, key=key)
        if rows.is_empty() and _has_content(path) and not is_store_file(path):
            raise StorageError(
                "nothing in this file is from a Holdfast store, so it is left as it is. Choose another file, or move it"
                " away to begin a new store.",
                path=path,
            )
        rows.write(part, key=key)
        _rebuild_index(part, cutter, key=key)
        _replace(path, part, damaged)
        delete_copies(unfinished_copies(path))  # of earlier repairs
    except OSError as error:
        raise StorageError(f"could not be repaired: {error.strerror}. Nothing was changed.", path=path) from error
    return Repaired(
        path=path,
        damaged=damaged,
        kept={name: len(rows.tables[name]) for name in _SCOPED_TABLES},
        lost=rows.list_lost(),
        unscoped=rows.count_unscoped(),
    )


def list_lost(path: Path, *, key: Secret | None = None) -> tuple[str, ...]:
    """Return what a repair of a damaged file could not save; nothing if there is no room for a copy to read."""
    try:
        return _recover(path.resolve(), key=key).list_lost()
    except OSError:
        return ()


def _recover(path: Path, *, key: Secret | None) -> _RecoveredRows:
    """Read every intact row of a file."""
    rows = _RecoveredRows()
    with translate_errors(path):
        if key is None:
            rows.read(recover_rows(path))
        else:
            rows.read(recover_encrypted_rows(path, key=key))
    return rows


def _is_foreign(path: Path) -> bool:
    """Return whether a file, with its log, is an intact database of another program.

    One that cannot be read may be ours, and so may one without our mark: the mark may be what is damaged.
    """
    with path.open("rb") as file:
        is_database = file.read(len(_MAGIC)) == _MAGIC
    if not is_database or is_store_file(path):
        return False
    with TemporaryDirectory(dir=path.parent, prefix=REPAIR_FOLDER) as folder:
        copy = Path(folder) / REPAIR_COPY
        _copy_pages(path, copy)
        with closing(sqlite3.connect(copy)) as connection:
            try:
                tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            except sqlite3.DatabaseError:
                return False
    return bool(tables) and not tables.issuperset(SAVED_TABLES)


def _has_content(path: Path) -> bool:
    """Return whether a file or its log has any bytes."""
    log = path.with_name(f"{path.name}-wal")
    return path.stat().st_size > 0 or (log.exists() and log.stat().st_size > 0)


def _rebuild_index(part: Path, cutter: Cutter, *, key: Secret | None) -> None:
    """Divide all messages into passages, and index them."""
    with SqliteStore(part, key=key) as store:
        cut = cutter(store)
    with translate_errors(part), closing(connect(part, wait=0, key=key)) as connection:
        with write_transaction(connection):
            for number, scope, body in connection.execute("SELECT id, scope, body FROM messages ORDER BY id"):
                message = decode_message(body)
                added = NewMessage(number=number, scope=scope, message=message, passages=cut(message))
                add_passages(connection, [added], find_ends(connection, [scope]))
        connection.execute("PRAGMA journal_mode = DELETE")  # no log: only the file is moved


def _replace(path: Path, part: Path, damaged: Path) -> None:
    """Put the new file in place of the old one, after a copy of the old one and its log is safe."""
    log = path.with_name(f"{path.name}-wal")
    for old, copy in ((path, damaged), (log, damaged.with_name(f"{damaged.name}-wal"))):
        if old.exists():
            shutil.copyfile(old, copy)
            copy.chmod(0o600)
    sync_folder(damaged.parent)
    for stale in (log, path.with_name(f"{path.name}-shm")):  # a log belongs to its file, not to the new one
        stale.unlink(missing_ok=True)
    part.replace(path)
    sync_folder(path.parent)


# --- reading leaf pages ---------------------------------------------------------------------


def recover_rows(path: Path) -> Iterator[tuple[int | None, list[Value]]]:
    """Yield the number (None in a table without) and the values of every row, up to the last that is not NULL.

    Rows on freed pages are left out, and so are those on broken leaf pages of the database and its log. What an index
    lists of records and jobs comes first, as far as it can be read: the table, number and kind of each.
    """
    with TemporaryDirectory(dir=path.parent, prefix=REPAIR_FOLDER) as folder:
        copy = Path(folder) / REPAIR_COPY
        page_size = _copy_pages(path, copy)
        for query in _LISTED:
            for row in _read_until_error(copy, query):
                yield None, row
        free = _free_pages(copy, page_size)
        _replace_first_page(copy, page_size)
        pages = [page for page in _find_leaves(copy, page_size) if page[0] not in free]
        for start in range(0, len(pages), _PAGES_AT_ONCE):
            yield from _read_leaves(copy, pages[start : start + _PAGES_AT_ONCE])


def _read_until_error(copy: Path, query: str) -> list[list[Value]]:
    """Read rows up to the first broken page."""
    rows: list[list[Value]] = []
    with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(copy)) as connection:
        for row in connection.execute(query):
            rows.append(list(row))
    return rows


def _find_leaves(copy: Path, page_size: int) -> Iterator[tuple[int, str]]:
    """Yield the number of each page that has rows, and the statement that creates a table of its kind."""
    with copy.open("rb") as file:
        for number in range(2, copy.stat().st_size // page_size + 1):
            file.seek((number - 1) * page_size)
            statement = _PAGE_KINDS.get(file.read(1))
            if statement is not None:
                yield number, statement


def _read_leaves(copy: Path, pages: Sequence[tuple[int, str]]) -> Iterator[tuple[int | None, list[Value]]]:
    """Make each page the only page of a table of its own, and read the tables."""
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("BEGIN")
        connection.execute("DELETE FROM sqlite_master")
        for number, statement in pages:
            values = (f"p{number}", f"p{number}", number, statement.format(number))
            connection.execute("INSERT INTO sqlite_master VALUES ('table', ?, ?, ?, ?)", values)
        connection.execute("COMMIT")
    with closing(sqlite3.connect(copy)) as connection:  # a new connection reads the new schema
        connection.text_factory = _decode_text
        for number, statement in pages:
            key = "rowid"
            if statement is _INDEX:  # its rows have no number
                key = "NULL"
            with suppress(sqlite3.DatabaseError):  # the page is broken from here on
                for row_number, *values in connection.execute(f"SELECT {key}, * FROM p{number}"):
                    while values and values[-1] is None:
                        values.pop()
                    yield row_number, values


def _decode_text(data: bytes) -> str | None:
    """Decode text; None for damaged text, so that its row is not recognised."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _copy_pages(path: Path, copy: Path) -> int:
    """Copy a database with the pages of its log; return the size of a page."""
    shutil.copyfile(path, copy)
    with copy.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    has_header = len(header) == _HEADER_BYTES and header.startswith(_MAGIC)
    page_size = _DEFAULT_PAGE_SIZE
    if has_header:
        page_size = _read_page_size(header)
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        copied_log = copy.with_name(f"{copy.name}-wal")
        shutil.copyfile(log, copied_log)
        if not has_header:
            _replace_first_page(copy, page_size)  # else SQLite would not look at the log
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copied_log.unlink(missing_ok=True)
    return page_size


def _read_page_size(header: bytes) -> int:
    size = int.from_bytes(header[16:18], "big")
    if size == 1:  # 65,536 does not fit into two bytes
        return 65536
    if size not in _PAGE_SIZES:
        return _DEFAULT_PAGE_SIZE
    return size


def _replace_first_page(copy: Path, page_size: int) -> None:
    """Give a database a valid first page without any tables, and whole pages only."""
    empty = copy.with_name("empty.db")
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute(f"PRAGMA page_size = {page_size}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("VACUUM")
    page = bytearray(empty.read_bytes()[:page_size])
    empty.unlink()
    count = max(1, copy.stat().st_size // page_size)
    page[28:32] = count.to_bytes(4, "big")
    with copy.open("r+b") as file:
        file.write(page)
        file.truncate(count * page_size)


def _free_pages(path: Path, page_size: int) -> set[int]:
    """Return the pages of the free list, whose rows were deleted: a chain of pages, each with the numbers of others."""
    free: set[int] = set()
    last = path.stat().st_size // page_size
    with path.open("rb") as file:
        file.seek(32)
        trunk = int.from_bytes(file.read(4), "big")
        while trunk and trunk not in free and trunk <= last:
            free.add(trunk)
            file.seek((trunk - 1) * page_size)
            trunk, count, *pages = struct.unpack(f">{page_size // 4}I", file.read(page_size))
            free.update(pages[:count])
    return free


def _insert(connection: sqlite3.Connection, name: str, values: Sequence[Value]) -> None:
    connection.execute(f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * len(values))})", values)


# --- reading an encrypted file --------------------------------------------------------------


def recover_encrypted_rows(path: Path, *, key: Secret) -> Iterator[tuple[int | None, list[Value]]]:
    """Yield the rows of an encrypted store as `recover_rows` does, table by table: leaf pages cannot be read alone.

    A page of which one bit has changed cannot be decrypted, so that all of its rows are lost. Without the pages that
    list the tables nothing can be read.
    """
    with translate_errors(path), closing(open_file(path, key=key)) as connection:
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except list_errors() as error:
            if is_error(error, "SQLITE_NOTADB"):
                raise
            raise StorageError(
                "the pages that list its tables are damaged, and an encrypted store cannot be read without them."
                " Restore a backup.",
                path=path,
            ) from error
    file = _EncryptedFile(path, key)
    for name in SAVED_TABLES:
        for number, *values in file.read(name):
            assert isinstance(number, int)
            yield number, [None, *values]
    for query in _LISTED:
        for row in file.read_until_error(query):
            yield None, row
    for row in file.read_until_error("SELECT name, seq FROM sqlite_sequence"):
        yield 0, row
    for row in file.read_until_error("SELECT * FROM forgotten"):
        yield None, row


@dataclass(frozen=True, slots=True)
class _EncryptedFile:
    """A damaged file whose pages can be decrypted one by one, if they are intact."""

    path: Path
    key: Secret

    def read_until_error(self, query: str, *values: int) -> list[list[Value]]:
        """Read rows up to the first page that cannot be decrypted, over a new connection: it stays broken then."""
        rows: list[list[Value]] = []
        with suppress(*list_errors()), closing(open_file(self.path, key=self.key)) as connection:
            connection.text_factory = _decode_text
            for row in connection.execute(query, values):
                rows.append(list(row))
        return rows

    def read(self, name: str) -> Iterator[list[Value]]:
        """Yield the rows of a table: from both ends up to a broken page, then those between two broken pages."""
        number = "id"
        if name == "facts":
            number = "version"
        before = self.read_until_error(f"SELECT * FROM {name} ORDER BY {number}")
        yield from before
        after = self.read_until_error(f"SELECT * FROM {name} ORDER BY {number} DESC")
        first: Value = -1
        if before:
            first = before[-1][0]
        last: Value = -1
        if after:
            last = after[-1][0]
        if isinstance(first, int) and isinstance(last, int) and first < last:
            yield from after
            yield from self._read_between(f"SELECT * FROM {name} WHERE {number} BETWEEN ? AND ?", first + 1, last - 1)

    def _read_between(self, query: str, first: int, last: int) -> Iterator[list[Value]]:
        """Yield the rows in a range of numbers; one that cannot be read to its end is divided."""
        if first > last:
            return
        if first == last:
            yield from self.read_until_error(query, first, last)
            return
        middle = (first + last) // 2
        for start, stop in ((first, middle), (middle + 1, last)):
            with closing(open_file(self.path, key=self.key)) as connection:
                connection.text_factory = _decode_text
                try:
                    rows = connection.execute(query, (start, stop)).fetchall()
                except list_errors():
                    rows = None
            if rows is None:
                yield from self._read_between(query, start, stop)
            else:
                yield from map(list, rows)
