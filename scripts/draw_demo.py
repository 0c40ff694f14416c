"""Draw docs/demo.svg: what `holdfast demo` prints in a terminal of 104 columns. Run it on an idle machine."""

import re
from io import StringIO
from pathlib import Path

from holdfast.cli import demo
from holdfast.cli.console import SafeConsole

if __name__ == "__main__":
    screen = SafeConsole(file=StringIO(), record=True, width=104, markup=False, highlight=False, emoji=False)
    demo.open_console = lambda: screen
    demo.run_demo(limit=32_000, save=None, as_json=False)
    drawn = screen.export_svg(title="holdfast demo")
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font is loaded from anywhere
    Path(__file__).parents[1].joinpath("docs", "demo.svg").write_text(drawn, "utf-8")
