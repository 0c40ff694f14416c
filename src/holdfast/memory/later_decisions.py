"""Decisions in a list of sessions that a later statement or fact takes back: both are shown, the later one behind.

A list that states "logs are kept for 45 days" without the "60 days, not 45" of the day after would be wrong.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from holdfast import signals
from holdfast.calls import Deadline
from holdfast.memory import facts
from holdfast.memory.archive import is_noise, unwrap
from holdfast.memory.conflicts import FactIndex
from holdfast.memory.exclusion import read_exclusions
from holdfast.memory.session_lines import SessionLine, select_newest
from holdfast.memory.sessions import shorten
from holdfast.search.contradictions import ends_another, read_claim
from holdfast.search.corrections import Earlier, Later, Rarity, Statement, is_statement
from holdfast.store.base import Across, FactRow, Scope, Select, Store

LATER: Final = "{first} (later: {later})"
"""The form that a digest uses too."""
MAX_LATER_CHARS: Final = 200
"""The maximum characters of a later statement."""
# The two bounds are for large memories. They were chosen by hand: usually the deadline ends the reading first.
_MAX_SESSIONS: Final = 100
"""How many sessions are read in addition to those that are listed, the newest ones."""
_MAX_MESSAGES: Final = 600
"""How many messages of a session are read, the newest ones."""
_ROUNDING: Final = 1e-9
"""Sums of the same weights in another order differ by less."""


@dataclass(frozen=True, kw_only=True)
class UserStatement:
    """A statement of a person, the archived message that has it, and the project that it was made in."""

    text: str
    message: int
    time: int
    project: str

    @cached_property
    def statement(self) -> Statement:
        """Its terms."""
        return Statement.read(self.text)


def read_user_statements(
    store: Store, scope: Scope, *, across: Across, since: int, listed: Iterable[Scope], deadline: Deadline
) -> list[UserStatement]:
    """Read what people stated since a time in the sessions that a reader may see, oldest first.

    First the `listed` sessions are read, because a decision is compared with what was said after it. After the deadline
    no further sessions are read: those would be older ones.
    """
    statements: list[UserStatement] = []
    newest = store.read_sessions(scope, across=across, since=since, limit=_MAX_SESSIONS)
    for own in dict.fromkeys([*listed, *(span.scope for span in newest)]):
        if deadline.is_over:
            break
        rows = store.read_messages(Select(scope=own, newest=True, limit=_MAX_MESSAGES))
        for row in select_newest([row for row in rows if row.message.role == "user" and not row.excluded]):
            for sentence in signals.sentences(unwrap(row.message.text)):
                if is_statement(sentence) and not is_noise(sentence):
                    statement = UserStatement(
                        text=sentence, message=row.id, time=row.message.timestamp or 0, project=own.project
                    )
                    statements.append(statement)
    # Of one message, the sentences stay in their order.
    return sorted(statements, key=lambda statement: (statement.time, statement.message))


@dataclass(frozen=True, slots=True)
class LaterFacts:
    """The facts that hold now, and the words of messages from which a fact was learned that was replaced since."""

    holding: FactIndex
    replaced: Mapping[int, Sequence[tuple[str, FactRow]]]

    @classmethod
    def read(cls, store: Store, scope: Scope, *, across: Across) -> LaterFacts:
        """Read the facts that a reader may see, without those that are excluded from recall."""
        hidden = read_exclusions(store, scope, across=across)
        rows = [row for row in facts.load(store, scope, across=across) if not hidden.hides(row)]
        replaced: dict[int, list[tuple[str, FactRow]]] = {}
        for message, words, successor in facts.find_replaced(rows):
            replaced.setdefault(message, []).append((words, successor))
        return cls(FactIndex(facts.current(rows), settled=hidden.pairs), replaced)

    def find(self, text: str, *, messages: Collection[int], scope: Scope, time: int) -> FactRow | None:
        """Return the newest fact that holds instead of a sentence of some messages; None if there is none.

        It was learned after the sentence. A fact that a person wrote down by hand is not linked to any message, so the
        words are compared too.
        """
        later: list[FactRow] = []
        for message in messages:
            for words, successor in self.replaced.get(message, ()):
                if words in text or text.rstrip("…") in words:
                    later.append(successor)
        said = FactRow(scope=scope, id="", type="decision", content=text, time=time)
        others = [*self.holding.find_rivals(said), *self.holding.find_corrections(said)]
        later += [row for row in others if row.time > time]
        return max(later, key=lambda row: row.time, default=None)


def add_later(
    lines: Sequence[SessionLine],
    statements: Sequence[UserStatement],
    later_facts: LaterFacts,
    *,
    deadline: Deadline,
) -> list[SessionLine]:
    """Write after each sentence of the lines the newest statement or fact that replaces it.

    A statement that is written after another one is not listed again. After the deadline, the remaining sentences stay
    as they are.
    """
    index = _Index(statements)
    moved: set[str] = set()
    done: list[SessionLine] = []
    for line in lines:
        messages = set(line.messages)
        texts: list[str] = []
        for text in (line.title, line.outcome, *line.keys):
            later: UserStatement | FactRow | None = None
            if text and not deadline.is_over:
                later = _find_later(text, line, index, later_facts)
            if later is None:
                texts.append(text)
                continue
            if isinstance(later, UserStatement):
                messages.add(later.message)
                words = later.text
            else:
                words = later.content
            shown = shorten(words, max_chars=MAX_LATER_CHARS)
            moved.add(shown)
            texts.append(LATER.format(first=text, later=shown))
        title, outcome, *keys = texts
        done.append(replace(line, title=title, outcome=outcome, keys=tuple(keys), messages=tuple(sorted(messages))))
    # A later statement may have been listed before the line that it now completes, so this is a second pass.
    listed: list[SessionLine] = []
    for line in done:
        left = tuple(key for key in line.keys if key not in moved)
        listed.append(replace(line, keys=left))
    return listed


def _find_later(text: str, line: SessionLine, index: _Index, later_facts: LaterFacts) -> UserStatement | FactRow | None:
    """Find what replaces a sentence of a line: a statement or a fact, the newer of the two; None if it still holds."""
    said = index.find_last(text)
    if said is None:  # the assistant wrote it, so only a fact can replace it
        return later_facts.find(text, messages=line.messages, scope=line.scope, time=line.time)
    stated = index.find_later(said)
    fact = later_facts.find(text, messages=[said.message], scope=line.scope, time=said.time)
    if fact is not None and (stated is None or fact.time > stated.time):
        return fact
    return stated


def _is_about_another(later: Statement, earlier: Statement) -> bool:
    """Return whether a sentence ends or changes something else than an earlier one says, or carries that out."""
    if not later.private <= earlier.terms or later.carries_out(earlier):
        return True
    ending = read_claim(later.text)
    ended = read_claim(earlier.text)
    return ending is not None and ended is not None and ends_another(ending, ended)


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
        self._lengths = sorted(set(map(len, self._last)))
        rarity = {term: math.log(1 + len(statements) / len(places)) for term, places in self._places.items()}
        self._rarity = Rarity.of(rarity)

    def find_last(self, text: str) -> UserStatement | None:
        """Return the statement in which a sentence was said last; None if nobody has said it.

        The last one counts, because a statement that is repeated holds again. The sentence of a line may have been cut,
        or be two sentences: then one of it and the statement begins with the other.
        """
        start = text.rstrip("…")
        places: list[int] = []
        for length in self._lengths:  # statements with which it begins
            if length > len(start):
                break
            if start[:length] in self._last:
                places.append(self._last[start[:length]])
        for stated in self._texts[bisect_left(self._texts, start) :]:  # statements that begin with it
            if not start or not stated.startswith(start):
                break
            places.append(self._last[stated])
        if not places:
            return None
        return self._statements[max(places)]

    def find_later(self, said: UserStatement) -> UserStatement | None:
        """Return the newest statement of the same project that replaces another one; None if it still holds."""
        earlier = Earlier.read(said.statement, self._rarity, asked=())
        for place in self._find_near(earlier, after=self._last[said.text]):
            stated = self._statements[place]
            if stated.project != said.project or stated.statement.is_request:
                continue
            is_superseded = earlier.is_superseded(Later.read(stated.text))
            if is_superseded and not _is_about_another(stated.statement, said.statement):
                return stated
        return None

    def _find_near(self, earlier: Earlier, *, after: int) -> list[int]:
        """List the places of later statements that have enough words of an earlier one, the newest first."""
        shared: dict[int, float] = {}
        for term, weight in earlier.weights.items():
            places = self._places.get(term, [])
            for place in places[bisect_right(places, after) :]:
                shared[place] = shared.get(place, 0.0) + weight
        near = [place for place, weight in shared.items() if weight >= earlier.min_weight - _ROUNDING]
        return sorted(near, reverse=True)
