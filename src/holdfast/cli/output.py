"""How commands speak: JSON for programs, tables for people, and never a control code from someone else's text.

Everything that a command prints goes through `printable`: what is echoed by `echo`, what is drawn by `SafeConsole`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from holdfast.moments import minute
from holdfast.text import ACTING, printable

if TYPE_CHECKING:
    from holdfast.cli.console import SafeConsole

__all__ = [
    "as_json",
    "at_words",
    "console",
    "echo",
    "emit_json",
    "human_bytes",
    "human_time",
    "human_tokens",
    "printable",
]

_IN_JSON: Final = re.compile(f"[{ACTING}]")

_WORD_END: Final = re.compile(r"[\s\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]")
"""White space, and the characters of scripts that are written without it."""

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


def console() -> SafeConsole:
    """Where tables and text for people go: no markup, so that nobody's text is taken for ours.

    What is not shown on a screen is not broken into its lines.
    """
    from holdfast.cli.console import standard_output  # noqa: PLC0415 - most of what is printed is plain text

    return standard_output()


_LONG_WORD: Final = 40


def at_words(text: str, first: int, last: int) -> tuple[int, int]:
    """Move the ends of an excerpt inwards, so that no word is cut; scripts without spaces are cut anywhere."""
    if first > 0 and _inside_word(text, first):
        after = _WORD_END.search(text, first, min(last, first + _LONG_WORD))
        first = after.start() if after else first
    if last < len(text) and _inside_word(text, last):
        starts = [match.end() for match in _WORD_END.finditer(text, max(first, last - _LONG_WORD), last)]
        last = starts[-1] if starts else last
    return first, last


def _inside_word(text: str, place: int) -> bool:
    return _WORD_END.search(text, place - 1, place + 1) is None


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
