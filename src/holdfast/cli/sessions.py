"""`holdfast sessions`: the sessions in memory, and the session files on this machine, of every agent we know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.opening import no_transcript, open_memory, owner_of
from holdfast.cli.output import as_json, console, echo, emit_json, human_bytes, human_time, printable
from holdfast.memory.memory import Memory
from holdfast.store.base import Scope, Select

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.transcripts import Problem, SessionRef

__all__ = ["sessions"]


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="The transcripts of every known agent on this machine.")
@click.option("--home", type=click.Path(path_type=Path), help="Where memory rests; default $HOLDFAST_HOME.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@as_json
def sessions(*, folders: tuple[Path, ...], discover: bool, home: Path | None, limit: int | None, as_json: bool) -> None:
    """List the sessions in memory; with FOLDERS or --discover, the transcripts on disk."""
    if folders or discover:
        _list_files(folders, limit=limit, as_json=as_json)
    else:
        _list_stored(home, limit=limit, as_json=as_json)


def _list_stored(home: Path | None, *, limit: int | None, as_json: bool) -> None:
    with open_memory(home) as memory:
        rows = [_stored(memory, scope, count) for scope, count in islice(memory.store.sessions().items(), limit)]
    if as_json:
        emit_json({"sessions": rows})
    elif not rows:
        echo("No sessions in memory: `holdfast import --discover` archives those on this machine", err=True)
    else:
        console().print(_stored_table(rows))


def _stored(memory: Memory, scope: Scope, count: int) -> dict[str, Any]:
    (last,) = memory.store.fetch(Select(kind="message", scope=scope, newest=True, limit=1)) or (None,)
    time = None if last is None else last.message.timestamp
    return owner_of(scope) | {"messages": count, "time": time}


def _stored_table(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - only for people

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("last message", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    for title in ("agent", "project", "session"):
        table.add_column(title, overflow="fold")
    for row in rows:
        named = (printable(row[name], one_line=True) for name in ("agent", "project", "session"))
        table.add_row(human_time(row["time"]), f"{row['messages']:,}", *named)
    return table


def _list_files(folders: tuple[Path, ...], *, limit: int | None, as_json: bool) -> None:
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


def _find(folders: tuple[Path, ...], problems: list[Problem]) -> Iterator[SessionRef]:
    from holdfast import transcripts  # noqa: PLC0415 - sessions in memory are listed without it

    places = folders or tuple(place.folder for place in transcripts.default_places(os.environ, Path.home()))
    for folder in places:
        yield from transcripts.sessions(folder, on_problem=problems.append)


def _table(found: list[SessionRef]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - only for people
    from rich.text import Text as Styled  # noqa: PLC0415 - only for people

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


def _as_data(one: SessionRef) -> dict[str, object]:
    return {
        "agent": one.format,
        "session": one.session,
        "project": one.cwd or "",
        "title": one.title,
        "cwd": one.cwd,
        "modified": one.modified,
        "size": one.size,
        "path": str(one.path),
    }
