"""Kill a process in the middle of writing, again and again, and count what was acknowledged and is gone.

Nine kinds of work take turns. Five are the store's: single appends, imports in bulk, a rebuild of the index, vectors
saved to a VMEM file, and a migration. Four are the engine's: requests, compactions by rule and by a model, and the
reading of facts. Each has a store of its own that lives through all of its kills.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.crash_engine import ENGINE_TRIALS
from benchmarks.crash_trial import READY, STORE, Crashes, Trial, messages, open_sqlite
from holdfast.store.base import Select
from holdfast.store.check import check
from holdfast.store.connection import MIGRATIONS, connect, migrate
from holdfast.store.folder import FolderStore
from holdfast.store.plugin_files import read_vectors
from holdfast.store.upkeep import reindex
from holdfast.testing.processes import crowd
from holdfast.testing.rows import HERE, MODEL, opened, says, vectors

__all__ = ["Crashes", "measure"]

STEPS: Final = 60
"""Migrations that a store of the migrating kind goes through."""
_STEP: Final = (
    "CREATE TABLE step{0}(id INTEGER PRIMARY KEY, body BLOB);\nINSERT INTO step{0} SELECT id, body FROM messages"
)
LATER: Final = (*MIGRATIONS, *(_STEP.format(step) for step in range(STEPS)))
WRITERS: Final = 8
MOST: Final = 1_000_000
"""More rows than any store of the migrating kind has."""
_LONG: Final = 600.0


def measure(
    *, kills: int, seed: int = 1, minutes: float = 0.0, progress: Callable[[int], None] | None = None
) -> Crashes:
    """Kill so many times; then let eight processes write and read at once for so many minutes."""
    chance = random.Random(seed)  # noqa: S311 - chance, not secrecy
    counted = Crashes(kills=kills, acknowledged=0, lost=0, corrupt=0)
    with TemporaryDirectory(prefix="holdfast-crash-") as folder:
        trials = [trial(Path(folder) / trial.__name__.lower()) for trial in TRIALS]
        for kill in range(kills):
            _add(counted, trials[kill % len(trials)].kill(kill, chance))
            if progress is not None:
                progress(1)
        if minutes:
            _add(counted, _crowded(Path(folder) / "crowd", seconds=60 * minutes))
    return counted


def _add(counted: Crashes, found: Crashes) -> None:
    counted["acknowledged"] += found["acknowledged"]
    counted["lost"] += found["lost"]
    counted["corrupt"] += found["corrupt"]


def _crowded(folder: Path, *, seconds: float) -> Crashes:
    try:
        kept = crowd(open_sqlite, folder, writers=WRITERS, turns=10**9, seconds=seconds)
    except AssertionError:
        return Crashes(kills=0, acknowledged=0, lost=0, corrupt=1)
    with opened(open_sqlite, folder) as store:
        lost = len(kept.items() - messages(store, across=True).items())
    return Crashes(kills=0, acknowledged=len(kept), lost=lost, corrupt=int(not check(folder / STORE).sound))


class Append(Trial):
    """One message after the other."""

    def work(self) -> Callable[..., None]:
        """Add without end."""
        return _append


class Import(Trial):
    """Hundreds of messages at once."""

    def work(self) -> Callable[..., None]:
        """Add without end, in bulk."""
        return _import

    def most_reports(self) -> int:
        """Early and late in a batch."""
        return 2000


class Reindex(Trial):
    """The index dropped and built again."""

    def prepare(self, number: int) -> None:
        """Have something to index."""
        with opened(open_sqlite, self.folder) as store:
            texts = [f"killed {number} {part}" for part in range(200)]
            self.kept.update(zip(store.add_messages([says(text) for text in texts]), texts, strict=True))

    def work(self) -> Callable[..., None]:
        """Rebuild without end."""
        return _reindex

    def most_reports(self) -> int:
        """In the first rebuild or a later one."""
        return 3


class Vmem(Trial):
    """Messages in a memory-context folder, and their vectors, each time the whole file."""

    def work(self) -> Callable[..., None]:
        """Add messages and save vectors without end."""
        return _vmem

    def missing(self) -> int:
        """How many messages and vectors are not there any more."""
        with FolderStore(self.folder) as store:
            lost = len(self.kept.items() - messages(store).items())
        saved = read_vectors(self.folder / "vectors.bin")
        assert saved is None or saved.missing == 0
        return lost


class Migration(Trial):
    """A store brought up to date, step by step."""

    def prepare(self, number: int) -> None:
        """An old store with something in it."""
        folder = self.folder / f"{number}"
        folder.mkdir(exist_ok=True)
        with opened(open_sqlite, folder) as store:
            rows = [says(f"killed {number} {part}") for part in range(200)]
            self.kept.update(
                (number * MOST + kept, row.nonce) for kept, row in zip(store.add_messages(rows), rows, strict=True)
            )

    def work(self) -> Callable[..., None]:
        """Migrate to the end."""
        return _migrate

    def most_reports(self) -> int:
        """Before the last step."""
        return 1

    def missing(self) -> int:
        """How many rows are gone once the migration was taken up again."""
        newest = max(self.folder.iterdir(), key=lambda folder: int(folder.name))
        with closing(connect(newest / STORE, wait=60)) as connection:
            migrate(connection, path=newest / STORE, migrations=LATER)
            (whole,) = connection.execute("PRAGMA integrity_check").fetchone()
            assert whole == "ok"
            held = {number for (number,) in connection.execute("SELECT id FROM step0")}
        return len([number for number in self.kept if number // MOST == int(newest.name) and number % MOST not in held])


TRIALS: Final = (Append, Import, Reindex, Vmem, Migration, *ENGINE_TRIALS)


# --- what the processes do -----------------------------------------------------


def _append(folder: Path, kill: int, reports: Connection) -> None:
    with opened(open_sqlite, folder) as store:
        for turn in range(10**9):
            text = f"killed {kill} {turn}"
            reports.send((*store.add_messages([says(text)]), text))


def _import(folder: Path, kill: int, reports: Connection) -> None:
    with opened(open_sqlite, folder) as store:
        for turn in range(10**9):
            texts = [f"killed {kill} {turn} {part}" for part in range(700)]
            for number, text in zip(store.add_messages([says(text) for text in texts]), texts, strict=True):
                reports.send((number, text))


def _reindex(folder: Path, _: int, reports: Connection) -> None:
    while True:
        reports.send(READY)
        reindex(folder / STORE)


def _vmem(folder: Path, kill: int, reports: Connection) -> None:
    with FolderStore(folder) as store:
        for turn in range(10**9):
            text = f"killed {kill} {turn}"
            (number,) = store.add_messages([says(text)])
            reports.send((number, text))
            passages = store.read_passages(Select(scope=HERE, newest=True, limit=1))
            store.add_vectors([vectors(passage.number, [number], space=MODEL) for passage in passages])


def _migrate(folder: Path, kill: int, reports: Connection) -> None:
    path = folder / f"{kill}" / STORE
    with closing(connect(path, wait=60)) as connection:
        reports.send(READY)
        migrate(connection, path=path, migrations=LATER)
        time.sleep(_LONG)
