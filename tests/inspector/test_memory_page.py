"""The memory page: the table of facts, contradictions, changes one by one and in bulk, undo, overview and notes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import Engine, Session
from holdfast.server.inspector.facts import MAX_QUICK
from holdfast.settings import Embedding, Settings
from holdfast.store.base import FactRow
from inspector.conftest import Running, find_violations, open_page, serve
from support.waiting import PATIENCE, UNHURRIED

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A server over a memory with one session and a few facts."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False, personal=True) as engine:
        session = engine.session("harbour", project="/pier")
        session.remember("The ledger listens on port 7001.", type="config", subject="ledger", slot="port")
        session.remember("港口账本每天六点导出。", subject="港口账本", slot="导出时间")
        question = {"role": "user", "content": "Which port does the ledger listen on?"}
        session.assemble([question], limit=8_000)
        with serve(engine) as started:
            yield started


@pytest.fixture
def client(running: Running) -> Iterator[httpx.Client]:
    """A client that has the key."""
    with httpx.Client(base_url=running.key_url) as client:
        yield client


@pytest.fixture
def page(tab: Any, running: Running) -> Iterator[Any]:
    """The memory page in a browser."""
    with open_page(tab, running, path="memory") as page:
        page.wait_for_selector("#live.on")
        yield page


def test_a_fact_of_a_client_of_mcp_has_its_name(running: Running, client: httpx.Client) -> None:
    """Its session has no messages; what a person corrects in a conversation is not the work of a program."""
    tool = running.engine.session("mcp", project="/pier")
    tool._record_host("Claude Code")
    tool.remember("The tide gate opens at 5:20.")
    session_of(running)._record_host("OpenClaw")
    page = client.get("memory").text
    assert page.count('<span class="meta">stored by Claude Code</span>') == 1
    assert page.count('<span class="meta">added by hand</span>') == 2


def test_an_edit_can_be_undone_after_the_page_is_loaded_again(
    running: Running, client: httpx.Client, page: Any
) -> None:
    """The store has the fact that was replaced: another page, or another server, offers to go back to it."""
    old = find(running, "账本每天六点")
    assert act(client, "correct", old, content="港口账本每天七点导出。").status_code == 200
    page.goto(running.key_url + "memory")
    row = page.locator("tr.fact:has(.content:has-text('七点'))")
    row.locator(".menu summary").click()
    row.get_by_role("button", name="Go back to what it replaced").click()
    page.wait_for_selector("tr.fact .content:has-text('六点')")
    assert page.locator("tr.fact .content", has_text="七点").count() == 0
    assert find(running, "账本每天六点").id == old.id


def test_a_fact_that_is_stored_before_the_page_is_connected_is_shown(running: Running, tab: Any) -> None:
    """The page is made first, and its script comes a moment later: what is stored between the two is not missed."""

    def store_before(route: Any) -> None:
        session_of(running).remember("The tide gate opens at 5:20.")
        route.continue_()

    with open_page(tab, running, path=None) as page:
        page.route("**/static/inspector.js", store_before)
        page.goto(running.key_url + "memory")
        page.wait_for_selector(".fact .content:has-text('5:20')")


def test_a_contradiction_that_was_settled_can_be_reported_again(running: Running, page: Any) -> None:
    """Also after the page is loaded again."""
    session = session_of(running)
    first = session.remember("The tide gate opens at 5:20.", subject="tide gate")
    second = session.remember("The tide gate opens at 6:40, says Ann.", subject="tide gate")
    session.keep_all_facts([first.id, second.id])
    page.goto(running.key_url + "memory")
    row = page.locator("tr.fact:has(.content:has-text('5:20'))")
    row.locator(".more-about summary").click()
    row.get_by_role("button", name="Report the contradiction again").click()
    page.wait_for_selector("#said.on")
    assert not running.engine._memory.exclusions(scope=session.scope).pairs


def test_facts_of_one_millisecond_are_in_the_order_of_their_storing(tmp_path: Path) -> None:
    """A fast machine stores several facts in a millisecond; the last of them is still the newest."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False, clock=lambda: 1_790_000_000_000) as engine:
        session = engine.session("harbour")
        words = [f"Gate {number} opens at {number} o'clock." for number in range(5, 10)]
        for sentence in words:
            session.remember(sentence)
        with serve(engine) as running, httpx.Client(base_url=running.key_url) as client:
            newest_first = client.get("memory?rows=1").text
            oldest_first = client.get("memory?rows=1&sort=age&order=reverse").text
    starts = [sentence[:12] for sentence in words]
    assert sorted(starts, key=oldest_first.index) == starts
    assert sorted(starts, key=newest_first.index) == starts[::-1]


