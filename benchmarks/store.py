"""What a store costs: building, appending, opening, asking, memory and disk, beside plain FTS5.

Every time is taken twice: by the clock, and as the processor time of the one thread that does the work. On a machine
that others use too, only the second says what the store itself costs.
"""

from __future__ import annotations

import multiprocessing
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.archive_rows import make_rows
from benchmarks.postgres import open_store, place_of
from holdfast.embed.base import Embedder, Space
from holdfast.index.vectors import quantise
from holdfast.memory.embedding import vector_rows
from holdfast.messages import Message, Text
from holdfast.search.fuse import Signals, rank
from holdfast.store.base import MessageRow, Scope, SearchQuery, Select, VectorRow
from holdfast.store.postgres import PostgresStore
from holdfast.store.sqlite import SqliteStore
from holdfast.text import terms

__all__ = ["DIMENSION", "StoreCost", "Writer", "measure"]

T = TypeVar("T")

DIMENSION: Final = 256
_SESSIONS: Final = 50
_BATCH: Final = 500
_EMBED_BATCH: Final = 2000
_QUERIES: Final = 200
_APPENDS: Final = 200
_EMBEDDED: Final = 2000
_KEPT: Final = 2000
_MOMENT: Final = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCost:
    """The figures of one run.

    Attributes:
        store: Where they are: `sqlite`, `encrypted` (a SQLite file) or `postgresql`.
        segments: Passages of about 1,000 characters, a fifth of them Chinese, words by Zipf's law.
        build_per_s: Passages imported in a second: secrets masked, indexed by their words, in batches, durable.
        append_ms_p50: Milliseconds of one durable append.
        open_ms: From opening the file to the first answer, in a new process.
        query_ms_p50: Milliseconds of a question of about ten words, ranked by words and vectors; `_p95` the slow ones.
        rss_mb: Memory of the process that asks.
        disk_ratio: Bytes on disk over bytes of text.
        forget_ms: Milliseconds to forget one message for good.
        vectors: How many vectors there are, one for each window of a passage.
        dimension: How many dimensions each has.
        cpu: The same times by the processor's clock.
        embedding: With a real model where one was given: what it is, and passages imported in a second with vectors.
        fts5: The terms of the same passages in a plain FTS5 table of SQLite's, for comparison: build and query.
    """

    store: str
    segments: int
    build_per_s: float
    append_ms_p50: float
    open_ms: float
    query_ms_p50: float
    query_ms_p95: float
    rss_mb: float
    disk_ratio: float
    forget_ms: float
    vectors: int
    dimension: int = DIMENSION
    cpu: dict[str, float] = field(default_factory=dict)
    embedding: dict[str, Any] = field(default_factory=dict)
    fts5: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Times:
    """Seconds by the clock, and of the processor."""

    wall: float
    cpu: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> Self:
        """What this takes."""
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return cls(time.perf_counter() - wall, time.process_time() - cpu)


def measure(
    segments: int,
    *,
    seed: int = 1,
    dimension: int = DIMENSION,
    embedder: Embedder | None = None,
    kind: str = "sqlite",
    progress: Callable[[int], None] = lambda _: None,
) -> StoreCost:
    """Build a store of so many passages in a temporary folder, or on a server, and measure it."""
    writer = Writer(seed)
    space = Space(name="bench", dimension=dimension, digest="random unit vectors")
    with tempfile.TemporaryDirectory() as name, place_of(kind) as path:
        folder = Path(name)
        with open_store(path) as store:
            built, size, texts = _build(store, writer, segments, progress)
            vectors = _embed(store, space, seed)
            appended = [
                _Times.of(lambda: store.add_messages(_rows([writer.text()], segments))) for _ in range(_APPENDS)
            ]
            disk = store.counts()["bytes"]
        questions = [writer.question(text) for text in texts[: _QUERIES + 1]]
        asked = _in_new_process(_ask, path, questions, space)
        forgot = _in_new_process(_forget, path)
        fts5 = _fts5(folder / "fts5.db", Writer(seed), segments, questions)
        embedding = _embedding(folder / "embedded.db", texts, embedder if kind == "sqlite" else None)
    found: dict[str, dict[str, float]] = {}
    for clock in ("wall", "cpu"):
        found[clock] = {
            "build_per_s": round(segments / getattr(built, clock), 1),
            "append_ms_p50": _percentile([getattr(one, clock) for one in appended], 50),
            "open_ms": _percentile([getattr(asked.opened, clock)], 50),
            "query_ms_p50": _percentile([getattr(one, clock) for one in asked.queries], 50),
            "query_ms_p95": _percentile([getattr(one, clock) for one in asked.queries], 95),
            "forget_ms": _percentile([getattr(forgot, clock)], 50),
        }
    return StoreCost(
        store=kind,
        segments=segments,
        rss_mb=asked.rss_mb,
        disk_ratio=round(disk / size, 2),
        vectors=vectors,
        dimension=dimension,
        cpu=found["cpu"],
        embedding=embedding,
        fts5=fts5,
        **found["wall"],
    )


