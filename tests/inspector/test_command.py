"""`holdfast ui` as a process: it serves the inspector, and finds a server that runs already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import patient


def test_the_command_serves_the_inspector(tmp_path: Path) -> None:
    """A second call prints the address of the first one's server."""
    command = [sys.executable, "-m", "holdfast", "ui", "--no-open", "--json"]
    environ = {**os.environ, "HOLDFAST_HOME": str(tmp_path), "HOLDFAST_EMBEDDING__PROVIDER": "none"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            assert "No session is stored yet" in patient.get(url, follow_redirects=True).text
            again = subprocess.run(command, stdout=subprocess.PIPE, env=environ, check=True)
            assert json.loads(again.stdout)["url"] == url
        finally:
            process.terminate()
