"""Write the to-do lists that agents keep as JSON, in the arguments of a tool call, as lines."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_STRING: Final = r'"(?:[^"\\]|\\.)*+"'
_FIELD: Final = rf"{_STRING}\s*+:\s*+(?:{_STRING}|[\w.+-]++)"
_TASK: Final = re.compile(rf"\{{\s*+{_FIELD}(?:\s*+,\s*+{_FIELD})*+\s*+\}}", re.DOTALL)
"""A JSON object without nested values."""
_NAMES: Final = ("content", "step", "description")
"""The key of a task's words: Claude Code and OpenCode, Codex, Gemini CLI."""
_BOXES: Final = {
    "completed": "[x]",
    "done": "[x]",
    "pending": "[ ]",
    "in_progress": "[ ] (in progress)",
    "cancelled": "[ ] (cancelled)",
}
_CUT_END: Final = re.compile(rf'\{{\s*"(?:{"|".join(_NAMES)})?"?\s*:?\s*"?(?P<words>[^"]*)')
"""The beginning of a task whose end is not in the excerpt."""


def write_tasks(text: str) -> str:
    """Write the tasks in a text as lines: `- [x] Fix the parser`. An excerpt may begin and end inside a task."""
    if '"status"' not in text:
        return text
    pieces: list[str] = []
    done = 0
    for match in _TASK.finditer(text):
        line = _write_task(match.group())
        if line:
            pieces.append(text[done : match.start()].rstrip(' ,["}\n'))
            pieces.append(f"\n- {line}")
            done = match.end()
    if not pieces:
        return text
    end = text[done:].lstrip(" ,]}")
    if cut := _CUT_END.match(end):
        end = cut["words"] and f"- {cut['words']}"
    if end:
        pieces.append(f"\n{end.lstrip()}")
    return "".join(pieces).lstrip("\n")


def _write_task(source: str) -> str:
    """Write one task; an empty text if the object is something else."""
    try:
        task: dict[str, Any] = json.loads(source, strict=False)
    except ValueError:
        return ""
    words = next((task[name] for name in _NAMES if isinstance(task.get(name), str)), "")
    box = _BOXES.get(str(task.get("status")), "")
    if not words.strip() or not box:
        return ""
    return f"{box} {' '.join(words.split())}"
