"""`holdfast diff`: the conversation as it was against what was sent, for one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.context import hit_line
from holdfast.cli.output import as_json, console, emit_json, human_tokens, printable
from holdfast.cli.trial import Trial, play_file, plays
from holdfast.context.edits import Block, Item
from holdfast.messages import Message, ToolCall, ToolResult
from holdfast.report import Change, ContextReport
from holdfast.tokens import count_message

__all__ = ["Entry", "compare", "diff"]

Status: TypeAlias = Literal["kept", "pruned", "trimmed", "compacted", "recalled", "summary"]
_LOOKS: Final[dict[str, tuple[str, str]]] = {
    "kept": (" ", "dim"),
    "pruned": ("~", "yellow"),
    "trimmed": ("−", "red"),
    "compacted": ("−", "red"),
    "recalled": ("+", "magenta"),
    "summary": ("+", "green"),
}
_WORDS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message of the conversation, or something that was put into it, and what became of it.

    Attributes:
        id: Its number in the archive; 0 for what was put in.
        role: Who speaks.
        status: What became of it.
        tokens_before: What it costs in the conversation.
        tokens_after: What it costs in the window.
        turn: The request in which that was decided.
        reason: Why.
        text: Its first words, as they were.
        sent: What is sent in their place, where that is something else.
    """

    id: int
    role: str
    status: Status
    tokens_before: int
    tokens_after: int
    turn: int = 0
    reason: str = ""
    text: str = ""
    sent: str = ""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@plays
@click.option("--full", is_flag=True, help="Show every message that was kept, too.")
@as_json
def diff(*, file: Path, full: bool, as_json: bool, **options: Any) -> None:
    """Compare the transcript FILE with what is sent for one of its requests: kept, pruned, trimmed, recalled."""
    with play_file(file, **options) as trial:
        entries = compare(trial)
        if as_json:
            emit_json(_as_data(trial, entries))
            return
        _print(console(), trial, entries, full=full)


# --- what became of each message -------------------------------------------------


def compare(trial: Trial) -> list[Entry]:
    """Every message in the order of the conversation, and what was put between them."""
    gone = _last_changes(trial.reports, {"trimmed", "compacted"})
    pruned = _last_changes(trial.reports, {"pruned"})
    window = {item.id: item for item in trial.window.items if item.id}
    originals = {row.id: row.message for row in _archived(trial, {*gone, *pruned} - {0})}
    entries: list[tuple[float, Entry]] = []
    for number, message in originals.items():
        if number not in window and number in gone:
            turn, change = gone[number]
            entries.append((number, _left(number, message, turn, change)))
    place = 0.0
    for item in trial.window.items:
        place = float(item.id) if item.id else place + 0.25
        entries += ((place + 0.1 * index, entry) for index, entry in enumerate(_stays(item, pruned, originals, trial)))
    return [entry for _, entry in sorted(entries, key=lambda found: found[0])]


def _last_changes(reports: Sequence[ContextReport], kinds: set[str]) -> dict[int, tuple[int, Change]]:
    """For each message the last change of these kinds, and the request that made it."""
    return {
        number: (report.turn, change)
        for report in reports
        for change in report.changes
        if change.kind in kinds
        for number in change.ids
    }


def _archived(trial: Trial, numbers: set[int]) -> list[Any]:
    return trial.engine.session(trial.session).get(sorted(numbers)) if numbers else []


def _left(number: int, message: Message, turn: int, change: Change) -> Entry:
    status: Status = "compacted" if change.kind == "compacted" else "trimmed"
    return Entry(
        id=number,
        role=message.role,
        status=status,
        tokens_before=count_message(message),
        tokens_after=0,
        turn=turn,
        reason=change.reason,
        text=_words(message),
    )


def _stays(
    item: Item, pruned: dict[int, tuple[int, Change]], originals: dict[int, Message], trial: Trial
) -> Iterator[Entry]:
    kept = Entry(
        id=item.id,
        role=item.message.role,
        status="kept",
        tokens_before=item.tokens,
        tokens_after=item.tokens,
        text=_words(item.message),
    )
    if item.kind in {"recall", "summary"}:
        status: Status = "summary" if item.kind == "summary" else "recalled"
        yield replace(kept, status=status, tokens_before=0)
    elif item.id in pruned and item.id in originals:
        turn, change = pruned[item.id]
        whole = originals[item.id]
        yield replace(
            kept,
            status="pruned",
            tokens_before=count_message(whole),
            turn=turn,
            reason=change.reason,
            text=_words(whole),
            sent=_words(item.message),
        )
    else:
        yield kept
    if item.block:
        yield _block(item.block, trial.reports)


