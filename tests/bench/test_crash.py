"""The crash bench kills, counts, and finds what is gone."""

import random
from pathlib import Path

from holdfast.bench import crash
from holdfast.bench.crash import TRIALS, measure
from holdfast.store.base import Select
from holdfast.store.sqlite import SqliteStore
from holdfast.testing.rows import HERE, says


def test_nothing_acknowledged_is_lost_in_25_kills() -> None:
    """Killed during append, import, rebuild, VMEM save and migration, every store opens and keeps what it promised."""
    told: list[int] = []
    found = measure(kills=25, seed=7, progress=told.append)
    assert sum(told) == 25
    assert found["acknowledged"] > 25
    assert (found["kills"], found["lost"], found["corrupt"]) == (25, 0, 0)


def test_eight_processes_at_once_lose_nothing() -> None:
    """Eight processes write and read one store together: none sees an error, and nothing is lost."""
    found = measure(kills=0, minutes=0.05)
    assert found["acknowledged"] > 8
    assert (found["lost"], found["corrupt"]) == (0, 0)


def test_a_loss_would_be_counted(tmp_path: Path) -> None:
    """A row that was acknowledged and is not there counts as lost; a store that does not open as corrupt."""
    trial = crash.Append(tmp_path / "trial")
    path = trial.folder / crash.STORE
    with SqliteStore(path) as store:
        (number,) = store.add([says("killed 1")])
        trial.take((number, "killed 1"))
        assert trial.missing() == 0
        store.remove(Select(kind="message", scope=HERE))
    assert trial.missing() == 1
    path.write_bytes(b"not a database at all, this is" * 100)
    chance = random.Random(1)  # noqa: S311 - chance, not secrecy
    assert trial.kill(0, chance)["corrupt"] == 1


def test_every_kind_of_work_takes_its_turn() -> None:
    """Append, import, rebuild, VMEM and migration are all tried."""
    assert [trial.__name__ for trial in TRIALS] == ["Append", "Import", "Reindex", "Vmem", "Migration"]
