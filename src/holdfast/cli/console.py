"""Consoles for people: control characters are replaced, and lines do not end in blanks where nobody looks."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import IO, Final, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from holdfast.text import printable

__all__ = ["SafeConsole", "standard_output"]

_UNBROKEN: Final = 400
_BLANKS: Final = re.compile(r" +(?=\n)")


class SafeConsole(Console):
    """A console that replaces control characters in everything that is drawn on it, whoever forgot to.

    Its own codes, which are styles and moves of the cursor, are no text and pass.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `Console` does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Let the command end as it does for every other way to print."""
        raise BrokenPipeError


def standard_output() -> SafeConsole:
    """The console of `holdfast.cli.output.console`."""
    if sys.stdout.isatty():
        return SafeConsole(markup=False, highlight=False, emoji=False)
    return SafeConsole(markup=False, highlight=False, emoji=False, width=_UNBROKEN, file=cast("IO[str]", _Piped()))


class _Piped:
    """Standard output without the blanks that fill a line up to the width."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        return sys.stdout.write(_BLANKS.sub("", text))

    def flush(self) -> None:
        sys.stdout.flush()

    def isatty(self) -> bool:
        return False
