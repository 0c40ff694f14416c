"""What a person sees of a turn while it happens."""

from __future__ import annotations

from typing import Protocol

from holdfast.messages import ToolCall, ToolResult

__all__ = ["Quiet", "View"]


class View(Protocol):
    """Told of what happens, in order. Must not raise."""

    def text(self, piece: str) -> None:
        """A piece of the reply."""

    def call(self, call: ToolCall) -> None:
        """A tool is about to run."""

    def result(self, result: ToolResult) -> None:
        """A tool has answered."""

    def notice(self, text: str) -> None:
        """Something that the user should know."""

    def working(self, what: str) -> None:
        """What takes a while; nothing when it is over."""


class Quiet:
    """A view of nobody."""

    def text(self, piece: str) -> None:
        """A piece of the reply."""

    def call(self, call: ToolCall) -> None:
        """A tool is about to run."""

    def result(self, result: ToolResult) -> None:
        """A tool has answered."""

    def notice(self, text: str) -> None:
        """Something that the user should know."""

    def working(self, what: str) -> None:
        """What takes a while; nothing when it is over."""
