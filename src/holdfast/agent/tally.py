"""What the model calls beside the conversation take: summaries, flushes, extraction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Literal, TypeAlias

from holdfast.messages import Usage
from holdfast.models.base import Model, Prompt, Reply
from holdfast.providers.models import cost

__all__ = ["Counted", "Purpose", "Spent", "Tally"]

Purpose: TypeAlias = Literal["summaries", "flush", "extraction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What some calls took. Input counts what the provider had cached."""

    calls: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(
            calls=self.calls + other.calls,
            input=self.input + other.input,
            output=self.output + other.output,
            cost=self.cost + other.cost,
        )


@dataclass(slots=True)
class Tally:
    """Adds up what calls take, from any thread."""

    _spent: dict[Purpose, Spent] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was added since the last time."""
        return not self._spent

    def add(self, purpose: Purpose, spent: Spent) -> None:
        """Add a call."""
        with self._lock:
            self._spent[purpose] = self._spent.get(purpose, Spent()) + spent

    def take(self) -> dict[Purpose, Spent]:
        """Return what was added since the last time."""
        with self._lock:
            taken, self._spent = self._spent, {}
        return taken


@dataclass(frozen=True, slots=True)
class Counted:
    """A model whose calls are counted for a purpose."""

    model: Model
    purpose: Purpose
    tally: Tally

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    @property
    def provider(self) -> str:
        """Whose rules its windows keep."""
        return self.model.provider

    @property
    def context_tokens(self) -> int:
        """How many tokens its window holds."""
        return self.model.context_tokens

    def ask(
        self,
        prompt: Prompt,
        *,
        timeout: float | None = None,
        cancel: Event | None = None,
        on_text: Callable[[str], None] | None = None,
    ) -> Reply:
        """Ask, and count the call; see `Model.ask`."""
        reply = self.model.ask(prompt, timeout=timeout, cancel=cancel, on_text=on_text)
        used = reply.usage or Usage()
        self.tally.add(
            self.purpose,
            Spent(
                calls=1,
                input=used.input + used.cache_read + used.cache_write,
                output=used.output,
                cost=cost(self.name, reply.usage),
            ),
        )
        return reply
