"""A progress bar on stderr, shown only on a terminal."""

from __future__ import annotations

import sys
from typing import Self

from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar

from holdfast.cli.console import SafeConsole

__all__ = ["Progress"]


class Progress:
    """Shows how much of `total` bytes is done, the speed, and the remaining time."""

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

    def advance(self, size: int, description: str) -> None:
        """Add `size` bytes to what is done."""
        self._bar.update(self._task, advance=size, description=description)

    def set_total(self, size: int) -> None:
        """Set the total, where it was not known before."""
        self._bar.update(self._task, total=size)

    def describe(self, description: str) -> None:
        """Describe the current step."""
        self._bar.update(self._task, description=description)