def test_the_age_of_a_replaced_fact_is_that_of_its_words(tmp_path: Path) -> None:
    """The version that says that it was replaced is younger, and says when that was."""
    hour = 3_600_000
    now = [int(time.time() * 1000) - 50 * hour]
    with Engine.open(tmp_path, settings=SETTINGS, background=False, clock=lambda: now[0]) as engine:
        session = engine.session("harbour")
        session.remember("The ledger listens on port 7001.", subject="ledger", slot="port")
        now[0] += 47 * hour
        session.remember("The ledger listens on port 7002.", subject="ledger", slot="port")
        with serve(engine) as running, httpx.Client(base_url=running.key_url) as client:
            text = client.get("memory?state=over&rows=1").text
    assert 'ago</time></span><span class="narrow">' in text
    assert re.search(r"2 days</time><span class=.ended.>replaced <time[^>]*>3 hours ago</time>", text)


def test_a_column_without_any_subject_is_left_out(running_alone: Running) -> None:
    """It would take the room of the facts."""
    session = running_alone.engine.session("harbour")
    session.remember("Ann prefers short answers. 简短回答。")
    with httpx.Client(base_url=running_alone.key_url) as client:
        assert ">Subject<" not in client.get("memory?rows=1").text
        session.remember("The ledger listens on port 7001.", subject="ledger", slot="port")
        assert ">Subject</a>" in client.get("memory?rows=1").text


def test_health_counts_facts_as_the_list_does(running_alone: Running) -> None:
    """Those that no longer hold are counted apart; whoever undoes a new fact did not retire it."""
    session = running_alone.engine.session("harbour")
    session.remember("Ann prefers short answers.")
    with httpx.Client(base_url=running_alone.key_url) as client:
        assert re.search(r">1</span> fact that holds</div>", client.get("health").text)
        added = act(client, "add", content="The ledger listens on port 7001.")
        act(client, "undo", undo=added.headers["x-undo"])
        assert re.search(r">1</span> fact that holds, 1 that no longer does</div>", client.get("health").text)
        over = client.get("memory?state=over&rows=1").text
        assert '<span class="ended">ended <time' in over
        assert "retired" not in over


def session_of(running: Running) -> Session:
    """Return the session that the facts are of."""
    return running.engine.session("harbour", project="/pier")


def find(running: Running, words: str) -> FactRow:
    """Return the fact that holds and has these words."""
    (row,) = (row for row in session_of(running).facts() if words in row.content)
    return row


def act(client: httpx.Client, action: str, *facts: FactRow, **values: str) -> httpx.Response:
    """Press a button of facts."""
    lines = []
    for row in facts:
        owner = {"project": row.scope.project, "session": row.scope.session, "fact": row.id}
        lines.append(str(httpx.QueryParams(owner)))
    return client.post("/act", data={"action": action, "items": "\n".join(lines), **values})


def open_menu(page: Any, words: str) -> None:
    """Open the menu of a fact."""
    page.click(f".fact:has-text('{words}') .menu summary")


