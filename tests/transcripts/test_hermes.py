"""Hermes' snapshots."""

from pathlib import Path

from holdfast.transcripts import read
from support.agent_files import TRANSCRIPTS
from support.external_data import needs_data
from support.paths import FIXTURES

FILE = FIXTURES / "hermes" / "session.txt"


def test_each_snapshot_adds_what_is_new() -> None:
    """Messages are read once, though they stand in many snapshots; the same words at another time count again."""
    transcript = read(FILE)
    assert [message.text for message in transcript.messages] == [
        "User: 继续",
        "Assistant: 好的。",
        "User: 再来",
        "Assistant: 来了。",
        "User: 继续",
        "Assistant: 新的开始。",
    ]
    assert [len(entry.messages) for entry in transcript.entries] == [2, 2, 2]
    assert transcript.messages[-1].timestamp == 1778842800000


def test_other_lines(tmp_path: Path) -> None:
    """A line that holds no turns is kept, and reported."""
    path = tmp_path / "session.txt"
    path.write_text(FILE.read_text() + '{"a":1}\n[["x"]]\n7\n')
    transcript = read(path)
    assert [problem.line for problem in transcript.problems] == [4, 5, 6]
    assert len(transcript.messages) == 6


@needs_data("transcripts/hermes_zh")
def test_real_sessions() -> None:
    """The real session and its translation have 41 turns each."""
    for path in sorted(TRANSCRIPTS.glob("hermes_zh/*.txt")):
        assert [message.role for message in read(path).messages].count("user") == 41
