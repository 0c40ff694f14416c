"""aider's chat history."""

from pathlib import Path

from holdfast.transcripts import read
from support.agent_files import TRANSCRIPTS
from support.external_data import needs_data
from support.paths import FIXTURES

FILE = FIXTURES / "aider" / ".aider.chat.history.md"


def test_messages() -> None:
    """The user's lines lose their marks, replies are what has none, the tool's output is no message."""
    transcript = read(FILE)
    assert [(message.role, message.text) for message in transcript.messages] == [
        ("user", "Rename the boat\n\nto Marit"),
        ("assistant", "I will rename it:\n\n```\n-Anna\n+Marit\n```"),
        ("user", "谢谢"),
        ("assistant", "不客气。"),
    ]
    kinds = [entry.type for entry in transcript.entries if not entry.messages]
    assert kinds == ["output", "chat", "output", "output"]


def test_time() -> None:
    """Entries have the time at which their chat was started."""
    times = {entry.timestamp for entry in read(FILE).entries}
    assert times == {None, 1772377200000}


def test_nothing_is_left_out() -> None:
    """The entries together are the file."""
    assert "".join(entry.data["text"] for entry in read(FILE).entries) == FILE.read_text()


def test_not_utf_8(tmp_path: Path) -> None:
    """A line that is not UTF-8 is read with replacement characters, and reported."""
    path = tmp_path / FILE.name
    path.write_bytes(FILE.read_bytes() + b"#### caf\xe9\n")
    transcript = read(path)
    assert transcript.messages[-1].text == "caf\ufffd"
    assert [(problem.line, problem.what) for problem in transcript.problems] == [
        (23, "not UTF-8 at byte 8: shown with replacement characters")
    ]


@needs_data("transcripts/aider")
def test_real_history() -> None:
    """The entries of the real history are the file, and its chats are found."""
    path = TRANSCRIPTS / "aider" / "chat-history.md"
    transcript = read(path)
    assert "".join(entry.data["text"] for entry in transcript.entries).encode() == path.read_bytes()
    started = path.read_text().count("\n# aider chat started at ")
    assert sum(entry.type == "chat" for entry in transcript.entries) == started
