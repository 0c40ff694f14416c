"""How often a fact was recalled and when last: counted with the record of the turn, by day and session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.hooks.handlers import HostHooks
from holdfast.memory.fact_recalls import FACT_RECALLS, FactRecalls, count_recalls, read_recalls
from holdfast.memory.memory import Memory
from holdfast.settings import Embedding, Settings
from holdfast.store.base import Scope, Select, Store
from support.postgres_server import open_postgres
from support.stores import open_sqlite
from support.waiting import UNHURRIED

DAY = 86_400_000
MARCH = 1_772_323_200_000  # 2026-03-01
SETTINGS = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("open_store", [open_sqlite, open_postgres])
def test_recalls_are_added_up_over_days_and_sessions(open_store: Callable[[Path], Store], tmp_path: Path) -> None:
    """A fact belongs to the agent and project: the sessions of others are not counted."""
    store = open_store(tmp_path)
    recalls = [
        (Scope(project="p", session="one"), ["a", "b", "a"], MARCH),
        (Scope(project="p", session="one"), ["a"], MARCH + 1),
        (Scope(project="p", session="one"), ["a"], MARCH + DAY),
        (Scope(project="p", session="two"), ["b"], MARCH + 5),
        (Scope(project="q", session="one"), ["a"], MARCH + 9),
        (Scope(project="p", session="two"), [], MARCH + 9 * DAY),
    ]
    for scope, facts, time in recalls:
        store.add_records(count_recalls(store, facts, scope=scope, time=time))
    owner = Scope(project="p")
    assert read_recalls(store, owner) == {
        owner: {
            "a": FactRecalls(count=3, last_time=MARCH + DAY),
            "b": FactRecalls(count=2, last_time=MARCH + 5),
        }
    }
    assert len(store.read_records(Select(scope=owner, across=True), kind=FACT_RECALLS)) == 3
    store.close()


def test_a_turn_counts_the_facts_of_its_block(tmp_path: Path) -> None:
    """Also those of a later process; a question on something else counts nothing."""
    for number in range(2):
        with Engine.open(tmp_path, settings=SETTINGS, background=False, clock=lambda: MARCH) as engine:
            session = engine.session(f"s{number}", project="p")
            if not number:
                session.remember("The harbour ledger listens on port 7001.", type="config")
            history = [{"role": "user", "content": "Which port does the harbour ledger listen on?"}]
            assert session.assemble(history, limit=8_000).report.recalled_facts
            history.append({"role": "assistant", "content": "On 7001."})
            history.append({"role": "user", "content": "Write a limerick about elephants, please."})
            assert not session.assemble(history, limit=8_000).report.recalled_facts
    with Engine.open(tmp_path, settings=SETTINGS, background=False) as engine:
        (fact,) = engine.session("s0", project="p").facts()
        recalls = read_recalls(engine._memory.store, Scope(project="p"))
        assert recalls == {Scope(project="p"): {fact.id: FactRecalls(count=2, last_time=MARCH)}}


def test_a_hook_counts_the_facts_of_its_block(tmp_path: Path) -> None:
    """Hosts that run a command for each prompt have no turns."""
    with Memory.open(tmp_path / "m.db", settings=SETTINGS, clock=lambda: MARCH) as memory:
        fact = memory.remember("港口账本监听 7001 端口。", scope=Scope(project="/p", session="old"), type="config")
        hooks = HostHooks(memory)
        prompt = {
            "hook_event_name": "UserPromptSubmit",
            "session_id": "new",
            "cwd": "/p",
            "prompt": "港口账本监听哪个端口？",
        }
        assert "7001" in str(hooks.handle(prompt))
        recalls = read_recalls(memory.store, Scope(project="/p"))
        assert recalls == {Scope(project="/p"): {fact.id: FactRecalls(count=1, last_time=MARCH)}}
