"""Open a memory for a command, and turn its options into scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import click

from holdfast import settings as configuration
from holdfast.cli.output import echo
from holdfast.errors import InputError
from holdfast.memory.memory import Memory
from holdfast.store.base import Across, Scope, Select
from holdfast.store.opening import store_file

__all__ = [
    "load",
    "load_settings",
    "no_transcript",
    "open_memory",
    "opens_memory",
    "owner_of",
    "owners",
    "scope_of",
    "session_scope",
    "store_of",
]

F = TypeVar("F", bound=Callable[..., Any])
_PARTS: Final[tuple[Literal["project", "agent", "session"], ...]] = ("project", "agent", "session")


def opens_memory(function: F) -> F:
    """Add the options that select a memory and its owner to a command."""
    options = (
        click.option(
            "--home", type=click.Path(path_type=Path), help="The folder of the memory; default $HOLDFAST_HOME."
        ),
        click.option("--project", default=None, help="The project; default all, for a new row none."),
        click.option("--agent", default=None, help="The agent; default all, for a new row main."),
        click.option("--session", default=None, help="Only the session of this name; default all."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def open_memory(home: Path | None) -> Memory:
    """Open the memory of this machine. When the command ends, damaged rows that were skipped are listed on stderr."""
    memory = Memory.open(home, settings=load_settings())
    click.get_current_context().call_on_close(lambda: _print_gaps(memory))
    return memory


def _print_gaps(memory: Memory) -> None:
    for gap in memory.store.gaps:
        echo(f"warning: {gap}", err=True)


def store_of(home: Path | None) -> Path:
    """Return the file of this machine's memory, by its settings."""
    return store_file(home, settings=load_settings())


def load_settings(*, warn: Callable[[str], None] | None = None, **overrides: Any) -> configuration.Settings:
    """Load the settings from the default files. Warnings go to stderr, or to `warn`."""
    return load(warn=warn or _warn, **overrides).settings


def load(*, warn: Callable[[str], None], agent_id: str | None = None, **overrides: Any) -> configuration.Loaded:
    """Load the settings from the default files, with the origin of each value. Warnings go to `warn`."""
    loaded = configuration.load(files=configuration.default_files(), agent_id=agent_id, **overrides)
    for warning in loaded.warnings:
        warn(warning)
    return loaded


def _warn(text: str) -> None:
    echo(f"note: {text}", err=True)


def scope_of(*, project: str | None, agent: str | None, session: str | None) -> tuple[Scope, Across]:
    """Return the scope that the options name, and the parts that no option names: a read covers all of their values."""
    scope = Scope(project=project or "", agent=agent or "main", session=session or "")
    named = {"project": project, "agent": agent, "session": session}
    return scope, tuple(name for name in _PARTS if named[name] is None)


def owner_of(scope: Scope) -> dict[str, str]:
    """Return the owner of a row for `--json`."""
    return {"session": scope.session, "project": scope.project, "agent": scope.agent}


def session_scope(memory: Memory, *, project: str | None, agent: str | None, session: str) -> Scope:
    """Return the scope of the stored session that the options name.

    Raises:
        InputError: Several projects or agents have a session of that name.
    """
    scope, across = scope_of(project=project, agent=agent, session=session)
    required = scope.required(across)
    matches = [one for one in memory.store.sessions() if one.required(across) == required]
    if len(matches) > 1:
        places = ", ".join(f"--project {one.project!r} --agent {one.agent}" for one in matches)
        raise InputError(f"{len(matches)} sessions are called {session}: name one of {places}")
    return matches[0] if matches else scope


def owners(memory: Memory, *, project: str | None, agent: str | None) -> list[Scope]:
    """Return the scope of each project and agent that the options cover, without a session, newest first."""
    scope, across = scope_of(project=project, agent=agent, session=None)
    facts = memory.store.read_facts(Select(scope=scope, across=across))
    stored = [one for one in memory.store.sessions() if one.required(across) == scope.required(across)]
    return list(dict.fromkeys(replace(one, session="") for one in (*stored, *(fact.scope for fact in facts))))


def no_transcript(paths: Iterable[Path | str]) -> InputError:
    """Make the error for paths without a transcript."""
    return InputError(
        f"{', '.join(map(str, paths))}: no transcript of a known agent; `holdfast sessions --discover` lists yours"
    )
