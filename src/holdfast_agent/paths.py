"""File access inside of the workspace.

A name is resolved first, with `..`, absolute paths and links; what is outside of the workspace is refused. Then the
path is opened again from the workspace down, folder by folder, without following links, so that a folder that is
replaced by a link in between cannot lead outside.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import BinaryIO, Final, Literal
from unicodedata import category

from holdfast.errors import InputError

_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_FOLLOW
# Opening a pipe or a device would block.
_READ: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _NO_FOLLOW
_FIXES: Final = {
    errno.ENOENT: "there is no such file: list its folder to find the right name",
    errno.ENOTDIR: "a part of this path is a file, not a folder: check the path",
    errno.EISDIR: "this is a folder: name a file in it",
    errno.ELOOP: "a link on the path is broken or was created just now: name the file itself",
    errno.EACCES: "not allowed by the file's permissions",
    errno.EPERM: "not allowed by the file's permissions",
    errno.EROFS: "the disk is read-only",
    errno.ENOSPC: "the disk is full: free some space and try again",
    errno.ENAMETOOLONG: "the name is too long: choose a shorter one",
    errno.ENXIO: "neither a file nor a folder: only plain files can be used",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The paths that the agent may read and write: the workspace, and other folders and files.

    Relative names start from the workspace.

    Every change in the `guarded` folders needs a confirmation.
    """

    root: Path
    allowed: tuple[Path, ...] = ()
    writable: bool = True
    guarded: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """A file inside of the bounds: an allowed folder, and the path from there, free of links."""

    base: Path
    parts: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The resolved path."""
        return self.base.joinpath(*self.parts)


def locate(bounds: Bounds, name: str) -> Place:
    """Resolve a name; one that is outside of the bounds, or not valid, is an `InputError`."""
    with _explain_errors(name):
        if not name.strip() or "\0" in name:
            raise InputError(f"{name!r} is not the name of a file: give a path such as 'notes/plan.md'")
        try:
            os.fsencode(name)
        except UnicodeEncodeError:
            raise InputError(f"{name!r} is not valid Unicode: write the name again") from None
        real = _real(bounds.root / os.path.expanduser(name))  # noqa: PTH111 - the one that never raises
    for root in (bounds.root, *bounds.allowed):
        base = _real(root)
        if real == base and not base.is_dir():
            return Place(base.parent, (base.name,))
        if real.is_relative_to(base):
            return Place(base, real.relative_to(base).parts)
    raise InputError(
        f"{name!r} is outside of the workspace {bounds.root}: use a path inside of it, or have the user allow it"
    )


def _real(path: Path) -> Path:
    return Path(os.path.realpath(path))


@contextmanager
def open_file(bounds: Bounds, name: str) -> Iterator[BinaryIO]:
    """Open a regular file inside of the bounds for reading."""
    place = locate(bounds, name)
    with _explain_errors(name), _open_parent(place) as folder, os.fdopen(_open_regular(place, folder), "rb") as file:
        yield file


def read_bytes(bounds: Bounds, name: str, *, limit: int | None = None) -> bytes:
    """Read a file, or its first `limit` bytes."""
    with open_file(bounds, name) as file:
        return file.read(-1 if limit is None else limit)


def _open_regular(place: Place, folder: int) -> int:
    if not place.parts:
        raise OSError(errno.EISDIR, "a folder")
    descriptor = os.open(place.parts[-1], _READ, dir_fd=folder)
    try:
        _check_regular(os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO, "not a plain file")


@contextmanager
def _open_parent(place: Place, *, create: bool = False) -> Iterator[int]:
    """Open the folder of a file, step by step, without following links."""
    with ExitStack() as stack:
        descriptor = os.open(place.base, _FOLDER)
        stack.callback(os.close, descriptor)
        for part in place.parts[:-1]:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            descriptor = os.open(part, _FOLDER, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        yield descriptor


@cache
def _guarded(kind: Literal["folders", "files"]) -> dict[str, str]:
    """Return the names that are guarded, each with the reason."""
    text = resources.files("holdfast_agent").joinpath("templates", "guarded.toml").read_text("utf-8")
    reasons: dict[str, str] = {}
    for reason, names in tomllib.loads(text)[kind].items():
        for name in names.split():
            reasons[name] = reason
    return reasons


def guard_reason(bounds: Bounds, place: Place) -> str:
    """Return why a change in this place always needs a confirmation; empty if it does not."""
    names = [_normalise(part) for part in place.path.parts]
    folders = _guarded("folders")
    for name in names:
        if name in folders:
            return folders[name]
    for folder in bounds.guarded:
        if place.path.is_relative_to(_real(folder)):
            return "settings and memory of this agent are kept there"
    return _guarded("files").get(names[-1], "")


def _normalise(name: str) -> str:
    """Return a name as file systems compare it that ignore case, invisible characters, and final dots and blanks."""
    return "".join(letter for letter in name if category(letter) != "Cf").casefold().rstrip(". ")


def write_bytes(
    bounds: Bounds, name: str, data: bytes, *, expected: bytes | None = None, place: Place | None = None
) -> Path:
    """Write a file atomically; missing folders are created.

    `expected` is the content that the file must still have; `place` is the place that the name must still lead to,
    because the user has confirmed it.
    """
    confirmed = place
    place = locate_to_write(bounds, name)
    if confirmed is not None and confirmed != place:
        raise InputError(f"{name!r} leads to another place now: try again")
    with _explain_errors(name), _open_parent(place, create=True) as folder:
        mode = _mode(place, folder)
        if expected is not None:
            with os.fdopen(_open_regular(place, folder), "rb") as file:
                has_changed = file.read() != expected
            if has_changed:
                raise InputError(f"{name!r} was changed in between: read it again, then repeat the edit")
        fresh = f".holdfast-{secrets.token_hex(8)}.new"
        with ExitStack() as undo:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o666, dir_fd=folder)
            undo.callback(os.unlink, fresh, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, place.parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
            undo.pop_all()
    return place.path


def append_bytes(bounds: Bounds, name: str, data: bytes) -> Path:
    """Append to a file, which is created if it does not exist."""
    place = locate_to_write(bounds, name)
    with _explain_errors(name), _open_parent(place, create=True) as folder:
        _mode(place, folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0) | _NO_FOLLOW
        with os.fdopen(os.open(place.parts[-1], flags, 0o666, dir_fd=folder), "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    return place.path


def locate_to_write(bounds: Bounds, name: str) -> Place:
    """Resolve the name of a file that may be written."""
    place = locate(bounds, name)
    if not bounds.writable:
        raise InputError(f"the workspace is read-only: {name!r} cannot be written (agent.workspace.access)")
    if not place.parts:
        raise InputError(f"{name!r} is a folder: name a file in it")
    return place


def _mode(place: Place, folder: int) -> int | None:
    """Return the permissions of an existing file; only a regular file may be overwritten."""
    try:
        mode = os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    _check_regular(mode)
    return stat.S_IMODE(mode)


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """Turn errors of the system into errors with the fix in their messages."""
    try:
        yield
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, f"it cannot be used: {error.strerror or error}")
        raise InputError(f"{name}: {fix}") from error
