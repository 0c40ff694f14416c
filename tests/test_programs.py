"""Programs are looked up outside of the project, whatever PATH says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.programs import find_program, own_command, search_path


def make_program(folder: Path, name: str = "tool") -> Path:
    """Make a program in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with programs in it, as the working directory of a user whose home is elsewhere."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    make_program(folder)
    make_program(folder / ".venv" / "bin")
    (tmp_path / "link").symlink_to(folder / ".venv" / "bin")
    monkeypatch.chdir(folder)
    return folder


def join(*entries: Path | str) -> dict[str, str]:
    """Return an environment with a PATH."""
    return {"PATH": os.pathsep.join(map(str, entries))}


def test_entries_that_lead_into_the_project_do_not_count(project: Path, tmp_path: Path) -> None:
    """Relative and empty ones, the project itself, a folder in it, and a link to one."""
    own = make_program(tmp_path / "home" / "bin")
    into = (".", "", ".venv/bin", project, project / ".venv" / "bin", tmp_path / "link")
    assert find_program("tool", environ=join(*into), project=project) is None
    assert find_program("tool", environ=join(*into, own.parent), project=project) == str(own)
    assert search_path(join(*into, own.parent), project=project) == str(own.parent)


def test_a_path_of_which_nothing_is_left_is_that_of_the_system(project: Path) -> None:
    """An empty PATH would stand for the working directory."""
    assert search_path(join("."), project=project) == "/usr/bin:/bin"
    assert search_path({}, project=project) == "/usr/bin:/bin"
    assert find_program("sh", environ={}, project=project) is not None


def test_the_home_of_the_user_is_no_project(project: Path, tmp_path: Path) -> None:
    """Else nothing of the user's own programs would be found there, or in the root of the disk."""
    own = make_program(tmp_path / "home" / "bin")
    for folder in (tmp_path / "home", tmp_path, Path("/")):
        assert find_program("tool", environ=join(own.parent), project=folder) == str(own)
    assert find_program("tool", environ=join("."), project=Path("/")) is None
    assert project == Path.cwd()


@pytest.mark.usefixtures("project")
def test_a_name_with_a_folder_is_a_path(tmp_path: Path) -> None:
    """It is not looked up, and is None if it does not exist."""
    assert find_program("./tool", environ={}, project=tmp_path) == "./tool"
    assert find_program("./none", environ={}, project=tmp_path) is None


def test_our_own_command_ignores_the_variables_of_python(tmp_path: Path) -> None:
    """It runs from any folder."""
    (tmp_path / "sitecustomize.py").write_text("print('imported')")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert own_command()[0] == sys.executable
    done = subprocess.run(
        own_command("--version"), cwd=tmp_path, env=environ, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("holdfast ")
