"""A settings file that came with a cloned repository and has an error stops no command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.cli import COMMANDS
from holdfast.engine import Engine
from holdfast.settings import Embedding, Settings
from holdfast.settings.trust import record_trust
from support.command import Done, run_command
from support.forked import Holdfast
from support.waiting import PATIENCE, stop_server

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "webhook.jsonl")
NOTE = "holdfast.toml is not trusted and has an error, so the whole file is ignored"
QUESTION = {"role": "user", "content": "Which port does the replica use?"}

SETTINGS_READ: dict[str, list[str]] = {
    "backup": ["new.db"],
    "chat": ["-p", "Hello.", "--model", "scripted:replies.jsonl"],
    "compact": ["--session", "notes"],
    "context": ["--session", "notes"],
    "decrypt": [],
    "doctor": [],
    "encrypt": [],
    "exclude": ["1"],
    "keep": ["12345678"],
    "export": ["export.jsonl"],
    "facts": [],
    "forget": ["1", "--yes"],
    "get": ["1"],
    "import": [EXAMPLE, "--no-vectors"],
    "install": [],
    "learn": ["--session", "notes"],
    "mcp": [],
    "migrate": ["copy.db", "new.db"],
    "overview": [],
    "recall": ["Which port?"],
    "reindex": [],
    "remember": ["The port is 8443."],
    "search": ["port"],
    "sessions": [],
    "stats": [],
    "timeline": ["--session", "notes"],
    "tokens": [EXAMPLE],
    "ui": ["--no-open", "--json"],
    "uninstall": ["pi"],
    "vacuum": [],
}
"""The commands that read the settings of the folder they run in, with arguments."""
NO_SETTINGS_READ: dict[str, list[str]] = {
    "demo": ["--save", "demo.jsonl"],
    "diff": [EXAMPLE],
    "hook": [],
    "models": ["list"],
    "replay": [EXAMPLE],
    "rpc": [],
    "serve": ["--port", "0", "--json"],
    "show": [EXAMPLE],
    "token": [],
    "version": [],
}
"""The commands that read only the settings of the user, or none."""
SERVERS = frozenset({"serve", "ui"})
"""The commands that run until they are stopped."""
PROCESSES = frozenset({*SERVERS, "hook", "mcp", "rpc"})
"""The commands that are started as processes here: they serve, or another program talks to them."""
REQUESTS = {
    "mcp": "".join(
        json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        for message in (
            {
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {},
                    "clientInfo": {"name": "client", "version": "1"},
                },
            },
            {"method": "notifications/initialized"},
            {"id": 2, "method": "tools/call", "params": {"name": "memory_search", "arguments": {"query": "port"}}},
        )
    )
}
"""What a command reads from its input: an MCP server loads nothing, settings included, until a tool is called."""

BROKEN_FILES = {
    "unknown key": b"nonsense = 1\n",
    "unknown section": b"[nonsense.of.mine]\nvalue = 1\n",
    "wrong type": b"[recall]\nhard_cap_tokens = 'many'\n",
    "out of range": b"[recall]\nhard_cap_tokens = -1\n",
    "value in place of a section": b"recall = 7\n",
    "broken TOML": b"[recall\n",
    "not UTF-8": b"recall = '\xff'\n",
    "deep list": b"recall = " + b"[" * 100_000,
    "deep closed list": b"recall.position = " + b"[" * 300 + b"]" * 300,
    "deep table": b"x = " + b"{a=" * 100_000,
    "deep key": b"a." * 1000 + b"a = 1\n",
    "long number": b"recall.hard_cap_tokens = " + b"9" * 100_000,
    "too large": b"# " + b"x" * 600_000,
    "values that exclude each other": b"[search]\nvector_weight = 0\nbm25_weight = 0\n",
}


@dataclass(frozen=True)
class Clone:
    """A cloned repository, and a user who has a memory with a session and works in that folder."""

    folder: Path
    home: Path

    @property
    def file(self) -> Path:
        return self.folder / "holdfast.toml"

    @property
    def environ(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config")}
        memory = {"HOLDFAST_HOME": str(self.home / "memory"), "HOLDFAST_EMBEDDING__PROVIDER": "none"}
        others = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "OPENCLAW_"))}
        return {**others, **own, **memory}

    def run(self, *arguments: str, stdin: str = "") -> Done:
        """Run a command in the folder."""
        if arguments[0] in PROCESSES:
            return self.run_process(*arguments, stdin=stdin)
        return run_command(*arguments, folder=self.folder, environ=self.environ, stdin=stdin)

    def run_process(self, *arguments: str, stdin: str = "") -> Done:
        """Start a command; one that runs until it is stopped is stopped once it says where it serves."""
        process = Holdfast[str](
            *arguments,
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            first = ""
            if arguments[0] in SERVERS:
                assert process.stdout is not None
                first = process.stdout.readline()
                process.terminate()
            stdout, stderr = process.communicate(stdin, timeout=PATIENCE)
        return Done(returncode=process.returncode, stdout=first + stdout, stderr=stderr)


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory with a session that is long enough for a compaction. Each test gets a copy."""
    folder = tmp_path_factory.mktemp("untrusted") / "memory"
    long = "The replica uses port 5433. " * 2_000
    messages = [{"role": role, "content": f"{number}: {long}"} for number, role in enumerate(["user", "assistant"] * 4)]
    with Engine.open(folder, settings=Settings(embedding=Embedding(provider="none")), background=False) as engine:
        engine.session("notes").assemble([*messages, QUESTION])
    return folder


