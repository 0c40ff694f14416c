"""`holdfast trust`: accept all settings in the files of a folder."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import click

from holdfast import settings as configuration
from holdfast.cli.output import as_json, echo, emit_json
from holdfast.errors import InputError
from holdfast.settings.loading import read_file
from holdfast.settings.trust import SETTINGS_FILES, forget_trust, links_out_of, load_trust, record_trust

__all__ = ["trust"]


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--list", "listing", is_flag=True, help="List what is trusted, and what has changed since.")
@click.option("--remove", is_flag=True, help="Stop trusting FOLDER.")
@as_json
def trust(*, folder: Path, listing: bool, remove: bool, as_json: bool) -> None:
    """Accept all settings in the files of FOLDER, as they are now. Read them first.

    FOLDER may also be a link to a store outside of the working directory.
    """
    if listing and remove:
        raise click.UsageError("--list and --remove cannot be combined")
    rows = _list() if listing else _remove(folder) if remove else _add(folder)
    if as_json:
        emit_json(rows)
        return
    for row in rows:
        extra = f": {row['settings']}" if row.get("settings") else ""
        echo(f"{row['state']}  {row['path']}{extra}")
    if not rows:
        echo("Nothing is trusted.")


def _add(folder: Path) -> list[dict[str, str]]:
    """Trust the settings files of a folder, and the links that lead to a store outside of it."""
    files = {path: read_file(path) for name in SETTINGS_FILES if (path := folder / name).is_file()}
    refused = configuration.load(files=files, project=folder).refused
    record_trust(files)
    store = configuration.load(files=files, project=folder).settings.archive.path or ".holdfast"
    links = links_out_of(folder, folder / store)
    links |= {path: target for path, target in links_out_of(Path(), folder).items() if path == folder}
    if not files and not links:
        names = " or ".join(SETTINGS_FILES)
        raise InputError(f"{folder}: there is no {names} in it, and it is not a link to a store; name another folder")
    record_trust(links)
    return [
        {"state": "trusted", "path": str(path), "settings": ", ".join(refused.get(path, ()))} for path in files | links
    ]


def _remove(folder: Path) -> list[dict[str, str]]:
    removed = forget_trust(folder)
    if not removed:
        raise InputError(f"{folder}: nothing in it is trusted; `holdfast trust --list` shows what is")
    return [{"state": "removed", "path": path} for path in removed]


def _list() -> list[dict[str, str]]:
    return [{"state": _compare(Path(path), digest), "path": path} for path, digest in load_trust().items()]


def _compare(path: Path, digest: str) -> str:
    if path.name in SETTINGS_FILES and not path.is_file():
        return "missing"
    content = read_file(path) if path.name in SETTINGS_FILES else os.fsencode(os.path.realpath(path))
    return "trusted" if sha256(content).hexdigest() == digest else "changed"
