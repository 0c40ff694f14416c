"""The windows of a conversation: `holdfast context` draws one, `holdfast diff` compares it with the conversation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from rich.console import Console
from rich.text import Text as Styled

from holdfast.cli.charts import LOOKS, draw_grid, draw_legend, grid_to_json, make_cells
from holdfast.cli.console import open_console
from holdfast.cli.opening import no_requests, open_memory, owner_of, session_scope
from holdfast.cli.output import emit_json, join_counts
from holdfast.cli.replay import replay_file
from holdfast.cli.show import part_text
from holdfast.context.edits import Block, Item
from holdfast.errors import InputError
from holdfast.memory.memory import Memory
from holdfast.memory.passage_search import Hit
from holdfast.messages import Message
from holdfast.moments import minute
from holdfast.report import Change, ContextReport, Window, breakdown
from holdfast.store.base import MessageRow, Scope, Select
from holdfast.text import percent, plural, printable, shorten_number
from holdfast.timeline import rebuild_window
from holdfast.tokens import count_message, counter

_WIDE, _NARROW, _ROWS = 20, 10, 10
_PARTS: Final = ("keyword", "vector", "neighbours", "session", "date", "decay")
SIGNS: Final[dict[str, tuple[str, str]]] = {
    "kept": (" ", "dim"),
    "pruned": ("~", "yellow"),
    "trimmed": ("−", "red"),
    "compacted": ("−", "red"),
    "recalled": ("+", "magenta"),
    "overview": ("+", "magenta"),
    "summary": ("+", "green"),
}
"""The sign and the colour of what happened to a message."""


def draw_context(
    *,
    file: Path | None,
    session: str,
    tenant: str,
    project: str | None,
    agent: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Draw the window of a request of a file or of a stored session."""
    if file is not None:
        with replay_file(file, **options) as replayed:
            reports = [*replayed.reports[:-1], replayed.report]
            title = replayed.transcript.title or file.name
            more: dict[str, Any] = {
                "isAutoCompactEnabled": replayed.engine.settings.compaction.enabled,
                "messageBreakdown": breakdown(replayed.window.items),
            }
    else:
        whose = {"tenant": tenant, "project": project, "agent": agent}
        reports, more = _load_reports(options["home"], options["turn"], session=session, **whose)
        title = session
    report, totals = reports[-1], _sum_changes(reports)
    if as_json:
        grid = make_cells(report.categories, count=_WIDE * _ROWS)
        emit_json(
            {
                **report.to_json(),
                **report.usage(),
                "categories": [asdict(part) | {"color": LOOKS[part.name][1]} for part in report.categories],
                "gridRows": grid_to_json(grid, report.categories, columns=_WIDE),
                "apiUsage": None,
                "so_far": totals,
                **more,
            }
        )
        return
    screen = open_console()
    head = Styled(printable(title, one_line=True), style="bold")
    head.append(printable(f"  request {report.turn}  {report.model or ''}", one_line=True), style="dim")
    screen.print(head)
    print_window(screen, report)
    screen.print()
    text = (
        f"So far {plural(totals['cuts'], 'cut')} removed {plural(totals['messages_cut'], 'message')}"
        f" ({shorten_number(totals['tokens_cut'])} tokens), {plural(totals['results_pruned'], 'result')} pruned,"
        f" {plural(totals['blocks'], 'block')} recalled. All of it is in the archive."
    )
    screen.print(Styled(text, style="dim"))
    _print_changes(screen, report)


def _load_reports(
    home: Path | None, turn: int | None, *, session: str, **whose: Any
) -> tuple[list[ContextReport], dict[str, Any]]:
    """Return the reports of a stored session up to a request, and its owner."""
    with open_memory(home) as memory:
        scope = session_scope(memory, session=session, **whose)
        return _read_reports(memory, scope, turn), dict(owner_of(scope))


