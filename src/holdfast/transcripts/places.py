"""Where sessions lie: a folder recognised by itself, and the places where agents keep theirs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from holdfast.errors import MissingExtraError, TranscriptError
from holdfast.transcripts.database import Stored, database_file, list_sessions
from holdfast.transcripts.entry import Entry, Problem
from holdfast.transcripts.head import read_head
from holdfast.transcripts.pi import ARCHIVED, is_copy
from holdfast.transcripts.reader import About, Reader, about
from holdfast.transcripts.registry import READERS, database_reader, session_name

__all__ = ["Found", "Place", "default_places", "sessions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A session that was found.

    Attributes:
        path: The file, or the folder where an agent keeps one session in several files.
        format: The name of its reader.
        session: Its id, as far as its beginning tells.
        size: Bytes of its files.
        modified: When it was last written, in Unix milliseconds.
        title: What the agent or the user called it, where its beginning tells.
        cwd: The folder the agent worked in, where its beginning tells.
    """

    path: Path
    format: str
    session: str
    size: int
    modified: int
    title: str | None = None
    cwd: str | None = None


_SUFFIXES: Final = frozenset({".jsonl", ".ndjson", ".json", ".gz", ".md", ".txt", ".db", ".sqlite"})
_FOREIGN: Final = frozenset({".git", ".hg", ".svn", ".venv", "node_modules", "__pycache__"})
_OPENCODE_STORE: Final = frozenset({"session", "message", "part"})
_DOCUMENT_LIMIT: Final = 64 << 20
_BEGINNING: Final = 24


def sessions(
    folder: Path,
    *,
    on_problem: Callable[[Problem], None] | None = None,
    on_skipped: Callable[[Path], None] | None = None,
) -> Iterator[Found]:
    """Every session in a folder and the folders below it, of whatever agent, in the order of their paths.

    What looks like a session and cannot be looked into is told to `on_problem`, a file that is no session to
    `on_skipped`.

    Raises:
        TranscriptError: The folder itself is missing, or may not be looked into.
    """
    for item in _look(folder):
        match item:
            case Found():
                yield item
            case Problem() if on_problem is not None:
                on_problem(item)
            case Path() if on_skipped is not None:
                on_skipped(item)


_Item: TypeAlias = Found | Problem | Path
"""A session, what is wrong with one, or a file that is none."""


def _look(folder: Path) -> Iterator[_Item]:
    try:
        if folder.is_dir():
            _listed(folder)
        else:
            (database_file(folder) or folder).stat()
    except OSError as error:
        raise TranscriptError(f"cannot be looked into: {error.strerror or error}", path=folder) from None
    return _walk(folder) if folder.is_dir() else _file(folder)


def _listed(folder: Path) -> list[os.DirEntry[str]]:
    return sorted(os.scandir(folder), key=lambda item: item.name)


def _walk(folder: Path) -> Iterator[_Item]:
    try:
        below = _listed(folder)
        found = _session_folder(folder)
    except (OSError, TranscriptError) as error:
        yield Problem(0, f"cannot be looked into: {error}")
        return
    if found is not None:
        yield found
        return
    names = {item.name for item in below}
    for item in below:
        if item.is_file():
            yield from _file(Path(item.path))
        elif item.is_dir(follow_symlinks=False) and _holds_sessions(item.name, names):
            yield from _walk(Path(item.path))


def _holds_sessions(name: str, beside: set[str]) -> bool:
    """Whether a folder is worth looking into: not a tool's own, nor the single parts that OpenCode stores."""
    return name not in _FOREIGN and (name == "session" or not beside >= _OPENCODE_STORE)


def _session_folder(folder: Path) -> Found | None:
    for reader in READERS.values():
        if reader.folder(folder) == folder:
            return _found(folder, reader, _beginning(reader, folder))
    return None


def _file(path: Path) -> Iterator[_Item]:
    found: list[_Item] = []
    try:
        if _may_be_session(path):
            found = list(_session_file(path) if database_file(path) is None else _database(path))
    except (OSError, TranscriptError) as error:
        found = [Problem(0, str(error))]
    yield from found or [path]