def _block(block: Block, reports: Sequence[ContextReport]) -> Entry:
    return Entry(
        id=0,
        role="recall",
        status="recalled",
        tokens_before=0,
        tokens_after=block.tokens,
        turn=_recalled_in(reports, block.tokens),
        text=" ".join(block.text.split())[:_WORDS],
    )


def _recalled_in(reports: Sequence[ContextReport], cost: int) -> int:
    """The request in which a block of this size was placed last."""
    found = (
        report.turn
        for report in reversed(reports)
        if any(change.kind == "recalled" and change.tokens_after == cost for change in report.changes)
    )
    return next(found, 0)


def _words(message: Message) -> str:
    """The first words of a message, whoever speaks."""
    said: list[str] = []
    for part in message.parts:
        match part:
            case ToolCall():
                said.append(f"→ {part.name} {part.arguments}")
            case ToolResult():
                said.append(part.text)
            case _:
                said.append(str(getattr(part, "text", "")))
    return " ".join(" ".join(said).split())[:_WORDS]


# --- for programs and people -------------------------------------------------------


def _as_data(trial: Trial, entries: Sequence[Entry]) -> dict[str, Any]:
    report = trial.window.report
    return {
        "turn": report.turn,
        "limit": report.raw_max_tokens,
        "before": {"messages": len(trial.given), "tokens": sum(entry.tokens_before for entry in entries)},
        "after": {"messages": len(trial.window.items), "tokens": report.total_tokens},
        "kinds": {kind: sum(entry.status == kind for entry in entries) for kind in _LOOKS},
        "entries": [asdict(entry) for entry in entries],
        "recalled": [asdict(hit) for hit in report.recalled],
        "recall_reason": report.recall_reason,
    }


def _print(screen: Console, trial: Trial, entries: Sequence[Entry], *, full: bool) -> None:
    data = _as_data(trial, entries)
    before, after = data["before"], data["after"]
    screen.print(
        f"request {data['turn']} in {human_tokens(data['limit'])} tokens:"
        f" {before['messages']:,} messages, {human_tokens(before['tokens'])}"
        f" → {after['messages']:,} messages, {human_tokens(after['tokens'])}"
    )
    counts = Styled()
    for kind, (sign, colour) in _LOOKS.items():
        if data["kinds"][kind]:
            counts.append(f"{sign} {data['kinds'][kind]} {kind}  ".lstrip(), style=colour)
    screen.print(counts)
    screen.print()
    for status, together in groupby(entries, key=lambda entry: (entry.status, entry.turn, entry.reason)):
        _print_run(screen, status[0], list(together), full=full)
    for hit in trial.window.report.recalled:
        screen.print(hit_line(hit), no_wrap=True, overflow="ellipsis")


def _print_run(screen: Console, status: str, run: Sequence[Entry], *, full: bool) -> None:
    """Messages in a row with the same fate: what was kept in one line, everything else message by message."""
    sign, colour = _LOOKS[status]
    if status == "kept" and not full and len(run) > 2:
        cost = human_tokens(sum(entry.tokens_after for entry in run))
        screen.print(Styled(f"  … {len(run)} messages kept, {cost} tokens", style="dim"))
        return
    if run[0].reason:
        saved = human_tokens(sum(entry.tokens_before - entry.tokens_after for entry in run))
        words = f"{sign} {status} in request {run[0].turn}: {run[0].reason} ({saved} tokens)"
        screen.print(Styled(words, style=f"bold {colour}"))
    for entry in run:
        screen.print(_line(entry), no_wrap=True, overflow="ellipsis")
        if entry.sent:
            screen.print(Styled(f"      sent: {printable(entry.sent)}", style="dim"), no_wrap=True, overflow="ellipsis")


def _line(entry: Entry) -> Styled:
    sign, colour = _LOOKS[entry.status]
    cost = human_tokens(entry.tokens_before)
    if entry.tokens_after != entry.tokens_before:
        cost = f"{cost}→{human_tokens(entry.tokens_after)}"
    number = f"#{entry.id}" if entry.id else ""
    line = Styled(f"{sign} {number:>6} {entry.role:<9} {cost:>10}  ", style=colour)
    return line.append(printable(entry.text), style="default" if entry.status != "kept" else "dim")
