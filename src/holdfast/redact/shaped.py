r"""Secrets that are known by their own shape: the formats of `rules.py`, found in a text."""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final

from holdfast.redact.patterns import compiled
from holdfast.redact.rules import ANYWHERE, TOKENS, Rule, Secret

__all__ = ["secrets_by_shape"]

# A text as three kinds of characters: those that tokens are made of, those that some also hold, all others.
_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.~")
_KINDS: Final = bytes(ord("a" if code in _PLAIN else "+" if code in b"+/=%" else " ") for code in range(256))
_LONG: Final = b"a" * 20

# The letters of an escape belong to no token: of a line end inside a string, of a colour, of an encoded `=`.
_ESCAPE: Final = r"\\(?:u[0-9A-Fa-f]{4}|[nrtbf])|[\[;][0-9]{1,3}m"
_ENCODED: Final = r"%(?:3D|20|26|22|0A|3A|2C)"


def secrets_by_shape(text: str, plain: bytes) -> Iterator[Secret]:
    """The secrets that their own format gives away. `plain` is the text, one byte a character."""
    for rule in ANYWHERE:
        if any(mark in text for mark in rule.marks):
            for match in rule.regex.finditer(text):
                yield from _accepted(rule, match)
    starts, runs = _runs(text, plain.translate(_KINDS))
    if _marks().search("\n".join(runs)):
        for start, run in zip(starts, runs, strict=True):
            yield from _tokens(run, at=start)


def _runs(text: str, kinds: bytes) -> tuple[list[int], list[str]]:
    """The pieces without a gap that are plain for long enough to hold a token, and where they start."""
    starts, runs, end, long = [], [], 0, kinds.find(_LONG)
    while long >= 0:
        start = max(end, kinds.rfind(b" ", end, long) + 1)
        end = kinds.find(b" ", long)
        end = end if end >= 0 else len(kinds)
        if start and text[start - 1] in "\\[;" and (escape := compiled(_ESCAPE).match(text, start - 1)):
            start = escape.end()
        run = text[start:end]
        starts.append(start)
        runs.append(compiled(_ENCODED).sub("   ", run) if "%" in run else run)
        long = kinds.find(_LONG, end)
    return starts, runs


@cache
def _marks() -> re.Pattern[str]:
    """Any mark that starts where a word does, or with a sign. By initials: `re` tries branches one by one."""
    tails = defaultdict(list)
    for mark in sorted({mark for rule in TOKENS for mark in rule.marks}, key=len, reverse=True):
        tails[mark[0]].append(re.escape(mark[1:]))
    branches = {initial: f"{re.escape(initial)}(?:{'|'.join(rest)})" for initial, rest in tails.items()}
    words = "|".join(branch for initial, branch in branches.items() if initial.isalnum())
    signs = "|".join(branch for initial, branch in branches.items() if not initial.isalnum())
    return re.compile(f"(?<![A-Za-z0-9])(?:{words})|{signs}")


@cache
def _rules_with(mark: str) -> tuple[Rule, ...]:
    """The rules that a mark points at: by itself, or by a shorter one that it starts with."""
    return tuple(rule for rule in TOKENS if mark.startswith(rule.marks))


def _tokens(run: str, *, at: int) -> Iterator[Secret]:
    """The tokens in a run. What a match has read is not read again: a token of marks only stays one token."""
    mark = _marks().search(run)
    while mark:
        end = mark.end()
        for rule in _rules_with(mark.group()):
            if match := rule.regex.match(run, mark.start()):
                end = max(end, match.end())
                yield from _accepted(rule, match, at=at)
        mark = _marks().search(run, end)


def _accepted(rule: Rule, match: re.Match[str], *, at: int = 0) -> Iterator[Secret]:
    group = rule.regex.groups and 1
    if rule.accepts(match[group]):
        yield Secret(rule.name, at + match.start(group), at + match.end(group))
