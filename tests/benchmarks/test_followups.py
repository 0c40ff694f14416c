"""Short questions after long messages."""

from benchmarks.followups import measure


def test_a_long_message_does_not_take_the_place_of_a_short_question() -> None:
    """After it, as many questions are answered by words alone, in a block that is not much larger."""
    found = measure(messages=60, embedder=None)
    alone, after = found["systems"].values()
    assert (alone["answered"], after["answered"]) == (20, 20)
    assert after["tokens"] < 2 * alone["tokens"]
