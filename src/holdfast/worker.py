"""Work that waits for nobody: one thread, one step at a time, at most one for each memory on this machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.errors import HoldfastError

__all__ = ["Worker", "alone"]

_PAUSE: Final = 5.0
_LOOK: Final = 30.0
_JOIN: Final = 10.0


class Worker:
    """A thread that does a step of work when it is told that there is some, and goes on while there is more.

    A step returns whether there may be more to do. What fails is remembered in `trouble` until a step succeeds,
    and tried again after a pause: the work itself rests on disk, so that a crash only delays it.
    """

    def __init__(self, step: Callable[[], bool], *, pause: float = _PAUSE) -> None:
        self._step = step
        self._pause = pause
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-worker", daemon=True)
        self.trouble = ""

    def start(self) -> None:
        """Begin, with whatever was left from before."""
        self._wanted.set()
        self._thread.start()

    def nudge(self) -> None:
        """Say that there is work."""
        self._wanted.set()

    def stop(self) -> None:
        """End after the step at hand."""
        self._stopped.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._wanted.wait(_LOOK)  # another process may have left something
            self._wanted.clear()
            self._go_on()

    def _go_on(self) -> None:
        more = True
        while more and not self._stopped.is_set():
            try:
                more = self._step()
                self.trouble = ""
            except (HoldfastError, OSError) as error:
                self.trouble = str(error)
                more = not self._stopped.wait(self._pause)


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Hold a file's lock, if nobody else on this machine does; a process that dies lets go of it."""
    try:
        import fcntl  # noqa: PLC0415 - not on every platform
    except ImportError:
        yield True  # the work is safe to do twice, only wasteful
        return
    with path.open("a") as file:
        path.chmod(0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
