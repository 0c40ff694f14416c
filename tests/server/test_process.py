"""The server as a process of its own."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2 as httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast import Engine
from holdfast.errors import HoldfastError
from holdfast.files import only_process, write_private
from holdfast.models.scripted import Hang, ScriptedReply
from holdfast.server import process as process_module
from holdfast.server.app import create_app
from holdfast.server.guard import Activity
from holdfast.server.process import Server, find, find_or_start, start
from holdfast.server.upstreams import Upstreams
from holdfast.settings import Settings
from holdfast.store.postgres import hide_password
from holdfast.testing.provider import Cut, ScriptedProvider
from support import patient, postgres_server
from support.command import Done, run_command
from support.forked import Holdfast, run_holdfast
from support.waiting import PATIENCE, stop_server, until

from .conftest import TOKEN, serve

pytestmark = pytest.mark.usefixtures("words_only")


@contextmanager
def running(
    home: Path, *options: str, place: str = "", environ: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start `holdfast serve` on a free port, and yield the process and its address.

    `place` is the address of a memory that is not in `home`.
    """
    command = ["serve", "--home", place or str(home), "--port", "0", "--json", *options]
    with (home / "stderr").open("wb") as stderr:
        variables = os.environ | (environ or {})
        process = Holdfast[bytes](*command, env=variables, stdout=subprocess.PIPE, stderr=stderr)
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def run(home: Path, *arguments: str) -> Done:
    """Run a command that ends by itself, over this memory."""
    return run_command(*arguments, "--home", str(home), folder=home, environ={"HOME": str(home)})


def ask(url: str, text: str, *, home: Path) -> str:
    """Send one request of the owner with a session of its own."""
    body = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    headers = {"x-holdfast-token": (home / "owner.token").read_text()}
    reply = httpx.post(f"{url}/v1/messages", json=body, headers=headers, timeout=PATIENCE)
    return str(reply.json()["content"][0]["text"])


def test_a_reply_that_was_received_survives_kill_9(tmp_path: Path) -> None:
    """Also for a reply that nothing follows."""
    with (
        ScriptedProvider(["The port is 5433."]) as provider,
        running(tmp_path, "--upstream", provider.url) as (process, url),
    ):
        assert ask(url, "Which port?", home=tmp_path) == "The port is 5433."
        process.send_signal(signal.SIGKILL)
        process.wait()
    with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
        found = engine.search("5433")
        assert "The port is 5433." in [hit.text for hit in found]


def test_a_reply_that_breaks_off_is_one_line_in_the_log(tmp_path: Path) -> None:
    """The client sees that the reply is not whole."""
    body = {"model": "m", "max_tokens": 50, "stream": True, "messages": [{"role": "user", "content": "Go."}]}
    received = threading.Event()
    with (
        ScriptedProvider([Cut(ScriptedReply(text="half of it"), after=3, when=received)]) as provider,
        running(tmp_path, "--upstream", provider.url) as (_, url),
    ):
        with patient.stream("POST", f"{url}/v1/messages", json=body) as reply:
            chunks = reply.iter_raw()
            assert next(chunks)
            received.set()
            with pytest.raises(httpx.RemoteProtocolError):
                list(chunks)
        until(lambda: (tmp_path / "stderr").read_text().endswith("\n"))
        (line,) = (tmp_path / "stderr").read_text().splitlines()
        time, _, text = line.partition(" ")
        assert abs(datetime.now(UTC) - datetime.fromisoformat(time)) < timedelta(days=1)
        pattern = rf"session chat-\w+: the reply of {provider.url}/v1/messages broke off: the connection was closed"
        assert re.fullmatch(pattern, text)


def test_its_file_is_private_and_goes_with_it(tmp_path: Path) -> None:
    """The token is readable by its owner alone; after SIGTERM the file is gone."""
    with running(tmp_path) as (process, url):
        file = tmp_path / "server.json"
        assert file.stat().st_mode & 0o777 == 0o600
        server = find(tmp_path)
        assert server is not None
        assert server.url == url
        assert server.call("ping")["pid"] == process.pid
        with pytest.raises(HoldfastError, match="not one of"):
            server.call("nonsense")
        process.terminate()
        assert process.wait() == 0
        assert (tmp_path / "stderr").read_text() == ""
        assert not file.exists()
        assert find(tmp_path) is None


