"""`holdfast compact`: preview a compaction of a file, or compact a stored session."""

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
from holdfast.cli.console import open_console
from holdfast.cli.opening import open_memory, opens_memory, session_scope
from holdfast.cli.output import as_json, echo, emit_json, human_tokens, printable
from holdfast.cli.replay import make_settings
from holdfast.compact import Compaction
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.models import open_model
from holdfast.models.base import Model
from holdfast.providers.models import context_tokens
from holdfast.settings import Settings
from holdfast.store.base import Select

__all__ = ["compact"]

_MAX_LISTED: Final = 12
"""The maximum number of files and failures that are listed; the rest is counted."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--instructions", metavar="TEXT", help="Further instructions for the summary.")
@click.option("--dry-run", is_flag=True, help="Only show what would be summarised and kept.")
@click.option(
    "--model", "model_name", metavar="NAME", help="The model that summarises; default none: a digest by rule."
)
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
    """Preview a compaction of the transcript FILE, or compact a stored --session."""
    spinner = Console(stderr=True).status("compacting ...")
    with _open_subject(file, home=home, whose=whose, model_name=model_name, limit=limit) as (name, run), spinner:
        result = run(dry_run=dry_run, instructions=instructions)
    if as_json:
        emit_json(_to_json(result, dry_run=dry_run))
        return
    _print(open_console(), name, result)


Run = Callable[..., Compaction]


@contextmanager
def _open_subject(
    file: Path | None, *, home: Path | None, whose: dict[str, Any], model_name: str | None, limit: int | None
) -> Iterator[tuple[str, Run]]:
    """Yield the name of what is compacted, and a function that compacts it."""
    if (file is None) == (whose["session"] is None):
        raise click.UsageError("name a transcript FILE, or a stored session with --session")
    if file is not None:
        with _open_file(file, model_name=model_name, limit=limit) as run:
            yield file.name, run
    else:
        with _open_stored(home, whose, model_name=model_name, limit=limit) as run:
            yield f"session {whose['session']}", run


@contextmanager
def _open_file(file: Path, *, model_name: str | None, limit: int | None) -> Iterator[Run]:
    """Yield a function that compacts a transcript in a temporary memory; the file is only read."""
    transcript, settings = transcripts.read(file), make_settings()
    size = limit or context_tokens(transcript.model or "")
    with (
        tempfile.TemporaryDirectory() as folder,
        Engine.open(folder, settings=settings, model=_open_model(model_name, settings), background=False) as engine,
    ):

        def run(**how: Any) -> Compaction:
            return engine.session("compact").compact(transcript.messages, limit=size, **how)

        yield run


@contextmanager
def _open_stored(
    home: Path | None, whose: dict[str, Any], *, model_name: str | None, limit: int | None
) -> Iterator[Run]:
    """Yield a function that compacts an archived session."""
    memory = open_memory(home)
    with Engine(memory, model=_open_model(model_name, memory.settings)) as engine:
        scope = session_scope(memory, **whose)
        if not memory.store.read_messages(Select(scope=scope, limit=1)):
            raise InputError(f"no message of session {whose['session']} is archived; `holdfast import` archives files")

        def run(**how: Any) -> Compaction:
            session = engine.session(scope.session, project=scope.project, agent=scope.agent)
            return session.compact(limit=limit, **how)

        yield run


def _open_model(name: str | None, settings: Settings) -> Model | None:
    return open_model(name, settings=settings) if name else None


# --- output ----------------------------------------------------------------------


def _to_json(result: Compaction, *, dry_run: bool) -> dict[str, Any]:
    plan = result.plan
    return {
        **result.to_json(),
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


def _print(screen: Console, name: str, result: Compaction) -> None:
    plan, summary = result.plan, result.summary
    screen.print(Styled(f"{printable(name, one_line=True)}: ", style="bold") + Styled(printable(plan.reason)))
    if plan.outcome == "ready":
        summarised = sum(item.tokens for item in plan.summarised)
        split = ", the cut goes through a turn" if plan.splits_turn else ""
        screen.print(_format_line("−", "red", "summarised", len(plan.summarised), summarised))
        screen.print(_format_line(" ", "dim", "kept", len(plan.kept), plan.tokens_kept) + Styled(split, style="dim"))
    _print_list(screen, "modified files", plan.activity.modified)
    _print_list(screen, "read files", plan.activity.read)
    _print_list(screen, "failures", [str(failure) for failure in plan.activity.failures], style="red")
    if summary is None:
        return
    screen.print(_format_line("+", "green", "summary", 1, summary.tokens))
    origin = "by rule" if summary.rung == "digest" else f"rung {summary.rung}, {summary.calls} model calls"
    saved = f"{human_tokens(result.tokens_before)} → {human_tokens(result.tokens_after)} tokens"
    screen.print(Styled(saved, style="bold green") + Styled(f"  {origin}", style="dim"))
    screen.print()
    screen.print(Styled(printable(summary.text)), soft_wrap=True)
    for warning in result.warnings:
        echo(f"note: {warning}", err=True)


def _format_line(sign: str, style: str, what: str, messages: int, tokens: int) -> Styled:
    count = f"{messages:,} message" if messages == 1 else f"{messages:,} messages"
    return Styled(f"{sign} {what:<11}", style=style) + Styled(f"{count:>16}  {human_tokens(tokens):>6} tokens")


def _print_list(screen: Console, title: str, items: Sequence[str], *, style: str = "") -> None:
    if not items:
        return
    screen.print(Styled(f"  {title}", style="dim"))
    for one in items[:_MAX_LISTED]:
        screen.print(Styled(f"    {printable(one)}", style=style), no_wrap=True, overflow="ellipsis")
    if len(items) > _MAX_LISTED:
        screen.print(Styled(f"    and {len(items) - _MAX_LISTED:,} more", style="dim"))
