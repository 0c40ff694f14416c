"""Charts in the terminal: tokens over requests, also live while they run, and a window as a grid."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from rich.console import Console, Group
from rich.text import Text as Styled

from holdfast.cli.console import SafeConsole
from holdfast.text import plural, shorten_number

if TYPE_CHECKING:
    from holdfast.report import Category, ContextReport

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_MARGIN: Final = 7
_MAX_COLUMNS_PER_TURN: Final = 4
"""The maximum width of one turn in a short chart."""
_LOW, _HIGH, _CUT, _RECALL, _DIM = "cyan", "blue", "bold red", "magenta", "dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One request: its tokens, and whether it had a cut or a recall."""

    tokens: int
    cut: bool = False
    recalled: bool = False


def make_point(report: ContextReport) -> Point:
    """Make the point of a request."""
    kinds = {change.kind for change in report.changes}
    cut = not kinds.isdisjoint({"trimmed", "compacted"})
    return Point(tokens=report.total_tokens, cut=cut, recalled="recalled" in kinds)


class _Column(NamedTuple):
    """One column: the smallest and largest of its requests, and whether there was a cut or a recall."""

    low: int
    high: int
    cut: bool = False
    recalled: bool = False

    def draw(self, row: int, cell: float, *, is_last: bool) -> tuple[str, str]:
        """Return the character of the column in a row of cells, and its colour."""
        low, high = (self.low - row * cell) / cell, (self.high - row * cell) / cell
        if self.cut and (-1 < high <= 0 or (is_last and high > 0)):  # right above the column, or at the top
            return "▼", _CUT
        if high <= 0:
            return " ", ""
        is_low = low >= 1 or 0 < low <= high < 1
        bar = _EIGHTHS[max(1, min(8, round((low if is_low else high) * 8)))]
        return (bar, _LOW) if is_low else ("▒" if high >= 1 else bar, _HIGH)


