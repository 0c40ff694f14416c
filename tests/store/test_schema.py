"""Migrations: older files are brought up to date, newer ones are refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.store.connection import APPLICATION, MIGRATIONS, connect, migrate
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import make_message, texts

LATER = (*MIGRATIONS, "ALTER TABLE jobs ADD COLUMN worker TEXT;\nCREATE TABLE news(id INTEGER PRIMARY KEY)")


def version(path: Path) -> tuple[int, int]:
    """Whose file it is, and how new."""
    with closing(sqlite3.connect(path)) as connection:
        (owner,), (number,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        return owner, number


def test_a_new_file_is_marked_as_ours(tmp_path: Path) -> None:
    """A new store carries our mark and the number of its last migration."""
    SqliteStore(tmp_path / "store.db").close()
    assert version(tmp_path / "store.db") == (APPLICATION, len(MIGRATIONS))


def test_an_older_file_is_brought_up_to_date(tmp_path: Path) -> None:
    """Steps that are missing are taken in order, and what was there stays."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.add_messages([make_message("from before")])
    with closing(connect(path, wait=1)) as connection:
        migrate(connection, path=path, migrations=LATER)
        migrate(connection, path=path, migrations=LATER)
        assert connection.execute("SELECT worker FROM jobs").fetchall() == []
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    assert version(path) == (APPLICATION, len(LATER))


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    """A file that a newer Holdfast wrote is refused, untouched, with the advice to upgrade."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.add_messages([make_message("from the future")])
    with closing(connect(path, wait=1)) as connection:
        migrate(connection, path=path, migrations=LATER)
    with pytest.raises(StorageError, match="pip install --upgrade holdfast-memory"):
        SqliteStore(path)
    assert version(path) == (APPLICATION, len(LATER))


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    """A migration that breaks off leaves the file as it was, and usable."""
    path = tmp_path / "store.db"
    with SqliteStore(path) as store:
        store.add_messages([make_message("still here")])
    broken = (*MIGRATIONS, "CREATE TABLE news(id);\nCREATE TABLE jobs(id)")
    with closing(connect(path, wait=1)) as connection, pytest.raises(sqlite3.OperationalError):
        migrate(connection, path=path, migrations=broken)
    with SqliteStore(path) as store:
        assert texts(store) == ["still here"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'news'").fetchone() is None
