"""Context windows and prices of known models, by the beginning of their names. The tables are in `models.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Usage
from holdfast.settings.schema import DEFAULT_CONTEXT_TOKENS

_TABLES: Final[dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("models.toml").read_text("utf-8"))
WINDOWS: Final[dict[str, int]] = _TABLES["windows"]
_PRICES: Final[dict[str, list[float]]] = _TABLES["prices"]
"""List prices in dollars per million tokens: input, output, cache reads and cache writes."""
PRICES_DATE: Final[str] = _TABLES["about"]["prices"].isoformat()
"""The day on which the list prices were written down."""


def context_tokens(name: str, *, override: int | None = None) -> int:
    """Return the context window of a model in tokens: `override`, else what is known of the name, else 200,000.

    `name` may begin with its provider, as in `openrouter/anthropic/claude-sonnet-4-5`. A local server may be configured
    for less than the model can hold: `override` is for that.
    """
    return override if override is not None else find_tokens(name) or DEFAULT_CONTEXT_TOKENS


def find_tokens(name: str) -> int | None:
    """Return the context window of a known model in tokens; None for an unknown name."""
    plain = name.lower().rsplit("/", maxsplit=1)[-1]
    if "claude" in plain:  # as other services write it: `us.anthropic.claude-opus-4.6`
        plain = plain[plain.index("claude") :].replace(".", "-")
    prefixes = (plain[:length] for length in range(len(plain), 0, -1))
    return next((WINDOWS[prefix] for prefix in prefixes if prefix in WINDOWS), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a model in dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def cost(self, usage: Usage) -> float:
        """Return the cost of a usage in dollars."""
        dollars = (
            usage.input * self.input
            + usage.output * self.output
            + usage.cache_read * self.cache_read
            + usage.cache_write * self.cache_write
        )
        return dollars / 1_000_000


def find_price(model: str, *, prices: Sequence[str] = ()) -> Price | None:
    """Return the price of a model, named with or without its provider; None if it is not known.

    `prices` are those of the setting `model.prices`, which come before the list.
    """
    own = {}
    for line in prices:
        start, *dollars = line.split()
        own[_plain_name(start)] = [float(number) for number in dollars]
    name = _plain_name(model)
    for table in (own, _PRICES):
        known = max((start for start in table if f"{name}-".startswith(f"{start}-")), key=len, default=None)
        if known is not None:
            sent, received, *cached = table[known]
            cache_read = cached[0] if cached else sent
            cache_write = cached[1] if len(cached) > 1 else sent
            return Price(input=sent, output=received, cache_read=cache_read, cache_write=cache_write)
    return None


def _plain_name(model: str) -> str:
    return model.rsplit("/", 1)[-1].lower().replace("@", "-").replace(":", "-")


def cost(model: str, usage: Usage | None, *, prices: Sequence[str] = ()) -> float:
    """Return the cost of a request in dollars; 0 if its usage or the price is not known."""
    price = find_price(model, prices=prices)
    if price is None or usage is None:
        return 0.0
    return price.cost(usage)
