"""The commands that look after a store: reindex, backup, vacuum, export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.opening import open_memory, opens_memory, owners, store_of
from holdfast.cli.output import as_json, echo, emit_json, human_bytes, human_time
from holdfast.errors import StorageError
from holdfast.memory.home import database_file
from holdfast.memory.memory import Memory
from holdfast.store import upkeep
from holdfast.store.base import Scope

if TYPE_CHECKING:
    from holdfast.cli.progress import Progress

__all__ = ["backup", "export", "reindex", "vacuum"]

_home = click.option("--home", type=click.Path(path_type=Path), help="Where memory rests; default $HOLDFAST_HOME.")


@click.command()
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Embed what has no vectors yet.")
@_home
@as_json
def reindex(*, vectors: bool, home: Path | None, as_json: bool) -> None:
    """Drop the index and build it again from the archive; embed what the present model has not embedded yet."""
    from holdfast.cli.progress import Progress  # noqa: PLC0415 - only this command draws one

    done = [0]
    with open_memory(home) as memory, Progress(1) as progress:
        file = database_file(memory.store.path)
        number = upkeep.reindex(file, progress=lambda *at: _advance(progress, done, *at))
        embedded = _embed(memory, progress) if vectors else 0
        missing = memory.missing()
    if as_json:
        emit_json({"passages": number, "embedded": embedded, "missing": missing})
        return
    echo(f"{number:,} passages indexed, {embedded:,} embedded.")
    for note in missing:
        echo(f"note: {note}", err=True)


_STEP = 1024


def _embed(memory: Memory, progress: Progress) -> int:
    embedded = 0
    progress.say("embedding")
    while step := memory.embed(limit=_STEP):
        embedded += step
        progress.say(f"{embedded:,} embedded")
    return embedded


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
    upkeep.backup(database_file(store_of(home)), target)
    if as_json:
        emit_json({"path": str(target), "bytes": target.stat().st_size})
    else:
        echo(f"{target} ({human_bytes(target.stat().st_size)})")


@click.command()
@_home
@as_json
def vacuum(*, home: Path | None, as_json: bool) -> None:
    """Give back the room that forgotten rows took."""
    before, after = upkeep.vacuum(database_file(store_of(home)))
    if as_json:
        emit_json({"before": before, "after": after})
    else:
        echo(f"{human_bytes(before)} -> {human_bytes(after)}")


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--to", "form", type=click.Choice(["jsonl", "markdown", "folder"]), default="jsonl", show_default=True)
@opens_memory
@as_json
def export(*, target: Path, form: str, home: Path | None, as_json: bool, **whose: Any) -> None:
    """Write memory to the new file (or folder) TARGET; `holdfast import` reads `jsonl` and `folder` back.

    Damaged rows are left out and named; the exit code is then 1.
    """
    with open_memory(home) as memory:
        count = _export(memory, owners(memory, project=whose["project"], agent=whose["agent"]), target, form)
        gaps = memory.store.gaps
    if as_json:
        emit_json({"path": str(target), "rows": count, "gaps": [str(gap) for gap in gaps]})
    else:
        echo(f"{count:,} rows in {target}", err=True)
    if gaps:
        click.get_current_context().exit(1)


def _export(memory: Memory, scopes: list[Scope], target: Path, form: str) -> int:
    if form == "folder":
        from holdfast.memory import folder  # noqa: PLC0415 - only for this form
        from holdfast.search.embed.base import behind_cache  # noqa: PLC0415 - only for this form
        from holdfast.search.embed.remote import RemoteEmbedder  # noqa: PLC0415 - only for this form

        # Vectors are made again, which costs nothing with a model of this machine; a provider would be paid twice.
        local = memory.embedder if not isinstance(behind_cache(memory.embedder), RemoteEmbedder) else None
        return folder.save(memory.store, scopes, target, embedder=local)
    from holdfast.memory import transfer  # noqa: PLC0415 - only for these forms

    with _private(target) as file:
        if form == "jsonl":
            return transfer.to_jsonl(memory.store, scopes, file)
        return transfer.to_markdown(memory.store, scopes, file, moment=human_time)


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
