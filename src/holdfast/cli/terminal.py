"""A conversation in a terminal. The prompt comes first; everything else is loaded while the user types."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.agent import Options, close, interruptible, open_agent
from holdfast.cli.keys import audible
from holdfast.errors import HoldfastError, MissingExtraError

try:
    from holdfast.cli.prompt import ask, called_off, prompt
except ImportError:
    raise MissingExtraError("chatting in a terminal", extra="chat") from None

if TYPE_CHECKING:  # loaded while the user types
    from prompt_toolkit import PromptSession

    from holdfast.agent.loop import Agent
    from holdfast.agent.tools import Action
    from holdfast.cli.screen import Screen

__all__ = ["converse"]

_QUESTIONS: Final = {"run": "  Run it?", "write": "  Write it?"}
_ALWAYS: Final = " a = always in this conversation,"
_OPENING: Final = "opening …"


def converse(options: Options) -> None:
    """Talk until the user leaves.

    Raises:
        HoldfastError: The conversation could not be opened; what was typed meanwhile is not waited for.
    """
    opening = _Opening(options)
    session = prompt(opening.home, status=opening.status, started=opening.begin)
    opening.on_error = lambda: _stop(session)
    sys.stdout.write("\r\x1b[K")  # what stood here so far was no more than a picture of a prompt
    sys.stdout.flush()
    try:
        while (line := _read(session, opening)) is not None:
            if line.strip() and _heard(session, opening, line.strip()):
                break
    finally:
        if opening.agent is not None:
            with audible():
                close(opening.agent)


# --- opening ---------------------------------------------------------------------


class _Opening(Thread):
    """The agent, made ready while the user types."""

    def __init__(self, options: Options) -> None:
        super().__init__(name="holdfast-opening", daemon=True)
        self._options = options
        self._done = Event()
        self._allowed: set[tuple[str, str]] = set()
        self.agent: Agent | None = None
        self.screen: Screen | None = None
        self.error: HoldfastError | click.ClickException | None = None
        self.on_error: Callable[[], None] = lambda: None

    def begin(self) -> None:
        """Start, if that has not been done; a prompt that was not there yet when it failed is left."""
        if self.ident is None:
            self.start()
        elif self.error is not None:
            self.on_error()

    def run(self) -> None:
        try:
            from holdfast.cli.screen import Screen  # noqa: PLC0415 - loaded beside the first screen

            self.screen = Screen()
            self.agent = open_agent(self._options, view=self.screen, confirm=self._confirm)
        except (HoldfastError, click.ClickException) as error:
            self.error = error
            self.on_error()
        finally:
            self._done.set()
        if self.agent is not None:
            self._look_at_notes(self.agent)

    def _look_at_notes(self, agent: Agent) -> None:
        try:
            if agent.notes is not None:
                agent.notes.start()
        except HoldfastError as error:
            agent.view.notice(f"Notes cannot be searched: {error}")

    def ready(self) -> tuple[Agent, Screen]:
        """The agent and its screen, waited for; Ctrl-C leaves while they are."""
        if not self._done.is_set():
            self.begin()
            with audible():
                self._done.wait()
        if self.error is not None:
            raise self.error
        assert self.agent is not None
        assert self.screen is not None
        return self.agent, self.screen

    def home(self) -> Path:
        """Where memory and sessions rest."""
        from holdfast.memory.home import check_links, default_path  # noqa: PLC0415 - as above

        home = (self._options.home or default_path()).expanduser()
        check_links(home)
        return home

    def status(self) -> str:
        """The line below the prompt."""
        if self.agent is None or not self._done.is_set():
            return _OPENING
        from holdfast.cli.screen import status_line  # noqa: PLC0415 - loaded by now

        return status_line(self.agent, width=os.get_terminal_size().columns - 1)

    def _confirm(self, action: Action) -> bool:
        """Ask the user before a command runs or a file is written, unless that is allowed and not guarded."""
        agent, screen = self.ready()
        allowed = (agent.session, action.kind)
        if not action.guarded and (self._options.yes or allowed in self._allowed):
            return True
        screen.ask(action)
        always = "" if action.guarded else _ALWAYS
        try:
            answer = ask(f"{_QUESTIONS[action.kind]} y = yes,{always} n = no, then Enter: ", "yan" if always else "yn")
        except KeyboardInterrupt:
            agent.cancel.set()
            return False
        if answer == "a":
            self._allowed.add(allowed)
        screen.resume()
        return answer != "n"


# --- the conversation ------------------------------------------------------------


def _stop(session: PromptSession[str]) -> None:
    """Leave the prompt from another thread, if it is there."""
    loop = session.app.loop

    def leave() -> None:
        if session.app.is_running and not session.app.is_done:
            session.app.exit(result="")

    if loop is not None:
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(leave)


def _read(session: PromptSession[str], opening: _Opening) -> str | None:
    """What the user types next; None to leave. Ctrl-C takes back what was typed; where nothing was, it leaves."""
    for is_last in (False, True):
        try:
            line = session.prompt()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if session.default_buffer.text.strip():
                return ""
            if not is_last:
                click.echo("Ctrl-C again, or Ctrl-D, to leave.")
            continue
        if opening.error is not None:
            raise opening.error
        return line
    return None


def _heard(session: PromptSession[str], opening: _Opening, line: str) -> bool:
    """Do or say a line, and tell whether the conversation is over."""
    agent, screen = opening.ready()
    from holdfast.agent.commands import is_command, run  # noqa: PLC0415 - loaded by now

    with interruptible(agent), audible():
        if called_off(session):  # before it could be heard
            agent.cancel.set()
        screen.begin()
        try:
            if is_command(line, triggers=agent.settings.session.reset_triggers):
                done = run(agent, line)
                screen.show(done)
                return done.over
            turn = agent.say(line)
            screen.end()
            if turn.interrupted:
                screen.notice("Broken off. What was said so far is kept.")
        except HoldfastError as error:
            screen.end()
            screen.notice(str(error))
        finally:
            screen.end()
    return False
