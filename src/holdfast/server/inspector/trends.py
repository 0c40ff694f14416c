"""The page with figures over time, and the figures of a session and of a turn for the pages of others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from html import escape
from typing import Any, Final

from markupsafe import Markup

from holdfast import figures
from holdfast.engine import Engine
from holdfast.errors import HoldfastError
from holdfast.figures import DaySums, Totals, TurnCost, dollars
from holdfast.memory.sessions import make_title, name_hosts, read_title
from holdfast.moments import local
from holdfast.providers.models import PRICES_DATE, find_price
from holdfast.server.inspector import data
from holdfast.store.base import Scope
from holdfast.text import percent, shorten_number

PERIODS: Final = (7, 30, 90, 365)
"""Days that the page can show."""
DEFAULT_DAYS: Final = 30
MAX_BARS: Final = 92
"""More days than these are drawn as weeks."""
MAX_SESSIONS: Final = 12
"""Sessions in the list of those that cost most."""
UPDATE_SECONDS: Final = 0.05
"""How long a page adds up what is new before it is shown; a thread does the rest."""
CHART: Final = (720, 120)
MAX_DATES: Final = 6
"""Dates below a chart of days; each day of a week has one."""
MAX_MONTHS: Final = 5
"""Months below a chart of weeks, which are longer to write."""

Format = Callable[[float], str]


def describe_cost(totals: Totals) -> str:
    """Format a cost for tables and charts: $2.66; $2.66+ if models without a price are not in it."""
    match totals.known_cost:
        case "all":
            return dollars(totals.cost)
        case "part":
            return f"{dollars(totals.cost)}+"
        case "none":
            return "unknown"
        case "unreported":
            return "not reported"


def share(part: float | None) -> str:
    """Format a share: 45%."""
    return "unknown" if part is None else percent(part, 1)


def spent_time(milliseconds: float | None) -> str:
    """Format a time: 12 ms, 3.4 s."""
    if milliseconds is None:
        return "unknown"
    if milliseconds < 1000:  # noqa: PLR2004 - a second
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A column of a chart: its first and last day, and the totals of its days."""

    first: date
    last: date
    totals: Totals

    @property
    def label(self) -> str:
        """Its day, or its first and last day."""
        if self.first == self.last:
            return f"{self.first:%Y-%m-%d}"
        return f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Numbers that are drawn in one colour: the style class, the name, a number and its words for each column."""

    kind: str
    name: str
    values: Sequence[float]
    words: Sequence[str]
    total: str

    def describe(self, place: int) -> str:
        """Describe the number of a column: 59 with messages cut."""
        return f"{self.words[place]} {self.name}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with its title, its drawing, the labels of its axes, and its series.

    `shown` are the numbers of the last column that has any, which the page names until another one is chosen. If no
    column has any, there is no drawing, and `empty` says why, if it is not that there was nothing.
    """

    title: str
    drawing: Markup | None
    top: str
    half: str
    zero: str
    labels: Sequence[str]
    has_all_labels: bool
    series: Sequence[Series]
    shown: str = ""
    empty: str = ""


