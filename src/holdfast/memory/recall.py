"""Recall: what memory has to say to the question at hand, as one block under a hard cap.

Local and bounded: no model is asked. A question that has nothing to do with the memory gets no block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import numpy as np

from holdfast.memory import block, facts
from holdfast.memory.facts import FactHit
from holdfast.search.columns import Floats
from holdfast.search.dates import pointed_at
from holdfast.search.embed.base import Embedder
from holdfast.search.fuse import Parts, Ranking, Recipe, rank
from holdfast.search.pack import Candidate, Quote, pack
from holdfast.store.base import Evidence, PassageText, Question, Scope, Select, Store
from holdfast.text import terms
from holdfast.tokens import count_text

__all__ = ["Hit", "Recall", "Request", "recall", "search"]

_EARLIER: Final = 0.5
_BATCH: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is asked of memory.

    Attributes:
        texts: The last things the user said, newest last; the newest weighs most.
        scope: Whose memory is asked.
        across: Whether the agent's other sessions may be seen.
        cap: The most tokens the whole block may have, tags and headers included.
        now: The moment of the question, in Unix milliseconds, for "two weeks ago".
        in_window: Archived messages that the model sees anyway.
        gate: How much a passage must have to do with the question at least, 0 to 1.
        knowledge_share: The part of the cap that facts may take; what they leave goes to passages, and back.
    """

    texts: Sequence[str]
    scope: Scope
    across: bool = False
    cap: int = 4000
    now: int | None = None
    in_window: Collection[int] = ()
    gate: float = 0.33
    knowledge_share: float = 0.3
    recipe: Recipe = field(default_factory=Recipe)


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
        relevance: How much the best passage has to do with the question, 0 to 1.
        reason: Why there is no block, where there is none.
    """

    block: str = ""
    tokens: int = 0
    facts: tuple[FactHit, ...] = ()
    hits: tuple[Hit, ...] = ()
    relevance: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    evidence: Evidence
    ranking: Ranking
    weights: dict[str, float]


def search(store: Store, request: Request, *, embedder: Embedder | None = None, limit: int = 10) -> list[Hit]:
    """The passages that have most to do with a question, best first, whole."""
    found = _look(store, request, embedder)
    best = found.ranking.order[:limit].tolist()
    texts = {passage.number: passage for passage in _texts(store, request, best)}
    return [_hit(texts[number], texts[number].text, found.ranking) for number in best if number in texts]


def recall(store: Store, request: Request, *, embedder: Embedder | None = None) -> Recall:
    """The block for a question."""
    found = _look(store, request, embedder)
    known = facts.current(store.fetch(Select(kind="fact", scope=request.scope, across=request.across)))
    chosen_facts = facts.find(known, " ".join(request.texts)) if known else []
    order = found.ranking.order
    relevance = float(found.ranking.relevance[order].max(initial=0.0))
    if relevance < request.gate and not chosen_facts:
        reason = "nothing in memory has to do with this" if len(order) else "memory has nothing like this"
        return Recall(relevance=relevance, reason=reason)
    room = request.cap - _measure(block.render([_line(hit) for hit in chosen_facts[:0]], [_EMPTY]))
    kept_facts = _fit_facts(chosen_facts, room * request.knowledge_share)
    room -= sum(_measure(f"- [{hit.fact.type}] {hit.fact.content}\n") for hit in kept_facts)
    quotes: list[Quote] = []
    passages: dict[int, PassageText] = {}
    if relevance >= request.gate:
        candidates = _candidates(store, request, found, passages)
        quotes = pack(candidates, room=room, weights=found.weights, measure=_measure)
    return _compose(kept_facts, quotes, cap=request.cap, passages=passages, ranking=found.ranking, relevance=relevance)


_EMPTY: Final = block.Detail(role="", time=0, text="")


def _look(store: Store, request: Request, embedder: Embedder | None) -> _Found:
    weights = _weights(request.texts)
    vector = embedder.embed([request.texts[-1]], kind="query")[0] if embedder is not None and request.texts else None
    question = Question(
        scope=request.scope,
        across=request.across,
        terms=weights,
        vector=vector,
        space=embedder.space if embedder is not None else None,
    )
    evidence = store.match(question)
    columns = evidence.columns
    visible = evidence.visible
    if request.in_window:
        visible = visible & ~np.isin(columns["message"], np.array(list(request.in_window)))
    ranking = rank(
        columns,
        visible=visible,
        keywords=evidence.keywords,
        cosine=evidence.cosine,
        dates=_dates(request, evidence),
        recipe=request.recipe,
    )
    return _Found(evidence, ranking, weights)


def _weights(texts: Sequence[str]) -> dict[str, float]:
    """The terms of a question; those of earlier messages weigh less."""
    weights: Counter[str] = Counter()
    for age, text in enumerate(reversed(texts)):
        for term, count in Counter(terms(text)).items():
            weights[term] = max(weights[term], count * _EARLIER**age)  # type: ignore[assignment]  # counts by weight
    return dict(weights)


def _dates(request: Request, evidence: Evidence) -> list[tuple[int, int]]:
    times = evidence.columns["time"]
    known = times[times > 0]
    if not len(known) or not request.texts:
        return []
    first, last = (datetime.fromtimestamp(int(moment) / 1000, UTC).year for moment in (known.min(), known.max()))
    return pointed_at(request.texts[-1], now=request.now, years=range(first, last + 1))


def _texts(store: Store, request: Request, numbers: Sequence[int]) -> list[PassageText]:
    return store.fetch(Select(kind="passage", scope=request.scope, across=request.across, ids=tuple(numbers)))


def _candidates(store: Store, request: Request, found: _Found, passages: dict[int, PassageText]) -> Iterator[Candidate]:
    """What may be quoted, in the order in which it is worth its room; texts are read a batch at a time."""
    columns = found.evidence.columns
    order = found.ranking.for_quoting(columns, brevity=request.recipe.brevity).tolist()
    for start in range(0, len(order), _BATCH):
        numbers = order[start : start + _BATCH]
        passages.update((passage.number, passage) for passage in _texts(store, request, numbers))
        for number in numbers:
            passage = passages.get(number)
            if passage is None:
                continue
            detail = block.Detail(role=passage.speaker, time=passage.time, text="")
            yield Candidate(
                passage=number,
                text=passage.text,
                windows=passage.windows,
                window_scores=_window_scores(found.evidence, number),
                header=block.header(detail),
            )


def _window_scores(evidence: Evidence, number: int) -> Floats:
    """How good each window of a passage is, by words and by vector."""
    windows = evidence.columns.window_range(number)
    if len(windows) == 1:
        return np.ones(1, np.float32)
    numbers = np.arange(windows.start, windows.stop)
    scores = _relative(evidence.keywords.windows(numbers, evidence.columns))
    if evidence.cosine is not None:
        scores = (scores + _relative(np.maximum(evidence.cosine[numbers], 0))) / np.float32(2)
    return scores


def _relative(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values


def _fit_facts(hits: Sequence[FactHit], room: float) -> list[FactHit]:
    kept: list[FactHit] = []
    for hit in hits:
        cost = _measure(f"- [{hit.fact.type}] {hit.fact.content}\n")
        if cost <= room:
            kept.append(hit)
            room -= cost
    return kept


def _compose(
    kept_facts: Sequence[FactHit],
    quotes: Sequence[Quote],
    *,
    cap: int,
    passages: dict[int, PassageText],
    ranking: Ranking,
    relevance: float,
) -> Recall:
    """The block of what was chosen. What the cap cannot hold after all goes, least relevant first."""
    chosen = sorted(quotes, key=lambda quote: ranking.scores[quote.passage])
    while True:
        ordered = sorted(chosen, key=lambda quote: (passages[quote.passage].time, quote.passage))
        hits = [_hit(passages[quote.passage], quote.text, ranking) for quote in ordered]
        text = block.render(
            [_line(hit) for hit in kept_facts],
            [block.Detail(role=hit.speaker, time=hit.time, text=hit.text) for hit in hits],
        )
        tokens = count_text(text)
        if tokens <= cap:
            break
        if not chosen:
            return Recall(relevance=relevance, reason=f"not even the facts fit into {cap} tokens")
        chosen = chosen[1:]
    reason = "" if text else f"nothing fits into {cap} tokens"
    return Recall(
        block=text, tokens=tokens, facts=tuple(kept_facts), hits=tuple(hits), relevance=relevance, reason=reason
    )


def _line(hit: FactHit) -> block.Fact:
    return block.Fact(type=hit.fact.type, text=hit.fact.content)


def _hit(passage: PassageText, text: str, ranking: Ranking) -> Hit:
    return Hit(
        message=passage.message,
        passage=passage.number,
        text=text,
        speaker=passage.speaker,
        time=passage.time,
        score=float(ranking.scores[passage.number]),
        parts=ranking.parts(passage.number),
    )


def _measure(text: str) -> float:
    """Tokens of a piece of a block; thirds count, since pieces are added up."""
    return count_text(text * 3) / 3
