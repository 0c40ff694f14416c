"""Recall: the facts and passages for a question, as one block under a hard cap.

Local and bounded: no model is called, but an embedder may be remote. The size of the block follows from how sure it is
that the memory has to do with the question: a few lines for a weak match, what is needed for a strong one.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from itertools import chain, islice, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Final

import numpy as np

from holdfast.calls import Deadline, DeadlineError
from holdfast.embed.base import Embedder, Floats
from holdfast.embed.static import vector_weight
from holdfast.memory import block, conflicts, facts
from holdfast.memory.block import UNKEPT, Marks
from holdfast.memory.embedding import QueryVector, embed_query
from holdfast.memory.exclusion import read_exclusions
from holdfast.memory.facts import FactHit
from holdfast.memory.overview import past_session
from holdfast.memory.past_facts import find_held, find_past
from holdfast.memory.query import (
    RecallQuery,
    asks_nothing,
    asks_something,
    count_words,
    find_subject,
    measure_reference,
    weigh_terms,
)
from holdfast.memory.session_lines import SessionLine
from holdfast.memory.session_questions import add_sessions
from holdfast.search.arrays import Bools, Ints
from holdfast.search.candidates import Candidates
from holdfast.search.corrections import (
    Earlier,
    Later,
    Rarity,
    Statement,
    choose_statement,
    find_instructions,
    split_statements,
)
from holdfast.search.dates import find_dates
from holdfast.search.fuse import Parts, Ranking, Signals, measure_chat, rank, relative, top
from holdfast.search.mmr import Item, mmr
from holdfast.search.pack import (
    MAX_EXCERPT_CHARS,
    MIN_EXCERPT_CHARS,
    MIN_SCORE,
    SHORTEST_EXCERPT_CHARS,
    Quotable,
    Quote,
    pack,
    select_likely,
)
from holdfast.search.related import find_related
from holdfast.search.relevance import (
    MIN_LISTED_MATCH,
    SHY,
    find_relevant,
    measure_confidence,
    measure_matches,
    scale_smallest_block,
)
from holdfast.signals import sentences
from holdfast.store.base import FactRow, PassageText, SearchQuery, Select, Store
from holdfast.text import is_unsegmented, terms
from holdfast.tokens import count_text, measure_text

_MAX_TIME: Final = 32_503_680_000_000
"""The year 3000, in Unix milliseconds."""
_MIN_EMBEDDED: Final = 0.6
"""The share of windows that must have a vector; with fewer, windows without one would rank too low."""
_MAX_UNEMBEDDED: Final = 200
"""With no more windows than this without a vector, vectors are used: one batch of embedding."""
_MAX_VARIED: Final = 50
"""The number of passages that are reordered for variety."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that matches the question, and why. `text` is all of it (`is_whole`), or what a block quotes of it."""

    message: int
    passage: int
    text: str
    speaker: str
    time: int
    score: float
    parts: Parts
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The result of a recall.

    Attributes:
        block: The text for the window; empty where nothing is recalled.
        tokens: The tokens of the block.
        facts: The facts in it.
        hits: The passages in it, oldest first.
        sessions: The past sessions in it, if the question asks for some; oldest first.
        confidence: How sure it is that memory has to do with the question, which decides the size of the block.
        reason: Why there is no block.
        warnings: What the search had to do without, such as vectors.
    """

    block: str = ""
    tokens: int = 0
    facts: tuple[FactHit, ...] = ()
    hits: tuple[Hit, ...] = ()
    sessions: tuple[SessionLine, ...] = ()
    confidence: float = 0.0
    reason: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def messages(self) -> list[int]:
        """The archived messages that the block quotes."""
        numbers = {hit.message for hit in self.hits}
        for line in self.sessions:
            numbers.update(line.messages)
        return sorted(numbers)

    @property
    def whole_passages(self) -> list[int]:
        """The passages that the block quotes whole; more of the others may be asked for."""
        return [hit.passage for hit in self.hits if hit.is_whole]


def search(store: Store, query: RecallQuery, *, embedder: Embedder | None = None, limit: int = 10) -> list[Hit]:
    """Find the passages that match a question best, best first, whole.

    Passages that have nothing to do with the question are left out. With vectors, the best passages by words that have
    every word of the question in one place come first. Scores are absolute: the best one is the share of the question
    that it has, or its cosine.
    """
    found = _search(store, query, embedder, _Pace.start(None, time.thread_time))
    scores, best = found.ranking.scores.copy(), found.ranking.order.tolist()
    if found.candidates.cosine is not None:
        leads = _search_by_words(store, query, found).ranking.order[:_MAX_LEADS]
        share = found.candidates.share if len(found.weights) <= _FEW_WORDS else found.candidates.together
        leads = leads[share[leads] > _ALL]
        scores[leads] = scores.max(initial=0)
        best = list(dict.fromkeys([*leads.tolist(), *best]))
    is_relevant = find_relevant(found.signals)
    best = [place for place in best if is_relevant[place]][:limit]
    if query.order.fusion != "weighted":  # this formula is absolute, and tests each passage itself
        match = max(measure_matches(found.signals)[best].tolist(), default=0.0)
        if match < MIN_LISTED_MATCH:
            return []
        scores *= np.float32(min(1.0, match))
    found = replace(found, ranking=replace(found.ranking, scores=scores))
    texts = _read_passages(store, query, found.candidates, best)
    return list(_make_hits({place: texts[place] for place in best if place in texts}, found, quoted=texts))


def recall(
    store: Store,
    query: RecallQuery,
    *,
    marks: Marks = UNKEPT,
    embedder: Embedder | None = None,
    timer: Callable[[], float] = time.thread_time,
) -> Recall:
    """Make the block for a question, signed with the keys of the store.

    `timer` returns the seconds of work. By default it is the processor time of the thread: how busy the machine is does
    not decide what is recalled.
    """
    if not is_searchable(query.texts):
        return Recall(reason=NO_WORDS)
    if len(" ".join(query.texts).strip()) < query.min_chars:
        return Recall(reason=f"a question of less than {query.min_chars} characters recalls nothing")
    if query.texts and asks_nothing(query.texts[-1]) and not query.facts:
        return Recall(reason="the message asks nothing")
    query = add_sessions(store, query)
    subject = ""
    if query.order.fusion == "recipe" and not query.sessions:
        subject = find_subject(query.texts[-1])
    if subject:
        # Of many passages about it, those come first that differ from each other.
        query = replace(query, texts=(subject,), is_broad=True, order=replace(query.order, variety=_BROAD_VARIETY))
    pace = _Pace.start(query.seconds, timer)
    try:
        return _recall_with_context(store, query, marks, embedder, pace)
    except DeadlineError:
        late = f"it took longer than {1000 * pace.end.seconds:.0f} ms ({_MAX_OVERTIME} times recall.deadline_ms)"
        return Recall(reason=late, warnings=(f"nothing was recalled: {late}",))


def is_searchable(texts: Sequence[str]) -> bool:
    """Whether the texts of a question have anything to search for.

    A picture has no text. But messages without words are skipped (`select_texts`): after an earlier text of the user, a
    picture recalls for that text again.
    """
    return any(text.strip() for text in texts)


_SURE: Final = 1.2
"""The confidence from which on a message says enough by itself."""


def _recall_with_context(
    store: Store, query: RecallQuery, marks: Marks, embedder: Embedder | None, pace: _Pace
) -> Recall:
    """Recall for the newest message; if it says too little ("and for staging?"), with those before it."""
    alone = _recall(store, replace(query, texts=query.texts[-1:]), marks, embedder, pace)
    if len(query.texts) <= 1 or alone.confidence >= _SURE or alone.sessions:
        return alone
    if pace.words_alone.is_over:  # there is no time for a second search
        return alone
    together = _recall(store, query, marks, embedder, pace)
    if together.confidence > alone.confidence:
        return together
    return alone


_FEW_AFTER: Final = 2
"""Times the deadline after which only the best candidates are looked at,"""
_MAX_OVERTIME: Final = 4
"""and after which nothing is recalled."""
_FEW: Final = 4
"""How many candidates that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """The deadlines of a recall. Each leaves something out, so that a large memory still gives a block."""

    words_alone: Deadline
    few: Deadline
    end: Deadline

    @classmethod
    def start(cls, seconds: float | None, timer: Callable[[], float]) -> _Pace:
        def after(times: int) -> Deadline:
            return Deadline.after(None if seconds is None else times * seconds, clock=timer)

        return cls(words_alone=after(1), few=after(_FEW_AFTER), end=after(_MAX_OVERTIME))


