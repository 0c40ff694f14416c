"""How commands speak: JSON for programs, tables for people, and never a control code from someone else's text.

Everything that a command prints goes through `printable`: what is echoed by `echo`, what is drawn by `SafeConsole`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from holdfast.moments import minute

__all__ = [
    "SafeConsole",
    "as_json",
    "console",
    "echo",
    "emit_json",
    "human_bytes",
    "human_time",
    "human_tokens",
    "printable",
]

_ACTING: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069"
_CONTROL: Final = re.compile(f"[{_ACTING}\ud800-\udfff]")
_IN_JSON: Final = re.compile(f"[{_ACTING}]")

_UNBROKEN: Final = 400

F = TypeVar("F", bound=Callable[..., Any])


def as_json(function: F) -> F:
    """Give a command its `--json` option."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def emit_json(value: Any) -> None:
    """Print a value as JSON; what a terminal would act on is escaped."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    click.echo(_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8", "replace"))


def echo(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text."""
    click.echo(printable(text), err=err, nl=nl)


class SafeConsole(Console):
    """A console that replaces control characters in everything that is drawn on it, whoever forgot to.

    Its own codes, which are styles and moves of the cursor, are no text and pass.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as `Console` does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def console() -> SafeConsole:
    """Where tables and text for people go: no markup, so that nobody's text is taken for ours.

    What is not shown on a screen is not broken into its lines.
    """
    width = None if sys.stdout.isatty() else _UNBROKEN
    return SafeConsole(markup=False, highlight=False, emoji=False, width=width)


def printable(text: str, *, one_line: bool = False) -> str:
    """Replace the characters that move a cursor, hide text or turn it round; in a name also line breaks and tabs."""
    shown = _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))
    return shown.replace("\n", " ").replace("\t", " ") if one_line else shown


def human_tokens(count: float) -> str:
    """A count as people say it: 950, 9.5k, 182k, 1.2m."""
    if count < 1_000:
        return f"{count:.0f}"
    if count < 10_000:
        return f"{count / 1_000:.1f}k"
    return f"{count / 1_000:.0f}k" if count < 1_000_000 else f"{count / 1_000_000:.1f}m"


def human_bytes(size: float) -> str:
    """A size as people say it."""
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


def human_time(milliseconds: int | None) -> str:
    """A moment in UTC, to the minute; nothing where it is not known."""
    return minute(milliseconds)
