"""Settings of a project apply to the sessions of that project alone, whichever folder the server was started in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.models.scripted import ScriptedReply
from holdfast.server.process import Server, find, find_or_start
from holdfast.settings import ProjectSettings, Settings, folder_of, load, user_files
from holdfast.settings.projects import MAX_PROJECTS
from holdfast.settings.trust import record_trust
from holdfast.testing.provider import ScriptedProvider
from support import patient, postgres_server
from support.forked import Holdfast, run_holdfast
from support.waiting import stop_server, until

HOLDFAST = str(Path(sys.executable).with_name("holdfast"))
SECONDS = 120
OUTPUT = "\n".join(f"{number}: {'x' * 40}" for number in range(600))
"""A tool output that is shortened if `pruning.min_prunable_tool_chars` is 20,000, and not by default."""
SMALL = "[pruning]\nmin_prunable_tool_chars = 20000\n[model]\ncontext_tokens = 20000\n"
QUESTION = [{"role": "user", "content": "Which port does the replica use?"}]


@dataclass(frozen=True)
class Machine:
    """A user with a home, a memory, and two projects, the first of which has a settings file."""

    home: Path

    @property
    def memory(self) -> Path:
        return self.home / "memory"

    @property
    def small(self) -> Path:
        return self.home / "small"

    @property
    def plain(self) -> Path:
        return self.home / "plain"

    @property
    def environ(self) -> dict[str, str]:
        own = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / "config"), "HOLDFAST_HOME": str(self.memory)}
        patient = {
            "HOLDFAST_RECALL__DEADLINE_MS": "60000",
            "HOLDFAST_TIMEOUT_MS": "60000",
        }  # a busy machine recalls what any other does
        return {**os.environ, **own, **patient, "HOLDFAST_EMBEDDING__PROVIDER": "none"}

    def run(self, *words: str, cwd: Path, stdin: str = "") -> str:
        """Run a command, and return what it prints."""
        return run_holdfast(*words, cwd=cwd, env=self.environ, stdin=stdin).stdout

    def shorten(self, project: Path) -> bool:
        """Run the hook after a tool call in a project, and return whether the output was shortened."""
        call = {"tool_name": "Bash", "tool_use_id": "call_1", "tool_response": {"stdout": OUTPUT}}
        event = {"hook_event_name": "PostToolUse", "session_id": "s1", "cwd": str(project), **call}
        return "updatedToolOutput" in self.run("hook", cwd=project, stdin=json.dumps(event))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose server is stopped at the end."""
    one = Machine(tmp_path)
    for name, value in one.environ.items():
        monkeypatch.setenv(name, value)
    one.small.mkdir()
    one.plain.mkdir()
    (one.home / "config" / "holdfast").mkdir(parents=True)
    (one.small / "holdfast.toml").write_text(SMALL)
    yield one
    stop_server(one.memory)


def window_of(server: Server, project: Path | str, session: str = "s1") -> int:
    """Return the size of the window of a project's session."""
    report = assemble(server, project, session)
    return int(report["raw_max_tokens"])


def assemble(server: Server, project: Path | str, session: str = "s1") -> dict[str, Any]:
    """Assemble a request of a project's session, and return its report."""
    answer = server.call("assemble", session=session, project=str(project), messages=QUESTION, timeout=SECONDS)
    report: dict[str, Any] = answer["report"]
    return report


@pytest.mark.parametrize("first", ["small", "plain"])
def test_the_folder_that_started_the_server_does_not_decide(machine: Machine, first: str) -> None:
    """Hooks of two projects, the server started by either of them."""
    projects = [machine.small, machine.plain]
    if first == "plain":
        projects.reverse()
    assert {project.name: machine.shorten(project) for project in projects} == {"small": True, "plain": False}


