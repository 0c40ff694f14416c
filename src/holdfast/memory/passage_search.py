"""Find the passages for a question, and rank them.

The store proposes candidates with their signals, by words and by vectors; `holdfast.search` turns these into one order.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Final

import numpy as np

from holdfast.calls import Deadline
from holdfast.embed.base import Embedder
from holdfast.embed.static import vector_weight
from holdfast.memory.block import Detail, Superseded
from holdfast.memory.deadlines import FEW_AFTER, Deadlines
from holdfast.memory.embedding import QueryVector, embed_query
from holdfast.memory.query import (
    RecallQuery,
    asks_about_questions,
    asks_something,
    count_words,
    measure_reference,
    weigh_subject,
    weigh_terms,
)
from holdfast.search.arrays import Bools, Ints
from holdfast.search.candidates import Candidates
from holdfast.search.dates import find_dates
from holdfast.search.fuse import MAX_RANKED, Parts, Ranking, Signals, rank, relative, top
from holdfast.search.mmr import Item, mmr
from holdfast.search.related import find_related
from holdfast.search.relevance import MIN_LISTED_MATCH, find_relevant, measure_confidence, measure_matches
from holdfast.signals import sentences, without_questions
from holdfast.store.base import PassageText, SearchQuery, Select, Store
from holdfast.text import is_unsegmented, terms

_QUESTION_MARKS: Final = ("?", "？")
ANSWER_REACH: Final = 3
"""How many passages after a question are searched for its answer."""
_MAX_ANSWER_CHARS: Final = 100
"""The maximum characters of such an answer. A longer one has words by which it is found."""
MAX_LEADS: Final = 6
"""How many of the best passages by words alone come first."""
_MAX_BY_WORDS: Final = 10
"""How many passages are ranked by words alone."""
_FEW: Final = 4
"""How many of the best candidates are kept if there is little time."""
_MAX_TIME: Final = 32_503_680_000_000
"""The year 3000, in Unix milliseconds."""
_DAY: Final = 86_400_000
_MIN_EMBEDDED: Final = 0.6
"""The share of windows that must have a vector; with fewer, windows without one would rank too low."""
_MAX_UNEMBEDDED: Final = 200
"""Vectors are used anyway if fewer windows than this have none: they are one batch of embedding."""
_MAX_LATE_SHARE: Final = 0.2
"""If a static model serves meanwhile, at most this share of windows may have no vector of the better one.

docs/decisions/0005-interim-vectors.md has the measurement.
"""
_MAX_LATE: Final = 16
"""As many windows as a turn adds may have none in any case."""
_MAX_VARIED: Final = 50
"""How many passages are reordered for variety."""
_RELATED_SHARE: Final = 0.5
"""How much a related word counts, times its own share, when sentences are chosen."""
_ALL: Final = 0.99
"""A passage with more than this share of a question has all words of it."""
_MOST: Final = 0.8
"""A passage of a person with at least this share of a question may be an earlier copy of it. The same question about
another table has less (`python -m benchmarks recover`)."""
_MAX_COPIES: Final = 50
"""How many such passages are read, the newest ones."""
_MAX_LOWERED: Final = 40
"""How many of the best short passages of persons are read to find out whether they only ask something."""
_MAX_LOWERED_CHARS: Final = 80
"""The maximum characters of such a passage. A longer question says something too: "… with a cat that sheds a lot?".

With 160, `python -m benchmarks recall longmemeval-pool` finds .872 of the evidence instead of .877, and `longmemeval-s`
.930 instead of .934."""
_QUESTION_FACTOR: Final = 0.2
"""How much of its signals it keeps.

