"""A window drawn as a grid of cells, one symbol and colour for each part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rich.text import Text as Styled

from holdfast.cli.output import human_tokens
from holdfast.report import Category

__all__ = ["LOOKS", "Cell", "cells", "draw", "legend", "rows_as_data"]


@dataclass(frozen=True, slots=True)
class Look:
    """How a part of the window is drawn: told apart by its symbol where there are no colours."""

    symbol: str
    colour: str


LOOKS: Final[dict[str, Look]] = {
    "system": Look("●", "bright_black"),
    "tools": Look("◍", "bright_blue"),
    "workspace files": Look("◉", "yellow"),
    "summary": Look("◈", "bright_green"),
    "history": Look("■", "cyan"),
    "tool results": Look("▣", "blue"),
    "recall": Look("◆", "magenta"),
    "reserve": Look("▨", "bright_black"),
    "free": Look("·", "bright_black"),
}
_OTHER: Final = Look("▪", "white")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: what it shows, and how much of it that fills."""

    category: str
    fullness: float


def cells(categories: Sequence[Category], *, count: int) -> list[Cell]:
    """So many cells, shared out by tokens. What is there at all has a cell, at the cost of the largest."""
    total = max(1, sum(part.tokens for part in categories))
    shown = [part for part in categories if part.tokens]
    exact = {part.name: part.tokens * count / total for part in shown}
    whole = {name: max(1, round(share)) for name, share in exact.items()}
    if whole:
        whole[max(whole, key=lambda name: whole[name])] += count - sum(whole.values())
    return [cell for part in shown for cell in _part(part.name, whole[part.name], exact[part.name])]


def _part(name: str, number: int, exact: float) -> Iterator[Cell]:
    for index in range(number):
        yield Cell(name, round(max(0.0, min(1.0, exact - index)), 2))


def draw(found: Sequence[Cell], *, columns: int) -> list[Styled]:
    """The lines of the grid."""
    lines: list[Styled] = []
    for start in range(0, len(found), columns):
        line = Styled()
        for cell in found[start : start + columns]:
            look = LOOKS.get(cell.category, _OTHER)
            line.append(look.symbol, style=look.colour).append(" ")
        lines.append(line)
    return lines


def legend(categories: Sequence[Category], *, total: int) -> list[Styled]:
    """One line for each part: its symbol, name, tokens and share of the window."""
    lines: list[Styled] = []
    for part in categories:
        look = LOOKS.get(part.name, _OTHER)
        line = Styled(f"{look.symbol} ", style=look.colour)
        line.append(f"{part.name:<16}", style="default" if part.tokens else "dim")
        line.append(f"{human_tokens(part.tokens):>6}", style="bold" if part.kind == "used" and part.tokens else "dim")
        lines.append(line.append(f"{part.tokens / max(1, total):>8.1%}", style="dim"))
    return lines


def rows_as_data(found: Sequence[Cell], categories: Sequence[Category], *, columns: int) -> list[list[dict[str, Any]]]:
    """The grid by the names that Claude Code uses for its own."""
    tokens = {part.name: part.tokens for part in categories}
    total = max(1, sum(tokens.values()))
    drawn = [
        {
            "color": LOOKS.get(cell.category, _OTHER).colour,
            "isFilled": cell.category != "free",
            "categoryName": cell.category,
            "tokens": tokens[cell.category],
            "percentage": round(100 * tokens[cell.category] / total, 1),
            "squareFullness": cell.fullness,
        }
        for cell in found
    ]
    return [drawn[start : start + columns] for start in range(0, len(drawn), columns)]
