"""One line for each session: when it was, what it was about, and its outcome. No model is needed.

The lines go into an overview, and into the block for a question that `session_questions` reads. `sessions` has the
titles, and the list of sessions that people see.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from holdfast import signals
from holdfast.memory.archive import is_noise, unwrap, weigh_letters
from holdfast.memory.no_answers import is_no_answer
from holdfast.memory.sessions import (
    Sentence,
    does_hold,
    find_holding,
    find_request,
    list_requests,
    read_title,
    shorten,
)
from holdfast.patterns import compile_once, load
from holdfast.store.base import MessageRow, Scope, Select, SessionSpan, Store

Rank: TypeAlias = Callable[[str, str], float]
"""Scores a sentence of a role; 0 leaves it out."""
MAX_OUTCOME_CHARS: Final = 120
"""The maximum characters of an outcome in a list of sessions."""
MAX_KEY_CHARS: Final = 200
"""The maximum characters of a sentence of a session that the user asks for."""
_ECHO: Final = "echo"
"""The model that only repeats what it would have sent. Its sessions have no outcome."""
_LAST_READ: Final = 24
"""How many messages at the end of a session are read for its outcome."""
_MAX_PERIOD_READ: Final = 600
"""The maximum messages of a period that are read."""
_MAX_CHARS_READ: Final = 150_000
"""The maximum characters of these messages that are read: pasted logs would take seconds."""
_MIN_SENTENCE: Final = 12
"""The minimum letters of a sentence that states an outcome; see `weigh_letters`."""
_MIN_CONTENT: Final = 4
"""The minimum letters that say what a result is: "It is fixed now." has none, "The importer is fixed." has eight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLine:
    """A session in a line.

    Attributes:
        scope: Its owner.
        time: When its last message was sent, in Unix milliseconds; for a period, the last message of the period.
        title: The title that its host gave to it, otherwise the first real sentence of the user.
        outcome: Its outcome; empty if no sentence states one.
        is_one_message: Whether the user wrote title and outcome in one message, so that neither comes of the other.
        keys: More sentences that decide, explain or ask for something, oldest first.
        is_scored: Whether any sentence of it has a score, be it the title, the outcome or another one.
        number: The archived message with the outcome, or else with the title.
        messages: Every archived message that is quoted.
    """

    scope: Scope
    time: int
    title: str
    outcome: str = ""
    is_one_message: bool = False
    keys: tuple[str, ...] = ()
    is_scored: bool = False
    number: int = 0
    messages: tuple[int, ...] = ()


def describe(store: Store, span: SessionSpan, *, outdated: Mapping[int, Sequence[str]]) -> SessionLine | None:
    """Make the line of a session; None if it has neither a title nor an outcome that may be shown.

    `outdated` has, by message, words that no longer hold and that the line must not repeat.
    """
    title = find_request(store, span.scope, has_excluded=False, outdated=outdated)
    given = read_title(store, span.scope)
    if given and title is not None:
        title = Sentence(given, title.message)
    last = _readable(store.read_messages(Select(scope=span.scope, newest=True, limit=_LAST_READ)))
    line = _make_line(span, title, last, time=span.last_time, max_chars=MAX_OUTCOME_CHARS, outdated=outdated)
    if line is not None and given:
        line = replace(line, is_one_message=False)  # the title is no sentence of the message
    return line


def describe_period(
    store: Store,
    span: SessionSpan,
    *,
    since: int,
    until: int,
    shown: Collection[int],
    max_keys: int,
    rank: Rank,
) -> SessionLine | None:
    """Make the line of what a session contains in a period, with more sentences of it; None if it contains nothing.

    Args:
        store: The store.
        span: The session.
        since: The beginning of the period, in Unix milliseconds.
        until: The end of the period, which is not part of it.
        shown: Messages that the window shows; nothing is quoted from them.
        max_keys: The maximum sentences in addition to title and outcome.
        rank: Scores sentences, such as `weigh`; those with the highest scores are taken.
    """
    read = _readable(_read_period(store, span, since=since, until=until))
    rows = [row for row in read if row.id not in shown]
    if not rows:
        return None
    title = find_request(store, span.scope, has_excluded=False)
    if title is not None and (title.message in shown or not _is_in_period(store, title, span, since, until)):
        title = None
    time = max(row.message.timestamp or 0 for row in rows)
    line = _make_line(span, title, rows, time=time, max_chars=MAX_KEY_CHARS, outdated={})
    if line is None:
        return None
    keys, is_scored = _choose_keys(rows, known=(line.title, line.outcome), limit=max_keys, rank=rank)
    messages = {*line.messages, *(key.message for key in keys)}
    return replace(line, keys=tuple(key.text for key in keys), is_scored=is_scored, messages=tuple(sorted(messages)))


