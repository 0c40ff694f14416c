"""Real hosts, each in a home of its own, and the model that they talk to."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.host_model import Model
from support.host_programs import PROGRAMS, NotForThisMachineError, Pi, Program
from support.waiting import stop_server

IS_ASKED = bool(os.environ.get("HOLDFAST_TEST_HOSTS"))


@pytest.fixture
def model() -> Iterator[Model]:
    """The model of the host."""
    with Model() as running:
        yield running


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def host(request: pytest.FixtureRequest, model: Model) -> Iterator[Program]:
    """A host in a home of its own. The server that its hooks started is stopped at the end, as are its own ones."""
    program: type[Program] = request.param
    if not IS_ASKED and program is not Pi:
        pytest.skip(f"{program.name} takes minutes: make test-hosts")
    if not IS_ASKED and not (program.is_installed() and shutil.which("node")):
        pytest.skip("pi is not in the cache: make test-hosts installs it")
    try:
        program.find_program()
    except NotForThisMachineError as error:
        pytest.skip(str(error))
    # Not the folder of the test: a Unix socket of Codex in it would have too long a path.
    with tempfile.TemporaryDirectory(prefix="host", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "work").mkdir()
        one = program(home, home / "work", model.url)
        one.prepare()
        yield one
        stop_server(home / "memory")
        for process in find_processes(home):
            os.kill(process, signal.SIGTERM)


def find_processes(home: Path) -> list[int]:
    """List the processes whose program is in the home of a host: Codex leaves a server there."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it is another user's, or has ended
            if (process / "exe").readlink().is_relative_to(home):
                found.append(int(process.name))
    return found