Once 40 facts of `python -m benchmarks other-words` have been asked for in their own words without an answer, 37 and 32
of the questions in other words are answered (tool loop, small talk; 30 and 26 without it)."""
_SURE: Final = 1.0
"""The confidence from which a block is large enough for questions too. If they were always lowered, the blocks of
`python -m benchmarks recall beam` would contain .749 of the evidence instead of .780."""
_SMALL_CAP: Final = 700
"""With a lower cap than this, a block is small in any case, as in `_SMALL_ROOM` of `quoter`. Chosen by hand."""
_MAX_ANSWERED: Final = 3
"""The short replies to how many of them are quoted: those with most of the question, and of these the newest."""
_MAX_QUESTION_CHARS: Final = 300
"""The maximum characters of a passage that only asks."""
_MAX_NEW_SHARE: Final = 0.34
"""The maximum share of new words in a question that is the same as that of the recall: two of six. Chosen by hand."""
_FEW_WORDS: Final = 2
"""Up to this many words of a question may be anywhere in a passage. More have to be in one window."""
_MIN_SUBJECT: Final = 0.6
"""The share of a subject that a passage must contain (`python -m benchmarks broad`)."""
_NEIGHBOUR_LOSS: Final = 0.15
"""How much less a neighbour scores for each step that it is away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A passage that matches the question, and why. `text` is all of it (`is_whole`), or what a block quotes of it.

    `superseded` says whether a later statement replaces it; `replaced_by` has the messages in the block that do.
    """

    message: int
    passage: int
    text: str
    speaker: str
    time: int
    score: float
    parts: Parts
    is_whole: bool = True
    superseded: Superseded = "no"
    replaced_by: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)  # no slots: `by_words` is kept once it was asked for
class Found:
    """The passages that a search found. A passage is named by its place among the candidates.

    Attributes:
        store, query: What was searched, and for what.
        signals, ranking: What the passages were ranked by, and their order.
        weights: The weights of the terms of the question.
        quote_weights: The same with related words. Statements are compared by them.
        excerpt_weights: The same, but rare words count more. The sentences of an excerpt are chosen by them.
        texts: The passages read so far, by place.
        warnings: What the search lacked.
    """

    store: Store
    query: RecallQuery
    signals: Signals
    ranking: Ranking
    weights: dict[str, float]
    quote_weights: dict[str, float]
    excerpt_weights: dict[str, float]
    texts: dict[int, PassageText]
    warnings: tuple[str, ...]

    @property
    def candidates(self) -> Candidates:
        """All passages that the store proposed."""
        return self.signals.candidates

    @cached_property
    def by_words(self) -> Found:
        """The best passages by words alone."""
        return _rank_by_words(self)

    def with_order(self, order: Ints) -> Found:
        """Return the same passages in another order."""
        return replace(self, ranking=replace(self.ranking, order=order))

    def read(self, places: Iterable[int]) -> None:
        """Read the passages that were not read yet. Those that no longer exist get no text."""
        unread = [place for place in places if place not in self.texts]
        if unread:
            self.texts.update(_read_passages(self.store, self.query, self.candidates, unread))


def search(
    store: Store,
    query: RecallQuery,
    *,
    embedder: Embedder | None = None,
    interim: Embedder | None = None,
    limit: int = 10,
) -> list[Hit]:
    """Find the passages that match a question best, best first, whole.

    Passages that do not match the question are left out. With vectors, the best passages by words that have every word
    of the question in one place come first. Scores are absolute: the best one is the share of the question that the
    passage contains, or its cosine. `interim` serves while passages have no vectors of `embedder`.
    """
    deadlines = Deadlines.start(None, timer=time.thread_time)
    found = find_passages(store, query, list_embedders(embedder, interim), deadlines, with_question=True)
    scores = found.ranking.scores.copy()
    best: list[int] = found.ranking.order.tolist()
    if found.candidates.cosine is not None:
        # With vectors alone, a passage with the exact identifier ranks below others that only sound like the question:
        # at place 40 of 60 in one search.
        leads = found.by_words.ranking.order[:MAX_LEADS]
        share = found.candidates.together
        if len(found.weights) <= _FEW_WORDS:
            share = found.candidates.share
        leads = leads[share[leads] > _ALL]
        scores[leads] = scores.max(initial=0)
        best = list(dict.fromkeys([*leads.tolist(), *best]))  # each place once
    is_relevant = find_relevant(found.signals)
    best = [place for place in best if is_relevant[place]][:limit]
    if query.order.fusion != "weighted":  # this formula is absolute, and tests each passage itself
        match = max(measure_matches(found.signals)[best].tolist(), default=0.0)
        if match < MIN_LISTED_MATCH:
            return []
        scores *= np.float32(min(1.0, match))
    found.read(best)
    passages = {place: found.texts[place] for place in best if place in found.texts}
    return list(make_hits(passages, replace(found.ranking, scores=scores), quoted=passages))


def make_hits(
    passages: Mapping[int, PassageText], ranking: Ranking, *, quoted: Mapping[int, PassageText | Detail]
) -> tuple[Hit, ...]:
    """Return the hits of passages by place, with the text that is `quoted` of each."""
    places = list(passages)
    hits: list[Hit] = []
    for place, score, parts in zip(places, ranking.scores[places].tolist(), ranking.parts(places), strict=True):
        passage = passages[place]
        text = quoted[place].text
        hit = Hit(
            message=passage.message,
            passage=passage.number,
            text=text,
            is_whole=text.strip() == passage.text.strip(),
            speaker=passage.speaker,
            time=passage.time,
            score=score,
            parts=parts,
        )
        hits.append(hit)
    return tuple(hits)


def find_passages(
    store: Store,
    query: RecallQuery,
    embedders: Sequence[Embedder],
    deadlines: Deadlines,
    *,
    with_question: bool = False,
) -> Found:
    """Search for the texts of a query, and rank the passages.

    The vectors of the first of the `embedders` that has embedded what the reader sees are used. If there is too little
    time, the vectors are left out with a warning, then all but the best passages. Passages that only ask the question
    are left out, unless `with_question` is set.
    """
    if query.is_broad:
        weights = weigh_subject(query.texts[-1])
    else:
        weights = weigh_terms(query.texts)
    related: dict[str, Mapping[str, float]] = {}
    if query.order.fusion == "recipe":
        related = find_related(weights)
    last = ""
    if query.texts:
        last = query.texts[-1]
    searched = _search_by_vectors(store, _make_search(query, weights, related=related), last, embedders, deadlines)
    candidates = replace(searched.candidates, times=_order_times(searched.candidates, now=query.now))
    deadlines.end.check()
    signals = _read_signals(query, weights, candidates, embedder=searched.embedder)
    texts: dict[int, PassageText] = {}
    if not with_question:
        texts = _read_likely_questions(store, query, candidates)
        signals = _set_questions_apart(query, signals, texts, weights, question=last)
    warnings = list(searched.warnings)
    ranking = _rank(store, query, signals)
    if deadlines.few.is_over:
        ranking = replace(ranking, order=ranking.order[:_FEW])
        times = f"{FEW_AFTER} times {_name(deadlines.words_alone)}"
        warnings.append(f"the search took longer than {times}: of the best {_FEW} passages alone")
    deadlines.end.check()
    return Found(
        store=store,
        query=query,
        signals=signals,
        ranking=ranking,
        weights=weights,
        quote_weights=_add_related(weights, related),
        excerpt_weights=_add_related(_weigh_by_rarity(weights, candidates.rarity), related),
        texts=texts,
        warnings=tuple(warnings),
    )


def _set_questions_apart(
    query: RecallQuery,
    signals: Signals,
    texts: Mapping[int, PassageText],
    weights: Mapping[str, float],
    *,
    question: str,
) -> Signals:
    """Leave out the question and its copies among these texts, and lower other questions if the block is small.

    In a large block there is room for both, and a question names the subject of the reply behind it.
    """
    signals = replace(signals, candidates=_leave_out_question(signals.candidates, texts, weights, question=question))
    # The other two formulas are those of the original plugins, and a question may be what was asked for.
    if query.order.fusion != "recipe" or asks_about_questions(question):
        return signals
    lowered = replace(signals, candidates=_lower_questions(signals.candidates, texts))
    if query.cap < _SMALL_CAP or measure_confidence(lowered) < _SURE:
        return lowered
    return signals


def _read_likely_questions(store: Store, query: RecallQuery, candidates: Candidates) -> dict[int, PassageText]:
    """Read short passages of persons that have most of the question, or match well: they may be questions themselves.

    One of them is the question, which is archived before it is asked.
    """
    max_chars = max(_MAX_QUESTION_CHARS, len("".join(query.texts[-1:])))
    is_short = candidates.human & (candidates.sizes <= max_chars)
    has_most = np.flatnonzero(is_short & (candidates.share >= _MOST))
    match = relative(candidates.keyword) + candidates.together
    if candidates.cosine is not None:
        match = match + relative(candidates.cosine)
    best = top(match * _may_be_lowered(candidates), _MAX_LOWERED)
    places = sorted({*has_most[-_MAX_COPIES:].tolist(), *best.tolist()})
    if not places:
        return {}
    return _read_passages(store, query, candidates, places)


def _may_be_lowered(candidates: Candidates) -> Bools:
    """Return which passages are short, of a person, and said to the model.

    What one person asks another says what they talked about.
    """
    places = np.arange(len(candidates))
    followers = candidates.follow(places, candidates.following)
    is_to_model = (followers < 0) | ~candidates.human[followers]
    may_be: Bools = candidates.human & (candidates.sizes <= _MAX_LOWERED_CHARS) & is_to_model
    return may_be


def _lower_questions(candidates: Candidates, texts: Mapping[int, PassageText]) -> Candidates:
    """Lower the signals of those of these texts in which a person only asks the model something.

    Short questions match well, because they have few other words, but they answer nothing.
    """
    may_be_lowered = _may_be_lowered(candidates)
    asking: list[int] = []
    for place, passage in texts.items():
        if may_be_lowered[place] and _has_only_questions(passage.text):
            asking.append(place)
    return candidates.lower(np.array(asking, np.int64), factor=_QUESTION_FACTOR)


@lru_cache(maxsize=4096)
def _has_only_questions(text: str) -> bool:
    """Return whether a short text consists of questions. The same passages are read in many recalls."""
    return not without_questions(text).strip()


def _leave_out_question(
    candidates: Candidates, texts: Mapping[int, PassageText], weights: Mapping[str, float], *, question: str
) -> Candidates:
    """Return the candidates without those of these texts that only ask the question.

    The same question about another thing lacks a rare word of it.
    """
    asked: list[int] = []
    for place, passage in texts.items():
        if candidates.share[place] >= _MOST and only_asks(passage.text, weights, question=question):
            asked.append(place)
    asked.sort(key=lambda place: float(candidates.share[place]))  # of those with the same share, the newest come last
    answers: dict[int, None] = {}  # each once, in order
    for place in asked[-_MAX_ANSWERED:]:
        if texts[place].text.rstrip().endswith(_QUESTION_MARKS):  # the reply to an order answers nothing
            answers |= dict.fromkeys(find_answers(candidates, place))
    return candidates.without_question(np.array(asked, np.int64), answers=np.array(list(answers), np.int64))


def find_answers(candidates: Candidates, question: int) -> Iterator[int]:
    """Yield the short passages that follow a question, up to the next message of a person."""
    place = question
    for _ in range(ANSWER_REACH):
        place = int(candidates.following[place])
        if place < 0 or candidates.human[place]:
            return
        if candidates.sizes[place] <= _MAX_ANSWER_CHARS and candidates.eligible[place]:
            yield place


def only_asks(text: str, weights: Mapping[str, float], *, question: str = "") -> bool:
    """Return whether a text only asks the question whose words have these weights, and so does not answer it."""
    if question and text.strip() == question.strip():
        return True
    if len(text) > _MAX_QUESTION_CHARS or not text.rstrip().endswith(_QUESTION_MARKS):
        return False
    if not _has_only_question_marks(text):
        return False
    own = set(terms(text))
    new = [term for term in own if term not in weights]
    return len(new) <= _MAX_NEW_SHARE * len(own)


@lru_cache(maxsize=2048)
def _has_only_question_marks(text: str) -> bool:
    """Return whether all sentences of a short text end with a question mark."""
    return all(sentence.endswith(_QUESTION_MARKS) for sentence in sentences(text))


def _rank_by_words(found: Found) -> Found:
    """Rank the best passage by words alone first, then, by the recipe, those that contain most of the question."""
    signals = found.signals.without_vectors()
    ranking = _rank(found.store, found.query, signals)
    order = ranking.order[:1]
    scores = ranking.scores
    if found.query.order.fusion == "recipe":
        scores = ranking.stages["keyword"].copy()
        scores[order] = 1.0
        # A long passage with most of the question may score less than many short ones that have a part of it.
        fullest = top(found.candidates.together * found.candidates.eligible, 1)
        best = dict.fromkeys([*order.tolist(), *fullest.tolist(), *top(scores, _MAX_BY_WORDS).tolist()])
        order = np.array(list(best), np.int64)
    return replace(found, signals=signals, ranking=replace(ranking, order=order, scores=scores))


def spread_over_sessions(found: Found) -> Found | None:
    """Return the passages about a subject, best first, one of each session before the second of any; None if none is.

    What a person said comes first: a log may name the subject in every line.
    """
    candidates = found.candidates
    ranked = found.ranking.order
    ranked = ranked[candidates.share[ranked] >= _MIN_SUBJECT]
    if not len(ranked):
        return None
    # The number of earlier passages of the same session and kind is the round in which a passage comes.
    seen: Counter[tuple[int, bool]] = Counter()
    rounds: dict[int, int] = {}
    for place in ranked.tolist():
        group = (int(candidates.sessions[place]), bool(candidates.human[place]))
        rounds[place] = seen[group]
        seen[group] += 1
    ordered = sorted(rounds, key=lambda place: (not candidates.human[place], rounds[place]))
    return found.with_order(np.array(ordered, np.int64))


# --- the question ----------------------------------------------------------------------


def _make_search(
    query: RecallQuery, weights: Mapping[str, float], *, related: Mapping[str, Mapping[str, float]]
) -> SearchQuery:
    """Make the search of the store for a query, by words alone."""
    since = None
    if query.days is not None and query.now is not None:
        since = query.now - query.days * _DAY
    return SearchQuery(
        scope=query.scope,
        across=query.across,
        terms=weights,
        related=related,
        without_messages=query.shown.messages,
        without_passages=query.shown.passages,
        since=since,
        newest=query.newest,
        neighbours=max(query.neighbours, ANSWER_REACH),
    )


def _read_signals(
    query: RecallQuery, weights: Mapping[str, float], candidates: Candidates, *, embedder: Embedder | None
) -> Signals:
    """Add to the candidates what the question itself says: its dates, its length, and whether it asks."""
    last = ""
    if query.texts:
        last = query.texts[-1]
    is_asking = asks_something(last)
    reference = 0.0
    if is_asking:  # every statement refers to something known; only for a question it means that memory is wanted
        reference = measure_reference(last)
    return Signals(
        candidates=candidates,
        dates=_find_dates(last, candidates.times, now=query.now),
        length=sum(weight for term, weight in weights.items() if not is_unsegmented(term)),
        words=count_words(weights),
        vector_weight=vector_weight(embedder, last),
        reference=reference,
        is_asking=is_asking,
        now=query.now,
    )


def _weigh_by_rarity(weights: Mapping[str, float], rarity: Mapping[str, float]) -> dict[str, float]:
    """Weigh rare words more and common ones less; on average as before."""
    known = [rarity[term] for term in weights if term in rarity]
    mean = sum(known) / max(1, len(known))
    if mean <= 0:
        return dict(weights)
    return {term: weight * rarity.get(term, mean) / mean for term, weight in weights.items()}


def _add_related(weights: Mapping[str, float], related: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Add the related words of a question to its weights."""
    found = dict(weights)
    for term, row in related.items():
        for other, share in row.items():
            weight = _RELATED_SHARE * share * weights[term]
            found[other] = max(weight, found.get(other, 0.0))
    return found


