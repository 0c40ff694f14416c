"""`holdfast hook` while something is wrong: the host goes on, the user is told once, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import pytest

from holdfast import Engine, hook_command
from holdfast.errors import StorageError
from holdfast.files import only_process
from holdfast.hook_command import find_folder, parse
from holdfast.hooks import spool
from holdfast.hooks.handlers import HostHooks
from holdfast.server.process import Server, find
from holdfast.server.rpc import Rpc
from holdfast.settings import Settings, folder_of
from holdfast.settings.trust import record_trust
from holdfast.shared import find_memory
from holdfast.store import opening
from support.forked import Holdfast
from support.full_disk import largest_file
from support.hook_host import Host
from support.unprivileged import drop_privileges
from support.waiting import stop_server, until

pytestmark = pytest.mark.usefixtures("words_only")
PATIENT = {"HOLDFAST_TIMEOUT_MS": "600000", "HOLDFAST_RECALL__DEADLINE_MS": "600000"}
HURRIED = {"HOLDFAST_TIMEOUT_MS": "300", "HOLDFAST_PAUSE_MS": "3600000"}
FACT = "The billing replica listens on port 5433, say the operators. 这个副本监听端口 5433。"


@contextmanager
def serving(home: Path, *options: str) -> Iterator[Server]:
    """Run a server of a memory."""
    command = ["serve", "--home", str(home), "--port", "0", "--json", *options]
    with Holdfast[bytes](*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        server = find(home)
        assert server is not None
        try:
            yield server
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.communicate()


def read_texts(home: Path) -> list[str]:
    """Return the texts of the archived messages of a session."""
    with Engine.open(home, settings=Settings(), background=False) as engine:
        return [row.message.text for row in engine.session("s1", project="/srv/shop").get(range(1, 100))]


def count_failures(home: Path) -> int:
    """Return how often memory was asked in vain."""
    log = home / "hooks.log"
    return len(log.read_text("utf-8").splitlines()) if log.exists() else 0


class TestHungServer:
    """A server that accepts connections and does not answer."""

    def test_the_host_goes_on_and_the_user_is_told_once(self, tmp_path: Path) -> None:
        """Two events wait for it. Those after them do not, and no other line comes."""
        host = Host(tmp_path)
        host.environ = HURRIED
        with serving(host.home) as server:
            os.kill(server.pid, signal.SIGSTOP)
            outputs = [host.ask("SessionStart", source="startup")]
            outputs += [host.ask("UserPromptSubmit", prompt="Where does it listen?") for _ in range(4)]
            lines = [output["systemMessage"] for output in outputs if output]
            assert lines == [outputs[1]["systemMessage"]]
            assert f"process {server.pid}" in lines[0]
            assert "holdfast doctor" in lines[0]
            assert count_failures(host.home) == 2

    def test_what_it_did_not_take_is_archived_later(self, tmp_path: Path) -> None:
        """Events wait in files for their owner alone, without any text of the conversation."""
        host = Host(tmp_path)
        host.environ = HURRIED
        host.write("user", FACT)
        with serving(host.home) as server:
            os.kill(server.pid, signal.SIGSTOP)
            assert host.ask("Stop", last_assistant_message=FACT) == {}
            host.write("assistant", "I will use port 5433.")
            assert host.ask("SessionEnd", reason="exit") == {}
            waiting = [spool.read(str(host.home), name) or {} for name in spool.names(str(host.home))]
            assert [event["hook_event_name"] for event in waiting] == ["Stop", "SessionEnd"]
            for file in (host.home / spool.FOLDER).iterdir():
                assert file.stat().st_mode & 0o777 == 0o600
                assert "5433" not in file.read_text("utf-8")
            assert count_failures(host.home) == 0
            os.kill(server.pid, signal.SIGCONT)
            until(lambda: not spool.names(str(host.home)))
        assert read_texts(host.home) == [FACT, "I will use port 5433."]

    def test_a_compaction_that_it_did_not_record_counts_before_the_next_event(self, tmp_path: Path) -> None:
        """The details that the summary lost are put back as soon as it answers."""
        host = Host(tmp_path)
        host.environ = HURRIED
        host.write("user", "Deploy commit 4f9c2ab7e1 to /srv/billing/app.toml now.")
        host.write("assistant", "Deployed 4f9c2ab7e1.")
        with serving(host.home) as server:
            os.kill(server.pid, signal.SIGSTOP)
            host.ask("PreCompact", trigger="auto")
            os.kill(server.pid, signal.SIGCONT)
            host.environ = PATIENT
            back = host.run("SessionStart", source="compact", compact_summary="Several things.")
            assert "4f9c2ab7e1" in back

    def test_it_is_asked_again_after_the_pause(self, tmp_path: Path) -> None:
        """Once it answers, the failures are forgotten."""
        host = Host(tmp_path)
        host.environ = HURRIED
        with serving(host.home) as server:
            os.kill(server.pid, signal.SIGSTOP)
            for _ in range(2):
                host.ask("UserPromptSubmit", prompt="Where does it listen?")
            os.kill(server.pid, signal.SIGCONT)
            host.write("user", FACT)
            host.ask("Stop")
            until(lambda: not spool.names(str(host.home)))
            host.environ = PATIENT | {"HOLDFAST_PAUSE_MS": "1"}
            prompt = {"prompt": "Where does the billing replica listen?", "session_id": "s2", "transcript_path": ""}
            assert "5433" in host.run("UserPromptSubmit", **prompt)
            assert not (host.home / "hooks.json").exists()

    def test_one_that_was_started_on_demand_is_replaced(self, tmp_path: Path) -> None:
        """If it does not answer after the pause either. One that the user started is left alone."""
        host = Host(tmp_path)
        host.environ = {"HOLDFAST_TIMEOUT_MS": "300", "HOLDFAST_PAUSE_MS": "1"}
        with serving(host.home) as server:
            os.kill(server.pid, signal.SIGSTOP)
            for _ in range(4):
                host.ask("UserPromptSubmit", prompt="Where?")
            assert find(host.home) == server
        with serving(host.home, "--idle", "3600") as server:
            os.kill(server.pid, signal.SIGSTOP)
            for _ in range(3):
                host.ask("UserPromptSubmit", prompt="Where?")
            until(lambda: find(host.home) is None)
        host.environ = PATIENT | {"HOLDFAST_PAUSE_MS": "1"}
        host.ask("SessionStart", source="startup")
        try:
            until(lambda: find(host.home))
        finally:
            stop_server(host.home)


def test_without_a_server_the_end_of_a_turn_does_not_wait_for_one(tmp_path: Path) -> None:
    """It is started, and takes in what waits."""
    host = Host(tmp_path)
    host.environ = HURRIED
    host.write("user", FACT)
    try:
        assert host.ask("Stop") == {}
        until(lambda: not spool.names(str(host.home)))
    finally:
        stop_server(host.home)
    assert read_texts(host.home) == [FACT]


def test_a_compaction_before_the_first_server_is_up(tmp_path: Path) -> None:
    """There is no store yet, but what was compacted waits in the spool: what the summary lost is put back."""
    host = Host(tmp_path)
    host.environ = PATIENT
    host.write("user", "Deploy commit 4f9c2ab7e1 to /srv/billing/app.toml now.")
    host.write("assistant", "Deployed 4f9c2ab7e1.")
    spool.add(str(host.home), host.payload("PreCompact", trigger="auto"))
    try:
        back = host.run("SessionStart", source="compact", compact_summary="Several things.")
    finally:
        until(lambda: find(host.home))
        stop_server(host.home)
    assert "4f9c2ab7e1" in back


def test_a_server_that_cannot_start_is_reported(tmp_path: Path) -> None:
    """Once many events wait for it; they stay in the spool."""
    host = Host(tmp_path)
    host.environ = HURRIED
    host.home.mkdir()
    (host.home / "holdfast.db").write_text("this is no database" * 1000)
    for number in range(20):
        spool.add(str(host.home), host.payload("Stop", session_id=f"other-{number}"))
    outputs = [host.ask("Stop") for _ in range(3)]
    assert [bool(output) for output in outputs] == [False, True, False]
    assert "server.log" in outputs[1]["systemMessage"]
    assert len(spool.names(str(host.home))) == 23


def test_a_store_that_is_deleted_while_the_server_runs(tmp_path: Path) -> None:
    """The one that a person has started goes on with a new one, and the whole transcript is archived again."""
    host = Host(tmp_path)
    host.environ = PATIENT
    host.write("user", FACT)
    with serving(host.home) as first:
        host.ask("Stop")
        until(lambda: not spool.names(str(host.home)))
        for file in host.home.glob("holdfast.db*"):
            file.unlink()
        host.write("assistant", "I will use port 5433.")
        host.ask("Stop")
        until(lambda: (server := find(host.home)) is not None and server.token != first.token)
        until(lambda: not spool.names(str(host.home)))
        second = find(host.home)
        assert second is not None
        assert second.pid == first.pid
    assert read_texts(host.home) == [FACT, "I will use port 5433."]


def test_the_last_event_of_a_host_after_the_store_was_deleted(tmp_path: Path) -> None:
    """The host starts no other server, so the one that it had started serves what waits before it ends."""
    host = Host(tmp_path)
    host.environ = PATIENT
    host.write("user", FACT)
    with serving(host.home, "--idle", "600") as server:
        host.ask("Stop")
        until(lambda: not spool.names(str(host.home)))
        os.kill(server.pid, signal.SIGSTOP)
        for file in host.home.glob("holdfast.db*"):
            file.unlink()
        host.write("assistant", "I will use port 5433.")
        host.ask("SessionEnd", reason="exit")
        os.kill(server.pid, signal.SIGCONT)
        until(lambda: not spool.names(str(host.home)))
        again = find(host.home)
        assert again is not None
        assert again.pid == server.pid
    assert read_texts(host.home) == [FACT, "I will use port 5433."]


def test_a_folder_that_is_deleted_while_the_server_runs(tmp_path: Path) -> None:
    """A server that starts in its place keeps its file when the first one ends."""
    home = tmp_path / "memory"
    with serving(home) as first:
        home.rename(tmp_path / "gone")
        with serving(home) as second:
            until(lambda: not _is_running(first.pid))
            assert find(home) == second != first


def _is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="root is bound by file modes on Linux alone")
def test_a_read_only_memory_is_reported_when_a_session_starts(tmp_path: Path) -> None:
    """What it has is recalled all the same. Nothing can be stored, so that every session begins with the line."""
    host = Host(tmp_path)
    host.environ = PATIENT
    host.write("user", FACT)
    with serving(host.home):
        host.ask("Stop")
        until(lambda: not spool.names(str(host.home)))
    for file in host.home.iterdir():
        file.chmod(0o500 if file.is_dir() else 0o400)
    host.home.chmod(0o500)
    host.prepare = drop_privileges
    try:
        for _ in range(2):
            line = host.ask("SessionStart", source="startup", session_id="s2")["systemMessage"]
            assert "PermissionError" in line
            assert str(host.home) in line
            assert host.ask("Stop") == {}
            prompt = {"prompt": "Where does the billing replica listen?", "session_id": "s2", "transcript_path": ""}
            assert "5433" in host.run("UserPromptSubmit", **prompt)
    finally:
        host.home.chmod(0o700)


class TestSpool:
    """Events that wait."""

    def test_an_event_that_cannot_be_stored_leaves_nothing(self, tmp_path: Path) -> None:
        """Files that are never read would stay on a full disk."""
        spool.add(str(tmp_path), {"hook_event_name": "Stop"})
        with largest_file(10), pytest.raises(OSError, match="too large"):
            spool.add(str(tmp_path), {"hook_event_name": "Stop"})
        assert len(list((tmp_path / spool.FOLDER).iterdir())) == 1

    def test_an_event_that_fails_for_good_does_not_hold_up_others(self, tmp_path: Path) -> None:
        """A transcript that is none, and a file that is no event."""
        host = Host(tmp_path)
        home = str(host.home)
        host.write("user", FACT)
        bad = tmp_path / "bad.jsonl"
        bad.write_bytes(b"\x00\x01 no transcript")
        spool.add(home, host.payload("Stop", transcript_path=str(bad), session_id="s0"))
        (host.home / spool.FOLDER / "0-broken.json").write_text("{")
        spool.add(home, host.payload("Stop"))
        with Engine.open(host.home, settings=Settings(), background=False) as engine:
            rpc = Rpc(engine, home=host.home)
            assert rpc.call("take_in", {}) == {"events": 3}
            assert rpc.call("take_in", {}) == {"events": 0}
        assert read_texts(host.home) == [FACT]

    def test_a_store_that_fails_keeps_them(self, tmp_path: Path) -> None:
        """They are handled once it works again."""
        host = Host(tmp_path)
        host.write("user", FACT)
        with Engine.open(host.home, settings=Settings(), background=False) as engine:
            spool.add(str(host.home), host.payload("Stop"))
            (host.home / "holdfast.db").rename(tmp_path / "elsewhere.db")
            with pytest.raises(StorageError):
                Rpc(engine, home=host.home).take_in()
        (tmp_path / "elsewhere.db").rename(host.home / "holdfast.db")
        assert len(spool.names(str(host.home))) == 1
        with Engine.open(host.home, settings=Settings(), background=False) as engine:
            assert Rpc(engine, home=host.home).take_in() == 1
        assert read_texts(host.home) == [FACT]

    def test_what_a_host_writes_after_the_event_is_archived(self, tmp_path: Path) -> None:
        """Some write the last reply to their transcript only then, and no other event follows."""
        host = Host(tmp_path)
        host.environ = PATIENT
        host.write("user", FACT)
        with serving(host.home):
            host.ask("SessionEnd", reason="exit")
            until(lambda: not spool.names(str(host.home)))
            host.write("assistant", "I will use port 5433.")
            until(lambda: read_texts(host.home) == [FACT, "I will use port 5433."])

    def test_an_event_waits_for_another_process_that_handles_one(self, tmp_path: Path) -> None:
        """The next event of its session depends on it. Without a session nobody waits, and it stays for later."""
        host = Host(tmp_path)
        host.write("user", FACT)
        spool.add(str(host.home), host.payload("PreCompact", trigger="auto"))
        lock = host.home / spool.FOLDER / spool.LOCK
        with Engine.open(host.home, settings=Settings(), background=False) as engine, ExitStack() as other:
            hooks = HostHooks(engine._memory, wait=lambda _: other.close())
            assert other.enter_context(only_process(lock))
            assert hooks.take_in(str(host.home)) == 0
            assert hooks.take_in(str(host.home), session="s1") == 1
        assert read_texts(host.home) == [FACT]

    def test_the_number_of_events_is_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The oldest ones go."""
        monkeypatch.setattr(spool, "MAX_EVENTS", 3)
        for number in range(5):
            spool.add(str(tmp_path), {"hook_event_name": "Stop", "session_id": f"s{number}"})
        kept = [spool.read(str(tmp_path), name) for name in spool.names(str(tmp_path))]
        assert [event and event["session_id"] for event in kept] == ["s2", "s3", "s4"]


