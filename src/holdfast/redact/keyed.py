r"""Find secrets by what precedes them: a key, a header, a flag, a word of prose, an option of a program.

Every such secret follows one of a few words. The words are found by substring search; anchored patterns then
locate the value after each, and `looks` decides whether it is a secret.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from holdfast.redact.looks import compile_once, is_cookie, is_genuine, is_password, is_random, is_token
from holdfast.redact.rules import Secret

__all__ = ["COMMAND_PATTERNS", "PATTERNS", "find_after_words", "find_in_commands", "find_in_value"]

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
    "stated": rf"[ \t]{{1,3}}(?:is|was|to|be|as|of)[ \t]{{1,3}}[\"'`“]?{_BARE}(?![(\[])",
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
    return compile_once(PATTERNS[name])


def find_after_words(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets that a word before them names. `lowered` is the text in lower case."""
    for header in _HEADERS:
        if header in lowered:
            yield from _scan(text, lowered, header, _read_header)
    for word in _WORDS:
        if word in lowered:
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
    word = _find_word(name)
    return Secret(_kind(word), 0, len(value)) if word and _is_secret(word, value, literal=True) else None


def _find_word(name: str) -> str:
    """Return the secret word that a name ends in; empty if it names no secret."""
    return _cached_word(name) if len(name) <= _LOOK_BACK else _search_word(name)


def _search_word(name: str) -> str:
    if not name.isascii():
        return next((word for word in _CJK_PASSWORDS + _CJK_TOKENS if name.endswith(word)), "")
    last = max(name.lower().rfind(word) for word in _WORDS)
    word = _pattern("name").fullmatch(name, last) if last >= 0 else None
    return word.group() if word and _names_a_secret(name, word) else ""


_cached_word = lru_cache(maxsize=4096)(_search_word)  # messages repeat the same few keys


def _scan(text: str, lowered: str, word: str, read: Callable[[str, int, str], Secret | None]) -> Iterator[Secret]:
    """Yield what `read` finds at each occurrence of a word, except inside a secret."""
    start = lowered.find(word)
    while start >= 0:
        end = start + len(word)
        if secret := read(text, start, word):
            end = _extend(text, secret)
            yield Secret(secret.rule, secret.start, end)
        start = lowered.find(word, end)


def _extend(text: str, secret: Secret) -> int:
    """Return the real end of a secret: patterns read a bounded length, so that a scan stays linear."""
    rest = _pattern("rest").match(text, secret.end) if secret.end - secret.start >= _BOUND else None
    return rest.end() if rest else secret.end


def _read_name(text: str, start: int, _: str) -> Secret | None:
    """Return the secret after the name that ends in the word at `start`, in any notation."""
    word = _pattern("name").match(text, start)
    if word is None or not _names_a_secret(text, word):
        return None
    for notation, literal in _list_notations(text, word):
        match = _pattern(notation).match(text, word.end())
        kind = "passwd" if notation == "environment" or _is_part(text, word) else word.group()
        if match is None or (notation == "random behind" and not is_random(match["secret"])):
            continue
        if secret := _read_value(match, word=kind, literal=literal):
            return secret
    return _read_blob(text, word)


def _is_part(text: str, word: re.Match[str]) -> bool:
    """Whether `pass` is the end of a longer name; by itself it is a verb, or a count of tests."""
    before = text[max(0, word.start() - 1) : word.start()]
    return word.group().lower() == "pass" and (before.isalpha() or before in {"_", "."})


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


def _list_notations(text: str, word: re.Match[str]) -> Iterator[tuple[str, bool]]:
    """Yield the notations in which a value may follow the name, and whether each shows a literal."""
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


def _read_value(match: re.Match[str], *, word: str, literal: bool) -> Secret | None:
    secret = match["secret"] if "quote" in match.groupdict() else _strip_end(match["secret"])
    start = match.start("secret")
    if secret.startswith("//"):  # the name was the scheme of an address
        return None
    return Secret(_kind(word), start, start + len(secret)) if _is_secret(word, secret, literal=literal) else None


def _strip_end(value: str) -> str:
    """Remove the punctuation or bracket after a value; `...` is part of the value."""
    if value.endswith("..."):
        return value
    return value.rstrip(".:," if any(sign in value for sign in "([{") else ".:,)]}")


