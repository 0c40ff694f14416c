"""Find the newest statement about what a block quotes, so that an outdated value is not shown alone.

A correction may have no word of the question: "Unleash is no longer used" after "feature flags live in Unleash". So
passages are searched again, for the words of the best statements that are not in the question. Whether one statement
replaces another is decided in `holdfast.search.corrections`.

`python -m benchmarks corrections` counts the windows with a new value, and with an old one alone: run it before and
after a change of the figures below.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Final

import numpy as np

from holdfast.calls import Deadline
from holdfast.embed.base import Floats
from holdfast.memory import block
from holdfast.memory.facts import FactHit, find_replaced
from holdfast.memory.passage_search import Found
from holdfast.memory.quoter import Quoter
from holdfast.search.arrays import Bools
from holdfast.search.candidates import Candidates
from holdfast.search.corrections import Earlier, Later, Rarity, Statement, split_statements
from holdfast.search.fuse import relative, top
from holdfast.search.pack import MIN_EXCERPT_CHARS, Quote, is_known
from holdfast.store.base import FactRow, SearchQuery

_MIN_SHOWN_SEED: Final = 0.3
"""The minimum match of a passage in the window that is about the question, relative to the best passage."""
_MAX_SHOWN_SEEDS: Final = 2
"""How many such passages are compared with later ones. The best one is often the question itself."""
_MAX_SAID_SEEDS: Final = 4
"""How many of the best passages are compared with later ones if an earlier block, or the overview, says the same."""
_MAX_SEEDS: Final = 14
"""How many passages are compared with later ones."""
_MAX_STATEMENTS: Final = 2
"""How many sentences of each of them are compared."""
_MIN_STATEMENT: Final = 0.5
"""The minimum share of the question in one of these sentences, relative to the best of them. With it,
`python -m benchmarks corrections` shows one more of the new values, and no more of the old ones."""
_MIN_WORD: Final = 0.5
"""With less of the question in the best sentence, at most a loosely related word, the text was found by its vector, and
any of its sentences may be the reason."""
_MAX_SEARCHED: Final = 8
"""For the words of how many of these sentences, those of the best passages, later passages are searched."""
_MAX_SEED_TERMS: Final = 36
"""Once there are this many terms to search for, no terms of further statements are added."""
_SEED_DECAY: Final = 0.8
"""The weight of the terms of a quote, relative to those of the better quote before it."""
_MAX_LATER: Final = 16
"""How many passages with such terms are read."""
_MAX_RANKED_LATER: Final = 10
"""How many of the passages that match the question best are compared as well, if they were read before."""
_MAX_FIRST: Final = 4
"""How many later statements are quoted before anything else."""
_MAX_CHANGES: Final = 3
"""A statement with more later ones than this is part of a series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """Later statements about what is quoted.

    Attributes:
        found: The passages with those statements, ranked to be quoted first.
        passages: For the place of a passage, the places of the passages that replace it: for each of its statements
            the newest first.
        facts: The same for the id of a fact.
        by_facts: For the place of a passage that later facts replace, the ids of these facts.
        aside: Those of them that are about something else than the best quotes.
        said: The places of later statements that the overview, or an earlier block, says already. They are not quoted.
    """

    found: Found
    passages: Mapping[int, Collection[int]] = field(default_factory=dict)
    facts: Mapping[str, Collection[int]] = field(default_factory=dict)
    by_facts: Mapping[int, Collection[str]] = field(default_factory=dict)
    aside: Collection[int] = ()
    said: Collection[int] = ()

    def judge_passage(self, place: int, quoted: Collection[int], *, text: str) -> block.Superseded:
        """Return how much of a passage is replaced by a fact of the block, a `quoted` passage or one in the window."""
        if place in self.by_facts or self._is_shown(self.passages.get(place, ()), quoted):
            return _measure_superseded(text)
        return "no"

    def judge_fact(self, id_: str, quoted: Collection[int], *, text: str) -> block.Superseded:
        """Return how much of a fact is replaced by a `quoted` passage or one in the window."""
        if self._is_shown(self.facts.get(id_, ()), quoted):
            return _measure_superseded(text)
        return "no"

    def list_replacing_facts(self, quoted: Collection[int]) -> set[str]:
        """List the ids of the facts that replace a `quoted` passage or one in the window."""
        found: set[str] = set()
        for place, ids in self.by_facts.items():
            if self._is_shown([place], quoted):
                found.update(ids)
        return found

    def _is_shown(self, later: Collection[int], quoted: Collection[int]) -> bool:
        eligible = self.found.candidates.eligible
        return any(place in quoted or place in self.said or not eligible[place] for place in later)

    def insert(self, quotes: Sequence[Quote], *, room: float, known: Sequence[str], deadline: Deadline) -> list[Quote]:
        """Quote each later statement before the quote that it replaces, and drop quotes from the end until all fit.

        A statement that replaces only something in the window or a fact comes first.
        """
        later: dict[int, Quote] = {}
        if len(self.found.ranking.order):
            quoter = Quoter(self.found, deadline, excerpt_chars=MIN_EXCERPT_CHARS, is_by_weights=True)
            later = {quote.passage: quote for quote in quoter.pack(room=room, known=known)}
        replacing: set[int] = set()
        for quote in quotes:
            replacing.update(self.passages.get(quote.passage, ()))
        chosen = {place: quote for place, quote in later.items() if place not in replacing}
        for quote in quotes:
            for place in self.passages.get(quote.passage, ()):
                if place in later:
                    chosen.setdefault(place, later[place])
            # A better quote may itself replace a worse one. Then its excerpt stays the one that answers the question.
            chosen.setdefault(quote.passage, quote)
        kept = list(chosen.values())
        spent = sum(quote.tokens for quote in kept)
        while spent > room and len(kept) > 1:
            spent -= kept.pop().tokens
        return self._leave_out_stale(kept)

    def _leave_out_stale(self, quotes: Sequence[Quote]) -> list[Quote]:
        """Leave out quotes that later statements replace, if none of these is quoted or in the window.

        One that only says what a later fact replaces is left out too if it is about something else.
        """
        quoted = {quote.passage for quote in quotes}
        kept: list[Quote] = []
        for quote in quotes:
            if quote.passage in self.aside and _measure_superseded(quote.text) == "wholly":
                continue
            is_replaced = bool(self.passages.get(quote.passage))
            if not is_replaced or self.judge_passage(quote.passage, quoted, text="") != "no":
                kept.append(quote)
        return kept


