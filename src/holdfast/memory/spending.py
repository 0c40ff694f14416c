"""What the extraction of facts has spent, and its limits: calls an hour, tokens a day, and pauses after failures.

Everything is in the store, so that all processes have the same limits. A call is counted before it is made: a process
that is killed has counted too much rather than too little.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from holdfast.memory.learning_queue import read_number
from holdfast.settings import Knowledge
from holdfast.store.base import Record, Scope, Select, Store

SPENT: Final = "spent"
"""The kind of the record of what was spent for a tenant."""
PAUSE: Final = "pause"
"""The kind of the records of readers whose model fails, for a tenant."""
_KEY: Final = "extraction"
_HOUR: Final = 3_600_000
_HOURS: Final = 24
"""The limit of a day applies to this many last hours, not to a calendar day."""
_FIRST_PAUSE: Final = 60_000
"""The pause after a failure of a model, in milliseconds. It doubles with each further one."""
_MAX_PAUSE: Final = _HOUR
MAX_CALL_TOKENS: Final = 18_500
"""The tokens of the largest call: 12,000 of messages, the instructions, known facts and the answer."""
MIN_CALL_TOKENS: Final = 2_000
"""The tokens of the smallest call that reads anything."""


def find_call_tokens(knowledge: Knowledge) -> int:
    """Return how many tokens one call may take: at most half of a day's, so that a small budget reads something."""
    return min(MAX_CALL_TOKENS, max(MIN_CALL_TOKENS, (knowledge.max_tokens_per_day or 2 * MAX_CALL_TOKENS) // 2))


def owner_of(tenant: str) -> Scope:
    """Return the owner of what is counted for a tenant."""
    return Scope(tenant=tenant, agent="")


def find_pause(failures: int) -> int:
    """Return how many milliseconds to wait after N failures in a row: a minute, doubled each time, up to an hour."""
    pause = _FIRST_PAUSE
    for _ in range(failures - 1):
        pause = min(_MAX_PAUSE, 2 * pause)
    return pause


# --- what was spent --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """The calls and tokens of each of the last hours, and of all time.

    Attributes:
        hours: Calls and tokens by the number of the hour since 1970; only what counts towards the limits.
        calls: All calls, including those that a user asked for.
        tokens: Their tokens, as the provider reports them, or an estimate.
    """

    hours: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    calls: int = 0
    tokens: int = 0

    def calls_of_hour(self, now: int) -> int:
        """Return the calls of this hour."""
        return self.hours.get(now // _HOUR, (0, 0))[0]

    def tokens_of_day(self, now: int) -> int:
        """Return the tokens of the last 24 hours."""
        hour = now // _HOUR
        return sum(tokens for number, (_, tokens) in self.hours.items() if hour - _HOURS < number <= hour)

    def add(self, *, now: int, calls: int, tokens: int, is_limited: bool) -> Spending:
        """Count calls and tokens; hours that no longer count are dropped."""
        total = replace(self, calls=self.calls + calls, tokens=self.tokens + tokens)
        if not is_limited:
            return total
        hour = now // _HOUR
        hours = {number: spent for number, spent in self.hours.items() if hour - _HOURS < number <= hour}
        known_calls, known_tokens = hours.get(hour, (0, 0))
        hours[hour] = (known_calls + calls, known_tokens + tokens)
        return replace(total, hours=hours)

    def find_limit(self, knowledge: Knowledge, *, now: int) -> str:
        """Return which limit the next call may exceed, as a sentence; empty if it may be made.

        It is checked before a job is chosen, and again before its call is made. Reports show it.
        """
        max_calls = knowledge.max_calls_per_hour
        if max_calls and self.calls_of_hour(now) >= max_calls:
            return f"the calls of this hour are used up (knowledge.max_calls_per_hour = {max_calls:,})"
        max_tokens = knowledge.max_tokens_per_day
        tokens = find_call_tokens(knowledge)
        if max_tokens and tokens > max_tokens:
            return (
                f"a call needs about {tokens:,} tokens, more than knowledge.max_tokens_per_day = {max_tokens:,}:"
                " raise it"
            )
        used = self.tokens_of_day(now)
        if max_tokens and used + tokens > max_tokens:
            return (
                f"the tokens of 24 hours are used up: {used:,} of knowledge.max_tokens_per_day = {max_tokens:,}, and a"
                f" call takes up to {tokens:,}"
            )
        return ""


def load_spending(store: Store, tenant: str) -> Spending:
    """Read what was spent for a tenant."""
    for record in store.read_records(Select(scope=owner_of(tenant)), kind=SPENT, keys=(_KEY,)):
        hours: dict[int, tuple[int, int]] = {}
        with suppress(TypeError, ValueError):  # a damaged row counts as nothing
            for number, calls, tokens in record.data.get("hours", ()):
                hours[int(number)] = (int(calls), int(tokens))
        return Spending(hours=hours, calls=read_number(record.data, "calls"), tokens=read_number(record.data, "tokens"))
    return Spending()


def save_spending(store: Store, tenant: str, spending: Spending, *, time: int) -> None:
    """Store what was spent for a tenant."""
    hours = [[number, *spent] for number, spent in sorted(spending.hours.items())]
    data = {"hours": hours, "calls": spending.calls, "tokens": spending.tokens}
    store.add_records([Record(scope=owner_of(tenant), kind=SPENT, key=_KEY, data=data, time=time)])


# --- pauses ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Failures in a row: of a reader's model, or of the next batch of a session.

    Attributes:
        failures: How many; 0 if the last call succeeded.
        until: When to try again, in Unix milliseconds.
        reason: Why the last one failed.
        has_answered: For a model: whether an answer could be used since messages were last left to the rules.
    """

    failures: int = 0
    until: int = 0
    reason: str = ""
    has_answered: bool = False

    def add_failure(self, reason: str, *, now: int) -> Pause:
        """Return the pause after one more failure."""
        failures = self.failures + 1
        return replace(self, failures=failures, until=now + find_pause(failures), reason=reason)


def load_pause(store: Store, scope: Scope, reader: str) -> Pause:
    """Read the pause of a session's reader, or of a model if the scope is that of `owner_of`."""
    for record in store.read_records(Select(scope=scope), kind=PAUSE, keys=(reader,)):
        return _read_pause(record.data)
    return Pause()


def make_pause_record(scope: Scope, reader: str, pause: Pause, *, time: int) -> Record:
    """Make the record of a pause."""
    data = {
        "failures": pause.failures,
        "until": pause.until,
        "reason": pause.reason,
        "has_answered": pause.has_answered,
    }
    return Record(scope=scope, kind=PAUSE, key=reader, data=data, time=time)


def list_pauses(store: Store, tenant: str) -> dict[str, Pause]:
    """Read the pauses of all models of a tenant, by reader."""
    records = store.read_records(Select(scope=owner_of(tenant)), kind=PAUSE)
    return {record.key: _read_pause(record.data) for record in records}


def _read_pause(data: Mapping[str, Any]) -> Pause:
    return Pause(
        failures=read_number(data, "failures"),
        until=read_number(data, "until"),
        reason=str(data.get("reason", "")),
        has_answered=data.get("has_answered") is True,
    )
