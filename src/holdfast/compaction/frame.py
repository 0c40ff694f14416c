"""What stands around a summary, and what programs read back from it: its frame, file lists and archive numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, TypeAlias

__all__ = ["Range", "archived", "bare", "files", "numbers", "told", "unframed", "without_lists"]

Range: TypeAlias = tuple[int, int]
"""Numbers in the archive, from and to."""

_BEFORE: Final = "The conversation history before this point was compacted into the following summary:\n\n<summary>\n"
_AFTER: Final = "\n</summary>"
_FRAME: Final = re.compile(
    r"\A\s*The conversation history before this point[^\n]{0,80}\n+<summary>\n(.*?)\n?</summary>\s*\Z", re.DOTALL
)
_CLOSING: Final = re.compile(r"<(?=\s*/?\s*summary\s*>)", re.IGNORECASE)
_FILES: Final = re.compile(r"<(read|modified)-files>\n(.*?)\n?</\1-files>", re.DOTALL)
_ARCHIVED: Final = re.compile(r"^Archive: messages ([\d, –-]{1,2000}) are kept[^\n]*$", re.MULTILINE)
_RUN: Final = re.compile(r"(\d{1,15})(?:[–-](\d{1,15}))?")
_MOST_RANGES: Final = 24


def told(summary: str) -> str:
    """A summary as the window says it. Nothing in it can close its frame."""
    return f"{_BEFORE}{unframed(summary)}{_AFTER}"


def unframed(text: str) -> str:
    """A text without what would close a frame around it."""
    return _CLOSING.sub("&lt;", text)


def bare(summary: str) -> str:
    """A summary without its frame; as it is where it has none."""
    match = _FRAME.match(summary)
    return (match[1] if match else summary).strip()


def files(summary: str) -> tuple[list[str], list[str]]:
    """The files that a summary says were read, and those that were modified."""
    found: dict[str, list[str]] = {"read": [], "modified": []}
    for kind, text in _FILES.findall(summary):
        found[kind] += [line for line in text.splitlines() if line.strip() and not line.endswith("…")]
    return found["read"], found["modified"]


def without_lists(summary: str) -> str:
    """A summary without the lists of files and archive numbers."""
    return _ARCHIVED.sub("", _FILES.sub("", summary)).strip()


def archived(ids: Iterable[int], *, earlier: Iterable[Range] = ()) -> str:
    """The line that says which archived messages a summary stands for, with those of the summary before it."""
    runs = _merged([*earlier, *((number, number) for number in ids if number)])
    shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs[-_MOST_RANGES:])
    return f"Archive: messages {shown} are kept word for word and can be searched." if shown else ""


def numbers(summary: str) -> list[Range]:
    """The archived messages that a summary says it stands for, from and to."""
    runs = [run for text in _ARCHIVED.findall(summary) for run in _RUN.findall(text)]
    return _merged((int(first), int(last or first)) for first, last in runs)


def _merged(runs: Iterable[Range]) -> list[Range]:
    """The runs in order, those that touch as one."""
    merged: list[Range] = []
    for first, last in sorted(runs):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
