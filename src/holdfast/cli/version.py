"""`holdfast version`."""

from __future__ import annotations

import platform

import click

from holdfast import __version__
from holdfast.cli.output import as_json, echo, emit_json

__all__ = ["version"]


@click.command()
@as_json
def version(*, as_json: bool) -> None:
    """Print the version."""
    if as_json:
        emit_json({"holdfast": __version__, "python": platform.python_version()})
    else:
        echo(f"holdfast {__version__}")
