"""How a conversation is laid out for a model that reads facts out of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from holdfast.memory.archive import searchable
from holdfast.memory.block import strip_message
from holdfast.memory.marks import NO_MARKS, Marks
from holdfast.memory.noise import is_noise
from holdfast.messages import Message
from holdfast.store.base import MessageRow
from holdfast.text import clip
from holdfast.tokens import count_text

__all__ = ["Piece", "batches", "halves", "pieces", "render"]

_TOOL_HEAD: Final = 600
_TOOL_TAIL: Final = 300
_HEADER_TOKENS: Final = 8
_SHORTEST: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A message, or a part of a long one, as it is shown: its number in the archive, who spoke, and the words."""

    id: int
    role: str
    text: str
    time: int = 0

    @property
    def tokens(self) -> int:
        """What it costs."""
        return count_text(self.text) + _HEADER_TOKENS


def pieces(messages: Iterable[MessageRow], marks: Marks = NO_MARKS) -> list[Piece]:
    """What messages say: words whole, tool calls and results by their beginnings and ends, recalled text not at all."""
    found: list[Piece] = []
    for row in messages:
        own = strip_message(row.message, marks)
        if own is None or own.role == "system" or row.excluded:
            continue
        words = searchable(own, marks)
        if own.calls or own.results:
            words = clip(words, head=_TOOL_HEAD, tail=_TOOL_TAIL)
        if words and not is_noise(words):
            found.append(Piece(id=row.id, role=_speaker(own), text=words, time=own.timestamp or 0))
    return found


def _speaker(message: Message) -> str:
    return f"{message.role} {message.name}" if message.name else message.role


def batches(read: Sequence[Piece], *, room: int) -> list[tuple[Piece, ...]]:
    """Pieces in as few batches as fit into so many tokens each; a piece that is too long is cut."""
    found: list[list[Piece]] = [[]]
    left = room
    for piece in (part for whole in read for part in _cut(whole, room)):
        if piece.tokens > left and found[-1]:
            found.append([])
            left = room
        found[-1].append(piece)
        left -= piece.tokens
    return [tuple(batch) for batch in found if batch]


def _cut(piece: Piece, room: int) -> Iterator[Piece]:
    if piece.tokens <= room or len(piece.text) <= _SHORTEST:
        yield piece
        return
    for half in _split(piece):
        yield from _cut(half, room)


def _split(piece: Piece) -> tuple[Piece, Piece]:
    """A piece in two, at a line or a space near its middle."""
    middle = len(piece.text) // 2
    breaks = [place for mark in ("\n", " ") if (place := piece.text.rfind(mark, middle // 2, middle)) > 0]
    place = breaks[0] if breaks else middle
    return replace(piece, text=piece.text[:place]), replace(piece, text=piece.text[place:])


def halves(batch: Sequence[Piece]) -> tuple[tuple[Piece, ...], ...]:
    """A batch in two; nothing where it cannot be made smaller."""
    if len(batch) > 1:
        return tuple(batch[: len(batch) // 2]), tuple(batch[len(batch) // 2 :])
    if batch and len(batch[0].text) > _SHORTEST:
        first, second = _split(batch[0])
        return (first,), (second,)
    return ()


def render(batch: Iterable[Piece]) -> str:
    """A batch for the prompt."""
    return "\n\n".join(f"[{piece.id} {piece.role}] {piece.text}" for piece in batch)
