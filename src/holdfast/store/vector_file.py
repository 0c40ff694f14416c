"""A copy of the blocks of vectors next to a SQLite file, which a process maps into memory instead of reading them.

    each page      the vectors of `PAGE` windows, then their signs
    description    JSON: the number of the copy, the size of a page, the dimension, the blocks
    8 bytes        the length of the description

A copy is written whole and never changed, nor is a block under its id. The store has the random number of the copy: one
with another number, of another store, or damaged, is ignored.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np

from holdfast.embed.base import Space
from holdfast.files import open_regular
from holdfast.index.vectors import PAGE, Bytes, Matrix, pack_signs
from holdfast.store.codec import DAMAGE

_MAX_MISSING: Final = 4
"""A copy is rewritten when a quarter of the blocks is missing from it."""
_SIGNS_PER_WORD: Final = 64
_LENGTH_BYTES: Final = 8

Block: TypeAlias = tuple[int, int, int]
"""The id of a block, its first passage, and its first window."""
_BLOCKS: Final = (
    "SELECT id, of.first, first_window FROM vector_blocks AS of LEFT JOIN blocks ON blocks.first = of.first"
    " WHERE space = ? ORDER BY of.first"
)
_NAME: Final = "vectors-"
"""The prefix of the counters with the numbers of copies, and of the ends of their file names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """A copy that is mapped into memory."""

    data: mmap.mmap
    pages: int
    blocks: frozenset[Block]

    @property
    def last_block(self) -> int:
        """The highest id of a block."""
        return max(number for number, _, _ in self.blocks)


def list_copies(db: sqlite3.Connection) -> list[Path]:
    """List the copies next to a store, also one that was not completed."""
    path = _place(db, "")
    return [file for file in path.parent.iterdir() if file.name.startswith(path.name)]


def _place(db: sqlite3.Connection, space: object) -> Path:
    """Return the path of the copy of a space: next to the file itself, also if it was opened by a link."""
    _, _, file = db.execute("PRAGMA database_list").fetchone()
    return Path(f"{file}-{_NAME}{space}")


# --- writing ------------------------------------------------------------------------


def write_copies(db: sqlite3.Connection, *, least: int) -> None:
    """Write a copy of each space with `least` blocks or more, unless most of them are in one already.

    If that fails, the blocks are read. On Windows a mapped file cannot be replaced, so there is no copy.
    """
    if sys.platform == "win32":
        return
    query = (
        "SELECT space, dimension FROM vector_blocks JOIN spaces ON space = spaces.id GROUP BY 1 HAVING count(*) >= ?"
    )
    for space, dimension in db.execute(query, (least,)).fetchall():
        with suppress(OSError, sqlite3.Error):
            blocks = db.execute(_BLOCKS, (space,)).fetchall()
            if any(window is None for _, _, window in blocks):
                continue  # a block of vectors whose passages are not indexed yet
            known = _map_copy(db, space)
            missing = len(blocks) - (len(known.blocks) if known else 0)
            if _MAX_MISSING * missing >= len(blocks):
                write_copy(db, _place(db, space), blocks, space=space, dimension=dimension)


def write_copy(db: sqlite3.Connection, place: Path, blocks: Sequence[Block], *, space: int, dimension: int) -> None:
    """Write the copy of a space. If two processes do so at once, the later one wins."""
    for old in place.parent.glob(f"{glob.escape(place.name)}.part*"):
        old.unlink(missing_ok=True)
    number = secrets.randbits(62)
    part = place.with_name(f"{place.name}.part{number}")
    description = {"drawn": number, "page": PAGE, "dimension": dimension, "blocks": blocks}
    encoded = json.dumps(description).encode()
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for page in read_pages(db, blocks, dimension):
                file.write(page.data)
                file.write(pack_signs(page).data)
            file.write(encoded)
            file.write(len(encoded).to_bytes(_LENGTH_BYTES, "little"))
            file.flush()
            os.fsync(file.fileno())
        db.execute("BEGIN IMMEDIATE")
        with db:  # commits, or rolls back
            present = set(db.execute(_BLOCKS, (space,)))
            if set(blocks) <= present:  # else something was forgotten meanwhile
                part.replace(place)
                insert = "INSERT OR REPLACE INTO counters(name, value) VALUES (?, ?)"
                db.execute(insert, (f"{_NAME}{space}", number))
    finally:
        part.unlink(missing_ok=True)