def test_a_hook_that_a_server_answers_imports_almost_nothing(tmp_path: Path) -> None:
    """A host waits for these imports before every prompt."""
    host = Host(tmp_path)
    with serving(host.home):
        command = [sys.executable, "-X", "importtime", "-m", "holdfast", "hook", "--home", str(host.home)]
        for event in ("UserPromptSubmit", "Stop"):
            data = json.dumps(host.payload(event, prompt="Where does it listen?"))
            done = subprocess.run(
                command, input=data, env=os.environ | PATIENT, capture_output=True, text=True, check=True
            )
            modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
            assert {name for name in modules if name.startswith("holdfast")} == {
                "holdfast",
                "holdfast.command",
                "holdfast.hook_command",
                "holdfast.hooks",
                "holdfast.hooks.breaker",
                "holdfast.hooks.spool",
                "holdfast.server",
                "holdfast.server.client",
            }
            slow = {"asyncio", "click", "dataclasses", "msgspec", "numpy", "pathlib", "platformdirs", "pydantic"}
            slow |= {"regex", "rich", "sqlite3", "stringprep", "subprocess", "threading", "tomllib", "typing"}
            started = {"threading"} if os.environ.get("COVERAGE_PROCESS_CONFIG") else set()
            assert not slow & modules - started


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"prompt": "\xe9\x83\xa8"}'])
def test_what_is_no_event_starts_no_server(tmp_path: Path, data: bytes) -> None:
    """Such as a hook that is run by hand without input."""
    assert hook_command.answer(str(tmp_path / "memory"), data) == {}
    assert not (tmp_path / "memory").exists()
    Engine.open(tmp_path, settings=Settings(), background=False).close()
    before = sorted(tmp_path.iterdir())
    assert hook_command.answer(str(tmp_path), data) == {}
    assert sorted(tmp_path.iterdir()) == before
    assert find(tmp_path) is None


