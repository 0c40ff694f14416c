"""Find secrets: by their format, by the word before them, by the option of a program.

Marks and words are found by substring search; anchored patterns (`patterns/secrets.toml`) then read the secret, and
the functions `is_…` decide whether it is one, or a word, a piece of code or a placeholder.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Final, NamedTuple

from holdfast.patterns import compile_once, load

_MASKS: Final = {
    **dict.fromkeys(("authorization", "cookie", "password", "token", "url-password", "url-token"), "[REDACTED]"),
    "base64": "[REDACTED_B64]",
    "hex": "[REDACTED_HEX]",
}


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a text: the rule that found it, and its span."""

    rule: str
    start: int
    end: int

    @property
    def mask(self) -> str:
        """The text that replaces it."""
        return _MASKS.get(self.rule, f"[REDACTED:{self.rule}]")


# --- how a value looks that a key, a header or a flag names as a secret -----------------

_MIN_PASSWORD_CHARS: Final = 4
_MIN_NUMBER_DIGITS: Final = 6  # a shorter number is a port or a count
_MIN_TOKEN_CHARS: Final = 8
_MIN_BARE_TOKEN_CHARS: Final = 10
_LONG_TOKEN_CHARS: Final = 16
_MIN_DISTINCT_CHARS: Final = 6


def _look(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["looks"][name])


def is_genuine(token: str) -> bool:
    """Whether a token in a known format is real, unlike `sk-xxxxxxxx…` or `AKIA…EXAMPLE`."""
    return len(set(token[-20:])) >= _MIN_DISTINCT_CHARS and not _look("filler").search(token)


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
    runs = len(_look("runs").findall(value)) if len(value) >= _LONG_TOKEN_CHARS else 0
    # Random characters alternate between digits, upper and lower case.
    is_mixed = literal or _look("digits").search(value) or runs * 4 > len(value) + 4
    return bool(is_mixed) and not _is_placeholder(value)


def is_random(value: str) -> bool:
    """Whether a value has digits, upper and lower case and no words, for places where nothing else shows a secret."""
    return _look("random").match(value) is not None and _look("word").match(value) is None


def is_cookie(value: str) -> bool:
    """Whether one of the cookies of a header (`name=value; name=value`) is a token."""
    return any(is_token(pair.partition("=")[2]) for pair in value.split(";")) and not _look("filler").search(value)


def _is_placeholder(value: str) -> bool:
    """Whether a value is to be filled in, looked up, or not a literal."""
    if len(set(value)) == 1 or any(map(str.isspace, value)):
        return True
    whole = any(_look(name).fullmatch(value) for name in ("stand-in", "reference"))
    return whole or bool(_look("address").match(value) or _look("blank").search(value))


def _is_label(value: str) -> bool:
    """Whether a value is the label of a form field (`Password`, `密码`), the name of an algorithm, or a path."""
    if value.isalpha() and not (value.isascii() and value.islower()):
        return not value.isascii() or _is_words(value)
    return bool(_look("algorithm").fullmatch(value)) or (("." in value or "/" in value) and _is_words(value))


def _is_name(value: str) -> bool:
    """Whether a value is a name in code (`user.password`, `args.pwd1`), an algorithm, a path, or a count."""
    if "." in value or "/" in value:
        return _is_words(value)
    if value.isdigit():
        return len(value) < _MIN_NUMBER_DIGITS
    return value.replace("_", "").isalpha() or _look("algorithm").fullmatch(value) is not None


def _is_words(value: str) -> bool:
    """Whether a value is only words and short numbers, as names, paths, versions and slugs are."""
    return _look("words").fullmatch(value) is not None


# --- formats -----------------------------------------------------------------------


