"""Check a SQLite store without changing it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from holdfast.errors import StorageError
from holdfast.search import columns as columnar
from holdfast.search.passages import CUTTING
from holdfast.search.postings import decode
from holdfast.store.codec import DAMAGE, decode_message, unpack_json, unpack_text
from holdfast.store.connection import COUNTS, MIGRATIONS, connect_readonly, is_readonly, translate_errors
from holdfast.store.index_tables import BLOCK_PASSAGES, decode_windows

_TABLES: Final = ("messages", "passages", "facts", "records", "jobs")
_ORPHANS: Final = {
    "passages without their message": "SELECT count(*) FROM passages WHERE alive AND message NOT IN"
    " (SELECT id FROM messages)",
    "vectors without their passage": "SELECT count(*) FROM vectors WHERE passage NOT IN"
    " (SELECT number FROM passages WHERE alive)",
    **{
        f"{table} without their scope": f"SELECT count(*) FROM {table} WHERE scope NOT IN (SELECT id FROM scopes)"
        for table in _TABLES
    },
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
        path: The file.
        counts: How many messages, passages, sessions and facts there are, where that can be told.
        damage: What is broken in what was archived: `repair` keeps the rest.
        index: What is wrong with the index: `reindex` mends it, and nothing is lost.
        notes: What is worth knowing, though nothing is broken.
    """

    path: Path
    counts: dict[str, int]
    damage: tuple[str, ...] = ()
    index: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damage and not self.index

    @property
    def summary(self) -> str:
        """The result in a sentence or two, with what to do."""
        held = ", ".join(f"{count} {name}" for name, count in self.counts.items())
        parts = [held] if held else []
        if self.damage:
            parts.append(f"damaged: {'; '.join(self.damage)}. Run `holdfast doctor --repair` to keep what is intact")
        if self.index:
            parts.append(f"the index is not right: {'; '.join(self.index)}. Run `holdfast reindex`: no message is lost")
        return ". ".join([*parts, *self.notes])


def check(path: Path) -> Health:
    """Check the file's structure, every row, and whether the index matches the rows.

    Raises:
        StorageError: There is no such file.
    """
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    structure: tuple[str, ...] = ()
    try:
        with translate_errors(path), closing(_open(path)) as connection:
            connection.execute("PRAGMA query_only = ON")
            faults = connection.execute(f"PRAGMA integrity_check({_MAX_FAULTS})")
            structure = tuple(text for (text,) in faults if text != "ok")
            health = _check_rows(path, connection)
    except StorageError as error:
        return Health(path=path, counts={}, damage=structure or (str(error),))
    return replace(health, damage=(*structure, *health.damage))


def _open(path: Path) -> sqlite3.Connection:
    return connect_readonly(path) if is_readonly(path) else sqlite3.connect(path, timeout=60, isolation_level=None)


def _check_rows(path: Path, connection: sqlite3.Connection) -> Health:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if not 0 < version <= len(MIGRATIONS):
        return Health(path=path, counts={}, notes=(f"written with schema {version}, this one knows {len(MIGRATIONS)}",))
    connection.execute("BEGIN")
    counts = {name: connection.execute(query).fetchone()[0] for name, query in COUNTS.items()}
    orphans = [f"{found} {what}" for what, query in _ORPHANS.items() if (found := _count(connection, query))]
    return Health(
        path=path,
        counts=counts,
        damage=(*_unreadable(connection), *orphans),
        index=tuple(_check_index(connection)),
        notes=tuple(_notes(connection)),
    )


def _count(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])


def _unreadable(connection: sqlite3.Connection) -> Iterator[str]:
    for kind, key, column, read in _CHECKED:
        query = f"SELECT {key}, {column} FROM {kind}s WHERE {column} IS NOT NULL ORDER BY {key}"
        for number, data in connection.execute(query):
            try:
                read(data)
            except DAMAGE:
                yield f"{kind} {number} cannot be read"


