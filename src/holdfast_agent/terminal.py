"""A conversation in a terminal. The prompt comes first; the agent is opened while the user types."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.errors import HoldfastError, MissingExtraError
from holdfast_agent.opening import Options, handle_line, interruptible, open_agent, terminal_without

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory, History, ThreadedHistory
    from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead, store_typeahead
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.keys import Keys
    from prompt_toolkit.styles import Style
except ImportError:
    raise MissingExtraError("chatting in a terminal", extra="chat") from None

if TYPE_CHECKING:  # loaded while the user types
    from holdfast_agent.agent import Agent
    from holdfast_agent.screen import Screen
    from holdfast_agent.toolbox import Action

_QUESTIONS: Final = {"run": "  Run it?", "write": "  Write it?"}
_OPENING: Final = "opening …"
WORDS: Final[dict[str, tuple[str, ...]]] = {
    "/compact": (),
    "/context": ("list", "detail", "json", "map"),
    "/exit": (),
    "/help": (),
    "/memory": ("show", "add", "forget", "search"),
    "/new": (),
    "/pin": (),
    "/reset": (),
    "/status": (),
    "/undo-trim": (),
}
"""The commands and their words, for completion. Importing the commands themselves would delay the prompt."""

_STYLE: Final = Style.from_dict({"prompt": "ansicyan bold", "bottom-toolbar": "noreverse fg:ansibrightblack"})


def converse(options: Options) -> None:
    """Run the conversation until the user leaves; raises an error if it cannot be opened."""
    opening = _Opening(options)
    session = _make_prompt(opening.home, status=opening.status, on_render=opening.begin)

    def leave() -> None:
        if session.app.is_running and not session.app.is_done:
            session.app.exit(result="")

    def leave_from_thread() -> None:
        if session.app.loop is not None:
            with suppress(RuntimeError):  # it has just ended
                session.app.loop.call_soon_threadsafe(leave)

    opening.on_error = leave_from_thread
    sys.stdout.write("\r\x1b[K")  # the first screen shows only a picture of a prompt
    sys.stdout.flush()
    try:
        while (line := _read_line(session, opening)) is not None:
            if not line.strip():
                continue
            agent, screen = opening.wait()
            with interruptible(agent), terminal_without("ECHO", "ICANON"):
                if take_interrupt(session):  # pressed before the handler was there
                    agent.cancel.set()
                screen.begin()
                done = handle_line(agent, screen, line.strip())
            if done is not None and done.is_exit:
                break
    finally:
        if opening.agent is not None:
            with terminal_without("ECHO", "ICANON"):
                opening.agent.close()


# --- opening ---------------------------------------------------------------------


class _Opening(Thread):
    """Opens the agent in a thread while the user types."""

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
        """Start the thread once; leave a prompt that was not drawn yet when opening failed."""
        if self.ident is None:
            self.start()
        elif self.error is not None:
            self.on_error()

    def run(self) -> None:
        try:
            from holdfast_agent.screen import Screen  # noqa: PLC0415 - loaded while the user types

            # Before `open_agent` loads the settings, because opening may already give notices. So the screen takes no
            # settings: the agent applies those about what is shown (`ReplyStream`), and a value that the screen itself
            # needs has to be set on it after the next line, from `self.agent.settings`.
            self.screen = Screen()
            self.agent = open_agent(self._options, view=self.screen, confirm=self._confirm)
        except (HoldfastError, click.ClickException) as error:
            self.error = error
            self.on_error()
        finally:
            self._done.set()
        if self.agent is not None and self.agent.notes is not None:
            try:
                self.agent.notes.start()
            except HoldfastError as error:
                self.agent.view.notice(f"Notes cannot be searched: {error}")

    def wait(self) -> tuple[Agent, Screen]:
        """Wait for the agent and its screen; Ctrl-C leaves."""
        if not self._done.is_set():
            self.begin()
            with terminal_without("ECHO", "ICANON"):
                self._done.wait()
        if self.error is not None:
            raise self.error
        assert self.agent is not None
        assert self.screen is not None
        return self.agent, self.screen

    def home(self) -> Path:
        from holdfast.store.opening import check_links, default_path  # noqa: PLC0415 - as above

        home = self._options.home
        if home is None or "://" in str(home):  # local files of a memory on a server are in the default folder
            home = Path(default_path())
        home = home.expanduser()
        check_links(home)
        return home

    def status(self) -> str:
        if self.agent is None or not self._done.is_set():
            return _OPENING
        from holdfast_agent.screen import status_line  # noqa: PLC0415 - loaded by now

        return status_line(self.agent, width=os.get_terminal_size().columns - 1)

    def _confirm(self, action: Action) -> bool:
        """Ask the user whether an action is allowed, unless this kind is allowed and it is not guarded."""
        agent, screen = self.wait()
        allowed = (agent.session.id, action.kind)
        if not action.guarded and (self._options.yes or allowed in self._allowed):
            return True
        screen.show_action(action)
        question = f"{_QUESTIONS[action.kind]} y = yes,"
        answers = "yn"
        if not action.guarded:
            question += " a = always in this conversation,"
            answers = "yan"
        try:
            answer = _ask(f"{question} n = no, then Enter: ", answers)
        except KeyboardInterrupt:
            agent.cancel.set()
            return False
        if answer == "a":
            self._allowed.add(allowed)
        screen.resume()
        return answer != "n"


# --- the conversation ------------------------------------------------------------


def _read_line(session: PromptSession[str], opening: _Opening) -> str | None:
    """Read a line; None to leave. Ctrl-C clears the line; on an empty line, pressed twice, it leaves."""
    was_pressed = False
    while True:
        try:
            line = session.prompt()
        except EOFError:
            return None
        except KeyboardInterrupt:
            if session.default_buffer.text.strip():
                return ""
            if was_pressed:
                return None
            was_pressed = True
            click.echo("Ctrl-C again, or Ctrl-D, to leave.")
            continue
        if opening.error is not None:
            raise opening.error
        return line


def _make_prompt(
    home: Callable[[], Path], *, status: Callable[[], str], on_render: Callable[[], None]
) -> PromptSession[str]:
    """Make the prompt. `on_render` is called each time it was drawn; `status` returns the line below it."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # Enter chooses the word in the menu
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        [("class:prompt", "› ")],
        history=ThreadedHistory(MaskedHistory(home)),
        completer=CommandCompleter(),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation="  ",
        bottom_toolbar=status,
        key_bindings=keys,
        style=_STYLE,
        refresh_interval=0.5,
        reserve_space_for_menu=5,
    )
    session.app.after_render += lambda _: on_render()
    return session


