"""A conversation in a terminal: a prompt with history and completion, answers as they come, a line that tells all."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text as Styled

from holdfast.cli.chat import Options, close, open_agent
from holdfast.cli.output import printable
from holdfast.errors import HoldfastError, MissingExtraError

if TYPE_CHECKING:  # loaded while the user types
    from prompt_toolkit import PromptSession

    from holdfast.agent.commands import Done
    from holdfast.agent.loop import Agent
    from holdfast.messages import ToolCall, ToolResult

__all__ = ["Screen", "converse", "status_line"]

_WELCOME: Final = "holdfast chat · /help lists commands · Alt-Enter for a new line · Ctrl-D to leave"
_FENCE: Final = re.compile(r"^\s{0,3}(```|~~~)", re.MULTILINE)
_SHOWN_LINES: Final = 12
_LONGEST_ARGUMENT: Final = 100
_LONGEST_RESULT: Final = 300


# --- what is seen --------------------------------------------------------------


class Screen:
    """A view for people: answers as Markdown, block by block; tools in one line each."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._text = ""
        self._live: Live | None = None
        self._working = ""

    def text(self, piece: str) -> None:
        """Show a piece of the reply: whole blocks for good, the one at hand while it grows."""
        self._text += piece
        done, self._text = whole_blocks(self._text)
        if done:
            self._clear()
            self.console.print(Markdown(printable(done)))
        self._show(self._tail())

    def end(self) -> None:
        """Show what is left of the reply."""
        rest, self._text = self._text, ""
        self._clear()
        if rest.strip():
            self.console.print(Markdown(printable(rest)))

    def call(self, call: ToolCall) -> None:
        """Name the tool that runs, and what it is asked."""
        self.end()
        asked = " ".join(f"{key}={value}" for key, value in _arguments(call).items())
        line = Styled("▸ ", style="cyan").append(call.name, style="bold cyan")
        self.console.print(line.append(f" {_short(asked, _LONGEST_ARGUMENT)}", style="dim"))

    def result(self, result: ToolResult) -> None:
        """Show the beginning of an answer."""
        shown = _short(" ".join(result.text.split()), _LONGEST_RESULT if result.is_error else _LONGEST_ARGUMENT)
        self.console.print(Styled(f"  {shown}", style="red" if result.is_error else "dim"))

    def notice(self, text: str) -> None:
        """Say something about the conversation."""
        self._clear()
        self.console.print(Styled(printable(text), style="yellow"))

    def working(self, what: str) -> None:
        """Turn a wheel while something takes its time."""
        self._working = what
        self._clear()
        self._show(Styled(f"⟳ {what} …", style="yellow") if what else None)

    def _tail(self) -> Styled | None:
        lines = printable(self._text).splitlines()[-_SHOWN_LINES:]
        return Styled("\n".join(lines)) if lines else None

    def _show(self, what: Styled | None) -> None:
        if what is None:
            return
        if self._live is None:
            self._live = Live(console=self.console, transient=True, refresh_per_second=12)
            self._live.start()
        self._live.update(what)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def whole_blocks(text: str) -> tuple[str, str]:
    """A text up to the last blank line outside of code, and what comes after it."""
    at = len(text)
    while (at := text.rfind("\n\n", 0, at)) >= 0:
        if len(_FENCE.findall(text[:at])) % 2 == 0:
            return text[: at + 2], text[at + 2 :]
    return "", text


def _arguments(call: ToolCall) -> dict[str, Any]:
    return dict(call.arguments) if isinstance(call.arguments, dict) else {"arguments": call.arguments}


def _short(text: str, most: int) -> str:
    words = printable(" ".join(text.split()))
    return words if len(words) <= most else words[: most - 1] + "…"


def status_line(agent: Agent) -> str:
    """The conversation in one line: how full, how often compacted, what was recalled, what it cost."""
    from holdfast.agent.commands import short  # noqa: PLC0415 - loaded beside the first screen

    entry = agent.opened.entry
    recalled = (
        sum(part.tokens for part in agent.window.report.categories if part.name == "recall") if agent.window else 0
    )
    parts = [
        f"ctx {round(100 * entry.total_tokens / max(1, agent.limit))} %",
        f"⟳ {entry.compaction_count}",
        f"recalled {short(recalled)}",
        *([f"${entry.estimated_cost_usd:.2f}"] if entry.estimated_cost_usd else []),
        agent.model.name,
    ]
    return " · ".join(parts)