def _read_blob(text: str, word: re.Match[str]) -> Secret | None:
    """Return long hexadecimal or base64 text that a sentence names as a secret, and not as a digest or an id."""
    match = _pattern("blob").match(text, word.end())
    before = text[max(0, word.start() - 16) : word.start()].rpartition("\n")[2]
    if match is None or _pattern("digest").search(f"{before}|{match['gap']}"):
        return None
    rule = "hex" if match["hex"] else "base64"
    return Secret(rule, *match.span(rule)) if is_genuine(match[rule]) and not match[rule].isdigit() else None


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


# --- command lines -----------------------------------------------------------------
# Each program is found by substring search; an anchored pattern then reads the rest of its command.


_REST: Final = r"(?=[ \t])(?:[^\n|;&]|(?<=\\)\n){0,300}?[ \t]"  # up to an option of the same command
_VALUE: Final = r"[\"']?(?P<secret>[^\s\"'`;&|<>\\]{1,250}+)"
_ARGUMENT: Final = r"[ \t]{1,4}[\"']?[^\s\"'|;&]{1,100}+[\"']?"
_SPACE: Final = r"[ \t]{1,4}"

_ORACLE: Final = r"[\"']?[^\s/\"'@:-][^\s/\"'@:]{0,63}/(?P<secret>[^\s/\"'@\\]{1,128}+)@"
_INTO: Final = (
    r"(?P=quote)[ \t]{0,4}\|[ \t]{0,4}"
    r"(?:sudo -S|(?:sudo )?chpasswd|[^\n|]{1,120}?(?:-stdin|--with-token|secret create))"
)
_COMMANDS: Final = {
    " -p": {
        "mysql": rf"mysql(?:dump|admin|import|show|check|sh|binlog)?{_REST}-p{_VALUE}",
        "mariadb": rf"mariadb(?:-dump|-admin|-import)?{_REST}-p{_VALUE}",
        "7z": rf"7z[ar]?{_REST}-p{_VALUE}",
        "sshpass": rf"sshpass{_REST}-p[ \t]{{0,4}}{_VALUE}",
        "login": rf"login{_REST}-p{_SPACE}{_VALUE}",  # of docker, podman, helm, az, oc, cf and others
        "mongo": rf"mongo(?:sh|dump|restore|export|import|stat|top|files)?{_REST}-p[ \t]{{0,4}}{_VALUE}",
        "cqlsh": rf"cqlsh{_REST}-p[ \t]{{0,4}}{_VALUE}",
        "sqlcmd": rf"sqlcmd{_REST}-P[ \t]{{0,4}}{_VALUE}",
        "bcp": rf"bcp{_REST}-P[ \t]{{0,4}}{_VALUE}",
        "zip": rf"zip{_REST}-P[ \t]{{0,4}}{_VALUE}",
        "unzip": rf"unzip{_REST}-P[ \t]{{0,4}}{_VALUE}",
        "mosquitto_": rf"mosquitto_(?:pub|sub|rr){_REST}-P{_SPACE}{_VALUE}",
        "useradd": rf"useradd{_REST}-p{_SPACE}{_VALUE}",
        "-u ": (rf"-u{_SPACE}\S{{1,64}}+{_SPACE}-p{_SPACE}(?=\S{{0,60}}?[0-9])(?=\S{{0,60}}?[A-Za-z]){_VALUE}"),
        "openssl": rf"openssl{_REST}-pass(?:in|out)?{_SPACE}pass:{_VALUE}",
    },
    " -a": {
        "redis-cli": rf"redis-cli{_REST}-a{_SPACE}{_VALUE}",
        "valkey-cli": rf"valkey-cli{_REST}-a{_SPACE}{_VALUE}",
        "http": rf"https?{_REST}-a[ \t=]{{1,4}}[\"']?[^\s:\"'$<]{{1,64}}:{_VALUE}",
        "snmp": rf"snmp[a-z]{{2,10}}{_REST}-A{_SPACE}{_VALUE}",
    },
    " -k": {"openssl": rf"openssl{_REST}-k{_SPACE}{_VALUE}"},
    " -u": {
        "smbclient": rf"smbclient{_REST}-U[ \t]{{0,4}}[\"']?[^\s%\"']{{1,64}}%{_VALUE}",
        "lftp": rf"lftp{_REST}-u{_SPACE}[\"']?[^\s,\"']{{1,64}},{_VALUE}",
    },
    " -w": {"ldap": rf"ldap(?:search|add|modify|delete|whoami|passwd|compare){_REST}-w[ \t]{{0,4}}{_VALUE}"},
    " -x": {"snmp": rf"snmp[a-z]{{2,10}}{_REST}-X{_SPACE}{_VALUE}"},
    "securestring": {"convertto-s": rf"(?i:convertto-securestring)(?: -[Ss]tring)?{_SPACE}{_VALUE}"},
    "alias set": {"mc ": rf"mc alias set{_ARGUMENT}{_ARGUMENT}{_ARGUMENT}{_SPACE}{_VALUE}"},
    "rabbitmqctl": {"rabbitmqctl": rf"rabbitmqctl (?:add_user|change_password){_ARGUMENT}{_SPACE}{_VALUE}"},
    "pass": {
        "htpasswd": rf"htpasswd{_SPACE}-[a-zA-Z]{{0,6}}b[a-zA-Z]{{0,6}}{_ARGUMENT}{_ARGUMENT}{_SPACE}{_VALUE}",
        "wpa_passphrase": rf"wpa_passphrase{_ARGUMENT}{_SPACE}{_VALUE}",
    },
    "login": {"vault": rf"vault login{_SPACE}(?P<secret>[A-Za-z0-9][A-Za-z0-9_.-]{{15,250}}+)"},
    "obscure": {"rclone": rf"rclone obscure{_SPACE}{_VALUE}"},
    "/user:": {"net use": rf"net use{_REST}/user:[^\s]{{1,64}}+{_SPACE}{_VALUE}"},
    "@": {"sqlplus": rf"sqlplus{_REST}{_ORACLE}", "oracle:": rf"oracle:[a-z0-9]{{2,5}}:{_ORACLE}"},
    "| ": {  # a secret that is piped into the program that reads it
        "echo ": (
            r"echo (?:-[a-z]{1,3} )?(?P<quote>[\"']?)(?:[^\s:\"'|]{1,64}:)?"
            rf"(?P<secret>[^\s\"'`;&|<>\\]{{1,250}}+){_INTO}"
        ),
        "printf ": rf"printf (?:'%s(?:\\n)?' )?(?P<quote>[\"']?)(?P<secret>[^\s\"'`;&|<>\\]{{1,250}}+){_INTO}",
    },
    " by ": {
        "identified": (
            r"(?i:identified[ \t]{1,4}(?:with[ \t]{1,4}\S{1,40}[ \t]{1,4})?by)[ \t]{1,4}[\"']"
            r"(?P<secret>[^\s\"']{1,250}+)"
        )
    },
}
"""A text that a lower-cased input must contain, and the patterns of the programs to search for then."""

COMMAND_PATTERNS: Final = {
    f"{trigger} {word}": rf"(?<![A-Za-z0-9_]){pattern}"
    for trigger, programs in _COMMANDS.items()
    for word, pattern in programs.items()
}
"""Every pattern of this module."""

_MIN_NUMBER_DIGITS: Final = 6  # digits; a shorter number is a port or a count


def find_in_commands(text: str, lowered: str) -> Iterator[Secret]:
    """Yield the secrets in the options and arguments of known programs. `lowered` is the text in lower case."""
    for trigger, programs in _COMMANDS.items():
        if trigger in lowered:
            for word in programs:
                yield from _scan_program(text, lowered, word, COMMAND_PATTERNS[f"{trigger} {word}"])


def _scan_program(text: str, lowered: str, word: str, pattern: str) -> Iterator[Secret]:
    start = lowered.find(word)
    while start >= 0:
        match = compile_once(pattern).match(text, start)
        if match and is_password(match["secret"]) and not _is_count(match["secret"]):
            yield Secret("password", *match.span("secret"))
        start = lowered.find(word, match.end() if match else start + len(word))


def _is_count(value: str) -> bool:
    return value.isdigit() and len(value) < _MIN_NUMBER_DIGITS
