"""The format of a summary: its sections, how they are cut to a token limit, its frame, and the lists below it."""

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
"""The headings of the sections that are added below every summary by rule."""

LATER: Final = " (later: "
"""The text before each later sentence about the same thing in a line of a list. A bracket closes it."""

_HEADING: Final = re.compile(r"^#{1,4} +\S.*$")
"""A heading of a summary: "## Goal"; not "#12 is fixed", nor one of a text that a model has nested deeper."""
_MIN_TOKENS: Final = 8
"""A section with less room than this under its heading is dropped."""
_LINE_ENDS: Final = 3
"""The tokens of the line ends around the heading and the end of a section, at most."""
_MAX_TRIES: Final = 12
"""How many times sections are cut to a smaller size, because a token counter need not be additive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a summary.

    Attributes:
        title: Its heading; empty for none.
        lines: Its lines.
        weight: Its share of the room, relative to the others, if the sections do not all fit.
        newest: Whether the last lines are kept if it is cut, instead of the first ones.
        end: A line below the others that is never cut.
    """

    title: str
    lines: tuple[str, ...]
    weight: int = 1
    newest: bool = False
    end: str = ""

    @property
    def text(self) -> str:
        """The section as text."""
        lines = list(self.lines)
        if self.title:
            lines.insert(0, self.title)
        if self.end:
            lines.append(self.end)
        return "\n".join(lines)

    def cut(self, room: int, cost: int, count: TokenCounter) -> Section | None:
        """Cut the section to `room` tokens; None if that is not worth a heading."""
        if cost <= room:
            return self
        left = room - count(self.title) - count(self.end) - _LINE_ENDS
        if left < _MIN_TOKENS:
            return None
        lines = list(self.lines)
        if self.newest:
            lines.reverse()
        kept: list[str] = []
        for line in lines:
            needed = count(line) + 1
            if needed > left:
                if not kept or left > 2 * _MIN_TOKENS:  # the last line may be cut
                    kept.append(cut_to(_newest_part(line), limit=left, count=count))
                break
            kept.append(line)
            left -= needed
        if self.newest:
            kept.reverse()
        kept = [line for line in kept if line]
        if not kept:
            return None
        return replace(self, lines=tuple(kept))


