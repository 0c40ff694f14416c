"""Decide whether a value is a secret, or a word, a piece of code or a placeholder.

The functions test one short value that a key, a header or a flag names as a secret.
"""

import re
from typing import Final

from holdfast.patterns import compile_once, load

_MIN_PASSWORD_CHARS: Final = 4
_MIN_NUMBER_DIGITS: Final = 6
_MIN_TOKEN_CHARS: Final = 8
_MIN_BARE_TOKEN_CHARS: Final = 10
_LONG_TOKEN_CHARS: Final = 16
_MIN_DISTINCT_CHARS: Final = 6


def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["looks"][name])


def is_genuine(token: str) -> bool:
    """Whether a token in a known format is real, unlike `sk-xxxxxxxx…` or `AKIA…EXAMPLE`."""
    return len(set(token[-20:])) >= _MIN_DISTINCT_CHARS and not _pattern("filler").search(token)


def is_password(value: str, *, literal: bool = True) -> bool:
    """Whether the value of a password-like key is a password.

    `literal` is set where the syntax shows a literal: a quoted string, an environment line, a JSON value.
    Elsewhere a name, a type or a sentence may follow the key, so the value must contain a digit or a sign.
    """
    if len(value) < _MIN_PASSWORD_CHARS or (_is_label(value) if literal else _is_name(value)):
        return False
    return not _is_placeholder(value)


def is_token(value: str, *, literal: bool = True) -> bool:
    """Whether the value of a key that names a token or a secret is one: long enough, and not made of words."""
    shortest = _MIN_TOKEN_CHARS if literal else _MIN_BARE_TOKEN_CHARS
    if len(value) < shortest or value.isdigit() or not value.isascii() or _is_words(value):
        return False
    runs = len(_pattern("runs").findall(value)) if len(value) >= _LONG_TOKEN_CHARS else 0
    # Random characters alternate between digits, upper and lower case.
    is_mixed = literal or _pattern("digits").search(value) or runs * 4 > len(value) + 4
    return bool(is_mixed) and not _is_placeholder(value)


def is_random(value: str) -> bool:
    """Whether a value has digits, upper and lower case and no words, for places where nothing else shows a secret."""
    return _pattern("random").match(value) is not None and _pattern("word").match(value) is None


def is_cookie(value: str) -> bool:
    """Whether one of the cookies of a header (`name=value; name=value`) is a token."""
    return any(is_token(pair.partition("=")[2]) for pair in value.split(";")) and not _pattern("filler").search(value)


def _is_placeholder(value: str) -> bool:
    """Whether a value is to be filled in, looked up, or not a literal."""
    if len(set(value)) == 1 or any(map(str.isspace, value)):
        return True
    whole = any(_pattern(name).fullmatch(value) for name in ("stand-in", "reference"))
    return whole or bool(_pattern("address").match(value) or _pattern("blank").search(value))


def _is_label(value: str) -> bool:
    """Whether a value is the label of a form field (`Password`, `密码`), the name of an algorithm, or a path."""
    if value.isalpha() and not (value.isascii() and value.islower()):
        return not value.isascii() or _is_words(value)
    return bool(_pattern("algorithm").fullmatch(value)) or (("." in value or "/" in value) and _is_words(value))


def _is_name(value: str) -> bool:
    """Whether a value is a name in code (`user.password`, `args.pwd1`), an algorithm, a path, or a count."""
    if "." in value or "/" in value:
        return _is_words(value)
    if value.isdigit():
        return len(value) < _MIN_NUMBER_DIGITS
    return value.replace("_", "").isalpha() or _pattern("algorithm").fullmatch(value) is not None


def _is_words(value: str) -> bool:
    """Whether a value is only words and short numbers, as names, paths, versions and slugs are."""
    return _pattern("words").fullmatch(value) is not None
