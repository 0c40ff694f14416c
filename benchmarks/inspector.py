"""How much processor time the pages of the inspector take over a large store, the first time and later.

Processes of their own show the pages: the one that has filled the store knows most of it. One of them shows all pages
in the order in which people look at them. Each of the others has just started, as if a link led to its page: one as
`holdfast ui` starts it, and one as hooks start it, which loads nothing for pages before the first one.
"""

from __future__ import annotations

import math
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import msgspec
from msgspec import structs
from starlette.testclient import TestClient

from benchmarks.archive_rows import make_rows
from benchmarks.store import Writer
from holdfast import Engine, figures
from holdfast.context.edits import EDIT, Edit, Trimmed, to_json
from holdfast.messages import Message, Role, Text
from holdfast.server.app import create_app
from holdfast.server.inspector.web import PREPARING, address
from holdfast.settings import Embedding, Settings
from holdfast.store.base import FactRow, Record, Scope, Select
from holdfast.store.figures import TURN
from holdfast.timeline import WHOLE_TURNS, WINDOW, WindowSource

BATCH = 500
REPEATS = 9
STARTS = 3
"""How many servers are asked for each page as their first one. The times of one differ by up to a half."""
FACTS = 20
"""Facts of each session."""
FACT_CHARS = 90
CHARS = 240
"""Characters of a message: most of those in a long session are short."""
TURN_MESSAGES = 5
"""Messages of a turn of the long session, which has as many messages as all others together."""
CUT_TURNS = 8
"""Turns of the long session between two cuts."""
T = TypeVar("T")
_TOKEN = "benchmark"  # noqa: S105 - of a server that nobody can reach


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCost:
    """Milliseconds of the processor for each page.

    As the first page of a server that a hook has started; as the first page after `holdfast ui`; after the pages above
    it; and the median and the worst of later requests.
    """

    messages: int
    sessions: int
    pages: dict[str, dict[str, float]] = field(default_factory=dict)


