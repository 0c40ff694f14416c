"""Recall: the facts and passages for a question, as one block under a hard cap.

Local and bounded: no model is called, but an embedder may be remote. A question that has nothing to do with the memory
gets no block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Final

import numpy as np

from holdfast.calls import Deadline, DeadlineError
from holdfast.memory import block, facts
from holdfast.memory.block import UNKEPT, Marks
from holdfast.memory.embedding import embed_query
from holdfast.memory.facts import FactHit
from holdfast.memory.query import RecallQuery, weigh_terms
from holdfast.search.columns import Columns
from holdfast.search.dates import find_dates
from holdfast.search.embed.base import Embedder, Floats
from holdfast.search.embed.static import vector_weight
from holdfast.search.fuse import Parts, Ranking, Signals, rank
from holdfast.search.mmr import Item, mmr
from holdfast.search.pack import MAX_EXCERPT_CHARS, MIN_EXCERPT_CHARS, Candidate, Quote, pack
from holdfast.search.relevance import combined_relevance, relevance, word_relevance
from holdfast.store.base import PassageText, SearchQuery, SearchResult, Select, Store
from holdfast.text import is_unsegmented
from holdfast.tokens import count_text

__all__ = ["Hit", "Recall", "recall", "search"]

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
    """A passage that matches the question, and why."""

    message: int
    passage: int
    text: str
    speaker: str
    time: int
    score: float
    parts: Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The result of a recall.

    Attributes:
        block: The text for the window; empty where nothing is recalled.
        tokens: The tokens of the block.
        facts: The facts in it.
        hits: The passages in it, oldest first.
        relevance: How well memory matches the question; from 1 on passages are recalled.
        reason: Why there is no block.
        notes: What the search had to do without, such as vectors.
    """

    block: str = ""
    tokens: int = 0
    facts: tuple[FactHit, ...] = ()
    hits: tuple[Hit, ...] = ()
    relevance: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()


def search(store: Store, query: RecallQuery, *, embedder: Embedder | None = None, limit: int = 10) -> list[Hit]:
    """Find the passages that match a question best, best first, whole."""
    found = _search(store, query, embedder, Deadline.after(None))
    best = found.ranking.order[:limit].tolist()
    texts = {passage.number: passage for passage in _read_passages(store, query, best)}
    return [_make_hit(texts[number], texts[number].text, found) for number in best if number in texts]


def recall(
    store: Store,
    query: RecallQuery,
    *,
    marks: Marks = UNKEPT,
    embedder: Embedder | None = None,
    timer: Callable[[], float] = time.monotonic,
) -> Recall:
    """Make the block for a question, signed with the keys of the store."""
    if len(" ".join(query.texts).strip()) < query.min_chars:
        return Recall(reason=f"a question of less than {query.min_chars} characters recalls nothing")
    try:
        return _recall(store, query, marks, embedder, Deadline.after(query.seconds, clock=timer))
    except DeadlineError:
        return Recall(reason=f"it took longer than {1000 * (query.seconds or 0):.0f} ms (recall.deadline_ms)")


def _recall(store: Store, query: RecallQuery, marks: Marks, embedder: Embedder | None, deadline: Deadline) -> Recall:
    found = _search(store, query, embedder, deadline)
    fact_hits = _find_facts(store, query)
    nothing = Recall(relevance=relevance(found.signals), notes=found.notes)
    by_words = word_relevance(found.signals) >= query.gate
    passed = by_words or _passes_by_vectors(query, found)
    if not passed and not fact_hits:
        return replace(nothing, reason="nothing in memory has to do with this")
    room = query.cap - _frame_tokens()
    kept_facts = _fit_facts(fact_hits, room * query.knowledge_share)
    room -= sum(map(_fact_tokens, kept_facts))
    quotes: list[Quote] = []
    if by_words and found.signals.cosine is not None:  # the best passage by words alone is quoted with vectors too
        words = found.signals.without_vectors()
        alone = replace(found, signals=words, ranking=_rank(store, query, words))
        quotes = _Quoter(store, query, alone, deadline).pack(room=room, limit=1)
    if passed:
        quotes = _Quoter(store, query, found, deadline).pack(room=room, after=quotes)
    deadline.check()
    return _compose(kept_facts, quotes, query=query, marks=marks, found=found, nothing=nothing)


def _find_facts(store: Store, query: RecallQuery) -> list[FactHit]:
    """Find the facts of a block: those that the caller chose, then those that match."""
    given = {fact.id: FactHit(fact=fact, score=1.0) for fact in query.facts}
    rows = [row for row in facts.load(store, query.scope, across=query.across or True) if row.id not in given]
    matches = facts.find(facts.current(rows), " ".join(query.texts), limit=query.max_facts)
    return [*given.values(), *matches][: query.max_facts]


