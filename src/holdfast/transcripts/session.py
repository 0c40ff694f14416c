"""Our own session files: append-only trees of entries in JSON Lines, version 3, as pi and OpenClaw write them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Message
from holdfast.transcripts import journal
from holdfast.transcripts.entry import Entry, Json, Problem
from holdfast.transcripts.lines import Line, parse_line, read_lines
from holdfast.transcripts.pi import is_copy
from holdfast.transcripts.records import (
    HEADER,
    encode,
    is_header,
    iso_time,
    messages_of,
    read_entry,
    remove_text,
    summary_message,
    wire_messages,
)
from holdfast_memory.distribution import UPGRADE

Clock: TypeAlias = Callable[[], int]
NewId: TypeAlias = Callable[[], str]

VERSION: Final = 3
LEAF: Final = "leaf"
TYPES: Final = frozenset(
    {
        *("message", "custom", "custom_message", "compaction", "branch_summary", "model_change"),
        *("thinking_level_change", "label", "session_info"),
    }
)
"""The entry types that move the visible leaf. A `leaf` entry is a move itself; other types are kept but not read."""

_ID_LENGTH: Final = 8
_MAX_ID_TRIES: Final = 100


class Session:
    """One session file, which any number of processes may have open at once.

    Every append takes a lock, reads what other processes have written, and adds whole lines at the end.
    Entries that others append after our leaf become part of our path; a branch elsewhere does not move our leaf.

    `clock` returns Unix milliseconds and `new_id` UUIDs; an entry's id is the beginning of one.
    """

    def __init__(self, file: Path, *, clock: Clock, new_id: NewId) -> None:
        self.file = file
        self._clock = clock
        self._new_id = new_id
        self._status: os.stat_result | None = None
        self._bytes = self._lines = 0
        self._tree = Tree()

    @classmethod
    def create(
        cls,
        file: Path | str,
        *,
        cwd: str = "",
        session_id: str | None = None,
        clock: Clock = lambda: time.time_ns() // 1_000_000,
        new_id: NewId = lambda: str(uuid.uuid4()),
    ) -> Session:
        """Create a session file with its header, readable by its owner only; one that exists is a StorageError."""
        path = Path(file).expanduser()
        journal.create(path, [encode(_make_header(session_id or new_id(), clock(), cwd))])
        return cls.open(path, clock=clock, new_id=new_id)

    @classmethod
    def open(
        cls,
        file: Path | str,
        *,
        cwd: str = "",
        clock: Clock = lambda: time.time_ns() // 1_000_000,
        new_id: NewId = lambda: str(uuid.uuid4()),
    ) -> Session:
        """Open a session to continue it.

        A file of version 1 or 2 is upgraded once, with a copy kept next to it; a truncated last line is kept and
        ended with a line break; a missing header is written, with `cwd` in it. Each is reported in `problems`. A file
        that is not a session is a TranscriptError.
        """
        path = Path(file).expanduser()
        with journal.storage(path):
            if path.is_dir():
                raise TranscriptError("this is a folder: name a file in it", path=path)
            if not path.is_file():
                raise TranscriptError("no such file: Session.create begins a new session", path=path)
        if path.suffix == ".gz":
            raise TranscriptError("compressed: unpack it first", path=path)
        now = clock()
        with journal.locked(path) as descriptor:
            repairs = _Repair(path, descriptor, now, lambda: _make_header(new_id(), now, cwd)).run()
        session = cls(path, clock=clock, new_id=new_id)
        session.refresh()
        orphans = [
            Problem(entry.line, f"its parent {entry.parent} is not in the file: what came before is out of reach")
            for entry in session._tree.orphans()
        ]
        session._problems = [*repairs, *session._problems, *orphans]
        return session

    # --- contents ---

    @property
    def id(self) -> str:
        """The session's own id."""
        return str(self._header.get("id", ""))

    @property
    def cwd(self) -> str:
        """The folder the agent worked in."""
        return str(self._header.get("cwd") or "")

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every record after the header, in file order, without messages: `context` reads those."""
        return tuple(self._entries)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems in the file, and how each was handled."""
        return tuple(self._problems)

    @property
    def leaf(self) -> str | None:
        """The last entry of the visible conversation; None before the first one."""
        return self._tree.leaf

    def path(self) -> tuple[Entry, ...]:
        """Return the entries from the root to the leaf."""
        return self._tree.path(self.leaf)

    def context(self) -> Context:
        """Return what the model sees at the leaf."""
        return rebuild(self.path())

    # --- appending ---

    def append_message(
        self, message: Message, *, provider: str = "", api: str | None = None, durable: bool = True
    ) -> tuple[Entry, ...]:
        """Add a message: one entry, or one for each result of a message with several.

        `provider` and `api` name the origin of a reply that does not come from a session file.
        """
        wires = wire_messages(message, now=self._clock(), provider=provider, api=api)
        return self.append("message", *({"message": wire} for wire in wires), durable=durable)

    def append_compaction(
        self,
        summary: str,
        *,
        first_kept: str | None,
        tokens_before: int,
        details: Any = None,
        from_hook: bool = False,
        durable: bool = True,
    ) -> Entry:
        """Replace what is on the path before `first_kept`, which must be on it, by `summary`; None keeps nothing."""
        if first_kept is not None and all(entry.id != first_kept for entry in self.path()):
            raise TranscriptError(f"entry {first_kept!r} is not on the path to {self.leaf!r}", path=self.file)
        fields = {"summary": summary, "firstKeptEntryId": first_kept, "tokensBefore": tokens_before}
        optional = {"details": details, "fromHook": from_hook or None}
        given = {key: value for key, value in optional.items() if value is not None}
        return self.append("compaction", {**fields, **given}, durable=durable)[0]

    def append(self, kind: str, *fields: Json, durable: bool = True) -> tuple[Entry, ...]:
        """Write one entry for each of `fields` in one append, each the child of the one before."""
        with self._locked() as descriptor:
            parent, lines = self.leaf, dict[str, bytes]()
            for values in fields:
                entry_id = self._make_id(lines)
                base = {"type": kind, "id": entry_id, "parentId": parent, "timestamp": iso_time(self._clock())}
                # A compaction that keeps nothing names itself.
                own = {key: entry_id for key, value in values.items() if key == "firstKeptEntryId" and value is None}
                lines[entry_id] = encode({**base, **values, **own})
                parent = entry_id
            journal.append(descriptor, b"".join(lines.values()), durable=durable)
            for raw in lines.values():
                self._add(parse_line(raw, self._lines + 1))
            return tuple(self._entries[-len(lines) :])

    def _make_id(self, taken: Collection[str]) -> str:
        """Return a new entry id: the first 8 characters of a UUID, or a whole UUID if all tries are taken."""
        for _ in range(_MAX_ID_TRIES):
            entry_id = self._new_id()[:_ID_LENGTH]
            if entry_id not in self._tree and entry_id not in taken:
                return entry_id
        return self._new_id()

    def forget(self, entries: Collection[str]) -> None:
        """Remove the text of entries, and of later summaries, from the file for good.

        The entries stay, with a marker as their text. Nothing else ever rewrites a session file.
        """
        with self._locked() as descriptor:
            journal.replace(self.file, list(remove_text(journal.read_from(descriptor, 0, number=1), entries)))
        self.refresh()

    # --- the file ---

    def refresh(self) -> None:
        """Read what other processes have written."""
        with self._locked():
            pass

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the file, read it to its end, and end a truncated last line."""
        with journal.locked(self.file) as descriptor:
            leaf, status = self.leaf, os.fstat(descriptor)
            # Read from the start if the file was replaced or truncated.
            if self._status is None or not os.path.samestat(status, self._status) or status.st_size < self._bytes:
                self._status, self._bytes, self._lines = status, 0, 0
                self._header: Json = {}
                self._entries: list[Entry] = []
                self._problems: list[Problem] = []
                self._tree = Tree()
            raw = b"\n"
            for line in journal.read_from(descriptor, self._bytes, number=self._lines + 1):
                self._add(line)
                raw = line.raw
            if not raw.endswith(b"\n"):
                journal.append(descriptor, b"\n", durable=False)
                self._bytes += 1
            self._tree.restore_leaf(leaf)
            yield descriptor

    def _add(self, line: Line) -> None:
        self._bytes += len(line.raw)
        self._lines = line.number
        is_torn = not line.raw.endswith(b"\n")
        if line.problem is not None or is_torn:
            what = "no line break at its end" if line.problem is None else line.problem
            action = " and closed with a line break" if is_torn else ", not used"
            self._problems.append(Problem(line.number, f"{what}; kept{action}"))
        if line.data is None:
            return
        if not self._header and is_header(line.data):
            self._header = line.data
            return
        entry = read_entry(line.data, line.number)
        problem = "a second header: kept, not used" if entry.type == HEADER else self._tree.add(entry)
        self._entries.append(entry)
        if problem is not None:
            self._problems.append(Problem(line.number, problem))


def newest_session(folder: Path) -> Path | None:
    """Return the session file that was modified last, ignoring copies and other files."""
    modified: dict[Path, int] = {}
    for path in folder.glob("*.jsonl"):
        with suppress(OSError, TranscriptError):
            first = next((line.data for line in read_lines(path) if line.data is not None), {})
            if not is_copy(path) and is_header(first):
                modified[path] = path.stat().st_mtime_ns
    return max(modified, key=modified.__getitem__, default=None)


# --- the tree --------------------------------------------------------------------

_MISSING: Final = object()


class Tree:
    """The entries of one session, added in file order.

    `leaf` is the last entry of the visible conversation, `cursor` the last entry of the file: ahead of the leaf after
    side entries and entries of unknown types.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.leaf: str | None = None
        self.cursor: str | None = None
        self._entries: dict[str, Entry] = {}
        self._parents: dict[str, str | None] = {}
        self._invalid: set[str] = set()
        for entry in entries:
            self.add(entry)

    def __contains__(self, entry_id: object) -> bool:
        return entry_id in self._entries

    def add(self, entry: Entry) -> str | None:
        """Add the next entry of the file; return a description of what is wrong with it, else None."""
        if entry.id is None:
            return "an entry without an id: kept, but not part of the conversation"
        if entry.id in self._entries:
            first = self._entries[entry.id].line
            return f"id {entry.id} is taken by line {first}: kept, but not part of the conversation"
        problem = None
        if entry.type == LEAF:
            target = entry.data.get("targetId", _MISSING)
            cursor = entry.data.get("appendParentId", target)
            if self._is_target(target) and self._is_target(cursor):
                self._parents[entry.id] = target
                self.leaf = self._resolve(target)
                self.cursor = cursor
            else:  # its children stay reachable
                self._parents[entry.id] = entry.parent
                self._invalid.add(entry.id)
                problem = "a move that points at no earlier entry: ignored"
        elif entry.type in TYPES or "parentId" in entry.data:
            self._link(entry, entry.id)
        self._entries[entry.id] = entry
        return problem

    def _link(self, entry: Entry, entry_id: str) -> None:
        is_visible = entry.type in TYPES and not entry.sidechain
        parent = entry.parent if "parentId" in entry.data else self.leaf
        if is_visible and parent == self.cursor:
            # Some writers use the last entry of the file as the parent instead of the visible leaf.
            parent = self.leaf
        self._parents[entry_id] = self._resolve(parent)
        self.cursor = entry_id
        if is_visible:
            self.leaf = entry_id

    def _is_target(self, reference: Any) -> bool:
        if reference is None:
            return True
        return isinstance(reference, str) and reference in self._entries and reference not in self._invalid

    def _resolve(self, entry_id: str | None) -> str | None:
        """Return the entry itself, or the target if it is a move."""
        seen: set[str] = set()
        while entry_id is not None and entry_id not in seen and self._is_move(entry_id):
            seen.add(entry_id)
            entry_id = self._parents[entry_id]
        return entry_id

    def _is_move(self, entry_id: str) -> bool:
        return entry_id in self._entries and self._entries[entry_id].type == LEAF

    def restore_leaf(self, leaf: str | None) -> None:
        """Return to `leaf`, unless the conversation continued from it."""
        if leaf == self.leaf or leaf not in self._entries:
            return
        if all(entry.id != leaf for entry in self.path(self.leaf)):
            self.leaf = self.cursor = leaf

    def path(self, leaf: str | None) -> tuple[Entry, ...]:
        """Return the entries from the root to `leaf`. A parent that is not in the file ends the walk."""
        entries: list[Entry] = []
        seen: set[str] = set()
        while leaf is not None and leaf in self._entries and leaf not in seen:
            seen.add(leaf)
            if not self._is_move(leaf):
                entries.append(self._entries[leaf])
            leaf = self._parents.get(leaf)
        return tuple(reversed(entries))

    def orphans(self) -> Iterator[Entry]:
        """Yield the entries whose parent is not in the file."""
        for entry_id, parent in self._parents.items():
            if parent is not None and parent not in self._entries:
                yield self._entries[entry_id]


