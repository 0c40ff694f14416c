"""What holds for every count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.messages import Message
from holdfast.tokens import MESSAGE_TOKENS, count_messages, count_text
from support.strategies import conversations, texts


class TestCountText:
    """The estimate."""

    @given(text=texts(), family=st.sampled_from(["any", "gpt"]))
    def test_the_estimate_lies_between_bounds(self, text: str, family: str) -> None:
        """Every text has at least one token, and at most a few per character."""
        counted = count_text(text, family=family)

        assert len(text) / 60 <= counted <= 4 * len(text) + sum(4 for char in text if ord(char) > 0xFFFF)

    @given(left=texts(), right=texts())
    def test_two_texts_count_as_one_but_for_where_they_meet(self, left: str, right: str) -> None:
        """Splitting a text does not reduce its tokens, except for the pair that is split."""
        assert abs(count_text(left) + count_text(right) - count_text(left + right)) <= 3

    @given(text=texts(), more=texts())
    def test_a_longer_text_never_counts_for_less(self, text: str, more: str) -> None:
        """So cutting a text down always helps."""
        assert count_text(text) <= count_text(text + more)


class TestContext:
    """The tokens of a window."""

    @given(listed=conversations(), more=conversations())
    def test_what_is_added_only_adds(self, listed: list[Message], more: list[Message]) -> None:
        """An estimate grows with every message."""
        assert count_messages([*listed, *more]) == count_messages(listed) + count_messages(more)
        assert count_messages(listed) >= MESSAGE_TOKENS * len(listed)


@given(text=texts(), family=st.sampled_from(["any", "gpt"]))
def test_a_short_text_takes_as_much_as_the_same_line_of_a_long_one(text: str, family: str) -> None:
    """Short texts are counted differently from long ones, by the same weights; each sum is rounded up once."""
    before = "\n" * 200
    added = count_text(before + text, family=family) - count_text(before, family=family)
    assert abs(added - count_text(text, family=family)) <= 1
