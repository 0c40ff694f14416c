"""The silent turn before a compaction."""

from datetime import UTC, datetime

import pytest

from holdfast.compaction.flush import Cycle, due, is_silent, prompt, strip_silence
from holdfast.context.budget import budget
from holdfast.settings import MemoryFlush, Settings
from holdfast_agent.view import Held
from support.cases import each

SETTINGS = MemoryFlush()
LIMITS = budget(Settings(), window=200_000)
NOON = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


class TestDue:
    def test_it_runs_by_what_the_next_request_will_take(self) -> None:
        """The answer before and the prompt to come count together, from the threshold on."""
        assert due(Cycle(), used=176_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"
        assert due(Cycle(), used=170_000, coming=6_000, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"
        assert due(Cycle(), used=170_000, coming=5_999, budget=LIMITS, can_write=True, settings=SETTINGS) == "early"

    def test_it_runs_once_for_each_compaction(self) -> None:
        """After a flush nothing is due until there was a compaction, and then it is again."""
        after = Cycle(compactions=2, flushed_at=2)
        assert due(after, used=190_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "done"
        assert due(after, used=0, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS, forced=True) == "done"
        compacted = Cycle(compactions=3, flushed_at=2)
        assert due(compacted, used=190_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"

    def test_what_is_cut_from_windows_counts(self) -> None:
        """Trimming keeps a window small, and what it removes is gone from it as after a compaction."""
        cut = Cycle(left=100_000)
        assert due(cut, used=76_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"
        assert due(cut, used=75_999, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "early"
        once = Cycle(flushed_at=0, left=175_999)
        assert due(once, used=150_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "done"
        again = Cycle(flushed_at=0, left=176_000)
        assert due(again, used=0, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"

    def test_a_compaction_within_the_flush_does_not_use_up_the_next_one(self) -> None:
        """What counts is how many compactions there had been when the flush began."""
        after = Cycle(compactions=3, flushed_at=2)
        assert due(after, used=190_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"

    def test_why_it_does_not_run(self) -> None:
        """Switched off, a workspace that cannot be written to, a heartbeat: each is told."""
        off = MemoryFlush(enabled=False)
        assert due(Cycle(), settings=off, can_write=True, used=190_000, coming=0, budget=LIMITS) == "off"
        assert due(Cycle(), settings=SETTINGS, can_write=False, used=190_000, coming=0, budget=LIMITS) == "read-only"
        assert (
            due(Cycle(), settings=SETTINGS, can_write=True, used=190_000, coming=0, budget=LIMITS, heartbeat=True)
            == "heartbeat"
        )

    def test_a_long_transcript_or_a_compaction_to_come_force_it(self) -> None:
        """By its size on disk, where that is set, and before every compaction, however empty the window is."""
        long = MemoryFlush(force_flush_transcript_bytes=1_000)
        assert (
            due(Cycle(), used=0, coming=0, budget=LIMITS, can_write=True, settings=long, transcript_bytes=1_000)
            == "due"
        )
        assert (
            due(Cycle(), used=0, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS, transcript_bytes=10**9)
            == "early"
        )
        assert due(Cycle(), used=0, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS, forced=True) == "due"

    def test_failures_are_bounded(self) -> None:
        """A cycle whose flush was given up continues without one; the next compaction begins again."""
        given_up = Cycle(compactions=1, flushed_at=1, failures=3)
        assert due(given_up, used=190_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "failed"
        again = Cycle(compactions=2, flushed_at=1)
        assert due(again, used=190_000, coming=0, budget=LIMITS, can_write=True, settings=SETTINGS) == "due"


class TestPrompt:
    def test_it_names_the_day_and_the_one_file(self) -> None:
        """The date is filled in, the moment stands below, and only today's file may be written."""
        made = prompt(SETTINGS, now=NOON)
        assert made.path == "memory/2026-03-04.md"
        assert "YYYY" not in made.user + made.system
        assert "Current time: 2026-03-04 12:00 (UTC)" in made.user
        assert "only append" in made.user
        assert "NO_REPLY" in made.user
        assert "NO_REPLY" in made.system

    def test_rules_hold_for_prompts_of_ones_own(self) -> None:
        """A user's prompts get the date, the rules, and the word for silence."""
        own = MemoryFlush(prompt="Write memory/YYYY-MM-DD.md. Current time: now", system_prompt="Silent.")
        made = prompt(own, now=NOON)
        assert made.user.startswith("Write memory/2026-03-04.md. Current time: now")
        assert made.user.count("Current time:") == 1
        assert "only append" in made.user
        assert made.system.endswith("start with NO_REPLY.")


class TestSilence:
    @pytest.mark.parametrize(
        "text", ["NO_REPLY", " no_reply. ", "**NO_REPLY**", "NO_REPLY\nNO_REPLY", '"NO_REPLY"', '{"action":"NO_REPLY"}']
    )
    def test_a_mark_alone_is_silence(self, text: str) -> None:
        """In whatever dress."""
        assert is_silent(text)
        assert strip_silence(text) == ""

    @pytest.mark.parametrize(
        "text", ["", "No.", "NO_REPLYING", '{"action":', "The token NO_REPLY means silence.", "无"]
    )
    def test_words_are_not(self, text: str) -> None:
        """An answer that merely speaks of the mark is an answer."""
        assert not is_silent(text)
        assert strip_silence(text) == text

    def test_a_mark_at_the_end_or_the_beginning_is_not_shown(self) -> None:
        """A real answer is never lost for it."""
        assert strip_silence("NO_REPLY\n\nI saved it.") == "I saved it."
        assert strip_silence("NO_REPLY. 已保存。") == "已保存。"
        assert strip_silence("I saved it.\n\nNO_REPLY") == "I saved it."
        assert strip_silence("已保存。NO_REPLY") == "已保存。"

    @each(
        ("pieces", "shown"),
        [
            (["NO", "_RE", "PLY"], ""),
            (["NO", "_REPLY", "\n"], ""),
            (["No", ", that is wrong."], "No, that is wrong."),
            (["N"], "N"),
            (["NO_RE", "TURN is set"], "NO_RETURN is set"),
            (["Hello", " NO_REPLY"], "Hello"),
            (["Hello\n", "\nNO_", "REPLY", "."], "Hello"),
            (["NO_REPLY", "\n\nI saved", " it."], "I saved it."),
            (["NO_", "REPLY", ": I saved it."], "I saved it."),
            (["**NO_REPLY**", " 已保存。"], "已保存。"),
            (["HEARTBEAT_OK", " All is well.", " NO_REPLY"], "All is well."),
            (["NO_REPLY", " NO_REPLY ", "Done."], "Done."),
            (["`NO_REPLY`", " means", " silence"], "`NO_REPLY` means silence"),
            (["no_reply", " is a field"], "no_reply is a field"),
            (["HEART", "BEAT_OK"], ""),
            (["HEARTBEAT", " of the city"], "HEARTBEAT of the city"),
            (['{"act', 'ion": "NO_', 'REPLY"}'], ""),
            (["```json\n", '{"action": "NO_REPLY"}', "\n```"], ""),
            (['{"port":', " 6543}"], '{"port": 6543}'),
            (["已保存。", "NO_REPLY"], "已保存。"),
            (["Use N", " or NO", " for it"], "Use N or NO for it"),
            ([" ", "你", "好"], " 你好"),
            ([], ""),
        ],
    )
    def test_a_stream_is_held_back_while_it_may_be_silence(self, pieces: list[str], shown: str) -> None:
        """Nothing of silence is ever seen, and nothing of an answer is lost."""
        held = Held()
        assert "".join([*(held.feed(piece) for piece in pieces), held.end()]) == shown
