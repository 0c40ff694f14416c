"""How commands open a memory: where it rests, and whose it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast import settings as configuration
from holdfast.cli.output import echo
from holdfast.errors import InputError
from holdfast.memory.memory import Memory, store_file
from holdfast.store.base import Scope

__all__ = ["load", "load_settings", "no_transcript", "open_memory", "opens_memory", "scope_of", "store_of"]

F = TypeVar("F", bound=Callable[..., Any])


def opens_memory(function: F) -> F:
    """Give a command the options that say whose memory it is."""
    options = (
        click.option("--home", type=click.Path(path_type=Path), help="Where memory rests; default $HOLDFAST_HOME."),
        click.option("--project", default="", help="Whose memory: the project."),
        click.option("--agent", default="main", show_default=True, help="Whose memory: the agent."),
        click.option("--session", default=None, help="Only the session of this name; default all of the agent's."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def open_memory(home: Path | None) -> Memory:
    """The memory of this machine, by its settings. Damaged rows that were left out are named when the command ends."""
    memory = Memory.open(home, settings=load_settings())
    click.get_current_context().call_on_close(lambda: _name_gaps(memory))
    return memory


def _name_gaps(memory: Memory) -> None:
    for gap in memory.store.gaps:
        echo(f"warning: {gap}", err=True)


def store_of(home: Path | None) -> Path:
    """The file of this machine's memory, by its settings."""
    return store_file(home, settings=load_settings())


def load_settings(*, warn: Callable[[str], None] | None = None, **overrides: Any) -> configuration.Settings:
    """Load the settings from the usual places. What was refused is said on stderr, or to `warn`."""
    return load(warn=warn or _warn, **overrides).settings


def load(*, warn: Callable[[str], None], agent_id: str | None = None, **overrides: Any) -> configuration.Loaded:
    """Load the settings from the usual places, with where each came from. What was refused is said to `warn`."""
    loaded = configuration.load(files=configuration.default_files(), agent_id=agent_id, **overrides)
    for warning in loaded.warnings:
        warn(warning)
    return loaded


def _warn(text: str) -> None:
    echo(f"note: {text}", err=True)


def scope_of(*, project: str, agent: str, session: str | None) -> tuple[Scope, bool]:
    """The scope that the options name, and whether it reaches across sessions."""
    return Scope(project=project, agent=agent, session=session or ""), session is None


def no_transcript(paths: Iterable[Path | str]) -> InputError:
    """The error for paths that were named and hold nothing to read."""
    return InputError(
        f"{', '.join(map(str, paths))}: no transcript of a known agent; `holdfast sessions --discover` lists yours"
    )
