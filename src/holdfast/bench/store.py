"""What the embedded store costs: building, appending, opening, asking, memory and disk, beside plain FTS5."""

from __future__ import annotations

import multiprocessing
import random
import resource
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from holdfast.memory import archive
from holdfast.messages import Message, Text
from holdfast.search.embed.base import Space
from holdfast.search.vectors import quantise
from holdfast.store.base import MessageRow, Question, Scope, VectorRow
from holdfast.store.sqlite import SqliteStore
from holdfast.text import terms

__all__ = ["StoreCost", "measure"]

DIMENSION: Final = 256
_SPACE: Final = Space(name="bench", dimension=DIMENSION, digest="random unit vectors")
_SESSIONS: Final = 50
_BATCH: Final = 500
_QUERIES: Final = 200
_APPENDS: Final = 200
_WORDS: Final = 50_000
_CHINESE: Final = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreCost:
    """The figures of one run.

    Attributes:
        segments: Passages of about 1,000 characters, a fifth of them Chinese, words by Zipf's law.
        build_per_s: Passages archived and indexed by their words in a second, in batches, durable.
        append_ms_p50: Milliseconds of one durable append.
        open_ms: From opening the file to the first answer, in a new process.
        query_ms_p50: Milliseconds of a question of about ten words over words and vectors; `_p95` the slow ones.
        rss_mb: Memory of the process that asks.
        disk_ratio: Bytes on disk over bytes of text.
        fts5: The same words in a plain FTS5 table of SQLite's, for comparison: build and query.
    """

    segments: int
    build_per_s: float
    append_ms_p50: float
    open_ms: float
    query_ms_p50: float
    query_ms_p95: float
    rss_mb: float
    disk_ratio: float
    vectors: int
    fts5: dict[str, float] = field(default_factory=dict)


