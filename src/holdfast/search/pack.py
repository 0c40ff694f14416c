"""What to quote under a token cap: the right stretch of each passage, whole sentences, the header charged.

A short passage is quoted whole. Of a long one the stretch of sentences is taken that holds most of the
question, near its best window; the best passages get more room than the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.search.columns import Floats
from holdfast.search.passages import SENTENCE_END
from holdfast.text import terms

__all__ = ["LEAST", "MOST", "Candidate", "Quote", "excerpt", "pack"]

WHOLE: Final = 400
"""A passage up to this long is quoted whole."""
LEAST: Final = 310
"""Characters of an excerpt at least."""
MOST: Final = 800
"""Characters of an excerpt of one of the best passages."""
SLACK: Final = 60
"""So many more, where a sentence ends there."""
SENTENCE: Final = 200
"""A longer sentence may be cut at a space."""
CRUMB: Final = 40
"""A shorter sentence stays with the next."""
BESIDE: Final = 200
"""Characters on each side of the best window that are read for an excerpt, at least."""
CHARACTERS: Final = 3
"""No token has more characters."""
STEM: Final = 3
"""The letters of a word that no stemmer changes."""
SMALLEST: Final = 12
"""Tokens: with less room than this there is nothing left to quote."""

_PRIOR: Final = 3.0
_REPEATED: Final = 0.15

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that may be quoted.

    Attributes:
        passage: Its number.
        text: Its words.
        windows: Its windows, as offsets.
        window_scores: How good each window is, 0 to 1.
        header: What stands before it.
        brief: What stands before it where another of its group is quoted too.
        group: Passages that were said together; None for one that stands alone.
        room: How many characters it may take.
    """

    passage: int
    text: str
    windows: Sequence[Span]
    window_scores: Floats
    header: str
    brief: str = ""
    group: Hashable | None = None
    room: int = LEAST


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What is quoted of a passage, and what it costs."""

    passage: int
    span: Span
    text: str
    tokens: float
    group: Hashable | None = None


def pack(
    sizes: Iterable[tuple[int, int]],
    read: Callable[[int], Candidate | None],
    *,
    room: float,
    weights: Mapping[str, float],
    measure: Callable[[str], float],
    after: Sequence[Quote] = (),
    limit: int | None = None,
) -> list[Quote]:
    """Quote passages in the order they come, each that fits in what is left of `room` tokens.

    `sizes` are passages and their lengths in characters; one is read only if it may fit. The quotes that stand
    already (`after`) come first and take their part of the room; `limit` ends with so many.
    """
    quotes = list(after)
    room -= sum(quote.tokens for quote in quotes)
    groups = {quote.group for quote in quotes}
    quoted = {quote.passage for quote in quotes}
    for passage, size in sizes:
        if room < SMALLEST or len(quotes) == limit:
            break
        if passage in quoted or min(size, LEAST) > CHARACTERS * room:
            continue
        candidate = read(passage)
        if candidate is None:
            continue
        span = excerpt(candidate, weights)
        words = candidate.text[slice(*span)].strip()
        known = candidate.group is not None and candidate.group in groups
        tokens = measure(f"{candidate.brief}{words}\n" if known else f"{candidate.header}{words}\n\n")
        if tokens <= room:
            quotes.append(Quote(passage=passage, span=span, text=words, tokens=tokens, group=candidate.group))
            groups.add(candidate.group)
            room -= tokens
    return quotes


def excerpt(candidate: Candidate, weights: Mapping[str, float]) -> Span:
    """The stretch of a passage to quote: whole sentences that hold most of the question."""
    if len(candidate.text) <= max(WHOLE, candidate.room):
        return 0, len(candidate.text)
    sentences = _sentences(candidate, weights)
    best = max(_stretches(sentences), key=lambda stretch: _value(sentences[slice(*stretch)], weights))
    first, last = _grown(sentences, *best, room=candidate.room, weights=weights)
    return sentences[first].start, sentences[last - 1].stop


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, the question's terms in it, and how good the window is that it begins in."""

    start: int
    stop: int
    terms: tuple[str, ...]
    prior: float