# --- the model's context -----------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The messages that the model sees, each with its entry's id.

    `compaction` is the newest one, whose summary replaces what came before; `problems` are entries that cannot be read.
    """

    messages: tuple[Message, ...] = ()
    compaction: Entry | None = None
    problems: tuple[Problem, ...] = ()


def rebuild(path: Sequence[Entry]) -> Context:
    """Rebuild the context at the end of a path: the newest summary, the entries it kept, and those after it."""
    compaction = next((entry for entry in reversed(path) if entry.type == "compaction"), None)
    messages: list[Message] = []
    problems: list[Problem] = []
    for entry in (*([] if compaction is None else [compaction]), *compaction_region(path)):
        try:
            messages += [summary_message(entry)] if entry is compaction else messages_of(entry)
        except FormatError as error:
            problems.append(Problem(entry.line, f"{error}; kept in the file, left out of the context"))
    return Context(messages=tuple(messages), compaction=compaction, problems=tuple(problems))


def compaction_region(path: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries that the next compaction must consider: those that no summary replaces.

    These are the entries from `firstKeptEntryId` of the newest compaction on, without the compactions.
    """
    at = next((index for index in reversed(range(len(path))) if path[index].type == "compaction"), None)
    if at is None:
        return tuple(path)
    first = path[at].data.get("firstKeptEntryId")
    start = next((index for index in range(at) if path[index].id == first), at)
    return tuple(entry for entry in path[start:] if entry.type != "compaction")


