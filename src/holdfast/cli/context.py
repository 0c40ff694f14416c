"""`holdfast context`: what is in the window of a request, drawn as a grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.grid import LOOKS, cells, draw, legend, rows_as_data
from holdfast.cli.opening import open_memory, owner_of, session_scope
from holdfast.cli.output import as_json, console, emit_json, human_time, human_tokens, printable
from holdfast.cli.plot import plural
from holdfast.cli.trial import Trial, play_file, plays
from holdfast.engine import Engine
from holdfast.errors import InputError
from holdfast.memory.recall import Hit
from holdfast.report import Change, ContextReport, breakdown

__all__ = ["context", "hit_line", "print_changes", "print_window"]

_WIDE, _NARROW, _ROWS = 20, 10, 10
_PARTS: Final = ("keyword", "vector", "neighbours", "session", "date", "decay")
_SIGNS: Final = {
    "trimmed": ("−", "red"),
    "compacted": ("−", "red"),
    "pruned": ("~", "yellow"),
    "recalled": ("+", "magenta"),
}


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@plays
@click.option("--session", help="Instead of a FILE: a stored session.")
@click.option("--project", default=None, help="The project of the stored session, where several have its name.")
@click.option("--agent", default=None, help="The agent of the stored session, where several have its name.")
@as_json
def context(
    *, file: Path | None, session: str | None, project: str | None, agent: str | None, as_json: bool, **options: Any
) -> None:
    """Draw the window of a request of the transcript FILE, or of a stored session (--session)."""
    if file is not None:
        with play_file(file, **options) as trial:
            reports = [*trial.reports[:-1], trial.report]
            title = trial.transcript.title or file.name
            more = _played(trial)
    elif session:
        reports, more = _stored(options["home"], options["turn"], session=session, project=project, agent=agent)
        title = session
    else:
        raise click.UsageError("name a transcript FILE, or a stored session with --session")
    if as_json:
        emit_json(_as_data(reports) | more)
        return
    _print(console(), title, reports)


def _stored(
    home: Path | None, turn: int | None, *, session: str, **whose: str | None
) -> tuple[list[ContextReport], dict[str, Any]]:
    """The reports of a stored session, up to a request, and whose it is."""
    with Engine(open_memory(home)) as engine:
        scope = session_scope(engine.memory, session=session, project=whose["project"], agent=whose["agent"])
        reports = engine.session(scope.session, project=scope.project, agent=scope.agent).timeline()
    found = [report for report in reports if turn is None or report.turn <= turn]
    if not found or (turn is not None and found[-1].turn != turn):
        raise InputError(f"session {session} has {len(reports)} stored requests{f', not {turn}' if turn else ''}")
    return found, dict(owner_of(scope))


def _as_data(reports: Sequence[ContextReport]) -> dict[str, Any]:
    report = reports[-1]
    found = cells(report.categories, count=_WIDE * _ROWS)
    return {
        **report.to_json(),
        **report.usage(),
        "categories": [asdict(part) | {"color": LOOKS[part.name].colour} for part in report.categories],
        "gridRows": rows_as_data(found, report.categories, columns=_WIDE),
        "apiUsage": None,
        "so_far": _so_far(reports),
    }


def _played(trial: Trial) -> dict[str, Any]:
    """What only the window itself can tell."""
    spoken = breakdown(trial.window.items)
    return {
        "isAutoCompactEnabled": trial.engine.settings.compaction.enabled,
        "messageBreakdown": {
            "userMessageTokens": spoken.user,
            "assistantMessageTokens": spoken.assistant,
            "toolCallTokens": spoken.tool_calls,
            "toolResultTokens": spoken.tool_results,
            "attachmentTokens": 0,
            "toolCallsByType": _by_tool(spoken.calls_by_tool, spoken.results_by_tool),
        },
    }


def _by_tool(calls: Any, results: Any) -> list[dict[str, Any]]:
    return [
        {"name": name, "callTokens": calls.get(name, 0), "resultTokens": results.get(name, 0)}
        for name in dict.fromkeys([*calls, *results])
    ]


def _so_far(reports: Sequence[ContextReport]) -> dict[str, int]:
    """What all requests up to this one did."""
    changes = [change for report in reports for change in report.changes]
    trimmed = [change for change in changes if change.kind in {"trimmed", "compacted"}]
    return {
        "requests": len(reports),
        "cuts": len(trimmed),
        "messages_cut": sum(len(change.ids) for change in trimmed),
        "tokens_cut": sum(change.tokens_before - change.tokens_after for change in trimmed),
        "results_pruned": sum(change.kind == "pruned" for change in changes),
        "blocks": sum(change.kind == "recalled" for change in changes),
    }


# --- for people ----------------------------------------------------------------


def _print(screen: Console, title: str, reports: Sequence[ContextReport]) -> None:
    report = reports[-1]
    head = Styled(printable(title, one_line=True), style="bold")
    head.append(printable(f"  request {report.turn}  {report.model or ''}", one_line=True), style="dim")
    screen.print(head)
    print_window(screen, report)
    screen.print()
    _print_so_far(screen, reports)
    print_changes(screen, report)


def print_window(screen: Console, report: ContextReport) -> None:
    """How full a window is, the grid with its legend, and the files in its prompt."""
    full = f"{human_tokens(report.total_tokens)} of {human_tokens(report.raw_max_tokens)} tokens ({report.percentage}%)"
    screen.print(full)
    if report.token_scale > 1:
        why = "reported more than was estimated" if report.is_calibrated else "has not reported usage yet"
        screen.print(Styled(f"{report.token_scale - 1:.0%} is kept free: the provider {why}.", style="dim"))
    screen.print()
    for line in _picture(report, screen.width):
        screen.print(line)
    for file in report.files:
        screen.print(Styled(f"  {printable(file.path, one_line=True)}  {human_tokens(file.tokens)}", style="dim"))


def _picture(report: ContextReport, width: int) -> Iterator[Styled]:
    """The grid with its legend beside it, or below it where the screen is narrow."""
    columns = _WIDE if width >= 80 else _NARROW
    drawn = draw(cells(report.categories, count=columns * _ROWS), columns=columns)
    words = legend(report.categories, total=report.raw_max_tokens)
    if width < columns * 2 + 36:
        yield from drawn
        yield Styled()
        yield from words
        return
    for index, line in enumerate(drawn):
        yield line.append("  ") + (words[index] if index < len(words) else Styled())


def _print_so_far(screen: Console, reports: Sequence[ContextReport]) -> None:
    done = _so_far(reports)
    cuts, blocks = plural(done["cuts"], "cut"), plural(done["blocks"], "block")
    words = (
        f"So far {cuts} took out {plural(done['messages_cut'], 'message')} ({human_tokens(done['tokens_cut'])} tokens),"
        f" {plural(done['results_pruned'], 'result')} shortened, {blocks} recalled. All of it is in the archive."
    )
    screen.print(Styled(words, style="dim"))


def print_changes(screen: Console, report: ContextReport) -> None:
    """What was done in this request and why: cuts, prunings, and what was recalled with its scores."""
    if not report.changes:
        screen.print("This request: nothing changed, nothing recalled.")
    for change in report.changes:
        screen.print(_change_line(change))
    for hit in report.recalled if any(change.kind == "recalled" for change in report.changes) else ():
        screen.print(hit_line(hit), no_wrap=True, overflow="ellipsis")
    if report.recall_reason:
        screen.print(Styled(f"No block: {report.recall_reason}", style="dim"))
    for words, more in _by_rule(report.repairs):
        often = f", and {more} more like it" if more else ""
        screen.print(Styled(f"mended for the provider: {printable(words)}{often}", style="dim"))
    for words in report.warnings:
        screen.print(Styled(f"! {printable(words)}", style="bold yellow"))


def _by_rule(repairs: Sequence[str]) -> Iterator[tuple[str, int]]:
    """The first repair by each rule, which stands at its end, and how many more there are."""
    rules = [words.rpartition(" (")[2] for words in repairs]
    for rule, times in Counter(rules).items():
        yield repairs[rules.index(rule)], times - 1


def _change_line(change: Change) -> Styled:
    sign, colour = _SIGNS.get(change.kind, ("·", "default"))
    line = Styled(f"{sign} {change.kind}", style=f"bold {colour}")
    what = plural(len(change.ids), "message") if change.ids else "earlier blocks"
    line.append(f" {'from ' if change.kind == 'recalled' else ''}{what}")
    line.append(f", {human_tokens(change.tokens_before)} → {human_tokens(change.tokens_after)} tokens")
    return line.append(f": {change.reason}", style="dim")


def hit_line(hit: Hit) -> Styled:
    """A recalled passage in one line: its score, what that is made of, and its first words."""
    parts = asdict(hit.parts)
    made = " ".join(f"{name} {parts[name]:.2f}" for name in _PARTS if parts[name] and parts[name] != 1.0)
    line = Styled(f"    {hit.score:.2f} ", style="magenta").append(f"[{made}] ", style="dim")
    line.append(f"{human_time(hit.time)} {printable(hit.speaker, one_line=True)} ", style="dim")
    return line.append(" ".join(printable(hit.text).split())[:200])