def _percentile(seconds: Sequence[float], percent: int) -> float:
    return round(float(np.percentile(seconds, percent)) * 1000, 2)


# --- building ----------------------------------------------------------------------


def _build(
    store: PostgresStore | SqliteStore, writer: Writer, segments: int, progress: Callable[[int], None]
) -> tuple[_Times, int, list[str]]:
    """Import passages; what it took, the bytes of text, and some of the texts from everywhere."""
    size, wall, cpu = 0, 0.0, 0.0
    kept: list[str] = []
    every = max(1, segments // _KEPT)
    for start in range(0, segments, _BATCH):
        batch = [writer.text() for _ in range(min(_BATCH, segments - start))]
        size += sum(len(text.encode()) for text in batch)
        kept += batch[::every]
        spent = _Times.of(lambda: store.add_messages(_rows(batch, start)))  # noqa: B023 - called at once
        wall, cpu = wall + spent.wall, cpu + spent.cpu
        progress(len(batch))
    return _Times(wall, cpu), size, _shuffled(kept)


def _shuffled(texts: list[str]) -> list[str]:
    order = np.random.default_rng(3).permutation(len(texts)).tolist()
    return [texts[number] for number in order]


def _rows(texts: Sequence[str], number: int) -> list[MessageRow]:
    """Messages as an import makes them of texts."""
    scope = Scope(session=f"{number // _BATCH % _SESSIONS}")
    said = (
        Message(role="user", parts=(Text(text=text),), timestamp=_MOMENT + n) for n, text in enumerate(texts, number)
    )
    return make_rows(said, scope=scope)


def _embed(store: PostgresStore | SqliteStore, space: Space, seed: int) -> int:
    """Random unit vectors for every window: the scan does not care what they mean."""
    chance = np.random.default_rng(seed)
    count = 0
    while missing := store.without_vectors(space, limit=_EMBED_BATCH):
        sizes = [len(passage.windows) for passage in missing]
        drawn = quantise(chance.standard_normal((sum(sizes), space.dimension), dtype=np.float32))
        parts = np.split(drawn, np.cumsum(sizes)[:-1])
        pairs = zip(missing, parts, strict=True)
        store.add_vectors([VectorRow(space=space, passage=passage.number, vectors=part) for passage, part in pairs])
        count += sum(sizes)
    return count


def _embedding(path: Path, texts: Sequence[str], embedder: Embedder | None) -> dict[str, Any]:
    """Import some passages with the vectors of a real model."""
    if embedder is None:
        return {}
    some = list(texts[:_EMBEDDED])

    def work() -> None:
        with SqliteStore(path) as store:
            store.add_messages(_rows(some, 0))
            while missing := store.without_vectors(embedder.space, limit=_BATCH):
                store.add_vectors(vector_rows(missing, embedder))

    embedder.embed(["warm"], kind="passage")
    spent = _Times.of(work)
    return {
        "model": embedder.space.name,
        "dimension": embedder.space.dimension,
        "build_per_s": round(len(some) / spent.wall, 1),
        "cpu_build_per_s": round(len(some) / spent.cpu, 1),
    }


# --- asking ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a process that only asks sees."""

    opened: _Times
    queries: list[_Times]
    rss_mb: float


def _in_new_process(work: Callable[..., T], *given: object) -> T:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, given)


