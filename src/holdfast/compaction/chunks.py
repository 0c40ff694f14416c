"""How a long history is cut into pieces that a model can read: by share, by size, never inside a unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

__all__ = [
    "BASE_RATIO",
    "LEAST_RATIO",
    "MARGIN",
    "OVERHEAD",
    "Sized",
    "by_maximum",
    "by_share",
    "chunk_ratio",
    "chunk_tokens",
    "is_oversized",
    "prune",
]

BASE_RATIO: Final = 0.4
"""The share of the summariser's window that one chunk takes."""
LEAST_RATIO: Final = 0.15
"""The share where messages are large."""
MARGIN: Final = 1.2
"""How far an estimate may be too low."""
OVERHEAD: Final = 4_096
"""What a request takes beside the chunk: instructions, the summary so far, thinking."""
PARTS: Final = 2
_LARGE: Final = 0.1
_OVERSIZED: Final = 0.5
_SMALLEST: Final = 8


class Sized(Protocol):
    """Anything that takes tokens and is cut as a whole."""

    @property
    def tokens(self) -> int:
        """What it takes."""
        ...


P = TypeVar("P", bound=Sized)


def chunk_ratio(pieces: Sequence[Sized], window: int) -> float:
    """The share of the window for one chunk: less where the average piece is large."""
    if not pieces:
        return BASE_RATIO
    average = _total(pieces) / len(pieces) * MARGIN / window
    if average <= _LARGE:
        return BASE_RATIO
    return max(LEAST_RATIO, BASE_RATIO - min(2 * average, BASE_RATIO - LEAST_RATIO))


def chunk_tokens(pieces: Sequence[Sized], window: int) -> int:
    """The largest chunk, in tokens. A small window must still be given something to read."""
    return max(window // _SMALLEST, int(window * chunk_ratio(pieces, window)) - OVERHEAD, 1)


def is_oversized(piece: Sized, window: int) -> bool:
    """Tell whether a piece would take most of a summariser's window by itself."""
    return piece.tokens * MARGIN > window * _OVERSIZED


def by_share(pieces: Sequence[P], parts: int = PARTS) -> list[list[P]]:
    """Cut into so many runs of about the same size; fewer where there are not enough pieces."""
    target = _total(pieces) / max(1, parts)
    runs: list[list[P]] = []
    size = 0
    for piece in pieces:
        if not runs or (size + piece.tokens > target and runs[-1] and len(runs) < parts):
            runs.append([])
            size = 0
        runs[-1].append(piece)
        size += piece.tokens
    return runs


def by_maximum(pieces: Sequence[P], most: int) -> list[list[P]]:
    """Cut into runs that take no more than `most`, counted with the margin; what is larger stands alone."""
    room = most / MARGIN
    runs: list[list[P]] = []
    size = 0.0
    for piece in pieces:
        if not runs or size + piece.tokens > room:
            runs.append([])
            size = 0
        runs[-1].append(piece)
        size += piece.tokens
    return runs


def prune(pieces: Sequence[P], limit: int, parts: int = PARTS) -> tuple[list[P], list[P]]:
    """Take the oldest runs off until the rest takes no more than `limit`: what is taken off, and the rest."""
    dropped: list[P] = []
    rest = list(pieces)
    while _total(rest) > limit:
        runs = by_share(rest, parts)
        if len(runs) <= 1:
            break
        dropped += runs[0]
        rest = [piece for run in runs[1:] for piece in run]
    return dropped, rest


def _total(pieces: Sequence[Sized]) -> int:
    return sum(piece.tokens for piece in pieces)
