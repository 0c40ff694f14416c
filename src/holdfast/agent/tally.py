"""Token usage of the model calls outside of the conversation: summaries, flushes, fact extraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass
from queue import SimpleQueue
from threading import Event
from typing import Literal, TypeAlias

from holdfast.messages import Usage
from holdfast.models.base import Model, Prompt, Reply
from holdfast.providers.models import cost

__all__ = ["CountedModel", "Purpose", "Spent", "Tally"]

Purpose: TypeAlias = Literal["summaries", "flush", "extraction"]


@dataclass(frozen=True, slots=True)
class Spent:
    """What some calls used. `input` includes cached tokens."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0

    @classmethod
    def of(cls, usage: Usage | None, *, cost: float = 0.0) -> Spent:
        """Return what one call used."""
        used = usage or Usage()
        return cls(1, used.input + used.cache_read + used.cache_write, used.output, cost)

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(*map(sum, zip(astuple(self), astuple(other), strict=True)))


Tally: TypeAlias = SimpleQueue[tuple[Purpose, Spent]]
"""The calls that are not counted yet, from any thread."""


class CountedModel:
    """A model whose calls are added to a tally."""

    def __init__(self, model: Model, purpose: Purpose, tally: Tally) -> None:
        self.name, self.provider, self.context_tokens = model.name, model.provider, model.context_tokens
        self._model, self._purpose, self._tally = model, purpose, tally

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Call the model, and count the call; see `Model.ask`."""
        reply = self._model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        self._tally.put((self._purpose, Spent.of(reply.usage, cost=cost(self.name, reply.usage))))
        return reply
