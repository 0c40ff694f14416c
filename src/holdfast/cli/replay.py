"""`holdfast replay`: run transcripts through the engine again, request by request."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from rich.text import Text as Styled

from holdfast import settings as configuration
from holdfast import transcripts
from holdfast.cli.charts import MAX_WIDTH, LivePlot, Point, draw_chart, make_point
from holdfast.cli.console import open_console
from holdfast.cli.opening import load_settings, no_transcript
from holdfast.cli.output import emit_json
from holdfast.context.budget import budget
from holdfast.engine import Engine
from holdfast.errors import InputError, InvalidWindowError, WindowTooSmallError
from holdfast.messages import Message
from holdfast.providers import FORMATS, check
from holdfast.report import ContextReport, Window, workspace_files
from holdfast.settings import Settings
from holdfast.text import plural, printable, shorten_number
from holdfast.transcripts import Transcript

_CUTS = {"trimmed", "compacted"}


@dataclass(slots=True)
class ReplayStats:
    """Figures about the windows of replayed transcripts.

    `block_cuts` are the cuts that removed only earlier blocks; `too_small` are the requests that were refused because
    the messages that must stay did not fit; `prefix_kept` is the share of each request, by tokens, that is a prefix of
    the next one, over requests without a cut.
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

    def summarise(self) -> None:
        """Compute percentiles and means."""
        if self.times:
            self.ms_p50, self.ms_p95 = (round(float(np.percentile(self.times, share)), 1) for share in (50, 95))
            self.ms_steps = {step: round(total / len(self.times), 2) for step, total in self.ms_steps.items()}
        self.prefix_kept = round(float(np.mean(self.kept)), 4) if self.kept else 1.0

    def describe(self, *, limit: int) -> Styled:
        """Describe the figures in three lines."""
        good, bad = "bold green", "bold red"
        text = Styled(
            f"{plural(self.turns, 'request')} of {plural(self.files, 'transcript')} in {shorten_number(limit)} tokens: "
        )
        text.append(f"{self.invalid} invalid", style=bad if self.invalid else good).append(", ")
        text.append(f"{self.over_limit} over the limit", style=bad if self.over_limit else good)
        text.append(f", {self.too_small} refused, {plural(self.warnings, 'warning')}\n")
        text.append(
            f"{plural(self.cuts, 'cut')} ({self.block_cuts} of blocks alone), {plural(self.prunings, 'pruning')},"
            f" {plural(self.recalls, 'recall')} of {shorten_number(self.recalled_tokens)} tokens; between cuts"
            f" {self.prefix_kept:.1%} of each request stayed a prefix of the next\n"
        )
        slowest = sorted(self.ms_steps.items(), key=lambda step: -step[1])
        steps = ", ".join(f"{step} {mean:.1f}" for step, mean in slowest if mean >= 0.05)
        return text.append(f"{self.ms_p50} ms a request, {self.ms_p95} ms p95 (mean: {steps})", style="dim")


def record_window(window: Window | None, stats: ReplayStats) -> Point | None:
    """Check one window against every provider's rules and the limit, and add it to the figures."""
    stats.turns += 1
    if window is None:
        stats.too_small += 1
        return None
    report = window.report
    stats.invalid += not _is_valid(window)
    stats.over_limit += report.over_limit > 0
    point, kinds = make_point(report), {change.kind for change in report.changes}
    stats.cuts += point.cut
    stats.block_cuts += point.cut and not any(change.ids for change in report.changes if change.kind in _CUTS)
    stats.prunings += "pruned" in kinds
    stats.recalls += point.recalled
    stats.recalled_tokens += sum(change.tokens_after for change in report.changes if change.kind == "recalled")
    stats.repairs += len(report.repairs)
    stats.warnings += len(report.warnings)
    stats.times.append(sum(report.milliseconds.values()))
    for step, milliseconds in report.milliseconds.items():
        stats.ms_steps[step] = stats.ms_steps.get(step, 0.0) + milliseconds
    if report.prefix_kept is not None and kinds <= {"recalled", "overview"}:
        stats.kept.append(report.prefix_kept)
    stats.points.append(point)
    return point


def _is_valid(window: Window) -> bool:
    """Return whether a window keeps every provider's rules; rendering for another provider checks them."""
    try:
        for provider in FORMATS:
            window.render(provider)
    except InvalidWindowError:
        return False
    return not check(window.render(), window.provider)


