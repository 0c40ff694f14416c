"""A folder whose server serves another memory than the one that a command or a hook is for."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine
from holdfast.hooks import spool
from holdfast.server.process import Server, find
from holdfast.settings import Settings
from holdfast.settings.schema import Postgres
from holdfast.store.opening import name_memory
from support import postgres_server
from support.command import run_command
from support.forked import Holdfast, run_holdfast
from support.hook_host import Host
from support.waiting import stop_server, until

pytestmark = pytest.mark.usefixtures("words_only")
PATIENT = {"HOLDFAST_TIMEOUT_MS": "600000", "HOLDFAST_RECALL__DEADLINE_MS": "600000"}
OWN = "The billing replica listens on port 5433, say the operators. 计费副本监听端口 5433。"
OTHER = "The billing replica listens on port 7001, say the operators. 计费副本监听端口 7001。"
QUESTION = "Where does the billing replica listen? 计费副本监听哪个端口？"


@contextmanager
def serving(folder: Path, *arguments: str, environ: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a server with these arguments, whose local files are in a folder."""
    command = [*arguments, "--port", "0", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Holdfast[bytes](*command, env=os.environ | (environ or {}), **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            server = find(folder)
            assert server is not None
            yield server
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host whose memory has a fact; another memory, in the same folder, has another fact."""
    host = Host(tmp_path)
    host.environ = PATIENT
    for file, text in ((host.home, OWN), (host.home / "other.db", OTHER)):
        with Engine.open(file, settings=Settings(), background=False) as engine:
            engine.session("s0", project="/srv/shop").append([{"role": "user", "content": text}])
    return host


def read_texts(home: Path) -> list[str]:
    """Return the texts of the archived messages of a memory."""
    with Engine.open(home, settings=Settings(), background=False) as engine:
        return [row.message.text for row in engine.session("s1", project="/srv/shop").get(range(1, 100))]


def ask(host: Host, text: str, *, session: str = "s2") -> tuple[str, str]:
    """Ask in a session; return what was recalled, and the line that the user sees."""
    output = host.ask("UserPromptSubmit", prompt=text, session_id=session, transcript_path="")
    recalled = output.get("hookSpecificOutput", {}).get("additionalContext", "")
    return str(recalled), str(output.get("systemMessage", ""))


def test_a_hook_uses_its_own_memory_and_says_so_once(host: Host) -> None:
    """Not the one that the server of the folder serves."""
    with serving(host.home, "serve", "--home", str(host.home / "other.db")) as server:
        recalled, line = ask(host, QUESTION)
        assert "5433" in recalled
        assert "7001" not in recalled
        assert f"process {server.pid}" in line
        assert str(host.home / "other.db") in line
        assert str(host.home / "holdfast.db") in line
        assert "HOLDFAST_HOME" in line
        recalled, line = ask(host, QUESTION, session="s3")
        assert "5433" in recalled
        assert line == ""
        assert find(host.home) == server


def test_a_hook_of_the_served_memory_asks_the_server(host: Host) -> None:
    """Without a word."""
    own = host.home
    with serving(own, "serve", "--home", str(own / "other.db")):
        host.home = own / "other.db"
        recalled, line = ask(host, QUESTION)
        assert "7001" in recalled
        assert line == ""
        assert not (own / "hooks.log").exists()


def test_a_turn_is_archived_in_the_memory_of_the_hook(host: Host) -> None:
    """When the hook ends, and not by the server of the other memory, which looks at the same folder."""
    turn = "The importer runs at 04:30. 导入程序在四点半运行。"
    host.write("user", turn)
    with serving(host.home, "serve", "--home", str(host.home / "other.db")):
        assert host.ask("Stop") == {}
        assert spool.names(str(host.home)) == []
    assert read_texts(host.home / "other.db") == [OTHER]
    assert read_texts(host.home) == [OWN, turn]


def test_an_event_waits_for_the_server_of_its_memory(host: Host) -> None:
    """Another server of the folder leaves it in the spool."""
    host.write("user", "The importer runs at 04:30.")
    folder = str(host.home)
    spool.add(folder, host.payload("Stop"), memory=os.path.realpath(host.home / "holdfast.db"))
    with serving(host.home, "serve", "--home", str(host.home / "other.db")) as server:
        assert server.call("take_in") == {"events": 0}
        assert len(spool.names(folder)) == 1
    with serving(host.home, "serve", "--home", folder):
        until(lambda: not spool.names(folder))


@pytest.mark.variants
@pytest.mark.parametrize("command", [["serve", "--check"], ["serve", "--port", "0"], ["ui", "--no-open"]])
def test_a_command_for_another_memory_names_both_and_the_fix(host: Host, command: list[str]) -> None:
    """It does not print the address of a server that shows the other one."""
    other = host.home / "other.db"
    with serving(host.home, "serve", "--home", str(other)) as server:
        done = run_holdfast(*command, "--home", str(host.home), check=False)
        assert done.returncode == 1
        assert done.stdout == ""
        assert f"process {server.pid} on {server.url} serves {os.path.realpath(other)}" in done.stderr
        assert f"not {os.path.realpath(host.home / 'holdfast.db')}" in done.stderr
        assert "stop that server" in done.stderr
        assert find(host.home) == server


@pytest.mark.parametrize("command", [["serve", "--port", "0"], ["serve", "--idle", "1"], ["ui", "--no-open"]])
def test_a_refused_server_creates_no_memory(tmp_path: Path, command: list[str]) -> None:
    """Neither its file nor its lock."""
    with serving(tmp_path, "serve", "--home", str(tmp_path / "other.db")):
        done = run_holdfast(*command, "--home", str(tmp_path), check=False)
        assert done.returncode == 1
        assert "stop that server" in done.stderr
        assert not list(tmp_path.glob("holdfast.*"))


@pytest.mark.parametrize("command", [["serve", "--check"], ["ui", "--no-open"]])
def test_a_command_for_the_served_memory_prints_its_name(host: Host, command: list[str]) -> None:
    """Also if a link leads to its folder."""
    other = host.home / "other.db"
    link = host.home.parent / "链接"
    link.symlink_to(host.home)
    with serving(host.home, "serve", "--home", str(other)) as server:
        done = run_holdfast(*command, "--home", str(link / "other.db"), "--json")
        shown = json.loads(done.stdout)
        assert shown["pid"] == server.pid
        assert shown["memory"] == server.memory == os.path.realpath(other)


def test_a_server_of_another_memory_that_was_started_on_demand_makes_room_for_the_inspector(host: Host) -> None:
    """As it does for a server of its own memory."""
    with (
        serving(host.home, "serve", "--home", str(host.home / "other.db"), "--idle", "3600") as first,
        serving(host.home, "ui", "--no-open", "--home", str(host.home)) as second,
    ):
        assert second.pid != first.pid
        assert second.memory == os.path.realpath(host.home / "holdfast.db")


def test_a_memory_on_a_server_is_not_taken_for_the_file(host: Host) -> None:
    """Both have their local files in the data folder. The password is in no message and not in the record."""
    own = {"HOLDFAST_HOME": str(host.home), "HOLDFAST_POSTGRES__SCHEMA": postgres_server.schema_of(host.home)}
    own |= {"HOLDFAST_POSTGRES__PARTITIONS": "1", "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    address = postgres_server.start().replace("postgres:@", "postgres:geheim@", 1)
    with serving(host.home, "serve", "--home", address, environ=own) as server:
        assert server.memory.startswith("postgresql://")
        assert "geheim" not in (host.home / "server.json").read_text("utf-8")
        done = run_holdfast("serve", "--check", env=os.environ | own, check=False)
        assert done.returncode == 1
        assert server.memory in done.stderr
        assert "geheim" not in done.stderr
        assert "HOLDFAST_HOME" in done.stderr
        done = run_holdfast("serve", "--check", "--home", address, env=os.environ | own)
        assert done.stdout == f"{server.url}\n"
        recalled, line = ask(host, QUESTION)
        assert "5433" in recalled
        assert server.memory in line


def test_a_hook_uses_the_server_whose_address_it_is_given(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts a server for that memory. The password is in no file, no name of a file and no argument."""
    monkeypatch.chdir(host.home.parent)
    folder = host.home.parent / "data"
    own = {"HOLDFAST_HOME": str(folder), "HOLDFAST_POSTGRES__SCHEMA": postgres_server.schema_of(folder)}
    own |= {"HOLDFAST_POSTGRES__PARTITIONS": "1", "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    host.environ = PATIENT | own
    host.address = postgres_server.start().replace("postgres:@", "postgres:geheim@", 1)
    assert host.ask("SessionStart", source="startup") == {}
    try:
        until(lambda: find(folder))
        server = find(folder)
        assert server is not None
        assert server.memory.startswith("postgresql://")
        host.write("user", "The importer runs at 04:30. 导入程序在四点半运行。")
        assert host.ask("Stop") == {}
        until(lambda: not spool.names(str(folder)))
        recalled, line = ask(host, "When does the importer run? 导入程序什么时候运行？")
        assert "04:30" in recalled
        assert line == ""
        arguments = Path(f"/proc/{server.pid}/cmdline")
        assert not arguments.exists() or b"geheim" not in arguments.read_bytes()
    finally:
        stop_server(folder)
    assert sorted(place.name for place in host.home.parent.iterdir()) == ["data", "memory", "session.jsonl"]
    for file in folder.rglob("*"):
        assert not file.is_file() or b"geheim" not in file.read_bytes()


def test_a_hook_says_that_the_server_of_its_memory_does_not_answer(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the local files, without the password; nothing is named after the address."""
    monkeypatch.chdir(host.home.parent)
    folder = host.home.parent / "data"
    folder.mkdir()
    host.environ = PATIENT | {"HOLDFAST_HOME": str(folder), "HOLDFAST_POSTGRES__WAIT_SECONDS": "1"}
    host.address = "postgresql://me:geheim@127.0.0.1:1/none"
    lines = [ask(host, QUESTION)[1] for _ in range(2)]
    assert lines[0] == ""
    assert "127.0.0.1" in lines[1]
    assert "geheim" not in lines[1]
    assert "geheim" not in (folder / "hooks.log").read_text("utf-8")
    assert sorted(place.name for place in host.home.parent.iterdir()) == ["data", "memory"]


ADDRESS = "postgresql://me:geheim@db.example.com/memory"


@pytest.mark.parametrize(
    "command", [["stats"], ["doctor"], ["remember", "x"], ["serve", "--check"], ["token"], ["stats", "--home", ADDRESS]]
)
def test_an_address_is_not_taken_for_the_folder_of_local_files(command: list[str], tmp_path: Path) -> None:
    """The error names the variable that takes an address."""
    done = run_command(*command, folder=tmp_path, environ={"HOME": str(tmp_path), "HOLDFAST_HOME": ADDRESS})
    assert done.returncode == 1
    assert "HOLDFAST_HOME: this is an address" in done.stdout + done.stderr
    assert "HOLDFAST_ARCHIVE__PATH" in done.stdout + done.stderr
    assert "geheim" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_hook_says_that_an_address_is_no_folder(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the data folder of the platform, since it has no other."""
    monkeypatch.chdir(host.home.parent)
    data = host.home.parent / "data"
    environ = {**os.environ, "HOLDFAST_HOME": ADDRESS, "XDG_DATA_HOME": str(data), "HOME": str(data)}
    outputs: list[str] = []
    for _ in range(2):
        event = json.dumps(host.payload("UserPromptSubmit", prompt=QUESTION))
        outputs.append(run_holdfast("hook", stdin=event, env=environ).stdout)
    assert outputs[0] == ""
    assert "HOLDFAST_HOME: this is an address" in json.loads(outputs[1])["systemMessage"]
    assert "geheim" not in outputs[1]
    assert sorted(place.name for place in host.home.parent.iterdir()) == ["data", "memory"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("postgresql://me:geheim@db:5433/memory", "postgresql://db:5433/memory"),
        ("postgres://me:geheim@db:5432/memory?sslmode=require", "postgresql://db/memory"),
        ("postgresql://me@/memory?host=/run/pg&password=geheim", "postgresql:///run/pg/memory"),
        ("postgresql:///memory?user=me&password=geheim@7", "postgresql://localhost/memory"),
        ("postgresql://me:geheim@a:1,b:2/memory", "postgresql://a,b:1,2/memory"),
        ("postgresql://db/%E8%AE%B0%E5%BF%86", "postgresql://db/记忆"),
    ],
)
def test_the_name_of_a_memory_on_a_server_has_no_login(address: str, name: str) -> None:
    """It is the same for all who use it; another schema is another memory."""
    assert name_memory(address, settings=Settings()) == name
    other = Settings(postgres=Postgres(schema="team"))
    assert name_memory(address, settings=other) == f"{name} (schema team)"
