"""`holdfast sessions`: list the sessions in memory, or the session files of known agents on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.opening import no_transcript, open_memory, owner_of
from holdfast.cli.output import as_json, echo, emit_json, human_bytes, human_time, printable
from holdfast.memory.memory import Memory
from holdfast.store.base import Scope, Select

if TYPE_CHECKING:
    from holdfast.transcripts import Problem, SessionRef

__all__ = ["sessions"]


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="List the transcripts of every known agent on this machine.")
@click.option("--home", type=click.Path(path_type=Path), help="The folder of the memory; default $HOLDFAST_HOME.")
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
        rows = [_describe_stored(memory, scope, count) for scope, count in memory.store.sessions().items()]
        rows = sorted(rows, key=lambda row: row["time"] or 0, reverse=True)[:limit]
    if as_json:
        emit_json({"sessions": rows})
    elif not rows:
        echo("No sessions in memory: `holdfast import --discover` archives those on this machine", err=True)
    else:
        _print_stored(rows)


def _describe_stored(memory: Memory, scope: Scope, count: int) -> dict[str, Any]:
    (last,) = memory.store.read_messages(Select(scope=scope, newest=True, limit=1)) or (None,)
    time = None if last is None else last.message.timestamp
    return owner_of(scope) | {"messages": count, "time": time}


def _print_stored(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table  # noqa: PLC0415 - JSON does not need it

    from holdfast.cli.console import open_console  # noqa: PLC0415 - JSON does not need it

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("last message", no_wrap=True)
    table.add_column("messages", justify="right", no_wrap=True)
    for title in ("agent", "project", "session"):
        table.add_column(title, overflow="fold")
    for row in rows:
        named = (printable(row[name], one_line=True) for name in ("agent", "project", "session"))
        table.add_row(human_time(row["time"]), f"{row['messages']:,}", *named)
    open_console().print(table)


def _list_files(folders: tuple[Path, ...], *, limit: int | None, as_json: bool) -> None:
    problems: list[Problem] = []
    refs = sorted(_find(folders, problems), key=lambda ref: -ref.modified)[:limit]
    if as_json:
        emit_json({"sessions": [_to_json(ref) for ref in refs], "problems": [problem.what for problem in problems]})
    else:
        for problem in problems:
            echo(problem.what, err=True)
    if not refs and folders:
        raise no_transcript(folders)
    if not refs:
        echo("No sessions in the usual places of the known agents: holdfast sessions FOLDER", err=True)
    elif not as_json:
        _print_files(refs)


def _find(folders: tuple[Path, ...], problems: list[Problem]) -> Iterator[SessionRef]:
    from holdfast import transcripts  # noqa: PLC0415 - sessions in memory are listed without it

    places = folders or tuple(place.folder for place in transcripts.default_places(os.environ, Path.home()))
    for folder in places:
        yield from transcripts.sessions(folder, on_problem=problems.append)


def _print_files(refs: list[SessionRef]) -> None:
    from rich.table import Table  # noqa: PLC0415 - JSON does not need it
    from rich.text import Text as Styled  # noqa: PLC0415 - JSON does not need it

    from holdfast.cli.console import open_console  # noqa: PLC0415 - JSON does not need it

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("agent", "changed"):
        table.add_column(title, no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("session", overflow="fold")
    home = Path.home()
    for ref in refs:
        path = f"~/{ref.path.relative_to(home)}" if ref.path.is_relative_to(home) else str(ref.path)
        place = Styled(printable(path, one_line=True))
        if ref.title:
            place.append(f"\n{printable(ref.title, one_line=True)[:100]}", style="dim")
        table.add_row(ref.format, human_time(ref.modified), human_bytes(ref.size), place)
    open_console().print(table)


def _to_json(ref: SessionRef) -> dict[str, object]:
    return {
        "agent": ref.format,
        "session": ref.session,
        "project": ref.cwd or "",
        "title": ref.title,
        "cwd": ref.cwd,
        "modified": ref.modified,
        "size": ref.size,
        "path": str(ref.path),
    }
