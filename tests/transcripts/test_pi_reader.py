"""pi's, OpenClaw's and Clawdbot's session files, read as another agent's."""

from pathlib import Path

import pytest

from holdfast.messages import Image, Message, Usage
from holdfast.transcripts import read
from holdfast.transcripts.pi import ARCHIVED, is_copy
from support.agent_files import TRANSCRIPTS
from support.external_data import needs_data
from support.paths import FIXTURES

FILE = FIXTURES / "pi" / "2026-03-01T11-00-00-000Z_pi-3.jsonl"


def test_session() -> None:
    """Header, name and model changes tell what the session is."""
    transcript = read(FILE)
    assert (transcript.session, transcript.cwd) == ("pi-3", "/home/ada/kiln")
    assert (transcript.title, transcript.model) == ("Kiln work", "claude-sonnet-4-5")


def test_messages() -> None:
    """Messages have their entry's id and their own time; what an extension injected is a message too."""
    asked, reply, result, injected = read(FILE).messages
    assert asked.text == "窯の温度は?"
    assert (reply.id, reply.timestamp) == ("00000003", 1772362804000)
    assert reply.usage == Usage(input=12, output=80, cache_read=900, cache_write=40, total=1032)
    assert result.results[0].content[1] == Image(media_type="image/png", data="iVBORw0KGgo=")
    assert (injected.role, injected.text) == ("user", "It is hot.")


def test_every_entry_is_kept() -> None:
    """Compactions and entries of a type we do not know are entries without messages."""
    types = [entry.type for entry in read(FILE).entries if not entry.messages]
    assert types == ["session", "model_change", "session_info", "compaction", "telepathy"]
    assert [entry.parent for entry in read(FILE).entries][-1] == "00000007"


def test_version_1() -> None:
    """Entries of the first version have no ids; a command the user ran is told to the model."""
    transcript = read(FIXTURES / "pi" / "version-1.jsonl")
    assert (transcript.session, transcript.model) == ("pi-1", "claude-opus-4-5")
    assert [message.text for message in transcript.messages] == ["light it", "Ran `ls`\n```\nwood\n```"]


@pytest.mark.parametrize(
    ("name", "archived", "copy"),
    [
        ("a.jsonl", False, False),
        ("a.jsonl.reset.2026-02-10T14-00-00.123Z", True, False),
        ("a.jsonl.deleted.2026-02-10T14-00-00Z", True, False),
        ("a.jsonl.bak.2026-02-10T14-00-00Z", True, False),
        ("a.checkpoint.0b6f0c0e-6a2e-4c0b-9b1e-1f2a3b4c5d6e.jsonl", False, True),
        ("a.trajectory.jsonl", False, True),
    ],
)
def test_names(name: str, archived: bool, copy: bool) -> None:  # noqa: FBT001
    """Sessions that were put away are sessions, copies and traces next to them are not."""
    assert (ARCHIVED.search(name) is not None, is_copy(Path(name))) == (archived, copy)


def last_context(messages: list[Message]) -> int:
    """The last count of the provider that is one."""
    return [message.usage.context for message in messages if message.usage and message.usage.context][-1]


@needs_data("transcripts/pi")
def test_real_sessions() -> None:
    """The two real sessions have the messages that were counted in them."""
    before = read(TRANSCRIPTS / "pi" / "before-compaction.jsonl")
    roles = [message.role for message in before.messages]
    assert (len(before.entries), roles.count("assistant"), roles.count("tool")) == (1003, 484, 448)
    assert [entry.data["tokensBefore"] for entry in before.entries if entry.type == "compaction"] == [175004, 185014]
    assert last_context(before.messages) == 168018
    assert last_context(read(TRANSCRIPTS / "pi" / "large-session.jsonl").messages) == 177657
