"""Chunks in memory, ready to be searched: the columns, posting lists and vectors that the archive is searched with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from holdfast.agent.notes.table import Row
from holdfast.search.bm25 import Corpus, Keywords, score
from holdfast.search.columns import Floats, PassageRow
from holdfast.search.memory_index import MemoryIndex
from holdfast.search.mmr import Item, mmr
from holdfast.search.passages import windows
from holdfast.search.vectors import Matrix
from holdfast.settings.memory import Hybrid
from holdfast.text import head, terms

__all__ = ["Index", "Match", "Meaning", "build", "match", "snippet", "stretches_of"]

SNIPPET: Final = 700
MOST_CANDIDATES: Final = 200
TELLING: Final = 0.75
"""A chunk that holds this share of the question by its words is a hit, whatever the vectors say."""

_DATED: Final = re.compile(r"(?:^|/)memory/(?:.*/)?(\d{4}-\d{2}-\d{2})[^/]*\.md$")
_DAY: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Meaning:
    """The vectors of all stretches of all chunks, and with which one each chunk begins."""

    matrix: Matrix
    starts: npt.NDArray[np.int64]
    total: int

    def alike(self, vector: Floats) -> Floats:
        """How alike the best stretch of each chunk is to a question, 0 to 1."""
        every = self.matrix.cosine(vector, windows=self.total)
        best: Floats = np.maximum.reduceat(every, self.starts)
        return np.maximum(best, 0)


@dataclass(frozen=True, slots=True)
class Index:
    """Every chunk, and what is needed to search them."""

    rows: Sequence[Row]
    words: MemoryIndex
    meaning: Meaning | None


@dataclass(frozen=True, slots=True)
class Match:
    """A chunk that was found: its score from 0 to 1, and the share of the question that its words hold."""

    row: Row
    score: float
    share: float


def build(rows: Sequence[Row], vectors: Mapping[str, bytes] | None = None, *, dimension: int = 0) -> Index:
    """Make chunks searchable; `vectors` are those of a chunk's stretches, end to end as signed bytes, by its digest."""
    words = MemoryIndex()
    for number, row in enumerate(rows):
        words.insert(_passage(number, row), row.terms)
    return Index(rows, words, None if vectors is None else _meaning(rows, vectors, dimension))


def _passage(number: int, row: Row) -> PassageRow:
    return PassageRow(
        message=number,
        scope=0,
        time=0,
        previous=-1,
        human=False,
        size=len(row.text),
        window_lengths=(len(row.terms),),
    )


def _meaning(rows: Sequence[Row], vectors: Mapping[str, bytes], dimension: int) -> Meaning:
    matrix, starts, total = Matrix(dimension), [0] * len(rows), 0
    for number, row in enumerate(rows):
        starts[number] = total
        held = np.frombuffer(vectors.get(row.digest, b""), np.int8)
        stretches = held[: len(held) // dimension * dimension].reshape(-1, dimension)
        matrix.put(total, stretches)
        total += max(1, len(stretches))  # a chunk without vectors is like nothing
    return Meaning(matrix, np.array(starts, np.int64), total)


def stretches_of(text: str) -> list[str]:
    """What of a chunk is embedded: a few sentences each, since a vector of many things is like none of them."""
    return [text[start:stop] for start, stop in windows(text)]


def match(
    index: Index, query: str, *, vector: Floats | None, hybrid: Hybrid, trust: float, now: int, limit: int
) -> list[Match]:
    """The chunks that have to do with a question, best first.

    `trust` is how far the question's vector counts, 0 to 1. Without a vector, words decide alone.
    """
    if not index.rows:
        return []
    keywords = _keywords(index, query)
    share = keywords.share
    scores = _fused(index, share, vector, hybrid=hybrid, trust=trust)
    if hybrid.temporal_decay.enabled:
        scores = scores * _decay(index.rows, now=now, half_life=hybrid.temporal_decay.half_life_days)
    order = np.lexsort((-keywords.passages, -np.round(scores, 6)))
    count = min(MOST_CANDIDATES, limit * hybrid.candidate_multiplier)
    found = [Match(index.rows[n], float(scores[n]), float(share[n])) for n in order[:count].tolist() if scores[n] > 0]
    return _varied(found, hybrid.mmr.relevance_weight) if hybrid.mmr.enabled else found


def _fused(index: Index, share: Floats, vector: Floats | None, *, hybrid: Hybrid, trust: float) -> Floats:
    """Words and vectors by their weights; both are absolute, so that a least score means something."""
    words = hybrid.text_weight if hybrid.enabled else 0.0
    vectors = (hybrid.vector_weight if hybrid.enabled else 1.0) * trust
    if vector is None or index.meaning is None or not words + vectors:
        return share
    fused: Floats = ((vectors * index.meaning.alike(vector) + words * share) / (words + vectors)).astype(np.float32)
    return fused


def _keywords(index: Index, query: str) -> Keywords:
    asked = Counter(terms(query))
    postings = index.words.postings({term: float(count) for term, count in asked.items()})
    return score(postings, Corpus.of(index.words.columns, index.words.columns["alive"]))


def _varied(found: Sequence[Match], weight: float) -> list[Match]:
    items = {Item(score=each.score, text=each.row.text): each for each in found}
    return [items[item] for item in mmr(list(items), relevance_weight=weight)]


def _decay(rows: Sequence[Row], *, now: int, half_life: int) -> npt.NDArray[np.float32]:
    ages = np.array([max(0.0, now - _time(row, now)) / _DAY for row in rows])
    return np.exp2(-ages / half_life).astype(np.float32)


def _time(row: Row, now: int) -> float:
    """When a chunk was written: the date in the name of a daily note. Notes without a date do not age."""
    dated = _DATED.search(f"/{row.path}")
    if dated is not None:
        try:
            return datetime.fromisoformat(dated[1]).replace(tzinfo=UTC).timestamp() * 1000
        except ValueError:
            return now
    evergreen = row.kind == "memory" and row.path.startswith(("MEMORY.md", "memory.md", "memory/"))
    return now if evergreen else row.mtime / 1_000_000


def snippet(text: str, query: str, *, most: int = SNIPPET) -> str:
    """What of a chunk is shown: the stretch that holds most of the question."""
    if len(text) <= most:
        return text
    asked = set(terms(query))
    stretches = windows(text)
    hits = [len(asked & set(terms(text[start:stop]))) for start, stop in stretches]
    best = max(range(len(stretches)), key=lambda number: (sum(hits[number : number + 2]), hits[number], -number))
    start = min(stretches[best][0], max(0, len(text) - most))
    return head(text[start:], most)
