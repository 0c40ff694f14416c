"""`holdfast install` and `holdfast uninstall`: memory for the agents that are already on this machine."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.opening import has_extra, load_settings, open_model, store_of
from holdfast.cli.options import as_json, home_option
from holdfast.cli.output import echo, emit_json
from holdfast.hooks.hosts import HOSTS, Host, Keys
from holdfast.hooks.install import FileChange, Installer, plan_host_model, write_change
from holdfast.settings.loading import user_settings_file
from holdfast.store.opening import local_file, server_address
from holdfast_memory.distribution import install_command

NO_MODEL: Final = "none"
"""The name for no model: only rules extract facts from what hosts archive."""
_VERBS: Final = {"create": "created", "change": "changed", "keep": "unchanged", "remove": "removed"}

_NOTE_COLUMN: Final = 28
"""Where the notes of the list of agents begin."""

_dry_run: Final = click.option("--dry-run", is_flag=True, help="Only print what would be changed, line by line.")


def open_installer(name: str, *, memory: Path) -> Installer:
    """Open the installer of a host; what it changes is recorded in the folder of the memory."""
    return Installer(name, records=memory / "hosts", environ=os.environ)


@click.command()
@click.argument("host", required=False, type=click.Choice(list(HOSTS)))
@click.option(
    "--learn",
    "learner",
    metavar="MODEL",
    help="Let this model read the conversations of all agents that use the memory, to extract facts; `none` ends it.",
)
@_dry_run
@home_option
@as_json
def install(*, host: str | None, learner: str | None, dry_run: bool, home: Path | None, as_json: bool) -> None:
    """Install memory into the agent HOST; without HOST, list the agents. Other content of its files is kept."""
    if host is None:
        if learner is not None:
            raise click.UsageError("--learn: name the HOST that is installed")
        rows: list[dict[str, Any]] = []
        for name in HOSTS:
            one = open_installer(name, memory=store_of(home).parent)
            rows.append({"host": name, "title": one.host.title, "is_present": one.is_present, "state": one.state})
        if as_json:
            emit_json(rows)
            return
        for row in rows:
            echo(_describe_host(row), indent=_NOTE_COLUMN)
        return
    installer = open_installer(host, memory=store_of(home).parent)
    consent = None if learner is None else _plan_consent(learner)
    is_present = installer.is_present  # before its folder is made
    changes = installer.plan() if dry_run else installer.install()
    if consent is not None:
        changes = [*changes, consent]
        if not dry_run:
            write_change(consent)
    notes = [] if is_present else [f"{installer.host.title} was not found on this machine"]
    notes += [installer.host.note] if installer.host.note else []
    notes.append(_describe_memory(installer))
    if learner not in {None, NO_MODEL}:
        notes.append(
            f"{learner} reads the conversations of all agents that use this memory, to extract facts, from the next"
            f" start of the server on; `holdfast install {host} --learn {NO_MODEL}` ends that"
        )
    missing = find_missing_extras(installer.host)
    if missing:  # the last line is the one that is read
        notes.append(f"it does not work yet, packages are missing: {install_command(*missing)}")
    _print(installer, changes, notes, dry_run=dry_run, as_json=as_json)


def find_missing_extras(host: Host) -> list[str]:
    """Return the extras that a host needs and this installation lacks."""
    return [extra for extra in host.extras if not has_extra(extra)]


@click.command()
@click.argument("host", type=click.Choice(list(HOSTS)))
@_dry_run
@home_option
@as_json
def uninstall(*, host: str, dry_run: bool, home: Path | None, as_json: bool) -> None:
    """Remove Holdfast from the agent HOST: its files are as they were before. Memory is kept."""
    settings = load_settings()
    memory = local_file(home, settings=settings)
    installer = open_installer(host, memory=memory.parent)
    changes = installer.plan_removal() if dry_run else installer.uninstall()
    notes: list[str] = []
    if memory.exists() and server_address(home, settings=settings) is None:
        notes.append(f"memory stays in {memory}: `holdfast forget` erases parts of it, deleting {memory}* all of it")
    _print(installer, changes, notes, dry_run=dry_run, as_json=as_json)


def _describe_host(row: dict[str, Any]) -> str:
    missing = "" if row["is_present"] else f"  {row['title']} was not found on this machine"
    return f"{row['host']:12} {row['state']:13}{missing}".rstrip()  # the note begins in `_NOTE_COLUMN`


def _describe_memory(installer: Installer) -> str:
    """Return what a new session of the host remembers, and how that is changed."""
    from holdfast.transcripts import default_places  # noqa: PLC0415 - takes time

    title = installer.host.title
    file = user_settings_file()
    if load_settings().archive.cross_session is False:
        return f"sessions of {title} do not remember each other: archive.cross_session is off (settings: {file})"
    earlier = ""
    agent = installer.name.replace("-", "_")
    if any(place.agent == agent for place in default_places(os.environ, Path.home())):
        earlier = " (those from before the installation after `holdfast import --discover`)"
    return (
        f"a new session of {title} remembers the earlier sessions of its project{earlier};"
        f" `cross_session = false` under [archive] in {file} turns that off"
    )


def _plan_consent(learner: str) -> FileChange:
    """Plan the change of the user's settings for a model, which has to be one that can be used."""
    if not learner.strip():
        raise click.UsageError(f"--learn: name a model, such as anthropic/NAME, or `{NO_MODEL}` to end it")
    model = None if learner == NO_MODEL else learner
    if model is not None:
        open_model(model, load_settings())
    return plan_host_model(user_settings_file(), model)


def _print(
    installer: Installer, changes: Sequence[FileChange], notes: Sequence[str], *, dry_run: bool, as_json: bool
) -> None:
    if as_json:
        rows = [{"path": str(one.path), "action": one.action} for one in changes]
        if dry_run:
            rows = [{**row, "diff": "\n".join(_diff(one))} for row, one in zip(rows, changes, strict=True)]
        emit_json({"host": installer.name, "dry_run": dry_run, "changes": rows, "notes": notes})
        return
    for one in changes:
        verb = f"would be {_VERBS[one.action]}" if dry_run and one.action != "keep" else _VERBS[one.action]
        names = ""
        if isinstance(one.part, Keys) and one.action == "change" and one.part.values:
            names = f": {', '.join(one.part.values)}"
        echo(f"{verb} {one.path}{names}")
        for line in _diff(one) if dry_run else ():
            echo(f"  {line}", verbatim=True)
    if not changes:
        echo(f"{installer.host.title} has nothing of Holdfast")
    for note in notes:
        echo(f"note: {note}", err=True)


def _diff(change: FileChange) -> list[str]:
    """Return the lines that are added and removed. Lines around them are not shown: a host may keep keys there."""
    before = (change.before or b"").decode("utf-8", "replace").splitlines()
    after = (change.after or b"").decode("utf-8", "replace").splitlines()
    lines = list(difflib.unified_diff(before, after, n=0, lineterm=""))
    return [line for line in lines[2:] if not line.startswith("@@")]  # after the two lines with the names of files
