"""Find the table in a text. Its rows say little without the names of its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

MIN_SHARE: Final = 0.5
"""The share of a text that must be its table. A table within a longer text is quoted like any other part of it."""
MIN_ROWS: Final = 4
"""So many lines with the same number of delimiters are a table."""
MIN_DELIMITERS: Final = 2
"""The minimum delimiters in a line."""
MAX_LINES_BEFORE: Final = 4
"""How many lines may be before the table."""
MAX_NAME_CHARS: Final = 40
"""The maximum characters of the name of a column."""
_DELIMITERS: Final = ("|", "\t", ",", ";")
_RULE: Final = re.compile(r"[\s|:-]*-[\s|:-]*")
"""The line below the names in a table of Markdown."""
_DIGIT: Final = re.compile(r"\d")


@dataclass(frozen=True, slots=True)
class Table:
    """The offsets of a table in a text: where it begins, where its rows begin, and where it ends."""

    start: int
    rows: int
    stop: int


@lru_cache(maxsize=1024)
def find_table(text: str) -> Table | None:
    """Return the table of which most of a text consists, of Markdown or with delimiters; None if there is none."""
    lines = text.split("\n")
    start = 0
    for place in range(min(MAX_LINES_BEFORE + 1, len(lines) - MIN_ROWS + 1)):
        for delimiter in _DELIMITERS:
            if _begins_table(lines[place : place + MIN_ROWS], delimiter):
                return _measure(lines[place:], delimiter, start=start, chars=len(text))
        start += len(lines[place]) + 1
    return None


def _begins_table(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether lines have the same number of cells, of which those of the first one are names."""
    counts = {line.count(delimiter) for line in lines}
    if len(counts) > 1 or counts.pop() < MIN_DELIMITERS:
        return False
    cells = [cell.strip() for cell in lines[0].strip().strip("|").split(delimiter)]
    return all(cells) and not any(_DIGIT.search(cell) or len(cell) > MAX_NAME_CHARS for cell in cells)


def _measure(lines: Sequence[str], delimiter: str, *, start: int, chars: int) -> Table | None:
    """Return the table that begins with some lines; None if it is a small part of a text of so many characters."""
    rows = start + len(lines[0]) + 1
    if _RULE.fullmatch(lines[1]):
        rows += len(lines[1]) + 1
    stop = start
    for line in lines:
        if line.count(delimiter) < MIN_DELIMITERS:
            break
        stop += len(line) + 1
    stop = min(stop, chars)
    if stop - start < MIN_SHARE * chars:
        return None
    return Table(start=start, rows=rows, stop=stop)