@pytest.fixture
def clone(memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clone]:
    """A user in a cloned repository without a settings file. Servers that were started are stopped at the end."""
    one = Clone(folder=tmp_path / "clone", home=tmp_path / "home")
    one.folder.mkdir()
    (one.home / "config" / "holdfast").mkdir(parents=True)
    shutil.copytree(memory, one.home / "memory")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(one.home / "config"))
    yield one
    stop_server(one.home / "memory")


def test_every_command_is_tried() -> None:
    """`trust` is the exception: the user asks it to accept the file, so an error in the file is an error there."""
    assert {*SETTINGS_READ, *NO_SETTINGS_READ, "trust"} == set(COMMANDS)


@pytest.mark.variants
@pytest.mark.parametrize("command", sorted({*SETTINGS_READ, *NO_SETTINGS_READ}))
def test_no_command_is_stopped(clone: Clone, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does what it does without the file, and says in one line what is ignored."""
    (clone.folder / "replies.jsonl").write_text('{"text": "Hello.", "repeat": true}\n')
    arguments = (SETTINGS_READ | NO_SETTINGS_READ)[command]
    if command == "migrate":
        assert clone.run("backup", "copy.db").returncode == 0
    if command == "keep":
        stored = [clone.run("remember", f"The API is written in {name}", "--json") for name in ("Go", "Rust")]
        arguments = [json.loads(stored[0].stdout)["id"]]
    if command in {"encrypt", "decrypt"}:
        monkeypatch.setenv("STORE_KEY", "0123456789abcdef" * 4)
        own = clone.home / "config" / "holdfast" / "holdfast.toml"
        own.write_text('[archive]\nencryption_key = "env:STORE_KEY"\n')
    if command == "decrypt":
        assert clone.run("encrypt").returncode == 0
    clone.file.write_bytes(BROKEN_FILES["unknown key"])
    done = clone.run(command, *arguments, stdin=REQUESTS.get(command, ""))
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stderr.splitlines() if NOTE in line]
    if command == "doctor":  # what it finds is its result
        assert NOTE in done.stdout
        assert not notes
    elif command in SETTINGS_READ:
        assert len(notes) == 1, done.stderr
        assert "nonsense" in notes[0]
        assert "holdfast trust" in notes[0]
    else:
        assert not notes


@pytest.mark.variants
@pytest.mark.parametrize("kind", sorted(BROKEN_FILES))
def test_no_kind_of_error_stops_a_command(clone: Clone, kind: str) -> None:
    """Whatever is in the file: the output is that of a folder without one, and the note is one short line."""
    expected = clone.run("stats", "--json").stdout
    clone.file.write_bytes(BROKEN_FILES[kind])
    done = clone.run("stats", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected
    assert NOTE in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(done.stderr) < 1_000


@pytest.mark.parametrize("target", ["/dev/zero", "holdfast.toml", "x" * 300, "/etc/passwd/x"])
def test_a_link_that_leads_to_no_file(clone: Clone, target: str) -> None:
    """To a device, to itself, to a name that no file can have, to a place below a file: it counts as no file."""
    clone.file.symlink_to(target)
    done = clone.run("stats")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_starts_next_to_a_link_to_a_device(clone: Clone) -> None:
    """It would never finish reading the device."""
    clone.file.symlink_to("/dev/zero")
    done = clone.run("serve", "--port", "0", "--json")
    assert (done.returncode, done.stderr) == (0, "")


def test_values_that_contradict_those_of_the_user(clone: Clone) -> None:
    """Each file is right by itself: the file of the user counts, the other one is ignored."""
    (clone.home / "config" / "holdfast" / "holdfast.toml").write_text("[search]\nvector_weight = 0\n")
    clone.file.write_text("[search]\nbm25_weight = 0\n")
    done = clone.run("stats")
    assert done.returncode == 0, done.stderr
    assert NOTE in done.stderr
    assert "bm25_weight" in done.stderr


@pytest.mark.parametrize("kind", ["unknown key", "wrong type", "broken TOML"])
def test_an_error_in_a_trusted_file_is_an_error(clone: Clone, kind: str) -> None:
    """The user means what such a file says."""
    clone.file.write_bytes(BROKEN_FILES[kind])
    record_trust({clone.file: clone.file.read_bytes()})
    done = clone.run("stats")
    assert done.returncode == 1
    assert done.stderr.startswith("holdfast: holdfast.toml: ")


@pytest.mark.parametrize("kind", ["unknown key", "wrong type", "broken TOML"])
def test_an_error_in_the_file_of_the_user_is_an_error(clone: Clone, kind: str) -> None:
    """Also if the folder has a file with an error."""
    clone.file.write_bytes(BROKEN_FILES["unknown key"])
    own = clone.home / "config" / "holdfast" / "holdfast.toml"
    own.write_bytes(BROKEN_FILES[kind])
    done = clone.run("stats")
    assert done.returncode == 1
    assert f"holdfast: {own}: " in done.stderr


@pytest.mark.parametrize("text", ["nonsense = 1\n", "[archive]\nredaction = 'perhaps'\n"])
def test_a_file_with_an_error_cannot_be_trusted(clone: Clone, text: str) -> None:
    """Not even if the error is in a setting that an untrusted file may not set: commands would fail from then on."""
    clone.file.write_text(text)
    assert clone.run("trust").returncode == 1
    assert json.loads(clone.run("trust", "--list", "--json").stdout) == []
    assert clone.run("stats").returncode == 0


def test_a_hook_answers_with_the_settings_of_the_user(clone: Clone) -> None:
    """A prompt in the folder gets its recall, and the log has no error."""
    clone.file.write_bytes(BROKEN_FILES["broken TOML"])
    assert clone.run("remember", "The replica uses port 5433.", "--project", str(clone.folder)).returncode == 0
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": str(clone.folder)}
    done = clone.run("hook", stdin=json.dumps({**event, "prompt": "Which port does the replica use?"}))
    assert "5433" in done.stdout
    assert not (clone.home / "memory" / "hooks.log").exists()


def test_doctor_does_not_claim_settings_of_an_ignored_file(clone: Clone) -> None:
    """It says what is wrong with the file, and where settings come from."""
    clone.file.write_bytes(BROKEN_FILES["broken TOML"])
    done = clone.run("doctor")
    assert NOTE in done.stdout
    (line,) = [line for line in done.stdout.splitlines() if "settings from" in line]
    assert str(clone.file) not in line
    assert "no settings file was found" not in line
