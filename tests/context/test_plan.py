"""The path of a window up to the recall."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest

from holdfast.context.budget import budget
from holdfast.context.edits import Edit, apply, tokens
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message
from holdfast.settings import Pruning, Settings, Trim
from support.conversations import answer, call, items, messages_of, plan, reply, results, system, user

WORDS = "a sentence about the matter at hand, of some length. " * 10
LONG = "line of output\n" * 2_000


def session(rounds: int) -> list[Message]:
    """An agent at work."""
    conversation = [system(), user("build the service")]
    for number in range(rounds):
        conversation += [reply("", call(f"c{number}")), results(answer(f"c{number}", WORDS * 3))]
    return conversation


class TestPlan:
    """Replay, prune, trim."""

    def test_a_window_that_fits_is_left_alone(self) -> None:
        """And no one is asked for scores."""

        def never() -> Mapping[int, float]:
            raise AssertionError

        window = items(session(3))
        planned = plan(window, [], budget=budget(Settings()), settings=Settings(), query="why", scores=never)
        assert planned.items == tuple(window)
        assert planned.edits == ()

    def test_pruning_comes_before_trimming(self) -> None:
        """And may make it unnecessary."""
        settings = Settings(pruning=Pruning(mode="aggressive"))
        conversation = [*session(2), reply("", call("x")), results(answer("x", LONG)), *session(4)[2:]]
        planned = plan(items(conversation), [], budget=budget(settings, window=16_000), settings=settings)
        assert {edit.kind for edit in planned.edits} == {"pruned"}

    def test_scores_are_computed_only_if_something_is_removed(self) -> None:
        """And what they favour stays."""
        window = items(session(40))
        limits = budget(Settings(), window=16_000)
        planned = plan(window, [], budget=limits, settings=Settings(), query="why", scores=lambda: {5: 3.0, 6: 2.0})
        assert {5, 6} <= {item.id for item in planned.items}
        short = plan(window, [], budget=limits, settings=Settings(), query="ok", scores=lambda: {5: 3.0})
        assert 5 not in {item.id for item in short.items}
        unknown = plan(window, [], budget=limits, settings=Settings(), query="why")
        assert unknown.items == short.items

    def test_recorded_edits_are_replayed(self) -> None:
        """The next request has the same beginning, and nothing new is decided."""
        limits = budget(Settings(), window=16_000)
        conversation = session(40)
        first = plan(items(conversation), [], budget=limits, settings=Settings())
        again = plan(items([*conversation, reply("ok"), user("more")]), first.edits, budget=limits, settings=Settings())
        assert again.edits == ()
        assert again.items[: len(first.items)] == first.items

    def test_cuts_are_rare(self) -> None:
        """A session that grows by a little is cut once in many turns."""
        limits = budget(Settings(), window=40_000)
        edits: list[Edit] = []
        cuts = 0
        conversation = session(80)
        for stop in range(2, len(conversation) + 1, 2):
            planned = plan(items(conversation)[:stop], edits, budget=limits, settings=Settings())
            edits += planned.edits
            cuts += any(edit.kind == "trimmed" for edit in planned.edits)
            assert tokens(planned.items) <= limits.prompt - limits.small_recall
        assert 0 < cuts <= 80 / 20

    def test_a_cut_shortens_old_results_first(self) -> None:
        """That may be enough: then no message leaves the window. Recent results are not shortened."""
        conversation = [system(), user("build the service")]
        for number in range(12):
            conversation += [reply("", call(f"c{number}")), results(answer(f"c{number}", "line of output\n" * 205))]
        window = items(conversation)
        limits = budget(Settings(), window=16_000)
        assert tokens(window) > limits.prompt
        planned = plan(window, [], budget=limits, settings=Settings())
        assert {edit.kind for edit in planned.edits} == {"pruned"}
        assert len(planned.items) == len(window)
        assert tokens(planned.items) <= limits.safe_limit - Trim().hysteresis * limits.window
        assert [item.message for item in planned.items[-6:]] == [item.message for item in window[-6:]]
        again = plan(window, planned.edits, budget=limits, settings=Settings())
        assert again.edits == ()

    def test_pruning_that_is_off_shortens_nothing(self) -> None:
        """Messages leave the window instead."""
        settings = Settings(pruning=Pruning(mode="off"))
        window = items([*session(2), reply("", call("x")), results(answer("x", LONG)), *session(40)[2:]])
        planned = plan(window, [], budget=budget(settings, window=16_000), settings=settings)
        assert {edit.kind for edit in planned.edits} == {"trimmed"}

    def test_a_large_new_result_does_not_cut_what_was_sent(self) -> None:
        """It alone is shortened, so that the provider's cache keeps the rest."""
        conversation = [*session(6), reply("", call("x")), results(answer("x", LONG))]
        window = items(conversation)
        limits = budget(Settings(), window=12_000)
        planned = plan(window, [], budget=limits, settings=Settings())
        assert [edit.ids for edit in planned.edits] == [(window[-1].id,)]
        assert planned.items[:-1] == tuple(window[:-1])

    def test_a_question_leaves_room_for_a_whole_block_and_the_work_on_it_may_use_it(self) -> None:
        """While the agent works, only the room of a small block is kept."""
        limits = budget(Settings(), window=40_000)
        asked = items([*session(70), reply("done"), user("why")])
        working = items(session(71))
        assert limits.safe_limit < tokens(asked) < tokens(working) < limits.prompt - limits.small_recall
        assert plan(working, [], budget=limits, settings=Settings()).edits == ()
        assert tokens(plan(asked, [], budget=limits, settings=Settings()).items) < limits.safe_limit
        follows = plan(working, [], budget=limits, settings=Settings(), question_follows=True)
        assert tokens(follows.items) < limits.safe_limit

    def test_recent_messages_take_at_most_half_of_a_small_window(self) -> None:
        """Otherwise a cut could not go deep, and the next request would be cut again."""
        conversation = [system(), user("build the service")]
        for number in range(8):
            conversation += [reply("", call(f"c{number}")), user(f"{number} {WORDS * 10}")]
        limits = budget(Settings(), window=16_000)
        planned = plan(items(conversation), [], budget=limits, settings=Settings())
        assert tokens(planned.items) <= limits.safe_limit - 0.2 * limits.window

    def test_what_must_stay_shrinks_before_a_request_is_given_up(self) -> None:
        """The newest tool result is too long for the window."""
        conversation = [*session(3), reply("", call("x")), results(answer("x", LONG)), reply("so"), user("why")]
        limits = budget(Settings(), window=8_000)
        planned = plan(items(conversation), [], budget=limits, settings=Settings())
        assert tokens(planned.items) <= limits.prompt
        shown = next(
            message for message in messages_of(planned.items) if message.results and message.results[0].call_id == "x"
        )
        assert "holdfast id" in shown.results[0].text

    def test_a_result_is_cleared_only_if_nothing_else_helps(self) -> None:
        """An agent that cannot see what it asked for asks again: older messages go first."""

        def planned(*, before: int, request: int) -> list[Message]:
            conversation = [user("word " * before), reply("so"), user("word " * request)]
            conversation += [reply("", call("x")), results(answer("x", LONG))]
            limits = budget(Settings(), window=8_000)
            window = plan(items([system(), *conversation]), [], budget=limits, settings=Settings()).items
            assert tokens(window) <= limits.ceiling
            assert window[-1].message.results
            return messages_of(window)

        assert "line of output" in str(planned(before=10, request=10))
        yielded = planned(before=4_000, request=3_000)
        assert "line of output" in str(yielded)
        assert len(yielded) == 5
        assert "line of output" not in str(planned(before=10, request=4_700))

    def test_what_cannot_shrink_is_an_error(self) -> None:
        """Words of the user are never cut."""
        conversation = [user("x" * 60_000)]
        with pytest.raises(WindowTooSmallError):
            plan(items(conversation), [], budget=budget(Settings(), window=8_000), settings=Settings())

    def test_a_much_larger_window_brings_back_what_was_trimmed(self) -> None:
        """Another model was chosen."""
        window = items(session(40))
        small = plan(window, [], budget=budget(Settings(), window=16_000), settings=Settings())
        large = plan(window, small.edits, budget=budget(Settings()), settings=Settings())
        assert len(large.items) == len(window) > len(small.items)

    def test_the_pause_since_the_last_request_counts(self) -> None:
        """A cold cache is nothing to lose."""
        settings = Settings(pruning=Pruning(mode="cache-ttl"), trim=Trim(enabled=False))
        window = items(session(12))
        limits = budget(settings, window=20_000)
        assert plan(window, [], budget=limits, settings=settings, idle=timedelta(minutes=1)).edits == ()
        assert plan(window, [], budget=limits, settings=settings, idle=timedelta(minutes=6)).edits == ()
        long = items([*session(2), reply("", call("x")), results(answer("x", LONG)), *session(4)[2:]])
        assert plan(long, [], budget=budget(settings), settings=settings, idle=timedelta(hours=1)).edits == ()
        warm = budget(settings, window=36_000)
        edits = plan(long, [], budget=warm, settings=settings, idle=timedelta(hours=1)).edits
        assert [edit.kind for edit in edits] == ["pruned"]
        assert apply(long, edits)
