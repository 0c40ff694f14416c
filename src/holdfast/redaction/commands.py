"""Find the secrets in the options and arguments of known programs: `mysql -p…`, `sshpass -p …`."""

import re
from collections.abc import Iterator
from functools import partial
from typing import Final

from holdfast.patterns import compile_once, load
from holdfast.redaction.looks import is_password
from holdfast.redaction.notations import scan
from holdfast.redaction.secret import Secret

__all__ = ["find_in_commands"]

_STEP: Final = 64  # characters between two commands that are read
_MIN_NUMBER_DIGITS: Final = 6  # a shorter number is a port or a count


def find_in_commands(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets in the options and arguments of known programs. `lowered` is the text in lower case."""
    for trigger, programs in load("secrets")["commands"].items():
        if trigger in lowered:
            for word, pattern in programs.items():
                option = compile_once(rf"(?<![A-Za-z0-9_]){pattern}")
                yield from scan(text, lowered, word, partial(_read_option, option), step=_STEP)


def _read_option(option: re.Pattern[str], text: str, start: int, _: str) -> Secret | None:
    match = option.match(text, start)
    value = match["secret"] if match else ""
    is_count = value.isdigit() and len(value) < _MIN_NUMBER_DIGITS
    if match is None or is_count or not is_password(value):
        return None
    return Secret("password", *match.span("secret"))
