"""Ways to open a store that another process can follow."""

from pathlib import Path

from holdfast.store.base import Scope, Store
from holdfast.store.folder import FolderStore
from holdfast.store.sqlite import SqliteStore

SCOPE = Scope(session="s")


def open_sqlite(folder: Path) -> Store:
    """The embedded store of a folder."""
    return SqliteStore(folder / "store.db")


def open_files(folder: Path) -> Store:
    """The memory-context folder, all of it indexed however old it is."""
    return FolderStore(folder)
