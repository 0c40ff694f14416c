"""Real hosts, each in a home of its own, and the model that they talk to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.host_model import Model
from support.host_programs import PROGRAMS, NotForThisMachineError, Pi, Program, install_package
from support.waiting import stop_server

IS_ASKED = bool(os.environ.get("HOLDFAST_TEST_HOSTS"))


@pytest.fixture
def model() -> Iterator[Model]:
    """The model of the host."""
    with Model() as running:
        yield running


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def host(request: pytest.FixtureRequest, tmp_path: Path, model: Model) -> Iterator[Program]:
    """A host in a home of its own. The server that its hooks started is stopped at the end."""
    program: type[Program] = request.param
    if not IS_ASKED and program is not Pi:
        pytest.skip(f"{program.name} takes minutes: make test-hosts")
    if not IS_ASKED and not (program.is_installed() and shutil.which("node")):
        pytest.skip("pi is not in the cache: make test-hosts installs it")
    try:
        install_package(program.package, program.version)
    except NotForThisMachineError as error:
        pytest.skip(str(error))
    (tmp_path / "work").mkdir()
    one = program(tmp_path, tmp_path / "work", model.url)
    one.prepare()
    yield one
    stop_server(tmp_path / "memory")
