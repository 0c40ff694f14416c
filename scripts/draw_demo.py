"""Draw docs/demo.svg: what `holdfast demo` prints in a terminal of 104 columns. Run it on an idle machine."""

import re
from html import unescape
from io import StringIO
from pathlib import Path
from typing import Final

from rich.cells import cell_len

from holdfast.cli.console import SafeConsole
from holdfast.cli.demo import run_demo

COLUMN: Final = 12.2
"""The width of a column in the drawing."""
_TEXT: Final = re.compile(r'(<text [^>]*textLength=")[\d.]+("[^>]*>)([^<]*)(</text>)')


def widen(drawn: str) -> str:
    """Give every text the width of its columns: Rich counts a wide character as one, and its text would overlap."""

    def correct(text: re.Match[str]) -> str:
        columns = cell_len(unescape(text[3]))
        return f"{text[1]}{columns * COLUMN:.5g}{text[2]}{text[3]}{text[4]}"

    return _TEXT.sub(correct, drawn)


if __name__ == "__main__":
    screen = SafeConsole(file=StringIO(), record=True, width=104, markup=False, highlight=False, emoji=False)
    run_demo(limit=32_000, save=None, as_json=False, screen=screen)
    drawn = screen.export_svg(title="holdfast demo")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font is loaded from anywhere
    Path(__file__).parents[1].joinpath("docs", "demo.svg").write_text(widen(drawn), "utf-8")
