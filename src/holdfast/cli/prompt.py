"""The line that a person types into: history, completion, several lines, and the conversation's state below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, ThreadedHistory
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead, store_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.styles import Style

from holdfast.cli.keys import drop_input
from holdfast.errors import HoldfastError

__all__ = ["WORDS", "Commands", "Past", "ask", "called_off", "prompt"]

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
"""What can be completed. It stands here because the commands themselves take longer to load than a prompt may."""

_STYLE: Final = Style.from_dict({"prompt": "ansicyan bold", "bottom-toolbar": "noreverse fg:ansibrightblack"})


def prompt(home: Callable[[], Path], *, status: Callable[[], str], started: Callable[[], None]) -> PromptSession[str]:
    """A prompt. `started` is called each time it has been drawn; `status` gives the line below it."""
    session: PromptSession[str] = PromptSession(
        [("class:prompt", "› ")],
        history=ThreadedHistory(Past(home)),
        completer=Commands(),
        complete_while_typing=False,
        multiline=True,
        prompt_continuation="  ",
        bottom_toolbar=status,
        key_bindings=_keys(),
        style=_STYLE,
        refresh_interval=0.5,
        reserve_space_for_menu=5,
    )
    session.app.after_render += lambda _: started()
    return session


def called_off(session: PromptSession[str]) -> bool:
    """Whether Ctrl-C is among what was typed since the prompt was left; the rest waits for the next one."""
    source = session.app.input
    typed = [*get_typeahead(source), *source.read_keys()]
    kept = [press for press in typed if press.key != Keys.ControlC]
    store_typeahead(source, kept)
    return len(kept) < len(typed)


def ask(question: str, answers: str) -> str:
    """Ask for one letter out of some, with Enter. What was typed before the question does not count.

    Anything else asks again; the end of the input stands for `n`.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
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


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: Any) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # the word in the menu is taken, not yet the line
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys


class Commands(Completer):
    """Completes slash commands and the words that may follow them."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
        """The words that may stand here."""
        name, space, rest = document.text_before_cursor.partition(" ")
        if not name.startswith("/") or " " in rest or "\n" in name + rest:
            return ()
        if space:
            return _beginning(rest, WORDS.get(name, ()), end=" ")
        return _beginning(name.lower(), (f"{word} " if words else word for word, words in WORDS.items()))


def _beginning(typed: str, words: Iterable[str], *, end: str = "") -> Iterable[Completion]:
    """The words that begin so."""
    return [Completion(word + end, start_position=-len(typed)) for word in words if word.startswith(typed)]


class Past(History):
    """What was typed before, in a file of the user's own. Secrets are masked in it as they are everywhere else."""

    def __init__(self, home: Callable[[], Path]) -> None:
        super().__init__()
        self._home = home

    def load_history_strings(self) -> Iterable[str]:
        """What was typed, the newest first; nothing where the file cannot be read."""
        with suppress(OSError, ValueError, HoldfastError):
            yield from FileHistory(str(self._file())).load_history_strings()

    def store_string(self, string: str) -> None:
        """Keep a line. A file that cannot be written is no reason to stop."""
        from holdfast.redact import redact  # noqa: PLC0415 - loaded when it is needed

        with suppress(OSError, HoldfastError):
            FileHistory(str(self._file())).store_string(redact(string))

    def _file(self) -> Path:
        home = self._home()
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = home / "chat_history"
        file.touch(mode=0o600)
        return file
