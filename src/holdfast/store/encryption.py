"""Encrypt a store that is not encrypted, decrypt it, or change its key: a new file replaces the old one at once."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from holdfast.errors import EncryptionError, StorageError
from holdfast.files import sync_folder
from holdfast.store.cipher import HEADER, make_new_key, open_encrypted
from holdfast.store.connection import APPLICATION, SqliteDatabase, is_error, list_errors, translate_errors
from holdfast.store.forgetting import CONVERTED, delete_copies, unfinished_copies
from holdfast.store.vector_file import list_copies

if TYPE_CHECKING:
    from holdfast.settings.schema import Secret

_COPIED_BYTES: Final = 1 << 20


def has_key(path: Path) -> bool:
    """Return whether a file is an encrypted store. No connection of this process may have it open.

    Whoever closes a file that this process has open ends the locks that SQLite has on it.
    """
    with path.open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def opens_with(path: Path, key: Secret) -> bool:
    """Return whether a key is that of an encrypted store. No connection of this process may have it open."""
    with translate_errors(path), closing(open_encrypted(path, key=key, methods=SqliteDatabase)) as connection:
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except list_errors() as error:
            if is_error(error, "SQLITE_NOTADB"):
                return False
            raise
    return True


def convert(path: Path, *, old: Secret | None, new: Secret | None, wait: float = 5.0) -> None:
    """Rewrite a store's file with another key, or without one. None stands for no encryption.

    The new file gets the name of the old one when it is complete and on the disk; until then, nothing has changed. The
    old one is overwritten and deleted. Copies of vectors, and what killed repairs and conversions have left, are
    deleted. No connection of this process may have it open.

    Args:
        path: The file.
        old: The present key.
        new: The key from now on.
        wait: How many seconds to wait for other processes that have it open.

    Raises:
        StorageError: Another process has the file open, or the disk is full.
        EncryptionError: The old key is not the one of this file.
    """
    path = path.resolve()  # the file is replaced, not a link to it
    if not path.exists():
        raise StorageError("no such store. Check the path.", path=path)
    if has_key(path) != (old is not None):
        state = "is encrypted already" if old is None else "is not encrypted"
        raise EncryptionError(f"{state}. Nothing was changed.", path=path)
    with (
        translate_errors(path),
        closing(open_encrypted(path, key=old, methods=SqliteDatabase, timeout=wait)) as source,
    ):
        (owner,) = source.execute("PRAGMA application_id").fetchone()
        if owner != APPLICATION:
            raise StorageError("is not a Holdfast store. Choose another file.", path=path)
        _lock(source, path)
        delete_copies(unfinished_copies(path))
        part = path.with_name(f"{path.name}{CONVERTED}")
        try:
            _copy(source, part, source_path=path, key=new)
            for copy in list_copies(source):
                copy.unlink()
            _replace(path, part, source)
        except OSError as error:
            raise StorageError(f"could not be converted: {error.strerror}. Nothing was changed.", path=path) from error
        finally:
            _delete(part)


def _lock(source: SqliteDatabase, path: Path) -> None:
    """Let no other process open a file until it is closed; fail if one has it open."""
    try:
        source.execute("PRAGMA locking_mode = EXCLUSIVE")
        # Leaving the write-ahead log needs a lock that nobody else can have, and moves all pages into the file.
        source.execute("PRAGMA journal_mode = DELETE").fetchone()
        source.execute("BEGIN EXCLUSIVE")
        source.execute("COMMIT")  # the lock stays until the file is closed
    except list_errors() as error:
        if not is_error(error, "SQLITE_BUSY"):
            raise
        raise StorageError(
            "another program has it open. Stop `holdfast serve`, hosts and sessions that use it, and try again.",
            path=path,
        ) from error


def _copy(source: SqliteDatabase, part: Path, *, source_path: Path, key: Secret | None) -> None:
    """Copy all tables to a new file, and check that they are there."""
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    source.execute("ATTACH ? AS target KEY ?", (str(part), "" if key is None else make_new_key(key)))
    try:
        source.execute("SELECT sqlcipher_export('target')").fetchall()
    except list_errors() as error:  # its number does not say why
        raise StorageError(
            f"could not be copied: {error}. Nothing was changed. If the disk is full, make room; if the store is"
            " damaged, run `holdfast doctor --repair`.",
            path=source_path,
        ) from error
    for setting in ("user_version", "application_id"):
        (value,) = source.execute(f"PRAGMA main.{setting}").fetchone()
        source.execute(f"PRAGMA target.{setting} = {value}")
    faults = [text for (text,) in source.execute("PRAGMA target.integrity_check") if text != "ok"]
    tables = [name for (name,) in source.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]
    for name in tables:
        counts = {
            source.execute(f"SELECT count(*) FROM {database}.{name}").fetchone()[0] for database in ("main", "target")
        }
        if len(counts) != 1:
            faults.append(f"the copy of {name} is not complete")
    if faults:
        raise StorageError(f"could not be copied: {faults[0]}. Run `holdfast doctor`.", path=part)
    source.execute("DETACH target")


def _replace(path: Path, part: Path, source: SqliteDatabase) -> None:
    """Put the new file in place of the old one, which is overwritten while no process can read it."""
    if sys.platform == "win32":  # an open file cannot be replaced there
        source.close()
        part.replace(path)
        return
    with path.open("r+b") as old:
        part.replace(path)
        sync_folder(path.parent)
        # A process that has opened the old file and waits for its lock must not find a store in it.
        try:
            _overwrite(old)
        except OSError as error:
            raise StorageError(
                f"converted, but the old file is not overwritten: {error.strerror}", path=path
            ) from error
        source.close()  # before `old` is closed, which would end the lock


def _overwrite(file: IO[bytes]) -> None:
    """Replace the content of a file by zeros."""
    size = os.fstat(file.fileno()).st_size
    for start in range(0, size, _COPIED_BYTES):
        file.write(bytes(min(_COPIED_BYTES, size - start)))
    file.flush()
    os.fsync(file.fileno())


def _delete(part: Path) -> None:
    """Delete an incomplete copy, and its journals."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        part.with_name(f"{part.name}{suffix}").unlink(missing_ok=True)