def _ask(path: str, questions: Sequence[str], space: Space) -> _Asked:
    chance = np.random.default_rng(2)
    vectors = chance.standard_normal((len(questions), space.dimension), dtype=np.float32)
    asked = [
        SearchQuery(
            scope=Scope(session="0"),
            across=True,
            terms=dict.fromkeys(terms(text), 1.0),
            vector=vector,
            space=space,
            neighbours=3,
        )
        for text, vector in zip(questions, vectors, strict=True)
    ]
    stores: list[PostgresStore | SqliteStore] = []

    def first() -> None:
        stores.append(open_store(path))
        _best(stores[0], asked[0])

    opened = _Times.of(first)
    with stores[0] as store:
        queries = [_Times.of(lambda: _best(store, question)) for question in asked[1:]]  # noqa: B023 - called at once
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return _Asked(opened, queries, round(rss, 1))


def _best(store: PostgresStore | SqliteStore, question: SearchQuery) -> list[int]:
    """The twenty best passages, by words and vectors."""
    found = store.search(question)
    order: list[int] = found.passages[rank(Signals(candidates=found)).order[:20]].tolist()
    return order


def _forget(path: str) -> _Times:
    """Forget a message in the middle of the archive."""
    with open_store(path) as store:
        middle = store.counts()["messages"] // 2
        select = Select(scope=Scope(session="0"), across=True, ids=(middle,))
        return _Times.of(lambda: store.remove_messages(select))


def _fts5(path: Path, writer: Writer, segments: int, questions: Sequence[str]) -> dict[str, float]:
    """A plain FTS5 table over the terms of all passages, asked with every term of a question."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIRTUAL TABLE passages USING fts5(terms, content='', tokenize='unicode61')")

    def insert(rows: Sequence[tuple[str]]) -> None:
        with connection:
            connection.executemany("INSERT INTO passages(terms) VALUES (?)", rows)

    built = 0.0
    for start in range(0, segments, _BATCH):
        texts = [writer.text() for _ in range(min(_BATCH, segments - start))]
        rows = [(" ".join(term for term in terms(text) if term.isalnum()),) for text in texts]
        built += _Times.of(lambda: insert(rows)).wall  # noqa: B023 - called at once
    query = "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY bm25(passages) LIMIT 20"
    asked = [" OR ".join(f'"{term}"' for term in terms(text) if term.isalnum()) for text in questions]
    times = [_Times.of(lambda: connection.execute(query, (words,)).fetchall()) for words in asked if words]  # noqa: B023
    connection.close()
    return {
        "segments": segments,
        "build_per_s": round(segments / built, 1),
        "query_ms_p50": _percentile([one.wall for one in times], 50),
        "cpu_query_ms_p50": _percentile([one.cpu for one in times], 50),
    }


# --- text ----------------------------------------------------------------------------

WORDS: Final = 50_000
CHARACTERS: Final = 3_000
CHINESE: Final = 0.2
_FIRST: Final = 0x4E00
_SENTENCE: Final = 12
"""Words of a sentence, about."""


class Writer:
    """Writes passages of about 1,000 characters, with words as frequent as in real text, and questions about them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - text for a benchmark
        self._draw = np.random.default_rng(seed)
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(self._chance.choices(letters, k=self._chance.randint(3, 10))) for _ in range(WORDS)]
        self._by_rarity = {count: _cumulative(count) for count in (WORDS, CHARACTERS)}

    def text(self) -> str:
        """About 1,000 characters."""
        return self._chinese() if self._chance.random() < CHINESE else self._english()

    def _english(self) -> str:
        words = [self._words[number] for number in self._numbers(WORDS, 140)]
        for place in self._draw.integers(0, 140, 140 // _SENTENCE).tolist():
            words[place] = words[place].rstrip(".") + "."
        return " ".join(words)

    def _chinese(self) -> str:
        return "".join(chr(_FIRST + number) + ("。" if number % 17 == 0 else "") for number in self._numbers(3000, 330))

    def _numbers(self, count: int, size: int) -> list[int]:
        """Numbers below `count`, low ones far more often than high ones."""
        found: list[int] = np.searchsorted(self._by_rarity[count], self._draw.random(size)).tolist()
        return found

    def question(self, text: str) -> str:
        """A dozen words of a text."""
        start = self._chance.randrange(max(1, len(text) - 90))
        return text[start : start + (90 if text.isascii() else 12)]


def _cumulative(count: int) -> npt.NDArray[np.float64]:
    """How often one of so many words is drawn at most this high, by Zipf's law."""
    weights = 1 / np.arange(1, count + 1) ** 1.05
    sums: npt.NDArray[np.float64] = np.cumsum(weights)[:-1] / weights.sum()
    return sums
