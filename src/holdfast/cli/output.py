"""The output of commands: JSON, plain text, and human-readable figures; and `drop_input`, for a question to the user.

All text goes through `printable`, which removes control codes: `echo` and `SafeConsole` call it. `holdfast version` is
here because it needs nothing else.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import unicodedata
from typing import Any, Final

import click

from holdfast import __version__
from holdfast.cli.options import as_json
from holdfast.patterns import compile_once
from holdfast.text import ACTING, plural, printable

_WORD_END: Final = r"[\s\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]"
"""White space, and the characters of scripts that are written without it."""
_PIECE: Final = rf"{_WORD_END}\s*|[^\s\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\uff00-\uffef]+\s*"
"""What stays on one line: a word, or a character of such a script, with the white space after it."""
QUIET_SECONDS: Final = 0.15
MAX_DROP_ROUNDS: Final = 100


def emit_json(value: Any, *, err: bool = False) -> None:
    """Print a value as JSON, with control characters escaped; to standard error on one line."""
    text = json.dumps(value, ensure_ascii=False, indent=None if err else 2, default=str)
    safe = compile_once(f"[{ACTING}]").sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    click.echo(safe.encode("utf-8", "replace"), err=err)


def echo(text: str = "", *, err: bool = False, nl: bool = True, indent: int = 0, verbatim: bool = False) -> None:
    """Print text without its control characters. In a terminal it is wrapped at its words unless it is `verbatim`.

    `indent` is the number of blanks before the further lines of one that is wrapped.
    """
    shown = printable(text)
    width = None if verbatim else terminal_width(err=err)
    if width is not None:
        shown = wrap(shown, width=width, indent=indent)
    click.echo(shown, err=err, nl=nl)


def terminal_width(*, err: bool = False) -> int | None:
    """Return the columns of the terminal of standard output, or error; None if that is a pipe or a file."""
    stream = sys.stderr if err else sys.stdout
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrap(text: str, *, width: int, indent: int = 0) -> str:
    """Wrap the lines of a text at their blanks, and between characters of scripts without blanks.

    A word that is longer than the width, such as a path, stays whole. Codes of `click.style` take no room.
    """
    lines: list[str] = []
    for line in text.split("\n"):
        lines += _wrap_line(line, width=width, indent=indent)
    return "\n".join(lines)


def _wrap_line(line: str, *, width: int, indent: int) -> list[str]:
    lines: list[str] = []
    current = ""
    used = 0
    for piece in compile_once(_PIECE).findall(line):
        columns = count_columns(click.unstyle(piece.rstrip()))
        if used + columns > width and current.strip():
            lines.append(current.rstrip())
            current = " " * indent
            used = indent
        current += piece
        used += count_columns(click.unstyle(piece))
    return [*lines, current]


def count_columns(text: str) -> int:
    """Count the columns that a text takes in a terminal: two for a wide character, none for a combining one."""
    if text.isascii():
        return len(text)
    columns = 0
    for character in text:
        if unicodedata.east_asian_width(character) in "WF":
            columns += 2
        elif not unicodedata.combining(character):
            columns += 1
    return columns


def fit(text: str, columns: int, *, from_end: bool = False) -> str:
    """Shorten a text to some columns: its beginning, or with `from_end` its end."""
    if count_columns(text) <= columns:
        return text
    kept = text
    while kept and count_columns(kept) >= columns:
        kept = kept[1:] if from_end else kept[:-1]
    return f"…{kept.lstrip()}" if from_end else f"{kept.rstrip()}…"


def print_result(data: Any, text: str, *, as_json: bool, err: bool = False) -> None:
    """Print the result of a command: as JSON, or as text."""
    if as_json:
        emit_json(data)
    else:
        echo(text, err=err)


def echo_styled(text: str, *, indent: int = 0) -> None:
    """Print a line of printable text with codes of `click.style`, which only a terminal with colours gets.

    A terminal gets it wrapped at its words; `indent` is the number of blanks before further lines.
    """
    width = terminal_width()
    if width is not None:
        text = wrap(text, width=width, indent=indent)
    click.echo(text, color=False if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" else None)


_MAX_WORD_CHARS: Final = 40


def align_to_words(text: str, first: int, last: int) -> tuple[int, int]:
    """Move the ends of an excerpt inwards to word boundaries; scripts without spaces are cut anywhere."""
    word_end = compile_once(_WORD_END)
    if first > 0 and not word_end.search(text, first - 1, first + 1):
        after = word_end.search(text, first, min(last, first + _MAX_WORD_CHARS))
        first = after.start() if after else first
    if last < len(text) and not word_end.search(text, last - 1, last + 1):
        starts = [match.end() for match in word_end.finditer(text, max(first, last - _MAX_WORD_CHARS), last)]
        last = starts[-1] if starts else last
    return first, last


def human_bytes(size: float) -> str:
    """Format a size in bytes: 950 B, 12 kB, 3 MB, 1.2 GB."""
    for unit in ("B", "kB", "MB"):
        if size < 1_000:
            return f"{size:.0f} {unit}"
        size /= 1_000
    return f"{size:.1f} GB"


def join_counts(**counts: int) -> str:
    """Format the counts that are not zero with their nouns: `1 fact and 2 messages`."""
    return " and ".join(plural(count, what) for what, count in counts.items() if count)


def drop_input(descriptor: int) -> None:
    """Drop what was typed or pasted so far, until nothing comes in for a moment. Without a terminal do nothing."""
    try:
        import termios  # noqa: PLC0415 - not every system has it
    except ImportError:
        return
    for _ in range(MAX_DROP_ROUNDS if os.isatty(descriptor) else 0):
        termios.tcflush(descriptor, termios.TCIFLUSH)
        if not select.select([descriptor], [], [], QUIET_SECONDS)[0]:
            return


@click.command()
@as_json
def version(*, as_json: bool) -> None:
    """Print the version."""
    import platform  # noqa: PLC0415 - only for this

    data = {"holdfast": __version__, "python": platform.python_version()}
    print_result(data, f"holdfast {__version__}", as_json=as_json)
