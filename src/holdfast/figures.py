"""Tokens, costs, cuts and recalls of a turn, a session, a day and a whole memory.

The store adds up; here prices are applied, and quarters of an hour become days of the local calendar. Nothing is read
message by message.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, timedelta
from typing import Final

from holdfast.messages import Usage
from holdfast.moments import local
from holdfast.providers.models import find_price
from holdfast.store.base import Across, Scope, Store, TurnFigures, TurnSum, UsageSum

EVERYTHING: Final[Across] = ("project", "agent", "session")
_ADDED: Final = tuple(each.name for each in fields(TurnSum) if each.name not in {"scope", "start", "last_time"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums of usage and turns.

    Attributes:
        usage: The usage that models reported.
        replies: How many replies reported it.
        cost: Its cost in dollars, as far as prices are known.
        unpriced: The models whose price is not known. The cost lacks them.
        turns: The turns.
    """

    usage: Usage = field(default_factory=Usage)
    replies: int = 0
    cost: float = 0.0
    unpriced: tuple[str, ...] = ()
    turns: TurnSum = field(default_factory=TurnSum)

    @property
    def prompt(self) -> int:
        """The tokens that the models read, cached or not."""
        return self.usage.input + self.usage.cache_read + self.usage.cache_write

    @property
    def cached_share(self) -> float | None:
        """The share of the prompts that came from a cache; None if no usage was reported."""
        return self.usage.cache_read / self.prompt if self.prompt else None

    def __add__(self, other: Totals) -> Totals:
        turns = {name: getattr(self.turns, name) + getattr(other.turns, name) for name in _ADDED}
        last_time = max(self.turns.last_time, other.turns.last_time)
        return Totals(
            usage=add_usage(self.usage, other.usage),
            replies=self.replies + other.replies,
            cost=self.cost + other.cost,
            unpriced=tuple(sorted({*self.unpriced, *other.unpriced})),
            turns=TurnSum(**turns, last_time=last_time),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCost:
    """The figures of a turn with its price: None if the usage is not known, or the model has no price."""

    figures: TurnFigures
    cost: float | None

    @property
    def cached_share(self) -> float | None:
        """The share of the prompt that came from the cache of the provider; None if no usage was reported."""
        usage = self.figures.usage
        if usage is None:
            return None
        prompt = usage.input + usage.cache_read + usage.cache_write
        return usage.cache_read / prompt if prompt else None


def dollars(amount: float) -> str:
    """Format a cost: cents and more with two decimals, less with up to four."""
    if not amount:
        return "$0"
    if amount < 0.1:  # noqa: PLR2004 - ten cents
        return f"${amount:.4f}"
    return f"${amount:,.2f}"


def add_usage(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
    )


def update(store: Store, tenants: Iterable[str], *, seconds: float) -> bool:
    """Add what is new to the figures for at most some seconds; return whether everything is added."""
    until = time.monotonic() + seconds
    is_complete = True
    for tenant in tenants:
        while store.update_figures(tenant):
            if time.monotonic() > until:
                is_complete = False
                break
    return is_complete


def sum_days(
    store: Store, tenants: Sequence[str], *, first: date, last: date, prices: Sequence[str] = ()
) -> dict[date, Totals]:
    """Return the totals of each day of a period, in order, also of those on which nothing happened.

    Args:
        store: The store.
        tenants: The tenants whose sessions are added up.
        first: The first day, in the local calendar.
        last: The last day.
        prices: The prices in the setting `model.prices`.
    """
    days = {first + timedelta(days=number): Totals() for number in range((last - first).days + 1)}
    since = start_of(first)
    until = start_of(last + timedelta(days=1))
    for tenant in tenants:
        scope = Scope(tenant=tenant)
        for usage in store.sum_usage(scope, across=EVERYTHING, since=since, until=until, by="time"):
            day = _day_of(usage.start, first=first)
            days[day] += _of_usage(usage, prices)
        for turns in store.sum_turns(scope, across=EVERYTHING, since=since, until=until, by="time"):
            day = _day_of(turns.start, first=first)
            days[day] += _of_turns(turns)
    return days


def sum_sessions(
    store: Store,
    tenants: Sequence[str],
    *,
    since: int | None = None,
    until: int | None = None,
    prices: Sequence[str] = (),
) -> dict[Scope, Totals]:
    """Return the totals of each session that has any, in a period given in Unix milliseconds."""
    found: dict[Scope, Totals] = {}
    for tenant in tenants:
        scope = Scope(tenant=tenant)
        for usage in store.sum_usage(scope, across=EVERYTHING, since=since, until=until, by="session"):
            _add_to(found, usage.scope, _of_usage(usage, prices))
        for turns in store.sum_turns(scope, across=EVERYTHING, since=since, until=until, by="session"):
            _add_to(found, turns.scope, _of_turns(turns))
    return found


def sum_models(
    store: Store, tenants: Sequence[str], *, since: int | None = None, prices: Sequence[str] = ()
) -> dict[str, Totals]:
    """Return the totals of each model that reported usage; those without a name are under the empty name."""
    found: dict[str, Totals] = {}
    for tenant in tenants:
        for usage in store.sum_usage(Scope(tenant=tenant), across=EVERYTHING, since=since, by="time"):
            found[usage.model] = found.get(usage.model, Totals()) + _of_usage(usage, prices)
    return found


def sum_session(store: Store, scope: Scope, *, prices: Sequence[str] = ()) -> Totals:
    """Return the totals of one session."""
    totals = Totals()
    for usage in store.sum_usage(scope, by="session"):
        totals += _of_usage(usage, prices)
    for turns in store.sum_turns(scope, by="session"):
        totals += _of_turns(turns)
    return totals


def read_turn(store: Store, scope: Scope, turn: int, *, prices: Sequence[str] = ()) -> TurnCost | None:
    """Return the figures of a turn with its price; None if they are not known."""
    found = store.read_turns(scope, first=turn, last=turn)
    if not found:
        return None
    figures = found[-1]
    price = find_price(figures.model, prices=prices)
    cost = None
    if price is not None and figures.usage is not None:
        cost = price.cost(figures.usage)
    return TurnCost(figures=figures, cost=cost)


def add_all(totals: Iterable[Totals]) -> Totals:
    """Return the sum of totals."""
    total = Totals()
    for each in totals:
        total += each
    return total


def group(sessions: Mapping[Scope, Totals], part: str) -> dict[str, tuple[int, Totals]]:
    """Return how many sessions there are of each agent, project or tenant, and their totals; the costliest first."""
    found: dict[str, tuple[int, Totals]] = {}
    for scope, totals in sessions.items():
        name = getattr(scope, part)
        count, known = found.get(name, (0, Totals()))
        found[name] = (count + 1, known + totals)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1][1].cost, -pair[1][1].prompt, pair[0])))


def _add_to(found: dict[Scope, Totals], scope: Scope | None, totals: Totals) -> None:
    assert scope is not None
    found[scope] = found.get(scope, Totals()) + totals


def _of_usage(found: UsageSum, prices: Sequence[str]) -> Totals:
    price = find_price(found.model, prices=prices)
    if price is None:
        return Totals(usage=found.usage, replies=found.replies, unpriced=(found.model,))
    return Totals(usage=found.usage, replies=found.replies, cost=price.cost(found.usage))


def _of_turns(found: TurnSum) -> Totals:
    return Totals(turns=replace(found, scope=None, start=0))


def start_of(day: date) -> int:
    """Return the beginning of a day of the local calendar, in Unix milliseconds."""
    return int(datetime(day.year, day.month, day.day).astimezone().timestamp() * 1000)


def _day_of(milliseconds: int, *, first: date) -> date:
    """Return the day of a moment. A period may begin within a quarter of an hour that began the day before."""
    return max(local(milliseconds).date(), first)
