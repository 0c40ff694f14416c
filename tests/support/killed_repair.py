"""A repair of a store that is killed before it is done."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

__all__ = ["MOMENTS", "kill_repair"]

MOMENTS = pytest.mark.parametrize("moment", ["copy.db", ".repaired."])
"""Marks a test that is run for each moment: the pages are copied; the rows are written, and are not indexed yet."""

_REPAIR_AND_DIE = """
import os, signal, sys
from pathlib import Path
from holdfast.store.repair import repair

path, moment = Path(sys.argv[1]), sys.argv[2]

def kill(event, arguments):
    if event != "sqlite3.connect":
        return
    file = Path(str(arguments[0]).removeprefix("file:").partition("?")[0])
    if moment in file.name and file.exists() and file.stat().st_size > 0:
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
repair(path)
"""


def kill_repair(path: Path, *, moment: str) -> list[Path]:
    """Kill a repair when it opens a file whose name has a part, and which has a content; return what it has left."""
    before = set(path.parent.rglob("*"))
    done = subprocess.run([sys.executable, "-c", _REPAIR_AND_DIE, str(path), moment], check=False)
    assert done.returncode == -signal.SIGKILL
    left = [file for file in path.parent.rglob("*") if file not in before and file.is_file()]
    assert any(moment in file.name for file in left)
    return left
