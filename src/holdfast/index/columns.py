"""The archive as arrays: what ranking needs to know of every passage and window, one column each.

Passages and windows are numbered from 0 in the order they were archived, so a row number is an array index.
Columns only grow; forgetting clears `alive`.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from holdfast.search.arrays import Ints

PASSAGE_TYPES: Final[dict[str, Any]] = {
    "message": np.int64,
    "scope": np.int32,
    "time": np.int64,
    "length": np.int32,
    "size": np.int32,
    "previous": np.int32,
    "human": np.bool_,
    "alive": np.bool_,
    "first_window": np.int32,
}
DERIVED_TYPES: Final[dict[str, Any]] = {"following": np.int32}
"""Not kept on disk: the passage after each in the same session. In a snapshot it may point behind the last."""
WINDOW_TYPES: Final[dict[str, Any]] = {"passage": np.int32, "window_length": np.int32}


class Columns:
    """Growing arrays over all passages and windows of a store."""

    def __init__(self) -> None:
        self.passages = 0
        self.windows = 0
        self._arrays: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(1024, dtype=kind) for name, kind in (PASSAGE_TYPES | DERIVED_TYPES | WINDOW_TYPES).items()
        }

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """One column, as long as there are passages or windows."""
        return self._arrays[name][: self.windows if name in WINDOW_TYPES else self.passages]

    def extend(self, *stretches: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add many passages at once, as `decode` gives them."""
        if not stretches:
            return
        passages, windows = (np.array([len(arrays[name]) for arrays in stretches]) for name in ("message", "passage"))
        self._reserve(PASSAGE_TYPES | DERIVED_TYPES, self.passages + int(passages.sum()))
        self._reserve(WINDOW_TYPES, self.windows + int(windows.sum()))
        for name in stretches[0]:
            start, counts = (self.windows, windows) if name in WINDOW_TYPES else (self.passages, passages)
            added = self._arrays[name][start : start + int(counts.sum())]
            np.concatenate([arrays[name] for arrays in stretches], out=added, casting="unsafe")
            if name == "first_window":
                added += np.repeat(self.windows + windows.cumsum() - windows, passages)
            elif name == "passage":
                added += np.repeat(self.passages + passages.cumsum() - passages, windows)
        first, self.passages = self.passages, self.passages + int(passages.sum())
        self.windows += int(windows.sum())
        previous, following = self["previous"][first:], self._arrays["following"]
        following[first : self.passages] = -1
        known = np.flatnonzero((previous >= 0) & (previous < self.passages))  # a stretch points outside of it
        following[previous[known]] = first + known

    def truncate(self, passages: int) -> None:
        """Keep only the first passages."""
        if passages < self.passages:
            self.windows = int(self._arrays["first_window"][passages])
            self.passages = passages

    def snapshot(self) -> Columns:
        """The columns as they are now, whatever is added later. Nothing is copied: rows that stand never change."""
        return copy(self)

    def beside(self, numbers: Ints, side: Literal["previous", "following"]) -> Ints:
        """The passages right before or after some in the same session; -1 where there is none, and for -1."""
        found = self[side].take(numbers, mode="clip").astype(np.int64)
        return np.where((numbers >= 0) & (found < self.passages), found, -1)

    def _reserve(self, kinds: Mapping[str, Any], size: int) -> None:
        grown: dict[str, npt.NDArray[Any]] = {}
        for name in kinds:
            array = self._arrays[name]
            if len(array) < size:
                grown[name] = np.zeros(max(size, 2 * len(array)), dtype=array.dtype)
                grown[name][: len(array)] = array
        if grown:
            self._arrays = self._arrays | grown  # a snapshot keeps the arrays it has


def encode(columns: Columns) -> bytes:
    """Columns as bytes, windows and passages counted from 0."""
    sizes = np.array([columns.passages, columns.windows], np.int64)
    return b"".join([sizes.tobytes(), *(columns[name].tobytes() for name in PASSAGE_TYPES | WINDOW_TYPES)])


def decode(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """The columns that `encode` wrote."""
    passages, windows = np.frombuffer(data, np.int64, 2).tolist()
    arrays: dict[str, npt.NDArray[Any]] = {}
    offset = 16
    for name, kind in (PASSAGE_TYPES | WINDOW_TYPES).items():
        arrays[name] = np.frombuffer(data, kind, windows if name in WINDOW_TYPES else passages, offset=offset)
        offset += arrays[name].nbytes
    return arrays
