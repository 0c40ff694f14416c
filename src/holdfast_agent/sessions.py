"""The conversations of an agent: which one is open, since when, and what it has cost.

`sessions.json` is next to the transcripts and maps a session key (`agent:main:main`) to its entry, with the fields that
OpenClaw writes; unknown fields are kept. Any number of processes may use it: every change is made under a lock, and
readers see either the old or the new file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from holdfast.compaction.flush import Cycle
from holdfast.errors import InputError, StorageError
from holdfast.memory.archive import mask
from holdfast.messages import Message, Part, RedactedThinking, Thinking, Usage
from holdfast.providers.pi import PI
from holdfast.store.base import MessageRow
from holdfast.text import head
from holdfast.transcripts import journal
from holdfast.transcripts.records import iso_time, messages_of, wire_messages
from holdfast.transcripts.session import Session as Transcript
from holdfast.transcripts.session import newest_session
from holdfast_agent.notes import forget_notes
from holdfast_agent.qmd import forget_sessions
from holdfast_agent.settings import AgentSettings
from holdfast_agent.workspace import local_time

DEFAULT_IDLE_MINUTES: Final = 60
"""The pause that ends a conversation with `agent.session.reset.mode = "idle"` if none is set."""
DEFAULT_RESET_HOUR: Final = 4
"""The hour of a daily reset if none is set."""
MAX_ERROR_CHARS: Final = 200
MAX_HEADER_BYTES: Final = 65_536
STORE_NAME: Final = "sessions.json"
HISTORY_NAME: Final = "chat_history"
_MINUTE: Final = 60_000
_AGENT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FILE: Final = re.compile(r"[\w.%-]{1,200}\.jsonl")


Purpose: TypeAlias = Literal["summaries", "flush", "extraction"]


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of some calls. `input` includes cached tokens."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, usage: Usage | None, *, cost: float = 0.0) -> Spent:
        """Return what one call used."""
        used = usage or Usage()
        return cls(1, used.input + used.cache_read + used.cache_write, used.output, cost)

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(
            calls=self.calls + other.calls,
            input=self.input + other.input,
            output=self.output + other.output,
            cost=self.cost + other.cost,
        )


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One entry of `sessions.json`. Times are Unix milliseconds; 0 and empty values mean unknown.

    Tokens are those since the last compaction, without cached ones; `total_tokens` are in the window after the last
    reply. `last_interaction_at` does not count heartbeats. `estimated_cost_usd` and `model_calls` (by purpose; `input`
    includes cached tokens) include calls outside of the conversation. `other` has unknown fields.
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
    memory_flush_left_tokens: int = 0
    model: str = ""
    model_provider: str = ""
    estimated_cost_usd: float = 0.0
    model_calls: dict[str, Any] = {}
    other: dict[str, Any] = {}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read an entry; a field of the wrong type is ignored."""
        other = dict(data) if isinstance(data, Mapping) else {}
        known: dict[str, Any] = {}
        for each in msgspec.structs.fields(cls):
            if each.name != "other" and each.encode_name in other:
                with suppress(msgspec.ValidationError):
                    known[each.name] = msgspec.convert(other.pop(each.encode_name), each.type)
        return cls(other=other, **known)

    def to_json(self) -> dict[str, Any]:
        """Return the entry as it is written: unknown values are left out."""
        always = {"sessionId": self.session_id, "updatedAt": self.updated_at, "compactionCount": self.compaction_count}
        known: dict[str, Any] = msgspec.to_builtins(replace(self, other={}))
        return always | known | self.other

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

    def with_input(self, now: int) -> Self:
        """Record that the user sent a message."""
        return replace(self, updated_at=now, last_interaction_at=now)

    def with_reply(self, usage: Usage | None, *, now: int, model: str, window: int, cost: float = 0.0) -> Self:
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
        figures = self.model_calls.get(purpose)
        if not isinstance(figures, Mapping):
            return Spent()

        def read(name: str) -> int:
            number = figures.get(name)
            return number if type(number) is int else 0

        return Spent(calls=read("calls"), input=read("input"), output=read("output"))

    def with_calls(self, purpose: str, spent: Spent) -> Self:
        """Add calls for a purpose."""
        total = self.spent(purpose) + spent
        calls = {**self.model_calls, purpose: {"calls": total.calls, "input": total.input, "output": total.output}}
        return replace(self, model_calls=calls, estimated_cost_usd=self.estimated_cost_usd + spent.cost)

    def with_compaction(self, tokens_after: int, *, now: int) -> Self:
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
            memory_flush_left_tokens=0,
        )

    def with_cut(self, tokens: int) -> Self:
        """Record that tokens were cut from a window: what leaves it counts towards the next flush."""
        return replace(self, memory_flush_left_tokens=self.memory_flush_left_tokens + tokens)

    def with_flush(self, *, now: int, cycle: int) -> Self:
        """Record that the notes were written; `cycle` is the count of compactions before that turn."""
        return replace(
            self,
            updated_at=now,
            memory_flush_at=now,
            memory_flush_compaction_count=cycle,
            memory_flush_failure_count=0,
            memory_flush_last_failed_at=0,
            memory_flush_last_failure_error="",
            memory_flush_left_tokens=0,
        )

    def with_failed_flush(self, error: str, *, now: int, max_failures: int) -> Self:
        """Record a failed flush; after `max_failures` in a row this cycle continues without notes."""
        failures = self.memory_flush_failure_count + 1
        flushed_at = self.memory_flush_compaction_count
        left = self.memory_flush_left_tokens
        if failures >= max_failures:
            flushed_at = self.compaction_count
            left = 0
        return replace(
            self,
            updated_at=now,
            memory_flush_failure_count=failures,
            memory_flush_last_failed_at=now,
            memory_flush_last_failure_error=head(error, MAX_ERROR_CHARS),
            memory_flush_compaction_count=flushed_at,
            memory_flush_left_tokens=left,
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
            left=self.memory_flush_left_tokens,
        )