# --- older and damaged files -------------------------------------------------------

_TREE_VERSION: Final = 2
_HEADER_START: Final = b'{"type":"session"'


def _make_header(session: str, now: int, cwd: str) -> dict[str, Any]:
    return {"type": HEADER, "version": VERSION, "id": session, "timestamp": iso_time(now), "cwd": cwd}


def _read_version(header: Json) -> int:
    """Return the version that a header states; version 1 states none."""
    version = header.get("version")
    return version if isinstance(version, int) and not isinstance(version, bool) else 1


@dataclass(frozen=True, slots=True)
class _Repair:
    """Brings one file up to date. The caller holds its lock and reopens it afterwards."""

    path: Path
    descriptor: int
    now: int
    new_header: Callable[[], Json]

    def run(self) -> list[Problem]:
        """Upgrade a file to version 3 and restore its header. The caller holds its lock and reopens it afterwards."""
        path = self.path
        first = next((line for line in read_lines(path) if line.data is not None), None)
        if first is None or first.data is None:
            return self.write_header()
        if is_header(first.data):
            version, lines = _read_version(first.data), read_lines(path)
            if version > VERSION:
                problem = f"version {version}, we know up to {VERSION}: {UPGRADE}"
                raise TranscriptError(problem, path=path, line=1)
            if version == VERSION:
                return []
            what = f"version {version} brought to {VERSION}"
        else:
            version, lines = 1, self.prepend_header()
            what = "the session had no header: it has one now"
        stamp = iso_time(self.now).replace(":", "-")
        old = journal.back_up(path, stamp=(f"{stamp}.{number}" if number else stamp for number in count()))
        journal.replace(path, _Upgrade().upgrade(lines))
        return [Problem(first.number, f"{what}; the old file is kept as {old.name}")]

    def write_header(self) -> list[Problem]:
        """Write a header to a file that is empty, or holds only truncated headers."""
        torn = [line.raw for line in read_lines(self.path) if line.problem is not None]
        if not all(_HEADER_START.startswith(raw.rstrip(b"\n")[: len(_HEADER_START)]) for raw in torn):
            raise TranscriptError("no line of it can be read: this is not a session", path=self.path)
        is_ended = all(raw.endswith(b"\n") for raw in torn)
        journal.append(self.descriptor, (b"" if is_ended else b"\n") + encode(self.new_header()), durable=True)
        return [Problem(1, "the session had no header: it has one now")]

    def prepend_header(self) -> Iterator[Line]:
        """Return the lines of a file with a header before them: the one further down in the file, else a new one."""
        records = [line.data for line in read_lines(self.path) if line.data is not None]
        has_known = any(str(record.get("type")) in TYPES for record in records)
        if not has_known or not all(is_header(record) or self.is_entry(record) for record in records):
            raise TranscriptError(
                "no session header: this is not a session, or one of another agent", path=self.path, line=1
            )
        is_tree = any("parentId" in record for record in records)
        own = next(filter(is_header, records), None)
        header = {**(own or self.new_header()), "version": VERSION if is_tree else 1}
        return chain([Line(0, encode(header, strict=False), header)], read_lines(self.path))

    @staticmethod
    def is_entry(record: Json) -> bool:
        """Return whether a record is linked, or of a known type and with a time."""
        is_linked = "parentId" in record and isinstance(record.get("id"), str)
        return is_linked or (str(record.get("type")) in TYPES and isinstance(record.get("timestamp"), str))