def test_arguments() -> None:
    """Others are left to the command line, which explains them."""
    assert parse([]) == ""
    assert parse(["--home", "/a", "--json"]) == "/a"
    assert parse(["--home=/a"]) == "/a"
    assert parse(["--help"]) is None
    assert parse(["--home"]) is None


HOMES = ("", "/srv/named", "/srv/named.db", "relative")
OWN = ("", "[recall]\nautomatic = true", "[archive]\npath = 'here'", "archive.path = '/srv/other'")
USER = ("", "[recall]\nautomatic = true", "[archive]\npath = '/srv/mine'")
VARIABLES = ("", "HOLDFAST_HOME", "XDG_DATA_HOME", "HOLDFAST_ARCHIVE__PATH")


@pytest.mark.variants
@pytest.mark.parametrize("variable", VARIABLES)
def test_the_folder_that_is_found_without_settings_is_that_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """If the settings may say something about it, they are read."""
    for name in ("HOLDFAST_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "by variable"))
    project = tmp_path / "work"
    own_file = project / "holdfast.toml"
    user_file = tmp_path / ".config" / "holdfast" / "holdfast.toml"
    for file in (own_file, user_file):
        file.parent.mkdir(parents=True)
    monkeypatch.chdir(project)
    for own, user, home in product(OWN, USER, HOMES):
        own_file.write_text(own)
        user_file.write_text(user)
        record_trust({own_file: own.encode()})
        found = find_folder(home, project=str(project))
        memory = find_memory(Path(home) if home else None, project=folder_of(str(project)))
        if found is None:
            assert "archive" in f"{own} {user} {variable.lower()}" or home in {"/srv/named.db", "relative"}
        else:
            assert found == str(memory.folder)


def test_a_hook_names_the_file_of_a_memory_as_the_store_does() -> None:
    """The hook has its own copy of the name, because importing that of the store takes too long."""
    assert hook_command.STORE_NAME == opening.STORE_NAME


def test_a_folder_of_openclaw_needs_the_settings(tmp_path: Path) -> None:
    """Its local files are next to it."""
    (tmp_path / "segments.jsonl").touch()
    assert find_folder(str(tmp_path), project="/srv/shop") is None


def test_a_wrong_variable_counts_as_not_set(tmp_path: Path) -> None:
    """The host goes on."""
    host = Host(tmp_path)
    host.environ = {"HOLDFAST_TIMEOUT_MS": "soon", "HOLDFAST_PAUSE_MS": "later"}
    assert host.ask("Unknown") == {}
    assert count_failures(host.home) == 0
    until(lambda: find(host.home))
    stop_server(host.home)
