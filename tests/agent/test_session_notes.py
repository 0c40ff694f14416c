"""The note that a conversation leaves in the workspace when it ends."""

from __future__ import annotations

import stat
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from holdfast.errors import StorageError
from holdfast.messages import Message, Text, ToolCall
from holdfast.models.scripted import Hang, Scripted, ScriptedReply
from holdfast_agent import session_notes
from holdfast_agent.commands import run
from holdfast_agent.notes import Notes
from holdfast_agent.paths import Bounds
from holdfast_agent.session_notes import last_words, make_slug, write_session_note
from holdfast_agent.settings import SessionReset, SessionSettings, Workspace
from support.agent_fixture import BASE, AgentFixture, change_agent, talker
from support.cases import each

KEY = "AKIAQ3EGRLWM5N7PXJ2K"
WANTED = change_agent(BASE, session=SessionSettings(memory_file=True))


@pytest.fixture
def fixture(tmp_path: Path) -> AgentFixture:
    """An agent with session notes enabled."""
    return AgentFixture(tmp_path, settings=WANTED)


def left(fixture: AgentFixture) -> dict[str, str]:
    """The notes in the workspace."""
    found = (fixture.folder / "work" / "memory").glob("*.md")
    return {file.name: file.read_text("utf-8") for file in sorted(found)}


def make_message(role: Any, text: str) -> Message:
    """A message."""
    return Message(role=role, parts=(Text(text=text),))


class TestNote:
    def test_what_it_says(self, fixture: AgentFixture) -> None:
        """Its name is the model's, its head tells which conversation it was, and its body what was said last."""
        agent = fixture.agent(["It is 6543.", "`Staging Port`"])
        agent.say("Which port has staging?")
        before = agent.session.id
        assert "is kept in" in run(agent, "/new").text
        (name, text), *others = left(fixture).items()
        assert not others
        assert name == "2026-09-21-staging-port.md"
        assert text == (
            "# Session: 2026-09-21 14:13:20 UTC\n\n"
            "- **Session Key**: agent:main:main\n"
            f"- **Session ID**: {before}\n"
            "- **Source**: terminal\n\n"
            "## Conversation Summary\n\n"
            "user: Which port has staging?\n"
            "assistant: It is 6543.\n"
        )
        assert fixture.view.work == ["naming the conversation", ""]
        assert fixture.view.notices == []

    @pytest.mark.skipif(sys.platform == "win32", reason="modes are of other systems")
    def test_it_is_for_the_user_alone(self, fixture: AgentFixture) -> None:
        """No one else can read it."""
        agent = fixture.agent(["Hello!", "greeting"])
        agent.say("Hi.")
        agent.reset()
        (file,) = (fixture.folder / "work" / "memory").glob("*.md")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def test_only_for_those_who_want_it(self, tmp_path: Path) -> None:
        """By default no model is asked and nothing is written."""
        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(["Hello!"])
        agent.say("Hi.")
        run(agent, "/reset")
        assert left(fixture) == {}
        assert fixture.view.work == []

    def test_a_conversation_without_a_word_leaves_none(self, fixture: AgentFixture) -> None:
        """No one is asked for its name either."""
        agent = fixture.agent([])
        agent.reset()
        assert left(fixture) == {}
        assert fixture.view.notices == []

    def test_no_secret_is_in_it(self, fixture: AgentFixture) -> None:
        """Neither the note nor what the model sees for a name holds a key that was said."""
        agent = fixture.agent(["Thanks.", "a-key"])
        agent.say(f"My key is {KEY}.")
        agent.reset()
        assert KEY not in left(fixture)["2026-09-21-a-key.md"]
        assert isinstance(agent.model, Scripted)
        assert KEY not in str(agent.model.prompts[-1].messages)

    def test_a_note_quotes_messages_and_not_the_summary(self, fixture: AgentFixture) -> None:
        """After a compaction the note still quotes what was said, and not the summary."""
        agent = fixture.agent(talker(lambda _: "filler words " * 300))
        for number in range(6):
            agent.say(f"Tell me about module {number}.")
        agent.compact()
        agent.reset()
        text = left(fixture)["2026-09-21-goal-talk-about-modules.md"]
        assert all(f"user: Tell me about module {number}." in text for number in range(6))
        assert "## Goal" not in text

    def test_it_is_found_at_once(self, fixture: AgentFixture) -> None:
        """The next search over the notes knows it."""
        agent = fixture.agent(["It is 6543.", "staging-port"])
        agent.say("Which port has the staging database?")
        with Notes(agent.root, fixture.settings, fixture.folder / "notes.db") as notes:
            assert notes.search("staging database").hits == ()
            agent.reset()
            assert [hit.path for hit in notes.search("staging database").hits] == ["memory/2026-09-21-staging-port.md"]


