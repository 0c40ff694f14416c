"""The steps by which a history becomes a text, each one tried when the one before it failed.

All of it as the mode says; in smaller chunks; without what is too large; what was finished with a note and the
digest of the rest; the digest alone. The last step needs no model, so there is always an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from holdfast.compaction import chunks
from holdfast.compaction.asker import NoAnswerError
from holdfast.compaction.cut import Span
from holdfast.compaction.dialogue import told
from holdfast.messages import Message
from holdfast.text import clip
from holdfast.tokens import TokenCounter

__all__ = ["RUNGS", "Made", "Passage", "Rung", "Writer", "climb", "passages"]

Rung: TypeAlias = Literal["full", "smaller", "without_oversized", "partial", "digest"]
RUNGS: Final[tuple[Rung, ...]] = ("full", "smaller", "without_oversized", "partial", "digest")
"""The steps of the ladder, the best first."""

_SEVERAL: Final = 4
"""Fewer units than this are not worth two parts and a merge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A unit of history as a summariser reads it."""

    text: str
    tokens: int
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A text that stands for a stretch of history, and the step of the ladder it comes from."""

    text: str
    rung: Rung


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """How texts are made.

    Attributes:
        tell: Asks for the summary of a text, after the summary so far, as piece so and so of so many.
        merge: Asks for one summary of several, after the summary so far.
        digest: The digest of messages, after the summary so far.
        window: The tokens of the summariser's window.
        room: The tokens of one piece that it can read at most.
        staged: Whether a long history is told in parts that are merged.
    """

    tell: Callable[[str, str, int, int], str]
    merge: Callable[[Sequence[str], str], str]
    digest: Callable[[Sequence[Message], str], str]
    window: int
    room: int
    staged: bool


@dataclass(frozen=True, slots=True)
class _Way:
    """One way of telling a history: parts, which are merged at the end, each of chunks told one after the other."""

    rung: Rung
    parts: list[list[list[Passage]]]


@dataclass(slots=True)
class _Finished:
    """What a way has come to: texts that stand for the first so many units."""

    texts: list[str]
    units: int = 0

    @property
    def text(self) -> str:
        return "\n\n".join(text for text in self.texts if text)


def passages(spans: Sequence[Span], *, window: int, count: TokenCounter) -> list[Passage]:
    """Units as a summariser reads them. Of one that would fill its window the beginning and the end."""
    return [_passage(tuple(item.message for item in span.items), window, count) for span in spans]


def _passage(messages: tuple[Message, ...], window: int, count: TokenCounter) -> Passage:
    text = told(messages)
    passage = Passage(text=text, tokens=count(text), messages=messages)
    if not chunks.is_oversized(passage, window):
        return passage
    size = len(text) * window // (4 * passage.tokens)
    left = clip(text, head=size * 2 // 3, tail=size // 3, marker="\n[... the middle is left out: too long]\n")
    return replace(passage, text=left)  # it still counts as oversized, so that a later step may leave it out


def climb(units: Sequence[Passage], *, previous: str, writer: Writer, hopeless: Callable[[], bool]) -> Made:
    """The best text that can be had for a stretch of history, after the summary so far.

    Raises:
        ModelCancelledError: It was called off.
    """
    best = _Finished([previous])
    for way in _ways(units, writer):
        finished = _Finished([previous])
        try:
            return Made(text=_tell(way, previous, writer, finished), rung=way.rung)
        except NoAnswerError:
            best = max(best, finished, key=lambda one: one.units)
        if hopeless():
            break
    if best.units:
        return Made(text=_partial(best, units, writer), rung="partial")
    return Made(text=writer.digest(_messages(units), previous), rung="digest")


def _ways(units: Sequence[Passage], writer: Writer) -> Iterator[_Way]:
    """The ways to try, without those that would ask the same again."""
    most = chunks.chunk_tokens(units, writer.window) if writer.staged else writer.room
    whole = chunks.by_maximum(units, most)
    yield _Way("full", _staged(units, most) if writer.staged and len(whole) > 1 else [whole])
    smaller = chunks.by_maximum(units, max(1, min(most, _total(units)) // 2))
    if len(smaller) > len(whole):
        yield _Way("smaller", [smaller])
    noted = [_noted(unit) if chunks.is_oversized(unit, writer.window) else unit for unit in units]
    if noted != list(units):
        yield _Way("without_oversized", [chunks.by_maximum(noted, most)])


def _staged(units: Sequence[Passage], most: int) -> list[list[list[Passage]]]:
    """Two parts of about the same size, each in chunks; one where there is too little to part."""
    parts = chunks.by_share(units) if len(units) >= _SEVERAL else [list(units)]
    return [chunks.by_maximum(part, most) for part in parts]


def _total(units: Sequence[Passage]) -> int:
    return sum(unit.tokens for unit in units)


def _noted(unit: Passage) -> Passage:
    thousands = max(1, round(unit.tokens / 1000))
    text = f"[Large {unit.messages[0].role} message (~{thousands}K tokens) omitted from summary]"
    return replace(unit, text=text, tokens=len(text))


def _tell(way: _Way, previous: str, writer: Writer, finished: _Finished) -> str:
    """Tell a history one way. `finished` is kept up to date, for whoever has to do with less."""
    total = sum(map(len, way.parts))
    merged = len(way.parts) > 1
    step = 0
    for part in way.parts:
        so_far = "" if merged else previous
        finished.texts.append("")
        for chunk in part:
            step += 1
            so_far = writer.tell("\n\n".join(unit.text for unit in chunk), so_far, step, total)
            finished.texts[-1] = so_far
            finished.units += len(chunk)
    if not merged:
        return finished.texts[-1]
    return writer.merge(finished.texts[1:], previous)


def _partial(best: _Finished, units: Sequence[Passage], writer: Writer) -> str:
    """What was told, with the digest of the rest."""
    rest = units[best.units :]
    if not rest:
        return best.text
    note = (
        f"[Partial summary: the first {best.units} of {len(units)} exchanges. What follows was put together by rule.]"
    )
    return "\n\n".join([best.text, note, writer.digest(_messages(rest), "")])


def _messages(units: Sequence[Passage]) -> list[Message]:
    return [message for unit in units for message in unit.messages]
