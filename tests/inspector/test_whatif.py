"""Replays of a session with another window, model or setting, over HTTP and in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.errors import InputError
from holdfast.figures import Totals
from holdfast.messages import Message, Text, Usage
from holdfast.providers.models import find_price
from holdfast.report import NAMES, Change, ContextReport
from holdfast.server.inspector.data import override
from holdfast.server.inspector.web import Inspector
from holdfast.server.inspector.whatif import ReplayedTurn, Row, Run, Side, Wish, compare, make_settings, read_wish
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.timeline import PastTurn, WindowSource
from inspector.conftest import Running, find_violations, open_page
from support import patient
from support.waiting import PATIENCE

Page = Any
HARBOUR = "whatif?session=harbour"
HALF = "limit=4000&model=claude-sonnet-4-5"
"""A replay that several tests look at; the server makes it once."""


def replay(running: Running, query: str, *, page: str = HARBOUR) -> str:
    """Ask for a replay until it is done, and return the page."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        answer = patient.get(f"{running.key_url}{page}&go=1&{query}")
        assert answer.status_code == 200, answer.text
        if "data-busy" not in answer.text:
            return answer.text
        time.sleep(0.1)
    raise AssertionError("the replay does not end")


def read_row(text: str, name: str) -> list[str]:
    """Return the cells of a line of the comparison."""
    (line,) = re.findall(rf'<tr><th scope="row">{name}</th>(.*?)</tr>', text)
    return [re.sub("<.*?>", "", cell).strip() for cell in line.split("</td>")]


def test_a_smaller_window_sends_less_and_cuts_more(running: Running) -> None:
    """The same requests, in the same order."""
    text = replay(running, HALF)
    before, after, *_ = read_row(text, "Requests")
    assert before == after == "15"
    before, after, *_ = read_row(text, "Tokens sent")
    assert int(after.replace(",", "")) < int(before.replace(",", ""))
    before, after, *_ = read_row(text, "Requests with a cut")
    assert int(after) > int(before)
    before, after, *_ = read_row(text, "Cost of the requests, estimated")
    assert before.startswith("$")  # the model of the session is not known: both have the same price
    assert after.startswith("$")
    assert text.count('class="chart"') == 2


def test_the_reported_cost_is_next_to_the_estimates(running: Running, running_alone: Running) -> None:
    """The page says why they differ, and that nothing was reported if that is so."""
    session = running_alone.engine.session("reported 已报告")
    window = session.assemble([{"role": "user", "content": "How high is the tide? 潮水多高?"}], limit=8_000)
    usage = Usage(input=100_000, output=2_000, cache_read=300_000)
    reply = Message(role="assistant", parts=(Text(text="Two."),), model="claude-sonnet-4-5", usage=usage)
    session.append([reply], after=window.place)
    text = replay(running_alone, "limit=4000", page="whatif?session=reported+%E5%B7%B2%E6%8A%A5%E5%91%8A")
    assert "estimates for the requests without their replies" in text
    assert "the session cost <b>$0.42</b>, replies included." in text
    assert "75% were reported as read from the cache, and the estimate assumes 0%" in text
    assert "none of its replies reported usage" in replay(running, HALF)


def test_a_cost_without_a_price_is_not_known(running_alone: Running) -> None:
    """The page names the model, also if its name looks like HTML."""
    session = running_alone.engine.session("unpriced")
    window = session.assemble([{"role": "user", "content": "How high is the tide? 潮水多高?"}], limit=8_000)
    reply = Message(role="assistant", parts=(Text(text="Two."),), model="<b>mine</b>", usage=Usage(input=9, output=2))
    session.append([reply], after=window.place)
    text = replay(running_alone, "", page="whatif?session=unpriced")
    assert "What the session really cost is not known: there is no price for &lt;b&gt;mine&lt;/b&gt;." in text


def test_a_replay_says_before_its_table_why_it_differs_from_what_was(running: Running) -> None:
    """With nothing changed, a difference would be taken for an error."""
    before_table = replay(running, HALF).split("<table")[0]
    assert "may differ a little even with the same settings" in before_table
    before_table = replay(running, "").split("<table")[0]
    assert "No setting differs from what was used, so every difference below is one of the replay" in before_table


def test_without_recall_nothing_is_recalled(running: Running) -> None:
    """A setting is changed in the replay alone."""
    text = replay(running, "set=recall.enabled%3Dfalse")
    before, after, *_ = read_row(text, "Requests with a recall")
    assert int(before) > 0
    assert after == "0"
    assert running.engine.settings.recall.enabled


def test_a_model_has_its_own_window(running: Running) -> None:
    """A larger window needs no cut."""
    text = replay(running, "model=gpt-4o")
    assert read_row(text, "Requests with a cut")[1] == "0"
    assert "128,000" in text


