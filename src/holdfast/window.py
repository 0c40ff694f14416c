"""The window: what the model receives for one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import providers
from holdfast.context.edits import Item, tokens
from holdfast.context.validate import ValidWindow, validate
from holdfast.messages import Message
from holdfast.report import ContextReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The messages and tools that the model receives for one request.

    Attributes:
        items: The messages in it, with their archive numbers and tokens.
        provider: The provider whose rules it keeps.
        valid: The valid form of it for that provider.
        report: What was kept, pruned, trimmed and recalled, and why.
        block: What is recalled for a question that is not among the messages: send it before the question.
        failures: What failed while it was made. The report has it too, next to warnings about the memory as a whole.
        place: The place of its reply in the conversation, for `after` of `Session.append`; empty if memory failed.
        has_memory: Whether memory worked. If not, it has the newest messages that fit, and nothing was archived.
    """

    items: tuple[Item, ...]
    provider: str
    valid: ValidWindow
    report: ContextReport
    block: str = ""
    failures: tuple[str, ...] = ()
    place: str = ""
    has_memory: bool = True

    def __repr__(self) -> str:
        return f"<Window of {len(self.messages)} messages, {self.tokens} tokens, for {self.provider!r}>"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages that are sent, in canonical form."""
        return self.valid.messages

    @property
    def tokens(self) -> int:
        """Its size, by the counter in use."""
        return tokens(self.items)

    def render(self, format: str | None = None) -> list[Mapping[str, Any]]:
        """Render the message list of a request, valid for the provider; by default the one it was made for."""
        return list(self._valid_for(format).wire)

    def request(self, format: str | None = None) -> dict[str, Any]:
        """Render the fields of a request body, the system prompt where the provider wants it."""
        return providers.render_request(self._valid_for(format).messages, format or self.provider)

    def _valid_for(self, format: str | None) -> ValidWindow:
        if format is None or format == self.provider:
            return self.valid
        return validate([item.sent for item in self.items], format)
