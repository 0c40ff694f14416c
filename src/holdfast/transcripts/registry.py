"""Every reader, and how a file finds its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast.errors import TranscriptError
from holdfast.transcripts.aider import AIDER
from holdfast.transcripts.claude_code import CLAUDE_CODE
from holdfast.transcripts.clawdbot import CLAWDBOT
from holdfast.transcripts.cline import CLINE
from holdfast.transcripts.codex import CODEX
from holdfast.transcripts.copilot import COPILOT
from holdfast.transcripts.database import database_file, matches, named_session
from holdfast.transcripts.entry import Entry, Item, Problem, Transcript
from holdfast.transcripts.gemini import GEMINI, QWEN
from holdfast.transcripts.goose import GOOSE
from holdfast.transcripts.grok import GROK
from holdfast.transcripts.head import read_head
from holdfast.transcripts.hermes import HERMES
from holdfast.transcripts.kimi import KIMI
from holdfast.transcripts.message_list import MESSAGE_LIST
from holdfast.transcripts.openclaw import OPENCLAW
from holdfast.transcripts.opencode import OPENCODE
from holdfast.transcripts.openhands import OPENHANDS
from holdfast.transcripts.openhands_history import OPENHANDS_HISTORY
from holdfast.transcripts.pi import PI_SESSION
from holdfast.transcripts.reader import Reader, about
from holdfast.transcripts.request_log import REQUEST_LOG
from holdfast.transcripts.tau_bench import TAU_BENCH

__all__ = ["READERS", "database_reader", "read", "recognise", "stream"]

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
        OPENHANDS_HISTORY,
        OPENCODE,
        GEMINI,
        GOOSE,
        GROK,
        CLINE,
        AIDER,
        HERMES,
        TAU_BENCH,
        CLAWDBOT,
        REQUEST_LOG,
        MESSAGE_LIST,
    )
}
"""Every reader by name, in the order they are asked: the particular ones first."""


def recognise(path: Path, *, format: str | None = None) -> tuple[Reader, Path]:
    """The reader of a session, and the folder or file that holds all of it.

    Raises:
        TranscriptError: It cannot be read, or is of no agent that we know; the message names those we do.
    """
    readers = _readers(format, path)
    file = database_file(path)
    if file is not None:
        reader = database_reader(file, readers)
        if reader is None or reader.database is None:
            raise TranscriptError("an SQLite file of no agent that we know", path=file)
        return reader, named_session(path, file, reader.database)
    try:
        homes = [(reader, home) for reader in readers if (home := reader.folder(path)) is not None]
    except OSError as error:
        raise TranscriptError(f"cannot be looked into: {error.strerror or error}", path=path) from None
    if homes:
        return homes[0]
    head = read_head(path)
    found = next((reader for reader in readers if format is not None or reader.claims(path, head)), None)
    if found is None:
        raise TranscriptError(f"in no format that we know; pass one of format={'|'.join(READERS)}", path=path)
    return found, path


_CURSOR: Final = frozenset({"blobs.data", "meta.value"})


def database_reader(file: Path, readers: Iterable[Reader]) -> Reader | None:
    """The reader of an SQLite file; None where it is of no agent that we know.

    Raises:
        TranscriptError: The file cannot be read, or is of an agent whose format is not published.
    """
    known = ((reader, reader.database) for reader in readers)
    found = next((reader for reader, kept in known if kept is not None and matches(file, kept.columns)), None)
    if found is None and file.name == "store.db" and matches(file, _CURSOR):
        raise TranscriptError("Cursor keeps chats in a binary format that is not published: not read", path=file)
    return found


def _readers(format: str | None, path: Path) -> list[Reader]:
    """The reader of a format; all of them where none is named."""
    if format is None:
        return list(READERS.values())
    if format not in READERS:
        raise TranscriptError(f"format {format!r} is not one of {', '.join(READERS)}", path=path)
    return [READERS[format]]


def stream(path: Path, *, format: str | None = None) -> Iterator[Item]:
    """Read a session record by record, in memory that does not grow with the file where it is JSON Lines.

    What cannot be used as it is comes as a Problem, in its place.

    Raises:
        TranscriptError: The file cannot be read, or is of no agent that we know.
    """
    reader, home = recognise(path, format=format)
    return reader.stream(home)


def read(path: Path, *, format: str | None = None) -> Transcript:
    """Read a whole session, whatever agent wrote it: a file, or the folder that an agent keeps it in.

    Raises:
        TranscriptError: The file cannot be read, or is of no agent that we know.
    """
    reader, home = recognise(path, format=format)
    items = list(reader.stream(home))
    entries = tuple(item for item in items if isinstance(item, Entry))
    known = about((entry.data for entry in entries), reader.notes)
    return Transcript(
        path=home,
        format=reader.name,
        session=known.session or session_name(home),
        entries=entries,
        problems=tuple(item for item in items if isinstance(item, Problem)),
        cwd=known.cwd,
        title=known.title or known.topic,
        model=known.model,
    )


def session_name(path: Path) -> str:
    """What a session is called that does not name itself: its file name, without what follows the first dot."""
    return path.name.lstrip(".").split(".")[0] or path.name
