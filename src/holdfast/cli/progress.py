"""A bar for long work: on stderr, and silent where nobody looks."""

from __future__ import annotations

import sys
from typing import Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from holdfast.cli.console import SafeConsole

__all__ = ["Progress"]


class Progress:
    """How far work over so many bytes has come, how fast it goes, and how long it will take."""

    def __init__(self, total: int) -> None:
        self.screen = SafeConsole(stderr=True)
        self._bar = Bar(
            BarColumn(),
            TaskProgressColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
            console=self.screen,
            disable=not sys.stderr.isatty(),
            transient=True,
        )
        self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, size: int, words: str) -> None:
        """So many bytes more are done."""
        self._bar.update(self._task, advance=size, description=words)

    def total(self, size: int) -> None:
        """How much there is to do, where that was not known before."""
        self._bar.update(self._task, total=size)

    def say(self, words: str) -> None:
        """What is done now."""
        self._bar.update(self._task, description=words)
