"""A session file as far as it has been read: its header, its entries, their tree, and what was wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.errors import FormatError
from holdfast.transcripts import journal
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Line, parse_line, read_lines
from holdfast.transcripts.migration import upgrade
from holdfast.transcripts.records import HEADER, is_header, messages_of, read_entry
from holdfast.transcripts.tree import Tree

__all__ = ["Log", "stream_entries"]


class Log:
    """What has been read of one open file. It only ever grows.

    Attributes:
        header: The first record.
        entries: Every record after it, in file order, messages not read yet.
        tree: The entries, linked.
        problems: What could not be used as it is.
    """

    def __init__(self, descriptor: int) -> None:
        self.header: Mapping[str, Any] = {}
        self.entries: list[Entry] = []
        self.tree = Tree()
        self.problems: list[Problem] = []
        self._status = os.fstat(descriptor)
        self._bytes = 0
        self._lines = 0

    def matches(self, descriptor: int) -> bool:
        """Whether this is still the file that was read, and nothing of it was cut off."""
        status = os.fstat(descriptor)
        return os.path.samestat(status, self._status) and status.st_size >= self._bytes

    def read(self, descriptor: int) -> None:
        """Read what is new, and close a last line that was cut off. The caller holds the lock."""
        raw = b"\n"
        for line in journal.read_from(descriptor, self._bytes, number=self._lines + 1):
            self._take(line)
            raw = line.raw
        if not raw.endswith(b"\n"):
            journal.append(descriptor, b"\n", durable=False)
            self._bytes += 1

    def write(self, descriptor: int, lines: Sequence[bytes], *, durable: bool) -> tuple[Entry, ...]:
        """Append whole lines, all at once, and take them as read."""
        journal.append(descriptor, b"".join(lines), durable=durable)
        before = len(self.entries)
        for raw in lines:
            self._take(parse_line(raw, self._lines + 1))
        return tuple(self.entries[before:])

    def _take(self, line: Line) -> None:
        self._bytes += len(line.raw)
        self._lines = line.number
        self.problems += _damage(line)
        if line.data is None:
            return
        if not self.header and is_header(line.data):
            self.header = line.data
            return
        entry = read_entry(line.data, line=line.number)
        wrong = "a second header: kept, not used" if entry.type == HEADER else self.tree.add(entry)
        self.entries.append(entry)
        if wrong is not None:
            self.problems.append(Problem(line.number, wrong))


def _damage(line: Line) -> list[Problem]:
    torn = not line.raw.endswith(b"\n")
    if line.problem is None and not torn:
        return []
    what = "no line break at its end" if line.problem is None else line.problem
    return [Problem(line.number, f"{what}; kept{' and closed with a line break' if torn else ', not used'}")]


def stream_entries(path: Path) -> Iterator[Item]:
    """The records of a session file of any version, one by one, in constant memory; the file is only read.

    The header comes first, as an entry of type `session`. Entries have their messages; what is wrong with a line
    comes as a Problem in its place, or right before the entry where the entry can be used all the same.

    Raises:
        TranscriptError: The file cannot be read.
    """
    for line, record in upgrade(read_lines(path, skip_long=True)):
        if line.problem is not None:
            yield Problem(line.number, line.problem)
        if record is None:
            continue
        entry = read_entry(record, line=line.number)
        try:
            entry = replace(entry, messages=messages_of(entry))
        except FormatError as error:
            yield Problem(line.number, str(error))
        yield entry
