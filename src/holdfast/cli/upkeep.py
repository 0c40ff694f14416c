"""The commands that maintain a store: reindex, backup, vacuum, export."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.opening import open_memory, opens_memory, owners, store_of
from holdfast.cli.output import as_json, echo, emit_json, human_bytes, human_time
from holdfast.errors import StorageError
from holdfast.memory.memory import Memory
from holdfast.store import upkeep
from holdfast.store.base import Scope
from holdfast.store.opening import database_file

if TYPE_CHECKING:
    from holdfast.cli.progress import Progress

__all__ = ["backup", "export", "reindex", "vacuum"]

_home = click.option(
    "--home", type=click.Path(path_type=Path), help="The folder of the memory; default $HOLDFAST_HOME."
)


@click.command()
@click.option("--vectors/--no-vectors", default=True, show_default=True, help="Embed passages without vectors.")
@_home
@as_json
def reindex(*, vectors: bool, home: Path | None, as_json: bool) -> None:
    """Rebuild the index from the archive, and embed what the current model has not embedded yet."""
    from holdfast.cli.progress import Progress  # noqa: PLC0415 - only this command draws one

    with open_memory(home) as memory, Progress(1) as progress:
        number = _reindex(memory, progress)
        embedded = _embed(memory, progress) if vectors else 0
        missing = memory.missing()
    if as_json:
        emit_json({"passages": number, "embedded": embedded, "missing": missing})
        return
    echo(f"{number:,} passages indexed, {embedded:,} embedded.")
    for note in missing:
        echo(f"note: {note}", err=True)


def _reindex(memory: Memory, progress: Progress) -> int:
    done = 0

    def advance(stop: int, total: int) -> None:
        nonlocal done
        progress.set_total(total)
        progress.advance(stop - done, f"{stop:,} passages")
        done = stop

    return upkeep.reindex(database_file(memory.store.path), progress=advance)


_EMBED_BATCH = 1024


def _embed(memory: Memory, progress: Progress) -> int:
    embedded = 0
    progress.describe("embedding")
    while step := memory.embed(limit=_EMBED_BATCH):
        embedded += step
        progress.describe(f"{embedded:,} embedded")
    return embedded


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@_home
@as_json
def backup(*, target: Path, home: Path | None, as_json: bool) -> None:
    """Copy the store to the new file TARGET. Other processes may use it meanwhile."""
    upkeep.backup(database_file(store_of(home)), target)
    if as_json:
        emit_json({"path": str(target), "bytes": target.stat().st_size})
    else:
        echo(f"{target} ({human_bytes(target.stat().st_size)})")


@click.command()
@_home
@as_json
def vacuum(*, home: Path | None, as_json: bool) -> None:
    """Shrink the store file by the space of deleted rows."""
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

    Damaged rows are skipped and listed; the exit code is then 1.
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

        # Vectors are computed again: free with a local model, but a remote provider would be paid twice.
        local = memory.embedder if not isinstance(behind_cache(memory.embedder), RemoteEmbedder) else None
        return folder.save(memory.store, scopes, target, embedder=local)
    from holdfast.memory import transfer  # noqa: PLC0415 - only for these forms

    with _create_private(target) as file:
        if form == "jsonl":
            return transfer.to_jsonl(memory.store, scopes, file)
        return transfer.to_markdown(memory.store, scopes, file, moment=human_time)


def _create_private(target: Path) -> Any:
    """Create a file that only its owner can read; an existing one is never overwritten."""
    try:
        return os.fdopen(
            os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8", errors="surrogatepass"
        )
    except FileExistsError:
        raise StorageError("exists already: name a new file", path=target) from None
    except OSError as error:
        raise StorageError(f"could not be created: {error.strerror}", path=target) from error
