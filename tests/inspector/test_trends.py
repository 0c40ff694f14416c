"""Figures of turns, sessions and days in the inspector, read over HTTP and in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from holdfast.figures import Totals, dollars
from holdfast.memory.sessions import record_host
from holdfast.messages import Message, Text, Usage
from holdfast.server.inspector.trends import (
    describe_cost,
    draw_charts,
    explain_no_cost,
    label_dates,
    make_bars,
    round_up,
    share,
    spent_time,
)
from holdfast.store.base import TurnSum
from inspector.conftest import Running, find_violations, open_page
from support import patient
from support.cases import each

Page = Any
MODEL = "claude-sonnet-4-5"
USAGE = Usage(input=100_000, output=2_000, cache_read=300_000)
COST = "$0.42"


@pytest.fixture(scope="module")
def costly(running: Running) -> Running:
    """The server, with a session that has cost something, one without a price and one that was refused."""
    session = running.engine.session("costly 费用", agent="codex")
    window = session.assemble([say("user", "How high is the tide? 潮水多高?")], limit=8_000, model=MODEL)
    session.append([say("assistant", "Two metres.", model=MODEL)], after=window.place)
    other = running.engine.session("local <i>model</i>")
    other.append([say("user", "And the wind?"), say("assistant", "West.", model="<b>mine</b>")])
    refused = running.engine.session("refused")
    window = refused.assemble([say("user", "Are you there?")], limit=8_000)
    refused._record_refusal("status 529", place=window.place)
    return running


def say(role: Any, text: str, *, model: str | None = None) -> Message:
    """Make a message, with usage if it names a model."""
    return Message(role=role, parts=(Text(text=text),), model=model, usage=USAGE if model else None)


def say_before(days: int, text: str) -> Message:
    """Make a reply of some days ago, with usage."""
    then = datetime.now(UTC) - timedelta(days=days)
    return replace(say("assistant", text, model=MODEL), timestamp=int(then.timestamp() * 1000))


@pytest.fixture
def page(tab: Any, costly: Running) -> Iterator[Page]:
    """A page of the inspector; whatever the browser complains about fails the test."""
    with open_page(tab, costly, path=None) as page:
        yield page


def get(running: Running, path: str) -> str:
    """Get a page."""
    answer = patient.get(running.key_url + path)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_the_page_of_a_turn_has_its_price_its_cached_share_and_its_times(costly: Running) -> None:
    """They are those of the reply that was appended."""
    text = get(costly, "turn?session=costly+%E8%B4%B9%E7%94%A8&agent=codex&turn=1&page=1")
    for expected in (MODEL, COST, "75%", "400,000 tokens", "Time to assemble"):
        assert expected in text


def test_a_turn_without_reported_usage_says_so(costly: Running) -> None:
    """Nothing is invented."""
    text = get(costly, "turn?session=harbour&turn=3&page=1")
    assert "not reported" in text
    assert "<dd>unknown</dd>" in text
    assert "$" not in text.split("turn-figures")[1].split("</dl>")[0]


def test_a_session_that_was_only_imported_has_its_page(costly: Running) -> None:
    """Without a chart, and with the usage that its messages have."""
    text = get(costly, "session?session=local+%3Ci%3Emodel%3C%2Fi%3E")
    assert "price unknown" in text
    assert "And the wind?" in text


def test_a_refused_turn_says_so(costly: Running) -> None:
    """Its price is not unknown: there is none."""
    assert "<dd>refused</dd>" in get(costly, "turn?session=refused&turn=1&page=1")


def test_a_model_without_a_price_has_an_unknown_cost(costly: Running) -> None:
    """Its name is shown as text."""
    text = get(costly, "trends")
    assert "&lt;b&gt;mine&lt;/b&gt;" in text
    assert "<b>mine" not in text
    assert "unknown" in text


def test_a_plus_after_a_cost_is_explained(running_alone: Running) -> None:
    """In words on the page for a screen without a pointer, and in a title next to each; on the list of sessions too."""
    session = running_alone.engine.session("partly priced 部分")
    for model in (MODEL, "<b>mine</b>"):
        window = session.assemble([say("user", f"And with {model}? 呢?")], limit=8_000)
        session.append([say("assistant", "Two metres.", model=model)], after=window.place)
    text = get(running_alone, "trends")
    plus = '<abbr title="without models whose price is unknown">+</abbr>'
    assert plus in text
    assert "A + after a cost: models whose price is unknown are not in it." in text
    assert f"{COST}{plus}" in get(running_alone, "")


def test_a_session_whose_host_nobody_named_has_an_unknown_one(costly: Running) -> None:
    """The default agent is not a host; a recorded host is."""
    session = costly.engine.session("hosted 主机")
    session.assemble([say("user", "Where are you? 你在哪里?")], limit=8_000)
    record_host(costly.engine._memory.store, "harbour-ide", scope=session.scope, time=1)
    hosts = get(costly, "trends").split("<h2>Hosts")[1].split("</table>")[0]
    names = re.findall('<th scope="row">(.*?)</th>', hosts)
    assert {"unknown", "codex", "harbour-ide"} <= set(names)
    assert "main" not in names


@pytest.mark.parametrize("days", ["", "7", "365", "9999", "-1"])
def test_every_period_has_its_page(costly: Running, days: str) -> None:
    """One that is not offered is the usual one."""
    assert "Last 7 days" in get(costly, f"trends?days={days}")


@pytest.mark.parametrize(("age", "days", "empty"), [(2, 30, 0), (60, 90, 30), (200, 365, 90)])
def test_it_opens_on_the_usual_period_or_the_shortest_longer_one_with_figures(
    running_alone: Running, age: int, days: int, empty: int
) -> None:
    """What it left out is said, unless somebody chose the period."""
    running_alone.engine.session("old").append([say_before(age, "Two metres.")])
    text = get(running_alone, "trends")
    assert f'data-name="{days} days" aria-current="page"' in text
    assert re.findall(r"Nothing in the last (\d+) days", text) == ([str(empty)] if empty else [])
    assert "Nothing in the last" not in get(running_alone, "trends?days=30")
    assert MODEL in text.split("<h2>Models")[1]


def test_figures_that_are_older_than_every_period_are_named(running_alone: Running) -> None:
    """They are in the last row of the totals only."""
    running_alone.engine.session("old").append([say_before(500, "Two metres.")])
    text = get(running_alone, "trends")
    assert 'data-name="30 days" aria-current="page"' in text
    assert "Nothing in the last 365 days" in text
    assert "400k" in text.split("Since the beginning")[1].split("</tr>")[0]


def test_a_period_that_is_no_number_is_an_error_in_words(costly: Running) -> None:
    """As on other pages."""
    assert patient.get(costly.key_url + "trends?days=week").status_code == 400


def test_no_days_make_empty_charts() -> None:
    """Nothing is divided by zero."""
    assert all(chart.top == "" for chart in draw_charts([]))


@pytest.mark.parametrize(
    ("cost", "top", "half"), [(1.8, "$2.00", "$1.00"), (17.0, "$20.00", "$10.00"), (0.0123, "$0.0160", "$0.0080")]
)
def test_the_axis_of_costs_has_the_right_dollars(cost: float, top: str, half: str) -> None:
    """Tokens are shortened, dollars are not."""
    sent = TurnSum(turns=1, sent=3_400_000)
    bars = make_bars([(date(2026, 11, 17), Totals(cost=cost, replies=1, turns=sent))])
    charts = {chart.title: chart for chart in draw_charts(bars)}
    assert (charts["Cost"].top, charts["Cost"].half) == (top, half)
    assert (charts["Tokens sent and saved"].top, charts["Tokens sent and saved"].half) == ("4M", "2M")


@each(("number", "top"), [(1, 1), (3, 4), (7, 8), (11, 12), (59, 60), (134, 160), (1_080_000, 1_200_000), (0, 0)])
def test_the_top_of_an_axis_is_a_round_number_near_the_highest_bar(number: float, top: float) -> None:
    """And half of it is a whole number, if it is a count of more than one."""
    assert round_up(number, is_count=True) == pytest.approx(top)
    assert round_up(1.02, is_count=False) == pytest.approx(1.2)


def test_dates_below_a_chart_are_of_all_its_columns_or_of_some_at_equal_distances() -> None:
    """Weeks are named by their month."""
    days = [(date(2026, 1, 1) + timedelta(days=number), Totals()) for number in range(365)]
    assert label_dates(make_bars(days[:7])) == ["Jan 1", "Jan 2", "Jan 3", "Jan 4", "Jan 5", "Jan 6", "Jan 7"]
    assert label_dates(make_bars(days[:30])) == ["Jan 1", "Jan 7", "Jan 13", "Jan 18", "Jan 24", "Jan 30"]
    assert label_dates(make_bars(days)) == ["Jan 2026", "Mar 2026", "Jun 2026", "Sep 2026", "Dec 2026"]


def test_a_cost_is_written_in_one_way() -> None:
    """In tables and below charts: of a day without use, without reports, and with models that have no price."""
    sent = TurnSum(turns=1, sent=300)
    cases = [
        (Totals(), "all", "$0"),
        (Totals(turns=sent), "unreported", "not reported"),
        (Totals(replies=2, cost=2.66), "all", "$2.66"),
        (Totals(replies=2, cost=2.66, unpriced=("mine",)), "part", "$2.66+"),
        (Totals(replies=2, unpriced=("mine",)), "none", "unknown"),
    ]
    for totals, known, words in cases:
        assert (totals.known_cost, describe_cost(totals)) == (known, words)
        assert bool(explain_no_cost(totals)) == (known in {"none", "unreported"})


def test_charts_and_tables_name_the_day_or_the_week_that_they_add_up(costly: Running) -> None:
    """Otherwise the bars of a year look like days."""
    assert '<h2>Cost <span class="meta">by day</span></h2>' in get(costly, "trends?days=90")
    text = get(costly, "trends?days=365")
    assert '<h2>Cost <span class="meta">by week</span></h2>' in text
    assert "Numbers by week" in text


def test_a_chart_without_any_number_says_none(costly: Running) -> None:
    """An empty box reads as a fault."""
    charts = {chart.title: chart for chart in draw_charts(make_bars([(date(2026, 11, 17), Totals())]))}
    assert charts["Errors"].drawing is None
    cuts = get(costly, "trends?days=7").split("<h2>Cost")[1].split("<h2>Models")[0]
    assert "dollars" not in cuts


@pytest.mark.parametrize(
    ("totals", "says"),
    [
        (Totals(replies=2, unpriced=("mine", "我的")), "Unknown: there is no price for mine, 我的."),
        (Totals(turns=TurnSum(turns=1, sent=300)), "Not reported:"),
        (Totals(), ""),
    ],
)
def test_a_chart_of_costs_that_are_not_known_says_so(totals: Totals, says: str) -> None:
    """The word "None" would read as free of charge."""
    chart = draw_charts(make_bars([(date(2026, 11, 17), totals)]))[0]
    assert chart.drawing is None
    assert chart.empty.startswith(says)
    assert bool(chart.empty) == bool(says)


def test_sessions_of_unknown_cost_are_not_among_those_that_cost_most(running_alone: Running) -> None:
    """If no cost is known, the list is by what was sent, and says that."""
    free = running_alone.engine.session("unpriced 无价")
    window = free.assemble([say("user", "Where is the buoy? 浮标在哪里?")], limit=8_000)
    free.append([say("assistant", "West.", model="<b>mine</b>")], after=window.place)
    text = get(running_alone, "trends")
    assert "<h2>Sessions that sent most, in 30 days</h2>" in text
    assert "Unknown: there is no price for &lt;b&gt;mine&lt;/b&gt;." in text
    paid = running_alone.engine.session("priced")
    window = paid.assemble([say("user", "And the pier?")], limit=8_000)
    paid.append([say("assistant", "East.", model=MODEL)], after=window.place)
    table = get(running_alone, "trends").split("<h2>Sessions that cost most")[1].split("</table>")[0]
    assert "And the pier?" in table
    assert "Where is the buoy?" not in table


def test_figures_are_short() -> None:
    """A person reads them."""
    assert [dollars(amount) for amount in (0, 0.0123, 0.5, 1234.5)] == ["$0", "$0.0123", "$0.50", "$1,234.50"]
    assert [share(part) for part in (None, 0.754)] == ["unknown", "75%"]
    assert [spent_time(spent) for spent in (None, 12.3, 3_400)] == ["unknown", "12 ms", "3.4 s"]


def test_a_person_finds_out_what_this_week_cost(page: Page, costly: Running) -> None:
    """From the sum of the week to the session that it is for."""
    page.goto(costly.key_url)
    page.click("nav >> text=Trends")
    row = page.locator("tr", has_text="Last 7 days")
    assert COST in row.inner_text()
    page.click("nav.periods >> text=7 days")
    page.wait_for_url(costly.key_url + "trends?days=7")
    page.click("table >> text=How high is the tide?")
    page.wait_for_selector(".totals")
    assert COST in page.inner_text(".totals")


def test_a_click_and_the_arrow_keys_show_the_numbers_of_a_day(page: Page, costly: Running) -> None:
    """In a line below the chart, for a finger too."""
    page.goto(costly.key_url + "trends?days=7")
    chart = page.locator(".trend", has_text="Cost").first
    chart.locator(".bars[role=slider]").wait_for()
    assert COST in chart.locator(".readout").inner_text()
    today = chart.locator(".readout").inner_text()[:10]
    columns = chart.locator(".bars g")
    columns.nth(0).click()
    first = chart.locator(".readout").inner_text()
    assert first.endswith(": $0")
    chart.locator(".bars").focus()
    page.keyboard.press("End")
    assert chart.locator(".readout").inner_text().startswith(today)
    assert chart.locator(".bars").get_attribute("aria-valuetext") == chart.locator(".readout").inner_text()


def test_all_columns_can_be_reached_on_a_narrow_screen(page: Page, costly: Running) -> None:
    """The tables scroll sideways, a line says so, and the name of each row stays."""
    page.goto(costly.key_url + "trends")
    assert page.is_hidden(".sideways")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.is_visible(".sideways")
    for table in page.locator(".wide:visible").all():
        table.evaluate("table => { table.scrollLeft = table.scrollWidth; }")
        last = table.locator("tbody tr:first-child > :last-child").bounding_box()
        first = table.locator("tbody tr:first-child > :first-child").bounding_box()
        assert last is not None
        assert first is not None
        assert last["x"] + last["width"] <= 390
        assert 0 <= first["x"] < first["x"] + first["width"] < last["x"]


def test_the_page_is_accessible(page: Page, costly: Running) -> None:
    """In light and dark, axe finds nothing, and nothing is wider than a narrow screen."""
    page.goto(costly.key_url + "trends")
    assert find_violations(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert find_violations(page) == []
