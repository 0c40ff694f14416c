"""`holdfast sessions`: the session files on this machine, of every agent we know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text as Styled

from holdfast import transcripts
from holdfast.cli.opening import no_transcript
from holdfast.cli.output import as_json, console, echo, emit_json, human_bytes, human_time, printable
from holdfast.transcripts import Found, Problem

__all__ = ["sessions"]


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@as_json
def sessions(*, folders: tuple[Path, ...], limit: int | None, as_json: bool) -> None:
    """List the sessions in FOLDERS, or in the usual places of the known agents."""
    problems: list[Problem] = []
    found = sorted(_find(folders, problems), key=lambda one: -one.modified)[:limit]
    if as_json:
        emit_json({"sessions": [_as_data(one) for one in found], "problems": [problem.what for problem in problems]})
    else:
        for problem in problems:
            echo(problem.what, err=True)
    if not found and folders:
        raise no_transcript(folders)
    if not found:
        echo("No sessions in the usual places of the known agents: holdfast sessions FOLDER", err=True)
    elif not as_json:
        console().print(_table(found))


def _find(folders: tuple[Path, ...], problems: list[Problem]) -> Iterator[Found]:
    places = folders or tuple(place.folder for place in transcripts.default_places(os.environ, Path.home()))
    for folder in places:
        yield from transcripts.sessions(folder, on_problem=problems.append)


def _table(found: list[Found]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("agent", "changed"):
        table.add_column(title, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("session", overflow="fold")
    for one in found:
        place = Styled(printable(_short(one.path), one_line=True))
        if one.title:
            place.append(f"\n{printable(one.title, one_line=True)[:100]}", style="dim")
        table.add_row(one.format, human_time(one.modified), human_bytes(one.size), place)
    return table


def _short(path: Path) -> str:
    """A path as people write it."""
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def _as_data(one: Found) -> dict[str, object]:
    return {
        "agent": one.format,
        "session": one.session,
        "title": one.title,
        "cwd": one.cwd,
        "modified": one.modified,
        "size": one.size,
        "path": str(one.path),
    }