def _passes_by_vectors(query: RecallQuery, found: _Found) -> bool:
    """Tell whether words and vectors together open the gate; the weighted formula tests each passage itself."""
    if query.order.fusion == "weighted":
        return found.signals.cosine is not None and len(found.ranking.order) > 0
    return combined_relevance(found.signals) >= query.gate


# --- searching and ranking -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of a search: signals, ranking, weights of terms, the passages read so far, and notes."""

    signals: Signals
    ranking: Ranking
    weights: dict[str, float]
    texts: dict[int, PassageText]
    notes: tuple[str, ...]


def _search(store: Store, query: RecallQuery, embedder: Embedder | None, deadline: Deadline) -> _Found:
    weights = weigh_terms(query.texts)
    embedded = embed_query(embedder if query.texts else None, query.texts[-1] if query.texts else "", deadline=deadline)
    deadline.check()
    question = SearchQuery(
        scope=query.scope,
        across=query.across,
        terms=weights,
        vector=embedded.vector,
        space=embedder.space if embedder is not None and embedded.vector is not None else None,
    )
    evidence, missing = _drop_sparse_vectors(store.match(question))
    deadline.check()
    notes = tuple(note for note in (embedded.note, missing) if note)
    signals = _make_signals(query, evidence, embedder, weights)
    found = _Found(signals, _rank(store, query, signals), weights, {}, notes)
    deadline.check()
    return found


def _drop_sparse_vectors(evidence: SearchResult) -> tuple[SearchResult, str]:
    """Drop the vectors while most passages have none of this model yet, with a note that says so."""
    if evidence.cosine is None:
        return evidence, ""
    visible, columns = evidence.visible, evidence.columns
    windows = columns.windows if visible.all() else int(np.count_nonzero(visible[columns["passage"]]))
    embedded = 0 if evidence.centre is None else round(evidence.centre.known * windows)
    if embedded and (embedded >= _MIN_EMBEDDED * windows or windows - embedded < _MAX_UNEMBEDDED):
        return evidence, ""
    note = f"{embedded:,} of {windows:,} windows have vectors of this model yet: by words alone" if windows else ""
    return replace(evidence, cosine=None, centre=None), note


def _make_signals(
    query: RecallQuery, evidence: SearchResult, embedder: Embedder | None, weights: Mapping[str, float]
) -> Signals:
    columns = evidence.columns
    visible = query.bounds.within(evidence.visible, columns, now=query.now)
    if query.in_window:
        visible = visible & ~np.isin(columns["message"], np.array(list(query.in_window)))
    if query.quoted:
        visible = visible & ~np.isin(np.arange(len(visible)), np.array(list(query.quoted)))
    return Signals(
        columns=columns,
        visible=visible,
        keywords=evidence.keywords,
        cosine=evidence.cosine,
        centre=evidence.centre,
        dates=_find_dates(query, evidence),
        length=sum(weight for term, weight in weights.items() if not is_unsegmented(term)),
        vector_weight=vector_weight(embedder, query.texts[-1] if query.texts else ""),
        now=query.now,
    )


def _find_dates(query: RecallQuery, evidence: SearchResult) -> list[tuple[int, int]]:
    """Find the periods that a question names, such as `two weeks ago` or `in May`."""
    times = evidence.columns["time"]
    valid = times[(times > 0) & (times < _MAX_TIME)]
    if not len(valid) or not query.texts:
        return []
    first, last = (datetime.fromtimestamp(int(moment) / 1000, UTC).year for moment in (valid.min(), valid.max()))
    return find_dates(query.texts[-1], now=query.now, years=range(first, last + 1))


def _rank(store: Store, query: RecallQuery, signals: Signals) -> Ranking:
    """Rank the passages as the query asks."""
    ranking = rank(signals, order=query.order)
    if query.order.fusion != "recipe":
        ranking = _add_neighbours(ranking, signals, reach=query.neighbours)
    return ranking if query.order.variety is None else _diversify(store, query, ranking, query.order.variety)


_NEIGHBOUR_LOSS: Final = 0.15
"""What a neighbour scores less for each step that it is away."""
_MAX_RANKED: Final = 400


