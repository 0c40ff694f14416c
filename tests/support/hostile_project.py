"""A project folder of someone else: whatever runs or imports anything in it leaves a trace."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROGRAMS: Final = (
    *("bash", "sh", "env", "git", "node", "npm", "holdfast", "python", "python3", "qmd", "notify", "uname", "ldconfig"),
    *("claude", "code", "codex", "cursor", "gemini", "goose", "hermes", "openclaw", "opencode", "pi", "qwen"),
    *("xdg-open", "www-browser", "x-www-browser", "firefox", "chromium", "links", "lynx", "w3m"),
)
PACKAGES: Final = (
    *("holdfast", "holdfast_agent", "click", "msgspec", "json5", "numpy", "platformdirs", "regex", "rich", "Stemmer"),
    *("simsimd", "starlette", "uvicorn", "httpx2", "aiohttp", "anyio", "jinja2", "mcp", "mcp_types", "pydantic"),
    *("sitecustomize", "usercustomize"),
)


@dataclass(frozen=True)
class HostileProject:
    """The folder, and the file that gets a line for everything that was run or imported from it."""

    folder: Path
    trace: Path

    @property
    def search_path(self) -> str:
        """A PATH that leads into the folder: by `.`, by an empty entry and by its name."""
        return os.pathsep.join([".", "", "bin", str(self.folder / "bin"), os.environ["PATH"]])

    def environ(self, home: Path, **more: str) -> dict[str, str]:
        """Return the environment of a user whose home and memory are in a folder."""
        user = {"HOME": str(home), "HOLDFAST_HOME": str(home / "memory"), "HOLDFAST_EMBEDDING__PROVIDER": "none"}
        return {**os.environ, **user, "PATH": self.search_path, **more}

    def traces(self) -> list[str]:
        """Return what was run or imported."""
        return self.trace.read_text().splitlines() if self.trace.exists() else []


def make_hostile_project(folder: Path) -> HostileProject:
    """Make a folder with a program and a module of every name that could be looked up in it."""
    project = HostileProject(folder=folder / "cloned", trace=folder / "trace")
    (project.folder / "bin").mkdir(parents=True)
    for name in PROGRAMS:
        for program in (project.folder / name, project.folder / "bin" / name):
            program.write_text(f"#!/bin/sh\necho run {name} >> '{project.trace}'\n")
            program.chmod(0o755)
    for name in (*PACKAGES, *sys.stdlib_module_names):
        # Not `open`: the first modules that Python imports have no such function yet.
        opened = f"posix.open({str(project.trace)!r}, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND, 0o600)"
        leave_trace = f"import posix\nposix.write({opened}, b'import {name}\\n')\n"
        (project.folder / f"{name}.py").write_text(leave_trace)
    return project
