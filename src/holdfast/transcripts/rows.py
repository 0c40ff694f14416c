"""Files of JSON values, whether one document or one value on each line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.transcripts.entry import Problem
from holdfast.transcripts.head import read_head
from holdfast.transcripts.reader import readable

__all__ = ["Row", "read_lines_as_rows", "read_rows"]

Row: TypeAlias = tuple[int, Any] | Problem
"""A JSON value with its line, or what stands there instead."""


def read_rows(path: Path) -> Iterator[Row]:
    """Every JSON object and list of a file with its line; what is neither is a problem."""
    head = read_head(path)
    if head.document:
        yield 1, head.values[0]
    else:
        yield from read_lines_as_rows(path)


def read_lines_as_rows(path: Path) -> Iterator[Row]:
    """The same, for a file that is known to be JSON Lines."""
    for line in readable(path):
        if isinstance(line, Problem):
            yield line
        elif line.data is not None:
            yield line.number, line.data
        elif isinstance(line.value, list):
            yield line.number, line.value
        else:
            yield Problem(line.number, line.problem or "not a record")