def test_a_window_that_is_too_small_refuses_requests(running: Running) -> None:
    """They are counted, and the others are shown."""
    text = replay(running, "limit=1000", page="whatif?session=hostile+%3Cb%3Ename%3C%2Fb%3E")
    assert int(read_row(text, "Requests that do not fit")[1]) > 0


def test_the_memory_does_not_change(running: Running) -> None:
    """Neither messages nor records nor facts."""
    store = running.engine._memory.store
    scope = running.engine.session("harbour").scope

    def read() -> list[int]:
        messages = store.read_messages(Select(scope=scope))
        records = [record for record in store.read_records(Select(scope=scope)) if record.kind != "title"]
        return [len(messages), len(records), len(store.read_facts(Select(scope=scope, across=True)))]

    before = read()
    replay(running, "limit=5000")
    assert read() == before


@pytest.mark.parametrize(
    "query", ["limit=12", "limit=999999999999", "set=recall.nothing%3D1", "set=recall.enabled%3Dmaybe", "limit=many"]
)
def test_a_wrong_wish_is_an_error_in_words(running: Running, query: str) -> None:
    """It says what is wrong."""
    answer = patient.get(f"{running.key_url}{HARBOUR}&go=1&{query}")
    assert answer.status_code in {400, 404}
    assert "problem" in answer.text or "Not" in answer.text


def test_a_wish_runs_no_command(running: Running, tmp_path: Path) -> None:
    """The key of the store may name one, so no page may change where it is."""
    made = tmp_path / "made"
    wish = quote(f"archive.encryption_key=command:touch {made}")
    answer = patient.get(f"{running.key_url}{HARBOUR}&go=1&set={wish}")
    assert answer.status_code in {400, 404}
    assert "belongs to the store" in answer.text
    assert not made.exists()


@pytest.mark.parametrize("change", ["archive.encryption_key=env:OTHER", "archive.encryption_key=null"])
def test_no_page_changes_where_the_key_is(change: str) -> None:
    """A copy of the store for a replay has the key of the store."""
    with pytest.raises(InputError, match="belongs to the store"):
        override(Settings(), change)


def test_without_a_session_one_chooses_it(running: Running) -> None:
    """A session that was never assembled says that there is nothing to replay."""
    assert "whatif?session=harbour" in patient.get(f"{running.key_url}whatif").text
    running.engine.session("imported 导入").append([{"role": "user", "content": "hello"}])
    text = patient.get(f"{running.key_url}whatif?session=imported+%E5%AF%BC%E5%85%A5&go=1").text
    assert "nothing to replay" in text


def make_side(*turns: tuple[int, float | None], model: str = "claude-sonnet-4-5") -> Side:
    """Make a side of requests with these tokens and unchanged beginnings."""
    made: list[ReplayedTurn] = []
    for number, (tokens, kept) in enumerate(turns, start=1):
        source = WindowSource(
            base="",
            kept=0,
            added=(),
            system=(),
            edits=(0, 0),
            limit=9,
            provider="anthropic",
            window=9,
            sizes=(0,) * len(NAMES),
            changes=(),
        )
        report = ContextReport(
            session="s",
            turn=number,
            total_tokens=tokens,
            raw_max_tokens=9_000,
            percentage=1.0,
            categories=(),
            changes=(Change(kind="trimmed", ids=(1,), reason="", tokens_before=9, tokens_after=0),),
            prefix_kept=kept,
        )
        past = PastTurn(record=number, key=str(number), number=number, time=0, source=source)
        made.append(ReplayedTurn(past=past, report=report))
    return Side(turns=made, model=model, price=find_price(model))


def test_the_unchanged_beginning_has_the_price_of_a_cache_read() -> None:
    """The rest has that of input."""
    side = make_side((1_000, None), (2_000, 1.0), (500, 0.5))
    assert side.kept == 1_000 + 500
    price = find_price("claude-sonnet-4-5")
    assert price is not None
    assert side.cost == pytest.approx(price.cost(Usage(input=1_000 + 1_000, cache_read=1_500)))
    assert make_side((1, None), model="nobody knows").cost is None
    rows = {row.name: row for row in compare(side, make_side((1_750, None)))}
    assert rows["Tokens sent"].change == -0.5
    assert rows["Tokens sent"].shown_change == "−50%"
    assert rows["Requests that do not fit"].change is None
    assert rows["Requests that do not fit"].shown_change == ""
    assert Row(name="", before=3, after=4).shown_change == "+33%"
    assert Row(name="", before=1_000, after=999).shown_change == ""
    assert rows["Requests with pruned results"].before == 0


