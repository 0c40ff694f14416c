"""Recall: what memory has to say to the question at hand, as one block under a hard cap.

Local and bounded: no model is asked. A question that has nothing to do with the memory gets no block.
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
from holdfast.memory.embedding import embed_query
from holdfast.memory.facts import FactHit
from holdfast.memory.marks import UNKEPT, Marks
from holdfast.memory.neighbours import with_neighbours
from holdfast.memory.quoting import Found, Quotable, detail_of, texts_of
from holdfast.memory.request import Request, order_of, question, request_of
from holdfast.memory.weights import weights
from holdfast.search.dates import find_dates
from holdfast.search.embed.base import Embedder
from holdfast.search.embed.static import vector_weight
from holdfast.search.fuse import Parts, Ranking, Signals, rank
from holdfast.search.mmr import Item, mmr
from holdfast.search.pack import Quote
from holdfast.search.relevance import combined_relevance, relevance, word_relevance
from holdfast.store.base import Evidence, PassageText, Question, Store
from holdfast.text import is_unsegmented
from holdfast.tokens import count_text

__all__ = ["Hit", "Recall", "Request", "order_of", "question", "recall", "request_of", "search"]

_LATEST: Final = 32_503_680_000_000
"""The year 3000, in Unix milliseconds."""
_KNOWN: Final = 0.6
"""The share of windows that must have a vector; with fewer, those that have none would be at a loss."""
_FEW: Final = 200
"""So few windows without a vector are no reason: one batch of embedding, or vectors that have nothing in common."""
_VARIED: Final = 50
"""So many passages are put into a varied order, where that is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that has to do with the question, and why."""

    message: int
    passage: int
    text: str
    speaker: str
    time: int
    score: float
    parts: Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What memory says.

    Attributes:
        block: The text for the window, or nothing.
        tokens: What it costs.
        facts: The facts in it.
        hits: The passages in it, oldest first.
        relevance: How much memory has to do with the question; from 1 on there is a block of passages.
        reason: Why there is no block, where there is none.
        notes: What was missing in the search itself, such as vectors.
    """

    block: str = ""
    tokens: int = 0
    facts: tuple[FactHit, ...] = ()
    hits: tuple[Hit, ...] = ()
    relevance: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()


def search(store: Store, request: Request, *, embedder: Embedder | None = None, limit: int = 10) -> list[Hit]:
    """The passages that have most to do with a question, best first, whole."""
    found = _look(store, request, embedder, Deadline.after(None))
    best = found.ranking.order[:limit].tolist()
    texts = {passage.number: passage for passage in texts_of(store, request, best)}
    return [_hit(texts[number], texts[number].text, found) for number in best if number in texts]


def recall(
    store: Store,
    request: Request,
    *,
    marks: Marks = UNKEPT,
    embedder: Embedder | None = None,
    timer: Callable[[], float] = time.monotonic,
) -> Recall:
    """The block for a question, marked so that whoever has the keys knows it again."""
    if len(" ".join(request.texts).strip()) < request.min_chars:
        return Recall(reason=f"a question of less than {request.min_chars} characters recalls nothing")
    try:
        return _recall(store, request, marks, embedder, Deadline.after(request.seconds, clock=timer))
    except DeadlineError:
        return Recall(reason=f"it took longer than {1000 * (request.seconds or 0):.0f} ms (recall.deadline_ms)")


def _recall(store: Store, request: Request, marks: Marks, embedder: Embedder | None, deadline: Deadline) -> Recall:
    found = _look(store, request, embedder, deadline)
    given = [FactHit(fact=fact, score=1.0) for fact in request.facts]
    known = facts.known(store, request.scope, across=request.across or True)
    rows = [row for row in known if row.id not in {fact.id for fact in request.facts}]
    chosen_facts = [*given, *facts.find(facts.current(rows), " ".join(request.texts), limit=request.max_facts)]
    chosen_facts = chosen_facts[: request.max_facts]
    silence = Recall(relevance=relevance(found.signals), notes=found.notes)
    by_words = word_relevance(found.signals) >= request.gate
    passed = by_words or _is_alike(request, found)
    if not passed and not chosen_facts:
        return replace(silence, reason="nothing in memory has to do with this")
    room = request.cap - _frame_tokens()
    kept_facts = _fit_facts(chosen_facts, room * request.knowledge_share)
    room -= sum(_cost(hit) for hit in kept_facts)
    quotes: list[Quote] = []
    if by_words and found.signals.cosine is not None:  # what words alone quote first is quoted with vectors too
        words = found.signals.without_vectors()
        alone = replace(found, signals=words, ranking=_ranking(store, request, words))
        quotes = Quotable(store, request, alone, deadline).pack(room=room, measure=_measure, limit=1)
    if passed:
        quotes = Quotable(store, request, found, deadline).pack(room=room, measure=_measure, after=quotes)
    deadline.check()
    return _compose(kept_facts, quotes, request=request, marks=marks, found=found, silence=silence)


def _is_alike(request: Request, found: Found) -> bool:
    """Whether words and vectors together open a block; the weighted formula has a test of its own for each passage."""
    if request.order.fusion == "weighted":
        return found.signals.cosine is not None and len(found.ranking.order) > 0
    return combined_relevance(found.signals) >= request.gate


@cache
def _frame_tokens() -> float:
    """What the tags of a block cost."""
    return _measure(block.render([block.Fact(type="", text="")], [block.Detail(role="", time=0, text="")], UNKEPT))


