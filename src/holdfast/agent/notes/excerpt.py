"""Lines of a note, by its path: `memory_get`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.agent.notes.chunks import Line, numbered
from holdfast.agent.notes.collection import further
from holdfast.agent.notes.sources import extra_roots, talk_lines
from holdfast.agent.paths import Bounds, locate, read_bytes
from holdfast.errors import InputError
from holdfast.settings import Settings

__all__ = ["Excerpt", "excerpt"]

LINES: Final = 120
CHARS: Final = 12_000
_SESSIONS: Final = "sessions/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """Lines of a note; empty where there is no such note. `following` is the line to go on with, if any."""

    path: str
    text: str
    following: int | None = None


def excerpt(
    path: str, *, root: Path, settings: Settings, sessions: Path | None = None, start: int = 1, count: int | None = None
) -> Excerpt:
    """Some lines of a note, of a further file, or of a past session.

    Raises:
        InputError: The path is none that `memory_search` searches.
    """
    lines = _lines(path, root=root, settings=settings, sessions=sessions)
    wanted = [line for line in lines if line[0] >= start]
    if count is not None:
        wanted = [line for line in wanted if line[0] < start + count]
    kept = list(_fitting(wanted[: LINES if count is None else len(wanted)]))
    rest = len(kept) < len(wanted)
    return Excerpt(
        path=path, text="\n".join(text for _, text in kept), following=wanted[len(kept)][0] if rest else None
    )


def _fitting(lines: list[Line]) -> Iterator[Line]:
    """As many lines as fit; of a first one that does not, its beginning."""
    room = CHARS
    for number, text in lines:
        if len(text) >= room:
            if room == CHARS:
                yield number, text[:CHARS]
            return
        yield number, text
        room -= len(text) + 1


def _lines(path: str, *, root: Path, settings: Settings, sessions: Path | None) -> list[Line]:
    if path.startswith(_SESSIONS) and sessions is not None and _has_sessions(settings):
        file = locate(Bounds(root=sessions), path.removeprefix(_SESSIONS)).path
        return talk_lines(file, mask=settings.archive.redaction) if file.is_file() else []
    return _note_lines(path, root=root, settings=settings)


def _note_lines(path: str, *, root: Path, settings: Settings) -> list[Line]:
    places = tuple(extra_roots(root, settings.memory_search.extra_paths))
    indexed = further(root, settings.memory.qmd) if settings.memory.backend == "qmd" else []
    bounds = Bounds(root=root, allowed=(*places, *(each.path for each in indexed)))
    file = locate(bounds, path).path
    usual = file.suffix.lower() == ".md" and _is_note(file, root.resolve(), [place.resolve() for place in places])
    if not usual and not any(each.holds(file) for each in indexed):
        raise InputError(
            f"{path!r} is not a note: take a path that memory_search gave, such as MEMORY.md or memory/2026-02-10.md; "
            "`read` shows other files"
        )
    return numbered(read_bytes(bounds, path).decode("utf-8", "replace")) if file.is_file() else []


def _has_sessions(settings: Settings) -> bool:
    """Whether past sessions are searched, by our own index or by QMD."""
    memory = settings.memory
    return "sessions" in settings.memory_search.sources or (memory.backend == "qmd" and memory.qmd.sessions.enabled)


def _is_note(file: Path, root: Path, further: list[Path]) -> bool:
    return (
        (file.parent == root and file.name in {"MEMORY.md", "memory.md"})
        or file.is_relative_to(root / "memory")
        or any(file == place or file.is_relative_to(place) for place in further)
    )
