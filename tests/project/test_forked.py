"""Processes that tests fork are like those that are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.forked import Holdfast, run_holdfast

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such processes")

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.mark.variants
@pytest.mark.parametrize(
    "arguments", [["--version"], ["facts", "--json"], ["remember"], ["no-such-command"], ["remember", "端口是 8443"]]
)
def test_a_command_prints_and_ends_as_one_that_is_started(arguments: list[str], tmp_path: Path) -> None:
    """With its folder and its environment variables alone."""
    ended = []
    for name in ("forked", "started"):
        home = tmp_path / name
        (home / "work").mkdir(parents=True)
        environ = {"HOME": str(home), "HOLDFAST_HOME": "memory", "HOLDFAST_EMBEDDING__PROVIDER": "none"}
        if name == "forked":
            done = run_holdfast(*arguments, env=environ, cwd=home / "work", check=False)
        else:
            command = [str(Path(sys.executable).with_name("holdfast")), *arguments]
            done = subprocess.run(
                command, env=environ, cwd=home / "work", capture_output=True, check=False, encoding="utf-8"
            )
        made = sorted(str(file.relative_to(home)) for file in home.rglob("*"))
        ended.append((done.returncode, len(done.stdout), done.stderr.replace(str(home), ""), made))
    assert ended[0] == ended[1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_process_gets_signals(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """It is a child of this process, with the exit code of its end."""
    with Holdfast[bytes]("serve", "--home", str(tmp_path), "--port", "0", "--json", **PIPES) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.poll() is None
        process.send_signal(number)
        assert process.wait() == code
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
