"""The files that a search over notes covers, how they are cut into chunks, and what a search returns."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from holdfast.embed.base import clean
from holdfast.errors import TranscriptError
from holdfast.redaction import find, redact
from holdfast.signals import without_questions
from holdfast.text import head, is_unsegmented
from holdfast.transcripts import Entry, stream
from holdfast.transcripts.pi import is_copy

Kind: TypeAlias = Literal["memory", "sessions"]
Line: TypeAlias = tuple[int, str]
"""The number of a line in its file, from 1, and its text."""

MAX_NOTE_BYTES: Final = 16 << 20
"""Larger Markdown files are not read as notes."""
CHARS_PER_TOKEN: Final = 4
"""Characters of a token; a character of a script without spaces is one token."""
_NOTES: Final = ("MEMORY.md", "memory.md")
_FOLDER: Final = "memory"
_SESSION: Final = re.compile(r"\.jsonl(?:\.reset\.[\dT.:Z-]+)?$")
_SPEAKERS: Final = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The provider that was configured but is not in use, and why."""

    wanted: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteHit:
    """Lines of a note that match a question."""

    path: str
    start: int
    end: int
    score: float
    snippet: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteResults:
    """The result of a search over notes, best hits first, and the problems that did not stop it.

    `provider` and `model` made the question's vector, or it is `qmd`; `none` if only words were compared. `mode` is
    `hybrid`, `vectors` or `words`.
    """

    hits: tuple[NoteHit, ...] = ()
    provider: str = "none"
    model: str = ""
    fallback: Fallback | None = None
    mode: str = "words"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that is searched: its name in results (relative to the workspace, or `sessions/<file>`), time and size."""

    name: str
    path: Path
    kind: Kind
    mtime: int
    size: int


def find_notes(root: Path, extra: Sequence[str] = ()) -> list[Source]:
    """Find the notes of a workspace: MEMORY.md, memory/**/*.md, and extra paths. Links are not followed."""
    paths = [root / name for name in _NOTES]
    for place in (root / _FOLDER, *expand_paths(root, extra)):
        paths += walk_files(place, suffix=".md") if place.is_dir() else [place]
    sources: dict[tuple[int, int], Source] = {}
    for path in paths:
        with suppress(OSError):
            state = path.lstat()
            if stat.S_ISREG(state.st_mode) and path.name.lower().endswith(".md") and state.st_size <= MAX_NOTE_BYTES:
                name = os.fspath(path).removeprefix(f"{root}{os.sep}")
                sources.setdefault((state.st_dev, state.st_ino), _make_source(name, path, state, "memory"))
    return list(sources.values())


def expand_paths(root: Path, paths: Iterable[str]) -> list[Path]:
    """Resolve paths of the settings relative to the workspace."""
    return [root / Path(os.path.expanduser(path)) for path in paths]  # noqa: PTH111 - the one that never raises


def walk_files(folder: Path, *, suffix: str = "") -> Iterator[Path]:
    """Yield the files in a folder and its subfolders, without hidden folders and those of packages."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        yield from (Path(place, name) for name in sorted(files) if name.lower().endswith(suffix))


def find_sessions(folder: Path) -> list[Source]:
    """Find the sessions in a folder, including those that were reset."""
    sources: list[Source] = []
    try:
        for path in sorted(folder.iterdir()):
            if _SESSION.search(path.name) and not path.is_symlink() and not is_copy(path):
                name = f"sessions/{path.name}"
                sources.append(_make_source(name, path, path.stat(), "sessions"))
    except OSError:  # there is no folder yet, or a file has just been removed
        return []
    return sources


def _make_source(name: str, path: Path, state: os.stat_result, kind: Kind) -> Source:
    text = os.fsencode(name).decode("utf-8", "replace")  # file names need not be valid text
    return Source(name=Path(text).as_posix(), path=path, kind=kind, mtime=state.st_mtime_ns, size=state.st_size)


