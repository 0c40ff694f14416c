"""Choose what to quote within a token limit: whole sentences of each passage, the header included in the cost.

A short passage is quoted whole. Of a long one, the sentences near its best window that contain most of the query are
quoted. The best passages get more room than the others, and keep a list or code that they announce.

The sizes and scores were chosen with `python -m benchmarks replay` (docs/benchmarks.md, "The size of a block").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple

from msgspec import Struct, structs

from holdfast.search.arrays import Floats
from holdfast.search.caveats import find_caveats
from holdfast.search.passages import SENTENCE_END
from holdfast.search.tables import find_head, find_table
from holdfast.text import terms

MAX_WHOLE_CHARS: Final = 400
"""A passage up to this long is quoted whole."""
SHORTEST_EXCERPT_CHARS: Final = 100
"""The size of an excerpt if a longer one does not fit: a sentence. A passage up to `MAX_WHOLE_CHARS` is not cut so
much, because in a chat the next short message is worth more (`python -m benchmarks recall locomo`)."""
MIN_EXCERPT_CHARS: Final = 310
"""The size of an excerpt."""
MAX_EXCERPT_CHARS: Final = 800
"""The size of an excerpt of one of the best passages."""
MAX_SLACK_CHARS: Final = 60
"""How much longer an excerpt may be to end with a sentence."""
MAX_SENTENCE_CHARS: Final = 200
"""A longer sentence may be cut at a space."""
MIN_SENTENCE_CHARS: Final = 40
"""A shorter sentence is joined to the next."""
MIN_CONTEXT_CHARS: Final = 200
"""The text on each side of the best window that is read for an excerpt."""
CHARS_PER_TOKEN: Final = 3
"""The maximum characters of one token. A passage with more than this for each token that is left cannot fit."""
TYPICAL_CHARS_PER_TOKEN: Final = 3.25
"""Characters of a quote, without its header, for each token of both."""
MIN_QUOTE_TOKENS: Final = 12
"""With fewer tokens left, no other passage is tried."""
MAX_LIST_CHARS: Final = 400
"""How much longer an excerpt of one of the best passages may be to contain a list or code that it announces."""
MIN_SCORE: Final = 0.21
"""The score, relative to the best passage, that the first passage of an adaptive block needs."""
SCORE_RISE: Final = 0.34
"""How much the minimum score rises by the time `TYPICAL_ROOM` tokens are quoted."""
TYPICAL_ROOM: Final = 4000
"""The tokens after which the minimum score has risen by `SCORE_RISE`; it continues to rise after that."""

_PUNCTUATION: Final = re.compile(r"\W+")
"""All between two words of a text with other letters than ASCII."""
_ASCII_WORDS: Final = re.sub(r"\W", " ", "".join(map(chr, range(128))))
"""For `translate`, which is faster than a pattern: a blank for each ASCII character that belongs to no word."""
_FENCE: Final = "```"
_ITEM: Final = re.compile(r"\s*(?:[-*+•|>`]|\d+[.)、]|[a-z][.)])")
"""The beginning of an item of a list, a row of a table, a quotation or code: "- ", "2.", "a)", "| "."""
_ANNOUNCEMENT: Final = re.compile(r"[:：]\s*$|(?:^|\n)\s*(?:[-*+•|]|\d+[.)、]|[a-z][.)])\s?\S")
"""A text that ends with a colon ("The steps are:"), or has an item of a list itself."""

_DIGIT: Final = re.compile(r"\d")
_MAX_PROBE_CHARS: Final = 32
"""The number of characters that are looked for in all quotes at once, before each of them is compared."""
_PRIOR_WEIGHT: Final = 3.0
"""The weight of the mean score of a run's windows, relative to a term of the query."""
_REPEAT_WEIGHT: Final = 0.15
"""The additional weight of every occurrence of a term, relative to that of its first one."""
_CHARS_PER_POINT: Final = 1000
"""A run loses one point for this many characters: of two runs with the same terms, the shorter one is better."""

Span = tuple[int, int]