def take_interrupt(session: PromptSession[str]) -> bool:
    """Remove Ctrl-C from what was typed since the prompt was left, and return whether it was pressed."""
    source = session.app.input
    typed = [*get_typeahead(source), *source.read_keys()]
    kept = [press for press in typed if press.key != Keys.ControlC]
    store_typeahead(source, kept)
    return len(kept) < len(typed)


def _ask(question: str, answers: str) -> str:
    """Ask until the answer is one of some letters. Input typed before the question is dropped; its end means `n`."""
    from holdfast.cli.output import drop_input  # noqa: PLC0415 - loaded by now

    session: PromptSession[str] = PromptSession(question, style=_STYLE)
    while True:
        clear_typeahead(session.app.input)
        drop_input(session.app.input.fileno())
        try:
            answer = session.prompt().strip(" ").lower()
        except EOFError:
            return "n"
        if answer in set(answers):
            return answer


class CommandCompleter(Completer):
    """Completes slash commands and the words that may follow them."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Return the possible words."""
        name, space, rest = document.text_before_cursor.partition(" ")
        if not name.startswith("/") or " " in rest or "\n" in name + rest:
            return ()
        typed = rest
        words = [f"{word} " for word in WORDS.get(name, ())]
        if not space:  # the command itself is being typed
            typed = name.lower()
            words = [f"{word} " if arguments else word for word, arguments in WORDS.items()]
        return [Completion(word, start_position=-len(typed)) for word in words if word.startswith(typed)]


class MaskedHistory(History):
    """The lines that the user typed, in a private file, with secrets masked."""

    def __init__(self, home: Callable[[], Path]) -> None:
        super().__init__()
        self._home = home

    def load_history_strings(self) -> Iterable[str]:
        """Load the lines, newest first; none if the file cannot be read."""
        with suppress(OSError, ValueError, HoldfastError):
            yield from FileHistory(str(self._file())).load_history_strings()

    def store_string(self, string: str) -> None:
        """Store a line; errors are ignored."""
        from holdfast.redaction import redact  # noqa: PLC0415 - loaded when it is needed

        with suppress(OSError, HoldfastError):
            FileHistory(str(self._file())).store_string(redact(string))

    def _file(self) -> Path:
        home = self._home()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = home / "chat_history"
        file.touch(mode=0o600)
        return file
