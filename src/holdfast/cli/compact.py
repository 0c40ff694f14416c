"""`holdfast compact`: preview a compaction of a file, or compact a stored session."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text as Styled

from holdfast import transcripts
from holdfast.cli.console import open_console
from holdfast.cli.opening import open_memory, open_model, session_scope
from holdfast.cli.output import echo, emit_json
from holdfast.cli.replay import make_settings
from holdfast.compaction.run import Compaction
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.providers.models import context_tokens
from holdfast.store.base import Select
from holdfast.text import plural, printable, shorten_number

_MAX_LISTED: Final = 12
"""The maximum number of files and failures that are listed; the rest is counted."""


def compact_conversation(
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
    """Preview a compaction of a file, or compact a stored session."""
    with ExitStack() as stack:
        if file is not None:  # in a temporary memory; the file is only read
            transcript, settings = transcripts.read(file), make_settings()
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            model = open_model(model_name, settings)
            engine = stack.enter_context(Engine.open(folder, settings=settings, model=model, background=False))
            name, session, messages = file.name, engine.session("compact"), transcript.messages
            limit = limit or context_tokens(transcript.model or "")
        else:
            memory = open_memory(home)
            engine = stack.enter_context(Engine(memory, model=open_model(model_name, memory.settings)))
            scope = session_scope(memory, **whose)
            name, messages = f"session {scope.session}", None
            if not memory.store.read_messages(Select(scope=scope, limit=1)):
                raise InputError(f"no message of {name} is archived; `holdfast import` archives files")
            session = engine._open_session(scope)
        stack.enter_context(Console(stderr=True).status("compacting ..."))
        result = session.compact(messages, limit=limit, dry_run=dry_run, instructions=instructions)
    if not as_json:
        _print(open_console(), name, result)
        return
    plan = result.plan
    emit_json(
        {
            **result.to_json(),
            "dry_run": dry_run,
            "ids": list(plan.ids),
            "kept": len(plan.kept),
            "tokens_kept": plan.tokens_kept,
            "splits_turn": plan.splits_turn,
            "request": plan.request,
            "read_files": list(plan.activity.read),
            "modified_files": list(plan.activity.modified),
            "failures": [str(failure) for failure in plan.activity.failures],
        }
    )


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
    saved = f"{shorten_number(result.tokens_before)} → {shorten_number(result.tokens_after)} tokens"
    screen.print(Styled(saved, style="bold green") + Styled(f"  {origin}", style="dim"))
    screen.print()
    screen.print(Styled(printable(summary.text)), soft_wrap=True)
    for warning in result.warnings:
        echo(f"warning: {warning}", err=True)


def _format_line(sign: str, style: str, what: str, messages: int, tokens: int) -> Styled:
    count = plural(messages, "message")
    return Styled(f"{sign} {what:<11}", style=style) + Styled(f"{count:>16}  {shorten_number(tokens):>6} tokens")


def _print_list(screen: Console, title: str, items: Sequence[str], *, style: str = "") -> None:
    if not items:
        return
    screen.print(Styled(f"  {title}", style="dim"))
    for one in items[:_MAX_LISTED]:
        screen.print(Styled(f"    {printable(one)}", style=style), no_wrap=True, overflow="ellipsis")
    if len(items) > _MAX_LISTED:
        screen.print(Styled(f"    and {len(items) - _MAX_LISTED:,} more", style="dim"))
