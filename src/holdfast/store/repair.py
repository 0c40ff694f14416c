"""Making a damaged SQLite store whole again: every row that is intact goes into a new file.

The damaged one stays beside it, so that nothing is lost by repairing. Vectors are made again afterwards.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from holdfast.errors import StorageError
from holdfast.messages import Message
from holdfast.store import sealing
from holdfast.store.base import PassageText, Store
from holdfast.store.check import check
from holdfast.store.codec import DAMAGE, decode_message, unpack_json
from holdfast.store.connection import connect, explained, write_transaction
from holdfast.store.cutting import plain_cut
from holdfast.store.salvage import Value, rows
from holdfast.store.schema import migrate
from holdfast.store.sqlite import SqliteStore

__all__ = ["Cut", "Cutter", "Repaired", "check", "repair"]

Cut: TypeAlias = Callable[[Message], Sequence[PassageText]]
"""What of a message can be found."""
Cutter: TypeAlias = Callable[[Store], Cut]
"""What says so, by the rows that were saved."""

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
_HOMELESS: Final = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What a repair did.

    Attributes:
        path: The store, whole again.
        damaged: Where the damaged file was put.
        kept: How many rows of each table were saved.
        lost: What could not be read, one line each.
        homeless: Messages and other rows whose scope was lost; they are in the tenant `recovered`.
    """

    path: Path
    damaged: Path
    kept: dict[str, int]
    lost: tuple[str, ...]
    homeless: int

    @property
    def summary(self) -> str:
        """The same in a sentence or two."""
        kept = ", ".join(f"{count} {name}" for name, count in self.kept.items())
        lost = f"; could not be read: {'; '.join(self.lost)}" if self.lost else ""
        homeless = f"; {self.homeless} rows have lost their scope: see tenant {_HOMELESS!r}" if self.homeless else ""
        return f"repaired, the damaged file is {self.damaged.name}. Saved: {kept}{lost}{homeless}"


@dataclass(slots=True)
class _Salvaged:
    """Rows by table and number, and what else must not be lost."""

    tables: dict[str, dict[int, list[Value]]] = field(default_factory=lambda: {name: {} for name in _NAMES})
    forgotten: set[tuple[int, bytes, bytes | None, bytes | None]] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)


def repair(path: Path, *, cutter: Cutter = lambda _: plain_cut, stamp: str | None = None) -> Repaired:
    """Save every intact row into a new file in the place of the old one, which is kept as `<name>.damaged.<stamp>`.

    `cutter` gets the store without its index and says what of a message can be found; the index is built again with
    it. The stamp is the time unless one is given. No other process may have the store open.

    Raises:
        StorageError: There is no such file, or no room for the new one; the old one is untouched.
    """
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) if stamp is None else stamp
    part = path.with_name(f"{path.name}.repaired.{stamp}")
    damaged = path.with_name(f"{path.name}.damaged.{stamp}")
    try:
        saved = _salvage(path)
        homeless = _write(part, saved)
        _write_passages(part, cutter)
        _swap(path, part, damaged)
    except OSError as error:
        raise StorageError(f"could not be repaired: {error.strerror}. Nothing was changed.", path=path) from error
    kept = {name: len(table) for name, table in saved.tables.items() if name != "scopes"}
    return Repaired(path=path, damaged=damaged, kept=kept, lost=tuple(saved.lost), homeless=homeless)


def _salvage(path: Path) -> _Salvaged:
    saved = _Salvaged()
    for number, values in rows(path):
        if number is None:
            _take_digest(saved, values)
        elif values and values[0] is None:
            _take(saved, number, values[1:])
        elif [type(value) for value in values] == [str, int] and values[0] in _NAMES:
            saved.numbers[str(values[0])] = int(str(values[1]))
    return saved


