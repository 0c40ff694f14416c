"""aider: `.aider.chat.history.md`, with user lines after `####` and tool output after `>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from holdfast.messages import Message, Role, Text
from holdfast.transcripts.entry import Entry, Item, Problem, timestamp
from holdfast.transcripts.lines import MAX_LINE_BYTES, Head, bounded_lines, open_binary
from holdfast.transcripts.reader import Reader

_NAME: Final = ".aider.chat.history.md"
_START: Final = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)", re.MULTILINE)
_MARKS: Final = {"user": "####", "output": ">"}
_ROLES: Final[dict[str, Role]] = {"user": "user", "assistant": "assistant"}


def _stream(path: Path) -> Iterator[Item]:
    """Yield one entry for each run of lines of one kind: chat start, user, assistant, tool output.

    aider records only when a chat started: all of its entries get that time.
    """
    problems: list[Problem] = []
    time: int | None = None
    for (_, kind), group in groupby(_read_lines(path, problems), key=itemgetter(0, 1)):
        lines = list(group)
        raw = "".join(text for *_, text in lines)
        if opened := _START.match(raw):
            time = timestamp(opened[1])
        if mark := _MARKS.get(kind):
            # Two spaces at the end of a line keep its line break in Markdown.
            texts = (line.removeprefix(mark).removeprefix(" ").removesuffix("  ") for line in raw.splitlines())
            content = "\n".join(texts).strip("\n")
        else:
            content = raw.strip("\n")
        role = _ROLES.get(kind)
        messages = (Message(role=role, parts=(Text(text=content),), timestamp=time),) if role and content else ()
        yield from problems
        problems.clear()
        yield Entry(type=kind, data={"text": raw}, line=lines[0][2], timestamp=time, messages=messages)


def _read_lines(path: Path, problems: list[Problem]) -> Iterator[tuple[int, str, int, str]]:
    """Yield the block (a run of lines of one kind), kind, number and text of every line."""
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
            is_start, before = _START.match(text) is not None, kind
            if is_start:
                kind = "chat"
            elif text.strip():  # a blank line has the kind of the line before it
                kind = next((name for name, mark in _MARKS.items() if text.startswith(mark)), "assistant")
            block += kind != before or is_start
            yield block, kind, number, text


def _claims(path: Path, head: Head) -> bool:
    return path.name == _NAME or _START.search(head.text) is not None


AIDER: Final = Reader(name="aider", claims=_claims, stream=_stream)
