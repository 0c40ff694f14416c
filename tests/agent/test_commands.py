"""What a user can tell the agent itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import transcripts
from holdfast.models.scripted import Scripted
from holdfast.text import shorten_number
from holdfast_agent.commands import COMMANDS, complete, is_command, run
from holdfast_agent.screen import status_line
from holdfast_agent.settings import Workspace
from support.agent_fixture import AgentFixture, change_agent, talker


@pytest.fixture
def fixture(tmp_path: Path) -> AgentFixture:
    """An agent in a folder of its own."""
    return AgentFixture(tmp_path)


def test_what_is_a_command() -> None:
    """A slash and a word; a path is none."""
    assert is_command("/status")
    assert is_command("/compact mind /etc/hosts")
    assert not is_command("/etc/hosts is wrong")
    assert not is_command("/ hm")
    assert not is_command("status")


def test_completion_and_help(fixture: AgentFixture) -> None:
    """Every command can be completed and is listed; a wrong one is answered with a near one."""
    agent = fixture.agent(["x"])
    assert complete("/co") == ["compact", "context"]
    listed = run(agent, "/help").text
    assert all(command.usage in listed for command in COMMANDS.values())
    assert "/status" in run(agent, "/statsu").text
    assert run(agent, "/exit").is_exit


def test_status_shows_the_state_of_the_conversation(fixture: AgentFixture) -> None:
    """Model, fullness, tokens, time and memory."""
    agent = fixture.agent(["Hello!"])
    agent.say("Hi.")
    fixture.now += 3 * 3_600_000
    text = run(agent, "/status").text
    assert "scripted/test · window 200k" in text
    assert "compactions 0" in text
    assert "3 h 0 min · 2 messages" in text
    assert "Memory: 3 messages" in text


class TestContext:
    def test_in_every_form(self, fixture: AgentFixture) -> None:
        """A map for the eye, lists for reading, JSON for programs."""
        agent = fixture.agent(["Hello!"])
        assert run(agent, "/context").text == "The conversation is empty. Send a message first."
        agent.say("Hi.")
        assert run(agent, "/context map").report == agent.measure()
        listed = run(agent, "/context list").text
        assert "AGENTS.md" not in listed
        assert "Tools:" in listed
        detail = run(agent, "/context detail").text
        assert detail.startswith(listed[:40])
        assert "Tools by schema size:" in detail
        data = json.loads(run(agent, "/context json").text)
        assert data["session"]["totalTokens"] == agent.conversation.entry.total_tokens
        assert data["report"]["session"] == agent.session.id
        assert "Use: /context" in run(agent, "/context what").text

    def test_files_that_do_not_exist_are_not_context(self, fixture: AgentFixture) -> None:
        """A workspace whose files were deleted names them, but not as files in the window."""
        fixture.settings = change_agent(fixture.settings, workspace=Workspace())
        agent = fixture.agent(["Hello!"])
        for name in ("SOUL.md", "USER.md"):
            (fixture.folder / "work" / name).unlink()
        agent.say("Hi.")
        listed = run(agent, "/context list").text
        assert "- AGENTS.md: OK" in listed
        assert "- none of these: SOUL.md, USER.md" in listed
        report = run(agent, "/context").report
        assert report is not None
        names = [Path(file.path).name for file in report.files]
        assert names == ["AGENTS.md", "TOOLS.md", "IDENTITY.md", "HEARTBEAT.md", "BOOTSTRAP.md"]

    def test_every_display_shows_the_same_size(self, fixture: AgentFixture) -> None:
        """The map, the lists, the status, the line below the prompt and a compaction agree, before it and after."""
        agent = fixture.agent([*(f"{number}: " + "a word, 一个词, " * 400 for number in range(6)), "The summary."])
        for number in range(6):
            agent.say(f"Question {number}?")

        def sizes() -> set[str]:
            report = run(agent, "/context").report
            assert report is not None
            size = shorten_number(report.total_tokens)
            assert sum(part.tokens for part in report.categories if part.kind == "used") == report.total_tokens
            for command in ("/status", "/context list"):
                assert f"Context {size}/200k ({report.percentage:g}%)" in run(agent, command).text
            assert status_line(agent, width=100).startswith(f"ctx {report.percentage:g}% · ")
            return {size}

        (before,) = sizes()
        text = run(agent, "/compact").text
        (after,) = sizes()
        assert text.startswith(f"Compacted ({before} → {after}): a summary replaces ")
        assert "stays in the archive" in text
        assert f"Context {after}/200k" in text
        assert not any("Compacted" in notice for notice in fixture.view.notices)


class TestMemory:
    def test_facts_are_added_shown_and_forgotten(self, fixture: AgentFixture) -> None:
        """By the ids that are shown."""
        agent = fixture.agent(["Hello!"])
        assert run(agent, "/memory").text == "No memory files yet.\nNo facts yet."
        added = run(agent, "/memory add Deploys are on Fridays.").text
        assert "Deploys are on Fridays." in run(agent, "/memory show").text
        name = added.rsplit("(", 1)[1].rstrip(")")
        assert run(agent, f"/memory forget {name}").text == "Forgotten: 1."
        assert run(agent, "/memory show").text == "No memory files yet.\nNo facts yet."
        assert "Nothing is called" in run(agent, f"/memory forget {name}").text
        assert "Use: /memory" in run(agent, "/memory add").text

    def test_messages_of_an_earlier_conversation_are_forgotten_too(self, fixture: AgentFixture) -> None:
        """A search shows messages of all conversations, so each can be forgotten, in its old transcript as well."""
        agent = fixture.agent(["Noted.", "Hello again."])
        agent.say("The vault word is zanzibar. " + "And more words. " * 40)
        run(agent, "/new")
        agent.say("Hi.")
        number = run(agent, "/memory search vault word").text.split()[2]
        assert run(agent, f"/memory forget {number}").text == "Forgotten: 1."
        assert not any(b"zanzibar" in file.read_bytes() for file in fixture.folder.rglob("*") if file.is_file())

    def test_messages_are_found_and_forgotten(self, fixture: AgentFixture) -> None:
        """By the numbers that a search shows."""
        agent = fixture.agent(["Noted.", "Fine."])
        agent.say("The vault word is zanzibar. " + "And more words. " * 40)
        line = run(agent, "/memory search vault word").text
        assert "zanzibar" in line
        number = line.split()[2]
        assert run(agent, f"/memory forget {number}").text == "Forgotten: 1."
        assert run(agent, "/memory search vault word").text == "Nothing found."
        assert agent.say("Go on.").text == "Fine."
        assert isinstance(agent.model, Scripted)
        assert "zanzibar" not in str(agent.model.prompts[-1].messages)
        files = [file for file in fixture.folder.rglob("*") if file.is_file()]
        assert not any(b"zanzibar" in file.read_bytes() for file in files)

    def test_the_marker_of_forgotten_text_is_not_archived(self, fixture: AgentFixture) -> None:
        """Neither with the next turns, nor when the conversation is taken up again, nor by an import."""
        agent = fixture.agent(["Noted.", "Fine.", "Good.", "Yes."])
        agent.say("The vault word is 桑给巴尔9876. " + "And more words. " * 40)
        agent.say("The other word is mombasa1234.")
        number = run(agent, "/memory search vault word 桑给巴尔9876").text.split()[2]
        assert run(agent, f"/memory forget {number}").text == "Forgotten: 1."
        agent.say("Go on.")
        agent.engine.close()
        again = fixture.agent(["Still here."])
        again.say("And on.")
        texts = [row.message.text for row in again.session.get(range(1, 40))]
        assert [text for text in texts if text.startswith(("Go on", "And on", "The other"))] == [
            "The other word is mombasa1234.",
            "Go on.",
            "And on.",
        ]
        assert not any("[Forgotten.]" in text for text in texts)
        read = transcripts.read(again.conversation.transcript.file)
        assert not any("[Forgotten.]" in message.text for message in read.messages)


class TestConversation:
    def test_compact_prints_tokens_before_and_after(self, fixture: AgentFixture) -> None:
        """And says so where there is nothing to do."""
        agent = fixture.agent(talker(lambda _: "filler words " * 300))
        agent.say("Hi.")
        assert "Compaction skipped" in run(agent, "/compact").text
        for number in range(8):
            agent.say(f"Step {number}. " + "more words " * 300)
        text = run(agent, "/compact: mind the ports").text
        assert text.startswith("Compacted (")
        assert "→" in text

    def test_new_begins_afresh(self, fixture: AgentFixture) -> None:
        """The old transcript is kept."""
        agent = fixture.agent(["Hello!", "Again!"])
        agent.say("Hi.")
        before = agent.session.id
        assert "is kept in" in run(agent, "/new").text
        assert agent.session.id != before
        assert run(agent, "/reset").text.startswith("A new conversation.")

    def test_pin_and_undo(self, fixture: AgentFixture) -> None:
        """The last message or one by number is pinned; nothing trimmed is nothing undone."""
        agent = fixture.agent(["Hello!"])
        agent.say("Hi.")
        assert run(agent, "/pin").text.startswith("Pinned 1")
        assert "no such message" in run(agent, "/pin 999").text
        assert "by their numbers" in run(agent, "/pin this").text
        assert run(agent, "/undo-trim").text == "Nothing was trimmed."
