"""Does a value look like a secret, or like a word, a piece of code or a placeholder?

Plain tests on one short value that something else (a key, a header, a flag) has already called a secret.
"""

import re
from typing import Final

from holdfast.redact.patterns import compiled

__all__ = ["PATTERNS", "is_cookie", "is_genuine", "is_password", "is_random", "is_token"]

PATTERNS: Final = {
    # what stands where a secret would: a type, a label, something to be filled in
    "stand-in": (
        r"(?i)any|access|api[-_]?key|auth|base64|basic|bearer|bool|boolean|bytes?|char|changeme|const|credentials?|default"
        r"|disabled|dummy|empty|enabled|false|field|foobar|hidden|int|integer|invalid|key|keychain|keyring|load|masked"
        r"|missing|(?:my|new-|current-)?(?:pass|password)|new|nil|none|null|number|object|old|optional|passphrase|passwd"
        r"|prompt|pwd|read|required|reset|sample|secret|self|set|str|string|strong|test|text|this|todo|token|true|undefined"
        r"|unknown|unset|update|user|value|void|weak|write|yes|you|your"
    ),
    "blank": (
        r"(?i)your[-_ ]|[-_ ]here\b|example|placeholder|change[-_ ]?(?:me|it|this)|replace[-_ ]?(?:me|this|with)"
        r"|insert[-_ ]|redacted|x{5}|\*{3}|\.{3}|…|\$\{|\{\{|\$\(|process\.env|os\.(?:environ|getenv)|getenv"
        r"|import\.meta"
    ),
    # f(x), $VAR, {x}, <x>, [x], %VAR%, #{x}, *alias, !Tag, --flag
    "reference": (
        r"[A-Za-z_][\w.]{0,200}\(.*\)|\$(?:[A-Z_][A-Z0-9_]*+|[a-z_]++)|\$?[{(\[].*[})\]]|[<\[].*|%\w+%|\W*%[a-z]\W*|%\(.*"
        r"|#\{.*|[@&*!][A-Za-z_]+|--?[a-z][a-z-]*"
    ),
    "filler": r"(?i)your[-_]|example|placeholder|redacted|x{6}|\*{3}|\.{3}",
    "algorithm": r"(?i)(?:sha|md|utf|base|argon|hs|rs|es|ps|aes|rsa|ed|x|int|uint|v)[-_]?\d{1,5}",
    "address": r"[A-Za-z][A-Za-z0-9+.-]{1,20}://",
    "random": r"(?=.{0,99}?[0-9])(?=.{0,99}?[A-Z])(?=.{0,99}?[a-z]).{8}",
    "word": r"(?=.{0,250}?[-_.]).{0,250}?[a-z]{5}|.{0,250}?[a-z]{8}",
    "digits": r"[0-9][^0-9]*+[0-9]",
    "runs": r"[0-9]++|[A-Z]++|[^0-9A-Z]++",
    # words of a name, path or slug: word, Word, WORD, aName, APIName, each with a short number behind
    "words": r"(?:(?:[A-Z]*+s?|[A-Z]?[a-z]*+(?:[A-Z]{1,5}+[a-z]{2,}+)*+(?:[A-Z]{2,5}+)?)\d{0,4}(?:[-_./:@+=~]|\Z))*+",
}
"""What a value is compared with; values are short, and each pattern is tried once on one."""

_SHORTEST_PASSWORD: Final = 4
_SHORTEST_NUMBER: Final = 6
_SHORTEST_TOKEN: Final = 8
_SHORTEST_BARE_TOKEN: Final = 10
_LONG_TOKEN: Final = 16
_FEWEST_CHARACTERS: Final = 6


def _pattern(name: str) -> re.Pattern[str]:
    return compiled(PATTERNS[name])


def is_genuine(token: str) -> bool:
    """False for a token in a known format that nobody was ever given: `sk-xxxxxxxx…`, `AKIA…EXAMPLE`."""
    return len(set(token[-20:])) >= _FEWEST_CHARACTERS and not _pattern("filler").search(token)


def is_password(value: str, *, literal: bool = True) -> bool:
    """True if the value of a password-like key is a password.

    `literal` says that the place shows a literal: a quoted string, an environment line, a JSON value.
    Elsewhere a name, a type or a sentence may follow the key, so a digit or a sign must show it is none.
    """
    if len(value) < _SHORTEST_PASSWORD or (_is_label(value) if literal else _is_name(value)):
        return False
    return not _is_placeholder(value)


def is_token(value: str, *, literal: bool = True) -> bool:
    """True if the value of a key that names a token, a key or a secret is one: long enough, and no words."""
    shortest = _SHORTEST_TOKEN if literal else _SHORTEST_BARE_TOKEN
    if len(value) < shortest or value.isdigit() or not value.isascii() or _is_words(value):
        return False
    return (literal or _is_mixed(value)) and not _is_placeholder(value)


def is_random(value: str) -> bool:
    """True if a value has digits, capitals and small letters and no words: where nothing else shows that it is one."""
    return _pattern("random").match(value) is not None and _pattern("word").match(value) is None


def is_cookie(value: str) -> bool:
    """True if one of the cookies of a header (`name=value; name=value`) is a token."""
    return any(is_token(pair.partition("=")[2]) for pair in value.split(";")) and not _pattern("filler").search(value)


def _is_placeholder(value: str) -> bool:
    """True for what is to be filled in, looked up, or plainly not a literal."""
    if len(set(value)) == 1 or any(map(str.isspace, value)):
        return True
    whole = any(_pattern(name).fullmatch(value) for name in ("stand-in", "reference"))
    return whole or bool(_pattern("address").match(value) or _pattern("blank").search(value))


def _is_label(value: str) -> bool:
    """True for the text of a form field (`Password`, `密码`), the name of an algorithm, or a path."""
    if value.isalpha() and not (value.isascii() and value.islower()):
        return not value.isascii() or _is_words(value)
    return bool(_pattern("algorithm").fullmatch(value)) or (("." in value or "/" in value) and _is_words(value))


def _is_name(value: str) -> bool:
    """True for a dotted or plain name of code (`user.password`, `args.pwd1`), an algorithm, a path, or a count."""
    if "." in value or "/" in value:
        return _is_words(value)
    if value.isdigit():
        return len(value) < _SHORTEST_NUMBER
    return value.replace("_", "").isalpha() or _pattern("algorithm").fullmatch(value) is not None


def _is_words(value: str) -> bool:
    """True if the value is words and short numbers only, as names, paths, versions and slugs are."""
    return _pattern("words").fullmatch(value) is not None


def _is_mixed(value: str) -> bool:
    """True if the value changes between digits, capitals and small letters as random characters do."""
    if _pattern("digits").search(value):
        return True
    return len(value) >= _LONG_TOKEN and len(_pattern("runs").findall(value)) * 4 > len(value) + 4
