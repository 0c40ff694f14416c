"""What a user sees of a turn while it happens."""

from __future__ import annotations

from typing import Protocol

from holdfast.compaction.flush import Held
from holdfast.messages import ToolCall, ToolResult
from holdfast.models.retry import RESTART_NOTICE


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


class Quiet:
    """A view that shows nothing."""

    def text(self, _: object, /) -> None:
        """Show nothing."""

    call = result = notice = working = text


class ReplyStream:
    """Passes a streamed reply to a view, without the markers of silent replies, and keeps its text."""

    def __init__(self, view: View, *, in_blocks: bool) -> None:
        self._view, self._in_blocks = view, in_blocks
        self._held = Held(in_blocks=in_blocks)
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        """The reply so far."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> None:
        """Take the next piece. `RESTART_NOTICE` says that the connection broke off and the reply begins again."""
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