class Quotable(Struct, frozen=True, kw_only=True):
    """A passage that may be quoted.

    Attributes:
        passage: Its number.
        text: Its text.
        windows: Its windows, as offsets.
        window_scores: The score of each window, 0 to 1.
        headers: The headers that the quote may have, the longest first, each with the group of passages that needs it
            once.
        room: The number of characters it may take.
        min_room: The number of characters to which `room` is reduced if the excerpt takes more tokens than are left.
        said_in: The session of a person's message, since the same words in another session are quoted again; None for
            any other text.
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

        If that takes more than the tokens `left`, a shorter part is quoted.
        """
        span = excerpt(self, weights)
        start, stop = span
        text = self.text[start:stop].strip()
        table = find_table(self.text) if start else None
        if table is not None and table.rows < start < table.stop:  # a row says little without the names of its columns
            text = f"{self.text[table.start : table.rows].strip()}\n…\n{text}"
        elif table is None and start:  # a table within a longer text, or one of several
            head = find_head(self.text, start)
            text = f"{head}\n…\n{text}" if head else text
        if len(text) < len(self.text.strip()):
            text = find_caveats(self.text, start, stop).add_to(text)
        header = next(line for group, line in self.headers if group is None or group not in headed)
        tokens = measure(header + text)
        if tokens > left and self.room > self.min_room:
            room = self.min_room
            if self.room > MIN_EXCERPT_CHARS:  # one of the best: first down to the room of any other passage
                room = MIN_EXCERPT_CHARS
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

    def list_sentences(self, weights: Mapping[str, float]) -> list[_Sentence]:
        """List the sentences around the best window; the rest of a long passage is not read."""
        scores = self._score_windows(weights)
        windows = self.windows
        best = scores.index(max(scores))
        window = best
        while window > 0 and windows[best][0] - windows[window][0] < MIN_CONTEXT_CHARS:
            window -= 1
        last = best + 1
        while last < len(windows) and windows[last - 1][1] - windows[best][1] < max(MIN_CONTEXT_CHARS, self.room):
            last += 1
        sentences: list[_Sentence] = []
        table = find_table(self.text)
        before = ""
        is_code = self.text.count(_FENCE, 0, windows[window][0]) % 2 == 1  # a fence is open
        for start, stop in _split(self.text, windows[window][0], windows[last - 1][1]):
            while windows[window][1] <= start:
                window += 1
            text = self.text[start:stop]
            hits = tuple(filter(weights.__contains__, terms(text)))
            prior = scores[window]
            if table is not None:  # a window may begin within a row
                prior = 0.0
            if table is not None and start < table.rows:  # the names of the columns are quoted with any row
                hits = ()
            follows = is_code or (_ITEM.match(text) is not None and _ANNOUNCEMENT.search(before) is not None)
            sentences.append(_Sentence(start, stop, hits, prior, follows))
            before = text
            if text.count(_FENCE) % 2 == 1:
                is_code = not is_code
        return sentences

    def _score_windows(self, weights: Mapping[str, float]) -> list[float]:
        """Return the score of each window. In a table, the names of its columns do not count: a row has the answer."""
        scores: list[float] = self.window_scores.tolist()
        table = find_table(self.text)
        if table is None:
            return scores
        columns = set(terms(self.text[table.start : table.rows]))
        shares: list[float] = []
        for start, stop in self.windows:
            found = set(terms(self.text[max(start, table.rows) : stop])) - columns
            shares.append(math.fsum(weights.get(term, 0.0) for term in found))
        largest = max(shares)
        if not largest:
            return scores
        return [share / largest for share in shares]


class Quote(Struct, frozen=True, kw_only=True):
    """The quoted part of a passage.

    Attributes:
        passage: The number of the passage.
        span: The quoted part, as offsets.
        text: Its text.
        plain: Its words, without case and punctuation.
        tokens: Its tokens, with the header.
        groups: The groups of passages that have a header by this quote.
        said_in: As in `Quotable`.
    """

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
    """Quote passages in order, if they fit into what is left of `room` tokens and repeat no other quote.

    `order` has passages, their lengths in characters and their scores, 1 for the best; a passage is read only if it may
    fit. Text that is `known` is not quoted, unless the passage has more about the query next to it. The quotes in
    `after` come first and take their part of the room. `limit` is the maximum number of quotes. If `adaptive`, the
    minimum score rises with the tokens that are quoted already.
    """
    packed = _Packer(known=[_plain(text) for text in known], adaptive=adaptive)
    for quote in after:
        packed.add(quote)
    for passage, _, left in packed.choose(order, room=room, limit=limit):
        candidate = read(passage)
        if candidate is None:
            continue
        quote = candidate.quote(weights, measure, headed=packed.headed, left=left)
        if quote.tokens <= left and not packed.repeats(quote, weights):
            packed.add(quote)
    return list(packed.quotes.values())


