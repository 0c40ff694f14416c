"""VMEM version 1, the vector file of the memory-context plugin: read as it does, written so that it can.

    header   magic "VMEM" · version · dimension · count            four unsigned 32-bit numbers, little-endian
    entry    length of the id (16 bits) · id (UTF-8) · vector (dimension x float32)

The plugin writes in place; we write a new file and put it there, so that a crash leaves the old or the new one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.errors import InputError
from holdfast.transcripts import journal

__all__ = ["Vectors", "decode", "encode", "read", "write"]

MAGIC: Final = 0x4D454D56
VERSION: Final = 1
_HEADER: Final = struct.Struct("<4I")
_LENGTH: Final = struct.Struct("<H")
_LONGEST: Final = 0xFFFF

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Vectors:
    """What a vector file holds.

    Attributes:
        dimension: The length of each vector.
        rows: Vectors by id; of one that stands there twice, the last.
        missing: How many entries the header promises that are not there, or not whole.
    """

    dimension: int
    rows: dict[str, Floats]
    missing: int = 0


def read(path: Path) -> Vectors | None:
    """What a file holds; None where there is no such file, or it is none of this format and version."""
    with journal.storage(path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
    return decode(data)


def decode(data: bytes) -> Vectors | None:
    """The vectors in these bytes; None where they are something else. A tail that is cut off ends the reading."""
    if len(data) < _HEADER.size:
        return None
    magic, version, dimension, count = _HEADER.unpack_from(data)
    if (magic, version) != (MAGIC, VERSION):
        return None
    rows: dict[str, Floats] = {}
    place, done = _HEADER.size, 0
    while done < count and place + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, place)
        start = place + _LENGTH.size + length
        if start + 4 * dimension > len(data):
            break
        name = data[place + _LENGTH.size : start].decode("utf-8", "replace")
        rows[name] = np.frombuffer(data, "<f4", dimension, offset=start).astype(np.float32)
        place, done = start + 4 * dimension, done + 1
    return Vectors(dimension, rows, missing=count - done)


def encode(rows: Mapping[str, Sequence[float] | Floats], *, dimension: int) -> Iterator[bytes]:
    """A file of these vectors, piece by piece. A vector that is too short is filled up with zeros.

    Raises:
        InputError: A vector or an id is too long for the format.
    """
    yield _HEADER.pack(MAGIC, VERSION, dimension, len(rows))
    for name, row in rows.items():
        raw = name.encode("utf-8", "replace")
        if len(raw) > _LONGEST or len(row) > dimension:
            raise InputError(f"{name[:80]!r} does not fit into a vector file of dimension {dimension}")
        whole = np.zeros(dimension, "<f4")
        whole[: len(row)] = row
        yield _LENGTH.pack(len(raw)) + raw + whole.tobytes()


def write(path: Path, rows: Mapping[str, Sequence[float] | Floats], *, dimension: int) -> None:
    """Put these vectors in the place of the file: whoever reads sees the old or the new ones, also after a crash."""
    journal.replace(path, list(encode(rows, dimension=dimension)))
