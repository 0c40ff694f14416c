"""Recall: the facts and passages for a question, as one block under a hard cap.

Local and bounded: no model is called, but an embedder may be remote. `_search` and `_make_block` read from top to
bottom: the facts (`recall_facts`), the passages (`passage_search`), how much room there is (`block_room`), quotes
(`quoter`), later statements about them (`newest`), and the block (`block`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from holdfast.calls import DeadlineError
from holdfast.embed.base import Embedder
from holdfast.memory import block, facts
from holdfast.memory.block import UNKEPT, Marks
from holdfast.memory.block_room import Listed, choose_size, fit_lines, frame_tokens
from holdfast.memory.deadlines import MAX_OVERTIME, Deadlines
from holdfast.memory.exclusion import Exclusions, read_exclusions
from holdfast.memory.facts import FactHit, name_day
from holdfast.memory.newest import Newest, find_newest
from holdfast.memory.overview import past_session
from holdfast.memory.passage_search import (
    Found,
    Hit,
    find_passages,
    list_embedders,
    make_hits,
    spread_over_sessions,
)
from holdfast.memory.query import RecallQuery, asks_nothing, find_subject
from holdfast.memory.quoter import quote_all, quote_best
from holdfast.memory.recall_facts import ChosenFacts, add_quotes, choose_facts
from holdfast.memory.session_lines import SessionLine
from holdfast.memory.session_questions import add_sessions
from holdfast.search.arrays import Bools
from holdfast.search.corrections import find_instructions
from holdfast.search.pack import Quote
from holdfast.search.relevance import SHY, find_relevant, measure_confidence, measure_matches
from holdfast.signals import without_questions
from holdfast.store.base import Across, FactRow, Store
from holdfast.text import plural
from holdfast.tokens import count_text

NO_WORDS: Final = "the question has no words"
SHOWN: Final = "the best matches are in earlier blocks in the window"
_NOTHING: Final = "no stored fact or passage matches the question"
_HOW_TO_REACH: Final = "(archive.cross_session = true, or Engine.open(personal=True), includes the others)"
_NOTHING_HERE: Final = f"no fact, and no passage of this conversation, matches the question {_HOW_TO_REACH}"
IN_WINDOW: Final = "the best match is already in the window"
ALL_IN_WINDOW: Final = "no fact matches the question, and everything else is already in the window"
ALL_HERE_IN_WINDOW: Final = (
    f"no fact matches the question, and all of this conversation is already in the window {_HOW_TO_REACH}"
)
_TOO_WEAK: Final = 'a weak match was left out, because recall.eagerness is "shy"'
_SURE_ALONE: Final = 1.2
"""The confidence at which a message needs no earlier messages (`python -m benchmarks followups`)."""
_BROAD_VARIETY: Final = 0.3
"""The weight of relevance against variety for a question that asks for everything about a subject
(`python -m benchmarks broad`)."""
_CORRECTION_TOKENS: Final = 250
"""The room for corrections of the system prompt if no passage matches the question."""
_MIN_QUOTE_TOKENS: Final = 25
"""With less room than this, a block has no place for a sentence and its header."""
_MAX_COMPARED: Final = 8
"""How many of the best matches are read to find out whether one is in the window."""
MAX_MISSED: Final = 5
"""How many of the best passages outside the block are listed with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """A passage that matches the question and is not in the block, by number, and its score."""

    message: int
    passage: int
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The result of a recall.

    Attributes:
        block: The text for the window; empty if nothing is recalled.
        tokens: The tokens of the block.
        facts: The facts in it.
        hits: The passages in it, oldest first.
        sessions: The past sessions in it, if the question asks for some; oldest first.
        sessions_note: The line after them: how many more there are, or that there are none.
        confidence: How sure it is that memory matches the question, which decides the size of the block.
        reason: Why there is no block.
        warnings: What the search lacked, such as vectors.
        texts: How many texts of the question were searched for, the newest ones; 0 if nothing was searched.
        size: The maximum tokens of the block at its confidence; 0 if no passage is relevant.
        cap: The maximum tokens of any block.
        missed: The best passages that match the question but are not in the block, best first.
    """

    block: str = ""
    tokens: int = 0
    facts: tuple[FactHit, ...] = ()
    hits: tuple[Hit, ...] = ()
    sessions: tuple[SessionLine, ...] = ()
    sessions_note: str = ""
    confidence: float = 0.0
    reason: str = ""
    warnings: tuple[str, ...] = ()
    texts: int = 0
    size: int = 0
    cap: int = 0
    missed: tuple[Missed, ...] = ()

    @property
    def match(self) -> str:
        """Why there is a block: what was found for the question. It quotes nothing that may be forgotten."""
        if not self.block:
            return ""
        passages = [hit for hit in self.hits if hit.score > 0]  # others are quoted because they are next to one
        counts = {"past session": len(self.sessions), "fact": len(self.facts), "passage": len(passages)}
        found = [plural(count, what) for what, count in counts.items() if count]
        if not found:
            return "the question asks for past sessions"
        verb = "match"
        if sum(counts.values()) == 1:
            verb = "matches"
        question = "the question"
        if self.texts > 1:
            question = "the question and what was said before it"
        return f"{' and '.join(found)} {verb} {question}"

    @property
    def messages(self) -> list[int]:
        """The archived messages that the block quotes."""
        numbers = {hit.message for hit in self.hits}
        for line in self.sessions:
            numbers.update(line.messages)
        return sorted(numbers)

    @property
    def whole_passages(self) -> list[int]:
        """The passages that the block quotes whole. More of the others may be recalled later."""
        return [hit.passage for hit in self.hits if hit.is_whole]


def recall(
    store: Store,
    query: RecallQuery,
    *,
    marks: Marks = UNKEPT,
    embedder: Embedder | None = None,
    interim: Embedder | None = None,
    load_index: Callable[[], None] = lambda: None,
    timer: Callable[[], float] = time.thread_time,
) -> Recall:
    """Make the block for a question, signed with the keys of the store.

    `interim` is the embedder that serves while passages have no vectors of the other one.
    `load_index` is called if there are passages to search. The deadline does not include it.
    `timer` returns the seconds of work. By default that is the processor time of the thread, so that the load of the
    machine does not decide what is recalled.
    """
    if not is_searchable(query.texts):
        return Recall(reason=NO_WORDS)
    if len(" ".join(query.texts).strip()) < query.min_chars:
        return Recall(reason=f"a question of less than {query.min_chars} characters recalls nothing")
    if query.texts and asks_nothing(query.texts[-1]) and not query.facts:
        return Recall(reason="the message asks nothing")
    query = add_sessions(store, query, Deadlines.start(query.seconds, timer=timer))
    subject = ""
    # The other two formulas are those of the original plugins. Nothing is added to them.
    if query.order.fusion == "recipe" and not query.sessions and not query.is_listing:
        subject = find_subject(query.texts[-1])
    if subject:
        # There may be many passages about it. Those that differ from each other come first.
        query = replace(query, texts=(subject,), is_broad=True, order=replace(query.order, variety=_BROAD_VARIETY))
    has_passages = True  # if a person asks for a recall, the report names the best match, in the window or not
    if query.is_automatic:
        has_passages = store.has_passages(query.scope, across=query.across, without_messages=query.shown.messages)
    if has_passages:
        load_index()
    deadlines = Deadlines.start(query.seconds, timer=timer)
    embedders = list_embedders(embedder, interim)
    try:
        return _recall_with_context(
            store, query, marks=marks, embedders=embedders, deadlines=deadlines, has_passages=has_passages
        )
    except DeadlineError:
        late = f"it took longer than {1000 * deadlines.end.seconds:.0f} ms ({MAX_OVERTIME} times recall.deadline_ms)"
        return Recall(reason=late, warnings=(f"nothing was recalled: {late}",))


def is_searchable(texts: Sequence[str]) -> bool:
    """Return whether the texts of a question have anything to search for.

    A picture has no text, but messages without words are skipped (`select_texts`). So after a text of the user, a
    picture recalls for that text again.
    """
    return any(text.strip() for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What the recalls for one question have in common, read once.

    Attributes:
        store: The store.
        marks: The keys that the block is signed with.
        embedders: The embedders, best first; none to search by words alone.
        deadlines: When to leave something out.
        hidden: What is never recalled.
        facts: Every version of every fact that may be recalled.
        has_passages: Whether there is a passage that the window does not show.
    """

    store: Store
    marks: Marks
    embedders: Sequence[Embedder]
    deadlines: Deadlines
    hidden: Exclusions
    facts: Sequence[FactRow]
    has_passages: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """What was found for the texts of a query, before any of it is quoted.

    Attributes:
        query: The query.
        chosen: The facts that match.
        listed: The facts and sessions that fit into the block.
        found: The passages; None if there was nothing to search for.
        confidence: How sure it is that memory matches the question.
    """

    query: RecallQuery
    chosen: ChosenFacts
    listed: Listed
    found: Found | None = None
    confidence: float = 0.0