def _read_reports(memory: Memory, scope: Scope, turn: int | None) -> list[ContextReport]:
    """Return the reports of a stored session up to a request."""
    stored = memory.store.read_records(Select(scope=scope), kind="turn")
    if not stored:
        raise no_requests(memory, scope)
    reports = [ContextReport.from_json(record.data) for record in stored]
    selected = [report for report in reports if turn is None or report.turn <= turn]
    if not selected or (turn is not None and selected[-1].turn != turn):
        raise InputError(f"session {scope.session} has {len(reports)} stored requests{f', not {turn}' if turn else ''}")
    return selected


def _sum_changes(reports: Sequence[ContextReport]) -> dict[str, int]:
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


# --- text ------------------------------------------------------------------------


def print_window(screen: Console, report: ContextReport) -> None:
    """Print the size of a window, the grid with its legend, and the files in its prompt."""
    used = shorten_number(report.total_tokens)
    limit = shorten_number(report.raw_max_tokens)
    screen.print(f"{used} of {limit} tokens ({report.percentage}%)")
    if report.token_scale > 1:
        why = "the provider counts more tokens than estimated" if report.is_calibrated else "tokens are estimated"
        screen.print(Styled(f"{report.token_scale - 1:.0%} is kept free: {why}.", style="dim"))
    screen.print()
    columns = _WIDE if screen.width >= 80 else _NARROW
    grid = draw_grid(make_cells(report.categories, count=columns * _ROWS), columns=columns)
    legend = draw_legend(report.categories, total=report.raw_max_tokens)
    if screen.width < columns * 2 + 36:
        lines = [*grid, Styled(), *legend]
    else:
        lines = [line.append("  ") + more for line, more in zip_longest(grid, legend[:_ROWS], fillvalue=Styled())]
    for line in lines:
        screen.print(line)
    for file in report.files:
        screen.print(Styled(f"  {printable(file.path, one_line=True)}  {shorten_number(file.tokens)}", style="dim"))


def _print_changes(screen: Console, report: ContextReport) -> None:
    """Print the changes of this request with their reasons, and the recalled passages with their scores."""
    if not report.changes:
        screen.print("This request: nothing changed, nothing recalled.")
    for change in report.changes:
        sign, colour = SIGNS.get(change.kind, ("·", "default"))
        line = Styled(f"{sign} {change.kind}", style=f"bold {colour}")
        what = plural(len(change.ids), "message") if change.ids else "earlier blocks"
        if change.kind == "overview":
            what = f"from {plural(len(change.ids), 'message')} and the facts of the project"
        elif change.kind == "recalled":
            # A block may say only that there are no sessions of a day.
            what = f"from {join_counts(fact=len(report.recalled_facts), message=len(change.ids)) or 'past sessions'}"
        line.append(f" {what}")
        line.append(f", {shorten_number(change.tokens_before)} → {shorten_number(change.tokens_after)} tokens")
        screen.print(line.append(f": {change.reason}", style="dim"))
        if change.kind == "recalled":
            _print_hits(screen, report.recalled)
    if report.recall_reason:
        screen.print(Styled(f"No block: {report.recall_reason}", style="dim"))
    _print_repairs(screen, report.repairs)
    for warning in report.warnings:
        screen.print(Styled(f"! {printable(warning)}", style="bold yellow"))


def _print_repairs(screen: Console, repairs: Sequence[str]) -> None:
    """Print the first repair of each rule, which is named at its end, and how many more there are."""
    rules = [repair.rpartition(" (")[2] for repair in repairs]
    for rule, times in Counter(rules).items():
        more = f", and {times - 1} more like it" if times > 1 else ""
        first = printable(repairs[rules.index(rule)])
        screen.print(Styled(f"repaired for the provider: {first}{more}", style="dim"))


def _print_hits(screen: Console, hits: Sequence[Hit]) -> None:
    """Print recalled passages, one a line."""
    best = max((hit.score for hit in hits), default=0.0)
    for hit in hits:
        screen.print(format_hit(hit, best=best), no_wrap=True, overflow="ellipsis")


