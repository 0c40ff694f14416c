"""A Unix socket that only its owner can connect to."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.errors import InputError


@contextmanager
def listen(path: Path) -> Iterator[socket.socket]:
    """Bind a socket to a path, mode 0600, and remove the path at the end.

    The folder is made if it does not exist. Nobody else may write to it: another user could create a socket at this
    path, and would get the keys of the clients.

    Raises:
        InputError: The path cannot be used.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise InputError("this system has no Unix sockets: use --port")
    path = path.absolute()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path.parent}: {error.strerror}; name another path with --socket") from error
    _check_folder(path.parent)
    _remove_abandoned(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with bound:
        _bind(bound, path)
        try:
            yield bound
        finally:
            path.unlink(missing_ok=True)


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which another user may replace a file, itself or by renaming a folder above it."""
    owners = {0, os.getuid()}
    for place in (folder.resolve(), *folder.resolve().parents):
        about = place.stat()
        is_shared = bool(about.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
        is_sticky = bool(about.st_mode & stat.S_ISVTX)  # as /tmp: each user removes only what is its own
        if about.st_uid not in owners or (is_shared and (not is_sticky or place == folder.resolve())):
            raise InputError(
                f"{place}: other users may write to this folder, and could put a socket of theirs in place of"
                " yours: name a path in a folder of your own with --socket"
            )


def _remove_abandoned(path: Path) -> None:
    """Remove a socket that no process listens on. Anything else at this path is an InputError."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise InputError(f"{path} is not a socket: name another path with --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; name another path with --socket") from error
    raise InputError(f"another process listens on {path}: stop it, or name another path with --socket")


def _bind(bound: socket.socket, path: Path) -> None:
    before = os.umask(0o177)  # so that the socket has its mode from the beginning
    try:
        bound.bind(str(path))
    except OSError as error:  # also a path that is too long
        raise InputError(f"{path}: {error.strerror or error}; name another path with --socket") from error
    finally:
        os.umask(before)
