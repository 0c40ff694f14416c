"""Recall: what memory has to say to the question at hand, as one block under a hard cap.

Local and bounded: no model is asked. A question that has nothing to do with the memory gets no block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

import numpy as np

from holdfast.memory import block, facts
from holdfast.memory.asking import Deadline, TooLateError, ask, inner
from holdfast.memory.facts import FactHit
from holdfast.memory.neighbours import with_neighbours
from holdfast.memory.request import Request, order_of, question, request_of
from holdfast.memory.weights import weights
from holdfast.search import gate
from holdfast.search.columns import Columns, Floats
from holdfast.search.dates import pointed_at
from holdfast.search.embed.base import Embedder
from holdfast.search.embed.joint import JointEmbedder
from holdfast.search.embed.static import StaticEmbedder
from holdfast.search.fuse import Parts, Ranking, Signals, rank
from holdfast.search.mmr import Item, mmr
from holdfast.search.pack import LEAST, MOST, Candidate, Quote, pack
from holdfast.store.base import Evidence, PassageText, Question, Select, Store
from holdfast.text import is_unsegmented
from holdfast.tokens import count_text

__all__ = ["Hit", "Recall", "Request", "order_of", "question", "recall", "request_of", "search"]

_LATEST: Final = 32_503_680_000_000
"""The year 3000, in Unix milliseconds."""
_BATCH: Final = 32
_KNOWN: Final = 0.6
"""The share of windows that must have a vector; with fewer, those that have none would be at a loss."""
_FEW: Final = 200
"""So few windows without a vector are no reason: one batch of embedding, or vectors that have nothing in common."""
_ASKED: Final = 10
"""So many of the best passages may have been questions;"""
_ANSWERED: Final = 3
"""the answers stand in so many passages behind them,"""
_CURT: Final = 100
"""and are so short that they say nothing by themselves."""
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
        relevance: How much the best passage has to do with the question, 0 to 1.
        least: How much it must have to do with it for a block of passages, unless the request says otherwise.
        reason: Why there is no block, where there is none.
        notes: What was missing in the search itself, such as vectors.
    """

    block: str = ""
    tokens: int = 0
    facts: tuple[FactHit, ...] = ()
    hits: tuple[Hit, ...] = ()
    relevance: float = 0.0
    least: float = 0.0
    reason: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """What was found, what was missing, and the passages that were read so far."""

    evidence: Evidence
    signals: Signals
    ranking: Ranking
    weights: dict[str, float]
    texts: dict[int, PassageText]
    notes: tuple[str, ...]


def search(store: Store, request: Request, *, embedder: Embedder | None = None, limit: int = 10) -> list[Hit]:
    """The passages that have most to do with a question, best first, whole."""
    found = _look(store, request, embedder, Deadline.after(None))
    best = found.ranking.order[:limit].tolist()
    texts = {passage.number: passage for passage in _texts(store, request, best)}
    return [_hit(texts[number], texts[number].text, found.ranking) for number in best if number in texts]


def recall(
    store: Store,
    request: Request,
    *,
    embedder: Embedder | None = None,
    timer: Callable[[], float] = time.monotonic,
) -> Recall:
    """The block for a question."""
    if len(" ".join(request.texts).strip()) < request.min_chars:
        return Recall(reason=f"a question of less than {request.min_chars} characters recalls nothing")
    try:
        return _recall(store, request, embedder, Deadline.after(request.seconds, timer=timer))
    except TooLateError:
        return Recall(reason=f"it took longer than {1000 * (request.seconds or 0):.0f} ms (recall.deadline_ms)")


def _recall(store: Store, request: Request, embedder: Embedder | None, deadline: Deadline) -> Recall:
    found = _look(store, request, embedder, deadline)
    rows = store.fetch(Select(kind="fact", scope=request.scope, across=request.across))
    known = [*facts.current(rows), *request.facts]
    chosen_facts = facts.find(known, " ".join(request.texts), limit=request.max_facts) if known else []
    silence = Recall(relevance=gate.relevance(found.signals), least=_least(request, found.signals), notes=found.notes)
    passed = silence.relevance >= (silence.least if request.gate is None else request.gate)
    passed = passed and len(found.ranking.order) > 0
    if not passed and not chosen_facts:
        return replace(silence, reason="nothing in memory has to do with this")
    room = request.cap - _measure(_FRAME)
    kept_facts = _fit_facts(chosen_facts, room * request.knowledge_share)
    room -= sum(_cost(hit) for hit in kept_facts)
    quotes: list[Quote] = []
    if passed:
        reader = _Reader(store, request, found, deadline)
        quotes = pack(reader.sizes(), reader.read, room=room, weights=found.weights, measure=_measure)
    deadline.check()
    return _compose(kept_facts, quotes, request=request, found=found, silence=silence)