def _add_neighbours(ranking: Ranking, signals: Signals, *, reach: int) -> Ranking:
    """Add the passages up to `reach` before and after each hit in the same session, with lower scores.

    For the two rankings of the original plugin; the measured recipe weighs neighbours itself.
    """
    columns = signals.columns
    hits = np.zeros(columns.passages + 1, np.float32)  # -1 means no neighbour, and reads the extra zero at the end
    hits[ranking.order] = ranking.score(ranking.order)
    scores = hits[:-1].copy()
    first = last = np.arange(columns.passages)
    for distance in range(1, reach + 1):
        first, last = columns.beside(first, "previous"), columns.beside(last, "following")
        near = np.maximum(hits[first], hits[last]) * np.float32(max(0.0, 1 - _NEIGHBOUR_LOSS * distance))
        np.maximum(scores, near, out=scores)
    scores = np.where(signals.visible, scores, np.float32(0))
    positive = np.flatnonzero(scores > 0)
    order = positive[np.argsort(-scores[positive], kind="stable")][:_MAX_RANKED]
    gained = np.where(scores > hits[:-1], scores - hits[:-1], np.float32(0))
    return replace(ranking, order=order, scores=scores, stages={**ranking.stages, "neighbours": gained})


def _diversify(store: Store, query: RecallQuery, ranking: Ranking, weight: float) -> Ranking:
    """Reorder the first passages so that none repeats one before it."""
    first = _read_passages(store, query, ranking.order[:_MAX_VARIED].tolist())
    items = {Item(score=float(ranking.score(passage.number)), text=passage.text): passage.number for passage in first}
    order = [items[item] for item in mmr(list(items), relevance_weight=weight)]
    return replace(ranking, order=np.concatenate([np.array(order, np.int64), ranking.order[_MAX_VARIED:]]))


# --- quoting passages ------------------------------------------------------------------

_BATCH: Final = 32
_MAX_QUESTIONS: Final = 10
"""The number of best passages that are looked at as questions;"""
_ANSWER_REACH: Final = 3
"""the answer is at most this many passages behind,"""
_MAX_ANSWER_CHARS: Final = 100
"""and too short to match by itself."""
_ONE: Final = np.ones(1, np.float32)


def _read_passages(store: Store, query: RecallQuery, numbers: Sequence[int]) -> list[PassageText]:
    """Read passages that still exist and that the query may see."""
    return store.fetch(Select(kind="passage", scope=query.scope, across=query.across, ids=tuple(numbers)))


class _Quoter:
    """Reads the passages of a ranking in batches, and packs quotes of them into a number of tokens."""

    def __init__(self, store: Store, query: RecallQuery, found: _Found, deadline: Deadline) -> None:
        self._store, self._query, self._found, self._deadline = store, query, found, deadline
        recipe, order, is_recipe = query.order.recipe, found.ranking.order, query.order.fusion == "recipe"
        if is_recipe and query.order.variety is None:
            order = found.ranking.for_quoting(found.signals.columns, brevity=recipe.brevity, best=recipe.best)
        numbers: list[int] = order.tolist()
        self._order = _add_answers(numbers, found.signals) if is_recipe and query.neighbours > 0 else numbers
        self._best = frozenset(numbers[: recipe.best])
        self._places = {number: place for place, number in enumerate(self._order)}
        self._scores = _WindowScores(found.signals, self._order)

    def pack(self, *, room: float, after: Sequence[Quote] = (), limit: int | None = None) -> list[Quote]:
        """Quote what fits into `room` tokens; see `holdfast.search.pack.pack`."""
        sizes = zip(self._order, self._found.signals.columns["size"][self._order].tolist(), strict=True)
        weights = self._found.weights
        return pack(sizes, self._read, room=room, weights=weights, measure=_measure, after=after, limit=limit)

    def _read(self, number: int) -> Candidate | None:
        """Read a passage, with those that follow it in the order; None where it no longer exists."""
        passages = self._found.texts
        if number not in passages:
            self._deadline.check()
            place = self._places[number]
            missing = [near for near in self._order[place : place + _BATCH] if near not in passages]
            rows = _read_passages(self._store, self._query, missing)
            passages.update((passage.number, passage) for passage in rows)
        passage = passages.get(number)
        if passage is None:
            return None
        detail = _make_detail(passage, self._found.signals.columns, text="")
        return Candidate(
            passage=number,
            text=passage.text,
            windows=passage.windows,
            window_scores=self._scores[number],
            header=block.header(detail),
            brief=block.brief_header(detail),
            group=block.moment(detail),
            room=MAX_EXCERPT_CHARS if number in self._best else MIN_EXCERPT_CHARS,
        )


