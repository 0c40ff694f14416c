"""A process that has imported all of Holdfast, and forks a child for every command that a test starts.

It is started by `support.forked`, with the number of the socket on which requests come: one JSON object each, with the
three standard files of the command. The answer is the number of the process.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import sys
import traceback
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any, NoReturn

__all__ = ["MAX_REQUEST", "Request", "serve"]

_MODULES = (
    "holdfast.cli.serve",  # the first: it sets the number of threads
    "holdfast.cli.inspect",
    "holdfast.index.tables",
    "holdfast.embed.remote",
    "holdfast.index.reader",
    "holdfast.mcp",
    "holdfast.memory.learning",
    "holdfast.server.app",
    "holdfast.server.connections",
    "holdfast.server.logs",
    "holdfast.server.process",
    "holdfast.server.proxy",
    "holdfast.shared",
    "holdfast.store.sqlite",
    "holdfast.store.sqlite_vectors",
    "holdfast_agent.agent",
    "holdfast_agent.chat",
    "holdfast_agent.opening",
    "holdfast_agent.terminal",
    "Stemmer",
    "httpcore2",
    "uvicorn.protocols.websockets.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.lifespan.on",
    "wordllama",
)
MAX_REQUEST = 1 << 20
"""Bytes of a request: arguments and all environment variables."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A command that is started.

    Attributes:
        arguments: What follows `holdfast` on the command line.
        code: Python code that runs in place of `holdfast`, as after `python -c`.
        has_terminal: Whether standard input is a terminal that the process gets as its own.
    """

    arguments: list[str]
    environ: dict[str, str]
    folder: str
    code: str = ""
    has_terminal: bool = False

    def encode(self) -> bytes:
        """Return the bytes that the server reads."""
        return json.dumps(asdict(self)).encode()


def serve(requests: socket.socket) -> None:
    """Start commands until the test process has ended."""
    while True:
        data, files, _, _ = socket.recv_fds(requests, MAX_REQUEST, 3)
        if not data:
            return
        requests.sendall(str(_start(Request(**json.loads(data)), files, requests)).encode())
        for file in files:
            os.close(file)


def _start(request: Request, files: list[int], requests: socket.socket) -> int:
    """Fork a process whose parent has ended when this returns: it becomes a child of the test process."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        process = os.fork()
        if process == 0:
            os.close(reading)
            os.close(writing)
            requests.close()
            _run(request, files)
        os.write(writing, str(process).encode())
        os._exit(0)
    os.close(writing)
    process = int(os.read(reading, 32))
    os.close(reading)
    os.waitpid(between, 0)
    return process


def _run(request: Request, files: list[int]) -> NoReturn:
    """Be the process of `holdfast`: everything that a new process would find is as it would find it."""
    try:
        if request.has_terminal:
            os.setsid()
        if request.has_terminal:
            os.close(os.open(os.ttyname(files[0]), os.O_RDWR))  # the first that a new session opens becomes its own
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(request.environ)
        os.chdir(request.folder)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["holdfast", *request.arguments]
        sys.stdin = _open(0, "r")
        sys.stdout = _open(1, "w")
        sys.stderr = _open(2, "w", errors="backslashreplace", line_buffering=True)
        if request.code:
            sys.path[:0] = request.environ.get("PYTHONPATH", "").split(os.pathsep)
            exec(request.code, {"__name__": "__main__"})  # noqa: S102 - a test's own code
            sys.stdout.flush()
            os._exit(0)
        from holdfast.command import run  # noqa: PLC0415 - as `python -m holdfast` does it, in the new process

        run()
    except BaseException:  # noqa: BLE001 - the process must not go on as a server
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _open(number: int, mode: str, *, errors: str = "strict", line_buffering: bool = False) -> Any:
    is_lines = line_buffering or os.isatty(number)
    stream: Any = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 - for the whole process
    stream.reconfigure(line_buffering=is_lines)
    return stream


def _import_all() -> None:
    """Import and compile what the commands need that tests start."""
    for module in _MODULES:
        import_module(module)
    import_module("holdfast.server.inspector.web").compile_pages()
    logging.basicConfig(force=True, handlers=[], level=logging.WARNING)  # one of them has set it for the whole process


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests
    _import_all()
    gc.collect()
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
