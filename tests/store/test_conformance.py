"""Every store of ours passes the suite that any store must pass."""

from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.store.base import MessageRow, Select, Store
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import Check
from holdfast.testing.store import CHECKS, check_store
from support.postgres_server import open_postgres
from support.stores import open_encrypted, open_files, open_sqlite, require_sqlcipher


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_store_passes_every_check(check: Check, tmp_path: Path) -> None:
    """The embedded store passes each check of a store."""
    check(open_sqlite, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_encrypted_store_passes_every_check(check: Check, tmp_path: Path) -> None:
    """The embedded store passes each check of a store if it is encrypted."""
    require_sqlcipher()
    check(open_encrypted, tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_files_store_passes_every_check(check: Check, tmp_path: Path) -> None:
    """A memory-context folder passes each check of a store."""
    check(open_files, tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_postgres_store_passes_every_check(check: Check, tmp_path: Path) -> None:
    """The store on a server passes each check of a store."""
    check(open_postgres, tmp_path)


class _Leaky(SqliteStore):
    """A store that shows everyone's messages to everyone."""

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        return super().read_messages(replace(select, scope=replace(select.scope, session="a"), across=True))


def _open_leaky(folder: Path) -> Store:
    return _Leaky(folder / "store.db")


def test_a_failed_check_is_named(tmp_path: Path) -> None:
    """A store that fails a check raises the name of the check and what it requires."""
    with pytest.raises(AssertionError, match=r"scopes_are_isolated: No read in a scope"):
        check_store(_open_leaky, tmp_path)