def _name(deadline: Deadline) -> str:
    return f"{1000 * deadline.seconds:.0f} ms (recall.deadline_ms)"


def _find_dates(text: str, times: Ints, *, now: int | None) -> list[tuple[int, int]]:
    """Find the dates that a question names, such as `two weeks ago` or `in May` of any year of the candidates."""
    times = times[(times > 0) & (times < _MAX_TIME)]
    if not len(times) or not text:
        return []
    start = datetime.fromtimestamp(int(times.min()) / 1000, UTC)
    stop = datetime.fromtimestamp(int(times.max()) / 1000, UTC)
    return find_dates(text, now=now, years=range(start.year, stop.year + 1))


# --- candidates ------------------------------------------------------------------------


def _read_passages(
    store: Store, query: RecallQuery, candidates: Candidates, places: Sequence[int]
) -> dict[int, PassageText]:
    """Read passages that still exist and that the query may see, by place."""
    numbers: dict[int, int] = dict(zip(candidates.passages[list(places)].tolist(), places, strict=True))
    rows = store.read_passages(Select(scope=query.scope, across=query.across, ids=tuple(numbers)))
    return {numbers[row.number]: row for row in rows}


def _order_times(candidates: Candidates, *, now: int | None) -> Ints:
    """Return the times of passages. A time in the future becomes that of the next passage of its session.

    The clock of a client may be wrong. Other times stay: the parts of a session may have been imported in any order.
    So do those of a session that is in the future as a whole: nothing shows which of its times are wrong, and it may be
    the clock of this machine.
    """
    times = candidates.times
    if now is None or times.max(initial=0) <= now:
        return times
    known = times.copy()
    by_session = np.argsort(candidates.sessions, kind="stable")
    starts = np.flatnonzero(np.diff(candidates.sessions[by_session])) + 1
    for places in np.split(by_session, starts):
        own = times[places]
        is_future = own > now
        is_known = (own > 0) & ~is_future
        if not is_future.any() or not is_known.any():
            continue
        usable = np.where(is_known, own, now)
        earliest_after = np.minimum.accumulate(usable[::-1])[::-1]
        known[places[is_future]] = earliest_after[is_future]
    return known