def _newest_part(line: str) -> str:
    """Return what to keep of a line that must be cut: its last sentence, since the first one may no longer hold."""
    if LATER not in line:
        return line
    return "- " + line.rpartition(LATER)[2].removesuffix(")")


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

    If they do not all fit, each gets its share by weight. What a short section does not need goes to the others.
    """
    given = [section for section in sections if section.lines]
    room = limit
    for _ in range(_MAX_TRIES):
        text = "\n\n".join(section.text for section in _fit(given, room, count))
        over = count(text) - limit
        if over <= 0:
            return text
        room -= max(over, room // 10)
    return cut_to(text, limit=limit, count=count)


def _fit(given: Sequence[Section], limit: int, count: TokenCounter) -> list[Section]:
    """Cut sections to their shares. If there is no room for all, those of the smallest weight are dropped first."""
    costs = [count(section.text) + 1 for section in given]
    rooms = _divide(costs, [section.weight for section in given], limit)
    fitted: list[Section] = []
    without_room: list[int] = []
    for index, section in enumerate(given):
        cut = section.cut(rooms[index], costs[index], count)
        if cut is None:
            without_room.append(index)
        else:
            fitted.append(cut)
    if not without_room:
        return fitted
    dropped = min(without_room, key=lambda index: (given[index].weight, -index))
    return _fit([*given[:dropped], *given[dropped + 1 :]], limit, count)


def _divide(costs: Sequence[int], weights: Sequence[int], limit: int) -> list[int]:
    """Divide tokens among sections: each gets what it needs if that is below its share, or its share of the rest."""
    rooms: dict[int, int] = {}
    waiting = set(range(len(costs)))
    left = limit
    while waiting:
        unit = max(0, left) / sum(weights[index] for index in waiting)
        short = {index for index in waiting if costs[index] <= unit * weights[index]}
        if not short:
            for index in waiting:
                rooms[index] = int(unit * weights[index])
            break
        for index in short:
            rooms[index] = costs[index]
            left -= costs[index]
        waiting -= short
    return [rooms[index] for index in range(len(costs))]


def cut_to(text: str, *, limit: int, count: TokenCounter = count_text) -> str:
    """Cut a text to at most `limit` tokens, with an ellipsis at the end if it was cut; empty if nothing fits."""
    cost = count(text)
    if cost <= limit:
        return text
    size = len(text)
    while size > 0:
        size = min(size - 1, size * max(0, limit - 1) // cost)
        shorter = head(text, size).rstrip()
        if not shorter:
            return ""
        cost = count(shorter + "…")
        if cost <= limit:
            return shorter + "…"
    return ""


Range: TypeAlias = tuple[int, int]
"""The first and last of a run of archive numbers."""

# What is read of a summary that comes back: it may be an older one, one of pi, or one that a client has cut.
_FRAME: Final = re.compile(
    r"\A\s*The conversation history before this point[^\n]{0,80}\n+<summary>\n(.*?)\n?</summary>\s*\Z", re.DOTALL
)
"""A whole message that is a summary in its frame, as `wrap_summary` and pi write it."""
_FRAME_TAG: Final = tag_pattern("summary")
_FILES: Final = re.compile(r"<(read|modified)-files>\n(.*?)(?:\n?</\1-files>|\n\n|\Z)", re.DOTALL)
"""A list of files. If its end is cut off, it ends at the next empty line, or with the text."""
_APPENDED: Final = re.compile(rf"^(?:{RECENT}|{FAILURES})\n(?:[^\n]+(?:\n|\Z))*", re.MULTILINE)
"""A section that was added by rule, up to the next empty line."""
_ARCHIVED: Final = re.compile(r"^Archive: messages ([\d, –-]{1,2000}) are kept[^\n]*$", re.MULTILINE)
"""The line that `archive_line` writes: "Archive: messages 3–17, 21 are kept word for word."."""
_RUN: Final = re.compile(r"(\d{1,15})(?:[–-](\d{1,15}))?")
"""A number or a range of that line."""
_MAX_RANGES: Final = 24
"""How many ranges of archive numbers a summary names, the newest ones."""


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
    if match is not None:
        summary = match[1]
    return summary.strip()


def read_file_lists(summary: str) -> tuple[list[str], list[str]]:
    """Read the files that a summary lists as read, and as modified."""
    files: dict[str, list[str]] = {"read": [], "modified": []}
    for kind, text in _FILES.findall(summary):
        files[kind] += [line for line in text.splitlines() if line.strip() and not line.endswith("…")]
    return files["read"], files["modified"]


def without_lists(summary: str, *, and_turns: bool = False) -> str:
    """Remove the lists of files and archive numbers from a summary; with `and_turns`, also turns and failures."""
    text = _ARCHIVED.sub("", _FILES.sub("", summary))
    if and_turns:
        text = _APPENDED.sub("", text)
    return text.strip()


def archive_line(ids: Iterable[int], *, earlier: Iterable[Range] = (), is_recalled: bool = True) -> str:
    """Write the line with the numbers of the messages that a summary replaces, including those of earlier summaries.

    A model without a tool cannot search the messages. `is_recalled` tells it whether they are recalled automatically.
    """
    runs = join_spans([*earlier, *((number, number) for number in ids if number)])
    shown: list[str] = []
    for first, last in runs[-_MAX_RANGES:]:
        if first == last:
            shown.append(str(first))
        else:
            shown.append(f"{first}–{last}")
    if not shown:
        return ""
    line = f"Archive: messages {', '.join(shown)} are kept word for word"
    if not is_recalled:
        return f"{line}."
    return f"{line}. What the user asks about is recalled from them by itself."


def read_archive_line(summary: str) -> list[Range]:
    """Read the numbers of the messages that a summary replaces."""
    ranges: list[Range] = []
    for text in _ARCHIVED.findall(summary):
        for first, last in _RUN.findall(text):
            ranges.append((int(first), int(last or first)))
    return join_spans(ranges)
