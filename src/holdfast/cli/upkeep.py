"""The commands that look after a store: reindex, backup, vacuum, export."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from holdfast.cli.memory import open_memory, opens_memory, scope_of
from holdfast.cli.output import as_json, emit_json, human_bytes, human_time
from holdfast.cli.progress import Progress
from holdfast.errors import StorageError
from holdfast.memory import transfer
from holdfast.memory.memory import STORE_NAME, default_path
from holdfast.store import upkeep

__all__ = ["backup", "export", "reindex", "vacuum"]

_home = click.option("--home", type=click.Path(path_type=Path), help="Where memory rests; default $HOLDFAST_HOME.")


def _file(home: Path | None) -> Path:
    place = home or default_path()
    return place if place.suffix == ".db" else place / STORE_NAME


@click.command()
@_home
@as_json
def reindex(*, home: Path | None, as_json: bool) -> None:
    """Drop the index and build it again from the archive."""
    with open_memory(home) as memory:
        path = memory.store.path
    done = [0]
    with Progress(1) as progress:
        number = upkeep.reindex(path, progress=lambda stop, total: _advance(progress, done, stop, total))
    if as_json:
        emit_json({"passages": number})
    else:
        click.echo(f"{number:,} passages indexed.")


def _advance(progress: Progress, done: list[int], stop: int, total: int) -> None:
    progress.total(total)
    progress.advance(stop - done[0], f"{stop:,} passages")
    done[0] = stop


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@_home
@as_json
def backup(*, target: Path, home: Path | None, as_json: bool) -> None:
    """Copy the store to the new file TARGET. Nobody has to stop writing."""
    upkeep.backup(_file(home), target)
    if as_json:
        emit_json({"path": str(target), "bytes": target.stat().st_size})
    else:
        click.echo(f"{target} ({human_bytes(target.stat().st_size)})")


@click.command()
@_home
@as_json
def vacuum(*, home: Path | None, as_json: bool) -> None:
    """Give back the room that forgotten rows took."""
    before, after = upkeep.vacuum(_file(home))
    if as_json:
        emit_json({"before": before, "after": after})
    else:
        click.echo(f"{human_bytes(before)} -> {human_bytes(after)}")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["jsonl", "markdown"]), default="jsonl", show_default=True)
@opens_memory
@as_json
def export(*, target: Path, form: str, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Write memory to the new file TARGET; `holdfast import` reads `jsonl` back."""
    scope, _ = scope_of(**whose)
    with open_memory(home) as memory, _private(target) as file:
        if form == "jsonl":
            count = transfer.to_jsonl(memory.store, [scope], file)
        else:
            count = transfer.to_markdown(memory.store, [scope], file, moment=human_time)
    if as_json:
        emit_json({"path": str(target), "rows": count})
    else:
        click.echo(f"{count:,} rows in {target}", file=sys.stderr)


def _private(target: Path) -> Any:
    """A new file that only its owner can read; an old one is never written over."""
    try:
        return os.fdopen(
            os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8", errors="surrogatepass"
        )
    except FileExistsError:
        raise StorageError("is there already: name a new file", path=target) from None
    except OSError as error:
        raise StorageError(f"could not be made: {error.strerror}", path=target) from error
