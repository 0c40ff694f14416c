"""The list of sessions: recognisable rows, sorted by any column, filtered before it is cut into pages."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest

from holdfast import Engine
from holdfast.embed import Choice, Purpose, Space
from holdfast.embed.base import Floats
from holdfast.messages import Message, Text, Usage
from holdfast.server.inspector.markup import is_code
from holdfast.server.inspector.past import FirstTurns
from holdfast.server.inspector.web import MAX_HITS
from holdfast.settings import Embedding, Settings
from inspector.conftest import Running, open_page, serve
from support.waiting import UNHURRIED, until

DAY = 86_400_000
SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
TALKS = (
    ("9b1f", "/shop", "Claude Code", "claude-sonnet-4-5", "Move the order events to NATS.", 20),
    ("77aa", "/pier", "Codex", "gpt-5", "港口账本的导入为什么失败？", 3),
    ("c0de", "/pier", "", "", "Add an index to the ledger.", 1),
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server over three sessions of several hosts, models, projects and days."""
    now = int(time.time() * 1000)
    moment = now
    folder = tmp_path_factory.mktemp("sessions")
    with Engine.open(folder, settings=SETTINGS, background=False, clock=lambda: moment) as engine:
        for place, (name, project, host, model, words, days) in enumerate(TALKS):
            moment = now - days * DAY
            session = engine.session(name, project=project)
            history: list[Any] = [{"role": "user", "content": words}]
            for _ in range(place + 1):
                window = session.assemble(history, limit=8_000)
                usage = Usage(input=1_000 * 10**place, output=50)
                reply = Message(role="assistant", parts=(Text(text="Done."),), model=model or None, usage=usage)
                session.append([reply], after=window.place)
                history += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "And then?"}]
            if host:
                engine._memory.set_host(host, scope=session.scope)
        moment = now
        with serve(engine) as started:
            yield started


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    """A client that has the key."""
    with httpx.Client(base_url=running.key_url) as client:
        yield client


def names(text: str) -> list[str]:
    """List the sessions of a page by id, in its order."""
    return re.findall(r'data-key="\?[^"]*session=(\w+)', text)


def test_a_row_says_what_a_session_is_about(client: httpx.Client) -> None:
    """Its title first, then host, model, project, last activity, tokens and cost."""
    text = client.get("/").text
    row = text[text.index("Move the order events to NATS.") :]
    row = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row[: row.index("</tr>")]))
    for words in ("Claude Code", "claude-sonnet-4-5", "/shop", "20 days ago", "9b1f", "1k", "$0.00"):
        assert words in row, words
    assert "港口账本的导入为什么失败？" in text
    assert text.count('<td class="hide host"><span class="meta">unknown</span></td>') == 1


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["c0de", "77aa", "9b1f"]),
        ("sort=time&order=reverse", ["9b1f", "77aa", "c0de"]),
        ("sort=title", ["c0de", "9b1f", "77aa"]),
        ("sort=host", ["9b1f", "77aa", "c0de"]),
        ("sort=model", ["9b1f", "77aa", "c0de"]),
        ("sort=project", ["c0de", "77aa", "9b1f"]),
        ("sort=messages", ["c0de", "77aa", "9b1f"]),
        ("sort=read&order=reverse", ["9b1f", "77aa", "c0de"]),
        ("sort=sent", ["c0de", "77aa", "9b1f"]),
        ("sort=nosuch", ["c0de", "77aa", "9b1f"]),
        ("host=Codex", ["77aa"]),
        ("model=claude-sonnet-4-5", ["9b1f"]),
        ("project=/pier", ["c0de", "77aa"]),
        ("days=7", ["c0de", "77aa"]),
        ("days=7&project=/shop", []),
    ],
)
def test_sorted_and_filtered(client: httpx.Client, query: str, expected: list[str]) -> None:
    """By every column and every field above the list."""
    assert names(client.get(f"/sessions?{query}").text) == expected