class Figures:
    """The figures of a memory, kept up to date for the pages that show them."""

    def __init__(self, engine: Engine, sessions: data.Sessions) -> None:
        self._engine = engine
        self._sessions = sessions
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @property
    def prices(self) -> tuple[str, ...]:
        """The prices in the settings."""
        return self._engine.settings.model.prices

    def update(self, tenants: Sequence[str] | None = None) -> bool:
        """Add up what is new; return whether everything is added. The rest of a large memory is left to a thread.

        `tenants` are those whose figures are needed; by default all.
        """
        store = self._engine._memory.store
        if tenants is None:
            tenants = self._sessions.tenants()
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            if figures.update(store, tenants, seconds=UPDATE_SECONDS):
                return True
            self._thread = threading.Thread(target=self._finish, args=(tenants,), name="holdfast-figures", daemon=True)
            self._thread.start()
        return False

    def _finish(self, tenants: Sequence[str]) -> None:
        try:
            while not figures.update(self._engine._memory.store, tenants, seconds=1.0):
                time.sleep(0.01)  # others want to read and write, too
        except HoldfastError:  # the engine was closed, or the store fails: the next page says so
            return

    def session(self, scope: Scope) -> Totals:
        """Return the totals of a session."""
        self.update([scope.tenant])
        return figures.sum_session(self._engine._memory.store, scope, prices=self.prices)

    def turn(self, scope: Scope, number: int) -> TurnCost | None:
        """Return the figures of a turn."""
        self.update([scope.tenant])
        return figures.read_turn(self._engine._memory.store, scope, number, prices=self.prices)

    def trends(self, params: data.Params, *, today: date) -> dict[str, Any]:
        """Return everything that the page over time shows."""
        store = self._engine._memory.store
        tenants = self._sessions.tenants()
        is_complete = self.update()
        chosen = int(params.get("days") or 0)
        days, sums = self._read_period(chosen, tenants, today=today)
        by_day = sums.by_day()
        since = _first_day(days, today)
        sessions = sums.by_session(since=since)
        models = sums.by_model(since=since)
        earlier = figures.sum_before(store, tenants, day=sums.first, prices=self.prices)
        everything = figures.add_all([earlier, *by_day.values()])
        bars = make_bars(list(by_day.items())[-days:])
        rows = [
            ("Today", _sum_last(by_day, 1)),
            ("Last 7 days", _sum_last(by_day, 7)),
            ("Last 30 days", _sum_last(by_day, 30)),
        ]
        if days > DEFAULT_DAYS:
            rows.append((f"Last {days} days", _sum_last(by_day, days)))
        rows.append(("Since the beginning", everything))
        has_costs = any(totals.cost for totals in sessions.values())
        largest = sorted(sessions.items(), key=lambda pair: (-pair[1].cost, -pair[1].turns.sent, -pair[1].prompt))
        if has_costs:
            largest = [(scope, totals) for scope, totals in largest if totals.cost]
        return {
            "days": days,
            "periods": PERIODS,
            "unit": name_unit(days),
            "is_complete": is_complete,
            "rows": rows,
            "charts": draw_charts(bars),
            "bars": bars[::-1],
            "models": sorted(models.items(), key=lambda pair: (-pair[1].cost, -pair[1].prompt, pair[0])),
            "hosts": figures.group(sessions, name_hosts(store, tenants)),
            "sessions": [(scope, self._title(scope), totals) for scope, totals in largest[:MAX_SESSIONS]],
            "has_costs": has_costs,
            "prices_date": PRICES_DATE,
            "is_empty": everything == Totals(),
            "nothing_in": 0 if chosen in PERIODS else _find_empty(days, sums),
        }

    def _read_period(self, chosen: int, tenants: Sequence[str], *, today: date) -> tuple[int, DaySums]:
        """Read the chosen period; by default the usual one, or if it has no figures the shortest longer one with some.

        Returns its days with it. A short one is read with the days of the usual one.
        """

        def read(days: int) -> DaySums:
            first = _first_day(max(days, DEFAULT_DAYS), today)
            return figures.sum_days(self._engine._memory.store, tenants, first=first, last=today, prices=self.prices)

        if chosen in PERIODS:
            return chosen, read(chosen)
        usual = read(DEFAULT_DAYS)
        if not _is_empty(usual):
            return DEFAULT_DAYS, usual
        for days in PERIODS:
            if days > DEFAULT_DAYS:
                longer = read(days)
                if not _is_empty(longer):
                    return days, longer
        return DEFAULT_DAYS, usual

    def _title(self, scope: Scope) -> str:
        store = self._engine._memory.store
        return read_title(store, scope) or make_title(store, scope)

    def has_price(self, model: str) -> bool:
        """Return whether a model has a price."""
        return find_price(model, prices=self.prices) is not None


def _first_day(days: int, today: date) -> date:
    return today - timedelta(days=days - 1)


def _is_empty(sums: DaySums) -> bool:
    return not sums.usage and not sums.turns


def _find_empty(days: int, sums: DaySums) -> int:
    """Return how many of the last days have no figures, if a longer period is shown or none has any; else 0."""
    if _is_empty(sums):
        return PERIODS[-1]
    shorter = [each for each in PERIODS if DEFAULT_DAYS <= each < days]
    return max(shorter, default=0)


def _sum_last(by_day: dict[date, Totals], days: int) -> Totals:
    return figures.add_all(list(by_day.values())[-days:])


# --- charts ------------------------------------------------------------------


def draw_charts(bars: Sequence[Bar]) -> list[Chart]:
    """Draw the charts of a period."""
    totals = [bar.totals for bar in bars]

    def series(kind: str, name: str, read: Callable[[Totals], float]) -> Series:
        values = [read(each) for each in totals]
        words = [shorten_number(value) for value in values]
        return Series(kind=kind, name=name, values=values, words=words, total=shorten_number(sum(values)))

    cost = Series(
        kind="cost",
        name="",
        values=[each.cost for each in totals],
        words=[describe_cost(each) for each in totals],
        total=describe_cost(figures.add_all(totals)),
    )
    return [
        _draw("Cost", bars, [cost], dollars, empty=explain_no_cost(figures.add_all(totals))),
        _draw(
            "Tokens sent and saved",
            bars,
            [
                series("sent", "sent in windows", lambda each: each.turns.sent),
                series("saved", "saved against sending everything", lambda each: max(0, each.turns.saved)),
            ],
            shorten_number,
        ),
        _draw(
            "Tokens that models reported",
            bars,
            [
                series("fresh", "read anew", lambda each: each.usage.input + each.usage.cache_write),
                series("cached", "read from a cache", lambda each: each.usage.cache_read),
                series("written", "written", lambda each: each.usage.output),
            ],
            shorten_number,
        ),
        _draw(
            "Requests with a cut",
            bars,
            [series("cut", "with messages cut", lambda each: each.turns.cuts)],
            shorten_number,
        ),
        _draw(
            "Recalls",
            bars,
            [
                series(
                    "recall",
                    "after which the model called no tool of memory",
                    lambda each: each.turns.recalls - each.turns.followed,
                ),
                series("followed", "after which it did, for the same question", lambda each: each.turns.followed),
            ],
            shorten_number,
        ),
        _draw(
            "Errors",
            bars,
            [
                series("failed", "memory failed in part", lambda each: each.turns.failures),
                series("refused", "no reply, or refused by the provider", lambda each: each.turns.refusals),
            ],
            shorten_number,
        ),
    ]


