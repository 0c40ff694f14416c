"""Find random strings that the words before them call a secret, and those in the addresses of webhooks.

A random string is rare in most texts, so these are found from the value backwards: `the API key was created: 3kQ…`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from holdfast.patterns import compile_once, load
from holdfast.redaction.looks import has_words, is_genuine, is_unguessable
from holdfast.redaction.scanning import find_all, find_first
from holdfast.redaction.secret import Secret

__all__ = ["find_near_words"]

_LOOK_BACK: Final = 96  # characters before a value
_MIN_HEX_CHARS: Final = 32
_MIN_BASE64_CHARS: Final = 64


@cache
def _pattern(name: str) -> re.Pattern[str]:
    return compile_once(load("secrets")["near"][name])


@cache
def _vendors() -> frozenset[str]:
    return frozenset(load("secrets")["near"]["vendors"])


def find_near_words(text: str, runs: Mapping[int, str]) -> Iterator[Secret]:
    """Yield the random strings that are secrets by what is before them. `runs` are the long pieces of the text."""
    for start, run in runs.items():
        if "/" in run and find_first(_pattern("secret path"), run):
            yield from _find_in_address(run, start)
        elif not run.startswith("//"):
            yield from _find_after_sentence(text, run, start)


def _find_in_address(run: str, start: int) -> Iterator[Secret]:
    """Yield the random parts of an address that is a secret by itself, such as that of a webhook."""
    path = find_first(_pattern("secret path"), run)
    if path is None:
        return
    for part in find_all(_pattern("path part"), run, path.end()):
        if _pattern("uuid").fullmatch(part.group()) or is_unguessable(part.group()):
            yield Secret("url-token", start + part.start(), start + part.end())


def _find_after_sentence(text: str, run: str, start: int) -> Iterator[Secret]:
    for match in find_all(_pattern("value"), run):
        place = start + match.start()
        before = text[max(0, place - _LOOK_BACK) : place]
        value = match.group()
        rule = _judge(value)
        if not rule:
            continue
        bound = _pattern("bound").search(before) if before[-1:] in {":", "$", "|"} else None
        if bound is not None:
            yield Secret("token", place - len(before) + bound.start(), place + len(value))
            continue
        vendor = _pattern("assigned").search(before) if rule == "token" and _pattern("solid").match(value) else None
        if vendor is not None and vendor["vendor"].lower() in _vendors():
            yield Secret(rule, place, place + len(value))
            continue
        named = _pattern("named").match(before)
        if named is None:
            continue
        line = named["before"].rpartition("\n")[2]
        if _pattern("digest").search(f"{line[-16:]}|{named['gap']}"):
            continue
        if _pattern("uuid").fullmatch(value) and named["gap"].strip(" \t:="):
            continue  # most are ids; one right after its name is not
        yield Secret(rule, place, place + len(value))


def _judge(value: str) -> str:
    """Return the rule that masks a random string; empty if it is none."""
    if not is_genuine(value) or value.isdigit() or value.startswith("0x"):
        return ""
    if len(value) >= _MIN_HEX_CHARS and _pattern("hex").fullmatch(value):
        return "hex"
    if len(value) >= _MIN_BASE64_CHARS and _pattern("base64").fullmatch(value):
        return "base64"
    if value.startswith("/"):  # a path
        return ""
    return "token" if is_unguessable(value) and not has_words(value) else ""
