"""Find the Pythons of this machine that Holdfast supports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


@dataclass(frozen=True)
class Interpreter:
    """A version of Python, and its program; if there is none, the reason."""

    version: str
    program: str = ""
    reason: str = ""


def find_interpreters() -> list[Interpreter]:
    """Return one entry for each supported version. One that is missing is installed if uv can do it."""
    return [find_interpreter(version) for version in VERSIONS]


def find_interpreter(version: str) -> Interpreter:
    """Find the program of a version."""
    for candidate in list_candidates(version):
        if is_version(candidate, version):
            return Interpreter(version, program=candidate)
    return install(version)


def list_candidates(version: str) -> Iterator[str]:
    """Yield programs that may be of a version."""
    yield getattr(sys, "_base_executable", sys.executable)  # not that of the environment of this project
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    for folder in sorted(pyenv.glob(f"{version}.*"), reverse=True):
        yield str(folder / "bin" / "python")


def is_version(program: str, version: str) -> bool:
    """Return whether a program runs, and is of a version."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([program, "-I", "-c", code], capture_output=True, text=True, check=False)  # noqa: S603 - a Python
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def install(version: str) -> Interpreter:
    """Install a version with uv."""
    uv = shutil.which("uv")
    if uv is None:
        return Interpreter(version, reason=f"there is no python{version}, and no uv to install it")
    done = subprocess.run([uv, "python", "install", version], capture_output=True, text=True, check=False)  # noqa: S603 - uv
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2].strip()
        return Interpreter(version, reason=f"there is no python{version}, and uv cannot install it: {last}")
    found = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=True)  # noqa: S603 - uv
    return Interpreter(version, program=found.stdout.strip())
