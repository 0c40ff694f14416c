"""What to quote under a token cap: the right stretch of each passage, whole sentences, the header charged.

A short passage is quoted whole. Of a long one the stretch of sentences is taken that holds most of the
question, near its best window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.search.columns import Floats
from holdfast.text import terms

__all__ = ["Candidate", "Quote", "excerpt", "pack"]

WHOLE: Final = 400
"""A passage up to this long is quoted whole."""
LEAST: Final = 310
"""Characters of an excerpt at least."""
SENTENCE: Final = 200
"""A longer sentence may be cut at a space."""
CRUMB: Final = 40
"""A shorter sentence stays with the next."""
SMALLEST: Final = 12
"""Tokens: with less room than this there is nothing left to quote."""

_PRIOR: Final = 3.0
_REPEATED: Final = 0.15
_SENTENCE_END: Final = re.compile(r"""(?<=[.!?…])["')\]”’」』]*\s+|(?<=[。！？])["')\]”’」』]*|\n+""")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A passage that may be quoted: its text, its windows, how good each window is (0 to 1), and its header."""

    passage: int
    text: str
    windows: Sequence[Span]
    window_scores: Floats
    header: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What is quoted of a passage, and what it costs."""

    passage: int
    span: Span
    text: str
    tokens: float


def pack(
    candidates: Iterable[Candidate],
    *,
    room: float,
    weights: Mapping[str, float],
    measure: Callable[[str], float],
) -> list[Quote]:
    """Quote candidates in the order they come, each that fits in what is left of `room` tokens."""
    quotes: list[Quote] = []
    for candidate in candidates:
        span = excerpt(candidate, weights)
        words = candidate.text[slice(*span)].strip()
        tokens = measure(f"{candidate.header}{words}\n\n")
        if tokens <= room:
            quotes.append(Quote(passage=candidate.passage, span=span, text=words, tokens=tokens))
            room -= tokens
        if room < SMALLEST:
            break
    return quotes


def excerpt(candidate: Candidate, weights: Mapping[str, float]) -> Span:
    """The stretch of a passage to quote: whole sentences that hold most of the question."""
    if len(candidate.text) <= WHOLE:
        return 0, len(candidate.text)
    sentences = _sentences(candidate, weights)
    best = max(_stretches(sentences), key=lambda stretch: _value(sentences[slice(*stretch)], weights))
    return sentences[best[0]].start, sentences[best[1] - 1].stop


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence, the question's terms in it, and how good the window is that it begins in."""

    start: int
    stop: int
    terms: tuple[str, ...]
    prior: float


def _sentences(candidate: Candidate, weights: Mapping[str, float]) -> list[_Sentence]:
    """The sentences around the best window, read only there: a long passage is not worth reading whole."""
    scores = candidate.window_scores
    best = int(scores.argmax())
    first, last = max(0, best - 1), min(len(scores), best + 2)
    found: list[_Sentence] = []
    window = first
    for start, stop in _cuts(candidate.text, candidate.windows[first][0], candidate.windows[last - 1][1]):
        while candidate.windows[window][1] <= start:
            window += 1
        words = tuple(term for term in terms(candidate.text[start:stop]) if term in weights)
        found.append(_Sentence(start, stop, words, float(scores[window])))
    return found


def _cuts(text: str, start: int, stop: int) -> Iterator[Span]:
    """Sentences of a stretch of text: crumbs joined to what follows, endless ones cut at a space."""
    for cut in [*(match.end() for match in _SENTENCE_END.finditer(text, start, stop)), stop]:
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


def _value(stretch: Sequence[_Sentence], weights: Mapping[str, float]) -> float:
    """How much of the question a stretch holds, how good its place is, and how little room it takes."""
    distinct = sum(weights[term] for term in {term for sentence in stretch for term in sentence.terms})
    repeated = sum(weights[term] for sentence in stretch for term in sentence.terms)
    prior = sum(sentence.prior for sentence in stretch) / len(stretch)
    return distinct + _REPEATED * repeated + _PRIOR * prior - (stretch[-1].stop - stretch[0].start) / 1000
