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
"""So many lines with the same number of delimiters are a table, if no rule is below the names of its columns."""
MIN_DELIMITERS: Final = 2
"""The minimum delimiters in such a line."""
MAX_LINES_BEFORE: Final = 8
"""How many lines may be before the table."""
MAX_HEAD_CHARS: Final = 300
"""Longer names of columns are not quoted with each row."""
_DELIMITERS: Final = ("\t", ",", ";")
_RULE: Final = re.compile(r"[\s|:+-]*-{2}[\s|:+-]*|[\s|:]*-[\s|:-]*\|[\s|:-]*")
"""The line below the names of the columns: "|---|---|", "----+----"."""
_NAME: Final = re.compile(r"[^\W\d][\w .#/-]{0,39}")
_NUMBER: Final = re.compile(r"[-+]?[\d.,:]+%?")


@dataclass(frozen=True, slots=True)
class Table:
    """The offsets of a table in a text: where it begins, where its rows begin, and where it ends."""

    start: int
    rows: int
    stop: int


@lru_cache(maxsize=1024)
def find_table(text: str) -> Table | None:
    """Return the table of which most of a text consists, with a rule below the names or with delimiters, or None."""
    lines = text.split("\n")
    for place in range(min(MAX_LINES_BEFORE + 1, len(lines) - 2)):
        if "|" in lines[place] and _is_rule(lines[place + 1]) and not _is_rule(lines[place]):
            return _measure(lines, "|", place=place, rows=place + 2)
    for place in range(min(MAX_LINES_BEFORE + 1, len(lines) - MIN_ROWS + 1)):
        for delimiter in _DELIMITERS:
            if delimiter in lines[place]:  # lines before it with delimiters are rows without names
                is_table = _has_columns(lines[place : place + MIN_ROWS], delimiter)
                return _measure(lines, delimiter, place=place, rows=place + 1) if is_table else None
    return None


def find_head(text: str, place: int) -> str:
    """Return the names of the columns of the table that has a row at a place, with the rule below them; or nothing."""
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    if "|" not in text[start : end if end >= 0 else len(text)]:
        return ""
    below = ""
    while start > 0:
        before = text.rfind("\n", 0, start - 1) + 1
        line = text[before : start - 1]
        if below:
            return "" if "|" not in line or len(line) > MAX_HEAD_CHARS else f"{line}\n{below}"
        if _is_rule(line):
            below = line
        elif "|" not in line:
            return ""
        start = before
    return ""


def _is_rule(line: str) -> bool:
    return len(line) <= MAX_HEAD_CHARS and _RULE.fullmatch(line) is not None


def _has_columns(lines: Sequence[str], delimiter: str) -> bool:
    """Return whether lines have the same number of cells, the first one names, and a later one a number below one.

    Sentences, code and lines of logs have blanks behind their commas.
    """
    counts = {line.count(delimiter) for line in lines}
    if len(counts) > 1 or counts.pop() < MIN_DELIMITERS:
        return False
    if any(f"{delimiter} " in line for line in lines):
        return False
    if not all(_NAME.fullmatch(cell) for cell in lines[0].strip().split(delimiter)):
        return False
    return all(any(_NUMBER.fullmatch(cell) for cell in line.strip().split(delimiter)) for line in lines[1:])


def _measure(lines: Sequence[str], delimiter: str, *, place: int, rows: int) -> Table | None:
    """Return the table with its names at a place in some lines; None if it is a small part of the text."""
    chars = sum(len(line) + 1 for line in lines) - 1
    start = sum(len(line) + 1 for line in lines[:place])
    first = sum(len(line) + 1 for line in lines[:rows])
    stop = first
    for line in lines[rows:]:
        if delimiter not in line:
            break
        stop += len(line) + 1
    stop = min(stop, chars)
    if stop - start < MIN_SHARE * chars or first - start > MAX_HEAD_CHARS:
        return None
    return Table(start=start, rows=first, stop=stop)
