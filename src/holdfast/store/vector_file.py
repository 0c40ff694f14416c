"""A copy of the blocks of vectors beside a SQLite file, which a process maps into memory instead of reading them.

A copy is written whole and never changed, nor is a block under its id. The store has the number that was drawn for the
copy: one that is of another time or of another store, or damaged, is left out.
"""

from __future__ import annotations

import glob
import json
import mmap
import os
import secrets
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.embed.base import Space
from holdfast.files import open_regular
from holdfast.index.vectors import PAGE, Bytes, Matrix, pack_signs
from holdfast.store.codec import DAMAGE

_MAX_MISSING: Final = 4
"""A copy is written anew when one in so many blocks is not in it."""

_BLOCKS: Final = (
    "SELECT id, of.first, first_window FROM vector_blocks AS of LEFT JOIN blocks ON blocks.first = of.first"
    " WHERE space = ? ORDER BY of.first"
)
_DRAWN: Final = "vectors-"
"""Prefix of the counters with the numbers of copies, and of the ends of their names."""


def list_copies(db: sqlite3.Connection) -> list[Path]:
    """List the copies beside a store, also one that was not completed."""
    path = _place(db, "")
    return [file for file in path.parent.iterdir() if file.name.startswith(path.name)]


def write_copies(db: sqlite3.Connection, *, least: int) -> None:
    """Write a copy of each space with at least so many blocks, where many of them are not in one yet.

    Where that fails, the blocks are read. On Windows a mapped file cannot be replaced.
    """
    query = (
        "SELECT space, dimension FROM vector_blocks JOIN spaces ON space = spaces.id GROUP BY 1 HAVING count(*) >= ?"
    )
    spaces = [] if sys.platform == "win32" else db.execute(query, (least,)).fetchall()
    for space, dimension in spaces:
        place = _place(db, space)
        with suppress(OSError, sqlite3.Error):
            blocks = db.execute(_BLOCKS, (space,)).fetchall()
            known = _map(db, space)
            missing = len(blocks) - (len(known[1]["blocks"]) if known else 0)
            if _MAX_MISSING * missing >= len(blocks) and all(window is not None for *_, window in blocks):
                write_copy(db, place, (space, dimension), blocks)


def _place(db: sqlite3.Connection, space: object) -> Path:
    """Return where the copy of a space is: beside the file itself, also where that was opened by another name."""
    return Path(f"{db.execute('PRAGMA database_list').fetchone()[2]}-{_DRAWN}{space}")


def write_copy(db: sqlite3.Connection, place: Path, space: tuple[int, int], blocks: Sequence[Any]) -> None:
    """Write the copy of a space, given its number and dimension. Of two that do so at once, the later one wins."""
    for old in place.parent.glob(f"{glob.escape(place.name)}.part*"):
        old.unlink(missing_ok=True)
    drawn = secrets.randbits(62)
    part = place.with_name(f"{place.name}.part{drawn}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for page in read_pages(db, blocks, space[1]):
                file.write(page.data)
                file.write(pack_signs(page).data)
            end = json.dumps({"drawn": drawn, "page": PAGE, "dimension": space[1], "blocks": blocks}).encode()
            file.write(end + len(end).to_bytes(8, "little"))
            file.flush()
            os.fsync(file.fileno())
        db.execute("BEGIN IMMEDIATE")
        with db:  # it is committed, or rolled back
            if set(blocks) <= set(db.execute(_BLOCKS, space[:1])):  # else something was forgotten meanwhile
                part.replace(place)
                insert = "INSERT OR REPLACE INTO counters(name, value) VALUES (?, ?)"
                db.execute(insert, (f"{_DRAWN}{space[0]}", drawn))
    finally:
        part.unlink(missing_ok=True)


def read_pages(db: sqlite3.Connection, blocks: Sequence[Any], dimension: int) -> Iterator[Bytes]:
    """Read the vectors of blocks, divided as those of a matrix are."""
    page, stop = np.zeros((PAGE, dimension), np.int8), PAGE
    for number, _, window in blocks:
        with db.blobopen("vector_blocks", "data", number, readonly=True) as blob:
            rows = np.frombuffer(blob.read(), np.int8).reshape(-1, dimension)
        first = window
        while len(rows):
            while first >= stop:
                yield page
                page, stop = np.zeros_like(page), stop + PAGE
            part = rows[: stop - first]
            page[first - stop + PAGE :][: len(part)] = part
            first, rows = first + len(part), rows[len(part) :]
    yield page


def open_copy(db: sqlite3.Connection, space: Space) -> tuple[Matrix, dict[str, int]]:
    """Return the vectors of a space that are in its copy, and the last id of each table; none without a copy."""
    matrix = Matrix(space.dimension)
    query = "SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?"
    number = db.execute(query, (space.name, space.dimension, space.digest)).fetchone()
    copy = _map(db, number[0]) if number else None
    if copy is None:
        return matrix, {}
    mapped, end = copy
    words = -(-space.dimension // 64)
    for page in range(end["pages"]):
        start = page * PAGE * (space.dimension + 8 * words)
        rows = np.frombuffer(mapped, np.int8, PAGE * space.dimension, offset=start)
        signs = np.frombuffer(mapped, np.uint64, PAGE * words, offset=start + rows.nbytes)
        matrix.take(page, rows.reshape(PAGE, -1), signs.reshape(-1, PAGE))
    return matrix, {"vector_blocks": end["last"]}


def _map(db: sqlite3.Connection, space: int) -> tuple[mmap.mmap, dict[str, Any]] | None:
    """Map a copy, and read what it says of itself; None where it does not match the store."""
    drawn = db.execute("SELECT value FROM counters WHERE name = ?", (f"{_DRAWN}{space}",)).fetchone()
    if drawn is None:
        return None
    try:
        with open_regular(_place(db, space)) as file:  # what is written into it stays in this process
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        size = len(mapped) - 8 - int.from_bytes(mapped[-8:], "little")
        end = json.loads(mapped[max(0, size) : -8])
        if (end["drawn"], end["page"]) != (*drawn, PAGE):
            return None
        end["pages"], rest = divmod(size, PAGE * (end["dimension"] + 8 * -(-end["dimension"] // 64)))
        blocks = {(number, first, window) for number, first, window in end["blocks"]}
        end["last"] = max(blocks)[0]
    except (OSError, *DAMAGE):
        return None
    current = {block for block in db.execute(_BLOCKS, (space,)) if block[0] <= end["last"]}
    return (mapped, end) if blocks == current and not rest else None