def _take_digest(saved: _Salvaged, values: list[Value]) -> None:
    match [*values, None, None] if len(values) == 2 else values:  # noqa: PLR2004 - a row of version 0.1
        case [int(scope), bytes(digest), (bytes() | None) as words, (bytes() | None) as nonce] if (
            len(digest) == _DIGEST
        ):
            saved.forgotten.add((scope, digest, words, nonce))


def _take(saved: _Salvaged, number: int, values: list[Value]) -> None:
    name = _SHAPES.get(tuple(type(value) for value in values))
    if name is None:
        return
    try:
        if name == "messages":
            decode_message(_bytes(values[-1]))
        elif name != "scopes":
            unpack_json(_bytes(values[-1]))
    except DAMAGE:
        saved.lost.append(f"{name[:-1]} {number} cannot be read")
        return
    saved.tables[name][number] = values


def _bytes(value: Value) -> bytes:
    assert isinstance(value, bytes)
    return value


def _write(part: Path, saved: _Salvaged) -> int:
    """Make a store of what was saved; how many rows have lost their scope is returned."""
    part.unlink(missing_ok=True)
    with explained(part), closing(connect(part, wait=0)) as connection:
        migrate(connection, path=part)
        with write_transaction(connection):
            homes = _write_scopes(connection, saved)
            for name in _NAMES[1:]:
                for number, (scope, *values) in sorted(saved.tables[name].items()):
                    _insert(connection, name, (number, homes[scope], *values))
            for scope, *kept in saved.forgotten:
                insert = "INSERT OR IGNORE INTO forgotten VALUES (?, ?, ?, ?)"
                connection.execute(insert, (homes.get(scope, scope), *kept))
            for name, number in saved.numbers.items():
                update = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
                connection.execute(update, (number, name))
    known = saved.tables["scopes"]
    return sum(scope not in known for name in _NAMES[1:] for scope, *_ in saved.tables[name].values())


def _insert(connection: sqlite3.Connection, name: str, values: Sequence[Value]) -> None:
    connection.execute(f"INSERT OR REPLACE INTO {name} VALUES ({', '.join('?' * len(values))})", values)


def _write_scopes(connection: sqlite3.Connection, saved: _Salvaged) -> dict[Value, int]:
    """Give every scope a number, without gaps; one that was lost gets a name that nobody else has."""
    known = saved.tables["scopes"]
    used = {scope for name in _NAMES[1:] for scope, *_ in saved.tables[name].values()}
    lost = used.difference(known)
    homes: dict[Value, int] = {}
    for place, number in enumerate((*sorted(known), *sorted(lost, key=str))):
        values = known.get(number) if isinstance(number, int) else None
        _insert(connection, "scopes", (place, *(values or (_HOMELESS, "", "main", f"{_HOMELESS} {place}"))))
        homes[number] = place
    return homes


def _write_passages(part: Path, cutter: Cutter) -> None:
    with SqliteStore(part) as store:
        cut = cutter(store)
    with explained(part), closing(connect(part, wait=0)) as connection:
        with write_transaction(connection):
            query = "SELECT id, scope, body FROM messages ORDER BY id"
            for number, scope, body in connection.execute(query):
                message = decode_message(body)
                sealing.insert(connection, [(message, cut(message), scope, number)])
                sealing.seal(connection)
        connection.execute("PRAGMA journal_mode = DELETE")


def _swap(path: Path, part: Path, damaged: Path) -> None:
    """Put the new file into the place of the old one, which is copied with its log first."""
    log = path.with_name(f"{path.name}-wal")
    for old, new in ((path, damaged), (log, damaged.with_name(f"{damaged.name}-wal"))):
        if old.exists():
            shutil.copyfile(old, new)
            new.chmod(0o600)
    _sync(damaged.parent)
    for stale in (log, path.with_name(f"{path.name}-shm")):  # a log belongs to its file: the new one must not meet it
        stale.unlink(missing_ok=True)
    part.replace(path)
    _sync(path.parent)


def _sync(folder: Path) -> None:
    if sys.platform == "win32":  # folders cannot be synced there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
