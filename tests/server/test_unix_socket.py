"""`holdfast serve --socket`: a server that only its owner can connect to."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2 as httpx
import pytest

from holdfast.server.process import find
from holdfast.testing.provider import ScriptedProvider
from support.command import run_command
from support.forked import Holdfast
from support.waiting import PATIENCE

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such sockets")

BODY = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Which port?"}]}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, because that of a socket has at most about 100 characters."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


@contextmanager
def running(home: Path, path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server on a socket."""
    command = ["serve", "--home", str(home), "--json", "--socket", str(path)]
    process = Holdfast[bytes](*command, *options, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert json.loads(process.stdout.readline())["url"] == f"unix:{path}"
        yield process
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def refuse(home: Path, *options: str) -> str:
    """Return what a server says that does not start."""
    done = run_command("serve", "--home", str(home), "--json", *options, folder=home, environ={"HOME": str(home)})
    assert done.returncode in {1, 2}
    return done.stderr


def connect(path: Path, *, host: str = "localhost") -> httpx.Client:
    """Open a client whose requests go through a socket."""
    transport = httpx.HTTPTransport(uds=str(path))
    return httpx.Client(transport=transport, base_url=f"http://{host}", timeout=PATIENCE)


def test_requests_and_calls_go_through_it(tmp_path: Path, folder: Path) -> None:
    """Streamed or not, whatever host a client names. There is no port, and nothing is left when it stops."""
    path = folder / "run" / "holdfast.sock"
    with ScriptedProvider(lambda _: "Port 5433.") as provider:
        with running(tmp_path, path, "--upstream", provider.url) as process:
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
            for host in ("localhost", "holdfast", "%2Ftmp%2Fholdfast.sock"):
                with connect(path, host=host) as client:
                    assert client.post("/v1/messages", json=BODY).json()["content"][0]["text"] == "Port 5433."
                    assert "message_stop" in client.post("/v1/messages", json={**BODY, "stream": True}).text
                    origin = client.post("/v1/messages", json=BODY, headers={"origin": "http://localhost"})
                    assert origin.status_code == 403
            server = find(tmp_path)
            assert server is not None
            assert (server.port, server.call("ping")["pid"]) == (0, process.pid)
        assert not path.exists()
        assert find(tmp_path) is None


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_connect(tmp_path: Path, folder: Path) -> None:
    """Though the folder lets everyone look into it."""
    path = folder / "holdfast.sock"
    attack = (
        "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); print(os.stat(sys.argv[1]));"
        "socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    )
    with running(tmp_path, path):
        tried = subprocess.run([sys.executable, "-c", attack, str(path)], capture_output=True, text=True, check=False)
    assert "os.stat_result" in tried.stdout
    assert "PermissionError" in tried.stderr


def test_a_socket_of_a_server_that_was_killed_is_replaced(tmp_path: Path, folder: Path) -> None:
    """It removes its socket only if it is stopped."""
    path = folder / "holdfast.sock"
    for _ in range(2):
        with running(tmp_path, path) as process:
            process.kill()
            process.wait()
        assert path.exists()


def test_a_socket_in_use_and_a_file_are_left_alone(tmp_path: Path, folder: Path) -> None:
    """The server says so and does not start."""
    path = folder / "holdfast.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert "another process listens on" in refuse(tmp_path, "--socket", str(path))
        assert path.exists()
    file = folder / "file"
    file.write_text("words")
    assert "is not a socket" in refuse(tmp_path, "--socket", str(file))
    assert file.read_text() == "words"


@pytest.mark.parametrize(("mode", "depth"), [(0o777, 0), (0o1777, 0), (0o770, 1), (0o1777, 1)], ids=oct)
def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, folder: Path, mode: int, depth: int) -> None:
    """They could put a socket of theirs there. Above it a folder such as /tmp is safe: others cannot rename ours."""
    inner = folder / "shared" / "own"
    inner.mkdir(parents=True)
    shared = (inner, inner.parent)[depth]
    shared.chmod(mode)
    if depth == 1 and mode == 0o1777:
        with running(tmp_path, inner / "holdfast.sock"):
            pass
        return
    assert "other users may write to this folder" in refuse(tmp_path, "--socket", str(inner / "holdfast.sock"))


def test_a_path_that_cannot_be_a_socket_is_refused_with_advice(tmp_path: Path, folder: Path) -> None:
    """One that is too long, and one next to a port."""
    assert "--socket" in refuse(tmp_path, "--socket", str(folder / ("x" * 200)))
    assert "name one of them" in refuse(tmp_path, "--socket", str(folder / "s"), "--port", "0")


def test_the_inspector_refuses_a_socket(tmp_path: Path, folder: Path) -> None:
    """It does not start a second server."""
    with running(tmp_path, folder / "holdfast.sock"):
        shown = run_command(
            "ui", "--home", str(tmp_path), "--no-open", folder=tmp_path, environ={"HOME": str(tmp_path)}
        )
    assert shown.returncode == 1
    assert "which no browser can open" in shown.stderr
