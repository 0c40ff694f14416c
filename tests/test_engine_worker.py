"""Work in the background."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from holdfast.engine import Worker
from holdfast.errors import StorageError
from holdfast.files import lock_by_library, only_process
from support.waiting import PATIENCE


def test_it_goes_on_while_there_is_more() -> None:
    """A nudge is followed by steps until one says that nothing is left."""
    left, done = [3], Event()

    def step() -> bool:
        left[0] -= 1
        if left[0] == 0:
            done.set()
        return left[0] > 0

    worker = Worker(step)
    worker.start()
    assert done.wait(PATIENCE)
    worker.stop()
    assert left == [0]


def test_a_failure_is_reported_and_tried_again() -> None:
    """A step that fails is tried again after a pause, and what went wrong can be read meanwhile."""
    tries: list[str] = []
    failed, done = Event(), Event()

    def step() -> bool:
        tries.append(worker.error)
        if len(tries) == 1:
            failed.set()
            raise StorageError("the disk is full", path="x")
        done.set()
        return False

    worker = Worker(step, pause=0.05)
    worker.start()
    assert failed.wait(PATIENCE)
    assert done.wait(PATIENCE)
    worker.stop()
    assert tries[0] == ""
    assert "the disk is full" in tries[1]
    assert worker.error == ""


def test_a_lock_that_cannot_be_had_is_trouble_like_any_other() -> None:
    """The system's own errors do not end the thread in silence."""
    tried = Event()

    def step() -> bool:
        tried.set()
        with only_process(Path("/proc/none/x.worker")) as mine:
            return mine

    worker = Worker(step, pause=0.05)
    worker.start()
    assert tried.wait(PATIENCE)
    tried.clear()
    assert tried.wait(PATIENCE)
    worker.stop()
    assert "x.worker" in worker.error


def test_one_that_was_never_started_can_be_stopped() -> None:
    """Stopping is always safe."""
    Worker(lambda: False).stop()


@pytest.mark.parametrize("lock", [only_process, partial(lock_by_library, wait=False)])
def test_only_one_holds_the_lock(tmp_path: Path, lock: Callable[[Path], AbstractContextManager[bool]]) -> None:
    """While one is at work another is told so; then it may. Windows has the lock of the library."""
    path = tmp_path / "lock"
    with lock(path) as first, lock(path) as second:
        assert (first, second) == (True, False)
    with lock(path) as again:
        assert again
    assert path.stat().st_mode & 0o777 == 0o600
