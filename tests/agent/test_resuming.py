"""What is said about a conversation that is continued."""

from __future__ import annotations

from pathlib import Path

from rich.cells import cell_len

from holdfast_agent.screen import describe_resumed
from holdfast_agent.view import format_age
from support.agent_fixture import AgentFixture

HOUR = 3_600_000


def test_a_conversation_that_is_continued_is_named(tmp_path: Path) -> None:
    """Its title, its length, its age, how to begin another, and its last words; about a new one there is nothing."""
    fixture = AgentFixture(tmp_path)
    agent = fixture.agent(["It is 5433.", "是的，端口是 5433。"])
    assert describe_resumed(agent, width=80) == []
    agent.say("Hello!\n\nWhich port has the staging database?")
    agent.say("确定吗？")
    agent.close()
    fixture.now += 26 * HOUR
    agent = fixture.agent(["Hi."])
    assert describe_resumed(agent, width=100) == [
        "Continues “Which port has the staging database?” · 4 messages · 1 d 2 h ago · /new begins another",
        "  last answer: 是的，端口是 5433。",
    ]
    for width in (80, 60):
        lines = describe_resumed(agent, width=width)
        assert all(cell_len(line) <= width for line in lines)
        assert lines[0].startswith("Continues “Which")
    assert lines[0].endswith("…” · 1 d 2 h ago · /new begins another")


def test_an_age_is_short() -> None:
    """Two units at most."""
    assert [format_age(time) for time in (0, 59 * 60_000, 25 * HOUR)] == ["0 min", "59 min", "1 d 1 h"]
