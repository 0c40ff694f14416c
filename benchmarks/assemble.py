"""What a turn costs: one new exchange in a very long conversation over a full archive."""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from benchmarks.archive_rows import make_rows
from holdfast.engine import Engine
from holdfast.messages import Message, Text
from holdfast.report import Window
from holdfast.settings import Settings
from holdfast.store.base import Scope
from holdfast.tokens import count_message

__all__ = ["Cost", "measure"]

_BATCH: Final = 500
_SPARE: Final = 4
_WORDS: Final = 20_000
_MEGABYTE: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The figures of one run.

    Attributes:
        messages: Messages of the conversation before the first turn that was timed.
        tokens: What they take.
        segments: Passages in the archive beside them.
        turns: Turns that were timed; each adds a question and an answer.
        ms_p50: Milliseconds of `assemble`; `_p95` the slow ones.
        cpu_ms_p50: The same by the time that this process computed: what a busy machine does not change.
        steps: Milliseconds of each step, at the median.
        rss_mb: Memory of the process at the end.
        first_ms: The first turn, which reads, archives and counts all of the history.
    """

    messages: int
    tokens: int
    segments: int
    turns: int
    ms_p50: float
    ms_p95: float
    cpu_ms_p50: float
    cpu_ms_p95: float
    first_ms: float
    rss_mb: float
    steps: dict[str, float] = field(default_factory=dict)


def measure(
    *,
    messages: int = 5_000,
    segments: int = 20_000,
    turns: int = 50,
    limit: int = 200_000,
    tokens: int = 200,
    settings: Settings | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Cost:
    """Time `assemble` when only the last turn is new, in a conversation of `messages` messages of `tokens` each."""
    writer = Writer(tokens)
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(Path(folder), settings=settings, background=False) as engine,
    ):
        _fill(engine, writer, segments, progress)
        history = [{"role": "system", "content": "You are a careful engineer."}]
        history += [turn for _ in range(messages // 2) for turn in writer.exchange()]
        size = sum(count_message(Message(role="user", parts=(Text(text=turn["content"]),))) for turn in history)
        first, _, _ = _timed(engine, history, limit)
        engine.work()
        wall, cpu, steps = [], [], []
        for _ in range(turns):
            history += writer.exchange()
            elapsed, computed, window = _timed(engine, history, limit)
            wall.append(elapsed)
            cpu.append(computed)
            steps.append(window.report.milliseconds)
            progress(1)
    return Cost(
        messages=messages,
        tokens=size,
        segments=segments,
        turns=turns,
        ms_p50=round(statistics.median(wall), 1),
        ms_p95=round(_high(wall), 1),
        cpu_ms_p50=round(statistics.median(cpu), 1),
        cpu_ms_p95=round(_high(cpu), 1),
        first_ms=round(first, 1),
        rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEGABYTE, 1),
        steps={name: round(statistics.median(step[name] for step in steps), 2) for name in steps[-1]},
    )


def _high(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _timed(engine: Engine, history: list[dict[str, str]], limit: int) -> tuple[float, float, Window]:
    """Return the milliseconds of a turn, by the clock and by processor time, and its window."""
    given = [dict(turn) for turn in history]  # a client that reads its history again each time
    begun, computed = time.perf_counter(), time.process_time()
    window = engine.session("long").assemble(given, limit=limit, provider="openai_chat")
    return (time.perf_counter() - begun) * 1000, (time.process_time() - computed) * 1000, window


def _fill(engine: Engine, writer: Writer, segments: int, progress: Callable[[int], None]) -> None:
    """Archive so many passages in earlier parts of the session, with their vectors where there is a model."""
    for start in range(0, segments, _BATCH):
        said = [Message(role="user", parts=(Text(text=writer.text(1_000)),)) for _ in range(_BATCH)]
        engine._memory.store.add_messages(make_rows(said, scope=Scope(session="long")))
        progress(min(_BATCH, segments - start))
    engine._memory.embed()


@dataclass(slots=True)
class Writer:
    """Words by Zipf's law, from a vocabulary of pronounceable ones."""

    tokens: int
    chance: Random = field(default_factory=lambda: Random(1))  # noqa: S311 - chance is all it is for
    words: list[str] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        syllables = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "or")]
        self.words = ["".join(self.chance.choices(syllables, k=self.chance.randint(1, 4))) for _ in range(_WORDS)]
        total = 0.0
        for rank in range(_WORDS):
            total += 1 / (rank + _SPARE)
            self.weights.append(total)

    def text(self, chars: int) -> str:
        """Words up to a length."""
        return " ".join(self.chance.choices(self.words, cum_weights=self.weights, k=chars // 6))[:chars]

    def exchange(self) -> list[dict[str, str]]:
        """An answer and the next question."""
        return [{"role": role, "content": self.text(3 * self.tokens)} for role in ("assistant", "user")]
