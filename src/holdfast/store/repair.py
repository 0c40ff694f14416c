"""Repair a damaged SQLite store: copy every intact row to a new file.

The damaged file is kept, so that a repair loses nothing. Vectors are made again afterwards.

SQLite stops where a page on the way to a row is broken. The rows themselves are in leaf pages, so SQLite is given each
leaf page of a copy as a table of its own, and the rows are recognised by the types of their values. (The `sqlite3`
program's `.recover` does the same, but the one that Debian and Ubuntu ship is built without it.)
"""

from __future__ import annotations

import shutil
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from holdfast.errors import StorageError
from holdfast.files import sync_folder
from holdfast.messages import Message
from holdfast.store.adding import NewMessage, add_passages, find_ends
from holdfast.store.base import PassageText, Store
from holdfast.store.codec import DAMAGE, Value, decode_message, unpack_json
from holdfast.store.connection import connect, migrate, translate_errors, write_transaction
from holdfast.store.cutting import plain_cut
from holdfast.store.sqlite import SqliteStore

Cut: TypeAlias = Callable[[Message], Sequence[PassageText]]
"""What of a message can be found."""
Cutter: TypeAlias = Callable[[Store], Cut]
"""What says so, by the rows that were rows."""

_SHAPES: Final[dict[tuple[type, ...], str]] = {
    (str, str, str, str): "scopes",
    (int, bytes, bytes, int, bytes): "messages",
    (int, str, bytes): "facts",
    (int, str, str, int, bytes): "records",
    (int, str, int, bytes): "jobs",
}
"""Tables by the types of their values, without the number in front."""
_NAMES: Final = ("scopes", "messages", "facts", "records", "jobs")
_DIGEST: Final = 16

