"""Our own session files: append-only trees of entries in JSON Lines, version 3, as pi and OpenClaw write them."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Message
from holdfast.transcripts import journal
from holdfast.transcripts.entry import Entry, Item, Problem
from holdfast.transcripts.lines import Line, parse_line, read_lines
from holdfast.transcripts.pi import is_copy
from holdfast.transcripts.records import (
    HEADER,
    LEAF,
    TYPES,
    VERSION,
    encode,
    fork_records,
    is_header,
    iso_time,
    make_header,
    messages_of,
    read_entry,
    remove_text,
    short_id,
    version_of,
    wire_messages,
)
from holdfast.transcripts.tree import Context, Tree, rebuild_path

__all__ = ["Session", "newest_session", "stream_entries"]

Clock: TypeAlias = Callable[[], int]
NewId: TypeAlias = Callable[[], str]

_OWN_ID: Final = object()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _uuid() -> str:
    return str(uuid.uuid4())


class Session:
    """One session file, which any number of processes may have open at once.

    Every append takes a lock, reads what other processes have written, and adds whole lines at the end.
    Entries that others append after our leaf become part of our path; a branch elsewhere does not move our leaf.

    `clock` returns Unix milliseconds and `new_id` UUIDs; an entry's id is the beginning of one.
    """

    def __init__(self, file: Path, log: _Log, *, clock: Clock, new_id: NewId) -> None:
        self.file = file
        self._log = log
        self._clock = clock
        self._new_id = new_id

    @classmethod
    def create(
        cls,
        file: Path | str,
        *,
        cwd: str = "",
        session_id: str | None = None,
        parent: str | None = None,
        clock: Clock = _now,
        new_id: NewId = _uuid,
    ) -> Session:
        """Create a session file with its header, readable by its owner only. `parent` is the file it was forked from.

        Raises:
            StorageError: The file exists, or cannot be written.
        """
        path = Path(file).expanduser()
        header = make_header(session=session_id or new_id(), now=clock(), cwd=cwd, parent=parent)
        journal.create(path, [encode(header)])
        return cls.open(path, clock=clock, new_id=new_id)

    @classmethod
    def open(cls, file: Path | str, *, cwd: str = "", clock: Clock = _now, new_id: NewId = _uuid) -> Session:
        """Open a session to continue it.

        A file of version 1 or 2 is upgraded once, with a copy kept beside it; a truncated last line is kept and
        ended with a line break; a missing header is written, with `cwd` in it. Each is reported in `problems`.

        Raises:
            TranscriptError: There is no such file, or it is not a session.
            StorageError: It cannot be read or written.
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
            repairs = _repair(
                path, descriptor, now=now, new_header=lambda: make_header(session=new_id(), now=now, cwd=cwd)
            )
        with journal.locked(path) as descriptor:
            log = _Log(descriptor)
            log.read(descriptor)
        orphans = [
            Problem(entry.line, f"its parent {entry.parent} is not in the file: what came before is out of reach")
            for entry in log.tree.orphans()
        ]
        log.problems = [*repairs, *log.problems, *orphans]
        return cls(path, log, clock=clock, new_id=new_id)

    # --- contents ---

    @property
    def header(self) -> Mapping[str, Any]:
        """The first record of the file."""
        return self._log.header

    @property
    def id(self) -> str:
        """The session's own id."""
        return str(self._log.header.get("id", ""))

    @property
    def cwd(self) -> str:
        """The folder the agent worked in."""
        return str(self._log.header.get("cwd") or "")

    @property
    def name(self) -> str | None:
        """The last name that the user gave the session."""
        names = (entry.data.get("name") for entry in reversed(self._log.entries) if entry.type == "session_info")
        return next((name for name in names if isinstance(name, str) and name), None)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every record after the header, in file order, without messages: `context` reads those."""
        return tuple(self._log.entries)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems in the file, and how each was handled."""
        return tuple(self._log.problems)

    @property
    def leaf(self) -> str | None:
        """The last entry of the visible conversation; None before the first one."""
        return self._log.tree.leaf

    @property
    def labels(self) -> dict[str, str]:
        """The name that the user gave an entry, by its id."""
        return dict(self._log.tree.labels)

    def get(self, entry_id: str) -> Entry | None:
        """Return the entry of that id."""
        return self._log.tree.get(entry_id)

    def children(self, entry_id: str | None) -> tuple[Entry, ...]:
        """Return the children of an entry; the roots for None."""
        return self._log.tree.children(entry_id)

    def path(self, leaf: str | None = None) -> tuple[Entry, ...]:
        """Return the entries from the root to `leaf`, or to the session's leaf."""
        return self._log.tree.path(self.leaf if leaf is None else self._require(leaf))

    def context(self, leaf: str | None = None) -> Context:
        """Return what the model sees at `leaf`, or at the session's leaf."""
        return rebuild_path(self.path(leaf))

    # --- appending ---

    def append_message(
        self, message: Message, *, provider: str = "", api: str | None = None, durable: bool = True
    ) -> tuple[Entry, ...]:
        """Add a message: one entry, or one for each result of a message with several.

        `provider` and `api` name the origin of a reply that does not come from a session file.
        """
        wires = wire_messages(message, now=self._clock(), provider=provider, api=api)
        return self._append("message", *({"message": wire} for wire in wires), durable=durable)

    def append_custom(self, custom_type: str, data: Any = None, *, durable: bool = False) -> Entry:
        """Add data of a program that the model does not see."""
        return self._append("custom", _drop_none(customType=custom_type, data=data), durable=durable)[0]

    def append_custom_message(
        self,
        custom_type: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        display: bool = True,
        details: Any = None,
        durable: bool = True,
    ) -> Entry:
        """Add a program's message to the model; `display` is whether the user sees it too."""
        fields = _drop_none(customType=custom_type, content=content, display=display, details=details)
        return self._append("custom_message", fields, durable=durable)[0]

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
        """Replace everything on the path before `first_kept` with `summary`; None keeps nothing.

        Raises:
            TranscriptError: `first_kept` is not on the path, so that more would be hidden than was summarised.
        """
        if first_kept is not None and all(entry.id != first_kept for entry in self.path()):
            raise TranscriptError(f"entry {first_kept!r} is not on the path to {self.leaf!r}", path=self.file)
        fields = _drop_none(
            summary=summary,
            firstKeptEntryId=_OWN_ID if first_kept is None else first_kept,
            tokensBefore=tokens_before,
            details=details,
            fromHook=from_hook or None,
        )
        return self._append("compaction", fields, durable=durable)[0]

    def append_model_change(self, provider: str, model: str, *, durable: bool = False) -> Entry:
        """Record that another model is used from here on."""
        return self._append("model_change", {"provider": provider, "modelId": model}, durable=durable)[0]

    def append_thinking_level(self, level: str, *, durable: bool = False) -> Entry:
        """Record the thinking level from here on."""
        return self._append("thinking_level_change", {"thinkingLevel": level}, durable=durable)[0]

    def append_label(self, target: str, label: str | None, *, durable: bool = False) -> Entry:
        """Name an entry, or remove its name with None."""
        fields = _drop_none(targetId=self._require(target), label=(label or "").strip() or None)
        return self._append("label", fields, durable=durable)[0]

    def append_name(self, name: str, *, durable: bool = False) -> Entry:
        """Name the session."""
        return self._append("session_info", {"name": name.strip()}, durable=durable)[0]

    def append_other(self, kind: str, fields: Mapping[str, Any], *, side: bool = False, durable: bool = False) -> Entry:
        """Add an entry of any type. A `side` entry is stored but never part of the conversation."""
        if kind in {HEADER, LEAF}:
            raise FormatError(f"{kind!r} entries are written by create and branch", where="kind")
        mode = {"appendMode": "side"} if side else {}
        return self._append(kind, {**fields, **mode}, durable=durable, side=side)[0]

    # --- branches ---

    def branch(self, target: str | None, *, durable: bool = False) -> Entry:
        """Go back to an earlier entry, None for the beginning; nothing is removed."""
        at = None if target is None else self._require(target)
        # The parent is set too, for readers that follow only parents.
        return self._append(LEAF, {"parentId": at, "targetId": at}, durable=durable)[0]

    def branch_with_summary(
        self, target: str | None, summary: str, *, details: Any = None, from_hook: bool = False, durable: bool = True
    ) -> Entry:
        """Go back to an earlier entry and add a summary of the abandoned branch there."""
        at = None if target is None else self._require(target)
        fields = _drop_none(fromId=at or "root", summary=summary, details=details, fromHook=from_hook or None)
        return self._append("branch_summary", {"parentId": at, **fields}, durable=durable)[0]

    def fork(self, file: Path | str, *, leaf: str | None = None) -> Session:
        """Create another session from the path to `leaf`, with its labels."""
        path = Path(file).expanduser()
        now = self._clock()
        header = make_header(session=self._new_id(), now=now, cwd=self.cwd, parent=str(self.file))
        records = fork_records(self.path(leaf), labels=self.labels, now=now, new_id=self._new_id)
        journal.create(path, [encode(header), *(encode(record, strict=False) for record in records)])
        return Session.open(path, clock=self._clock, new_id=self._new_id)

    def forget(self, entries: Collection[str]) -> None:
        """Remove the text of entries, and of later summaries, from the file for good.

        The entries stay, with a marker as their text. Nothing else ever rewrites a session file.
        """
        with self._locked() as descriptor:
            journal.replace(self.file, list(remove_text(journal.read_from(descriptor, 0, number=1), entries)))
        self.refresh()

    def refresh(self) -> None:
        """Read what other processes have written."""
        with self._locked():
            pass

    # --- the file ---

    def _append(self, kind: str, *fields: Mapping[str, Any], durable: bool, side: bool = False) -> tuple[Entry, ...]:
        """Write one entry for each of `fields` in one append, each the child of the one before."""
        with self._locked() as descriptor:
            tree = self._log.tree
            parent = tree.cursor if side else tree.leaf
            lines: dict[str, bytes] = {}
            for values in fields:
                entry_id = short_id(self._new_id, taken=lambda used: used in tree or used in lines)
                lines[entry_id] = encode(self._record(kind, entry_id, parent, values))
                parent = entry_id
            return self._log.write(descriptor, list(lines.values()), durable=durable)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Lock the file and read it to its end."""
        with journal.locked(self.file) as descriptor:
            leaf = self.leaf
            if not self._log.matches(descriptor):
                self._log = _Log(descriptor)
            self._log.read(descriptor)
            self._log.tree.restore_leaf(leaf)
            yield descriptor

    def _record(self, kind: str, entry_id: str, parent: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
        base = {"type": kind, "id": entry_id, "parentId": parent, "timestamp": iso_time(self._clock())}
        return base | {key: entry_id if value is _OWN_ID else value for key, value in fields.items()}

    def _require(self, entry_id: str) -> str:
        if entry_id not in self._log.tree:
            raise TranscriptError(f"there is no entry {entry_id!r} in the file", path=self.file)
        return entry_id


def _drop_none(**fields: Any) -> dict[str, Any]:
    """Return the fields that have a value; unknown ones are not written."""
    return {key: value for key, value in fields.items() if value is not None}


def newest_session(folder: Path) -> Path | None:
    """Return the session file that was modified last, ignoring copies and other files."""
    modified: dict[Path, int] = {}
    for path in folder.glob("*.jsonl"):
        with suppress(OSError, TranscriptError):
            first = next((line.data for line in read_lines(path) if line.data is not None), {})
            if not is_copy(path) and is_header(first):
                modified[path] = path.stat().st_mtime_ns
    return max(modified, key=modified.__getitem__, default=None)


# --- the part of a file that has been read ---------------------------------------


class _Log:
    """The content of one open file, as far as it has been read.

    Attributes:
        header: The first record.
        entries: Every record after it, in file order, without messages.
        tree: The entries, linked.
        problems: What could not be used as it is.
    """

    def __init__(self, descriptor: int) -> None:
        self.header: Mapping[str, Any] = {}
        self.entries: list[Entry] = []
        self.tree = Tree()
        self.problems: list[Problem] = []
        self._status = os.fstat(descriptor)
        self._bytes = 0
        self._lines = 0

    def matches(self, descriptor: int) -> bool:
        """Whether this is still the file that was read, and it has not been truncated."""
        status = os.fstat(descriptor)
        return os.path.samestat(status, self._status) and status.st_size >= self._bytes

    def read(self, descriptor: int) -> None:
        """Read what is new, and end a truncated last line. The caller holds the lock."""
        raw = b"\n"
        for line in journal.read_from(descriptor, self._bytes, number=self._lines + 1):
            self._add(line)
            raw = line.raw
        if not raw.endswith(b"\n"):
            journal.append(descriptor, b"\n", durable=False)
            self._bytes += 1

    def write(self, descriptor: int, lines: Sequence[bytes], *, durable: bool) -> tuple[Entry, ...]:
        """Append whole lines in one write, and add them to the entries."""
        journal.append(descriptor, b"".join(lines), durable=durable)
        before = len(self.entries)
        for raw in lines:
            self._add(parse_line(raw, self._lines + 1))
        return tuple(self.entries[before:])

    def _add(self, line: Line) -> None:
        self._bytes += len(line.raw)
        self._lines = line.number
        is_torn = not line.raw.endswith(b"\n")
        if line.problem is not None or is_torn:
            what = "no line break at its end" if line.problem is None else line.problem
            action = " and closed with a line break" if is_torn else ", not used"
            self.problems.append(Problem(line.number, f"{what}; kept{action}"))
        if line.data is None:
            return
        if not self.header and is_header(line.data):
            self.header = line.data
            return
        entry = read_entry(line.data, line=line.number)
        problem = "a second header: kept, not used" if entry.type == HEADER else self.tree.add(entry)
        self.entries.append(entry)
        if problem is not None:
            self.problems.append(Problem(line.number, problem))


def stream_entries(path: Path) -> Iterator[Item]:
    """Yield the records of a session file of any version in constant memory, without changing the file.

    The header comes first, as an entry of type `session`. Entries have their messages; a line that cannot be used
    comes as a Problem in its place, or right before its entry where the entry is still usable.

    Raises:
        TranscriptError: The file cannot be read.
    """
    for line, record in _upgrade(read_lines(path, skip_long=True)):
        if line.problem is not None:
            yield Problem(line.number, line.problem)
        if record is None:
            continue
        entry = read_entry(record, line=line.number)
        try:
            entry = replace(entry, messages=messages_of(entry))
        except FormatError as error:
            yield Problem(line.number, str(error))
        yield entry


# --- older and damaged files -------------------------------------------------------

_TREE_VERSION: Final = 2
_HEADER_START: Final = b'{"type":"session"'


def _upgrade(lines: Iterable[Line]) -> Iterator[tuple[Line, dict[str, Any] | None]]:
    """Yield each line of a session file with its record in version 3; None where the line holds no record.

    Version 1 had no ids: an entry gets an id from its position in the file, the same on every read.
    A record that needs no change is yielded itself.
    """
    version = VERSION
    index = 0
    last: str | None = None
    own_ids: dict[int, str] = {}
    for line in lines:
        if line.data is None:
            yield line, None
            continue
        if index == 0:
            version = version_of(line.data) if is_header(line.data) else VERSION
        record = line.data
        if version < VERSION:
            record = {"type": HEADER, **record, "version": VERSION} if is_header(record) else _rename_hook(record)
        if version < _TREE_VERSION and not is_header(record):
            record = _link_record(record, index=index, last=last, own_ids=own_ids)
            last = record["id"]
        index += 1
        yield line, record


def _rename_hook(record: dict[str, Any]) -> dict[str, Any]:
    message = record.get("message")
    if not isinstance(message, Mapping) or message.get("role") != "hookMessage":
        return record
    return {**record, "message": {**message, "role": "custom"}}


def _link_record(record: dict[str, Any], *, index: int, last: str | None, own_ids: dict[int, str]) -> dict[str, Any]:
    """Give a version 1 entry its id and parent: each entry follows the one before it."""
    own_id = record.get("id")
    if isinstance(own_id, str) and own_id:
        own_ids[index] = own_id
    entry_id = own_ids.get(index, f"{index:08x}")
    linked = {"type": record.get("type"), "id": entry_id, "parentId": last, **record} | {"id": entry_id}
    if record.get("type") == "compaction" and "firstKeptEntryId" not in record:
        first_kept = linked.pop("firstKeptEntryIndex", None)
        if isinstance(first_kept, int):
            # It counts all records, the header too: the header stands for the start, a later index for nothing kept.
            first_kept = min(max(first_kept, 1), index)
            linked["firstKeptEntryId"] = own_ids.get(first_kept, f"{first_kept:08x}")
    return linked


def _repair(
    path: Path, descriptor: int, *, now: int, new_header: Callable[[], Mapping[str, Any]]
) -> tuple[Problem, ...]:
    """Upgrade a file to version 3 and restore its header. The caller holds its lock and reopens it afterwards.

    `new_header` makes a header for a file that has lost its own.

    Raises:
        TranscriptError: The file is not a session, or its version is newer than this release knows.
    """
    first = next((line for line in read_lines(path) if line.data is not None), None)
    if first is None or first.data is None:
        return _write_header(path, descriptor, new_header())
    if not is_header(first.data):
        return _prepend_header(path, now=now, new_header=new_header)
    version = version_of(first.data)
    if version > VERSION:
        raise TranscriptError(f"version {version}, we know up to {VERSION}: update holdfast", path=path, line=1)
    if version == VERSION:
        return ()
    old = journal.back_up(path, stamp=_make_stamps(now))
    journal.replace(path, (_encode_line(line, record) for line, record in _upgrade(read_lines(path))))
    return (Problem(first.number, f"version {version} brought to {VERSION}; the old file is kept as {old.name}"),)


def _encode_line(line: Line, record: dict[str, Any] | None) -> bytes:
    if record is not None and record is not line.data:
        return encode(record, strict=False)
    return line.raw if line.raw.endswith(b"\n") else line.raw + b"\n"


def _write_header(path: Path, descriptor: int, header: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Write a header to a file that is empty, or holds only truncated headers."""
    torn = [line.raw for line in read_lines(path) if line.problem is not None]
    if not all(_HEADER_START.startswith(raw.rstrip(b"\n")[: len(_HEADER_START)]) for raw in torn):
        raise TranscriptError("no line of it can be read: this is not a session", path=path)
    ends = all(raw.endswith(b"\n") for raw in torn)
    journal.append(descriptor, (b"" if ends else b"\n") + encode(header), durable=True)
    return (Problem(1, "the session had no header: it has one now"),)


