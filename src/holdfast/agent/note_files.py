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

from holdfast.errors import TranscriptError
from holdfast.redact import find, redact
from holdfast.search.embed.base import clean
from holdfast.text import digest, head, is_unsegmented
from holdfast.transcripts import Entry, stream
from holdfast.transcripts.pi import is_copy

__all__ = [
    "Chunk",
    "Fallback",
    "Kind",
    "Line",
    "NoteHit",
    "NoteResults",
    "Source",
    "expand_paths",
    "find_notes",
    "find_sessions",
    "number_lines",
    "read_lines",
    "read_messages",
    "split_chunks",
]

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


# --- results -------------------------------------------------------------------------


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
    """The result of a search over notes.

    Attributes:
        hits: The matches, best first.
        provider: The provider of the question's vector, or `qmd`; `none` if only words were compared.
        model: Its model.
        fallback: The provider that was configured but is not in use.
        mode: `hybrid`, `vectors` or `words`.
        warnings: Problems that did not stop the search.
    """

    hits: tuple[NoteHit, ...] = ()
    provider: str = "none"
    model: str = ""
    fallback: Fallback | None = None
    mode: str = "words"
    warnings: tuple[str, ...] = ()


# --- files -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file that is searched.

    Attributes:
        name: Its name in results: its path relative to the workspace, or `sessions/<file>`.
        path: Its path.
        kind: A note or a past session.
        mtime: When it was changed, in nanoseconds.
        size: Its size in bytes.
    """

    name: str
    path: Path
    kind: Kind
    mtime: int
    size: int


def find_notes(root: Path, extra: Sequence[str] = ()) -> list[Source]:
    """Find the notes of a workspace: MEMORY.md, memory/**/*.md, and extra paths. Links are not followed."""
    seen: set[tuple[int, int]] = set()
    sources = [_make_source(root / name, root, seen) for name in _NOTES]
    for place in (root / _FOLDER, *expand_paths(root, extra)):
        paths = _walk_markdown(place) if place.is_dir() else [place]
        sources += (_make_source(path, root, seen) for path in paths)
    return [source for source in sources if source is not None]


def expand_paths(root: Path, paths: Iterable[str]) -> list[Path]:
    """Resolve paths of the settings relative to the workspace."""
    return [root / Path(os.path.expanduser(path)) for path in paths]  # noqa: PTH111 - the one that never raises


def _walk_markdown(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        yield from (Path(place, name) for name in sorted(files) if name.lower().endswith(".md"))


def _make_source(path: Path, root: Path, seen: set[tuple[int, int]]) -> Source | None:
    """Make a source; None for links, other types of files, files that are too large, and files seen before."""
    try:
        state = path.lstat()
    except OSError:
        return None
    key = (state.st_dev, state.st_ino)
    is_note = stat.S_ISREG(state.st_mode) and path.name.lower().endswith(".md")
    if not is_note or key in seen or state.st_size > MAX_NOTE_BYTES:
        return None
    seen.add(key)
    relative = os.fspath(path).removeprefix(f"{root}{os.sep}")
    name = os.fsencode(relative).decode("utf-8", "replace")  # file names need not be valid text
    return Source(name=Path(name).as_posix(), path=path, kind="memory", mtime=state.st_mtime_ns, size=state.st_size)


def find_sessions(folder: Path) -> list[Source]:
    """Find the sessions in a folder, including those that were reset."""
    sources: list[Source] = []
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if _SESSION.search(path.name) and not is_copy(path) and not path.is_symlink():
                state = path.stat()
                name = f"sessions/{os.fsencode(path.name).decode('utf-8', 'replace')}"
                sources.append(
                    Source(name=name, path=path, kind="sessions", mtime=state.st_mtime_ns, size=state.st_size)
                )
    return sources


def read_lines(source: Source, *, mask: bool) -> list[Line]:
    """Read the lines of a source, with their numbers in the file; with `mask`, secrets are masked."""
    if source.kind == "sessions":
        return read_messages(source.path, mask=mask)
    text = source.path.read_bytes().decode("utf-8", "replace")
    return number_lines(_mask_lines(text) if mask else text)


def number_lines(text: str) -> list[Line]:
    """Split a text into numbered lines."""
    return list(enumerate(text.splitlines(), start=1))


def _mask_lines(text: str) -> str:
    """Mask the secrets of a text without changing line numbers: a key of ten lines leaves ten lines."""
    pieces: list[str] = []
    end = 0
    for secret in find(text):
        pieces += (text[end : secret.start], secret.mask, "\n" * text.count("\n", secret.start, secret.end))
        end = secret.end
    return "".join((*pieces, text[end:]))


def read_messages(path: Path, *, mask: bool) -> list[Line]:
    """Read the messages of a session as `User: ...` and `Assistant: ...`, one line each, by line of the file."""
    lines: list[Line] = []
    with suppress(TranscriptError):  # lines before a damaged one still count
        for entry in stream(path, format="pi"):
            if isinstance(entry, Entry) and entry.type == "message":
                for message in entry.messages:
                    speaker, text = _SPEAKERS.get(message.role), " ".join(clean(message.text).split())
                    if speaker and text:
                        lines.append((entry.line, f"{speaker}: {text}"))
    return [(number, redact(text)) for number, text in lines] if mask else lines


# --- chunks ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some lines of a file: the numbers of the first and the last one, their text, and its digest."""

    start: int
    end: int
    text: str
    digest: str


