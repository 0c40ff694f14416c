"""The benchmark of facts in single lines."""

import pytest

from benchmarks.lines import make_facts, make_messages, measure
from holdfast.embed.static import StaticEmbedder


def test_sixty_facts_are_made_the_same_way_each_time() -> None:
    """Each is one line of a message, and its answer is in no other message."""
    facts = make_facts()
    assert len(facts) == len({fact.question for fact in facts}) == 60
    texts = make_messages(facts, messages=120)
    assert texts == make_messages(make_facts(), messages=120)
    assert all(sum(fact.line in text.split("\n") for text in texts) == 1 for fact in facts)


@pytest.mark.nightly
def test_nearly_all_are_recalled() -> None:
    """58 of 60 at least, and with vectors no fewer than by words alone."""
    found = measure(messages=60, embedder=StaticEmbedder.from_wordllama())
    with_vectors, by_words = (found["systems"][name]["found"] for name in ("with vectors", "by words"))
    assert with_vectors >= max(58, by_words), found["missed"]