def list_embedders(embedder: Embedder | None, interim: Embedder | None) -> list[Embedder]:
    """Return the embedders that there are, best first."""
    return [one for one in (embedder, interim) if one is not None]


@dataclass(frozen=True, slots=True)
class _Searched:
    """The passages that a store proposes, the embedder whose vectors were used, and why not a better one's."""

    candidates: Candidates
    embedder: Embedder | None
    warnings: Sequence[str]


def _search_by_vectors(
    store: Store, question: SearchQuery, text: str, embedders: Sequence[Embedder], deadlines: Deadlines
) -> _Searched:
    """Search with the vectors of the first embedder that has enough of them, else by words alone.

    Each search compares the vectors of one space. If those of a better space are too few, which only the search shows,
    the next space is searched.
    """
    candidates: Candidates | None = None
    warnings: list[str] = []
    for place, embedder in enumerate(embedders):
        has_next = place + 1 < len(embedders)
        instead = "by words alone"
        if has_next:
            instead = f"by vectors of {embedders[place + 1].space.name}"
        embedded = QueryVector()
        if text:
            embedded = embed_query(embedder, text, deadline=deadlines.words_alone)
        deadlines.end.check()
        if deadlines.words_alone.is_over and embedded.vector is not None:
            # Searching by it takes time too.
            warnings.append(f"embedding the question took longer than {_name(deadlines.words_alone)}: by words alone")
            break
        if embedded.warning:
            warnings.append(f"{embedded.warning}: {instead}")
        if embedded.vector is None:
            continue
        candidates = store.search(replace(question, vector=embedded.vector, space=embedded.space))
        known = candidates.embedded_windows
        total = candidates.total_windows
        has_vectors = candidates.cosine is not None
        if has_vectors and covers(known, total, has_next=has_next):
            return _Searched(candidates, embedder, warnings)
        if total and (has_vectors or has_next):
            warnings.append(f"{known:,} of {total:,} windows have vectors of {embedder.space.name} yet: {instead}")
    if candidates is None:
        return _Searched(store.search(question), None, warnings)
    return _Searched(candidates.without_vectors(), None, warnings)


