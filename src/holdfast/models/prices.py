"""What tokens cost, roughly: list prices by the beginning of a model's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.messages import Usage

__all__ = ["Price", "cost", "price"]

_MILLION: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars for a million tokens: sent, answered, read from the provider's cache, written to it."""

    input: float
    output: float
    cache_read: float
    cache_write: float


_PRICES: Final = {
    "claude-3-5-haiku": Price(0.8, 4, 0.08, 1),
    "claude-fable-5": Price(10, 50, 1, 12.5),
    "claude-haiku-4": Price(1, 5, 0.1, 1.25),
    "claude-mythos-5": Price(10, 50, 1, 12.5),
    "claude-opus-4": Price(15, 75, 1.5, 18.75),
    "claude-opus-4-5": Price(5, 25, 0.5, 6.25),
    "claude-opus-4-6": Price(5, 25, 0.5, 6.25),
    "claude-opus-4-7": Price(5, 25, 0.5, 6.25),
    "claude-opus-4-8": Price(5, 25, 0.5, 6.25),
    "claude-opus-5": Price(5, 25, 0.5, 6.25),
    "claude-opus-5-5": Price(4, 20, 0.2, 5),
    "claude-sonnet-4": Price(3, 15, 0.3, 3.75),
    "claude-sonnet-5": Price(2, 10, 0.2, 2.5),
    "deepseek-chat": Price(0.28, 0.42, 0.028, 0.28),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03, 0.3),
    "gemini-2.5-pro": Price(1.25, 10, 0.125, 1.25),
    "gpt-4.1": Price(2, 8, 0.5, 2),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1, 0.4),
    "gpt-4o": Price(2.5, 10, 1.25, 2.5),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075, 0.15),
    "gpt-5": Price(1.25, 10, 0.125, 1.25),
    "gpt-5-mini": Price(0.25, 2, 0.025, 0.25),
    "gpt-5-nano": Price(0.05, 0.4, 0.005, 0.05),
    "gpt-5.6-sol": Price(5, 30, 0.5, 6.25),
    "gpt-6-luna": Price(0.1, 0.5, 0.01, 0.125),
    "gpt-6-sol": Price(2, 10, 0.2, 2.5),
    "gpt-6.1-sol": Price(2, 10, 0.1, 2.5),
}
"""The longest beginning that fits counts; `gpt-5` is no beginning of `gpt-5.5`. Prices change, and are higher for very
long prompts: this is for orientation, never for a bill.
"""


def price(model: str) -> Price | None:
    """The price of a model, named with or without its provider; None where it is not known."""
    name = model.rsplit("/", 1)[-1].lower().replace("@", "-").replace(":", "-")
    known = max((start for start in _PRICES if f"{name}-".startswith(f"{start}-")), key=len, default=None)
    return None if known is None else _PRICES[known]


def cost(model: str, usage: Usage | None) -> float:
    """Dollars for what was used; nothing where that or the price is not known."""
    each = price(model)
    if each is None or usage is None:
        return 0.0
    spent = (
        usage.input * each.input
        + usage.output * each.output
        + usage.cache_read * each.cache_read
        + usage.cache_write * each.cache_write
    )
    return spent / _MILLION
