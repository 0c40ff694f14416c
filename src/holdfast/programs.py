"""Start programs so that nothing in the working directory is run or imported: it may be a cloned repository."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_SAFE_PYTHON: Final = ("-E", "-P")
"""Options of Python: ignore the PYTHON* variables, and do not import from the working directory.

Some hosts load the `.env` file of a project into their environment, so that PYTHONPATH may be the project's.
"""
_SYSTEM_PATH: Final = "/usr/bin:/bin"
"""Used if nothing of PATH is left: an empty PATH stands for the working directory."""


def own_command(*arguments: str) -> list[str]:
    """Return the command line that runs `holdfast` of this installation with some arguments."""
    return module_command("holdfast", *arguments)


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs a module of this Python with some arguments."""
    return [sys.executable, *_SAFE_PYTHON, "-m", module, *arguments]


def search_path(environ: Mapping[str, str], *, project: Path) -> str:
    """Return PATH without the entries that lead into a project: relative ones, empty ones and folders inside it."""
    entries = environ.get("PATH", "").split(os.pathsep)
    kept = [entry for entry in entries if Path(entry).is_absolute() and not _is_inside(entry, project)]
    return os.pathsep.join(kept) or _SYSTEM_PATH


def find_program(name: str, *, environ: Mapping[str, str], project: Path) -> str | None:
    """Return the path of a program outside of a project; None if there is none.

    A name with a folder in it is a path: it is not looked up.
    """
    if Path(name).name != name:
        return shutil.which(name)
    for folder in search_path(environ, project=project).split(os.pathsep):
        found = shutil.which(name, path=folder)
        if found is not None and Path(found).is_absolute():  # Windows looks into the working directory too
            return found
    return None


def _is_inside(entry: str, project: Path) -> bool:
    folder = Path(os.path.realpath(project))
    home = Path(os.path.realpath(Path.home()))
    if home.is_relative_to(folder):  # the home of the user, or all of the disk, is not a project
        return False
    return Path(os.path.realpath(entry)).is_relative_to(folder)