def _least(request: Request, signals: Signals) -> float:
    """The relevance from which on there is a block; the weighted formula has a test of its own for each passage."""
    return 0.0 if request.order.fusion == "weighted" else gate.least(signals)


_FRAME: Final = block.render([block.Fact(type="", text="")], [block.Detail(role="", time=0, text="")])
"""A block with nothing in it, to know what the tags cost."""


def _look(store: Store, request: Request, embedder: Embedder | None, deadline: Deadline) -> _Found:
    wanted_terms = weights(request.texts)
    asked = ask(embedder if request.texts else None, request.texts[-1] if request.texts else "", deadline=deadline)
    deadline.check()
    wanted = Question(
        scope=request.scope,
        across=request.across,
        terms=wanted_terms,
        vector=asked.vector,
        space=embedder.space if embedder is not None and asked.vector is not None else None,
    )
    evidence, missing = _usable(store.match(wanted))
    deadline.check()
    signals = _signals(request, evidence, embedder)
    ranking = rank(signals, order=request.order)
    if request.order.fusion != "recipe":
        ranking = with_neighbours(ranking, signals, reach=request.neighbours)
    deadline.check()
    notes = tuple(note for note in (asked.note, missing) if note)
    found = _Found(evidence, signals, ranking, wanted_terms, {}, notes)
    return found if request.order.variety is None else _varied(store, request, found, request.order.variety)


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


def _signals(request: Request, evidence: Evidence, embedder: Embedder | None) -> Signals:
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
        trust=_trust(request, embedder),
        now=request.now,
    )


def _varied(store: Store, request: Request, found: _Found, weight: float) -> _Found:
    """The first passages in an order in which none says what another said before it."""
    first = found.ranking.order[:_VARIED].tolist()
    found.texts.update((passage.number, passage) for passage in _texts(store, request, first))
    items = {Item(score=float(found.ranking.score(n)), text=found.texts[n].text): n for n in first if n in found.texts}
    order = [items[item] for item in mmr(list(items), relevance_weight=weight)]
    rest = found.ranking.order[_VARIED:]
    return replace(found, ranking=replace(found.ranking, order=np.concatenate([np.array(order, np.int64), rest])))


def _trust(request: Request, embedder: Embedder | None) -> float:
    """How far the vectors of a question can be trusted: static tables know nothing of scripts without spaces."""
    if not request.texts or not isinstance(inner(embedder), StaticEmbedder | JointEmbedder):
        return 1.0
    letters = [character for character in request.texts[-1] if character.isalpha()]
    return 1 - sum(map(is_unsegmented, letters)) / len(letters) if letters else 1.0


def _dates(request: Request, evidence: Evidence) -> list[tuple[int, int]]:
    times = evidence.columns["time"]
    known = times[(times > 0) & (times < _LATEST)]  # nobody's clock is that wrong
    if not len(known) or not request.texts:
        return []
    first, last = (datetime.fromtimestamp(int(moment) / 1000, UTC).year for moment in (known.min(), known.max()))
    return pointed_at(request.texts[-1], now=request.now, years=range(first, last + 1))


def _texts(store: Store, request: Request, numbers: Sequence[int]) -> list[PassageText]:
    return store.fetch(Select(kind="passage", scope=request.scope, across=request.across, ids=tuple(numbers)))


class _Reader:
    """Reads what may be quoted, in the order in which it is worth its room, a batch of texts at a time."""

    def __init__(self, store: Store, request: Request, found: _Found, deadline: Deadline) -> None:
        self._store, self._request, self._found, self._deadline = store, request, found, deadline
        recipe, order = request.order.recipe, found.ranking.order
        if request.order.fusion == "recipe" and request.order.variety is None:
            order = found.ranking.for_quoting(found.signals.columns, brevity=recipe.brevity, best=recipe.best)
        self._order = _with_answers(order.tolist(), found.signals)
        self._best = frozenset(order[: recipe.best].tolist())
        self._places = {number: place for place, number in enumerate(self._order)}
        self._scores = _WindowScores(found, self._order)

    def sizes(self) -> Iterator[tuple[int, int]]:
        """Passages and their lengths."""
        return zip(self._order, self._found.signals.columns["size"][self._order].tolist(), strict=True)

    def read(self, number: int) -> Candidate | None:
        """A passage that may be quoted; None where it is no longer there."""
        passages = self._found.texts
        if number not in passages:
            self._deadline.check()
            place = self._places[number]
            missing = [near for near in self._order[place : place + _BATCH] if near not in passages]
            passages.update((passage.number, passage) for passage in _texts(self._store, self._request, missing))
        passage = passages.get(number)
        if passage is None:
            return None
        detail = _detail(passage, self._found.signals.columns, text="")
        return Candidate(
            passage=number,
            text=passage.text,
            windows=passage.windows,
            window_scores=self._scores[number],
            header=block.header(detail),
            brief=block.brief_header(detail),
            group=block.moment(detail),
            room=MOST if number in self._best else LEAST,
        )


