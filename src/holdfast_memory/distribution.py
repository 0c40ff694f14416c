"""The name under which Holdfast is installed, and other projects that have files in its import package."""

from __future__ import annotations

from functools import cache
from typing import Final

DISTRIBUTION: Final = "holdfast-memory"
UPGRADE: Final = f"pip install --upgrade {DISTRIBUTION}"
REINSTALL: Final = f"pip install --force-reinstall --no-deps {DISTRIBUTION}"
"""The command that brings back files which another project replaced or deleted."""


def install_command(*extras: str) -> str:
    """Return the command that installs Holdfast with these extras."""
    if not extras:
        return f"pip install {DISTRIBUTION}"
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


@cache
def find_other_projects() -> tuple[str, ...]:
    """Return the other installed distributions that have files in our import package, with their versions."""
    # This reads the list of files of every installed distribution, which takes longer than most commands do.
    from importlib import metadata  # noqa: PLC0415

    providers = dict.fromkeys(metadata.packages_distributions().get("holdfast", ()))
    return tuple(f"{name} {metadata.version(name)}" for name in providers if name != DISTRIBUTION)


def explain_other_project(project: str) -> str:
    """Return what another project in our import package does, and the commands that remove it."""
    name = project.split(" ", maxsplit=1)[0]
    return (
        f"{project} is another project with files of the same names as {DISTRIBUTION}, and one replaces those of the"
        f" other. Remove it and restore the files: pip uninstall {name}; {REINSTALL}"
    )
