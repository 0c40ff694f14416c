"""aider: `.aider.chat.history.md`, what the user said behind `####`, what the tool printed behind `>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from holdfast.messages import Message, Role, Text
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.head import Head
from holdfast.transcripts.lines import MAX_LINE_BYTES, bounded_lines, open_binary
from holdfast.transcripts.reader import About, Json, Reader, timestamp

__all__ = ["AIDER"]

_NAME: Final = ".aider.chat.history.md"
_START: Final = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)", re.MULTILINE)
_MARKS: Final = {"user": "####", "output": ">"}
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant"}


def claims(path: Path, head: Head) -> bool:
    """The line that opens every chat, or aider's own file name."""
    return path.name == _NAME or _START.search(head.text) is not None


class _Line(NamedTuple):
    """One line of the history; `block` counts the stretches of lines of one kind."""

    number: int
    text: str
    kind: str
    block: int


def stream(path: Path) -> Iterator[Item]:
    """Every stretch of the history: chats that were started, words of the user, replies, output of the tool.

    aider writes down no other time than when a chat was started: its entries have that one.
    """
    problems: list[Problem] = []
    started: int | None = None
    for _, lines in groupby(_lines(path, problems), key=lambda line: line.block):
        entry = _entry(list(lines), started)
        started = entry.timestamp
        yield from problems
        problems.clear()
        yield entry


def _lines(path: Path, problems: list[Problem]) -> Iterator[_Line]:
    """Every line with its kind; blank lines belong to the stretch they follow."""
    kind, block = "output", 0
    with open_binary(path) as file:
        for number, raw in enumerate(bounded_lines(file), start=1):
            if len(raw) > MAX_LINE_BYTES:
                problems.append(Problem(number, f"longer than {MAX_LINE_BYTES >> 20} MB: the rest is not read"))
            try:
                text = raw.decode()
            except UnicodeDecodeError as error:
                problems.append(Problem(number, f"not UTF-8 at byte {error.start}: shown with replacement characters"))
                text = raw.decode(errors="replace")
            found = _kind(text) if text.strip() else kind
            block += found != kind or _START.match(text) is not None
            kind = found
            yield _Line(number, text, kind, block)


def _kind(text: str) -> str:
    if _START.match(text):
        return "chat"
    return next((kind for kind, mark in _MARKS.items() if text.startswith(mark)), "assistant")


def _entry(lines: list[_Line], started: int | None) -> Entry:
    kind = lines[0].kind
    raw = "".join(line.text for line in lines)
    opened = _START.match(raw)
    words = _words(raw, _MARKS.get(kind, ""))
    time = timestamp(opened[1]) if opened else started
    role = _ROLES.get(kind)
    said = (Message(role=role, parts=(Text(text=words),), timestamp=time),) if role is not None and words else ()
    return Entry(type=kind, data={"text": raw}, line=lines[0].number, timestamp=time, messages=said)


def _words(raw: str, mark: str) -> str:
    """What was said, without the marks and the two spaces that keep its line breaks in Markdown."""
    if not mark:
        return raw.strip("\n")
    lines = (line.removeprefix(mark).removeprefix(" ").removesuffix("  ") for line in raw.splitlines())
    return "\n".join(lines).strip("\n")


def notes(_data: Json) -> About:
    """A history names neither session nor folder."""
    return About()


AIDER: Final = Reader(name="aider", claims=claims, stream=stream, notes=notes)
