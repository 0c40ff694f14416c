"""A running engine keeps sessions between two requests within a bound in bytes, and loses nothing."""

from __future__ import annotations

import gc
import json
import random
import re
import tracemalloc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.settings import Archive, Embedding, ServerSettings, Settings

KB = 2**10
NOW = 1_760_000_000_000
LIMIT = 4_000_000
"""Tokens of the window: nothing is cut from it."""


@pytest.fixture(autouse=True, scope="module")
def quick_collection() -> Iterator[None]:
    """Limit the garbage collector to objects that these tests make."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def make_settings(max_bytes: int) -> Settings:
    """Return settings with this bound for all kept sessions together."""
    limits = ServerSettings(max_session_bytes=max_bytes)
    patient = Archive(timeout_seconds=600)  # a session whose call is given up is kept until that call returns
    return Settings(archive=patient, embedding=Embedding(provider="none"), server=limits)


def conversation(name: str, *, turns: int, chars: int) -> list[dict[str, Any]]:
    """Return the messages of a conversation, with separate strings."""
    filling = random.Random(name).choices("abcdefgh ", k=chars)  # noqa: S311 - for tests
    history: list[dict[str, Any]] = []
    for turn in range(turns):
        history.append({"role": "user", "content": f"{name} asks {turn}. " + "".join(filling)})
        history.append({"role": "assistant", "content": f"{name} answers {turn}."})
    return history


def test_sessions_that_are_kept_have_a_bound_in_bytes(tmp_path: Path) -> None:
    """The sessions that were used longest ago are dropped first, and the last one stays."""
    with Engine.open(tmp_path, settings=make_settings(40 * KB), background=False) as engine:
        states = []
        for number in range(12):
            session = engine.session(f"s{number}")
            session.assemble(conversation(f"s{number}", turns=2, chars=2_000), limit=LIMIT)
            states.append(weakref.ref(session))
            del session
        gc.collect()
        kept = [state() is not None for state in states]
        assert 2 <= sum(kept) <= 6
        assert kept == sorted(kept)


def test_one_session_that_is_larger_than_the_bound_is_kept_until_the_next(tmp_path: Path) -> None:
    """Otherwise every request of it would read its history again."""
    with Engine.open(tmp_path, settings=make_settings(20 * KB), background=False) as engine:
        engine.session("large").assemble(conversation("large", turns=2, chars=20 * KB), limit=LIMIT)
        state = weakref.ref(engine.session("large"))
        gc.collect()
        assert state() is not None
        engine.session("other").assemble(conversation("other", turns=1, chars=100), limit=LIMIT)
        gc.collect()
        assert state() is None


def test_a_session_in_use_is_not_dropped(tmp_path: Path) -> None:
    """Its user continues with the same object, and others get it too."""
    with Engine.open(tmp_path, settings=make_settings(20 * KB), background=False) as engine:
        used = engine.session("used")
        used.assemble(conversation("used", turns=2, chars=10 * KB), limit=LIMIT)
        for number in range(5):
            engine.session(f"s{number}").assemble(conversation(f"s{number}", turns=2, chars=10 * KB), limit=LIMIT)
        assert engine.session("used") is used


def test_a_session_that_was_dropped_continues_as_before(tmp_path: Path) -> None:
    """It has the same windows, edits and turns, and each message is archived once."""

    def run(folder: Path, max_bytes: int) -> tuple[list[str], list[tuple[str, str]], int]:
        windows = []
        with Engine.open(folder, settings=make_settings(max_bytes), background=False, clock=lambda: NOW) as engine:
            for turn in range(1, 6):
                for name in ("a", "b"):
                    history = conversation(name, turns=turn, chars=2_000)[:-1]
                    window = engine.session(name).assemble(history, limit=3_000)
                    windows.append(re.sub(r'mark=\\"\w+', "", json.dumps(window.request())))  # marks are random
                    engine.session(name).append([{"role": "assistant", "content": f"{name} answers {turn - 1}."}])
                    gc.collect()
            session = engine.session("a")
            assert session.edits()
            rows = [(str(row.message.role), row.message.text) for row in session.messages()]
            return windows, rows, len(session.timeline())

    assert run(tmp_path / "dropped", 0) == run(tmp_path / "kept", 256 * KB * KB)


@pytest.mark.variants(first=True)
@pytest.mark.parametrize(
    "kind", ["tools", "pictures", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("small", "long", "cjk"))]
)
def test_the_estimate_is_near_what_a_session_takes(tmp_path: Path, kind: str) -> None:
    """It is within a factor of two, for many small messages and for a few large ones."""
    messages: list[dict[str, Any]] = []
    for number in range(25):
        letters = random.Random(number).choices("abcdefgh 港口", k=2_000)  # noqa: S311 - for tests
        words = "".join(letters)
        match kind:
            case "small":
                messages += conversation(f"n{number}", turns=1, chars=80)
            case "long":
                messages += conversation(f"n{number}", turns=1, chars=20_000)[: number % 5 == 0]
            case "tools":
                call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
                messages.append({"role": "user", "content": words[:50]})
                messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
                messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": words})
            case "pictures":
                url = f"data:image/png;base64,{'abcd' * 10_000}{number:04d}"
                messages.append({"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]})
                messages.append({"role": "assistant", "content": "A picture."})
            case _:
                messages.append({"role": "user" if number % 2 == 0 else "assistant", "content": words})
    given = json.dumps(messages)
    with Engine.open(tmp_path, settings=make_settings(0), background=False) as engine:
        engine.session("first").assemble(conversation("first", turns=5, chars=500), limit=LIMIT)
        tracemalloc.start()
        try:
            engine.session("s").assemble(json.loads(given), limit=LIMIT)
            estimate = engine.session("s")._held_bytes
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            engine.session("next")
            gc.collect()
            taken = before - tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert taken / 2 < estimate < 2 * taken
