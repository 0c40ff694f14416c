"""What the keyboard does while no prompt is there."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["audible", "drop_input", "silent"]

_QUIET_SECONDS: Final = 0.15
_MAX_ROUNDS: Final = 100


def drop_input(descriptor: int) -> None:
    """Drop what was typed or pasted so far, until nothing has come in for a moment. Without a terminal do nothing."""
    try:
        import termios  # noqa: PLC0415 - not every system has it
    except ImportError:
        return
    for _ in range(_MAX_ROUNDS if os.isatty(descriptor) else 0):
        termios.tcflush(descriptor, termios.TCIFLUSH)
        if not select.select([descriptor], [], [], _QUIET_SECONDS)[0]:
            return


@contextmanager
def silent() -> Iterator[None]:
    """What is typed waits for the next prompt and is not shown, Ctrl-C too: between two prompts it is not lost."""
    with _without("ECHO", "ICANON", "ISIG"):
        yield


@contextmanager
def audible() -> Iterator[None]:
    """Ctrl-C is heard at once, though the rest waits: for work that can be broken off."""
    with _without("ECHO", "ICANON"):
        yield


@contextmanager
def _without(*flags: str) -> Iterator[None]:
    """The terminal without some of its local modes, and with the others."""
    try:
        import termios  # noqa: PLC0415 - not every system has it
    except ImportError:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    changed = termios.tcgetattr(sys.stdin)
    for flag in ("ECHO", "ICANON", "ISIG"):
        changed[3] |= getattr(termios, flag)
    for flag in flags:
        changed[3] &= ~getattr(termios, flag)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
