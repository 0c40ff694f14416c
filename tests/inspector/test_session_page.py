"""The page of a session: every turn shows its own window, what left says why, and where it came back."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.context.edits import Edit, Pruned, Relevance, Trimmed
from holdfast.context.plan import HAS_BLOCK
from holdfast.memory.recall import ALL_HERE_IN_WINDOW, IN_WINDOW
from holdfast.report import NAMES
from holdfast.search.relevance import EAGERNESS
from holdfast.server.inspector.draw import MAX_COLUMNS, timeline
from holdfast.server.inspector.past import Pasts, make_items_before, make_window
from holdfast.server.inspector.why import MAX_UNFOLDED, explain_rule
from holdfast.server.inspector.window_view import RepairGroup, group_repairs, view_window
from holdfast.session import Session
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Select
from holdfast.store.figures import TURN
from holdfast.text import percent
from holdfast.timeline import WINDOW, PastTurn, WindowSource
from inspector.conftest import Running, open_page, serve, talk
from support.waiting import PATIENCE, UNHURRIED, until
from support.wire_conversations import TALKS, Talk

Page = Any
LEAST = "least to do with the question"
ROW = re.compile(r'<article class="message row[^"]*" id="m(\d+)"')

STATE = re.compile(r'id="m(\d+)"(?:(?!<article).)*?class="state [^>]*>([^<]+)<', re.DOTALL)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    """A client that has the key."""
    with httpx.Client(base_url=running.key_url, follow_redirects=True, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def page(tab: Any, running: Running) -> Iterator[Page]:
    """A page of the inspector; whatever the browser complains about fails the test."""
    with open_page(tab, running, path=None) as page:
        yield page


@pytest.fixture(scope="module")
def long_talk(running: Running) -> Iterator[list[int]]:
    """The numbers of the 241 messages of a session in the order of the conversation; two of them are long."""
    session = running.engine.session("long talk")
    history: list[dict[str, str]] = []
    for number in range(241):
        words = "\n\n".join(f"Mooring {place} is free." for place in range(80 if number in {97, 180} else 1))
        role = "assistant" if number % 2 else "user"
        history.append({"role": role, "content": f"Entry {number} of the harbour log. {words}"})
    session.assemble(history, limit=500_000)
    yield [row.id for row in session.messages()]
    session.forget()


def find_hidden_head(page: Page, number: int) -> float:
    """Return how many pixels of the top of a message are behind what stays at the top, or out of the window."""
    wait_until_drawn(page)
    hidden: float = page.evaluate(
        "number => { const top = document.querySelector(`#m${number}`).getBoundingClientRect().top;"
        " const selector = '.turn-nav, #left > .tabs, #left > .legend, #left details.run[open] > summary';"
        " const rows = [...document.querySelectorAll(selector)]"
        " .filter(row => getComputedStyle(row).position === 'sticky').map(row => row.getBoundingClientRect().bottom);"
        " return Math.max(0, ...rows) - top; }",
        number,
    )
    return hidden


def wait_until_drawn(page: Page) -> None:
    """Wait until the page is drawn: by then a browser has scrolled to what the address names."""
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def find_cut_turn(session: Session) -> int:
    """Return the first turn that removed messages."""
    return next(report.turn for report in session.timeline() if any(one.kind == "trimmed" for one in report.changes))


def read_rows(client: httpx.Client, turn: int, *, session: str = "harbour") -> list[int]:
    """Return the numbers of the messages of a window as the page shows them, folded ones unfolded."""
    text = client.get(f"/session?session={session}&turn={turn}").text
    window = text[text.index('<div id="window"') : text.index('id="turn-view"')]
    numbers: list[int] = []
    for piece in re.split(r"(?=<details class=\"run\"|<article class=\"message row)", window):
        folded = re.match(r'<details class="run" id="run-\d+" data-run="([^"]+)" data-start="(\d+)"', piece)
        if folded:
            rows = client.get(f"/{unescape(folded[1])}&start={folded[2]}").text
            numbers += [int(number) for number in ROW.findall(rows)]
        else:
            numbers += [int(number) for number in ROW.findall(piece)]
    return numbers


def find_states(text: str) -> dict[int, str]:
    """Return the words of the states in a conversation, by message."""
    return {int(number): words for number, words in STATE.findall(text)}


class TestWindowOfATurn:
    def test_every_turn_shows_its_own_messages_in_order(self, client: httpx.Client, running: Running) -> None:
        """Also turns in which messages left, or a block was added."""
        session = running.engine.session("harbour")
        for turn in range(1, 16):
            assert read_rows(client, turn) == [item.id for item in session.window(turn).items if item.id]

    def test_what_left_in_a_turn_is_listed_at_its_place(self, client: httpx.Client, running: Running) -> None:
        """With a way to its reason; later turns show a gap there."""
        turn = find_cut_turn(running.engine.session("harbour"))
        text = client.get(f"/session?session=harbour&turn={turn}").text
        assert "cut here in this turn" in text
        assert '<span class="state trimmed">cut</span>' in text
        later = client.get(f"/session?session=harbour&turn={turn + 1}").text
        assert "cut between them earlier" in later or f"here in turn {turn}" in later

    def test_the_block_is_shown_at_its_message(self, client: httpx.Client) -> None:
        """As monospace text, open if it is new."""
        text = client.get("/session?session=harbour&turn=15").text
        block = text[text.index('<details class="block" open>') :]
        assert "Recalled from memory" in block[:200]
        assert '<pre tabindex="0">&lt;recalled-context' in block[:400]

    def test_a_line_counts_what_is_pruned_in_folded_messages(self, client: httpx.Client, running: Running) -> None:
        """With a link to each."""
        session = running.engine.session("harbour")
        pruned = {number for edit in session.edits() if edit.kind == "pruned" for number in edit.ids}
        shown = [item.id for item in session.window(15).items if item.id in pruned]
        text = client.get("/session?session=harbour&turn=15").text
        line = text[text.index('<p class="in-run">') :]
        line = line[: line.index("</p>")]
        assert f"{len(shown)} pruned result" in line
        assert f'data-reveal="{shown[0]}"' in line
        assert "in full." in line

    def test_a_result_that_is_pruned_in_the_turn_says_so_once(self, client: httpx.Client, running: Running) -> None:
        """With a way to its reason; in later turns it is just pruned."""
        session = running.engine.session("harbour")
        changes = {report.turn: report.changes for report in session.timeline()}
        turn = next(turn for turn, some in changes.items() if any(one.kind == "pruned" for one in some))
        number = next(number for one in changes[turn] if one.kind == "pruned" for number in one.ids)
        states: list[list[str]] = []
        for shown in (turn, turn + 1):
            text = client.get(f"/run?session=harbour&turn={shown}&start=0&stop=99").text
            header = text[text.index(f'id="m{number}"') :].split("</header>")[0]
            states.append(re.findall(r'class="state [^>]*>([^<]+)<', header))
        assert states == [["pruned now: why?"], ["pruned: why?"]]

    def test_repairs_that_are_alike_are_one_line(self) -> None:
        """With the name of the product, and the places in the request."""
        repairs = [f"message {place}: changed what openai_chat would refuse (content)" for place in (3, 8)]
        assert group_repairs([*repairs, "roles were joined (roles)"], provider="openai_chat") == [
            RepairGroup(what="changed what OpenAI Chat Completions would refuse (content)", places=(3, 8)),
            RepairGroup(what="roles were joined (roles)", places=()),
        ]

    def test_the_request_in_every_wire_format(self, client: httpx.Client, running: Running) -> None:
        """As it was sent, and as it would be for the others."""
        window = running.engine.session("harbour").window(15)
        for name in ("openai_chat", "anthropic", "openai_responses", "gemini"):
            text = client.get(f"/session?session=harbour&turn=15&tab=request&format={name}").text
            shown = text[text.index('<pre class="wire"') :]
            body = unescape(shown[shown.index(">") + 1 : shown.index("</pre>")])
            assert json.loads(body) == window.request(name)
        assert client.get("/session?session=harbour&turn=15&tab=request&format=nosuch").status_code == 200

    def test_chinese_is_shown_as_it_was_sent(self, client: httpx.Client) -> None:
        """Word for word."""
        assert "请看第13部分。" in client.get("/session?session=harbour&turn=14").text

    def test_a_turn_that_is_not_there(self, client: httpx.Client) -> None:
        """A page that says so; a session without turns has the conversation alone."""
        assert client.get("/session?session=harbour&turn=99").status_code == 404
        assert client.get("/session?session=harbour&turn=x").status_code == 400
        assert client.get("/run?session=harbour&turn=99&start=0&stop=4").status_code == 404

    def test_the_limit_is_drawn_over_the_columns(self, client: httpx.Client) -> None:
        """With numbers on both axes."""
        text = client.get("/session?session=harbour").text
        chart = text[text.index('<svg class="chart"') : text.index("</svg></div>")]
        assert chart.rindex('class="limit"') > chart.rindex('<g class="turn"')
        assert "Turn 15: " in chart
        assert ">8k</text>" in text[text.index('<svg class="axis"') : text.index('<svg class="chart"')]

    def test_the_key_of_the_marks_has_the_words_of_commands(self, client: httpx.Client) -> None:
        """Or names them: they say "trimmed" where the pages say "cut", which is also what a compaction is."""
        text = client.get("/session?session=harbour&turn=15").text
        assert re.search(r"<li><svg[^\n]*</svg>pruned</li>", text)
        assert re.search(r'<li title="[^"]*: trimmed"><svg[^\n]*</svg>cut</li>', text)
        assert "shortened" not in text

    def test_a_message_of_the_conversation_leads_to_its_first_turn(
        self, client: httpx.Client, running: Running
    ) -> None:
        """The turn in which it was new."""
        number = running.engine.session("harbour").window(14).items[-1].id
        text = unescape(client.get("/session?session=harbour").text)
        message = text[text.index(f'id="m{number}"') :]
        header = message[: message.index("</header>")]
        assert re.search(r'href="session\?session=harbour&turn=14"[^>]*>turn 14</a>', header)

    def test_the_conversation_shows_the_states_of_the_selected_turn(
        self, client: httpx.Client, running: Running
    ) -> None:
        """A message that is cut later is in the window, and one that is sent later is marked."""
        session = running.engine.session("harbour")
        turn = find_cut_turn(session)
        number = next(edit.ids[-1] for edit in session.edits() if edit.kind == "trimmed")
        states: list[str] = []
        for shown in (turn - 1, turn):
            text = client.get(f"/session/messages?session=harbour&before={number + 1}&turn={shown}").text
            states.append(find_states(text)[number])
        assert states[0] in {"in window", "pruned: why?"}
        assert states[1] == "cut: why?"
        text = client.get(f"/session?session=harbour&turn={turn - 1}&tab=conversation").text
        assert f"In turn {turn - 1}:" in text
        assert {"in window", f"after turn {turn - 1}"} <= set(find_states(text).values())
        assert "In turn 15, the last:" in client.get("/session?session=harbour").text

    def test_only_the_turn_of_the_last_cut_offers_to_undo_it(self, tmp_path: Path) -> None:
        """And no longer once it is undone: then the cut before it is the last one."""
        settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
        with Engine.open(tmp_path, settings=settings, background=False) as engine:
            talk(engine, "harbour", turns=14)
            session = engine.session("harbour")
            cuts = [report.turn for report in session.timeline() if "trimmed" in {one.kind for one in report.changes}]
            pasts = Pasts(engine._memory.store)
            assert pasts.read(session.scope).last_cut_turn == cuts[-1]
            session.undo_trim()
            assert pasts.read(session.scope).last_cut_turn < cuts[-1]
            with serve(engine) as running, httpx.Client(base_url=running.key_url, timeout=PATIENCE) as client:
                last = pasts.read(session.scope).last_cut_turn
                for turn in range(1, 16):
                    text = client.get(f"/turn?session=harbour&turn={turn}").text
                    assert ("Undo the last cut" in text) == (turn == last)

    def test_the_usable_limit_is_drawn_below_the_window(self, client: httpx.Client, running: Running) -> None:
        """Cuts happen there, and not at the size of the window."""
        text = client.get("/session?session=harbour").text
        chart = text[text.index('<svg class="chart"') : text.index("</svg></div>")]
        heights = dict(re.findall(r'<line class="(usable|limit)" [^>]*y1="([0-9.]+)"', chart))
        assert float(heights["usable"]) > float(heights["limit"])
        report = running.engine.session("harbour").window(15).report
        assert f"{report.raw_max_tokens - report.reserved_tokens:,} are usable" in chart
        assert "usable: the limit less the reserve" in text


def test_a_limit_that_changes_is_drawn_in_steps() -> None:
    """Lines that are not connected look like dirt if one is as short as one turn."""
    turns = [make_turn(number, window=window) for number, window in enumerate((8_000, 16_000, 16_000), 1)]
    lines = re.findall(
        r'<line class="limit" x1="([0-9.]+)%" x2="([0-9.]+)%" y1="([0-9.]+)" y2="([0-9.]+)"', timeline(turns)
    )
    (first, step, last) = [tuple(map(float, line)) for line in lines]
    assert first[0] == 0
    assert first[1] == step[0] == step[1] == last[0] == pytest.approx(100 / 3, abs=0.01)
    assert (step[2], step[3]) == (first[2], last[2])
    assert last[1] == 100


def make_turn(number: int, *, window: int) -> PastTurn:
    """Return a turn in a window of a size."""
    source = WindowSource(
        base="",
        kept=0,
        added=(number,),
        system=(),
        edits=(0, 0),
        limit=window,
        provider="anthropic",
        window=window,
        sizes=(0,) * len(NAMES),
        changes=(),
    )
    return PastTurn(record=number, key=str(number), number=number, time=number, source=source)


def make_cases() -> Iterator[Any]:
    """Yield a conversation in each format. tests/test_timeline.py makes past requests of all of them in `make test`."""
    for name, conversation in TALKS.items():
        marks = () if name == "anthropic" else pytest.mark.nightly
        yield pytest.param(conversation, id=name, marks=marks)


@pytest.mark.parametrize("conversation", list(make_cases()))
def test_every_turn_of_every_format_can_be_shown(conversation: Talk, tmp_path: Path) -> None:
    """Through cuts, a compaction and a forgotten message, with all messages of its window and nothing else."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        session = engine.session("s")
        sent: list[Any] = []
        for number, step in enumerate(conversation.steps(14)):
            sent += step.wires
            if number == 20:
                session.compact(sent, limit=5_000)
            session.assemble(sent, limit=5_000)
        session.forget([session.messages()[6].id])
        seen = Pasts(engine._memory.store).read(session.scope)
        kinds = {one.edit.kind for one in seen.edits if one.edit is not None}
        assert kinds >= {"trimmed", "compacted", "forgotten"}
        reported = {report.turn for report in session.timeline()}  # a report that quotes what is forgotten is gone
        assert len(reported) >= len(seen.turns) - 2
        for turn in seen.turns:
            if turn.number not in reported:
                continue
            window = make_window(session, seen, turn)
            assert window.render() == session.window(turn.number).render()
            view = view_window(seen, turn, window, make_items_before(session, seen, turn))
            shown = [stretch for stretch in view.stretches() if stretch.kind != "left"]
            places = [place for stretch in shown for place in range(stretch.start, stretch.stop)]
            assert places == list(range(len(window.items)))
            rows = view.rows(0, len(window.items))
            assert [row.message.id for row in rows] == [item.id for item in window.items]