def _measure_superseded(text: str) -> block.Superseded:
    """Return how much of a text a later statement replaces: all of it, or perhaps one of several sentences."""
    stated = [statement for statement in split_statements(text) if not statement.is_request]
    if len(stated) == 1:
        return "wholly"
    return "partly"


def find_newest(
    found: Found,
    quotes: Sequence[Quote],
    *,
    facts: Sequence[FactHit],
    past: Sequence[FactRow] = (),
    instructed: Sequence[Statement],
    hidden: Collection[int],
    can_search: bool = True,
) -> Newest:
    """Find the statements that replace what is quoted, or what the window or its instructions say.

    Args:
        found: The passages of the question.
        quotes: The quotes of them in the block.
        facts: The facts in the block.
        past: All versions of all facts.
        instructed: What the system prompt says about the question.
        hidden: Messages that are never recalled.
        can_search: Whether there is time for a second search; if not, the passages that were read are compared.
    """
    candidates = found.candidates
    # Only statements of people are compared: another number in the output of a tool corrects nothing.
    is_open = candidates.human & ~np.isin(candidates.messages, list(hidden))

    # The statements that may be outdated, and the texts that may say so.
    texts = _choose_seeds(found, quotes, is_open=is_open)
    statements = _choose_statements(texts, found.quote_weights)
    oldest = min((int(candidates.times[place]) for place in statements), default=0)
    again = _Again()
    if can_search:
        searched = list(chain.from_iterable(statements.values()))[:_MAX_SEARCHED]
        again = _search_again(found, searched, is_open=is_open, since=oldest)
    if can_search and instructed:  # a separate search, because many weak quotes may bring many other words
        again = again.join(_search_again(found, instructed, is_open=is_open, since=0))
    found.read(again.places)
    best = found.ranking.order[:_MAX_RANKED_LATER].tolist()
    rarity = Rarity.of({**candidates.rarity, **again.rarity})
    fact_statements = {hit.fact.id: Statement.read(hit.fact.content) for hit in facts}
    compared = [*chain.from_iterable(statements.values()), *fact_statements.values(), *instructed]
    later = _LaterTexts.read(found, [*texts, *again.places, *best], compared, is_open=is_open, rarity=rarity)

    # What replaces each of them: later passages, facts of the block, and successors of facts.
    replaced: list[Statement] = []
    changed: dict[int, Sequence[int]] = {}
    for place, some in statements.items():
        moment = _read_moment(candidates, place)
        replacing: dict[int, None] = {}  # each place once, in order
        for statement in some:
            places = later.find(statement, after=moment, speaker=found.texts[place].speaker)
            if places:
                replaced.append(statement)
                replacing.update(dict.fromkeys(places))
        changed[place] = list(replacing)
    passages, last_of_series = _leave_out_series(changed)
    by_facts: dict[int, list[str]] = {}
    for place, some in statements.items():
        replacing_facts = later.find_facts(some, place, facts=facts)
        if replacing_facts:
            by_facts[place] = replacing_facts
    aside: set[int] = set()
    quoted = {quote.passage: quote.text for quote in quotes if is_open[quote.passage]}
    for place, successor, stating in _find_past_facts(found, {**quoted, **texts}, past):
        by_facts.setdefault(place, []).append(successor)
        if place in texts:
            passages[place] = [*passages.get(place, ()), *stating]
        else:
            aside.add(place)
    of_facts: dict[str, list[int]] = {}
    for hit in facts:
        if not hit.fact.time:
            continue
        statement = fact_statements[hit.fact.id]
        learned = (hit.fact.time, max(hit.fact.evidence, default=sys.maxsize))
        of_facts[hit.fact.id] = later.find(statement, after=learned)
        if of_facts[hit.fact.id]:
            replaced.append(statement)
    # The instructions have no time, so everything that a person says counts as later. They are not marked as outdated:
    # a statement that is about something else does little harm then.
    of_instructions: list[int] = []
    for statement in instructed:
        of_instructions += later.find(statement, after=(-1, -1), needs_subject=False)

    replacing_first = chain(of_instructions, *passages.values(), last_of_series, *of_facts.values())
    first = _rank_first(found, replacing_first, statements=[*replaced, *instructed])
    said = _find_known(found, chain(*passages.values(), *of_facts.values()))
    return Newest(found=first, passages=passages, facts=of_facts, by_facts=by_facts, aside=aside, said=said)


