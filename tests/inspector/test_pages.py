"""The pages of the inspector over HTTP: who may see them, what they show, and what their buttons do."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx2 as httpx
import pytest

import patient
from inspector.conftest import Running

PAGES = (
    "/ui/",
    "/ui/sessions",
    "/ui/search?q=ledger",
    "/ui/session?session=harbour",
    "/ui/session/messages?session=harbour&before=20",
    "/ui/turn?session=harbour&turn=15&page=1",
    "/ui/memory",
    "/ui/ask?q=Which+port+has+part+1%3F&b=recall.neighbours%3D0",
    "/ui/health",
    "/ui/checks",
)


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[httpx.Client]:
    """A client with the cookie."""
    with httpx.Client(base_url=running.url, follow_redirects=True) as opened:
        assert opened.get(running.key_url).status_code == 200
        yield opened


def post_key(client: httpx.Client) -> str:
    """Read the token that the pages carry."""
    found = re.search(r'name="post-key" content="(\w+)"', client.get("/ui/").text)
    assert found
    return found[1]


def act(client: httpx.Client, **values: str) -> httpx.Response:
    """Press a button."""
    return client.post("/ui/act", data={"session": "harbour", **values}, headers={"X-Holdfast-Post": post_key(client)})


class TestAccess:
    @pytest.mark.parametrize("path", [*PAGES, "/ui/events", "/ui/download?session=harbour&message=2"])
    def test_no_page_without_the_key(self, running: Running, path: str) -> None:
        """Neither without a key nor with a wrong one."""
        for query in ({}, {"key": "wrong"}):
            answer = patient.get(running.url + path, params={**httpx.QueryParams(path.partition("?")[2]), **query})
            assert answer.status_code == 401
            assert "harbour" not in answer.text

    def test_the_key_is_in_the_address_once(self, running: Running) -> None:
        """Then a cookie that scripts and other pages do not get."""
        answer = patient.get(running.url + "/ui/" + "?" + running.key_url.partition("?")[2])
        assert answer.status_code == 303
        assert "key" not in answer.headers["location"]
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie

    def test_other_pages_and_names_are_refused(self, client: httpx.Client, running: Running) -> None:
        """A page of another origin, and a name that somebody resolves to this machine."""
        assert client.get("/ui/", headers={"Origin": "http://example.com"}).status_code == 403
        assert client.get("/ui/", headers={"Host": "example.com"}).status_code == 403
        assert client.get("/ui/", headers={"Origin": running.url}).status_code == 200
        assert client.post("/holdfast/rpc", headers={"Origin": running.url}).status_code == 403

    def test_a_button_needs_the_token_of_the_page(self, client: httpx.Client) -> None:
        """The cookie alone is not enough."""
        answer = client.post("/ui/act", data={"action": "pin", "session": "harbour", "message": "2"})
        assert answer.status_code == 403

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
        text = client.get("/ui/").text
        assert "harbour" in text
        assert "hostile &lt;b&gt;name" in text

    def test_a_filter(self, client: httpx.Client) -> None:
        """By agent and by time."""
        assert "harbour" not in client.get("/ui/sessions?agent=other").text
        assert "harbour" in client.get("/ui/sessions?agent=main&days=1").text

    def test_the_conversation_shows_what_left(self, client: httpx.Client) -> None:
        """By words, not by colour alone."""
        text = client.get("/ui/session?session=harbour").text
        assert '<span class="state in-window">in window</span>' in text
        older = client.get("/ui/session/messages?session=harbour&before=30").text
        assert ">trimmed</span>" in older

    def test_a_turn(self, client: httpx.Client) -> None:
        """The request as it was sent, the report, what was recalled and why, and the difference."""
        text = client.get("/ui/turn?session=harbour&turn=15").text
        assert "Which port has part 1 of the ledger?" in text
        assert "where it was said" in text
        assert "keyword" in text
        assert "+ added" in text
        assert "Tokens by part" in text

    def test_a_turn_that_is_not_there(self, client: httpx.Client) -> None:
        """A page that says so."""
        answer = client.get("/ui/turn?session=harbour&turn=99&page=1")
        assert answer.status_code == 404
        assert "turn 99" in answer.text
        assert client.get("/ui/turn?session=harbour&turn=x").status_code == 400
        assert client.get("/ui/session?session=nosuch").status_code == 404

    def test_ask(self, client: httpx.Client) -> None:
        """The block, with other settings beside it, and the error where a setting does not exist."""
        text = client.get("/ui/ask?q=Which+port+has+part+1+of+the+ledger%3F&b=recall.neighbours%3D0").text
        assert text.count('<section class="answer"') == 2
        assert "recalled-context" in text
        text = client.get("/ui/ask?q=port&b=recall.nosuch%3D1").text
        assert "is not a change of a setting" in text

    def test_notes_and_health(self, client: httpx.Client) -> None:
        """From outside the store: notes as Markdown, findings escaped, settings with their source."""
        assert "<code>tides.csv</code>" in client.get("/ui/memory").text
        text = client.get("/ui/checks").text
        assert "&lt;b&gt;broken" in text
        assert "recall.enabled" in text

    def test_a_download_is_inert(self, client: httpx.Client) -> None:
        """A text file, whatever it holds."""
        listed = client.get("/ui/session?session=hostile+%3Cb%3Ename%3C%2Fb%3E").text
        number = re.search(r'id="m(\d+)"', listed)
        assert number
        answer = client.get(f"/ui/download?session=hostile+%3Cb%3Ename%3C%2Fb%3E&message={number[1]}")
        assert answer.headers["content-type"].startswith("text/plain")
        assert answer.headers["content-disposition"].startswith("attachment")
        assert len(answer.content) > 1_000_000
        assert client.get("/ui/download?session=harbour&message=999999").status_code == 404


class TestButtons:
    def test_pin_and_exclude(self, client: httpx.Client) -> None:
        """Both are shown at the message."""
        assert act(client, action="pin", message="2").status_code == 200
        assert act(client, action="exclude", message="3").status_code == 200
        text = client.get("/ui/session?session=harbour&message=3").text
        assert ">pinned</span>" in text
        assert ">not recalled</span>" in text
        assert act(client, action="unpin", message="2").status_code == 200
        assert act(client, action="include", message="3").status_code == 200
        assert "come back" in act(client, action="undo trim").text

    def test_a_fact_from_its_birth_to_its_end(self, client: httpx.Client) -> None:
        """Added, corrected, retired, and forgotten after what will be erased was shown."""
        stored = act(client, action="add", content="The harbour opens at six.", type="decision", session="").text
        first = stored.split()[1]
        second = act(
            client, action="correct", session="", fact=first, content="The harbour opens at seven."
        ).text.split()[1]
        text = client.get("/ui/memory").text
        assert "opens at seven" in text
        assert "opens at six" not in text
        assert "opens at six" in client.get("/ui/memory?all=1").text
        assert act(client, action="retire", session="", fact=second).status_code == 200
        assert "opens at seven" not in client.get("/ui/memory").text
        shown = client.get(f"/ui/erase?fact={second}").text
        assert "opens at seven" in shown
        assert act(client, action="forget fact", session="harbour", fact=second).status_code == 400
        assert act(client, action="forget fact", session="", fact=second).status_code == 200
        assert "opens at seven" not in client.get("/ui/memory?all=1").text
        assert act(client, action="forget fact", fact="nosuch").status_code == 400

    def test_a_message_is_forgotten(self, client: httpx.Client, running: Running) -> None:
        """What will be erased is shown first."""
        number = running.engine.session("gone").append([{"role": "user", "content": "The code is tulip."}])[0]
        shown = client.get(f"/ui/erase?session=gone&message={number}").text
        assert "tulip" in shown
        assert act(client, action="forget message", session="gone", message=str(number)).status_code == 200
        assert client.get(f"/ui/erase?session=gone&message={number}").status_code == 404
        assert running.engine.session("gone").get([number]) == []

    def test_an_unknown_action(self, client: httpx.Client) -> None:
        """It is refused."""
        assert act(client, action="explode").status_code == 400