def _notes(connection: sqlite3.Connection) -> Iterator[str]:
    old = (
        "SELECT count(*) FROM passages WHERE NOT EXISTS (SELECT 1 FROM counters WHERE name = 'cutting' AND value = {})"
    )
    if _count(connection, old.format(CUTTING)):
        yield "passages are cut as an earlier version did: run `holdfast reindex` to find single lines of logs"
    if _count(connection, "SELECT value FROM counters WHERE name = 'unscrubbed'"):
        yield "forgotten text may still be in free pages: run `holdfast vacuum`"


def _check_index(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield where the index does not match the passages."""
    total = _count(connection, "SELECT count(*) FROM passages")
    if total != _count(connection, "SELECT coalesce(max(number) + 1, 0) FROM passages"):
        yield "numbers of passages are missing"
        return
    runs = connection.execute("SELECT first, stop FROM runs ORDER BY first").fetchall()
    sealed = runs[-1][1] if runs else 0
    if [first for first, _ in runs] != [0, *(stop for _, stop in runs)][: len(runs)] or sealed > total:
        yield "the runs of the index do not follow each other"
        return
    yield from _check_blocks(connection, sealed)
    yield from _check_unindexed(connection, sealed)
    yield from _check_postings(connection, runs)


def _check_blocks(connection: sqlite3.Connection, sealed: int) -> Iterator[str]:
    window = 0
    expected = 0
    for first, first_window, windows, data in connection.execute("SELECT * FROM blocks ORDER BY first"):
        query = "SELECT alive, windows FROM passages WHERE number >= ? AND number < ? ORDER BY number"
        rows = connection.execute(query, (first, first + BLOCK_PASSAGES)).fetchall()
        lengths = np.concatenate([decode_windows(spans)[:, 2] for _, spans in rows] or [np.zeros(0, np.uint32)])
        if (first, first_window, windows) != (expected, window, len(lengths)) or not _matches_block(
            data, rows, lengths
        ):
            yield f"the block of passages {first} to {first + BLOCK_PASSAGES - 1} says something else than they do"
        expected, window = first + BLOCK_PASSAGES, first_window + windows
    if expected != sealed:
        yield f"{expected} passages are in blocks, {sealed} in runs"


def _matches_block(
    data: bytes, rows: list[tuple[int, bytes]], lengths: np.ndarray[tuple[int, ...], np.dtype[np.uint32]]
) -> bool:
    try:
        arrays = columnar.decode(data)
    except (ValueError, IndexError):
        return False
    alive = arrays["alive"].tolist() == [bool(alive) for alive, _ in rows]
    return alive and bool(np.array_equal(arrays["window_length"], lengths))


def _check_unindexed(connection: sqlite3.Connection, sealed: int) -> Iterator[str]:
    query = (
        "SELECT number, windows, terms FROM passages LEFT JOIN pending USING (number)"
        " WHERE number >= ? AND alive ORDER BY number"
    )
    for number, windows, terms in connection.execute(query, (sealed,)):
        if terms is None or len(terms) != 8 * int(decode_windows(windows)[:, 2].sum()):
            yield f"passage {number} is not in the index"
    if strays := _count(connection, f"SELECT count(*) FROM pending WHERE number < {sealed}"):
        yield f"{strays} passages are pending and sealed at once"


def _check_postings(connection: sqlite3.Connection, runs: list[tuple[int, int]]) -> Iterator[str]:
    for first, stop in runs:
        query = "SELECT min(first_window), max(first_window + windows) FROM blocks WHERE first >= ? AND first < ?"
        low, high = connection.execute(query, (first, stop)).fetchone()
        for term, data in connection.execute("SELECT term, data FROM postings WHERE run = ?", (first,)):
            if low is None or not _is_valid_page(data, low, high):
                yield f"the posting list of term {term} in run {first} is broken"
                break
    strays = _count(connection, "SELECT count(DISTINCT run) FROM postings WHERE run NOT IN (SELECT first FROM runs)")
    if strays:
        yield f"{strays} runs of posting lists belong to nothing"


def _is_valid_page(data: object, low: int, high: int) -> bool:
    """Return whether this is a page of posting lists of windows from `low` to `high`."""
    try:
        return isinstance(data, bytes) and decode(data).is_sound(low, high)
    except (ValueError, IndexError):
        return False