def select_likely(
    order: Iterable[tuple[int, int, float]], *, room: float, after: Sequence[Quote], adaptive: bool
) -> list[int]:
    """Return the passages that `pack` reads if none repeats another and each takes the typical number of tokens.

    The store reads them in one query instead of one for each.
    """
    packed = _Packer(adaptive=adaptive)
    for quote in after:
        packed.add(quote)
    likely: list[int] = []
    for passage, chars, _ in packed.choose(order, room=room, limit=None):
        likely.append(passage)
        packed.spend(chars / TYPICAL_CHARS_PER_TOKEN)
    return likely


@dataclass(slots=True, kw_only=True)
class _Packer:
    """The quotes so far.

    Attributes:
        adaptive: Whether the minimum score rises with the tokens that are quoted.
        known: The words of texts that must not be repeated.
        words: The words of the quotes, one quote in a line, by their `said_in` (see `Quotable`).
        quotes: The quotes, by passage.
        headed: The groups of passages that have a header.
        spent: The tokens of the quotes.
        min_score: The score that the next passage needs.
    """

    adaptive: bool
    known: list[str] = field(default_factory=list)
    words: dict[int | None, str] = field(default_factory=dict)
    quotes: dict[int, Quote] = field(default_factory=dict)
    headed: set[Hashable | None] = field(default_factory=set)
    spent: float = 0.0
    min_score: float = 0.0

    def __post_init__(self) -> None:
        self.spend(0.0)

    def choose(
        self, order: Iterable[tuple[int, int, float]], *, room: float, limit: int | None
    ) -> Iterator[tuple[int, int, float]]:
        """Yield the passages that may fit, with the characters of a short excerpt and the tokens that are left."""
        for passage, size, score in order:
            if score < self.min_score or passage in self.quotes:
                continue
            left = room - self.spent
            if left < MIN_QUOTE_TOKENS or len(self.quotes) == limit:
                break
            chars = min(size, MIN_EXCERPT_CHARS)
            min_chars = chars
            if size > MAX_WHOLE_CHARS:
                min_chars = SHORTEST_EXCERPT_CHARS
            if min_chars <= CHARS_PER_TOKEN * left:
                yield passage, chars, left

    def spend(self, tokens: float) -> None:
        self.spent += tokens
        self.min_score = -math.inf
        if self.adaptive:
            self.min_score = MIN_SCORE + SCORE_RISE * self.spent / TYPICAL_ROOM

    def add(self, quote: Quote) -> None:
        self.quotes[quote.passage] = quote
        self.headed.update(quote.groups)
        self.words[quote.said_in] = self.words.get(quote.said_in, "\n") + f"{quote.plain}\n"
        self.spend(quote.tokens)

    def repeats(self, quote: Quote, weights: Container[str]) -> bool:
        """Return whether a quote repeats another one or a known text.

        It does if it is equal to the other, or a part of it, or if the other is at least half of it. If that half is a
        known text, the rest must contain no word of the query and no number.
        """
        plain = quote.plain
        if len(plain) < MIN_SENTENCE_CHARS:  # many texts contain a few words: only an equal quote counts
            return plain in self.known or any(f"\n{plain}\n" in text for text in self.words.values())
        texts = list(self.words.values())
        if quote.said_in is not None:  # a person may say the same again in another session
            texts = [self.words.get(quote.said_in, ""), self.words.get(None, "")]
        for text in texts:
            if not _may_repeat(text, plain):
                continue
            if any(_is_repeated(plain, other) for other in text.split("\n")):
                return True
        return any(_is_repeated(plain, known, weights) for known in self.known)


def is_known(text: str, known: Iterable[str], weights: Container[str]) -> bool:
    """Return whether one of the known texts contains a text, or half of it and all of it that is about the query."""
    plain = _plain(text)
    return any(_is_repeated(plain, _plain(other), weights) for other in known)


