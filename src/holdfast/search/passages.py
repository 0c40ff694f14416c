"""Cut a text into passages to rank and windows to quote.

A window is a few sentences, or a few lines of a log, a table or code. A passage is the unit of ranking: most messages
are one, a long tool output is several. Both cover the text from end to end, in order, without overlap.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import digits, punctuation, whitespace
from typing import Final

from holdfast.text import head

CUTTING: Final = 1
"""The version of these rules. `holdfast reindex` cuts a store again that was cut by other rules."""
WHOLE: Final = 500
"""A text up to this long is one window."""
WINDOW: Final = 400
"""The characters of a window, if sentence ends allow it."""
LINES: Final = 200
"""The characters of a window in logs, tables and code, in which each line stands alone."""
DENSE: Final = 0.15
"""Text with this share of digits and ASCII punctuation, white space aside, is a log, a table or code."""
LONGEST_WINDOW: Final = 600
"""No window is longer; a longer sentence is cut at a space."""
CRUMB: Final = 80
"""A last window shorter than this is joined to the one before it, if there is room."""
PASSAGE: Final = 4000
"""The maximum characters of a passage of several windows."""

# The pattern begins with the characters that it looks for: one that begins with a look-behind is tried everywhere.
SENTENCE_END: Final = re.compile(
    r"""[.!?…。！？\n](?:(?<=[.!?…])["')\]”’」』]*\s+|(?<=[。！？])["')\]”’」』]*|(?<=\n)\n*)"""
)
"""The end of a match is the end of a sentence or a line."""

_SIGNS: Final = (digits + punctuation).encode()
_NO_SIGNS: Final = bytes(set(range(256)) - set(_SIGNS))
_NO_CHARACTERS: Final = bytes([*whitespace.encode(), *range(0x80, 0xC0)])
"""White space, and the continuation bytes of UTF-8."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of text, `start` to `stop`, and the windows it falls into, as offsets in the whole text."""

    start: int
    stop: int
    windows: tuple[tuple[int, int], ...]


def passages(text: str) -> list[Passage]:
    """Cut a text into passages of whole windows."""
    cut: list[Passage] = []
    held: list[tuple[int, int]] = []
    for window in windows(text):
        if held and window[1] - held[0][0] > PASSAGE:
            cut.append(Passage(held[0][0], held[-1][1], tuple(held)))
            held = []
        held.append(window)
    if held:
        cut.append(Passage(held[0][0], held[-1][1], tuple(held)))
    return cut


def windows(text: str, *, whole: int = WHOLE) -> list[tuple[int, int]]:
    """Cut a text into windows at sentence and line ends; a text of up to `whole` characters is one window."""
    if not text:
        return []
    if len(text) <= whole:
        return [(0, len(text))]
    found: list[tuple[int, int]] = []
    start = 0  # of the window that is being filled
    end = 0  # of its last sentence
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    for cut in (*ends, len(text)):
        if end > start and cut - start > LINES and _is_full(text[start:cut]):
            found.append((start, end))
            start = end
        while cut - start > LONGEST_WINDOW:
            stop = _hard_cut(text, start)
            found.append((start, stop))
            start = stop
        end = cut
    if end > start:
        found.append((start, end))
    return _join_short_end(found)


def _join_short_end(found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join the last two windows if the last one is short and there is room."""
    if len(found) > 1:
        (start, _), (crumb, stop) = found[-2:]
        if stop - crumb < CRUMB and stop - start <= LONGEST_WINDOW:
            return [*found[:-2], (start, stop)]
    return found


def _is_full(text: str) -> bool:
    """Return whether a window of more than `LINES` characters is long enough.

    A window of a log, a table or code, which has many digits and signs, is. Others may have up to `WINDOW` characters.
    """
    if len(text) > WINDOW:
        return True
    data = text.encode("utf-8", "surrogatepass")
    return len(data.translate(None, _NO_SIGNS)) >= DENSE * len(data.translate(None, _NO_CHARACTERS))


def _hard_cut(text: str, start: int) -> int:
    """Return where to cut a long sentence: after a space, else between two characters."""
    space = text.rfind(" ", start + WINDOW // 2, start + WINDOW)
    if space > 0:
        return space + 1
    # `head` does not cut between a character and the marks that follow it. It is empty if there is nothing but marks.
    first = head(text[start : start + WINDOW + 64], WINDOW)
    return start + (len(first) or WINDOW)
