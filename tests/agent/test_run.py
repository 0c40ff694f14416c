"""What belongs to one run of the agent: its prompt, its time, its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ModelBusyError, ModelError
from holdfast.messages import ToolCall
from holdfast.models.base import Prompt
from holdfast.models.scripted import Answer, Scripted, ScriptedReply
from support.agent_fixture import AgentFixture


@pytest.fixture
def fixture(tmp_path: Path) -> AgentFixture:
    """An agent in a folder of its own."""
    return AgentFixture(tmp_path)


def test_a_run_has_one_prompt(fixture: AgentFixture) -> None:
    """A file of the prompt that the agent changes counts from the next run on: the provider's cache holds."""
    write = ToolCall(id="w", name="write", arguments={"path": "MEMORY.md", "content": "The word is zanzibar."})
    agent = fixture.agent([ScriptedReply(calls=(write,)), "Done.", "Yes."])
    agent.say("Remember it.")
    agent.say("Do you?")
    assert isinstance(agent.model, Scripted)
    first, second, third = (prompt.messages[0].text for prompt in agent.model.prompts)
    assert first == second
    assert "zanzibar" in third


def test_a_heartbeat_is_no_word_of_the_user(fixture: AgentFixture) -> None:
    """When the user last said something is noted with the answer, without one as well, and not for heartbeats."""

    def answer(prompt: Prompt) -> Answer:
        return ModelBusyError("busy", model="m") if "Second" in prompt.messages[-1].text else "HEARTBEAT_OK"

    agent = fixture.agent(answer)
    agent.say("First.")
    first = agent.conversation.entry.last_interaction_at
    agent.say("Read HEARTBEAT.md.", heartbeat=True)
    assert agent.conversation.entry.last_interaction_at == first
    with pytest.raises(ModelError):
        agent.say("Second.")
    assert agent.conversation.entry.last_interaction_at > first


def test_notes_that_the_user_calls_off_are_no_failure(fixture: AgentFixture) -> None:
    """Ctrl-C while notes are written says nothing about the model."""
    agent = fixture.agent(["words " * 300] * 8)
    for number in range(8):
        agent.say(f"Step {number}. " + "more words " * 300)
    agent.cancel.set()
    agent.flush()
    assert agent.conversation.entry.memory_flush_failure_count == 0
    assert not agent.conversation.entry.is_flushed
