"""Commands in a shell: a process group of their own, a time limit, and nothing left behind.

Whatever way a command ends, its whole group ends with it. What it prints is taken as it comes, stdout and stderr
in one; of very much, the beginning and the end.
"""

from __future__ import annotations

import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final, Literal

from holdfast.errors import InputError

__all__ = ["MOST_BYTES", "Ran", "environment", "run"]

MOST_BYTES: Final = 4 << 20
"""What is kept of a command's output; of more, as much of the beginning as of the end."""

_KEYS: Final = re.compile(r"_API_?(?:KEY|TOKEN)S?$|^(?:ANTHROPIC|OPENAI)_AUTH_TOKEN$", re.IGNORECASE)
_PIECE: Final = 1 << 16
_TICK: Final = 0.05
_GRACE: Final = 1.0
_DRAIN: Final = 0.3
"""Seconds that are left to read what a shell that ended has printed; somebody else may hold its output open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a command went.

    Attributes:
        output: What it printed.
        status: Its exit status; None where it was stopped.
        ended: Whether it came to its own end, ran out of time, or was called off.
        dropped: How many bytes of the output's middle were not kept.
    """

    output: str
    status: int | None
    ended: Literal["exit", "timeout", "cancelled"]
    dropped: int = 0


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a command may know of our environment: all but the keys of model providers; no pager, no questions."""
    known = {name: value for name, value in environ.items() if not _KEYS.search(name)}
    return known | {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


def run(
    command: str,
    *,
    cwd: Path,
    seconds: float,
    cancel: Event | None = None,
    environ: Mapping[str, str] | None = None,
) -> Ran:
    """Run a command to its end, or until its time is over or `cancel` is set.

    Raises:
        InputError: It cannot even be started.
    """
    output = _Output()
    with _started(command, cwd, environment(os.environ if environ is None else environ)) as process:
        ended = _follow(process, output, deadline=time.monotonic() + seconds, cancel=cancel or Event())
    status = process.returncode if ended == "exit" else None
    return Ran(output=output.text(), status=status, ended=ended, dropped=output.dropped)


@contextmanager
def _started(command: str, cwd: Path, environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A running shell; at the end, and after any error or interruption, its whole group is gone."""
    shell = shutil.which("bash") or "/bin/sh"
    try:
        process = subprocess.Popen(  # noqa: S603 - to run what was asked for is the job
            [shell, "-c", command],
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"the command cannot be started: {error}") from error
    with process:
        try:
            yield process
        finally:
            _end(process)


def _follow(
    process: subprocess.Popen[bytes], output: _Output, *, deadline: float, cancel: Event
) -> Literal["exit", "timeout", "cancelled"]:
    """Take what is printed until the command is over, one way or another."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    left: float | None = None
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while left is None or time.monotonic() < left:
            if left is None and _is_over(process):
                left = time.monotonic() + _DRAIN
            if ready.select(_TICK):  # before any way out: what was printed by then is taken
                piece = os.read(pipe, _PIECE)
                output.take(piece)
                if not piece:
                    return _wait(process, deadline=deadline, cancel=cancel)
            if cancel.is_set():
                return "cancelled"
            if time.monotonic() >= deadline:
                return "timeout"
    return "exit"


def _wait(
    process: subprocess.Popen[bytes], *, deadline: float, cancel: Event
) -> Literal["exit", "timeout", "cancelled"]:
    """A command that closed its output may go on in silence."""
    while not _is_over(process):
        if cancel.wait(_TICK):
            return "cancelled"
        if time.monotonic() >= deadline:
            return "timeout"
    return "exit"


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether the shell has ended. It is not reaped yet: its number, and that of its group, are still its own."""
    if process.returncode is not None or not hasattr(os, "waitid"):  # macOS has it since Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the group: politely first, while the shell still runs, then for good."""
    if not _is_over(process):
        _signal(process, signal.SIGTERM)
        until = time.monotonic() + _GRACE
        while not _is_over(process) and time.monotonic() < until:
            time.sleep(_TICK)
    _signal(process, signal.SIGKILL)
    process.wait()


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@dataclass(slots=True)
class _Output:
    """What was printed: the beginning, and the end of what came after it."""

    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def take(self, piece: bytes) -> None:
        room = MOST_BYTES // 2 - len(self.head)
        self.head += piece[:room]
        self.tail += piece[room:]
        if len(self.tail) > MOST_BYTES:
            self._shorten()

    def _shorten(self) -> None:
        over = max(0, len(self.tail) - MOST_BYTES // 2)
        self.dropped += over
        del self.tail[:over]

    def text(self) -> str:
        self._shorten()
        gap = f"\n[... {self.dropped:,} bytes were not kept ...]\n".encode() if self.dropped else b""
        return bytes(self.head + gap + self.tail).decode("utf-8", "replace")