def measure(segments: int, *, seed: int = 1, progress: Callable[[int], None] = lambda _: None) -> StoreCost:
    """Build a store of so many passages in a temporary folder and measure it."""
    writer = _Writer(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        store = SqliteStore(path)
        texts: list[str] = []
        size, spent = 0, 0.0
        for start in range(0, segments, _BATCH):
            batch = [writer.text() for _ in range(min(_BATCH, segments - start))]
            size += sum(len(text.encode()) for text in batch)
            texts += batch if len(texts) < _QUERIES * 10 else []
            begun = time.perf_counter()
            store.add([_row(text, start + place) for place, text in enumerate(batch)])
            spent += time.perf_counter() - begun
            progress(len(batch))
        appends = [_timed(lambda: store.add([_row(writer.text(), segments)])) for _ in range(_APPENDS)]
        vectors = _embed(store, seed)
        store.close()
        disk = sum(file.stat().st_size for file in Path(folder).iterdir())
        questions = [writer.question(text) for text in writer.chance.sample(texts, min(_QUERIES, len(texts)))]
        asked = _in_new_process(path, questions)
        fts5 = _fts5(Path(folder) / "fts5.db", texts, questions)
    return StoreCost(
        segments=segments,
        build_per_s=round(segments / spent, 1),
        append_ms_p50=round(statistics.median(appends), 2),
        vectors=vectors,
        disk_ratio=round(disk / size, 2),
        fts5=fts5,
        **asked,
    )


def _row(text: str, number: int) -> MessageRow:
    message = Message(role="user", parts=(Text(text=text),), timestamp=1_700_000_000_000 + number)
    scope = Scope(session=f"{number % _SESSIONS}")
    return MessageRow(scope=scope, message=message, nonce=f"{number}", passages=tuple(archive.passages_of(message)))


def _embed(store: SqliteStore, seed: int) -> int:
    """Random unit vectors for every window: the scan does not care what they mean."""
    chance = np.random.default_rng(seed)
    count = 0
    while missing := store.without_vectors(_SPACE, limit=2000):
        sizes = [len(passage.windows) for passage in missing]
        drawn = quantise(chance.standard_normal((sum(sizes), DIMENSION), dtype=np.float32))
        ends = np.cumsum(sizes).tolist()
        store.add(
            [
                VectorRow(space=_SPACE, passage=passage.number, vectors=drawn[end - size : end])
                for passage, size, end in zip(missing, sizes, ends, strict=True)
            ]
        )
        count += sum(sizes)
    return count


def _in_new_process(path: Path, questions: Sequence[str]) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found: dict[str, float] = pool.apply(_ask, (path, list(questions)))
    return found


def _ask(path: Path, questions: list[str]) -> dict[str, float]:
    chance = np.random.default_rng(2)
    start = time.perf_counter()
    store = SqliteStore(path)
    times = []
    opened = 0.0
    for number, text in enumerate(questions):
        question = Question(
            scope=Scope(session="0"),
            across=True,
            terms=dict.fromkeys(terms(text), 1.0),
            vector=chance.standard_normal(DIMENSION, dtype=np.float32),
            space=_SPACE,
        )
        begun = time.perf_counter()
        evidence = store.match(question)
        best = np.argpartition(-evidence.keywords.passages, 20)[:20]
        times.append((time.perf_counter() - begun) * 1000)
        if number == 0:
            opened = (time.perf_counter() - start) * 1000
            assert len(best)
    store.close()
    return {
        "open_ms": round(opened, 1),
        "query_ms_p50": round(float(np.percentile(times[1:], 50)), 2),
        "query_ms_p95": round(float(np.percentile(times[1:], 95)), 2),
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def _fts5(path: Path, texts: Sequence[str], questions: Sequence[str]) -> dict[str, float]:
    """A plain FTS5 table over the same terms (as many texts as were kept), asked with every term."""
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIRTUAL TABLE passages USING fts5(terms, content='', tokenize='unicode61')")
    start = time.perf_counter()
    with connection:
        rows = ((" ".join(term for term in terms(text) if term.isalnum()),) for text in texts)
        connection.executemany("INSERT INTO passages(terms) VALUES (?)", rows)
    spent = time.perf_counter() - start
    query = "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY bm25(passages) LIMIT 20"
    asked = [" OR ".join(f'"{term}"' for term in terms(text) if term.isalnum()) for text in questions]
    times = [_timed(partial(_all, connection, query, words)) for words in asked if words]
    connection.close()
    return {
        "segments": len(texts),
        "build_per_s": round(len(texts) / spent, 1),
        "query_ms_p50": round(statistics.median(times), 2) if times else 0.0,
    }


def _all(connection: sqlite3.Connection, query: str, words: str) -> list[Any]:
    return connection.execute(query, (words,)).fetchall()


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1000


class _Writer:
    """Makes text whose words are as common and as rare as those of real text."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - text for a benchmark
        letters = "abcdefghijklmnopqrstuvwxyz"
        self._words = ["".join(self.chance.choices(letters, k=self.chance.randint(3, 10))) for _ in range(_WORDS)]
        weights = 1 / np.arange(1, _WORDS + 1) ** 1.05
        self._rarity = weights / weights.sum()
        self._draw = np.random.default_rng(seed)

    def text(self) -> str:
        """About 1,000 characters."""
        if self.chance.random() < _CHINESE:
            drawn = self._draw.choice(3000, size=330, p=self._rarity[:3000] / self._rarity[:3000].sum())
            return "".join(chr(0x4E00 + int(number)) + ("。" if number % 17 == 0 else "") for number in drawn)
        return " ".join(self._words[number] for number in self._draw.choice(_WORDS, size=140, p=self._rarity))

    def question(self, text: str) -> str:
        """A dozen words of a text."""
        start = self.chance.randrange(max(1, len(text) - 90))
        return text[start : start + (90 if text.isascii() else 12)]


def as_json(cost: StoreCost) -> dict[str, Any]:
    """The figures as `holdfast bench store --json` prints them."""
    return asdict(cost)
