"""Install each memory system in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast import __version__
from holdfast.errors import InputError

__all__ = ["SYSTEMS", "Environment", "InstallError", "System", "prepare"]

FOLDER: Final = Path(__file__).parent
_LIST: Final = (
    "import json; from importlib import metadata; "
    "print(json.dumps({one.metadata['Name'].lower(): one.version for one in metadata.distributions()}))"
)


class InstallError(Exception):
    """A system cannot be installed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A memory system: its title, the module and class that use it, and what to install for it.

    The first requirement is the system itself. Without requirements it runs in this environment, as Holdfast does.
    """

    title: str
    adapter: str
    requirements: tuple[str, ...] = ()
    class_name: str = "System"
    folder: Path = FOLDER / "systems"

    @property
    def file(self) -> Path:
        """The file of the adapter."""
        return self.folder / f"{self.adapter}.py"

    @property
    def package(self) -> str:
        """The distribution of the system."""
        return self.requirements[0].partition("==")[0] if self.requirements else "holdfast-memory"


SYSTEMS: Final[dict[str, System]] = {
    "holdfast": System(title="Holdfast", adapter="holdfast"),
    "holdfast-full": System(title="Holdfast, full block", adapter="holdfast", class_name="Full"),
    "mempalace": System(title="MemPalace", adapter="mempalace", requirements=("mempalace==3.11.0",)),
    "sqlite": System(title="FTS5 + sqlite-vec", adapter="sqlite", requirements=("sqlite-vec==0.1.9", "apsw==3.54.1.0")),
    "lancedb": System(title="LanceDB hybrid", adapter="lancedb", requirements=("lancedb==0.40.0",)),
    "memsearch": System(title="memsearch", adapter="memsearch", requirements=("memsearch==0.4.23",)),
    "mem0": System(title="mem0, infer=False", adapter="mem0", requirements=("mem0ai==2.2.1",)),
    "chroma": System(title="Chroma", adapter="chroma", requirements=("chromadb==1.5.9",)),
    "langgraph": System(
        title="LangGraph store", adapter="langgraph", requirements=("langgraph==1.2.22", "numpy==2.4.6")
    ),
    "llamaindex": System(title="LlamaIndex", adapter="llamaindex", requirements=("llama-index-core==0.14.25",)),
    "tantivy": System(title="tantivy", adapter="tantivy", requirements=("tantivy==0.27.0",)),
    "bm25s": System(title="bm25s", adapter="bm25s", requirements=("bm25s==0.3.16", "PyStemmer==3.1.0")),
}
"""Every system of the comparison, by the name used on the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The Python of an environment, and the version of each package in it."""

    python: Path
    versions: dict[str, str]


def prepare(system: System, *, folder: Path | None = None) -> Environment:
    """Find the environment of a system; install it the first time.

    Args:
        system: The system.
        folder: The folder of all environments; by default `$HOLDFAST_PEERS` or `~/.cache/holdfast-peers`.

    Raises:
        InstallError: A package cannot be installed here.
    """
    if not system.requirements:
        return Environment(python=Path(sys.executable), versions={system.package: __version__})
    place = folder or find_folder()
    # Another pin or another Python is another environment.
    described = "\n".join((sys.version, *system.requirements))
    digest = hashlib.sha256(described.encode()).hexdigest()[:12]
    home = place / f"{system.adapter}-{digest}"
    if not (home / "versions.json").is_file():
        _install(system, home)
    versions = json.loads((home / "versions.json").read_text("utf-8"))
    return Environment(python=_python(home), versions=versions)


def find_folder() -> Path:
    """Return the folder of the environments."""
    named = os.environ.get("HOLDFAST_PEERS")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "holdfast-peers"


def _install(system: System, home: Path) -> None:
    """Install a system next to its place, and move it there when it is complete."""
    home.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{system.adapter}-", dir=home.parent))
    try:
        for command in _commands(system, aside):
            _run(command)
        (aside / "versions.json").write_text(_run([str(_python(aside)), "-c", _LIST]), "utf-8")
        if home.exists():  # another process was faster, or an earlier one did not finish
            shutil.rmtree(home)
        aside.rename(home)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _commands(system: System, home: Path) -> list[list[str]]:
    python = str(_python(home))
    uv = shutil.which("uv")
    if uv is None:
        return [
            [sys.executable, "-m", "venv", str(home)],
            [python, "-m", "pip", "install", "--quiet", *system.requirements],
        ]
    # Copies, because NLTK refuses to read files that are hard links.
    install = [uv, "pip", "install", "--quiet", "--link-mode", "copy", "--python", python]
    return [
        [uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(home)],
        [*install, *system.requirements],
    ]


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)  # noqa: S603 - ours
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise InstallError(f"{Path(command[0]).name} failed: {lines[-1]}")
    return done.stdout


def _python(home: Path) -> Path:
    return home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def choose_systems(names: str | None) -> dict[str, System]:
    """Return the systems of a list of names with commas between them; all of them without one."""
    if not names:
        return SYSTEMS
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in SYSTEMS:
            raise InputError(f"{name!r} is not one of {', '.join(SYSTEMS)}")
    return {name: system for name, system in SYSTEMS.items() if name in chosen}
