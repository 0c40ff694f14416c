"""A host in a terminal, as a person uses it: what is typed, and what is on the screen."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pexpect

from support.terminal import readable
from support.waiting import until

SECONDS_A_KEY = 0.03
END = "\x1b[F"
MAX_SHOWN = 2_000
"""Characters of the screen in the error of a wait that was in vain."""
_QUESTIONS = (
    (re.compile(r"\x1b\[6n"), "\x1b[1;1R"),
    (re.compile(r"\x1b\[0?c"), "\x1b[?62;22c"),
    (re.compile(r"\x1b\]10;\?"), "\x1b]10;rgb:ffff/ffff/ffff\x1b\\"),
    (re.compile(r"\x1b\]11;\?"), "\x1b]11;rgb:0000/0000/0000\x1b\\"),
)
"""What programs ask a terminal at their start, and wait for: the place of the cursor, its kind, its colours."""


class HostTerminal:
    """A program behind a pseudo-terminal, which is read all the time, as a terminal does."""

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], folder: Path) -> None:
        self.child: Any = pexpect.spawn(
            command[0],
            list(command[1:]),
            env={**environ, "TERM": "xterm-256color"},
            cwd=str(folder),
            dimensions=(50, 160),
            encoding="utf-8",
            codec_errors="replace",
        )
        self.child.delaybeforesend = None
        self._raw = ""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.terminate(force=True)
        self._reader.join()
        self.child.close(force=True)

    @property
    def text(self) -> str:
        """Everything that was shown so far, without spaces: programs move the cursor in place of them."""
        return re.sub(r"\s+", "", readable(self._raw))

    def press(self, keys: str) -> None:
        """Press keys."""
        self.child.send(keys)

    @property
    def place(self) -> int:
        """The end of what was shown so far."""
        return len(self.text)

    def enter(self, line: str, *, shown: str = "") -> None:
        """Type a line, and press return when it, or what is expected then, is on the screen.

        Keys that come faster than a person types are taken for pasted text, in which return begins a new line. A busy
        host reads the last key and return at once, however slowly they were pressed; a key that is no text, between
        them, ends what it takes for pasted.
        """
        place = self.place
        for key in line:
            self.press(key)
            time.sleep(SECONDS_A_KEY)
        if shown:
            self.wait(shown, after=place)
        self._until(lambda: _is_typed(line, self.text[place:]))
        self.press(END)
        self.press("\r")

    def wait(self, *texts: str, after: int = 0, without: str = "") -> None:
        """Wait until texts are shown, each after the one before it, and another one not between them.

        Some programs draw all of the screen again and again: what is not between its first line and its last one is
        no longer on it.
        """
        between = f"(?:(?!{_make_pattern(without)}).)*" if without else ".*"
        wanted = re.compile(between.join(map(_make_pattern, texts)))
        self._until(lambda: wanted.search(self.text, after))

    def _until(self, happened: Callable[[], object]) -> None:
        try:
            until(happened)
        except AssertionError as error:
            raise AssertionError(f"{error}; at the end of the screen: {self.text[-MAX_SHOWN:]}") from None

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.child.child_fd, 65536).decode("utf-8", "replace")
            except OSError:
                return
            if not data:
                return
            self._raw += data
            for question, answer in _QUESTIONS:
                for _ in question.findall(data):
                    os.write(self.child.child_fd, answer.encode())


def _make_pattern(text: str) -> str:
    return re.escape(re.sub(r"\s+", "", text))


def _is_typed(line: str, shown: str) -> bool:
    """Whether the keys of a line are on the screen in their order; what moves on the screen may be between them."""
    rest = iter(shown)
    return all(key in rest for key in line.replace(" ", ""))
