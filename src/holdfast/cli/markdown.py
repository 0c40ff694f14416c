"""Somebody else's Markdown on a screen: block by block as it arrives, and never a character that moves the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.segment import Segment

from holdfast.cli.output import printable

__all__ = ["Blocks", "Prose"]

_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})")
_THEME: Final = "ansi_dark"  # the terminal's own colours, on its own background
_LONGEST_TAIL: Final = 4_000
"""Characters of a block that is not over that are shown while it grows."""


@dataclass(slots=True)
class Blocks:
    """A text that arrives in pieces, cut at blank lines outside of code.

    Attributes:
        fence: What opened the code that the text is in; empty outside of code.
    """

    fence: str = ""
    _lines: list[str] = field(default_factory=list)
    _line: list[str] = field(default_factory=list)

    def feed(self, piece: str) -> Iterator[str]:
        """Take a piece, and give the blocks that are whole now."""
        first, *others = piece.split("\n")
        self._line.append(first)
        for start in others:
            line = "".join(self._line)
            self._lines.append(line)
            self._line = [start]
            if self._ends(line) and (block := self._taken()):
                yield block

    def end(self) -> str:
        """What is left, now that nothing follows."""
        self._lines.append("".join(self._line))
        self._line, self.fence = [], ""
        return self._taken()

    @property
    def tail(self) -> str:
        """The end of what is not whole yet, short enough to be drawn many times a second."""
        last = "".join(self._line)[-_LONGEST_TAIL:]
        lines, room = [last], _LONGEST_TAIL - len(last)
        for line in reversed(self._lines):
            room -= len(line) + 1
            if room < 0:
                lines.append(self.fence)
                break
            lines.append(line)
        return "\n".join(reversed(lines))

    def _ends(self, line: str) -> bool:
        """Whether a block ends with this line."""
        found = _FENCE.match(line)
        if found is None:
            return not self.fence and not line.strip()
        if not self.fence:
            self.fence = found[1]
            return False
        if found[1].startswith(self.fence) and not line.strip().strip(self.fence[0]):
            self.fence = ""
            return True
        return False

    def _taken(self) -> str:
        text = "\n".join(self._lines).strip("\n")
        self._lines.clear()
        return text if text.strip() else ""


class Prose:
    """Markdown whose text cannot do anything to a terminal: links are written out, HTML is shown as it is.

    Only its last lines are shown where `last` says how many.
    """

    def __init__(self, text: str, *, last: int = 0) -> None:
        self._markdown = _Markdown("", code_theme=_THEME, hyperlinks=False)
        self._markdown.parsed = _parser().parse(printable(text))
        self._last = last

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._markdown, options, pad=False)
        for line in _without_blank_ends(lines)[-self._last :]:
            # What was written as an entity is a character only now.
            yield from (Segment(printable(part.text), part.style) for part in line)
            yield Segment.line()


def _without_blank_ends(lines: Sequence[list[Segment]]) -> Sequence[list[Segment]]:
    written = [number for number, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[written[0] : written[-1] + 1] if written else ()


class _Heading(Heading):
    """A heading at the left, whatever its level."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