@pytest.mark.parametrize("name", ["small", "plain"])
def test_a_prompt_that_no_server_answers_has_the_settings_of_its_project(machine: Machine, name: str) -> None:
    """Those of the event, not those of the folder in which the command runs."""
    (machine.small / "holdfast.toml").write_text("[recall]\nhard_cap_tokens = 0\n")
    project, elsewhere = (machine.small, machine.plain) if name == "small" else (machine.plain, machine.small)
    machine.run("remember", "The replica uses port 5433.", "--project", str(project), cwd=machine.home)
    event = {"hook_event_name": "UserPromptSubmit", "session_id": "s1", "cwd": str(project)}
    prompt = {**event, "prompt": "Which port does the replica use?"}
    answer = machine.run("hook", cwd=elsewhere, stdin=json.dumps(prompt))
    assert ("5433" in answer) == (name == "plain")


def test_a_file_counts_for_its_project_from_the_next_call_on(machine: Machine) -> None:
    """It may come, change and go while the server runs. One that is wrong is left out, and the report says so."""
    server = find_or_start(machine.memory)
    assert window_of(server, machine.small) == 20_000
    assert window_of(server, machine.plain) == 200_000
    assert window_of(server, "shop") == 200_000
    assert window_of(server, "") == 200_000
    (machine.plain / "holdfast.toml").write_text("[model]\ncontext_tokens = 30000\n")
    assert window_of(server, machine.plain) == 30_000
    (machine.plain / "holdfast.toml").write_text("[model]\ncontext_tokens = 'many'\n")
    report = assemble(server, machine.plain)
    assert report["raw_max_tokens"] == 200_000
    assert any("context_tokens" in warning and "plain" in warning for warning in report["warnings"])
    (machine.plain / "holdfast.toml").unlink()
    assert not assemble(server, machine.plain)["warnings"]
    (machine.home / "config" / "holdfast" / "holdfast.toml").write_text("[model]\ncontext_tokens = 40000\n")
    assert window_of(server, machine.plain) == 40_000
    assert window_of(server, machine.small) == 20_000


def test_what_a_file_may_not_set_is_in_the_report_of_its_project(machine: Machine) -> None:
    """Until the user trusts it. What all projects of a memory share is ignored even then, with a warning."""
    file = machine.plain / "holdfast.toml"
    file.write_text("[archive]\nredaction = false\n[embedding]\ncache_entries = 7\n[server]\nmax_connections = 3\n")
    server = find_or_start(machine.memory)
    secret = "password = hunter2hunter2"

    def keep(project: Path) -> str:
        message = {"role": "user", "content": secret}
        ids = server.call("append", session=project.name, project=str(project), messages=[message])["ids"]
        (row,) = server.call("get", session=project.name, project=str(project), ids=ids)
        return str(row["text"])

    (warning,) = assemble(server, machine.plain)["warnings"]
    assert "archive.redaction, embedding.cache_entries, server.max_connections" in warning
    assert "holdfast trust" in warning
    assert "hunter2" not in keep(machine.plain)
    record_trust({file: file.read_bytes()})
    (warning,) = assemble(server, machine.plain)["warnings"]
    assert warning.startswith(f"{file}: embedding.cache_entries, server.max_connections: ignored")
    server.call("forget", session="plain", project=str(machine.plain), whole_session=True)
    assert keep(machine.plain) == secret
    assert "hunter2" not in keep(machine.small)


@contextmanager
def serving(machine: Machine, *options: str, cwd: Path) -> Iterator[tuple[Server, str]]:
    """Run `holdfast serve` in a folder; yield the server and what it has printed to stderr so far."""
    log = machine.home / "stderr"
    command = ["serve", "--port", "0", "--json", *options]
    with log.open("wb") as stderr:
        process = Holdfast[bytes](*command, cwd=cwd, env=machine.environ, stdout=subprocess.PIPE, stderr=stderr)
    with process:
        try:
            assert process.stdout is not None
            shown = json.loads(process.stdout.readline())
            server = find(Path(shown["home"]))
            assert server is not None
            yield server, log.read_text()
        finally:
            process.terminate()