def _may_repeat(quotes: str, text: str) -> bool:
    """Return whether one of some quotes may contain a text or be at least half of it.

    Both contain the characters before or after the middle of the text. One search for these is faster than a comparison
    with every quote.
    """
    middle = len(text) // 2
    part = min(len(text) // 4, _MAX_PROBE_CHARS)
    return text[middle : middle + part] in quotes or text[middle - part : middle] in quotes


def _is_repeated(text: str, other: str, weights: Container[str] | None = None) -> bool:
    """Return whether a text is in another, or the other is at least half of it.

    With weights, the rest must have none of the terms, and no number. It may be another value: "The code is 1122. Wait,
    no, 2211."
    """
    if text in other:
        return True
    if other not in text or 2 * len(other) < len(text):
        return False
    if weights is None:
        return True
    rest = text.replace(other, " ")
    return not _DIGIT.search(rest) and not any(term in weights for term in terms(rest))


@lru_cache(maxsize=4096)
def _plain(text: str) -> str:
    """Return the words of a text, without case and punctuation. The same texts are compared in many recalls."""
    folded = text.casefold()
    if folded.isascii():
        words = folded.translate(_ASCII_WORDS)
    else:
        words = _PUNCTUATION.sub(" ", folded)
    return " ".join(words.split())


def excerpt(candidate: Quotable, weights: Mapping[str, float]) -> Span:
    """Return the part of a passage to quote: whole sentences that contain most of the query."""
    max_whole = candidate.room
    if candidate.room >= MIN_EXCERPT_CHARS:
        max_whole = max(MAX_WHOLE_CHARS, candidate.room)
    if len(candidate.text) <= max_whole:
        return 0, len(candidate.text)
    sentences = candidate.list_sentences(weights)
    runs = _list_runs(sentences, min_chars=min(candidate.room, MIN_EXCERPT_CHARS))
    first, last = max(runs, key=lambda run: _rate_run(sentences[run[0] : run[1]], weights))
    first, last = _grow_run(sentences, weights, first, last, room=candidate.room)
    return sentences[first].start, sentences[last - 1].stop


def _grow_run(
    sentences: Sequence[_Sentence], weights: Mapping[str, float], first: int, last: int, *, room: int
) -> tuple[int, int]:
    """Add sentences to a run while there is room: of the two next to it, always the better one.

    An item of a list after it, or code, is added in any case, and in one of the best passages has additional room.
    """

    def rate(number: int) -> float:
        if not 0 <= number < len(sentences):
            return -1.0
        return sentences[number].prior + sum(map(weights.__getitem__, dict.fromkeys(sentences[number].terms)))

    max_chars = room + MAX_SLACK_CHARS
    max_list_chars = max_chars
    if room == MAX_EXCERPT_CHARS:
        max_list_chars += MAX_LIST_CHARS
    while first > 0 or last < len(sentences):
        longer_first = first
        longer_last = last
        allowed = max_chars
        if last < len(sentences) and sentences[last].follows:  # an item of a list, or code
            longer_last += 1
            allowed = max_list_chars
        elif rate(first - 1) > rate(last):
            longer_first -= 1
        else:
            longer_last += 1
        if sentences[longer_last - 1].stop - sentences[longer_first].start > allowed:
            break
        first = longer_first
        last = longer_last
    return first, last


class _Sentence(NamedTuple):
    """A sentence, the query's terms in it, the score of its window, and whether the sentence before announces it.

    Code in a fence counts as announced.
    """

    start: int
    stop: int
    terms: tuple[str, ...]
    prior: float
    follows: bool


def _split(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yield the sentences of a part of a text: short ones joined to the next, long ones cut at a space."""
    cuts = [match.end() for match in SENTENCE_END.finditer(text, start, stop)]
    for cut in [*cuts, stop]:
        if cut - start < MIN_SENTENCE_CHARS and cut != stop:
            continue
        while cut - start > MAX_SENTENCE_CHARS:
            space = text.rfind(" ", start + MAX_SENTENCE_CHARS // 2, start + MAX_SENTENCE_CHARS)
            middle = start + MAX_SENTENCE_CHARS
            if space > 0:
                middle = space + 1
            yield start, middle
            start = middle
        if cut > start:
            yield start, cut
        start = cut


def _list_runs(sentences: Sequence[_Sentence], *, min_chars: int) -> Iterator[tuple[int, int]]:
    """Yield the shortest runs of sentences that are long enough; all sentences if none is.

    The last one ends with the last sentence, and begins as early as it must to be long enough.
    """
    last = 0
    for first, sentence in enumerate(sentences):
        while last < len(sentences) and (last <= first or sentences[last - 1].stop - sentence.start < min_chars):
            last += 1
        if sentences[last - 1].stop - sentence.start < min_chars:
            start = first
            while start > 0 and sentences[-1].stop - sentences[start].start < min_chars:
                start -= 1
            yield start, last
            return
        yield first, last


def _rate_run(run: Sequence[_Sentence], weights: Mapping[str, float]) -> float:
    """Rate a run by the terms in it, the scores of its windows, and its length."""
    hits = list(chain.from_iterable([sentence.terms for sentence in run]))
    distinct = sum(map(weights.__getitem__, dict.fromkeys(hits)))
    repeated = sum(map(weights.__getitem__, hits))
    prior = sum([sentence.prior for sentence in run]) / len(run)
    length = (run[-1].stop - run[0].start) / _CHARS_PER_POINT
    return distinct + _REPEAT_WEIGHT * repeated + _PRIOR_WEIGHT * prior - length
