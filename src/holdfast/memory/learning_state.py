"""The state of learning, for people who look: what waits, what was spent, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.memory.learning_queue import EXTRACT, OPEN, RULES, reader_of
from holdfast.memory.spending import list_pauses, load_spending
from holdfast.settings import Knowledge
from holdfast.store.base import Store

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
        calls: Calls of models that extracted facts, of all time.
        tokens: Their tokens.
        calls_this_hour: Those that count towards `knowledge.max_calls_per_hour`.
        tokens_today: Tokens of the last 24 hours that count towards `knowledge.max_tokens_per_day`.
        problems: What holds the work up, in sentences.
    """

    waiting: int = 0
    in_use: int = 0
    calls: int = 0
    tokens: int = 0
    calls_this_hour: int = 0
    tokens_today: int = 0
    problems: tuple[str, ...] = ()


def read_state(store: Store, limits: Knowledge, *, now: int) -> LearningState:
    """Return the state of learning at a moment, of all tenants together."""
    jobs = store.waiting(EXTRACT, limit=_NO_LIMIT)
    marks = store.waiting(OPEN, limit=_NO_LIMIT)
    tenants = {scope.tenant for scope in store.scopes()} | {job.scope.tenant for job in jobs}
    spent = {tenant: load_spending(store, tenant) for tenant in sorted(tenants)}
    problems: list[str] = []
    for tenant, spending in spent.items():
        for pause in list_pauses(store, tenant).values():
            if pause.failures:
                problems.append(f"{FAILED} {pause.failures:,} times in a row, and is tried again: {pause.reason}")
        limit = spending.find_limit(limits, now=now)
        has_work = any(job.scope.tenant == tenant and reader_of(job) != RULES for job in jobs)
        if limit and has_work:
            problems.append(f"{WAITS}: {limit}")
    return LearningState(
        waiting=len({job.scope for job in jobs}),
        in_use=len({mark.scope for mark in marks}),
        calls=sum(one.calls for one in spent.values()),
        tokens=sum(one.tokens for one in spent.values()),
        calls_this_hour=sum(one.calls_of_hour(now) for one in spent.values()),
        tokens_today=sum(one.tokens_of_day(now) for one in spent.values()),
        problems=tuple(dict.fromkeys(problems)),
    )
