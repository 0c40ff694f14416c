"""`holdfast models`: list the embedding models on this machine, and download more."""

from __future__ import annotations

import click
from rich.table import Table

from holdfast.cli.console import open_console
from holdfast.cli.output import as_json, echo, emit_json
from holdfast.search.embed.download import HUB_MODELS, download_from_hub, models_folder
from holdfast.search.embed.static import WORDLLAMA, find_wordllama

__all__ = ["models"]


@click.group()
def models() -> None:
    """List embedding models, and download one."""


@models.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List the known static models and where they are installed."""
    files = find_wordllama()
    here = str(files[0].parent) if files else None
    rows = [{"model": WORDLLAMA, "here": here, "get": "pip install 'holdfast[local]'"}]
    for name, model in HUB_MODELS.items():
        folder = models_folder() / name
        here = str(folder) if folder.is_dir() else None
        rows.append({"model": name, "here": here, "get": f"holdfast models get {name} ({model.licence})"})
    if as_json:
        emit_json(rows)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("model", "here", "get"):
        table.add_column(title, overflow="fold")
    for row in rows:
        table.add_row(row["model"], row["here"] or "-", row["get"])
    open_console().print(table)


@models.command()
@click.argument("name", type=click.Choice(sorted(HUB_MODELS)))
@as_json
def get(*, name: str, as_json: bool) -> None:
    """Download the model NAME from the Hugging Face Hub into the models folder, and check its digests."""
    folder = download_from_hub(name)
    if as_json:
        emit_json({"model": name, "path": str(folder)})
    else:
        echo(f"{name} is in {folder}")
