"""All readers; recognise and read a session, and find sessions in folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from holdfast.errors import MissingExtraError, TranscriptError
from holdfast.transcripts.aider import AIDER
from holdfast.transcripts.claude_code import CLAUDE_CODE
from holdfast.transcripts.cline import CLINE
from holdfast.transcripts.codex import CODEX
from holdfast.transcripts.copilot import COPILOT
from holdfast.transcripts.cursor import CURSOR
from holdfast.transcripts.entry import Entry, Item, Problem, Transcript
from holdfast.transcripts.gemini import GEMINI, QWEN
from holdfast.transcripts.goose import GOOSE
from holdfast.transcripts.grok import GROK
from holdfast.transcripts.hermes import HERMES
from holdfast.transcripts.kimi import KIMI
from holdfast.transcripts.lines import read_head
from holdfast.transcripts.message_list import MESSAGE_LIST
from holdfast.transcripts.opencode import OPENCODE
from holdfast.transcripts.openhands import OPENHANDS
from holdfast.transcripts.pi import ARCHIVED, CLAWDBOT, OPENCLAW, PI_SESSION, is_copy
from holdfast.transcripts.reader import (
    Database,
    Reader,
    StoredSession,
    database_file,
    has_columns,
    list_sessions,
    merge_facts,
    select_session,
)
from holdfast.transcripts.request_log import REQUEST_LOG

READERS: Final[dict[str, Reader]] = {
    reader.name: reader
    for reader in (
        QWEN,
        CLAUDE_CODE,
        CODEX,
        PI_SESSION,
        OPENCLAW,
        COPILOT,
        KIMI,
        OPENHANDS,
        OPENCODE,
        GEMINI,
        GOOSE,
        CURSOR,
        GROK,
        CLINE,
        AIDER,
        HERMES,
        CLAWDBOT,
        REQUEST_LOG,
        MESSAGE_LIST,
    )
}
"""Every reader by name, in the order in which they are tried: the most specific first."""

_CURSOR_COLUMNS: Final = ("blobs.data", "meta.value")


def _recognise(path: Path, *, format: str | None) -> tuple[Reader, Path]:
    """Return the reader of a session, and the folder or file that holds all of it."""
    if format is not None and format not in READERS:
        raise TranscriptError(f"format {format!r} is not one of {', '.join(READERS)}", path=path)
    readers = list(READERS.values()) if format is None else [READERS[format]]
    if (file := database_file(path)) is not None:
        known = _find_database(file, readers)
        if known is None:
            raise TranscriptError("an SQLite file of no agent that we know", path=file)
        return known[0], select_session(path, file, known[1])
    if found := _find_folder(path, readers):
        return found
    head = read_head(path)
    for reader in readers:
        if format is not None or reader.claims(path, head):  # a reader that the caller named reads any file
            return reader, path
    raise TranscriptError(f"in no format that we know; pass one of format={'|'.join(READERS)}", path=path)


def _find_folder(path: Path, readers: Iterable[Reader]) -> tuple[Reader, Path] | None:
    try:
        return next(((reader, home) for reader in readers if (home := reader.folder(path))), None)
    except OSError as error:
        raise TranscriptError(f"cannot be read: {error.strerror or error}", path=path) from None


def _find_database(file: Path, readers: Iterable[Reader]) -> tuple[Reader, Database] | None:
    """Return the reader and layout of an SQLite file; None if no known agent writes files of this kind."""
    for reader in readers:
        if reader.database is not None and has_columns(file, reader.database.columns):
            return reader, reader.database
    if file.name == "store.db" and has_columns(file, _CURSOR_COLUMNS):  # of its command line; the editor has another
        raise TranscriptError("Cursor keeps chats in a binary format that is not published: not read", path=file)
    return None


def stream(path: Path, *, format: str | None = None) -> Iterator[Item]:
    """Read a session record by record; for JSON Lines, memory does not grow with the file.

    A record that cannot be used comes as a Problem in its place. A file that cannot be read, or whose format
    is unknown, raises a TranscriptError.
    """
    reader, home = _recognise(path, format=format)
    return reader.stream(home)


def read(path: Path, *, format: str | None = None) -> Transcript:
    """Read a whole session of any known agent: a file, or the folder that the agent keeps it in; see `stream`."""
    reader, home = _recognise(path, format=format)
    items = list(reader.stream(home))
    entries = tuple(item for item in items if isinstance(item, Entry))
    info = merge_facts((entry.data for entry in entries), reader)
    problems = tuple(item for item in items if isinstance(item, Problem))
    named = {"session": _name_session(home), **info}
    return Transcript(path=home, format=reader.name, entries=entries, problems=problems, **named)


def _name_session(path: Path) -> str:
    """Name a session that states no id: its file name up to the first dot."""
    return path.name.lstrip(".").split(".")[0] or path.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRef:
    """A session in a folder, described from the beginning of its file; `path` is a file or the folder of several.

    `size` is in bytes; `modified` is the last write, in Unix milliseconds.
    """

    path: Path
    format: str
    session: str
    size: int
    modified: int
    title: str | None = None
    cwd: str | None = None


_SUFFIXES: Final = frozenset({".jsonl", ".ndjson", ".json", ".gz", ".md", ".txt", ".db", ".sqlite", ".vscdb"})
_SKIPPED_FOLDERS: Final = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
_OPENCODE_STORE: Final = frozenset({"session", "message", "part"})
_MAX_DOCUMENT_BYTES: Final = 64 << 20
_HEAD_ENTRIES: Final = 24

_Item: TypeAlias = SessionRef | Problem | Path
"""A session, a problem with one, or a file that is not a session."""


def sessions(
    folder: Path,
    *,
    on_problem: Callable[[Problem], None] | None = None,
    on_skipped: Callable[[Path], None] | None = None,
) -> Iterator[SessionRef]:
    """Yield every session in a folder and its subfolders, of any known agent, ordered by path.

    `on_problem` receives what looks like a session and cannot be read, `on_skipped` each file that is not a session.
    """
    try:
        if folder.is_dir():
            _list_folder(folder)
        else:
            (database_file(folder) or folder).stat()
    except OSError as error:
        raise TranscriptError(f"cannot be read: {error.strerror or error}", path=folder) from None
    for item in _walk(folder) if folder.is_dir() else _inspect_file(folder):
        match item:
            case SessionRef():
                yield item
            case Problem() if on_problem is not None:
                on_problem(item)
            case Path() if on_skipped is not None:
                on_skipped(item)


def describe(path: Path, *, format: str) -> SessionRef:
    """Describe a session whose format the caller names, whatever its file looks like.

    Raises:
        TranscriptError: There is no such format, or the file cannot be read.
    """
    reader, home = _recognise(path, format=format)
    return _make_ref(home, reader, _read_facts(reader, home))


def _list_folder(folder: Path) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(folder), key=lambda item: item.name)


def _walk(folder: Path) -> Iterator[_Item]:
    try:
        children = _list_folder(folder)
        for reader in READERS.values():
            if reader.folder(folder) == folder:
                yield _make_ref(folder, reader, _read_facts(reader, folder))
                return
    except (OSError, TranscriptError) as error:
        yield Problem(0, f"cannot be read: {error}")
        return
    names = {item.name for item in children}
    # In OpenCode's old storage only the folder `session` holds sessions.
    skipped = _SKIPPED_FOLDERS | (names - {"session"} if names >= _OPENCODE_STORE else set())
    for item in children:
        if item.is_file():
            yield from _inspect_file(Path(item.path))
        elif item.name not in skipped and item.is_dir(follow_symlinks=False):
            yield from _walk(Path(item.path))


def _inspect_file(path: Path) -> Iterator[_Item]:
    items: list[_Item] = []
    try:
        if not is_copy(path) and (path.suffix in _SUFFIXES or ARCHIVED.search(path.name) is not None):
            items = list(_read_refs(path))
    except (OSError, TranscriptError) as error:
        items = [Problem(0, str(error))]
    yield from items or ([] if path.name.endswith(("-wal", "-shm")) else [path])  # parts of an SQLite file


def _read_refs(path: Path) -> Iterator[SessionRef | Problem]:
    """Yield the sessions in a file of a known agent; an empty file is not a session yet."""
    if (file := database_file(path)) is not None:
        if (known := _find_database(file, READERS.values())) is None:
            return
        for stored in list_sessions(file, known[1]):
            if path in {file, stored.path}:
                try:
                    yield _make_ref(stored.path, known[0], _read_facts(known[0], stored.path), stored)
                except (TranscriptError, MissingExtraError) as error:
                    yield Problem(0, f"{stored.path}: {error}")
    elif not path.is_file() or path.stat().st_size > 0:
        head = read_head(path, limit=_MAX_DOCUMENT_BYTES)
        for reader in READERS.values():
            if reader.claims(path, head):
                yield _make_ref(path, reader, merge_facts(head.records, reader))
                return


def _read_facts(reader: Reader, path: Path) -> dict[str, str]:
    entries = (item for item in islice(reader.stream(path), _HEAD_ENTRIES) if isinstance(item, Entry))
    return merge_facts((entry.data for entry in entries), reader)


def _make_ref(path: Path, reader: Reader, info: dict[str, str], stored: StoredSession | None = None) -> SessionRef:
    if stored is not None:
        size, modified = stored.size, stored.modified
    else:
        files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
        stats = [file.stat() for file in files]
        size = sum(stat.st_size for stat in stats)
        modified = max((stat.st_mtime_ns // 1_000_000 for stat in stats), default=0)
    named = {"session": _name_session(path), **info}
    named.pop("model", None)
    return SessionRef(path=path, format=reader.name, size=size, modified=modified, **named)


class Place(NamedTuple):
    """A folder, or a database, in which an agent keeps its sessions."""

    agent: str
    folder: Path


def default_places(environ: Mapping[str, str], home: Path) -> list[Place]:
    """List the folders in which the known agents keep their sessions, as far as they exist."""
    lines = Path(__file__).with_name("places.txt").read_text("utf-8").splitlines()[1:]
    rows = ([word.replace("%20", " ") for word in line.split()] for line in lines)
    places = (Place(agent, Path(environ.get(name) or home / own) / inside) for agent, name, own, inside in rows)
    return [place for place in places if place.folder.exists()]
