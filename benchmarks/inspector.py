"""How much processor time the pages of the inspector take over a large store, the first time and later."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.testclient import TestClient

from benchmarks.archive_rows import make_rows
from benchmarks.store import Writer
from holdfast import Engine
from holdfast.messages import Message, Text
from holdfast.server.app import create_app
from holdfast.server.inspector.web import address
from holdfast.settings import Embedding, Settings
from holdfast.store.base import FactRow, Scope

BATCH = 500
REPEATS = 9
FACTS = 20
"""Facts of each session."""
FACT_CHARS = 90
CHARS = 240
"""Characters of a message: most of those in a long session are short."""
_TOKEN = "benchmark"  # noqa: S105 - of a server that nobody can reach


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCost:
    """Milliseconds of the processor for each page: the first request, and the median and the worst after it."""

    messages: int
    sessions: int
    pages: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(messages: int, *, seed: int = 1, progress: Callable[[int], None] = lambda _: None) -> PageCost:
    """Fill a store with sessions of 500 messages, and one that grows turn by turn, and ask for every page."""
    writer = Writer(seed)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(embedding=Embedding(provider="none"))
        with Engine.open(Path(folder), settings=settings, background=False) as engine:
            for start in range(0, messages, BATCH):
                said = [
                    Message(role="user" if number % 2 else "assistant", parts=(Text(text=writer.text()[:CHARS]),))
                    for number in range(min(BATCH, messages - start))
                ]
                scope = Scope(session=f"session-{start // BATCH:05d}")
                engine._memory.store.add_messages(make_rows(said, scope=scope))
                engine._memory.store.add_facts(_make_facts(writer, scope))
                progress(len(said))
            history = [{"role": "user", "content": writer.text()} for _ in range(60)]
            for stop in range(1, len(history)):
                engine.session("running").assemble(history[:stop], limit=16_000)
            question = writer.question(writer.text())
            return PageCost(messages=messages, sessions=-(-messages // BATCH) + 1, pages=_time(engine, question))


def _make_facts(writer: Writer, scope: Scope) -> list[FactRow]:
    facts: list[FactRow] = []
    for number in range(FACTS):
        content = writer.text()[:FACT_CHARS]
        fact_id = f"{scope.session}-{number}"
        facts.append(FactRow(scope=scope, id=fact_id, type="decision", content=content, subject=fact_id, time=number))
    return facts


def _time(engine: Engine, question: str) -> dict[str, dict[str, float]]:
    paths = {
        "sessions": "",
        "sessions by cost": "sessions?sort=cost",
        "search": f"search?q={question}",
        "session": "session?session=session-00000",
        "running session": "session?session=running",
        "turn": "session?session=running&turn=59",
        "memory": "memory",
        "overview": "overview",
        "trends": "trends",
        "ask": f"ask?q={question}",
        "health": "health",
    }
    url = "http://127.0.0.1:1"
    client = TestClient(create_app(engine, token=_TOKEN), base_url=url)
    found: dict[str, dict[str, float]] = {}
    for name, path in paths.items():
        times = []
        for _ in range(REPEATS + 1):
            start = time.process_time()
            client.get(address(url, _TOKEN) + path).raise_for_status()
            times.append((time.process_time() - start) * 1000)
        later = sorted(times[1:])
        figures = (times[0], later[REPEATS // 2], later[-1])
        found[name] = dict(zip(("first_ms", "p50_ms", "max_ms"), (round(one, 1) for one in figures), strict=True))
    return found
