"""The README's Python example in a project of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import ROOT


@pytest.mark.nightly  # mypy reads the whole package
def test_the_example_is_typed_and_a_misspelt_keyword_is_refused(tmp_path: Path) -> None:
    """`mypy --strict` passes the example, and names a misspelt keyword; so does Python when it runs."""
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "example.py").write_text(example, "utf-8")
    (tmp_path / "misspelt.py").write_text(example.replace("limit=16_000", "limits=16_000"), "utf-8")
    # The types of the SDKs take most of the time, and the example uses none.
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\n[mypy-anthropic.*,openai.*]\nfollow_imports = skip\n")
    (problem, *_) = run(tmp_path, "-m", "mypy", ".").stdout.splitlines()
    assert problem.startswith('misspelt.py:12: error: Unexpected keyword argument "limits" for "assemble"')
    assert run(tmp_path, "example.py").returncode == 0
    assert "TypeError" in run(tmp_path, "misspelt.py").stderr


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder."""
    environment = {**os.environ, "HOLDFAST_RECALL__DEADLINE_MS": "600000"}  # a busy machine recalls what any other does
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
