"""The limits of a request."""

from __future__ import annotations

import pytest
from msgspec import structs

from holdfast.context.budget import budget
from holdfast.settings import Compaction, MemoryFlush, ModelSettings, Recall, Settings
from support.cases import each


class TestWindow:
    """How much a model can hold."""

    def test_the_default_window_has_200_000_tokens(self) -> None:
        """A model that no one knows holds 200,000 tokens."""
        assert budget(Settings()).window == 200_000
        assert budget(Settings(), model="house/secret-model").window == 200_000

    def test_what_is_asked_for_counts_more_than_settings_and_these_more_than_the_model(self) -> None:
        """The nearest word counts."""
        settings = Settings(model=ModelSettings(name="openai/gpt-4o", context_tokens=50_000))
        assert budget(settings, window=9_000).window == 9_000
        assert budget(settings).window == 50_000
        assert budget(Settings(model=ModelSettings(name="openai/gpt-4o"))).window == 128_000
        assert budget(Settings(model=ModelSettings(name="openai/gpt-4o")), model="claude-sonnet-4-5").window == 200_000

    @each(
        ("model", "window"),
        [
            ("claude-opus-4-5-20251101", 200_000),
            ("openrouter/anthropic/Claude-Sonnet-4", 200_000),
            ("gpt-4", 8_192),
            ("gpt-4o-mini", 128_000),
            ("gpt-4.1-nano", 1_047_576),
            ("google/gemini-2.5-pro", 1_048_576),
            (None, 200_000),
            ("somebody", 200_000),
        ],
    )
    def test_models_are_known_by_the_longest_beginning_of_their_name(self, model: str | None, window: int) -> None:
        """With or without a provider, in any case."""
        assert budget(Settings(), model=model).window == window


class TestReserve:
    """What is kept free for the reply."""

    def test_the_floor_raises_the_reserve(self) -> None:
        """16,384 counts as 20,000 unless the floor is off."""
        assert budget(Settings()).reserve == 20_000
        assert budget(Settings(compaction=Compaction(reserve_tokens_floor=0))).reserve == 16_384
        assert budget(Settings(compaction=Compaction(reserve_tokens=30_000))).reserve == 30_000

    @pytest.mark.parametrize(("window", "prompt"), [(4_000, 3_000), (8_000, 6_000), (16_000, 12_000), (32_000, 24_000)])
    def test_a_small_window_keeps_three_quarters_for_the_prompt(self, window: int, prompt: int) -> None:
        """The settings reserve a quarter at most."""
        assert budget(Settings(), window=window).prompt == prompt

    @pytest.mark.parametrize("name", ["reserve_tokens", "reserve_tokens_floor"])
    @pytest.mark.parametrize(("window", "reserve"), [(200_000, 80_000), (200_000, 160_000), (32_000, 24_000)])
    def test_a_set_reserve_is_kept(self, name: str, window: int, reserve: int) -> None:
        """So a compaction can start at any part of the window: 80,000 of 200,000 is 60 %."""
        found = budget(Settings(compaction=structs.replace(Compaction(), **{name: reserve})), window=window)
        assert (found.reserve, found.warning) == (reserve, "")
        assert found.compact_at == window - reserve

    @pytest.mark.parametrize("name", ["reserve_tokens", "reserve_tokens_floor"])
    def test_a_reserve_that_leaves_no_room_is_refused(self, name: str) -> None:
        """The usual quarter is kept instead, and a note names the setting and both figures."""
        found = budget(Settings(compaction=structs.replace(Compaction(), **{name: 80_000})), window=32_000)
        assert found.reserve == 8_000
        assert f"compaction.{name} = 80,000" in found.warning
        assert "32,000" in found.warning
        assert "8,000 are kept" in found.warning

    @pytest.mark.parametrize(
        ("window", "longest", "reserve"),
        [
            (16_000, 0, 4_000),  # no reply yet
            (16_000, 100, 2_000),
            (16_000, 2_000, 3_000),
            (16_000, 9_000, 4_000),
            (32_000, 100, 4_000),
            (200_000, 100, 20_000),
        ],
    )
    def test_the_reserve_follows_the_replies(self, window: int, longest: int, reserve: int) -> None:
        """Half as much again as the longest one, from an eighth of the window up to the default."""
        assert budget(Settings(), window=window).follow_replies(longest).reserve == reserve

    def test_a_reserve_that_was_chosen_does_not_follow_the_replies(self) -> None:
        """By the caller or in the settings."""
        assert budget(Settings(), window=16_000, reserve=5_000).follow_replies(10).reserve == 5_000
        for chosen in (Compaction(reserve_tokens=5_000), Compaction(reserve_tokens_floor=5_000)):
            assert budget(Settings(compaction=chosen), window=16_000).follow_replies(10).reserve == 5_000

    def test_tokens_next_to_the_messages_are_subtracted(self) -> None:
        """Tool definitions take their room."""
        assert budget(Settings(), overhead=1_500).prompt == 178_500

    def test_the_ceiling_leaves_room_for_a_short_reply(self) -> None:
        """Where there is no choice, the reply gets 4,000 tokens, or an eighth of a small window."""
        assert budget(Settings()).ceiling == 196_000
        assert budget(Settings(), window=8_000).ceiling == 7_000
        assert budget(Settings(compaction=Compaction(reserve_tokens=0, reserve_tokens_floor=0))).ceiling == 200_000


