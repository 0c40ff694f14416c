"""The name under which Holdfast is installed, and other projects that have files in its import package."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

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
    from importlib import metadata  # noqa: PLC0415 - slow to import, and rarely needed

    # `packages_distributions` makes a path of every file and reads all metadata, which takes half a second.
    providers = [each for each in metadata.distributions() if _has_our_package(each)]
    found = [f"{each.name} {each.version}" for each in providers if each.name != DISTRIBUTION]
    return tuple(dict.fromkeys(found))


def _has_our_package(distribution: Distribution) -> bool:
    """Return whether a distribution names our import package, or has files in it."""
    if "holdfast" in (distribution.read_text("top_level.txt") or "").split():
        return True
    record = distribution.read_text("RECORD")
    if record is not None:
        return any(line.startswith(("holdfast/", "holdfast.py,")) for line in record.splitlines())
    return any(str(file).startswith(("holdfast/", "holdfast.py")) for file in distribution.files or ())


def explain_other_project(project: str) -> str:
    """Return what another project in our import package does, and the commands that remove it."""
    name = project.split(" ", maxsplit=1)[0]
    return (
        f"{project} is another project with files of the same names as {DISTRIBUTION}, and one replaces those of the"
        f" other. Remove it and restore the files: pip uninstall {name}; {REINSTALL}"
    )