def _recall_with_context(
    store: Store,
    query: RecallQuery,
    *,
    marks: Marks,
    embedders: Sequence[Embedder],
    deadlines: Deadlines,
    has_passages: bool,
) -> Recall:
    """Recall for the newest message; if it says too little ("and for staging?"), also for those before it."""
    across: Across = True  # facts of the agent's other sessions are included in any case
    if query.across:  # an operator may read across projects and agents too
        across = query.across
    rows = facts.load(store, query.scope, across=across)
    if not has_passages and not rows and not query.facts and not _asks_for_sessions(query):  # as in most new memories
        return Recall(reason=_explain_all_shown(query))
    hidden = read_exclusions(store, query.scope, across=across)
    query = replace(
        query,
        shown=replace(query.shown, messages={*query.shown.messages, *hidden.messages}),
        facts=[fact for fact in query.facts if not hidden.hides(fact)],
    )
    if query.is_automatic and has_passages and hidden.messages:
        has_passages = store.has_passages(query.scope, across=query.across, without_messages=query.shown.messages)
    request = _Request(
        store=store,
        marks=marks,
        embedders=embedders,
        deadlines=deadlines,
        hidden=hidden,
        facts=[row for row in rows if not hidden.hides(row)],
        has_passages=has_passages,
    )
    alone = _search(request, replace(query, texts=query.texts[-1:]))
    is_enough = alone.confidence >= _SURE_ALONE or alone.listed.sessions or query.is_listing
    has_time = not deadlines.words_alone.is_over  # for a second search
    best = alone
    if len(query.texts) > 1 and not is_enough and has_time:
        together = _search(request, query)
        # If the user has changed the subject, both together match less than the message alone.
        if together.confidence > alone.confidence:
            best = together
    return _make_block(request, best)


