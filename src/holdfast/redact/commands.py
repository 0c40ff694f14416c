r"""Secrets on a command line: the options and arguments in which known programs take a password.

Each program is found by plain substring search; an anchored pattern then reads the rest of its command.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.redact.looks import is_password
from holdfast.redact.patterns import compiled
from holdfast.redact.rules import Secret

__all__ = ["PATTERNS", "secrets_in_commands"]

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
"""What must be in a text (in small letters), and the programs to look for then, by the beginning of their patterns."""

PATTERNS: Final = {
    f"{trigger} {word}": rf"(?<![A-Za-z0-9_]){pattern}"
    for trigger, programs in _COMMANDS.items()
    for word, pattern in programs.items()
}
"""Every pattern of this module."""

_SHORTEST_NUMBER: Final = 6  # digits; a shorter number is a port or a count


def secrets_in_commands(text: str, lowered: str) -> Iterator[Secret]:
    """The secrets in the options and arguments of known programs. `lowered` is the text in small letters."""
    for trigger, programs in _COMMANDS.items():
        if trigger in lowered:
            for word in programs:
                yield from _after(text, lowered, word, PATTERNS[f"{trigger} {word}"])


def _after(text: str, lowered: str, word: str, pattern: str) -> Iterator[Secret]:
    start = lowered.find(word)
    while start >= 0:
        match = compiled(pattern).match(text, start)
        if match and is_password(match["secret"]) and not _is_count(match["secret"]):
            yield Secret("password", *match.span("secret"))
        start = lowered.find(word, match.end() if match else start + len(word))


def _is_count(value: str) -> bool:
    return value.isdigit() and len(value) < _SHORTEST_NUMBER
