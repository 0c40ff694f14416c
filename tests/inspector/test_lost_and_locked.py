"""The inspector without its server, without its key, and with problems: what a person sees then."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.settings import Embedding, Settings
from inspector.conftest import Running, open_page, open_tab, serve
from support import patient
from support.waiting import UNHURRIED

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """An engine with one session."""
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        engine.session("harbour").assemble([{"role": "user", "content": "Where is the ledger?"}], limit=8_000)
        yield engine


class TestLocked:
    def test_the_root_leads_to_the_inspector(self, running: Running, browser: Any) -> None:
        """Without the key the page asks for it; with the address that `holdfast ui` prints it opens."""
        with open_tab(browser) as page:
            page.goto(running.url + "/")
            assert page.inner_text("h1") == "The inspector of Holdfast"
            page.fill("input", "wrong")
            page.click("button")
            page.wait_for_selector("[role='alert']")
            page.fill("input", running.key_url)
            page.click("button")
            page.wait_for_selector("h1:has-text('Sessions')")
            assert page.url == running.key_url

    def test_programs_get_a_line(self, running: Running) -> None:
        """A page would be of no use to them, and tells nothing of the key either."""
        answer = patient.get(running.url + "/", follow_redirects=True)
        assert answer.status_code == 401
        assert "`holdfast ui`" in answer.text
        page = patient.get(running.url + "/ui/", headers={"accept": "text/html"})
        assert page.status_code == 401
        assert "default-src 'none'" in page.headers["content-security-policy"]
        key = running.key_url.split("/")[-2]
        assert key not in page.text
        refused = patient.post(running.url + "/ui/open", data={"key": key}, headers={"Origin": "http://example.com"})
        assert refused.status_code == 403


def test_a_server_that_is_gone_is_said_on_every_page(engine: Engine, browser: Any) -> None:
    """A search says that it got no answer, instead of showing old results."""
    with serve(engine) as running, open_tab(browser) as page:
        page.goto(running.key_url)
        page.wait_for_selector("#live.on")
        assert page.inner_text("#live") == "live"
        page.context.set_offline(True)
        page.evaluate("dispatchEvent(new Event('offline'))")
        page.fill("#q", "ledger")
        page.wait_for_selector("#hits .problem:has-text('cannot be reached')")
        page.wait_for_selector("#lost:has-text('holdfast ui')")
        assert page.inner_text("#live") == "not connected"
        page.context.set_offline(False)
        page.fill("#q", "the ledger")
        page.wait_for_selector("#hits .row")
        page.wait_for_selector("#lost", state="hidden")


def test_health_shows_problems_first(running: Running, tab: Any) -> None:
    """What works and every default are folded."""
    with open_page(tab, running, path="health") as page:
        page.wait_for_selector(".verdict.bad:has-text('1 problem found')")
        assert page.inner_text(".verdict li").split("\n") == ["wrong", "<b>broken</b>: run holdfast reindex"]
        assert not page.is_visible("text=all is well")
        assert not page.is_visible("text=recall.enabled")
        page.click("text=Check every row")
        page.wait_for_selector("text=Every row of the store was read.")
        page.click("text=1 check passed")
        assert page.is_visible("text=all is well")
        page.click("text=/All \\d+ settings/")
        assert page.is_visible("text=recall.enabled")
