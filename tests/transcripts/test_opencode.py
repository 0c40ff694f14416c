"""OpenCode's exports and stored sessions."""

from pathlib import Path
from shutil import copytree

import pytest

from holdfast.errors import TranscriptError
from holdfast.messages import Image, Opaque, Text, Thinking, Usage
from holdfast.transcripts import read
from support.paths import FIXTURES

EXPORT = FIXTURES / "opencode" / "export.json"
STORED = FIXTURES / "opencode" / "storage" / "session" / "global" / "ses_0002.json"


def test_session() -> None:
    """An export names its session, title, folder and model."""
    transcript = read(EXPORT)
    assert (transcript.session, transcript.title) == ("ses_0001", "Press work")
    assert (transcript.cwd, transcript.model) == ("/home/ada/press", "glm-5.1")


def test_user() -> None:
    """Pictures are pictures, other files stay as they are."""
    user = read(EXPORT).messages[0]
    assert user.parts[:2] == (Text(text="Print this."), Image(media_type="image/png", data="iVBORw0KGgo="))
    assert isinstance(user.parts[2], Opaque)
    assert user.timestamp == 1772380001000


def test_steps() -> None:
    """A record with two calls of the model is two replies, each with its results and what it cost."""
    first, results, second = read(EXPORT).messages[1:]
    assert first.parts[0] == Thinking(text="Ink first.")
    assert first.usage == Usage(input=20, output=2, total=22)
    read_, failed = results.results
    assert read_.content == (Text(text="black"), Image(media_type="image/png", url="https://example.org/ink.png"))
    assert (failed.call_id, failed.is_error, failed.text) == ("c2", True, "not found")
    assert second.usage == Usage(input=30, output=10, total=40)
    assert [call.id for call in second.calls] == ["c3"]
    assert second.stop == "stop"


def test_stored() -> None:
    """A session of the storage folder is put together from its files; a sub-session is a sub-agent's."""
    transcript = read(STORED)
    assert transcript.title == "Sub-press"
    assert [message.text for message in transcript.messages] == ["Fold it."]
    assert [entry.sidechain for entry in transcript.entries] == [False, True]


def test_a_broken_part(tmp_path: Path) -> None:
    """A stored message with a part that cannot be read is reported by its name."""
    storage = copytree(FIXTURES / "opencode" / "storage", tmp_path / "storage")
    (storage / "part" / "msg_0003" / "prt_31.json").write_text("{")
    (problem,) = read(storage / "session" / "global" / "ses_0002.json").problems
    assert problem.what.startswith("msg_0003.json: ")


def test_no_document(tmp_path: Path) -> None:
    """Half an export is refused with what is wrong in it."""
    path = tmp_path / "export.json"
    path.write_bytes(EXPORT.read_bytes()[:200])
    with pytest.raises(TranscriptError, match="not a JSON document"):
        read(path, format="opencode")
