"""What an MCP client is answered while the server loads."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Engine, __version__
from holdfast.mcp_start import EarlyAnswers
from holdfast.settings import Settings
from support.cases import each
from support.forked import Holdfast

ROOT = Path(__file__).parents[1]
ANSWERS = json.loads((ROOT / "src" / "holdfast" / "mcp_answers.json").read_bytes())


def load_script() -> Any:
    """Import the script that writes the answers."""
    spec = importlib.util.spec_from_file_location("write_mcp_answers", ROOT / "scripts" / "write_mcp_answers.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


SCRIPT = load_script()


class Client:
    """A client of `holdfast mcp` that sends lines and reads lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def send(self, line: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        self.process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@contextmanager
def start(home: Path) -> Iterator[Client]:
    """Run `holdfast mcp`."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "encoding": "utf-8"}
    with Holdfast[str]("mcp", "--home", str(home), **pipes) as process:
        yield Client(process)


@contextmanager
def connect(home: Path) -> Iterator[Client]:
    """Run `holdfast mcp`; when the client ends, it has nothing more to say, and ends too."""
    with start(home) as client:
        yield client
        assert client.process.communicate()[0] == ""
        assert client.process.returncode == 0


def skip_early_answers(client: Client, params: dict[str, Any]) -> None:
    """Let the SDK answer once: after that it answers everything."""
    client.send({"jsonrpc": "2.0", "id": "first", "method": "nonsense", "params": params})
    assert "error" in client.receive()


@contextmanager
def connect_patiently(home: Path) -> Iterator[Client]:
    """Run `holdfast mcp` so that it does not load before it has to, however slow the client is."""
    code = "import sys; from holdfast import command, mcp_start; mcp_start.LOAD_SECONDS = 600.0; command.run()"
    command = [sys.executable, "-c", code, "mcp", "--home", str(home)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Client(process)
        assert process.communicate()[0] == ""
        assert process.returncode == 0


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
def test_the_answers_are_those_of_the_sdk(tmp_path: Path, version: str) -> None:
    """If this fails: python scripts/write_mcp_answers.py > src/holdfast/mcp_answers.json."""
    is_modern = version in SCRIPT.MODERN
    requests = SCRIPT.modern_requests(version) if is_modern else SCRIPT.handshake_requests(version)
    with connect(tmp_path) as client:
        skip_early_answers(client, requests[0]["params"] if is_modern else {})
        found = SCRIPT.ask(client.process, requests)
    early = EarlyAnswers(ANSWERS, version=__version__)
    for request in requests:
        if "id" in request:
            answer = early.find(request)
            assert answer == {"jsonrpc": "2.0", "id": request["id"], "result": found[request["method"]]}


@pytest.mark.variants(first=True)
@pytest.mark.parametrize("version", ["2025-06-18", "2026-07-28"])
def test_a_client_gets_the_tools_before_the_memory_is_open(tmp_path: Path, version: str) -> None:
    """Another process locks it meanwhile. Every request has one answer, and the first call has the memory."""
    with Engine.open(tmp_path, settings=Settings(), background=False) as engine:
        engine.session("s1", project=str(ROOT)).append([{"role": "user", "content": "The replica is on port 5433."}])
    with connect(tmp_path) as client:
        with closing(sqlite3.connect(tmp_path / "holdfast.db", isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            is_modern = version in SCRIPT.MODERN
            requests = SCRIPT.modern_requests(version) if is_modern else SCRIPT.handshake_requests(version)
            for request in requests:
                client.send(request)
                if "id" in request:
                    assert client.receive()["id"] == request["id"]
            other.execute("ROLLBACK")
        call = {"name": "memory_search", "arguments": {"query": "Which port has the replica?"}}
        meta = {"_meta": requests[0]["params"]["_meta"]} if is_modern else {}
        client.send({"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": call | meta})
        answer = client.receive()
        assert answer["id"] == "call"
        assert "excerpts" in answer["result"]["structuredContent"]
        client.send({**requests[-1], "id": "again"})
        assert client.receive()["id"] == "again"


def test_a_client_that_only_asks_for_the_tools_loads_nothing(tmp_path: Path) -> None:
    """Not even the memory is created."""
    with connect_patiently(tmp_path / "memory") as client:
        for request in SCRIPT.handshake_requests("2025-06-18"):
            client.send(request)
            if "id" in request:
                assert client.receive()["id"] == request["id"]
    assert not (tmp_path / "memory").exists()


def test_a_client_that_listens_to_changes_is_acknowledged_once(tmp_path: Path) -> None:
    """Claude Code does, and asks for the tools after that. The request itself stays open."""
    meta = SCRIPT.modern_requests("2026-07-28")[0]["params"]["_meta"]
    wanted = {"toolsListChanged": True, "promptsListChanged": True}
    listen = {"_meta": meta, "notifications": wanted}
    received = []
    for is_early in (False, True):
        with start(tmp_path) as client:
            if not is_early:
                skip_early_answers(client, {"_meta": meta})
            client.send({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": listen})
            first = client.receive()
            client.send({"jsonrpc": "2.0", "id": "c", "method": "nonsense", "params": {"_meta": meta}})
            received.append((first, client.receive()["id"]))
            client.process.communicate()
    assert received[0] == received[1]


def test_what_has_no_fixed_answer_is_left_to_the_sdk(tmp_path: Path) -> None:
    """An unknown version, a wrong line, an unknown method."""
    with connect(tmp_path) as client:
        first, done, *_ = SCRIPT.handshake_requests("1999-01-01")
        client.send(first)
        assert client.receive()["result"]["protocolVersion"] == "2025-11-25"
        client.send(done)
        client.send({"jsonrpc": "2.0", "id": 5, "method": "nonsense"})
        answer = client.receive()
        assert (answer["id"], "error" in answer) == (5, True)


@each(
    "request_",
    [
        None,
        [],
        {"method": "tools/list"},
        {"id": None, "method": "tools/list"},
        {"id": 1, "method": "tools/list"},
        {"id": 1, "method": "initialize"},
        {"id": 1, "method": "initialize", "params": []},
        {"id": 1, "method": "tools/list", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": 5}}},
    ],
)
def test_a_request_that_is_wrong_gets_no_early_answer(request_: Any) -> None:
    """Nor one that comes too early."""
    assert EarlyAnswers(ANSWERS, version="1").find(request_) is None


def test_a_list_that_goes_on_gets_no_early_answer() -> None:
    """The SDK knows its pages."""
    early = EarlyAnswers(ANSWERS, version="1")
    assert early.find(SCRIPT.handshake_requests("2025-06-18")[0]) is not None
    assert early.find({"id": 1, "method": "tools/list", "params": {"cursor": "x"}}) is None


def test_almost_nothing_is_imported_before_the_first_answer() -> None:
    """A client waits for these imports."""
    code = "import sys; from holdfast import command, mcp_start; print(*sys.modules)"
    modules = set(subprocess.check_output([sys.executable, "-c", code], text=True).split())
    assert not {"asyncio", "click", "dataclasses", "mcp", "numpy", "pathlib", "pydantic", "typing"} & modules


def test_without_the_sdk_no_request_is_answered(tmp_path: Path) -> None:
    """A client that gets the tools and no answer to its first call does not know why."""
    code = "import sys; sys.modules['mcp'] = None; from holdfast import command; command.run()"
    command = [sys.executable, "-c", code, "mcp", "--home", str(tmp_path)]
    requests = "".join(json.dumps(one) + "\n" for one in SCRIPT.handshake_requests("2025-06-18"))
    done = subprocess.run(command, input=requests, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'holdfast-memory[mcp]'" in done.stderr
