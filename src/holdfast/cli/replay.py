"""`holdfast replay`: any transcript, turn by turn, through the engine, and what became of its windows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.text import Text as Styled

from holdfast import transcripts
from holdfast.cli.live import WIDEST, LivePlot
from holdfast.cli.opening import no_transcript
from holdfast.cli.output import as_json, console, emit_json, human_tokens, printable
from holdfast.cli.plot import Point, chart, plural, point
from holdfast.cli.trial import play, requests, settings_for
from holdfast.context.budget import budget
from holdfast.engine import Engine
from holdfast.messages import Message
from holdfast.providers import FORMATS, check
from holdfast.settings import Settings
from holdfast.window import Window

__all__ = ["Replayed", "figures", "judge", "replay", "run"]

_CUTS = {"trimmed", "compacted"}


@dataclass(slots=True)
class Replayed:
    """What became of the windows of transcripts.

    Attributes:
        files: Transcripts replayed.
        turns: Requests made.
        invalid: Windows that break a rule of one of five providers.
        over_limit: Windows larger than the limit.
        too_small: Requests refused because what must stay did not fit.
        cuts: Requests in which messages or earlier blocks left the window.
        block_cuts: Those of them in which only blocks did.
        prunings: Requests in which tool results were shortened or cleared.
        recalls: Requests that were given a block.
        recalled_tokens: Tokens of all blocks.
        prefix_kept: Share of the request before, by tokens, that stayed an unchanged beginning; turns without a cut.
        repairs: Changes that a provider's rules asked for.
        warnings: What went wrong and was passed over.
        ms_p50: Milliseconds of our own for a request; `ms_p95` the slow ones.
        ms_steps: Where the time goes: the mean of each step.
        points: Each window, for the plot.
    """

    files: int = 0
    turns: int = 0
    invalid: int = 0
    over_limit: int = 0
    too_small: int = 0
    cuts: int = 0
    block_cuts: int = 0
    prunings: int = 0
    recalls: int = 0
    recalled_tokens: int = 0
    prefix_kept: float = 1.0
    repairs: int = 0
    warnings: int = 0
    ms_p50: float = 0.0
    ms_p95: float = 0.0
    ms_steps: dict[str, float] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    kept: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    def finish(self) -> None:
        """Sum up."""
        if self.times:
            self.ms_p50, self.ms_p95 = (round(float(np.percentile(self.times, share)), 1) for share in (50, 95))
            self.ms_steps = {step: round(total / len(self.times), 2) for step, total in self.ms_steps.items()}
        self.prefix_kept = round(float(np.mean(self.kept)), 4) if self.kept else 1.0


def run(
    messages: Sequence[Message],
    *,
    limit: int,
    settings: Settings,
    done: Replayed,
    progress: Callable[[Point | None], None] = lambda _: None,
) -> None:
    """Replay one conversation in a memory of its own and add what happened to `done`."""
    done.files += 1
    with tempfile.TemporaryDirectory() as home, Engine.open(home, settings=settings, background=False) as engine:
        for _, window in play(engine, messages, limit=limit):
            progress(judge(window, done))


def judge(window: Window | None, done: Replayed, *, providers: Sequence[str] = tuple(FORMATS)) -> Point | None:
    """Check one window against every provider's rules and the limit, and add it to the figures."""
    done.turns += 1
    if window is None:
        done.too_small += 1
        return None
    report = window.report
    done.invalid += any(check(window.render(provider), provider) for provider in providers)
    done.over_limit += report.over_limit > 0
    kinds = {change.kind for change in report.changes}
    cuts = [change for change in report.changes if change.kind in _CUTS]
    done.cuts += bool(cuts)
    done.block_cuts += bool(cuts) and not any(change.ids for change in cuts)
    done.prunings += "pruned" in kinds
    done.recalls += "recalled" in kinds
    done.recalled_tokens += sum(change.tokens_after for change in report.changes if change.kind == "recalled")
    done.repairs += len(report.repairs)
    done.warnings += len(report.warnings)
    _time(report.milliseconds, done)
    if report.prefix_kept is not None and kinds <= {"recalled"}:
        done.kept.append(report.prefix_kept)
    done.points.append(point(report))
    return done.points[-1]


def _time(milliseconds: Any, done: Replayed) -> None:
    done.times.append(sum(milliseconds.values()))
    for step, took in milliseconds.items():
        done.ms_steps[step] = done.ms_steps.get(step, 0.0) + took


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(min=1000), default=32_000, show_default=True, help="Tokens of the window.")
@click.option(
    "--reserve", type=click.IntRange(min=0), help="Tokens kept for the reply, at most a quarter; default the settings'."
)
@click.option("--position", type=click.Choice(["tail", "head"]), default="tail", show_default=True)
@as_json
def replay(*, files: tuple[Path, ...], limit: int, reserve: int | None, position: str, as_json: bool) -> None:
    """Run transcripts turn by turn through the engine: windows, cuts, recalls, violations, time."""
    settings = settings_for(reserve=reserve, position=position)
    done = Replayed()
    for file in files:
        found = list(transcripts.sessions(file))
        if not found:
            raise no_transcript([file])
        for one in found:
            _replay_one(one.path, limit=limit, settings=settings, done=done)
    done.finish()
    if as_json:
        emit_json(_as_data(done))
        return
    screen = console()
    screen.print(_picture(done, screen, limit=limit, settings=settings))
    screen.print(figures(done, limit=limit))


def ceiling(settings: Settings, limit: int) -> int:
    """The most that messages may take in a window of so many tokens."""
    return budget(settings, window=limit).prompt


def _replay_one(path: Path, *, limit: int, settings: Settings, done: Replayed) -> None:
    messages = transcripts.read(path).messages
    top = ceiling(settings, limit)
    with LivePlot(sum(1 for _ in requests(messages)), words=printable(path.name)) as live:
        run(messages, limit=limit, settings=settings, done=done, progress=lambda one: live.add(one, ceiling=top))


def _as_data(done: Replayed) -> dict[str, Any]:
    data = asdict(done)
    return {key: value for key, value in data.items() if key not in {"points", "kept", "times"}}


def _picture(done: Replayed, screen: Console, *, limit: int, settings: Settings) -> Styled:
    if not done.points:
        return Styled("No request fitted.")
    width = min(WIDEST, screen.width - 2)
    return chart(done.points, ceiling=ceiling(settings, limit), width=width).append("\n")


def figures(done: Replayed, *, limit: int) -> Styled:
    """What became of the windows, in three lines."""
    good, bad = "bold green", "bold red"
    text = Styled(f"{done.turns:,} requests of {plural(done.files, 'transcript')} in {human_tokens(limit)} tokens: ")
    text.append(f"{done.invalid} invalid", style=bad if done.invalid else good).append(", ")
    text.append(f"{done.over_limit} over the limit", style=bad if done.over_limit else good)
    text.append(f", {done.too_small} refused, {done.warnings} warnings\n")
    text.append(
        f"{plural(done.cuts, 'cut')} ({done.block_cuts} of blocks alone), {plural(done.prunings, 'pruning')},"
        f" {plural(done.recalls, 'recall')} of {human_tokens(done.recalled_tokens)} tokens; between cuts"
        f" {done.prefix_kept:.1%} of each request stayed a prefix of the next\n"
    )
    slowest = sorted(done.ms_steps.items(), key=lambda step: -step[1])
    steps = ", ".join(f"{step} {took:.1f}" for step, took in slowest if took >= 0.05)
    return text.append(f"{done.ms_p50} ms a request, {done.ms_p95} ms p95 (mean: {steps})", style="dim")
