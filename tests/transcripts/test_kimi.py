"""Kimi Code's sessions."""

from pathlib import Path
from shutil import copytree

from holdfast.messages import Image, Text, Thinking, ToolCall, Usage
from holdfast.transcripts import read
from support.agent_files import KIMI


def test_session() -> None:
    """The state file names the session, with its title and folder; requests name the model."""
    transcript = read(KIMI)
    assert transcript.session == "session_7a11b0a7-0000-4000-8000-0000000000e1"
    assert (transcript.title, transcript.cwd, transcript.model) == ("Loom", "/home/ada/loom", "kimi-k2.7-code")


def test_messages() -> None:
    """Messages and the events of a step are read, a picture from its URL, calls in both shapes."""
    user, thought, call, result, asked, answer = read(KIMI).messages
    assert user.parts == (Text(text="Which thread?"), Image(media_type="image/png", data="iVBORw0KGgo="))
    assert thought.parts == (Thinking(text="Look at the spool."),)
    assert call.parts == (ToolCall(id="Read:0", name="Read", arguments={"path": "spool.txt"}),)
    assert (result.results[0].call_id, result.results[0].text) == ("Read:0", "blue")
    assert asked.calls == (ToolCall(id="Read:1", name="Read", arguments={"path": "b"}),)
    assert (answer.role, answer.results[0].text) == ("tool", "red")


def test_the_end_of_a_step_has_its_cost() -> None:
    """Usage and the reason to stop belong to the last thing said in the step."""
    charged = [message for message in read(KIMI).messages if message.usage]
    assert [message.calls[0].id for message in charged] == ["Read:0"]
    assert charged[0].usage == Usage(input=100, output=10, cache_read=50)
    assert charged[0].stop == "tool_use"


def test_sub_agents_are_flagged() -> None:
    """Another agent's records come after the main one's, and are not in its conversation."""
    aside = [entry for entry in read(KIMI).entries if entry.sidechain]
    assert [message.text for entry in aside for message in entry.messages] == ["Sort the spools."]


def test_records_alone(tmp_path: Path) -> None:
    """A file of records is a session by itself."""
    home = copytree(KIMI, tmp_path / "moved")
    path = (home / "agents" / "main" / "wire.jsonl").rename(tmp_path / "wire.jsonl")
    assert read(path).format == "kimi"
    assert len(read(path).messages) == 6


def test_a_broken_state_file(tmp_path: Path) -> None:
    """A state file that cannot be read is reported, and costs nothing else."""
    home = copytree(KIMI, tmp_path / "session_x")
    (home / "state.json").write_text('{"id": ')
    transcript = read(home)
    assert transcript.session == "session_x"
    assert [problem.what.split(":")[0] for problem in transcript.problems] == ["state.json"]
    assert len(transcript.messages) == 6
