"""A summary as sections: how one is read, and how many are fitted into so many tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.text import head
from holdfast.tokens import TokenCounter, count_text

__all__ = ["FAILURES", "HEADINGS", "RECENT", "Section", "cut_to", "pack", "parse"]

HEADINGS: Final = (
    "## Last Request",
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
"""What every summary has, in this order."""

RECENT: Final = "## Recent Turns, Word for Word"
FAILURES: Final = "## Tool Failures"
"""What is written below a summary by rule, and anew each time."""

_HEADING: Final = re.compile(r"^#{1,4} +\S.*$")
_LEAST: Final = 8
_TRIES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a summary.

    Attributes:
        title: Its heading line; nothing where it has none.
        lines: What stands under it.
        weight: How much of a narrow room it may take, beside the others.
        newest: Where not all lines fit, the last ones stay; else the first.
        end: What closes it, however short it has to be.
    """

    title: str
    lines: tuple[str, ...]
    weight: int = 1
    newest: bool = False
    end: str = ""

    @property
    def text(self) -> str:
        """The section as it is written."""
        return "\n".join([*filter(None, [self.title]), *self.lines, *filter(None, [self.end])])


def parse(text: str) -> dict[str, list[str]]:
    """The lines under each heading of a summary, by heading; what stands before the first one, by nothing."""
    found: dict[str, list[str]] = {"": []}
    title = ""
    for line in text.splitlines():
        if _HEADING.match(line):
            title = line.strip()
            found.setdefault(title, [])
        elif line.strip():
            found[title].append(line.rstrip())
    return found


def pack(sections: Iterable[Section], *, limit: int, count: TokenCounter = count_text) -> str:
    """The sections in order, in at most `limit` tokens.

    Where they do not all fit, each may take its share of the room by weight, and what one leaves the others take.
    """
    given = [section for section in sections if section.lines]
    room = limit
    for _ in range(_TRIES):
        text = "\n\n".join(section.text for section in _fitted(given, room, count))
        over = count(text) - limit
        if over <= 0:
            return text
        room -= max(over, room // 10)  # a counter need not be additive: what is cut together may count as more
    return cut_to(text, limit=limit, count=count)


def _fitted(given: Sequence[Section], limit: int, count: TokenCounter) -> list[Section]:
    """The sections cut to their shares. Where the room is too narrow for all, those of the least weight go first."""
    costs = [count(section.text) + 1 for section in given]
    rooms = _shares(costs, [section.weight for section in given], limit)
    fitted = [_cut(section, room, cost, count) for section, room, cost in zip(given, rooms, costs, strict=True)]
    starved = [index for index, section in enumerate(fitted) if section is None]
    if not starved:
        return [section for section in fitted if section is not None]
    least = min(starved, key=lambda index: (given[index].weight, -index))
    return _fitted([*given[:least], *given[least + 1 :]], limit, count)


def _shares(costs: Sequence[int], weights: Sequence[int], limit: int) -> list[int]:
    """What each may take: all it needs where that is below its share, else its share of what is left then."""
    rooms: dict[int, int] = {}
    waiting = set(range(len(costs)))
    left = limit
    while waiting:
        unit = max(0, left) / sum(weights[index] for index in waiting)
        modest = {index for index in waiting if costs[index] <= unit * weights[index]}
        for index in modest or waiting:
            rooms[index] = costs[index] if modest else int(unit * weights[index])
        left -= sum(rooms[index] for index in modest)
        waiting = waiting - modest if modest else set()
    return [rooms[index] for index in range(len(costs))]


def _cut(section: Section, room: int, cost: int, count: TokenCounter) -> Section | None:
    """The section in so many tokens; None where that is not worth a heading."""
    if cost <= room:
        return section
    left = room - count(section.title) - count(section.end) - 3
    if left < _LEAST:
        return None
    kept = _first(section.lines[::-1] if section.newest else section.lines, left, count)
    lines = tuple(kept[::-1] if section.newest else kept)
    return replace(section, lines=lines) if lines else None


def _first(lines: Iterable[str], left: int, count: TokenCounter) -> list[str]:
    """The first lines in so many tokens, the last of them cut where that is worth it."""
    kept: list[str] = []
    for line in lines:
        cost = count(line) + 1
        if cost > left:
            if not kept or left > 2 * _LEAST:
                kept.append(cut_to(line, limit=left, count=count))
            break
        kept.append(line)
        left -= cost
    return [line for line in kept if line]


def cut_to(text: str, *, limit: int, count: TokenCounter = count_text) -> str:
    """The beginning of a text, in at most `limit` tokens, its end marked where something is missing."""
    cost = count(text)
    size = len(text)
    while cost > limit and size > 0:
        size = min(size - 1, size * max(0, limit - 1) // cost)
        shorter = head(text, size).rstrip()
        cost = count(shorter + "…")
        if cost <= limit:
            return shorter + "…" if shorter else ""
    return text if cost <= limit else ""