def covers(embedded: int, total: int, *, has_next: bool) -> bool:
    """Return whether a space has enough vectors to be used; `has_next` is whether another space can be used instead."""
    missing = total - embedded
    if has_next:
        return embedded >= missing and missing <= max(_MAX_LATE, _MAX_LATE_SHARE * total)
    return embedded > 0 and (embedded >= _MIN_EMBEDDED * total or missing < _MAX_UNEMBEDDED)


# --- ranking ---------------------------------------------------------------------------


def _rank(store: Store, query: RecallQuery, signals: Signals) -> Ranking:
    """Rank the passages as the query asks."""
    ranking = rank(signals, order=query.order)
    if query.order.fusion != "recipe":
        ranking = _add_neighbours(ranking, signals.candidates, reach=query.neighbours)
    if query.order.variety is None:
        return ranking
    # Reorder the first passages so that none repeats one before it. Each `Item` is equal only to itself.
    first = _read_passages(store, query, signals.candidates, ranking.order[:_MAX_VARIED].tolist())
    items: dict[Item, int] = {}
    for place, passage in first.items():
        items[Item(score=float(ranking.scores[place]), text=passage.text)] = place
    varied = [items[item] for item in mmr(list(items), relevance_weight=query.order.variety)]
    return replace(ranking, order=np.concatenate([np.array(varied, np.int64), ranking.order[_MAX_VARIED:]]))


def _add_neighbours(ranking: Ranking, found: Candidates, *, reach: int) -> Ranking:
    """Add the passages up to `reach` before and after each hit in the same session, with lower scores.

    For the two rankings of the original plugin; the measured recipe weighs neighbours itself.
    """
    hits = np.zeros(len(found) + 1, np.float32)  # -1 means no neighbour, and reads the extra zero at the end
    hits[ranking.order] = ranking.scores[ranking.order]
    scores = hits[:-1].copy()
    first = np.arange(len(found))
    last = first
    for distance in range(1, reach + 1):
        first = found.follow(first, found.previous)
        last = found.follow(last, found.following)
        near = np.maximum(hits[first], hits[last]) * np.float32(max(0.0, 1 - _NEIGHBOUR_LOSS * distance))
        np.maximum(scores, near, out=scores)
    scores = np.where(found.eligible, scores, np.float32(0))
    gained = np.maximum(scores - hits[:-1], np.float32(0))
    stages = {**ranking.stages, "neighbours": gained}
    return Ranking(order=top(scores, MAX_RANKED), scores=scores, stages=stages)
