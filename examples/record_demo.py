"""Draw what `holdfast demo` shows in a terminal: `python examples/record_demo.py docs/demo.svg`.

Needs `pip install pexpect pyte`: the demo runs in a real terminal, and its last screen is drawn as it is.
"""

from __future__ import annotations

import io
import re
import sys
from itertools import groupby
from pathlib import Path

import pexpect
import pyte
from rich.console import Console
from rich.style import Style
from rich.text import Text

COLUMNS, LINES = 100, 46
_HEX = 6
_FONT = re.compile(r"\s*@font-face \{[^}]*\}")
_NAMES = {"brown": "yellow", "default": None, "brightblack": "bright_black"}


def record() -> pyte.Screen:
    """Run the demo and keep its last screen."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.Stream(screen)
    child = pexpect.spawn("holdfast", ["demo"], dimensions=(LINES, COLUMNS), encoding="utf-8", timeout=300)
    while True:
        try:
            stream.feed(child.read_nonblocking(65536, timeout=300))
        except pexpect.EOF:
            return screen


def _style(cell: pyte.screens.Char) -> Style:
    return Style(color=_colour(cell.fg), bgcolor=_colour(cell.bg), bold=cell.bold, reverse=cell.reverse)


def _colour(name: str) -> str | None:
    return _NAMES.get(name, f"#{name}" if len(name) == _HEX and not name.isalpha() else name)


def draw(screen: pyte.Screen, path: Path) -> None:
    """Write a screen as an SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    rows = [screen.buffer[number] for number in range(LINES)]
    last = max(number for number in range(LINES) if screen.display[number].strip())
    for row in rows[: last + 1]:
        line = Text()
        for style, cells in groupby((row[column] for column in range(COLUMNS)), key=_style):
            line.append("".join(cell.data for cell in cells), style)
        line.rstrip()
        console.print(line, no_wrap=True, overflow="crop")
    drawn = console.export_svg(title="holdfast demo")
    path.write_text(_FONT.sub("", drawn), encoding="utf-8")  # looking at a picture asks nobody for a font


if __name__ == "__main__":
    draw(record(), Path(sys.argv[1]))
