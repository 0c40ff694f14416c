"""What the model is to see for one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast import formats
from holdfast.context.edits import Item, tokens
from holdfast.context.edits import messages as said
from holdfast.context.finish import Finished, finish
from holdfast.messages import Message
from holdfast.report import ContextReport

__all__ = ["Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What the model is to see for one request.

    Attributes:
        items: The messages in it, with their archive numbers and costs.
        provider: Whose rules it keeps.
        finished: The valid form of it for that provider.
        report: What was kept, pruned, trimmed and recalled, and why.
    """

    items: tuple[Item, ...]
    provider: str
    finished: Finished
    report: ContextReport

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is sent, in canonical form."""
        return self.finished.messages

    @property
    def tokens(self) -> int:
        """What it costs, by the counter in force."""
        return tokens(self.items)

    def render(self, format: str | None = None) -> list[Mapping[str, Any]]:
        """The message list of a request, valid for the provider; the one it was made for unless another is named."""
        return list(self._for(format).wire)

    def request(self, format: str | None = None) -> dict[str, Any]:
        """The fields of a request body, the system prompt where the provider wants it."""
        return formats.render_request(self._for(format).messages, format or self.provider)

    def _for(self, format: str | None) -> Finished:
        return self.finished if format in {None, self.provider} else finish(said(self.items), format or "")
