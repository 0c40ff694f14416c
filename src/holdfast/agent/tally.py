"""Token usage of the model calls outside of the conversation: summaries, flushes, fact extraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Literal, TypeAlias

from holdfast.messages import Usage
from holdfast.models.base import Model, Prompt, Reply
from holdfast.providers.models import cost

__all__ = ["CountedModel", "Purpose", "Spent", "Tally", "add_usage"]

Purpose: TypeAlias = Literal["summaries", "flush", "extraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
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
        total = used.input + used.cache_read + used.cache_write
        return cls(calls=1, input=total, output=used.output, cost=cost)

    def __add__(self, other: Spent) -> Spent:
        """Return the sum of both."""
        return Spent(
            calls=self.calls + other.calls,
            input=self.input + other.input,
            output=self.output + other.output,
            cost=self.cost + other.cost,
        )


def add_usage(one: Usage, other: Usage | None) -> Usage:
    """Return the sum of two usages."""
    if other is None:
        return one
    return Usage(
        input=one.input + other.input,
        output=one.output + other.output,
        cache_read=one.cache_read + other.cache_read,
        cache_write=one.cache_write + other.cache_write,
    )


@dataclass(slots=True)
class Tally:
    """Adds up what calls use, from any thread."""

    _spent: dict[Purpose, Spent] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added since the last `take`."""
        return not self._spent

    def add(self, purpose: Purpose, spent: Spent) -> None:
        """Add a call."""
        with self._lock:
            self._spent[purpose] = self._spent.get(purpose, Spent()) + spent

    def take(self) -> dict[Purpose, Spent]:
        """Return what was added since the last time, and start again from zero."""
        with self._lock:
            taken, self._spent = self._spent, {}
        return taken


@dataclass(frozen=True, slots=True)
class CountedModel:
    """A model whose calls are added to a tally."""

    model: Model
    purpose: Purpose
    tally: Tally

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def provider(self) -> str:
        """The provider whose rules its windows must keep."""
        return self.model.provider

    @property
    def context_tokens(self) -> int:
        """The size of its context window."""
        return self.model.context_tokens

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Call the model, and count the call; see `Model.ask`."""
        reply = self.model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        self.tally.add(self.purpose, Spent.of(reply.usage, cost=cost(self.name, reply.usage)))
        return reply
