"""Check the sdist and the wheel in dist/: contents, metadata, and the README's commands from empty environments.

There is an environment for each supported Python that this machine has, and one for the sdist with the first of them.
A Python that is missing is named with the reason; `--all` makes that an error.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from interpreters import find_interpreters

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SOURCE = ROOT / "src"
FORBIDDEN = re.compile(r"(^|/)(tests|benchmarks|scripts|\.venv|__pycache__|\.github|\.ci)/|\.pyc$")
PARTS = re.compile(r"(holdfast|holdfast_agent|holdfast_memory|holdfast_memory-[^/]+\.dist-info)/")
"""What the wheel may consist of."""


def main() -> None:
    """Check both files; exit with a message at the first problem."""
    (wheel,) = DIST.glob("*.whl")
    (sdist,) = DIST.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = Parser().parsestr(archive.read(next(name for name in names if name.endswith("/METADATA"))).decode())
    files = [path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*") if path.is_file()]
    missing = [name for name in files if name not in names and not FORBIDDEN.search(name)]
    require(not missing, f"{wheel.name} lacks {missing[:3]}")
    for package in ("holdfast", "holdfast_agent", "holdfast_memory"):
        require(f"{package}/py.typed" in names, f"{wheel.name} has no {package}/py.typed")
    extra = [name for name in names if FORBIDDEN.search(name) or not PARTS.match(name)]
    require(not extra, f"{wheel.name} has {extra[:3]}")
    require(metadata["Requires-Python"] == ">=3.11", "Requires-Python is not >=3.11")
    require("all" in metadata.get_all("Provides-Extra", []), "there is no extra `all`")
    require(metadata["License-Expression"] == "MIT", "the licence is not MIT")
    with tarfile.open(sdist) as source:
        members = source.getnames()
    for wanted in (
        "/src/holdfast/__init__.py",
        "/src/holdfast_agent/__init__.py",
        "/docs/index.md",
        "/CHANGELOG.md",
        "/LICENSE",
    ):
        require(any(name.endswith(wanted) for name in members), f"{sdist.name} has no {wanted}")
    extra = [name for name in members if FORBIDDEN.search(name)]
    require(not extra, f"{sdist.name} has {extra[:3]}")
    interpreters = find_interpreters()
    for interpreter in interpreters:
        if interpreter.program:
            with tempfile.TemporaryDirectory() as folder:
                run_commands(wheel, Path(folder), program=interpreter.program)
            print(f"Python {interpreter.version}: installed, README and demo run.", flush=True)
        else:
            print(f"Python {interpreter.version}: not checked, {interpreter.reason}.", flush=True)
            require("--all" not in sys.argv, f"there is no Python {interpreter.version}")
    program = next(interpreter.program for interpreter in interpreters if interpreter.program)
    with tempfile.TemporaryDirectory() as folder:
        install_sdist(sdist, Path(folder), program=program)
    print(f"{wheel.name} and {sdist.name} are fine.")


def install_sdist(sdist: Path, folder: Path, *, program: str) -> None:
    """Build and install the sdist in an empty environment: it has all that the wheel is made of."""
    programs = make_environment(folder, program)
    call([str(programs / "python"), "-m", "pip", "install", "--quiet", str(sdist)], folder)
    call([str(programs / "holdfast"), "--version"], folder)


def make_environment(folder: Path, program: str) -> Path:
    """Make an empty environment, and return the folder of its programs."""
    call([program, "-m", "venv", str(folder / "venv")], folder)
    return folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")


def run_commands(wheel: Path, folder: Path, *, program: str) -> None:
    """Install the wheel into an empty environment; run the README's commands there, and check and run its Python."""
    programs = make_environment(folder, program)
    python = str(programs / "python")
    call([python, "-m", "pip", "install", "--quiet", f"{wheel}[local,chat]"], folder)
    readme = (ROOT / "README.md").read_text("utf-8")
    for language, code in re.findall(r"```(sh|python)\n(.*?)```", readme, re.DOTALL):
        if language == "python":
            example = folder / "example.py"
            example.write_text(code, "utf-8")
            call([python, str(example)], folder)
            call([sys.executable, "-m", "mypy", "--strict", "--python-executable", python, str(example)], folder)
            continue
        for command in (shlex.split(line, comments=True) for line in code.splitlines()):
            is_refused = sys.platform == "win32" and command[1:2] == ["chat"]
            if command[:1] == ["holdfast"] and not is_refused:
                call([python, "-m", *command], folder)
    call([str(programs / "holdfast"), "--version"], folder)


def call(command: list[str], folder: Path) -> None:
    """Run a command in a home of its own; exit where it fails."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDFAST_", "PYTHON"))}
    environment = {
        **kept,
        "HOME": str(folder),
        "USERPROFILE": str(folder),
        "HOLDFAST_HOME": str(folder / "memory"),
        "HOLDFAST_RECALL__DEADLINE_MS": "600000",  # a busy machine recalls what any other does
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    require(done.returncode == 0, f"{' '.join(command[1:])[:200]}\n{done.stdout}{done.stderr}")


def require(condition: bool, problem: str) -> None:  # noqa: FBT001 - an assertion
    """Exit with the problem unless the condition holds."""
    if not condition:
        sys.exit(f"check_build: {problem}")


if __name__ == "__main__":
    main()
