"""How commands speak: JSON for programs, tables for people, and never a control code from someone else's text."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
from rich.console import Console

from holdfast.moments import minute

__all__ = ["as_json", "console", "emit_json", "human_bytes", "human_time", "human_tokens", "printable"]

_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_UNBROKEN: Final = 400

F = TypeVar("F", bound=Callable[..., Any])


def as_json(function: F) -> F:
    """Give a command its `--json` option."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def emit_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2, default=str).encode("utf-8", "replace"))


def console() -> Console:
    """Where tables and text for people go: no markup, so that nobody's text is taken for ours.

    What is not shown on a screen is not broken into its lines.
    """
    width = None if sys.stdout.isatty() else _UNBROKEN
    return Console(markup=False, highlight=False, emoji=False, width=width)


def printable(text: str) -> str:
    """A text without the characters that move a cursor, hide text or turn it round."""
    return _CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


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