def _may_be_session(path: Path) -> bool:
    return not is_copy(path) and (path.suffix in _SUFFIXES or ARCHIVED.search(path.name) is not None)


def _session_file(path: Path) -> Iterator[Found]:
    """The session in a file, if it is one of any agent; an empty file is none yet."""
    if path.is_file() and path.stat().st_size == 0:
        return
    head = read_head(path, limit=_DOCUMENT_LIMIT)
    reader = next((reader for reader in READERS.values() if reader.claims(path, head)), None)
    if reader is not None:
        records = (value for value in head.values if isinstance(value, Mapping))
        yield _found(path, reader, about(records, reader.notes))


def _database(path: Path) -> Iterator[Found | Problem]:
    """The sessions in an SQLite file, if it is one of any agent."""
    file = database_file(path) or path
    reader = database_reader(file, READERS.values())
    if reader is None or reader.database is None:
        return
    for stored in list_sessions(file, reader.database):
        if path in {file, stored.path}:
            try:
                yield _found(stored.path, reader, _beginning(reader, stored.path), stored)
            except (TranscriptError, MissingExtraError) as error:
                yield Problem(0, f"{stored.path}: {error}")


def _beginning(reader: Reader, path: Path) -> About:
    entries = (item for item in islice(reader.stream(path), _BEGINNING) if isinstance(item, Entry))
    return about((entry.data for entry in entries), reader.notes)


def _found(path: Path, reader: Reader, known: About, stored: Stored | None = None) -> Found:
    if stored is not None:
        size, modified = stored.size, stored.modified
    else:
        size, modified = _measure(path)
    return Found(
        path=path,
        format=reader.name,
        session=known.session or session_name(path),
        size=size,
        modified=modified,
        title=known.title or known.topic,
        cwd=known.cwd,
    )


def _measure(path: Path) -> tuple[int, int]:
    """The bytes of a session's files, and when one of them was last written."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    stats = [file.stat() for file in files]
    modified = max((stat.st_mtime_ns // 1_000_000 for stat in stats), default=0)
    return sum(stat.st_size for stat in stats), modified


_PLACES: Final = (
    # agent, the variable that moves its home, its home, the folder of sessions in it
    ("claude_code", "CLAUDE_CONFIG_DIR", ".claude", "projects"),
    ("codex", "CODEX_HOME", ".codex", "sessions"),
    ("codex", "CODEX_HOME", ".codex", "archived_sessions"),
    ("pi", "PI_CODING_AGENT_DIR", ".pi/agent", "sessions"),
    ("openclaw", "OPENCLAW_STATE_DIR", ".openclaw", "agents"),
    ("clawdbot", "CLAWDBOT_STATE_DIR", ".clawdbot", "agents"),
    ("moltbot", "MOLTBOT_STATE_DIR", ".moltbot", "agents"),
    ("opencode", "XDG_DATA_HOME", ".local/share", "opencode"),
    ("copilot", "COPILOT_HOME", ".copilot", "session-state"),
    ("kimi", "KIMI_CODE_HOME", ".kimi-code", "sessions"),
    ("kimi", "KIMI_SHARE_DIR", ".kimi", "sessions"),
    ("openhands", "OPENHANDS_HOME", ".openhands", "conversations"),
    ("gemini", "GEMINI_CLI_HOME", ".gemini", "tmp"),
    ("qwen", "QWEN_HOME", ".qwen", "projects"),
    ("qwen", "QWEN_HOME", ".qwen", "tmp"),
    ("grok", "GROK_HOME", ".grok", "sessions"),
    ("goose", "XDG_DATA_HOME", ".local/share", "goose/sessions"),
    ("cline", "CLINE_DIR", ".cline", "data"),
    ("cline", "XDG_CONFIG_HOME", ".config", "Code/User/globalStorage/saoudrizwan.claude-dev/tasks"),
)


class Place(NamedTuple):
    """Where an agent keeps its sessions."""

    agent: str
    folder: Path


def default_places(environ: Mapping[str, str], home: Path) -> list[Place]:
    """The folders where the known agents keep their sessions, as far as they exist."""
    places = (Place(agent, Path(environ.get(name) or home / own) / inside) for agent, name, own, inside in _PLACES)
    return [place for place in places if place.folder.is_dir()]
