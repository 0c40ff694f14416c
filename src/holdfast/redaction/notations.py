"""Find secrets by the words that name them: keys, variables, options, headers, and sentences in many languages.

Words are found by substring search. The text after a word is read once, by one pattern that recognises the notation, so
that a text of nothing but such words takes only a small multiple of the time of any other. The name and the notation
then decide what the value has to look like: see `looks`.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, NamedTuple, TypeAlias

from holdfast.patterns import compile_once, load
from holdfast.redaction.looks import (
    has_words,
    is_chosen,
    is_code,
    is_cookie,
    is_password,
    is_phrase,
    is_random,
    is_shuffled,
    is_token,
    is_unguessable,
)
from holdfast.redaction.names import LOOK_BACK, Name, classify, compile_name, find_word
from holdfast.redaction.secret import Secret

__all__ = ["find_after_words", "find_in_value", "is_bare_secret", "scan"]

_JUDGED: Final = 64  # characters of a value that are read to judge it
_BOUND: Final = 250  # characters that a pattern reads of a value; the rest of it is masked too
_MAX_QUOTED: Final = 1000  # characters
_MIN_CHARS: Final = 4  # characters of a secret
_MIN_TOKEN_CHARS: Final = 10  # characters of a token that nothing but its look gives away
_STEP: Final = 64  # characters between two commands that are read


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["keyed"][name])


@cache
def _compile_as() -> re.Pattern[str]:
    return re.compile(load("secrets")["names"]["as"])


class Value(NamedTuple):
    """A value and its start, and whether it is quoted, which shows that it is a literal."""

    text: str
    start: int
    is_quoted: bool


def find_after_words(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets that a word before them names. `lowered` is the text in lower case, with ASCII letters only."""
    # Most texts have none of the words: `in` finds that out in a tenth of the time that a scan takes to begin.
    for header in _HEADERS:
        if header in lowered:
            yield from scan(text, lowered, header, _read_header, step=_STEP if header == "curl" else 0)
    names = load("secrets")["names"]
    for stem in names["stems"]:
        if stem in lowered:
            yield from scan(text, lowered, stem, _read_after_name)
    for stem in names["capital stems"]:
        if stem in text:
            yield from scan(text, text, stem, _read_after_name)
    if not text.isascii() and _pattern("other letter").search(text):
        folded = text.lower()
        if len(folded) != len(text):  # a few capital letters become two
            folded = text
        for stem in names["other stems"]:
            if stem in folded:
                yield from scan(text, folded, stem, _read_after_name)


def scan(
    text: str, lowered: str, word: str, read: Callable[[str, int, str], Secret | None], *, step: int = 0
) -> Iterator[Secret]:
    """Yield what `read` finds at each occurrence of a word, except inside a secret.

    If `read` reads far ahead, `step` is the least distance between two places from which it finds nothing.
    """
    start = lowered.find(word)
    while start >= 0:
        end = start + len(word)
        secret = read(text, start, word)
        if secret is None:
            end = _skip(text, end, start + step)
        else:
            stop = secret.end
            if stop - secret.start >= _BOUND:  # patterns read a bounded length, so that a scan stays linear
                rest = _pattern("rest").match(text, stop)
                stop = rest.end() if rest else stop
            yield Secret(secret.rule, secret.start, stop)
            end = max(end, stop)  # a sentence may name a secret afterwards
        start = lowered.find(word, end)


def _skip(text: str, start: int, end: int) -> int:
    """Return where the search continues: at `end`, or at the next line."""
    if end <= start:
        return start
    line_end = text.find("\n", start, end)
    return line_end if line_end >= 0 else end


def find_in_value(name: str, value: str) -> Secret | None:
    """Return the secret in the value of `name`, as in a JSON object; None if there is none."""
    if name[-13:].lower() == "authorization":
        secret = _read_header(f"authorization:{value}", 0, "authorization")
        return Secret(secret.rule, secret.start - 14, secret.end - 14) if secret else None
    word = find_word(name[-2 * LOOK_BACK :])
    if word is None or not _is_literal_secret(word, value):
        return None
    return Secret(word.rule, 0, len(value))


# --- values ----------------------------------------------------------------------------


def _is_literal_secret(name: Name, value: str) -> bool:
    """Return whether a literal value is a secret: a quoted string, a line of an environment, a value in JSON."""
    judged = value[:_JUDGED]
    if name.kind == "weak":
        return is_unguessable(judged)
    if name.kind == "code":
        return is_code(judged)
    if name.kind == "token":
        return is_token(judged)
    if name.word.endswith(_PHRASES) and is_phrase(value):
        return True
    return is_password(judged)


