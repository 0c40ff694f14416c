"""The archive as arrays: one array for each property of passages and windows that ranking needs.

Passages and windows are numbered from 0 in the order in which they were archived, so their number is an index into the
arrays. Columns only grow. Forgetting clears `alive`.
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
"""Not on disk: the passage after each in the same session. In a snapshot it may be a passage added later."""
WINDOW_TYPES: Final[dict[str, Any]] = {"passage": np.int32, "window_length": np.int32}


class Columns:
    """Growing arrays over all passages and windows of a store."""

    def __init__(self) -> None:
        self.passages = 0
        self.windows = 0
        self._arrays: dict[str, npt.NDArray[Any]] = {}
        for name, kind in (PASSAGE_TYPES | DERIVED_TYPES | WINDOW_TYPES).items():
            self._arrays[name] = np.zeros(1024, dtype=kind)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        """Return one column, with a value for each passage or window."""
        if name in WINDOW_TYPES:
            return self._arrays[name][: self.windows]
        return self._arrays[name][: self.passages]

    def extend(self, *blocks: Mapping[str, npt.NDArray[Any]]) -> None:
        """Add the passages of blocks, as `decode` returns them: each counts its passages and windows from 0."""
        if not blocks:
            return
        passages = np.array([len(block["message"]) for block in blocks])
        windows = np.array([len(block["passage"]) for block in blocks])
        first_passage = self.passages
        first_window = self.windows
        new_passages = int(passages.sum())
        new_windows = int(windows.sum())
        self._reserve(PASSAGE_TYPES | DERIVED_TYPES, first_passage + new_passages)
        self._reserve(WINDOW_TYPES, first_window + new_windows)
        for name in blocks[0]:
            if name in WINDOW_TYPES:
                added = self._arrays[name][first_window : first_window + new_windows]
            else:
                added = self._arrays[name][first_passage : first_passage + new_passages]
            np.concatenate([block[name] for block in blocks], out=added, casting="unsafe")
            if name == "first_window":
                added += np.repeat(first_window + windows.cumsum() - windows, passages)
            elif name == "passage":
                added += np.repeat(first_passage + passages.cumsum() - passages, windows)
        self.passages += new_passages
        self.windows += new_windows

        following = self._arrays["following"]
        following[first_passage : self.passages] = -1
        previous = self["previous"][first_passage:]
        known = np.flatnonzero((previous >= 0) & (previous < self.passages))
        following[previous[known]] = first_passage + known

    def truncate(self, passages: int) -> None:
        """Keep only the first passages."""
        if passages < self.passages:
            self.windows = int(self._arrays["first_window"][passages])
            self.passages = passages

    def snapshot(self) -> Columns:
        """Return the columns as they are now. No array is copied, because values never change once they are added."""
        return copy(self)

    def find_neighbours(self, numbers: Ints, side: Literal["previous", "following"]) -> Ints:
        """Return the passages right before or after others in their session; -1 for none, and for the number -1."""
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
            self._arrays = self._arrays | grown  # a new dict, so that snapshots keep their arrays


def encode(columns: Columns) -> bytes:
    """Encode columns as a block."""
    sizes = np.array([columns.passages, columns.windows], np.int64)
    parts = [sizes.tobytes()]
    parts += [columns[name].tobytes() for name in PASSAGE_TYPES | WINDOW_TYPES]
    return b"".join(parts)


def decode(data: bytes) -> dict[str, npt.NDArray[Any]]:
    """Decode the arrays that `encode` wrote; they are views of the data."""
    passages, windows = np.frombuffer(data, np.int64, 2).tolist()
    arrays: dict[str, npt.NDArray[Any]] = {}
    offset = 16
    for name, kind in (PASSAGE_TYPES | WINDOW_TYPES).items():
        size = passages
        if name in WINDOW_TYPES:
            size = windows
        arrays[name] = np.frombuffer(data, kind, size, offset=offset)
        offset += arrays[name].nbytes
    return arrays
