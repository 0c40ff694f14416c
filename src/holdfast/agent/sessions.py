"""The conversations of an agent: which one is open, since when, and what it has cost.

`sessions.json` is beside the transcripts and maps a session key (`agent:main:main`) to its entry, with the fields that
OpenClaw writes; unknown fields are kept. Any number of processes may use it: every change is made under a lock, and
readers see either the old or the new file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from holdfast.agent.notes import forget_notes
from holdfast.agent.qmd import forget_sessions
from holdfast.agent.tally import Spent
from holdfast.agent.workspace import local_time
from holdfast.compaction.flush import Cycle
from holdfast.errors import InputError, StorageError
from holdfast.memory.archive import mask
from holdfast.messages import Message, RedactedThinking, Thinking, Usage
from holdfast.providers.pi import PI
from holdfast.settings import Settings
from holdfast.store.base import MessageRow
from holdfast.text import head
from holdfast.transcripts import journal
from holdfast.transcripts.records import iso_time, messages_of, wire_messages
from holdfast.transcripts.session import Session as Transcript
from holdfast.transcripts.session import newest_session

__all__ = ["Opened", "SessionEntry", "Sessions", "agents", "id_of", "reset_reason", "session_key"]

T = TypeVar("T")

DEFAULT_IDLE_MINUTES: Final = 60
"""The pause that ends a conversation with `session.reset.mode = "idle"` if none is set."""
MAX_ERROR_CHARS: Final = 200
MAX_HEADER_BYTES: Final = 65_536
STORE_NAME: Final = "sessions.json"
HISTORY_NAME: Final = "chat_history"
_MINUTE: Final = 60_000
_AGENT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FILE: Final = re.compile(r"[\w.%-]{1,200}\.jsonl")

_Ending: TypeAlias = Literal["reset", "deleted"]


# --- the entry of a conversation ---------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """One entry of `sessions.json`. Times are Unix milliseconds; 0 and empty values mean unknown.

    Attributes:
        session_id: The id of the conversation.
        updated_at: When the entry was last changed.
        session_file: The transcript, in the same folder.
        session_started_at: When the conversation began.
        last_interaction_at: When the user last sent a message; heartbeats do not count.
        input_tokens: Tokens sent since the last compaction, without cached ones.
        output_tokens: Tokens received since then.
        cache_read: Tokens read from the provider's cache.
        cache_write: Tokens written to it.
        total_tokens: Tokens in the window after the last reply.
        total_tokens_fresh: Whether that figure is still valid.
        context_tokens: The size of the window.
        compaction_count: How many times the conversation was compacted.
        memory_flush_at: When the agent last wrote its notes before a compaction.
        memory_flush_compaction_count: The count of compactions at that time.
        memory_flush_failure_count: How many times in a row that has failed.
        memory_flush_last_failed_at: When it last failed.
        memory_flush_last_failure_error: Why.
        model: The model of the last reply.
        model_provider: Its provider.
        estimated_cost_usd: The cost so far, with calls outside of the conversation.
        model_calls: The usage of all calls, by purpose: `calls`, `input` (with cached tokens) and `output`.
        other: Unknown fields, kept as they are.
    """

    session_id: str = ""
    updated_at: int = 0
    session_file: str = ""
    session_started_at: int = 0
    last_interaction_at: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    total_tokens: int = 0
    total_tokens_fresh: bool | None = None
    context_tokens: int = 0
    compaction_count: int = 0
    memory_flush_at: int = 0
    memory_flush_compaction_count: int | None = None
    memory_flush_failure_count: int = 0
    memory_flush_last_failed_at: int = 0
    memory_flush_last_failure_error: str = ""
    model: str = ""
    model_provider: str = ""
    estimated_cost_usd: float = 0.0
    model_calls: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read an entry; a field of the wrong type is ignored."""
        other = dict(data) if isinstance(data, Mapping) else {}
        known = {name: other.pop(key, None) for name, key in _KEYS.items()}
        return cls(other=other, **{name: value for name, value in known.items() if _has_type(name, value)})

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it is written: unknown values are left out."""
        own = {key: getattr(self, name) for name, key in _KEYS.items()}
        return {key: value for key, value in own.items() if key in _ALWAYS or value != _DEFAULTS[key]} | {**self.other}

    def successor(self, *, session_id: str, session_file: str, now: int) -> SessionEntry:
        """Return the entry of the conversation that replaces this one: the model stays, the counters start at zero."""
        return SessionEntry(
            session_id=session_id,
            session_file=session_file,
            updated_at=now,
            session_started_at=now,
            last_interaction_at=now,
            context_tokens=self.context_tokens,
            model=self.model,
            model_provider=self.model_provider,
            other=self.other,
        )

    def with_input(self, now: int) -> SessionEntry:
        """Record that the user sent a message."""
        return replace(self, updated_at=now, last_interaction_at=now)

    def with_reply(self, usage: Usage | None, *, now: int, model: str, window: int, cost: float = 0.0) -> SessionEntry:
        """Record a reply; `model` is `provider/name`."""
        used = usage or Usage()
        provider, _, name = model.partition("/")
        return replace(
            self,
            updated_at=now,
            input_tokens=self.input_tokens + used.input,
            output_tokens=self.output_tokens + used.output,
            cache_read=self.cache_read + used.cache_read,
            cache_write=self.cache_write + used.cache_write,
            total_tokens=used.context or self.total_tokens,
            total_tokens_fresh=used.context > 0,
            context_tokens=window,
            model=name or provider,
            model_provider=provider,
        ).with_calls("conversation", Spent.of(usage, cost=cost))

    def spent(self, purpose: str) -> Spent:
        """Return what the calls for a purpose used; a value that is not a number counts as 0."""
        known = self.model_calls.get(purpose)
        figures = known if isinstance(known, Mapping) else {}
        numbers = {name: figures.get(name) for name in ("calls", "input", "output")}
        return Spent(**{name: number for name, number in numbers.items() if type(number) is int})

    def with_calls(self, purpose: str, spent: Spent) -> SessionEntry:
        """Add calls for a purpose."""
        total = self.spent(purpose) + spent
        calls = {**self.model_calls, purpose: {"calls": total.calls, "input": total.input, "output": total.output}}
        return replace(self, model_calls=calls, estimated_cost_usd=self.estimated_cost_usd + spent.cost)

    def with_compaction(self, tokens_after: int, *, now: int) -> SessionEntry:
        """Record a compaction."""
        return replace(
            self,
            updated_at=now,
            input_tokens=0,
            output_tokens=0,
            compaction_count=self.compaction_count + 1,
            total_tokens=tokens_after,
            total_tokens_fresh=True,
            memory_flush_failure_count=0,
        )

    def with_flush(self, *, now: int, cycle: int) -> SessionEntry:
        """Record that the notes were written; `cycle` is the count of compactions before that turn."""
        return replace(
            self,
            updated_at=now,
            memory_flush_at=now,
            memory_flush_compaction_count=cycle,
            memory_flush_failure_count=0,
            memory_flush_last_failed_at=0,
            memory_flush_last_failure_error="",
        )

    def with_failed_flush(self, error: str, *, now: int, most: int) -> SessionEntry:
        """Record a failed flush; after `most` failures in a row this cycle continues without notes."""
        failures = self.memory_flush_failure_count + 1
        flushed_at = self.compaction_count if failures >= most else self.memory_flush_compaction_count
        return replace(
            self,
            updated_at=now,
            memory_flush_failure_count=failures,
            memory_flush_last_failed_at=now,
            memory_flush_last_failure_error=head(error, MAX_ERROR_CHARS),
            memory_flush_compaction_count=flushed_at,
        )

    @property
    def is_flushed(self) -> bool:
        """Whether the notes of this compaction cycle were written, or given up after failures."""
        return self.memory_flush_compaction_count == self.compaction_count

    @property
    def flush_cycle(self) -> Cycle:
        """The compaction cycle, for `flush.due`."""
        return Cycle(
            compactions=self.compaction_count,
            flushed_at=self.memory_flush_compaction_count,
            failures=self.memory_flush_failure_count,
        )


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_KEYS: Final = {each.name: _camel(each.name) for each in fields(SessionEntry) if each.name != "other"}
_DEFAULTS: Final = {key: getattr(SessionEntry(), name) for name, key in _KEYS.items()}
_ALWAYS: Final = frozenset({"sessionId", "updatedAt", "compactionCount"})
_TYPES: Final = {each.name: str(each.type).partition(" ")[0] for each in fields(SessionEntry)}


def _has_type(name: str, value: object) -> bool:
    kind = _TYPES[name]
    if kind.startswith("Mapping"):
        return isinstance(value, Mapping)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    number = int if kind == "int" else (int, float)
    return isinstance(value, number) and not isinstance(value, bool)


def reset_reason(entry: SessionEntry, now: int, settings: Settings) -> Literal["daily", "idle", ""]:
    """Return why the next message begins a new conversation: a daily reset, a long pause, or empty if it does not."""
    reset = settings.session.reset
    last = entry.last_interaction_at or entry.updated_at
    if reset.mode == "never" or not last:
        return ""
    if reset.mode == "daily" and last < _last_daily_reset(now, settings):
        return "daily"
    pause = reset.idle_minutes or (DEFAULT_IDLE_MINUTES if reset.mode == "idle" else None)
    return "idle" if pause is not None and now - last > pause * _MINUTE else ""


def _last_daily_reset(now: int, settings: Settings) -> int:
    """Return the time of the last daily reset, by the user's clock."""
    moment = local_time(now, timezone=settings.agent.timezone)
    turn = moment.replace(hour=settings.session.reset.at_hour, minute=0, second=0, microsecond=0)
    if turn > moment:
        turn -= timedelta(days=1)
    return round(turn.timestamp() * 1000)


