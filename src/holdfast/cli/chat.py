"""`holdfast chat`: an agent that can work for weeks in one conversation."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.cli.agent import Options, close, interruptible, open_agent
from holdfast.cli.keys import silent

if TYPE_CHECKING:  # what takes time to load is loaded while the user types
    from holdfast.agent.commands import Done
    from holdfast.agent.loop import Agent, Turn

__all__ = ["chat"]

_WELCOME: Final = "holdfast chat · /help lists commands · Alt-Enter: new line · Ctrl-D: leave"


@click.command()
@click.option("--model", help="Who answers: anthropic/NAME, openai/NAME, ollama/NAME, URL#NAME, scripted:FILE, echo.")
@click.option("--session", default="main", show_default=True, help="Which conversation to go on with.")
@click.option("--agent", default="main", show_default=True, help="Whose memory.")
@click.option("--workspace", type=click.Path(path_type=Path, file_okay=False), help="The agent's folder.")
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="Where memory and sessions rest.")
@click.option("--context-tokens", type=click.IntRange(min=2_000), help="The size of the window.")
@click.option("--yes", is_flag=True, help="Run commands and write files without asking.")
@click.option("--init", is_flag=True, help="Write the workspace's files (AGENTS.md, ...) where they are missing.")
@click.option("--plain", is_flag=True, help="No colours, no cursor: for pipes.")
@click.option("-p", "--print", "said", help="Say this, print the answer, and leave; stdin is added to it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def chat(*, plain: bool, said: str | None, as_json: bool, **options: Any) -> None:
    """Talk to an agent that forgets nothing."""
    given = Options(**options)
    if said is not None or as_json:
        _once(given, said or "", as_json=as_json)
        return
    if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        _lines(given)
        return
    with silent():
        _welcome()
        from holdfast.cli.terminal import converse  # noqa: PLC0415 - the first screen does not wait for it

        converse(given)


def _welcome() -> None:
    """The first screen, before anything that takes its time."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    words = _WELCOME if len(_WELCOME) < os.get_terminal_size().columns else _WELCOME.partition(" · Alt")[0]
    click.echo(words if plain else f"\x1b[2m{words}\x1b[0m", color=True)
    click.echo("› ", nl=False)


# --- without a screen ----------------------------------------------------------


class Plain:
    """A view for pipes: the answer on stdout, everything else on stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        from holdfast.cli.output import printable  # noqa: PLC0415 - a terminal's first screen does not wait for it

        self._printable = printable
        self._quiet = quiet
        self._written = False

    def text(self, piece: str) -> None:
        """Write a piece of the reply."""
        if not self._quiet:
            click.echo(self._printable(piece.replace("\r", "")), nl=False)
            self._written = True

    def call(self, call: Any) -> None:
        """Name the tool that runs."""
        self.notice(f"[{call.name}]")

    def result(self, result: Any) -> None:
        """Say only what went wrong."""
        if result.is_error:
            self.notice(f"[{result.text[:200]}]")

    def notice(self, text: str) -> None:
        """Say something about the conversation."""
        self.end()
        click.echo(self._printable(text), err=True)

    def working(self, what: str) -> None:
        """Nobody watches."""

    def end(self) -> None:
        """End the line of a reply."""
        if self._written:
            click.echo()
        self._written = False


def _once(options: Options, said: str, *, as_json: bool) -> None:
    """One question, one answer."""
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(part for part in (said, piped.strip()) if part)
    if not text:
        raise click.UsageError("Nothing was said: give -p TEXT, or pipe something in.")
    view = Plain(quiet=as_json)
    agent = open_agent(options, view=view)
    try:
        with interruptible(agent):
            turn = agent.say(text)
        if as_json:
            _print_turn(agent, turn)
    finally:
        view.end()
        close(agent)
    if turn.interrupted:
        raise KeyboardInterrupt


def _print_turn(agent: Agent, turn: Turn) -> None:
    from holdfast.cli.output import emit_json  # noqa: PLC0415 - as above

    entry = agent.opened.entry
    emit_json(
        {
            "text": turn.text,
            "session": agent.session,
            "model": agent.model.name,
            "steps": turn.steps,
            "usage": asdict(turn.usage),
            "cost": round(entry.estimated_cost_usd, 6),
            "compactions": entry.compaction_count,
            "interrupted": turn.interrupted,
        }
    )


def _lines(options: Options) -> None:
    """Each line that comes in is said; each answer goes out."""
    view = Plain()
    agent = open_agent(options, view=view)
    failed = False
    try:
        for line in sys.stdin:
            said = line.strip()
            if said == "/exit":
                break
            if said:
                failed |= not _said(agent, view, said)
    finally:
        close(agent)
    if failed:
        raise click.exceptions.Exit(1)


def _print_done(view: Plain, done: Done) -> None:
    if done.report is not None:
        from holdfast.cli.console import open_console  # noqa: PLC0415 - as above
        from holdfast.cli.context import print_window  # noqa: PLC0415 - only for this

        print_window(open_console(), done.report)
    if done.text:
        view.text(done.text)


def _said(agent: Agent, view: Plain, line: str) -> bool:
    """Do or say a line, and tell whether that went well."""
    from holdfast.agent.commands import is_command, run  # noqa: PLC0415 - loaded when it is needed
    from holdfast.errors import HoldfastError  # noqa: PLC0415 - as above

    with interruptible(agent):
        try:
            if is_command(line, triggers=agent.settings.session.reset_triggers):
                _print_done(view, run(agent, line))
                return True
            turn = agent.say(line)
            if turn.interrupted:
                view.notice("Broken off. What was said so far is kept.")
        except HoldfastError as error:
            view.notice(str(error))
            return False
        finally:
            view.end()
    return True
