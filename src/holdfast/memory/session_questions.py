"""Questions about past sessions: "What did we do yesterday?", 上周我们做了什么？, "in the session about the importer".

Such a question has no word of its answer, so no search finds it. It is answered from the list of sessions: a line for
each session that matches, and its most important sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, NamedTuple

import numpy as np

from holdfast.calls import Deadline
from holdfast.memory.archive import unwrap
from holdfast.memory.deadlines import Deadlines
from holdfast.memory.later_decisions import LaterFacts, add_later, read_user_statements
from holdfast.memory.query import RecallQuery, asks_something, weigh_terms
from holdfast.memory.session_lines import Rank, SessionLine, describe_period, weigh, weigh_decision
from holdfast.moments import local
from holdfast.patterns import compile_once, load
from holdfast.search.dates import Range
from holdfast.search.periods import find_periods, remove_periods
from holdfast.search.related import find_related
from holdfast.store.base import Scope, SearchQuery, Select, SessionSpan, Store
from holdfast.text import is_unsegmented, terms

MAX_SESSIONS: Final = 20
"""How many sessions of a period are listed."""
_MAX_READ: Final = 2 * MAX_SESSIONS
"""How many are read for that, because some have nothing to list."""
_MAX_READ_FOR_DECISIONS: Final = 300
"""How many are read for a question that asks for decisions: most sessions decide nothing."""
_MAX_DECIDING: Final = 100
"""How many of these are read first, because a search finds words that decide in them."""
_MAX_COUNTED: Final = 1_000
"""How many are counted."""
MAX_ABOUT: Final = 3
"""How many sessions about a subject are listed."""
MAX_KEYS: Final = 12
"""The maximum sentences of all sessions together, in addition to title and outcome."""
MAX_KEYS_EACH: Final = 4
"""The maximum sentences of one of several sessions."""
MAX_DECISIONS: Final = 24
"""The maximum sentences of a session for a question that asks for decisions."""
_MAX_PASSAGES: Final = 40
"""How many passages about a subject are used to compare their sessions."""
_MIN_SHARE: Final = 0.5
"""The share of a subject that a passage must contain, and of the best session's score that another one must have."""
_MAX_QUESTION_CHARS: Final = 400
"""A longer message asks for more than a list of sessions."""
_MAX_SUBJECT_WORDS: Final = 4
"""A question with more words that are neither a period nor part of asking is about something else."""
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n+")
_ALL_TIME: Final = (0, 2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionQuestion:
    """A question about past sessions.

    Attributes:
        periods: When they were; none for any time.
        subject: What they are about; empty for anything.
        is_about_decisions: Whether it asks what was decided in them, and not what was done.
    """

    periods: tuple[Range, ...] = ()
    subject: str = ""
    is_about_decisions: bool = False


LAST_SESSION: Final = SessionQuestion()
"""Asks for the last session, whenever it was."""
LAST_DECISIONS: Final = SessionQuestion(is_about_decisions=True)
"""Asks what was decided in it."""


def read_question(text: str, *, now: int | None) -> SessionQuestion | None:
    """Read a question about past sessions; None for any other question."""
    message = unwrap(text).strip()
    if len(message) > _MAX_QUESTION_CHARS:
        return None
    for sentence in _SENTENCE_END.split(message):  # "Good morning! What did we do yesterday?"
        question = _read_sentence(sentence.strip(), now=now)
        if question is not None:
            return question
    return None


def _read_sentence(sentence: str, *, now: int | None) -> SessionQuestion | None:
    """Read a question about the sessions of a period, those about a subject at any time, or the last session."""
    if not sentence:
        return None
    if not (asks_something(sentence) or _has("request", sentence)):  # "That last session went well."
        return None
    is_about_decisions = _has("decisions", sentence)
    is_about_activity = _has("activity", sentence)
    subject = _find_subject(sentence)
    if now is not None and (is_about_activity or is_about_decisions or subject or _has("session", sentence)):
        periods = find_periods(sentence, now=now)
        if is_about_decisions and not periods and _has("last", sentence):  # "what did we decide last time?"
            return LAST_DECISIONS
        rest = subject or _find_rest(sentence)
        if not periods and is_about_decisions:
            # "What did we decide about Redis?" is better answered by passages.
            asks_for_all = _has("all_time", sentence) or (not rest and _has("all_decisions", sentence))
            if asks_for_all:
                periods = [_ALL_TIME]
        if periods and len(rest.split()) <= _MAX_SUBJECT_WORDS:
            return SessionQuestion(periods=tuple(periods), subject=rest, is_about_decisions=is_about_decisions)
    if subject:
        return SessionQuestion(subject=subject)
    if _has("last", sentence) and (is_about_activity or _has("whole", sentence)):
        return LAST_SESSION
    return None


def add_sessions(store: Store, query: RecallQuery, deadlines: Deadlines) -> RecallQuery:
    """Return a query with the sessions that it asks for, oldest first; the same query if it asks for none.

    Of sessions whose words take longer to read than the deadlines allow, the newest are listed.
    """
    question = read_question(query.texts[-1], now=query.now)
    if question is None:
        return query
    if question.periods:
        return _add_periods(store, query, question, deadlines)
    if not question.subject:
        return _add_last(store, query, question, deadlines)
    lines = _list_about(store, query, question.subject)
    if not lines:
        return query
    lines.sort(key=lambda line: line.time)
    return replace(query, sessions=tuple(lines))


class _Part(NamedTuple):
    """What a session contains in a period."""

    span: SessionSpan
    since: int
    until: int

    @property
    def end(self) -> int:
        """The time of its last message, as far as that is known without reading it."""
        return min(self.span.last_time, self.until)


def _add_periods(store: Store, query: RecallQuery, question: SessionQuestion, deadlines: Deadlines) -> RecallQuery:
    """Return a query with the sessions of some periods, or with a line that says that there are none."""
    parts: list[_Part] = []
    for since, until in question.periods:
        spans = store.read_sessions(query.scope, across=query.across, since=since, until=until, limit=_MAX_COUNTED)
        parts += [_Part(span, since, until) for span in spans]
    parts.sort(key=lambda part: -part.end)
    if question.is_about_decisions:
        listed = _list_decisions(store, query, question, parts, deadline=deadlines.few)
        since = min(period[0] for period in question.periods)
        lines = _add_later(store, query, listed.lines, since=since, deadline=deadlines.end)
    else:
        listed = _list_parts(store, query, question, parts, deadline=deadlines.few)
        lines = list(listed.lines)
    lines.sort(key=lambda line: line.time)
    if lines:
        more = listed.unlisted
        if question.subject:  # it is not known how many of the others are about it
            more = 0
        return replace(
            query,
            sessions=tuple(lines),
            more_sessions=more,
            asks_for_decisions=question.is_about_decisions,
            is_listing=not question.subject,
            periods=_list_fact_periods(question),
        )
    has_others = any(part.span.scope != query.scope for part in parts)
    if not query.across or (question.subject and has_others):  # passages may say something about it
        return query
    if question.periods == (_ALL_TIME,):
        return query
    note = _say_none(store, query, question.periods, has_own=bool(parts))
    return replace(query, no_sessions=note, is_listing=not question.subject, periods=_list_fact_periods(question))


def _list_fact_periods(question: SessionQuestion) -> tuple[Range, ...]:
    """Return the periods from which facts count; none for all of them, if the question names a subject or no time."""
    if question.subject or question.periods == (_ALL_TIME,):
        return ()
    return question.periods


def _add_later(
    store: Store, query: RecallQuery, lines: Sequence[SessionLine], *, since: int, deadline: Deadline
) -> list[SessionLine]:
    """Write after each decision what replaced it: a later statement of a person, or a fact that holds now."""
    if not lines:
        return []
    statements = read_user_statements(
        store,
        query.scope,
        across=query.across,
        since=since,
        listed=[line.scope for line in lines],
        deadline=deadline,
    )
    facts = LaterFacts.read(store, query.scope, across=query.across or True)
    return add_later(lines, statements, facts, deadline=deadline)


def _say_none(store: Store, query: RecallQuery, periods: Sequence[Range], *, has_own: bool) -> str:
    """Return the line that there are no sessions in some periods, and when the last one before was."""
    start = periods[0][0]
    before = store.read_sessions(query.scope, across=query.across, until=start, limit=MAX_SESSIONS)
    nearest = ""
    for span in before:  # the newest first
        if span.last_time < start and span.scope != query.scope:
            nearest = f" The last one before was on {_name_day(span.last_time)}."
            break
    what = "sessions"
    if has_own:
        what = "other sessions"
    names = " or ".join(map(_name_period, periods))
    return f"No {what} {names}.{nearest}"


def _name_period(period: Range) -> str:
    first = _name_day(period[0])
    last = _name_day(period[1] - 1)
    if first == last:
        return f"on {first}"
    return f"from {first} to {last}"


def _name_day(time: int) -> str:
    return f"{local(time):%Y-%m-%d}"


# --- reading a question ----------------------------------------------------------------------


def _compile(pattern: str) -> re.Pattern[str]:
    return compile_once(pattern, re.IGNORECASE | re.VERBOSE)


def _has(name: str, question: str) -> bool:
    return _compile(load("questions")["sessions"][name]).search(question) is not None


def _find_subject(question: str) -> str:
    """Return the subject of the session that a question asks for; empty if it names none."""
    table = load("questions")["sessions"]
    patterns = table["about"]
    if not question.isascii():
        patterns = [*patterns, *table["about_cjk"]]
    for pattern in patterns:
        match = _compile(pattern).search(question)
        if match is not None:
            return remove_periods(match["subject"]).strip()
    return ""


def _find_rest(question: str) -> str:
    """Return the words of a question that are neither a period nor part of the phrase that asks."""
    table = load("questions")["sessions"]
    rest = remove_periods(question)
    if _has("decisions", question):
        rest = _compile(table["all_time"]).sub(" ", rest)
        rest = _compile(table["decisions"]).sub(" ", rest)
    if not rest.isascii():
        rest = _compile(table["activity"]).sub(" ", rest)
        rest = _compile(table["session"]).sub(" ", rest)
        rest = _compile(table["frame_cjk"]).sub(" ", rest)
    words: list[str] = []
    for word in re.findall(r"[\w.+#-]+", rest):
        if set(terms(word)) - _frame():
            words.append(word.strip("."))
    return " ".join(words)


@cache
def _frame() -> frozenset[str]:
    return frozenset(terms(" ".join(load("questions")["sessions"]["frame"])))


# --- finding sessions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Listing:
    """The lines of sessions, and how many others were not read or have no place."""

    lines: Sequence[SessionLine]
    unlisted: int


def _list_parts(
    store: Store, query: RecallQuery, question: SessionQuestion, parts: Sequence[_Part], *, deadline: Deadline
) -> _Listing:
    """List what sessions contain in some periods. If the question names a subject, only sessions that name it."""
    each = max(1, min(MAX_KEYS_EACH, MAX_KEYS // max(1, len(parts))))
    describer = _Describer.make(store, query, subject=question.subject, max_keys=each, weigh_one=weigh)
    lines: list[SessionLine] = []
    for place, part in enumerate(parts):
        if place >= _MAX_READ or len(lines) >= MAX_SESSIONS or (lines and deadline.is_over):
            return _Listing(lines, unlisted=len(parts) - place)
        line = describer.describe(part)
        if line is not None:
            lines.append(line)
    return _Listing(lines, unlisted=0)


def _list_decisions(
    store: Store, query: RecallQuery, question: SessionQuestion, parts: Sequence[_Part], *, deadline: Deadline
) -> _Listing:
    """List the newest sessions in which something was decided.

    If nothing was decided in any of them, the newest sessions are listed as they are.
    """
    describer = _Describer.make(
        store, query, subject=question.subject, max_keys=MAX_DECISIONS, weigh_one=weigh_decision
    )
    likely = _find_deciding(store, query, since=min(since for since, _ in question.periods))
    first = [part for part in parts if part.span.scope in likely]
    rest = [part for part in parts if part.span.scope not in likely]
    deciding: list[SessionLine] = []
    others: list[SessionLine] = []
    unread = 0
    for place, part in enumerate([*first, *rest]):
        # The rest are read from the newest on. Once enough newer sessions decide something, none of them has a place.
        is_full = place >= len(first) and _count_newer(deciding, part) >= MAX_SESSIONS
        is_late = deadline.is_over and bool(deciding or others)
        if place >= _MAX_READ_FOR_DECISIONS or is_full or is_late:
            unread = len(parts) - place
            break
        line = describer.describe(part)
        if line is None:
            continue
        if line.is_scored:
            deciding.append(line)
        else:
            others.append(line)
    newest = sorted(deciding or others, key=lambda line: -line.time)
    listed = newest[:MAX_SESSIONS]
    return _Listing(listed, unlisted=unread + len(newest) - len(listed))


def _count_newer(lines: Iterable[SessionLine], part: _Part) -> int:
    """Count the lines that are not older than a session."""
    return sum(1 for line in lines if line.time >= part.end)


def _find_deciding(store: Store, query: RecallQuery, *, since: int) -> set[Scope]:
    """Find the sessions in which people used words that decide, those with most of them if there are many.

    There may be hundreds of sessions, and time to read some of them.
    """
    found = store.search(
        SearchQuery(
            scope=query.scope,
            across=query.across,
            terms=dict.fromkeys(_deciding_terms(), 1.0),
            without_messages=query.shown.messages,
            since=since,
        )
    )
    messages: dict[int, int] = {}  # one of each session
    for place in np.argsort(-found.keyword, kind="stable").tolist():
        if len(messages) == _MAX_DECIDING or found.keyword[place] <= 0:
            break
        if found.eligible[place] and found.human[place]:
            messages.setdefault(int(found.sessions[place]), int(found.messages[place]))
    rows = store.read_messages(Select(scope=query.scope, across=query.across, ids=tuple(messages.values())))
    return {row.scope for row in rows}


@cache
def _deciding_terms() -> tuple[str, ...]:
    found: dict[str, None] = {}
    for term in terms(" ".join(load("questions")["sessions"]["deciding"])):
        if len(term) > 1 or not is_unsegmented(term):
            found[term] = None
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Describer:
    """Makes the lines of sessions.

    Attributes:
        store, query: What is read, and for what.
        max_keys: The maximum sentences of a line, in addition to title and outcome.
        rank: Scores these sentences.
        wanted: The terms of the subject that a line must name; empty for any.
    """

    store: Store
    query: RecallQuery
    max_keys: int
    rank: Rank
    wanted: frozenset[str] = frozenset()

    @classmethod
    def make(cls, store: Store, query: RecallQuery, *, subject: str, max_keys: int, weigh_one: Rank) -> _Describer:
        """Make one for a subject, which may be empty; `weigh_one` scores a sentence by what it says about a session."""
        wanted: frozenset[str] = frozenset()
        if subject:
            wanted = frozenset(weigh_terms((subject,)))
        rank = _make_rank(wanted, is_required=bool(wanted), weigh_one=weigh_one)
        return cls(store=store, query=query, max_keys=max_keys, rank=rank, wanted=wanted)

    def describe(self, part: _Part) -> SessionLine | None:
        """Make the line of a session in a period; None if there is nothing to say, or nothing about the subject."""
        line = describe_period(
            self.store,
            part.span,
            since=part.since,
            until=part.until,
            shown=self.query.shown.messages,
            max_keys=self.max_keys,
            rank=self.rank,
        )
        if line is None or only_asks(line, now=self.query.now):
            return None
        if self.wanted and not _names(line, self.wanted):
            return None
        return line


def _list_about(store: Store, query: RecallQuery, subject: str) -> list[SessionLine]:
    """Describe the sessions that have most about a subject."""
    weights = weigh_terms((subject,))
    found = store.search(
        SearchQuery(
            scope=query.scope,
            across=query.across,
            terms=weights,
            related=find_related(weights),
            without_messages=query.shown.messages,
        )
    )
    scores: dict[int, float] = {}
    messages: dict[int, int] = {}
    best = np.argsort(-found.keyword, kind="stable")[:_MAX_PASSAGES]
    for place in best.tolist():
        if not found.eligible[place] or found.share[place] < _MIN_SHARE:
            continue
        session = int(found.sessions[place])
        messages.setdefault(session, int(found.messages[place]))
        scores[session] = scores.get(session, 0.0) + float(found.keyword[place])
    rows = store.read_messages(Select(scope=query.scope, across=query.across, ids=tuple(messages.values())))
    scopes = {row.id: row.scope for row in rows}
    enough = _MIN_SHARE * max(scores.values(), default=0.0)
    chosen = sorted(scores, key=lambda session: -scores[session])[:MAX_ABOUT]
    spans: list[SessionSpan] = []
    for session in chosen:
        scope = scopes.get(messages[session])
        if scope is not None and scores[session] >= enough:
            spans += store.read_sessions(scope, across=False, limit=1)
    rank = _make_rank(frozenset(weigh_terms(query.texts[-1:])), is_required=False, weigh_one=weigh)
    return _describe_all(store, spans, query, rank=rank)


def _add_last(store: Store, query: RecallQuery, question: SessionQuestion, deadlines: Deadlines) -> RecallQuery:
    """Return a query with the last session before the one that asks; facts from other times are left out."""
    rank = weigh
    if question.is_about_decisions:
        rank = weigh_decision
    for span in store.read_sessions(query.scope, across=query.across, limit=MAX_SESSIONS):
        if span.scope == query.scope:
            continue
        lines = _describe_all(store, [span], query, rank=rank)
        if not lines:
            continue
        if question.is_about_decisions:
            lines = _add_later(store, query, lines, since=span.first_time, deadline=deadlines.end)
        return replace(
            query,
            sessions=tuple(lines),
            asks_for_decisions=question.is_about_decisions,
            is_listing=True,
            periods=((span.first_time, span.last_time + 1),),
        )
    return query


def _describe_all(store: Store, spans: Sequence[SessionSpan], query: RecallQuery, *, rank: Rank) -> list[SessionLine]:
    """Describe whole sessions, whatever they are about."""
    describer = _Describer(store=store, query=query, max_keys=MAX_KEYS // max(1, len(spans)), rank=rank)
    lines: list[SessionLine] = []
    for span in spans:
        line = describer.describe(_Part(span, *_ALL_TIME))
        if line is not None:
            lines.append(line)
    return lines


def only_asks(line: SessionLine, *, now: int | None) -> bool:
    """Return whether a session has nothing but a question about other sessions."""
    return not line.outcome and not line.keys and read_question(line.title, now=now) is not None


def _make_rank(wanted: frozenset[str], *, is_required: bool, weigh_one: Rank) -> Rank:
    """Make the score of a sentence: how much it says about a session, and how many of the wanted terms it has.

    If one of these `is_required`, sentences without them score 0.
    """

    def rank(sentence: str, role: str) -> float:
        shared = _count(wanted, sentence)
        weight = weigh_one(sentence, role)
        if not weight or (is_required and not shared):
            return 0.0
        return weight + 2 * shared

    return rank


def _names(line: SessionLine, wanted: frozenset[str]) -> bool:
    """Return whether a line says something about a subject."""
    return any(_count(wanted, text) for text in (line.title, line.outcome, *line.keys))


def _count(wanted: frozenset[str], text: str) -> int:
    """Count the wanted terms that a text has. In a script without spaces, only pairs of characters count."""
    shared = wanted.intersection(terms(text))
    return sum(1 for term in shared if len(term) > 1 or not is_unsegmented(term))
