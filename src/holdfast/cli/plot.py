"""Tokens over turns, drawn with characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text as Styled

from holdfast.cli.output import human_tokens
from holdfast.report import ContextReport

__all__ = ["Point", "chart", "plural", "point", "sparkline"]

_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_MARGIN: Final = 7
_WIDEST: Final = 4
"""So many columns at most for one turn, where there are few."""
_LOW, _HIGH, _CUT, _RECALL, _DIM = "cyan", "blue", "bold red", "magenta", "dim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One request: its tokens, and what happened in it."""

    tokens: int
    cut: bool = False
    recalled: bool = False


def point(report: ContextReport) -> Point:
    """A request as it is drawn."""
    kinds = {change.kind for change in report.changes}
    cut = not kinds.isdisjoint({"trimmed", "compacted"})
    return Point(tokens=report.total_tokens, cut=cut, recalled="recalled" in kinds)


@dataclass(frozen=True, slots=True)
class _Column:
    """What one column shows: the least and the most of its turns, and whether there was a cut or a recall."""

    low: int
    high: int
    cut: bool
    recalled: bool


def _columns(points: Sequence[Point], width: int, turns: int) -> list[_Column]:
    step = max(1, -(-turns // width))
    repeat = max(1, min(_WIDEST, width // max(1, turns)))
    found: list[_Column] = []
    for start in range(0, len(points), step):
        some = points[start : start + step]
        sizes = [one.tokens for one in some]
        cut, recalled = any(one.cut for one in some), any(one.recalled for one in some)
        found.append(_Column(min(sizes), max(sizes), cut, recalled))
        found += [_Column(min(sizes), max(sizes), cut=False, recalled=False)] * (repeat - 1)
    return found


def chart(points: Sequence[Point], *, ceiling: int, width: int, height: int = 8, turns: int = 0) -> Styled:
    """The tokens of each request below the most that there is room for; cuts and recalls are marked.

    A column that stands for several requests is drawn up to the least of them, and paler up to the most. `turns` is
    how many there will be, where more are to come.
    """
    columns = _columns(points, max(8, width - _MARGIN), max(turns, len(points)))
    top = max([ceiling, *(column.high for column in columns)])
    lines = [_row(columns, row, top=top, height=height) for row in reversed(range(height))]
    return Styled("\n").join([*lines, *_foot(columns, len(points))])


def _row(columns: Sequence[_Column], row: int, *, top: int, height: int) -> Styled:
    cell = top / height
    label = human_tokens(top * (row + 1) / height) if row % 2 == (height - 1) % 2 else ""
    line = Styled(f"{label:>5} ", style=_DIM).append("┤" if label else "│", style=_DIM)
    for column in columns:
        line.append(*_cell(column, row, cell, last=row == height - 1))
    return line


def _cell(column: _Column, row: int, cell: float, *, last: bool) -> tuple[str, str]:
    """One character of a column, and its colour."""
    bottom = row * cell
    low, high = ((value - bottom) / cell for value in (column.low, column.high))
    if column.cut and _is_above(high, last=last):
        return "▼", _CUT
    if low >= 1 or (low > 0 and high < 1):
        return _eighth(low), _LOW
    if high <= 0:
        return " ", ""
    return ("▒" if high >= 1 else _eighth(high)), _HIGH


def _is_above(high: float, *, last: bool) -> bool:
    """Tell whether a cell is the one right above a column; at the top there is none above."""
    return -1 < high <= 0 or (last and high > 0)


def _eighth(share: float) -> str:
    return _EIGHTHS[max(1, min(8, round(share * 8)))]


def _foot(columns: Sequence[_Column], turns: int) -> Iterator[Styled]:
    yield Styled("    0 └" + "─" * len(columns), style=_DIM)
    if any(column.recalled for column in columns):
        marks = "".join("◆" if column.recalled else " " for column in columns)
        yield Styled(" " * _MARGIN + marks.rstrip(), style=_RECALL)
    legend = Styled(" " * _MARGIN).append("▼", style=_CUT).append(" cut  ", style=_DIM)
    legend.append("◆", style=_RECALL).append(" recall", style=_DIM)
    count = plural(turns, "request")
    edge = max(len(legend) + 2 + len(count), _MARGIN + len(columns))
    yield legend.append(f"{count:>{edge - len(legend)}}", style=_DIM)


def sparkline(values: Sequence[float], *, top: float, width: int) -> str:
    """Values in one line, the highest of each stretch."""
    step = max(1, -(-len(values) // width))
    peaks = [max(values[start : start + step]) for start in range(0, len(values), step)]
    return "".join(_EIGHTHS[max(1, min(8, round(8 * peak / max(top, 1))))] for peak in peaks)


def plural(count: int, what: str) -> str:
    """How many of what: `1 cut`, `2 cuts`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