def measure(messages: int, *, seed: int = 1, progress: Callable[[int], None] = lambda _: None) -> PageCost:
    """Fill a store with sessions of 500 messages, one of 60 turns and a very long one, and ask for every page."""
    writer = Writer(seed)
    with tempfile.TemporaryDirectory() as folder:
        with _open(folder) as engine:
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
            _add_long_session(engine, writer, turns=messages // TURN_MESSAGES)
            # A thread of the server does it after the first page; its time would be added to that of other pages.
            figures.update(engine._memory.store, [Scope().tenant], seconds=math.inf)
        question = writer.question(writer.text())
        paths = _list_paths(question, messages=messages)
        pages = _run_apart(_time, folder, paths)
        for name, path in paths.items():
            cold = _time_first(folder, name, path, is_on_demand=True)
            alone = _time_first(folder, name, path, is_on_demand=False)
            pages[name] = {"cold_ms": cold, "alone_ms": alone, **pages[name]}
        return PageCost(messages=messages, sessions=-(-messages // BATCH) + 2, pages=pages)


def _open(folder: str) -> Engine:
    return Engine.open(Path(folder), settings=Settings(embedding=Embedding(provider="none")), background=False)


def _make_facts(writer: Writer, scope: Scope) -> list[FactRow]:
    facts: list[FactRow] = []
    for number in range(FACTS):
        content = writer.text()[:FACT_CHARS]
        fact_id = f"{scope.session}-{number}"
        facts.append(FactRow(scope=scope, id=fact_id, type="decision", content=content, subject=fact_id, time=number))
    return facts


def _add_long_session(engine: Engine, writer: Writer, *, turns: int) -> None:
    """Continue a session by rows as its turns would write them: assembling thousands of turns would take an hour."""
    session = engine.session("long")
    session.assemble([{"role": "user", "content": writer.text()[:CHARS]}], limit=16_000)
    store = engine._memory.store
    scope = session.scope
    (first,) = store.read_records(Select(scope=scope), kind=TURN)
    (source,) = (
        msgspec.convert(row.data, WindowSource) for row in store.read_records(Select(scope=scope), kind=WINDOW)
    )
    key = first.key
    numbers = list(source.added)
    cut = 0
    for start in range(2, turns + 1, BATCH):
        count = min(BATCH, turns + 1 - start)
        said = [_make_message(writer, number) for number in range(count * TURN_MESSAGES)]
        added = store.add_messages(make_rows(said, scope=scope))
        records: list[Record] = []
        for turn in range(start, start + count):
            base, key = key, f"{turn:08d}:{turn}"
            kept = len(numbers)
            if turn % WHOLE_TURNS == 0:
                base, kept = "", 0
            numbers += added[(turn - start) * TURN_MESSAGES : (turn - start + 1) * TURN_MESSAGES]
            edits = (turn - 1) // CUT_TURNS, turn // CUT_TURNS
            is_cut = edits[0] < edits[1]
            if is_cut:
                gone = tuple(numbers[cut : -2 * TURN_MESSAGES])
                cut += len(gone)
                edit = Edit(
                    change=Trimmed(limit=source.limit),
                    ids=gone,
                    reason="oldest",
                    tokens_before=100 * len(gone),
                    tokens_after=0,
                )
                records.append(Record(scope=scope, kind=EDIT, key=f"{edits[0]:08d}", data=to_json(edit), time=turn))
            made = structs.replace(
                source,
                base=base,
                kept=kept,
                added=tuple(numbers[kept:]),
                edits=edits,
                changes=("trimmed",) if is_cut else (),
            )
            report = {**first.data, "turn": turn, "question": [numbers[-1]], "user_message": numbers[-1]}
            records.append(Record(scope=scope, kind=TURN, key=key, data=report, time=turn))
            records.append(Record(scope=scope, kind=WINDOW, key=key, data=structs.asdict(made), time=turn))
        store.add_records(records)


def _make_message(writer: Writer, number: int) -> Message:
    role: Role = "assistant" if number % TURN_MESSAGES % 2 else "user"
    return Message(role=role, parts=(Text(text=writer.text()[:CHARS]),))


def _list_paths(question: str, *, messages: int) -> dict[str, str]:
    turns = messages // TURN_MESSAGES
    return {
        "sessions": "",
        "sessions by cost": "sessions?sort=cost",
        "search": f"search?q={question}",
        "session": "session?session=session-00000",
        "running session": "session?session=running",
        "turn": "session?session=running&turn=59",
        "long session": "session?session=long",
        "a late turn of it": f"session?session=long&turn={max(1, turns - 10)}",
        "an early turn of it": f"session?session=long&turn={min(60, turns)}",
        "an early message of it": f"session?session=long&message={messages + messages // 4}",
        "why it was cut": f"why?session=long&message={messages + messages // 4}",
        "memory": "memory",
        "overview": "overview",
        "trends": "trends",
        "ask": f"ask?q={question}",
        "health": "health",
    }


def _time_first(folder: str, name: str, path: str, *, is_on_demand: bool) -> float:
    """Ask a server that has just started for a page, and return the median of several such servers."""
    times: list[float] = []
    for _ in range(STARTS):
        found = _run_apart(_time, folder, {name: path}, repeats=0, is_on_demand=is_on_demand)
        times.append(found[name]["first_ms"])
    return median(times)


def _run_apart(call: Callable[..., T], *args: Any, **options: Any) -> T:
    """Call a function in a process that has just started."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(call, *args, **options).result()


def _time(
    folder: str, paths: Mapping[str, str], *, repeats: int = REPEATS, is_on_demand: bool = False
) -> dict[str, dict[str, float]]:
    """Ask for every page several times. What threads load for other pages is not part of the time of a page."""
    url = "http://127.0.0.1:1"
    found: dict[str, dict[str, float]] = {}
    with _open(folder) as engine:
        client = TestClient(create_app(engine, token=_TOKEN, is_on_demand=is_on_demand), base_url=url)
        _wait_until_prepared()
        for name, path in paths.items():
            times: list[float] = []
            for _ in range(repeats + 1):
                start = time.process_time()
                client.get(address(url, _TOKEN) + path).raise_for_status()
                times.append((time.process_time() - start) * 1000)
                _wait_until_prepared()
            found[name] = {"first_ms": round(times[0], 1)}
            if repeats:
                later = sorted(times[1:])
                found[name] |= {"p50_ms": round(later[repeats // 2], 1), "max_ms": round(later[-1], 1)}
    return found


def _wait_until_prepared() -> None:
    """Wait for the threads that load what pages need."""
    for thread in threading.enumerate():
        if thread.name == PREPARING:
            thread.join()