def draw_chart(points: Sequence[Point], *, ceiling: int, width: int, height: int = 8, turns: int = 0) -> Styled:
    """Draw the tokens of each request below `ceiling`, and mark cuts and recalls.

    A column of several requests is drawn up to the smallest of them, and in another colour up to the largest. `turns`
    is the expected number of requests, if more are to come.
    """
    width, turns = max(8, width - _MARGIN), max(turns, len(points), 1)
    step, repeat = -(-turns // width), max(1, min(_MAX_COLUMNS_PER_TURN, width // turns))
    columns: list[_Column] = []
    for start in range(0, len(points), step):
        some = points[start : start + step]
        sizes = [one.tokens for one in some]
        marks = any(one.cut for one in some), any(one.recalled for one in some)
        columns += [_Column(min(sizes), max(sizes), *marks), *[_Column(min(sizes), max(sizes))] * (repeat - 1)]
    top = max([ceiling, *(column.high for column in columns)])
    lines = [_draw_row(columns, row, top=top, height=height) for row in reversed(range(height))]
    lines.append(Styled("    0 └" + "─" * len(columns), style=_DIM))
    if recalls := "".join("◆" if column.recalled else " " for column in columns).rstrip():
        lines.append(Styled(" " * _MARGIN + recalls, style=_RECALL))
    legend = Styled(" " * _MARGIN).append("▼", style=_CUT).append(" cut  ", style=_DIM)
    legend.append("◆", style=_RECALL).append(" recall", style=_DIM)
    count = plural(len(points), "request")
    edge = max(len(legend) + 2 + len(count), _MARGIN + len(columns))
    lines.append(legend.append(f"{count:>{edge - len(legend)}}", style=_DIM))
    return Styled("\n").join(lines)


def _draw_row(columns: Sequence[_Column], row: int, *, top: int, height: int) -> Styled:
    cell, is_last = top / height, row == height - 1
    label = shorten_number(top * (row + 1) / height) if row % 2 == (height - 1) % 2 else ""
    line = Styled(f"{label:>5} ", style=_DIM).append("┤" if label else "│", style=_DIM)
    for column in columns:
        line.append(*column.draw(row, cell, is_last=is_last))
    return line


LOOKS: Final[dict[str, tuple[str, str]]] = {
    "system": ("●", "bright_black"),
    "tools": ("◍", "bright_blue"),
    "workspace files": ("◉", "yellow"),
    "summary": ("◈", "bright_green"),
    "history": ("■", "cyan"),
    "tool results": ("▣", "blue"),
    "recall": ("◆", "magenta"),
    "reserve": ("▨", "bright_black"),
    "free": ("·", "bright_black"),
}
"""The symbol and the colour of each part of a window; the symbols differ, for terminals without colours."""
_OTHER: Final = ("▪", "white")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: the part of the window that it shows, and how much of the cell that part fills."""

    category: str
    fullness: float


def make_cells(categories: Sequence[Category], *, count: int) -> list[Cell]:
    """Divide `count` cells by tokens. Every part with tokens gets at least one, at the cost of the largest."""
    total = max(1, sum(part.tokens for part in categories))
    shown = [part for part in categories if part.tokens]
    exact = {part.name: part.tokens * count / total for part in shown}
    whole = {name: max(1, round(share)) for name, share in exact.items()}
    if whole:
        whole[max(whole, key=lambda name: whole[name])] += count - sum(whole.values())
    return [
        Cell(part.name, round(max(0.0, min(1.0, exact[part.name] - index)), 2))
        for part in shown
        for index in range(whole[part.name])
    ]


def draw_grid(grid: Sequence[Cell], *, columns: int) -> list[Styled]:
    """Draw the lines of the grid."""
    lines: list[Styled] = []
    for start in range(0, len(grid), columns):
        line = Styled()
        for cell in grid[start : start + columns]:
            line.append(*LOOKS.get(cell.category, _OTHER)).append(" ")
        lines.append(line)
    return lines


def draw_legend(categories: Sequence[Category], *, total: int) -> list[Styled]:
    """Draw one line for each part: its symbol, name, tokens and share of the window."""
    lines: list[Styled] = []
    for part in categories:
        symbol, colour = LOOKS.get(part.name, _OTHER)
        line = Styled(f"{symbol} ", style=colour)
        line.append(f"{part.name:<16}", style="default" if part.tokens else "dim")
        line.append(f"{shorten_number(part.tokens):>6}", style="bold" if part.kind == "used" and part.tokens else "dim")
        lines.append(line.append(f"{part.tokens / max(1, total):>8.1%}", style="dim"))
    return lines


def grid_to_json(grid: Sequence[Cell], categories: Sequence[Category], *, columns: int) -> list[list[dict[str, Any]]]:
    """Return the grid with the field names that Claude Code uses."""
    tokens = {part.name: part.tokens for part in categories}
    total = max(1, sum(tokens.values()))
    rows = [
        {
            "color": LOOKS.get(cell.category, _OTHER)[1],
            "isFilled": cell.category != "free",
            "categoryName": cell.category,
            "tokens": tokens[cell.category],
            "percentage": round(100 * tokens[cell.category] / total, 1),
            "squareFullness": cell.fullness,
        }
        for cell in grid
    ]
    return [rows[start : start + columns] for start in range(0, len(rows), columns)]


_REFRESH_SECONDS: Final = 0.08
"""The minimum time between two redraws, so that drawing does not slow the work down."""
MAX_WIDTH: Final = 118
"""The maximum width of a chart, however wide the screen is."""


class LivePlot:
    """A chart of the requests so far with a progress bar; draws nothing if stderr is not a terminal."""

    def __init__(self, total: int, *, words: str, height: int = 8, screen: Console | None = None) -> None:
        from rich import progress  # noqa: PLC0415 - a chart that stands still needs neither
        from rich.live import Live  # noqa: PLC0415 - as above

        self.points: list[Point] = []
        self._screen = screen or SafeConsole(stderr=True)
        self._height = height
        self._total = total
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}", markup=False),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(),
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
        """Add a request; None if it made no window."""
        if point is not None:
            self.points.append(point)
        now = time.perf_counter()
        rate = f"{len(self.points) / max(now - self._start, 1e-6):.0f} requests/s"
        self._bar.update(self._task, advance=1, rate=rate)
        if self._live.is_started and now - self._shown >= _REFRESH_SECONDS:
            self._shown = now
            width = min(MAX_WIDTH, self._screen.width - 2)
            drawn = draw_chart(self.points, ceiling=ceiling, width=width, height=self._height, turns=self._total)
            shown = Group(drawn, Styled(), self._bar) if self.points else Group(self._bar)
            self._live.update(shown, refresh=True)
