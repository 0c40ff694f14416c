"""Quote the passages of a ranking within a number of tokens: the best by words alone first, then those that rank best.

`holdfast.search.pack` decides which part of a passage is quoted, and whether it repeats another quote.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, pairwise
from math import fsum
from typing import Final

import numpy as np

from holdfast.calls import Deadline
from holdfast.embed.base import Floats
from holdfast.memory import block
from holdfast.memory.no_answers import is_no_answer
from holdfast.memory.passage_search import ANSWER_REACH, MAX_LEADS, Found, find_answers, only_asks
from holdfast.search.arrays import Ints
from holdfast.search.candidates import Candidates
from holdfast.search.fuse import measure_chat, relative
from holdfast.search.pack import (
    MAX_EXCERPT_CHARS,
    MAX_WHOLE_CHARS,
    MIN_EXCERPT_CHARS,
    MIN_QUOTE_TOKENS,
    MIN_SCORE,
    SHORTEST_EXCERPT_CHARS,
    Quotable,
    Quote,
    pack,
    select_likely,
)
from holdfast.signals import asks
from holdfast.store.base import PassageText
from holdfast.text import terms
from holdfast.tokens import measure_text

_AGENT_LEAD_TOKENS: Final = 300
"""The minimum room for the best passages by words alone, which get a quarter of all room, in the session of an agent,
in which names and numbers decide. It is enough for one of them."""
_CHAT_LEAD_TOKENS: Final = 100
"""The minimum room for them in a chat, in which vectors find as much (`python -m benchmarks recall --cap 500`)."""
_FIRST_LEAD_TOKENS: Final = 600
"""The room for the very best passage by words alone."""
_SMALL_ROOM: Final = 700
"""In a chat, the best passages get longer excerpts than the others only if the block has at least this room."""
_CHAT_MIN_SCORE: Final = 0.3
"""Passages of a chat with a lower score, relative to the best passage, are only quoted in a small block. There is no
such limit in sessions of agents, whose passages are longer and have scores closer to each other
(`python -m benchmarks recall`, `other-words`)."""
_MAX_WEAK_TOKENS: Final = 500
"""The maximum size of a block in which such passages are quoted."""
_BATCH: Final = 32
"""How many passages have their windows scored at once."""
_MORE: Final = 8
"""How many passages are read at once if more are needed than was likely."""
_MAX_QUESTIONS: Final = 10
"""How many of the best passages may be questions whose answers are looked for."""
_MAX_CALLS: Final = 3
"""The results of the tools that were called by how many quotes, or after them, are quoted too."""
_MAX_RESULT_CHARS: Final = 800
"""The maximum characters of such a result. A longer one is found by its own words."""
_RESULT_TOKENS: Final = 250
"""The maximum tokens of these results."""
_QUESTION: Final = re.compile("[?？]")
_ONE: Final = np.ones(1, np.float32)
"""The scores of the windows of a passage that has only one."""


def quote_best(found: Found, *, room: float, known: Sequence[str], deadline: Deadline) -> list[Quote]:
    """Quote the best passages by words alone, then those that rank best.

    Vectors may rank passages higher that only sound like the question, so the best by words are always quoted.
    """
    chat = measure_chat(found.candidates)
    lead_room = min(room, max(_interpolate(_AGENT_LEAD_TOKENS, _CHAT_LEAD_TOKENS, chat), room / 4))
    excerpt_chars = MAX_EXCERPT_CHARS
    if room < _SMALL_ROOM:
        excerpt_chars = round(_interpolate(MAX_EXCERPT_CHARS, MIN_EXCERPT_CHARS, chat))
    # Four passes, each of which adds to the quotes of the passes before it. The very best passage by words has its own
    # room, because it may be long. The next ones share theirs.
    leads = Quoter(found.by_words, deadline, excerpt_chars=excerpt_chars, best=1)
    quotes = leads.pack(room=min(room, max(_FIRST_LEAD_TOKENS, 2 * lead_room)), known=known, limit=1)
    quotes = leads.pack(room=lead_room, known=known, after=quotes, limit=MAX_LEADS)
    # A large gap in scores ends the block, but not before it is as large as one for a weak match.
    strong = Quoter(found, deadline, excerpt_chars=excerpt_chars, min_score=_CHAT_MIN_SCORE * chat)
    quotes = strong.pack(room=room, known=known, after=quotes)
    weak_room = min(room, _MAX_WEAK_TOKENS)
    if weak_room - sum(quote.tokens for quote in quotes) >= MIN_QUOTE_TOKENS:
        weak = Quoter(found, deadline, excerpt_chars=excerpt_chars)
        quotes = weak.pack(room=weak_room, known=known, after=quotes)
    # At last, in the room that is left: what the calls returned that are quoted. It may have no word of the question.
    results = _find_results(found, quotes)
    if not results:
        return quotes
    spent = sum(quote.tokens for quote in quotes)
    full = replace(found.with_order(np.array(results, np.int64)), query=replace(found.query, fill="full"))
    called = Quoter(full, deadline, excerpt_chars=MIN_EXCERPT_CHARS)
    return called.pack(room=min(room, spent + _RESULT_TOKENS), known=known, after=quotes)


def _find_results(found: Found, quotes: Sequence[Quote]) -> list[int]:
    """Find the short results of the tools that were called by the best quotes, or for a request among them.

    If several tools were called at once, nothing in a passage says which result is whose, and none is added.
    """
    if found.query.order.fusion != "recipe" or found.query.neighbours <= 0:
        return []
    candidates = found.candidates
    quoted = {quote.passage for quote in quotes}
    results: dict[int, None] = {}  # each once, in order
    for quote in quotes[:_MAX_CALLS]:
        followers = _list_followers(candidates, quote.passage)
        possible = [place for place in followers if place not in quoted and candidates.eligible[place]]
        possible = [place for place in possible if candidates.sizes[place] <= _MAX_RESULT_CHARS]
        if not possible:
            continue
        if candidates.human[quote.passage] and not asks(quote.text):
            continue  # what follows a statement is about something else
        found.read(followers)
        returned = [place for place in followers if place in found.texts and found.texts[place].speaker == "tool"]
        if len(returned) == 1 and returned[0] in possible:
            results[returned[0]] = None
    return list(results)


def _list_followers(candidates: Candidates, place: int) -> list[int]:
    """List the passages after one, up to the next message of a person."""
    followers: list[int] = []
    for _ in range(ANSWER_REACH):
        place = int(candidates.following[place])
        if place < 0 or candidates.human[place]:
            break
        followers.append(place)
    return followers


def quote_all(found: Found, *, room: float, known: Sequence[str], deadline: Deadline) -> list[Quote]:
    """Quote a little of as many passages as fit, in their order, however low they score."""
    full = replace(found, query=replace(found.query, fill="full"))
    return Quoter(full, deadline, excerpt_chars=MIN_EXCERPT_CHARS).pack(room=room, known=known)


def _interpolate(start: float, stop: float, share: float) -> float:
    return start + (stop - start) * share


class Quoter:
    """Reads the passages of a ranking in batches, and packs quotes of them into a number of tokens.

    Args:
        found: The passages.
        deadline: When to give up.
        excerpt_chars: The characters of an excerpt of one of the best passages.
        best: How many passages those are; by default as many as the recipe says.
        min_score: The score, relative to the best passage, that a passage of an adaptive block needs.
        is_by_weights: Whether excerpts are chosen by the weights of words alone: the passages are not about the
            question, and neither are the scores of their windows.
    """

    def __init__(
        self,
        found: Found,
        deadline: Deadline,
        *,
        excerpt_chars: int,
        best: int | None = None,
        min_score: float = 0.0,
        is_by_weights: bool = False,
    ) -> None:
        self._found = found
        self._deadline = deadline
        self._excerpt_chars = excerpt_chars
        self._is_by_weights = is_by_weights
        # Of two sentences, that with the rarer words of the question has the answer more often.
        self._weights = found.excerpt_weights
        if is_by_weights:
            self._weights = found.quote_weights
        self._is_adaptive = found.query.fill == "adaptive"
        order, worth = _order_by_worth(found)
        if best is None:
            best = found.query.order.recipe.best
        self._best = frozenset(order[:best].tolist())
        self._values = self._rate(order, worth, min_score=min_score)
        self._order = list(self._values)
        self._ranks = {place: number for number, place in enumerate(self._order)}
        self._window_scores: dict[int, Floats] = {}
        self._likely: Sequence[int] = ()  # passages that are read together with the first one: one query of the store
        self._lead: int | None = None  # the passage that comes first, and is quoted even if only a sentence of it fits

    def pack(
        self, *, room: float, known: Sequence[str] = (), after: Sequence[Quote] = (), limit: int | None = None
    ) -> list[Quote]:
        """Quote what fits into `room` tokens; see `holdfast.search.pack.pack`."""
        sizes = self._found.candidates.sizes[self._order].tolist()
        order = list(zip(self._order, sizes, self._values.values(), strict=True))
        if limit is not None and order:  # the passage with most of the question in one window comes first
            lead = int(self._found.candidates.together[self._order].argmax())
            self._lead = self._order[lead]
            order.insert(0, order.pop(lead))
        self._likely = select_likely(order, room=room, after=after, adaptive=self._is_adaptive)[:limit]
        return pack(
            order,
            self._read,
            room=room,
            weights=self._weights,
            measure=_measure,
            known=known,
            after=after,
            limit=limit,
            adaptive=self._is_adaptive,
        )

    def _rate(self, order: Ints, worth: Floats, *, min_score: float) -> dict[int, float]:
        """Return the value of each passage that may be quoted, in order. An adaptive block leaves out weak ones."""
        found = self._found
        # A passage with most of the question in one window is worth its tokens, whatever the scores of others.
        scores = np.maximum(worth, found.candidates.together[order] ** 2).tolist()
        values: dict[int, float] = dict(zip(order.tolist(), scores, strict=True))
        if min_score and self._is_adaptive:
            ranked = relative(found.ranking.scores)
            values = {place: value for place, value in values.items() if ranked[place] >= min_score}
        if found.query.order.fusion == "recipe" and found.query.neighbours > 0:
            values = _add_answers(values, found.candidates, questions=self._find_questions(values))
        if self._is_adaptive:
            values = {place: value for place, value in values.items() if value >= MIN_SCORE}
        return values

    def _find_questions(self, values: Mapping[int, float]) -> set[int]:
        """Find the best passages that a short answer may follow: questions of a person, and calls of an agent."""
        best = list(islice(values, _MAX_QUESTIONS))
        self._found.read(best)
        questions: set[int] = set()
        for place in best:
            passage = self._found.texts.get(place)
            if passage is None:
                continue
            is_statement = self._found.candidates.human[place] and not _QUESTION.search(passage.text)
            if not is_statement:
                questions.add(place)
        return questions

    def _read(self, place: int) -> Quotable | None:
        """Read a passage; None if it no longer exists. The first call also reads the passages that will follow."""
        candidates = self._found.candidates
        texts = self._found.texts
        start = self._ranks[place]
        near = self._order[start : start + _BATCH]
        if place not in self._window_scores:  # lengths are relative to the mean of those that are scored together
            self._deadline.check()
            self._window_scores |= _score_windows(candidates, near)
        if place not in texts:
            self._found.read(dict.fromkeys([place, *(self._likely or near[:_MORE])]))
            self._likely = ()
        passage = texts.get(place)
        if passage is None:
            return None
        # If the same question was asked before, quoting that would take the room of the answer.
        if candidates.human[place] and only_asks(passage.text, self._found.weights):
            return None
        if passage.speaker == "assistant" and is_no_answer(passage.text):
            return None
        if self._is_by_weights:
            self._window_scores[place] = _weigh_windows(passage, self._weights)
        session = int(candidates.sessions[place])
        said_in = None
        if candidates.human[place]:
            said_in = session
        room = MIN_EXCERPT_CHARS
        if place in self._best:
            room = self._excerpt_chars
        min_room = MIN_EXCERPT_CHARS
        if place == self._lead or len(passage.text) > MAX_WHOLE_CHARS:
            min_room = SHORTEST_EXCERPT_CHARS
        return Quotable(
            passage=place,
            text=passage.text,
            windows=passage.windows,
            window_scores=self._window_scores[place],
            headers=block.headers(passage.speaker, passage.time, session, self._found.query.header),
            said_in=said_in,
            room=room,
            min_room=min_room,
        )


@lru_cache(maxsize=4096)
def _measure(text: str) -> float:
    """Count the tokens of a quote. The recalls of a conversation have many of the same."""
    return measure_text(text)


def _order_by_worth(found: Found) -> tuple[Ints, Floats]:
    """Return the passages in the order in which they are quoted, and what each is worth, 1 for the best."""
    ranking = found.ranking
    if found.query.order.fusion == "recipe" and found.query.order.variety is None:
        return ranking.for_quoting(found.candidates.sizes, found.query.order.recipe)
    return ranking.order, relative(ranking.scores[ranking.order])


def _weigh_windows(passage: PassageText, weights: Mapping[str, float]) -> Floats:
    """Score the windows of a passage by the words in them, 0 to 1."""
    scores: list[float] = []
    for start, stop in passage.windows:
        words = set(terms(passage.text[start:stop]))
        scores.append(fsum(weights.get(word, 0.0) for word in words))
    return relative(np.array(scores, np.float32))


def _score_windows(candidates: Candidates, places: Sequence[int]) -> dict[int, Floats]:
    """Score the windows of passages by words and by vector, 0 to 1 within each passage."""
    scores = dict.fromkeys(places, _ONE)
    chosen = np.sort(np.array(places, np.int64))
    chosen = chosen[candidates.windows[chosen] > 1]
    if not len(chosen):
        return scores
    counts = candidates.windows[chosen]
    stops = np.cumsum(counts)

    def relate(values: Floats) -> Floats:
        """Divide the values of each passage by the largest of them."""
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


def _add_answers(values: Mapping[int, float], found: Candidates, *, questions: Collection[int]) -> dict[int, float]:
    """Add short passages that follow questions: the answer of a tool contains no word of the question.

    If the question was asked before, its answer of that time comes first.
    """
    first: dict[int, float] = dict.fromkeys(found.answers.tolist(), max(values.values(), default=1.0))
    for place in islice(values, _MAX_QUESTIONS):
        value = values[place]
        first[place] = max(value, first.get(place, 0.0))
        if place not in questions:
            continue
        for follower in find_answers(found, place):
            first[follower] = max(value, first.get(follower, 0.0))
    best = {place: max(value, values.get(place, 0.0)) for place, value in first.items()}
    rest = {place: value for place, value in values.items() if place not in best}
    return best | rest