def test_tokens_that_we_count_and_those_that_models_report_are_two_columns(running_alone: Running) -> None:
    """One column of both, and an order by it, would compare two things; what is not known is a dash, and not blank."""
    engine = running_alone.engine
    session = engine.session("small report 小")
    window = session.assemble([{"role": "user", "content": "Weigh the anchor. " * 100}], limit=8_000)
    usage = Usage(input=11, output=3)
    reply = Message(role="assistant", parts=(Text(text="Done."),), model="<b>mine</b>", usage=usage)
    session.append([reply], after=window.place)
    engine.session("no report").assemble([{"role": "user", "content": "Lower the sail."}], limit=8_000)
    engine.session("imported").append([{"role": "user", "content": "Paint the mast."}])
    with httpx.Client(base_url=running_alone.key_url) as client:
        text = client.get("/sessions?sort=sent").text
    rows = [
        re.findall(r'<td class="number[^>]*>(?:<span class="meta">)?([^<]*)<', row) for row in text.split("<tr ")[1:]
    ]
    assert [row[1:] for row in rows] == [[rows[0][1], "11", "unknown"], [rows[1][1], "–", "–"], ["–", "–", "–"]]
    assert int(rows[0][1]) > int(rows[1][1]) > 0
    assert "how full it was</span> in each of the last 48 requests" in text