def _is_in_period(store: Store, title: Sentence, span: SessionSpan, since: int, until: int) -> bool:
    """Return whether the first request of a session is from a period. The session may have continued for days."""
    rows = store.read_messages(Select(scope=span.scope, ids=(title.message,)))
    return any(since <= (row.message.timestamp or 0) < until for row in rows)


def _make_line(
    span: SessionSpan,
    title: Sentence | None,
    rows: Sequence[MessageRow],
    *,
    time: int,
    max_chars: int,
    outdated: Mapping[int, Sequence[str]],
) -> SessionLine | None:
    known = ""
    if title is not None:
        known = title.text
    outcome = _find_outcome(rows, title=known, max_chars=max_chars, outdated=outdated)
    if title is None:
        title = find_holding(list_requests(rows), outdated)
    messages: list[int] = []
    outcome_text = ""
    title_text = ""
    if outcome is not None:
        outcome_text = outcome.text
        messages.append(outcome.message)
    if title is not None:
        title_text = title.text
        messages.append(title.message)
    if not messages:
        return None
    return SessionLine(
        scope=span.scope,
        time=time,
        title=title_text,
        outcome=outcome_text,
        is_one_message=outcome is not None and title is not None and outcome.message == title.message,
        number=messages[0],  # that of the outcome, if there is one
        messages=tuple(sorted(set(messages))),
    )


def _readable(rows: Iterable[MessageRow]) -> list[MessageRow]:
    """Leave out messages that are excluded from recall."""
    return [row for row in rows if not row.excluded]


# --- outcome -----------------------------------------------------------------------------


def _find_outcome(
    rows: Sequence[MessageRow], *, title: str, max_chars: int, outdated: Mapping[int, Sequence[str]]
) -> Sentence | None:
    """Find the last sentence that states a result and still holds, otherwise the last one that states anything.

    A sentence that says what the result is goes before "It is fixed." If a later one says what is still open, that is
    added to it.
    """
    still_open = ""
    bare: Sentence | None = None
    stated: Sentence | None = None
    for row in reversed(rows):
        for text in _list_sentences(row):
            quote = Sentence(shorten(text, max_chars=max_chars), row.id)
            if shorten(text) == title or not does_hold(quote, outdated):
                continue
            if _matches("open", text):
                still_open = still_open or quote.text
                stated = stated or quote
            elif _matches("result", text) and _has_content(text):
                return Sentence(f"{quote.text} {still_open}".strip(), row.id)
            elif _matches("result", text):
                bare = bare or quote
            elif row.message.role == "assistant":
                stated = stated or quote
    if still_open:  # "It is fixed." does not say that something is left
        return stated
    return bare or stated


def _has_content(sentence: str) -> bool:
    """Return whether a sentence has more words than those that state a result."""
    rest = compile_once(load("outcomes")["result"], re.IGNORECASE | re.VERBOSE).sub(" ", sentence)
    rest = compile_once(load("outcomes")["empty_words"], re.IGNORECASE | re.VERBOSE).sub(" ", rest)
    return weigh_letters("".join(re.findall(r"\w", rest))) >= _MIN_CONTENT


def _list_sentences(row: MessageRow) -> list[str]:
    """List the sentences of a message that may state the outcome of a session.

    Those of the user must decide something. Those of the assistant must not be offers, questions or plans.
    """
    role = row.message.role
    if role not in {"user", "assistant"} or (role == "assistant" and row.message.calls):
        return []
    if row.message.model == _ECHO or (role == "assistant" and is_no_answer(row.message.text)):
        return []
    found: list[str] = []
    for sentence in signals.sentences(unwrap(row.message.text)):
        if is_noise(sentence) or _matches("around", sentence) or weigh_letters(sentence) < _MIN_SENTENCE:
            continue
        if role == "user" and not _decides(sentence):
            continue
        found.append(_unmark(sentence))
    return found


def _decides(sentence: str) -> bool:
    """Return whether a sentence has words of deciding, and does not say that something is open."""
    has_words = signals.has_signal(sentence, "decision", "choice", "correction", "remember")
    return has_words and not _matches("undecided", sentence)


def _matches(name: str, text: str) -> bool:
    return compile_once(load("outcomes")[name], re.IGNORECASE | re.VERBOSE).search(text) is not None


def is_done(task: str) -> bool:
    """Return whether the words of a task say that it is no longer open."""
    return _matches("done", task)


def _unmark(sentence: str) -> str:
    """Remove the stars and backticks of Markdown."""
    return sentence.replace("**", "").replace("`", "")


# --- a period ----------------------------------------------------------------------------


