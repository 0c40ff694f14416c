"""The pages of the inspector over HTTP: who may see them, what they show, and what their buttons do."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.memory.learning_queue import RULES, make_read_record
from holdfast.messages import Message, Text
from holdfast.server.inspector.markup import breakable
from holdfast.server.inspector.past import MAX_NEWEST
from holdfast.server.inspector.web import PREPARING, Inspector, _try_to_load
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select
from holdfast.timeline import WINDOW
from inspector.conftest import Running, serve
from support import patient
from support.waiting import PATIENCE

PAGES = (
    "/",
    "/sessions",
    "/search?q=ledger",
    "/session?session=harbour",
    "/session/messages?session=harbour&before=20",
    "/turn?session=harbour&turn=15&page=1",
    "/memory",
    "/overview",
    "/notes",
    "/ask?q=Which+port+has+part+1%3F&b=recall.neighbours%3D0",
    "/health",
    "/checks",
)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    """A client that has the key."""
    with httpx.Client(base_url=running.key_url, follow_redirects=True) as client:
        assert client.get("/").status_code == 200
        yield client


def act(client: httpx.Client, **values: str) -> httpx.Response:
    """Press a button."""
    return client.post("/act", data={"session": "harbour", **values})


def wait_until_prepared() -> None:
    """Wait for the threads that load what later pages need."""
    for thread in threading.enumerate():
        if thread.name == PREPARING:
            thread.join(PATIENCE)


class TestPreparation:
    def test_what_a_question_needs_is_loaded_while_a_browser_starts(self, running_alone: Running) -> None:
        """Without a question and without a page, if the server forwards nothing: it is there for its pages."""
        running_alone.engine.session("s").append([{"role": "user", "content": "The crane 起重机 lifts 40 tons."}])
        wait_until_prepared()
        assert running_alone.engine._memory._is_warm
        answer = patient.get(f"{running_alone.key_url}ask", params={"q": "What does the 起重机 lift?"})
        assert "40 tons" in answer.text

    def test_a_server_that_hooks_have_started_loads_it_after_the_first_page(self, tmp_path: Path) -> None:
        """Most of them never show one."""
        settings = Settings(embedding=Embedding(provider="none"))
        with (
            Engine.open(tmp_path, settings=settings, background=False) as engine,
            serve(engine, is_on_demand=True) as running,
        ):
            wait_until_prepared()
            before = engine._memory._is_warm
            patient.get(running.key_url).raise_for_status()
            wait_until_prepared()
            assert (before, engine._memory._is_warm) == (False, True)

    def test_early_turns_are_read_after_the_first_page_of_a_long_session(self, running_alone: Running) -> None:
        """The page itself reads only the newest ones, and says so; those of a later page are all drawn."""
        session = running_alone.engine.session("long")
        session.assemble([{"role": "user", "content": "Count the buoys."}], limit=8_000)
        store = running_alone.engine._memory.store
        (first,) = store.read_records(Select(scope=session.scope), kind=WINDOW)
        turns = range(2, MAX_NEWEST + 2)
        store.add_records([replace(first, key=f"{turn:08d}:{turn}", time=turn) for turn in turns])
        page = f"{running_alone.key_url}session?session=long"
        before = patient.get(page).text
        wait_until_prepared()
        after = patient.get(page).text
        assert ["Draw all turns" in text for text in (before, after)] == [True, False]

    def test_a_memory_that_is_closed_meanwhile_is_left_alone(self, tmp_path: Path) -> None:
        """No thread fails, whenever that happens."""
        for seconds in (0.0, 0.001, 0.01):
            with Engine.open(tmp_path, background=False) as engine:
                engine.session("s").append([{"role": "user", "content": "The quay is 300 m long."}])
                preparing = threading.Thread(target=_try_to_load, args=[Inspector(engine, token="secret")._prepare])
                preparing.start()
                preparing.join(seconds)
            preparing.join(PATIENCE)
            assert not preparing.is_alive()
        _try_to_load(Inspector(engine, token="secret")._prepare)


class TestAccess:
    @pytest.mark.parametrize("path", [*PAGES, "/events", "/download?session=harbour&message=2"])
    def test_no_page_without_the_key(self, running: Running, path: str) -> None:
        """Neither without a key nor with a wrong one."""
        for start in ("/ui", "/ui/wrong", f"/ui/{running.key_url.split('/')[-2][:-1]}"):
            answer = patient.get(running.url + start + path)
            assert answer.status_code in {401, 404}
            assert "harbour" not in answer.text

    def test_the_address_without_the_key_explains_how_to_get_it(self, running: Running) -> None:
        """Also with a wrong one."""
        for path in ("/ui", "/ui/", "/ui/wrong/"):
            answer = patient.get(running.url + path)
            assert answer.status_code == 401
            assert "`holdfast ui`" in answer.text

    def test_no_cookie_is_set(self, client: httpx.Client) -> None:
        """Browsers would send it to every port of this machine."""
        for path in PAGES:
            assert "set-cookie" not in client.get(path).headers

    def test_other_pages_and_names_are_refused(self, client: httpx.Client, running: Running) -> None:
        """A page of another origin, and a name that someone resolves to this machine."""
        assert client.get("/", headers={"Origin": "http://example.com"}).status_code == 403
        assert client.get("/", headers={"Host": "example.com"}).status_code == 403
        assert client.get("/", headers={"Origin": running.url}).status_code == 200
        rpc = patient.post(running.url + "/holdfast/rpc", headers={"Origin": running.url})
        assert rpc.status_code == 403

    def test_a_button_needs_the_key(self, running: Running) -> None:
        """Like a page."""
        for start in ("/ui", "/ui/wrong"):
            form = {"action": "forget message", "session": "harbour", "message": "2"}
            assert patient.post(f"{running.url}{start}/act", data=form).status_code in {401, 404, 405}
        assert running.engine.session("harbour").get([2])

    @pytest.mark.parametrize("path", PAGES)
    def test_nothing_from_elsewhere(self, client: httpx.Client, path: str) -> None:
        """The browser is told to load nothing from another host."""
        answer = client.get(path)
        assert answer.status_code == 200
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "http://" not in re.sub(r"http://www\.w3\.org/\d+/svg", "", answer.text).replace(
            "http://198.51.100.7", ""
        )


class TestPages:
    def test_sessions(self, client: httpx.Client) -> None:
        """Every session, with its turns and the name escaped."""
        text = client.get("/").text
        assert "harbour" in text
        assert "hostile &lt;b&gt;name" in text

    def test_a_filter(self, client: httpx.Client) -> None:
        """By agent and by time."""
        assert "harbour" not in client.get("/sessions?agent=other").text
        assert "harbour" in client.get("/sessions?agent=main&days=1").text

    def test_the_conversation_shows_what_left(self, client: httpx.Client) -> None:
        """By words, not by colour alone."""
        text = client.get("/session?session=harbour").text
        assert '<span class="state in-window">in window</span>' in text
        older = client.get("/session/messages?session=harbour&before=30").text
        assert ">cut: why?</a>" in older

    def test_a_turn(self, client: httpx.Client) -> None:
        """Its window, what is new in it, the report, and what was recalled and why."""
        text = client.get("/turn?session=harbour&turn=15").text
        assert "Which port has part 1 of the ledger?" in text
        assert "where it was said" in text
        assert "keyword" in text
        assert '<span class="state new">new</span>' in text
        assert "tokens by part" in text
        assert "In this turn nothing left" not in text
        quiet = client.get("/turn?session=harbour&turn=1").text
        assert "In this turn nothing left the window, and nothing new was recalled." in quiet

    def test_a_turn_that_is_not_there(self, client: httpx.Client) -> None:
        """A page that says so."""
        answer = client.get("/turn?session=harbour&turn=99&page=1")
        assert answer.status_code == 404
        assert "turn 99" in answer.text
        assert client.get("/turn?session=harbour&turn=x").status_code == 400
        assert client.get("/session?session=nosuch").status_code == 404
        assert client.get("/session?session=no%00such").status_code == 404
        assert client.get("/session?session=harbour&agent=nosuch").status_code == 404

    def test_ask(self, client: httpx.Client) -> None:
        """The block, with other settings next to it, and the error where a setting does not exist."""
        text = client.get("/ask?q=Which+port+has+part+1+of+the+ledger%3F&b=recall.neighbours%3D0").text
        assert text.count('<section class="answer"') == 2
        assert "recalled-context" in text
        text = client.get("/ask?q=port&b=recall.nosuch%3D1").text
        assert "is not a change of a setting" in text

    def test_ask_says_if_two_settings_have_the_same_result(self, client: httpx.Client) -> None:
        """One answer alone is not called A."""
        question = "/ask?rows=1&q=Which+port+has+part+1+of+the+ledger%3F"
        same = client.get(f"{question}&b=recall.enabled%3Dtrue").text
        assert "A and B have the same result" in same
        assert "A and B" not in client.get(f"{question}&b=recall.max_facts%3D0").text
        alone = client.get(question).text
        assert "<h2>What is recalled</h2>" in alone
        assert "<h2>A" not in alone

    def test_ask_explains_the_best_passages_and_folds_the_others(self, client: httpx.Client) -> None:
        """A page of all of them is too long to read."""
        text = client.get("/ask?rows=1&cap=8000&q=Look+at+all+parts+of+the+harbour+ledger+请看").text
        why, _, rest = text.split(">Why these passages<")[1].split(">Just missed<")[0].partition("<details")
        assert why.count("<li>") == 10
        assert f"All {10 + rest.count('<li>')} passages" in rest

    def test_notes_and_health(self, client: httpx.Client) -> None:
        """From outside the store: notes as Markdown, findings escaped, settings with their source."""
        assert "<code>tides.csv</code>" in client.get("/notes").text
        text = client.get("/checks").text
        assert "&lt;b&gt;broken" in text
        assert "recall.<wbr>enabled" in text

    def test_a_setting_without_a_value_is_not_set_and_its_name_breaks_between_words(self, client: httpx.Client) -> None:
        """Neither an empty cell nor half a word says anything."""
        text = client.get("/checks").text
        assert '<td><span class="meta">not set</span></td>' in text
        assert "pruning.<wbr>protected_<wbr>tools_<wbr>of_<wbr>every_<wbr>host" in text

    def test_sessions_that_were_only_imported_are_named_until_they_are_read(self, running_alone: Running) -> None:
        """Health does not say that nothing waits, nor does an empty page of facts say that all was read."""
        client = httpx.Client(base_url=running_alone.key_url)
        memory = running_alone.engine._memory
        said = Message(role="user", parts=(Text(text="Decision: use PostgreSQL 16 for billing. 账单用 PostgreSQL。"),))
        for name in ("harbour", "港口"):
            memory.ingest([said], scope=Scope(session=name, project="/pier"))
        unread = "2 archived sessions were not read for facts: <code>holdfast learn</code> reads them"
        assert f"<li>{unread}</li>" in client.get("/health").text
        assert unread in client.get("/memory").text
        assert unread not in client.get("/memory?q=harbour").text
        for name in ("harbour", "港口"):
            scope = Scope(session=name, project="/pier")
            (row,) = memory.store.read_messages(Select(scope=scope))
            record = make_read_record(scope, RULES, model="", start=0, last=row.id, time=1, is_left_to_rules=False)
            memory.store.add_records([record])
        assert "no session waits to be read for facts" in client.get("/health").text
        assert "not read for facts" not in client.get("/memory").text
        client.close()

    def test_health_lists_only_what_waits(self, client: httpx.Client) -> None:
        """And the steps of requests in the order of the page of a turn, without those that never took time."""
        text = client.get("/health").text
        pending = text.split("<h2>Pending work</h2>")[1].split("<h2>")[0]
        assert "embed" not in pending
        assert "No " not in pending
        assert "95th percentile" in text
        shown = re.findall('<th scope="row">([a-z]+)</th>', text)
        turn = client.get("/turn?session=harbour&turn=15").text
        taken = re.findall(r'<th scope="row">([a-z]+)</th><td class="number">[\d.]+ ms', turn)
        assert "recall" in taken
        assert [name for name in taken if name in shown] == [name for name in shown if name in taken]
        assert '0.0 ms</td><td class="number">0.0 ms' not in text

    def test_a_download_is_inert(self, client: httpx.Client) -> None:
        """A text file, whatever it holds."""
        listed = client.get("/session?session=hostile+%3Cb%3Ename%3C%2Fb%3E").text
        number = re.search(r'id="m(\d+)"', listed)
        assert number
        answer = client.get(f"/download?session=hostile+%3Cb%3Ename%3C%2Fb%3E&message={number[1]}")
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["content-disposition"].startswith("attachment")
        assert len(answer.content) > 200_000
        assert client.get("/download?session=harbour&message=999999").status_code == 404


class TestButtons:
    def test_pin_and_exclude(self, client: httpx.Client) -> None:
        """Both are shown at the message."""
        assert act(client, action="pin", message="2").status_code == 200
        assert act(client, action="exclude", message="3").status_code == 200
        text = client.get("/session?session=harbour&message=3").text
        assert ">pinned</span>" in text
        assert ">not recalled</span>" in text
        assert act(client, action="unpin", message="2").status_code == 200
        assert act(client, action="include", message="3").status_code == 200
        assert "come back" in act(client, action="undo trim").text

    def test_a_message_is_forgotten(self, client: httpx.Client, running: Running) -> None:
        """What will be erased is shown first."""
        number = running.engine.session("gone").append([{"role": "user", "content": "The code is tulip."}])[0]
        shown = client.get(f"/erase?session=gone&message={number}").text
        assert "tulip" in shown
        assert act(client, action="forget message", session="gone", message=str(number)).status_code == 200
        assert client.get(f"/erase?session=gone&message={number}").status_code == 404
        assert running.engine.session("gone").get([number]) == []

    def test_an_unknown_action(self, client: httpx.Client) -> None:
        """It is refused."""
        assert act(client, action="explode").status_code == 400


def test_a_path_breaks_after_its_separators() -> None:
    """And what it contains is escaped."""
    assert breakable("/srv/data-b/<x>") == "/<wbr>srv/<wbr>data-<wbr>b/<wbr>&lt;x&gt;"
    assert breakable("C:\\Users\\ann") == "C:\\<wbr>Users\\<wbr>ann"
    assert breakable("") == ""