def explain_no_cost(totals: Totals) -> str:
    """Say why nothing is known of a cost; empty if there is one, or nothing was used."""
    match totals.known_cost:
        case "none":
            models = ", ".join(model or "a model without a name" for model in totals.unpriced)
            return f"Unknown: there is no price for {models}. The setting model.prices can name it."
        case "unreported":
            return "Not reported: no reply said how many tokens it used."
        case "all" | "part":
            return ""


def name_unit(days: int) -> str:
    """Return what a column of a chart of this many days stands for."""
    return "day" if days <= MAX_BARS else "week"


def make_bars(days: Sequence[tuple[date, Totals]]) -> list[Bar]:
    """Return a column for each day, or for each week if there are many days."""
    size = 1 if name_unit(len(days)) == "day" else 7
    bars: list[Bar] = []
    for end in range(len(days), 0, -size):
        some = days[max(0, end - size) : end]
        totals = figures.add_all(totals for _, totals in some)
        bars.append(Bar(first=some[0][0], last=some[-1][0], totals=totals))
    bars.reverse()
    return bars


def _draw(title: str, bars: Sequence[Bar], series: Sequence[Series], form: Format, *, empty: str = "") -> Chart:
    """Draw stacked columns. The labels of the axes are text next to the drawing, which is stretched."""
    width, height = CHART
    sums = [sum(values) for values in zip(*(each.values for each in series), strict=True)]
    top = round_up(max(sums, default=0), is_count=form is not dollars)
    step = width / max(1, len(bars))
    lines = [f"{bar.label}: {', '.join(each.describe(place) for each in series)}" for place, bar in enumerate(bars)]
    used = [place for place, value in enumerate(sums) if value > 0]
    shapes = [
        f'<line class="grid" x1="0" x2="{width}" y1="{height / 2:.1f}" y2="{height / 2:.1f}"/>',
        f'<line class="grid" x1="0" x2="{width}" y1="{height}" y2="{height}"/>',
    ]
    for place in range(len(bars)):
        y = float(height)
        body = f'<rect class="hover" x="{place * step:.2f}" y="0" width="{step:.2f}" height="{height}"/>'
        for each in series:
            value = each.values[place]
            tall = value / top * height if top else 0.0
            if value > 0:
                tall = max(tall, 1.0)
            y -= tall
            body += (
                f'<rect class="bar-{each.kind}" x="{place * step + step * 0.12:.2f}" y="{y:.2f}"'
                f' width="{step * 0.76:.2f}" height="{tall:.2f}"/>'
            )
        at = ' class="at"' if used and place == used[-1] else ""
        shapes.append(f"<g{at}><title>{escape(lines[place])}</title>{body}</g>")
    words = ", ".join(f"{each.total} {each.name}".strip() for each in series)
    drawing = Markup(  # noqa: S704 - escaped above
        f'<svg class="bars" viewBox="0 0 {width} {height}" preserveAspectRatio="none" role="img"'
        f' aria-label="{escape(title)}: {escape(words)}">{"".join(shapes)}</svg>'
    )
    labels = label_dates(bars)
    return Chart(
        title=title,
        drawing=drawing if used else None,
        top=form(top) if top else "",
        half=form(top / 2) if top > 1 or form is dollars else "",
        zero=form(0),
        labels=labels,
        has_all_labels=len(labels) == len(bars),
        series=series,
        shown=lines[used[-1]] if used else "",
        empty=empty,
    )


def label_dates(bars: Sequence[Bar]) -> list[str]:
    """Return the dates below a chart: of each day of a week, else of a few columns at equal distances."""
    if not bars:
        return []
    is_by_day = bars[-1].first == bars[-1].last
    last = len(bars) - 1
    count = MAX_DATES if is_by_day else MAX_MONTHS
    places = list(range(len(bars)))
    if last > count:
        places = [round(number * last / (count - 1)) for number in range(count)]
    if is_by_day:
        return [f"{bars[place].first:%b} {bars[place].first.day}" for place in places]
    return [f"{bars[place].first:%b %Y}" for place in places]


def round_up(number: float, *, is_count: bool) -> float:
    """Return a round number for the top of an axis, near above a number; half of it is short to write."""
    if number <= 0:
        return 0.0
    power = 1.0 if is_count else 1e-6
    while True:
        # Half of a small count is to be a whole number.
        is_small = is_count and power == 1.0
        for digit in (1, 2, 4, 6, 8) if is_small else (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8):
            if digit * power >= number:
                return digit * power
        power *= 10


def today_of(milliseconds: int) -> date:
    """Return the day of a moment in the local calendar."""
    return local(milliseconds).date()
