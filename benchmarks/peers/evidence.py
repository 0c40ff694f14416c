"""Make a block of the passages that a system found, and test which evidence is in it."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from benchmarks.datasets import ANY_TURN, Conversation, Question
from benchmarks.recall import ENOUGH
from holdfast.memory import block
from holdfast.memory.block import UNKEPT
from holdfast.tokens import count_text, measure_text

__all__ = ["Passage", "compare", "fill", "find_share"]

PIECE: Final = 32
"""A match of fewer characters is no part of a quoted turn."""
TOLERANCE: Final = 0.95
"""A share of the characters is enough: words at the ends of an excerpt may be cut."""
RESAMPLES: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text that a system found: who wrote it, when (Unix milliseconds, 0 if unknown), and in which session."""

    text: str
    speaker: str
    time: int
    session: int


# --- the block -----------------------------------------------------------------


def fill(passages: Sequence[Passage], *, budget: int) -> str:
    """Render passages in the order of a system, each whole, as long as they fit; one that does not fit is left out."""
    room = float(budget - _frame_tokens())
    shown: set[Hashable] = set()
    chosen: list[block.Detail] = []
    for passage in passages:
        detail = block.Detail(
            role=passage.speaker, time=passage.time, text=passage.text.strip(), session=passage.session + 1
        )
        found = block.headers(detail.role, detail.time, detail.session, "compact")
        after = set(shown)
        header = block.choose_header(found, after)
        cost = _measure(header) + _measure(detail.text)
        if cost <= room:
            chosen.append(detail)
            shown = after
            room -= cost
    text = block.render([], chosen, UNKEPT)
    while count_text(text) > budget:  # signs that the block escapes were not charged
        chosen.pop()
        text = block.render([], chosen, UNKEPT)
    return text


@lru_cache(maxsize=20_000)
def _measure(text: str) -> float:
    """Count the tokens of a text, which many questions find."""
    return measure_text(text)


@cache
def _frame_tokens() -> int:
    return count_text(block.render([], [block.Detail(role="", time=0, text="")], UNKEPT))


# --- evidence ------------------------------------------------------------------


def find_share(question: Question, conversation: Conversation, text: str) -> float:
    """Return the share of the evidence of a question whose text is in a block."""
    shown = _fold(text)
    found = 0
    for session, turn in question.evidence:
        turns = conversation.sessions[session].turns
        texts = [one.text for one in turns]
        if turn == ANY_TURN:  # "Thanks!" is in many sessions
            wanted = [text for text in texts if len(text) >= PIECE] or texts
        else:
            wanted = [texts[turn]]
        found += any(_is_quoted(text, shown) for text in wanted)
    return found / len(question.evidence)


def _is_quoted(turn: str, shown: str) -> bool:
    """Return whether 300 characters of a turn, or all of a shorter one, are in a folded text."""
    wanted = _fold(turn)
    needed = min(1.0, ENOUGH / max(1, len(turn.strip())))
    return bool(wanted) and _count_quoted(wanted, shown) >= TOLERANCE * needed * len(wanted)


def _count_quoted(wanted: str, shown: str) -> int:
    """Count the characters of a text that are in another one, in pieces of at least `PIECE` characters."""
    if len(wanted) <= PIECE:
        return len(wanted) if f" {wanted} " in f" {shown} " else 0
    count = 0
    place = 0
    while place <= len(wanted) - PIECE:
        start = shown.find(wanted[place : place + PIECE])
        if start >= 0:
            size = PIECE
            while wanted[place + size : place + size + 1] == shown[start + size : start + size + 1] != "":
                size += 1
            count += size
            place += size
        else:
            space = wanted.find(" ", place)
            # A text without spaces goes on by half a piece.
            place = space + 1 if 0 <= space - place < PIECE else place + PIECE // 2
    return count


@lru_cache(maxsize=20_000)
def _fold(text: str) -> str:
    """Keep letters and digits alone: systems change spaces, quote signs and other marks."""
    return re.sub(r"[\W_]+", " ", text).strip().lower()


# --- the difference ------------------------------------------------------------


def compare(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Return the mean difference of two systems on the same questions, and its 95 % interval by bootstrap."""
    differences = np.array(ours) - np.array(theirs)
    count = len(differences)
    chosen = np.random.default_rng(1).integers(0, count, (RESAMPLES, count))
    means = differences[chosen].mean(axis=1)
    low, high = np.percentile(means, [2.5, 97.5])
    return {"mean": float(differences.mean()), "low": float(low), "high": float(high)}