def format_hit(hit: Hit, *, best: float) -> Styled:
    """Format a recalled passage in one line: its score relative to the best, its parts, and the first words."""
    why = "next to a match"
    if hit.score:
        parts = {name: value for name, value in asdict(hit.parts).items() if name in _PARTS and value}
        if hit.parts.decay == 1:
            parts.pop("decay", None)
        why = " ".join(f"{name} {percent(value, 1)}" for name, value in parts.items())
    line = Styled(f"    {percent(hit.score, best)} ", style="magenta").append(f"[{why}] ", style="dim")
    line.append(f"{minute(hit.time)} {printable(hit.speaker, one_line=True)} ", style="dim")
    return line.append(" ".join(printable(hit.text).split())[:200])


# --- diff ----------


Status: TypeAlias = Literal["kept", "pruned", "trimmed", "compacted", "recalled", "overview", "summary"]
_INSERTED: Final[dict[str, Status]] = {"recall": "recalled", "overview": "overview", "summary": "summary"}
"""The status of a message that was inserted, by its kind."""
_MAX_TEXT_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message of the conversation, or an insertion, and its status in the window.

    `id` is 0 for an insertion; `turn` and `reason` belong to the change; `text` is the beginning of the original, and
    `sent` that of the text in the window if it differs.
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

    def format(self, sign: str, colour: str) -> Styled:
        """Format the entry as one line."""
        cost = shorten_number(self.tokens_before)
        if self.tokens_after != self.tokens_before:
            cost = f"{cost}→{shorten_number(self.tokens_after)}"
        number = f"#{self.id}" if self.id else ""
        line = Styled(f"{sign} {number:>6} {self.role:<9} {cost:>10}  ", style=colour)
        return line.append(printable(self.text), style="dim" if self.status == "kept" else "default")

    @classmethod
    def of_message(cls, number: int, message: Message) -> Self:
        """Make the entry of a message that is kept."""
        cost = count_message(message)
        text = " ".join(" ".join(map(part_text, message.parts)).split())[:_MAX_TEXT_CHARS]
        return cls(id=number, role=message.role, status="kept", tokens_before=cost, tokens_after=cost, text=text)

    @classmethod
    def of_item(cls, item: Item, pruned: dict[int, tuple[int, Change]], originals: dict[int, Message]) -> Self:
        """Make the entry of an item of the window."""
        entry = replace(cls.of_message(item.id, item.message), tokens_before=item.tokens, tokens_after=item.tokens)
        if item.kind in _INSERTED:
            return replace(entry, status=_INSERTED[item.kind], tokens_before=0)
        if item.id not in pruned or item.id not in originals:
            return entry
        original, (turn, change) = cls.of_message(item.id, originals[item.id]), pruned[item.id]
        return replace(
            original, status="pruned", tokens_after=item.tokens, turn=turn, reason=change.reason, sent=entry.text
        )

    @classmethod
    def of_block(cls, block: Block, reports: Sequence[ContextReport], *, status: Status = "recalled") -> Self:
        """Make the entry of a recalled block, or of an overview."""
        placed = (  # the last request that placed a block of this size
            report.turn
            for report in reversed(reports)
            if any(change.kind == status and change.tokens_after == block.tokens for change in report.changes)
        )
        text = " ".join(block.text.split())[:_MAX_TEXT_CHARS]
        turn = next(placed, 0)
        return cls(id=0, role="recall", status=status, tokens_before=0, tokens_after=block.tokens, turn=turn, text=text)


