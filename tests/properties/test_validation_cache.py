"""A window that has grown is validated as if it came as a whole."""

from dataclasses import replace
from random import Random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz import Conversation
from holdfast.context import validate as validation
from holdfast.context.edits import Block, Item
from holdfast.context.validate import ValidationCache, ValidWindow, validate
from holdfast.errors import InvalidWindowError
from holdfast.providers import FORMATS
from holdfast.tokens import count_message
from support.strategies import examples

CHANGED: Final = 0.5


def as_a_whole(items: list[Item], provider: str) -> ValidWindow | None:
    """Return the result of `validate`; None if it raises an error."""
    try:
        return validate([item.sent for item in items], provider)
    except InvalidWindowError:
        return None


def as_it_grew(known: ValidationCache, items: list[Item], provider: str) -> ValidWindow | None:
    """Return the result of the cache, which knows the earlier window."""
    try:
        return known.validate(items, provider)
    except InvalidWindowError:
        return None


@settings(max_examples=examples(60))
@given(seed=st.integers(min_value=0), provider=st.sampled_from(sorted(FORMATS)), enough=st.integers(1, 12))
def test_it_is_what_finishing_all_of_it_makes(seed: int, provider: str, enough: int) -> None:
    """Whatever is broken in a conversation, a window that grows step by step is sent as if it came at once.

    A message may get another block, or leave, at any place.
    """
    random = Random(seed)  # noqa: S311 - chance is all it is for
    conversation = [message for _ in range(3) for message in Conversation(random).read()]
    items = [Item(message=m, id=number, tokens=count_message(m)) for number, m in enumerate(conversation, 1)]
    known = ValidationCache()
    before, validation.MIN_CACHED = validation.MIN_CACHED, enough  # type: ignore[misc]  # small talks must settle too
    try:
        for stop in sorted({random.randint(1, len(items)) for _ in range(8)}):
            if random.random() < CHANGED and stop < len(items):
                place = random.randrange(stop)
                block = Block(random.choice(["words", "more words"]), 2)
                items[place : place + 1] = [replace(items[place], block=block)][: random.randint(0, 2)]
            whole, grown = as_a_whole(items[:stop], provider), as_it_grew(known, items[:stop], provider)
            assert (whole is None) == (grown is None)
            if whole is not None and grown is not None:
                assert grown.wire == whole.wire
                assert grown.messages == whole.messages
    finally:
        validation.MIN_CACHED = before  # type: ignore[misc]
