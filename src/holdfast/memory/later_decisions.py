"""Decisions in a list of sessions that a later statement takes back: both are shown, the later one behind the first.

A list that states "logs are kept for 45 days" without the "60 days, not 45" of the day after would be wrong.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from holdfast import signals
from holdfast.memory.archive import is_noise, unwrap
from holdfast.memory.session_lines import SessionLine
from holdfast.memory.sessions import shorten
from holdfast.search.corrections import Earlier, Later, Rarity, Statement, is_statement
from holdfast.store.base import Across, Scope, Select, Store

LATER: Final = "{first} (later: {later})"
"""As a digest writes it."""
MAX_LATER_CHARS: Final = 200
"""The longest later statement that is shown."""
_MAX_SESSIONS: Final = 20
"""The sessions that are read, the newest."""
_MAX_MESSAGES: Final = 600
"""The messages of a session that are read, the newest."""


@dataclass(frozen=True)
class Said:
    """A statement of a person, and the archived message that has it."""

    text: str
    message: int

    @cached_property
    def statement(self) -> Statement:
        """Its terms."""
        return Statement.read(self.text)


def read_said(store: Store, scope: Scope, *, across: Across, since: int) -> list[Said]:
    """Read what a person stated in the sessions that a reader may see, since a time, oldest first."""
    dated: list[tuple[int, int, str]] = []
    for span in store.read_sessions(scope, across=across, since=since, limit=_MAX_SESSIONS):
        for row in store.read_messages(Select(scope=span.scope, newest=True, limit=_MAX_MESSAGES)):
            if row.message.role != "user" or row.excluded:
                continue
            for sentence in signals.sentences(unwrap(row.message.text)):
                if is_statement(sentence) and not is_noise(sentence):
                    dated.append((row.message.timestamp or 0, row.id, sentence))
    dated.sort(key=lambda one: one[:2])  # of one message, the sentences stay in their order
    return [Said(text, message) for _, message, text in dated]


def add_later(lines: Sequence[SessionLine], said: Sequence[Said]) -> list[SessionLine]:
    """Write behind each sentence of the lines the newest statement that takes its place.

    A statement that is written behind another one is not listed again.
    """
    rarity = _measure_rarity(said)
    moved: set[str] = set()
    done: list[SessionLine] = []
    for line in lines:
        messages = set(line.messages)

        def complete(text: str, messages: set[int] = messages) -> str:
            later = _find_later(text, said, rarity)
            if later is None:
                return text
            messages.add(later.message)
            shown = shorten(later.text, max_chars=MAX_LATER_CHARS)
            moved.add(shown)
            return LATER.format(first=text, later=shown)

        title = complete(line.title)
        outcome = complete(line.outcome)
        keys = tuple(complete(key) for key in line.keys)
        done.append(replace(line, title=title, outcome=outcome, keys=keys, messages=tuple(sorted(messages))))
    return [replace(line, keys=tuple(key for key in line.keys if key not in moved)) for line in done]


def _measure_rarity(said: Sequence[Said]) -> Rarity:
    counts: Counter[str] = Counter()
    for one in said:
        counts.update(one.statement.terms)
    return Rarity.of({term: math.log(1 + len(said) / count) for term, count in counts.items()})


def _find_later(text: str, said: Sequence[Said], rarity: Rarity) -> Said | None:
    """Return the newest statement that takes the place of a sentence; None if it still holds."""
    start = text.rstrip("…")
    if not start:
        return None
    places: list[int] = []
    for place, one in enumerate(said):
        # A text may be cut, or have two sentences.
        if one.text.startswith(start) or start.startswith(one.text):
            places.append(place)
    if not places:
        return None
    last = places[-1]  # what is said again holds again
    earlier = Earlier.read(said[last].statement, rarity, asked=())
    for one in reversed(said[last + 1 :]):
        if one.statement.is_request or earlier.statement.topic.isdisjoint(one.statement.terms):
            continue
        if earlier.is_superseded(Later.read(one.text)):
            return one
    return None
