"""The sessions of an agent: which conversation goes on, since when, and what it has cost.

`sessions.json` lies beside the transcripts and maps a session key (`agent:main:main`) to its entry, in the fields that
OpenClaw writes; what we do not know in it stays as it is. Any number of processes may use it: every change is made
under a lock, and whoever reads sees the old or the new file whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, TypeVar

from holdfast.agent.entry import SessionEntry, due, is_due
from holdfast.agent.notes.qmd import forget_sessions
from holdfast.agent.notes.table import forget_files
from holdfast.errors import InputError, StorageError
from holdfast.settings import Settings
from holdfast.store.base import MessageRow
from holdfast.transcripts import journal
from holdfast.transcripts.records import iso_time
from holdfast.transcripts.session import Session, newest_session

__all__ = ["Opened", "SessionEntry", "Sessions", "agents", "id_of", "is_due", "session_key"]

T = TypeVar("T")

STORE: Final = "sessions.json"
HISTORY: Final = "chat_history"
_LONGEST_HEADER: Final = 65_536
_AGENT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FILE: Final = re.compile(r"[\w.%-]{1,200}\.jsonl")

Put: TypeAlias = Literal["reset", "deleted"]


def session_key(agent: str = "main", name: str = "main") -> str:
    """The key of a conversation: `agent:main:main`."""
    return f"agent:{_checked(agent)}:{name.strip().lower() or 'main'}"


def agents(home: Path) -> list[str]:
    """The agents that have sessions."""
    return sorted(place.parent.name for place in (home / "agents").glob("*/sessions") if place.is_dir())


def _checked(agent: str) -> str:
    name = agent.strip().lower()
    if not _AGENT.fullmatch(name):
        raise InputError(f"{agent!r} cannot name an agent: use letters, digits, - and _, such as 'main'")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A conversation to go on with.

    Attributes:
        key: Its key.
        session: Its transcript.
        entry: What is known of it.
        is_new: Whether it begins now.
        why: Why the one before it was put away: `daily`, `idle`, `asked`, or nothing.
        archived: Where that one lies now.
        problems: What had to be mended.
    """

    key: str
    session: Session
    entry: SessionEntry
    is_new: bool = False
    why: str = ""
    archived: Path | None = None
    problems: tuple[str, ...] = ()

    @property
    def before(self) -> str | None:
        """The id of the conversation that was put away, if one was."""
        return None if self.archived is None else id_of(self.archived)


