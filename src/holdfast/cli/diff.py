"""`holdfast diff`: compare a conversation with the window of one of its requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.console import open_console
from holdfast.cli.context import format_hit
from holdfast.cli.output import as_json, emit_json, human_tokens, printable
from holdfast.cli.replay import Replay, replay_file, replay_options
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
_MAX_TEXT_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message of the conversation, or an insertion, and its status in the window.

    Attributes:
        id: Its number in the archive; 0 for an insertion.
        role: The role of the message.
        status: Whether it was kept, changed, removed or inserted.
        tokens_before: Its tokens in the conversation.
        tokens_after: Its tokens in the window.
        turn: The request that changed it.
        reason: The reason of the change.
        text: The beginning of its original text.
        sent: The beginning of the text in the window, where it differs.
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
@replay_options
@click.option("--full", is_flag=True, help="Show every message that was kept, too.")
@as_json
def diff(*, file: Path, full: bool, as_json: bool, **options: Any) -> None:
    """Compare the transcript FILE with what is sent for one of its requests: kept, pruned, trimmed, recalled."""
    with replay_file(file, **options) as replayed:
        entries = compare(replayed)
        if as_json:
            emit_json(_to_json(replayed, entries))
            return
        _print(open_console(), replayed, entries, full=full)


# --- the comparison ----------------------------------------------------------------


def compare(replayed: Replay) -> list[Entry]:
    """Return every message in the order of the conversation, with the insertions between them."""
    removed = _find_last_changes(replayed.reports, {"trimmed", "compacted"})
    pruned = _find_last_changes(replayed.reports, {"pruned"})
    window = {item.id: item for item in replayed.window.items if item.id}
    numbers = sorted({*removed, *pruned} - {0})
    rows = replayed.engine.session(replayed.session).get(numbers) if numbers else []
    originals = {row.id: row.message for row in rows}
    entries: list[tuple[float, Entry]] = [
        (number, _make_removed_entry(number, message, *removed[number]))
        for number, message in originals.items()
        if number not in window and number in removed
    ]
    place = 0.0
    for item in replayed.window.items:
        place = float(item.id) if item.id else place + 0.25
        in_window = _make_entries(item, pruned, originals, replayed.reports)
        entries += ((place + 0.1 * index, entry) for index, entry in enumerate(in_window))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _make_removed_entry(number: int, message: Message, turn: int, change: Change) -> Entry:
    return Entry(
        id=number,
        role=message.role,
        status="compacted" if change.kind == "compacted" else "trimmed",
        tokens_before=count_message(message),
        tokens_after=0,
        turn=turn,
        reason=change.reason,
        text=_excerpt(message),
    )


def _find_last_changes(reports: Sequence[ContextReport], kinds: set[str]) -> dict[int, tuple[int, Change]]:
    """Return the last change of these kinds for each message, with the request that made it."""
    return {
        number: (report.turn, change)
        for report in reports
        for change in report.changes
        if change.kind in kinds
        for number in change.ids
    }


def _make_entries(
    item: Item,
    pruned: dict[int, tuple[int, Change]],
    originals: dict[int, Message],
    reports: Sequence[ContextReport],
) -> Iterator[Entry]:
    kept = Entry(
        id=item.id,
        role=item.message.role,
        status="kept",
        tokens_before=item.tokens,
        tokens_after=item.tokens,
        text=_excerpt(item.message),
    )
    if item.kind in {"recall", "summary"}:
        status: Status = "summary" if item.kind == "summary" else "recalled"
        yield replace(kept, status=status, tokens_before=0)
    elif item.id in pruned and item.id in originals:
        turn, change = pruned[item.id]
        original = originals[item.id]
        yield replace(
            kept,
            status="pruned",
            tokens_before=count_message(original),
            turn=turn,
            reason=change.reason,
            text=_excerpt(original),
            sent=_excerpt(item.message),
        )
    else:
        yield kept
    if item.block:
        yield _make_block_entry(item.block, reports)


def _make_block_entry(block: Block, reports: Sequence[ContextReport]) -> Entry:
    placed = (  # the last request that placed a block of this size
        report.turn
        for report in reversed(reports)
        if any(change.kind == "recalled" and change.tokens_after == block.tokens for change in report.changes)
    )
    return Entry(
        id=0,
        role="recall",
        status="recalled",
        tokens_before=0,
        tokens_after=block.tokens,
        turn=next(placed, 0),
        text=" ".join(block.text.split())[:_MAX_TEXT_CHARS],
    )


def _excerpt(message: Message) -> str:
    """Return the beginning of a message's text, calls and results included."""
    texts: list[str] = []
    for part in message.parts:
        match part:
            case ToolCall():
                texts.append(f"→ {part.name} {part.arguments}")
            case ToolResult():
                texts.append(part.text)
            case _:
                texts.append(str(getattr(part, "text", "")))
    return " ".join(" ".join(texts).split())[:_MAX_TEXT_CHARS]


# --- output ------------------------------------------------------------------------


def _to_json(replayed: Replay, entries: Sequence[Entry]) -> dict[str, Any]:
    report = replayed.window.report
    return {
        "turn": report.turn,
        "limit": report.raw_max_tokens,
        "before": {"messages": len(replayed.given), "tokens": sum(entry.tokens_before for entry in entries)},
        "after": {"messages": len(replayed.window.items), "tokens": report.total_tokens},
        "kinds": {kind: sum(entry.status == kind for entry in entries) for kind in _LOOKS},
        "entries": [asdict(entry) for entry in entries],
        "recalled": [asdict(hit) for hit in report.recalled],
        "recall_reason": report.recall_reason,
    }


def _print(screen: Console, replayed: Replay, entries: Sequence[Entry], *, full: bool) -> None:
    data = _to_json(replayed, entries)
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
    for (status, _, _), group in groupby(entries, key=lambda entry: (entry.status, entry.turn, entry.reason)):
        _print_group(screen, status, list(group), full=full)
    for hit in replayed.window.report.recalled:
        screen.print(format_hit(hit), no_wrap=True, overflow="ellipsis")


def _print_group(screen: Console, status: str, group: Sequence[Entry], *, full: bool) -> None:
    """Print consecutive messages with the same status: kept ones in one line, others one by one."""
    sign, colour = _LOOKS[status]
    if status == "kept" and not full and len(group) > 2:
        cost = human_tokens(sum(entry.tokens_after for entry in group))
        screen.print(Styled(f"  … {len(group)} messages kept, {cost} tokens", style="dim"))
        return
    if group[0].reason:
        saved = human_tokens(sum(entry.tokens_before - entry.tokens_after for entry in group))
        words = f"{sign} {status} in request {group[0].turn}: {group[0].reason} ({saved} tokens)"
        screen.print(Styled(words, style=f"bold {colour}"))
    for entry in group:
        screen.print(_format_entry(entry), no_wrap=True, overflow="ellipsis")
        if entry.sent:
            screen.print(Styled(f"      sent: {printable(entry.sent)}", style="dim"), no_wrap=True, overflow="ellipsis")


def _format_entry(entry: Entry) -> Styled:
    sign, colour = _LOOKS[entry.status]
    cost = human_tokens(entry.tokens_before)
    if entry.tokens_after != entry.tokens_before:
        cost = f"{cost}→{human_tokens(entry.tokens_after)}"
    number = f"#{entry.id}" if entry.id else ""
    line = Styled(f"{sign} {number:>6} {entry.role:<9} {cost:>10}  ", style=colour)
    return line.append(printable(entry.text), style="default" if entry.status != "kept" else "dim")
