"""Choose what to quote within a token limit: whole sentences of each passage, the header included in the cost.

A short passage is quoted whole; of a long one the sentences near its best window that hold most of the query. The best
passages get more room than the others, and keep a list or code that they announce.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from msgspec import Struct, structs

from holdfast.search.arrays import Floats
from holdfast.search.passages import SENTENCE_END
from holdfast.text import terms

MAX_WHOLE_CHARS: Final = 400
"""A passage up to this long is quoted whole."""
SHORTEST_EXCERPT_CHARS: Final = 100
"""The size of an excerpt of one of the best passages if a longer one does not fit: a sentence."""
MIN_EXCERPT_CHARS: Final = 310
"""The size of an excerpt."""
MAX_EXCERPT_CHARS: Final = 800
"""The size of an excerpt of one of the best passages."""
MAX_SLACK_CHARS: Final = 60
"""An excerpt may be longer by this much to end with a sentence."""
MAX_SENTENCE_CHARS: Final = 200
"""A longer sentence may be cut at a space."""
MIN_SENTENCE_CHARS: Final = 40
"""A shorter sentence is joined to the next."""
MIN_CONTEXT_CHARS: Final = 200
"""The text on each side of the best window that is read for an excerpt."""
CHARS_PER_TOKEN: Final = 3
"""No token is counted for more characters."""
TYPICAL_CHARS_PER_TOKEN: Final = 3.25
"""Characters of a quote, without its header, for each token of both."""
MIN_QUOTE_TOKENS: Final = 12
MAX_LIST_CHARS: Final = 400
"""An excerpt of one of the best passages may be longer by this much to contain a list or code that it announces."""
MIN_SCORE: Final = 0.21
"""The score, relative to the best passage, that a passage needs in an adaptive block;"""
SCORE_RISE: Final = 0.34
"""it needs this much more"""
TYPICAL_ROOM: Final = 4000
"""when so many tokens are quoted already."""

_PUNCTUATION: Final = re.compile(r"[^\w]+")
_ASCII_WORDS: Final = re.sub(r"\W", " ", "".join(map(chr, range(128))))
"""For `translate`, which is faster than a pattern: a blank for each ASCII character that belongs to no word."""
_FENCE: Final = "```"
_ITEM: Final = re.compile(r"\s*(?:[-*+•|>`]|\d+[.)、]|[a-z][.)])")
_ANNOUNCEMENT: Final = re.compile(r"[:：]\s*$|(?:^|\n)\s*(?:[-*+•|]|\d+[.)、]|[a-z][.)])\s?\S")
"""A text that ends with a colon, or has items of a list."""

_MAX_PROBE_CHARS: Final = 32
"""The number of characters that are looked for in all quotes at once, before each of them is compared."""
_PRIOR_WEIGHT: Final = 3.0
_REPEAT_WEIGHT: Final = 0.15

Span = tuple[int, int]


class Quotable(Struct, frozen=True, kw_only=True):
    """A passage that may be quoted.

    Attributes:
        passage: Its number.
        text: Its text.
        windows: Its windows, as offsets.
        window_scores: The score of each window, 0 to 1.
        headers: What may be before the quote, the longest first, each with the group of passages that needs it once.
        room: The number of characters it may take.
        min_room: The number of characters to which that is cut down if the excerpt takes more tokens than are left.
        said_in: The session of what a person said, who may say it again in another one; None for any other text.
    """

    passage: int
    text: str
    windows: Sequence[Span]
    window_scores: Floats
    headers: Sequence[tuple[Hashable | None, str]]
    room: int = MIN_EXCERPT_CHARS
    min_room: int = MIN_EXCERPT_CHARS
    said_in: int | None = None

    def quote(
        self, weights: Mapping[str, float], measure: Callable[[str], float], *, headed: Container[Hashable], left: float
    ) -> Quote:
        """Quote the best part of the passage under the shortest header: groups in `headed` have theirs already.

        Where that takes more than the tokens `left`, a shorter part is quoted.
        """
        span = excerpt(self, weights)
        text = self.text[slice(*span)].strip()
        header = next(text for group, text in self.headers if group is None or group not in headed)
        tokens = measure(header + text)
        if tokens > left and self.room > self.min_room:
            room = MIN_EXCERPT_CHARS if self.room > MIN_EXCERPT_CHARS else self.min_room
            shorter = structs.replace(self, room=room)
            return shorter.quote(weights, measure, headed=headed, left=left)
        return Quote(
            passage=self.passage,
            span=span,
            text=text,
            plain=_plain(text),
            tokens=tokens,
            groups=[group for group, _ in self.headers],
            said_in=self.said_in,
        )

    def sentences(self, weights: Mapping[str, float]) -> list[_Sentence]:
        """Return the sentences around the best window; the rest of a long passage is not read."""
        scores, windows = self.window_scores.tolist(), self.windows
        window = best = scores.index(max(scores))
        last = best + 1
        while window > 0 and windows[best][0] - windows[window][0] < MIN_CONTEXT_CHARS:
            window -= 1
        while last < len(windows) and windows[last - 1][1] - windows[best][1] < max(MIN_CONTEXT_CHARS, self.room):
            last += 1
        sentences: list[_Sentence] = []
        before, is_code = "", self.text.count(_FENCE, 0, windows[window][0]) % 2 == 1
        for start, stop in _split(self.text, windows[window][0], windows[last - 1][1]):
            while windows[window][1] <= start:
                window += 1
            text = self.text[start:stop]
            hits = tuple(filter(weights.__contains__, terms(text)))
            follows = is_code or (_ITEM.match(text) is not None and _ANNOUNCEMENT.search(before) is not None)
            sentences.append(_Sentence(start, stop, hits, scores[window], follows))
            before, is_code = text, is_code ^ (text.count(_FENCE) % 2 == 1)
        return sentences


class Quote(Struct, frozen=True, kw_only=True):
    """The quoted part of a passage, its words, its cost in tokens, the groups that have their header, its session."""

    passage: int
    span: Span
    text: str
    plain: str
    tokens: float
    groups: Sequence[Hashable | None] = ()
    said_in: int | None = None


def pack(
    order: Iterable[tuple[int, int, float]],
    read: Callable[[int], Quotable | None],
    *,
    room: float,
    weights: Mapping[str, float],
    measure: Callable[[str], float],
    known: Iterable[str] = (),
    after: Sequence[Quote] = (),
    limit: int | None = None,
    adaptive: bool = False,
) -> list[Quote]:
    """Quote passages in order, each that fits into what is left of `room` tokens; what repeats another is left out.

    `order` has passages, their lengths in characters and their scores, 1 for the best; a passage is read only if it may
    fit. Text that is `known` is not quoted, unless there is more about the query beside it. The quotes in `after` come
    first and take their part of the room. `limit` is the maximum number of quotes. If `adaptive`, a passage must score
    the better the more is quoted already.
    """
    packed = _Packed(known=[_plain(text) for text in known], adaptive=adaptive)
    for quote in after:
        packed.add(quote)
    for passage, _, left in packed.choose(order, room=room, limit=limit):
        if (candidate := read(passage)) is None:
            continue
        quote = candidate.quote(weights, measure, headed=packed.headed, left=left)
        if quote.tokens <= left and not packed.repeats(quote, weights):
            packed.add(quote)
    return list(packed.quotes.values())


def select_likely(
    order: Iterable[tuple[int, int, float]], *, room: float, after: Sequence[Quote] = (), adaptive: bool = False
) -> list[int]:
    """Return the passages that `pack` reads if none repeats another and each takes the typical number of tokens."""
    packed, likely = _Packed(adaptive=adaptive), []
    for quote in after:
        packed.add(quote)
    for passage, chars, _ in packed.choose(order, room=room):
        likely.append(passage)
        packed.spend(chars / TYPICAL_CHARS_PER_TOKEN)
    return likely


@dataclass(slots=True, kw_only=True)
class _Packed:
    """The quotes so far, their tokens, the groups that have a header, and the words that must not be repeated.

    What was `said` are the words of quotes, one in a line, by the session of a person (see `Quotable`). A passage must
    score at `least` as much as this to be quoted beside them.
    """

    adaptive: bool
    known: list[str] = field(default_factory=list)
    said: dict[int | None, str] = field(default_factory=dict)
    quotes: dict[int, Quote] = field(default_factory=dict)
    headed: set[Hashable | None] = field(default_factory=set)
    spent: float = 0.0
    least: float = 0.0

    def __post_init__(self) -> None:
        self.spend(0.0)

    def choose(
        self, order: Iterable[tuple[int, int, float]], *, room: float, limit: int | None = None
    ) -> Iterator[tuple[int, int, float]]:
        """Yield the passages that may fit, with the characters of a short excerpt and the tokens that are left."""
        for passage, size, score in order:
            if score < self.least or passage in self.quotes:
                continue
            left, chars = room - self.spent, min(size, MIN_EXCERPT_CHARS)
            if left < MIN_QUOTE_TOKENS or len(self.quotes) == limit:
                break
            if chars <= CHARS_PER_TOKEN * left:
                yield passage, chars, left

    def spend(self, tokens: float) -> None:
        self.spent += tokens
        self.least = MIN_SCORE + SCORE_RISE * self.spent / TYPICAL_ROOM if self.adaptive else -math.inf

    def add(self, quote: Quote) -> None:
        self.quotes[quote.passage] = quote
        self.headed.update(quote.groups)
        self.said[quote.said_in] = self.said.get(quote.said_in, "\n") + f"{quote.plain}\n"
        self.spend(quote.tokens)

    def repeats(self, quote: Quote, weights: Container[str]) -> bool:
        """Tell whether a text was quoted already, or is a part of what was, or half of it is all of what was.

        Where the half is known, the rest must have no word of the query.
        """
        plain, said = quote.plain, self.said
        if len(plain) < MIN_SENTENCE_CHARS:
            return plain in self.known or any(f"\n{plain}\n" in text for text in said.values())
        texts = said.values() if quote.said_in is None else [said.get(quote.said_in, ""), said.get(None, "")]
        is_quoted = any(_says(other, plain) for text in texts for other in _near(text, plain))
        return is_quoted or any(_says(known, plain, weights) for known in self.known)


def _near(quotes: str, text: str) -> list[str]:
    """Return all of some quotes if one may contain a text, or be at least half of it, by what is beside its middle."""
    middle, part = len(text) // 2, min(len(text) // 4, _MAX_PROBE_CHARS)
    is_near = text[middle : middle + part] in quotes or text[middle - part : middle] in quotes
    return quotes.split("\n") if is_near else []


def _says(other: str, text: str, weights: Container[str] = ()) -> bool:
    """Tell whether a text is in another, or half of it is all of the other and the rest has none of the words."""
    if text in other or other not in text or 2 * len(other) < len(text):
        return text in other
    return not any(term in weights for term in terms(text.replace(other, " ")))


def _plain(text: str) -> str:
    """Return the words of a text, without case and punctuation."""
    folded = text.casefold()
    words = folded.translate(_ASCII_WORDS) if folded.isascii() else _PUNCTUATION.sub(" ", folded)
    return " ".join(words.split())


def excerpt(candidate: Quotable, weights: Mapping[str, float]) -> Span:
    """Return the part of a passage to quote: whole sentences that hold most of the query."""
    is_short = candidate.room < MIN_EXCERPT_CHARS
    if len(candidate.text) <= (candidate.room if is_short else max(MAX_WHOLE_CHARS, candidate.room)):
        return 0, len(candidate.text)
    sentences = candidate.sentences(weights)
    runs = _runs(sentences, min_chars=min(candidate.room, MIN_EXCERPT_CHARS))
    first, last = max(runs, key=lambda run: _run_value(sentences[slice(*run)], weights))

    def value(number: int) -> float:
        if not 0 <= number < len(sentences):
            return -1.0
        return sentences[number].prior + sum(map(weights.__getitem__, dict.fromkeys(sentences[number].terms)))

    most, more = candidate.room + MAX_SLACK_CHARS, MAX_LIST_CHARS * (candidate.room == MAX_EXCERPT_CHARS)
    while first > 0 or last < len(sentences):  # take the better of the sentences beside it, while there is room
        is_announced = last < len(sentences) and sentences[last].follows
        longer = (first - 1, last) if not is_announced and value(first - 1) > value(last) else (first, last + 1)
        if sentences[longer[1] - 1].stop - sentences[longer[0]].start > most + is_announced * more:
            break
        first, last = longer
    return sentences[first].start, sentences[last - 1].stop


class _Sentence(NamedTuple):
    """A sentence, the query's terms in it, the score of its window, and whether the one before announces it."""

    start: int
    stop: int
    terms: tuple[str, ...]
    prior: float
    follows: bool