def test_a_server_that_the_user_starts_in_a_project(machine: Machine) -> None:
    """Its file counts for requests that name the folder, of the owner alone; the server says so."""
    body = {"model": "m", "max_tokens": 50, "messages": QUESTION}
    token = machine.run("token", cwd=machine.home).strip()
    owner = {"x-holdfast-token": token}
    callers = {
        "of-none": owner,
        "of-small": {**owner, "x-holdfast-project": str(machine.small)},
        "of-a-stranger": {"x-holdfast-project": str(machine.small)},
    }
    with (
        ScriptedProvider(["5433."] * len(callers)) as provider,
        serving(machine, "--upstream", provider.url, cwd=machine.small) as (server, printed),
    ):
        assert f"note: {machine.small / 'holdfast.toml'} counts for the sessions of that folder alone" in printed
        for session, headers in callers.items():
            named = {**headers, "x-holdfast-session": session, "x-api-key": "k"}
            reply = patient.post(f"{server.url}/v1/messages", json=body, headers=named)
            assert reply.status_code == 200
        with Engine.open(machine.memory, settings=Settings(), background=False) as engine:
            windows = {
                info.id: engine._open_session(info.scope).timeline()[-1].raw_max_tokens for info in engine.sessions()
            }
        assert windows == {"of-none": 200_000, "of-small": 20_000, "of-a-stranger": 200_000}


