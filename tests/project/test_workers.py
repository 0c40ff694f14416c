"""The workers of `make test` report what a single process would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import TESTS

FILE = """
import os
import pytest

@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield tmp_path_factory.mktemp("shared")
    raise ValueError("the fixture fails at its end")

@pytest.mark.parametrize("number", range(40))
def test_that_passes(number, tmp_path):
    (tmp_path / "file").touch()

def test_that_fails():
    print("what it printed")
    assert 1 + 1 == 3

def test_that_ends_its_process():
    os._exit(7)

def test_that_is_skipped():
    pytest.skip("not here")

def test_with_a_fixture(place):
    assert place.exists()
"""


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only there workers are forked")


def run_tests(folder: Path, content: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of one file with three workers."""
    (folder / "test_all.py").write_text(content)
    command = [sys.executable, "-m", "pytest", "-p", "support.workers", "-p", "no:cacheprovider", "--workers", "3"]
    return subprocess.run(
        [*command, *options, "--rootdir", str(folder), "-c", os.devnull, str(folder)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_that_a_test_does_is_lost(tmp_path: Path) -> None:
    """A failure has its output, and a test that ends its process is a failure; the rest runs in another one."""
    done = run_tests(tmp_path, FILE)
    assert done.returncode == 1
    assert "2 failed, 41 passed, 1 skipped, 1 error" in done.stdout
    assert "what it printed" in done.stdout
    assert "ended with status 7" in done.stdout
    assert "the fixture fails at its end" in done.stdout


def test_the_first_failure_ends_all_workers_with_the_option_for_it(tmp_path: Path) -> None:
    """Also those that were forked first, although the others know their pipes."""
    content = """
import time
import pytest

@pytest.mark.parametrize("number", range(1000))
def test_that_fails_later(number):
    time.sleep(0.05)
    assert number != 3
"""
    done = run_tests(tmp_path, content, "-x")
    assert done.returncode == 1
    assert "1 failed" in done.stdout
    assert "stopping after 1 failures" in done.stdout
    assert done.stderr == ""
