"""`vectors.bin` of the memory-context plugin: VMEM version 1.

    header   magic "VMEM" · version · dimension · count            four unsigned 32-bit numbers, little-endian
    entry    length of the id (16 bits) · id (UTF-8) · vector (dimension x float32)

Some programs write the 16 bytes of a UUID instead of its 36 characters, with the length before them or without. A file
keeps the form that it has.
"""

from __future__ import annotations

import os
import struct
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.transcripts import journal

MAGIC: Final = 0x4D454D56
VERSION: Final = 1
_HEADER: Final = struct.Struct("<4I")
_COUNT: Final = struct.Struct("<I")
_COUNT_PLACE: Final = 12
_LENGTH: Final = struct.Struct("<H")
_MAX_ID_BYTES: Final = 0xFFFF
_UUID_BYTES: Final = 16
_UUID_CHARACTERS: Final = 36
_RANDOM_VERSIONS: Final = frozenset({4, 7})
_UUID_VARIANT: Final = 0b10

Floats: TypeAlias = npt.NDArray[np.float32]
Form: TypeAlias = Literal["text", "binary", "bare"]
"""Encodings of ids: text, the bytes of a UUID after their length, or these bytes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The vectors of a file by id, the last of several.

    Attributes:
        dimension: The length of each vector.
        rows: The vectors. Ids that are written as bytes are given as the text of their UUID.
        form: How the ids are written.
        count: The number of entries.
        end: Where the last entry ends.
        missing: How many entries the header promises that the file does not have.
    """

    dimension: int
    rows: dict[str, Floats] = field(repr=False)
    form: Form = "text"
    count: int = 0
    end: int = _HEADER.size
    missing: int = 0


