"""OpenHands' conversations, of today and from before 1.0."""

from pathlib import Path
from shutil import copytree

from holdfast.messages import Image, Text, Thinking, ToolCall
from holdfast.transcripts import read
from support.agent_files import OPENHANDS


def test_events() -> None:
    """Prompts, messages, actions and what came of them are messages; the rest is metadata."""
    transcript = read(OPENHANDS)
    assert transcript.session == "0d15c0ff33"
    system, user, action, result, error, rejected = transcript.messages
    assert (system.role, system.text) == ("system", "Mend sails.\nWind: west.")
    assert user.parts == (Text(text="Mend this."), Image(media_type="image/png", data="iVBORw0KGgo="))
    assert action.parts == (
        Thinking(text="A tear."),
        Text(text="First a look."),
        ToolCall(id="c1", name="terminal", arguments={"command": "ls"}),
    )
    assert (result.results[0].name, result.results[0].text) == ("terminal", "sail.txt")
    assert (error.results[0].is_error, error.results[0].text) == (True, "no such tool")
    assert (rejected.results[0].is_error, rejected.results[0].text) == (True, "not now")
    assert transcript.entries[-1].type == "ConversationStateUpdateEvent"


def test_a_broken_event(tmp_path: Path) -> None:
    """An event that cannot be read is reported by its name, and costs no other."""
    home = copytree(OPENHANDS, tmp_path / "c")
    (home / "events" / "event-00001-h1.json").write_text("{")
    (home / "events" / "event-00004-h4.json").write_text("[]")
    transcript = read(home)
    assert len(transcript.entries) == 5
    assert [problem.what.split(":")[0] for problem in transcript.problems] == [
        "event-00001-h1.json",
        "event-00004-h4.json",
    ]


def test_an_event_alone(tmp_path: Path) -> None:
    """An event outside a conversation's folder is a session of one event."""
    path = tmp_path / "event.json"
    path.write_bytes((OPENHANDS / "events" / "event-00001-h1.json").read_bytes())
    assert [message.text for message in read(path).messages] == ["Mend this."]
