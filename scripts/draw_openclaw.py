"""Draw docs/openclaw.svg: a request of the trial inside OpenClaw, as the model receives it.

python -m benchmarks openclaw --keep FOLDER, then python scripts/draw_openclaw.py FOLDER/requests.jsonl QUESTION ANSWER
"""

from __future__ import annotations

import json
import re
import sys
from io import StringIO
from pathlib import Path
from typing import Any

from rich.text import Text

from holdfast.cli.console import SafeConsole

WIDTH = 104
SHOWN = 3
QUOTED = 7


def text_of(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def excerpt(line: str, answer: str) -> str:
    """Cut a line to the width of the picture, around the answer where it has one."""
    start = max(0, line.find(answer) - WIDTH // 3)
    before, after = "…" if start else "", "…" if len(line) > start + WIDTH - 8 else ""
    return f"  {before}{line[start : start + WIDTH - 8]}{after}"


def draw(messages: list[dict[str, Any]], question: str, answer: str) -> str:
    """Draw the messages around a question as SVG."""
    console = SafeConsole(file=StringIO(), record=True, width=WIDTH, markup=False, highlight=False, emoji=False)
    asked = max(at for at, message in enumerate(messages) if question in text_of(message))
    system, history = messages[0], messages[1 : asked - 1]
    console.print(Text(f"system      {len(text_of(system)) // 4:,} tokens", style="dim"))
    size = sum(len(text_of(message)) for message in history) // 4
    console.print(Text(f"history     {len(history)} messages, {size:,} tokens", style="dim"))
    for message in history[-SHOWN:]:
        console.print(Text(f"  {message['role']:10}{text_of(message)[: WIDTH - 16].splitlines()[0]}…", style="dim"))
    console.print(Text("recalled by Holdfast", style="bold green"))
    lines = [line for line in text_of(messages[asked - 1]).splitlines() if line]
    at = next(place for place, line in enumerate(lines) if answer in line)
    for place, line in enumerate(lines):
        if place < QUOTED - 3 or place == at:
            console.print(Text(excerpt(line, answer), style="bold green" if place == at else "green"))
    console.print(Text(f"  … {len(lines) - QUOTED + 2} more lines", style="green"))
    console.print(Text(f"user        {text_of(messages[asked])[: WIDTH - 14].splitlines()[0]}", style="bold"))
    drawn = console.export_svg(title="OpenClaw with Holdfast: one request")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font is loaded from anywhere


if __name__ == "__main__":
    requests = [json.loads(line)["messages"] for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]
    chosen = next(one for one in requests if any(sys.argv[2] in text_of(message) for message in one))
    Path(__file__).parents[1].joinpath("docs", "openclaw.svg").write_text(
        draw(chosen, sys.argv[2], sys.argv[3]), "utf-8"
    )
