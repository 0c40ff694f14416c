"""Real hosts while memory fails: they go on, and what was said meanwhile is archived afterwards: `make test-hosts`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.models.scripted import ScriptedReply
from holdfast.server.process import Server, find
from holdfast.settings import Settings
from support.host_model import Model, shown
from support.host_programs import PATIENT, Program, read_files
from support.waiting import until

pytestmark = pytest.mark.skipif(not os.environ.get("HOLDFAST_TEST_HOSTS"), reason="takes minutes: make test-hosts")
HURRIED = {"HOLDFAST_TIMEOUT_MS": "2000", "HOLDFAST_RECALL__DEADLINE_MS": "2000"}
REPAIRED = PATIENT | {"HOLDFAST_PAUSE_MS": "1"}
FIRST = "The billing replica listens on port 5433."
MEANWHILE = "The reporting replica listens on port 5434."


@contextmanager
def break_command(_: Program, environment: Path) -> Iterator[None]:
    """Remove the environment that Holdfast was installed from."""
    target = environment.readlink()
    environment.unlink()
    yield
    environment.symlink_to(target)


@contextmanager
def hang(host: Program, environment: Path) -> Iterator[None]:
    """Stop the server of the hooks, or put a program that hangs in the place of that of plugins."""
    if not host.has_server:
        target = environment.readlink()
        environment.unlink()
        program = environment / "bin" / Path(sys.executable).name
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\nexec sleep 600\n")
        program.chmod(0o700)
        yield
        shutil.rmtree(environment)
        environment.symlink_to(target)
        return
    server = find_server(host)
    os.kill(server.pid, signal.SIGSTOP)
    yield
    assert Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    os.kill(server.pid, signal.SIGCONT)


@contextmanager
def delete_store(host: Program, _: Path) -> Iterator[None]:
    """Delete the store; the server of the hooks still has it open."""
    for file in (host.home / "memory").glob("holdfast.db*"):
        file.unlink()
    yield


@contextmanager
def make_readonly(host: Program, _: Path) -> Iterator[None]:
    """Make the folder of the memory and all of its files read-only, after its server has stopped."""
    memory = host.home / "memory"
    if host.has_server:
        os.kill(find_server(host).pid, signal.SIGTERM)
        until(lambda: find(memory) is None)
    host.is_bound_by_modes = True
    change_modes(memory, writable=False)
    yield
    change_modes(memory, writable=True)
    host.is_bound_by_modes = False


def change_modes(folder: Path, *, writable: bool) -> None:
    """Make a folder and its files writable for their owner, or not."""
    for path in [folder, *folder.rglob("*")]:
        mode = 0o700 if path.is_dir() else 0o600
        path.chmod(mode if writable else mode & 0o500)


def find_server(host: Program) -> Server:
    """Return the server that the hooks of a host have started."""
    until(lambda: find(host.home / "memory"))
    server = find(host.home / "memory")
    assert server is not None
    return server


def read_archive(home: Path) -> str:
    """Return all texts that a memory has."""
    with Engine.open(home / "memory", settings=Settings(), background=False) as engine:
        texts: list[str] = []
        for scope in engine.sessions():
            session = engine.session(scope.id, project=scope.project, agent=scope.agent)
            texts += [repr(row.message) for row in session.get(range(1, 1000))]
    return "\n".join(texts)


FAULTS = {"missing": break_command, "hung": hang, "deleted": delete_store, "read-only": make_readonly}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_host_goes_on_while_memory_fails(
    host: Program, model: Model, fault: str, record_property: Callable[[str, object], None]
) -> None:
    """The turn is made, the next one archives what was said meanwhile, and an uninstallation leaves nothing."""
    before = read_files(host.home)
    environment = host.home / "environment"
    environment.symlink_to(Path(sys.executable).parents[1])
    python = environment / "bin" / Path(sys.executable).name
    assert json.loads(host.run(python, "-m", "holdfast", "install", host.name, "--json"))["changes"]
    record_property("install", "yes")

    model.expect([ScriptedReply(text=f"Noted: {FIRST}")])
    host.turn("Note what the operators say about the replica of billing.")
    until(lambda: FIRST in read_archive(host.home))
    record_property("archive", "yes")
    with FAULTS[fault](host, environment):
        host.patience = dict(HURRIED)
        model.expect([ScriptedReply(text=f"Noted: {MEANWHILE}")])
        host.turn("Note what they say about the one of reporting.")
        assert any("the one of reporting" in shown(body) for body in model.bodies)
    record_property(fault, "turn made")
    host.patience = dict(REPAIRED)
    model.expect([ScriptedReply(text="Fine.")])
    host.turn("Thank you for the notes.")
    until(lambda: MEANWHILE in read_archive(host.home))
    assert FIRST in read_archive(host.home)
    record_property(fault, "yes")

    host.holdfast("uninstall", host.name)
    assert {path: path.read_bytes() for path in before} == before
    record_property("uninstall", "yes")
