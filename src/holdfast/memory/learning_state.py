"""The state of learning, to be shown: what waits, what was spent, and what is wrong."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from holdfast.memory.learning_queue import (
    EXTRACT,
    HOSTS,
    LEARNED,
    OPEN,
    OWN,
    READ,
    find_read,
    is_by_rule,
    is_due,
    reader_of,
)
from holdfast.memory.spending import Pause, list_pauses, load_spending
from holdfast.settings import Settings
from holdfast.store.base import Job, Scope, Select, Store
from holdfast.text import plural

FAILED: Final = "fact extraction failed"
"""The beginning of the warning that a model has failed to extract facts."""
WAITS: Final = "fact extraction waits"
"""The beginning of the warning that a limit is reached."""
_NO_LIMIT: Final = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningState:
    """What waits to be read, what was spent, and what is wrong.

    Attributes:
        waiting: Sessions with messages that wait to be read.
        in_use: Sessions that are read when they end or are idle.
        unread: Other sessions of which nothing was read, such as imported ones: `holdfast learn` reads them.
        calls: Calls of models that extracted facts, of all time.
        tokens: Their tokens.
        calls_this_hour: The calls of this hour that count towards `knowledge.max_calls_per_hour`.
        tokens_today: Tokens of the last 24 hours that count towards `knowledge.max_tokens_per_day`.
        problems: What the work waits for, in sentences.
    """

    waiting: int = 0
    in_use: int = 0
    unread: int = 0
    calls: int = 0
    tokens: int = 0
    calls_this_hour: int = 0
    tokens_today: int = 0
    problems: tuple[str, ...] = ()

    def describe_unread(self) -> str:
        """Say that sessions were not read for facts, and what reads them; empty if there are none."""
        if not self.unread:
            return ""
        verb, them = ("was", "it") if self.unread == 1 else ("were", "them")
        return f"{plural(self.unread, 'archived session')} {verb} not read for facts: `holdfast learn` reads {them}"


def read_state(store: Store, settings: Settings, *, now: int, readers: Collection[str] = ()) -> LearningState:
    """Return the state of learning at a moment, of all tenants together.

    `readers` have a model that the settings do not name.
    """
    idle = settings.knowledge.idle // timedelta(milliseconds=1)
    waiting: dict[tuple[str, str], set[Scope]] = {}  # sessions by tenant and reader
    for job in store.waiting(EXTRACT, limit=_NO_LIMIT):
        waiting.setdefault((job.scope.tenant, reader_of(job)), set()).add(job.scope)
    in_use: set[Scope] = set()
    for mark in store.waiting(OPEN, limit=_NO_LIMIT):
        if not _has_unread(store, mark):
            continue
        if is_due(mark, now=now, idle=idle):
            waiting.setdefault((mark.scope.tenant, reader_of(mark)), set()).add(mark.scope)
        else:
            in_use.add(mark.scope)
    tenants = {scope.tenant for scope in store.scopes()} | {tenant for tenant, _ in waiting}
    spent = {tenant: load_spending(store, tenant) for tenant in sorted(tenants)}
    problems: list[str] = []
    for (tenant, reader), sessions in waiting.items():
        if is_by_rule(reader):
            continue
        if missing := _find_missing_model(reader, settings, readers):
            problems.append(f"{WAITS} for a model, with {plural(len(sessions), 'session')} to read: {missing}")
            continue
        pause = list_pauses(store, tenant).get(reader, Pause())
        if pause.failures:
            count = plural(pause.failures, "time")
            problems.append(f"{FAILED} {count} in a row, and is tried again: {pause.reason}")
        if limit := spent[tenant].find_limit(settings.knowledge, now=now):
            problems.append(f"{WAITS}: {limit}")
    everything = set[Scope]().union(*waiting.values())
    return LearningState(
        waiting=len(everything),
        in_use=len(in_use - everything),
        unread=_count_unread(store, settings, queued=everything | in_use),
        calls=sum(spending.calls for spending in spent.values()),
        tokens=sum(spending.tokens for spending in spent.values()),
        calls_this_hour=sum(spending.calls_of_hour(now) for spending in spent.values()),
        tokens_today=sum(spending.tokens_of_day(now) for spending in spent.values()),
        problems=tuple(dict.fromkeys(problems)),
    )


def _count_unread(store: Store, settings: Settings, *, queued: Collection[Scope]) -> int:
    """Count the sessions that are not queued and of which nothing was read; none if no facts are to be extracted."""
    if not settings.knowledge.extraction:
        return 0
    sessions = store.sessions()
    known = set(queued)
    for tenant in {scope.tenant for scope in sessions}:
        select = Select(scope=Scope(tenant=tenant), across=("project", "agent", "session"))
        for kind in (READ, LEARNED):
            known.update(record.scope for record in store.read_records(select, kind=kind))
    return len(sessions.keys() - known)


def _has_unread(store: Store, mark: Job) -> bool:
    newest = store.read_messages(Select(scope=mark.scope, newest=True, limit=1))
    return bool(newest) and newest[-1].id > find_read(store, mark.scope, reader_of(mark))


def _find_missing_model(reader: str, settings: Settings, readers: Collection[str]) -> str:
    """Explain how to give a reader a model; return an empty text if it has one."""
    knowledge = settings.knowledge
    named = {knowledge.model or settings.compaction.model, knowledge.host_model}
    if reader in readers or reader in named:
        return ""
    if reader == OWN:
        if knowledge.model or settings.compaction.model:
            return ""
        return "set knowledge.model, or run `holdfast learn --model NAME`"
    if reader == HOSTS:
        if knowledge.host_model:
            return ""
        return "choose one with `holdfast install HOST --learn MODEL`"
    return f"run `holdfast learn --model {reader}` again"