def _split(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yield the sentences of a part of a text: short ones joined to the next, long ones cut at a space."""
    for cut in [*(match.end() for match in SENTENCE_END.finditer(text, start, stop)), stop]:
        if cut - start < MIN_SENTENCE_CHARS and cut != stop:
            continue
        while cut - start > MAX_SENTENCE_CHARS:
            space = text.rfind(" ", start + MAX_SENTENCE_CHARS // 2, start + MAX_SENTENCE_CHARS)
            middle = space + 1 if space > 0 else start + MAX_SENTENCE_CHARS
            yield start, middle
            start = middle
        if cut > start:
            yield start, cut
        start = cut


def _runs(sentences: Sequence[_Sentence], *, min_chars: int) -> Iterator[tuple[int, int]]:
    """Yield the shortest runs of sentences that are long enough; all sentences if none is."""
    last = 0
    for first, sentence in enumerate(sentences):
        while last < len(sentences) and (last <= first or sentences[last - 1].stop - sentence.start < min_chars):
            last += 1
        if first and sentences[last - 1].stop - sentence.start < min_chars:
            return
        yield first, last


def _run_value(run: Sequence[_Sentence], weights: Mapping[str, float]) -> float:
    """Rate a run by the terms in it, the scores of its windows, and its length."""
    hits = list(chain.from_iterable([sentence.terms for sentence in run]))
    distinct, repeated = sum(map(weights.__getitem__, dict.fromkeys(hits))), sum(map(weights.__getitem__, hits))
    prior = sum([sentence.prior for sentence in run]) / len(run)
    return distinct + _REPEAT_WEIGHT * repeated + _PRIOR_WEIGHT * prior - (run[-1].stop - run[0].start) / 1000