def is_bare_secret(name: Name, value: str) -> bool:
    """Return whether a value is a secret if a name, a type or a sentence could follow the key as well."""
    judged = value[:_JUDGED]
    if _repeats(name, value):
        return False
    if name.kind == "weak":
        return is_unguessable(judged)
    if name.kind == "code":
        return is_code(judged)
    if name.kind == "token":
        return is_token(judged, literal=False) or (name.word == "secret" and is_chosen(judged))
    if name.word == "pass":  # by itself a verb, or a count of tests
        return is_random(judged) or is_chosen(judged)
    return is_password(judged, literal=False)


def _repeats(name: Name, value: str) -> bool:
    """Return whether a value has the word of its name in it, as a type or a variable does: `key: Ed25519PrivateKey`."""
    if name.word.startswith("p") and name.word not in _SPELLED_OUT:  # `pw` ends many a password
        return False
    lowered = value.lower()
    return lowered.endswith(name.word) or lowered.startswith(f"{name.word}_")


def _is_telling(name: Name, value: str) -> bool:
    """Return whether a value that is only near its name is a secret by its own appearance."""
    judged = value[:_JUDGED]
    if _repeats(name, value):
        return False
    if name.kind == "password":
        return is_random(judged) or is_shuffled(judged) or (name.word != "pass" and is_chosen(judged))
    is_long = is_unguessable(judged) and not has_words(judged)
    is_short = name.kind == "token" and len(judged) >= _MIN_TOKEN_CHARS and is_random(judged)
    return is_long or (is_short and is_password(judged, literal=False))


_SPELLED_OUT: Final = ("password", "passwd", "passphrase", "passcode")
_PHRASES: Final = ("passphrase", "phrase", "mnemonic")
_CLOSING: Final = {"“": "”", "„": "“", "«": "»", "「": "」", "『": "』", "‘": "’"}


def _read_value(text: str, start: int) -> Value | None:
    """Read the value at `start`, quoted or bare."""
    quote = _pattern("quote").match(text, start)
    if quote is not None:
        return _read_quoted(text, quote.end(), quote.group().lstrip("bBrRuUfF"))
    bare = _pattern("bare").match(text, start)
    if bare is None:
        return None
    skipped = 2 if _pattern("number").match(bare.group()) else 0  # `0x` shows nothing
    return Value(_trim(bare.group()[skipped:]), start + skipped, is_quoted=False)


def _read_quoted(text: str, start: int, quote: str) -> Value | None:
    closing = _CLOSING.get(quote, quote)
    limit = start + _MAX_QUOTED
    line_end = text.find("\n", start, limit)
    limit = line_end if line_end >= 0 else limit
    stop = text.find(closing, start, limit)
    while stop > start and len(closing) == 1 and text[stop - 1] == "\\":  # an escaped quote is part of the value
        stop = text.find(closing, stop + 1, limit)
    value = text[start : stop if stop >= 0 else limit]
    return Value(value, start, is_quoted=True) if value else None


def _trim(value: str) -> str:
    """Remove punctuation or a bracket that follows a bare value."""
    if value.endswith("..."):
        return value
    has_brackets = "(" in value or "[" in value or "{" in value
    return value.rstrip(".:," if has_brackets else ".:,)]}")


# --- notations -------------------------------------------------------------------------


def _read_after_name(text: str, start: int, _: str) -> Secret | None:
    """Return the secret that the word at `start` names, in any notation."""
    match = compile_name().match(text, start)
    if match is None:
        return None
    follow = _pattern("follow").match(text, match.end())
    if follow is None:
        return _read_before_name(text, match)
    name = classify(text, match)
    if name is None:
        return None
    notation = follow.lastgroup or ""
    value = _NOTATIONS[notation](text, name, follow)
    if value is None:
        return _read_before_name(text, match) if notation == "space" else None
    return Secret(name.rule, value.start, value.start + len(value.text))