def _with_answers(order: list[int], signals: Signals) -> list[int]:
    """The passages with the curt ones that follow the best: what a tool answered holds no word of the question."""
    columns, visible = signals.columns, signals.visible
    found: dict[int, None] = {}
    for place, number in enumerate(order):
        found[number] = None
        after = np.array([number])
        for _ in range(_ANSWERED if place < _ASKED else 0):
            after = columns.beside(after, "following")
            follower = int(after[0])
            if follower < 0 or columns["human"][follower]:
                break
            if columns["size"][follower] <= _CURT and visible[follower]:
                found[follower] = None
    return list(found)


def _detail(passage: PassageText, columns: Columns, *, text: str) -> block.Detail:
    session = int(columns["scope"][passage.number])
    return block.Detail(role=passage.speaker, time=passage.time, text=text, session=session)


_ONE: Final = np.ones(1, np.float32)


class _WindowScores:
    """How good each window of some passages is, by words and by vector: 0 to 1 within its passage."""

    def __init__(self, found: _Found, passages: Sequence[int]) -> None:
        columns = found.signals.columns
        firsts = columns["first_window"]
        chosen = np.sort(np.array(passages, np.int64))
        counts = np.append(firsts[1:], columns.windows)[chosen] - firsts[chosen]
        chosen, counts = chosen[counts > 1], counts[counts > 1]
        places = np.cumsum(counts) - counts
        numbers = np.arange(counts.sum()) + np.repeat(firsts[chosen] - places, counts)
        self._parts = dict(zip(chosen.tolist(), map(slice, places.tolist(), (places + counts).tolist()), strict=True))
        self._words = found.evidence.keywords.windows(numbers, columns)
        cosine = found.signals.cosine
        self._vectors = None if cosine is None else np.maximum(cosine[numbers], 0)

    def __getitem__(self, number: int) -> Floats:
        part = self._parts.get(number)
        if part is None:
            return _ONE
        words = _relative(self._words[part])
        return words if self._vectors is None else (words + _relative(self._vectors[part])) / np.float32(2)


def _relative(values: Floats) -> Floats:
    largest = values.max(initial=0)
    return values / largest if largest > 0 else values


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
    kept_facts: Sequence[FactHit], quotes: Sequence[Quote], *, request: Request, found: _Found, silence: Recall
) -> Recall:
    """The block of what was chosen. What the cap cannot hold after all goes, least relevant first."""
    columns, ranking = found.signals.columns, found.ranking
    chosen = sorted(quotes, key=lambda quote: float(ranking.score(quote.passage)))
    lines = [_line(hit) for hit in kept_facts]
    while True:
        details = {quote.passage: _detail(found.texts[quote.passage], columns, text=quote.text) for quote in chosen}
        ordered = sorted(details, key=lambda number: (_minute(details[number]), number))
        text = block.render(lines, [details[number] for number in ordered])
        tokens = count_text(text)
        if tokens <= request.cap or not chosen:
            break
        chosen = chosen[1:]
    if tokens > request.cap or not text:
        return replace(silence, reason=f"nothing fits into {request.cap} tokens")
    hits = tuple(_hit(found.texts[number], details[number].text, found.ranking) for number in ordered)
    return replace(silence, block=text, tokens=tokens, facts=tuple(kept_facts), hits=hits)


def _minute(detail: block.Detail) -> tuple[int, int]:
    """Oldest first; what was said in the same minute of the same session stays together."""
    return detail.time // 60_000, detail.session


def _hit(passage: PassageText, text: str, ranking: Ranking) -> Hit:
    return Hit(
        message=passage.message,
        passage=passage.number,
        text=text,
        speaker=passage.speaker,
        time=passage.time,
        score=float(ranking.score(passage.number)),
        parts=ranking.parts(passage.number),
    )


def _measure(text: str) -> float:
    """Tokens of a piece of a block; thirds count, since pieces are added up."""
    return count_text(text * 3) / 3