# --- the store of conversations ----------------------------------------------------


def session_key(agent: str = "main", name: str = "main") -> str:
    """Return the key of a conversation: `agent:main:main`."""
    return f"agent:{_check_agent(agent)}:{name.strip().lower() or 'main'}"


def agents(home: Path) -> list[str]:
    """List the agents that have conversations."""
    return sorted(place.parent.name for place in (home / "agents").glob("*/sessions") if place.is_dir())


def _check_agent(agent: str) -> str:
    name = agent.strip().lower()
    if not _AGENT.fullmatch(name):
        raise InputError(f"{agent!r} cannot name an agent: use letters, digits, - and _, such as 'main'")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """An open conversation.

    Attributes:
        key: Its key.
        transcript: Its transcript.
        entry: Its entry in `sessions.json`.
        is_new: Whether it has just begun.
        why: Why the previous one was ended: `daily`, `idle`, `asked`, or empty.
        archived: The transcript of the previous one.
        problems: What had to be repaired.
    """

    key: str
    transcript: Transcript
    entry: SessionEntry
    is_new: bool = False
    why: str = ""
    archived: Path | None = None
    problems: tuple[str, ...] = ()

    def append(self, message: Message, *, provider: str, redact: bool) -> list[Message]:
        """Append a message to the transcript; return it as written, but with secrets as they are."""
        masked = _mask_message(message) if redact else message
        entries = self.transcript.append_message(masked, provider=provider)
        written = [each for entry in entries for each in messages_of(entry)]
        if masked is message:
            return written
        own = (PI.read(wire, "message") for wire in wire_messages(message, now=0, provider=provider))
        return [replace(one, id=known.id, timestamp=known.timestamp) for one, known in zip(own, written, strict=True)]


