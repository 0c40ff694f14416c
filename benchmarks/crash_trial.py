"""One kind of work that is killed, and what is looked at afterwards."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypedDict

from holdfast.errors import HoldfastError
from holdfast.store.base import Scope, Select, Store
from holdfast.store.check import check
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.processes import acknowledged_until_killed, child
from holdfast.testing.rows import HERE, asks, find_messages, opened

__all__ = ["READY", "STORE", "Crashes", "Trial", "messages", "open_sqlite"]

STORE: Final = "store.db"
ENOUGH: Final = 20_000
"""Rows after which a new store is begun."""
READY: Final = "ready"
"""A report that acknowledges nothing."""
_PAUSE: Final = 0.03


class Crashes(TypedDict):
    """How often was killed, how many rows were acknowledged, how many of them are gone, how many stores broke."""

    kills: int
    acknowledged: int
    lost: int
    corrupt: int


@dataclass(slots=True)
class Trial:
    """One kind of work, the store it is done on, and every row that was acknowledged there."""

    place: Path
    kept: dict[int, str] = field(default_factory=dict)
    stores: int = 1

    @property
    def folder(self) -> Path:
        """Where the store lies."""
        folder = self.place / f"{self.stores}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def kill(self, number: int, chance: random.Random) -> Crashes:
        """Start the work, kill it some moment later, look at what is left."""
        if len(self.kept) > ENOUGH:  # looking at all of it would soon take longer than the work
            self.kept, self.stores = {}, self.stores + 1
        before = len(self.kept)
        self.prepare(number)
        with child(self.work(), self.folder, number) as (process, reports):
            after, pause = chance.randint(1, self.most_reports()), chance.uniform(0, _PAUSE)
            for report in acknowledged_until_killed(reports, process, after=after, pause=pause):
                self.take(report)
        try:
            lost = self.missing()
        except (HoldfastError, AssertionError):
            return Crashes(kills=1, acknowledged=len(self.kept) - before, lost=0, corrupt=1)
        return Crashes(kills=1, acknowledged=len(self.kept) - before, lost=lost, corrupt=0)

    def prepare(self, number: int) -> None:
        """Make ready what the work needs."""

    def work(self) -> Callable[..., None]:
        """What the process does until it is killed."""
        raise NotImplementedError

    def most_reports(self) -> int:
        """After how many reports it is killed at the latest."""
        return 60

    def take(self, report: Any) -> None:
        """Note what was acknowledged."""
        if report != READY:
            number, text = report
            self.kept[number] = text

    def missing(self) -> int:
        """How many acknowledged rows are not there any more; a store that is not whole raises."""
        with opened(open_sqlite, self.folder) as store:
            lost = len(self.kept.items() - messages(store).items())
            assert set(self.kept) <= {*find_messages(store.search(asks("killed"))), *([] if not lost else self.kept)}
        assert check(self.folder / STORE).sound
        return lost


def open_sqlite(folder: Path) -> Store:
    """The store of a trial."""
    return SqliteStore(folder / STORE)


def messages(store: Store, *, across: bool = False) -> Mapping[int, str]:
    """What every message says, by its number."""
    scope = Scope(project=HERE.project) if across else HERE
    return {row.id: row.message.text for row in store.read_messages(Select(scope=scope, across=across))}
