"""Decisions in a list of sessions that a later statement takes back: both are shown, the later one behind the first.

A list that states "logs are kept for 45 days" without the "60 days, not 45" of the day after would be wrong.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from holdfast import signals
from holdfast.calls import Deadline
from holdfast.memory.archive import is_noise, unwrap
from holdfast.memory.session_lines import SessionLine, select_newest
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
_ROUNDING: Final = 1e-9
"""Sums of the same weights in another order differ by less."""


@dataclass(frozen=True)
class UserStatement:
    """A statement of a person, and the archived message that has it."""

    text: str
    message: int

    @cached_property
    def statement(self) -> Statement:
        """Its terms."""
        return Statement.read(self.text)


def read_user_statements(
    store: Store, scope: Scope, *, across: Across, since: int, deadline: Deadline
) -> list[UserStatement]:
    """Read what people stated since a time in the sessions that a reader may see, oldest first.

    After the deadline no further sessions are read: those would be older ones.
    """
    dated: list[tuple[int, int, str]] = []
    for span in store.read_sessions(scope, across=across, since=since, limit=_MAX_SESSIONS):
        if deadline.is_over:
            break
        rows = store.read_messages(Select(scope=span.scope, newest=True, limit=_MAX_MESSAGES))
        for row in select_newest([row for row in rows if row.message.role == "user" and not row.excluded]):
            for sentence in signals.sentences(unwrap(row.message.text)):
                if is_statement(sentence) and not is_noise(sentence):
                    dated.append((row.message.timestamp or 0, row.id, sentence))
    dated.sort(key=lambda one: one[:2])  # of one message, the sentences stay in their order
    return [UserStatement(text, message) for _, message, text in dated]


def add_later(
    lines: Sequence[SessionLine], statements: Sequence[UserStatement], *, deadline: Deadline
) -> list[SessionLine]:
    """Write after each sentence of the lines the newest statement that replaces it.

    A statement that is written after another one is not listed again. After the deadline, the remaining sentences stay
    as they are.
    """
    index = _Index(statements)
    moved: set[str] = set()
    done: list[SessionLine] = []
    for line in lines:
        messages = set(line.messages)

        def complete(text: str, messages: set[int] = messages) -> str:
            if deadline.is_over:
                return text
            later = index.find_later(text)
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


class _Index:
    """Statements by their words. Of thousands of them, only a few share enough words with a sentence to be compared."""

    def __init__(self, statements: Sequence[UserStatement]) -> None:
        self._statements = statements
        self._last: dict[str, int] = {}  # the place of each text; of a text that was said again, the last one
        self._places: dict[str, list[int]] = {}  # by term
        for place, stated in enumerate(statements):
            self._last[stated.text] = place
            for term in stated.statement.terms:
                self._places.setdefault(term, []).append(place)
        self._texts = sorted(self._last)
        rarity = {term: math.log(1 + len(statements) / len(places)) for term, places in self._places.items()}
        self._rarity = Rarity.of(rarity)

    def find_later(self, text: str) -> UserStatement | None:
        """Return the newest statement that replaces a sentence; None if it still holds."""
        last = self._find_last(text.rstrip("…"))  # a repeated statement holds again
        if last is None:
            return None
        earlier = Earlier.read(self._statements[last].statement, self._rarity, asked=())
        for place in self._find_near(earlier, after=last):
            stated = self._statements[place]
            if not stated.statement.is_request and earlier.is_superseded(Later.read(stated.text)):
                return stated
        return None

    def _find_last(self, start: str) -> int | None:
        """Return the place where a sentence was said last. It may be cut, or be two sentences."""
        places: list[int] = []
        for stop in range(1, len(start) + 1):
            if start[:stop] in self._last:
                places.append(self._last[start[:stop]])
        for text in self._texts[bisect_left(self._texts, start) :]:
            if not start or not text.startswith(start):
                break
            places.append(self._last[text])
        return max(places, default=None)

    def _find_near(self, earlier: Earlier, *, after: int) -> list[int]:
        """List the places of later statements that have enough words of an earlier one, the newest first."""
        shared: dict[int, float] = {}
        for term, weight in earlier.weights.items():
            places = self._places.get(term, [])
            for place in places[bisect_right(places, after) :]:
                shared[place] = shared.get(place, 0.0) + weight
        near = [place for place, weight in shared.items() if weight >= earlier.min_weight - _ROUNDING]
        return sorted(near, reverse=True)