def _prepend_header(path: Path, *, now: int, new_header: Callable[[], Mapping[str, Any]]) -> tuple[Problem, ...]:
    """Put a header before entries that have none: the one further down in the file, else a new one."""
    records = [line.data for line in read_lines(path) if line.data is not None]
    if not _are_entries(records):
        raise TranscriptError("no session header: this is not a session, or one of another agent", path=path, line=1)
    is_tree = any("parentId" in record for record in records)
    own = next((record for record in records if is_header(record)), None)
    header = {**(own or new_header()), "version": VERSION if is_tree else 1}
    lines = chain([Line(0, encode(header, strict=False), header)], read_lines(path))
    old = journal.back_up(path, stamp=_make_stamps(now))
    journal.replace(path, (_encode_line(line, record) for line, record in _upgrade(lines)))
    return (Problem(1, f"the session had no header: it has one now; the old file is kept as {old.name}"),)


def _are_entries(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether all records are linked or of a known type, and at least one is of a known type."""

    def is_known(record: Mapping[str, Any]) -> bool:
        return str(record.get("type")) in TYPES

    def is_entry(record: Mapping[str, Any]) -> bool:
        is_linked = "parentId" in record and isinstance(record.get("id"), str)
        return is_linked or (is_known(record) and isinstance(record.get("timestamp"), str))

    return any(map(is_known, records)) and all(is_header(record) or is_entry(record) for record in records)


def _make_stamps(now: int) -> Iterator[str]:
    stamp = iso_time(now).replace(":", "-")
    return (f"{stamp}.{number}" if number else stamp for number in count())