class TestPages:
    def test_a_row_has_what_is_known_of_a_fact(self, client: httpx.Client) -> None:
        """Its subject, its age, and how often it was recalled."""
        text = client.get("/memory").text
        row = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text[text.index("The ledger listens") :]))
        assert "ledger port" in row
        assert "1 time less than a minute ago" in row
        assert "港口账本每天六点导出。" in text

    def test_the_list_says_what_counts_as_a_recall(self, client: httpx.Client) -> None:
        """A fact that only the overview of a session showed was never recalled."""
        text = client.get("/memory").text
        assert re.search(r'title="[^"]*overview[^"]*is not[^"]*">never<', text)
        assert "does not count" in text

    def test_only_a_fact_with_evidence_leads_to_its_source(self, client: httpx.Client, running: Running) -> None:
        """A link to the end of the conversation would look like a proof."""
        text = client.get("/memory").text
        assert '<span class="meta">added by hand</span>' in text
        assert 'href="session?' not in text
        (message,) = session_of(running).messages()
        row = replace(find(running, "The ledger listens"), evidence=(message.id,))
        running.engine._memory.store.add_facts([row])
        proven = unescape(client.get("/memory?q=listens").text)
        assert f"message={message.id}#m{message.id}" in proven
        assert "Which port does the ledger listen on?</a>" in proven  # the title of the session
        assert "added by hand" not in proven

    def test_filters_and_orders(self, client: httpx.Client, running: Running) -> None:
        """By words, type, project and state; by each column, in both directions."""
        port = "ledger listens"  # its number may be a part of a time in the page
        session_of(running).pin_facts([find(running, "六点").id])
        filters = {
            "q=7001": {port},
            "q=账本": {"六点"},
            "type=config": {port},
            "state=pinned": {"六点"},
            "state=unused": {"六点"},
            "state=over": set(),
            "project=/elsewhere": set(),
            "project=/pier": {port, "六点"},
        }
        for query, expected in filters.items():
            text = client.get(f"/memory?rows=1&{query}").text
            assert {words for words in (port, "六点") if words in text} == expected, query
        for query, first in {
            "sort=recalled": port,
            "sort=recalled&order=reverse": "六点",
            "sort=subject": port,
            "sort=age": "六点",
            "sort=age&order=reverse": port,
            "sort=nosuch": "六点",
        }.items():
            text = client.get(f"/memory?rows=1&{query}").text
            assert min((port, "六点"), key=text.index) == first, query

    def test_more_facts_are_read_page_by_page(self, client: httpx.Client, running: Running) -> None:
        """The rest of the list are rows alone."""
        for number in range(70):
            session_of(running).remember(f"Berth {number} is for boat {number * 17}.", subject=f"berth {number}")
        first = client.get("/memory").text
        assert first.count('class="row fact') == 60
        assert 'data-more="60"' in first
        rest = client.get("/memory?rows=1&start=60").text
        assert rest.count('class="row fact') == 12
        assert "<table" not in rest

    def test_what_a_coming_session_starts_with(self, client: httpx.Client, running: Running) -> None:
        """The overview of the project that is chosen, and how to change it."""
        session_of(running).remember("Use NATS for the order events.")
        running.engine.session("other", project="/elsewhere").append([{"role": "user", "content": "Plan the trip."}])
        text = client.get("/overview?in=project%3D%2Fpier").text
        assert "Use NATS for the order events." in text
        assert "recall.overview_tokens" in text
        other = client.get("/overview?in=project%3D%2Fnowhere").text
        assert "starts without an overview" in other


