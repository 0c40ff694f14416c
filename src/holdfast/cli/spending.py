"""Tokens, costs and sessions by host, for `holdfast stats`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from holdfast import figures
from holdfast.cli.output import echo
from holdfast.figures import Totals, dollars
from holdfast.memory.sessions import name_hosts
from holdfast.moments import local
from holdfast.providers.models import PRICES_DATE
from holdfast.store.base import Scope, Store
from holdfast.text import printable, shorten_number

UPDATE_SECONDS: Final = 60.0
"""How long the command adds up what is new; after an upgrade that is everything."""
PERIODS: Final = {"today": 1, "last_7_days": 7, "last_30_days": 30}
"""Periods by the names that JSON has, in days."""
ALL: Final = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What models and windows have taken.

    Attributes:
        periods: The totals of each period of `PERIODS`, and of all time.
        hosts: How many sessions each host has, and their totals of all time.
        models: The totals of each model, of all time.
        is_complete: Whether everything is added up.
    """

    periods: Mapping[str, Totals]
    hosts: Mapping[str, tuple[int, Totals]]
    models: Mapping[str, Totals]
    is_complete: bool

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        return {
            "spending": {name: _to_json(totals) for name, totals in self.periods.items()},
            "hosts": [
                {"host": name, "sessions": count, **_to_json(totals)} for name, (count, totals) in self.hosts.items()
            ],
            "models": [{"model": name, **_to_json(totals)} for name, totals in self.models.items()],
            "figures_complete": self.is_complete,
        }


def read_spending(store: Store, *, now: int, prices: Sequence[str]) -> Spending:
    """Add up what models reported and what was sent, until `now`, in Unix milliseconds."""
    scopes = list(store.sessions())
    tenants = sorted({scope.tenant for scope in scopes}) or [Scope().tenant]
    is_complete = figures.update(store, tenants, seconds=UPDATE_SECONDS)
    today = local(now).date()
    first = today - timedelta(days=max(PERIODS.values()) - 1)
    by_day = figures.sum_days(store, tenants, first=first, last=today, prices=prices).by_day()
    days = list(by_day.values())
    sessions = {scope: Totals() for scope in scopes}
    sessions |= figures.sum_sessions(store, tenants, prices=prices)
    periods = {name: figures.add_all(days[-count:]) for name, count in PERIODS.items()}
    periods[ALL] = figures.add_all(sessions.values())
    return Spending(
        periods=periods,
        hosts=figures.group(sessions, name_hosts(store, tenants)),
        models=figures.sum_models(store, tenants, prices=prices),
        is_complete=is_complete,
    )


def print_spending(spending: Spending) -> None:
    """Print the periods and the hosts as tables; nothing for an empty memory."""
    if not spending.hosts:
        return
    from holdfast.cli.console import print_figures  # noqa: PLC0415 - JSON does not need it

    columns = ["cost", "read", "cached", "written", "windows", "sent", "saved"]
    echo("")
    rows = [(name.replace("_", " "), *_cells(totals)) for name, totals in spending.periods.items()]
    print_figures(["tokens", *columns], rows)
    echo("")
    hosts = [
        (printable(name, one_line=True) or "not named", f"{count:,}", *_cells(totals))
        for name, (count, totals) in spending.hosts.items()
    ]
    print_figures(["host", "sessions", *columns], hosts)
    total = spending.periods[ALL]
    if total.unpriced:
        if total.cost:
            echo("\nA + after a cost: models whose price is unknown are not in it.")
        names = ", ".join(printable(name, one_line=True) for name in total.unpriced if name)
        if names:
            echo(f"\nNo price is known for: {names}. `model.prices` sets one; list prices are of {PRICES_DATE}.")
        if "" in total.unpriced:
            echo("\nReplies that name no model have no price.")
    if not spending.is_complete:
        echo("\nNot everything is added up yet: run the command again.")


def _cells(totals: Totals) -> tuple[str, ...]:
    """Return the numbers of a line; a plus after the cost says that it lacks models without a price."""
    turns = totals.turns
    windows = (f"{turns.turns:,}", shorten_number(turns.sent), shorten_number(max(0, turns.saved)))
    if not totals.replies:
        return ("-", "-", "-", "-", *windows)
    cost = dollars(totals.cost)
    if totals.known_cost == "part":
        cost = f"{cost}+"
    elif totals.known_cost == "none":
        cost = "unknown"
    share = f"{totals.cached_share or 0.0:.0%}"
    return (cost, shorten_number(totals.prompt), share, shorten_number(totals.usage.output), *windows)


def _to_json(totals: Totals) -> dict[str, Any]:
    turns = totals.turns
    is_known = bool(totals.replies) and not totals.unpriced
    return {
        "cost": round(totals.cost, 6) if is_known or totals.cost else None,
        "unpriced_models": list(totals.unpriced),
        "replies": totals.replies,
        "input_tokens": totals.usage.input,
        "cache_read_tokens": totals.usage.cache_read,
        "cache_write_tokens": totals.usage.cache_write,
        "output_tokens": totals.usage.output,
        "windows": turns.turns,
        "sent_tokens": turns.sent,
        "saved_tokens": turns.saved,
        "cuts": turns.cuts,
        "recalls": turns.recalls,
        "recalls_with_tool_call": turns.followed,
        "failures": turns.failures,
        "refusals": turns.refusals,
    }
