"""The container image, built and started, if this machine has a container runtime that can get the base image."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx2
import pytest

from holdfast.testing.provider import ScriptedProvider
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
    programs = [program for name in ("docker", "podman") if (program := shutil.which(name))]
    if not programs:
        pytest.skip("there is neither docker nor podman here")
    found = next((one for one in map(Runtime, programs) if one.run("info").returncode == 0), None)
    if found is None:
        pytest.skip(f"not running here: {', '.join(programs)}")
    if found.run("image", "inspect", BASE_IMAGE).returncode and found.run("pull", BASE_IMAGE).returncode:
        pytest.skip(f"{found.program} cannot get {BASE_IMAGE}")
    return found


@pytest.fixture(scope="module")
def image(runtime: Runtime) -> Iterator[str]:
    """Build the image."""
    name = f"holdfast-test-{uuid.uuid4().hex[:12]}"
    form = ("--format", "docker") if Path(runtime.program).name == "podman" else ()  # its own has no health check
    built = runtime.run("build", *form, "--tag", name, ".")
    assert built.returncode == 0, built.stderr[-2_000:]
    yield name
    runtime.run("rmi", "--force", name)


def _answers(runtime: Runtime, name: str) -> bool:
    """Does the server of a container answer?"""
    return runtime.run("exec", name, "holdfast", "serve", "--check").returncode == 0


@pytest.mark.nightly  # the image is built, which takes minutes
def test_the_image_serves_as_a_user_and_is_healthy(runtime: Runtime, image: str) -> None:
    """Its health check passes, its process is not root and writes only to the volume, and SIGTERM stops it."""
    name = f"{image}-server"
    (config,) = json.loads(runtime.run("image", "inspect", image).stdout)
    kind, *check = config["Config"]["Healthcheck"]["Test"]
    assert (kind, check) == ("CMD", ["holdfast", "serve", "--check"])
    assert runtime.run("run", "--rm", image, "serve", "--check").returncode == 1  # no server runs
    started = runtime.run("run", "--detach", "--read-only", "--name", name, image, "serve", "--port", "0")
    assert started.returncode == 0, started.stderr
    try:
        until(lambda: runtime.run("exec", name, *check).returncode == 0)
        assert runtime.run("exec", name, "id", "-u").stdout.strip() == "10001"
        assert runtime.run("stop", "--time", "30", name).returncode == 0
        state = json.loads(runtime.run("inspect", name).stdout)[0]["State"]
        assert state["ExitCode"] == 0
    finally:
        runtime.run("rm", "--force", "--volumes", name)


@pytest.mark.nightly  # as above
def test_a_new_container_recalls_what_another_archived(
    runtime: Runtime, image: str, model_server: ScriptedProvider
) -> None:
    """The volume has the memory and the token, and requests pass the proxy on the network of the machine."""
    if os.uname().sysname != "Linux":
        pytest.skip("the container needs the network of the machine")
    model_server.set_script(["Noted.", "Marigold."])
    volume = f"{image}-data"
    questions = [
        "The code name of the launch in October is Marigold.",
        "What is the code name of the launch in October?",
    ]
    try:
        for number, question in enumerate(questions):
            name = f"{volume}-{number}"
            serve = ("serve", "--port", "0", "--upstream", f"openai={model_server.url}/v1")
            started = runtime.run(
                "run", "--detach", "--network", "host", "--volume", f"{volume}:/data", "--name", name, image, *serve
            )
            assert started.returncode == 0, started.stderr
            until(partial(_answers, runtime, name))
            address = runtime.run("exec", name, "holdfast", "serve", "--check").stdout.strip()
            token = runtime.run("exec", name, "holdfast", "token").stdout.strip()
            body = {"model": "gpt-5", "messages": [{"role": "user", "content": question}]}
            reply = httpx2.post(
                f"{address}/v1/chat/completions",
                json=body,
                headers={"x-holdfast-token": token, "authorization": "Bearer key"},
                timeout=60,
            )
            assert reply.status_code == 200, reply.text
            assert runtime.run("stop", "--time", "30", name).returncode == 0
        assert questions[0] in model_server.bodies[1]["messages"][0]["content"]
    finally:
        for number in range(len(questions)):
            runtime.run("rm", "--force", f"{volume}-{number}")
        runtime.run("volume", "rm", "--force", volume)


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