class TestOtherEnds:
    @pytest.fixture
    def fixture(self, tmp_path: Path) -> AgentFixture:
        """An agent whose conversations end with the day."""
        session = SessionSettings(memory_file=True, reset=SessionReset(mode="daily"))
        return AgentFixture(tmp_path, settings=change_agent(BASE, session=session))

    def test_the_day_ends(self, fixture: AgentFixture) -> None:
        """A conversation that the hour ends leaves its note, and the next one begins."""
        agent = fixture.agent(["One.", "first-day", "Two."])
        agent.say("First.")
        fixture.now += 48 * 3_600_000
        assert agent.say("Second.").text == "Two."
        (text,) = left(fixture).values()
        assert "- **Source**: daily reset\n" in text
        assert "Second." not in text

    def test_while_nobody_was_there(self, fixture: AgentFixture) -> None:
        """So does one that ended before this process began."""
        before = fixture.agent(["One."])
        before.say("First.")
        before.close()
        fixture.now += 48 * 3_600_000
        agent = fixture.agent(["first-day"])
        assert list(left(fixture)) == ["2026-09-23-first-day.md"]
        assert agent.history == []
        again = fixture.agent([])
        assert again.session.id == agent.session.id
        assert len(left(fixture)) == 1


class TestTrouble:
    def test_no_note_is_written_over(self, fixture: AgentFixture) -> None:
        """The same name again has a number behind it."""
        agent = fixture.agent(lambda prompt: "Hello!" if prompt.tools else "greeting")
        for number in range(3):
            agent.say(f"Hello {number}.")
            agent.reset()
        assert list(left(fixture)) == ["2026-09-21-greeting-2.md", "2026-09-21-greeting-3.md", "2026-09-21-greeting.md"]
        assert "Hello 0." in left(fixture)["2026-09-21-greeting.md"]
        assert "Hello 2." in left(fixture)["2026-09-21-greeting-3.md"]

    @pytest.mark.parametrize("name", [[], ["Well, I think that this was a talk about a port of a database."], ["..."]])
    def test_without_a_name_the_hour_does(self, fixture: AgentFixture, name: list[str]) -> None:
        """A model that fails, talks or says nothing leaves hour and minute."""
        agent = fixture.agent(["Hello!", *name])
        agent.say("Hi.")
        agent.reset()
        assert list(left(fixture)) == ["2026-09-21-1413.md"]

    def test_no_name_is_waited_for_long(self, fixture: AgentFixture, monkeypatch: pytest.MonkeyPatch) -> None:
        """A model that hangs is given up, after ten seconds."""
        assert session_notes.NAMING_SECONDS == 10
        monkeypatch.setattr(session_notes, "NAMING_SECONDS", 0.05)
        agent = fixture.agent(["Hello!", Hang()])
        agent.say("Hi.")
        agent.reset()
        assert list(left(fixture)) == ["2026-09-21-1413.md"]

    def test_called_off(self, fixture: AgentFixture) -> None:
        """Ctrl-C ends the search for a name; the note is written all the same."""
        agent = fixture.agent(["Hello!", Hang()])
        agent.say("Hi.")
        agent.cancel.set()
        agent.reset()
        assert list(left(fixture)) == ["2026-09-21-1413.md"]

    @pytest.mark.parametrize("access", ["ro", "none"])
    def test_a_read_only_workspace_is_reported(self, fixture: AgentFixture, access: Any) -> None:
        """Nothing is written or asked, and the user hears where all of it is."""
        closed = Workspace(skip_bootstrap=True, access=access)
        fixture.settings = change_agent(fixture.settings, workspace=closed)
        agent = fixture.agent(["Hello!"])
        agent.say("Hi.")
        session = agent.reset()
        assert left(fixture) == {}
        (notice,) = fixture.view.notices
        assert "read-only" in notice
        assert str(session.archived) in notice
        assert session.archived is not None
        assert b"Hello!" in session.archived.read_bytes()

    def test_a_disk_that_refuses_is_reported(self, fixture: AgentFixture) -> None:
        """A file where the folder should be stops nothing but the note."""
        agent = fixture.agent(["Hello!", "greeting"])
        (agent.root / "memory").write_text("in the way")
        agent.say("Hi.")
        agent.reset()
        (notice,) = fixture.view.notices
        assert notice.startswith("No note of the last conversation was written")
        assert agent.history == []

    def test_a_folder_that_leads_elsewhere_is_not_followed(self, fixture: AgentFixture) -> None:
        """Nothing is written outside of the workspace."""
        agent = fixture.agent(["Hello!", "greeting"])
        (fixture.folder / "elsewhere").mkdir()
        (agent.root / "memory").symlink_to(fixture.folder / "elsewhere")
        agent.say("Hi.")
        agent.reset()
        assert list((fixture.folder / "elsewhere").iterdir()) == []
        assert "outside of the workspace" in fixture.view.notices[0]

    def test_without_a_model(self, fixture: AgentFixture) -> None:
        """Whoever has none gets hour and minute."""
        agent = fixture.agent(["Hello!"])
        agent.say("Hi.")
        ended = replace(agent.conversation, archived=agent.conversation.transcript.file)
        path = write_session_note(ended, time=fixture.now, bounds=Bounds(root=agent.root), cancel=Event())
        assert path is not None
        assert path.name == "2026-09-21-1413.md"

    def test_what_is_not_about_the_name_is_an_error(self, fixture: AgentFixture) -> None:
        """A disk that cannot be written is no reason to try other names for ever."""
        agent = fixture.agent(["Hello!"])
        agent.say("Hi.")
        (agent.root / "memory").write_text("in the way")
        assert write_session_note(agent.conversation, time=1, bounds=Bounds(root=agent.root)) is None
        ended = replace(agent.conversation, archived=agent.conversation.transcript.file)
        with pytest.raises(StorageError):
            write_session_note(ended, time=1, bounds=Bounds(root=agent.root))


