"""What is searched: the notes of a workspace, further Markdown files, and past sessions as lines of talk."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.agent.notes.chunks import Line, numbered
from holdfast.errors import TranscriptError
from holdfast.redact import find, redact
from holdfast.search.embed.base import clean
from holdfast.transcripts.entry import Entry
from holdfast.transcripts.pi import is_copy
from holdfast.transcripts.session import stream_entries

__all__ = ["Kind", "Source", "extra_roots", "memory_sources", "read_lines", "session_sources", "talk_lines"]

Kind: TypeAlias = Literal["memory", "sessions"]

LARGEST: Final = 16 << 20
"""Bytes of a Markdown file that is still read as a note."""
_NOTES: Final = ("MEMORY.md", "memory.md")
_FOLDER: Final = "memory"
_SESSION: Final = re.compile(r"\.jsonl(?:\.reset\.[\dT.:Z-]+)?$")
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that is searched.

    Attributes:
        name: What it is called in results: its path from the workspace on, or `sessions/<file>`.
        path: Where it lies.
        kind: Notes or a past session.
        mtime: When it was changed, in nanoseconds.
        size: How many bytes it has.
    """

    name: str
    path: Path
    kind: Kind
    mtime: int
    size: int


def memory_sources(root: Path, extra: Sequence[str] = ()) -> list[Source]:
    """The notes of a workspace: MEMORY.md, memory/**/*.md, and further files and folders. Links are not followed."""
    seen: set[tuple[int, int]] = set()
    found = [_source(root / name, root, seen) for name in _NOTES]
    for place in (root / _FOLDER, *extra_roots(root, extra)):
        inside = _markdown(place) if place.is_dir() else [place]
        found += (_source(Path(path), root, seen) for path in inside)
    return [source for source in found if source is not None]


def extra_roots(root: Path, extra: Iterable[str]) -> list[Path]:
    """Where further notes lie."""
    return [root / Path(os.path.expanduser(name)) for name in extra]  # noqa: PTH111 - the one that never raises


def _markdown(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        yield from (Path(place, name) for name in sorted(files) if name.lower().endswith(".md"))


def _source(place: Path, root: Path, seen: set[tuple[int, int]]) -> Source | None:
    """A file as a source; None for links, what is no Markdown, what is too large, and what was seen before."""
    try:
        found = os.lstat(place)
    except OSError:
        return None
    key = (found.st_dev, found.st_ino)
    plain = stat.S_ISREG(found.st_mode) and place.name.lower().endswith(".md")
    if not plain or key in seen or found.st_size > LARGEST:
        return None
    seen.add(key)
    inside = os.fspath(place).removeprefix(f"{root}{os.sep}")
    name = os.fsencode(inside).decode("utf-8", "replace")  # a disk takes names that are no text
    return Source(name=Path(name).as_posix(), path=place, kind="memory", mtime=found.st_mtime_ns, size=found.st_size)


def session_sources(folder: Path) -> list[Source]:
    """The sessions in a folder, those that were reset included."""
    found: list[Source] = []
    with suppress(OSError):
        for place in sorted(folder.iterdir()):
            if _SESSION.search(place.name) and not is_copy(place) and not place.is_symlink():
                state = place.stat()
                name = f"sessions/{os.fsencode(place.name).decode('utf-8', 'replace')}"
                found.append(
                    Source(name=name, path=place, kind="sessions", mtime=state.st_mtime_ns, size=state.st_size)
                )
    return found


def read_lines(source: Source, *, mask: bool) -> list[Line]:
    """The lines of a source, with their numbers in the file; secrets masked where that is asked for."""
    if source.kind == "sessions":
        return talk_lines(source.path, mask=mask)
    text = source.path.read_bytes().decode("utf-8", "replace")
    return numbered(_masked(text) if mask else text)


def _masked(text: str) -> str:
    """A text with its secrets masked and its lines where they were: a key of ten lines leaves ten."""
    pieces: list[str] = []
    end = 0
    for secret in find(text):
        pieces += (text[end : secret.start], secret.mask, "\n" * text.count("\n", secret.start, secret.end))
        end = secret.end
    return "".join((*pieces, text[end:]))


def talk_lines(path: Path, *, mask: bool) -> list[Line]:
    """What was said in a session: `User: ...` and `Assistant: ...`, a line each, by its line in the file."""
    said: list[Line] = []
    with suppress(TranscriptError):  # a session that cannot be read has nothing to say; what was read before it counts
        for entry in stream_entries(path):
            if isinstance(entry, Entry) and entry.type == "message":
                said += ((entry.line, words) for words in _talk(entry))
    return [(number, redact(words)) for number, words in said] if mask else said


def _talk(entry: Entry) -> Iterator[str]:
    for message in entry.messages:
        speaker = _SPEAKERS.get(message.role)
        words = " ".join(clean(message.text).split())
        if speaker and words:
            yield f"{speaker}: {words}"
