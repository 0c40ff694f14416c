"""A plot that grows during the work, with a progress bar below it; nothing without a terminal."""

from __future__ import annotations

import time
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text as Styled

from holdfast.cli.console import SafeConsole
from holdfast.cli.plot import Point, chart

__all__ = ["WIDEST", "LivePlot"]

_FRAME_SECONDS: Final = 0.08
WIDEST: Final = 118
"""The most columns of a plot."""


class LivePlot:
    """Draws the requests so far a few times a second, with their rate."""

    def __init__(self, total: int, *, words: str, height: int = 8, screen: Console | None = None) -> None:
        self.points: list[Point] = []
        self._screen = screen or SafeConsole(stderr=True)
        self._height = height
        self._total = total
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self._screen,
        )
        self._task = self._bar.add_task(words, total=total, rate="")
        self._live = Live(console=self._screen, auto_refresh=False, transient=True)
        self._start = self._shown = time.perf_counter()

    def __enter__(self) -> Self:
        if self._screen.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def add(self, point: Point | None, *, ceiling: int) -> None:
        """Add a request; None if there is nothing to draw."""
        if point is not None:
            self.points.append(point)
        now = time.perf_counter()
        rate = f"{len(self.points) / max(now - self._start, 1e-6):.0f} requests/s"
        self._bar.update(self._task, advance=1, rate=rate)
        if self._live.is_started and now - self._shown >= _FRAME_SECONDS:
            self._shown = now
            self._live.update(self._picture(ceiling), refresh=True)

    def _picture(self, ceiling: int) -> Group:
        if not self.points:
            return Group(self._bar)
        width = min(WIDEST, self._screen.width - 2)
        drawn = chart(self.points, ceiling=ceiling, width=width, height=self._height, turns=self._total)
        return Group(drawn, Styled(), self._bar)
