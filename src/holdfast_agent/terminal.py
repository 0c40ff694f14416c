"""A conversation in a terminal. The prompt comes first; the agent is opened while the user types."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import click

from holdfast.errors import HoldfastError, MissingExtraError
from holdfast_agent.opening import Options, handle_line, interruptible, open_agent, terminal_without

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.application import Application, run_in_terminal
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.completion import get_common_complete_suffix as _find_common
    from prompt_toolkit.document import Document
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import FileHistory, History, ThreadedHistory
    from prompt_toolkit.input import Input
    from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
    from prompt_toolkit.key_binding import KeyBindings, KeyPress
    from prompt_toolkit.keys import Keys
    from prompt_toolkit.layout import FormattedTextControl, Layout, Window
    from prompt_toolkit.output import Output
    from prompt_toolkit.styles import Style
except ImportError:
    raise MissingExtraError("chatting in a terminal", extra="chat") from None

if TYPE_CHECKING:  # loaded while the user types
    from holdfast_agent.agent import Agent
    from holdfast_agent.screen import Screen
    from holdfast_agent.toolbox import Action

_QUESTIONS: Final = {"run": "  Run it?", "write": "  Write it?"}
_ANSWERS: Final = {"y": "yes", "a": "always in this conversation", "n": "no"}
QUIET_SECONDS: Final = 0.3
"""A key answers a question only if none was pressed for so long: else it belongs to words that are being typed."""
_OPENING: Final = "opening …"


@dataclass(frozen=True, slots=True)
class Words:
    """The help text of a command, and the words that may follow it."""

    help: str
    arguments: tuple[str, ...] = ()


WORDS: Final[dict[str, Words]] = {
    "/help": Words("This list."),
    "/compact": Words("Replace older history with a summary."),
    "/status": Words("Model, context, tokens, cost, session, memory."),
    "/context": Words("Show what is in the window.", ("list", "detail", "json", "map")),
    "/memory": Words("Show, add, forget or search what is remembered.", ("show", "add", "forget", "search")),
    "/pin": Words("Keep messages in every window; without a number your last one."),
    "/undo-trim": Words("Bring back what the last trim removed from the window."),
    "/new": Words("Begin a new conversation; the old one is kept."),
    "/reset": Words("The same as /new."),
    "/exit": Words("Leave."),
}
"""The commands, for the menu. Importing the commands themselves would delay the prompt."""

_STYLE: Final = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "bottom-toolbar": "noreverse fg:ansibrightblack",
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit reverse",
        "completion-menu.meta.completion": "noinherit fg:ansibrightblack",
        "completion-menu.meta.completion.current": "noinherit reverse",
    }
)


def converse(options: Options) -> None:
    """Run the conversation until the user leaves; raises an error if it cannot be opened."""
    opening = _Opening(options)
    session = _make_prompt(opening.home, status=opening.status, on_render=opening.begin, expand=opening.expand)

    def leave() -> None:
        if session.app.is_running and not session.app.is_done:
            session.app.exit(result="")

    def leave_from_thread() -> None:
        if session.app.loop is not None:
            with suppress(RuntimeError):  # it has just ended
                session.app.loop.call_soon_threadsafe(leave)

    opening.on_error = leave_from_thread
    opening.on_ready = session.app.invalidate
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
        self.error: HoldfastError | None = None
        self.on_error: Callable[[], None] = lambda: None
        self.on_ready: Callable[[], None] = lambda: None
        self._is_shown = False

    def begin(self) -> None:
        """Start the thread once. Afterwards, leave a prompt if opening failed, or show above it what was opened."""
        if self.ident is None:
            self.start()
        elif self.error is not None:
            self.on_error()
        elif self._done.is_set() and self.screen is not None and not self._is_shown:
            self._is_shown = True
            run_in_terminal(self.screen.open)

    def expand(self) -> None:
        """Show the last output that was shortened in full, above the prompt."""
        if self._done.is_set() and self.screen is not None:
            run_in_terminal(self.screen.expand)

    def run(self) -> None:
        try:
            from holdfast_agent.screen import Screen  # noqa: PLC0415 - loaded while the user types

            # Before `open_agent` loads the settings, because opening may already give notices. So the screen takes no
            # settings: the agent applies those about what is shown (`ReplyStream`), and a value that the screen itself
            # needs has to be set on it after the next line, from `self.agent.settings`.
            self.screen = Screen()
            self.agent = open_agent(self._options, view=self.screen, confirm=self._confirm)
            self._describe(self.agent, self.screen)
        except HoldfastError as error:
            self.error = error
            self.on_error()
        finally:
            self._done.set()
            self.on_ready()
        if self.agent is not None and self.agent.notes is not None:
            try:
                self.agent.notes.start()
            except HoldfastError as error:
                self.agent.view.notice(f"Notes cannot be searched: {error}")

    def _describe(self, agent: Agent, screen: Screen) -> None:
        """Say what is continued. Its tokens are counted here, while the user types."""
        from holdfast_agent.screen import describe_resumed  # noqa: PLC0415 - loaded while the user types

        agent.measure()
        for line in describe_resumed(agent, width=screen.console.width):
            screen.hint(line)

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
            screen.show_change(action)
            return True
        screen.show_action(action)
        answers = "yn" if action.guarded else "yan"
        try:
            answer = ask(_QUESTIONS[action.kind], answers)
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
    home: Callable[[], Path],
    *,
    status: Callable[[], str],
    on_render: Callable[[], None],
    expand: Callable[[], None],
) -> PromptSession[str]:
    """Make the prompt. `on_render` is called each time it was drawn; `status` returns the line below it."""
    keys = KeyBindings()
    completer = CommandCompleter()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        menu = buffer.complete_state
        buffer.complete_state = None
        if menu is not None and menu.current_completion is not None and menu.current_completion.text.endswith(" "):
            return  # Enter chooses the word in the menu, and another word may follow it
        buffer.validate_and_handle()

    @keys.add("tab")
    def _(event: Any) -> None:
        # The menu comes a moment after the key that opens it: this must not depend on it.
        buffer = event.current_buffer
        found = list(completer.get_completions(buffer.document, CompleteEvent(completion_requested=True)))
        menu = buffer.complete_state
        common = "" if menu is not None and menu.complete_index is not None else _find_common(buffer.document, found)
        if common:
            buffer.insert_text(common)
        elif menu is not None:
            buffer.complete_next()
        elif found:
            buffer.start_completion(select_first=True)

    @keys.add("c-o")
    def _(_event: Any) -> None:
        expand()

    @Condition
    def is_command() -> bool:
        return session.default_buffer.text.startswith("/")

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    session: PromptSession[str] = PromptSession(
        [("class:prompt", "› ")],
        history=ThreadedHistory(MaskedHistory(home)),
        completer=completer,
        complete_while_typing=is_command,
        multiline=True,
        prompt_continuation="  ",
        bottom_toolbar=status,
        key_bindings=keys,
        style=_STYLE,
        refresh_interval=0.5,
        reserve_space_for_menu=len(WORDS) + 1,
    )
    session.app.after_render += lambda _: on_render()
    return session


def take_interrupt(session: PromptSession[str]) -> bool:
    """Remove Ctrl-C from what was typed since the prompt was left, and return whether it was pressed."""
    source = session.app.input
    typed = _take_typed(source)
    kept = [press for press in typed if press.key != Keys.ControlC]
    store_typeahead(source, kept)
    return len(kept) < len(typed)


def _take_typed(source: Input) -> list[KeyPress]:
    """Take everything that was typed and not read yet."""
    return [*get_typeahead(source), *source.read_keys()]


def ask(
    question: str,
    answers: str,
    *,
    clock: Callable[[], float] = time.monotonic,
    source: Input | None = None,
    output: Output | None = None,
) -> str:
    """Ask until one of some keys is pressed; the end of input means `n`.

    What was typed before the question is no answer, nor is a key that follows another one: somebody is typing. Such
    words are kept for the next prompt, without Enter.
    """
    last_press = clock()
    kept: list[KeyPress] = []
    chosen = ""

    def show() -> StyleAndTextTuples:
        if chosen:
            return [("bold", f"{question} {_ANSWERS[chosen]}")]
        shown: StyleAndTextTuples = [("bold", question)]
        for key in answers:
            shown += [("", "  "), ("bold", key), ("", f" {_ANSWERS[key]}")]
        return shown

    keys = KeyBindings()

    @keys.add("<any>")
    def _(event: Any) -> None:
        nonlocal last_press, chosen
        is_quiet = clock() - last_press >= QUIET_SECONDS
        last_press = clock()
        answer = event.data.lower()
        if is_quiet and len(answer) == 1 and answer in answers:
            chosen = answer
            event.app.exit(result=answer)
        elif event.data.isprintable():
            kept.extend(event.key_sequence)

    @keys.add(Keys.BracketedPaste)
    def _(event: Any) -> None:
        kept.extend(event.key_sequence)

    @keys.add("c-c")
    def _(event: Any) -> None:
        event.app.exit(exception=KeyboardInterrupt())

    @keys.add("c-d")
    def _(event: Any) -> None:
        nonlocal chosen
        chosen = "n"
        event.app.exit(result="n")

    window = Window(FormattedTextControl(show, show_cursor=False), dont_extend_height=True, wrap_lines=True)
    app: Application[str] = Application(Layout(window), key_bindings=keys, style=_STYLE, input=source, output=output)
    for press in _take_typed(app.input):
        if press.key == Keys.BracketedPaste or press.data.isprintable():
            kept.append(press)
    try:
        return app.run()
    except EOFError:
        return "n"
    finally:
        store_typeahead(app.input, kept)


class CommandCompleter(Completer):
    """Completes slash commands and the words that may follow them."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """Return the possible words."""
        name, space, rest = document.text_before_cursor.partition(" ")
        if not name.startswith("/") or " " in rest or "\n" in name + rest:
            return
        if space:
            words = WORDS.get(name)
            for word in words.arguments if words is not None else ():
                if word.startswith(rest):
                    yield Completion(f"{word} ", start_position=-len(rest))
            return
        for command, words in WORDS.items():
            if command.startswith(name.lower()):
                text = f"{command} " if words.arguments else command
                yield Completion(text, start_position=-len(name), display_meta=words.help)


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