def id_of(file: Path) -> str:
    """The id of the conversation whose transcript this is, put away or not."""
    return file.name.partition(".jsonl")[0]


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of one agent, under a home folder. `clock` gives Unix milliseconds, `new_id` UUIDs."""

    home: Path
    clock: Callable[[], int]
    new_id: Callable[[], str]
    agent: str = "main"

    @property
    def folder(self) -> Path:
        """Where transcripts and `sessions.json` lie."""
        return self.home / "agents" / _checked(self.agent) / "sessions"

    @property
    def file(self) -> Path:
        """The store itself."""
        return self.folder / STORE

    @property
    def notes_file(self) -> Path:
        """The index of the agent's notes."""
        return self.home / f"notes-{self.agent}.db"

    # --- reading ---------------------------------------------------------------

    def is_first(self, session: str, *, cwd: str) -> bool:
        """Tell whether no other conversation was held in a folder."""
        others = (file for file in self.folder.glob("*.jsonl*") if id_of(file) != session)
        return all(_header(file).get("cwd") != cwd for file in others)

    def entries(self) -> dict[str, SessionEntry]:
        """Every conversation, the one that was used last first."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"could not be read: {error.strerror}", path=self.file) from error
        found = {key: SessionEntry.from_json(value) for key, value in (_decode(data) or {}).items()}
        usable = {key: entry for key, entry in found.items() if entry.session_id}
        return dict(sorted(usable.items(), key=lambda item: -item[1].updated_at))

    def transcript(self, entry: SessionEntry) -> Path:
        """The transcript of a conversation; never a file outside of the folder."""
        name = Path(entry.session_file).name if entry.session_file else ""
        return self.folder / (name if _FILE.fullmatch(name) else f"{entry.session_id}.jsonl")

    def transcripts(self, session_id: str) -> list[Path]:
        """Every file that a conversation is in: the one that goes on, and those that were put away."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(file for file in files if f"{file.name}.".startswith(f"{session_id}.jsonl."))

    def forget(self, rows: Iterable[MessageRow], *, facts: Iterable[str] = ()) -> None:
        """Take the words of archived messages out of transcripts, the index of notes and the prompt history.

        `facts` are what forgotten facts say: only a line of the prompt history can say the same.
        """
        said: dict[str, set[str]] = {}
        typed = {_plain(words) for words in facts}
        for row in rows:
            if row.message.role == "user":
                typed.add(_plain(row.message.text))
            if row.message.id:
                said.setdefault(row.scope.session, set()).add(row.message.id)
        names: list[str] = []
        for session, entries in said.items():
            for file in self.transcripts(session):
                Session.open(file).forget(entries)
                names.append(file.name)
        if names:
            forget_files(self.notes_file, [f"sessions/{name}" for name in names])
            forget_sessions(self.folder.parent / "qmd", names)
        self._forget_typed(typed)

    def _forget_typed(self, words: AbstractSet[str]) -> None:
        """Take entries out of the prompt history that say exactly this, alone or as `/memory add`."""
        file = self.home / HISTORY
        if not file.is_file():
            return
        with journal.storage(file):
            entries = re.split(r"(?m)^(?=# )", file.read_bytes().decode("utf-8", "replace"))
        kept = [entry for entry in entries if _plain(_typed(entry)) not in words]
        if len(kept) < len(entries):
            journal.replace(file, ["".join(kept).encode()])

    def due(self, key: str, settings: Settings) -> str:
        """Why `open` would put a conversation away and begin another, if it would: `daily` or `idle`. It is cheap."""
        entry = self.entries().get(key, SessionEntry())
        return due(entry, self.clock(), settings)

    # --- changing --------------------------------------------------------------

    def update(self, key: str, change: Callable[[SessionEntry], SessionEntry]) -> SessionEntry:
        """Change what is known of a conversation. `change` is given what is known now, whoever wrote it."""

        def changed(entries: dict[str, Any]) -> SessionEntry:
            entry = change(SessionEntry.from_json(entries.get(key)))
            entries[key] = entry.to_json()
            return entry

        return self._locked(changed)[0]

    def open(self, key: str, settings: Settings, *, cwd: str = "") -> Opened:
        """Go on with a conversation, or begin it; one whose day or patience is over is put away first."""

        def opened(entries: dict[str, Any]) -> Opened:
            entry = SessionEntry.from_json(entries.get(key))
            there = bool(entry.session_id) and self.transcript(entry).is_file()
            why = due(entry, self.clock(), settings) if there else ""
            if there and not why:
                session = Session.open(self.transcript(entry), cwd=cwd, clock=self.clock, new_id=self.new_id)
                return Opened(key=key, session=session, entry=entry)
            return self._begin(key, entries, entry, cwd=cwd, why=why)

        found, problems = self._locked(opened)
        return replace(found, problems=(*problems, *(problem.what for problem in found.session.problems)))

    def reset(self, key: str, *, cwd: str = "") -> Opened:
        """Begin a conversation anew; the transcript of the old one is kept as `<file>.reset.<time>`."""

        def begun(entries: dict[str, Any]) -> Opened:
            return self._begin(key, entries, SessionEntry.from_json(entries.get(key)), cwd=cwd, why="asked")

        found, problems = self._locked(begun)
        return replace(found, problems=problems)

    def delete(self, key: str) -> Path | None:
        """Take a conversation out of the store; its transcript is kept as `<file>.deleted.<time>`."""

        def taken(entries: dict[str, Any]) -> Path | None:
            return self._put_away(SessionEntry.from_json(entries.pop(key, None)), "deleted")

        return self._locked(taken)[0]

    def _begin(self, key: str, entries: dict[str, Any], before: SessionEntry, *, cwd: str, why: str) -> Opened:
        archived = self._put_away(before, "reset")
        name, now = self.new_id(), self.clock()
        file = self.folder / f"{name}.jsonl"
        session = Session.create(file, cwd=cwd, session_id=name, clock=self.clock, new_id=self.new_id)
        entry = before.afresh(session_id=name, session_file=file.name, now=now)
        entries[key] = entry.to_json()
        return Opened(
            key=key, session=session, entry=entry, is_new=True, why=why if archived else "", archived=archived
        )

    def _put_away(self, entry: SessionEntry, how: Put) -> Path | None:
        """Rename a transcript, as OpenClaw does; it stays a session that can be read."""
        if not entry.session_id or not (file := self.transcript(entry)).is_file():
            return None
        stamp = iso_time(self.clock()).replace(":", "-")
        with journal.storage(file):
            return file.rename(file.with_name(f"{file.name}.{how}.{stamp}"))

    def _locked(self, change: Callable[[dict[str, Any]], T]) -> tuple[T, tuple[str, ...]]:
        """Read, change and write the store while nobody else can; a store that cannot be read is kept as a copy."""
        if not self.file.exists():
            with suppress(StorageError):  # another process may be faster
                journal.create(self.file, [b"{}\n"])
        with journal.locked(self.file):
            with journal.storage(self.file):
                data = self.file.read_bytes()
            entries = _decode(data)
            problems: tuple[str, ...] = ()
            if entries is None:
                entries, problems = self._salvaged()
            before = json.dumps(entries)
            result = change(entries)
            if json.dumps(entries) != before or problems:
                journal.replace(
                    self.file, [json.dumps(entries, ensure_ascii=False, indent=2).encode("utf-8", "replace")]
                )
            return result, problems

    def _salvaged(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """What can be known without the store: the newest transcript is the conversation that goes on."""
        stamp = iso_time(self.clock()).replace(":", "-")
        copy = journal.back_up(self.file, stamp=(f"{stamp}{'.' * n}" for n in range(100)))
        newest = newest_session(self.folder)
        entries: dict[str, Any] = {}
        if newest is not None:
            entry = SessionEntry(session_id=newest.stem, session_file=newest.name, updated_at=self.clock())
            entries[session_key(self.agent)] = entry.to_json()
        return entries, (f"{self.file} could not be read: it is kept as {copy.name}, and the newest session goes on",)


def _header(file: Path) -> dict[str, Any]:
    """Return the first line of a transcript; nothing where it cannot be read."""
    with suppress(OSError), file.open("rb") as lines:
        return _decode(lines.readline(_LONGEST_HEADER)) or {}
    return {}


def _typed(entry: str) -> str:
    """Return what an entry of the prompt history says: its lines begin with `+`."""
    lines = (line[1:] for line in entry.splitlines() if line.startswith("+"))
    return "\n".join(lines).removeprefix("/memory add ")


def _plain(words: str) -> str:
    return " ".join(words.split())


def _decode(data: bytes) -> dict[str, Any] | None:
    """The store as it was written; None where it is damaged."""
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return None
    return dict(found) if isinstance(found, Mapping) else None
