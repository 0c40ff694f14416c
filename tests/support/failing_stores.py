"""Stores that fail or hang, as third parties might write them, and faults of real ones."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from holdfast.engine import Engine
from holdfast.errors import StorageError
from holdfast.memory.memory import Memory
from holdfast.search.candidates import Candidates
from holdfast.settings import Settings
from holdfast.store.base import Job, Known, MessageRow, Record, Scope, SearchQuery, Select
from holdfast.store.opening import STORE_NAME
from holdfast.store.sqlite import SqliteStore
from support.full_disk import largest_file

__all__ = ["FAULTS", "FailingStore", "HangingStore", "open_engine"]


class _InterceptedStore(SqliteStore):
    """A store that does something before each call that a request makes."""

    def before_call(self, name: str) -> None:
        """Do it."""
        raise NotImplementedError

    def find(self, scope: Scope, digests: Sequence[str], /) -> Known:
        self.before_call("read")
        return super().find(scope, digests)

    def read_messages(self, select: Select, /) -> list[MessageRow]:
        self.before_call("read")
        return super().read_messages(select)

    def read_records(
        self, select: Select, /, *, kind: str | None = None, keys: Sequence[str] | None = None
    ) -> list[Record]:
        self.before_call("read")
        return super().read_records(select, kind=kind, keys=keys)

    def search(self, query: SearchQuery, /) -> Candidates:
        self.before_call("search")
        return super().search(query)

    def add_messages(self, rows: Sequence[MessageRow], /) -> list[int]:
        self.before_call("add")
        return super().add_messages(rows)

    def merge_messages(
        self, scope: Scope, digests: Sequence[str], make_rows: Callable[[Known], Sequence[MessageRow]], /
    ) -> list[int]:
        self.before_call("add")
        return super().merge_messages(scope, digests, make_rows)

    def add_records(self, rows: Sequence[Record], /) -> list[int]:
        self.before_call("add")
        return super().add_records(rows)

    def add_jobs(self, rows: Sequence[Job], /) -> list[int]:
        self.before_call("add")
        return super().add_jobs(rows)


class FailingStore(_InterceptedStore):
    """A store whose calls of some kinds fail from the n-th on, for a while."""

    def __init__(self, path: Path, *, kinds: frozenset[str], first: int, count: int) -> None:
        super().__init__(path)
        self._kinds = kinds
        self._failing = range(first, first + count)
        self._calls = 0
        self.failed = 0

    def before_call(self, name: str) -> None:
        if name not in self._kinds:
            return
        self._calls += 1
        if self._calls - 1 in self._failing:
            self.failed += 1
            raise StorageError("the disk is gone", path=self.path)

    def fail(self) -> None:
        """Fail from now on."""
        self._failing = range(self._calls, sys.maxsize)

    def heal(self) -> None:
        """Fail no more."""
        self._failing = range(0)


class HangingStore(_InterceptedStore):
    """A store whose calls of some kinds do not return, once it hangs and until it is released."""

    def __init__(self, path: Path, *, kinds: frozenset[str]) -> None:
        super().__init__(path)
        self._kinds = kinds
        self._released = Event()
        self._released.set()

    def before_call(self, name: str) -> None:
        if name in self._kinds:
            self._released.wait()

    def hang(self) -> None:
        """Hang from now on."""
        self._released.clear()

    def hang_no_more(self) -> None:
        """Answer further calls; those that hang continue hanging."""
        self._kinds = frozenset()

    def release(self) -> None:
        """Let all calls continue."""
        self._released.set()


def open_engine(store: SqliteStore, settings: Settings) -> Engine:
    """An engine over a store, without a thread of its own."""
    return Engine(Memory(store=store, settings=settings))


# --- faults of a real store, each until the block ends ------------------------------------


@contextmanager
def _deleted(folder: Path) -> Iterator[None]:
    """Every file of the store is gone; it is back afterwards."""
    aside = folder.with_name(f"{folder.name}-aside")
    aside.mkdir()
    for file in folder.iterdir():
        file.rename(aside / file.name)
    yield
    for file in aside.iterdir():
        file.rename(folder / file.name)
    aside.rmdir()


@contextmanager
def _full(folder: Path) -> Iterator[None]:
    """No file can grow any more."""
    log = folder / f"{STORE_NAME}-wal"
    with largest_file(log.stat().st_size if log.exists() else 0):
        yield


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Another process is in the middle of a write."""
    with closing(sqlite3.connect(folder / STORE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def _newer(folder: Path) -> Iterator[None]:
    """A newer version has changed the tables."""
    with closing(sqlite3.connect(folder / STORE_NAME, isolation_level=None)) as other:
        (version,) = other.execute("PRAGMA user_version").fetchone()
        other.execute("PRAGMA user_version = 999")
        yield
        other.execute(f"PRAGMA user_version = {version}")


@contextmanager
def _corrupt(folder: Path) -> Iterator[None]:
    """The pages of its tables hold something else."""
    with closing(sqlite3.connect(folder / STORE_NAME, isolation_level=None)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file = folder / STORE_NAME
    content = file.read_bytes()
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xff" * (len(content) - 4096))
    yield
    with file.open("r+b") as opened:
        opened.write(content)


FAULTS: dict[str, Callable[[Path], Any]] = {
    "deleted": _deleted,
    "full": _full,
    "locked": _locked,
    "newer": _newer,
    "corrupt": _corrupt,
}
"""Each fault by its name: a context manager that takes the folder of the store."""
