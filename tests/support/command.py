"""Run the `holdfast` command inside the process of the test: starting a process takes longer than most commands."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from holdfast.cli import main

__all__ = ["Done", "run_command"]


@dataclass(frozen=True)
class Done:
    """The result of a command, with the names of `subprocess.CompletedProcess`."""

    returncode: int
    stdout: str
    stderr: str


def run_command(*arguments: str, folder: Path, environ: Mapping[str, str], stdin: str = "") -> Done:
    """Run a command in a folder, with these environment variables and no others.

    Errors and exit codes are those of the installed command. Tests of the process itself (signals, servers, a start
    without the test's modules) start `holdfast` instead.
    """
    variables: dict[str, str | None] = dict.fromkeys(os.environ)
    variables |= environ
    with chdir(folder), CliRunner().isolation(input=stdin, env=variables) as (stdout, stderr, _):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return Done(returncode=code, stdout=stdout.getvalue().decode(), stderr=stderr.getvalue().decode())
