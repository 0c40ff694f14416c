"""Waiting for what happens elsewhere, however slow the machine is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Final

import pytest

from holdfast.server.process import find
from holdfast.settings import Recall
from holdfast_agent import shell

__all__ = ["PATIENCE", "SHY", "UNHURRIED", "stop_server", "time_is_over_with", "until", "when"]

PATIENCE: Final = 300.0
"""Seconds after which something that has not happened is taken for a fault, not for a busy machine."""
UNHURRIED = Recall(deadline_ms=600_000)
"""For tests of what is recalled: a window on a busy machine is not to go on without it."""
SHY = Recall(deadline_ms=600_000, eagerness="shy")
"""For tests of windows in which a weak match would only be in the way."""
_LOOK_EVERY = 0.01


def until(happened: Callable[[], object]) -> None:
    """Wait for something to happen."""
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, "it has not happened"
        time.sleep(_LOOK_EVERY)


def stop_server(home: Path) -> None:
    """Stop the server of a memory that was started on demand, also where it is still starting; else it waits idle."""
    if (home / "server.log").exists():
        until(lambda: find(home))
        server = find(home)
        assert server is not None
        os.kill(server.pid, signal.SIGTERM)


@contextmanager
def when(happened: Callable[[], object], do: Callable[[], object]) -> Iterator[None]:
    """Do something in another thread, as soon as something else has happened."""

    def watch() -> None:
        until(happened)
        do()

    watching = Thread(target=watch, daemon=True)
    watching.start()
    yield
    watching.join()


def time_is_over_with(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a command's time be over as soon as it has made a file, and no sooner.

    The first time that is asked for is the start of the command, which may have made the file by then.
    """
    started: list[float] = []

    def clock() -> float:
        now = time.monotonic()
        if not started:
            started.append(now)
            return now
        return now + 1_000 * file.exists()

    monkeypatch.setattr(shell, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
