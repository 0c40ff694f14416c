"""`holdfast diff`: compare a conversation with the window of one of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import click
from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.console import open_console
from holdfast.cli.context import SIGNS, format_hit
from holdfast.cli.output import as_json, emit_json, human_tokens, printable
from holdfast.cli.replay import Replay, replay_file, replay_options
from holdfast.cli.show import part_text
from holdfast.context.edits import Block, Item
from holdfast.messages import Message
from holdfast.report import Change, ContextReport
from holdfast.tokens import count_message

Status: TypeAlias = Literal["kept", "pruned", "trimmed", "compacted", "recalled", "summary"]
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
    window = {item.id for item in replayed.window.items if item.id}
    numbers = sorted({*removed, *pruned} - {0})
    rows = replayed.engine.session(replayed.session).get(numbers) if numbers else []
    originals = {row.id: row.message for row in rows}
    entries: list[tuple[float, Entry]] = []
    for number in (originals.keys() & removed.keys()) - window:
        entry, (turn, change) = _make_entry(number, originals[number]), removed[number]
        status: Status = "compacted" if change.kind == "compacted" else "trimmed"
        entries.append((number, replace(entry, status=status, tokens_after=0, turn=turn, reason=change.reason)))
    place = 0.0
    for item in replayed.window.items:
        place = float(item.id) if item.id else place + 0.25
        entries.append((place, _make_window_entry(item, pruned, originals)))
        if item.block:
            entries.append((place + 0.1, _make_block_entry(item.block, replayed.reports)))
    return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]


def _find_last_changes(reports: Sequence[ContextReport], kinds: set[str]) -> dict[int, tuple[int, Change]]:
    """Return the last change of these kinds for each message, with the request that made it."""
    return {
        number: (report.turn, change)
        for report in reports
        for change in report.changes
        if change.kind in kinds
        for number in change.ids
    }


def _make_entry(number: int, message: Message) -> Entry:
    cost = count_message(message)
    text = " ".join(" ".join(map(part_text, message.parts)).split())[:_MAX_TEXT_CHARS]
    return Entry(id=number, role=message.role, status="kept", tokens_before=cost, tokens_after=cost, text=text)


def _make_window_entry(item: Item, pruned: dict[int, tuple[int, Change]], originals: dict[int, Message]) -> Entry:
    entry = replace(_make_entry(item.id, item.message), tokens_before=item.tokens, tokens_after=item.tokens)
    if item.kind in {"recall", "summary"}:
        return replace(entry, status="summary" if item.kind == "summary" else "recalled", tokens_before=0)
    if item.id not in pruned or item.id not in originals:
        return entry
    original, (turn, change) = _make_entry(item.id, originals[item.id]), pruned[item.id]
    return replace(
        original, status="pruned", tokens_after=item.tokens, turn=turn, reason=change.reason, sent=entry.text
    )


def _make_block_entry(block: Block, reports: Sequence[ContextReport]) -> Entry:
    placed = (  # the last request that placed a block of this size
        report.turn
        for report in reversed(reports)
        if any(change.kind == "recalled" and change.tokens_after == block.tokens for change in report.changes)
    )
    text = " ".join(block.text.split())[:_MAX_TEXT_CHARS]
    turn = next(placed, 0)
    return Entry(
        id=0, role="recall", status="recalled", tokens_before=0, tokens_after=block.tokens, turn=turn, text=text
    )


# --- output ------------------------------------------------------------------------


def _to_json(replayed: Replay, entries: Sequence[Entry]) -> dict[str, Any]:
    report = replayed.window.report
    return {
        "turn": report.turn,
        "limit": report.raw_max_tokens,
        "before": {"messages": len(replayed.given), "tokens": sum(entry.tokens_before for entry in entries)},
        "after": {"messages": len(replayed.window.items), "tokens": report.total_tokens},
        "kinds": {kind: sum(entry.status == kind for entry in entries) for kind in SIGNS},
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
    for kind, (sign, colour) in SIGNS.items():
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
    sign, colour = SIGNS[status]
    if status == "kept" and not full and len(group) > 2:
        cost = human_tokens(sum(entry.tokens_after for entry in group))
        screen.print(Styled(f"  … {len(group)} messages kept, {cost} tokens", style="dim"))
        return
    if group[0].reason:
        saved = human_tokens(sum(entry.tokens_before - entry.tokens_after for entry in group))
        words = f"{sign} {status} in request {group[0].turn}: {group[0].reason} ({saved} tokens)"
        screen.print(Styled(words, style=f"bold {colour}"))
    for entry in group:
        cost, after = human_tokens(entry.tokens_before), human_tokens(entry.tokens_after)
        cost = cost if entry.tokens_after == entry.tokens_before else f"{cost}→{after}"
        number = f"#{entry.id}" if entry.id else ""
        line = Styled(f"{sign} {number:>6} {entry.role:<9} {cost:>10}  ", style=colour)
        line.append(printable(entry.text), style="dim" if status == "kept" else "default")
        screen.print(line, no_wrap=True, overflow="ellipsis")
        if entry.sent:
            screen.print(Styled(f"      sent: {printable(entry.sent)}", style="dim"), no_wrap=True, overflow="ellipsis")