def read_lines(source: Source, *, mask: bool) -> list[Line]:
    """Read the lines of a source, with their numbers in the file; with `mask`, secrets are masked."""
    if source.kind == "sessions":
        return read_messages(source.path, mask=mask)
    text = source.path.read_bytes().decode("utf-8", "replace")
    pieces: list[str] = []
    end = 0
    for secret in find(text) if mask else ():
        breaks = "\n" * text.count("\n", secret.start, secret.end)  # so that line numbers stay
        pieces += (text[end : secret.start], secret.mask, breaks)
        end = secret.end
    return number_lines("".join((*pieces, text[end:])))


def number_lines(text: str) -> list[Line]:
    """Split a text into numbered lines."""
    return list(enumerate(text.splitlines(), start=1))


def read_messages(path: Path, *, mask: bool) -> list[Line]:
    """Read the messages of a session as `User: ...` and `Assistant: ...`, one line each, by line of the file.

    A question at the end is left out: it is the one that is being answered.
    """
    lines: list[Line] = []
    open_question: Line | None = None
    for entry in _stream_messages(path):
        for message in entry.messages:
            speaker = _SPEAKERS.get(message.role)
            text = " ".join(clean(message.text).split())
            if speaker and text:
                lines.append((entry.line, f"{speaker}: {text}"))
            if message.role == "user":
                is_question = text and not without_questions(text)
                open_question = lines[-1] if is_question else None
            elif message.role == "assistant" and not message.calls:
                open_question = None
    if open_question is not None:
        lines.remove(open_question)
    if mask:
        return [(number, redact(text)) for number, text in lines]
    return lines


def _stream_messages(path: Path) -> Iterator[Entry]:
    with suppress(TranscriptError):  # lines before a damaged one still count
        for entry in stream(path, format="pi"):
            if isinstance(entry, Entry) and entry.type == "message":
                yield entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some lines of a file: the numbers of the first and the last one, and their text."""

    start: int
    end: int
    text: str


def split_chunks(lines: Iterable[Line], *, tokens: int, overlap: int) -> list[Chunk]:
    """Split lines into chunks of about `tokens` tokens, each beginning with the last `overlap` tokens of the previous.

    Lines stay whole; one that is longer than a chunk is split into several with the same number. Blank chunks are
    left out.
    """
    size = tokens * CHARS_PER_TOKEN
    shared = overlap * CHARS_PER_TOKEN
    groups: list[list[Line]] = []
    group: list[Line] = []
    weight = 0
    for line in _split_long_lines(lines, size):
        cost = _weigh(line[1])
        if group and weight + cost > size:
            groups.append(group)
            group = _take_last(group, shared)
            weight = sum(_weigh(text) for _, text in group)
            if weight + cost > size:
                group = []
                weight = 0
        group.append(line)
        weight += cost
    if group:
        groups.append(group)
    chunks: list[Chunk] = []
    for group in groups:
        text = "\n".join(text for _, text in group)
        if text.strip():
            chunks.append(Chunk(start=group[0][0], end=group[-1][0], text=text))
    return chunks


def _take_last(lines: Sequence[Line], weight: int) -> list[Line]:
    """Return the last lines that together have a weight; none if all but the first line have less."""
    found = 0
    for index in range(len(lines) - 1, 0, -1):
        if found >= weight:
            return list(lines[index + 1 :])
        found += _weigh(lines[index][1])
    return list(lines[1:]) if found >= weight else []


def _split_long_lines(lines: Iterable[Line], size: int) -> Iterator[Line]:
    """Yield the lines, those that are longer than a chunk in pieces."""
    for number, text in lines:
        weight = _weigh(text)
        letters = len(text)
        if weight > size:
            letters = max(1, (size - 1) * len(text) // weight)
        rest = text
        while len(rest) > letters:
            # A little more than the piece, so that `head` sees whether it would cut a character in two.
            piece = head(rest[: letters + CHARS_PER_TOKEN * CHARS_PER_TOKEN], letters) or rest[:letters]
            yield number, piece
            rest = rest[len(piece) :]
        yield number, rest


def _weigh(text: str) -> int:
    """Count characters and a line break; a character of a script without spaces counts as a token."""
    wide = 0 if text.isascii() else sum(map(is_unsegmented, text))
    return len(text) + (CHARS_PER_TOKEN - 1) * wide + 1
