"""The crash bench kills, counts, and finds what is gone."""

import random
from pathlib import Path

import pytest

from benchmarks import crash
from benchmarks.crash import LIMIT, STORE, TRIALS, Digest, make_turn, measure
from holdfast.engine import Engine
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import rows
from holdfast.testing.rows import HERE, make_message

QUIET = Settings(embedding=Embedding(provider="none"))


def test_nothing_acknowledged_is_lost_in_9_kills() -> None:
    """Killed once during each kind of work, every store opens, keeps what it promised, and continues where it was."""
    received: list[int] = []
    found = measure(kills=len(TRIALS), seed=7, progress=received.append)
    assert sum(received) == len(TRIALS) == 9
    assert found["acknowledged"] > 9
    assert (found["kills"], found["lost"], found["corrupt"]) == (9, 0, 0)


@pytest.mark.nightly
def test_eight_processes_at_once_lose_nothing() -> None:
    """Eight processes write and read one store together: none sees an error, and nothing is lost."""
    found = measure(kills=0, minutes=0.02)
    assert found["acknowledged"] > 8
    assert (found["lost"], found["corrupt"]) == (0, 0)


def test_a_loss_would_be_counted(tmp_path: Path) -> None:
    """A row that was acknowledged and is not there counts as lost; a store that does not open as corrupt."""
    trial = crash.Append(tmp_path / "trial")
    path = trial.folder / STORE
    with SqliteStore(path) as store:
        (number,) = store.add_messages([make_message("killed 1")])
        trial.take((number, "killed 1"))
        assert trial.missing() == 0
        store.remove_messages(Select(scope=HERE))
    assert trial.missing() == 1
    path.write_bytes(b"not a database at all, this is" * 100)
    chance = random.Random(1)  # noqa: S311 - chance, not secrecy
    assert trial.kill(0, chance)["corrupt"] == 1


@pytest.mark.nightly
def test_a_store_of_more_messages_than_a_search_considers_is_sound(tmp_path: Path) -> None:
    """Imports leave more than ten thousand messages after a few kills, and a search has a limit of candidates."""
    trial = crash.Import(tmp_path / "trial")
    texts = [f"killed 0 0 {part}" for part in range(rows.LIMIT + 1)]
    with SqliteStore(trial.folder / STORE) as store:
        numbers = store.add_messages([make_message(text) for text in texts])
    for report in zip(numbers, texts, strict=True):
        trial.take(report)
    assert trial.missing() == 0


def test_what_an_engine_breaks_would_be_counted(tmp_path: Path) -> None:
    """A message that is gone counts as lost; an edit without its messages and a fact not learned are faults."""
    trial = Digest(tmp_path / "trial")
    trial.prepare(0)
    with Engine.open(trial.folder / STORE, settings=QUIET, background=False) as engine:
        for turn in range(6):
            messages = [message for number in range(turn + 1) for message in make_turn(0, number)]
            engine.session("s0").assemble(messages, limit=LIMIT)
            trial.take(turn)
        engine.session("s0").compact(limit=LIMIT)
    assert trial.missing() == 0
    trial.kept[-1] = "said, acknowledged, and gone"
    assert trial.missing() == 1
    with Engine.open(trial.folder / STORE, settings=QUIET, background=False) as engine:
        engine._memory.store.remove_facts(Select(scope=Scope(session="s0")))
    with pytest.raises(AssertionError, match="not learned"):
        trial.missing()
    with Engine.open(trial.folder / STORE, settings=QUIET, background=False) as engine:
        engine.session("s0").pin([10**6])
    with pytest.raises(AssertionError, match="not archived"):
        trial.missing()


def test_every_kind_of_work_takes_its_turn() -> None:
    """The store's work and the engine's are all tried."""
    names = "Append Import Reindex Vmem Migration Turns Digest Told Learn"
    assert [trial.__name__ for trial in TRIALS] == names.split()
