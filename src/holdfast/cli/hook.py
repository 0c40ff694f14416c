"""`holdfast hook` on the command line; hosts run `holdfast.hook_command` without what is imported here."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.options import home_option
from holdfast.hook_command import run


@click.command()
@home_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON, which is what hosts read in any case.")
def hook(*, home: Path | None, as_json: bool) -> None:  # noqa: ARG001 - every command has it
    """Answer a hook event of Claude Code, Codex, Qwen Code or Gemini CLI, from standard input."""
    run("" if home is None else str(home))
