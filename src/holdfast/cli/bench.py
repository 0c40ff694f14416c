"""`holdfast bench`: the measurements behind the figures in the docs."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from holdfast import transcripts
from holdfast.cli.output import as_json, console, emit_json

__all__ = ["bench"]


@click.group()
def bench() -> None:
    """Measure Holdfast on this machine, with your data."""


def machine() -> dict[str, Any]:
    """Where a figure was made."""
    return {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}


def print_table(rows: Mapping[str, Mapping[str, Any]], *, first: str) -> None:
    """Print one row for each system, one column for each figure."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(first)
    columns = list(dict.fromkeys(name for row in rows.values() for name in row))
    for name in columns:
        table.add_column(name, justify="right")
    for label, row in rows.items():
        table.add_row(label, *(_figure(row.get(name)) for name in columns))
    console().print(table)


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


@bench.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@as_json
def tokens(*, paths: tuple[Path, ...], as_json: bool) -> None:
    """How good the token estimate is on transcripts and request logs that carry the provider's usage."""
    from holdfast.bench.tokens import measure  # noqa: PLC0415 - each bench loads what it needs

    files = [found.path for path in paths for found in transcripts.sessions(path)]
    found = {name: asdict(accuracy) for name, accuracy in measure(files).items()}
    if as_json:
        emit_json({"files": len(files), **machine(), "counters": found})
        return
    print_table(found, first="counter")


@bench.command()
@click.argument("path", required=False, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--megabytes", type=click.IntRange(min=1), default=100, show_default=True, help="Size of the file to stream."
)
@as_json
def read(*, path: Path | None, megabytes: int, as_json: bool) -> None:
    """How fast a session file of 1,000 lines loads, and how much memory a large one needs (or PATH)."""
    from holdfast.bench.reading import measure  # noqa: PLC0415 - as above

    found = asdict(measure(path, megabytes=megabytes))
    if as_json:
        emit_json({**machine(), **found})
        return
    print_table({"session files": found}, first="")


@bench.command()
@click.option("--samples", type=click.IntRange(min=1), default=200, show_default=True, help="Secrets of each kind.")
@click.option("--seed", type=int, default=1, show_default=True)
@as_json
def redaction(*, samples: int, seed: int, as_json: bool) -> None:
    """How many secrets are masked, and how much else, against the original plugin's patterns."""
    from holdfast.bench.redaction import measure  # noqa: PLC0415 - as above

    found = asdict(measure(samples=samples, seed=seed))
    if as_json:
        emit_json({**machine(), **found})
        return
    click.echo(f"{found}")