def _look(store: Store, request: Request, embedder: Embedder | None, deadline: Deadline) -> Found:
    wanted_terms = weights(request.texts)
    text = request.texts[-1] if request.texts else ""
    query = embed_query(embedder if request.texts else None, text, deadline=deadline)
    deadline.check()
    wanted = Question(
        scope=request.scope,
        across=request.across,
        terms=wanted_terms,
        vector=query.vector,
        space=embedder.space if embedder is not None and query.vector is not None else None,
    )
    evidence, missing = _usable(store.match(wanted))
    deadline.check()
    notes = tuple(note for note in (query.note, missing) if note)
    signals = _signals(request, evidence, embedder, wanted_terms)
    found = Found(signals, _ranking(store, request, signals), wanted_terms, {}, notes)
    deadline.check()
    return found


def _ranking(store: Store, request: Request, signals: Signals) -> Ranking:
    """The passages in the order that the request asks for."""
    ranking = rank(signals, order=request.order)
    if request.order.fusion != "recipe":
        ranking = with_neighbours(ranking, signals, reach=request.neighbours)
    return ranking if request.order.variety is None else _varied(store, request, ranking, request.order.variety)


def _usable(evidence: Evidence) -> tuple[Evidence, str]:
    """The evidence, without its vectors while most passages have none of this model yet, and a note that says so."""
    if evidence.cosine is None:
        return evidence, ""
    visible, columns = evidence.visible, evidence.columns
    windows = columns.windows if visible.all() else int(np.count_nonzero(visible[columns["passage"]]))
    known = 0 if evidence.centre is None else round(evidence.centre.known * windows)
    if known and (known >= _KNOWN * windows or windows - known < _FEW):
        return evidence, ""
    note = f"{known:,} of {windows:,} windows have vectors of this model yet: by words alone" if windows else ""
    return replace(evidence, cosine=None, centre=None), note


def _signals(
    request: Request, evidence: Evidence, embedder: Embedder | None, wanted_terms: Mapping[str, float]
) -> Signals:
    columns = evidence.columns
    visible = request.bounds.within(evidence.visible, columns, now=request.now)
    if request.in_window:
        visible = visible & ~np.isin(columns["message"], np.array(list(request.in_window)))
    if request.quoted:
        visible = visible & ~np.isin(np.arange(len(visible)), np.array(list(request.quoted)))
    return Signals(
        columns=columns,
        visible=visible,
        keywords=evidence.keywords,
        cosine=evidence.cosine,
        centre=evidence.centre,
        dates=_dates(request, evidence),
        length=sum(weight for term, weight in wanted_terms.items() if not is_unsegmented(term)),
        vector_weight=vector_weight(embedder, request.texts[-1] if request.texts else ""),
        now=request.now,
    )


def _varied(store: Store, request: Request, ranking: Ranking, weight: float) -> Ranking:
    """The first passages in an order in which none says what another said before it."""
    first = texts_of(store, request, ranking.order[:_VARIED].tolist())
    items = {Item(score=float(ranking.score(passage.number)), text=passage.text): passage.number for passage in first}
    order = [items[item] for item in mmr(list(items), relevance_weight=weight)]
    return replace(ranking, order=np.concatenate([np.array(order, np.int64), ranking.order[_VARIED:]]))


def _dates(request: Request, evidence: Evidence) -> list[tuple[int, int]]:
    times = evidence.columns["time"]
    known = times[(times > 0) & (times < _LATEST)]  # nobody's clock is that wrong
    if not len(known) or not request.texts:
        return []
    first, last = (datetime.fromtimestamp(int(moment) / 1000, UTC).year for moment in (known.min(), known.max()))
    return find_dates(request.texts[-1], now=request.now, years=range(first, last + 1))


def _fit_facts(hits: Sequence[FactHit], room: float) -> list[FactHit]:
    kept: list[FactHit] = []
    for hit in hits:
        cost = _cost(hit)
        if cost <= room:
            kept.append(hit)
            room -= cost
    return kept


def _cost(hit: FactHit) -> float:
    return _measure(block.fact_line(_line(hit)) + "\n")


def _line(hit: FactHit) -> block.Fact:
    return block.Fact(type=hit.fact.type, text=hit.fact.content)


def _compose(
    kept_facts: Sequence[FactHit],
    quotes: Sequence[Quote],
    *,
    request: Request,
    marks: Marks,
    found: Found,
    silence: Recall,
) -> Recall:
    """The block of what was chosen, best first. What the cap cannot hold after all goes, from the end."""
    columns, chosen = found.signals.columns, list(quotes)
    lines = [_line(hit) for hit in kept_facts]
    while True:
        details = {quote.passage: detail_of(found.texts[quote.passage], columns, text=quote.text) for quote in chosen}
        ordered = sorted(details, key=lambda number: (_minute(details[number]), number))
        text = block.render(lines, [details[number] for number in ordered], marks)
        tokens = count_text(text)
        if tokens <= request.cap or not chosen:
            break
        chosen.pop()
    if tokens > request.cap or not text:
        return replace(silence, reason=f"nothing fits into {request.cap} tokens")
    hits = tuple(_hit(found.texts[number], details[number].text, found) for number in ordered)
    return replace(silence, block=text, tokens=tokens, facts=tuple(kept_facts), hits=hits)


def _minute(detail: block.Detail) -> tuple[int, int]:
    """Oldest first; what was said in the same minute of the same session stays together."""
    return detail.time // 60_000, detail.session


def _hit(passage: PassageText, text: str, found: Found) -> Hit:
    return Hit(
        message=passage.message,
        passage=passage.number,
        text=text,
        speaker=passage.speaker,
        time=passage.time,
        score=float(found.ranking.score(passage.number)),
        parts=found.ranking.parts(passage.number),
    )


def _measure(text: str) -> float:
    """Tokens of a piece of a block; thirds count, since pieces are added up."""
    return count_text(text * 3) / 3
