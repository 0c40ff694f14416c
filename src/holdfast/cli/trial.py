"""A transcript played up to one of its requests, for the commands that show what became of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from holdfast import settings as configuration
from holdfast import transcripts
from holdfast.cli.live import LivePlot
from holdfast.cli.output import printable
from holdfast.cli.plot import point
from holdfast.engine import Engine
from holdfast.errors import InputError, WindowTooSmallError
from holdfast.messages import Message
from holdfast.report import ContextReport, workspace_files
from holdfast.settings import Settings
from holdfast.transcripts import Transcript
from holdfast.window import Window

__all__ = ["Trial", "play", "play_file", "plays", "requests", "settings_for"]

F = TypeVar("F", bound=Callable[..., Any])

_DEADLINE_MS: Final = 60_000
"""Nobody waits for the reply of a trial: on a busy machine it recalls what it would recall on any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of a transcript.

    Attributes:
        transcript: What was played.
        engine: The engine that it was played through, still open.
        given: The messages of the last request played.
        window: What was sent for it.
        reports: The report of every request up to it; where one was refused there is none.
        session: The name that the session has in memory.
    """

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


def plays(function: F) -> F:
    """Give a command the options of a trial."""
    options = (
        click.option("--turn", type=click.IntRange(min=1), help="Up to this request of the file; default the last."),
        click.option("--limit", type=click.IntRange(min=1000), help="Tokens of the window; default the model's."),
        click.option(
            "--reserve", type=click.IntRange(min=0), help="Tokens kept for the reply, at most a quarter of it."
        ),
        click.option("--position", type=click.Choice(["tail", "head"]), help="Where recalled blocks go."),
        click.option(
            "--home", "--store", "home", type=click.Path(path_type=Path), help="A memory to use; default a new one."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def settings_for(*, reserve: int | None = None, position: str | None = None) -> Settings:
    """The settings of a trial: those that come with Holdfast, by words alone and with time for it, so that it is the
    same each time.
    """  # noqa: D205 - one sentence
    tables: dict[str, Any] = {"embedding": {"provider": "none"}, "recall": {"deadline_ms": _DEADLINE_MS}}
    if position is not None:
        tables["recall"]["position"] = position
    if reserve is not None:
        tables["compaction"] = {"reserve_tokens": reserve, "reserve_tokens_floor": 0}
    return configuration.load(files=(), environ={}, **tables).settings


@contextmanager
def play_file(
    file: Path,
    *,
    turn: int | None = None,
    limit: int | None = None,
    reserve: int | None = None,
    position: str | None = None,
    home: Path | None = None,
) -> Iterator[Trial]:
    """Play a transcript up to a request. What memory learns of it is gone afterwards, unless it has a home."""
    transcript = transcripts.read(file)
    total = sum(1 for _ in requests(transcript.messages))
    if turn is not None and turn > total:
        raise InputError(f"{file.name} has {total} requests: --turn takes 1 to {total}")
    settings = settings_for(reserve=reserve, position=position)
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(home or folder, settings=settings, background=False) as engine,
    ):
        session = transcript.session if home else "replay"
        found = play(engine, transcript.messages, session=session, limit=limit, model=transcript.model)
        with LivePlot(turn or total, words=printable(file.name)) as live:
            trial = _played(transcript, engine, islice(found, turn or total), live=live, session=session)
        yield trial


def _played(
    transcript: Transcript, engine: Engine, found: Iterator[tuple[int, Window | None]], *, live: LivePlot, session: str
) -> Trial:
    last: Window | None = None
    reports: list[ContextReport] = []
    stop = 0
    for made in found:
        stop, last = made
        if last is not None:
            reports.append(last.report)
        live.add(point(last.report) if last else None, ceiling=last.report.max_tokens if last else 1)
    if last is None:
        raise InputError("what must stay in the window of this request does not fit: give it a larger --limit")
    return Trial(
        transcript=transcript,
        engine=engine,
        given=transcript.messages[:stop],
        window=last,
        reports=reports,
        session=session,
    )


def requests(messages: Sequence[Message]) -> Iterator[int]:
    """Where a request was made: how many messages there were before each reply, and at the end."""
    for index, message in enumerate(messages):
        if message.role == "assistant" and index and messages[index - 1].role != "assistant":
            yield index
    yield len(messages)


def play(
    engine: Engine,
    messages: Sequence[Message],
    *,
    session: str = "replay",
    limit: int | None = None,
    model: str | None = None,
    provider: str = "anthropic",
) -> Iterator[tuple[int, Window | None]]:
    """Make every request again: how many messages it had, and its window; None where what must stay did not fit."""
    for stop in requests(messages):
        try:
            window = engine.session(session).assemble(messages[:stop], limit=limit, model=model, provider=provider)
        except WindowTooSmallError:
            yield stop, None
        else:
            yield stop, window
