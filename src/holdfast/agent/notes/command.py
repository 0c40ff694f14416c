"""A program that is asked again and again: arguments as they are, no shell, a time limit, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock
from typing import Final

from holdfast.redact import redact
from holdfast.text import head

__all__ = ["Command", "CommandError"]

_TICK: Final = 0.1
_TOLD: Final = 200
"""Characters of a complaint that are passed on."""


class CommandError(Exception):
    """A program gave no answer that can be used; the text says why."""


@dataclass(slots=True)
class Command:
    """A program, the folder that it runs in, and all that it knows of the environment. Threads may share it."""

    program: str
    folder: Path
    environ: Mapping[str, str]
    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False

    def run(
        self, *arguments: str, seconds: float | None, given: bytes | None = None, cancel: Event | None = None
    ) -> str:
        """What the program prints; `given` is what it reads, `cancel` ends it when set.

        Raises:
            CommandError: It could not be started, took longer than it was given, was cancelled, or failed.
        """
        process = self._started(arguments, reads=given is not None)
        with process:
            try:
                printed, complaint = self._communicate(process, given, seconds=seconds, cancel=cancel)
            except subprocess.TimeoutExpired:
                limit = "was cancelled" if cancel is not None and cancel.is_set() else f"took longer than {seconds:g} s"
                raise CommandError(f"`{self._shown(arguments)}` {limit}") from None
            finally:
                _end(process)
                with self._lock:
                    self._running.discard(process)
        if process.returncode:
            said = _last_line(complaint) or _last_line(printed) or "and said nothing"
            raise CommandError(f"`{self._shown(arguments)}` failed with status {process.returncode}: {said}")
        return printed.decode("utf-8", "replace")

    def _communicate(
        self, process: subprocess.Popen[bytes], given: bytes | None, *, seconds: float | None, cancel: Event | None
    ) -> tuple[bytes, bytes]:
        if cancel is None:
            return process.communicate(given, timeout=seconds)
        while True:
            try:
                return process.communicate(given, timeout=_TICK)
            except subprocess.TimeoutExpired:
                given = None  # it is sent once
                if cancel.is_set():
                    raise

    def _started(self, arguments: tuple[str, ...], *, reads: bool) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise CommandError(f"`{self.program}` was called off")
            try:
                process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell
                    [self.program, *arguments],
                    cwd=self.folder,
                    env=dict(self.environ),
                    stdin=subprocess.PIPE if reads else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or error
                raise CommandError(f"`{self.program}` cannot be started: {why}") from error
            self._running.add(process)
            return process

    def _shown(self, arguments: tuple[str, ...]) -> str:
        return " ".join((self.program, *arguments[:1]))

    def stop(self) -> None:
        """End what runs; nothing is started any more."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a program with all that it has started: `qmd` may be a script that runs another."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def _last_line(printed: bytes) -> str:
    lines = printed.decode("utf-8", "replace").split("\n")
    return head(redact(next((line.strip() for line in reversed(lines) if line.strip()), "")), _TOLD)
