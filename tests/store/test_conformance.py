"""Every store of ours passes the suite that any store must pass."""

from pathlib import Path

import pytest

from holdfast.testing.store import CHECKS, Check
from stores import open_files, open_sqlite


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_sqlite_store_keeps_every_contract(check: Check, tmp_path: Path) -> None:
    """The embedded store keeps each contract of a store."""
    check(open_sqlite, tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_files_store_keeps_every_contract(check: Check, tmp_path: Path) -> None:
    """A memory-context folder keeps each contract of a store."""
    check(open_files, tmp_path)
