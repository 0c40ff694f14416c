"""Recall does not depend on the load of the machine, and never changes what an earlier request showed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, Settings, Window
from holdfast.embed.base import Floats, Purpose
from holdfast.embed.choice import Choice
from holdfast.embed.hashed import HashEmbedder
from holdfast.memory.memory import Memory
from holdfast.search.candidates import Candidates
from holdfast.settings import Embedding, Recall
from holdfast.store.base import SearchQuery
from holdfast.store.sqlite import SqliteStore
from support.failing_stores import FailingStore, open_engine

SETTINGS = Settings(embedding=Embedding(provider="none"), recall=Recall(deadline_ms=200))
SECONDS = 0.2
FACT = {"role": "user", "content": "The vault code is 8841-tulip."}
ASKED = {"role": "user", "content": "Which vault code is it?"}


def grow(turns: int = 30) -> list[dict[str, Any]]:
    """Return a conversation that does not fit, with facts at its beginning and a question about one at its end."""
    conversation = [FACT, {"role": "assistant", "content": "Noted."}]
    for number in range(12):
        conversation.append({"role": "user", "content": f"The code of vault {number} is {number}-rose."})
        conversation.append({"role": "assistant", "content": "Noted."})
    for number in range(turns):
        conversation.append({"role": "user", "content": f"Look at ledger {number}. " + f"wharf{number} " * 60})
        conversation.append({"role": "assistant", "content": f"Ledger {number} is fine."})
    return [*conversation, ASKED]


class Timer:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowStore(SqliteStore):
    """A store that does something before each search."""

    def __init__(self, path: Path, before_search: Callable[[], object]) -> None:
        super().__init__(path)
        self._before_search = before_search

    def search(self, query: SearchQuery, /) -> Candidates:
        self._before_search()
        return super().search(query)


class SlowEmbedder(HashEmbedder):
    """An embedder whose questions take time on a clock."""

    def __init__(self, timer: Timer, seconds: float) -> None:
        super().__init__()
        self._timer = timer
        self._seconds = seconds

    def embed(self, texts: Sequence[str], *, kind: Purpose) -> Floats:
        if kind == "query" and list(texts) != ["-"]:  # that one loads a model
            self._timer.now += self._seconds
        return super().embed(texts, kind=kind)


def assemble(engine: Engine, conversation: Sequence[dict[str, Any]]) -> Window:
    """Make a small window."""
    return engine.session("s").assemble(conversation, limit=6_000)


def recall_late(folder: Path, *, embedding: float = 0.0, searching: float = 0.0) -> Window:
    """Recall something with an embedder and a store that take a share of the deadline each, by the timer."""
    timer = Timer()
    is_asking = False

    def move() -> None:
        timer.now += searching * SECONDS if is_asking else 0.0

    store = SlowStore(folder / "store.db", move)
    choice = Choice(embedder=SlowEmbedder(timer, embedding * SECONDS), reasons=())
    with Engine(Memory(store=store, settings=SETTINGS, choice=choice, timer=timer)) as engine:
        conversation = grow()
        engine.session("s").assemble(conversation[:-1], limit=6_000, recall=False)
        engine._memory.embed()
        is_asking = True
        return assemble(engine, conversation)


class TestFallbacks:
    def test_in_time(self, tmp_path: Path) -> None:
        """Nothing is left out, and the report has no warning."""
        report = recall_late(tmp_path, embedding=0.4, searching=0.1).report
        assert report.recalled
        assert not any("recall" in warning for warning in report.warnings)

    def test_words_alone_after_the_deadline(self, tmp_path: Path) -> None:
        """A question that takes too long to embed is searched for by its words."""
        report = recall_late(tmp_path, embedding=1.1).report
        assert "8841-tulip" in " ".join(hit.text for hit in report.recalled)
        assert {hit.parts.vector for hit in report.recalled} == {0.0}
        assert any("200 ms (recall.deadline_ms): by words alone" in warning for warning in report.warnings)

    def test_fewer_passages_after_twice_the_deadline(self, tmp_path: Path) -> None:
        """Only the best are kept."""
        whole = recall_late(tmp_path / "a", searching=0.1).report
        report = recall_late(tmp_path / "b", searching=2.2).report
        assert "8841-tulip" in " ".join(hit.text for hit in report.recalled)
        assert 0 < len(report.recalled) < len(whole.recalled)
        assert any("of the best 4 passages alone" in warning for warning in report.warnings)

    def test_nothing_after_four_times_the_deadline(self, tmp_path: Path) -> None:
        """The reason names the setting."""
        report = recall_late(tmp_path, searching=4.5).report
        assert report.recalled == ()
        assert report.recall_reason == "it took longer than 800 ms (4 times recall.deadline_ms)"
        assert any("nothing was recalled" in warning for warning in report.warnings)


class TestLoad:
    def test_waiting_does_not_count(self, tmp_path: Path) -> None:
        """Only the work of a recall counts, not the time in which other programs use the processor."""
        store = SlowStore(tmp_path / "store.db", lambda: time.sleep(1.5 * SECONDS))
        with open_engine(store, SETTINGS) as engine:
            report = assemble(engine, grow()).report
        assert "8841-tulip" in " ".join(hit.text for hit in report.recalled)
        assert not any("deadline" in warning for warning in report.warnings)


class TestPrefix:
    @pytest.mark.parametrize("restarts", [False, True])
    def test_a_question_that_was_sent_without_a_block_stays_without(self, tmp_path: Path, *, restarts: bool) -> None:
        """Recall fails for a request, and works when the client sends the same messages and more."""
        store = FailingStore(tmp_path / "store.db", kinds=frozenset({"search"}), first=0, count=10**6)
        conversation = grow()
        engine = open_engine(store, SETTINGS)
        before = assemble(engine, conversation)
        assert before.report.recalled == ()
        store.heal()
        if restarts:
            engine.close()
            engine = open_engine(SqliteStore(tmp_path / "store.db"), SETTINGS)
        with engine:
            partial = {"role": "assistant", "content": "One moment."}
            for more in ([], [partial]):
                again = assemble(engine, [*conversation, *more]).render()
                assert [json.dumps(one) for one in again[: len(before.render())]] == [
                    json.dumps(one) for one in before.render()
                ]

    def test_a_tool_result_gets_the_block_that_its_question_did_not(self, tmp_path: Path) -> None:
        """A block may follow new messages."""
        store = FailingStore(tmp_path / "store.db", kinds=frozenset({"search"}), first=0, count=10**6)
        call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        steps: list[dict[str, Any]] = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": "a.py"},
        ]
        with open_engine(store, SETTINGS) as engine:
            before = assemble(engine, grow()).render()
            store.heal()
            window = assemble(engine, [*grow(), *steps])
            assert window.report.recalled
            assert window.render()[: len(before)] == before
