"""Ways to open a store that another process can follow."""

from contextlib import closing
from pathlib import Path

import pytest

from holdfast.settings import Secret
from holdfast.store.base import Scope, Store
from holdfast.store.connection import open_file
from holdfast.store.folder import FolderStore
from holdfast.store.sqlite import SqliteStore

SCOPE = Scope(session="s")
KEY = Secret("5eed" * 16)


def require_sqlcipher() -> None:
    """Skip a test if SQLCipher is not installed."""
    pytest.importorskip("sqlcipher3", reason="encrypted stores need `holdfast-memory[encrypted]`")


def open_sqlite(folder: Path) -> Store:
    """The embedded store of a folder."""
    return SqliteStore(folder / "store.db")


def open_encrypted(folder: Path) -> Store:
    """The embedded store of a folder, encrypted."""
    return SqliteStore(folder / "store.db", key=KEY)


def add_unreadable_job(path: Path, *, key: Secret | None = None) -> None:
    """Add a row to a store that cannot be read, so that there is something to repair, and nothing else is lost."""
    with closing(open_file(path, key=key)) as connection:
        connection.execute("INSERT INTO jobs(scope, kind, time, data) VALUES (0, 'learn', 0, x'00')")


def open_files(folder: Path) -> Store:
    """The memory-context folder, all of it indexed however old it is."""
    return FolderStore(folder)
