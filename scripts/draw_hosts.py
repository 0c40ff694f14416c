"""Draw docs/hosts/*.svg: for each host a request before its compaction, and the one after it with a question.

HOLDFAST_RECORDINGS=FOLDER make test-hosts, then python scripts/draw_hosts.py FOLDER
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from rich.text import Text

from holdfast.cli.console import SafeConsole
from holdfast.hooks.hosts import HOSTS

WIDTH = 104
ANSWER = "5433"
QUESTION = "On which port does the billing replica listen?"
SUMMARY = "We worked on several things."
MAX_MESSAGES = 8
_KINDS = {"function_call": "call", "function_call_output": "result"}
_FOLDERS = re.compile(r"/\S*/pytest-\S*?/work")
BLOCK = re.compile(r"<recalled-context.*?</recalled-context[^>]*>", re.DOTALL)


def read(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the role and the text of every message of a request in the format of any provider."""
    for key in ("system", "systemInstruction", "instructions"):
        if body.get(key):
            yield "system", text_of(body[key])
    for message in body.get("messages") or body.get("input") or body.get("contents") or ():
        kind = str(message.get("role") or message.get("type"))
        yield _KINDS.get(kind, kind), text_of(message)


def text_of(value: Any) -> str:
    """Return all text inside of a message, a block or a list of them; of calls and results what they carry."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(text_of, value)))
    if not isinstance(value, dict):
        return ""
    inner = ("text", "content", "parts", "output", "functionResponse", "response", "input", "arguments", "args")
    calls = ("tool_calls", "functionCall", "function")
    return "\n".join(filter(None, (text_of(value.get(key)) for key in (*inner, *calls, "command", "cmd"))))


def line_of(text: str, *, around: str = "") -> str:
    """Return a text as one line that fits the picture, cut around some words of it."""
    flat, size = " ".join(_FOLDERS.sub("~/work", text).split()), WIDTH - 18
    start = max(0, flat.find(around) - WIDTH // 4) if around and len(flat) > size else 0
    return ("…" if start else "") + flat[start : start + size] + ("…" if len(flat) > start + size else "")


def draw(title: str, recording: dict[str, Any]) -> str:
    """Draw both requests as SVG."""
    console = SafeConsole(file=StringIO(), record=True, width=WIDTH, markup=False, highlight=False, emoji=False)

    def show(role: str, text: str, style: str, *, around: str = "") -> None:
        console.print(Text(f"  {role:12}{line_of(text, around=around)}", style=style))

    console.print(Text("before the compaction: a tool returns what is asked later", style="bold"))
    for role, text in [one for one in read(recording["before"]) if one[1]][-3:]:
        show(role, text, "dim", around=ANSWER if ANSWER in text else "")
    console.print()
    console.print(Text(f"the host compacts; the summary says: {SUMMARY}", style="bold"))
    console.print()
    console.print(Text("after it: the request with the question, as the model receives it", style="bold"))
    for role, text in [one for one in read(recording["after"]) if one[1]][-MAX_MESSAGES:]:
        text = text.replace("&lt;", "<").replace("&gt;", ">")  # noqa: PLW2901 - as the model reads it
        own = BLOCK.sub(" ", text)
        if own.strip():
            found = next((words for words in (QUESTION, SUMMARY, ANSWER) if words in own), "")
            show(role, own, "bold" if found == QUESTION else "dim", around=found)
        for block in BLOCK.findall(text):
            lines = [line for line in block.splitlines() if line.strip()]
            for line in lines[:1] + [one for one in lines[1:-1] if ANSWER in one][:3] + lines[-1:]:
                show("", line, "bold green" if ANSWER in line else "green", around=ANSWER * (ANSWER in line))
    drawn = console.export_svg(title=title)
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # no font is loaded from anywhere


if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "docs" / "hosts"
    folder.mkdir(exist_ok=True)
    for file in sorted(Path(sys.argv[1]).glob("*.json")):
        if file.stem == "openclaw":  # Holdfast writes its summary; see draw_openclaw.py
            continue
        drawn = draw(f"{HOSTS[file.stem].title} with Holdfast", json.loads(file.read_text("utf-8")))
        (folder / f"{file.stem}.svg").write_text(drawn, "utf-8")
