"""VMEM version 1: bit for bit as the plugin writes it, read as the plugin reads it."""

import struct
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import InputError, StorageError
from holdfast.store.plugin_files import decode_vectors, encode_vectors, read_vectors, write_vectors

NAME = "123e4567-e89b-42d3-a456-426614174000"


def test_the_header_is_the_plugins() -> None:
    """Magic, version, dimension and count are four unsigned numbers, the lowest byte first."""
    header = next(encode_vectors({NAME: [0.0] * 384}, dimension=384))
    assert header.hex(" ", 4) == "564d454d 01000000 80010000 01000000"


def test_an_entry_is_the_plugins() -> None:
    """An id is written as text behind its length, then each component as a float of four bytes."""
    data = b"".join(encode_vectors({NAME: [1.0, -0.5]}, dimension=2))
    assert data[16:] == struct.pack("<H", 36) + NAME.encode() + struct.pack("<2f", 1.0, -0.5)


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    """Ids of any script and vectors of any length come back; a short vector is filled up with zeros."""
    path = tmp_path / "vectors.bin"
    write_vectors(path, {NAME: [1.5], "记忆": np.array([1, 2, 3], np.float32), "": [0.0, 0.0, 9.0]}, dimension=3)
    found = read_vectors(path)
    assert found is not None
    assert (found.dimension, found.missing) == (3, 0)
    assert {name: row.tolist() for name, row in found.rows.items()} == {
        NAME: [1.5, 0, 0],
        "记忆": [1, 2, 3],
        "": [0, 0, 9],
    }


def test_no_vectors_are_a_file_too(tmp_path: Path) -> None:
    """An empty file of vectors is a header."""
    write_vectors(tmp_path / "v.bin", {}, dimension=384)
    found = read_vectors(tmp_path / "v.bin")
    assert found is not None
    assert found.rows == {}
    assert (tmp_path / "v.bin").stat().st_size == 16


@pytest.mark.parametrize(
    "data", [b"", b"VMEM", b"\0" * 40, struct.pack("<4I", 0x4D454D56, 2, 3, 0), b"MEMV" + b"\1" * 40]
)
def test_something_else_is_nothing(data: bytes) -> None:
    """Too few bytes, another magic or another version are no vectors."""
    assert decode_vectors(data) is None


def test_a_tail_that_is_cut_off_ends_the_reading() -> None:
    """Whole entries before the cut are read, and how many are missing is said."""
    data = b"".join(encode_vectors({f"{n}": [float(n)] * 4 for n in range(5)}, dimension=4))
    for size in range(16, len(data)):
        found = decode_vectors(data[:size])
        assert found is not None
        assert len(found.rows) == (size - 16) // (2 + 1 + 16)
        assert len(found.rows) + found.missing == 5


def test_a_hostile_header_is_harmless() -> None:
    """A header that promises more than there is, or entries of no length, is read for what it holds."""
    found = decode_vectors(struct.pack("<4I", 0x4D454D56, 1, 0xFFFFFFFF, 0xFFFFFFFF) + b"\0" * 50)
    assert found is not None
    assert found.rows == {}
    empty = decode_vectors(struct.pack("<4I", 0x4D454D56, 1, 0, 3) + b"\1\0a\1\0a\1\0b")
    assert empty is not None
    assert sorted(empty.rows) == ["a", "b"]


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    """A vector or an id that is too long is a typed error, and the file stays as it was."""
    path = tmp_path / "v.bin"
    write_vectors(path, {"a": [1.0]}, dimension=1)
    before = path.read_bytes()
    for rows in ({"b": [1.0, 2.0]}, {"x" * 70_000: [1.0]}):
        with pytest.raises(InputError, match="does not fit"):
            write_vectors(path, rows, dimension=1)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["v.bin"]


def test_trouble_with_the_disk_is_a_typed_error(tmp_path: Path) -> None:
    """A place that cannot be read or written says so; a missing file is no trouble."""
    assert read_vectors(tmp_path / "nowhere.bin") is None
    with pytest.raises(StorageError):
        read_vectors(tmp_path)
    with pytest.raises(StorageError):
        write_vectors(tmp_path / "no" / "folder.bin", {}, dimension=1)
