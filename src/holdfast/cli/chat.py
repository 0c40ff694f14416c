"""`holdfast chat`: an agent in the terminal, or for scripts.

This module is loaded before the first screen; what takes time is imported inside of functions.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from holdfast.agent.agent import Agent, Turn
    from holdfast.agent.commands import CommandResult
    from holdfast.agent.tools import Confirm
    from holdfast.agent.view import View
    from holdfast.cli.screen import Screen
    from holdfast.settings import Loaded, Settings

_WELCOME: Final = "holdfast chat · /help lists commands · Alt-Enter: new line · Ctrl-D: leave"
_HELP: Final = """\
No model is set. Any of these gets you going:
  export ANTHROPIC_API_KEY=...   (or OPENAI_API_KEY), then `holdfast chat`
  a local server: `holdfast chat --model ollama/NAME`, or `--model http://localhost:8080/v1#NAME` for llama.cpp
  no model at all: `holdfast demo` shows what it does; `holdfast chat --model echo` shows what would be sent"""
QUIET_SECONDS: Final = 0.15
MAX_DROP_ROUNDS: Final = 100
_KEYS: Final = {"ANTHROPIC_API_KEY": "anthropic/claude-sonnet-5-5", "OPENAI_API_KEY": "openai/gpt-6.1-sol"}


@click.command()
@click.option("--model", help="The model: anthropic/NAME, openai/NAME, ollama/NAME, URL#NAME, scripted:FILE, echo.")
@click.option("--session", default="main", show_default=True, help="The conversation to continue.")
@click.option("--agent", default="main", show_default=True, help="The agent whose memory is used.")
@click.option("--project", help="The project of the memory; default: the folder in which the conversation began.")
@click.option("--workspace", type=click.Path(path_type=Path, file_okay=False), help="The agent's folder.")
@click.option("--home", type=click.Path(path_type=Path, file_okay=False), help="The folder of memory and sessions.")
@click.option("--context-tokens", type=click.IntRange(min=2_000), help="The size of the window.")
@click.option("--yes", is_flag=True, help="Run commands and write files without asking.")
@click.option("--init", is_flag=True, help="Write the workspace's files (AGENTS.md, ...) where they are missing.")
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
        from holdfast.cli.terminal import converse  # noqa: PLC0415 - the first screen does not wait for it

        converse(given)


# --- without a screen ----------------------------------------------------------


class Plain:
    """A view for pipes: the answer goes to stdout, everything else to stderr."""

    def __init__(self, *, quiet: bool = False) -> None:
        from holdfast.cli.output import printable  # noqa: PLC0415 - the first screen does not wait for it

        self._printable = printable
        self._quiet = quiet
        self._written = False

    def text(self, piece: str) -> None:
        """Write a piece of the reply."""
        if not self._quiet:
            click.echo(self._printable(piece.replace("\r", "")), nl=False)
            self._written = True

    def call(self, call: Any) -> None:
        """Show the name of the tool."""
        self.notice(f"[{call.name}]")

    def result(self, result: Any) -> None:
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
    """Send one message and print the answer."""
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
            _print_turn(agent, turn)
    finally:
        view.end()
        agent.close()
    if turn.interrupted:
        raise KeyboardInterrupt


def _print_turn(agent: Agent, turn: Turn) -> None:
    from holdfast.cli.output import emit_json  # noqa: PLC0415 - as above

    entry = agent.opened.entry
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


def _run_lines(options: Options) -> None:
    """Send each line of stdin, and print each answer."""
    view = Plain()
    agent = open_agent(options, view=view)
    failed = False
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


def handle_line(agent: Agent, view: Plain | Screen, line: str) -> CommandResult | None:
    """Run a command or a turn, and show what it says; None where it failed."""
    from holdfast.agent.commands import CommandResult, is_command, run  # noqa: PLC0415 - as above
    from holdfast.errors import HoldfastError  # noqa: PLC0415 - as above

    try:
        if is_command(line, triggers=agent.settings.session.reset_triggers):
            done = run(agent, line)
            view.show(done)
            return done
        turn = agent.say(line)
        view.end()
        if turn.interrupted:
            view.notice("Interrupted. The conversation so far is kept.")
        return CommandResult()
    except HoldfastError as error:
        view.end()
        view.notice(str(error))
        return None
    finally:
        view.end()


# --- the agent ----------


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line."""

    model: str | None = None
    session: str = "main"
    agent: str = "main"
    project: str | None = None
    workspace: Path | None = None
    home: Path | None = None
    context_tokens: int | None = None
    yes: bool = False
    init: bool = False


