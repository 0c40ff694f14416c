"""`holdfast timeline`: every request of a session in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.live import WIDEST
from holdfast.cli.opening import open_memory, opens_memory, owner_of, session_scope
from holdfast.cli.output import as_json, console, emit_json, human_tokens, printable
from holdfast.cli.plot import Point, chart, plural
from holdfast.cli.trial import play_file
from holdfast.engine import Engine
from holdfast.errors import InputError

__all__ = ["timeline"]

Turn = Mapping[str, Any]
_CUTS: Final = frozenset({"trimmed", "compacted"})
_BAR: Final = 16


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--limit", type=click.IntRange(min=1000), help="Of a FILE: tokens of the window; default the model's.")
@click.option("--reserve", type=click.IntRange(min=0), help="Of a FILE: tokens kept for the reply, at most a quarter.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the last N requests.")
@opens_memory
@as_json
def timeline(
    *,
    file: Path | None,
    limit: int | None,
    reserve: int | None,
    last: int | None,
    home: Path | None,
    project: str | None,
    agent: str | None,
    session: str | None,
    as_json: bool,
) -> None:
    """Show the requests of a stored --session or of the transcript FILE: tokens, cuts, recalls, warnings."""
    if file is not None:
        with play_file(file, limit=limit, reserve=reserve) as trial:
            turns: list[Turn] = [report.to_json() for report in trial.reports]
    elif session:
        with Engine(open_memory(home)) as engine:
            scope = session_scope(engine.memory, session=session, project=project, agent=agent)
            stored = engine.session(scope.session, project=scope.project, agent=scope.agent).timeline()
            turns = [report.to_json() | owner_of(scope) for report in stored]
    else:
        raise click.UsageError("name a transcript FILE, or a stored session with --session")
    if not turns:
        raise InputError(
            f"no request of session {session or file} is known; `holdfast sessions --discover` lists transcripts"
        )
    shown = turns[-last:] if last else turns
    if as_json:
        emit_json([{**turn, **_sums(turn)} for turn in shown])
        return
    _print(console(), shown)


def _sums(turn: Turn) -> dict[str, Any]:
    """What a line shows of the changes of a request."""
    changes = turn["changes"]
    cut = [change for change in changes if change["kind"] in _CUTS]
    return {
        "cut_messages": sum(len(change["ids"]) for change in cut),
        "cut_tokens": sum(change["tokens_before"] - change["tokens_after"] for change in cut),
        "pruned_results": sum(change["kind"] == "pruned" for change in changes),
        "recalled_tokens": sum(change["tokens_after"] for change in changes if change["kind"] == "recalled"),
        "is_cut": bool(cut),
    }


def _print(screen: Console, turns: Sequence[Turn]) -> None:
    points = [_point(turn) for turn in turns]
    top = max(_room(turn) for turn in turns)
    screen.print(chart(points, ceiling=top, width=min(WIDEST, screen.width - 2), height=6))
    screen.print()
    screen.print(Styled(f" turn  tokens  full  {'':<{_BAR}}  prefix  what happened", style="dim"))
    for turn in turns:
        screen.print(_line(turn), no_wrap=True, overflow="ellipsis")


def _room(turn: Turn) -> int:
    held = sum(part["tokens"] for part in turn["categories"] if part["kind"] == "buffer")
    return int(turn["raw_max_tokens"] - held)


def _point(turn: Turn) -> Point:
    sums = _sums(turn)
    return Point(tokens=turn["total_tokens"], cut=sums["is_cut"], recalled=sums["recalled_tokens"] > 0)


def _line(turn: Turn) -> Styled:
    full = turn["percentage"] / 100
    filled = max(0, min(_BAR, round(full * _BAR)))
    kept = "" if turn["prefix_kept"] is None else f"{turn['prefix_kept']:.0%}"
    line = Styled(f"{turn['turn']:>5}  {human_tokens(turn['total_tokens']):>6}  {full:>4.0%}  ")
    line.append("█" * filled, style="red" if full > 0.9 else "cyan").append("░" * (_BAR - filled), style="dim")
    line.append(f"  {kept:>6}  ", style="default" if kept in {"", "100%"} else "yellow")
    return line.append_text(_happened(turn))


def _happened(turn: Turn) -> Styled:
    sums, words = _sums(turn), Styled()
    if sums["is_cut"]:
        words.append(
            f"▼ {plural(sums['cut_messages'], 'message')}, {human_tokens(sums['cut_tokens'])} tokens  ", style="red"
        )
    if sums["pruned_results"]:
        words.append(f"~ {plural(sums['pruned_results'], 'result')}  ", style="yellow")
    if sums["recalled_tokens"]:
        found = plural(len(turn["recalled"]), "passage")
        words.append(f"◆ {found}, {human_tokens(sums['recalled_tokens'])} tokens  ", style="magenta")
    for warning in turn["warnings"]:
        words.append(f"! {printable(warning)}  ", style="bold yellow")
    return words
