"""A file of JSON lines that several programs append to: read on from where it was left, never half a line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.errors import StorageError
from holdfast.transcripts import journal
from holdfast.transcripts.lines import Line, parse_line

__all__ = ["LinesFile", "Placed", "encode_line"]

_CREATED: Final = 0o600


@dataclass(frozen=True, slots=True)
class Placed:
    """A line, and where it stands in its file."""

    line: Line
    offset: int


def encode_line(data: Mapping[str, Any]) -> bytes:
    """An object as one line. Halves of surrogate pairs are written as escapes, which every reader understands."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":")).encode() + b"\n"


class LinesFile:
    """One such file. Nothing of it is kept in memory but how far it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.restart()

    def restart(self) -> None:
        """Read from the beginning the next time."""
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._number = 1
        self.torn = False

    def is_another(self) -> bool:
        """Tell whether the file was replaced, cut or removed since it was read."""
        if self._identity is None:
            return False
        try:
            found = self.path.stat()
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._identity or found.st_size < self._offset

    def read_new(self) -> Iterator[Placed]:
        """The lines that were added since the last time. A last line without an end is left for later, and `torn`."""
        self.torn = False
        with journal.storage(self.path):
            try:
                file = self.path.open("rb")
            except FileNotFoundError:
                return
            with file:
                found = os.fstat(file.fileno())
                self._identity = (found.st_dev, found.st_ino)
                file.seek(self._offset)
                for raw in file:
                    if not raw.endswith(b"\n"):
                        self.torn = True
                        return
                    place, self._offset = self._offset, self._offset + len(raw)
                    number, self._number = self._number, self._number + 1
                    yield Placed(parse_line(raw, number), place)

    def read_at(self, offset: int) -> dict[str, Any]:
        """The line at a place that was read before."""
        with journal.storage(self.path), self.path.open("rb") as file:
            file.seek(offset)
            line = parse_line(file.readline(), 0)
        if line.data is None:
            raise StorageError("was changed by another program while it was read: try again", path=self.path)
        return line.data

    def append(self, lines: Iterable[bytes]) -> None:
        """Add lines in one piece, durable when this returns. A torn last line is ended first and stays as it is."""
        data = b"".join(lines)
        if not data:
            return
        with journal.storage(self.path):
            descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, _CREATED)
            try:
                journal.append(descriptor, (b"" if _ends_well(descriptor) else b"\n") + data, durable=True)
            finally:
                os.close(descriptor)

    def rewrite(self, keep: Callable[[Line], bool]) -> bool:
        """Leave out the lines that are not to be kept, in one step; tell whether there were any."""
        if not self.path.exists():
            return False
        with journal.storage(self.path), self.path.open("rb") as file:
            raws = file.readlines()
        kept = [raw for number, raw in enumerate(raws, start=1) if keep(parse_line(raw, number))]
        if len(kept) == len(raws):
            return False
        journal.replace(self.path, kept)
        return True


def _ends_well(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    if not size:
        return True
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"
