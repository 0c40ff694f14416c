"""Commands on a machine that has no memory yet."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.command import Done, run_command
from support.waiting import PATIENCE

READING = {
    "stats": [],
    "facts": [],
    "facts that match": ["the port"],
    "facts with history": ["--history"],
    "sessions": [],
    "search": ["the port"],
    "search in a session": ["the port", "--session", "s1"],
    "recall": ["Which port does the replica use?"],
}
"""The commands that read a memory as a whole, with arguments; the first word is the command."""
NAMING = {
    "get": ["1"],
    "get whole": ["--session", "s1"],
    "timeline": ["--session", "s1"],
    "context": ["--session", "s1"],
    "compact": ["--session", "s1"],
    "exclude": ["1"],
    "forget": ["1", "--yes"],
    "forget whole": ["--session", "s1", "--yes"],
}
"""The commands that name something in a memory."""
WORKING = {"export": ["out.jsonl"], "reindex": [], "vacuum": [], "backup": ["copy.db"], "learn": []}
"""The commands that work on a memory as a whole."""


@dataclass(frozen=True)
class User:
    """A user without a memory."""

    home: Path

    @property
    def memory(self) -> Path:
        return self.home / "memory"

    @property
    def environ(self) -> dict[str, str]:
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "XDG_"))}
        own = {"HOME": str(self.home), "HOLDFAST_HOME": str(self.memory), "TMPDIR": str(self.home / "tmp")}
        return {**others, **own, "HOLDFAST_EMBEDDING__PROVIDER": "none"}

    def run(self, *arguments: str) -> Done:
        """Run a command."""
        return run_command(*arguments, folder=self.home, environ=self.environ)

    def load_json(self, *arguments: str) -> Any:
        """Return what a command prints with --json."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def list_files(self) -> list[Path]:
        """Return every file and folder that commands have left."""
        return sorted(path for path in self.home.rglob("*") if path.name != "tmp")


@pytest.fixture
def user(tmp_path: Path) -> User:
    """A user whose home is empty."""
    (tmp_path / "tmp").mkdir()
    return User(tmp_path)


@pytest.mark.parametrize("name", READING)
def test_a_command_that_reads_finds_nothing(user: User, name: str) -> None:
    """It succeeds, says on stderr that there is no memory and what makes one, and leaves nothing behind."""
    for more in ([], ["--json"], ["--home", "elsewhere"]):
        done = user.run(name.split(maxsplit=1)[0], *READING[name], *more)
        assert done.returncode == 0, done.stderr
        assert "no memory at " in done.stderr
        assert "holdfast import --discover" in done.stderr
        assert "Traceback" not in done.stderr
    assert user.list_files() == []


def test_the_results_are_empty_and_valid(user: User) -> None:
    """A program reads the same fields as those of a memory that is there and empty."""
    assert user.load_json("facts") == []
    assert user.load_json("search", "the port") == []
    assert user.load_json("sessions") == {"sessions": []}
    recalled = user.load_json("recall", "Which port does the replica use?")
    counts = user.load_json("stats")
    assert (recalled["block"], recalled["hits"], recalled["facts"]) == ("", [], [])
    assert counts["path"] == str(user.memory / "holdfast.db")
    assert {counts[name] for name in ("messages", "passages", "sessions", "facts", "embedded", "bytes")} == {0}
    fact = user.load_json("remember", "To be forgotten.")
    user.load_json("forget", fact["id"], "--yes")
    assert user.load_json("stats").keys() == counts.keys()
    assert user.load_json("recall", "Which port does the replica use?") == recalled
    assert "no memory at " not in user.run("stats").stderr


@pytest.mark.parametrize("name", [*NAMING, *WORKING])
def test_what_does_not_exist_is_an_error(user: User, name: str) -> None:
    """So is work on a memory that is not there: a backup of nothing is no backup."""
    done = user.run(name.split(maxsplit=1)[0], *(NAMING | WORKING)[name])
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: ")
    assert done.stderr.count("\n") == 1
    assert user.list_files() == []


@pytest.mark.skipif(sys.platform == "win32", reason="it needs a POSIX shell")
def test_a_file_that_is_no_memory_is_not_an_empty_one(user: User, tmp_path: Path) -> None:
    """A transcript that is named as the memory is a mistake."""
    file = tmp_path / "session.jsonl"
    file.write_text("{}")
    done = user.run("search", "the port", "--home", str(file))
    assert done.returncode == 1
    assert "Name a folder or a .db file" in done.stderr


def test_the_slash_command_of_claude_code(user: User) -> None:
    """Claude Code shows an error instead of the text if a command in it fails."""
    assert user.run("install", "claude-code").returncode == 0
    (page,) = user.home.rglob("commands/context.md")
    commands = re.findall(r"!`(.*?)`", page.read_text("utf-8"))
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=user.home,
            env=user.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
