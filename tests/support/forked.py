"""Start `holdfast` as a process of its own without waiting for its imports.

Each process is forked from one that has imported them once (`support.fork_server`). It is real in every other way: a
child of the test process with its own files, environment, folder, signals and exit code. Tests of the start itself run
`sys.executable`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from threading import Lock
from typing import Any, AnyStr, Final

from support import fork_server
from support.fork_server import Request
from support.paths import FIXTURES

__all__ = ["Holdfast", "can_fork", "fork", "run_holdfast"]

_SET_CHILD_SUBREAPER: Final = 36
"""The option of `prctl`."""
_lock = Lock()
_servers: list[socket.socket] = []


def can_fork() -> bool:
    """Return whether processes can be forked: on Linux, and without coverage, which starts with a process."""
    return sys.platform == "linux" and not any(name.startswith("COVERAGE_") for name in os.environ)


class Holdfast(subprocess.Popen[AnyStr]):
    """A process that runs `holdfast`, or Python code, with some arguments."""

    def __init__(
        self,
        *arguments: str,
        code: str = "",
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        **options: Any,
    ) -> None:
        self._request = Request(
            arguments=list(arguments),
            environ=dict(os.environ if env is None else env),
            folder=str(cwd or Path.cwd()),
            code=code,
        )
        command = [sys.executable, "-m", "holdfast", *arguments]
        if code:
            command = [sys.executable, "-c", code, *arguments]
        super().__init__(command, env=env, cwd=cwd, **options)

    def _execute_child(self, *options: Any) -> None:
        """Start the process: the only step of the standard library that is another one here."""
        start: Any = super()._execute_child  # type: ignore[misc]  # has no types
        if not can_fork():
            start(*options)
            return
        given = signature(start).bind(*options).arguments
        ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        self.pid = fork(self._request, [number if end == -1 else end for number, end in enumerate(ends)])
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(given[name] for name in names))  # type: ignore[attr-defined]  # has no types


def run_holdfast(
    *arguments: str,
    code: str = "",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a command, or Python code, to its end, and return what it printed."""
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with Holdfast[str](*arguments, code=code, env=env, cwd=cwd, encoding="utf-8", **pipes) as process:
        stdout, stderr = process.communicate(stdin)
    done = subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)
    if check:
        done.check_returncode()
    return done


def fork(request: Request, files: Sequence[int]) -> int:
    """Start a command with its three standard files, and return the number of its process, a child of this one."""
    with _lock:
        if not _servers:
            _servers.append(_start_server())
        with _adopt_orphans():
            socket.send_fds(_servers[0], [request.encode()], files)
            return int(_servers[0].recv(32))


def _start_server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-P", fork_server.__file__, str(theirs.fileno())]
    server = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=FIXTURES)
    theirs.close()

    def stop() -> None:
        ours.close()
        server.wait()

    atexit.register(stop)
    return ours


@contextmanager
def _adopt_orphans() -> Iterator[None]:
    """Become the parent of processes whose parent ends meanwhile."""
    library = ctypes.CDLL(None)
    library.prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        library.prctl(_SET_CHILD_SUBREAPER, 0)