def open_agent(options: Options, *, view: View, confirm: Confirm | None = None) -> Agent:
    """Open the agent of the options, with the conversation that it continues.

    Without `confirm` the user cannot be asked: `--yes` then allows everything that is not guarded.
    """
    if confirm is None and options.yes:
        confirm = lambda action: not action.guarded  # noqa: E731 - one expression
    import time  # noqa: PLC0415 - see the module docstring
    import uuid  # noqa: PLC0415

    from holdfast.agent.agent import Agent  # noqa: PLC0415
    from holdfast.agent.hooks import load_hooks  # noqa: PLC0415
    from holdfast.agent.notes import Notes  # noqa: PLC0415
    from holdfast.agent.sessions import Sessions, session_key  # noqa: PLC0415
    from holdfast.cli.opening import load  # noqa: PLC0415
    from holdfast.engine import Engine  # noqa: PLC0415
    from holdfast.models import open_model  # noqa: PLC0415

    overrides = {"agent": {"context_tokens": options.context_tokens}} if options.context_tokens else {}
    loaded = load(warn=view.notice, agent_id=options.agent, **overrides)
    for text in loaded.without_effect:
        view.notice(text)
    settings = _choose_settings(options, loaded)
    model = open_model(_choose_model(options, settings), settings=settings)
    flush_model = settings.compaction.memory_flush.model
    root = (options.workspace or Path(settings.workspace.path or ".")).expanduser().resolve()
    engine = Engine.open(options.home, settings=settings, hooks=load_hooks(settings.hooks, root=root))
    sessions = Sessions(
        home=engine.memory.home,
        clock=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
        agent=options.agent,
    )
    notes = Notes(root, settings, sessions.notes_file, sessions=sessions.folder)
    return Agent(
        engine,
        model,
        sessions=sessions,
        key=session_key(options.agent, options.session),
        root=root,
        notes=notes,
        project=options.project,
        confirm=confirm,
        view=view,
        flush_model=open_model(flush_model, settings=settings) if flush_model else None,
    )


def _choose_model(options: Options, settings: Settings) -> str:
    """Return the model that the options, the settings or an API key in the environment name."""
    by_key = (name for key, name in _KEYS.items() if os.environ.get(key))
    name = options.model or settings.agent.model or next(by_key, None)
    if name is None:
        raise click.ClickException(_HELP)
    return name


def _choose_settings(options: Options, loaded: Loaded) -> Settings:
    """Return the settings. The working directory gets no workspace files unless an option or a setting asks for it."""
    import msgspec  # noqa: PLC0415 - see the module docstring

    known = loaded.settings
    is_set = loaded.origins["workspace.skip_bootstrap"] != "default"
    if options.workspace or options.init or known.workspace.path or is_set:
        return known
    return msgspec.structs.replace(known, workspace=msgspec.structs.replace(known.workspace, skip_bootstrap=True))


@contextmanager
def interruptible(agent: Agent) -> Iterator[None]:
    """Let Ctrl-C cancel what the agent does; the conversation stays valid.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed a second time.
    """
    agent.cancel.clear()
    was_pressed = is_leaving = False

    def interrupt(*_: object) -> None:
        nonlocal was_pressed, is_leaving
        if was_pressed or agent.cancel.is_set():
            is_leaving = True
            raise KeyboardInterrupt
        was_pressed = True
        agent.cancel.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if is_leaving:  # a tool may have handled it
        raise KeyboardInterrupt


# --- the keyboard ----------------------------------------------------------------------


def drop_input(descriptor: int) -> None:
    """Drop what was typed or pasted so far, until nothing comes in for a moment. Without a terminal do nothing."""
    try:
        import termios  # noqa: PLC0415 - not every system has it
    except ImportError:
        return
    for _ in range(MAX_DROP_ROUNDS if os.isatty(descriptor) else 0):
        termios.tcflush(descriptor, termios.TCIFLUSH)
        if not select.select([descriptor], [], [], QUIET_SECONDS)[0]:
            return


@contextmanager
def terminal_without(*flags: str) -> Iterator[None]:
    """Turn some local modes of the terminal off, and the others on.

    Without `ECHO` and `ICANON`, what is typed is kept for the next prompt and not shown; without `ISIG`, so is Ctrl-C.
    """
    try:
        import termios  # noqa: PLC0415 - not every system has it
    except ImportError:
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    changed = termios.tcgetattr(sys.stdin)
    for flag in ("ECHO", "ICANON", "ISIG"):
        changed[3] |= getattr(termios, flag)
    for flag in flags:
        changed[3] &= ~getattr(termios, flag)
    termios.tcsetattr(sys.stdin, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSANOW, before)
