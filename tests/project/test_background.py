"""The tests run as well in the background of a shell, which ignores Ctrl-C there, as in a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT

HANDLER = "import signal; print(signal.getsignal(signal.SIGINT) == signal.default_int_handler)"


def test_a_process_that_a_test_starts_handles_ctrl_c() -> None:
    """A handler that ignores a signal is inherited by processes."""
    done = subprocess.run([sys.executable, "-c", HANDLER], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.untraced
@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals of a shell")
def test_also_if_the_tests_run_in_the_background() -> None:
    """As with `make test &` in a script."""
    name = f"{Path(__file__).relative_to(ROOT)}::{test_a_process_that_a_test_starts_handles_ctrl_c.__name__}"
    line = f'trap "" INT; exec "$0" -m pytest -q -p no:cacheprovider {name}'
    done = subprocess.run(["sh", "-c", line, sys.executable], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
