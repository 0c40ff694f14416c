"""Run shell commands and programs: each in its own process group, with a time limit, and with nothing left behind."""

from __future__ import annotations

import math
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Final, Literal

from holdfast.errors import InputError
from holdfast.programs import find_program, search_path
from holdfast.redaction import redact
from holdfast.store.keys import KEY
from holdfast.text import head

MAX_OUTPUT_BYTES: Final = 4 << 20
"""How much of a command's output is kept; of a longer one, the first and the last half of this."""
MAX_ERROR_CHARS: Final = 200
"""Characters of an error output that are passed on."""

_KEYS: Final = re.compile(r"_API_?(?:KEY|TOKEN)S?$|^(?:ANTHROPIC|OPENAI)_AUTH_TOKEN$", re.IGNORECASE)
_PIECE: Final = 1 << 16
_TICK: Final = 0.05
_GRACE: Final = 1.0
_DRAIN: Final = 0.3
"""Seconds to read the output of a shell that has ended: another process may hold it open."""

_Ending = Literal["exit", "timeout", "cancelled"]


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a command: without API keys and the key of the store, without pagers and prompts."""
    # The key of a store may be in any variable (`archive.encryption_key`), so that only its form tells.
    known = {name: value for name, value in environ.items() if not _KEYS.search(name) and not KEY.fullmatch(value)}
    return known | {"PAGER": "cat", "GIT_PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"}


class CommandError(Exception):
    """A program gave no usable answer; the text has the reason."""


def run_program(
    command: Sequence[str],
    *,
    cwd: Path,
    project: Path,
    environ: Mapping[str, str],
    seconds: float | None = None,
    stdin: bytes | None = None,
    cancel: Event | None = None,
) -> str:
    """Run a program without a shell and return what it prints; every failure is a `CommandError`.

    Its name, and the names of what it starts itself, such as the `node` of a script, are not looked up in the project.
    """
    shown = " ".join(command[:2])
    stop = cancel or Event()
    if stop.is_set():
        raise CommandError(f"`{shown}` was cancelled")
    known = {**environ, "PATH": search_path(environ, project=project)}
    try:
        process = _start(command, cwd, known, has_stdin=stdin is not None)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", error)
        raise CommandError(f"`{command[0]}` cannot be started: {why}") from error
    with process:
        try:
            output, errors = _communicate(process, stdin, seconds=seconds, cancel=stop)
        except subprocess.TimeoutExpired:
            why = "was cancelled" if stop.is_set() else f"took longer than {seconds:g} s"
            raise CommandError(f"`{shown}` {why}") from None
        finally:
            if process.returncode is None:
                _signal(process, signal.SIGKILL)  # with its children: the program may be a script that runs another
    if process.returncode:
        message = (errors.strip() or output).decode("utf-8", "replace").strip()
        last_line = message.split("\n")[-1].strip() or "no output"
        reason = head(redact(last_line), MAX_ERROR_CHARS)
        raise CommandError(f"`{shown}` failed with status {process.returncode}: {reason}")
    return output.decode("utf-8", "replace")


def _communicate(
    process: subprocess.Popen[bytes], stdin: bytes | None, *, seconds: float | None, cancel: Event
) -> tuple[bytes, bytes]:
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    while True:
        try:
            return process.communicate(stdin, timeout=min(_TICK, max(0.0, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            stdin = None  # it is sent once
            if cancel.is_set() or time.monotonic() >= deadline:
                raise


def _start(
    command: Sequence[str],
    cwd: Path,
    environ: Mapping[str, str],
    *,
    has_stdin: bool = False,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - running the user's command is the purpose
        list(command),
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.PIPE if has_stdin else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        start_new_session=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a shell command: stdout and stderr together, and its exit status; None if it was stopped."""

    output: str
    status: int | None
    ended: _Ending


def run(
    command: str, *, cwd: Path, seconds: float, cancel: Event | None = None, environ: Mapping[str, str] | None = None
) -> CommandResult:
    """Run a shell command until it ends, its time is over, or `cancel` is set. Then its whole group is killed."""
    known = environment(os.environ if environ is None else environ)
    shell = find_program("bash", environ=known, project=cwd) or "/bin/sh"
    try:
        process = _start([shell, "-c", command], cwd, known, stderr=subprocess.STDOUT)
    except (OSError, ValueError) as error:
        raise InputError(f"the command cannot be started: {error}") from error
    output = _Output()
    with process:
        try:
            ended = _follow(process, output, deadline=time.monotonic() + seconds, cancel=cancel or Event())
        finally:
            if not _has_ended(process):
                _signal(process, signal.SIGTERM)
                until = time.monotonic() + _GRACE
                while not _has_ended(process) and time.monotonic() < until:
                    time.sleep(_TICK)
            _signal(process, signal.SIGKILL)
            process.wait()
    status = process.returncode if ended == "exit" else None
    return CommandResult(output=output.text(), status=status, ended=ended)


def _follow(process: subprocess.Popen[bytes], output: _Output, *, deadline: float, cancel: Event) -> _Ending:
    """Read the output until the command ends or is stopped."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    drained = math.inf  # when to stop reading; unknown until the shell has ended
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while time.monotonic() < drained:
            if drained == math.inf and _has_ended(process):
                drained = time.monotonic() + _DRAIN
            if ready.select(_TICK):  # first: what was printed before a stop is kept
                piece = os.read(pipe, _PIECE)
                output.feed(piece)
                if not piece:
                    return _wait(process, deadline=deadline, cancel=cancel)
            if cancel.is_set():
                return "cancelled"
            if time.monotonic() >= deadline:
                return "timeout"
    return "exit"


def _wait(process: subprocess.Popen[bytes], *, deadline: float, cancel: Event) -> _Ending:
    """Wait for a command that has closed its output."""
    while not _has_ended(process):
        if cancel.wait(_TICK):
            return "cancelled"
        if time.monotonic() >= deadline:
            return "timeout"
    return "exit"


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the shell has ended. It is not reaped here, so that the id of its group is not reused."""
    if process.returncode is not None or not hasattr(os, "waitid"):  # macOS has it since Python 3.13
        return process.poll() is not None
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@dataclass(slots=True)
class _Output:
    """The output of a command: its beginning, and the end of what follows."""

    kept: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def feed(self, piece: bytes) -> None:
        self.kept += piece
        if len(self.kept) > 2 * MAX_OUTPUT_BYTES:
            self._shorten()

    def text(self) -> str:
        self._shorten()
        half = MAX_OUTPUT_BYTES // 2
        gap = f"\n[... {self.dropped:,} bytes were not kept ...]\n".encode() if self.dropped else b""
        return (self.kept[:half] + gap + self.kept[half:]).decode("utf-8", "replace")

    def _shorten(self) -> None:
        over = max(0, len(self.kept) - MAX_OUTPUT_BYTES)
        half = MAX_OUTPUT_BYTES // 2
        del self.kept[half : half + over]
        self.dropped += over