def _recall(store: Store, query: RecallQuery, marks: Marks, embedder: Embedder | None, pace: _Pace) -> Recall:
    hidden = read_exclusions(store, query.scope, across=query.across or True)
    query = replace(query, shown=replace(query.shown, messages={*query.shown.messages, *hidden.messages}))
    fact_hits = _find_facts(store, query, hidden=hidden.facts)
    found = _search(store, _add_quotes(query, fact_hits), embedder, pace)
    confidence = measure_confidence(found.signals)
    nothing = Recall(confidence=confidence, warnings=found.warnings)
    passage_tokens = 0
    if not query.is_listing:
        passage_tokens = _choose_size(store, found, query, confidence=confidence)
    # What the system prompt says about it may have been corrected in other words than those of the question.
    instructed = find_instructions(query.shown.instructions, found.quote_weights, asked=found.weights)
    if not passage_tokens and not fact_hits and not instructed and not query.sessions:
        return replace(nothing, reason=_explain_nothing(found, query))
    # A fact that matches is worth its tokens, however weak the match of passages is.
    whole_room = query.cap - _frame_tokens()
    kept_facts, cost = _fit_facts(fact_hits, whole_room * query.knowledge_share)
    sessions = _fit_sessions(query.sessions, min(MAX_SESSION_TOKENS, whole_room - cost))
    cost += sum(map(_measure_session, sessions))
    room = min(passage_tokens - _frame_tokens(), whole_room - cost)
    quotes: list[Quote] = []
    newest = _Newest(found=found)
    known = [text for hit in kept_facts for text in (hit.fact.content, hit.fact.quote) if text]
    known += query.shown.blocks
    if passage_tokens and query.is_broad and len(_spread(found)):
        spread = replace(found, ranking=replace(found.ranking, order=_spread(found)))
        full = replace(query, fill="full")
        quotes = _Quoter(store, full, spread, pace.end, excerpt_chars=MIN_EXCERPT_CHARS).pack(room=room, known=known)
    elif passage_tokens or instructed:
        if passage_tokens:
            quotes = _quote_best(store, query, found, pace, room=room, known=known)
        else:
            room = min(_CORRECTION_TOKENS, whole_room - cost)
        if query.order.fusion == "recipe" and not pace.words_alone.is_over:
            newest = _find_newest(
                store, query, found, quotes, facts=kept_facts, instructed=instructed, hidden=hidden.messages
            )
            corrections = _Quoter(store, query, newest.found, pace.end, excerpt_chars=MIN_EXCERPT_CHARS)
            quotes = _insert_newest(corrections.pack(room=room, known=known), quotes, newest, room=room)
    pace.end.check()
    if not passage_tokens and not kept_facts and not quotes and not sessions:
        return replace(nothing, reason=_explain_nothing(found, query))
    return _compose(kept_facts, sessions, quotes, query=query, marks=marks, found=found, newest=newest, nothing=nothing)


