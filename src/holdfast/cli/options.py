"""The options that several commands have. Nothing heavy is imported here, so that help and errors come at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def as_json(function: F) -> F:
    """Give a command its `--json` option."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


class _Place(click.Path):
    """A folder, or the address of a server as it was given."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in str(value) else super().convert(value, param, ctx)


PLACE: Final = _Place(path_type=Path)
home_option: Final = click.option(
    "--home", type=PLACE, help="The folder (or address) of the memory; default $HOLDFAST_HOME."
)
tenant_option: Final = click.option(
    "--tenant", default="local", show_default=True, help="The tenant that the memory belongs to."
)


def add_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, in this order."""

    def add(function: F) -> F:
        return reduce(lambda command, option: option(command), reversed(options), function)

    return add


owned_by: Final = add_options(
    home_option,
    tenant_option,
    click.option(
        "--project",
        default=None,
        help="Only this project (default: all). New rows have none unless set; import: the folder of the transcript.",
    ),
    click.option("--agent", default=None, help="Only this agent (default: all). New rows belong to main unless set."),
)
"""Adds the options that select a memory, a tenant, a project and an agent to a command."""
opens_memory: Final = add_options(
    owned_by, click.option("--session", default=None, help="Only the session with this name (default: all).")
)
"""Adds the options that select a memory and its owner to a command."""
