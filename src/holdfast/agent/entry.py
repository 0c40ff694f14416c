"""What is known of a conversation: its counters, its compactions and flushes, and when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Final, Literal, Self

from holdfast.agent.days import local_time
from holdfast.agent.tally import Spent
from holdfast.messages import Usage
from holdfast.settings import Settings
from holdfast.text import head

__all__ = ["SessionEntry", "due", "is_due"]

IDLE_MINUTES: Final = 60
"""The pause that ends a conversation with `session.reset.mode = "idle"` where none is set."""
LONGEST_ERROR: Final = 200
_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntry:
    """One entry of `sessions.json`. Times are Unix milliseconds; 0 and nothing stand for what is not known.

    Attributes:
        session_id: The transcript that goes on.
        updated_at: When anything was last changed.
        session_file: The transcript's file, in the same folder.
        session_started_at: When it began.
        last_interaction_at: When the user last said something; heartbeats do not count.
        input_tokens: What was sent since the last compaction, without what the provider had cached.
        output_tokens: What came back since then.
        cache_read: What the provider had cached.
        cache_write: What it cached anew.
        total_tokens: What was in the window after the last reply.
        total_tokens_fresh: Whether that figure is still true.
        context_tokens: The size of the window.
        compaction_count: How often the history was compacted.
        memory_flush_at: When the agent last wrote its notes before a compaction.
        memory_flush_compaction_count: The count of compactions at that time.
        memory_flush_failure_count: How often in a row that has failed.
        memory_flush_last_failed_at: When it failed last.
        memory_flush_last_failure_error: Why.
        model: Who answered last.
        model_provider: At which provider.
        estimated_cost_usd: What it has cost so far, calls beside the conversation included.
        model_calls: What all calls took, by purpose: `calls`, `input`, cached or not, and `output`.
        other: Fields that others wrote; they stay as they are.
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
        """Read an entry; a field of the wrong type counts as not known."""
        known = dict(data) if isinstance(data, Mapping) else {}
        own: dict[str, Any] = {}
        for name, key in _KEYS.items():
            value = known.pop(key, None)
            if _fits(name, value):
                own[name] = value
        return cls(other=known, **own)

    def to_json(self) -> dict[str, Any]:
        """The entry as it is written: what is not known is left out."""
        own = {key: getattr(self, name) for name, key in _KEYS.items()}
        return {key: value for key, value in own.items() if key in _ALWAYS or value != _DEFAULTS[key]} | {**self.other}

    # --- what happens to it ----------------------------------------------------

    def afresh(self, *, session_id: str, session_file: str, now: int) -> SessionEntry:
        """The entry of the conversation that takes this one's place: the model stays, the counters begin anew."""
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

    def spoken_to(self, now: int) -> SessionEntry:
        """The user said something."""
        return replace(self, updated_at=now, last_interaction_at=now)

    def replied(
        self, usage: Usage | None, *, now: int, model: str, provider: str, window: int, cost: float = 0.0
    ) -> SessionEntry:
        """A model answered."""
        spent = usage or Usage()
        return replace(
            self,
            updated_at=now,
            input_tokens=self.input_tokens + spent.input,
            output_tokens=self.output_tokens + spent.output,
            cache_read=self.cache_read + spent.cache_read,
            cache_write=self.cache_write + spent.cache_write,
            total_tokens=spent.context or self.total_tokens,
            total_tokens_fresh=spent.context > 0,
            context_tokens=window,
            model=model,
            model_provider=provider,
            estimated_cost_usd=self.estimated_cost_usd + cost,
        ).called(
            "conversation",
            Spent(calls=1, input=spent.input + spent.cache_read + spent.cache_write, output=spent.output),
        )

    def spent(self, purpose: str) -> Spent:
        """What the calls for a purpose took; a figure that is not a number counts as none."""
        known = self.model_calls.get(purpose)
        figures = known if isinstance(known, Mapping) else {}
        numbers = {name: figures.get(name) for name in ("calls", "input", "output")}
        return Spent(**{name: number for name, number in numbers.items() if type(number) is int})

    def called(self, purpose: str, spent: Spent) -> SessionEntry:
        """A model was asked for a purpose."""
        both = self.spent(purpose) + spent
        calls = {**self.model_calls, purpose: {"calls": both.calls, "input": both.input, "output": both.output}}
        return replace(self, model_calls=calls, estimated_cost_usd=self.estimated_cost_usd + spent.cost)

    def compacted(self, tokens_after: int, *, now: int) -> SessionEntry:
        """The history was compacted."""
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

    def flushed(self, *, now: int, cycle: int) -> SessionEntry:
        """The agent wrote its notes; `cycle` is the count of compactions from before that turn."""
        return replace(
            self,
            updated_at=now,
            memory_flush_at=now,
            memory_flush_compaction_count=cycle,
            memory_flush_failure_count=0,
            memory_flush_last_failed_at=0,
            memory_flush_last_failure_error="",
        )

    def flush_failed(self, error: str, *, now: int, most: int) -> SessionEntry:
        """It could not; after `most` failures in a row this cycle goes on without notes."""
        failures = self.memory_flush_failure_count + 1
        given_up = self.compaction_count if failures >= most else self.memory_flush_compaction_count
        return replace(
            self,
            updated_at=now,
            memory_flush_failure_count=failures,
            memory_flush_last_failed_at=now,
            memory_flush_last_failure_error=head(error, LONGEST_ERROR),
            memory_flush_compaction_count=given_up,
        )

    @property
    def is_flushed(self) -> bool:
        """Whether the notes of this compaction cycle are written, or given up."""
        return self.memory_flush_compaction_count == self.compaction_count


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


_KEYS: Final = {each.name: _camel(each.name) for each in fields(SessionEntry) if each.name != "other"}
_DEFAULTS: Final = {key: getattr(SessionEntry(), name) for name, key in _KEYS.items()}
_ALWAYS: Final = frozenset({"sessionId", "updatedAt", "compactionCount"})
_TYPES: Final = {each.name: str(each.type).partition(" ")[0] for each in fields(SessionEntry)}


def _fits(name: str, value: object) -> bool:
    kind = _TYPES[name]
    if kind.startswith("Mapping"):
        return isinstance(value, Mapping)
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "str":
        return isinstance(value, str)
    number = int if kind == "int" else (int, float)
    return isinstance(value, number) and not isinstance(value, bool)


# --- when it is over -------------------------------------------------------------


def is_due(entry: SessionEntry, now: int, settings: Settings) -> bool:
    """Whether the next message starts a conversation afresh."""
    return bool(due(entry, now, settings))


def due(entry: SessionEntry, now: int, settings: Settings) -> Literal["daily", "idle", ""]:
    """Why the next message starts a conversation afresh, if it does: its day is over, or the pause was too long."""
    reset = settings.session.reset
    last = entry.last_interaction_at or entry.updated_at
    if reset.mode == "never" or not last:
        return ""
    if reset.mode == "daily" and last < _last_reset(now, settings):
        return "daily"
    pause = reset.idle_minutes or (IDLE_MINUTES if reset.mode == "idle" else None)
    return "idle" if pause is not None and now - last > pause * _MINUTE else ""


def _last_reset(now: int, settings: Settings) -> int:
    """The moment at which days last changed, by the user's clock."""
    moment = local_time(now, timezone=settings.agent.timezone)
    turn = moment.replace(hour=settings.session.reset.at_hour, minute=0, second=0, microsecond=0)
    if turn > moment:
        turn -= timedelta(days=1)
    return round(turn.timestamp() * 1000)
