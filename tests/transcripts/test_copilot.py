"""GitHub Copilot CLI's sessions."""

from pathlib import Path
from shutil import copytree

from holdfast.messages import Image, Opaque, Text, Thinking, ToolCall
from holdfast.transcripts import READERS, read
from support.agent_files import COPILOT


def test_session() -> None:
    """The workspace file names the session, with its title and folder; events name the model."""
    transcript = read(COPILOT)
    assert transcript.session == "5f0c1d2e-0000-4000-8000-00000000c0de"
    assert (transcript.title, transcript.cwd) == ("Orchard: count", "/home/ada/orchard")
    assert transcript.model == "gpt-4.1"
    assert transcript.entries[0].type == "workspace"


def test_messages() -> None:
    """Pictures come from the assets before them, other attachments stay as they are; a failed tool is an error."""
    system, user, reply, result, last = read(COPILOT).messages
    assert (system.role, system.text) == ("system", "Count trees.")
    assert user.parts[:2] == (Text(text="How many?"), Image(media_type="image/png", data="iVBORw0KGgo="))
    assert isinstance(user.parts[2], Opaque)
    assert reply.parts == (Thinking(text="Look."), ToolCall(id="c1", name="view", arguments={"path": "trees.txt"}))
    (answer,) = result.results
    assert (answer.call_id, answer.name, answer.is_error, answer.text) == ("c1", "view", True, "no such file")
    assert last.text == "I cannot tell."


def test_sub_agents_are_flagged() -> None:
    """What a sub-agent says is not in the main conversation."""
    assert [entry.id for entry in read(COPILOT).entries if entry.sidechain] == ["e10"]


def test_events_alone(tmp_path: Path) -> None:
    """The file of events is a session without its workspace file."""
    home = copytree(COPILOT, tmp_path / "moved")
    (home / "workspace.yaml").unlink()
    transcript = read(home / "events.jsonl")
    assert transcript.path == home / "events.jsonl"
    assert (transcript.title, transcript.cwd) == (None, "/home/ada/orchard")


def test_a_folder_with_other_events(tmp_path: Path) -> None:
    """Another program's `events.jsonl` next to a `workspace.yaml` makes no Copilot session."""
    (tmp_path / "workspace.yaml").write_text("id: x\n")
    (tmp_path / "events.jsonl").write_text('{"role":"user","content":"hi"}\n')
    assert read(tmp_path / "events.jsonl").format == "message_list"
    (tmp_path / "events.jsonl").write_bytes(b"")

    assert READERS["copilot"].folder(tmp_path) is None
