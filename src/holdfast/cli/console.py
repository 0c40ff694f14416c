"""Consoles that replace control characters, and that write no trailing blanks to a pipe."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import IO, Final, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from holdfast.text import printable

__all__ = ["SafeConsole", "open_console"]

_UNBROKEN: Final = 400
_BLANKS: Final = re.compile(r" +(?=\n)")


class SafeConsole(Console):
    """A console that replaces control characters in all text. Its own codes, for styles and the cursor, pass."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `Console` does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise, so that the command ends as it does for plain output."""
        raise BrokenPipeError


def open_console() -> SafeConsole:
    """Open standard output for tables and styled text, without markup, so that nobody's text is taken for ours.

    Output that is not shown on a screen is not wrapped.
    """
    if sys.stdout.isatty():
        return SafeConsole(markup=False, highlight=False, emoji=False)
    return SafeConsole(markup=False, highlight=False, emoji=False, width=_UNBROKEN, file=cast("IO[str]", _Piped()))


class _Piped:
    """Standard output without the blanks that pad a line to the width."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return sys.stdout.write(_BLANKS.sub("", text))

    def flush(self) -> None:
        sys.stdout.flush()

    def isatty(self) -> bool:
        return False