def _search(request: _Request, query: RecallQuery) -> _Searched:
    """Find the facts and the passages for the texts of a query."""
    chosen = choose_facts(
        request.facts,
        query,
        settled=request.hidden.pairs,
        embedders=request.embedders,
        deadline=request.deadlines.facts,
    )
    listed = fit_lines(query, chosen.hits)
    # If no fact matches, and every passage is in the window, there is nothing to search for.
    if not request.has_passages and not chosen.hits and not _asks_for_sessions(query):
        return _Searched(query=query, chosen=chosen, listed=listed)
    found = find_passages(request.store, add_quotes(query, chosen.hits), request.embedders, request.deadlines)
    confidence = measure_confidence(found.signals)
    return _Searched(query=query, chosen=chosen, listed=listed, found=found, confidence=confidence)


def _asks_for_sessions(query: RecallQuery) -> bool:
    return bool(query.sessions or query.no_sessions)


def _make_block(request: _Request, searched: _Searched) -> Recall:
    """Make the block of what was found, from the passages to the text."""
    deadlines = request.deadlines
    query = searched.query
    chosen = searched.chosen
    listed = searched.listed
    found = searched.found
    if found is None:
        return Recall(reason=_explain_no_search(chosen, query))

    # How large a block the passages are worth.
    confidence = searched.confidence
    spread: Found | None = None
    if query.is_broad:
        spread = spread_over_sessions(found)
    size = 0
    if not query.is_listing:
        size = choose_size(found, confidence=confidence, is_broad=spread is not None)
    nothing = Recall(confidence=confidence, warnings=found.warnings, texts=len(query.texts), size=size, cap=query.cap)
    # A later message may correct what the system prompt or a message in the window says about the question, in other
    # words than those of the question. So corrections are searched for even if no passage matches.
    instructed = find_instructions(query.shown.instructions, found.quote_weights, asked=found.weights)
    may_be_corrected = bool(instructed) or _is_in_window(found)
    if not size and not chosen.hits and not may_be_corrected and not _asks_for_sessions(query):
        return replace(nothing, reason=_explain_nothing(found, chosen, hidden=request.hidden.messages))

    # Quotes, in the room that facts and sessions leave.
    quote_room: float = _CORRECTION_TOKENS
    if size:
        quote_room = size - frame_tokens()
    room = min(quote_room, listed.room)
    known = _list_known(listed, query)
    quotes: list[Quote] = []
    newest = Newest(found=found)
    if size and spread is not None:
        quotes = quote_all(spread, room=room, known=known, deadline=deadlines.end)
    elif size:
        quotes = quote_best(found, room=room, known=known, deadline=deadlines.end)
    if (size or may_be_corrected) and query.order.fusion == "recipe":
        newest = find_newest(
            found,
            quotes,
            facts=listed.facts,
            past=request.facts,
            instructed=instructed,
            hidden=request.hidden.messages,
            can_search=not deadlines.words_alone.is_over,
        )
        quotes = newest.insert(quotes, room=room, known=known, deadline=deadlines.end)
    deadlines.end.check()
    if not listed.facts and not quotes and not listed.sessions and not query.no_sessions:
        if size and room < _MIN_QUOTE_TOKENS:
            return replace(nothing, reason=_name_small_cap(query))
        if size and query.shown.blocks:
            return replace(nothing, reason=SHOWN)
        # The search for corrections found none, or the cap is too small for facts and sessions.
        return replace(nothing, reason=_explain_nothing(found, chosen, hidden=request.hidden.messages))
    return _compose(listed, quotes, found, newest, query=query, marks=request.marks, nothing=nothing)