# --- the conversation ------------------------------------------------------------


class _Opening(Thread):
    """The agent, made ready while the user types."""

    def __init__(self, options: Options, screen: Screen) -> None:
        super().__init__(name="holdfast-opening", daemon=True)
        self._options, self._screen = options, screen
        self.agent: Agent | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.agent = open_agent(self._options, view=self._screen, confirm=self._confirm)
            if self.agent.notes is not None:
                self.agent.notes.start()
        except (HoldfastError, click.ClickException) as error:
            self.error = error

    def ready(self) -> Agent:
        """The agent, waited for."""
        self.join()
        if self.error is not None:
            raise self.error
        assert self.agent is not None
        return self.agent

    def _confirm(self, command: str) -> bool:
        self._screen.end()
        self._screen.console.print(Styled(f"  $ {printable(command)}", style="bold"))
        return click.confirm("  Run it?", default=False)


def converse(options: Options) -> None:
    """Talk until the user leaves."""
    screen = Screen(Console(highlight=False))
    screen.console.print(Styled(_WELCOME, style="dim"))
    opening = _Opening(options, screen)
    opening.start()
    session = _prompt(opening)
    try:
        while (line := _read(session)) is not None:
            if line.strip() and _heard(opening.ready(), screen, line.strip()):
                break
    finally:
        if opening.agent is not None:
            close(opening.agent)
    if opening.error is not None:
        raise opening.error


def _read(session: PromptSession[str]) -> str | None:
    """What the user types next; None to leave."""
    try:
        return session.prompt("› ")
    except EOFError:
        return None
    except KeyboardInterrupt:
        return ""


def _heard(agent: Agent, screen: Screen, line: str) -> bool:
    """Do or say a line, and tell whether the conversation is over."""
    from holdfast.agent.commands import is_command, run  # noqa: PLC0415 - loaded beside the first screen

    with _interruptible(agent):
        if is_command(line):
            done = run(agent, line)
            screen.end()
            _print(screen, done)
            return done.over
        try:
            turn = agent.say(line)
        except HoldfastError as error:
            screen.end()
            screen.notice(str(error))
            return False
        screen.end()
        if turn.interrupted:
            screen.notice("Broken off.")
    return False


@contextmanager
def _interruptible(agent: Agent) -> Iterator[None]:
    """Ctrl-C breaks off what the agent does; the conversation stays whole. A second one leaves."""

    def interrupt(*_: object) -> None:
        if agent.cancel.is_set():
            raise KeyboardInterrupt
        agent.cancel.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print(screen: Screen, done: Done) -> None:
    if done.report is not None:
        from holdfast.cli.context import print_window  # noqa: PLC0415 - only for this

        print_window(screen.console, done.report)
    if done.text:
        screen.console.print(Styled(printable(done.text)))


def _prompt(opening: _Opening) -> PromptSession[str]:
    try:
        from prompt_toolkit import PromptSession  # noqa: PLC0415 - an extra
        from prompt_toolkit.completion import WordCompleter  # noqa: PLC0415 - as above
        from prompt_toolkit.history import FileHistory  # noqa: PLC0415 - as above
        from prompt_toolkit.key_binding import KeyBindings  # noqa: PLC0415 - as above
    except ImportError:
        raise MissingExtraError("chatting in a terminal", extra="chat") from None
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    def toolbar() -> str:
        if opening.is_alive():
            return "opening …"
        return status_line(opening.agent) if opening.agent is not None else str(opening.error or "")

    return PromptSession(
        history=FileHistory(str(_history_file(opening))),
        completer=WordCompleter(_names(), sentence=True),
        complete_while_typing=False,
        bottom_toolbar=toolbar,
        key_bindings=keys,
        refresh_interval=0.5,
        enable_open_in_editor=False,
    )


def _names() -> list[str]:
    names = ("compact", "context", "exit", "help", "memory", "new", "pin", "reset", "status", "undo-trim")
    return [f"/{name}" for name in names]


def _history_file(opening: _Opening) -> Path:
    from holdfast.memory.memory import default_path  # noqa: PLC0415 - loaded when it is needed

    home = (opening._options.home or default_path()).expanduser()  # noqa: SLF001 - the same module
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = home / "chat_history"
    file.touch(mode=0o600)
    return file
