"""The `holdfast` command. Nothing imports it."""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

__all__ = ["COMMANDS", "holdfast", "main", "run"]

gc.set_threshold(50_000)  # a command makes many objects that stay, and looking through them takes a tenth of its start
# No command multiplies large matrices, and the threads for that take 0.1 s to start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

COMMANDS: Final[dict[str, list[str]]] = json.loads(Path(__file__).with_name("commands.json").read_bytes())
"""The module of each command, here or with its full name, which is loaded when it is called; its line in the list."""


class _Lazy(click.Group):
    """A group that imports its commands only when they are needed, for a fast start."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        name = "import_" if cmd_name == "import" else cmd_name
        module = COMMANDS[cmd_name][0]
        command: click.Command = getattr(import_module(module if "." in module else f"holdfast.cli.{module}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest similar names."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # noqa: PLC0415 - only for this

            close = get_close_matches(args[0], COMMANDS, n=2)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean {' or '.join(close)}?", ctx=ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A closed pipe (`| head`) ends it without an error."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)


@click.command(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, message="holdfast %(version)s")
@click.pass_context
def holdfast(context: click.Context, debug: bool) -> None:
    """Keep long-running LLM agents inside their context window, without losing anything."""
    context.obj = {"debug": debug}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command. Exit codes: 0 success; 1 failure, with one line about what to do; 2 wrong usage.

    With `--json`, the error is the last line of standard error, as a JSON object.
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    is_json = "--json" in arguments
    try:
        code = holdfast.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        if is_json:
            _print_json_error("UsageError", error.format_message())
        else:
            shown = StringIO()
            error.show(shown)
            _print_error(shown.getvalue())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt) as end:
        reason = str(end)
        if is_json:
            _print_json_error("Interrupted", reason or "interrupted")
        elif reason:
            _print_error(f"holdfast: {reason}")
        sys.exit(130)
    except HoldfastError as error:
        if "--debug" in arguments:
            import traceback  # noqa: PLC0415 - only for this

            _print_error(traceback.format_exc())
        elif not is_json:
            _print_error(f"holdfast: {error}")
        if is_json:
            _print_json_error(type(error).__name__, str(error), **vars(error))
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def run() -> NoReturn:
    """Run the command of this process, then end it without freeing its objects: that takes a tenth of a command."""
    try:
        main()
    except SystemExit as end:
        atexit._run_exitfuncs()  # noqa: SLF001 - `os._exit` leaves them out
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # a closed pipe
                stream.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)


def _print_json_error(kind: str, message: str, **details: Any) -> None:
    from holdfast.cli.output import emit_json  # noqa: PLC0415 - as below

    emit_json({"error": {"type": kind, "message": message, **details}}, err=True)


def _print_error(text: str) -> None:
    from holdfast.cli.output import echo  # noqa: PLC0415 - the first screen does not wait for it

    echo(text.rstrip("\n"), err=True)
