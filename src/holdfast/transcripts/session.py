"""Our own sessions: append-only trees of entries in version 3 JSON Lines, as pi and OpenClaw read and write them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from holdfast.errors import FormatError, TranscriptError
from holdfast.messages import Message
from holdfast.transcripts import journal
from holdfast.transcripts.context import Context, rebuild_path
from holdfast.transcripts.entry import Entry, Problem
from holdfast.transcripts.forgetting import emptied
from holdfast.transcripts.fork import forked
from holdfast.transcripts.lines import read_lines
from holdfast.transcripts.log import Log, stream_entries
from holdfast.transcripts.migration import settle
from holdfast.transcripts.pi import is_copy
from holdfast.transcripts.records import HEADER, LEAF, encode, is_header, iso_time, make_header, short_id, wire_messages

__all__ = ["Session", "newest_session", "stream_entries"]

Clock: TypeAlias = Callable[[], int]
NewId: TypeAlias = Callable[[], str]

_OWN_ID: Final = object()


def _now() -> int:
    return time.time_ns() // 1_000_000


def _uuid() -> str:
    return str(uuid.uuid4())


class Session:
    """One session file, open for as long as you like and for as many processes as you like.

    Every append takes a lock, reads what others have written meanwhile, and adds whole lines at the end.
    What others append behind our leaf becomes part of our path; a branch elsewhere does not move us.

    `clock` gives Unix milliseconds and `new_id` UUIDs; an entry's id is the beginning of one.
    """

    def __init__(self, file: Path, log: Log, *, clock: Clock, new_id: NewId) -> None:
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
        """Begin a session: a file that only you can read, its header written. `parent` is the file it comes from.

        Raises:
            StorageError: The file exists, or cannot be written.
        """
        path = Path(file).expanduser()
        header = make_header(session=session_id or new_id(), now=clock(), cwd=cwd, parent=parent)
        journal.create(path, [encode(header)])
        return cls.open(path, clock=clock, new_id=new_id)

    @classmethod
    def open(cls, file: Path | str, *, cwd: str = "", clock: Clock = _now, new_id: NewId = _uuid) -> Session:
        """Open a session to go on with it.

        A file of version 1 or 2 is rewritten once, a copy kept beside it; a last line that was cut off is closed
        with a line break and stays; a header that is missing is written, with `cwd` in it. Each is among `problems`.

        Raises:
            TranscriptError: There is no such file, or it is no session.
            StorageError: It cannot be read or written.
        """
        path = Path(file).expanduser()
        _check_place(path)
        now = clock()
        with journal.locked(path) as descriptor:
            notes = settle(
                path, descriptor, now=now, new_header=lambda: make_header(session=new_id(), now=now, cwd=cwd)
            )
        with journal.locked(path) as descriptor:
            log = Log(descriptor)
            log.read(descriptor)
        log.problems = [*notes, *log.problems, *_unreachable(log)]
        return cls(path, log, clock=clock, new_id=new_id)

    # --- what it holds ---

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
        """The folder that the agent worked in."""
        return str(self._log.header.get("cwd") or "")

    @property
    def name(self) -> str | None:
        """What the user called the session last."""
        names = (entry.data.get("name") for entry in reversed(self._log.entries) if entry.type == "session_info")
        return next((name for name in names if isinstance(name, str) and name), None)

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every record after the header, in file order. Their messages are read by `context`, not here."""
        return tuple(self._log.entries)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What in the file could not be used as it is, and what was done about it."""
        return tuple(self._log.problems)

    @property
    def leaf(self) -> str | None:
        """The entry that the conversation stands at; None before the first one."""
        return self._log.tree.leaf

    @property
    def labels(self) -> dict[str, str]:
        """The name that the user gave an entry, by its id."""
        return dict(self._log.tree.labels)

    def get(self, entry_id: str) -> Entry | None:
        """The entry of that id."""
        return self._log.tree.get(entry_id)

    def children(self, entry_id: str | None) -> tuple[Entry, ...]:
        """The entries that follow that one directly; the roots for None."""
        return self._log.tree.children(entry_id)

    def path(self, leaf: str | None = None) -> tuple[Entry, ...]:
        """The entries from the root to `leaf`, or to where the session stands."""
        return self._log.tree.path(self.leaf if leaf is None else self._require(leaf))

    def context(self, leaf: str | None = None) -> Context:
        """What the model sees at `leaf`, or where the session stands."""
        return rebuild_path(self.path(leaf))

    # --- what is added ---

    def append_message(
        self, message: Message, *, provider: str = "", api: str | None = None, durable: bool = True
    ) -> tuple[Entry, ...]:
        """Add a message: one entry, or one for each result of a message with several.

        `provider` and `api` say who answered, where the message is a reply made elsewhere than in a session file.
        """
        wires = wire_messages(message, now=self._clock(), provider=provider, api=api)
        return self._append("message", *({"message": wire} for wire in wires), durable=durable)

    def append_custom(self, custom_type: str, data: Any = None, *, durable: bool = False) -> Entry:
        """Add something that programs remember and the model does not see."""
        return self._append("custom", _given(customType=custom_type, data=data), durable=durable)[0]

    def append_custom_message(
        self,
        custom_type: str,
        content: str | Sequence[Mapping[str, Any]],
        *,
        display: bool = True,
        details: Any = None,
        durable: bool = True,
    ) -> Entry:
        """Add what a program says to the model; `display` is whether a person sees it too."""
        fields = _given(customType=custom_type, content=content, display=display, details=details)
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
        """Let `summary` stand for everything on the path before `first_kept`; None keeps nothing.

        Raises:
            TranscriptError: `first_kept` is not on the path, so that more would be forgotten than was summarised.
        """
        if first_kept is not None and all(entry.id != first_kept for entry in self.path()):
            raise TranscriptError(f"entry {first_kept!r} is not on the path to {self.leaf!r}", path=self.file)
        fields = _given(
            summary=summary,
            firstKeptEntryId=_OWN_ID if first_kept is None else first_kept,
            tokensBefore=tokens_before,
            details=details,
            fromHook=from_hook or None,
        )
        return self._append("compaction", fields, durable=durable)[0]

    def append_model_change(self, provider: str, model: str, *, durable: bool = False) -> Entry:
        """Record that another model answers from here on."""
        return self._append("model_change", {"provider": provider, "modelId": model}, durable=durable)[0]

    def append_thinking_level(self, level: str, *, durable: bool = False) -> Entry:
        """Record how much the model shall think from here on."""
        return self._append("thinking_level_change", {"thinkingLevel": level}, durable=durable)[0]

    def append_label(self, target: str, label: str | None, *, durable: bool = False) -> Entry:
        """Name an entry, or take its name away with None."""
        fields = _given(targetId=self._require(target), label=(label or "").strip() or None)
        return self._append("label", fields, durable=durable)[0]

    def append_name(self, name: str, *, durable: bool = False) -> Entry:
        """Name the session."""
        return self._append("session_info", {"name": name.strip()}, durable=durable)[0]

    def append_other(self, kind: str, fields: Mapping[str, Any], *, side: bool = False, durable: bool = False) -> Entry:
        """Add an entry of any type. One on the `side` is kept and never becomes part of the conversation."""
        if kind in {HEADER, LEAF}:
            raise FormatError(f"{kind!r} entries are written by create and branch", where="kind")
        mode = {"appendMode": "side"} if side else {}
        return self._append(kind, {**fields, **mode}, durable=durable, side=side)[0]

    # --- where it goes on ---

    def branch(self, target: str | None, *, durable: bool = False) -> Entry:
        """Go back to an earlier entry, None for the very beginning; nothing is removed."""
        at = None if target is None else self._require(target)
        # The parent is the target too, for readers that follow parents only.
        return self._append(LEAF, {"parentId": at, "targetId": at}, durable=durable)[0]

    def branch_with_summary(
        self, target: str | None, summary: str, *, details: Any = None, from_hook: bool = False, durable: bool = True
    ) -> Entry:
        """Go back to an earlier entry and say there what happened on the branch that is left."""
        at = None if target is None else self._require(target)
        fields = _given(fromId=at or "root", summary=summary, details=details, fromHook=from_hook or None)
        return self._append("branch_summary", {"parentId": at, **fields}, durable=durable)[0]

    def fork(self, file: Path | str, *, leaf: str | None = None) -> Session:
        """Begin another session with the path to `leaf`; labels on it come along."""
        path = Path(file).expanduser()
        now = self._clock()
        header = make_header(session=self._new_id(), now=now, cwd=self.cwd, parent=str(self.file))
        records = forked(self.path(leaf), labels=self.labels, now=now, new_id=self._new_id)
        journal.create(path, [encode(header), *(encode(record, strict=False) for record in records)])
        return Session.open(path, clock=self._clock, new_id=self._new_id)

    def forget(self, entries: Collection[str]) -> None:
        """Take the words of entries out of the file for good, with what later summaries tell of them.

        The entries stay, and say that they were forgotten. It is all that a session is ever written anew for.
        """
        with self._locked() as descriptor:
            journal.replace(self.file, list(emptied(journal.read_from(descriptor, 0, number=1), entries)))
        self.refresh()

    def refresh(self) -> None:
        """Read what others have written meanwhile."""
        with self._locked():
            pass

    # --- the file ---

    def _append(self, kind: str, *fields: Mapping[str, Any], durable: bool, side: bool = False) -> tuple[Entry, ...]:
        """Write one entry for each of `fields`, all at once, each following the one before."""
        with self._locked() as descriptor:
            tree = self._log.tree
            parent = tree.cursor if side else tree.leaf
            lines: dict[str, bytes] = {}
            for own in fields:
                entry_id = short_id(self._new_id, taken=lambda used: used in tree or used in lines)
                lines[entry_id] = encode(self._record(kind, entry_id, parent, own))
                parent = entry_id
            return self._log.write(descriptor, list(lines.values()), durable=durable)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, ours alone, read to its end."""
        with journal.locked(self.file) as descriptor:
            leaf = self.leaf
            if not self._log.matches(descriptor):
                self._log = Log(descriptor)
            self._log.read(descriptor)
            self._log.tree.stay(leaf)
            yield descriptor

    def _record(self, kind: str, entry_id: str, parent: str | None, fields: Mapping[str, Any]) -> dict[str, Any]:
        base = {"type": kind, "id": entry_id, "parentId": parent, "timestamp": iso_time(self._clock())}
        return base | {key: entry_id if value is _OWN_ID else value for key, value in fields.items()}

    def _require(self, entry_id: str) -> str:
        if entry_id not in self._log.tree:
            raise TranscriptError(f"there is no entry {entry_id!r} in the file", path=self.file)
        return entry_id


def _check_place(path: Path) -> None:
    with journal.storage(path):
        if path.is_dir():
            raise TranscriptError("this is a folder: name a file in it", path=path)
        if not path.is_file():
            raise TranscriptError("no such file: Session.create begins a new session", path=path)
    if path.suffix == ".gz":
        raise TranscriptError("compressed: unpack it first", path=path)


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that have a value; what is not known is not written."""
    return {key: value for key, value in fields.items() if value is not None}


def _unreachable(log: Log) -> Iterator[Problem]:
    for entry in log.tree.orphans():
        yield Problem(entry.line, f"its parent {entry.parent} is not in the file: what came before is out of reach")


def newest_session(folder: Path) -> Path | None:
    """The session file that was written to last; copies and files of other kinds do not count."""
    written: dict[Path, int] = {}
    for path in folder.glob("*.jsonl"):
        with suppress(OSError, TranscriptError):
            if not is_copy(path) and _has_header(path):
                written[path] = path.stat().st_mtime_ns
    return max(written, key=written.__getitem__, default=None)


def _has_header(path: Path) -> bool:
    first = next((line.data for line in read_lines(path) if line.data is not None), {})
    return is_header(first)
