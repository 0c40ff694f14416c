"""Take the pictures of the inspector in docs/inspector.md: every screen, light and dark, of the example sessions.

    python scripts/screenshots.py [--only NAME] [FOLDER]

Needs Playwright, Pillow and a Chromium. The sessions are the one of `holdfast demo` and examples/webhook.jsonl.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from holdfast import Engine, transcripts
from holdfast.cli.inspect import look_outside
from holdfast.cli.replay import replay_requests
from holdfast.messages import Message, Text, Usage
from holdfast.server.app import create_app
from holdfast.server.inspector.web import address
from holdfast.settings import Settings
from holdfast.shared import find_memory

ROOT = Path(__file__).parent.parent
TOKEN = "a token for pictures"  # noqa: S105 - of a server that runs for a minute
FACTS = (
    ("REFUND_KEY_TTL_HOURS = 36: idempotency keys of refunds live for 36 hours.", "config"),
    ("The alert for ledger lag fires at 45 seconds.", "decision"),
    ("对账任务每天三点四十分运行。", "decision"),
)
QUESTION = "At how many seconds of ledger lag does the alert fire?"


def fill(engine: Engine) -> None:
    """Replay the example sessions, turn by turn, in a small window."""
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder) / "demo.jsonl"
        demo.write_bytes((files("holdfast.cli") / "demo.jsonl").read_bytes())
        for name, path, limit in (
            ("tidepay-ledger", demo, 32_000),
            ("parcel-webhooks", ROOT / "examples/webhook.jsonl", 16_000),
        ):
            messages = transcripts.read(path).messages
            for _ in replay_requests(engine, messages, session=name, limit=limit):
                pass
    session = engine.session("tidepay-ledger")
    for content, kind in FACTS:
        session.remember(content, type=kind)  # type: ignore[arg-type]
    engine.work()


def fill_weeks(folder: Path, settings: Settings) -> None:
    """Make sessions of several weeks, with usage as providers report it."""
    chance = random.Random(7)  # noqa: S311 - pictures
    now = [0]
    with Engine.open(folder, settings=settings, background=False, clock=lambda: now[0]) as engine:
        for day in range(7 * WEEKS):
            start = int(time.time() * 1000) - (7 * WEEKS - day) * 86_400_000
            host, model = chance.choice(list(HOSTS.items()))
            session = engine.session(f"{host}-{day}", agent=host, project="tidepay")
            history: list[Message] = []
            for turn in range(chance.randrange(6, 26)):
                now[0] = start + turn * 60_000
                text = f"Check step {turn} of the ledger import of day {day}. 请检查第{turn}步。" + " More words." * 60
                history.append(Message(role="user", parts=(Text(text=text),)))
                window = session.assemble(history, limit=8_000, model=model)
                size = 40 * window.report.total_tokens
                kept = int(size * (window.report.prefix_kept or 0.0) * 0.9)
                usage = Usage(input=size - kept, output=chance.randrange(200, 2_000), cache_read=kept)
                now[0] += chance.randrange(900, 9_000)
                reply = Message(role="assistant", parts=(Text(text="It is fine."),), model=model, usage=usage)
                history.append(reply)
                session.append([reply], after=window.place)


@contextmanager
def serve(engine: Engine) -> Iterator[str]:
    """Serve the inspector, and give its address."""
    memory = find_memory(engine._memory.home, project=None)
    app = create_app(engine, token=TOKEN, outside=look_outside(memory))
    # Pages that are open wait for news, and would be waited for.
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield address(f"http://127.0.0.1:{port}", TOKEN)
    finally:
        server.should_exit = True
        thread.join()


SCREENS = {
    "sessions": "",
    "search": "?q=ledger+lag",
    "session": "session?session=tidepay-ledger",
    "turn": "session?session=tidepay-ledger&turn=173",
    "why": "why?session=tidepay-ledger&message=140",
    "memory": "memory",
    "ask": "ask?q=At+how+many+seconds+of+ledger+lag+does+the+alert+fire%3F&b=recall.hard_cap_tokens%3D500",
    "trends": "trends",
    "whatif": "whatif?session=tidepay-ledger&limit=16000&model=claude-sonnet-4-5&go=1",
    "health": "health",
}
WEEKS = 5
"""How long before today the sessions begin that the page Trends adds up."""
HOSTS = {"claude-code": "claude-sonnet-4-5", "codex": "gpt-5-mini", "pi": "my-local-model"}


def shoot(browser: Browser, url: str, folder: Path, *, only: str | None) -> None:
    """Take every picture, and the ones of a narrow screen."""
    for theme in ("light", "dark"):
        page = browser.new_page(viewport={"width": 1360, "height": 860}, color_scheme=theme, device_scale_factor=1)
        page.goto(url)
        for name, path in SCREENS.items():
            if only == name or (only is None and name != "trends"):
                page.goto(url + path)
                page.wait_for_selector("[data-busy], [data-reload]", state="detached", timeout=600_000)
                page.wait_for_timeout(900)
                page.screenshot(path=folder / f"{name}-{theme}.png")
        page.close()
    page = browser.new_page(viewport={"width": 400, "height": 800}, color_scheme="light")
    page.goto(url)
    for name in ("sessions", "session"):
        if only in {None, "narrow"}:
            page.goto(url + SCREENS[name])
            page.wait_for_timeout(900)
            page.screenshot(path=folder / f"{name}-narrow.png")


def record_tour(browser: Browser, url: str, file: Path) -> None:
    """Record a tour of 40 seconds: what a person would look at first."""
    frames = []
    page = browser.new_page(viewport={"width": 1120, "height": 700}, color_scheme="light")

    def take(seconds: float) -> None:
        page.wait_for_timeout(700)
        frames.append((Image.open(BytesIO(page.screenshot())).convert("RGB"), int(seconds * 1000)))

    page.goto(url)
    take(3)
    for words in ("ledger", "ledger lag", "ledger lag alert"):
        page.fill("#q", words)
        take(1)
    take(3)
    page.goto(url + SCREENS["session"])
    take(4)
    for turn in (80, 120, 160, 200, 240):
        page.fill("#turn", str(turn))
        take(1.2)
    page.goto(url + SCREENS["turn"])
    take(4)
    page.mouse.move(840, 560)  # over what happened in the turn, which scrolls by itself
    page.mouse.wheel(0, 600)
    take(4)
    page.goto(url + SCREENS["why"])
    take(4)
    page.goto(url + SCREENS["memory"])
    take(4)
    page.goto(url + SCREENS["ask"])
    take(5)
    page.goto(url + SCREENS["health"])
    take(3)
    pictures = [frame.resize((896, 560)).quantize(64) for frame, _ in frames]
    pictures[0].save(
        file, save_all=True, append_images=pictures[1:], duration=[spent for _, spent in frames], loop=0, optimize=True
    )


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "inspector")
    parser.add_argument("--only")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
        # It shows pages of this process alone, and root can start no Chromium with a sandbox.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        if options.only != "trends":
            with (
                tempfile.TemporaryDirectory() as home,
                Engine.open(home, settings=Settings(), background=False) as engine,
            ):
                fill(engine)
                with serve(engine) as url:
                    shoot(browser, url, options.folder, only=options.only)
                    if options.only in {None, "tour"}:
                        record_tour(browser, url, options.folder / "tour.gif")
        if options.only in {None, "trends"}:  # last, in a memory of its own: the other has one day
            with tempfile.TemporaryDirectory() as home:
                fill_weeks(Path(home), Settings())
                with Engine.open(home, settings=Settings(), background=False) as engine, serve(engine) as url:
                    shoot(browser, url, options.folder, only="trends")
        browser.close()


if __name__ == "__main__":
    main()
