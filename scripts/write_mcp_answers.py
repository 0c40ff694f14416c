"""Print what the MCP SDK answers to the requests that a client makes at its start.

python scripts/write_mcp_answers.py > src/holdfast/mcp_answers.json
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
LISTS = ("tools/list", "resources/list", "resources/templates/list", "prompts/list")
CLIENT = {"name": "holdfast", "version": "1"}
START = "import sys; from holdfast.cli import main; main(sys.argv[1:])"
"""Runs `holdfast mcp` without the early answers."""


def main() -> None:
    """Print the answers of all versions, once for those that are initialised: they differ in the version alone."""
    answers: dict[str, Any] = {}
    for version in HANDSHAKE:
        with start_server() as server:
            found = ask(server, handshake_requests(version))
        assert found["initialize"].pop("protocolVersion") == version
        assert answers.setdefault("handshake", found) == found
    for version in MODERN:
        with start_server() as server:
            answers[version] = ask(server, modern_requests(version))
    print(json.dumps({"handshake_versions": HANDSHAKE, **answers}, indent=1, sort_keys=True))


def handshake_requests(version: str) -> list[dict[str, Any]]:
    """Return the requests of a client that initialises."""
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
    initialize = {"jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params}
    done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return [initialize, done, *({"jsonrpc": "2.0", "id": method, "method": method} for method in ("ping", *LISTS))]


def modern_requests(version: str) -> list[dict[str, Any]]:
    """Return the requests of a client that names its version in each."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": CLIENT,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    methods = ("server/discover", *LISTS)
    return [{"jsonrpc": "2.0", "id": method, "method": method, "params": {"_meta": meta}} for method in methods]


@contextmanager
def start_server() -> Iterator[subprocess.Popen[str]]:
    """Run a server with an empty memory."""
    with TemporaryDirectory() as home:
        command = [sys.executable, "-c", START, "mcp", "--home", home]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603
            yield server
            assert server.stdin is not None
            server.stdin.close()


def ask(server: subprocess.Popen[str], requests: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the result of each request by its method."""
    assert server.stdin is not None
    assert server.stdout is not None
    results: dict[str, Any] = {}
    for request in requests:
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        if "id" in request:
            answer = json.loads(server.stdout.readline())
            if "result" in answer:
                results[request["id"]] = answer["result"]
    return results


if __name__ == "__main__":
    main()
