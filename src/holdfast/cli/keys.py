"""What the keyboard does while no prompt is there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["audible", "silent"]


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
