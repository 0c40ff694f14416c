"""A window that grew is finished just as it would be as a whole."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz import _Talk
from holdfast.context import settled
from holdfast.context.edits import Item
from holdfast.context.edits import messages_of as said
from holdfast.context.finish import Finished, finish
from holdfast.context.settled import Settled
from holdfast.context.verify import PROVIDERS
from holdfast.errors import InvalidWindowError
from holdfast.tokens import count_message


def as_a_whole(items: list[Item], provider: str) -> Finished | None:
    """What `finish` makes of it; None where it refuses."""
    try:
        return finish(said(items), provider)
    except InvalidWindowError:
        return None


def as_it_grew(known: Settled, items: list[Item], provider: str) -> Finished | None:
    """What is made of it on top of what is known already."""
    try:
        return known.finish(items, provider)
    except InvalidWindowError:
        return None


@settings(max_examples=60)
@given(seed=st.integers(min_value=0), provider=st.sampled_from(PROVIDERS), enough=st.integers(1, 12))
def test_it_is_what_finishing_all_of_it_makes(seed: int, provider: str, enough: int) -> None:
    """Whatever is broken about a conversation, a window that grows step by step is sent as if it came at once."""
    random = Random(seed)  # noqa: S311 - chance is all it is for
    talk = [message for _ in range(3) for message in _Talk(random).conversation()]
    items = [Item(message=m, id=number, tokens=count_message(m)) for number, m in enumerate(talk, 1)]
    known = Settled()
    before, settled._ENOUGH = settled._ENOUGH, enough  # type: ignore[misc]  # small talks must settle too
    try:
        for stop in sorted({random.randint(1, len(items)) for _ in range(6)}):
            whole, grown = as_a_whole(items[:stop], provider), as_it_grew(known, items[:stop], provider)
            assert (whole is None) == (grown is None)
            if whole is not None and grown is not None:
                assert grown.wire == whole.wire
                assert grown.messages == whole.messages
    finally:
        settled._ENOUGH = before  # type: ignore[misc]
