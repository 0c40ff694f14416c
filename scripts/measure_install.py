"""Print time and size of an installation of the wheel in dist/ with each extra, for each Python of this machine.

An extra is installed into an empty environment. The size is that of the environment without pip, with compiled modules.
pip's cache is used, so that a package is loaded and compiled once. Next to the time on the clock is that of the
processor, which is about the same on a busy machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from interpreters import find_interpreters

DIST = Path(__file__).resolve().parents[1] / "dist"
EXTRAS = ("", "local", "server", "mcp", "postgres", "chat", "anthropic", "openai", "onnx", "otel")


def main() -> None:
    """Print a table in Markdown. Arguments choose extras; default all that have no framework in them."""
    (wheel,) = DIST.glob("*.whl")
    extras = sys.argv[1:] or EXTRAS
    print("| Python | installed | seconds | of the processor | MB | packages |")
    print("| --- | --- | --- | --- | --- | --- |")
    for interpreter in find_interpreters():
        if not interpreter.program:
            print(f"{interpreter.version}: {interpreter.reason}", file=sys.stderr)
            continue
        for extra in extras:
            measure(interpreter.program, wheel, extra, version=interpreter.version)


def measure(program: str, wheel: Path, extra: str, *, version: str) -> None:
    """Install the wheel with an extra, and print a row."""
    with tempfile.TemporaryDirectory() as folder:
        call([program, "-m", "venv", folder])
        python = str(Path(folder, "Scripts" if sys.platform == "win32" else "bin", "python"))
        before = count_bytes(Path(folder))
        start = time.monotonic()
        used = count_processor_seconds()
        call([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", name(wheel, extra)])
        seconds = time.monotonic() - start
        used = count_processor_seconds() - used
        size = (count_bytes(Path(folder)) - before) / 1e6
        listed = call([python, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"])
        own_tools = ("pip", "setuptools")
        packages = [line for line in listed.split() if line.partition("==")[0] not in own_tools]
    shown = f"`holdfast-memory[{extra}]`" if extra else "`holdfast-memory`"
    print(f"| {version} | {shown} | {seconds:.0f} | {used:.0f} | {size:.0f} | {len(packages)} |", flush=True)


def name(wheel: Path, extra: str) -> str:
    """Return what pip is asked to install."""
    return f"{wheel}[{extra}]" if extra else str(wheel)


def count_processor_seconds() -> float:
    """Return the time of the processor that processes of this one have taken."""
    times = os.times()
    return times.children_user + times.children_system


def count_bytes(folder: Path) -> int:
    """Return the size of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def call(command: list[str]) -> str:
    """Run a command, and return what it prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - our own


if __name__ == "__main__":
    main()
