"""`holdfast compact`: a summary for older history, tried out on a file or done to a stored session."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast import transcripts
from holdfast.cli.opening import open_memory, opens_memory, session_scope
from holdfast.cli.output import as_json, console, echo, emit_json, human_tokens, printable
from holdfast.cli.trial import settings_for
from holdfast.compactor import Compaction
from holdfast.context.windows import context_tokens
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.models import open_model
from holdfast.models.base import Model
from holdfast.settings import Settings
from holdfast.store.base import Select

__all__ = ["compact"]

_MOST: Final = 12
"""Files and failures that are listed; the rest is counted."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--instructions", metavar="TEXT", help="What the summary should look out for.")
@click.option("--dry-run", is_flag=True, help="Only say what would be summarised and kept.")
@click.option("--model", "model_name", metavar="NAME", help="Who tells the summary; default nobody, by rule.")
@click.option("--limit", type=click.IntRange(min=1000), help="Tokens of the window; default the model's.")
@opens_memory
@as_json
def compact(
    *,
    file: Path | None,
    instructions: str | None,
    dry_run: bool,
    model_name: str | None,
    limit: int | None,
    home: Path | None,
    as_json: bool,
    **whose: Any,
) -> None:
    """Show what a compaction would make of the transcript FILE, or compact a stored --session."""
    waiting = Console(stderr=True).status("compacting ...")
    with _subject(file, home=home, whose=whose, model_name=model_name, limit=limit) as (name, run), waiting:
        done = run(dry_run=dry_run, instructions=instructions)
    if as_json:
        emit_json(_as_data(done, dry_run=dry_run))
        return
    _print(console(), name, done)


Run = Callable[..., Compaction]


@contextmanager
def _subject(
    file: Path | None, *, home: Path | None, whose: dict[str, Any], model_name: str | None, limit: int | None
) -> Iterator[tuple[str, Run]]:
    """What is to be compacted, by name, and how."""
    if (file is None) == (whose["session"] is None):
        raise click.UsageError("name a transcript FILE, or a stored session with --session")
    if file is not None:
        with _tried(file, model_name=model_name, limit=limit) as run:
            yield file.name, run
    else:
        with _stored(home, whose, model_name=model_name, limit=limit) as run:
            yield f"session {whose['session']}", run


@contextmanager
def _tried(file: Path, *, model_name: str | None, limit: int | None) -> Iterator[Run]:
    """A compaction of a transcript in a memory that is gone afterwards; the file itself is only read."""
    transcript, settings = transcripts.read(file), settings_for()
    size = limit or context_tokens(transcript.model or "")
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(folder, settings=settings, model=_model(model_name, settings), background=False) as engine,
    ):

        def run(**how: Any) -> Compaction:
            return engine.session("compact").compact(transcript.messages, limit=size, **how)

        yield run


@contextmanager
def _stored(home: Path | None, whose: dict[str, Any], *, model_name: str | None, limit: int | None) -> Iterator[Run]:
    """A compaction of an archived session, for real."""
    memory = open_memory(home)
    with Engine(memory, model=_model(model_name, memory.settings)) as engine:
        scope = session_scope(memory, **whose)
        if not memory.store.fetch(Select(kind="message", scope=scope, limit=1)):
            raise InputError(f"no message of session {whose['session']} is archived; `holdfast import` archives files")

        def run(**how: Any) -> Compaction:
            session = engine.session(scope.session, project=scope.project, agent=scope.agent)
            return session.compact(limit=limit, **how)

        yield run


def _model(name: str | None, settings: Settings) -> Model | None:
    return open_model(name, settings=settings) if name else None


# --- what is shown -------------------------------------------------------------


def _as_data(done: Compaction, *, dry_run: bool) -> dict[str, Any]:
    plan = done.plan
    return {
        **done.to_json(),
        "dryRun": dry_run,
        "ids": list(plan.ids),
        "kept": len(plan.kept),
        "tokensKept": plan.tokens_kept,
        "splitsTurn": plan.splits_turn,
        "request": plan.request,
        "readFiles": list(plan.activity.read),
        "modifiedFiles": list(plan.activity.modified),
        "failures": [str(failure) for failure in plan.activity.failures],
    }


def _print(screen: Console, name: str, done: Compaction) -> None:
    plan, summary = done.plan, done.summary
    screen.print(Styled(f"{printable(name, one_line=True)}: ", style="bold") + Styled(printable(plan.reason)))
    if plan.outcome == "ready":
        gone = sum(item.tokens for item in plan.summarised)
        split = ", the cut goes through a turn" if plan.splits_turn else ""
        screen.print(_line("−", "red", "summarised", len(plan.summarised), gone))
        screen.print(_line(" ", "dim", "kept", len(plan.kept), plan.tokens_kept) + Styled(split, style="dim"))
    _print_list(screen, "modified files", plan.activity.modified)
    _print_list(screen, "read files", plan.activity.read)
    _print_list(screen, "failures", [str(failure) for failure in plan.activity.failures], style="red")
    if summary is None:
        return
    screen.print(_line("+", "green", "summary", 1, summary.tokens))
    told = "by rule" if summary.rung == "digest" else f"rung {summary.rung}, {summary.calls} calls of the model"
    saved = f"{human_tokens(done.tokens_before)} → {human_tokens(done.tokens_after)} tokens"
    screen.print(Styled(saved, style="bold green") + Styled(f"  {told}", style="dim"))
    screen.print()
    screen.print(Styled(printable(summary.text)), soft_wrap=True)
    for warning in done.warnings:
        echo(f"note: {warning}", err=True)


def _line(sign: str, style: str, what: str, messages: int, tokens: int) -> Styled:
    count = f"{messages:,} message" if messages == 1 else f"{messages:,} messages"
    return Styled(f"{sign} {what:<11}", style=style) + Styled(f"{count:>16}  {human_tokens(tokens):>6} tokens")


def _print_list(screen: Console, title: str, found: Sequence[str], *, style: str = "") -> None:
    if not found:
        return
    screen.print(Styled(f"  {title}", style="dim"))
    for one in found[:_MOST]:
        screen.print(Styled(f"    {printable(one)}", style=style), no_wrap=True, overflow="ellipsis")
    if len(found) > _MOST:
        screen.print(Styled(f"    and {len(found) - _MOST:,} more", style="dim"))
