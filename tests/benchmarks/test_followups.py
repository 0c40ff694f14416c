"""Short questions after long messages."""

import pytest

from benchmarks.followups import measure

pytestmark = pytest.mark.nightly


def test_a_long_message_does_not_take_the_place_of_a_short_question() -> None:
    """After it, as many questions are answered by words alone, in a block that is not much larger."""
    found = measure(messages=60, embedder=None)
    alone, after = found["systems"].values()
    assert (alone["answered"], after["answered"]) == (20, 20)
    assert after["tokens"] < 2 * alone["tokens"]