def print_diff(
    *,
    file: Path | None,
    session: str,
    tenant: str,
    project: str | None,
    agent: str | None,
    full: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print for each message of a conversation whether it was kept, pruned, trimmed or summarised in one request."""
    if file is not None:
        with replay_file(file, **options) as replayed:
            window = replayed.window
            given = len(replayed.given)
            entries = compare(window, replayed.reports, read=replayed.engine.session(replayed.session).get)
    else:
        with open_memory(options["home"]) as memory:
            scope = session_scope(memory, session=session, tenant=tenant, project=project, agent=agent)
            reports = _read_reports(memory, scope, options["turn"])
            settings = memory.settings
            count = counter(settings.tokens.full_name, model=settings.model.name)
            window = rebuild_window(memory.store, scope, reports[-1].turn, count=count)
            entries = compare(window, reports, read=partial(memory.get, scope=scope))
            given = sum(bool(entry.id) for entry in entries)
    report = window.report
    sent = len(window.items)
    cost = sum(entry.tokens_before for entry in entries)
    kinds = dict.fromkeys(SIGNS, 0)
    for entry in entries:
        kinds[entry.status] += 1
    if as_json:
        emit_json(
            {
                "turn": report.turn,
                "limit": report.raw_max_tokens,
                "before": {"messages": given, "tokens": cost},
                "after": {"messages": sent, "tokens": report.total_tokens},
                "kinds": kinds,
                "entries": [asdict(entry) for entry in entries],
                "recalled": [asdict(hit) for hit in report.recalled],
                "recall_reason": report.recall_reason,
            }
        )
        return
    screen = open_console()
    screen.print(
        f"request {report.turn} in {shorten_number(report.raw_max_tokens)} tokens:"
        f" {plural(given, 'message')}, {shorten_number(cost)} →"
        f" {plural(sent, 'message')}, {shorten_number(report.total_tokens)}"
    )
    counts = Styled()
    for kind, (sign, colour) in SIGNS.items():
        if kinds[kind]:
            counts.append(f"{sign} {kinds[kind]} {kind}  ".lstrip(), style=colour)
    screen.print(counts)
    screen.print()
    for (status, _, _), group in groupby(entries, key=lambda entry: (entry.status, entry.turn, entry.reason)):
        _print_group(screen, status, list(group), full=full)
    _print_hits(screen, report.recalled)


# --- the comparison ----------------------------------------------------------------


def compare(
    window: Window, reports: Sequence[ContextReport], *, read: Callable[[Sequence[int]], Sequence[MessageRow]]
) -> list[Entry]:
    """Return every message in the order of the conversation, with the insertions between them.

    `reports` are those up to the request of the window; `read` reads archived messages by number.
    """
    removed = _find_last_changes(reports, {"trimmed", "compacted"})
    pruned = _find_last_changes(reports, {"pruned"})
    there = {item.id for item in window.items if item.id}
    numbers = sorted({*removed, *pruned} - {0})
    originals = {row.id: row.message for row in read(numbers)} if numbers else {}
    entries: list[tuple[float, Entry]] = []
    for number in (originals.keys() & removed.keys()) - there:
        entry, (turn, change) = Entry.of_message(number, originals[number]), removed[number]
        status: Status = "compacted" if change.kind == "compacted" else "trimmed"
        entries.append((number, replace(entry, status=status, tokens_after=0, turn=turn, reason=change.reason)))
    place = 0.0
    for item in window.items:
        place = float(item.id) if item.id else place + 0.25
        entries.append((place, Entry.of_item(item, pruned, originals)))
        if item.overview:
            overview = Entry.of_block(item.overview, reports, status="overview")
            entries.append((place + 0.05, overview))
        if item.block:
            entries.append((place + 0.1, Entry.of_block(item.block, reports)))
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


def _print_group(screen: Console, status: str, group: Sequence[Entry], *, full: bool) -> None:
    """Print consecutive messages with the same status: kept ones in one line, others one by one."""
    sign, colour = SIGNS[status]
    if status == "kept" and not full and len(group) > 2:
        cost = shorten_number(sum(entry.tokens_after for entry in group))
        screen.print(Styled(f"  … {len(group)} messages kept, {cost} tokens", style="dim"))
        return
    if group[0].reason:
        saved = shorten_number(sum(entry.tokens_before - entry.tokens_after for entry in group))
        words = f"{sign} {status} in request {group[0].turn}: {group[0].reason} ({saved} tokens of the originals)"
        screen.print(Styled(words, style=f"bold {colour}"))
    for entry in group:
        screen.print(entry.format(sign, colour), no_wrap=True, overflow="ellipsis")
        if entry.sent:
            screen.print(Styled(f"      sent: {printable(entry.sent)}", style="dim"), no_wrap=True, overflow="ellipsis")
