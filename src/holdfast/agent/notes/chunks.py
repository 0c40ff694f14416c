"""Notes as chunks: stretches of whole lines that overlap a little, each with its place and its digest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.text import digest, head, is_unsegmented

__all__ = ["Chunk", "Line", "chunks", "numbered"]

Line: TypeAlias = tuple[int, str]
"""A line's number in its file, from 1, and its text."""

LETTERS: Final = 4
"""Letters of a token; a character of a script without spaces counts as a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A stretch of a file: its first and last line, its words, and their digest."""

    start: int
    end: int
    text: str
    digest: str


def numbered(text: str) -> list[Line]:
    """The lines of a text."""
    return list(enumerate(text.splitlines(), start=1))


def chunks(lines: Iterable[Line], *, tokens: int, overlap: int) -> list[Chunk]:
    """Cut lines into chunks of about `tokens` tokens, each beginning with the last `overlap` tokens of the one before.

    Lines stay whole; one that is longer than a chunk falls into several of the same number. Blank chunks are left out.
    """
    size, shared = tokens * LETTERS, overlap * LETTERS
    found: list[Chunk] = []
    held: list[Line] = []
    weight = fresh = 0
    for line in _pieces(lines, size):
        cost = _weight(line[1]) + 1
        if fresh and weight + cost > size:
            found.append(_chunk(held))
            held = _carried(held, shared)
            weight, fresh = sum(_weight(text) + 1 for _, text in held), 0
            if weight + cost > size:
                held, weight = [], 0
        held.append(line)
        weight, fresh = weight + cost, fresh + 1
    if fresh:
        found.append(_chunk(held))
    return [chunk for chunk in found if chunk.text.strip()]


def _chunk(held: Sequence[Line]) -> Chunk:
    text = "\n".join(text for _, text in held)
    return Chunk(start=held[0][0], end=held[-1][0], text=text, digest=digest(text))


def _carried(held: Sequence[Line], shared: int) -> list[Line]:
    """The last lines, as many as the next chunk shall repeat."""
    kept: list[Line] = []
    weight = 0
    for line in reversed(held):
        if weight >= shared:
            break
        kept.insert(0, line)
        weight += _weight(line[1]) + 1
    return kept if len(kept) < len(held) else []


def _pieces(lines: Iterable[Line], size: int) -> Iterator[Line]:
    """The lines, those that fill more than a chunk in pieces."""
    for number, text in lines:
        weight = _weight(text)
        if weight < size:
            yield number, text
            continue
        letters = max(1, (size - 1) * len(text) // weight)
        rest = text
        while rest:
            piece = head(rest[: letters + LETTERS * LETTERS], letters) or rest[:letters]
            yield number, piece
            rest = rest[len(piece) :]


def _weight(text: str) -> int:
    return len(text) if text.isascii() else len(text) + (LETTERS - 1) * sum(map(is_unsegmented, text))
