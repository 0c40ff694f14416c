"""The walks in CONTRIBUTING.md are what happens: each stop is called in this order, by the stop that it is under."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import pytest

from holdfast import Engine, Settings
from holdfast.settings import Embedding
from support.waiting import UNHURRIED

ROOT = Path(__file__).parents[2]
SOURCE = str(ROOT / "src" / "holdfast")
SETTINGS = Settings(embedding=Embedding(provider="hash"), recall=UNHURRIED)


@dataclass(frozen=True)
class Stop:
    """A line of a walk: a function, and the one that it is called by; empty for the first."""

    name: str
    caller: str


@dataclass(frozen=True)
class Call:
    """A call that was made: a function, and all functions of ours in the same thread that it was called from."""

    name: str
    callers: frozenset[str]


def read_walk(heading: str) -> list[Stop]:
    """Read the stops under a heading."""
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = re.search(rf"^### {re.escape(heading)}$.*?^```text\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert block is not None
    stops: list[Stop] = []
    open_stops: list[str] = []
    for line in block[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        name = line.split()[0]
        del open_stops[depth:]
        stops.append(Stop(name=name, caller=open_stops[-1] if open_stops else ""))
        open_stops.append(name)
    return stops


def name_function(frame: FrameType) -> str:
    """Name a function as the walks do; empty if it is not ours."""
    file = frame.f_code.co_filename
    if not file.startswith(SOURCE):
        return ""
    module = file.removeprefix(SOURCE).removesuffix(".py").removesuffix("__init__")
    module = ".".join(part for part in re.split(r"[/\\]", module) if part)
    return f"{module}.{frame.f_code.co_qualname}"


@contextmanager
def record_calls(wanted: frozenset[str]) -> Iterator[list[Call]]:
    """Collect the calls of some functions, in this and in new threads."""
    calls: list[Call] = []

    def see(frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        name = name_function(frame)
        if name not in wanted:
            return
        callers: set[str] = set()
        below = frame.f_back
        while below is not None:
            callers.add(name_function(below))
            below = below.f_back
        calls.append(Call(name=name, callers=frozenset(callers & wanted)))

    before = sys.getprofile()
    threading.setprofile(see)
    sys.setprofile(see)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def make_conversation() -> list[dict[str, str]]:
    """Return a conversation that does not fit, with a fact at its beginning and a question about it at its end."""
    conversation = [
        {"role": "user", "content": "The vault code is 8841-tulip."},
        {"role": "assistant", "content": "Noted."},
    ]
    for number in range(30):
        conversation.append({"role": "user", "content": f"Look at ledger {number}. " + f"wharf{number} " * 60})
        conversation.append({"role": "assistant", "content": f"Ledger {number} is fine."})
    return [*conversation, {"role": "user", "content": "Which vault code is it?"}]


def find_missing(stops: Sequence[Stop], calls: Sequence[Call]) -> list[Stop]:
    """Return the stops that were not called after the one before them and below their caller.

    A stop whose callers are in another thread is called below none.
    """
    missing: list[Stop] = []
    left = iter(calls)
    for stop in stops:
        for call in left:
            if call.name == stop.name and (stop.caller in call.callers or not call.callers):
                break
        else:
            missing.append(stop)
    return missing


@pytest.mark.parametrize("heading", ["A turn, step by step", "A recall, step by step"])
def test_a_turn_makes_the_stops_of_a_walk(heading: str, tmp_path: Path) -> None:
    """The second request of a conversation trims, recalls and records."""
    stops = read_walk(heading)
    conversation = make_conversation()
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        session = engine.session("s")
        session.assemble(conversation[:40], limit=4_000)
        session._resources.watchdog.close()  # only calls in new threads are recorded
        with record_calls(frozenset(stop.name for stop in stops)) as calls:
            window = session.assemble(conversation, limit=4_000)
    assert window.report.recalled
    assert find_missing(stops, calls) == []