def test_filters_work_before_paging(tmp_path: Path) -> None:
    """A session that matches is found however many newer ones do not."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        engine.session("wanted", project="/rare").append([{"role": "user", "content": "Find me."}])
        for number in range(70):
            engine.session(f"s{number}", project="/many").append([{"role": "user", "content": f"Task {number}."}])
        with serve(engine) as running, httpx.Client(base_url=running.key_url) as client:
            first = client.get("/").text
            assert "Find me." not in first
            assert 'data-more="60"' in first
            rest = client.get("/sessions?start=60").text
            assert "Find me." in rest
            assert len(names(rest)) == 11
            assert "<table" not in rest
            assert names(client.get("/sessions?project=/rare").text) == ["wanted"]


def test_a_search_names_the_session_by_its_title(client: httpx.Client) -> None:
    """As every other page does."""
    text = client.get("/search?q=index+ledger").text
    assert "Add an index to the ledger." in text
    assert "c0de" not in re.sub(r'href="[^"]*"', "", text)


def test_a_search_leads_to_the_turn_in_which_a_message_was_sent_first(client: httpx.Client, running: Running) -> None:
    """If a turn sent it: a message that was only archived has none."""
    text = client.get("/search?q=index+ledger").text
    turn = re.search(r'<a class="hit-turn" href="([^"]*)"[^>]*>turn 1</a>', text)
    assert turn is not None
    assert "Add an index to the ledger." in client.get(f"/{unescape(turn[1])}").text
    assert ">turn 1</a>" in client.get("/search?q=港口账本").text
    session = running.engine.session("only archived")
    session.append([{"role": "user", "content": "The winch 绞盘 is red."}])
    text = client.get("/search?q=winch").text
    assert "is red." in text
    assert "hit-turn" not in text
    session.forget()


def test_only_the_newest_turns_of_a_long_session_are_looked_at(running: Running) -> None:
    """The first of them lists messages that may have been sent before it."""
    session = running.engine.session("c0de", project="/pier")
    numbers = [(session.scope, message.id) for message in session.messages()]
    store = running.engine._memory.store
    whole = FirstTurns(store).find(numbers, seconds=60)
    assert set(whole.values()) == {1, 2, 3}
    newest = FirstTurns(store, max_newest=2)
    assert newest.find(numbers, seconds=60) == {key: turn for key, turn in whole.items() if turn > 2}
    assert newest.find(numbers, seconds=-1) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-    retry = 2\n+    retry = 5", True),
        ("+重试 = 5\n-重试 = 2", True),
        ("def crane():\n    lift(40)\n    return", True),
        ("- one\n- two\n+ three\n  - four", False),
        ("The crane lifts 40 tons.\n起重机。", False),
        ("", False),
    ],
)
def test_a_text_whose_columns_matter(text: str, *, expected: bool) -> None:
    """A diff has to keep its columns; a list is no diff."""
    assert is_code(text) is expected


def test_sorting_and_filtering_by_hand(running: Running, tab: Any) -> None:
    """A click on a heading, a second one for the other direction, and a choice above; the address keeps all of it."""
    with open_page(tab, running) as page:
        page.click("[data-sort='read']")
        page.wait_for_selector("th[aria-sort='descending'] [data-sort='read']")
        assert "Add an index" in page.locator("#sessions .row").first.inner_text()
        page.click("[data-sort='read']")
        page.wait_for_selector("th[aria-sort='ascending'] [data-sort='read']")
        assert "Move the order events" in page.locator("#sessions .row").first.inner_text()
        page.select_option("select[name='host']", "Codex")
        page.wait_for_selector("#sessions .counts:has-text('1 session')")
        page.reload()
        assert page.locator("#sessions .row").count() == 1
        page.select_option("select[name='host']", "")
        page.wait_for_selector("#sessions .counts:has-text('3 sessions')")


def test_a_session_that_begins_appears(running: Running, tab: Any) -> None:
    """At the top, with its title."""
    with open_page(tab, running) as page:
        page.wait_for_selector("#live.on")
        running.engine.session("fresh").append([{"role": "user", "content": "Paint the crane yellow."}])
        page.wait_for_selector("#sessions .row:has-text('Paint the crane yellow.')")
    running.engine.session("fresh").forget()


def test_a_search_marks_and_counts_what_it_finds(running: Running, client: httpx.Client) -> None:
    """Words are marked in any of their forms, Chinese ones as a whole, and text of a message is never HTML."""
    session = running.engine.session("marked")
    session.append([{"role": "user", "content": "x " * 900 + "<b>quays</b> 泊位分配表在这里"}])
    text = client.get("/search?q=quay").text
    assert "&lt;b&gt;<mark>quays</mark>&lt;/b&gt;" in text
    total = sum(running.engine._memory.store.sessions().values())
    until(lambda: f"1 of {total} messages matches" in client.get("/search?q=quay").text)  # the list is kept a moment
    assert "<mark>泊位分配</mark>" in client.get("/search?q=泊位分配").text
    assert f"None of {total} messages matches" in client.get("/search?q=zeppelin").text


def test_a_search_with_more_matches_than_it_shows_counts_no_others(running_alone: Running) -> None:
    """The number of all messages would read as the number of matches."""
    session = running_alone.engine.session("many")
    words = [f"Quay {number} is free." for number in range(MAX_HITS + 5)]
    session.append([{"role": "user", "content": text} for text in [*words, "The crane is yellow."]])
    with httpx.Client(base_url=running_alone.key_url) as client:
        text = client.get("/search?q=quay").text
    counts = re.findall(r"\d+", re.findall(r'id="hit-count">([^<]*)<', text)[0])
    assert counts == [str(MAX_HITS)]


class Alike:
    """An embedder to which everything about water is alike."""

    space = Space(name="alike", dimension=2, digest="0")

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:  # noqa: ARG002 - one for both
        rows = [[1.0, 0.0] if re.search("tide|flood|潮", text) else [0.0, 1.0] for text in texts]
        return np.array(rows, np.float32)


def test_a_search_separates_what_has_its_words_from_what_is_only_similar(running_alone: Running) -> None:
    """Only the first counts as a match, each with its session; without any, the similar ones are unfolded."""
    running_alone.engine._memory.choice = Choice(embedder=Alike(), reasons=())
    session = running_alone.engine.session("water 水", project="/pier")
    words = ("The tide is at six.", "A flood closed the quay.", "潮水六点到。", "The crane is yellow.")
    session.append([{"role": "user", "content": text} for text in words])
    running_alone.engine._memory.embed()
    with httpx.Client(base_url=running_alone.key_url) as client:
        by_words, _, similar = client.get("/search?q=tide").text.partition("<details")
        assert "1 of 4 messages matches by words" in by_words
        assert "Session <b>The tide is at six.</b>" in by_words
        assert "flood" not in by_words
        assert "2 passages without these words are similar in meaning" in similar
        assert "A flood closed the quay." in similar
        assert "潮水六点到。" in similar
        assert "crane" not in by_words + similar
        assert '<details class="fold" open>' in client.get("/search?q=floodgates").text
