"""The interface that shows a turn to the user while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from holdfast.compaction.flush import LEADING, MAY_END, TRAILING, strip_silence
from holdfast.messages import ToolCall, ToolResult
from holdfast.models.retry import RESTART_NOTICE
from holdfast.report import ContextReport

MINUTE: Final = 60_000
MAX_HELD: Final = 400
"""The maximum number of characters of a reply that are held back."""


def format_age(milliseconds: int) -> str:
    """Format a duration: `5 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes = max(0, milliseconds) // MINUTE
    hours = minutes // 60
    days = hours // 24
    if days:
        return f"{days} d {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min"


class View(Protocol):
    """Shows a turn while it happens. The methods are called in order and must not raise."""

    def text(self, piece: str, /) -> None:
        """Show a piece of the reply."""

    def call(self, call: ToolCall, /) -> None:
        """Show that a tool is about to run."""

    def result(self, result: ToolResult, /) -> None:
        """Show the result of a tool."""

    def notice(self, text: str, /) -> None:
        """Show a message of the agent itself."""

    def working(self, what: str, /) -> None:
        """Show what takes time; an empty text ends it."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The output of a slash command: a text, or in a terminal a report to draw; and whether the user leaves."""

    text: str = ""
    report: ContextReport | None = None
    is_exit: bool = False


class ChatView(View, Protocol):
    """A view of a whole conversation, which also shows what slash commands return."""

    def show(self, done: CommandResult, /) -> None:
        """Show the result of a command."""

    def end(self) -> None:
        """End a reply."""


class Quiet:
    """A view that shows nothing."""

    def text(self, _: object, /) -> None:
        """Show nothing."""

    call = result = notice = working = text


@dataclass(slots=True)
class Held:
    """Filters a stream of text: holds back what may still become a silent reply, or a mark at its end or beginning.

    `is_open` once something was shown. With `in_blocks` text is shown up to the last blank line.
    """

    is_open: bool = False
    in_blocks: bool = False
    _waiting: str = ""

    def feed(self, piece: str) -> str:
        """Add a piece of text, and return what may be shown now."""
        self._waiting += piece
        bare = self._waiting.lstrip().removeprefix("```").removeprefix("json").lstrip()
        may_be_json = bare[:1] in {"", "{", "["}  # a silent reply may be a JSON object
        if not self.is_open and may_be_json and len(self._waiting) < MAX_HELD:
            return ""
        end = MAY_END.search(self._waiting, max(0, len(self._waiting) - MAX_HELD))
        cut = end.start() if end else len(self._waiting)
        if self.in_blocks:
            blank_line = self._waiting.rfind("\n\n", 0, cut)
            cut = 0 if blank_line < 0 else blank_line + len("\n\n")
        shown = self._waiting[:cut]
        self._waiting = self._waiting[cut:]
        if not self.is_open:
            shown = LEADING.sub("", shown)
        if shown:
            self.is_open = True
        return shown

    def end(self) -> str:
        """End the stream, and return the rest that is to be shown."""
        waiting = self._waiting
        self._waiting = ""
        if self.is_open:
            return TRAILING.sub("", waiting)
        return strip_silence(waiting)


class ReplyStream:
    """Passes a streamed reply to a view, without the markers of silent replies, and keeps its text."""

    def __init__(self, view: View, *, in_blocks: bool) -> None:
        self._view = view
        self._in_blocks = in_blocks
        self._held = Held(in_blocks=in_blocks)
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> None:
        """Take the next piece. `RESTART_NOTICE` means that the connection broke off and the reply begins again."""
        if piece != RESTART_NOTICE:
            self._pieces.append(piece)
            self._show(self._held.feed(piece))
            return
        self._pieces.clear()
        if self._held.is_open:
            self._view.text(RESTART_NOTICE)
        self._held = Held(in_blocks=self._in_blocks)

    def end(self) -> None:
        """Show what was held back."""
        self._show(self._held.end())

    def _show(self, text: str) -> None:
        if text:
            self._view.text(text)
