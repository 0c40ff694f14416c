"""Context windows and prices of known models, by the beginning of their names. The tables are in `models.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from holdfast.messages import Usage
from holdfast.settings.schema import DEFAULT_CONTEXT_TOKENS

_TABLES: Final[dict[str, dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("models.toml").read_text("utf-8"))
WINDOWS: Final[dict[str, int]] = _TABLES["windows"]
_PRICES: Final[dict[str, list[float]]] = _TABLES["prices"]
"""List prices in dollars per million tokens: input, output, cache reads and cache writes."""


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


def cost(model: str, usage: Usage | None) -> float:
    """Return the cost of a request in dollars; 0 if its usage or the price is not known.

    The model may be named with or without its provider.
    """
    name = model.rsplit("/", 1)[-1].lower().replace("@", "-").replace(":", "-")
    known = max((start for start in _PRICES if f"{name}-".startswith(f"{start}-")), key=len, default=None)
    if known is None or usage is None:
        return 0.0
    counts = (usage.input, usage.output, usage.cache_read, usage.cache_write)
    return sum(count * dollars for count, dollars in zip(counts, _PRICES[known], strict=True)) / 1_000_000
