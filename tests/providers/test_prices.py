"""What tokens cost, as far as it is known."""

import pytest

from holdfast.messages import Usage
from holdfast.providers.models import cost


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-sonnet-5-5", 2),
        ("anthropic/claude-sonnet-4-5-20250929", 3),
        ("openrouter/anthropic/Claude-Opus-4-1", 15),
        ("claude-opus-4-5@20251101", 5),
        ("claude-opus-5-5", 4),
        ("gpt-5-mini-2025-08-07", 0.25),
        ("openai/gpt-6.1-sol", 2),
    ],
)
def test_the_longest_beginning_that_fits_counts(model: str, dollars: float) -> None:
    """Providers before a name and dates behind it do not matter; a longer known name goes before a shorter one."""
    assert cost(model, Usage(input=10**6)) == dollars


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-50", "llama3", "", "claude"])
def test_a_model_that_is_not_known_costs_nothing(model: str) -> None:
    """Another version is another model: no price is shown rather than a wrong one."""
    assert cost(model, Usage(input=10**6)) == 0


def test_every_kind_of_token_has_its_price() -> None:
    """Sent, answered, read from the cache and written to it are added up."""
    used = Usage(input=1_000_000, output=100_000, cache_read=10_000_000, cache_write=400_000)
    assert cost("claude-sonnet-5-5", used) == pytest.approx(2 + 1 + 2 + 1)
    assert cost("claude-sonnet-5-5", None) == 0