def _quote_best(
    store: Store, query: RecallQuery, found: _Found, pace: _Pace, *, room: float, known: Sequence[str]
) -> list[Quote]:
    """Quote the best passages by words alone, then those that rank best.

    Vectors may rank passages higher that only sound like the question, so the best by words are always quoted.
    """
    alone = _search_by_words(store, query, found)
    chat = measure_chat(found.candidates)
    part = min(room, max(_interpolate(_AGENT_LEAD_TOKENS, _CHAT_LEAD_TOKENS, chat), room / 4))
    excerpt_chars = MAX_EXCERPT_CHARS
    if room < _SMALL_ROOM:
        excerpt_chars = round(_interpolate(MAX_EXCERPT_CHARS, MIN_EXCERPT_CHARS, chat))
    leads = _Quoter(store, query, alone, pace.end, excerpt_chars=excerpt_chars, best=1)
    quotes = leads.pack(room=min(room, max(_FIRST_LEAD_TOKENS, 2 * part)), known=known, limit=1)
    quotes = leads.pack(room=part, known=known, after=quotes, limit=_MAX_LEADS)
    # A large gap in scores ends the block, but not before it is as large as one for a weak match.
    strong = _Quoter(store, query, found, pace.end, excerpt_chars=excerpt_chars, min_score=_CHAT_MIN_SCORE * chat)
    quotes = strong.pack(room=room, known=known, after=quotes)
    weak = _Quoter(store, query, found, pace.end, excerpt_chars=excerpt_chars)
    return weak.pack(room=min(room, _MAX_WEAK_TOKENS), known=known, after=quotes)


def _interpolate(start: float, stop: float, share: float) -> float:
    return start + (stop - start) * share


_BROAD_VARIETY: Final = 0.3
"""The weight of relevance against variety for a question that asks for all there is on a subject."""
_MIN_SUBJECT: Final = 0.6
"""The share of a subject that a passage must have."""


def _spread(found: _Found) -> Ints:
    """Return the passages about a subject, best first, one of each session before the second of any.

    What a person said comes first: a log may name the subject in every line.
    """
    candidates = found.candidates
    ranked = found.ranking.order
    ranked = ranked[candidates.share[ranked] >= _MIN_SUBJECT]
    ranked = np.concatenate([ranked[candidates.human[ranked]], ranked[~candidates.human[ranked]]])
    turns: Counter[tuple[int, bool]] = Counter()
    rounds: list[int] = []
    for place in ranked.tolist():
        group = (int(candidates.sessions[place]), bool(candidates.human[place]))
        rounds.append(turns[group])
        turns[group] += 1
    keys = np.array(rounds, np.int64) + len(ranked) * ~candidates.human[ranked]
    return ranked[np.argsort(keys, kind="stable")]


def _choose_size(store: Store, found: _Found, query: RecallQuery, *, confidence: float) -> int:
    """Return the most tokens of a block with passages, by confidence; 0 for no passages."""
    if query.order.fusion == "weighted":  # this formula tests each passage itself
        if len(found.ranking.order) or len(_search_by_words(store, query, found).ranking.order):
            return query.cap
        return 0
    if not (find_relevant(found.signals) & found.candidates.eligible).any():
        return 0
    if query.is_broad and len(_spread(found)):
        return query.cap
    return query.eagerness.choose_size(confidence, cap=query.cap, scale=scale_smallest_block(found.signals))


def _add_quotes(query: RecallQuery, hits: Sequence[FactHit]) -> RecallQuery:
    """Search also for the words that prove a fact if the question has none of them, but one that the fact answers.

    They count as much as those of an earlier message.
    """
    quotes = [hit.fact.quote for hit in hits if hit.by_question and hit.fact.quote][:_MAX_QUOTES]
    if not quotes or query.is_broad:
        return query
    return replace(query, texts=(" ".join(quotes), *query.texts))


_MAX_QUOTES: Final = 2
"""Facts that a question may lead to whose words are searched for too."""


def _find_facts(store: Store, query: RecallQuery, *, hidden: Collection[str]) -> list[FactHit]:
    """Find the facts of a block: those that the caller chose, then those that match; without hidden ones."""
    given = {fact.id: FactHit(fact=fact, score=1.0) for fact in query.facts if fact.id not in hidden}
    rows = facts.load(store, query.scope, across=query.across or True)
    rows = [row for row in rows if row.id not in given and row.id not in hidden]
    question = " ".join(query.texts)
    holding = facts.current(rows)
    past = find_past(query.texts[-1] if query.texts else "", now=query.now)
    if past is not None:
        held = find_held(rows, question, past=past, limit=query.max_facts)
        return [*given.values(), *_note_rivals(held, holding)][: query.max_facts]
    matches = facts.find(holding, question, limit=query.max_facts)
    matches = facts.add_successors(matches, rows, question, limit=query.max_facts)
    return _add_rivals([*given.values(), *matches], holding, limit=query.max_facts)


def _add_rivals(hits: Sequence[FactHit], holding: Sequence[FactRow], *, limit: int) -> list[FactHit]:
    """Put the facts that contradict one next to it, the newest first, and note it on all of them."""
    chosen = {hit.fact.id: hit for hit in hits[:limit]}
    known = {row.id: row for row in (*(hit.fact for hit in chosen.values()), *holding)}
    rivals = {hit.fact.id: conflicts.find_rivals(hit.fact, known.values()) for hit in chosen.values()}
    ordered: dict[str, FactHit] = {}
    for hit in chosen.values():
        for row in sorted([hit.fact, *rivals[hit.fact.id]], key=lambda row: -row.time):
            ordered.setdefault(row.id, chosen.get(row.id, FactHit(fact=row, score=hit.score)))
    return _note_rivals(list(ordered.values())[:limit], list(known.values()), found=rivals)


def _note_rivals(
    hits: Sequence[FactHit], known: Sequence[FactRow], *, found: Mapping[str, Sequence[FactRow]] = MappingProxyType({})
) -> list[FactHit]:
    """Note on each fact that holds now whether others do that contradict it; some may be `found` already, by its id."""
    shown = [hit.fact for hit in hits if hit.fact.superseded_by is None]
    noted: list[FactHit] = []
    for hit in hits:
        note = ""
        if hit.fact.superseded_by is None and not hit.fact.deleted:
            rivals = found.get(hit.fact.id)
            if rivals is None:
                rivals = conflicts.find_rivals(hit.fact, known)
            note = conflicts.note_conflict(hit.fact, rivals, shown=shown)
        noted.append(replace(hit, note="; ".join(filter(None, (hit.note, note)))))
    return noted


# --- searching and ranking -----------------------------------------------------------