def reset_reason(entry: SessionEntry, now: int, settings: AgentSettings) -> Literal["daily", "idle", ""]:
    """Return why the next message begins a new conversation: a daily reset, a long pause, or empty if it does not."""
    reset = settings.session.reset
    last = entry.last_interaction_at or entry.updated_at
    if not last:
        return ""
    if reset.is_daily:
        moment = local_time(now, timezone=settings.timezone)
        hour = DEFAULT_RESET_HOUR if reset.at_hour is None else reset.at_hour
        last_reset = moment.replace(hour=hour, minute=0, second=0, microsecond=0)
        if last_reset > moment:
            last_reset -= timedelta(days=1)
        if last < round(last_reset.timestamp() * 1000):
            return "daily"
    pause = reset.idle_minutes
    if pause is None and reset.mode == "idle":
        pause = DEFAULT_IDLE_MINUTES
    if pause is not None and now - last > pause * _MINUTE:
        return "idle"
    return ""


def session_key(agent: str = "main", name: str = "main") -> str:
    """Return the key of a conversation: `agent:main:main`."""
    return f"agent:{_check_agent(agent)}:{name.strip().lower() or 'main'}"


def can_have_files(agent: str) -> bool:
    """Return whether an agent of this name has a folder of sessions; a library may call its agents anything."""
    return _AGENT.fullmatch(agent.strip().lower()) is not None


