r"""Secrets that are known by what stands before them: a key, a header, a flag, a word of prose.

Every such secret follows one of a few words. They are found by plain substring search; what follows each is
then read by anchored patterns, which say where the value is, and the value is judged by its looks.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from holdfast.redact.looks import is_cookie, is_genuine, is_password, is_random, is_token
from holdfast.redact.patterns import compiled
from holdfast.redact.rules import Secret

__all__ = ["PATTERNS", "secret_of", "secrets_after_words"]

_QUOTE: Final = r"\\{0,4}[\"'`]"  # also one of a string inside a string
_ASSIGN: Final = r"(?:\[\])?[ \t]{0,8}(?:=>|:{1,3}=|[|?.!+]{0,2}={1,3}|[:：＝])[ \t]{0,8}"
_TYPED: Final = r"(?:[ \t]{0,3}:[ \t]{0,3}&?[A-Za-z][\w.|<>\[\] ]{0,30}|[ \t](?:string|\[\]byte)[ \t]?)=[ \t]{0,3}"
_NAMED: Final = rf",?(?:\s|\\[nrt]){{1,24}}+(?:{_QUOTE})?[Vv]alue(?:{_QUOTE})?[ \t]{{0,3}}[:=][ \t]{{0,3}}"
_BARE: Final = r"(?P<secret>[^\x00-\x20\x7f-\U0010ffff\"'`<>(){}\[\],;&|\\]{1,250}+)"
_SHELL: Final = r"(?P<secret>[^\s\"'`;&|\\]{1,250}+)"
_CJK_PASSWORDS: Final = ("密码", "密碼", "口令", "パスワード", "暗証番号", "비밀번호", "암호")
_OTHER_PASSWORDS: Final = ("пароль", "contraseña", "hasło", "şifre", "mật khẩu")
_CJK_TOKENS: Final = ("密钥", "密鑰", "令牌", "トークン", "シークレット", "토큰", "시크릿")
_CJK_WORDS: Final = "|".join(_CJK_PASSWORDS + _OTHER_PASSWORDS + _CJK_TOKENS)

PATTERNS: Final = {
    "name": (
        r"(?i:passwor[dt]|passwd|passphrase|pass|pwd?|psk|api[_-]?hash|secret|token|key|auth|cred(?:ential)?s?)"
        r"(?i: [0-9]{1,4}(?=[:=])|[_-]?(?:[0-9]{1,4}|prod(?:uction)?|dev|test|staging|live|old|new|base|data|value"
        r"|string|text))?"
        r"(?![A-Za-z0-9_-])"
    ),
    # before `pw`, which two letters at the end of a random id are too
    "plain backwards": r"(?:[a-z]{0,12}|[A-Z]{0,12})(?![A-Za-z0-9])",
    "name backwards": r"[A-Za-z0-9_$.-]*+",
    "word backwards": r"[a-z]++[A-Z]?|[A-Z]++",
    # the word before `key` that makes it a secret
    "key of": (
        r"\w{0,40}api|access|secret|private|auth|sign|signing|encrypt|encryption|decryption|master|account|licen[cs]e|session"
        r"|service|role|admin|storage|client|(?:pre)?shared|subscription|webhook|deploy|app|anon|hmac|aes|jwt|unseal|pragma"
        r"|functions?|global"
    ),
    # the word before that makes it none: a place in a list, a part of a vocabulary, something public
    "harmless": (
        r"next|prev|page|continuation|sync|cancel|cancellation|max|min|pad|eos|bos|unk|sep|cls|mask|stop|special|image"
        r"|start|end|first|last|public|key|hash|idempotency|by"
    ),
    # --- what may follow a name
    "quoted": (
        rf"(?:{_QUOTE}\]?)?(?:{_TYPED}|{_ASSIGN}|{_NAMED})(?P<quote>{_QUOTE})"
        r"(?P<secret>(?:(?!(?P=quote))(?:\\.|[^\r\n])){1,1000}+)"
    ),
    "tagged": r">\s{0,40}+(?P<secret>[^\s<>]{1,512}+)(?=\s{0,40}</)",
    "environment": rf"={_SHELL}",
    "flag": rf"(?:=|[ \t]{{1,3}})[\"']?{_SHELL}",
    "bare": rf"(?:{_QUOTE}\]?)?(?:{_NAMED}|{_ASSIGN}){_BARE}(?![(\[])",
    "said": rf"[ \t]{{1,3}}(?:is|was|to|be|as|of)[ \t]{{1,3}}[\"'`“]?{_BARE}(?![(\[])",
    # a value right behind the name: in SQL, in a command that sets it, in a login, in a sentence
    "quoted behind": r"(?:[ \t]{1,3}|\([ \t]{0,3})(?P<quote>[\"'])(?P<secret>[^\s\"'\\]{1,250}+)(?=(?P=quote))",
    "behind": rf"[ \t]{{1,3}}(?:--?[a-z-]{{1,20}}[ \t=]{{1,3}}|<<<[ \t]{{0,3}})?[\"']?{_BARE}(?![(\[])",
    "pair": (
        rf"(?:{_QUOTE}\]?)?[ \t]{{0,4}}[:=][ \t]{{0,4}}[(\[][ \t]{{0,4}}[\"'][^\"'\n]{{0,64}}[\"'],[ \t]{{0,4}}"
        r"(?P<quote>[\"'])(?P<secret>[^\s\"'\\]{1,250}+)(?=(?P=quote))"
    ),
    "random behind": (
        r"[ \t]{1,3}[\"'`]?(?=[^\s\"'`]{0,60}?[0-9])(?=[^\s\"'`]{0,60}?[A-Z])(?=[^\s\"'`]{0,60}?[a-z])"
        r"(?P<secret>[A-Za-z0-9_.~+/=!#%^*?@-]{10,250}+)(?![A-Za-z0-9(\[:])"
    ),
    "setting backwards": r"[^\n]{0,80}?(?<![a-z])(?:tes|xtes|gifnoc|tup)(?![a-z])",
    "argument": rf"{_QUOTE},[ \t]{{0,4}}(?P<quote>{_QUOTE})(?P<secret>[^\s\"'`\\]{{1,250}}+)(?=(?P=quote))",
    "login": r"\s{1,8}(?P<secret>\S{3,250}+)",
    "blob": (
        r"(?![A-Za-z0-9_])(?P<gap>[^\n\[\]=\"'`<>{}\\]{1,40}?)(?<![A-Za-z0-9+/])"
        r"(?:(?P<hex>[0-9A-Fa-f]{32,512}+)|(?P<base64>[A-Za-z0-9+/]{64,4096}+={0,2}))(?![A-Za-z0-9+/])"
    ),
    "digest": r"(?i)sha-?\d|md5|hash|digest|checksum|fingerprint|commit|revision|etag|\bids?\b|uuid",
    "rest": r"[A-Za-z0-9_.~%+/=-]*+",
    # --- headers and logins
    "authorization": (
        rf"(?i:authorization)(?:{_QUOTE}\]?)?[ \t]{{0,4}}"
        rf"(?:[:=：]|,(?=[ \t]{{0,4}}{_QUOTE}(?i:bearer|basic|token)))[ \t]{{0,4}}(?:{_QUOTE})?"
        r"(?:[A-Za-z][A-Za-z0-9-]{2,20}[ \t]{1,4})?(?P<secret>[A-Za-z0-9_.~+/=:-]{8,250}+)"
    ),
    "bearer": r"(?i:bearer)[ \t]{1,4}(?P<secret>[A-Za-z0-9_.~+/=-]{16,}+)",
    "cookie": (
        rf"(?i:cookie)(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?"
        r"(?P<secret>[\w.-]{1,64}=[^\s;\"'\\]{0,250}+(?:; ?[^\s;\"'\\]{1,250}+){0,32}+)"
    ),
    "one cookie": r"[^; ][^;]{0,400}+",
    "curl": (
        r"curl(?=[ \t])(?:[^\n]|(?<=\\)\n){0,400}?[ \t](?:-u|--user)[ \t=]{1,4}[\"']?[^\s:\"'$<]{0,64}:[\"']?"
        r"(?P<secret>[^\s\"'\\<>]{3,250}+)"
    ),
    # --- prose
    "cjk": (
        rf"(?P<word>{_CJK_WORDS})(?:{_QUOTE})?[ \t]{{0,4}}"
        r"(?:设置为|设为|改为|改成|更新为|設定為|設為|改為|是|为|為|は|을|를|는|은|[:：=＝])?[ \t]{0,4}[\"'`「『“]?"
        r"(?P<secret>[!#-&*+./-9=?@-Z^_a-z~-]{4,}+)"
    ),
}
"""Every pattern of this module, by what it reads."""

_WORDS: Final = ("pass", "pw", "psk", "api_hash", "secret", "token", "key", "auth", "cred")
_PASSWORDS: Final = ("pass", "pw", "psk", *_OTHER_PASSWORDS, *_CJK_PASSWORDS)
_HEADERS: Final[dict[str, tuple[str, Callable[[str], bool]]]] = {
    "authorization": ("authorization", is_token),
    "bearer": ("authorization", is_token),
    "cookie": ("cookie", is_cookie),
    "curl": ("password", is_password),
}
_LOOK_BACK: Final = 48  # characters of a name
_BOUND: Final = 250  # characters of a value that are read to judge it


def _pattern(name: str) -> re.Pattern[str]:
    return compiled(PATTERNS[name])


def secrets_after_words(text: str, lowered: str) -> Iterator[Secret]:
    """The secrets that a word before them names. `lowered` is the text in small letters."""
    for header in _HEADERS:
        if header in lowered:
            yield from _after(text, lowered, header, _in_header)
    for word in _WORDS:
        if word in lowered:
            yield from _after(text, lowered, word, _after_name)
    if not text.isascii():
        for match in _pattern("cjk").finditer(text):
            if _is_secret(match["word"], match["secret"], literal=False):
                yield Secret(_kind(match["word"]), *match.span("secret"))


def secret_of(name: str, value: str) -> Secret | None:
    """The secret in a string that stands under `name`, as in a JSON object; None if there is none."""
    if name[-13:].lower() == "authorization":
        found = _in_header(f"authorization:{value}", 0, "authorization")
        return Secret(found.rule, found.start - 14, found.end - 14) if found else None
    word = _word_of(name)
    return Secret(_kind(word), 0, len(value)) if word and _is_secret(word, value, literal=True) else None


def _word_of(name: str) -> str:
    """The secret word that a name ends in; nothing if it names no secret."""
    return _known_word_of(name) if len(name) <= _LOOK_BACK else _find_word_of(name)


def _find_word_of(name: str) -> str:
    if not name.isascii():
        return next((word for word in _CJK_PASSWORDS + _CJK_TOKENS if name.endswith(word)), "")
    last = max(name.lower().rfind(word) for word in _WORDS)
    word = _pattern("name").fullmatch(name, last) if last >= 0 else None
    return word.group() if word and _names_a_secret(name, word) else ""


_known_word_of = lru_cache(maxsize=4096)(_find_word_of)  # the same few keys stand in every message


def _after(text: str, lowered: str, word: str, read: Callable[[str, int, str], Secret | None]) -> Iterator[Secret]:
    """What `read` finds at the places of a word. Inside a secret that was found it does not look again."""
    start = lowered.find(word)
    while start >= 0:
        end = start + len(word)
        if found := read(text, start, word):
            end = _end_of(text, found)
            yield Secret(found.rule, found.start, end)
        start = lowered.find(word, end)


def _end_of(text: str, found: Secret) -> int:
    """Where the secret really ends: the patterns read so far and no further, lest every word reads to the end."""
    rest = _pattern("rest").match(text, found.end) if found.end - found.start >= _BOUND else None
    return rest.end() if rest else found.end


def _after_name(text: str, start: int, _: str) -> Secret | None:
    """The secret that follows the name which ends in the word at `start`, in any notation."""
    word = _pattern("name").match(text, start)
    if word is None or not _names_a_secret(text, word):
        return None
    for notation, literal in _notations(text, word):
        match = _pattern(notation).match(text, word.end())
        kind = "passwd" if notation == "environment" or _is_part(text, word) else word.group()
        if match is None or (notation == "random behind" and not is_random(match["secret"])):
            continue
        if found := _value(match, word=kind, literal=literal):
            return found
    return _blob(text, word)


def _is_part(text: str, word: re.Match[str]) -> bool:
    """Whether `pass` is the end of a longer name; by itself it is a verb, or a count of tests."""
    before = text[max(0, word.start() - 1) : word.start()]
    return word.group().lower() == "pass" and (before.isalpha() or before in {"_", "."})


def _names_a_secret(text: str, word: re.Match[str]) -> bool:
    """True unless the word before says otherwise; a key must be said to be one of something secret."""
    behind = text[max(0, word.start() - _LOOK_BACK) : word.start()]
    match = _pattern("word backwards").match(behind.rstrip("_. -")[::-1])
    last = match.group()[::-1].lower() if match else ""
    if word.group()[:2].lower() == "pw" and not _pattern("plain backwards").match(behind[::-1]):
        return False
    if word.group()[:3].lower() == "key":
        return _pattern("key of").fullmatch(last) is not None
    return _pattern("harmless").fullmatch(last) is None or (last == "key" and _kind(word.group()) == "password")


def _notations(text: str, word: re.Match[str]) -> Iterator[tuple[str, bool]]:
    """The notations in which a value may follow the name, and whether each shows that it is a literal."""
    yield "quoted", True
    yield "tagged", True
    before = text[max(0, word.start() - _LOOK_BACK) : word.start()]
    stem = _pattern("name backwards").match(before[::-1])
    length = stem.end() if stem else 0
    name = f"{before[len(before) - length :]}{word.group()}"
    if name.isupper():
        yield "environment", True
    if name.startswith("-"):
        yield "flag", False
    yield "bare", name.isupper() and name != word.group()
    yield "said", False
    if before[: len(before) - length].endswith(("('", '("')):
        yield "argument", False
    if "login " in before:
        yield "login", False
    yield "quoted behind", False
    yield "pair", False
    if _pattern("setting backwards").match(before[::-1].lower()):
        yield "behind", False
    yield "random behind", False


def _value(match: re.Match[str], *, word: str, literal: bool) -> Secret | None:
    secret = match["secret"] if "quote" in match.groupdict() else _bare(match["secret"])
    start = match.start("secret")
    if secret.startswith("//"):  # the name was the scheme of an address
        return None
    return Secret(_kind(word), start, start + len(secret)) if _is_secret(word, secret, literal=literal) else None


def _bare(value: str) -> str:
    """The value without what ends the sentence or the bracket that it stands in; `...` is a part of it."""
    if value.endswith("..."):
        return value
    return value.rstrip(".:," if any(sign in value for sign in "([{") else ".:,)]}")


def _blob(text: str, word: re.Match[str]) -> Secret | None:
    """Long hexadecimal or base64 that a sentence calls a secret, and does not call a digest or an id."""
    match = _pattern("blob").match(text, word.end())
    before = text[max(0, word.start() - 16) : word.start()].rpartition("\n")[2]
    if match is None or _pattern("digest").search(f"{before}|{match['gap']}"):
        return None
    rule = "hex" if match["hex"] else "base64"
    return Secret(rule, *match.span(rule)) if is_genuine(match[rule]) and not match[rule].isdigit() else None


def _in_header(text: str, start: int, header: str) -> Secret | None:
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
