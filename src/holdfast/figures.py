"""Tokens, costs, cuts and recalls of a turn, a session, a day and a whole memory.

The store adds up; here prices are applied, and quarters of an hour become days of the local calendar. Nothing is read
message by message.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, timedelta
from typing import Any, Final, Literal, TypeAlias, TypeVar

from holdfast.messages import Usage
from holdfast.providers.models import Price, find_price
from holdfast.store.base import Across, Grouping, Period, Scope, Store, TurnFigures, TurnSum, UsageSum
from holdfast.store.figures import STEPS

Key = TypeVar("Key")

EVERYTHING: Final[Across] = ("project", "agent", "session")
_ADDED: Final = tuple(each.name for each in fields(TurnSum) if each.name not in {"scope", "start", "last_time"})


KnownCost: TypeAlias = Literal["all", "part", "none", "unreported"]
"""How much of a cost is known: all of it; without that of models that have no price; nothing, because no model has one;
or nothing, because no reply to any of the turns reported usage."""


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

    @property
    def known_cost(self) -> KnownCost:
        """How much of the cost is known."""
        if not self.replies:
            return "unreported" if self.turns.turns else "all"
        if not self.unpriced:
            return "all"
        return "part" if self.cost else "none"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySums:
    """What happened on some days: sums of hours, or of quarters of them, of each session.

    Attributes:
        first: The first day, in the local calendar.
        last: The last day.
        usage: The usage that models reported.
        turns: The turns.
        prices: The prices in the setting `model.prices`.
    """

    first: date
    last: date
    usage: Sequence[UsageSum]
    turns: Sequence[TurnSum]
    prices: Sequence[str]

    def by_day(self) -> dict[date, Totals]:
        """Return the totals of each day, in order, also of those on which nothing happened."""
        days = {day: _Sum() for day in _list_days(self.first, self.last)}
        starts = [start_of(day) for day in days]
        names = list(days)
        for usage in self.usage:
            days[names[max(0, bisect_right(starts, usage.start) - 1)]].add_usage(usage)
        for turns in self.turns:
            days[names[max(0, bisect_right(starts, turns.start) - 1)]].add_turns(turns)
        return _total_all(days, self.prices)

    def by_session(self, *, since: date) -> dict[Scope, Totals]:
        """Return the totals of each session from a day on."""
        found: defaultdict[Scope, _Sum] = defaultdict(_Sum)
        start = start_of(since)
        for usage in self.usage:
            if usage.start >= start and usage.scope is not None:
                found[usage.scope].add_usage(usage)
        for turns in self.turns:
            if turns.start >= start and turns.scope is not None:
                found[turns.scope].add_turns(turns)
        return _total_all(found, self.prices)

    def by_model(self, *, since: date) -> dict[str, Totals]:
        """Return the totals of each model that reported usage from a day on; the empty name is for those without."""
        found: defaultdict[str, _Sum] = defaultdict(_Sum)
        start = start_of(since)
        for usage in self.usage:
            if usage.start >= start:
                found[usage.model].add_usage(usage)
        return _total_all(found, self.prices)


def sum_days(store: Store, tenants: Sequence[str], *, first: date, last: date, prices: Sequence[str] = ()) -> DaySums:
    """Add up what happened from one day of the local calendar to another, in the sessions of some tenants."""
    starts = [start_of(day) for day in _list_days(first, last + timedelta(days=1))]
    step: Grouping = "hour"
    if any(start % STEPS["hour"] for start in starts):  # a time zone that is off by a half or a quarter of an hour
        step = "quarter"
    usage: list[UsageSum] = []
    turns: list[TurnSum] = []
    for tenant in tenants:
        period = Period(scope=Scope(tenant=tenant), across=EVERYTHING, since=starts[0], until=starts[-1], by=step)
        usage += store.sum_usage(period)
        turns += store.sum_turns(period)
    return DaySums(first=first, last=last, usage=usage, turns=turns, prices=prices)


def _list_days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=number) for number in range((last - first).days + 1)]


def sum_sessions(
    store: Store,
    tenants: Sequence[str],
    *,
    since: int | None = None,
    until: int | None = None,
    prices: Sequence[str] = (),
) -> dict[Scope, Totals]:
    """Return the totals of each session that has any, in a period given in Unix milliseconds."""
    found: defaultdict[Scope, _Sum] = defaultdict(_Sum)
    for tenant in tenants:
        period = Period(scope=Scope(tenant=tenant), across=EVERYTHING, since=since, until=until, by="session")
        for usage in store.sum_usage(period):
            assert usage.scope is not None
            found[usage.scope].add_usage(usage)
        for turns in store.sum_turns(period):
            assert turns.scope is not None
            found[turns.scope].add_turns(turns)
    return _total_all(found, prices)


def sum_models(
    store: Store, tenants: Sequence[str], *, since: int | None = None, prices: Sequence[str] = ()
) -> dict[str, Totals]:
    """Return the totals of each model that reported usage; those without a name are under the empty name."""
    found: defaultdict[str, _Sum] = defaultdict(_Sum)
    for tenant in tenants:
        period = Period(scope=Scope(tenant=tenant), across=EVERYTHING, since=since, by="all")
        for usage in store.sum_usage(period):
            found[usage.model].add_usage(usage)
    return _total_all(found, prices)


def sum_before(store: Store, tenants: Sequence[str], *, day: date, prices: Sequence[str] = ()) -> Totals:
    """Return the totals of everything that happened before a day of the local calendar."""
    found = _Sum()
    until = start_of(day)
    for tenant in tenants:
        period = Period(scope=Scope(tenant=tenant), across=EVERYTHING, until=until, by="all")
        for usage in store.sum_usage(period):
            found.add_usage(usage)
        for turns in store.sum_turns(period):
            found.add_turns(turns)
    return found.total({}, prices)


def sum_session(store: Store, scope: Scope, *, prices: Sequence[str] = ()) -> Totals:
    """Return the totals of one session."""
    found = _Sum()
    period = Period(scope=scope, by="session")
    for usage in store.sum_usage(period):
        found.add_usage(usage)
    for turns in store.sum_turns(period):
        found.add_turns(turns)
    return found.total({}, prices)


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
        if each.replies or each.turns.turns:  # most days of a long period have nothing
            total += each
    return total


def group(sessions: Mapping[Scope, Totals], name_of: Callable[[Scope], str]) -> dict[str, tuple[int, Totals]]:
    """Return how many sessions there are of each name, and their totals; the costliest first."""
    found: dict[str, tuple[int, Totals]] = {}
    for scope, totals in sessions.items():
        name = name_of(scope)
        count, known = found.get(name, (0, Totals()))
        found[name] = (count + 1, known + totals)
    return dict(sorted(found.items(), key=lambda pair: (-pair[1][1].cost, -pair[1][1].prompt, pair[0])))


class _Sum:
    """Numbers that are added up before prices are applied: there may be thousands of quarters of an hour."""

    def __init__(self) -> None:
        self._usage: dict[str, list[int]] = {}  # by model: replies, input, output, cache reads and cache writes
        self._turns = dict.fromkeys(_ADDED, 0.0)
        self._last_time = 0

    def add_usage(self, found: UsageSum) -> None:
        known = self._usage.setdefault(found.model, [0, 0, 0, 0, 0])
        usage = found.usage
        numbers = (found.replies, usage.input, usage.output, usage.cache_read, usage.cache_write)
        for place, number in enumerate(numbers):
            known[place] += number

    def add_turns(self, found: TurnSum) -> None:
        for name in _ADDED:
            self._turns[name] += getattr(found, name)
        self._last_time = max(self._last_time, found.last_time)

    def total(self, known_prices: dict[str, Price | None], prices: Sequence[str]) -> Totals:
        """Apply prices, which are looked up once for each model."""
        total = Totals(turns=self._make_turns())
        for model, (replies, *counts) in self._usage.items():
            if model not in known_prices:
                known_prices[model] = find_price(model, prices=prices)
            price = known_prices[model]
            sent, received, cache_read, cache_write = counts
            usage = Usage(input=sent, output=received, cache_read=cache_read, cache_write=cache_write)
            total = replace(
                total,
                usage=add_usage(total.usage, usage),
                replies=total.replies + replies,
                cost=total.cost + (price.cost(usage) if price is not None else 0.0),
                unpriced=total.unpriced if price is not None else tuple(sorted({*total.unpriced, model})),
            )
        return total

    def _make_turns(self) -> TurnSum:
        if not self._turns["turns"]:
            return _NO_TURNS
        numbers: dict[str, Any] = {name: int(number) for name, number in self._turns.items()}
        numbers["assembling"] = self._turns["assembling"]
        return TurnSum(**numbers, last_time=self._last_time)


_NO_TURNS: Final = TurnSum()


def _total_all(sums: Mapping[Key, _Sum], prices: Sequence[str]) -> dict[Key, Totals]:
    known_prices: dict[str, Price | None] = {}
    return {key: found.total(known_prices, prices) for key, found in sums.items()}


def start_of(day: date) -> int:
    """Return the beginning of a day of the local calendar, in Unix milliseconds."""
    return int(datetime(day.year, day.month, day.day).astimezone().timestamp() * 1000)
