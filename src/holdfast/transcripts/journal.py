"""Write private files safely: locked appends that are complete or undone, and atomic replacement."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from holdfast.errors import StorageError
from holdfast.files import lock_writers, sync_folder
from holdfast.transcripts.lines import Line, parse_line

if sys.platform != "win32":
    import fcntl

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_FLAGS: Final = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_CHUNK: Final = 1 << 20
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
_FIXES: Final = {
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.EDQUOT: "your disk quota is used up: free some space and try again",
    errno.EFBIG: "the file may not grow any further: raise the limit, or start another session",
    errno.EROFS: "the disk is read-only: choose another place",
    errno.EACCES: "not writable by you: check its permissions and those of its folder",
    errno.EPERM: "not writable by you: check its permissions and those of its folder",
    errno.EEXIST: "exists already: open it, or choose another name",
    errno.ENOENT: "no such file: it was moved or removed",
}


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turn every OSError inside into a StorageError with the fix in its message."""
    try:
        yield
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, f"could not be used: {error.strerror or error}")
        raise StorageError(fix, path=path) from error


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Lock a file and yield a descriptor for reading and appending."""
    with storage(path), ExitStack() as held:
        if sys.platform == "win32":
            held.enter_context(lock_writers(path))
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | _FLAGS)
            try:
                _lock(descriptor)
                # Otherwise the file was replaced while we waited for the lock.
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):  # noqa: PTH116 - like the call above it
                    yield descriptor
                    return
            finally:
                os.close(descriptor)


def _lock(descriptor: int) -> None:
    if sys.platform == "win32":  # `lock_writers` did it
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # Some network disks have no locks; single appends still do not mix.
        if error.errno not in _NO_LOCKS:
            raise


def read_from(descriptor: int, offset: int, *, number: int) -> Iterator[Line]:
    """Yield the lines from a byte offset on, numbered from `number`."""
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(offset)
        for count, raw in enumerate(file, start=number):
            yield parse_line(raw, count)


def append(descriptor: int, data: bytes, *, durable: bool) -> None:
    """Append data in one piece; on failure the file is restored."""
    before = os.fstat(descriptor).st_size
    try:
        _write(descriptor, data)
        if durable:
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):
            left = os.fstat(descriptor).st_size - before
            os.lseek(descriptor, before, os.SEEK_SET)
            # Another process may have appended after it.
            if 0 < left <= len(data) and os.read(descriptor, left) == data[:left]:
                os.ftruncate(descriptor, before)
        raise


def _write(descriptor: int, data: bytes) -> None:
    done = os.write(descriptor, data)
    while done < len(data):  # a disk that fills up takes a part first, and reports the reason on the next write
        done += os.write(descriptor, data[done:])


def create(path: Path, chunks: Iterable[bytes]) -> None:
    """Write a new file durably, readable by its owner only; missing folders are created the same way."""
    with storage(path):
        for folder in reversed([folder for folder in path.parents if not folder.exists()]):
            folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        _write_new(path, chunks)


def replace(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace a file's contents atomically, also in case of a crash."""
    with storage(path):
        target = path.resolve()
        fresh = target.with_name(f".{target.name}.new")
        fresh.unlink(missing_ok=True)  # left by a crash; the lock on the old file excludes other writers
        _write_new(fresh, chunks)
        fresh.replace(target)
        sync_folder(target.parent)


def back_up(path: Path, *, stamp: Iterable[str]) -> Path:
    """Copy a file to `<file>.bak.<stamp>`, with the first stamp that is free."""
    with storage(path):
        names = (path.with_name(f"{path.name}.bak.{text}") for text in stamp)
        target = next(name for name in names if not name.exists())
        with path.open("rb") as source:
            _write_new(target, iter(lambda: source.read(_CHUNK), b""))
        return target


def _write_new(path: Path, chunks: Iterable[bytes]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, _FILE_MODE)
    with ExitStack() as undo:
        undo.callback(path.unlink)  # do not leave a partial file behind
        undo.callback(os.close, descriptor)
        if sys.platform != "win32":
            os.fchmod(descriptor, _FILE_MODE)
        for chunk in chunks:
            _write(descriptor, chunk)
        os.fsync(descriptor)
        undo.pop_all()
    os.close(descriptor)
    sync_folder(path.parent)