class TestRecall:
    """How much may be recalled."""

    @pytest.mark.parametrize(("window", "cap"), [(200_000, 4_000), (32_000, 3_200), (8_190, 819), (5, 0)])
    def test_the_cap_is_the_smaller_of_the_setting_and_a_tenth(self, window: int, cap: int) -> None:
        """Rounded down."""
        assert budget(Settings(), window=window).recall == cap

    def test_all_live_blocks_together_get_a_tenth(self) -> None:
        """They may be more than one block's cap."""
        assert budget(Settings()).live_recall == 20_000

    def test_the_safe_limit_leaves_room_for_a_block(self) -> None:
        """Window less reserve less cap."""
        assert budget(Settings()).safe_limit == 200_000 - 20_000 - 4_000
        assert budget(Settings(recall=Recall(hard_cap_tokens=100))).safe_limit == 179_900

    def test_without_recall_no_room_is_kept_for_it(self) -> None:
        """Then messages may take all."""
        assert budget(Settings(recall=Recall(enabled=False))).safe_limit == 180_000


class TestFlush:
    """When the memory flush and the compaction are due."""

    def test_it_is_due_before_the_compaction(self) -> None:
        """By the soft threshold."""
        limits = budget(Settings())
        assert (limits.flush_at, limits.compact_at) == (176_000, 180_000)

    def test_the_threshold_as_a_share_of_the_window(self) -> None:
        """0.7 is 70 % in use, and never after the compaction."""
        flush = MemoryFlush(soft_threshold=0.7)
        assert budget(Settings(compaction=Compaction(memory_flush=flush))).flush_at == 140_000
        late = MemoryFlush(soft_threshold=1.0)
        assert budget(Settings(compaction=Compaction(memory_flush=late))).flush_at == 180_000

    def test_in_a_small_window_it_is_not_always_due(self) -> None:
        """The threshold takes half of what there is at most."""
        settings = Settings(compaction=Compaction(memory_flush=MemoryFlush(soft_threshold_tokens=4_000)))
        assert budget(settings, window=8_000).flush_at == 3_000
        assert budget(settings, window=16_000).flush_at == 8_000

    def test_unset_it_is_at_most_a_tenth_of_the_window(self) -> None:
        """So that a small window is used before it is compacted."""
        assert budget(Settings(), window=16_000).flush_at == 12_000 - 1_600
        assert budget(Settings(), window=32_000).flush_at == 24_000 - 3_200

    def test_kept_history_has_its_share(self) -> None:
        """Half of the window."""
        assert budget(Settings()).history == 100_000
