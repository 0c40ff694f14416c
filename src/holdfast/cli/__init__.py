"""The `holdfast` command. Nothing imports it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import StringIO
from typing import Any, Final, NoReturn

import click

from holdfast import __version__
from holdfast.errors import HoldfastError

__all__ = ["COMMANDS", "holdfast", "main"]

os.environ.setdefault(
    "OPENBLAS_NUM_THREADS", "1"
)  # no command multiplies large matrices; its threads take 0.1 s to start

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "backup": ("upkeep", "Copy the store to the new file TARGET."),
    "chat": ("chat", "Chat with an agent in the terminal."),
    "compact": ("compact", "Preview a compaction of the transcript FILE, or compact a stored --session."),
    "context": ("context", "Draw the window of a request of the transcript FILE, or of a stored session (--session)."),
    "demo": ("demo", "Replay six weeks of work in a small window, then ask for what has left it."),
    "diff": (
        "context",
        "Compare the transcript FILE with what is sent for one of its requests: kept, pruned, trimmed, recalled.",
    ),
    "doctor": ("doctor", "Check the installation, the settings, the memory and the agents on this machine."),
    "export": (
        "upkeep",
        "Write memory to the new file (or folder) TARGET; `holdfast import` reads `jsonl` and `folder` back.",
    ),
    "facts": ("memory", "List the current facts, or those that match QUERY."),
    "forget": ("memory", "Forget messages (by number) and facts (by id) for good, or a whole --session."),
    "get": ("memory", "Print archived messages whole, by the numbers that search shows."),
    "hook": ("hook", "Answer a hook event of Claude Code, Codex, Qwen Code or Gemini CLI, from standard input."),
    "import": (
        "importing",
        "Archive what is at PATHS: transcripts of any known agent, an export, a memory-context folder.",
    ),
    "install": ("install", "Give the agent HOST its memory; without HOST, list the agents."),
    "learn": ("upkeep", "Extract facts from archived messages, of one --session or of all."),
    "mcp": ("serve", "Give memory to an MCP client as tools, over standard input and output or HTTP."),
    "migrate": ("upkeep", "Copy a memory between folders, files and PostgreSQL servers."),
    "models": ("upkeep", "List embedding models, and download one."),
    "recall": ("memory", "Print the block that would be recalled for QUERY."),
    "reindex": ("upkeep", "Rebuild the index from the archive, and embed what the current model has not embedded yet."),
    "remember": ("memory", "Store CONTENT as a fact."),
    "replay": ("replay", "Run transcripts turn by turn through the engine: windows, cuts, recalls, violations, time."),
    "rpc": ("serve", "Answer calls, one JSON object a line, from standard input on standard output."),
    "search": ("memory", "Search the archive for QUERY."),
    "serve": ("serve", "Serve memory to other programs: a proxy for model requests, and calls for plugins."),
    "sessions": ("memory", "List the sessions in memory; with FOLDERS or --discover, the transcripts on disk."),
    "show": ("show", "Show the transcript FILE of any known agent."),
    "stats": ("memory", "Print what memory contains."),
    "timeline": (
        "timeline",
        "Show the requests of a stored --session or of the transcript FILE: tokens, cuts, recalls, warnings.",
    ),
    "tokens": ("show", "Count the tokens of the transcript FILE by role and part."),
    "trust": ("upkeep", "Accept all settings in the files of FOLDER, as they are now."),
    "uninstall": ("install", "Remove Holdfast from the agent HOST: its files are as they were before."),
    "vacuum": ("upkeep", "Shrink the store file by the space of deleted rows."),
    "version": ("output", "Print the version."),
}
"""The module of each command, which is loaded when it is called, and its line in the list."""


class _Lazy(click.Group):
    """A group that imports its commands only when they are needed, for a fast start."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        name = "import_" if cmd_name == "import" else cmd_name
        command: click.Command = getattr(import_module(f"holdfast.cli.{COMMANDS[cmd_name][0]}"), name)
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
        """List the commands."""
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
    """Run the command. Exit codes: 0 success; 1 failure, with one line that says what to do; 2 wrong usage."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = holdfast.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        shown = StringIO()
        error.show(shown)
        _print_error(shown.getvalue())
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except HoldfastError as error:
        if "--debug" in arguments:
            import traceback  # noqa: PLC0415 - only for this

            _print_error(traceback.format_exc())
        else:
            _print_error(f"holdfast: {error}")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(text: str) -> None:
    from holdfast.cli.output import echo  # noqa: PLC0415 - the first screen does not wait for it

    echo(text.rstrip("\n"), err=True)
