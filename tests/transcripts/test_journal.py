"""Files on a disk that can fail: private, whole, never rewritten."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import FormatError, StorageError
from holdfast.transcripts import journal
from holdfast.transcripts.session import Session
from support.full_disk import largest_file
from support.session_files import begin, reopen, says, texts


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Files of this process get no more than `mask` leaves."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def failing(code: int) -> OSError:
    """What the system says of a failure."""
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o277])
def test_files_are_for_our_eyes_only(tmp_path: Path, mask: int) -> None:
    """A session file is 0600 whatever the umask."""
    with umask(mask):
        session = begin(tmp_path)
    assert session.file.stat().st_mode & 0o777 == 0o600


def test_folders_that_we_make_are_private_too(tmp_path: Path) -> None:
    """Missing folders are made with 0700; those that exist are left as they are."""
    tmp_path.chmod(0o755)
    with umask(0):
        begin(tmp_path / "a" / "b")
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in (".", "a", "a/b")] == [0o755, 0o700, 0o700]


def test_mode_of_a_file_that_we_did_not_make_stays(tmp_path: Path) -> None:
    """Opening and appending changes no permissions."""
    session = begin(tmp_path)
    session.file.chmod(0o640)
    reopen(session.file).append_message(says("hi"))
    assert session.file.stat().st_mode & 0o777 == 0o640


def test_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    """Creating a session where a file is already is an error, and the file stays."""
    session = begin(tmp_path)
    before = session.file.read_bytes()
    with pytest.raises(StorageError, match="exists already"):
        begin(tmp_path)
    assert session.file.read_bytes() == before


def test_place_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder that cannot be made is a StorageError that names the file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/s\.jsonl"):
        Session.create(tmp_path / "file" / "s.jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_file_that_is_read_only(tmp_path: Path) -> None:
    """A session that may not be written is a StorageError that says what to check."""
    session = begin(tmp_path)
    session.file.chmod(0o400)
    with pytest.raises(StorageError, match="not writable by you"):
        session.append_message(says("hi"))


def test_disk_that_fills_up_inside_a_line(tmp_path: Path) -> None:
    """Half a line is taken back: the file is what it was, the session continues when there is room again."""
    session = begin(tmp_path)
    session.append_message(says("first"))
    before = session.file.read_bytes()
    with largest_file(len(before) + 40), pytest.raises(StorageError, match="may not grow"):
        session.append_message(says("second " * 100))
    assert session.file.read_bytes() == before
    assert texts(session) == ["first"]
    session.append_message(says("third"))
    assert texts(reopen(session.file)) == ["first", "third"]


@pytest.mark.parametrize(
    ("code", "fix"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "read-only"), (errno.EIO, "could not be used")]
)
def test_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, fix: str) -> None:
    """A write that fails is a StorageError with the fix; nothing of the entry stays, in the file or in the session."""
    session = begin(tmp_path)
    before = session.file.read_bytes()

    def fail(_descriptor: int, _data: bytes) -> int:
        raise failing(code)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(StorageError, match=fix):
            session.append_message(says("hi"))
    assert (session.file.read_bytes(), session.entries, session.leaf) == (before, (), None)


def test_sync_that_fails_takes_the_entry_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that could not be made durable is not acknowledged, and is not there."""
    session = begin(tmp_path)
    before = session.file.read_bytes()

    def fail(_descriptor: int) -> None:
        raise failing(errno.EIO)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError):
            session.append_message(says("hi"))
        session.append("session_info", {"name": "needs no sync"}, durable=False)
    assert session.file.read_bytes().startswith(before)
    assert [entry.type for entry in reopen(session.file).entries] == ["session_info"]


def test_entries_that_matter_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are on the disk when the call returns, unless the caller says otherwise."""
    session = begin(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    session.append_message(says("1"))
    session.append_compaction("2", first_kept=None, tokens_before=1)
    session.append("custom", {"customType": "x"})
    assert len(synced) == 3
    session.append_message(says("3"), durable=False)
    session.append("custom", {"customType": "x"}, durable=False)
    assert len(synced) == 3


def test_what_others_wrote_behind_ours_is_not_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write is left in place where a program without our lock has written behind it."""
    session = begin(tmp_path)
    stranger = b'{"type":"custom","id":"x","parentId":null}\n'

    def fail(_descriptor: int) -> None:
        with session.file.open("ab") as file:
            file.write(stranger)
        raise failing(errno.EIO)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError):
            session.append_message(says("hi"))
    assert session.file.read_bytes().endswith(stranger)
    assert [entry.type for entry in reopen(session.file).entries] == ["message", "custom"]


def test_half_a_new_file_is_removed(tmp_path: Path) -> None:
    """A file that could not be written to its end is not left behind, nor a replacement half done."""

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise FormatError("no more")

    whole = tmp_path / "whole"
    whole.write_bytes(b"old")
    with pytest.raises(FormatError):
        journal.create(tmp_path / "new", chunks())
    with pytest.raises(FormatError):
        journal.replace(whole, chunks())
    with largest_file(2), pytest.raises(StorageError):
        journal.back_up(whole, stamp=["now"])
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]
    assert whole.read_bytes() == b"old"


def test_replaced_file_is_found_again_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is replaced between opening and locking is opened again: nothing goes to a file without a name."""
    fcntl = pytest.importorskip("fcntl")
    session = begin(tmp_path)
    flock = fcntl.flock

    def slow(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        journal.replace(session.file, [session.file.read_bytes()])
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", slow)
    session.append_message(says("hi"))
    assert texts(reopen(session.file)) == ["hi"]


@pytest.mark.parametrize(("code", "works"), [(errno.ENOLCK, True), (errno.EIO, False)])
def test_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, *, works: bool) -> None:
    """A disk that knows no locks is used without; any other failure to lock is an error."""
    fcntl = pytest.importorskip("fcntl")
    session = begin(tmp_path)

    def fail(_descriptor: int, _operation: int) -> None:
        raise failing(code)

    monkeypatch.setattr(fcntl, "flock", fail)
    if works:
        session.append_message(says("hi"))
        return
    with pytest.raises(StorageError):
        session.append_message(says("hi"))
