"""The server as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from holdfast import Engine
from holdfast.errors import HoldfastError
from holdfast.server.process import Server, find, find_or_start
from holdfast.settings import Settings
from scripted_provider import ScriptedProvider


@contextmanager
def running(home: Path, *options: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start `holdfast serve` on a free port, and yield the process and its address."""
    command = [sys.executable, "-m", "holdfast", "serve", "--home", str(home), "--port", "0", "--json", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(url: str, text: str) -> str:
    """Send one request with a session of its own."""
    body = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": text}]}
    reply = httpx.post(f"{url}/v1/messages", json=body, timeout=60)
    return str(reply.json()["content"][0]["text"])


def test_a_reply_that_was_received_survives_kill_9(tmp_path: Path) -> None:
    """Also for a reply that nothing follows."""
    with (
        ScriptedProvider(["The port is 5433."]) as provider,
        running(tmp_path, "--upstream", provider.url) as (process, url),
    ):
        assert ask(url, "Which port?") == "The port is 5433."
        process.send_signal(signal.SIGKILL)
        process.wait()
    with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
        found = engine.search("5433")
        assert "The port is 5433." in [hit.text for hit in found]


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
        process.wait()
        assert not file.exists()
        assert find(tmp_path) is None


def test_it_is_started_on_demand_once(tmp_path: Path) -> None:
    """The second caller finds the first one's server."""
    first = find_or_start(tmp_path)
    try:
        assert find_or_start(tmp_path) == first
        first.call("remember", session="s1", content="The port is 5433.")
        assert [fact["content"] for fact in first.call("facts", session="s2")] == ["The port is 5433."]
    finally:
        os.kill(first.pid, signal.SIGTERM)


def test_an_idle_server_stops(tmp_path: Path) -> None:
    """After the time that --idle names."""
    with running(tmp_path, "--idle", "1") as (process, _):
        assert process.wait(timeout=60) == 0


def test_a_taken_port_is_an_error_with_advice(tmp_path: Path) -> None:
    """With one line that names the option."""
    with running(tmp_path) as (_, url):
        port = url.rpartition(":")[2]
        command = [sys.executable, "-m", "holdfast", "serve", "--home", str(tmp_path), "--port", port]
        failed = subprocess.run(command, capture_output=True, text=True, check=False)
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
    command = [sys.executable, "-m", "holdfast", "rpc", "--home", str(tmp_path)]
    lines = "\n".join([*map(json.dumps, calls), "no json", ""])
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    answers = {answer["id"]: answer for answer in map(json.loads, done.stdout.splitlines())}
    assert len(answers[1]["result"]["ids"]) == 1
    assert "mesages" in answers[2]["error"]["message"]
    assert answers[3]["result"]["messages"] == [{"role": "user", "content": "hi"}]
    assert answers[None]["error"]