def read_vectors(path: Path) -> Vectors | None:
    """Read a file; None if there is no such file, or it is not one of this format and version."""
    with journal.storage(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    return decode_vectors(data)


def decode_vectors(data: bytes) -> Vectors | None:
    """Decode the bytes of a file; None if they are something else. A tail that is cut off ends the reading."""
    if len(data) < _HEADER.size:
        return None
    magic, version, dimension, count = _HEADER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        return None
    is_bare = _has_bare_ids(data, dimension=dimension, count=count)
    rows: dict[str, Floats] = {}
    has_binary_id = False
    place = _HEADER.size
    done = 0
    while done < count:
        start = place
        length = _UUID_BYTES
        if not is_bare:
            if place + _LENGTH.size > len(data):
                break
            (length,) = _LENGTH.unpack_from(data, place)
            start += _LENGTH.size
        vector = start + length
        if vector + 4 * dimension > len(data):
            break
        raw = data[start:vector]
        is_binary = is_bare or _is_binary_id(raw)
        has_binary_id = has_binary_id or is_binary
        name = str(uuid.UUID(bytes=raw)) if is_binary else raw.decode("utf-8", "replace")
        rows[name] = np.frombuffer(data, "<f4", dimension, offset=vector).astype(np.float32)
        place = vector + 4 * dimension
        done += 1
    form: Form = "text"
    if is_bare:
        form = "bare"
    elif has_binary_id:
        form = "binary"
    return Vectors(dimension=dimension, rows=rows, form=form, count=done, end=place, missing=count - done)


def _has_bare_ids(data: bytes, *, dimension: int, count: int) -> bool:
    """Return whether entries begin with the 16 bytes of a UUID, without a length.

    The size of a whole file decides. One that was cut off has bare ids if it begins with a UUID and not with one of the
    usual lengths.
    """
    first = data[_HEADER.size : _HEADER.size + _UUID_BYTES]
    if count == 0 or len(first) < _UUID_BYTES or _has_lengths(data, dimension=dimension, count=count):
        return False
    if len(data) == _HEADER.size + count * (_UUID_BYTES + 4 * dimension):
        return True
    return _LENGTH.unpack_from(first)[0] not in {_UUID_BYTES, _UUID_CHARACTERS} and _is_random_uuid(first)


def _has_lengths(data: bytes, *, dimension: int, count: int) -> bool:
    """Return whether entries with lengths fill the file to its last byte."""
    place = _HEADER.size
    for _ in range(count):
        if place + _LENGTH.size > len(data):
            return False
        (length,) = _LENGTH.unpack_from(data, place)
        place += _LENGTH.size + length + 4 * dimension
    return place == len(data)


def _is_random_uuid(raw: bytes) -> bool:
    """Return whether 16 bytes have the marks of a UUID of version 4 or 7."""
    return raw[6] >> 4 in _RANDOM_VERSIONS and raw[8] >> 6 == _UUID_VARIANT


def _is_binary_id(raw: bytes) -> bool:
    """Return whether an id of 16 bytes is that of a UUID and not a text of 16 characters."""
    if len(raw) != _UUID_BYTES:
        return False
    try:
        return not raw.decode().isprintable()
    except UnicodeDecodeError:
        return True


def encode_vectors(
    rows: Mapping[str, Sequence[float] | Floats], *, dimension: int, form: Form = "text"
) -> Iterator[bytes]:
    """Encode a file piece by piece. A vector that is too short is filled up with zeros, a longer one refused."""
    entries = list(_encode_entries(rows, dimension=dimension, form=form))
    yield _HEADER.pack(MAGIC, VERSION, dimension, len(entries))
    yield from entries


def _encode_entries(rows: Mapping[str, Sequence[float] | Floats], *, dimension: int, form: Form) -> Iterator[bytes]:
    """Encode entries; an id that is not a UUID cannot be stored in a file of bare ids."""
    for name, row in rows.items():
        raw = name.encode("utf-8", "replace")
        if form != "text" and (binary := _uuid_bytes(name)) is not None:
            raw = binary
        elif form == "bare":
            continue
        if len(raw) > _MAX_ID_BYTES or len(row) > dimension:
            raise InputError(f"{name[:80]!r} does not fit into a vector file of dimension {dimension}")
        whole = np.zeros(dimension, "<f4")
        whole[: len(row)] = row
        length = b"" if form == "bare" else _LENGTH.pack(len(raw))
        yield length + raw + whole.tobytes()


def _uuid_bytes(name: str) -> bytes | None:
    try:
        found = uuid.UUID(name)
    except ValueError:
        return None
    return found.bytes if str(found) == name else None


def write_vectors(
    path: Path, rows: Mapping[str, Sequence[float] | Floats], *, dimension: int, form: Form = "text"
) -> None:
    """Replace a file atomically: a reader sees the old or the new vectors, also after a crash."""
    journal.replace(path, list(encode_vectors(rows, dimension=dimension, form=form)))


def append_vectors(path: Path, rows: Mapping[str, Floats], *, known: Vectors) -> Vectors | None:
    """Append vectors to a file that was read as `known`; return the file as it is now.

    The entries are on disk before the header counts them, so that a reader sees all of the file's own vectors whenever
    the power fails. Nothing is appended, and None returned, if another program has written the file since.
    """
    entries = list(_encode_entries(rows, dimension=known.dimension, form=known.form))
    with journal.storage(path), path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        is_same = file.read(_HEADER.size) == _HEADER.pack(MAGIC, VERSION, known.dimension, known.count)
        if known.missing or size < known.end or not is_same:
            return None
        file.truncate(known.end)  # data after the last entry was left by a crash
        file.seek(known.end)
        file.write(b"".join(entries))
        file.flush()
        os.fsync(file.fileno())
        file.seek(_COUNT_PLACE)
        file.write(_COUNT.pack(known.count + len(entries)))
        file.flush()
        os.fsync(file.fileno())
    count = known.count + len(entries)
    return replace(known, rows={**known.rows, **rows}, count=count, end=known.end + sum(map(len, entries)))


def remove_vectors(path: Path, names: set[str]) -> bool:
    """Remove the vectors of segments, and of their windows, from a file; return whether it had any."""
    vectors = read_vectors(path)
    if vectors is None:
        return False
    kept = {name: row for name, row in vectors.rows.items() if name.split("#")[0] not in names}
    if len(kept) == len(vectors.rows):
        return False
    write_vectors(path, kept, dimension=vectors.dimension, form=vectors.form)
    return True
