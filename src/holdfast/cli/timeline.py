"""`holdfast timeline`: list the requests of a session, one per line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.charts import MAX_WIDTH, Point, draw_chart
from holdfast.cli.console import open_console
from holdfast.cli.opening import no_requests, open_memory, owner_of, session_scope
from holdfast.cli.output import emit_json, join_counts
from holdfast.errors import InputError
from holdfast.store.base import Select
from holdfast.text import plural, printable, shorten_number

Turn = Mapping[str, Any]
_CUTS: Final = frozenset({"trimmed", "compacted"})
_BAR_WIDTH: Final = 16
_NARROW: Final = 100
"""In a terminal with fewer columns the bars have half the width: what happened needs the rest of the line."""


def print_timeline(
    *,
    file: Path | None,
    limit: int | None,
    reserve: int | None,
    last: int | None,
    home: Path | None,
    session: str,
    as_json: bool,
    **whose: Any,
) -> None:
    """Print the requests of a file or of a stored session."""
    if file is not None:
        from holdfast.cli.replay import replay_file  # noqa: PLC0415 - a stored session is shown without the engine

        with replay_file(file, limit=limit, reserve=reserve) as replayed:
            turns: list[Turn] = [report.to_json() for report in replayed.reports]
    else:
        with open_memory(home) as memory:
            scope = session_scope(memory, session=session, **whose)
            stored = memory.store.read_records(Select(scope=scope), kind="turn")
            if not stored:
                raise no_requests(memory, scope)
            turns = [dict(record.data) | owner_of(scope) for record in stored]
    if not turns:
        raise InputError(f"{file} has no request: no message of the user is in it")
    shown = turns[-last:] if last else turns
    if as_json:
        emit_json([{**turn, **_sum_changes(turn)} for turn in shown])
        return
    _print(open_console(), shown)


def _sum_changes(turn: Turn) -> dict[str, Any]:
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
    sums = map(_sum_changes, turns)
    points = [
        Point(tokens=turn["total_tokens"], cut=total["is_cut"], recalled=total["recalled_tokens"] > 0)
        for turn, total in zip(turns, sums, strict=True)
    ]
    buffers = (sum(part["tokens"] for part in turn["categories"] if part["kind"] == "buffer") for turn in turns)
    top = max(turn["raw_max_tokens"] - buffer for turn, buffer in zip(turns, buffers, strict=True))
    screen.print(draw_chart(points, ceiling=top, width=min(MAX_WIDTH, screen.width - 2), height=6))
    screen.print()
    bar_width = _BAR_WIDTH
    if screen.width < _NARROW:
        bar_width //= 2
    screen.print(Styled(f" turn  tokens  full  {'':<{bar_width}}  prefix  what happened", style="dim"))
    for turn in turns:
        full = turn["percentage"] / 100
        filled = max(0, min(bar_width, round(full * bar_width)))
        kept = "" if turn["prefix_kept"] is None else f"{turn['prefix_kept']:.0%}"
        line = Styled(f"{turn['turn']:>5}  {shorten_number(turn['total_tokens']):>6}  {full:>4.0%}  ")
        line.append("█" * filled, style="red" if full > 0.9 else "cyan")
        line.append("░" * (bar_width - filled), style="dim")
        line.append(f"  {kept:>6}  ", style="default" if kept in {"", "100%"} else "yellow")
        screen.print(line.append_text(_describe_changes(turn)), no_wrap=True, overflow="ellipsis")


def _describe_changes(turn: Turn) -> Styled:
    sums, text = _sum_changes(turn), Styled()
    if sums["is_cut"]:
        what = "earlier blocks"  # a cut may remove only what was recalled before
        if sums["cut_messages"]:
            what = plural(sums["cut_messages"], "message")
        text.append(f"▼ {what}, {shorten_number(sums['cut_tokens'])} tokens  ", style="red")
    if sums["pruned_results"]:
        text.append(f"~ {plural(sums['pruned_results'], 'result')}  ", style="yellow")
    if sums["recalled_tokens"]:
        counts = join_counts(fact=len(turn["recalled_facts"]), passage=len(turn["recalled"]))
        what = counts or "past sessions"  # a block has nothing else, and a report does not count them
        text.append(f"◆ {what}, {shorten_number(sums['recalled_tokens'])} tokens  ", style="magenta")
    for warning in turn["warnings"]:
        text.append(f"! {printable(warning)}  ", style="bold yellow")
    return text