def _explain_no_search(chosen: ChosenFacts, query: RecallQuery) -> str:
    """Return why nothing is recalled if no fact matches, and every passage is in the window."""
    if chosen.are_others_shown:
        return IN_WINDOW
    return _explain_all_shown(query)


def _explain_all_shown(query: RecallQuery) -> str:
    """Return why nothing is recalled if no fact matches and the window shows every passage."""
    if query.across:
        return ALL_IN_WINDOW
    return ALL_HERE_IN_WINDOW


def _name_small_cap(query: RecallQuery) -> str:
    return f"nothing fits into {query.cap} tokens"


def _is_in_window(found: Found) -> bool:
    """Return whether a message of a person in the window matches the question. It may have been corrected."""
    candidates = found.candidates
    is_shown = find_relevant(found.signals) & candidates.human & ~candidates.eligible
    is_shown[candidates.asked] = False
    return found.signals.is_asking and bool(is_shown.any())


def _explain_nothing(found: Found, chosen: ChosenFacts, *, hidden: Collection[int]) -> str:
    """Return why nothing is recalled. `hidden` are messages that are never recalled, and do not count as a match."""
    if chosen.are_others_shown:
        return IN_WINDOW
    is_relevant = find_relevant(found.signals)
    if found.query.eagerness == SHY and (is_relevant & found.candidates.eligible).any():
        return _TOO_WEAK
    if _is_best_in_window(found, is_relevant, hidden=hidden):
        return IN_WINDOW
    if found.query.across:
        return _NOTHING
    return _NOTHING_HERE


def _is_best_in_window(found: Found, is_relevant: Bools, *, hidden: Collection[int]) -> bool:
    """Return whether the best match is in the window. Questions do not count: they are there, but answer nothing."""
    candidates = found.candidates
    shown = found.query.shown
    matches = measure_matches(found.signals) * is_relevant
    best: list[int] = np.argsort(-matches, kind="stable")[:_MAX_COMPARED].tolist()
    best = [place for place in best if is_relevant[place] and int(candidates.messages[place]) not in hidden]
    found.read(best)
    for place in best:
        if place not in found.texts or _is_asked(found.texts[place].text, found.query):
            continue
        return int(candidates.messages[place]) in shown.messages or int(candidates.passages[place]) in shown.passages
    return False


def _is_asked(text: str, query: RecallQuery) -> bool:
    """Return whether a passage only asks: it is the question, a part of it, or another question.

    The query of a broad question has only its subject.
    """
    if query.is_broad and find_subject(text) == query.texts[-1]:
        return True
    return text.strip() in query.texts[-1] or not without_questions(text)


def _list_known(listed: Listed, query: RecallQuery) -> list[str]:
    """List the texts that are not quoted again: those of the facts in the block, and of earlier blocks."""
    known: list[str] = []
    for hit in listed.facts:
        for text in (hit.fact.content, hit.fact.quote):
            if text:
                known.append(text)
    return [*known, *query.shown.blocks]