def _rank_first(found: Found, places: Iterable[int], *, statements: Sequence[Statement]) -> Found:
    """Rank the passages that replace something, and no others, so that they are quoted first.

    Their excerpts are chosen by the words of the statements that they replace.
    """
    order = [place for place in dict.fromkeys(places) if found.candidates.eligible[place]][:_MAX_FIRST]
    scores = found.ranking.scores.copy()
    scores[order] = max(1.0, float(scores.max(initial=0)))
    ranking = replace(found.ranking, order=np.array(order, np.int64), scores=scores)
    terms = _find_answer_terms(statements, asked=found.weights)
    return replace(found, ranking=ranking, quote_weights={**found.quote_weights, **terms})


# --- earlier statements ----------------------------------------------------------------


def _choose_seeds(found: Found, quotes: Sequence[Quote], *, is_open: Bools) -> dict[int, str]:
    """Choose the texts, by place, for which later ones are looked for: the best in the window, and what is quoted.

    What an earlier block or the overview says is in the window too. It is not quoted again.
    """
    candidates = found.candidates
    match = _measure_match(candidates) * is_open
    enough = _MIN_SHOWN_SEED * float(match.max(initial=0))
    in_window = match * ~candidates.eligible
    shown = [place for place in top(in_window, _MAX_SHOWN_SEEDS).tolist() if match[place] >= enough]
    found.read(shown)
    seeds = {place: found.texts[place].text for place in shown if place in found.texts}
    seeds |= _find_said(found, is_open=is_open)
    for quote in quotes:
        if len(seeds) == _MAX_SEEDS:
            break
        if is_open[quote.passage] and _find_stated(quote.text):
            seeds.setdefault(quote.passage, quote.text)
    return seeds