def read_pages(db: sqlite3.Connection, blocks: Sequence[Block], dimension: int) -> Iterator[Bytes]:
    """Read the vectors of blocks, divided into pages as those of a matrix are."""
    page = np.zeros((PAGE, dimension), np.int8)
    page_start = 0
    for number, _, window in blocks:
        with db.blobopen("vector_blocks", "data", number, readonly=True) as blob:
            rows = np.frombuffer(blob.read(), np.int8).reshape(-1, dimension)
        while len(rows):
            while window >= page_start + PAGE:
                yield page
                page = np.zeros_like(page)
                page_start += PAGE
            offset = window - page_start
            part = rows[: PAGE - offset]
            page[offset : offset + len(part)] = part
            window += len(part)  # noqa: PLW2901 - the block continues on the next page
            rows = rows[len(part) :]
    yield page


# --- reading ------------------------------------------------------------------------


def open_copy(db: sqlite3.Connection, space: Space) -> tuple[Matrix, dict[str, int]]:
    """Return the vectors of a space that are in its copy, and the last id of each table; none without a copy."""
    matrix = Matrix(space.dimension)
    query = "SELECT id FROM spaces WHERE name = ? AND dimension = ? AND digest = ?"
    number = db.execute(query, (space.name, space.dimension, space.digest)).fetchone()
    copy = _map_copy(db, number[0]) if number else None
    if copy is None:
        return matrix, {}
    words = _sign_words(space.dimension)
    for page in range(copy.pages):
        start = page * _page_bytes(space.dimension)
        rows = np.frombuffer(copy.data, np.int8, PAGE * space.dimension, offset=start)
        signs = np.frombuffer(copy.data, np.uint64, PAGE * words, offset=start + rows.nbytes)
        matrix.take(page, rows.reshape(PAGE, -1), signs.reshape(-1, PAGE))
    return matrix, {"vector_blocks": copy.last_block}


def _map_copy(db: sqlite3.Connection, space: int) -> _Copy | None:
    """Map the copy of a space; None if there is none that matches the store."""
    number = db.execute("SELECT value FROM counters WHERE name = ?", (f"{_NAME}{space}",)).fetchone()
    if number is None:
        return None
    try:
        with open_regular(_place(db, space)) as file:
            # A private mapping: the vectors of new windows are written into its pages, and stay in this process.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        length = int.from_bytes(data[-_LENGTH_BYTES:], "little")
        vector_bytes = len(data) - _LENGTH_BYTES - length
        description = json.loads(data[max(0, vector_bytes) : -_LENGTH_BYTES])
        if description["drawn"] != number[0] or description["page"] != PAGE:
            return None
        pages, rest = divmod(vector_bytes, _page_bytes(description["dimension"]))
        blocks = frozenset((block, first, window) for block, first, window in description["blocks"])
        copy = _Copy(data=data, pages=pages, blocks=blocks)
        last = copy.last_block
    except (OSError, *DAMAGE):
        return None
    present = {block for block in db.execute(_BLOCKS, (space,)) if block[0] <= last}
    if rest or blocks != present:
        return None
    return copy


def _page_bytes(dimension: int) -> int:
    return PAGE * (dimension + 8 * _sign_words(dimension))


def _sign_words(dimension: int) -> int:
    """Return how many 64-bit words the signs of a vector take."""
    return -(-dimension // _SIGNS_PER_WORD)
