"""`holdfast replay`: any transcript, turn by turn, through the engine, and what became of its windows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from holdfast import transcripts
from holdfast.cli.output import as_json, console, emit_json, human_tokens, printable
from holdfast.cli.progress import Progress
from holdfast.context.verify import PROVIDERS, check
from holdfast.engine import Engine, Window
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message
from holdfast.settings import Settings, load

__all__ = ["Replayed", "replay", "run"]

_BARS = "▁▂▃▄▅▆▇█"


@dataclass(slots=True)
class Replayed:
    """What became of the windows of a transcript.

    Attributes:
        files: Transcripts replayed.
        turns: Requests made.
        invalid: Windows that break a rule of one of four providers.
        over_limit: Windows larger than the limit.
        too_small: Requests refused because what must stay did not fit.
        cuts: Requests in which messages left the window.
        prefix_kept: Share of the request before, by tokens, that stayed an unchanged beginning; turns without a cut.
        recalled_tokens: Tokens of all blocks.
        ms_p50: Milliseconds of our own for a request; `ms_p95` the slow ones.
        sizes: Tokens of each window, for the plot.
    """

    files: int = 0
    turns: int = 0
    invalid: int = 0
    over_limit: int = 0
    too_small: int = 0
    cuts: int = 0
    recalled_tokens: int = 0
    prefix_kept: float = 0.0
    ms_p50: float = 0.0
    ms_p95: float = 0.0
    sizes: list[int] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def finish(self) -> None:
        """Sum up."""
        if self.times:
            self.ms_p50, self.ms_p95 = (round(float(np.percentile(self.times, share)), 1) for share in (50, 95))
        self.prefix_kept = round(float(np.mean(self.kept)), 4) if self.kept else 1.0


def requests(messages: Sequence[Message]) -> Iterator[int]:
    """Where a request was made: before each reply, and at the end."""
    for index, message in enumerate(messages):
        if message.role == "assistant" and index and messages[index - 1].role != "assistant":
            yield index
    yield len(messages)


def run(
    path: Path,
    *,
    limit: int,
    settings: Settings,
    done: Replayed,
    providers: Sequence[str] = PROVIDERS,
    progress: Callable[[int], None] = lambda _: None,
) -> None:
    """Replay one transcript in a memory of its own and add what happened to `done`."""
    messages = transcripts.read(path).messages
    done.files += 1
    with tempfile.TemporaryDirectory() as home, Engine.open(home, settings=settings) as engine:
        for stop in requests(messages):
            progress(1)
            done.turns += 1
            try:
                window = engine.assemble(messages[:stop], session="replay", limit=limit, provider="anthropic")
            except WindowTooSmallError:
                done.too_small += 1
                continue
            _judge(window, limit, done, providers)


def _judge(window: Window, limit: int, done: Replayed, providers: Sequence[str]) -> None:
    report = window.report
    done.invalid += any(check(window.render(provider), provider) for provider in providers)
    done.over_limit += report.total_tokens > limit
    done.sizes.append(report.total_tokens)
    done.times.append(sum(report.milliseconds.values()))
    cut = any(change.kind in {"trimmed", "compacted", "pruned"} for change in report.changes)
    done.cuts += any(change.kind in {"trimmed", "compacted"} for change in report.changes)
    done.recalled_tokens += sum(change.tokens_after for change in report.changes if change.kind == "recalled")
    if report.prefix_kept is not None and not cut:
        done.kept.append(report.prefix_kept)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(min=1000), default=32_000, show_default=True, help="Tokens of the window.")
@click.option("--position", type=click.Choice(["tail", "head"]), default="tail", show_default=True)
@as_json
def replay(*, files: tuple[Path, ...], limit: int, position: str, as_json: bool) -> None:
    """Run transcripts turn by turn through the engine: windows, cuts, recalls, violations, time."""
    settings = load(files=(), environ={}, recall={"position": position}).settings
    done = Replayed()
    for file in files:
        for one in transcripts.sessions(file):
            _replay_one(one.path, limit=limit, settings=settings, done=done)
    done.finish()
    if as_json:
        emit_json(_as_data(done))
        return
    _print(done, limit)


def _replay_one(path: Path, *, limit: int, settings: Settings, done: Replayed) -> None:
    total = sum(1 for _ in requests(transcripts.read(path).messages))
    name = printable(path.name)
    with Progress(total) as progress:
        run(path, limit=limit, settings=settings, done=done, progress=lambda n: progress.advance(n, name))


def _as_data(done: Replayed) -> dict[str, Any]:
    data = asdict(done)
    return {key: value for key, value in data.items() if key not in {"sizes", "kept", "times"}}


def _print(done: Replayed, limit: int) -> None:
    screen = console()
    screen.print(plot(done.sizes, limit=limit, width=min(100, max(20, screen.width - 2))))
    screen.print(
        f"{done.turns:,} requests of {done.files} transcripts in a window of {human_tokens(limit)}:"
        f" {done.invalid} invalid, {done.over_limit} over the limit, {done.too_small} refused, {done.cuts} cuts"
    )
    screen.print(
        f"{done.prefix_kept:.1%} of each request stayed a prefix of the next between cuts;"
        f" {human_tokens(done.recalled_tokens)} tokens recalled; {done.ms_p50} ms a request ({done.ms_p95} ms p95)"
    )


def plot(sizes: Sequence[int], *, limit: int, width: int) -> str:
    """Tokens over turns, one column for each stretch of turns."""
    if not sizes:
        return ""
    step = max(1, -(-len(sizes) // width))
    peaks = [max(sizes[start : start + step]) for start in range(0, len(sizes), step)]
    return "".join(_BARS[min(len(_BARS) - 1, int(peak / limit * len(_BARS)))] for peak in peaks)
