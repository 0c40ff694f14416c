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
        engine.session(name).assemble(history, limit=8_000)
    engine.session(name).assemble(
        [*history, {"role": "user", "content": "Which port has part 1 of the ledger?"}], limit=8_000
    )


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
def serve(engine: Engine, *, outside: Outside = OUTSIDE) -> Iterator[Running]:
    """Run a server with the inspector over an engine."""
    server = uvicorn.Server(
        uvicorn.Config(create_app(engine, token="secret", outside=outside), port=0, log_level="warning")
    )
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
def open_page(browser: Any, running: Running, *, width: int = 1200, path: str | None = "") -> Iterator[Any]:
    """Open a page of the inspector; whatever the browser complains about or asks elsewhere fails the test.

    Without a path it is empty, for a test that chooses one itself: a page takes a browser a second of the processor.
    """
    context = browser.new_context(viewport={"width": width, "height": 800})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(running.url) else complaints.append(request.url))
    try:
        if path is not None:
            page.goto(running.key_url + path)
        yield page
    finally:
        context.close()  # the server waits for its connections before it stops
    assert complaints == []


def find_violations(page: Any) -> list[tuple[str, str]]:
    """Return what axe finds in a page, in light and dark. In dark, only the contrast can be another one."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed").Axe()
    page.emulate_media(color_scheme="light")
    found = axe.run(page).response["violations"]
    page.emulate_media(color_scheme="dark")
    options = {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}
    found += axe.run(page, options=options).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found]


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