def _read_assigned(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read `name = value`, `"name": "value"` and the like."""
    phrase = _read_phrase(text, name, follow)
    if phrase is not None:
        return phrase
    value = _read_value(text, follow.end())
    if value is None:
        return _read_pair(text, follow)
    if value.is_quoted:
        is_compared = name.kind == "token" and "==" in follow.group()  # with a token of a language
        is_secret = is_unguessable(value.text[:_JUDGED]) if is_compared else _is_literal_secret(name, value.text)
        return value if is_secret else None
    if name.kind == "code":
        return _read_code(text, value.start)
    is_scheme = follow.group().endswith(":") and value.text.startswith("//")
    if len(value.text) < _MIN_CHARS or is_scheme:
        return None
    before = text[name.start - 1 : name.end] if name.start else text[: name.end]
    if before.isupper():  # perhaps a line of an environment
        return _read_variable(text, name, follow, value)
    return _read_bare(text, name, follow, value)


def _read_variable(text: str, name: Name, follow: re.Match[str], value: Value) -> Value | None:
    """Read `DB_PASSWORD=value`, up to the next space: an environment has nothing but literals."""
    _, whole = _read_name(text, name)
    if not whole.isupper():
        return _read_bare(text, name, follow, value)
    if follow.group() == "=" and name.kind != "weak":
        shell = _pattern("shell").match(text, follow.end())
        word = _trim(shell.group()) if shell else ""
        return Value(word, follow.end(), is_quoted=False) if is_password(word[:_JUDGED]) else None
    if len(whole) > name.end - name.start and not _is_followed_by(text, value, "(["):
        return value if _is_literal_secret(name, value.text) else None
    return _read_bare(text, name, follow, value)


def _read_bare(text: str, name: Name, follow: re.Match[str], value: Value) -> Value | None:
    """Read a value without quotes, which may be a name, a type or a call as well."""
    if _is_followed_by(text, value, "(["):
        return None
    credentials = _read_credentials(text, name, follow)
    if credentials is not None:
        return credentials
    return value if is_bare_secret(name, value.text) else None


def _is_followed_by(text: str, value: Value, signs: str) -> bool:
    end = value.start + len(value.text)
    return end < len(text) and text[end] in signs


def _read_name(text: str, name: Name) -> tuple[str, str]:
    """Return what is before the whole name that a word ends, and the whole name, such as `DB_PASSWORD`."""
    before = text[max(0, name.start - LOOK_BACK) : name.start]
    stem = _pattern("name backwards").match(before[::-1])
    cut = len(before) - (stem.end() if stem else 0)
    return before[:cut], f"{before[cut:]}{text[name.start : name.end]}"


def _read_phrase(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read a passphrase of several words without quotes, up to the end of its line."""
    if not name.word.endswith(_PHRASES):
        return None
    line = _pattern("words").match(text, follow.end())
    if line is None or not is_phrase(line.group()):
        return None
    return Value(line.group(), follow.end(), is_quoted=False)


def _read_pair(text: str, follow: re.Match[str]) -> Value | None:
    """Read the second of two strings: `auth = ("user", "password")`."""
    pair = _pattern("pair").match(text, follow.end())
    if pair is None or not is_password(pair["secret"], literal=False):
        return None
    return Value(pair["secret"], pair.start("secret"), is_quoted=True)


def _read_credentials(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read the second half of `credentials: user / password`."""
    if not name.word.startswith(("cred", "zugang", "anmelde", "identifiant")):
        return None
    login = _pattern("login pair").match(text, follow.end())
    if login is None:
        return None
    value = _trim(login["secret"])
    return Value(value, login.start("secret"), is_quoted=False) if is_password(value, literal=False) else None


def _read_stated(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read a sentence: `the password is …`, `das Passwort lautet …`."""
    phrase = _read_phrase(text, name, follow)
    if phrase is not None:
        return phrase
    value = _read_value(text, follow.end())
    if value is None or _is_followed_by(text, value, "(["):
        return None
    if name.kind == "password" and _is_followed_by(text, value, ",;&|"):  # these may be part of a password
        whole = _pattern("phrase").match(text, value.start)
        value = Value(_trim(whole.group().rstrip(",;&|")), value.start, is_quoted=False) if whole else value
    if name.word == "pass":  # a verb
        return value if is_random(value.text[:_JUDGED]) else None
    if value.is_quoted and name.kind == "password" and is_phrase(value.text.lower()):
        return value
    if name.kind == "code":
        return _read_code(text, value.start)
    credentials = _read_credentials(text, name, follow)
    if credentials is not None:
        return credentials
    return value if is_bare_secret(name, value.text) else None


def _read_code(text: str, start: int) -> Value | None:
    """Read a PIN or a one-time code, which may be in two groups."""
    code = _pattern("digits in groups").match(text, start)
    if code is None or not is_code(code.group()):
        return None
    return Value(code.group(), start, is_quoted=False)


def _read_boxed(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read a code in brackets."""
    return _read_code(text, follow.end()) if name.kind == "code" else None


def _read_described(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read a sentence with more words before the verb: `the password for the server is …`."""
    value = _read_stated(text, name, follow)
    if value is None or name.kind == "code":
        return value
    return value if value.is_quoted or _is_telling(name, value.text) else None


def _read_cell(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read the next cell of a row, or the line below a heading."""
    value = _read_value(text, follow.end())
    return value if value is not None and _is_telling(name, value.text) else None


def _read_below(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read a value that has a line of its own below its name."""
    line = _pattern("line").match(text, follow.end())
    if line is None or not _is_telling(name, line["secret"]):
        return None
    line_start = text.rfind("\n", max(0, name.start - LOOK_BACK), name.start) + 1
    if any(sign in text[line_start : name.start] for sign in ",;|\t"):  # a row of a table
        return None
    return Value(line["secret"], line.start("secret"), is_quoted=False)


def _read_tagged(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read the content of an XML element."""
    content = _pattern("content").match(text, follow.end())
    if content is None or not _is_literal_secret(name, content["secret"]):
        return None
    return Value(content["secret"], content.start("secret"), is_quoted=True)


def _read_argument(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read the second argument of a call: `setenv("API_TOKEN", "…")`, `define('DB_PASSWORD', '…')`."""
    value = _read_value(text, follow.end())
    opening = _read_name(text, name)[0]
    if value is None or not value.is_quoted or not opening.endswith(("('", '("', "(`")):
        return None
    return value if is_bare_secret(name, value.text) else None


def _read_behind(text: str, name: Name, follow: re.Match[str]) -> Value | None:
    """Read a value right after its name: after an option, in SQL, in a command, in a login, in a sentence."""
    value = _read_value(text, follow.end())
    if value is None:
        return None
    if follow.group().strip().isdigit():  # `password 7 …`, as routers print it
        return value if is_bare_secret(name, value.text) else None
    is_named = name.kind != "weak" and not value.text.startswith("-")
    if is_named and not value.is_quoted and not _is_followed_by(text, value, "([:=") and _is_telling(name, value.text):
        return value
    before, whole = _read_name(text, name)
    if whole.startswith("-"):
        return _read_option(text, name, value)
    if name.word == "pass":  # a verb
        return None
    if value.is_quoted:
        end = value.start + len(value.text) + 1
        is_other = follow.group().startswith("(") and not text.startswith(")", end)  # the first of several arguments
        return value if not is_other and " " not in value.text and is_bare_secret(name, value.text) else None
    if "login " in before:
        word = _pattern("word").match(text, follow.end())
        if word is None or not is_bare_secret(name, word.group()):
            return None
        return Value(word.group(), word.start(), is_quoted=False)
    if _pattern("setting backwards").match(before[::-1].lower()):
        behind = _pattern("set value").match(text, follow.end())
        if behind is None:
            return None
        found = Value(_trim(behind["secret"]), behind.start("secret"), is_quoted=False)
        return found if not _is_followed_by(text, found, "([") and is_bare_secret(name, found.text) else None
    return None


def _read_option(text: str, name: Name, value: Value) -> Value | None:
    """Read the value of an option: `--password value`."""
    if value.is_quoted and name.word.endswith(_PHRASES) and is_phrase(value.text.lower()):
        return value
    option = _pattern("shell").match(text, value.start)
    word = _trim(option.group()) if option else ""
    return Value(word, value.start, is_quoted=False) if is_bare_secret(name, word) else None


def _read_before_name(text: str, match: re.Match[str]) -> Secret | None:
    """Return the password in a sentence that names it afterwards: `use … as the password`."""
    kind = (match.lastgroup or "").removeprefix("other_")
    if kind not in {"password", "token"}:
        return None
    if not _compile_as().search(text, max(0, match.start() - LOOK_BACK), match.start()):
        return None
    before = text[max(0, match.start() - 2 * LOOK_BACK) : match.start()]
    sentence = _pattern("used as").search(before)
    if sentence is None:
        return None
    group = "secret" if sentence["secret"] else "aside"
    value = sentence[group]
    if value.lower().endswith(match.group().lower()):  # `1Password`
        return None
    is_chosen_one = kind == "password" and (is_chosen(value) or is_random(value))
    is_token_like = is_unguessable(value) and not value.isalpha()
    if not is_chosen_one and not is_token_like:
        return None
    start = match.start() - len(before)
    return Secret(kind, start + sentence.start(group), start + sentence.end(group))


_Reader: TypeAlias = Callable[[str, Name, re.Match[str]], Value | None]
_NOTATIONS: Final[dict[str, _Reader]] = {
    "assigned": _read_assigned,
    "tagged": _read_tagged,
    "boxed": _read_boxed,
    "recited": _read_phrase,
    "paired": _read_credentials,
    "stated": _read_stated,
    "described": _read_described,
    "argument": _read_argument,
    "cell": _read_cell,
    "below": _read_below,
    "space": _read_behind,
}


# --- headers ---------------------------------------------------------------------------

_HEADERS: Final[dict[str, tuple[str, Callable[[str], bool]]]] = {
    "authorization": ("authorization", is_token),
    "bearer": ("authorization", is_token),
    "cookie": ("cookie", is_cookie),
    "curl": ("password", is_password),
}


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
