"""Decisions in a list of sessions that a later statement takes back: both are shown, the later one after the first.

A list that states "logs are kept for 45 days" without the "60 days, not 45" of the next day would be wrong.
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
"""The form that a digest uses too."""
MAX_LATER_CHARS: Final = 200
"""The maximum characters of a later statement."""
_MAX_SESSIONS: Final = 20
"""How many sessions are read, the newest ones."""
_MAX_MESSAGES: Final = 600
"""How many messages of a session are read, the newest ones."""


@dataclass(frozen=True)
class UserStatement:
    """A statement of a person, and the archived message that has it."""

    text: str
    message: int

    @cached_property
    def statement(self) -> Statement:
        """Its terms."""
        return Statement.read(self.text)


def read_user_statements(store: Store, scope: Scope, *, across: Across, since: int) -> list[UserStatement]:
    """Read what people stated since a time in the sessions that a reader may see, oldest first."""
    dated: list[tuple[int, int, str]] = []
    for span in store.read_sessions(scope, across=across, since=since, limit=_MAX_SESSIONS):
        for row in store.read_messages(Select(scope=span.scope, newest=True, limit=_MAX_MESSAGES)):
            if row.message.role != "user" or row.excluded:
                continue
            for sentence in signals.sentences(unwrap(row.message.text)):
                if is_statement(sentence) and not is_noise(sentence):
                    dated.append((row.message.timestamp or 0, row.id, sentence))
    dated.sort(key=lambda entry: entry[:2])  # the sentences of one message stay in their order
    return [UserStatement(text, message) for _, message, text in dated]


def add_later(lines: Sequence[SessionLine], statements: Sequence[UserStatement]) -> list[SessionLine]:
    """Write after each sentence of the lines the newest statement that replaces it.

    A statement that is written after another one is not listed again.
    """
    rarity = _measure_rarity(statements)
    moved: set[str] = set()
    done: list[SessionLine] = []
    for line in lines:
        messages = set(line.messages)

        def complete(text: str, messages: set[int] = messages) -> str:
            later = _find_later(text, statements, rarity)
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
    listed: list[SessionLine] = []
    for line in done:
        keys = tuple(key for key in line.keys if key not in moved)
        listed.append(replace(line, keys=keys))
    return listed


def _measure_rarity(statements: Sequence[UserStatement]) -> Rarity:
    counts: Counter[str] = Counter()
    for stated in statements:
        counts.update(stated.statement.terms)
    return Rarity.of({term: math.log(1 + len(statements) / count) for term, count in counts.items()})


def _find_later(text: str, statements: Sequence[UserStatement], rarity: Rarity) -> UserStatement | None:
    """Return the newest statement that replaces a sentence; None if it still holds."""
    start = text.rstrip("…")
    if not start:
        return None
    places: list[int] = []
    for place, stated in enumerate(statements):
        # A text may be cut, or have two sentences.
        if stated.text.startswith(start) or start.startswith(stated.text):
            places.append(place)
    if not places:
        return None
    last = places[-1]  # a repeated statement holds again
    earlier = Earlier.read(statements[last].statement, rarity, asked=())
    for stated in reversed(statements[last + 1 :]):
        if stated.statement.is_request or earlier.statement.topic.isdisjoint(stated.statement.terms):
            continue
        if earlier.is_superseded(Later.read(stated.text)):
            return stated
    return None
