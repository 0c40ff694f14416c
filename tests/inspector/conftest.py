"""A server with the inspector over a store with a few sessions, one of them with hostile words; and a real browser."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="the server extra is not installed")
import uvicorn

from holdfast import Engine
from holdfast.server.app import create_app
from holdfast.server.inspector.data import Health, Note, Outside
from holdfast.server.inspector.web import address
from holdfast.settings import Embedding, Settings
from support.waiting import PATIENCE, UNHURRIED

HOSTILE = (
    "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'> "
    "[link](javascript:window.hacked=3) ![picture](http://198.51.100.7/track.png) \x1b[31mred\x1b[0m \u202egnp.exe "
    + "x"
    * 200_000
)
HEALTH = Health(
    findings=[("ok", "all is well"), ("wrong", "<b>broken</b>: run `holdfast reindex`")],
    settings=[
        ("recall.enabled", "true", "default"),
        ("model.name", "", "default"),
        ("pruning.protected_tools_of_every_host", "read_file,write_file,search_files," * 4, "default"),
    ],
)
NOTES = [Note(path="MEMORY.md", text="# Notes\n\n- the tide table is in `tides.csv`")]
OUTSIDE = Outside(health=lambda is_thorough: replace(HEALTH, is_thorough=is_thorough), notes=lambda: NOTES)


@dataclass(frozen=True)
class Running:
    """A server, the engine behind it, and the address that opens the inspector."""

    engine: Engine
    url: str
    key_url: str


def talk(engine: Engine, name: str, *, turns: int) -> None:
    """Let a session grow turn by turn in a small window."""
    history: list[dict[str, object]] = [{"role": "system", "content": "You fix bugs."}]
    for number in range(turns):
        history += [
            {"role": "user", "content": f"Look at part {number} of the harbour ledger. 请看第{number}部分。"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": f"c{number}",
                        "type": "function",
                        "function": {"name": "read", "arguments": f'{{"part": {number}}}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"part {number}: port 7{number:03d} " * 60},
            {
                "role": "assistant",
                "content": f"Part {number} is **fine**:\n\n- port 7{number:03d}\n- `ledger_{number}`",
            },
        ]
        window = engine.session(name).assemble(history, limit=8_000)
        assert not window.failures  # a request without memory has no record, and the pages lack it
    window = engine.session(name).assemble(
        [*history, {"role": "user", "content": "Which port has part 1 of the ledger?"}], limit=8_000
    )
    assert not window.failures


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for all tests of the inspector."""
    folder = tmp_path_factory.mktemp("inspector")
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Engine.open(folder, settings=settings, background=False) as engine:
        talk(engine, "harbour", turns=14)
        engine.session("hostile <b>name</b>").assemble([{"role": "user", "content": HOSTILE}], limit=2_000_000)
        engine.session("harbour").remember("The ledger listens on port 7001.", type="config")
        with serve(engine) as started:
            yield started


@pytest.fixture
def running_alone(tmp_path: Path) -> Iterator[Running]:
    """A server over a memory of its own, whose costs no other test adds up."""
    settings = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)
    with Engine.open(tmp_path, settings=settings, background=False) as engine, serve(engine) as started:
        yield started


@contextmanager
def serve(engine: Engine, *, outside: Outside = OUTSIDE, is_on_demand: bool = False) -> Iterator[Running]:
    """Run a server with the inspector over an engine."""
    app = create_app(engine, token="secret", outside=outside, is_on_demand=is_on_demand)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield Running(engine=engine, url=url, key_url=address(url, "secret"))
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def open_page(tab: Any, running: Running, *, path: str | None = "") -> Iterator[Any]:
    """Open a page of the inspector; whatever the browser complains about or asks elsewhere fails the test.

    Without a path it is empty, for a test that chooses one itself.
    """
    complaints: list[str] = []

    def note_message(message: Any) -> None:
        if message.type == "error":
            complaints.append(message.text)

    def note_error(error: Any) -> None:
        complaints.append(str(error))

    def note_request(request: Any) -> None:
        if not request.url.startswith(running.url):
            complaints.append(request.url)

    listeners = {"console": note_message, "pageerror": note_error, "request": note_request}
    tab.set_viewport_size({"width": 1200, "height": 800})
    for event, listener in listeners.items():
        tab.on(event, listener)
    try:
        if path is not None:
            tab.goto(running.key_url + path)
        yield tab
    finally:
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
        clear(tab)
    assert complaints == []


def clear(tab: Any) -> None:
    """Leave the page, and what a test has changed in it."""
    tab.unroute_all(behavior="ignoreErrors")
    tab.evaluate("try { localStorage.clear(); } catch { }")
    tab.mouse.move(0, 0)
    tab.emulate_media(color_scheme="light")
    tab.goto("about:blank")  # the server waits for its connections before it stops


def find_violations(page: Any) -> list[tuple[str, str]]:
    """Return what axe finds in a page, in light and dark. In dark, only the contrast can be another one."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page.evaluate(axe.axe_script)  # its half megabyte once for both
    found: list[tuple[str, str]] = []
    for scheme, options in {"light": {}, "dark": {"runOnly": ["color-contrast"]}}.items():
        page.emulate_media(color_scheme=scheme)
        found += page.evaluate(
            "options => axe.run(document, {resultTypes: ['violations'], ...options})"
            ".then(results => results.violations.map(one => [one.id, one.nodes[0].html]))",
            options,
        )
    return found


def find_chromium() -> str | None:
    """Find the system's Chromium; best the one without windows, which takes half of the processor time."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="package")  # its event loop must not run on during the tests of other folders
def browser() -> Iterator[object]:
    """A real Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with playwright.sync_playwright() as started:
        path = find_chromium()
        if path is None and not Path(started.chromium.executable_path).exists():
            pytest.skip("there is no Chromium on this machine")
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def tab(browser: Any) -> Iterator[object]:
    """An empty page for all tests, one after the other: a context of its own takes half a second of the processor."""
    with open_tab(browser) as tab:
        yield tab


@contextmanager
def open_tab(browser: Any) -> Iterator[Any]:
    """Open an empty page for a test that leaves something in it, like another clock."""
    context = browser.new_context()
    context.set_default_timeout(1000 * PATIENCE)
    try:
        yield context.new_page()
    finally:
        context.close()  # the server waits for its connections before it stops
