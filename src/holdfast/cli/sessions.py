"""`holdfast sessions`: list the sessions in memory, or the session files of known agents on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.opening import home_option, no_transcript, open_memory, owner_of
from holdfast.cli.output import as_json, echo, emit_json, human_bytes, human_time, printable
from holdfast.store.base import Select

if TYPE_CHECKING:
    from holdfast.transcripts import Problem, SessionRef

__all__ = ["sessions"]


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path))
@click.option("--discover", is_flag=True, help="List the transcripts of every known agent on this machine.")
@home_option
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest.")
@as_json
def sessions(*, folders: tuple[Path, ...], discover: bool, home: Path | None, limit: int | None, as_json: bool) -> None:
    """List the sessions in memory; with FOLDERS or --discover, the transcripts on disk."""
    if folders or discover:
        _list_files(folders, limit=limit, as_json=as_json)
    else:
        _list_stored(home, limit=limit, as_json=as_json)


def _list_stored(home: Path | None, *, limit: int | None, as_json: bool) -> None:
    rows: list[dict[str, Any]] = []
    with open_memory(home) as memory:
        for scope, count in memory.store.sessions().items():
            (last,) = memory.store.read_messages(Select(scope=scope, newest=True, limit=1)) or (None,)
            time = None if last is None else last.message.timestamp
            rows.append(owner_of(scope) | {"messages": count, "time": time})
    rows = sorted(rows, key=lambda row: row["time"] or 0, reverse=True)[:limit]
    if as_json:
        emit_json({"sessions": rows})
    elif not rows:
        echo("No sessions in memory: `holdfast import --discover` archives those on this machine", err=True)
    else:
        from holdfast.cli.console import print_table  # noqa: PLC0415 - JSON does not need it

        named = ("agent", "project", "session")
        shown = (
            (human_time(row["time"]), f"{row['messages']:,}", *(printable(row[name], one_line=True) for name in named))
            for row in rows
        )
        print_table(["last message", "messages", *named], shown, right=["messages"], fold=named)


def _list_files(folders: tuple[Path, ...], *, limit: int | None, as_json: bool) -> None:
    from holdfast import transcripts  # noqa: PLC0415 - sessions in memory are listed without it

    problems: list[Problem] = []
    places = folders or tuple(place.folder for place in transcripts.default_places(os.environ, Path.home()))
    found = (ref for folder in places for ref in transcripts.sessions(folder, on_problem=problems.append))
    refs = sorted(found, key=lambda ref: -ref.modified)[:limit]
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


def _print_files(refs: list[SessionRef]) -> None:
    from rich.text import Text as Styled  # noqa: PLC0415 - JSON does not need it

    from holdfast.cli.console import print_table  # noqa: PLC0415 - JSON does not need it

    rows, home = [], Path.home()
    for ref in refs:
        path = f"~/{ref.path.relative_to(home)}" if ref.path.is_relative_to(home) else str(ref.path)
        place = Styled(printable(path, one_line=True))
        if ref.title:
            place.append(f"\n{printable(ref.title, one_line=True)[:100]}", style="dim")
        rows.append((ref.format, human_time(ref.modified), human_bytes(ref.size), place))
    print_table(["agent", "changed", "size", "session"], rows, right=["size"], fold=["session"])


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