def _sentences(candidate: Candidate, weights: Mapping[str, float]) -> list[_Sentence]:
    """The sentences around the best window, read only there: a long passage is not worth reading whole."""
    mentioned = _mentioned(frozenset(weights))
    scores = candidate.window_scores
    first, last = _around(candidate.windows, int(scores.argmax()))
    found: list[_Sentence] = []
    window = first
    for start, stop in _cuts(candidate.text, candidate.windows[first][0], candidate.windows[last - 1][1]):
        while candidate.windows[window][1] <= start:
            window += 1
        said = candidate.text[start:stop]
        words = tuple(term for term in terms(said) if term in weights) if mentioned.search(said) else ()
        found.append(_Sentence(start, stop, words, float(scores[window])))
    return found


def _around(windows: Sequence[Span], best: int) -> tuple[int, int]:
    """The best window with those beside it: one on each side, more where they are short."""
    first, last = best, best + 1
    while first > 0 and windows[best][0] - windows[first][0] < BESIDE:
        first -= 1
    while last < len(windows) and windows[last - 1][1] - windows[best][1] < BESIDE:
        last += 1
    return first, last


@lru_cache(maxsize=16)
def _mentioned(asked: frozenset[str]) -> re.Pattern[str]:
    """What a sentence must hold to be worth a closer look: the beginnings of the question's terms."""
    beginnings = {term if len(term) <= STEM else term[: max(STEM, len(term) - STEM + 1)] for term in asked}
    return re.compile("|".join(map(re.escape, sorted(beginnings))) or r"(?!)", re.IGNORECASE)


def _cuts(text: str, start: int, stop: int) -> Iterator[Span]:
    """Sentences of a stretch of text: crumbs joined to what follows, endless ones cut at a space."""
    for cut in [*(match.end() for match in SENTENCE_END.finditer(text, start, stop)), stop]:
        if cut - start < CRUMB and cut != stop:
            continue
        while cut - start > SENTENCE:
            space = text.rfind(" ", start + SENTENCE // 2, start + SENTENCE)
            middle = space + 1 if space > 0 else start + SENTENCE
            yield start, middle
            start = middle
        if cut > start:
            yield start, cut
        start = cut


def _stretches(sentences: Sequence[_Sentence]) -> Iterator[tuple[int, int]]:
    """The shortest runs of sentences that are long enough; all of them together where none is."""
    last = 0
    for first, sentence in enumerate(sentences):
        while last < len(sentences) and (last <= first or sentences[last - 1].stop - sentence.start < LEAST):
            last += 1
        if first and sentences[last - 1].stop - sentence.start < LEAST:
            return
        yield first, last


def _grown(
    sentences: Sequence[_Sentence], first: int, last: int, *, room: int, weights: Mapping[str, float]
) -> tuple[int, int]:
    """A stretch with the better of the sentences beside it, again and again, while there is room."""
    while first > 0 or last < len(sentences):
        before = _worth(sentences[first - 1], weights) if first > 0 else -1.0
        after = _worth(sentences[last], weights) if last < len(sentences) else -1.0
        grown = (first - 1, last) if before > after else (first, last + 1)
        if sentences[grown[1] - 1].stop - sentences[grown[0]].start > room + SLACK:
            break
        first, last = grown
    return first, last


def _worth(sentence: _Sentence, weights: Mapping[str, float]) -> float:
    return sentence.prior + sum(weights[term] for term in set(sentence.terms))


def _value(stretch: Sequence[_Sentence], weights: Mapping[str, float]) -> float:
    """How much of the question a stretch holds, how good its place is, and how little room it takes."""
    distinct = sum(weights[term] for term in {term for sentence in stretch for term in sentence.terms})
    repeated = sum(weights[term] for sentence in stretch for term in sentence.terms)
    prior = sum(sentence.prior for sentence in stretch) / len(stretch)
    return distinct + _REPEATED * repeated + _PRIOR * prior - (stretch[-1].stop - stretch[0].start) / 1000
