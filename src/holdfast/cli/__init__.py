"""The `holdfast` command. Nothing imports it."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from io import StringIO
from typing import Final, NoReturn

import click

from holdfast.errors import HoldfastError

__all__ = ["COMMANDS", "holdfast", "main"]

COMMANDS: Final[dict[str, str]] = {
    "backup": "upkeep:backup",
    "bench": "bench:bench",
    "chat": "chat:chat",
    "compact": "compact:compact",
    "context": "context:context",
    "demo": "demo:demo",
    "diff": "diff:diff",
    "doctor": "doctor:doctor",
    "export": "upkeep:export",
    "facts": "memory:facts",
    "forget": "memory:forget",
    "get": "memory:get",
    "import": "memory:import_",
    "learn": "learn:learn",
    "models": "models:models",
    "recall": "memory:recall",
    "reindex": "upkeep:reindex",
    "remember": "memory:remember",
    "replay": "replay:replay",
    "search": "memory:search",
    "sessions": "sessions:sessions",
    "show": "show:show",
    "stats": "memory:stats",
    "timeline": "timeline:timeline",
    "tokens": "tokens:tokens",
    "trust": "trust:trust",
    "vacuum": "upkeep:vacuum",
    "version": "version:version",
}
"""Each command and where in this package it is; a module is loaded when one of its commands is called."""


class _Lazy(click.Group):
    """A group whose commands are imported only when they are needed, so that the first screen comes at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(f"holdfast.cli.{module}"), name)
        return command


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show the whole trace of an error.")
@click.pass_context
def holdfast(context: click.Context, debug: bool) -> None:
    """Keep long-running LLM agents inside their context window, without losing anything."""
    context.obj = {"debug": debug}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command. Exit 0: done; 1: it could not be done, and one line says what to do; 2: called wrongly."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = holdfast.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        shown = StringIO()
        error.show(shown)
        _complain(shown.getvalue())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # `holdfast show FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except HoldfastError as error:
        _complain(traceback.format_exc() if "--debug" in arguments else f"holdfast: {error}")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _complain(text: str) -> None:
    """Say what went wrong, in words that may be somebody else's."""
    from holdfast.cli.output import echo  # noqa: PLC0415 - the first screen does not wait for it

    echo(text.rstrip("\n"), err=True)
