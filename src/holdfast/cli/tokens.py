"""`holdfast tokens FILE`: count the tokens of a transcript, and compare the estimate with reported usage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from rich.table import Table

from holdfast import transcripts
from holdfast.cli.console import open_console
from holdfast.cli.output import as_json, emit_json, human_tokens
from holdfast.messages import Message
from holdfast.tokens import MESSAGE_TOKENS, TokenCounter, count_message, count_part, counter

__all__ = ["tokens"]


@dataclass(frozen=True, slots=True)
class UsageCheck:
    """The provider's usage figures compared with the estimate.

    `requests` replies carried usage. For those after the first, the count (last report plus the estimate of
    what followed) was off by `error` on average, and too low in `underestimated` of the cases.
    """

    requests: int
    last: int
    error: float | None
    underestimated: float | None


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "format_", metavar="NAME", help="The format of the file; default: recognise it.")
@click.option(
    "--counter", "name", default="estimate", show_default=True, help="estimate, tiktoken:ENCODING or tokenizers:FILE."
)
@as_json
def tokens(*, file: Path, format_: str | None, name: str, as_json: bool) -> None:
    """Count the tokens of the transcript FILE by role and part."""
    count = counter(name)
    messages = transcripts.read(file, format=format_).messages
    table = _count_parts(messages, count)
    total = sum(count_message(message, count=count) for message in messages)
    reported = check_usage(messages, count)
    if as_json:
        emit_json(
            {
                "file": str(file),
                "counter": name,
                "messages": len(messages),
                "tokens": total,
                "by_role": _sum_by(table, 0),
                "by_part": _sum_by(table, 1),
                "reported": asdict(reported),
            }
        )
        return
    _print(table, total, reported)


def _count_parts(messages: Sequence[Message], count: TokenCounter) -> dict[tuple[str, str], tuple[int, int]]:
    """Count parts and their tokens, by role and kind."""
    table: dict[tuple[str, str], tuple[int, int]] = defaultdict(lambda: (0, 0))
    for message in messages:
        for part in message.parts:
            key = (message.role, type(part).__name__)
            number, total = table[key]
            table[key] = (number + 1, total + count_part(part, count=count))
        number, total = table["", "framing"]
        table["", "framing"] = (number + 1, total + MESSAGE_TOKENS)
    return dict(table)


def _sum_by(table: dict[tuple[str, str], tuple[int, int]], index: int) -> dict[str, int]:
    sums: dict[str, int] = defaultdict(int)
    for key, (_, total) in table.items():
        sums[key[index] or "framing"] += total
    return dict(sums)


def check_usage(messages: Sequence[Message], count: TokenCounter) -> UsageCheck:
    """Compare the running count with the usage that the provider reported at each reply."""
    errors: list[float] = []
    requests = last = following = 0
    for message in messages:
        following += count_message(message, count=count)
        real = message.usage.context if message.usage is not None else 0
        if message.role != "assistant" or real <= 0 or message.is_broken:
            continue
        if requests:
            errors.append((last + following - real) / real)
        requests, last, following = requests + 1, real, 0
    if not errors:
        return UsageCheck(requests, last, None, None)
    mean = sum(abs(error) for error in errors) / len(errors)
    return UsageCheck(requests, last, mean, sum(error < 0 for error in errors) / len(errors))


def _print(table: dict[tuple[str, str], tuple[int, int]], total: int, reported: UsageCheck) -> None:
    screen = open_console()
    grid = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("role", "part"):
        grid.add_column(title)
    for title in ("number", "tokens", "share"):
        grid.add_column(title, justify="right")
    grid.add_column("")
    for (role, kind), (number, count) in sorted(table.items(), key=lambda item: -item[1][1]):
        share = count / total if total else 0
        grid.add_row(role, kind, f"{number:,}", f"{count:,}", f"{share:.0%}", "█" * round(share * 30))
    screen.print(grid)
    screen.print(f"{total:,} tokens by the estimate ({human_tokens(total)})")
    if reported.error is not None and reported.underestimated is not None:
        screen.print(
            f"The provider last reported {reported.last:,}. From one report to the next the count is off by"
            f" {reported.error:.1%}, and too low in {reported.underestimated:.0%} of {reported.requests - 1} requests."
        )
