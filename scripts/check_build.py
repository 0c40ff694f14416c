"""Check the sdist and the wheel in dist/: contents, metadata, and the README's commands from an empty environment."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
SOURCE = ROOT / "src"
FORBIDDEN = re.compile(r"(^|/)(tests|benchmarks|\.venv|__pycache__)/|\.pyc$")


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
    extra = [name for name in names if FORBIDDEN.search(name)]
    require(not extra, f"{wheel.name} has {extra[:3]}")
    require(metadata["Requires-Python"] == ">=3.11", "Requires-Python is not >=3.11")
    require("all" in metadata.get_all("Provides-Extra", []), "there is no extra `all`")
    require(metadata["License-Expression"] == "MIT", "the licence is not MIT")
    with tarfile.open(sdist) as source:
        members = source.getnames()
    for wanted in (
        "/src/holdfast/__init__.py",
        "/src/holdfast_agent/__init__.py",
        "/tests/conftest.py",
        "/benchmarks/__main__.py",
        "/scripts/check_build.py",
        "/LICENSE",
    ):
        require(any(name.endswith(wanted) for name in members), f"{sdist.name} has no {wanted}")
    with tempfile.TemporaryDirectory() as folder:
        run_commands(wheel, Path(folder))
    print(f"{wheel.name} and {sdist.name} are fine.")


def run_commands(wheel: Path, folder: Path) -> None:
    """Install the wheel into an empty environment; run the README's commands there, and check and run its Python."""
    venv.create(folder / "venv", with_pip=True)
    programs = folder / "venv" / ("Scripts" if sys.platform == "win32" else "bin")
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
