"""Single passages as columns hold them, for tests of ranking."""

from dataclasses import dataclass

import numpy as np

from holdfast.index.columns import PASSAGE_TYPES, Columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageRow:
    """One passage, and the number of terms of each of its windows."""

    message: int
    scope: int
    time: int
    previous: int
    human: bool
    size: int
    window_lengths: tuple[int, ...]


def append(columns: Columns, row: PassageRow) -> int:
    """Add a passage and its windows to columns; return its number."""
    number, length = columns.passages, sum(row.window_lengths)
    values = (row.message, row.scope, row.time, length, row.size, row.previous, row.human, True, 0)
    columns.extend(
        {
            **{name: np.array([value], PASSAGE_TYPES[name]) for name, value in zip(PASSAGE_TYPES, values, strict=True)},
            "passage": np.zeros(len(row.window_lengths), np.int32),
            "window_length": np.array(row.window_lengths, np.int32),
        }
    )
    return number
