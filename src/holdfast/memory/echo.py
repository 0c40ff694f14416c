"""Recalled blocks in a text, found again whatever happened to them on the way.

A client may indent or quote a block, wrap its lines, escape it for HTML or JSON, or clip its end or its
beginning off. A text that only speaks of blocks holds none: a block has a `source`, or its parts stand where
they belong.

Where a block was clipped, what stands behind it in the same text cannot be told from it. It goes with the block,
up to a line that says that something was left out: blocks stand at the end of what a user said, or in a message
of their own, so nothing of the user's is behind them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

__all__ = ["Span", "spans"]

Span: TypeAlias = tuple[int, int]

_LT: Final = r"(?:<|&(?:amp;){0,9}+lt;|\\{1,9}+u003c)"
_GT: Final = r"(?:>|&(?:amp;){0,9}+gt;|\\{1,9}+u003e)"
_GAP: Final = rf"(?:[\s|#*/]|\\{{1,9}}+[nrt]|{_GT})"
"""What may stand between two tags of a block: line ends, also written out, indents and the marks of a quote."""
_NAME: Final = rf"recalled-{_GAP}{{0,40}}+context\b"
_PART: Final = r"(?:knowledge|detail)\s{0,9}+"
_OPEN: Final = rf"(?P<open>{_LT})\s{{0,9}}+{_NAME}(?P<more>(?:(?<=\n)[ \t]{{0,9}}+>|(?!{_LT}|{_GT}).){{0,200}}+){_GT}"
_CLOSE: Final = rf"(?P<close>{_LT})\s{{0,9}}+\\{{0,9}}+/\s{{0,9}}+{_NAME}\s{{0,9}}+{_GT}"
_ENDED: Final = rf"(?P<ended>{_LT}\\{{0,9}}+/{_PART}{_GT}{_GAP}{{0,100}}+)?"
_TAG: Final = re.compile(f"{_OPEN}|{_ENDED}{_CLOSE}", re.DOTALL | re.IGNORECASE)
_BEGUN: Final = re.compile(f"{_GAP}{{0,100}}+{_LT}{_PART}{_GT}", re.IGNORECASE)
_QUOTING: Final = " \t>|"
_LEFT_OUT: Final = re.compile(
    r"^[ \t>|]{0,40}+(?:[.…]{1,9}|(?!\[[^\]\n]{1,99}\] )[\[(<{.…*=~-]{1,9}[^\n]{0,200}?"
    r"(?:truncated|omitted|trimmed|clipped|elided|left out|省略|截断|생략)[^\n]{0,400}+)[ \t]{0,9}$",
    re.MULTILINE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Tag:
    """A tag of a block: where it stands, how it is escaped, whether it names a source, and whether it is certain.

    It is certain where the parts of a block stand beside it.
    """

    start: int
    stop: int
    escape: str
    opens: bool
    named: bool
    certain: bool


def spans(text: str) -> list[Span]:
    """Where blocks stand in a text, in order, apart from each other."""
    tags = [_tag(match) for match in _TAG.finditer(text)] if "recalled-" in text.lower() else []
    found: list[Span] = []
    # What is quoted in a block is escaped once more than the block itself: the least escaped are looked at first.
    for escape in sorted({tag.escape for tag in tags}, key=lambda escape: (len(escape), escape)):
        outside = [tag for tag in tags if tag.escape == escape and not _covered(found, tag.start)]
        found = _joined([*found, *_paired(text, outside, found)])
    return found


def _tag(match: re.Match[str]) -> _Tag:
    opens = match["open"] is not None
    return _Tag(
        start=match.start(),
        stop=match.end(),
        escape=(match["open"] or match["close"]).lower(),
        opens=opens,
        named=opens and "source" in match["more"].lower(),
        certain=(_BEGUN.match(match.string, match.end()) if opens else match["ended"]) is not None,
    )


def _paired(text: str, tags: Sequence[_Tag], known: Sequence[Span]) -> Iterator[Span]:
    """The blocks that tags of one kind make: from one to the next, or clipped."""
    opened: _Tag | None = None
    done = 0
    for tag in tags:
        if tag.opens:
            yield from _clipped(text, opened, tag.start)
            opened = tag
        elif opened is None:
            if tag.certain:
                yield _clipped_start(text, tag, max(done, _end_before(known, tag.start))), tag.stop
        elif opened.named or opened.certain or tag.certain:
            yield _begin(text, opened), tag.stop
            opened = None
        done = tag.stop
    yield from _clipped(text, opened, _start_after(known, done, len(text)))


def _clipped(text: str, opened: _Tag | None, stop: int) -> Iterator[Span]:
    """The block that was opened and never closed, as far as it may reach."""
    if opened is not None and opened.certain:
        yield _begin(text, opened), _clipped_end(text, opened, stop)


def _begin(text: str, tag: _Tag) -> int:
    """Where a block's first line begins: an indent and the marks of a quote go with it."""
    line = text.rfind("\n", 0, tag.start) + 1
    return tag.start if text[line : tag.start].strip(_QUOTING) else line


def _clipped_end(text: str, tag: _Tag, stop: int) -> int:
    said = _LEFT_OUT.search(text, tag.stop, stop)
    return said.start() if said else stop


def _clipped_start(text: str, tag: _Tag, start: int) -> int:
    for said in _LEFT_OUT.finditer(text, start, tag.start):
        start = said.end()
    return start


def _covered(found: Sequence[Span], place: int) -> bool:
    return place < _end_of(found, bisect_right(found, (place, len(found) + place)) - 1)


def _end_before(found: Sequence[Span], place: int) -> int:
    return _end_of(found, bisect_right(found, (place, place)) - 1)


def _end_of(found: Sequence[Span], number: int) -> int:
    return found[number][1] if number >= 0 else 0


def _start_after(found: Sequence[Span], place: int, none: int) -> int:
    number = bisect_right(found, (place, place))
    return found[number][0] if number < len(found) else none


def _joined(found: Sequence[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, stop in sorted(found):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return joined
