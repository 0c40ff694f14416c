"""What holds for every count."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from holdfast.messages import Message
from holdfast.tokens import LARGEST_SCALE, MESSAGE_TOKENS, context_tokens, count_messages, count_text
from strategies import conversations, texts

latin = st.text(st.characters(max_codepoint=0x24F), max_size=80)
cjk = st.text(st.characters(min_codepoint=0x3041, max_codepoint=0x9FFF), max_size=40)


class TestCountText:
    """The estimate."""

    @given(text=latin)
    def test_latin_text_is_a_third(self, text: str) -> None:
        """Exactly the old rule, rounded up."""
        assert count_text(text) == math.ceil(len(text) / 3)

    @given(text=cjk | st.text(st.characters(min_codepoint=0xAC00, max_codepoint=0xD7A3), max_size=40))
    def test_cjk_is_one_token_a_character(self, text: str) -> None:
        """Han, kana and Hangul alike."""
        assert count_text(text) == len(text)

    @given(text=texts())
    def test_no_text_counts_for_less_than_latin_would(self, text: str) -> None:
        """And none for more than its bytes."""
        assert math.ceil(len(text) / 3) <= count_text(text) <= len(text.encode("utf-8", "surrogatepass"))

    @given(left=texts(), right=texts())
    def test_two_texts_count_as_one_but_for_rounding(self, left: str, right: str) -> None:
        """Cutting a text up does not make it cheaper, and costs one token at most."""
        parts = count_text(left) + count_text(right)

        assert parts - 1 <= count_text(left + right) <= parts


class TestContext:
    """How full a window is."""

    @given(listed=conversations(), more=conversations())
    def test_what_is_added_only_adds(self, listed: list[Message], more: list[Message]) -> None:
        """An estimate grows with every message."""
        assert count_messages([*listed, *more]) == count_messages(listed) + count_messages(more)
        assert count_messages(listed) >= MESSAGE_TOKENS * len(listed)

    @given(listed=conversations(), since=st.none() | st.integers(0, 2**41))
    def test_the_figure_is_the_last_report_and_what_follows(self, listed: list[Message], since: int | None) -> None:
        """Nothing that is silent or stale is taken for a report, and no later report is passed over."""
        counted = context_tokens(listed, since=since)
        start = 0 if counted.index is None else counted.index + 1

        assert counted.tokens == counted.reported + counted.trailing
        assert 1 <= counted.scale <= LARGEST_SCALE
        assert counted.trailing == math.ceil(count_messages(listed[start:]) * counted.scale)
        assert not any(_reports(message, since) for message in listed[start:])
        if counted.index is not None:
            message = listed[counted.index]
            assert _reports(message, since)
            assert message.usage is not None
            assert counted.reported == message.usage.context > 0


def _reports(message: Message, since: int | None) -> bool:
    fresh = since is None or (message.timestamp is not None and message.timestamp > since)
    spoken = message.role == "assistant" and message.stop not in {"error", "aborted"}
    return fresh and spoken and message.usage is not None and message.usage.context > 0
