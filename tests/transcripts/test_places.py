"""Finding sessions in folders, and the folders where agents keep them."""

import os
from pathlib import Path
from shutil import copyfile, copytree

import pytest

from holdfast.errors import TranscriptError
from holdfast.transcripts import Problem, SessionRef, default_places, sessions
from support.agent_files import OWN, TRANSCRIPTS
from support.external_data import needs_data
from support.paths import FIXTURES

root_reads_everything = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="run by root, who may look into every folder"
)


def found(folder: Path) -> list[SessionRef]:
    """The sessions in a folder, which has no problems."""
    problems: list[Problem] = []
    listed = list(sessions(folder, on_problem=problems.append))
    assert problems == []
    return listed


def test_a_folder_is_recognised_by_itself() -> None:
    """Every session of every agent is found, each once, and nothing else."""
    folders = {FIXTURES / path.relative_to(FIXTURES).parts[0] for _, path in OWN}
    listed = [(item.format, item.path) for folder in folders for item in found(folder)]
    assert sorted(listed) == sorted(OWN)


def test_what_is_known_of_a_session() -> None:
    """A session is listed with its id, title, folder, size and time, from its beginning alone."""
    (item,) = found(FIXTURES / "claude_code")
    path = FIXTURES / "claude_code" / "harbour.jsonl"
    assert (item.path, item.session) == (path, "7d0e1f2a-1111-4000-8000-000000000001")
    assert (item.title, item.cwd) == ("Harbour work", "/home/ada/harbour")
    assert (item.size, item.modified) == (path.stat().st_size, path.stat().st_mtime_ns // 1_000_000)


def test_a_session_in_several_files() -> None:
    """A session that is a folder is listed by the folder, with the size of all its files."""
    (item,) = found(FIXTURES / "kimi")
    assert (item.session, item.title) == ("session_7a11b0a7-0000-4000-8000-0000000000e1", "Loom")
    assert item.size == sum(file.stat().st_size for file in item.path.rglob("*") if file.is_file())
    assert found(item.path) == [item]


def test_a_file() -> None:
    """A file is listed like the folder that holds nothing else."""
    assert found(FIXTURES / "claude_code" / "harbour.jsonl") == found(FIXTURES / "claude_code")


def test_openclaw_files(tmp_path: Path) -> None:
    """Sessions that were put away are listed, copies from before a compaction and traces are not."""
    session = FIXTURES / "pi" / "2026-03-01T11-00-00-000Z_pi-3.jsonl"
    names = ["a.jsonl", "a.jsonl.reset.2026-02-10T14-00-00.123Z", "a.checkpoint.0b6f.jsonl", "a.trajectory.jsonl"]
    for name in names:
        copyfile(session, tmp_path / name)
    (tmp_path / "sessions.json").write_text('{"agent:main:main": {"sessionId": "a"}}')
    assert [item.path.name for item in found(tmp_path)] == names[:2]


def test_what_is_no_session(tmp_path: Path) -> None:
    """Other files, empty ones and the folders of tools are passed over."""
    (tmp_path / "README.md").write_text("# Hello\n")
    (tmp_path / "package.json").write_text('{\n  "name": "x"\n}\n')
    (tmp_path / "empty.jsonl").write_text("")
    copytree(FIXTURES / "pi", tmp_path / "node_modules")
    assert found(tmp_path) == []


def test_problems(tmp_path: Path) -> None:
    """A file that cannot be examined, and a damaged database, are named."""
    (tmp_path / "broken.jsonl.gz").write_bytes(b"not packed")
    (tmp_path / "opencode.db").write_bytes(b"SQLite format 3\0")
    problems: list[Problem] = []
    assert list(sessions(tmp_path, on_problem=problems.append)) == list(sessions(tmp_path)) == []
    assert "broken.jsonl.gz: could not be read" in problems[0].what
    assert "opencode.db: could not be read" in problems[1].what


def test_no_folder(tmp_path: Path) -> None:
    """A folder that is not there is an error."""
    with pytest.raises(TranscriptError, match="No such file"):
        list(sessions(tmp_path / "nowhere"))


@root_reads_everything
def test_a_folder_without_permission(tmp_path: Path) -> None:
    """A folder that may not be examined is an error; one inside it costs nothing else."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    copyfile(FIXTURES / "clawdbot" / "simple.jsonl", tmp_path / "open.jsonl")
    try:
        with pytest.raises(TranscriptError, match="cannot be read: Permission denied"):
            list(sessions(closed))
        problems: list[Problem] = []
        (item,) = sessions(tmp_path, on_problem=problems.append)
    finally:
        closed.chmod(0o700)
    assert item.path.name == "open.jsonl"
    assert len(problems) == 1


def test_default_places(tmp_path: Path) -> None:
    """The agents' folders are listed as far as they exist, moved by the variables that move them."""
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    (tmp_path / ".clawdbot" / "agents").mkdir(parents=True)
    (tmp_path / "elsewhere" / "sessions").mkdir(parents=True)
    environ = {"CODEX_HOME": str(tmp_path / "elsewhere"), "PI_CODING_AGENT_DIR": ""}
    assert default_places(environ, tmp_path) == [
        ("claude_code", tmp_path / ".claude" / "projects"),
        ("codex", tmp_path / "elsewhere" / "sessions"),
        ("clawdbot", tmp_path / ".clawdbot" / "agents"),
    ]


@needs_data("transcripts/pi")
def test_real_folder() -> None:
    """Among the real transcripts every session is found, and nothing next to them; Cursor's chat is named."""
    problems: list[Problem] = []
    formats = [item.format for item in sessions(TRANSCRIPTS, on_problem=problems.append)]
    assert [Path(problem.what.split(":")[0]).name for problem in problems] == ["store.db"]
    assert {name: formats.count(name) for name in sorted(set(formats))} == {
        "aider": 1,
        "claude_code": 9,
        "codex": 2,
        "copilot": 1,
        "grok": 1,
        "hermes": 3,
        "kimi": 1,
        "opencode": 1,
        "openhands": 1,
        "pi": 3,
        "qwen": 1,
        "request_log": 5,
    }
