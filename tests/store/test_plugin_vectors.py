"""VMEM version 1: bit for bit as the plugin writes it, read as the plugin reads it."""

import struct
import uuid
from pathlib import Path

import numpy as np
import pytest

from holdfast.errors import InputError, StorageError
from holdfast.store.vmem import Form, append_vectors, decode_vectors, encode_vectors, read_vectors, write_vectors

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


@pytest.mark.parametrize("has_length", [True, False])
def test_ids_of_16_bytes_are_read(has_length: bool) -> None:  # noqa: FBT001 - parametrised
    """The bytes of a UUID stand for its text, with their length before them or bare."""
    names = [uuid.UUID(int=number << 100 | 0x4000_8000_0000_0000_0000, version=4) for number in range(1, 6)]
    data = struct.pack("<4I", 0x4D454D56, 1, 3, len(names))
    for number, name in enumerate(names):
        length = struct.pack("<H", 16) if has_length else b""
        data += length + name.bytes + struct.pack("<3f", number, 0.5, -1)
    found = decode_vectors(data)
    assert found is not None
    assert found.rows.keys() == {str(name) for name in names}
    assert found.rows[str(names[4])].tolist() == [4, 0.5, -1]
    assert b"".join(encode_vectors(found.rows, dimension=3, form=found.form)) == data
    cut = decode_vectors(data[:-5])
    assert cut is not None
    assert (len(cut.rows), cut.missing) == (4, 1)


def test_a_text_of_16_characters_is_a_text() -> None:
    """Only ids that are no text are taken for the bytes of a UUID."""
    found = decode_vectors(b"".join(encode_vectors({"sixteen-letters!": [1.0], NAME: [2.0]}, dimension=1)))
    assert found is not None
    assert list(found.rows) == ["sixteen-letters!", NAME]


@pytest.mark.parametrize("form", ["text", "binary", "bare"])
def test_vectors_are_appended_in_place(tmp_path: Path, form: Form) -> None:
    """The rest of the file stays as it is, byte for byte, and the form of the ids too."""
    path = tmp_path / "vectors.bin"
    write_vectors(path, {NAME: [1.0, 2.0]}, dimension=2, form=form)
    before = path.read_bytes()
    inode = path.stat().st_ino
    known = read_vectors(path)
    assert known is not None
    other = "223e4567-e89b-42d3-a456-426614174000"
    now = append_vectors(path, {other: np.array([3, 4], np.float32)}, known=known)
    after = path.read_bytes()
    assert after[16 : len(before)] == before[16:]
    assert path.stat().st_ino == inode
    found = read_vectors(path)
    assert found is not None
    assert now is not None
    assert (now.rows.keys(), now.end, now.count) == (found.rows.keys(), found.end, found.count)
    assert (found.form, found.count, found.missing) == (form, 2, 0)
    assert {name: row.tolist() for name, row in found.rows.items()} == {NAME: [1, 2], other: [3, 4]}


def test_an_append_that_a_crash_cut_off_leaves_the_old_vectors(tmp_path: Path) -> None:
    """Wherever it ends, a reader sees the old or the new vectors, and the next append cleans up behind it."""
    path = tmp_path / "vectors.bin"
    write_vectors(path, {NAME: [1.0, 2.0]}, dimension=2)
    old = path.read_bytes()
    known = read_vectors(path)
    assert known is not None
    added = {"b": np.array([3, 4], np.float32)}
    append_vectors(path, added, known=known)
    entry = path.read_bytes()[len(old) :]
    for size in range(len(entry) + 1):
        path.write_bytes(old + entry[:size])  # the header counts the entry last
        found = read_vectors(path)
        assert found is not None
        assert (list(found.rows), found.missing) == ([NAME], 0)
        assert append_vectors(path, added, known=found)
        assert path.read_bytes()[len(old) :] == entry


def test_a_file_that_another_program_wrote_meanwhile_is_left_alone(tmp_path: Path) -> None:
    """The plugin writes it as a whole: what was read before says nothing about its end."""
    path = tmp_path / "vectors.bin"
    write_vectors(path, {NAME: [1.0], "b": [2.0]}, dimension=1)
    known = read_vectors(path)
    assert known is not None
    write_vectors(path, {NAME: [1.0]}, dimension=1)
    before = path.read_bytes()
    assert not append_vectors(path, {"c": np.array([3], np.float32)}, known=known)
    assert path.read_bytes() == before