class TestActions:
    def test_a_fact_from_its_birth_to_its_end(self, client: httpx.Client, running: Running) -> None:
        """Added, corrected, retired, brought back, and forgotten after what will be erased was shown."""
        added = act(client, "add", content="The harbour opens at six.", project="/pier", subject="harbour")
        assert added.status_code == 200
        first = find(running, "opens at six")
        assert act(client, "correct", first, content="The harbour opens at seven.").status_code == 200
        second = find(running, "opens at seven")
        assert second.subject == "harbour"
        text = client.get("/memory").text
        assert '<p class="content">The harbour opens at six' not in text
        assert "Replaced:</p><ul><li>The harbour opens at six." in text
        assert '<p class="content">The harbour opens at six' in client.get("/memory?state=over").text
        assert act(client, "retire", second).status_code == 200
        assert "opens at seven" not in client.get("/memory").text
        assert act(client, "restore", second).status_code == 200
        assert "opens at seven" in client.get("/memory").text
        shown = client.get(f"/erase?project=/pier&fact={second.id}").text
        assert "opens at seven" in shown
        assert act(client, "forget fact", second).status_code == 200
        assert "opens at seven" not in client.get("/memory?state=all").text
        assert act(client, "forget fact", second).status_code == 400

    def test_the_subject_of_a_fact_is_changed_without_new_words(self, client: httpx.Client, running: Running) -> None:
        """The fact stays the same one."""
        old = find(running, "7001")
        changed = act(client, "correct", old, content=old.content, subject="pier ledger", slot="port", type="issue")
        assert changed.status_code == 200
        new = find(running, "7001")
        assert (new.id, new.subject, new.type) == (old.id, "pier ledger", "issue")

    @pytest.mark.parametrize(
        ("action", "values"),
        [
            ("pin fact", {}),
            ("retire", {}),
            ("correct", {"content": "The ledger listens on port 9001."}),
            ("correct", {"content": "The ledger listens on port 7001.", "subject": "other"}),
        ],
    )
    def test_a_change_is_undone(
        self, client: httpx.Client, running: Running, action: str, values: dict[str, str]
    ) -> None:
        """Once; afterwards the facts are those of before."""
        before = session_of(running).facts()
        done = act(client, action, find(running, "7001"), **values)
        assert sorted(session_of(running).facts(), key=repr) != sorted(before, key=repr)
        undo = done.headers["x-undo"]
        assert act(client, "undo", undo=undo).text == "Undone."
        assert sorted(session_of(running).facts(), key=repr) == sorted(before, key=repr)
        assert act(client, "undo", undo=undo).status_code == 400

    def test_what_changed_meanwhile_is_not_undone(self, client: httpx.Client, running: Running) -> None:
        """A newer change of the same fact stays."""
        row = find(running, "7001")
        done = act(client, "pin fact", row)
        act(client, "retire", row)
        assert "changed meanwhile" in act(client, "undo", undo=done.headers["x-undo"]).text
        assert "7001" not in str(session_of(running).facts())

    def test_several_facts_at_once(self, client: httpx.Client, running: Running) -> None:
        """Excluded from recall, brought back by undo, and forgotten together."""
        rows = session_of(running).facts()
        excluded = act(client, "exclude fact", *rows)
        assert "2 facts are not recalled" in excluded.text
        assert session_of(running).exclusions().facts == {row.id for row in rows}
        assert client.get("/memory?rows=1&state=excluded").text.count('class="row fact') == 2
        act(client, "undo", undo=excluded.headers["x-undo"])
        assert session_of(running).exclusions().facts == set()
        items = "\n".join(
            str(httpx.QueryParams({"project": "/pier", "session": "harbour", "fact": row.id})) for row in rows
        )
        shown = client.get("/erase", params={"items": items}).text
        assert "7001" in shown
        assert "六点" in shown
        assert act(client, "forget fact", *rows).status_code == 200
        assert session_of(running).facts() == []

    @pytest.mark.parametrize(("first", "second"), [("Go", "Rust"), ("英文", "中文")])
    def test_a_contradiction_is_decided(self, client: httpx.Client, running: Running, first: str, second: str) -> None:
        """Both hold, or one; each can be undone."""
        template = "The crane control is written in {}." if first == "Go" else "默认语言是{}"
        rows = [session_of(running).remember(template.format(name)) for name in (first, second)]
        assert "A contradiction" in client.get("/memory").text
        both = act(client, "both hold", *rows)
        assert both.text.startswith("Both facts hold")
        assert "A contradiction" not in client.get("/memory").text
        act(client, "undo", undo=both.headers["x-undo"])
        kept = act(client, "keep", rows[0])
        assert kept.status_code == 200
        assert rows[1] not in session_of(running).facts()
        act(client, "undo", undo=kept.headers["x-undo"])
        assert "A contradiction" in client.get("/memory").text

    def test_a_form_that_makes_no_sense(self, client: httpx.Client, running: Running) -> None:
        """It is refused with a sentence."""
        row = find(running, "7001")
        assert "no fact is chosen" in act(client, "pin fact").text
        assert "not known" in act(client, "explode", row).text
        assert act(client, "correct", row, content=" ").status_code == 400
        assert act(client, "add", content="").status_code == 400
        assert act(client, "undo", undo="x").status_code == 400
        assert act(client, "both hold", row).status_code == 400