@dataclass(slots=True)
class _Upgrade:
    """Turns records of older versions into those of version 3, in the order of the file."""

    index: int = 0
    last: str | None = None
    own_ids: dict[int, str] = field(default_factory=dict)

    def upgrade(self, lines: Iterable[Line]) -> Iterator[bytes]:
        """Yield the lines of a session file in version 3. The first record is the header.

        Version 1 had no ids: an entry gets one from its position in the file. A line that needs no change stays.
        """
        version = 0
        for line in lines:
            record = line.data
            if record is None:
                yield line.ended
                continue
            version = version or _read_version(record)
            if is_header(record):
                record = {**record, "version": VERSION} if version < VERSION else record
            else:
                record = self.rename_hook(record) if version < VERSION else record
                record = self.link(record) if version < _TREE_VERSION else record
            self.index += 1
            yield line.ended if record is line.data else encode(record, strict=False)

    def rename_hook(self, record: dict[str, Any]) -> dict[str, Any]:
        message = record.get("message")
        is_hook = isinstance(message, Mapping) and message.get("role") == "hookMessage"
        return {**record, "message": {**message, "role": "custom"}} if message and is_hook else record

    def link(self, record: Json) -> dict[str, Any]:
        """Give a version 1 entry its id and parent: each entry follows the one before it."""
        own_id, index, own_ids = record.get("id"), self.index, self.own_ids
        if isinstance(own_id, str) and own_id:
            own_ids[index] = own_id
        entry_id = own_ids.get(index, f"{index:08x}")
        linked = {"type": record.get("type"), "id": entry_id, "parentId": self.last, **record} | {"id": entry_id}
        self.last = entry_id
        if record.get("type") == "compaction" and "firstKeptEntryId" not in record:
            first_kept = linked.pop("firstKeptEntryIndex", None)
            if isinstance(first_kept, int):
                # It counts all records: the header stands for the start, a later index for nothing kept.
                first_kept = min(max(first_kept, 1), index)
                linked["firstKeptEntryId"] = own_ids.get(first_kept, f"{first_kept:08x}")
        return linked
