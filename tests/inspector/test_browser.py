"""The inspector in a real browser: every screen, by keyboard, live, with hostile words, and accessible."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from inspector.conftest import Running, find_violations, open_page, open_tab

Page = Any
SCREENS = {
    "sessions": "",
    "session": "session?session=harbour",
    "turn": "turn?session=harbour&turn=15&page=1",
    "window": "session?session=harbour&turn=14",
    "request": "session?session=harbour&turn=14&tab=request",
    "why": "why?session=harbour&message=3",
    "memory": "memory",
    "overview": "overview",
    "notes": "notes",
    "ask": "ask?q=Which+port+has+part+1%3F",
    "health": "health",
}


@pytest.fixture
def page(tab: Any, running: Running) -> Iterator[Page]:
    """A page for the inspector."""
    with open_page(tab, running, path=None) as page:
        yield page


@pytest.mark.nightly  # the tests of single pages look for the same in what they open
def test_every_screen_is_accessible(page: Page, running: Running) -> None:
    """In light and dark, axe finds nothing."""
    for name, path in SCREENS.items():
        page.goto(running.key_url + path)
        if name == "session":
            page.wait_for_selector("#turn-view h2")
        assert (name, find_violations(page)) == (name, [])


@pytest.mark.nightly
def test_no_screen_is_wider_than_a_narrow_window(page: Page, running: Running) -> None:
    """Nothing is reached by scrolling sideways alone."""
    page.set_viewport_size({"width": 400, "height": 800})
    for name, path in SCREENS.items():
        page.goto(running.key_url + path)
        if name == "session":
            page.wait_for_selector("#turn-view h2")
        assert (name, page.evaluate("document.documentElement.scrollWidth > 400")) == (name, False)


@pytest.mark.parametrize("name", ["window", "memory", "ask", "health"])
def test_words_stay_whole_on_a_phone(page: Page, running: Running, name: str) -> None:
    """Tabs are in one row, a score is next to its name, the source of a setting is not broken, nothing is cut off."""
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(running.key_url + SCREENS[name])
    if name == "health":
        page.wait_for_selector(".settings", state="attached")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    tops = page.evaluate("[...document.querySelectorAll('.tabs a')].map(one => one.getBoundingClientRect().top)")
    assert len(set(tops)) == (1 if name in {"window", "memory"} else 0)
    parts = page.evaluate(
        "[...document.querySelectorAll('.score dt')].map(one => [one, one.nextElementSibling]"
        ".map(part => Math.round(part.getBoundingClientRect().top / 8)))"
    )
    assert bool(parts) == (name == "ask")
    assert all(abs(left - right) <= 1 for left, right in parts)
    lines = page.evaluate(
        "[...document.querySelectorAll('.settings :is(th, td):last-child')].map(one => {"
        " const range = document.createRange(); range.selectNodeContents(one); return range.getClientRects().length; })"
    )
    assert set(lines) == ({1} if name == "health" else set())
    cut = page.evaluate(
        "[...document.querySelectorAll('.bar nav, h1')].filter(one => one.scrollWidth > one.clientWidth)"
        ".map(one => one.textContent)"
    )
    assert cut == []
    wide = page.evaluate(
        "[...document.querySelectorAll('input[placeholder]')].filter(one => one.offsetParent).filter(one => {"
        " const pen = document.createElement('canvas').getContext('2d'); const style = getComputedStyle(one);"
        " pen.font = style.font; const room = one.clientWidth - 2 * parseFloat(style.paddingLeft);"
        " return pen.measureText(one.placeholder).width > room; }).map(one => one.placeholder)"
    )
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_nothing_cuts_off_the_ring_of_a_field(page: Page, running: Running) -> None:
    """The field that has the focus is outlined on all sides."""
    for path in ("", "memory", "ask", "whatif?session=harbour"):
        page.goto(running.key_url + path)
        clipping = page.evaluate(
            "[...document.querySelectorAll('main form input:not([type=hidden])')].flatMap(field => {"
            " const around = []; for (let one = field.parentElement; one; one = one.parentElement) around.push(one);"
            " return around.filter(one => getComputedStyle(one).overflowX !== 'visible').map(one => one.outerHTML); })"
        )
        assert (path, clipping) == (path, [])


@pytest.fixture
def page_with_clock(browser: Any, running: Running) -> Iterator[Page]:
    """A page for the inspector whose time a test may set."""
    with open_tab(browser) as tab, open_page(tab, running, path=None) as page:
        page.clock.install()
        yield page


def test_by_keyboard_alone(page_with_clock: Page, running: Running) -> None:
    """Search, go to the hit, step through the turns, go to another page, change the theme."""
    page = page_with_clock
    page.goto(running.key_url + "memory")
    page.clock.pause_at(time.time() + 3_600)  # the second key must follow within a second
    page.keyboard.press("g")
    page.keyboard.press("s")
    page.wait_for_url(running.key_url)
    page.clock.resume()
    page.keyboard.insert_text("part 3 of the harbour ledger")  # at once: the list is drawn again for each change
    page.wait_for_selector(".hits .row")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.wanted")
    page.wait_for_selector("#turn-view h2")
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#turn-view h2:has-text('Turn 14')")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") in {"light", "dark"}
    page.keyboard.press("?")
    assert page.is_visible("dialog dl.keys")
    page.keyboard.press("Escape")
    assert not page.is_visible("dialog dl.keys")


def test_a_running_session_is_followed(page: Page, running: Running) -> None:
    """A message and a turn appear while the page is open."""
    session = running.engine.session("live")
    history = [{"role": "user", "content": "first words"}]
    session.assemble(history, limit=8_000)
    page.goto(running.key_url + "session?session=live")
    page.wait_for_selector("#live.on")
    page.wait_for_selector("#turn-view h2:has-text('Turn 1')")
    history += [{"role": "assistant", "content": "a reply"}, {"role": "user", "content": "second words"}]
    session.assemble(history, limit=8_000)
    page.wait_for_selector(".message:has-text('second words')")
    page.wait_for_selector("#turn-view h2:has-text('Turn 2')")


def test_what_was_stored_before_the_page_followed_appears(page: Page, running: Running) -> None:
    """A conversation may continue while the page loads."""
    session = running.engine.session("loading")
    history = [{"role": "user", "content": "first words"}]
    session.assemble(history, limit=8_000)
    held: list[Any] = []
    page.route("**/events", lambda route: held.append(route))  # noqa: PLW0108 - Playwright adds attributes to it
    page.goto(running.key_url + "session?session=loading")
    page.wait_for_selector("#turn-view h2:has-text('Turn 1')")
    history += [{"role": "assistant", "content": "a reply"}, {"role": "user", "content": "second words"}]
    session.assemble(history, limit=8_000)
    for route in held:
        route.continue_()
    page.wait_for_selector(".message:has-text('second words')")


def test_a_pinned_message_shows_at_once(page: Page, running: Running) -> None:
    """The menu closes, and the message has the mark."""
    numbers = running.engine.session("pins").append([{"role": "user", "content": "Keep the yellow crane."}])
    page.goto(running.key_url + "session?session=pins")
    page.click(f"#m{numbers[0]} .menu summary")
    page.click(f"#m{numbers[0]} [data-act='pin']")
    page.wait_for_selector(f"#m{numbers[0]} .tag:has-text('pinned')")
    assert page.query_selector(".menu[open]") is None


def test_hostile_words_do_nothing(page: Page, running: Running) -> None:
    """Tags, links, pictures, terminal codes, direction marks and a very long line are words."""
    page.goto(running.key_url + "session?session=hostile+%3Cb%3Ename%3C%2Fb%3E")
    page.wait_for_selector("#turn-view h2")
    assert page.evaluate("window.hacked") is None
    text = page.inner_text("#messages")
    assert "<script>" in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert page.query_selector("a[href^='javascript']") is None
    assert page.query_selector("#messages img") is None


def test_forgetting_is_confirmed_twice(page: Page, running: Running) -> None:
    """What will be erased is shown, and one has to type the word."""
    running.engine.session("harbour").remember("The pier is closed on Mondays.")
    page.goto(running.key_url + "memory")
    page.click(".fact:has-text('pier') .menu summary")
    page.click(".fact:has-text('pier') [data-erase-facts]")
    page.wait_for_selector("dialog[open]:has-text('The pier is closed')")
    page.fill("dialog input", "no")
    page.click("dialog button.danger")
    assert page.is_visible("dialog[open]")
    page.fill("dialog input", "forget")
    page.click("dialog button.danger")
    page.wait_for_selector(".fact:has-text('pier')", state="detached")
    assert all("pier" not in row.content for row in running.engine.session("harbour").facts())


def test_a_menu_that_is_opened_while_facts_are_read_again_stays_open(page: Page, running: Running) -> None:
    """What is new is drawn by a later update."""
    running.engine.session("harbour").remember("The crane is yellow.")
    rows = "**/memory?rows=1*"
    held: list[Any] = []
    page.route(rows, lambda route: held.append(route))  # noqa: PLW0108 - Playwright adds attributes to it
    with page.expect_request(rows):
        page.goto(running.key_url + "memory")
        running.engine.session("harbour").remember("The dock gate is green.")
    page.click(".fact:has-text('crane') .menu summary")
    for route in held:
        route.continue_()
    page.wait_for_function("performance.getEntriesByType('resource').some(one => one.name.includes('rows=1'))")
    assert page.is_visible(".fact:has-text('crane') [data-erase-facts]")
    page.unroute(rows)
    page.click(".fact:has-text('crane') .menu summary")
    running.engine.session("harbour").remember("The lock keeper is asleep.")
    page.wait_for_selector(".fact:has-text('lock keeper')")  # updates come one after the other: the first one is done
    page.wait_for_selector(".fact:has-text('dock gate')")


def test_another_server_of_this_machine_gets_no_key(browser: Any, running: Running) -> None:
    """Browsers send cookies to every port of a host. What another server gets there must not open the inspector."""
    received: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(f"{self.path}\n{self.headers}")
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with open_tab(browser) as page:
            page.goto(running.key_url)
            page.wait_for_selector("h1")
            assert page.url.startswith(running.url)
            page.evaluate(f"location.href = 'http://127.0.0.1:{other.server_port}/ui/'")
            page.wait_for_url(f"http://127.0.0.1:{other.server_port}/ui/")
        other.shutdown()
    assert received
    for text in received:
        assert "cookie" not in text.lower()
        assert running.url not in text  # as the referrer