def replay_transcripts(
    *, files: tuple[Path, ...], limit: int, reserve: int | None, position: str, as_json: bool
) -> None:
    """Run transcripts request by request through the engine, and print figures."""
    settings = make_settings(position=position)
    stats, top = ReplayStats(), budget(settings, window=limit, reserve=reserve).prompt
    for file in files:
        sessions = list(transcripts.sessions(file))
        if not sessions:
            raise no_transcript([file])
        for session in sessions:
            messages = without_usage(transcripts.read(session.path).messages)
            stats.files += 1
            with (
                tempfile.TemporaryDirectory() as home,
                Engine.open(home, settings=settings, background=False) as engine,
                LivePlot(sum(1 for _ in find_requests(messages)), words=printable(session.path.name)) as live,
            ):
                for _, window in replay_requests(engine, messages, limit=limit, reserve=reserve):
                    live.add(record_window(window, stats), ceiling=top)
    stats.summarise()
    if as_json:
        emit_json({key: value for key, value in asdict(stats).items() if key not in {"points", "kept", "times"}})
        return
    screen = open_console()
    if stats.points:
        screen.print(draw_chart(stats.points, ceiling=top, width=min(MAX_WIDTH, screen.width - 2)).append("\n"))
    else:
        screen.print(Styled("No request fitted."))
    screen.print(stats.describe(limit=limit))


_RECALL_DEADLINE_MS: Final = 60_000
"""A long deadline, so that a slow machine recalls the same as a fast one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A transcript, replayed up to one of its requests: its messages, its window, and the reports up to it."""

    transcript: Transcript
    engine: Engine
    given: Sequence[Message]
    window: Window
    reports: Sequence[ContextReport]
    session: str

    @property
    def report(self) -> ContextReport:
        """The report of the last request, with the files in its prompt and the model of the transcript."""
        report = self.window.report
        files = report.files or workspace_files(self.window.items)
        return replace(report, files=files, model=report.model or self.transcript.model)


def make_settings(*, position: str | None = None) -> Settings:
    """Return the default settings without an embedder and with a long deadline, so that every run is the same."""
    tables: dict[str, Any] = {"embedding": {"provider": "none"}, "recall": {"deadline_ms": _RECALL_DEADLINE_MS}}
    if position is not None:
        tables["recall"]["position"] = position
    return configuration.load(files=(), environ={}, **tables).settings


@contextmanager
def replay_file(
    file: Path,
    *,
    turn: int | None = None,
    limit: int | None = None,
    reserve: int | None = None,
    position: str | None = None,
    home: Path | None = None,
) -> Iterator[Replay]:
    """Replay a transcript up to a request, in a temporary memory unless `home` is given."""
    transcript = transcripts.read(file)
    total = sum(1 for _ in find_requests(transcript.messages))
    turn = turn or total
    if turn > total:
        raise InputError(f"{file.name} has {total} requests: --turn takes 1 to {total}")
    settings = make_settings(position=position)
    if home is not None:
        own = load_settings()
        archive = msgspec.structs.replace(settings.archive, encryption_key=own.archive.encryption_key)
        settings = msgspec.structs.replace(settings, archive=archive, postgres=own.postgres)
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(home or folder, settings=settings, background=False) as engine,
    ):
        session = transcript.session if home else "replay"
        replayed: Sequence[Message] = transcript.messages
        if home is None:
            replayed = without_usage(replayed)
        windows = replay_requests(
            engine, replayed, session=session, limit=limit, reserve=reserve, model=transcript.model
        )
        with LivePlot(turn, words=printable(file.name)) as live:
            last: Window | None = None
            reports: list[ContextReport] = []
            given = 0
            for given, last in islice(windows, turn):  # noqa: B007 - the last one is used
                if last is None:
                    live.add(None, ceiling=1)
                else:
                    reports.append(last.report)
                    live.add(make_point(last.report), ceiling=last.report.max_tokens)
        if last is None:
            raise InputError("the messages that must stay in this window do not fit: use a larger --limit")
        messages = transcript.messages[:given]
        yield Replay(
            transcript=transcript, engine=engine, given=messages, window=last, reports=reports, session=session
        )


def find_requests(messages: Sequence[Message]) -> Iterator[int]:
    """Yield how many messages each request had: those before each reply, and all at the end."""
    for index, message in enumerate(messages):
        if message.role == "assistant" and index and messages[index - 1].role != "assistant":
            yield index
    yield len(messages)


def without_usage(messages: Sequence[Message]) -> list[Message]:
    """Return messages without reported usage, which is that of other requests than the replayed ones.

    By it a window would count as much larger than it is: the requests of the transcript had a system prompt and tools
    that it does not contain, and often a larger window.
    """
    return [replace(message, usage=None) if message.usage is not None else message for message in messages]


def replay_requests(
    engine: Engine,
    messages: Sequence[Message],
    *,
    session: str = "replay",
    limit: int | None = None,
    reserve: int | None = None,
    model: str | None = None,
) -> Iterator[tuple[int, Window | None]]:
    """Assemble every request again: yield its number of messages and its window, None if it did not fit."""
    for stop in find_requests(messages):
        try:
            window = engine.session(session).assemble(
                messages[:stop], limit=limit, reserve=reserve, model=model, provider="anthropic"
            )
        except WindowTooSmallError:
            yield stop, None
        else:
            yield stop, window