def _read_period(store: Store, span: SessionSpan, *, since: int, until: int) -> list[MessageRow]:
    """Read the messages of a session in a period; if there are very many, the last ones.

    Messages are numbered in the order in which they were archived. That is the order of their times, except if a
    session was imported in parts. So a binary search finds the end of the period.
    """
    before = None
    if until <= span.last_time:
        before = _find_first_since(store, span.scope, until)
    rows = store.read_messages(Select(scope=span.scope, before=before, newest=True, limit=_MAX_PERIOD_READ))
    return select_newest([row for row in rows if since <= (row.message.timestamp or 0) < until])


def select_newest(rows: Sequence[MessageRow]) -> list[MessageRow]:
    """Return the last of some messages, up to the number of characters that may be looked at, one at least."""
    left = _MAX_CHARS_READ
    chosen: list[MessageRow] = []
    for row in reversed(rows):
        if row.message.role in {"user", "assistant"}:
            left -= len(row.message.text)
        if chosen and left < 0:
            break
        chosen.append(row)
    return chosen[::-1]


def _find_first_since(store: Store, scope: Scope, time: int) -> int | None:
    """Return the number of the first message that is not older than a time; None if there is none."""
    first = store.read_messages(Select(scope=scope, limit=1))
    last = store.read_messages(Select(scope=scope, newest=True, limit=1))
    if not first or not last:
        return None
    low = first[0].id
    high = last[0].id
    while low < high:
        middle = (low + high) // 2
        row = store.read_messages(Select(scope=scope, after=middle - 1, limit=1))[0]
        if (row.message.timestamp or 0) < time:
            low = row.id + 1
        else:
            high = middle
    return low


def _choose_keys(
    rows: Sequence[MessageRow], *, known: Sequence[str], limit: int, rank: Rank
) -> tuple[list[Sentence], bool]:
    """Choose the sentences that say most about a session, oldest first, and tell whether any has a score.

    Those that are known are not chosen again, but their scores count.
    """
    listed = [text.rstrip("…") for text in known if text]
    seen: set[str] = set()
    weighed: list[tuple[float, int, Sentence]] = []
    is_scored = False
    for row in rows:
        for sentence in _list_statements(row):
            text = shorten(sentence, max_chars=MAX_KEY_CHARS)
            if _is_among(text, seen):
                continue
            seen.add(text)
            weight = rank(sentence, row.message.role)
            if weight > 0:
                is_scored = True
            if weight > 0 and not _is_among(text, listed):
                weighed.append((weight, len(weighed), Sentence(text, row.id)))
    best = sorted(weighed, key=lambda entry: (-entry[0], entry[1]))[:limit]
    return [quote for _, _, quote in sorted(best, key=lambda entry: entry[1])], is_scored


def _is_among(text: str, others: Iterable[str]) -> bool:
    """Return whether a text begins with another one, or another one with it: one of them was cut."""
    return any(text.startswith(other) or other.startswith(text) for other in others)


def _list_statements(row: MessageRow) -> list[str]:
    """List the sentences of a message: what a person asked for or said, and what the assistant reported.

    "Please stick to that." says nothing alone. It makes the sentence before it a rule, and is added to it.
    """
    found: list[str] = []
    if row.message.role not in {"user", "assistant"}:
        return found
    for sentence in signals.sentences(unwrap(row.message.text)):
        if is_noise(sentence) or weigh_letters(sentence) < _MIN_SENTENCE:
            continue
        if _matches("bare", sentence):
            continue
        if row.message.role == "assistant" and _matches("around", sentence):
            continue
        if not _matches("points_back", sentence):
            found.append(_unmark(sentence))
        elif found:
            found[-1] = f"{found[-1]} {_unmark(sentence)}"
    return found


def weigh(sentence: str, role: str) -> float:
    """Score a sentence by what it says about a session: decisions and causes first, then results, then requests."""
    if signals.has_signal(sentence, "decision", "choice", "correction", "remember", "cause"):
        return 3.0
    if role == "assistant" and _matches("result", sentence):
        return 2.0
    if role == "user":
        return 1.0
    return 0.5


def weigh_decision(sentence: str, role: str) -> float:
    """Score a sentence by what it decides; 0 if it decides nothing. A person decides, an assistant repeats it."""
    if signals.is_question(sentence) or _matches("undecided", sentence):
        return 0.0
    is_decision = signals.has_signal(sentence, "decision", "choice", "correction", "remember")
    if role != "user" and is_decision:
        return 1.0
    if role != "user":
        return 0.0
    if is_decision or signals.classify_sentence(sentence) is not None:
        return 3.0
    if signals.has_signal(sentence, "rule", "preference"):
        return 2.0
    if any(_matches("points_back", part) for part in signals.sentences(sentence)):
        return 2.0
    return 0.0