def test_a_project_with_a_memory_of_its_own(machine: Machine) -> None:
    """Hooks, plugins and MCP use it once the user trusts the file: with its embedder, and with a server of its own."""
    file = machine.plain / "holdfast.toml"
    file.write_text('[archive]\npath = "own"\n[embedding]\nprovider = "hash"\n')
    record_trust({file: file.read_bytes()})
    own = machine.plain / "own"
    environ = {name: value for name, value in machine.environ.items() if name != "HOLDFAST_EMBEDDING__PROVIDER"}
    event = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "s1", "cwd": str(machine.plain)}
    try:
        run_holdfast("hook", cwd=machine.plain, env=environ, stdin=json.dumps(event))
        server = find_or_start(own)
        assert not assemble(server, machine.plain)["warnings"]
        assert not find(machine.memory)
    finally:
        stop_server(own)
    call = {
        "id": 1,
        "method": "append",
        "params": {"session": "s2", "project": str(machine.plain), "messages": QUESTION},
    }
    for project, store in ((machine.plain, own), (machine.small, machine.memory)):
        machine.run("rpc", "--project", str(project), cwd=machine.home, stdin=json.dumps(call) + "\n")
        with Engine.open(store, settings=Settings(), background=False) as engine:
            assert "s2" in {info.id for info in engine.sessions()}

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "editor", "version": "1"}}
    remember = {"name": "memory_store", "arguments": {"content": "The replica uses port 5433."}}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with Holdfast[str]("mcp", "--project", str(machine.plain), cwd=machine.small, env=environ, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for method, params in (("initialize", client), ("tools/call", remember)):
            request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            assert "result" in json.loads(process.stdout.readline())
        process.stdin.close()
    with Engine.open(own, settings=Settings(), background=False) as engine:
        session = engine.session("mcp", project=str(machine.plain))
        assert [fact.content for fact in session.facts()] == ["The replica uses port 5433."]


def test_facts_are_read_by_the_model_of_their_project(machine: Machine) -> None:
    """The model of one project never sees the messages of another, nor does that of the user see its messages."""
    with (
        ScriptedProvider(lambda _: ScriptedReply(text="[]")) as of_project,
        ScriptedProvider(lambda _: ScriptedReply(text="[]")) as of_user,
    ):
        file = machine.small / "holdfast.toml"
        file.write_text(f'[knowledge]\nmodel = "{of_project.url}/v1#m"\n')
        record_trust({file: file.read_bytes()})
        own = machine.home / "config" / "holdfast" / "holdfast.toml"
        own.write_text(f'[knowledge]\nmodel = "{of_user.url}/v1#m"\n')
        user = load(files=user_files())
        projects = ProjectSettings(user)
        with Engine.open(machine.memory, settings=user.settings, projects=projects, background=False) as engine:
            for project in (machine.small, machine.plain):
                session = engine.session("s1", project=str(project))
                session.append([{"role": "user", "content": f"The team of {project.name} has moved to Lisbon."}])
                session.learn()
            engine.work()
        assert "team of small" in json.dumps(of_project.bodies)
        assert "team of plain" not in json.dumps(of_project.bodies)
        assert "team of plain" in json.dumps(of_user.bodies)
        assert "team of small" not in json.dumps(of_user.bodies)


def test_a_model_that_cannot_be_opened_is_done_without(machine: Machine) -> None:
    """The requests of the project continue, and their reports give the reason."""
    file = machine.small / "holdfast.toml"
    file.write_text('[compaction]\nmodel = "nobody/knows"\n[tokens]\ncounter = "tokenizers"\nencoding = "none.json"\n')
    record_trust({file: file.read_bytes()})
    projects = ProjectSettings(load(files=user_files()))
    with Engine.open(machine.memory, settings=Settings(), projects=projects, background=False) as engine:
        report = engine.session("s1", project=str(machine.small)).assemble(QUESTION).report
        assert any("nobody" in warning for warning in report.warnings)
        assert any("none.json" in warning for warning in report.warnings)
        assert not engine.session("s1", project=str(machine.plain)).assemble(QUESTION).report.warnings


def test_a_session_stays_the_same_object_until_its_settings_change(machine: Machine) -> None:
    """And what is kept of projects has a bound."""
    projects = ProjectSettings(load(files=user_files()))
    with Engine.open(machine.memory, settings=Settings(), projects=projects, background=False) as engine:
        session = engine.session("s1", project=str(machine.small))
        assert engine.session("s1", project=str(machine.small)) is session
        (machine.small / "holdfast.toml").write_text("[model]\ncontext_tokens = 50000\n")
        changed = engine.session("s1", project=str(machine.small))
        assert changed is not session
        assert changed.settings.model.context_tokens == 50_000
        for number in range(MAX_PROJECTS + 10):
            folder = machine.home / f"project-{number}"
            folder.mkdir()
            (folder / "holdfast.toml").write_text(f"[model]\ncontext_tokens = {30_000 + number}\n")
            settings = engine.session("s1", project=str(folder)).settings
            assert settings.model.context_tokens == 30_000 + number
        assert len(engine._by_project) == MAX_PROJECTS


@pytest.mark.parametrize(
    "project", ["", "shop", "small", "../small", "/nowhere/at/all", "/" + "a" * 5_000, "/a\0b", "\ud800"]
)
def test_only_the_absolute_path_of_a_folder_names_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    """Any other name is a project without a file."""
    monkeypatch.chdir(machine.home)
    assert folder_of(project) is None
    assert folder_of(str(machine.small)) == machine.small


@pytest.mark.parametrize("kind", ["file", "address"])
def test_the_server_that_a_hook_starts_serves_the_memory_of_the_settings(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A file of another name, or a PostgreSQL server; its address is not in the list of processes."""
    address = postgres_server.start() if kind == "address" else str(machine.memory / "other.db")
    monkeypatch.setenv("HOLDFAST_POSTGRES__SCHEMA", postgres_server.schema_of(machine.home))
    monkeypatch.setenv("HOLDFAST_POSTGRES__PARTITIONS", "1")
    (machine.home / "config" / "holdfast" / "holdfast.toml").write_text(f"[archive]\npath = {json.dumps(address)}\n")
    event = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "s1", "cwd": str(machine.plain)}
    command = [HOLDFAST, "hook"]
    subprocess.run(command, cwd=machine.plain, input=json.dumps(event), text=True, check=True, timeout=SECONDS)
    until(lambda: find(machine.memory))
    server = find(machine.memory)
    assert server is not None
    server.call("remember", session="s1", content="The replica uses port 5433.", timeout=SECONDS)
    if kind == "address":
        listed = Path(f"/proc/{server.pid}/cmdline")
        assert not listed.exists() or address not in listed.read_text()
    with Engine.open(address, settings=load(files=user_files()).settings, background=False) as engine:
        assert [fact.content for fact in engine.session("s1").facts()] == ["The replica uses port 5433."]