_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a search.

    Attributes:
        signals, ranking: What the passages were ranked by, and their order.
        weights: The weights of the terms of the question.
        quote_weights: The same with related words: the sentences of an excerpt are chosen by them.
        texts: The passages read so far, by place.
        warnings: What the search had to do without.
    """

    signals: Signals
    ranking: Ranking
    weights: dict[str, float]
    quote_weights: dict[str, float]
    texts: dict[int, PassageText]
    warnings: tuple[str, ...]

    @property
    def candidates(self) -> Candidates:
        return self.signals.candidates


def _search(store: Store, query: RecallQuery, embedder: Embedder | None, pace: _Pace) -> _Found:
    weights, last = weigh_terms(query.texts), query.texts[-1] if query.texts else ""
    embedded = embed_query(embedder if query.texts else None, last, deadline=pace.words_alone)
    pace.end.check()
    if pace.words_alone.is_over and embedded.vector is not None:
        embedded = QueryVector(
            warning=f"embedding the question took longer than {_name(pace.words_alone)}: by words alone"
        )
    days = query.days
    related = find_related(weights) if query.order.fusion == "recipe" else {}
    question = SearchQuery(
        scope=query.scope,
        across=query.across,
        terms=weights,
        related=related,
        vector=embedded.vector,
        space=embedded.space,
        without_messages=query.shown.messages,
        without_passages=query.shown.passages,
        since=query.now - days * _DAY if days is not None and query.now is not None else None,
        newest=query.newest,
        neighbours=max(query.neighbours, _ANSWER_REACH),
    )
    candidates, missing = _drop_sparse_vectors(store.search(question))
    pace.end.check()
    is_asking = asks_something(last)
    signals = Signals(
        candidates=candidates,
        dates=_find_periods(last, candidates.times, now=query.now),
        length=sum(weight for term, weight in weights.items() if not is_unsegmented(term)),
        words=count_words(weights),
        vector_weight=vector_weight(embedder, last),
        # A statement is about something known by nature: only of a question it says what is wanted.
        reference=measure_reference(last) if is_asking else 0.0,
        is_asking=is_asking,
        now=query.now,
    )
    warnings = [warning for warning in (embedded.warning, missing) if warning]
    ranking = _rank(store, query, signals)
    if pace.few.is_over:
        ranking = replace(ranking, order=ranking.order[:_FEW])
        times = f"{_FEW_AFTER} times {_name(pace.words_alone)}"
        warnings.append(f"the search took longer than {times}: of the best {_FEW} passages alone")
    pace.end.check()
    quote_weights = _add_related(weights, related)
    return _Found(signals, ranking, weights, quote_weights, {}, tuple(warnings))


_QUOTED_SHARE: Final = 0.5
"""How much a related word counts, times its own share, when the sentences of an excerpt are chosen."""


def _add_related(weights: Mapping[str, float], related: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Add the related words of a question to its weights."""
    found = dict(weights)
    for term, row in related.items():
        for other, share in row.items():
            weight = _QUOTED_SHARE * share * weights[term]
            found[other] = max(weight, found.get(other, 0.0))
    return found


def _name(deadline: Deadline) -> str:
    return f"{1000 * deadline.seconds:.0f} ms (recall.deadline_ms)"


def _find_periods(text: str, times: Ints, *, now: int | None) -> list[tuple[int, int]]:
    """Find the periods that a question names, such as `two weeks ago` or `in May`."""
    times = times[(times > 0) & (times < _MAX_TIME)]
    if not len(times) or not text:
        return []
    start, stop = (datetime.fromtimestamp(int(moment) / 1000, UTC).year for moment in (times.min(), times.max()))
    return find_dates(text, now=now, years=range(start, stop + 1))


def _drop_sparse_vectors(candidates: Candidates) -> tuple[Candidates, str]:
    """Drop the vectors while most passages have none of this model yet, with a note that says so."""
    if candidates.cosine is None:
        return candidates, ""
    windows, embedded = candidates.total_windows, candidates.embedded_windows
    if embedded and (embedded >= _MIN_EMBEDDED * windows or windows - embedded < _MAX_UNEMBEDDED):
        return candidates, ""
    note = f"{embedded:,} of {windows:,} windows have vectors of this model yet: by words alone" if windows else ""
    return candidates.without_vectors(), note


def _rank(store: Store, query: RecallQuery, signals: Signals) -> Ranking:
    """Rank the passages as the query asks."""
    ranking = rank(signals, order=query.order)
    if query.order.fusion != "recipe":
        ranking = _add_neighbours(ranking, signals.candidates, reach=query.neighbours)
    if query.order.variety is None:
        return ranking
    # Reorder the first passages so that none repeats one before it.
    first = _read_passages(store, query, signals.candidates, ranking.order[:_MAX_VARIED].tolist())
    items = {Item(score=float(ranking.scores[place]), text=passage.text): place for place, passage in first.items()}
    varied = [items[item] for item in mmr(list(items), relevance_weight=query.order.variety)]
    return replace(ranking, order=np.concatenate([np.array(varied, np.int64), ranking.order[_MAX_VARIED:]]))


def _search_by_words(store: Store, query: RecallQuery, found: _Found) -> _Found:
    """Rank the best passage by words alone first, then, by the recipe, those that contain most of the question."""
    signals = found.signals.without_vectors()
    ranking = _rank(store, query, signals)
    order, scores = ranking.order[:1], ranking.scores
    if query.order.fusion == "recipe":
        scores = ranking.stages["keyword"].copy()
        scores[order] = 1.0
        # A long passage with most of the question may score less than many short ones that have a part of it.
        fullest = top(found.candidates.together * found.candidates.eligible, 1)
        best = dict.fromkeys([*order.tolist(), *fullest.tolist(), *top(scores, _MAX_QUESTIONS).tolist()])
        order = np.array(list(best), np.int64)
    return replace(found, signals=signals, ranking=replace(ranking, order=order, scores=scores))


_NEIGHBOUR_LOSS: Final = 0.15
"""What a neighbour scores less for each step that it is away."""
_MAX_RANKED: Final = 400


