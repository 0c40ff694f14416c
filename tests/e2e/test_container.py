"""The container image, built and started, if this machine has a container runtime that can get the base image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from support.paths import ROOT
from support.waiting import until

BASE_IMAGE = "python:3.13-slim"


@dataclass(frozen=True)
class Runtime:
    """Docker, or a program with the same commands."""

    program: str

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of it."""
        return subprocess.run([self.program, *words], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """Find the runtime; without one, or without the base image, the tests are skipped with the reason."""
    program = shutil.which("docker") or shutil.which("podman")
    if program is None:
        pytest.skip("there is neither docker nor podman here")
    found = Runtime(program)
    if found.run("info").returncode:
        pytest.skip(f"{program} does not run here")
    if found.run("pull", BASE_IMAGE).returncode:
        pytest.skip(f"{program} cannot get {BASE_IMAGE}")
    return found


@pytest.fixture(scope="module")
def image(runtime: Runtime) -> Iterator[str]:
    """Build the image."""
    name = f"holdfast-test-{uuid.uuid4().hex[:12]}"
    built = runtime.run("build", "--tag", name, ".")
    assert built.returncode == 0, built.stderr[-2_000:]
    yield name
    runtime.run("rmi", "--force", name)


@pytest.mark.nightly  # the image is built, which takes minutes
def test_the_image_serves_as_a_user_and_is_healthy(runtime: Runtime, image: str) -> None:
    """Its health check passes, its process is not root, and SIGTERM stops it."""
    name = f"{image}-server"
    started = runtime.run("run", "--detach", "--name", name, image, "serve", "--port", "0")
    assert started.returncode == 0, started.stderr
    try:
        until(lambda: runtime.run("exec", name, "holdfast", "serve", "--check").returncode == 0)
        assert runtime.run("exec", name, "id", "-un").stdout.strip() == "holdfast"
        assert runtime.run("stop", "--time", "30", name).returncode == 0
        state = json.loads(runtime.run("inspect", name).stdout)[0]["State"]
        assert state["ExitCode"] == 0
    finally:
        runtime.run("rm", "--force", name)


@pytest.mark.nightly  # as above
def test_compose_starts_the_server_with_its_database(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are healthy, and the memory is on the server."""
    if runtime.run("compose", "version").returncode:
        pytest.skip(f"{runtime.program} has no compose")
    if os.uname().sysname != "Linux":
        pytest.skip("the container needs the network of the machine")
    monkeypatch.setenv("HOLDFAST_DB_PASSWORD", uuid.uuid4().hex)
    file = ("compose", "--file", "examples/postgres/compose.yaml", "--project-name", f"holdfast-{uuid.uuid4().hex[:8]}")
    try:
        done = runtime.run(*file, "up", "--build", "--detach", "--wait")
        assert done.returncode == 0, done.stderr[-2_000:]
        stats = runtime.run(*file, "exec", "-T", "holdfast", "holdfast", "stats", "--json")
        assert "postgresql://" in stats.stdout
    finally:
        runtime.run(*file, "down", "--volumes")