def split_chunks(lines: Iterable[Line], *, tokens: int, overlap: int) -> list[Chunk]:
    """Split lines into chunks of about `tokens` tokens, each beginning with the last `overlap` tokens of the previous.

    Lines stay whole; one that is longer than a chunk is split into several with the same number. Blank chunks are
    left out.
    """
    size, shared = tokens * CHARS_PER_TOKEN, overlap * CHARS_PER_TOKEN
    chunks: list[Chunk] = []
    held: list[Line] = []
    weight = fresh = 0
    for line in _split_long_lines(lines, size):
        cost = _weigh(line[1]) + 1
        if fresh and weight + cost > size:
            chunks.append(_make_chunk(held))
            held = _last_lines(held, shared)
            weight, fresh = sum(_weigh(text) + 1 for _, text in held), 0
            if weight + cost > size:
                held, weight = [], 0
        held.append(line)
        weight, fresh = weight + cost, fresh + 1
    if fresh:
        chunks.append(_make_chunk(held))
    return [chunk for chunk in chunks if chunk.text.strip()]


def _make_chunk(lines: Sequence[Line]) -> Chunk:
    text = "\n".join(text for _, text in lines)
    return Chunk(start=lines[0][0], end=lines[-1][0], text=text, digest=digest(text))


def _last_lines(lines: Sequence[Line], shared: int) -> list[Line]:
    """Return the lines that the next chunk repeats."""
    last: list[Line] = []
    weight = 0
    for line in reversed(lines):
        if weight >= shared:
            break
        last.insert(0, line)
        weight += _weigh(line[1]) + 1
    return last if len(last) < len(lines) else []


def _split_long_lines(lines: Iterable[Line], size: int) -> Iterator[Line]:
    """Yield the lines, those that are longer than a chunk in pieces."""
    for number, text in lines:
        weight = _weigh(text)
        if weight < size:
            yield number, text
            continue
        letters = max(1, (size - 1) * len(text) // weight)
        rest = text
        while rest:
            piece = head(rest[: letters + CHARS_PER_TOKEN * CHARS_PER_TOKEN], letters) or rest[:letters]
            yield number, piece
            rest = rest[len(piece) :]


def _weigh(text: str) -> int:
    return len(text) if text.isascii() else len(text) + (CHARS_PER_TOKEN - 1) * sum(map(is_unsegmented, text))
