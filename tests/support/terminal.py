"""`holdfast chat` in a terminal of its own."""

from __future__ import annotations

import os
import re
import signal
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pexpect
import ptyprocess

from support.fork_server import Request
from support.forked import can_fork, fork
from support.waiting import PATIENCE, until

PROMPT = "› "
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[=>])")


if TYPE_CHECKING:
    _Base = pexpect.spawn[str]
else:
    _Base = pexpect.spawn  # has no types as it runs


class _Spawn(_Base):
    """A process behind a pseudo-terminal that is forked from one with all imports."""

    def _spawnpty(self, args: list[bytes], **options: Any) -> ptyprocess.PtyProcess:
        if not can_fork():
            return super()._spawnpty(args, **options)  # type: ignore[misc]  # has no types
        ours, theirs = os.openpty()
        rows, columns = options.get("dimensions") or (24, 80)
        termios.tcsetwinsize(theirs, (rows, columns))
        arguments = [argument.decode() for argument in args[3:]]
        request = Request(arguments=arguments, environ=dict(self.env or {}), folder=str(self.cwd), has_terminal=True)
        process = fork(request, [theirs] * 3)
        os.close(theirs)
        return ptyprocess.PtyProcess(process, ours)


def spawn_holdfast(*arguments: str, env: dict[str, str], cwd: Path, dimensions: tuple[int, int]) -> Any:
    """Start `holdfast` in a terminal with this many rows and columns."""
    return _Spawn(
        sys.executable,
        ["-m", "holdfast", *arguments],
        env=env,
        cwd=str(cwd),
        dimensions=dimensions,
        encoding="utf-8",
        codec_errors="replace",
        timeout=PATIENCE,
    )


class Terminal:
    """A child process behind a pseudo-terminal.

    Args:
        folder: Its home, its memory and its workspace are in there.
        arguments: What follows `holdfast chat`.
        size: Rows and columns.
        environ: Further variables.
    """

    def __init__(
        self, folder: Path, *arguments: str, size: tuple[int, int] = (30, 100), environ: dict[str, str] | None = None
    ) -> None:
        own = {
            "HOME": str(folder),
            "HOLDFAST_HOME": str(folder / "memory"),
            "HOLDFAST_EMBEDDING__PROVIDER": "none",
            "HOLDFAST_RECALL__DEADLINE_MS": "600000",  # on a busy machine memory may be slow
            "HOLDFAST_AGENT__SESSION__RESET__MODE": "never",  # it may be four in the morning
            "PATH": os.environ["PATH"],
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PROMPT_TOOLKIT_NO_CPR": "1",  # nobody here could tell where the cursor is
            **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")},
            **(environ or {}),
        }
        (folder / "work").mkdir(parents=True, exist_ok=True)
        self.is_plain = "--plain" in arguments
        command = ["chat", "--workspace", str(folder / "work"), *arguments]
        self.child: Any = spawn_holdfast(*command, env=own, cwd=folder, dimensions=size)
        self.child.delaybeforesend = None
        self.seen: list[str] = []

    def __enter__(self) -> Self:
        if not self.is_plain:
            self.wait(PROMPT)
            self.wait("\x1b[?2004h")  # now it edits
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)

    def wait(self, text: str) -> str:
        """Wait until a text is on the screen; what came before it."""
        self.child.expect_exact(text)
        self.seen.append(self.child.before + self.child.after)
        return readable(self.seen[-1])

    def type(self, line: str) -> None:
        """Type a line."""
        self.child.send(line + ("\n" if self.is_plain else "\r"))

    def say(self, line: str, *, until: str) -> str:
        """Type a line, and wait for words of the answer and the next prompt."""
        self.type(line)
        before = self.wait(until)
        return before + ("" if self.is_plain else self.wait(PROMPT))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.child.sendintr()

    def kill(self) -> None:
        """End it as `kill -9` does."""
        self.child.kill(signal.SIGKILL)
        self.child.wait()

    def leave(self) -> int:
        """Ctrl-D on an empty line, and its exit code."""
        if self.is_plain:
            self.child.sendeof()
            return self.end()
        until(self._leave_prompt)
        return self._read_exit_code()

    def _leave_prompt(self) -> bool:
        """Press Ctrl-D, and return whether the process ends: a key that comes while the prompt is drawn is lost."""
        self.child.send("\x15")  # Ctrl-U: keys that answered no question wait at the prompt
        self.child.sendeof()
        return bool(self.child.expect([pexpect.TIMEOUT, pexpect.EOF], timeout=1))

    def end(self) -> int:
        """Its exit code, waited for."""
        self.child.expect(pexpect.EOF)
        return self._read_exit_code()

    def _read_exit_code(self) -> int:
        self.seen.append(self.child.before)
        self.child.wait()  # the terminal is closed a moment before it has ended
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -self.child.signalstatus)


def readable(text: str) -> str:
    """What was written, without what moves the cursor and colours."""
    return _ESCAPES.sub("", text)