def _check_agent(agent: str) -> str:
    name = agent.strip().lower()
    if not can_have_files(name):
        raise InputError(f"{agent!r} cannot name an agent: use letters, digits, - and _, such as 'main'")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """An open conversation, and what had to be repaired to open it.

    If it has just begun, `archived` is the transcript of the previous one, and `why` is what ended that: `daily`,
    `idle`, `asked`, or empty.
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
        masked = _mask(message) if redact else message
        written: list[Message] = []
        for entry in self.transcript.append_message(masked, provider=provider):
            written += messages_of(entry)
        if masked is message:
            return written
        unmasked: list[Message] = []
        for wire, known in zip(wire_messages(message, now=0, provider=provider), written, strict=True):
            own = PI.read(wire, "message")
            unmasked.append(replace_fields(own, id=known.id, timestamp=known.timestamp))
        return unmasked


def _mask(message: Message) -> Message:
    """Mask the secrets of a message; a signed thought that contains one is removed as a whole."""
    masked = mask(message)
    parts: list[Part] = []
    for new, old in zip(masked.parts, message.parts, strict=True):
        is_changed_thought = new != old and isinstance(old, Thinking | RedactedThinking)
        if not is_changed_thought:
            parts.append(new)
    if len(parts) == len(masked.parts):
        return masked
    return replace_fields(masked, parts=tuple(parts), origin=None)


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

    def is_first(self, session: str, *, cwd: str) -> bool:
        """Whether no other conversation began in a folder."""
        others = (file for file in self.folder.glob("*.jsonl*") if id_of(file) != session)
        return all(self.read_cwd(file) != cwd for file in others)

    def read_cwd(self, file: Path) -> str:
        """Read the folder in which a conversation began from its transcript; empty if it cannot be read."""
        try:
            with file.open("rb") as lines:
                header = _decode(lines.readline(MAX_HEADER_BYTES))
        except OSError:
            return ""
        if header is None:
            return ""
        return str(header.get("cwd") or "")

    def transcript(self, entry: SessionEntry) -> Path:
        """Return the transcript of a conversation; never a file outside of the folder."""
        name = Path(entry.session_file).name
        if not _FILE.fullmatch(name):
            name = f"{entry.session_id}.jsonl"
        return self.folder / name

    def transcripts(self, session_id: str) -> list[Path]:
        """List the files of a conversation: the current transcript and archived ones."""
        if not self.folder.is_dir():
            return []
        # An archived transcript is `<id>.jsonl.reset.<time>`.
        return sorted(file for file in self.folder.iterdir() if f"{file.name}.".startswith(f"{session_id}.jsonl."))

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

    def _forget_typed(self, texts: set[str]) -> None:
        """Remove entries from the prompt history that are exactly one of these texts, alone or as `/memory add`."""
        file = self.home / HISTORY_NAME
        if not file.is_file():
            return
        with journal.storage(file):
            entries = re.split(r"(?m)^(?=# )", file.read_bytes().decode("utf-8", "replace"))
        kept: list[str] = []
        for entry in entries:
            lines = (line[1:] for line in entry.splitlines() if line.startswith("+"))
            if _normalise("\n".join(lines).removeprefix("/memory add ")) not in texts:
                kept.append(entry)
        if len(kept) < len(entries):
            journal.replace(file, ["".join(kept).encode()])

    def due(self, key: str, settings: AgentSettings) -> str:
        """Return why `open` would begin a new conversation: `daily`, `idle`, or empty if it would not."""
        if not self.file.exists():
            return ""
        with journal.storage(self.file):
            entries = _decode(self.file.read_bytes()) or {}
        return reset_reason(SessionEntry.from_json(entries.get(key)), self.clock(), settings)

    def update(self, key: str, change: Callable[[SessionEntry], SessionEntry]) -> SessionEntry:
        """Change the entry of a conversation. `change` is given the entry as it is in the file now."""
        with self._change([]) as entries:
            entry = change(SessionEntry.from_json(entries.get(key)))
            entries[key] = entry.to_json()
        return entry

    def open(self, key: str, settings: AgentSettings | None, *, cwd: str = "") -> Conversation:
        """Continue a conversation, or begin it; one for which a reset is due by the settings is archived first."""
        problems: list[str] = []
        with self._change(problems) as entries:
            entry = SessionEntry.from_json(entries.get(key))
            exists = bool(entry.session_id) and self.transcript(entry).is_file()
            why = "asked" if settings is None else reset_reason(entry, self.clock(), settings)
            if exists and not why:
                transcript = Transcript.open(self.transcript(entry), cwd=cwd, clock=self.clock, new_id=self.new_id)
                conversation = Conversation(key=key, transcript=transcript, entry=entry)
            else:
                conversation = self._begin(key, entries, entry, cwd=cwd, why=why)
        problems += (problem.what for problem in conversation.transcript.problems)
        return replace_fields(conversation, problems=tuple(problems))

    def reset(self, key: str, *, cwd: str = "") -> Conversation:
        """Begin a new conversation; the transcript of the old one is kept as `<file>.reset.<time>`."""
        return self.open(key, None, cwd=cwd)

    def _begin(self, key: str, entries: dict[str, Any], before: SessionEntry, *, cwd: str, why: str) -> Conversation:
        name = self.new_id()
        now = self.clock()
        old = self.transcript(before)
        archived: Path | None = None
        if before.session_id and old.is_file():
            # The name that OpenClaw gives it. It stays readable as a session.
            archived = old.with_name(f"{old.name}.reset.{_stamp(now)}")
            with journal.storage(old):
                old.rename(archived)
        file = self.folder / f"{name}.jsonl"
        transcript = Transcript.create(file, cwd=cwd, session_id=name, clock=self.clock, new_id=self.new_id)
        entry = before.successor(session_id=name, session_file=file.name, now=now)
        entries[key] = entry.to_json()
        return Conversation(
            key=key, transcript=transcript, entry=entry, is_new=True, why=why if archived else "", archived=archived
        )

    @contextmanager
    def _change(self, problems: list[str]) -> Iterator[dict[str, Any]]:
        """Read, change and write the store under a lock; a store that cannot be read is kept as a copy and rebuilt."""
        if not self.file.exists():
            with suppress(StorageError):  # another process may be faster
                journal.create(self.file, [b"{}\n"])
        with journal.locked(self.file):
            with journal.storage(self.file):
                entries = _decode(self.file.read_bytes())
            if entries is None:
                stamp = _stamp(self.clock())
                # With more dots if there is a copy of the same millisecond.
                copy = journal.back_up(self.file, stamp=(f"{stamp}{'.' * count}" for count in range(100)))
                problems.append(
                    f"{self.file} could not be read: it is kept as {copy.name}, and the newest session is continued"
                )
                entries = {}
                newest = newest_session(self.folder)
                if newest is not None:
                    entry = SessionEntry(session_id=newest.stem, session_file=newest.name, updated_at=self.clock())
                    entries[session_key(self.agent)] = entry.to_json()
            before = json.dumps(entries)
            yield entries
            if json.dumps(entries) != before or problems:
                data = json.dumps(entries, ensure_ascii=False, indent=2).encode("utf-8", "replace")
                journal.replace(self.file, [data])


def _stamp(time: int) -> str:
    return iso_time(time).replace(":", "-")


def _normalise(text: str) -> str:
    return " ".join(text.split())


def _decode(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data or b"{}")
    except ValueError:
        return None
    return dict(value) if isinstance(value, Mapping) else None
