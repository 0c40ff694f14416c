"""OpenHands' conversations, of today and from before 1.0."""

from pathlib import Path
from shutil import copytree

from agent_files import FIXTURES, OPENHANDS, TRANSCRIPTS
from holdfast.messages import Image, Text, Thinking, ToolCall, units
from holdfast.transcripts import read
from shared_data import needs_shared


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


def test_history_rows() -> None:
    """A row of an evaluation is its run: what was asked, calls with what came of them, the last words."""
    transcript = read(FIXTURES / "openhands_history" / "output.jsonl")
    assert (transcript.session, transcript.title) == ("sail-1", "Mend the sail")
    user, action, result, last = transcript.messages
    assert (user.role, user.text) == ("user", "Mend it.")
    assert action.text == "Let me look."
    assert action.calls[0].arguments == {"command": "ls", "keep_prompt": True}
    assert result.results[0].call_id == action.calls[0].id
    assert (last.role, last.text) == ("assistant", "Mended.")
    assert transcript.entries[0].data == {
        "instance_id": "sail-1",
        "issue": {"title": "Mend the sail"},
        "instruction": "Mend it.",
        "success": True,
    }


def test_trajectory() -> None:
    """A trajectory names its speakers and calls; the agent's own states are no messages."""
    system, user, action, result, reply = read(FIXTURES / "openhands_history" / "trajectory.json").messages
    assert [message.role for message in (system, user, reply)] == ["system", "user", "assistant"]
    assert action.calls[0].id == result.results[0].call_id == "call_7"
    assert result.results[0].is_error
    assert reply.timestamp is None
    assert user.timestamp == 1740837601000


@needs_shared
def test_real_runs() -> None:
    """In the real output every call has its result."""
    transcript = read(TRANSCRIPTS / "openhands" / "resolver_mock_output.jsonl")
    assert len(transcript.messages) == 52
    assert not any(unit.pending for unit in units(transcript.messages))
