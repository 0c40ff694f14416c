"""Find the server of a memory, and call it. A host runs this before every prompt, so it imports almost nothing.

`process` has the same for code that is not in a hurry, as typed values and errors.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time

TYPE_CHECKING = False  # `typing` takes longer to import than a call takes
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

FILE: Final = "server.json"
"""Describes the server of a folder: its address, process, token and memory."""
LOCK: Final = "server.lock"
"""Is locked as long as the server runs."""


class CallError(Exception):
    """The server has answered with an error."""


def find(home: str) -> dict[str, Any] | None:
    """Return the description of the server that runs for a folder; None if none runs."""
    try:
        with open(os.path.join(home, FILE), "rb") as file:
            description = json.load(file)
        is_running = _is_locked(os.path.join(home, LOCK))
    except (OSError, ValueError):
        return None
    return description if is_running and isinstance(description, dict) else None


def serves(server: Mapping[str, Any], memory: str) -> bool:
    """Return whether a server serves the memory of this name. One of an earlier version does not say."""
    return server.get("memory") in (None, "", memory)


def call(server: Mapping[str, Any], method: str, params: Mapping[str, Any], *, timeout: float) -> Any:
    """Call a method of a server, and return its result.

    Args:
        server: Its description.
        method: The name of the method.
        params: Its parameters.
        timeout: Seconds for the whole call.

    Raises:
        OSError: It cannot be reached, or has not answered in time.
        ValueError: It answers with something else.
        CallError: It answers with an error.
    """
    end = time.monotonic() + timeout
    data = json.dumps({"id": 1, "method": method, "params": params}).encode()
    head = (
        f"POST /holdfast/rpc HTTP/1.0\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {server['token']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    received = bytearray()
    with _connect(server, timeout) as connection:
        connection.sendall(head.encode() + data)
        while True:
            connection.settimeout(max(0.001, end - time.monotonic()))
            chunk = connection.recv(65_536)
            if not chunk:
                break
            received += chunk
    answer = json.loads(received.partition(b"\r\n\r\n")[2])
    if not isinstance(answer, dict) or "result" not in answer:
        raise CallError(f"{method}: {answer.get('error') if isinstance(answer, dict) else answer}")
    return answer["result"]


def _connect(server: Mapping[str, Any], timeout: float) -> socket.socket:
    path = server.get("socket_path")
    if path:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    else:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        # `socket.create_connection` would import the codec for names of hosts in other scripts.
        connection.connect(path or ("127.0.0.1", server["port"]))
    except OSError:
        connection.close()
        raise
    return connection


def _is_locked(path: str) -> bool:
    """Return whether another process has locked a file."""
    if sys.platform == "win32":
        from pathlib import Path  # noqa: PLC0415 - only for this

        from holdfast.files import only_process  # noqa: PLC0415 - as above

        with only_process(Path(path)) as is_free:
            return not is_free
    import fcntl  # noqa: PLC0415 - not on Windows

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
