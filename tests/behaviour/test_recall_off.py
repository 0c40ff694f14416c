"""Without recall nothing is trimmed by relevance: a compaction makes room, and the oldest go as a last resort."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Engine, Window
from holdfast.settings import Compaction, Embedding, Recall, Settings, load

LIMIT = 4_000
FACT = "The vault code is 8841-tulip."
BY_CALL = "no recall was asked for"
"""The reason in the report of a call with `recall=False`."""
BASE = Settings(embedding=Embedding(provider="none"))
SWITCHES: dict[str, dict[str, Any]] = {
    "recall.automatic is off": {"recall": Recall(automatic=False)},
    "recall.enabled is off": {"recall": Recall(enabled=False)},
    BY_CALL: {},
}
"""Every way to turn recall off, by the reason in the report; the last one is the argument `recall=False`."""


def make_conversation(engine: Engine, reason: str, *, turns: int = 20) -> list[Window]:
    """State a fact, then let a session grow beyond its window with other things; return the window of each request."""
    history: list[dict[str, Any]] = [{"role": "user", "content": FACT}, {"role": "assistant", "content": "Noted."}]
    windows: list[Window] = []
    for number in range(turns):
        history.append({"role": "user", "content": f"Look at ledger {number}. " + f"wharf{number} " * 60})
        is_recalling = reason != BY_CALL
        windows.append(engine.session("s").assemble(history, limit=LIMIT, recall=is_recalling))
        history.append({"role": "assistant", "content": f"Ledger {number} is fine. " + f"quay{number} " * 60})
    return windows


def changes(windows: list[Window], kind: str) -> list[str]:
    """Return the reasons of all changes of a kind."""
    return [change.reason for window in windows for change in window.report.changes if change.kind == kind]


@pytest.mark.variants
@pytest.mark.parametrize(
    ("reason", "has_model"),
    [*((reason, True) for reason in SWITCHES), *((reason, False) for reason in SWITCHES if reason != BY_CALL)],
)
def test_a_compaction_makes_room(tmp_path: Path, reason: str, has_model: bool) -> None:  # noqa: FBT001 - parametrised
    """With a model the window has its summary, with settings alone a digest; no message is trimmed."""
    settings = msgspec.structs.replace(BASE, **SWITCHES[reason])
    model = (lambda _: f"## Goal\nRead ledgers.\n\n## Facts\n{FACT}") if has_model else None
    with Engine.open(tmp_path, settings=settings, background=False, model=model) as engine:
        windows = make_conversation(engine, reason)
    assert changes(windows, "trimmed") == []
    assert changes(windows, "compacted")
    assert changes(windows, "recalled") == []
    assert {window.report.recall_reason for window in windows} == {reason}
    assert all(window.report.total_tokens <= LIMIT for window in windows)
    if has_model:
        assert FACT in str(windows[-1].request())


@pytest.mark.variants
@pytest.mark.parametrize(
    ("reason", "compaction"),
    [
        *((reason, Compaction(enabled=False)) for reason in SWITCHES),
        *((reason, Compaction(auto="off")) for reason in SWITCHES),
        (BY_CALL, Compaction()),
    ],
)
def test_the_oldest_are_removed_if_nothing_compacts(tmp_path: Path, reason: str, compaction: Compaction) -> None:
    """This happens only once the window is full, in order, and the report gives the reason."""
    settings = msgspec.structs.replace(BASE, compaction=compaction, **SWITCHES[reason])
    with Engine.open(tmp_path, settings=settings, background=False) as engine:
        windows = make_conversation(engine, reason)
        archived = [row.id for row in engine.session("s").messages()]
    reasons = changes(windows, "trimmed")
    assert reasons
    assert all("oldest" in each and "recall is off" in each for each in reasons)
    removed = [number for window in windows for change in window.report.changes for number in change.ids]
    assert removed == archived[: len(removed)]
    assert all(window.report.total_tokens <= LIMIT for window in windows)
    first = next(window for window in windows if window.report.changes)
    before = windows[windows.index(first) - 1].report
    assert before.total_tokens + before.reserved_tokens > 0.85 * LIMIT


def test_with_recall_the_least_relevant_go(tmp_path: Path) -> None:
    """Only the switches differ: with recall nothing is compacted, and blocks bring messages back."""
    with Engine.open(tmp_path, settings=BASE, background=False) as engine:
        windows = make_conversation(engine, "")
    assert set(changes(windows, "trimmed")) == {"least to do with the question"}
    assert changes(windows, "compacted") == []


def test_openclaw_without_a_memory_plugin(tmp_path: Path) -> None:
    """`plugins.slots.memory: "none"` of openclaw.json: an early fact stays in the window, in the summary."""
    file = tmp_path / "openclaw.json"
    file.write_text(json.dumps({"plugins": {"slots": {"memory": "none"}}}))
    settings = load(files=[file], environ={}, embedding={"provider": "none"}).settings
    model = lambda _: f"## Goal\nRead ledgers.\n\n## Facts\n{FACT}"  # noqa: E731 - a model of one line
    with Engine.open(tmp_path / "memory", settings=settings, background=False, model=model) as engine:
        windows = make_conversation(engine, "recall.enabled is off")
    assert all(FACT in str(window.request()) for window in windows)
    assert changes(windows, "trimmed") == []