def _find_stated(text: str) -> list[Statement]:
    """Return the statements of a text without requests for work, which no later statement replaces."""
    return [statement for statement in Later.read(text).statements if not statement.is_request]


def _find_said(found: Found, *, is_open: Bools) -> dict[int, str]:
    """Find the best passages that the blocks in the window say already."""
    if not found.query.shown.blocks:
        return {}
    best = found.ranking.order[:_MAX_RANKED_LATER].tolist()
    found.read(best)
    said = _find_known(found, [place for place in best if is_open[place]])
    return {place: found.texts[place].text for place in said[:_MAX_SAID_SEEDS]}


def _find_known(found: Found, places: Iterable[int]) -> list[int]:
    """List the places of passages that were read and that the blocks in the window say already, each once."""
    blocks = found.query.shown.blocks
    if not blocks:
        return []
    read = [place for place in dict.fromkeys(places) if place in found.texts]
    return [place for place in read if is_known(found.texts[place].text, blocks, found.weights)]


def _measure_match(candidates: Candidates) -> Floats:
    """Return how well passages match by words and by vector, whether the window shows them or not."""
    match: Floats = relative(candidates.keyword) + candidates.together
    if candidates.cosine is not None:
        match = match + relative(candidates.cosine)
    return match


def _read_moment(candidates: Candidates, place: int) -> tuple[int, int]:
    """Return when a passage was written: its time, and its message. The passages of a message are of one moment.

    If two messages have the same time, their order in the archive decides. So of two messages at most one replaces the
    other, and none replaces itself.
    """
    return int(candidates.times[place]), int(candidates.messages[place])


def _choose_statements(seeds: Mapping[int, str], weights: Mapping[str, float]) -> dict[int, list[Statement]]:
    """Return the sentences of each text that state something, by place; those with most of the question first.

    Sentences with much less of it than the best one are about something else. Later statements about that would not
    answer the question, but take the room of the answer.
    """
    statements: dict[int, list[Statement]] = {}
    for place, text in seeds.items():
        some = _find_stated(text)
        shares: list[float] = []
        for statement in some:
            shares.append(math.fsum([weights[term] for term in statement.terms if term in weights]))
        enough = 0.0
        best = max(shares, default=0.0)
        if best >= _MIN_WORD:
            enough = _MIN_STATEMENT * best
        ranked = sorted(zip(shares, some, strict=True), key=itemgetter(0), reverse=True)
        if ranked:
            statements[place] = [statement for share, statement in ranked if share >= enough][:_MAX_STATEMENTS]
    return statements


def _find_past_facts(
    found: Found, texts: Mapping[int, str], past: Sequence[FactRow]
) -> Iterator[tuple[int, str, list[int]]]:
    """Find the texts with words of a replaced fact, the id of the newer one, and where later messages state it."""
    candidates = found.candidates
    numbers = candidates.messages
    messages = {int(numbers[place]) for place in texts}
    for message, words, successor in find_replaced(past, messages=messages):
        stating = np.flatnonzero(np.isin(numbers, successor.evidence) & candidates.human).tolist()
        for place, text in texts.items():
            if numbers[place] == message and words in text:
                moment = _read_moment(candidates, place)
                yield place, successor.id, [other for other in stating if _read_moment(candidates, other) > moment]


# --- later ones ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Again:
    """A second search: how rare its terms are, and the places of its best passages in the first search."""

    rarity: Mapping[str, float] = field(default_factory=dict)
    places: Sequence[int] = ()

    def join(self, other: _Again) -> _Again:
        return _Again(
            rarity={**self.rarity, **other.rarity},
            places=[*self.places, *other.places],
        )


def _search_again(found: Found, statements: Iterable[Statement], *, is_open: Bools, since: int) -> _Again:
    """Search for the words of statements that are not in the question.

    Args:
        found: The first search.
        statements: The statements, best first.
        is_open: Which passages of the first search may be quoted, or are in the window.
        since: The time of the oldest statement; earlier passages replace none of them.
    """
    query = found.query
    candidates = found.candidates
    terms = _find_answer_terms(statements, asked=found.weights)
    again = found.store.search(SearchQuery(scope=query.scope, across=query.across, terms=terms))
    numbers = again.passages[top(again.keyword * again.human, _MAX_LATER)]
    numbers = numbers[np.isin(numbers, candidates.passages)]
    places = candidates.passages.searchsorted(numbers)  # their numbers ascend
    places = places[is_open[places] & (candidates.times[places] >= since)]
    return _Again(rarity=again.rarity, places=places.tolist())