_LOOKS: Final[dict[str, Callable[[str], bool]]] = {
    "token": is_genuine,
    "password": is_password,
    "loose password": partial(is_password, literal=False),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One format: its name, the marks that every match starts with, the exact pattern, and how the secret looks."""

    name: str
    marks: tuple[str, ...]
    pattern: str
    looks: str = "token"

    def read(self, match: re.Match[str], *, at: int = 0) -> Iterator[Secret]:
        """Yield the secret in a match: its group, or all of it."""
        group = match.re.groups and 1
        if _LOOKS[self.looks](match[group]):
            yield Secret(self.name, at + match.start(group), at + match.end(group))

    @property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return compile_once(self.pattern)


@cache
def load_rules(kind: str) -> tuple[Rule, ...]:
    """Read the rules: `tokens` are searched in runs of plain characters, those of `anywhere` in the whole text."""
    return tuple(Rule(name, tuple(marks), *rest) for name, marks, *rest in load("secrets")["formats"][kind])


# A text as three kinds of characters: those of all tokens, those of some tokens, all others.
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")
_KINDS: Final = bytes(ord("a" if code in _PLAIN else "+" if code in b"+/=%" else " ") for code in range(256))
_LONG: Final = b"a" * 20

# The letters of an escape are not part of a token: of a line end in a string, of a colour, of an encoded `=`.
_ESCAPE: Final = r"\\(?:u[0-9A-Fa-f]{4}|[nrtbf])|[\[;][0-9]{1,3}m"
_ENCODED: Final = r"%(?:3D|20|26|22|0A|3A|2C)"


def find_by_format(text: str, plain: bytes) -> Iterator[Secret]:
    """Yield the secrets in a known format. `plain` is the text with one byte per character."""
    for rule in load_rules("anywhere"):
        if any(mark in text for mark in rule.marks):
            for match in rule.regex.finditer(text):
                yield from rule.read(match)
    runs = _find_runs(text, plain.translate(_KINDS))
    if not _compile_marks().search("\n".join(runs.values())):
        return
    for start, run in runs.items():
        mark = _compile_marks().search(run)
        while mark:  # what a match has read is not read again: a token of marks only stays one token
            end = mark.end()
            for rule in _rules_with(mark.group()):
                if token := rule.regex.match(run, mark.start()):
                    end = max(end, token.end())
                    yield from rule.read(token, at=start)
            mark = _compile_marks().search(run, end)


def _find_runs(text: str, kinds: bytes) -> dict[int, str]:
    """Return the pieces with enough plain characters in a row for a token, by where they start."""
    runs: dict[int, str] = {}
    end, long = 0, kinds.find(_LONG)
    while long >= 0:
        start = max(end, kinds.rfind(b" ", end, long) + 1)
        end = kinds.find(b" ", long)
        end = end if end >= 0 else len(kinds)
        if start and text[start - 1] in "\\[;" and (escape := compile_once(_ESCAPE).match(text, start - 1)):
            start = escape.end()
        runs[start] = compile_once(_ENCODED).sub("   ", text[start:end])
        long = kinds.find(_LONG, end)
    return runs


@cache
def _compile_marks() -> re.Pattern[str]:
    """Any mark that starts where a word does, or with a sign. By initials: `re` tries branches one by one."""
    tails = defaultdict(list)
    for mark in sorted({mark for rule in load_rules("tokens") for mark in rule.marks}, key=len, reverse=True):
        tails[mark[0]].append(re.escape(mark[1:]))
    branches = {initial: f"{re.escape(initial)}(?:{'|'.join(rest)})" for initial, rest in tails.items()}
    words = "|".join(branch for initial, branch in branches.items() if initial.isalnum())
    signs = "|".join(branch for initial, branch in branches.items() if not initial.isalnum())
    return re.compile(f"(?<![A-Za-z0-9])(?:{words})|{signs}")


@cache
def _rules_with(mark: str) -> tuple[Rule, ...]:
    """The rules that a mark points at: by itself, or by a shorter one that it starts with."""
    return tuple(rule for rule in load_rules("tokens") if mark.startswith(rule.marks))


# --- words before a secret: a key, a header, a flag, prose --------------------------

_WORDS: Final = ("pass", "pw", "psk", "api_hash", "secret", "token", "key", "auth", "cred")
_CJK_PASSWORDS: Final = ("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호")
_CJK_TOKENS: Final = ("密钥", "密鑰", "令牌", "トークン", "シークレット", "토큰", "시크릿")
_PASSWORDS: Final = ("pass", "pw", "psk", "пароль", "contraseña", "hasło", "şifre", "mật khẩu", *_CJK_PASSWORDS)
_HEADERS: Final[dict[str, tuple[str, Callable[[str], bool]]]] = {
    "authorization": ("authorization", is_token),
    "bearer": ("authorization", is_token),
    "cookie": ("cookie", is_cookie),
    "curl": ("password", is_password),
}
_LOOK_BACK: Final = 48  # characters of a name
_BOUND: Final = 250  # characters of a value that are read to judge it


def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["keyed"][name])


def find_after_words(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets that a word before them names. `lowered` is the text in lower case."""
    for header in _HEADERS:
        yield from _scan(text, lowered, header, _read_header)
    for word in _WORDS:
        yield from _scan(text, lowered, word, _read_name)
    if not text.isascii():
        for match in _pattern("cjk").finditer(text):
            if _is_secret(match["word"], match["secret"], literal=False):
                yield Secret(_kind(match["word"]), *match.span("secret"))


def find_in_value(name: str, value: str) -> Secret | None:
    """Return the secret in the value of `name`, as in a JSON object; None if there is none."""
    if name[-13:].lower() == "authorization":
        secret = _read_header(f"authorization:{value}", 0, "authorization")
        return Secret(secret.rule, secret.start - 14, secret.end - 14) if secret else None
    word = _find_word(name[-2 * _LOOK_BACK :])
    return Secret(_kind(word), 0, len(value)) if word and _is_secret(word, value, literal=True) else None


@lru_cache(maxsize=4096)  # messages repeat the same few keys
def _find_word(name: str) -> str:
    """Return the secret word that a name ends in; empty if it names no secret."""
    if not name.isascii():
        return next((word for word in _CJK_PASSWORDS + _CJK_TOKENS if name.endswith(word)), "")
    last = max(name.lower().rfind(word) for word in _WORDS)
    word = _pattern("name").fullmatch(name, last) if last >= 0 else None
    return word.group() if word and _names_a_secret(name, word) else ""


def _scan(text: str, lowered: str, word: str, read: Callable[[str, int, str], Secret | None]) -> Iterator[Secret]:
    """Yield what `read` finds at each occurrence of a word, except inside a secret."""
    start = lowered.find(word)
    while start >= 0:
        end = start + len(word)
        if secret := read(text, start, word):
            end = secret.end
            if end - secret.start >= _BOUND:  # patterns read a bounded length, so that a scan stays linear
                rest = _pattern("rest").match(text, end)
                end = rest.end() if rest else end
            yield Secret(secret.rule, secret.start, end)
        start = lowered.find(word, end)


def _read_name(text: str, start: int, _: str) -> Secret | None:
    """Return the secret after the name that ends in the word at `start`, in any notation."""
    word = _pattern("name").match(text, start)
    if word is None or not _names_a_secret(text, word):
        return None
    name = _Name(text, word)
    for notation, literal in name.list_notations():
        match = _pattern(notation).match(text, word.end())
        kind = "passwd" if notation == "environment" or name.is_part else word.group()
        if match is None or (notation == "random behind" and not is_random(match["secret"])):
            continue
        if secret := _read_value(match, word=kind, literal=literal):
            return secret
    return name.read_blob()


class _Name(NamedTuple):
    """A name of a secret in a text: the word that it ends in."""

    text: str
    word: re.Match[str]

    @property
    def is_part(self) -> bool:
        """Whether `pass` is the end of a longer name; by itself it is a verb, or a count of tests."""
        before = self.text[max(0, self.word.start() - 1) : self.word.start()]
        return self.word.group().lower() == "pass" and (before.isalpha() or before in {"_", "."})

    def list_notations(self) -> Iterator[tuple[str, bool]]:
        """Yield the notations in which a value may follow the name, and whether each shows a literal."""
        yield "quoted", True
        yield "tagged", True
        text, word = self
        before = text[max(0, word.start() - _LOOK_BACK) : word.start()]
        stem = _pattern("name backwards").match(before[::-1])
        length = stem.end() if stem else 0
        name = f"{before[len(before) - length :]}{word.group()}"
        if name.isupper():
            yield "environment", True
        if name.startswith("-"):
            yield "flag", False
        yield "bare", name.isupper() and name != word.group()
        yield "stated", False
        if before[: len(before) - length].endswith(("('", '("')):
            yield "argument", False
        if "login " in before:
            yield "login", False
        yield "quoted behind", False
        yield "pair", False
        if _pattern("setting backwards").match(before[::-1].lower()):
            yield "behind", False
        yield "random behind", False

    def read_blob(self) -> Secret | None:
        """Return long hexadecimal or base64 text that a sentence names as a secret, and not as a digest or an id."""
        text, word = self
        match = _pattern("blob").match(text, word.end())
        before = text[max(0, word.start() - 16) : word.start()].rpartition("\n")[2]
        if match is None or _pattern("digest").search(f"{before}|{match['gap']}"):
            return None
        rule = "hex" if match["hex"] else "base64"
        return Secret(rule, *match.span(rule)) if is_genuine(match[rule]) and not match[rule].isdigit() else None


def _read_value(match: re.Match[str], *, word: str, literal: bool) -> Secret | None:
    value, start = match["secret"], match.start("secret")
    if "quote" not in match.groupdict() and not value.endswith("..."):  # punctuation or a bracket after it
        value = value.rstrip(".:," if any(sign in value for sign in "([{") else ".:,)]}")
    is_address = value.startswith("//")  # the name was its scheme
    if is_address or not _is_secret(word, value, literal=literal):
        return None
    return Secret(_kind(word), start, start + len(value))


def _names_a_secret(text: str, word: re.Match[str]) -> bool:
    """Whether a name with this word is a secret's; `key` only after a word such as `api` or `private`."""
    behind = text[max(0, word.start() - _LOOK_BACK) : word.start()]
    match = _pattern("word backwards").match(behind.rstrip("_. -")[::-1])
    last = match.group()[::-1].lower() if match else ""
    if word.group()[:2].lower() == "pw" and not _pattern("plain backwards").match(behind[::-1]):
        return False
    if word.group()[:3].lower() == "key":
        return _pattern("key of").fullmatch(last) is not None
    return _pattern("harmless").fullmatch(last) is None or (last == "key" and _kind(word.group()) == "password")


def _read_header(text: str, start: int, header: str) -> Secret | None:
    match = _pattern(header).match(text, start)
    if match is None:
        return None
    rule, is_secret = _HEADERS[header]
    if not is_secret(match["secret"]):
        return None
    start, end = match.span("secret")
    if header == "cookie":  # from the first of the cookies that is a token to the last one
        pairs = list(_pattern("one cookie").finditer(text, start, end))
        tokens = [pair for pair in pairs if is_cookie(pair.group())]
        start, end = tokens[0].start(), tokens[-1].end()
    return Secret(rule, start, end)


def _is_secret(word: str, value: str, *, literal: bool) -> bool:
    if word.lower() == "pass" and not literal and not is_random(value):  # a verb, or a count of tests
        return False
    return is_password(value, literal=literal) if _kind(word) == "password" else is_token(value, literal=literal)


def _kind(word: str) -> str:
    return "password" if word.lower().startswith(_PASSWORDS) else "token"


# --- options of programs -------------------------------------------------------------


def find_in_commands(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets in the options and arguments of known programs. `lowered` is the text in lower case."""
    for trigger, programs in load("secrets")["commands"].items():
        if trigger in lowered:
            for word, pattern in programs.items():
                option = compile_once(rf"(?<![A-Za-z0-9_]){pattern}")
                yield from _scan(text, lowered, word, partial(_read_option, option))


def _read_option(option: re.Pattern[str], text: str, start: int, _: str) -> Secret | None:
    match = option.match(text, start)
    value = match["secret"] if match else ""
    is_count = value.isdigit() and len(value) < _MIN_NUMBER_DIGITS
    return Secret("password", *match.span("secret")) if match and is_password(value) and not is_count else None
