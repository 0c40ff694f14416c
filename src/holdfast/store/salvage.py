"""Rows read straight from the pages of a damaged SQLite file.

SQLite gives up where a page on the way to a row is broken. The rows themselves lie in leaf pages, each complete
in itself, so they are read there: every page is looked at, also those in the write-ahead log, and whatever is a
row of ours is taken. Pages on the free list are left out: what lies there was deleted.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Final, TypeAlias

__all__ = ["Value", "rows"]

Value: TypeAlias = int | float | str | bytes | None

_SIZES: Final = {2**power for power in range(9, 17)}
_DEFAULT_SIZE: Final = 4096
_TABLE_LEAF: Final = 0x0D
_INDEX_LEAF: Final = 0x0A
_WAL_MAGIC: Final = (0x377F0682, 0x377F0683)
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24
_LONGEST_VARINT: Final = 9
_BLOB: Final = 12
_WIDTHS: Final = (0, 1, 2, 3, 4, 6, 8)
_FLOAT, _ZERO, _ONE = 7, 8, 9


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of a file as its last commit left them, counted from 1."""

    size: int
    file: mmap | bytes
    newer: Mapping[int, bytes]

    def get(self, number: int) -> bytes:
        """A page; empty where there is none, or only a part of it."""
        if number in self.newer:
            return self.newer[number]
        page = self.file[(number - 1) * self.size : number * self.size] if number > 0 else b""
        return page if len(page) == self.size else b""

    def numbers(self) -> range:
        """Every page there may be."""
        return range(1, max(len(self.file) // self.size, *self.newer, 0) + 1)


def rows(path: Path) -> Iterator[tuple[int | None, list[Value]]]:
    """Every row in a file and its log that is whole: its number (None in a table without) and its values."""
    log = path.with_name(f"{path.name}-wal")
    size, newer = _read_log(log.read_bytes() if log.exists() else b"")
    with path.open("rb") as file, _mapped(file) as data:
        pages = _Pages(size or _page_size(data[:_WAL_HEADER]), data, newer)
        free = set(_free(pages))
        for number in pages.numbers():
            if number not in free:
                yield from _leaf(pages, number)


@contextmanager
def _mapped(file: IO[bytes]) -> Iterator[mmap | bytes]:
    if not os.fstat(file.fileno()).st_size:
        yield b""
        return
    with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        yield data


def _page_size(data: bytes) -> int:
    (size,) = struct.unpack(">H", data[16:18]) if len(data) >= _WAL_HEADER else (0,)
    size = 65536 if size == 1 else size
    return size if size in _SIZES else _DEFAULT_SIZE


def _read_log(data: bytes) -> tuple[int, dict[int, bytes]]:
    """The page size of a log, and the newest copy of each page in it, up to the last commit."""
    if len(data) < _WAL_HEADER:
        return 0, {}
    magic, _, size, _, *salts = struct.unpack(">6I", data[:24])
    if magic not in _WAL_MAGIC or size not in _SIZES:
        return 0, {}
    committed: dict[int, bytes] = {}
    open_: dict[int, bytes] = {}
    for start in range(_WAL_HEADER, len(data) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        number, commit, *frame_salts = struct.unpack(">4I", data[start : start + 16])
        if frame_salts != salts:
            break
        open_[number] = data[start + _FRAME_HEADER : start + _FRAME_HEADER + size]
        if commit:
            committed |= open_
            open_ = {}
    return size, committed


def _free(pages: _Pages) -> Iterator[int]:
    """The pages on the free list."""
    seen: set[int] = set()
    (trunk,) = struct.unpack(">I", (pages.get(1) or bytes(36))[32:36])
    while (page := pages.get(trunk)) and trunk not in seen:
        seen.add(trunk)
        following, count = struct.unpack(">2I", page[:8])
        yield trunk
        leaves = page[8 : 8 + 4 * count]
        yield from (number for (number,) in struct.iter_unpack(">I", leaves[: len(leaves) // 4 * 4]))
        trunk = following


def _leaf(pages: _Pages, number: int) -> Iterator[tuple[int | None, list[Value]]]:
    page = pages.get(number)
    header = 100 if number == 1 else 0
    kind = page[header] if page else 0
    if kind not in {_TABLE_LEAF, _INDEX_LEAF}:
        return
    (count,) = struct.unpack(">H", page[header + 3 : header + 5])
    pointers = page[header + 8 : header + 8 + 2 * count]
    for (place,) in struct.iter_unpack(">H", pointers[: len(pointers) // 2 * 2]):
        try:
            row = _cell(pages, page, place, table=kind == _TABLE_LEAF)
        except (IndexError, ValueError, struct.error):
            continue
        yield row


def _cell(pages: _Pages, page: bytes, place: int, *, table: bool) -> tuple[int | None, list[Value]]:
    length, place = _varint(page, place)
    number: int | None = None
    if table:
        number, place = _varint(page, place)
    return number, _record(_payload(pages, page, place, length, table=table))


def _payload(pages: _Pages, page: bytes, place: int, length: int, *, table: bool) -> bytes:
    """The bytes of a row, of which a long one continues on other pages."""
    usable = pages.size
    most = usable - 35 if table else (usable - 12) * 64 // 255 - 23
    if length <= most:
        return _exactly(page[place : place + length], length)
    least = (usable - 12) * 32 // 255 - 23
    local = least + (length - least) % (usable - 4)
    local = local if local <= most else least
    parts, held = [page[place : place + local]], local
    (following,) = struct.unpack(">I", page[place + local : place + local + 4])
    while held < length:
        overflow = pages.get(following)
        part = overflow[4 : 4 + length - held]
        if not part:
            raise ValueError("the row goes on where there is no page")
        (following,) = struct.unpack(">I", overflow[:4])
        parts.append(part)
        held += len(part)
    return _exactly(b"".join(parts), length)


def _exactly(data: bytes, length: int) -> bytes:
    if len(data) != length:
        raise ValueError("a row was cut off")
    return data


def _record(payload: bytes) -> list[Value]:
    stop, place = _varint(payload, 0)
    kinds: list[int] = []
    while place < stop:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        value, place = _value(payload, place, kind)
        values.append(value)
    if place != len(payload):
        raise ValueError("not a row")
    return values


def _value(payload: bytes, place: int, kind: int) -> tuple[Value, int]:
    if kind >= _BLOB:
        width = (kind - _BLOB) // 2
        data = _exactly(payload[place : place + width], width)
        return (data.decode() if kind % 2 else data), place + width
    if kind == 0:
        return None, place
    if kind in {_ZERO, _ONE}:
        return kind - _ZERO, place
    width = 8 if kind == _FLOAT else _WIDTHS[kind]
    data = _exactly(payload[place : place + width], width)
    value: Value = struct.unpack(">d", data)[0] if kind == _FLOAT else int.from_bytes(data, "big", signed=True)
    return value, place + width


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for offset in range(_LONGEST_VARINT):
        byte = data[place + offset]
        if offset == _LONGEST_VARINT - 1:
            value = (value << 8) | byte
            break
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:  # noqa: PLR2004 - the high bit says that more follows
            break
    return (value - (1 << 64) if value >= 1 << 63 else value), place + offset + 1