def _compose(
    listed: Listed,
    quotes: Sequence[Quote],
    found: Found,
    newest: Newest,
    *,
    query: RecallQuery,
    marks: Marks,
    nothing: Recall,
) -> Recall:
    """Make the block of what was chosen, best first. If it exceeds the cap after all, drop entries from the end."""
    chosen = list(quotes)
    sessions = list(listed.sessions)
    while True:
        quoted = {quote.passage for quote in chosen}
        fact_hits = _mark_superseded(listed.facts, newest, quoted=quoted)
        lines = _make_lines(fact_hits, newest, quoted=quoted)
        details = _make_details(chosen, newest, quoted=quoted)
        past = [past_session(line) for line in sessions]
        note = _note_sessions(query, shown=len(sessions))
        text = block.render(lines, details.values(), marks, style=query.header, sessions=past, sessions_note=note)
        # The parts were measured one by one, and the tokens of a text are not exactly the sum of those of its parts.
        tokens = count_text(text)
        if tokens <= query.cap or not (chosen or sessions):
            break
        if chosen:
            chosen.pop()
        else:
            sessions.pop(0)  # the oldest
    if tokens > query.cap or not text:
        return replace(nothing, reason=_name_small_cap(query))
    # In the order of the block: oldest first, and those of one minute by session, so that a session stays together.
    ordered = sorted(details, key=lambda place: (details[place].time // 60_000, details[place].session, place))
    passages = {place: found.texts[place] for place in ordered}
    hits: list[Hit] = []
    for place, hit in zip(ordered, make_hits(passages, found.ranking, quoted=details), strict=True):
        superseded = details[place].superseded
        replaced_by: dict[int, None] = {}  # each message once, in order
        for later in newest.passages.get(place, ()):
            if later in details:
                replaced_by[found.texts[later].message] = None
        if superseded == "no" and not replaced_by:  # as most are; copying takes longer than all else here
            hits.append(hit)
        else:
            hits.append(replace(hit, superseded=superseded, replaced_by=tuple(replaced_by)))
    return replace(
        nothing,
        block=text,
        tokens=tokens,
        facts=tuple(fact_hits),
        hits=tuple(hits),
        sessions=tuple(sessions),
        sessions_note=note,
        missed=_find_missed(found, quoted=details),
    )


def _find_missed(found: Found, *, quoted: Collection[int]) -> tuple[Missed, ...]:
    """Return the best passages that may be recalled but are not quoted."""
    candidates = found.candidates
    missed: list[Missed] = []
    for place in found.ranking.order.tolist():
        if len(missed) == MAX_MISSED:
            break
        if place in quoted or not candidates.eligible[place]:
            continue
        missed.append(
            Missed(
                message=int(candidates.messages[place]),
                passage=int(candidates.passages[place]),
                score=round(float(found.ranking.scores[place]), 4),
            )
        )
    return tuple(missed)


def _note_sessions(query: RecallQuery, *, shown: int) -> str:
    """Say how many sessions of a time are not listed, or that there are none."""
    missing = len(query.sessions) - shown + query.more_sessions
    if shown and missing and query.asks_for_decisions:  # sessions that decide nothing were left out between these
        return f"… and {plural(missing, 'session')} not read or not listed."
    if shown and missing:
        return f"… and {missing} more before these."
    return query.no_sessions


def _mark_superseded(hits: Sequence[FactHit], newest: Newest, *, quoted: Collection[int]) -> list[FactHit]:
    """Mark the facts that a quoted passage, or one in the window, replaces. Others may replace each other already."""
    marked: list[FactHit] = []
    for hit in hits:
        superseded = newest.judge_fact(hit.fact.id, quoted, text=hit.fact.content)
        marked.append(hit if superseded == "no" else replace(hit, superseded=superseded))
    return marked


def _make_lines(hits: Sequence[FactHit], newest: Newest, *, quoted: Collection[int]) -> list[block.Fact]:
    """Make the lines of the facts.

    If a quoted passage is older than a fact that replaced something, the line has the day of the fact: the passage may
    say what was replaced without being marked, because not every replacement is recognised.
    """
    times = newest.found.candidates.times
    replacing = newest.list_replacing_facts(quoted)
    oldest = min((int(times[place]) for place in quoted), default=sys.maxsize)
    lines: list[block.Fact] = []
    for hit in hits:
        fact = hit.fact
        note = hit.note
        has_replaced = hit.has_replaced or fact.id in replacing
        if not note and has_replaced and fact.time > oldest:
            note = f"since {name_day(fact)}"
        lines.append(block.Fact(type=fact.type, text=fact.content, superseded=hit.superseded, note=note))
    return lines


def _make_details(quotes: Sequence[Quote], newest: Newest, *, quoted: Collection[int]) -> dict[int, block.Detail]:
    details: dict[int, block.Detail] = {}
    for quote in sorted(quotes, key=attrgetter("passage")):
        place = quote.passage
        passage = newest.found.texts[place]
        details[place] = block.Detail(
            role=passage.speaker,
            time=int(newest.found.candidates.times[place]),
            text=quote.text,
            session=int(newest.found.candidates.sessions[place]),
            superseded=newest.judge_passage(place, quoted, text=quote.text),
        )
    return details
