"""Tests that run in several processes report all that tests in one process report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import TESTS

TWO_FILES = {
    "test_one.py": "def test_right(): pass\ndef test_wrong(): print('these words'); assert [1] == [2]\n",
    "test_two.py": "import pytest\ndef test_right(): pass\ndef test_skipped(): pytest.skip('no need')\n",
}


def run_tests(folder: Path, files: dict[str, str]) -> tuple[int, str]:
    """Run test files in two processes, and return the exit code and what was printed."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "support.workers", "--workers", "2", "-ra", str(folder)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked there")
class TestWorkers:
    def test_every_test_is_reported_once(self, tmp_path: Path) -> None:
        """With the values of a failed comparison, and what the test printed."""
        code, text = run_tests(tmp_path, TWO_FILES)
        assert code == pytest.ExitCode.TESTS_FAILED
        assert "1 failed, 2 passed, 1 skipped" in text
        assert "assert [1] == [2]" in text
        assert "these words" in text

    def test_a_process_that_ends_fails_the_run(self, tmp_path: Path) -> None:
        """Its tests would be missing without anyone noticing."""
        code, text = run_tests(tmp_path, {"test_end.py": "import os\ndef test_end(): os._exit(0)\n"})
        assert code == pytest.ExitCode.TESTS_FAILED
        assert "a process ended before its first test" in text
