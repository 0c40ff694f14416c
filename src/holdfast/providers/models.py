"""Context windows and prices of known models, by the beginning of their names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from holdfast.messages import Usage
from holdfast.settings.schema import DEFAULT_CONTEXT_TOKENS

__all__ = ["WINDOWS", "Price", "context_tokens", "cost", "known_tokens", "price"]

# --- windows -----------------------------------------------------------------

WINDOWS: Final[dict[str, int]] = {
    # Anthropic
    "claude": 200_000,
    "claude-2-0": 100_000,
    "claude-instant": 100_000,
    "claude-opus-4-6": 1_000_000,
    "claude-opus-4-7": 1_000_000,
    "claude-opus-4-8": 1_000_000,
    "claude-opus-5": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-sonnet-5": 1_000_000,
    "claude-haiku-5": 1_000_000,
    "claude-fable": 1_000_000,
    "claude-mythos": 1_000_000,
    # OpenAI
    "gpt-3.5": 16_385,
    "gpt-4": 8_192,
    "gpt-4-32k": 32_768,
    "gpt-4-turbo": 128_000,
    "gpt-4-vision": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-0125": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4.5": 128_000,
    "gpt-4o": 128_000,
    "gpt-5": 400_000,
    "gpt-5-chat": 128_000,
    "gpt-5.1-chat": 128_000,
    "gpt-5.2-chat": 128_000,
    "gpt-5.3-chat": 128_000,
    "gpt-5.4": 1_050_000,
    "gpt-5.4-mini": 400_000,
    "gpt-5.4-nano": 400_000,
    "gpt-5.5": 1_050_000,
    "gpt-5.6": 1_050_000,
    "gpt-5.6-luna": 400_000,
    "gpt-6": 1_050_000,
    "gpt-oss": 131_072,
    "chatgpt": 128_000,
    "codex-mini": 200_000,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4": 200_000,
    # Google
    "gemini": 1_048_576,
    "gemini-1.0": 32_760,
    "gemini-1.5-pro": 2_097_152,
    "gemini-3.5-pro": 2_097_152,
    "gemma": 8_192,
    "gemma3": 131_072,
    "gemma-3": 131_072,
    "gemma3n": 32_768,
    "gemma-3n": 32_768,
    # Alibaba
    "qwen": 32_768,
    "qwen2.5": 32_768,
    "qwen2.5-coder": 32_768,
    "qwen3": 40_960,
    "qwen3-235b-a22b-instruct-2507": 262_144,
    "qwen3-30b-a3b-instruct-2507": 262_144,
    "qwen3-4b-instruct-2507": 262_144,
    "qwen3-coder": 262_144,
    "qwen3-coder-plus": 1_000_000,
    "qwen3-max": 262_144,
    "qwen3-next": 262_144,
    "qwen3.5": 262_144,
    "qwen-plus": 131_072,
    "qwen-turbo": 131_072,
    "qwq": 131_072,
    # DeepSeek
    "deepseek": 131_072,
    "deepseek-coder": 16_384,
    "deepseek-v4": 1_000_000,
    # Meta
    "llama": 4_096,
    "llama-2": 4_096,
    "llama2": 4_096,
    "llama-3": 8_192,
    "llama3": 8_192,
    "llama-3.1": 131_072,
    "llama3.1": 131_072,
    "llama-3.2": 131_072,
    "llama3.2": 131_072,
    "llama-3.3": 131_072,
    "llama3.3": 131_072,
    "llama-4": 1_048_576,
    "llama4": 1_048_576,
    "llama-4-scout": 10_485_760,
    "llama4:scout": 10_485_760,
    # Mistral
    "mistral": 32_768,
    "mistral-large": 131_072,
    "mistral-medium": 131_072,
    "mistral-small": 131_072,
    "mistral-nemo": 131_072,
    "ministral": 131_072,
    "magistral": 40_960,
    "codestral": 262_144,
    "devstral": 131_072,
    "mixtral": 32_768,
    "mixtral-8x22b": 65_536,
    "pixtral": 131_072,
    # Moonshot, Zhipu, MiniMax, xAI, Cohere, Microsoft, IBM, and others
    "kimi": 262_144,
    "kimi-k2-0711": 131_072,
    "kimi-latest": 131_072,
    "moonshot-v1-8k": 8_192,
    "moonshot-v1-32k": 32_768,
    "moonshot-v1-128k": 131_072,
    "glm": 131_072,
    "glm-4.5": 131_072,
    "glm-4.6": 200_000,
    "glm-4.7": 200_000,
    "glm-5": 200_000,
    "minimax": 204_800,
    "minimax-m1": 1_000_000,
    "minimax-text": 1_000_000,
    "grok": 131_072,
    "grok-4": 256_000,
    "grok-4-fast": 2_000_000,
    "grok-4.1-fast": 2_000_000,
    "grok-code": 256_000,
    "command-r": 131_072,
    "command-a": 262_144,
    "phi": 16_384,
    "phi-3": 131_072,
    "phi3": 131_072,
    "phi4": 16_384,
    "granite": 131_072,
    "nova": 300_000,
    "nova-micro": 128_000,
    "smollm": 8_192,
    "tinyllama": 2_048,
    "yi": 200_000,
}
"""Tokens by the beginning of a model's name; the longest beginning counts."""


def context_tokens(name: str, *, override: int | None = None) -> int:
    """Return the context window of a model in tokens: `override`, else what is known of the name, else 200,000.

    `name` may begin with its provider, as in `openrouter/anthropic/claude-sonnet-4-5`. A local server may be configured
    for less than the model can hold: `override` is for that.
    """
    return override if override is not None else known_tokens(name) or DEFAULT_CONTEXT_TOKENS


def known_tokens(name: str) -> int | None:
    """Return the context window of a known model in tokens; None for an unknown name."""
    plain = name.lower().rsplit("/", maxsplit=1)[-1]
    if "claude" in plain:  # as other services write it: `us.anthropic.claude-opus-4.6`
        plain = plain[plain.index("claude") :].replace(".", "-")
    prefixes = (plain[:length] for length in range(len(plain), 0, -1))
    return next((WINDOWS[prefix] for prefix in prefixes if prefix in WINDOWS), None)


# --- prices ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Price:
    """List prices in dollars per million tokens: input, output, cache reads and cache writes."""

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
"""Prices by the beginning of a model's name; the longest beginning counts, and `gpt-5` is no beginning of `gpt-5.5`.

Prices change, and are higher for very long prompts: they are for orientation only.
"""


def price(model: str) -> Price | None:
    """Return the price of a model, named with or without its provider; None where it is not known."""
    name = model.rsplit("/", 1)[-1].lower().replace("@", "-").replace(":", "-")
    known = max((start for start in _PRICES if f"{name}-".startswith(f"{start}-")), key=len, default=None)
    return None if known is None else _PRICES[known]


def cost(model: str, usage: Usage | None) -> float:
    """Return the cost of a request in dollars; 0 where its usage or the price is not known."""
    each = price(model)
    if each is None or usage is None:
        return 0.0
    spent = (
        usage.input * each.input
        + usage.output * each.output
        + usage.cache_read * each.cache_read
        + usage.cache_write * each.cache_write
    )
    return spent / 1_000_000