_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = 100
_PAGE_SIZES: Final = {2**power for power in range(9, 16)}
_DEFAULT_PAGE_SIZE: Final = 4096
_PAGES_AT_ONCE: Final = 500
_COLUMNS: Final = "c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10"
_TABLE: Final = f"CREATE TABLE p{{}}({_COLUMNS})"
_INDEX: Final = f"CREATE TABLE p{{}}({_COLUMNS}, PRIMARY KEY(c0, c1)) WITHOUT ROWID"
_TABLES: Final = {b"\x0d": _TABLE, b"\x0a": _INDEX, b"\x02": _INDEX}
"""How SQLite is to read a page, by its first byte: a leaf of a table, a leaf or an inner page of an index."""
_RECOVERED: Final = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """The result of a repair, and the copy of the damaged file.

    `kept` counts the rows of each table; `lost` says what could not be read, and which numbers of messages are missing;
    `unscoped` are rows whose scope was lost: they are in the tenant `recovered`.
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
        lost = f". Lost: {'; '.join(self.lost)}" if self.lost else ""
        unscoped = f"; {self.unscoped} rows have lost their scope: see tenant {_RECOVERED!r}" if self.unscoped else ""
        return f"repaired, the damaged file is {self.damaged.name}. Saved: {kept}{lost}{unscoped}"


@dataclass(slots=True)
class _Recovered:
    """Rows by table and number, what was forgotten, the last number of each table, and unreadable rows."""

    tables: dict[str, dict[int, list[Value]]] = field(default_factory=lambda: {name: {} for name in _NAMES})
    forgotten: set[tuple[int, bytes, bytes | None, bytes | None]] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    explained: set[int] = field(default_factory=set)  # messages that are unreadable or forgotten

    def read(self, path: Path) -> None:
        for number, values in recover_rows(path):
            match values:
                case [int(scope), bytes(digest), *more] if number is None:
                    # An entry of the index on `words` has no nonce, and a row of version 0.1 has neither.
                    words, nonce = (value if isinstance(value, bytes) else None for value in [*more, None, None][:2])
                    if len(digest) == _DIGEST and (words is None) == (nonce is None):
                        self.forgotten.add((scope, digest, words, nonce))
                case [None, int(message), int(), int(), int(), int(), bytes(), 0, int(), bytes()]:
                    self.explained.add(message)  # a passage of a forgotten message
                case [None, *rest] if number is not None:
                    self.add(number, rest)
                case [str(name), int(sequence)] if name in _NAMES:
                    self.numbers[name] = sequence

    def gaps(self) -> list[str]:
        """Return which numbers have no message, as ranges in one text; nothing where there are none."""
        known = self.explained.union(self.tables["messages"])
        ends = sorted({0, *known, max(self.numbers.get("messages", 0), *known, 0) + 1})
        gaps = [(before + 1, after - 1) for before, after in pairwise(ends) if after - before > 1]
        numbers = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in gaps)
        return [f"the messages with these numbers, unless they were forgotten before: {numbers}"] if gaps else []

    def add(self, number: int, values: list[Value]) -> None:
        name = _SHAPES.get(tuple(type(value) for value in values))
        if name is None:
            return
        try:
            if name == "messages":
                decode_message(_bytes(values[-1]))
            elif name != "scopes":
                unpack_json(_bytes(values[-1]))
        except DAMAGE:
            self.lost.append(f"{name[:-1]} {number} cannot be read")
            self.explained.update([number] if name == "messages" else [])
            return
        self.tables[name][number] = values

    def write(self, part: Path) -> int:
        """Write the recovered rows to a new store; return how many have lost their scope."""
        part.unlink(missing_ok=True)
        with translate_errors(part), closing(connect(part, wait=0)) as connection:
            migrate(connection, path=part)
            with write_transaction(connection):
                places = self.write_scopes(connection)
                for name in _NAMES[1:]:
                    for number, (scope, *values) in sorted(self.tables[name].items()):
                        _insert(connection, name, (number, places[scope], *values))
                for scope, *kept in self.forgotten:
                    insert = "INSERT OR IGNORE INTO forgotten VALUES (?, ?, ?, ?)"
                    connection.execute(insert, (places.get(scope, scope), *kept))
                for name, number in self.numbers.items():
                    update = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
                    connection.execute(update, (number, name))
        known = self.tables["scopes"]
        return sum(scope not in known for name in _NAMES[1:] for scope, *_ in self.tables[name].values())

    def write_scopes(self, connection: sqlite3.Connection) -> dict[Value, int]:
        """Number the scopes without gaps; a lost one gets a name of its own in the tenant `recovered`."""
        known = self.tables["scopes"]
        used = {scope for name in _NAMES[1:] for scope, *_ in self.tables[name].values()}
        lost = used.difference(known)
        places: dict[Value, int] = {}
        for place, number in enumerate((*sorted(known), *sorted(lost, key=str))):
            values = known.get(number) if isinstance(number, int) else None
            _insert(connection, "scopes", (place, *(values or (_RECOVERED, "", "main", f"{_RECOVERED} {place}"))))
            places[number] = place
        return places


def repair(path: Path, *, cutter: Cutter = lambda _: plain_cut, stamp: str | None = None) -> Repaired:
    """Copy every intact row to a new file that replaces the old one, which is kept as `<name>.damaged.<stamp>`.

    `cutter` gets the store without its index and returns the function that divides a message into passages; the index
    is rebuilt with it. The stamp is the time unless one is given. No other process may have the store open. Where there
    is no such file, or no room for the new one, the old one is untouched.
    """
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) if stamp is None else stamp
    part = path.with_name(f"{path.name}.repaired.{stamp}")
    damaged = path.with_name(f"{path.name}.damaged.{stamp}")
    try:
        with translate_errors(path):
            rows = _Recovered()
            rows.read(path)
        unscoped = rows.write(part)
        with SqliteStore(part) as store:
            cut = cutter(store)
        with translate_errors(part), closing(connect(part, wait=0)) as connection:
            with write_transaction(connection):
                for number, scope, body in connection.execute("SELECT id, scope, body FROM messages ORDER BY id"):
                    message = decode_message(body)
                    added = NewMessage(number=number, scope=scope, message=message, passages=cut(message))
                    add_passages(connection, [added], find_ends(connection, [scope]))
            connection.execute("PRAGMA journal_mode = DELETE")
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
    except OSError as error:
        raise StorageError(f"could not be repaired: {error.strerror}. Nothing was changed.", path=path) from error
    kept = {name: len(table) for name, table in rows.tables.items() if name != "scopes"}
    return Repaired(path=path, damaged=damaged, kept=kept, lost=(*rows.lost, *rows.gaps()), unscoped=unscoped)


def recover_rows(path: Path) -> Iterator[tuple[int | None, list[Value]]]:
    """Yield the number (None in a table without) and the values of every row, up to the last that is not NULL.

    Rows on freed pages, and on broken leaf pages of the database and its log, are left out.
    """

    def decode(data: bytes) -> str | None:
        with suppress(UnicodeDecodeError):
            return data.decode()
        return None  # the row is then not recognised

    with TemporaryDirectory(dir=path.parent, prefix=".repair-") as folder:
        copy = Path(folder) / "copy.db"
        size = _copy_pages(path, copy)
        free = _free_pages(copy, size)
        _replace_first_page(copy, size)
        with copy.open("rb") as file:
            kinds = {}
            for number in range(2, copy.stat().st_size // size + 1):
                file.seek((number - 1) * size)
                if number not in free and (template := _TABLES.get(file.read(1))):
                    kinds[number] = template
        numbers = list(kinds)
        for start in range(0, len(numbers), _PAGES_AT_ONCE):
            some = {number: kinds[number] for number in numbers[start : start + _PAGES_AT_ONCE]}
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA writable_schema = ON")
                connection.execute("BEGIN")
                connection.execute("DELETE FROM sqlite_master")
                for number, template in some.items():
                    values = (f"p{number}", f"p{number}", number, template.format(number))
                    connection.execute("INSERT INTO sqlite_master VALUES ('table', ?, ?, ?, ?)", values)
                connection.execute("COMMIT")
            with closing(sqlite3.connect(copy)) as connection:
                connection.text_factory = decode
                for number, template in some.items():
                    yield from _read_page(connection, number, has_numbers=template is not _INDEX)


def _read_page(
    connection: sqlite3.Connection, number: int, *, has_numbers: bool
) -> Iterator[tuple[int | None, list[Value]]]:
    with suppress(sqlite3.DatabaseError):  # the page is broken from here on
        for rowid, *values in connection.execute(f"SELECT {'rowid' if has_numbers else 'NULL'}, * FROM p{number}"):
            while values and values[-1] is None:
                values.pop()
            yield rowid, values


def _copy_pages(path: Path, copy: Path) -> int:
    """Copy a database with the pages of its log; return the size of a page."""
    shutil.copyfile(path, copy)
    with copy.open("rb") as file:
        header = file.read(_HEADER)
    is_whole = len(header) == _HEADER and header.startswith(_MAGIC)
    size = int.from_bytes(header[16:18], "big") if is_whole else 0
    size = 65536 if size == 1 else size if size in _PAGE_SIZES else _DEFAULT_PAGE_SIZE
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        shutil.copyfile(log, copy.with_name(f"{copy.name}-wal"))
        if not is_whole:
            _replace_first_page(copy, size)
        with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copy.with_name(f"{copy.name}-wal").unlink(missing_ok=True)
    return size


def _replace_first_page(copy: Path, size: int) -> None:
    """Give a database a valid first page without any tables, and whole pages only."""
    empty = copy.with_name("empty.db")
    with closing(sqlite3.connect(empty)) as connection:
        connection.execute(f"PRAGMA page_size = {size}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("VACUUM")
    page = bytearray(empty.read_bytes()[:size])
    empty.unlink()
    count = max(1, copy.stat().st_size // size)
    page[28:32] = count.to_bytes(4, "big")
    with copy.open("r+b") as file:
        file.write(page)
        file.truncate(count * size)


def _free_pages(path: Path, size: int) -> set[int]:
    """Return the pages of the free list: what is on them was deleted."""
    free: set[int] = set()
    with path.open("rb") as file:
        file.seek(32)
        trunk = int.from_bytes(file.read(4), "big")
        while trunk and trunk not in free and trunk <= path.stat().st_size // size:
            free.add(trunk)
            file.seek((trunk - 1) * size)
            trunk, count, *pages = struct.unpack(f">{size // 4}I", file.read(size))
            free.update(pages[:count])
    return free


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _insert(connection: sqlite3.Connection, name: str, values: Sequence[Value]) -> None:
    connection.execute(f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * len(values))})", values)