def _add_answers(order: Sequence[int], signals: Signals) -> list[int]:
    """Add short passages that follow the best ones: the answer of a tool contains no word of the question."""
    columns, visible = signals.columns, signals.visible
    numbers: dict[int, None] = {}
    for place, number in enumerate(order):
        numbers[number] = None
        after = np.array([number])
        for _ in range(_ANSWER_REACH if place < _MAX_QUESTIONS else 0):
            after = columns.beside(after, "following")
            follower = int(after[0])
            if follower < 0 or columns["human"][follower]:
                break
            if columns["size"][follower] <= _MAX_ANSWER_CHARS and visible[follower]:
                numbers[follower] = None
    return list(numbers)


class _WindowScores:
    """The score of each window of some passages, by words and by vector: 0 to 1 within its passage."""

    def __init__(self, signals: Signals, passages: Sequence[int]) -> None:
        columns, cosine = signals.columns, signals.cosine
        firsts = columns["first_window"]
        chosen = np.sort(np.array(passages, np.int64))
        counts = np.append(firsts[1:], columns.windows)[chosen] - firsts[chosen]
        chosen, counts = chosen[counts > 1], counts[counts > 1]
        places = np.cumsum(counts) - counts
        numbers = np.arange(counts.sum()) + np.repeat(firsts[chosen] - places, counts)
        self._parts = dict(zip(chosen.tolist(), map(slice, places.tolist(), (places + counts).tolist()), strict=True))
        self._words = signals.keywords.windows(numbers, columns)
        self._vectors = None if cosine is None else np.maximum(cosine[numbers], 0)

    def __getitem__(self, number: int) -> Floats:
        part = self._parts.get(number)
        if part is None:
            return _ONE
        words = _scale(self._words[part])
        if self._vectors is None:
            return words
        return (words + _scale(self._vectors[part])) / np.float32(2)


def _scale(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values


# --- the block ---------------------------------------------------------------------------


def _measure(text: str) -> float:
    """Count the tokens of a part of a block; thirds count, since parts are added up."""
    return count_text(text * 3) / 3


@cache
def _frame_tokens() -> float:
    """Count the tokens of the tags of a block."""
    return _measure(block.render([block.Fact(type="", text="")], [block.Detail(role="", time=0, text="")], UNKEPT))


def _fit_facts(hits: Sequence[FactHit], room: float) -> list[FactHit]:
    kept: list[FactHit] = []
    for hit in hits:
        cost = _fact_tokens(hit)
        if cost <= room:
            kept.append(hit)
            room -= cost
    return kept


def _fact_tokens(hit: FactHit) -> float:
    return _measure(block.fact_line(block.Fact(type=hit.fact.type, text=hit.fact.content)) + "\n")


def _make_detail(passage: PassageText, columns: Columns, *, text: str) -> block.Detail:
    session = int(columns["scope"][passage.number])
    return block.Detail(role=passage.speaker, time=passage.time, text=text, session=session)


def _compose(
    kept_facts: Sequence[FactHit],
    quotes: Sequence[Quote],
    *,
    query: RecallQuery,
    marks: Marks,
    found: _Found,
    nothing: Recall,
) -> Recall:
    """Make the block of what was chosen, best first. What the cap does not hold after all is dropped from the end."""
    columns, chosen = found.signals.columns, list(quotes)
    lines = [block.Fact(type=hit.fact.type, text=hit.fact.content) for hit in kept_facts]
    while True:
        details = {
            quote.passage: _make_detail(found.texts[quote.passage], columns, text=quote.text) for quote in chosen
        }
        ordered = sorted(details, key=lambda number: (*_minute_and_session(details[number]), number))
        text = block.render(lines, [details[number] for number in ordered], marks)
        tokens = count_text(text)
        if tokens <= query.cap or not chosen:
            break
        chosen.pop()
    if tokens > query.cap or not text:
        return replace(nothing, reason=f"nothing fits into {query.cap} tokens")
    hits = tuple(_make_hit(found.texts[number], details[number].text, found) for number in ordered)
    return replace(nothing, block=text, tokens=tokens, facts=tuple(kept_facts), hits=hits)


def _minute_and_session(detail: block.Detail) -> tuple[int, int]:
    """Sort oldest first; passages of the same minute and session stay together."""
    return detail.time // 60_000, detail.session


def _make_hit(passage: PassageText, text: str, found: _Found) -> Hit:
    return Hit(
        message=passage.message,
        passage=passage.number,
        text=text,
        speaker=passage.speaker,
        time=passage.time,
        score=float(found.ranking.score(passage.number)),
        parts=found.ranking.parts(passage.number),
    )