def _mask_message(message: Message) -> Message:
    """Mask the secrets of a message; a signed thought that contains one is removed as a whole."""
    masked = mask(message)
    if masked is message:
        return message
    parts = tuple(
        new
        for new, old in zip(masked.parts, message.parts, strict=True)
        if new == old or not isinstance(old, Thinking | RedactedThinking)
    )
    return masked if parts == masked.parts else replace(masked, parts=parts, origin=None)


def id_of(file: Path) -> str:
    """Return the id of the conversation that a transcript belongs to, archived or not."""
    return file.name.partition(".jsonl")[0]


@dataclass(frozen=True, slots=True)
class Sessions:
    """The conversations of one agent, in a home folder. `clock` returns Unix milliseconds, `new_id` UUIDs."""

    home: Path
    clock: Callable[[], int]
    new_id: Callable[[], str]
    agent: str = "main"

    @property
    def folder(self) -> Path:
        """The folder of transcripts and `sessions.json`."""
        return self.home / "agents" / _check_agent(self.agent) / "sessions"

    @property
    def file(self) -> Path:
        """The file `sessions.json`."""
        return self.folder / STORE_NAME

    @property
    def notes_file(self) -> Path:
        """The index of the agent's notes."""
        return self.home / f"notes-{self.agent}.db"

    # --- reading ---------------------------------------------------------------

    def is_first(self, session: str, *, cwd: str) -> bool:
        """Whether no other conversation began in a folder."""
        others = (file for file in self.folder.glob("*.jsonl*") if id_of(file) != session)
        return all(self.read_cwd(file) != cwd for file in others)

    def read_cwd(self, file: Path) -> str:
        """Read the folder in which a conversation began from its transcript; empty if it cannot be read."""
        with suppress(OSError), file.open("rb") as lines:
            return str((_decode(lines.readline(MAX_HEADER_BYTES)) or {}).get("cwd") or "")
        return ""

    def entries(self) -> dict[str, SessionEntry]:
        """List every conversation, the one that was used last first."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StorageError(f"could not be read: {error.strerror}", path=self.file) from error
        entries = {key: SessionEntry.from_json(value) for key, value in (_decode(data) or {}).items()}
        usable = {key: entry for key, entry in entries.items() if entry.session_id}
        return dict(sorted(usable.items(), key=lambda item: -item[1].updated_at))

    def transcript(self, entry: SessionEntry) -> Path:
        """Return the transcript of a conversation; never a file outside of the folder."""
        name = Path(entry.session_file).name if entry.session_file else ""
        return self.folder / (name if _FILE.fullmatch(name) else f"{entry.session_id}.jsonl")

    def transcripts(self, session_id: str) -> list[Path]:
        """List the files of a conversation: the current transcript and archived ones."""
        files = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted(file for file in files if f"{file.name}.".startswith(f"{session_id}.jsonl."))

    def forget(self, rows: Iterable[MessageRow], *, facts: Iterable[str] = ()) -> None:
        """Remove archived messages from transcripts, from the index of notes and from the prompt history.

        `facts` are the texts of forgotten facts: only the prompt history can contain them.
        """
        entries: dict[str, set[str]] = {}
        typed = {_normalise(text) for text in facts}
        for row in rows:
            if row.message.role == "user":
                typed.add(_normalise(row.message.text))
            if row.message.id:
                entries.setdefault(row.scope.session, set()).add(row.message.id)
        names: list[str] = []
        for session, ids in entries.items():
            for file in self.transcripts(session):
                Transcript.open(file).forget(ids)
                names.append(file.name)
        if names:
            forget_notes(self.notes_file, [f"sessions/{name}" for name in names])
            forget_sessions(self.folder.parent / "qmd", names)
        self._forget_typed(typed)

    def _forget_typed(self, texts: AbstractSet[str]) -> None:
        """Remove entries from the prompt history that are exactly one of these texts, alone or as `/memory add`."""
        file = self.home / HISTORY_NAME
        if not file.is_file():
            return
        with journal.storage(file):
            entries = re.split(r"(?m)^(?=# )", file.read_bytes().decode("utf-8", "replace"))
        kept = [entry for entry in entries if _normalise_input(entry) not in texts]
        if len(kept) < len(entries):
            journal.replace(file, ["".join(kept).encode()])

    def due(self, key: str, settings: Settings) -> str:
        """Return why `open` would begin a new conversation: `daily`, `idle`, or empty if it would not."""
        return reset_reason(self.entries().get(key, SessionEntry()), self.clock(), settings)

    # --- changing --------------------------------------------------------------

    def update(self, key: str, change: Callable[[SessionEntry], SessionEntry]) -> SessionEntry:
        """Change the entry of a conversation. `change` is given the entry as it is in the file now."""

        def apply(entries: dict[str, Any]) -> SessionEntry:
            entry = change(SessionEntry.from_json(entries.get(key)))
            entries[key] = entry.to_json()
            return entry

        return self._change(apply)[0]

    def open(self, key: str, settings: Settings, *, cwd: str = "") -> Opened:
        """Continue a conversation, or begin it; one for which a reset is due is archived first."""

        def continue_or_begin(entries: dict[str, Any]) -> Opened:
            entry = SessionEntry.from_json(entries.get(key))
            exists = bool(entry.session_id) and self.transcript(entry).is_file()
            why = reset_reason(entry, self.clock(), settings) if exists else ""
            if exists and not why:
                transcript = Transcript.open(self.transcript(entry), cwd=cwd, clock=self.clock, new_id=self.new_id)
                return Opened(key=key, transcript=transcript, entry=entry)
            return self._begin(key, entries, entry, cwd=cwd, why=why)

        opened, problems = self._change(continue_or_begin)
        return replace(opened, problems=(*problems, *(problem.what for problem in opened.transcript.problems)))

    def reset(self, key: str, *, cwd: str = "") -> Opened:
        """Begin a new conversation; the transcript of the old one is kept as `<file>.reset.<time>`."""

        def begin(entries: dict[str, Any]) -> Opened:
            return self._begin(key, entries, SessionEntry.from_json(entries.get(key)), cwd=cwd, why="asked")

        opened, problems = self._change(begin)
        return replace(opened, problems=problems)

    def delete(self, key: str) -> Path | None:
        """Remove a conversation from the store; its transcript is kept as `<file>.deleted.<time>`."""

        def remove(entries: dict[str, Any]) -> Path | None:
            return self._archive(SessionEntry.from_json(entries.pop(key, None)), "deleted")

        return self._change(remove)[0]

    def _begin(self, key: str, entries: dict[str, Any], before: SessionEntry, *, cwd: str, why: str) -> Opened:
        archived = self._archive(before, "reset")
        name, now = self.new_id(), self.clock()
        file = self.folder / f"{name}.jsonl"
        transcript = Transcript.create(file, cwd=cwd, session_id=name, clock=self.clock, new_id=self.new_id)
        entry = before.successor(session_id=name, session_file=file.name, now=now)
        entries[key] = entry.to_json()
        return Opened(
            key=key, transcript=transcript, entry=entry, is_new=True, why=why if archived else "", archived=archived
        )

    def _archive(self, entry: SessionEntry, how: _Ending) -> Path | None:
        """Rename a transcript, as OpenClaw does; it stays readable as a session."""
        if not entry.session_id or not (file := self.transcript(entry)).is_file():
            return None
        stamp = iso_time(self.clock()).replace(":", "-")
        with journal.storage(file):
            return file.rename(file.with_name(f"{file.name}.{how}.{stamp}"))

    def _change(self, change: Callable[[dict[str, Any]], T]) -> tuple[T, tuple[str, ...]]:
        """Read, change and write the store under a lock; a store that cannot be read is kept as a copy."""
        if not self.file.exists():
            with suppress(StorageError):  # another process may be faster
                journal.create(self.file, [b"{}\n"])
        with journal.locked(self.file):
            with journal.storage(self.file):
                data = self.file.read_bytes()
            entries = _decode(data)
            problems: tuple[str, ...] = ()
            if entries is None:
                entries, problems = self._rebuild()
            before = json.dumps(entries)
            result = change(entries)
            if json.dumps(entries) != before or problems:
                journal.replace(
                    self.file, [json.dumps(entries, ensure_ascii=False, indent=2).encode("utf-8", "replace")]
                )
            return result, problems

    def _rebuild(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Rebuild the store: the newest transcript is the conversation that is continued."""
        stamp = iso_time(self.clock()).replace(":", "-")
        copy = journal.back_up(self.file, stamp=(f"{stamp}{'.' * n}" for n in range(100)))
        newest = newest_session(self.folder)
        entries: dict[str, Any] = {}
        if newest is not None:
            entry = SessionEntry(session_id=newest.stem, session_file=newest.name, updated_at=self.clock())
            entries[session_key(self.agent)] = entry.to_json()
        return entries, (
            f"{self.file} could not be read: it is kept as {copy.name}, and the newest session is continued",
        )


def _normalise_input(entry: str) -> str:
    """Return the text of an entry of the prompt history, whose lines begin with `+`."""
    lines = (line[1:] for line in entry.splitlines() if line.startswith("+"))
    return _normalise("\n".join(lines).removeprefix("/memory add "))


def _normalise(text: str) -> str:
    return " ".join(text.split())


def _decode(data: bytes) -> dict[str, Any] | None:
    """Decode the store; None if it is damaged."""
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        return None
    return dict(value) if isinstance(value, Mapping) else None