def test_a_replay_that_goes_on_is_shown_as_far_as_it_has_come(running: Running) -> None:
    """The columns say so, and the page goes on by itself; without scripts one reloads it."""
    first, second = make_side((1_000, None), (2_000, 1.0)).turns
    wish = Wish(scope=Scope(), limit=4_000)
    run = Run(wish=wish, total=2, recorded=[first, second], replayed=[first])
    text = show(running, run)
    assert "1 of 2 requests are replayed so far; the page follows." in text
    assert "<noscript>Reload it to see more.</noscript>" in text
    assert "As it was, so far" in text
    assert "What if, so far" in text
    run.replayed.append(second)
    run.is_done = True
    assert "so far" not in show(running, run)


def test_a_replay_that_stopped_is_not_shown_as_a_whole_one(running: Running) -> None:
    """It has the words of the problem, and says how far it came."""
    first, second = make_side((1_000, None), (2_000, 1.0)).turns
    run = Run(wish=Wish(scope=Scope()), total=2, recorded=[first, second], replayed=[first], is_done=True)
    run.problem = "the memory was closed 内存已关闭"
    text = show(running, run)
    assert "The replay stopped after 1 of 2 requests: the memory was closed 内存已关闭" in text
    assert "What if, so far" in text


def show(running: Running, run: Run) -> str:
    """Render the result of a replay as the page does."""
    inspector = Inspector(running.engine, token="secret")
    values = inspector._whatif._compare(run, "claude-sonnet-4-5")
    return inspector._render("_whatif.html", run=run, reported=Totals(), scope=run.wish.scope, **values)


def test_nothing_leaves_the_machine() -> None:
    """A replay has no embedder and no model, whatever the settings say."""
    settings = make_settings(Settings(embedding=Embedding(provider="openai", allow_remote=True)))
    assert settings.embedding.provider == "none"
    assert settings.compaction.model is None
    assert not settings.knowledge.extraction


def test_a_window_out_of_range_is_refused() -> None:
    """With the range in the message."""
    with pytest.raises(InputError, match="1,000 to 100,000,000"):
        read_wish({"limit": "3"}, Scope())


@pytest.fixture
def page(tab: Any, running: Running) -> Iterator[Page]:
    """A page of the inspector; whatever the browser complains about fails the test."""
    with open_page(tab, running, path=None) as page:
        yield page


def test_a_person_replays_a_session_with_half_of_its_window(page: Page, running: Running) -> None:
    """From the page of the session to both charts; the page follows the replay."""
    page.goto(running.key_url + "session?session=harbour")
    page.click("text=What if …")
    page.click("text=half the window")
    page.wait_for_selector(".whatif-charts .chart >> nth=1")
    page.wait_for_selector("[data-busy]", state="detached")
    assert "4,000" in page.inner_html(".whatif-charts section >> nth=1")
    page.fill("input[name=limit]", "")
    page.fill("input[name=set]", "recall.enabled=false")
    page.click("text=Replay")
    page.wait_for_selector("tr:has-text('Requests with a recall') td:nth-child(3):has-text('0')")
    page.wait_for_selector("[data-busy]", state="detached")
    chart = page.locator(".whatif-charts .chart >> nth=1")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 2.5 / 15, box["y"] + 100)
    for place in (0, 1):
        page.wait_for_selector(f".whatif-charts .readout:has-text('Turn 3: ') >> nth={place}")
    page.mouse.click(box["x"] + box["width"] * 2.5 / 15, box["y"] + 100)
    page.wait_for_selector("#turn-view h2:has-text('Turn 3')")


def test_the_page_is_accessible(page: Page, running: Running) -> None:
    """In light and dark, axe finds nothing, and nothing is wider than a narrow screen."""
    page.goto(running.key_url + HARBOUR + f"&go=1&{HALF}")
    page.wait_for_selector("[data-busy]", state="detached")
    assert find_violations(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_long_names_of_models_fit_on_a_narrow_screen(page: Page, running: Running) -> None:
    """They are broken within their column."""
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(running.key_url + HARBOUR + "&model=claude-sonnet-4-5-20250929&go=1")
    page.wait_for_selector("[data-busy]", state="detached")
    page.wait_for_selector("td.name:has-text('claude-sonnet-4-5-20250929') >> nth=0")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_every_mark_of_the_charts_is_in_their_key(running: Running) -> None:
    """As on the page of a session."""
    key = replay(running, HALF).split("Key of the marks")[1].split("</ul>")[0]
    for name, words in {
        "pruned": "pruned",
        "trimmed": "cut",
        "compacted": "compacted",
        "recalled": "recalled",
        "overview": "overview added",
    }.items():
        assert f"mark {name}" in key
        assert f"</svg>{words}</li>" in key
