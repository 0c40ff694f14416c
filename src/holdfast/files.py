"""Open files that others wrote, and write files that only their owner may read."""

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

if sys.platform != "win32":
    import fcntl

_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. A pipe, a socket or a device could block, or never end.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    descriptor = os.open(path, _READ)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "a pipe or a device, not a regular file: save what it gives to a file", str(path))


def write_private(path: Path, data: bytes) -> None:
    """Replace a file at once, readable by its owner alone."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    part.replace(path)


def create_private(path: Path, data: bytes) -> None:
    """Create a file with all of its data at once, readable by its owner alone; one that exists is kept."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    write_private(part, data)
    try:
        os.link(part, path)
    except FileExistsError:  # another process was faster
        pass
    except OSError:  # a disk without hard links
        write_private(path, data)
    finally:
        part.unlink()


def open_private(path: Path) -> IO[bytes]:
    """Open a file to append to it; a new one is readable by its owner alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def lock(file: IO[Any]) -> bool:
    """Lock an open file unless another process has, and return whether it is locked.

    The lock ends when the file is closed, also by a process that has inherited it.

    Raises:
        OSError: This is Windows, where no lock can be inherited. `only_process` works there too.
    """
    if sys.platform == "win32":
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), str(file.name))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def only_process(path: Path) -> Iterator[bool]:
    """Lock a file unless another process has; yield whether it was locked. A process that dies releases it.

    Use the file for nothing else: on Windows no other process can read or write it while it is locked.
    """
    if sys.platform == "win32":
        with lock_by_library(path, wait=False) as is_only:
            yield is_only
        return
    with path.open("a") as file:
        path.chmod(0o600)
        yield lock(file)


def is_process_running(path: Path) -> bool:
    """Return whether another process is in a block of `only_process` for this file."""
    with only_process(path) as is_only:
        return not is_only


@contextmanager
def lock_writers(path: Path) -> Iterator[None]:
    """Wait until no other process is in this block for a file that all of them write; for platforms without `flock`.

    The file itself stays unlocked, since nobody could write to it then. Its lock is a file next to it.
    """
    with lock_by_library(path.with_name(f"{path.name}.lock"), wait=True):
        yield


@contextmanager
def lock_by_library(path: Path, *, wait: bool) -> Iterator[bool]:
    """Lock a file with `filelock`, for platforms without `flock`; yield whether it is locked.

    Importing it takes 110 ms of processor time, which a hook before every prompt does not have.

    Args:
        path: The file, which is used for nothing else.
        wait: Whether to wait until no other process has locked it.
    """
    from filelock import FileLock, Timeout  # noqa: PLC0415 - see above

    lock_file = FileLock(path, mode=0o600, blocking=wait)
    try:
        lock_file.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock_file.release()


def sync_folder(folder: Path) -> None:
    """Make a new name durable, if folders can be synced at all."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
