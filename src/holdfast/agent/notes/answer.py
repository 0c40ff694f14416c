"""QMD's answers: rows of JSON, and the stretches of notes that they stand for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from holdfast.agent.notes.collection import Collection
from holdfast.agent.notes.command import CommandError
from holdfast.agent.notes.exports import session_of, session_place
from holdfast.agent.notes.found import Hit
from holdfast.agent.notes.sources import LARGEST
from holdfast.redact import redact
from holdfast.text import head

__all__ = ["Reader", "Row", "read_rows"]

_NOTHING: Final = "no results found"
_PLACE: Final = re.compile(r"\A\s*@@ -(\d{1,9})(?:,\d+)? @@[^\n]*\n?")
"""How QMD begins a snippet: its first line and how many there are."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of an answer."""

    file: str
    score: float
    snippet: str | None = None
    line: int | None = None


def read_rows(printed: str) -> list[Row]:
    """The rows of an answer; none where it says in words that there are none.

    Raises:
        CommandError: It is neither.
    """
    start = 0 if printed.lstrip().startswith("[") else printed.find("\n[") + 1
    try:
        return msgspec.json.decode(printed[start:].encode("utf-8", "replace"), type=list[Row])
    except msgspec.DecodeError as error:
        if _NOTHING in printed.lower():
            return []
        raise CommandError(f"the answer is not the JSON that was asked for: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Turns rows into hits.

    Attributes:
        root: The workspace.
        sessions: The folder of past sessions.
        mask: Whether secrets are masked in what is shown.
        results: The most hits.
        snippet: The most characters of one hit.
        together: The most characters of all hits.
    """

    root: Path
    sessions: Path | None
    mask: bool
    results: int
    snippet: int
    together: int

    def hits(self, rows: Iterable[tuple[Collection, Row]]) -> tuple[list[Hit], list[str]]:
        """The best rows as hits, and the names of files that are none of the collection's."""
        hits: list[Hit] = []
        strange: list[str] = []
        room = self.together
        for collection, row in sorted(rows, key=lambda pair: -pair[1].score):
            if len(hits) == self.results or room <= 0:
                break
            hit = self._hit(collection, row, room=min(self.snippet, room))
            if hit is None:
                strange.append(row.file)
                continue
            hits.append(hit)
            room -= len(hit.snippet)
        return hits, strange

    def _hit(self, collection: Collection, row: Row, *, room: int) -> Hit | None:
        given = row.snippet or ""
        marked = _PLACE.match(given)
        text = given[marked.end() :] if marked else given
        near = int(marked[1]) if marked else row.line or 0
        places = [(file, *_lines_of(file, head(text, room), near=near)) for file in collection.files(row.file)]
        if not places:
            return None
        file, start, end, _ = max(places, key=lambda place: place[3])
        path, start, end = self._named(collection, file, start, end)
        shown = head(redact(text) if self.mask else text, room)
        score = round(min(1.0, max(0.0, row.score)), 4)
        return Hit(path=path, start=start, end=end, score=score, snippet=shown, kind=collection.kind)

    def _named(self, collection: Collection, file: Path, start: int, end: int) -> tuple[str, int, int]:
        """How a place is cited: from the workspace on, or as a place in a session."""
        if collection.kind == "sessions" and self.sessions is not None:
            name = session_of(file)
            return name, *session_place(self.sessions / Path(name).name, start, end)
        root = self.root.resolve()
        return (file.relative_to(root) if file.is_relative_to(root) else file).as_posix(), start, end


def _lines_of(file: Path, text: str, *, near: int) -> tuple[int, int, bool]:
    """The lines of a file that a snippet stands in, and whether it does; where it does not, all of them."""
    with file.open("rb") as opened:
        lines = [line.strip() for line in opened.read(LARGEST).decode("utf-8", "replace").splitlines()]
    wanted = [line.strip() for line in text.strip().splitlines()] or [""]
    same = [number for number, line in enumerate(lines, start=1) if _is_same(line, wanted[0], cut=len(wanted) == 1)]
    if not same:
        return 1, max(1, len(lines)), False
    start = min(same, key=lambda number: abs(number - near))
    return start, min(len(lines), start + len(wanted) - 1), True


def _is_same(line: str, wanted: str, *, cut: bool) -> bool:
    """Whether a line is the one that is looked for, of which there may be only the beginning."""
    begins = wanted.rstrip(".…") if cut else ""
    return bool(wanted) and (line == wanted or bool(begins and line.startswith(begins)))
