"""The conversation of the trial inside OpenClaw, without the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.openclaw import TOOL_TURNS, TURNS, load_facts, make_reply, make_turn
from holdfast import Engine
from holdfast.search.relevance import NORMAL
from holdfast.settings import Settings

pytestmark = pytest.mark.nightly


def test_every_fact_is_recalled_for_its_question(tmp_path: Path) -> None:
    """Two of them share so few words with their question that only words and vectors together find them."""
    facts = load_facts()
    with Engine.open(tmp_path / "memory", settings=Settings(), background=False) as engine:
        session = engine.session("s1")
        for number in range(1, TURNS + 1):
            session.append([{"role": "user", "content": make_turn(number, facts, tmp_path)}], format="openai_chat")
            if number in TOOL_TURNS:
                arguments = json.dumps({"path": f"logs/turn-{number}.log"})
                call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": arguments}}
                output = (tmp_path / "logs" / f"turn-{number}.log").read_text()
                asked = {"role": "assistant", "content": None, "tool_calls": [call]}
                result = {"role": "tool", "tool_call_id": f"c{number}", "content": output}
                session.append([asked, result], format="openai_chat")
            session.append([{"role": "assistant", "content": make_reply(number)}], format="openai_chat")
        engine.work()
        missed = [one.kind for one in facts if one.answer not in session.recall(one.question, cap=2500).block]
        assert missed == []
        assert session.recall("What is the capital of France?", cap=2500).tokens <= 2 * NORMAL.min_tokens
