"""The format of a summary: its sections, how they fit into a number of tokens, its frame, and the lists below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from holdfast.providers.pi import COMPACTION_SUMMARY
from holdfast.quoting import escape_tags, tag_pattern
from holdfast.text import head, join_spans
from holdfast.tokens import TokenCounter, count_text

HEADINGS: Final = (
    "## Last Request",
    "## Goal",
    "## Constraints & Preferences",
    "## Progress",
    "## Key Decisions",
    "## Next Steps",
    "## Critical Context",
)
"""The headings of every summary, in order."""

RECENT: Final = "## Recent Turns, Word for Word"
FAILURES: Final = "## Tool Failures"
"""The headings that a rule writes below every summary."""

_HEADING: Final = re.compile(r"^#{1,4} +\S.*$")
_MIN_TOKENS: Final = 8
_MAX_TRIES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a summary. `weight` is its share if not all sections fit; `newest` keeps the last lines then."""

    title: str
    lines: tuple[str, ...]
    weight: int = 1
    newest: bool = False
    end: str = ""

    @property
    def text(self) -> str:
        """The section as text."""
        return "\n".join([*filter(None, [self.title]), *self.lines, *filter(None, [self.end])])

    def cut(self, room: int, cost: int, count: TokenCounter) -> Section | None:
        """Cut the section to `room` tokens; None if that is not worth a heading."""
        if cost <= room:
            return self
        left = room - count(self.title) - count(self.end) - 3
        if left < _MIN_TOKENS:
            return None
        kept: list[str] = []
        step = -1 if self.newest else 1
        for line in self.lines[::step]:
            needed = count(line) + 1
            if needed > left and (not kept or left > 2 * _MIN_TOKENS):  # the last line may be cut
                kept.append(cut_to(line, limit=left, count=count))
            if needed > left:
                break
            kept.append(line)
            left -= needed
        lines = tuple(filter(None, kept[::step]))
        return replace(self, lines=lines) if lines else None


def parse(text: str) -> dict[str, list[str]]:
    """Split a summary into lines by heading; lines before the first heading have an empty one."""
    sections: dict[str, list[str]] = {"": []}
    title = ""
    for line in text.splitlines():
        if _HEADING.match(line):
            title = line.strip()
            sections.setdefault(title, [])
        elif line.strip():
            sections[title].append(line.rstrip())
    return sections


def pack(sections: Iterable[Section], *, limit: int, count: TokenCounter = count_text) -> str:
    """Write sections in order, in at most `limit` tokens.

    If they do not all fit, each gets its share by weight, and what one leaves goes to the others.
    """
    given = [section for section in sections if section.lines]
    room = limit
    for _ in range(_MAX_TRIES):
        text = "\n\n".join(section.text for section in _fit(given, room, count))
        over = count(text) - limit
        if over <= 0:
            return text
        room -= max(over, room // 10)  # a counter need not be additive
    return cut_to(text, limit=limit, count=count)


def _fit(given: Sequence[Section], limit: int, count: TokenCounter) -> list[Section]:
    """Cut sections to their shares. If there is no room for all, those of the least weight are dropped first."""
    costs = [count(section.text) + 1 for section in given]
    rooms = _shares(costs, [section.weight for section in given], limit)
    cut = [section.cut(room, cost, count) for section, room, cost in zip(given, rooms, costs, strict=True)]
    starved = [index for index, section in enumerate(cut) if section is None]
    if not starved:
        return [section for section in cut if section is not None]
    least = min(starved, key=lambda index: (given[index].weight, -index))
    return _fit([*given[:least], *given[least + 1 :]], limit, count)


def _shares(costs: Sequence[int], weights: Sequence[int], limit: int) -> list[int]:
    """Share tokens: each gets what it needs if that is below its share, else its share of the rest."""
    rooms: dict[int, int] = {}
    waiting = set(range(len(costs)))
    left = limit
    while waiting:
        unit = max(0, left) / sum(weights[index] for index in waiting)
        modest = {index for index in waiting if costs[index] <= unit * weights[index]}
        for index in modest or waiting:
            rooms[index] = costs[index] if modest else int(unit * weights[index])
        left -= sum(rooms[index] for index in modest)
        waiting = waiting - modest if modest else set()
    return [rooms[index] for index in range(len(costs))]


def cut_to(text: str, *, limit: int, count: TokenCounter = count_text) -> str:
    """Cut a text to at most `limit` tokens, with an ellipsis where something is missing."""
    cost = count(text)
    size = len(text)
    while cost > limit and size > 0:
        size = min(size - 1, size * max(0, limit - 1) // cost)
        shorter = head(text, size).rstrip()
        cost = count(shorter + "…")
        if cost <= limit:
            return shorter + "…" if shorter else ""
    return text if cost <= limit else ""


Range: TypeAlias = tuple[int, int]
"""The first and last of a run of archive numbers."""

_FRAME: Final = re.compile(
    r"\A\s*The conversation history before this point[^\n]{0,80}\n+<summary>\n(.*?)\n?</summary>\s*\Z", re.DOTALL
)
_FRAME_TAG: Final = tag_pattern("summary")
_FILES: Final = re.compile(r"<(read|modified)-files>\n(.*?)(?:\n?</\1-files>|\n\n|\Z)", re.DOTALL)
_APPENDED: Final = re.compile(rf"^(?:{RECENT}|{FAILURES})\n(?:[^\n]+(?:\n|\Z))*", re.MULTILINE)
_ARCHIVED: Final = re.compile(r"^Archive: messages ([\d, –-]{1,2000}) are kept[^\n]*$", re.MULTILINE)
_RUN: Final = re.compile(r"(\d{1,15})(?:[–-](\d{1,15}))?")
_MOST_RANGES: Final = 24


def wrap_summary(summary: str) -> str:
    """Put a summary into the frame of the window. Nothing in it can close the frame."""
    before, after = COMPACTION_SUMMARY
    return f"{before}{escape_frame(summary)}{after}"


def escape_frame(text: str) -> str:
    """Escape what would close the frame around a summary."""
    return escape_tags(text, _FRAME_TAG)


def unwrap_summary(summary: str) -> str:
    """Remove the frame of a summary, if it has one."""
    match = _FRAME.match(summary)
    return (match[1] if match else summary).strip()


def read_file_lists(summary: str) -> tuple[list[str], list[str]]:
    """Read the files that a summary lists as read, and as modified."""
    files: dict[str, list[str]] = {"read": [], "modified": []}
    for kind, text in _FILES.findall(summary):
        files[kind] += [line for line in text.splitlines() if line.strip() and not line.endswith("…")]
    return files["read"], files["modified"]


def without_lists(summary: str, *, and_turns: bool = False) -> str:
    """Remove the lists of files and archive numbers from a summary; also the turns and failures below it."""
    text = _ARCHIVED.sub("", _FILES.sub("", summary))
    return (_APPENDED.sub("", text) if and_turns else text).strip()


def archive_line(ids: Iterable[int], *, earlier: Iterable[Range] = ()) -> str:
    """Write the line that says which archived messages a summary replaces, with those of the summary before it."""
    runs = join_spans([*earlier, *((number, number) for number in ids if number)])
    shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs[-_MOST_RANGES:])
    return f"Archive: messages {shown} are kept word for word and can be searched." if shown else ""


def read_archive_line(summary: str) -> list[Range]:
    """Read which archived messages a summary replaces."""
    runs = [run for text in _ARCHIVED.findall(summary) for run in _RUN.findall(text)]
    return join_spans((int(first), int(last or first)) for first, last in runs)
