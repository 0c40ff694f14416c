"""Helpers of the rule checks of all providers.

The checks read what would be sent and nothing else. They use no function of the code that reads, shapes or renders
messages, so that they find its mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeAlias

Wire: TypeAlias = Mapping[str, Any]
"""A message or item as it would be sent."""

OPENAI_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The function names that OpenAI accepts."""
MAX_ID_CHARS: Final = 64
"""The longest id of a call that OpenAI and Anthropic accept."""


class Violation(NamedTuple):
    """A broken rule: its name, the path to what breaks it, and a description."""

    rule: str
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.rule})"


def blocks(content: object) -> list[Wire]:
    """Return the objects in a content list; none if it is not a list."""
    if not isinstance(content, list):
        return []
    return [block for block in content if isinstance(block, dict) or isinstance(block, Mapping)]  # noqa: SIM101 - quick


def kind(data: Wire) -> str:
    """Return the `type` of a wire object."""
    return str(data.get("type", ""))


def has_text(value: object) -> bool:
    """Return whether a value is a text that is not blank."""
    return isinstance(value, str) and bool(value) and not value.isspace()


def quote(value: object) -> str:
    """Return the beginning of a value, for a description."""
    return repr(value)[:40]


class Turn(NamedTuple):
    """The ids of the results and calls of a message.

    With `closes`, every call of an earlier message must have its result by the end of this message.
    """

    where: str
    calls: Sequence[str] = ()
    results: Sequence[str] = ()
    closes: bool = True


def check_pairs(turns: Sequence[Turn], *, is_unique: bool = False) -> list[Violation]:
    """List calls without their result, and results without their call; with `is_unique`, ids that are used twice."""
    found: list[Violation] = []
    ids: list[tuple[str, str]] = []
    waiting: dict[str, str] = {}
    answered: set[str] = set()
    for turn in (*turns, Turn("the end")):
        for call_id in turn.results:
            if waiting.pop(call_id, None) is None:
                rule = "repeated-result" if is_unique and call_id in answered else "orphan-result"
                found.append(Violation(rule, turn.where, f"no open call {quote(call_id)}"))
            answered.add(call_id)
        if turn.closes:
            for where, calls in groupby(waiting, key=waiting.__getitem__):
                found.append(Violation("unanswered-call", where, f"no result for {quote(list(calls))}"))
            waiting = {}
            answered = set()
        waiting |= dict.fromkeys(turn.calls, turn.where)
        ids += ((turn.where, call_id) for call_id in turn.calls)
    if is_unique:
        found += check_unique(ids, "repeated-id")
    return found


def check_unique(ids: Iterable[tuple[str, str]], rule: str) -> Iterator[Violation]:
    """List the ids, each given with its place, that are used a second time."""
    seen: set[str] = set()
    for where, id_ in ids:
        if id_ in seen:
            yield Violation(rule, where, f"a second {quote(id_)}")
        seen.add(id_)
