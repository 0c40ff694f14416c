"""Find out whether a value is a secret: random or chosen by a person, and not a word, a name in code or a placeholder.

How much a value has to show depends on what names it: the quoted value of `password` may be a word, a value in a
sentence about a token must be random. The patterns are in `patterns/secrets.toml`, table `looks`.
"""

import re
from functools import cache
from typing import Final

from holdfast.patterns import compile_once, load

__all__ = [
    "has_words",
    "is_chosen",
    "is_code",
    "is_cookie",
    "is_genuine",
    "is_mixed",
    "is_password",
    "is_phrase",
    "is_prefixed",
    "is_random",
    "is_shuffled",
    "is_token",
    "is_unguessable",
]

_MIN_PASSWORD_CHARS: Final = 4
_MIN_NUMBER_DIGITS: Final = 6  # a shorter number is a port or a count
_MIN_TOKEN_CHARS: Final = 8
_MIN_BARE_TOKEN_CHARS: Final = 10
_LONG_TOKEN_CHARS: Final = 16
_MIN_RANDOM_CHARS: Final = 16
_MIN_DISTINCT_CHARS: Final = 6
_MIN_LETTERS_IN_PIECES: Final = 3.4  # of names in code, on average; random letters have 2 to 3


@cache
def _look(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["looks"][name])


def is_genuine(token: str) -> bool:
    """Return whether a token in a known format is real, unlike `sk-xxxxxxxx…` or `AKIA…EXAMPLE`."""
    return len(set(token[-20:])) >= _MIN_DISTINCT_CHARS and not _look("filler").search(token)


def is_password(value: str, *, literal: bool = True) -> bool:
    """Return whether the value of a password-like key is a password.

    `literal` is set if the syntax shows a literal: a quoted string, an environment line, a JSON value.
    Elsewhere a name, a type or a sentence may follow the key, so the value must contain a digit or a sign.
    """
    if len(value) < _MIN_PASSWORD_CHARS or (_is_label(value) if literal else _is_name(value)):
        return False
    return not _is_placeholder(value)


def is_token(value: str, *, literal: bool = True) -> bool:
    """Return whether the value of a key that names a token or a secret is one: long enough, and not made of words."""
    shortest = _MIN_TOKEN_CHARS if literal else _MIN_BARE_TOKEN_CHARS
    if len(value) < shortest or value.isdigit() or not value.isascii() or _is_words(value):
        return False
    if not literal and _look("identifier").fullmatch(value):
        return False
    runs = len(_look("runs").findall(value)) if len(value) >= _LONG_TOKEN_CHARS else 0
    # Random characters alternate between digits, upper and lower case.
    is_mixed = literal or _look("digits").search(value) or runs * 4 > len(value) + 4
    return bool(is_mixed) and not _is_placeholder(value)


def is_random(value: str) -> bool:
    """Return whether a value has digits, upper and lower case and no words, if nothing else indicates a secret."""
    if _look("random").match(value) is None or _look("word").match(value):
        return False
    return _look("identifier").fullmatch(value) is None and not _is_placeholder(value)


def is_prefixed(value: str) -> bool:
    """Return whether what follows the prefix of a vendor is random, and not the rest of a name."""
    if not is_genuine(value) or _look("sequence").search(value):
        return False
    last = _look("last part").sub("", value)
    is_one_case = last == last.lower() or last == last.upper()
    return not _is_words(value) or not is_one_case


def is_mixed(value: str) -> bool:
    """Return whether a value has digits, upper and lower case, and is not made of words."""
    has_all = _look("random").match(value) is not None or is_shuffled(_look("last part").sub("", value))
    return has_all and is_prefixed(value)


def is_unguessable(value: str) -> bool:
    """Return whether a value is long and random, in any alphabet: for ambiguous names such as `X_KEY`."""
    if len(value) < _MIN_RANDOM_CHARS or len(set(value)) <= _MIN_DISTINCT_CHARS or _look("public").match(value):
        return False
    if _look("plain").fullmatch(value) is None or _look("sequence").search(value):
        return False
    return is_token(value, literal=False) and is_genuine(value)


def has_words(value: str) -> bool:
    """Return whether a part of a value reads like a word."""
    return _look("spoken").match(value) is not None


def is_chosen(value: str) -> bool:
    """Return whether a word in a sentence is no word but a password: letters with digits or signs among them."""
    return _look("chosen").fullmatch(value) is not None and is_password(value, literal=False)


def is_phrase(value: str) -> bool:
    """Return whether a value is a passphrase: several words that are no sentence."""
    return _look("phrase").fullmatch(value) is not None


def is_code(value: str) -> bool:
    """Return whether a value is a PIN or a one-time code."""
    return _look("code").fullmatch(value) is not None and not _look("counting").search(value)


def is_cookie(value: str) -> bool:
    """Return whether one of the cookies of a header (`name=value; name=value`) is a token."""
    return any(is_token(pair.partition("=")[2]) for pair in value.split(";")) and not _look("filler").search(value)


def _is_placeholder(value: str) -> bool:
    """Return whether a value is to be filled in, looked up, or not a literal."""
    if len(set(value)) == 1 or any(map(str.isspace, value)):
        return True
    word = value.rstrip("?!:")  # a type that may be missing, a prompt
    whole = _look("stand-in").fullmatch(word) or any(_look(name).fullmatch(value) for name in ("reference", "stamp"))
    return bool(whole) or bool(_look("address").match(value) or _look("blank").search(value))


def _is_label(value: str) -> bool:
    """Return whether a value is the label of a form field (`Password`, `密码`), the name of an algorithm, or a path."""
    if value.isalpha() and not (value.isascii() and value.islower()):
        return not value.isascii() or _is_words(value)
    return bool(_look("algorithm").fullmatch(value)) or (("." in value or "/" in value) and _is_words(value))


def _is_name(value: str) -> bool:
    """Return whether a value is a name in code (`user.password`, `args.pwd1`), an algorithm, a path, or a count."""
    if "." in value or "/" in value or ":" in value:
        return _is_words(value)
    if value.isdigit():
        return len(value) < _MIN_NUMBER_DIGITS
    if is_shuffled(value):
        return False
    return value.replace("_", "").isalpha() or _look("algorithm").fullmatch(value) is not None


def is_shuffled(value: str) -> bool:
    """Return whether a value of letters alone has upper and lower case in no order, unlike a name in code."""
    if len(value) < _MIN_BARE_TOKEN_CHARS or not value.isalpha() or value.islower() or value.isupper():
        return False
    return len(value) < _MIN_LETTERS_IN_PIECES * len(_look("pieces").findall(value))


def _is_words(value: str) -> bool:
    """Return whether a value is only words and short numbers, as names, paths, versions and slugs are."""
    return _look("words").fullmatch(value) is not None
