"""Recalled blocks in a text, found again whatever happened to them on the way.

A client may indent or quote a block, wrap its lines, escape it for HTML or JSON, or clip its end or its
beginning off. A block is known by the mark in its tags, never by the tags: text that looks like a block, in a file or
on a page, is text like any other.

Where a block was clipped, what stands behind it in the same text cannot be told from it. It goes with the block,
up to a line that says that something was left out: blocks stand at the end of what a user said, or in a message
of their own, so nothing of the user's is behind them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, TypeAlias

from holdfast.memory.marks import LENGTH, Marks

__all__ = ["Span", "spans"]

Span: TypeAlias = tuple[int, int]

_LT: Final = r"(?:<|&(?:amp;){0,9}+lt;|\\{1,9}+u003c)"
_GT: Final = r"(?:>|&(?:amp;){0,9}+gt;|\\{1,9}+u003e)"
_QUOTE: Final = r"(?:\"|&(?:amp;){0,9}+(?:quot|\#34);|\\{1,9}+(?:\"|u0022))"
_GAP: Final = rf"(?:[\s|#*/]|\\{{1,9}}+[nrt]|{_GT})"
"""What may stand inside a tag where its line was wrapped: line ends, also written out, and the marks of a quote."""
_MARK: Final = rf"(?P<mark>(?:[a-z2-7]{_GAP}{{0,40}}+){{{LENGTH - 1}}}[a-z2-7])"
_TAG: Final = re.compile(
    rf"{_LT}\s{{0,9}}+(?P<close>\\{{0,9}}+/)?\s{{0,9}}+recalled-{_GAP}{{0,40}}+context\b"
    rf"(?:(?!{_LT}).){{0,200}}?\bmark{_GAP}{{0,40}}+={_GAP}{{0,40}}+{_QUOTE}{_GAP}{{0,40}}+{_MARK}"
    rf"{_GAP}{{0,40}}+{_QUOTE}(?:(?!{_GT}){_GAP}){{0,40}}+{_GT}",
    re.DOTALL | re.IGNORECASE,
)
_IN_MARK: Final = re.compile(_GAP, re.IGNORECASE)
_QUOTING: Final = " \t>|"
_LEFT_OUT: Final = re.compile(
    r"^[ \t>|]{0,40}+(?:[.…]{1,9}|(?!\[[^\]\n]{1,99}\] )[\[(<{.…*=~-]{1,9}[^\n]{0,200}?"
    r"(?:truncated|omitted|trimmed|clipped|elided|left out|省略|截断|생략)[^\n]{0,400}+)[ \t]{0,9}$",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag with a mark of ours: where it stands."""

    start: int
    stop: int
    mark: str
    closes: bool


def spans(text: str, marks: Marks) -> list[Span]:
    """Where our own blocks stand in a text, in order, apart from each other."""
    tags = _tags(text, marks)
    ends: dict[str, list[int]] = defaultdict(list)
    for tag in tags:
        if tag.closes:
            ends[tag.mark].append(tag.stop)
    found: list[Span] = []
    done = 0
    for number, tag in enumerate(tags):
        if tag.start < done:
            continue
        if tag.closes:
            start, stop = _clipped_start(text, done, tag.start), tag.stop
        else:
            start, stop = _begin(text, tag.start), _end(text, tags, number, ends[tag.mark])
        found.append((start, stop))
        done = stop
    return _joined(found)


def _tags(text: str, marks: Marks) -> list[_Tag]:
    if not marks.keys or "recalled-" not in text.lower():
        return []
    found = [
        _Tag(match.start(), match.end(), _IN_MARK.sub("", match["mark"]).lower(), match["close"] is not None)
        for match in _TAG.finditer(text)
    ]
    return [tag for tag in found if marks.is_ours(tag.mark)]


def _end(text: str, tags: list[_Tag], number: int, ends: list[int]) -> int:
    """Where the block ends that a tag opens: with the next closing tag of its mark; else it was clipped."""
    tag = tags[number]
    place = bisect_left(ends, tag.stop)
    if place < len(ends):
        return ends[place]
    stop = tags[number + 1].start if number + 1 < len(tags) else len(text)
    said = _LEFT_OUT.search(text, tag.stop, stop)
    return said.start() if said else stop


def _begin(text: str, place: int) -> int:
    """Where a block's first line begins: an indent and the marks of a quote go with it."""
    line = text.rfind("\n", 0, place) + 1
    return place if text[line:place].strip(_QUOTING) else line


def _clipped_start(text: str, start: int, stop: int) -> int:
    for said in _LEFT_OUT.finditer(text, start, stop):
        start = said.end()
    return start


def _joined(found: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, stop in found:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((start, stop))
    return joined
