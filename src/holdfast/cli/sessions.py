"""`holdfast sessions`: the session files on this machine, of every agent we know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table

from holdfast import transcripts
from holdfast.cli.output import as_json, console, emit_json, human_bytes, human_time, printable
from holdfast.transcripts import Found

__all__ = ["sessions"]


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@as_json
def sessions(*, folders: tuple[Path, ...], limit: int | None, as_json: bool) -> None:
    """List the sessions in FOLDERS, or in the usual places of the known agents."""
    found = sorted(_find(folders), key=lambda one: -one.modified)[:limit]
    if as_json:
        emit_json([_as_data(one) for one in found])
        return
    if not found:
        where = ", ".join(map(str, folders)) or "the usual places"
        click.echo(f"No sessions in {where}. Name a folder: holdfast sessions FOLDER", err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("agent", "session", "title", "changed"):
        table.add_column(title, overflow="ellipsis", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("path", overflow="fold")
    for one in found:
        title = printable(one.title or "").replace("\n", " ")
        moment = human_time(one.modified)
        table.add_row(one.format, one.session, title[:40], moment, human_bytes(one.size), str(one.path))
    console().print(table)


def _find(folders: tuple[Path, ...]) -> Iterator[Found]:
    places = folders or tuple(place.folder for place in transcripts.default_places(os.environ, Path.home()))
    for folder in places:
        yield from transcripts.sessions(folder)


def _as_data(one: Found) -> dict[str, object]:
    return {
        "agent": one.format,
        "session": one.session,
        "title": one.title,
        "modified": one.modified,
        "size": one.size,
        "path": str(one.path),
    }