def test_a_running_server_is_checked(tmp_path: Path) -> None:
    """For health checks of containers and supervisors: 0 if it answers, 1 and the fix if none runs."""
    with running(tmp_path) as (process, url):
        assert run(tmp_path, "serve", "--check").stdout == f"{url}\n"
        process.terminate()
        process.wait()
    done = run(tmp_path, "serve", "--check")
    assert done.returncode == 1
    assert "start one with `holdfast serve`, and the same --home" in done.stderr


def test_the_owner_s_token_is_printed_and_stays(tmp_path: Path) -> None:
    """It is in a file that others cannot read, and the same for every server; the token of calls is another."""
    first = json.loads(run(tmp_path, "token", "--json").stdout)
    assert Path(first["file"]).stat().st_mode & 0o777 == 0o600
    with ScriptedProvider(lambda _: "Port 5433.") as provider:
        for _ in range(2):
            with running(tmp_path, "--upstream", provider.url) as (_, url):
                assert ask(url, "Which port?", home=tmp_path) == "Port 5433."
                server = find(tmp_path)
                assert server is not None
                assert server.token != first["token"]
    assert run(tmp_path, "token").stdout.strip() == first["token"]
    with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
        assert {scope.agent for scope in engine.sessions()} == {"main"}


def test_processes_that_make_the_owner_s_token_at_once_make_one(tmp_path: Path) -> None:
    """None prints a token that another has replaced."""
    command = ["token", "--home", str(tmp_path / "new")]
    started = [Holdfast[str](*command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({one.communicate()[0] for one in started}) == 1


def test_it_is_started_on_demand_once(tmp_path: Path) -> None:
    """The second caller finds the first one's server, and starts none that would take its place when it stops."""
    home = tmp_path / "new" / "home"
    try:
        assert [start(home), start(home)] == [True, False]
        first = find_or_start(home)
        assert not start(home)
        assert find_or_start(home) == first
        assert (home / "server.log").stat().st_mode & 0o777 == 0o600
        first.call("remember", session="s1", content="The port is 5433.")
        assert [fact["content"] for fact in first.call("facts", session="s2")] == ["The port is 5433."]
    finally:
        stop_server(home)


@pytest.mark.nightly
def test_a_server_that_was_started_on_demand_loads_the_proxy_when_it_is_needed(tmp_path: Path) -> None:
    """Hooks and plugins call it without, and a host waits for its start."""
    command = [sys.executable, "-X", "importtime", "-m", "holdfast", "serve", "--home", str(tmp_path), "--port", "0"]
    done = subprocess.run([*command, "--idle", "1", "--json"], capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "uvicorn" in modules
    assert not {"aiohttp", "httpx2", "jinja2", "mcp", "rich", "holdfast.cli.doctor", "holdfast.server.proxy"} & modules
    with (
        ScriptedProvider(["The port is 5433."]) as provider,
        running(tmp_path, "--idle", "3600", "--upstream", provider.url) as (_, url),
    ):
        assert ask(url, "Which port?", home=tmp_path) == "The port is 5433."
        assert patient.get(f"{url}/ui/").status_code == 401


def test_an_idle_server_stops(tmp_path: Path) -> None:
    """After the time that --idle names."""
    with running(tmp_path, "--idle", "1") as (process, _):
        assert process.wait(PATIENCE) == 0


def test_a_shadow_prints_its_mode_and_its_upstreams(tmp_path: Path) -> None:
    """At its start, without the keys of the address."""
    command = ["serve", "--home", str(tmp_path), "--port", "0", "--idle", "1"]
    done = run_holdfast(*command, "--shadow", "--upstream", "openai=http://me:secret@localhost:9/v1?key=secret")
    expected = "Model requests go to https://api.anthropic.com and http://localhost:9/v1, unchanged, as a shadow"
    assert expected in done.stderr
    assert "secret" not in done.stderr


def test_a_memory_on_a_server_is_named(tmp_path: Path) -> None:
    """By its address, without a password, with the header that requests need; the folder has only local files."""
    own = {"HOLDFAST_HOME": str(tmp_path), "HOLDFAST_POSTGRES__SCHEMA": postgres_server.schema_of(tmp_path)}
    own |= {"HOLDFAST_POSTGRES__PARTITIONS": "1", "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    address = postgres_server.start()
    done = run_holdfast("serve", "--home", address, "--port", "0", "--idle", "1", env=os.environ | own)
    assert f"Serving {hide_password(address)} on http" in done.stderr
    hint = "the header x-holdfast-token, whose value `holdfast token` prints"
    assert hint in done.stderr
    own |= {"HOLDFAST_SERVER__IDENTITY": "one-person"}
    done = run_holdfast("serve", "--home", address, "--port", "0", "--idle", "1", env=os.environ | own)
    assert hint not in done.stderr


def test_an_outage_of_the_database_is_two_lines_in_the_log(tmp_path: Path) -> None:
    """Its beginning with the reason, and its end with the number of calls that failed. Requests get their replies."""
    own = {"HOLDFAST_HOME": str(tmp_path), "HOLDFAST_POSTGRES__SCHEMA": postgres_server.schema_of(tmp_path)}
    own |= {"HOLDFAST_POSTGRES__PARTITIONS": "1", "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    own["HOLDFAST_POSTGRES__WAIT_SECONDS"] = "1"
    schema = postgres_server.schema_of(tmp_path)
    login = f"login_{schema}"
    postgres_server.open_postgres(tmp_path).close()
    address = f"postgresql:///?{urlencode({**conninfo_to_dict(postgres_server.start()), 'user': login})}"
    with psycopg.connect(postgres_server.start(), autocommit=True) as admin, ExitStack() as stack:
        admin.execute(f"CREATE ROLE {login} LOGIN".encode())
        admin.execute(f"GRANT USAGE ON SCHEMA {schema} TO {login}".encode())
        admin.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {login}".encode())
        stack.callback(admin.execute, f"DROP ROLE {login}".encode())
        stack.callback(admin.execute, f"DROP OWNED BY {login} CASCADE".encode())
        provider = stack.enter_context(ScriptedProvider(lambda body: f"{len(body['messages'])} received."))
        options = ["--upstream", provider.url]
        _, url = stack.enter_context(running(tmp_path, *options, place=address, environ=own))
        ask(url, "Before.", home=tmp_path)
        admin.execute(f"ALTER ROLE {login} CONNECTION LIMIT 0".encode())
        admin.execute("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = %s", (login,))
        for number in range(3):
            assert ask(url, f"Meanwhile {number}.", home=tmp_path) == "1 received."
        admin.execute(f"ALTER ROLE {login} CONNECTION LIMIT -1".encode())
        log = tmp_path / "stderr"

        def is_back() -> bool:
            ask(url, "After.", home=tmp_path)
            return "answers again" in log.read_text()

        until(is_back)
        first, last = log.read_text().splitlines()
        assert re.search("does not answer: .*too many connections", first)
        assert re.search(r"answers again after \d+ s, in which \d+ calls? failed$", last)


def test_a_server_that_ends_at_its_start_is_an_error(tmp_path: Path) -> None:
    """At once, with the place of its log."""
    (tmp_path / "holdfast.db").write_bytes(b"something else")
    with pytest.raises(HoldfastError, match="did not start: see"):
        find_or_start(tmp_path)
    assert "holdfast.db" in (tmp_path / "server.log").read_text()


def test_a_server_that_another_one_was_faster_than_is_no_error(tmp_path: Path) -> None:
    """If the own server ends because another process serves the memory, that one is waited for."""
    found: list[Server] = []
    waiting = threading.Thread(target=lambda: found.append(find_or_start(tmp_path, options=["--no-such-option"])))
    with only_process(tmp_path / "server.lock") as is_only:
        assert is_only
        waiting.start()
        log = tmp_path / "server.log"
        until(lambda: log.exists() and "--no-such-option" in log.read_text())  # the own server ends
        until(lambda: process_module._started[tmp_path].poll() is not None)
        description: dict[str, Any] = {"port": 1, "pid": 2, "token": "t"}
        write_private(tmp_path / "server.json", json.dumps(description).encode())
        waiting.join(PATIENCE)
    assert found == [Server(**description)]


def test_of_servers_that_start_at_once_one_serves(tmp_path: Path) -> None:
    """The others say which one, and leave its file alone."""
    command = ["serve", "--home", str(tmp_path), "--port", "0", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [Holdfast[str](*command, text=True, **pipes) for _ in range(3)]
    try:
        until(lambda: sum(one.poll() is not None for one in started) == 2)
        failed = [one for one in started if one.poll() is not None]
        (serving,) = (one for one in started if one not in failed)
        assert serving.stdout is not None
        server = find(tmp_path)
        assert server is not None
        assert json.loads(serving.stdout.readline())["pid"] == server.pid == server.call("ping")["pid"]
        for one in failed:
            assert one.returncode == 1
            assert f"is served by process {server.pid}" in one.communicate()[1]
    finally:
        for one in started:
            one.kill()
            one.communicate()


def test_a_server_that_was_started_on_demand_makes_room(tmp_path: Path) -> None:
    """For one that the user starts; what it has stored is there."""
    first = find_or_start(tmp_path)
    first.call("remember", session="s1", content="The port is 5433.")
    with running(tmp_path) as (process, _):
        second = find(tmp_path)
        assert second is not None
        assert second.pid == process.pid != first.pid
        assert [fact["content"] for fact in second.call("facts", session="s1")] == ["The port is 5433."]


def test_a_file_of_a_server_that_was_killed_is_no_server(tmp_path: Path) -> None:
    """Nothing is sent to its port, which may belong to another program by now."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "server.json").write_text(json.dumps({"port": port, "pid": os.getpid(), "token": "x"}))
        assert find(tmp_path) is None
        other.settimeout(0.2)
        with pytest.raises(TimeoutError):
            other.accept()


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"5", b'"result"'])
def test_an_answer_that_is_none_is_an_error(answer: bytes) -> None:
    """Whatever another program answers."""
    with socket.create_server(("127.0.0.1", 0)) as other:

        def reply() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + answer)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(HoldfastError):
            Server(port=other.getsockname()[1], pid=1, token="x").call("ping")
        thread.join()


def test_a_server_with_an_open_stream_is_not_idle(tmp_path: Path) -> None:
    """However long the stream has been open; it is idle from its end on."""
    ticks = itertools.count()
    activity = Activity(clock=lambda: float(next(ticks)))
    with (
        ScriptedProvider([Hang()]) as provider,
        Engine.open(tmp_path, settings=Settings(), background=False) as engine,
        serve(create_app(engine, token=TOKEN, upstreams=Upstreams.parse([provider.url]), activity=activity)) as url,
    ):
        body = {"model": "m", "messages": [], "stream": True}
        with patient.stream("POST", f"{url}/v1/messages", json=body) as reply:
            chunks = reply.iter_raw()
            assert next(chunks)
            assert activity.idle_seconds == 0
        until(lambda: activity.idle_seconds > 0)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_server_with_an_open_stream_stops(tmp_path: Path, stop: signal.Signals) -> None:
    """It waits for the reply only for a moment, and removes its file."""
    with (
        ScriptedProvider([Hang()]) as provider,
        running(tmp_path, "--upstream", provider.url) as (process, url),
        patient.stream("POST", f"{url}/v1/messages", json={"model": "m", "messages": [], "stream": True}) as reply,
    ):
        chunks = reply.iter_raw()
        assert next(chunks)
        process.send_signal(stop)
        assert process.wait(PATIENCE) == (0 if stop == signal.SIGTERM else 130)
        assert not (tmp_path / "server.json").exists()


def test_a_taken_port_is_an_error_with_advice(tmp_path: Path) -> None:
    """With one line that names the option."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        failed = run(tmp_path, "serve", "--port", str(other.getsockname()[1]))
    assert failed.returncode == 1
    assert "--port" in failed.stderr


def test_a_server_that_does_not_answer_is_an_error() -> None:
    """With the address that was asked."""
    with pytest.raises(HoldfastError, match=r"127\.0\.0\.1:9 does not answer"):
        Server(port=9, pid=1, token="x").call("ping")


def test_calls_over_standard_input_and_output(tmp_path: Path) -> None:
    """Every call gets one answer with its id; errors are answers."""
    calls = [
        {
            "id": 1,
            "method": "append",
            "params": {"session": "s1", "messages": [{"role": "user", "content": "Port 5433."}]},
        },
        {"id": 2, "method": "append", "params": {"session": "s1", "mesages": []}},
        {"id": 3, "method": "assemble", "params": {"session": "s2", "messages": [{"role": "user", "content": "hi"}]}},
    ]
    command = ["rpc", "--home", str(tmp_path)]
    lines = "\n".join([*map(json.dumps, calls), "no json", ""])
    done = run_holdfast(*command, stdin=lines)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert len(answers[1]["result"]["ids"]) == 1
    assert "mesages" in answers[2]["error"]["message"]
    (sent,) = answers[3]["result"]["messages"]
    assert sent["role"] == "user"
    assert sent["content"].startswith("hi")  # and an overview of the other session, if that was archived before
    assert answers[None]["error"]