def test_a_page_of_a_long_session_reads_its_newest_turns(tmp_path: Path) -> None:
    """If these contain what a window consists of; the window is the same as that made from all turns."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    sent: list[dict[str, str]] = []
    for _ in range(2):  # a process that starts anew records the whole history
        with Engine.open(tmp_path, settings=settings, background=False) as engine:
            session = engine.session("s")
            for _ in range(6):
                number = len(sent)
                sent.append(
                    {"role": "user", "content": f"Look at part {number} of the ledger. 请看第{number}部分。" * 30}
                )
                session.assemble(sent, limit=4_000)
            store = engine._memory.store
            newest = Pasts(store, max_newest=8).read_some(session.scope)
            assert newest.is_whole == (len(sent) == 6)
            whole = Pasts(store).read(session.scope)
            assert newest.turns == whole.turns[-8:]
            assert newest.edits == whole.edits
            made = make_window(session, newest, newest.turns[-1])
            assert made.render() == make_window(session, whole, whole.turns[-1]).render()
            assert Pasts(store, max_newest=2).read_some(session.scope).is_whole
            view_window(newest, newest.turns[-1], made, make_items_before(session, newest, newest.turns[-1]))
    assert newest.find_turn_of(0) is None
    assert whole.find_turn_of(0) is not None


class TestWhy:
    def test_a_cut_message_says_why_and_where_it_came_back(self, client: httpx.Client, running: Running) -> None:
        """The turn, the question, the rule, its relevance, the tokens, and the turns that quote it."""
        session = running.engine.session("harbour")
        quoted = {hit.message for hit in session.window(15).report.recalled}
        cut = {number for edit in session.edits() if edit.kind == "trimmed" for number in edit.ids}
        number = min(quoted & cut)
        text = unescape(client.get(f"/why?session=harbour&message={number}").text)
        assert f"What became of message #{number}" in text
        assert "<dt>Question</dt>" in text
        assert "of the harbour ledger" in text
        assert "trim.protected_recent" in text
        assert "<dt>Relevance</dt>" in text
        assert "by this message" in text
        assert ">Turn 15</a>" in text[text.index("Where it came back") :]
        assert text.count("<h1") == 1

    def test_the_freed_tokens_are_sentences(self, client: httpx.Client, running: Running) -> None:
        """Of the message itself, and of all messages of the change; what is left of them, if something is."""
        session = running.engine.session("harbour")
        for kind, left in (("trimmed", ""), ("pruned", r" They had [\d,]+ tokens before, and have [\d,]+ now\.")):
            number = next(edit for edit in session.edits() if edit.kind == kind).ids[0]
            text = client.get(f"/why?session=harbour&message={number}").text
            section = text[text.index(f'aria-label="{"cut" if kind == "trimmed" else "pruned"} in turn') :]
            freed = re.search(r"<dt>Tokens freed</dt><dd>(.*?) *</dd>", section)
            assert freed is not None
            said = r"[\d,]+ tokens were freed by this message, and [\d,]+ by all \d+ messages together\."
            assert re.fullmatch(said + left, freed[1])

    def test_many_turns_in_which_a_message_came_back_are_folded(self, client: httpx.Client, running: Running) -> None:
        """By the way in which it did; the first ones are shown, and all others are behind one line."""
        session = running.engine.session("often", project="/quay")
        session.append([{"role": "user", "content": "The crane 起重机 lifts 40 tons."}])
        for number in range(6):
            question = f"How many tons does the crane 起重机 lift, attempt {number}?"
            session.assemble([{"role": "user", "content": question}], limit=8_000)
        past = Pasts(running.engine._memory.store).read(session.scope)
        quoted = Counter(number for turn in past.turns for number in turn.source.quoted)
        number, times = quoted.most_common(1)[0]
        assert times > MAX_UNFOLDED
        text = client.get(f"/why?session=often&project=/quay&message={number}").text
        first, _, folded = text[text.index("Where it came back") :].partition("<details")
        assert f"Quoted in the recalled block in {times} turns:" in first
        assert first.count(">Turn ") == MAX_UNFOLDED
        assert f"{times - MAX_UNFOLDED} more turn" in folded
        assert folded.count(">Turn ") == times - MAX_UNFOLDED

    def test_scores_of_what_left_and_what_stayed(self, running: Running) -> None:
        """If relevance decided, both are shown."""
        session = running.engine.session("scored")
        history: list[dict[str, str]] = []
        for number in range(60):
            about = "lighthouse lamp" if number % 3 else "mooring rope"
            history.append({"role": "user", "content": f"Note {number} on the {about}. " * 8})
            history.append({"role": "assistant", "content": f"Noted, {about} {number}. " * 8})
            asked = {"role": "user", "content": "What do we know about the mooring rope?"}
            window = session.assemble([*history, asked], limit=5_000)
            if any(change.reason.startswith("least") for change in window.report.changes):
                break
        past = Pasts(running.engine._memory.store).read(session.scope)
        edit = next(one for one in past.edits if one.edit is not None and one.edit.reason.startswith("least"))
        with httpx.Client(base_url=running.key_url, timeout=PATIENCE) as client:
            text = unescape(client.get(f"/why?session=scored&edit={edit.number}").text)
        assert "What do we know about the mooring rope?" in text
        assert re.search(r"could be cut too, but stayed, scored \d+%", text)
        assert 'class="scale"' in text

    @pytest.mark.parametrize(
        ("reason", "relevance", "says"),
        [
            ("oldest", None, "so the oldest were cut."),
            (LEAST, Relevance(least_kept=0.0, best=0.4), "so their age decided."),
            (LEAST, Relevance(scores=((3, 0.1),), least_kept=0.2, best=0.4), "(trim.hysteresis)."),
            (LEAST, None, "(trim.hysteresis)."),
            ("a {reason} of another version", None, "A {reason} of another version."),
        ],
    )
    def test_the_rule_of_a_cut_says_what_decided(self, reason: str, relevance: Relevance | None, says: str) -> None:
        """If nothing that was cut has a word of the question, age decided."""
        change = Trimmed(limit=5_000, relevance=relevance)
        edit = Edit(change=change, ids=(3, 4), reason=reason, tokens_before=900, tokens_after=0)
        rule = explain_rule(edit, Settings())
        assert says in rule
        assert rule.count("oldest") <= 1

    @pytest.mark.parametrize(
        "reason",
        [
            "adaptive",
            "cache-ttl",
            "aggressive",
            "the window is cut, and old results are long",
            "the newest messages alone do not fit",
            "another reason",
        ],
    )
    def test_the_rule_of_a_shortened_result_is_sentences(self, reason: str) -> None:
        """With a capital and a full stop each, also for a reason that has no rule."""
        change = Pruned(part=0, keep=((0, 100),), note="")
        edit = Edit(change=change, ids=(3,), reason=reason, tokens_before=900, tokens_after=90)
        sentences = explain_rule(edit, Settings()).split(". ")
        assert len(sentences) > 1
        assert all(sentence[0].isupper() for sentence in sentences)
        assert sentences[-1].endswith(".")

    def test_a_message_that_never_left(self, client: httpx.Client, running: Running) -> None:
        """It says so."""
        last = running.engine.session("harbour").messages()[-1].id
        assert "It never left the window." in client.get(f"/why?session=harbour&message={last}").text

    def test_what_is_not_there(self, client: httpx.Client) -> None:
        """A message or an edit of another session is not found."""
        assert client.get("/why?session=harbour&message=999999").status_code == 404
        assert client.get("/why?session=harbour&edit=999999").status_code == 404
        assert client.get("/why?session=harbour").status_code == 404

    def test_a_summary_is_a_reason_too(self, client: httpx.Client, running: Running) -> None:
        """A compaction before a turn belongs to that turn."""
        session = running.engine.session("compacted")
        history: list[dict[str, str]] = []
        for number in range(30):
            history.append({"role": "user", "content": f"码头 {number}: bollard {number} holds {number} tons. " * 6})
            history.append({"role": "assistant", "content": f"Bollard {number} is noted. " * 6})
        session.assemble(history, limit=64_000)
        session.compact(history, limit=64_000)
        first = session.messages()[0].id
        before = client.get(f"/why?session=compacted&message={first}").text
        all_of_it = unescape(re.findall(r'href="(why\?[^"]*edit=[^"]*)"', before)[-1])
        assert "What happened after the last turn" in client.get(f"/{all_of_it}").text
        asked = [*history, {"role": "user", "content": "Which bollard holds three tons?"}]
        session.assemble(asked, limit=64_000)
        text = client.get("/session?session=compacted&turn=2").text
        assert '<span class="state compacted">compacted</span>' in text
        assert "summary of what left" in text
        why = client.get(f"/why?session=compacted&message={first}").text
        assert "replaced by a summary" in why
        assert "turn 2</a>" in why


class TestRecall:
    def test_the_question_the_confidence_and_the_cut_off(self, client: httpx.Client, running: Running) -> None:
        """The numbers of the text are those of the table."""
        report = running.engine.session("harbour").window(15).report
        text = unescape(client.get("/session?session=harbour&turn=15").text)
        recall = text[text.index("<h3>Recall</h3>") :]
        assert "Which port has part 1 of the ledger?" in recall
        sure = EAGERNESS["normal"].high
        assert f"{percent(min(report.recall_confidence, sure), sure)} of a sure match: " in recall
        assert f"{report.recall_size:,} of the {report.recall_cap:,} tokens" in recall
        assert report.missed
        assert recall.index("where it was said") < recall.index("cut-off:")
        scores = [hit.score for hit in report.recalled] + [missed.score for missed in report.missed]
        for score in scores:
            assert f'<td class="number">{percent(score, max(scores))}</td>' in recall

    def test_a_question_that_has_its_block_leads_to_the_turn_that_made_it(
        self, client: httpx.Client, running: Running
    ) -> None:
        """The model called a tool, and the question is sent again."""
        session = running.engine.session("tool loop", project="quay")
        session.remember("The quay ledger listens on port 7002.", type="config")
        call = {"id": "x", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        history: list[dict[str, object]] = [{"role": "user", "content": "On which port does the quay ledger listen?"}]
        session.assemble(history, limit=8_000)
        history.append({"role": "assistant", "content": None, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": "x", "content": "nothing"})
        window = session.assemble(history, limit=8_000)
        assert window.report.recall_reason == HAS_BLOCK
        text = client.get("/turn?session=tool+loop&project=quay&turn=2").text
        assert 'data-turn="1">turn 1</a>.</p>' in text[text.index("Nothing was recalled") :]

    @pytest.mark.parametrize(
        ("told", "asked"),
        [
            ("The orders replica listens on port 5433.", "Which port does the orders replica use?"),
            ("订单副本监听端口 5433。", "订单副本使用哪个端口?"),
        ],
    )
    @pytest.mark.parametrize("reason", [IN_WINDOW, ALL_HERE_IN_WINDOW])
    def test_a_match_in_the_window_is_one_statement_with_a_link(
        self, client: httpx.Client, running: Running, told: str, asked: str, reason: str
    ) -> None:
        """It does not say that nothing matched, too."""
        session = running.engine.session(f"match in {told}, {reason}", project="replicas")
        if reason == IN_WINDOW:  # something is archived that the window does not show
            session.assemble([{"role": "user", "content": "Lunch was good today."}], limit=8_000)
        history = [{"role": "user", "content": told}, {"role": "assistant", "content": "Noted."}]
        session.assemble(history, limit=8_000)
        window = session.assemble([*history, {"role": "user", "content": asked}], limit=8_000)
        assert window.report.recall_reason == reason
        address = {"session": session.id, "project": "replicas", "turn": str(window.report.turn)}
        text = client.get("/turn", params=address).text
        recall = text[text.index("<h3>Recall</h3>") :]
        number = next(row.id for row in session.messages() if row.message.text == told)
        assert f'data-reveal="{number}">#{number}</a>' in recall
        assert "no match" not in recall
        assert "Nothing was recalled" not in recall


class TestInABrowser:
    def test_the_address_keeps_the_turn(self, page: Page, running: Running) -> None:
        """Through steps, a reload, Back, and a click on the map."""
        page.goto(running.key_url + "session?session=harbour")
        page.wait_for_selector("#turn-view h2:has-text('Turn 15')")
        page.keyboard.press("ArrowLeft")
        page.wait_for_selector("#turn-view h2:has-text('Turn 14')")
        assert "turn=14" in page.url
        assert page.inner_text(".tabs [aria-current]") == "Window of turn 14"
        page.reload()
        page.wait_for_selector("#turn-view h2:has-text('Turn 14')")
        page.click("#next")
        page.wait_for_selector("#turn-view h2:has-text('Turn 15')")
        page.go_back()
        page.wait_for_selector("#turn-view h2:has-text('Turn 14')")
        number = running.engine.session("harbour").window(14).items[1].id
        page.click(f".map [data-message='{number}']", position={"x": 2, "y": 5})
        page.wait_for_selector(f"#m{number}.wanted")
        assert page.is_visible(f"#m{number}")
        assert "turn=14" in page.url

    def test_a_column_of_the_chart_leads_to_its_turn(self, page: Page, running: Running) -> None:
        """Pointing at it shows its numbers."""
        page.goto(running.key_url + "session?session=harbour")
        box = page.locator(".chart").bounding_box()
        x = box["x"] + box["width"] * 2.5 / 15
        page.mouse.move(x, box["y"] + 100)
        page.wait_for_selector("#readout:has-text('Turn 3: ')")
        page.mouse.click(x, box["y"] + 100)
        page.wait_for_selector("#turn-view h2:has-text('Turn 3')")
        assert "turn=3" in page.url
        page.wait_for_selector(".turn.at[data-turn='3']", state="attached")
        assert page.locator(".turn.at").count() == 1

    def test_unchanged_messages_unfold(self, page: Page, running: Running) -> None:
        """They are loaded when a person opens them."""
        page.goto(running.key_url + "session?session=harbour&turn=15")
        assert page.locator("details.run article").count() == 0
        page.click("details.run > summary")
        page.wait_for_selector("details.run article >> nth=3")

    def test_a_click_on_what_was_cut_says_why(self, page: Page, running: Running) -> None:
        """And leads to the turn where it came back."""
        session = running.engine.session("harbour")
        quoted = {hit.message for hit in session.window(15).report.recalled}
        turn = find_cut_turn(session)
        number = min(quoted.intersection(*[{n for e in session.edits() if e.kind == "trimmed" for n in e.ids}]))
        page.goto(running.key_url + f"session?session=harbour&message={number}")
        page.click(f"#m{number} a[data-why]")
        page.wait_for_selector("dialog[open] h2:has-text('What became of message')")
        assert f"turn {turn}" in page.inner_text("dialog[open]")
        page.click("dialog[open] .returns a:has-text('Turn 15')")
        page.wait_for_selector("#turn-view h2:has-text('Turn 15')")
        assert not page.is_visible("dialog[open]")
        assert "turn=15" in page.url

    def test_the_column_of_several_turns_is_marked_for_each_of_them(self, tab: Any, running_alone: Running) -> None:
        """And says which turns they are."""
        session = running_alone.engine.session("long")
        session.assemble([{"role": "user", "content": "Count the buoys."}], limit=8_000)
        store = running_alone.engine._memory.store
        records = store.read_records(Select(scope=session.scope))
        for turn in range(2, 2 * MAX_COLUMNS + 1):
            store.add_records(
                [replace(one, key=f"{turn:08d}:{turn}", time=turn) for one in records if one.kind in {TURN, WINDOW}]
            )
        with open_page(tab, running_alone, path="session?session=long&turn=7") as page:
            page.wait_for_selector(".turn.at")
            assert page.get_attribute(".turn.at", "data-turn") == "8"
            assert page.inner_text("#readout").startswith("Turns 7 to 8, the last: ")
            page.click("#next")
            page.wait_for_selector("#left[data-turn='8']")
            assert page.get_attribute(".turn.at", "data-turn") == "8"

    def test_the_window_scrolls_and_the_chart_stays(self, page: Page, running: Running) -> None:
        """The header stays too."""
        page.goto(running.key_url + "session?session=harbour&tab=conversation&turn=15")
        page.wait_for_selector("#messages .message")
        before = page.locator(".chart").bounding_box()
        page.locator("#left").evaluate("pane => { pane.scrollTop = 500; }")
        assert page.locator("#left").evaluate("pane => pane.scrollTop") > 0
        assert page.locator(".chart").bounding_box() == before
        assert page.locator("#session-head h1").is_visible()

    @pytest.mark.parametrize("width", [390, 1440])
    def test_earlier_messages_are_drawn_once(
        self, page: Page, running: Running, long_talk: list[int], width: int
    ) -> None:
        """Also if something is stored while they are read; what is looked at stays where it is."""
        page.set_viewport_size({"width": width, "height": 800})
        held: list[Any] = []
        is_free = threading.Event()
        page.route("**/session/messages?*", lambda route: route.continue_() if is_free.is_set() else held.append(route))
        page.goto(running.key_url + "session?session=long+talk&tab=conversation")
        page.wait_for_selector("#live.on")
        page.evaluate("document.querySelector('#messages .message:last-child').scrollIntoView()")
        wait_until_drawn(page)
        page.evaluate("document.querySelector('#messages .message').scrollIntoView()")
        until(lambda: held or page.wait_for_timeout(20))
        first = long_talk[-60]
        top = "number => document.querySelector(`#m${number}`).getBoundingClientRect().top"
        before = page.evaluate(top, first)
        with page.expect_response(lambda answer: "/session?" in answer.url):
            running.engine.session("elsewhere").append([{"role": "user", "content": f"Width {width}."}])
        wait_until_drawn(page)  # an observer reports after the next frame
        is_free.set()
        for route in held:
            route.continue_()
        page.wait_for_selector(f"#m{long_talk[-61]}", state="attached")
        assert page.evaluate(top, first) == pytest.approx(before, abs=2)
        page.wait_for_function(
            "() => { const mark = document.querySelector('.earlier'); mark?.scrollIntoView(); return !mark; }"
        )
        shown = page.evaluate("[...document.querySelectorAll('#messages .message')].map(one => Number(one.dataset.id))")
        assert shown == long_talk

    def test_a_narrow_page_that_opens_reads_nothing_earlier(
        self, page: Page, running: Running, long_talk: list[int]
    ) -> None:
        """Its top is where the messages begin, so it would read all of them, or move away from its title."""
        earlier = "**/session/messages?*"
        asked: list[str] = []
        page.route(earlier, lambda route: asked.append(route.request.url))
        page.set_viewport_size({"width": 390, "height": 1600})
        page.goto(running.key_url + "session?session=long+talk&tab=conversation")
        page.wait_for_selector("#live.on")
        wait_until_drawn(page)  # an observer reports after the next frame
        assert asked == []
        assert page.is_visible(".earlier")
        assert page.locator("#messages .message").count() < len(long_talk)
        assert page.evaluate("scrollY") == 0

    @pytest.mark.parametrize("width", [390, 910, 1440])
    @pytest.mark.parametrize("place", [97, 120])
    def test_a_message_that_is_led_to_is_whole(
        self, page: Page, running: Running, long_talk: list[int], *, width: int, place: int
    ) -> None:
        """The rows that stay at the top do not cover its first line, however long it is."""
        page.set_viewport_size({"width": width, "height": 800})
        number = long_talk[place]
        page.goto(running.key_url + f"session?session=long+talk&message={number}#m{number}")
        page.wait_for_selector(f"#m{number}.wanted")
        assert find_hidden_head(page, number) <= 0
        page.click(f"#m{number} .meta a[data-why]")
        page.click("dialog[open] a:has-text('in the conversation')")
        page.wait_for_selector("dialog[open]", state="hidden")
        page.wait_for_selector(f"#m{number}.wanted")
        assert find_hidden_head(page, number) <= 0
        page.goto(running.key_url + "session?session=long+talk&turn=1")
        page.locator(f".map [data-message='{number}']").first.dispatch_event("click")
        page.wait_for_selector(f"#m{number}.wanted")
        assert find_hidden_head(page, number) <= 0

    def test_a_turn_that_a_search_names_opens_with_its_window(self, page: Page, running: Running) -> None:
        """A hit itself leads to its message in the conversation."""
        page.goto(running.key_url + "?q=part+3+of+the+harbour")
        page.click(".hit-turn")
        page.wait_for_selector("#window")
        assert re.fullmatch(r"Window of turn \d+", page.inner_text("#left .tabs [aria-current]"))
        assert "turn=" in page.url

    def test_the_tabs_and_the_formats(self, page: Page, running: Running) -> None:
        """Without loading the page again."""
        page.goto(running.key_url + "session?session=harbour&turn=12")
        page.click(".tabs a:has-text('Request')")
        page.wait_for_selector("pre.wire:has-text('messages')")
        page.click(".formats a:has-text('gemini')")
        page.wait_for_selector("pre.wire:has-text('contents')")
        assert "format=gemini" in page.url
        page.go_back()
        page.wait_for_selector("pre.wire:has-text('messages')")

    def test_without_scripts_a_turn_can_be_read(self, browser: Any, running: Running) -> None:
        """The window, folded messages, the next turn, and why something was cut."""
        context = browser.new_context(java_script_enabled=False)
        context.set_default_timeout(1000 * PATIENCE)
        page = context.new_page()
        page.goto(running.key_url + "session?session=harbour&turn=14")
        page.click("details.run > summary")
        page.click("details.run a:has-text('Show these messages')")
        page.wait_for_selector(".run article >> nth=3")
        page.click("#next")
        page.wait_for_selector("#turn-view h2:has-text('Turn 15')")
        page.click(".changes a:has-text('Why?')")
        page.wait_for_selector("h1:has-text('What happened in turn 15')")
        context.close()


class TestPasts:
    def test_all_turns_are_read_in_addition_to_the_newest(self, tmp_path: Any) -> None:
        """What was read before is kept, and turns that were made since are read too."""
        sent: list[dict[str, str]] = []

        def send(session: Session) -> None:
            sent.append({"role": "user", "content": f"Mooring {len(sent)} is free. 泊位{len(sent)}空着。" * 40})
            session.assemble(sent, limit=4_000)

        with Engine.open(tmp_path, background=False) as engine:
            for _ in range(6):
                send(engine.session("s"))
        with Engine.open(tmp_path, background=False) as engine:  # its first turn records the whole history
            session = engine.session("s")
            for _ in range(6):
                send(session)
            store = engine._memory.store
            pasts = Pasts(store, max_newest=8)
            newest = pasts.read_some(session.scope)
            assert not newest.is_whole
            send(session)
            whole = pasts.read(session.scope)
            assert [turn.number for turn in whole.turns] == list(range(1, 14))
            assert whole.turns[4] is newest.turns[0]
            afresh = Pasts(store).read(session.scope)
            assert (whole.turns, whole.edits) == (afresh.turns, afresh.edits)
            assert pasts.read_some(session.scope, turn=2) is whole

    def test_only_what_is_new_is_read_and_what_is_forgotten_is_read_again(self, tmp_path: Any) -> None:
        """A session that goes on, one of whose messages is forgotten, one that is forgotten whole."""
        with Engine.open(tmp_path, background=False) as engine:
            pasts = Pasts(engine._memory.store)
            session = engine.session("s")
            history = [{"role": "user", "content": "The buoy is red."}]
            session.assemble(history, limit=8_000)
            first = pasts.read(session.scope)
            assert first.last == 1
            assert pasts.read(session.scope) is first
            history += [{"role": "assistant", "content": "Red."}, {"role": "user", "content": "The pier is long."}]
            session.assemble(history, limit=8_000)
            second = pasts.read(session.scope)
            assert second.turns[0] is first.turns[0]
            assert second.last == 2
            session.forget([session.messages()[0].id])
            third = pasts.read(session.scope)
            assert third.turns[0] is not first.turns[0]
            session.forget()
            assert pasts.read(session.scope).turns == ()