class TestWords:
    def test_of_the_two_alone(self) -> None:
        """System prompts, results, commands, silence and calls are no words of theirs; a path is no command."""
        call = ScriptedReply(calls=(ToolCall(id="c", name="read", arguments={}),)).calls
        conversation = [
            make_message("system", "Be nice."),
            make_message("user", "/status"),
            make_message("user", "/compact: the ports"),
            make_message("user", "/etc/hosts looks odd"),
            Message(role="assistant", parts=(*call,)),
            make_message("assistant", "NO_REPLY"),
            make_message("assistant", "Done. 你好"),
        ]
        assert last_words(conversation) == ["user: /etc/hosts looks odd", "assistant: Done. 你好"]

    def test_the_last_fifteen(self) -> None:
        """What came before is in the transcript."""
        found = last_words([make_message("user", f"word {number}") for number in range(40)])
        assert found == [f"user: word {number}" for number in range(25, 40)]

    def test_nothing_that_was_recalled(self, tmp_path: Path) -> None:
        """A block that comes back with a message is in no transcript, and the user gets a notice."""
        fixture = AgentFixture(tmp_path)
        agent = fixture.agent(["Noted.", "It is 6543.", "Yes."])
        agent.session.remember("The zanzibar database listens on port 6543")
        agent.say("Which port does the zanzibar database listen on?")
        window = agent.window
        assert window is not None
        (block,) = (item.block.text for item in window.items if item.block)
        agent.say(f"{block}\n\nAnd now?")
        assert "<recalled-context" not in agent.conversation.transcript.file.read_text(encoding="utf-8")
        assert last_words(agent.history)[-2:] == ["user: And now?", "assistant: It is 6543."]
        assert any("Recalled text" in notice for notice in fixture.view.notices)

    def test_secrets_are_masked_as_set(self) -> None:
        """They are masked, unless masking is off."""
        assert KEY not in str(last_words([make_message("user", KEY)]))
        assert last_words([make_message("user", KEY)], mask=False) == [f"user: {KEY}"]


@each(
    ("text", "name"),
    [
        ("Vendor pitch", "vendor-pitch"),
        ("`api-design`.\n", "api-design"),
        ("数据库端口", "数据库端口"),
        ("हिन्दी बात", "हिन्दी-बात"),
        ("../../etc/passwd", "etc-passwd"),
        ("a" * 41, ""),
        ("one two three four five six seven", ""),
        ("", ""),
    ],
)
def test_names(text: str, name: str) -> None:
    """Words in any script, joined by hyphens, and nothing that leads anywhere."""
    assert make_slug(text) == name