def _add_neighbours(ranking: Ranking, found: Candidates, *, reach: int) -> Ranking:
    """Add the passages up to `reach` before and after each hit in the same session, with lower scores.

    For the two rankings of the original plugin; the measured recipe weighs neighbours itself.
    """
    hits = np.zeros(len(found) + 1, np.float32)  # -1 means no neighbour, and reads the extra zero at the end
    hits[ranking.order] = ranking.scores[ranking.order]
    scores = hits[:-1].copy()
    first = last = np.arange(len(found))
    for distance in range(1, reach + 1):
        first, last = found.beside(first, found.previous), found.beside(last, found.following)
        near = np.maximum(hits[first], hits[last]) * np.float32(max(0.0, 1 - _NEIGHBOUR_LOSS * distance))
        np.maximum(scores, near, out=scores)
    scores = np.where(found.eligible, scores, np.float32(0))
    gained = np.maximum(scores - hits[:-1], np.float32(0))
    stages = {**ranking.stages, "neighbours": gained}
    return Ranking(order=top(scores, _MAX_RANKED), scores=scores, stages=stages)


# --- the newest statement ----------------------------------------------------------------

_MIN_SEED: Final = 0.3
"""A quote is about the question if it matches at least this share of what the best passage matches."""
_MAX_SEEDS: Final = 5
"""The number of quotes for which a later statement is looked for."""
_MAX_SEED_TERMS: Final = 12
"""With this many terms to search for, no terms of further quotes are added."""
_SEED_DECAY: Final = 0.7
"""The weight of the terms of a quote, relative to those of the better quote before it."""
_MAX_LATER: Final = 8
"""The number of passages with such terms that are read."""
_MAX_RANKED_LATER: Final = 10
"""The number of passages that match the question best and are compared as well, if they were read before."""
_MAX_FIRST: Final = 3
"""The number of later statements that are quoted before anything else."""
_CORRECTION_TOKENS: Final = 250
"""The room for corrections of the system prompt if no passage matches the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Newest:
    """Later statements about what is quoted.

    Attributes:
        found: The passages with those statements, ranked to be quoted first.
        passages: For the place of a passage, the places of those that take its place.
        facts: The same for the id of a fact.
    """

    found: _Found
    passages: Mapping[int, Collection[int]] = field(default_factory=dict)
    facts: Mapping[str, Collection[int]] = field(default_factory=dict)

    def judge(self, places: Collection[int] | None, quoted: Collection[int], *, text: str) -> block.Superseded:
        """Tell whether one of some later statements is `quoted` or in the window, so that a text is superseded."""
        eligible = self.found.candidates.eligible
        if not any(place in quoted or not eligible[place] for place in places or ()):
            return "no"
        return "wholly" if len(split_statements(text)) == 1 else "partly"


def _find_newest(
    store: Store,
    query: RecallQuery,
    found: _Found,
    quotes: Sequence[Quote],
    *,
    facts: Sequence[FactHit],
    instructed: Sequence[Statement],
    hidden: Collection[int],
) -> _Newest:
    """Find the statements that take the place of what is quoted, or of what the window or its instructions say.

    A correction may have no word of the question: "Unleash is no longer used" after "feature flags live in Unleash". So
    passages are searched again, for the words of the best statements that are not in the question.
    """
    candidates = found.candidates
    is_open = candidates.human & ~np.isin(candidates.messages, list(hidden))
    seeds = _choose_seeds(candidates, quotes, is_open=is_open)
    _read_more(store, query, found, seeds)
    statements = _choose_statements(found, seeds)
    oldest = min((int(candidates.times[place]) for place in statements), default=0)
    terms = _find_answer_terms(statements.values(), asked=found.weights)
    again = store.search(SearchQuery(scope=query.scope, across=query.across, terms=terms))
    near = _find_places(again, candidates, is_open=is_open, since=oldest)
    rarity = {**candidates.rarity, **again.rarity}
    if instructed:  # a search of their own: weak quotes, of which there may be many, have other words
        more = _find_answer_terms(instructed, asked=found.weights)
        again = store.search(SearchQuery(scope=query.scope, across=query.across, terms=more))
        near += _find_places(again, candidates, is_open=is_open, since=0)
        terms = {**terms, **more}
        rarity |= again.rarity
    _read_more(store, query, found, near)

    texts: dict[int, Later] = {}
    for place in [*seeds, *near, *found.ranking.order[:_MAX_RANKED_LATER].tolist()]:
        if place in found.texts and is_open[place] and place not in texts:
            texts[place] = Later.read(found.texts[place].text)

    def find_superseding(statement: Statement, moment: tuple[int, int], *, speaker: str | None = None) -> list[int]:
        """Find the texts that take the place of a statement of that moment."""
        earlier = Earlier.read(statement, Rarity.of(rarity), asked=found.weights)
        places: list[int] = []
        for place, text in texts.items():
            if (int(candidates.times[place]), place) <= moment:
                continue
            if speaker is not None and found.texts[place].speaker != speaker:
                continue
            if earlier.is_superseded(text):
                places.append(place)
        return places

    passages: dict[int, list[int]] = {}
    for place, statement in statements.items():
        moment = (int(candidates.times[place]), place)
        passages[place] = find_superseding(statement, moment, speaker=found.texts[place].speaker)
    passages = _leave_out_series(passages)
    lines: dict[str, list[int]] = {}
    for hit in facts:
        if hit.fact.time:
            moment = (hit.fact.time, len(candidates))
            lines[hit.fact.id] = find_superseding(Statement.read(hit.fact.content), moment)

    changed = [find_superseding(statement, (-1, -1)) for statement in instructed]
    every = dict.fromkeys(chain(*changed, *passages.values(), *lines.values()))
    order = [place for place in every if candidates.eligible[place]][:_MAX_FIRST]
    scores = found.ranking.scores.copy()
    scores[order] = max(1.0, float(scores.max(initial=0)))
    ranking = replace(found.ranking, order=np.array(order, np.int64), scores=scores)
    first = replace(found, ranking=ranking, quote_weights={**terms, **found.quote_weights})
    return _Newest(found=first, passages=passages, facts=lines)


def _choose_statements(found: _Found, seeds: Iterable[int]) -> dict[int, Statement]:
    """Return the sentence of each passage that has most of the question, by place."""
    statements: dict[int, Statement] = {}
    for place in seeds:
        if place not in found.texts:
            continue
        statement = choose_statement(split_statements(found.texts[place].text), found.weights)
        if statement is not None:
            statements[place] = statement
    return statements


def _find_answer_terms(statements: Iterable[Statement], *, asked: Collection[str]) -> dict[str, float]:
    """Weigh the terms of statements that are not in the question; those of the best statement count most."""
    found: dict[str, float] = {}
    weight = 1.0
    for statement in statements:
        if len(found) >= _MAX_SEED_TERMS:
            break
        for term in statement.terms:
            if term not in asked:
                found.setdefault(term, weight)
        weight *= _SEED_DECAY
    return found


def _find_places(again: Candidates, candidates: Candidates, *, is_open: Bools, since: int) -> list[int]:
    """Return the places in the first search of the best passages of a second one, best first.

    Args:
        again: The passages of the second search.
        candidates: The passages of the first one.
        is_open: Which of those may be quoted, or are in the window.
        since: The time of the oldest statement; earlier passages take the place of none.
    """
    places: list[int] = []
    for best in top(again.keyword * again.human, _MAX_LATER).tolist():
        same = np.flatnonzero(candidates.passages == again.passages[best])
        places += same.tolist()
    return [place for place in places if is_open[place] and candidates.times[place] >= since]


def _leave_out_series(passages: Mapping[int, list[int]]) -> dict[int, list[int]]:
    """Leave out statements with many later ones: sentences that differ in a number, such as in a log, are a series."""
    series: set[int] = set()
    for place, later in passages.items():
        if len(later) > _MAX_FIRST:
            series.update([place, *later])
    return {place: later for place, later in passages.items() if place not in series}


def _choose_seeds(candidates: Candidates, quotes: Sequence[Quote], *, is_open: Bools) -> list[int]:
    """Choose the statements for which a later one is looked for: the best quotes, and the best one in the window."""
    promise = _promise(candidates) * is_open
    enough = _MIN_SEED * float(promise.max(initial=0))
    shown = top(promise * ~candidates.eligible, 1).tolist()
    places = dict.fromkeys([*shown, *(quote.passage for quote in quotes)])
    return [place for place in places if promise[place] > 0 and promise[place] >= enough][:_MAX_SEEDS]


def _insert_newest(
    corrections: Sequence[Quote], quotes: Sequence[Quote], newest: _Newest, *, room: float
) -> list[Quote]:
    """Put each correction before what it takes the place of; the last quotes that do not fit into the room are dropped.

    A correction of what only the window or a fact says comes first.
    """
    left = {quote.passage: quote for quote in corrections}
    quoted = {quote.passage for quote in quotes}
    places = [place for earlier, later in newest.passages.items() if earlier in quoted for place in later]
    chosen = [left.pop(place) for place in list(left) if place not in places]
    for quote in quotes:
        for place in newest.passages.get(quote.passage, ()):
            if place in left:
                chosen.append(left.pop(place))
        if quote.passage not in {one.passage for one in chosen}:
            left.pop(quote.passage, None)
            chosen.append(quote)
    spent = sum(quote.tokens for quote in chosen)
    while spent > room and len(chosen) > 1:
        spent -= chosen.pop().tokens
    return chosen


def _promise(candidates: Candidates) -> Floats:
    """Return how well passages match by words and by vector, whether the window shows them or not."""
    promise: Floats = relative(candidates.keyword) + candidates.together
    if candidates.cosine is not None:
        promise = promise + relative(candidates.cosine)
    return promise


def _read_more(store: Store, query: RecallQuery, found: _Found, places: Iterable[int]) -> None:
    """Read the passages that were not read yet."""
    unread = [place for place in places if place not in found.texts]
    if unread:
        found.texts.update(_read_passages(store, query, found.candidates, unread))


# --- quoting passages ------------------------------------------------------------------

_BATCH: Final = 32
"""The number of passages whose windows are scored at once,"""
_MORE: Final = 8
"""and that are read where more are needed than was likely."""
_MAX_QUESTIONS: Final = 10
"""The number of best passages that are looked at as questions;"""
_ANSWER_REACH: Final = 3
"""the answer is at most this many passages behind,"""
_MAX_ANSWER_CHARS: Final = 100
"""and too short to match by itself."""
_QUESTION: Final = re.compile("[?？]")
_ALL: Final = 0.99
"""The share of the words of a question from which it is taken for all of them."""
_FEW_WORDS: Final = 2
"""So many words may stand anywhere in a passage."""
_MAX_LEADS: Final = 6
"""The number of best passages by words alone that are quoted first, in a quarter of the room."""
_AGENT_LEAD_TOKENS: Final = 300
"""The least room for them in the session of an agent, where names and numbers decide: enough for one."""
_CHAT_LEAD_TOKENS: Final = 100
"""The least room for them in a chat, where vectors find as much (`python -m benchmarks recall --cap 500`)."""
_FIRST_LEAD_TOKENS: Final = 600
"""The room for the very best passage by words alone."""
_SMALL_ROOM: Final = 700
"""In a block of a chat with less room than this, the best passages get no longer excerpts than the others."""
_ONE: Final = np.ones(1, np.float32)
_CHAT_MIN_SCORE: Final = 0.3
"""The score, relative to the best passage, below which passages of a chat are quoted only in a small block. In sessions
of agents there is no such limit: their passages are longer, and their scores closer to each other
(`python -m benchmarks recall`, `other-words`)."""
_MAX_WEAK_TOKENS: Final = 500
"""The size up to which such passages are quoted."""
NO_WORDS: Final = "the question has no words"
SHOWN: Final = "earlier blocks in the window have most of it"
_NOTHING: Final = "no stored fact or passage matches the question"
_NOTHING_HERE: Final = (
    "no fact, and no passage of this conversation, matches the question"
    " (archive.cross_session = true, or Engine.open(personal=True), includes the others)"
)
_TOO_WEAK: Final = 'a weak match was left out, because recall.eagerness is "shy"'


def _explain_nothing(found: _Found, query: RecallQuery) -> str:
    """Return why no passage is recalled."""
    has_match = (find_relevant(found.signals) & found.candidates.eligible).any()
    if has_match and query.eagerness == SHY:
        return _TOO_WEAK
    return _NOTHING if query.across else _NOTHING_HERE


def _read_passages(
    store: Store, query: RecallQuery, candidates: Candidates, places: Sequence[int]
) -> dict[int, PassageText]:
    """Read passages that still exist and that the query may see, by place."""
    numbers: dict[int, int] = dict(zip(candidates.passages[list(places)].tolist(), places, strict=True))
    rows = store.read_passages(Select(scope=query.scope, across=query.across, ids=tuple(numbers)))
    return {numbers[row.number]: row for row in rows}


class _Quoter:
    """Reads the passages of a ranking in batches, and packs quotes of them into a number of tokens."""

    def __init__(
        self,
        store: Store,
        query: RecallQuery,
        found: _Found,
        deadline: Deadline,
        *,
        excerpt_chars: int,
        best: int | None = None,
        min_score: float = 0.0,
    ) -> None:
        self._store, self._query, self._found, self._deadline = store, query, found, deadline
        self._excerpt_chars = excerpt_chars
        recipe, order, is_recipe = query.order.recipe, found.ranking.order, query.order.fusion == "recipe"
        worth = relative(found.ranking.scores[order])
        if is_recipe and query.order.variety is None:
            order, worth = found.ranking.for_quoting(found.candidates.sizes, recipe)
        places: list[int] = order.tolist()
        self._best = frozenset(places[: recipe.best if best is None else best])
        # A passage that has most of the question in one window is worth its tokens, whatever others score.
        scores = np.maximum(worth, found.candidates.together[order] ** 2).tolist()
        self._values = dict(zip(places, scores, strict=True))
        if min_score and query.fill == "adaptive":
            ranked = relative(found.ranking.scores)
            self._values = {place: value for place, value in self._values.items() if ranked[place] >= min_score}
        if is_recipe and query.neighbours > 0:
            self._values = _add_answers(self._values, found.candidates, questions=self._find_questions())
        if query.fill == "adaptive":
            self._values = {place: value for place, value in self._values.items() if value >= MIN_SCORE}
        self._order = list(self._values)
        self._ranks = {place: number for number, place in enumerate(self._order)}
        self._scores: dict[int, Floats] = {}
        self._likely: Sequence[int] = ()
        self._lead: int | None = None

    def pack(
        self, *, room: float, known: Sequence[str] = (), after: Sequence[Quote] = (), limit: int | None = None
    ) -> list[Quote]:
        """Quote what fits into `room` tokens; see `holdfast.search.pack.pack`."""
        sizes = self._found.candidates.sizes[self._order].tolist()
        order = list(zip(self._order, sizes, self._values.values(), strict=True))
        if limit is not None and order:  # of the best, that with most of the question in one place comes first
            lead = int(self._found.candidates.together[self._order].argmax())
            self._lead = self._order[lead]
            order.insert(0, order.pop(lead))
        adaptive = self._query.fill == "adaptive"
        self._likely = select_likely(order, room=room, after=after, adaptive=adaptive)[:limit]
        return pack(
            order,
            self._read,
            room=room,
            weights=self._found.quote_weights,
            measure=measure_text,
            known=known,
            after=after,
            limit=limit,
            adaptive=adaptive,
        )

    def _find_questions(self) -> set[int]:
        """Find the best passages that a short answer may follow: what a person asked, and what an agent called."""
        passages = self._found.texts
        best = list(islice(self._values, _MAX_QUESTIONS))
        unread = [place for place in best if place not in passages]
        passages.update(_read_passages(self._store, self._query, self._found.candidates, unread))
        questions: set[int] = set()
        for place in best:
            if place in passages:
                is_statement = self._found.candidates.human[place] and not _QUESTION.search(passages[place].text)
                if not is_statement:
                    questions.add(place)
        return questions

    def _read(self, place: int) -> Quotable | None:
        """Read a passage, the first time with all that will likely be read; None where it no longer exists."""
        passages, candidates = self._found.texts, self._found.candidates
        start = self._ranks[place]
        near = self._order[start : start + _BATCH]
        if place not in self._scores:  # lengths are relative to the mean of those that are scored together
            self._deadline.check()
            self._scores |= _score_windows(candidates, near)
        if place not in passages:
            wanted = [each for each in dict.fromkeys((place, *(self._likely or near[:_MORE]))) if each not in passages]
            passages.update(_read_passages(self._store, self._query, candidates, wanted))
            self._likely = ()
        passage = passages.get(place)
        if passage is None:
            return None
        if candidates.human[place] and _repeats_question(passage.text, self._found.weights):
            return None
        session = int(candidates.sessions[place])
        is_best = place in self._best
        return Quotable(
            passage=place,
            text=passage.text,
            windows=passage.windows,
            window_scores=self._scores[place],
            headers=block.headers(passage.speaker, passage.time, session, self._query.header),
            said_in=session if candidates.human[place] else None,
            room=self._excerpt_chars if is_best else MIN_EXCERPT_CHARS,
            min_room=SHORTEST_EXCERPT_CHARS if place == self._lead else MIN_EXCERPT_CHARS,
        )


_MAX_QUESTION_CHARS: Final = 300
_MAX_NEW_SHARE: Final = 0.34
"""A question with no more words than this share that are not in the question of the recall is the same question."""


def _repeats_question(text: str, weights: Mapping[str, float]) -> bool:
    """Tell whether a text only asks what the question of the recall asks: it has no answer."""
    if len(text) > _MAX_QUESTION_CHARS or not text.rstrip().endswith(("?", "？")):
        return False
    if not all(sentence.endswith(("?", "？")) for sentence in sentences(text)):
        return False
    own = set(terms(text))
    new = [term for term in own if term not in weights]
    return len(new) <= _MAX_NEW_SHARE * len(own)


def _score_windows(candidates: Candidates, places: Sequence[int]) -> dict[int, Floats]:
    """Score the windows of passages by words and by vector, 0 to 1 within each passage."""
    scores = dict.fromkeys(places, _ONE)
    chosen = np.sort(np.array(places, np.int64))
    counts = candidates.windows[chosen]
    chosen, counts = chosen[counts > 1], counts[counts > 1]
    if not len(chosen):
        return scores
    stops = np.cumsum(counts)

    def relate(values: Floats) -> Floats:
        largest: Floats = np.maximum.reduceat(values, stops - counts)
        largest[largest <= 0] = 1
        related: Floats = values / largest.repeat(counts)
        return related

    words, cosines = candidates.score_windows(chosen)
    both = relate(words)
    if cosines is not None:
        both = (both + relate(np.maximum(cosines, 0))) / np.float32(2)
    parts = (both[start:stop] for start, stop in pairwise([0, *stops.tolist()]))
    scores.update(zip(chosen.tolist(), parts, strict=True))
    return scores


def _add_answers(values: dict[int, float], found: Candidates, *, questions: Collection[int]) -> dict[int, float]:
    """Add short passages that follow questions: the answer of a tool contains no word of the question."""
    places: dict[int, float] = {}
    for place in islice(values, _MAX_QUESTIONS):
        value = values[place]
        places[place] = max(value, places.get(place, 0.0))
        if place not in questions:
            continue
        follower = place
        for _ in range(_ANSWER_REACH):
            follower = int(found.following[follower])
            if follower < 0 or found.human[follower]:
                break
            if found.sizes[follower] <= _MAX_ANSWER_CHARS and found.eligible[follower]:
                places[follower] = max(value, places.get(follower, 0.0))
    return places | values | {place: max(value, values.get(place, 0.0)) for place, value in places.items()}


# --- the block ---------------------------------------------------------------------------


@cache
def _frame_tokens() -> float:
    """Count the tokens of the tags of a block."""
    empty = block.render([block.Fact(type="", text="")], [block.Detail(role="", time=0, text="")], UNKEPT)
    return measure_text(empty)


def _fit_facts(hits: Sequence[FactHit], room: float) -> tuple[list[FactHit], float]:
    """Keep the facts that fit into `room` tokens; return also what they cost."""
    kept, spent = [], 0.0
    for hit in hits:
        line = block.Fact(type=hit.fact.type, text=hit.fact.content, note=hit.note)
        cost = measure_text(block.fact_line(line) + "\n")
        if spent + cost <= room:
            kept.append(hit)
            spent += cost
    return kept, spent


MAX_SESSION_TOKENS: Final = 1_200
"""The most that the sessions of a block take."""


def _fit_sessions(lines: Sequence[SessionLine], room: float) -> list[SessionLine]:
    """Keep the newest sessions that fit into `room` tokens, oldest first, then sentences of each in turn."""
    kept: dict[int, SessionLine] = {}
    spent = _SESSIONS_FRAME
    for place, line in reversed(list(enumerate(lines))):
        bare = replace(line, keys=())
        if spent + _measure_session(bare) <= room:
            kept[place] = bare
            spent += _measure_session(bare)
    for count in range(1, max((len(line.keys) for line in lines), default=0) + 1):
        for place, line in kept.items():
            more = replace(line, keys=lines[place].keys[:count])
            cost = _measure_session(more) - _measure_session(line)
            if spent + cost <= room:
                kept[place] = more
                spent += cost
    return [kept[place] for place in sorted(kept)]


_SESSIONS_FRAME: Final = 16.0
"""Tokens of the tags around sessions."""


def _measure_session(line: SessionLine) -> float:
    return measure_text(block.session_lines(past_session(line)) + "\n")


def _compose(
    kept_facts: Sequence[FactHit],
    sessions: Sequence[SessionLine],
    quotes: Sequence[Quote],
    *,
    query: RecallQuery,
    marks: Marks,
    found: _Found,
    newest: _Newest,
    nothing: Recall,
) -> Recall:
    """Make the block of what was chosen, best first. What the cap does not hold after all is dropped from the end."""
    chosen = list(quotes)
    past = [past_session(line) for line in sessions]
    while True:
        quoted = {quote.passage for quote in chosen}
        lines: list[block.Fact] = []
        for hit in kept_facts:
            superseded = newest.judge(newest.facts.get(hit.fact.id), quoted, text=hit.fact.content)
            line = block.Fact(type=hit.fact.type, text=hit.fact.content, superseded=superseded, note=hit.note)
            lines.append(line)
        details: dict[int, block.Detail] = {}
        for quote in sorted(chosen, key=attrgetter("passage")):
            place, passage = quote.passage, found.texts[quote.passage]
            session = int(found.candidates.sessions[place])
            details[place] = block.Detail(
                role=passage.speaker,
                time=passage.time,
                text=quote.text,
                session=session,
                superseded=newest.judge(newest.passages.get(place), quoted, text=quote.text),
            )
        text = block.render(lines, details.values(), marks, style=query.header, sessions=past)
        tokens = count_text(text)
        if tokens <= query.cap or not (chosen or past):
            break
        if chosen:
            chosen.pop()
        else:
            past.pop(0)
    if tokens > query.cap or not text:
        is_shown = query.shown.blocks and not quotes
        return replace(nothing, reason=SHOWN if is_shown else f"nothing fits into {query.cap} tokens")
    ordered = sorted(details, key=lambda place: (details[place].time // 60_000, details[place].session, place))
    passages = zip(ordered, map(found.texts.__getitem__, ordered), strict=True)
    hits = _make_hits(dict(passages), found, quoted=details)
    return replace(
        nothing,
        block=text,
        tokens=tokens,
        facts=tuple(kept_facts),
        hits=hits,
        sessions=tuple(sessions[len(sessions) - len(past) :]),
    )


def _make_hits(
    passages: Mapping[int, PassageText], found: _Found, *, quoted: Mapping[int, PassageText | block.Detail]
) -> tuple[Hit, ...]:
    """Return the hits of passages by place, with the text that is `quoted` of each."""
    places = list(passages)
    rows = zip(passages.items(), found.ranking.scores[places].tolist(), found.ranking.parts(places), strict=True)
    return tuple(
        Hit(
            message=passage.message,
            passage=passage.number,
            text=quoted[place].text,
            is_whole=quoted[place].text.strip() == passage.text.strip(),
            speaker=passage.speaker,
            time=passage.time,
            score=score,
            parts=parts,
        )
        for (place, passage), score, parts in rows
    )
