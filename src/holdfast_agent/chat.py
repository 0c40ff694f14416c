"""`holdfast chat`: an agent in the terminal, or for scripts.

This module is loaded before the first screen; slow modules are imported inside functions.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast_agent.opening import Options, handle_line, interruptible, open_agent, terminal_without

if TYPE_CHECKING:
    from holdfast.messages import ToolCall, ToolResult
    from holdfast_agent.view import CommandResult

_WELCOME: Final = "holdfast chat · /help lists commands · Alt-Enter: new line · Ctrl-D: leave"


@click.command()
@click.option("--model", help="The model: anthropic/NAME, openai/NAME, ollama/NAME, URL#NAME, scripted:FILE, echo.")
@click.option("--session", default="main", show_default=True, help="The conversation to continue.")
@click.option("--agent", default="main", show_default=True, help="The agent whose memory is used.")
@click.option("--project", help="The project of the memory; default: the folder in which the conversation began.")
@click.option("--workspace", type=click.Path(path_type=Path, file_okay=False), help="The agent's folder.")
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="The folder of memory and sessions.")
@click.option("--context-tokens", type=click.IntRange(min=2_000), help="The size of the window.")
@click.option("--yes", is_flag=True, help="Run commands and write files without asking.")
@click.option("--init", is_flag=True, help="Write the files of the workspace (AGENTS.md, ...) that are missing.")
@click.option("--plain", is_flag=True, help="Plain text without colours, for pipes.")
@click.option("-p", "--print", "text", help="Send this, print the answer, and leave; stdin is added to it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def chat(*, plain: bool, text: str | None, as_json: bool, **options: Any) -> None:
    """Chat with an agent in the terminal."""
    given = Options(**options)
    if text is not None or as_json:
        _run_once(given, text or "", as_json=as_json)
        return
    if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _run_lines(given)
        return
    with terminal_without("ECHO", "ICANON", "ISIG"):
        # The first screen, before anything that takes time.
        columns = os.get_terminal_size().columns
        words = _WELCOME if len(_WELCOME) < columns else _WELCOME.partition(" · Alt")[0]
        is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        click.echo(words if is_plain else f"\x1b[2m{words}\x1b[0m", color=True)
        click.echo("› ", nl=False)
        from holdfast_agent.terminal import converse  # noqa: PLC0415 - the first screen does not wait for it

        converse(given)


class Plain:
    """A view for pipes: the answer goes to stdout, everything else to stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        from holdfast.text import printable  # noqa: PLC0415 - the first screen does not wait for it

        self._printable = printable
        self._quiet = quiet
        self._written = False

    def text(self, piece: str) -> None:
        """Write a piece of the reply."""
        if not self._quiet:
            click.echo(self._printable(piece.replace("\r", "")), nl=False)
            self._written = True

    def call(self, call: ToolCall) -> None:
        """Show the name of the tool."""
        self.notice(f"[{call.name}]")

    def result(self, result: ToolResult) -> None:
        """Show only errors."""
        if result.is_error:
            self.notice(f"[{result.text[:200]}]")

    def notice(self, text: str) -> None:
        """Show a message of the agent itself."""
        self.end()
        click.echo(self._printable(text), err=True)

    def working(self, what: str) -> None:
        """Show nothing."""

    def show(self, done: CommandResult) -> None:
        """Show the result of a command."""
        if done.report is not None:
            from holdfast.cli.console import open_console  # noqa: PLC0415 - as above
            from holdfast.cli.context import print_window  # noqa: PLC0415 - as above

            print_window(open_console(), done.report)
        self.text(done.text)

    def end(self) -> None:
        """End the line of a reply."""
        if self._written:
            click.echo()
        self._written = False


def _run_once(options: Options, message: str, *, as_json: bool) -> None:
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(part for part in (message, piped.strip()) if part)
    if not text:
        raise click.UsageError("There is no message: give -p TEXT, or pipe text in.")
    view = Plain(quiet=as_json)
    agent = open_agent(options, view=view)
    try:
        with interruptible(agent):
            turn = agent.say(text)
        if as_json:
            from holdfast.cli.output import emit_json  # noqa: PLC0415 - as above

            entry = agent.conversation.entry
            emit_json(
                {
                    "text": turn.text,
                    "session": agent.session.id,
                    "model": agent.model.name,
                    "steps": turn.steps,
                    "usage": asdict(turn.usage),
                    "cost": round(entry.estimated_cost_usd, 6),
                    "compactions": entry.compaction_count,
                    "interrupted": turn.interrupted,
                }
            )
    finally:
        view.end()
        agent.close()
    if turn.interrupted:
        raise KeyboardInterrupt


def _run_lines(options: Options) -> None:
    view = Plain()
    agent = open_agent(options, view=view)
    failed = False
    from holdfast_agent.screen import describe_resumed  # noqa: PLC0415 - as above

    for line in describe_resumed(agent, width=shutil.get_terminal_size().columns)[:1]:
        view.notice(line)
    try:
        for line in sys.stdin:
            text = line.strip()
            if text == "/exit":
                break
            if text:
                with interruptible(agent):
                    failed |= handle_line(agent, view, text) is None
    finally:
        agent.close()
    if failed:
        raise click.exceptions.Exit(1)