class TestBrowser:
    def test_pinned_shows_at_once_and_is_undone(self, page: Any, running: Running) -> None:
        """The menu closes, the row has the mark, and the line at the bottom offers to undo it."""
        open_menu(page, "7001")
        page.click(".fact:has-text('7001') [data-fact-act='pin fact']")
        page.wait_for_selector(".fact:has-text('7001') .tag:has-text('pinned')")
        assert page.query_selector(".menu[open]") is None
        page.click("#undo")
        page.wait_for_selector(".fact:has-text('7001') .tag:has-text('pinned')", state="detached")
        assert not find(running, "7001").pinned

    def test_a_fact_is_corrected_in_a_field_of_full_width(self, page: Any, running: Running) -> None:
        """Escape leaves it as it was, Enter stores it."""
        open_menu(page, "7001")
        page.click(".fact:has-text('7001') [data-edit]")
        field = page.locator(".editor:not([hidden]) textarea")
        assert field.bounding_box()["width"] > 900
        field.fill("nothing")
        field.press("Escape")
        assert find(running, "7001").content == "The ledger listens on port 7001."
        open_menu(page, "7001")
        page.click(".fact:has-text('7001') [data-edit]")
        assert field.input_value() == "The ledger listens on port 7001."
        field.fill("The ledger listens on port 9443.")
        field.press("Enter")
        page.wait_for_selector(".fact:has-text('9443')")
        page.wait_for_selector(".fact .content:has-text('7001')", state="detached")
        assert find(running, "9443").subject == "ledger"

    def test_facts_are_chosen_and_changed_together(self, page: Any, running: Running) -> None:
        """All of them with one box; the bar says how many, and goes with the choice."""
        page.check("[data-choose-all]")
        assert page.inner_text("#chosen") == "2 chosen"
        page.click("[data-bulk='exclude fact']")
        page.wait_for_selector(".fact:has-text('7001') .tag:has-text('not recalled')")
        page.wait_for_selector(".fact:has-text('六点') .tag:has-text('not recalled')")
        assert len(session_of(running).exclusions().facts) == 2
        page.click("[data-bulk='none']")
        page.wait_for_selector("#bulk", state="hidden")

    def test_contradictions_among_many_facts_are_shown_when_they_are_found(self, tab: Any, running: Running) -> None:
        """The table does not wait for them."""
        row = find(running, "7001")
        many = [
            replace(row, id=f"b{number}", content=f"Berth {number} is for boat {number * 17}.", subject=f"b{number}")
            for number in range(MAX_QUICK)
        ]
        running.engine._memory.store.add_facts(many)
        for name in ("Go", "Rust"):
            session_of(running).remember(f"The crane control is written in {name}.")
        assert "Looking for facts that contradict" in httpx.get(running.key_url + "memory", timeout=PATIENCE).text
        with open_page(tab, running, path="memory") as page:
            page.wait_for_selector(".conflict:has-text('Rust')")

    def test_both_hold_with_one_click(self, page: Any, running: Running) -> None:
        """The two are side by side before, and gone from the top afterwards; the page follows what is stored."""
        for name in ("Go", "Rust"):
            session_of(running).remember(f"The crane control is written in {name}.")
        page.wait_for_selector(".conflict")
        left, right = (side.bounding_box() for side in page.locator(".side").all())
        assert left["y"] == right["y"]
        page.click("[data-settle]")
        page.wait_for_selector(".conflict", state="detached")
        assert session_of(running).conflicts() == []
        assert len(session_of(running).facts()) == 4

    def test_a_column_sorts(self, page: Any) -> None:
        """The heading says how, and the address keeps it."""
        page.click("[data-sort='recalled']")
        page.wait_for_selector("th[aria-sort='ascending'] [data-sort='recalled']")
        assert "7001" in page.locator(".fact .content").first.inner_text()
        page.click("[data-sort='recalled']")
        page.wait_for_selector("th[aria-sort='descending'] [data-sort='recalled']")
        assert "六点" in page.locator(".fact .content").first.inner_text()
        page.reload()
        assert "六点" in page.locator(".fact .content").first.inner_text()

    def test_an_editor_a_menu_and_the_bar_are_accessible(self, page: Any) -> None:
        """In light and dark, and in a narrow window."""
        page.check(".fact:has-text('六点') [data-choose]")
        open_menu(page, "7001")
        page.click(".fact:has-text('7001') [data-edit]")
        open_menu(page, "六点")
        assert find_violations(page) == []
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390

    def test_a_menu_is_never_cut_off(self, page: Any) -> None:
        """At the end of a narrow window it opens inside of it, and Escape closes it."""
        page.set_viewport_size({"width": 390, "height": 420})
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        summary = page.locator(".fact .menu summary").last
        summary.click()
        box = page.locator(".menu[open] .actions").bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= 420
        page.keyboard.press("Escape")
        assert page.query_selector(".menu[open]") is None
