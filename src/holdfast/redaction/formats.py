"""Find secrets by their format: tokens that begin with a known mark, private keys, addresses with a password."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

from holdfast.patterns import compile_once, load
from holdfast.redaction.looks import is_chosen, is_genuine, is_mixed, is_password, is_prefixed, is_unguessable
from holdfast.redaction.scanning import find_all, find_first
from holdfast.redaction.secret import Secret

__all__ = ["Rule", "find_by_format", "find_runs", "load_rules"]

_LOOKS: Final[dict[str, Callable[[str], bool]]] = {
    "token": is_genuine,
    "password": is_password,
    "loose password": partial(is_password, literal=False),
    "chosen": lambda value: is_chosen(value) or is_unguessable(value),
    "mixed": is_mixed,
    "prefixed": is_prefixed,
    "random": is_unguessable,
}
_SHORT_PREFIX: Final = 3  # characters
_AFTER_PREFIX: Final = "[A-Za-z0-9_=-]{16,}+(?:[.][A-Za-z0-9_-]{6,}+){0,3}"


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
    """Read the rules: `tokens` are read from runs of plain characters, those `around` and `anywhere` from the text."""
    rules = [Rule(name, tuple(marks), *rest) for name, marks, *rest in load("secrets")["formats"][kind]]
    if kind == "tokens":
        for name, prefixes in load("secrets")["prefixes"].items():
            any_prefix = "|".join(map(re.escape, prefixes))
            pattern = f"(?<![A-Za-z0-9])(?:{any_prefix}){_AFTER_PREFIX}"
            is_short = min(map(len, prefixes)) <= _SHORT_PREFIX  # other things begin with these letters too
            rules.append(Rule(name, tuple(prefixes), pattern, looks="mixed" if is_short else "prefixed"))
    return tuple(rules)


# A text as three kinds of characters: those of all tokens, those of some tokens, all others.
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")
_KINDS: Final = bytes(ord("a" if code in _PLAIN else "+" if code in b"+/=%" else " ") for code in range(256))
_LONG: Final = b"a" * 20

# The letters of an escape are not part of a token: of a line end in a string, of a colour, of an encoded `=`.
_ESCAPE: Final = r"\\(?:u[0-9A-Fa-f]{4}|[nrtbf])|[\[;][0-9]{1,3}m"
_ENCODED: Final = r"%(?:3D|20|26|22|0A|3A|2C)"


def find_by_format(text: str, runs: Mapping[int, str]) -> Iterator[Secret]:
    """Yield the secrets in a known format. `runs` are the long pieces of the text."""
    yield from _find_by_marks(text, load_rules("anywhere"), place=text)
    if not runs:
        return
    long = "\n".join(runs.values())
    yield from _find_by_marks(text, load_rules("around"), place=long)
    if not find_first(_compile_marks(), long):
        return
    for start, run in runs.items():
        mark = find_first(_compile_marks(), run)
        while mark:  # what a match has read is not read again: a token of marks only stays one token
            end = mark.end()
            for rule in _rules_with(mark.group()):
                if token := rule.regex.match(run, mark.start()):
                    end = max(end, token.end())
                    yield from rule.read(token, at=start)
            mark = find_first(_compile_marks(), run, end)


def _find_by_marks(text: str, rules: tuple[Rule, ...], *, place: str) -> Iterator[Secret]:
    """Yield the secrets in a text that the rules find, if one of their marks is in `place`."""
    for rule in rules:
        if _has_mark(place, rule.marks):
            for match in find_all(rule.regex, text):
                yield from rule.read(match)


def _has_mark(text: str, marks: tuple[str, ...]) -> bool:
    """Return whether a text has one of the marks. A loop: `any` takes half as long again, for each of 60 rules."""
    for mark in marks:
        if mark in text:
            return True
    return False


def find_runs(text: str, plain: bytes) -> dict[int, str]:
    """Return the pieces with enough consecutive plain characters for a token, by their start.

    `plain` is the text with one byte per character.
    """
    kinds = plain.translate(_KINDS)
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
    """Any mark that starts at the beginning of a word, or with a sign. By initials: `re` tries branches one by one."""
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