def _find_answer_terms(statements: Iterable[Statement], *, asked: Collection[str]) -> dict[str, float]:
    """Weigh the terms of statements that are not in the question. The terms of the best statement count most.

    If a statement has only one such term, it counts as much as all of another's: the correction may have no other.
    """
    found: dict[str, float] = {}
    weight = 1.0
    for statement in statements:
        if len(found) >= _MAX_SEED_TERMS:
            break
        # Sorted, because the order of a set differs between processes, and the order decides between equal scores.
        new = [term for term in sorted(statement.terms) if term not in asked]
        for term in new:
            found[term] = max(found.get(term, 0.0), weight / math.sqrt(len(new)))
        weight *= _SEED_DECAY
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _LaterTexts:
    """The texts, by place, among which later statements are looked for, and the places of the terms of statements."""

    found: Found
    texts: Mapping[int, Later]
    places: Mapping[str, Sequence[int]]
    rarity: Rarity

    @classmethod
    def read(
        cls,
        found: Found,
        places: Iterable[int],
        statements: Iterable[Statement],
        *,
        is_open: Bools,
        rarity: Rarity,
    ) -> _LaterTexts:
        """Read the texts at some places. `statements` are those that will be looked for."""
        topics: frozenset[str] = frozenset().union(*[statement.topic for statement in statements])
        texts: dict[int, Later] = {}
        by_term: dict[str, list[int]] = {}
        for place in places:
            if place in found.texts and is_open[place] and place not in texts:
                texts[place] = Later.read(found.texts[place].text)
                for term in texts[place].terms & topics:
                    by_term.setdefault(term, []).append(place)
        return cls(found=found, texts=texts, places=by_term, rarity=rarity)

    def find(
        self,
        statement: Statement,
        *,
        after: tuple[int, int],
        speaker: str | None = None,
        needs_subject: bool = True,
    ) -> list[int]:
        """Find the texts that replace a statement, the newest first; `after` is a moment, see `_read_moment`."""
        earlier = Earlier.read(statement, self.rarity, asked=self.found.weights, needs_subject=needs_subject)
        weights: dict[int, float] = {}
        for term, weight in earlier.weights.items():
            for place in self.places.get(term, ()):
                weights[place] = weights.get(place, 0.0) + weight
        candidates = self.found.candidates
        places: list[int] = []
        for place, weight in weights.items():
            # The cheap tests first.
            if weight < earlier.min_weight or _read_moment(candidates, place) <= after:
                continue
            if speaker is not None and self.found.texts[place].speaker != speaker:
                continue
            if earlier.is_superseded(self.texts[place]):
                places.append(place)
        return sorted(places, key=partial(_read_moment, candidates), reverse=True)

    def find_facts(self, statements: Iterable[Statement], place: int, *, facts: Sequence[FactHit]) -> list[str]:
        """List the ids of the facts that replace a statement of a passage: learned later, and from other messages."""
        time, message = _read_moment(self.found.candidates, place)
        later: dict[str, Later] = {}
        for hit in facts:
            if hit.fact.time > time and message not in hit.fact.evidence:
                later[hit.fact.id] = Later.read(hit.fact.content)
        if not later:
            return []
        found: dict[str, None] = {}  # each once, in order
        for statement in statements:
            earlier = Earlier.read(statement, self.rarity, asked=self.found.weights)
            for id_, text in later.items():
                if earlier.is_superseded(text):
                    found[id_] = None
        return list(found)


def _leave_out_series(passages: Mapping[int, Sequence[int]]) -> tuple[dict[int, Sequence[int]], list[int]]:
    """Leave out statements with many later ones, and return the others and the newest of those that are left out.

    Sentences that differ only in a number are a series, as in a log, and none of them is outdated.
    """
    series: set[int] = set()
    last: list[int] = []
    for place, later in passages.items():
        if len(later) > _MAX_CHANGES:
            series.update([place, *later])
            last.append(later[0])
    return {place: later for place, later in passages.items() if place not in series}, last
