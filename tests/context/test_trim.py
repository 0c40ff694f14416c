"""Whole messages leave a window that is nearly full."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast.context.edits import Block, Item, Relevance, Trimmed, apply, from_json, to_json, tokens
from holdfast.context.plan import Attempt, protected_items, trim
from holdfast.errors import WindowTooSmallError
from holdfast.messages import Message
from holdfast.providers import read
from holdfast.settings import Trim
from support.conversations import answer, call, ids_of, items, limits, reply, results, system, trim_rules, user

WORDS = "a sentence about the matter at hand, of some length. " * 5


def chat(turns: int = 20) -> list[Message]:
    """A conversation of questions and answers."""
    conversation = [system()]
    for number in range(turns):
        conversation += [user(f"question {number} {WORDS}"), reply(f"answer {number} {WORDS}")]
    return conversation


def kept(
    window: Sequence[Item], safe: int, *, query: str = "", scores: Mapping[int, float] | None = None, **settings: Any
) -> list[int]:
    """What is left after trimming to a limit, with no step below it unless asked for."""
    wanted = Trim(**({"hysteresis": 0.0} | settings))
    edits = trim(window, trim_rules(limits(safe), wanted, query=query), scores=lambda: scores or {})
    return ids_of(apply(window, edits))


class TestWhen:
    """Whether anything has to go."""

    def test_a_window_under_the_limit_is_left_alone(self) -> None:
        """Nothing is recorded."""
        window = items(chat())
        budget = limits(tokens(window) + 100)
        assert trim(window, trim_rules(budget)) == ()

    def test_an_empty_window_is_fine(self) -> None:
        """There is nothing to cut."""
        assert trim([], trim_rules(limits(100))) == ()

    def test_over_the_limit_it_fits_afterwards(self) -> None:
        """In one edit."""
        window = items(chat())
        budget = limits(2_000)
        edits = trim(window, trim_rules(budget))
        assert len(edits) == 1
        assert tokens(apply(window, edits)) <= 2_000
        assert edits[0].tokens_before == sum(item.tokens for item in window if item.id in edits[0].ids)
        assert edits[0].change == Trimmed(limit=2_000)

    def test_answers_that_will_have_to_be_inserted_count(self) -> None:
        """An open call costs what its error will cost."""
        window = items([user("x"), reply("", call("a"), call("b"), call("c")), user("y"), *chat(3)[1:]])
        assert trim(window, trim_rules(limits(tokens(window) + 50), Trim(protected_recent=1)))

    def test_switched_off_it_only_keeps_a_window_from_overflowing(self) -> None:
        """Then no room is kept for a block."""
        window = items(chat())
        budget = limits(tokens(window) - 100, recall=300)
        assert trim(window, trim_rules(budget))
        assert trim(window, trim_rules(budget, Trim(enabled=False))) == ()
        assert trim(window, trim_rules(limits(500, recall=500), Trim(enabled=False, protected_recent=1)))


class TestProtected:
    """What never goes."""

    def test_the_system_prompt_and_the_newest_messages(self) -> None:
        """Six of them, or as many as are set."""
        assert kept(items(chat()), 490) == [1, 36, 37, 38, 39, 40, 41]
        assert kept(items(chat()), 200, protected_recent=2) == [1, 40, 41]

    def test_the_summary(self) -> None:
        """It stands for what is gone already."""
        window = items(chat())
        window[1] = replace(window[1], kind="summary")
        assert 2 in kept(window, 1_500)

    def test_pinned_messages(self) -> None:
        """However old and next to the point, with all that belongs to them."""
        window = items([user("x"), reply("", call("a")), results(answer("a", WORDS)), *chat()[1:]], pinned=[3])
        assert {2, 3} <= set(kept(window, 1_500))

    def test_the_last_tool_span(self) -> None:
        """Call and all results, also when much was said since."""
        conversation = [
            user("x"),
            reply("", call("a"), call("b")),
            results(answer("a", WORDS)),
            results(answer("b", WORDS)),
        ]
        assert {2, 3, 4} <= set(kept(items([*conversation, *chat(8)[1:]]), 1_500))

    def test_what_the_agent_works_on(self) -> None:
        """The last words of the user, however many tools have run since."""
        conversation = [user("old"), reply("ok"), user("build the service")]
        for number in range(20):
            conversation += [reply("", call(f"c{number}")), results(answer(f"c{number}", WORDS))]
        assert kept(items(conversation), 900)[:2] == [3, 26]

    def test_the_newest_message_in_any_case(self) -> None:
        """Also where none is protected."""
        assert kept(items(chat()), 250, protected_recent=0) == [1, 40, 41]
        assert kept(items([*chat()[1:], user("now")]), 60, protected_recent=0) == [41]

    def test_words_next_to_results_are_words(self) -> None:
        """They count among the newest messages."""
        conversation = [*chat(5), reply("", call("a")), results(answer("a"), text="and then?"), reply("x"), user("y")]
        assert 13 in kept(items(conversation), 400, protected_recent=3)

    def test_what_no_edit_can_name(self) -> None:
        """It stays, since nothing could be recorded about it."""
        window = items(chat())
        window[1] = replace(window[1], id=0)
        assert 0 in kept(window, 1_500)

    def test_a_message_that_is_there_twice(self) -> None:
        """A number that is protected once is protected everywhere."""
        window = items(chat())
        window[1] = replace(window[-1], id=41)
        assert kept(window, 1_400).count(41) == 2

    def test_all_of_it_can_be_had(self) -> None:
        """For those who want to shrink it instead."""
        window = items(chat())
        assert [item.id for item in protected_items(window, trim_rules(trim=Trim(protected_recent=2)))] == [1, 40, 41]

    def test_what_does_not_fit_is_an_error_before_anything_is_sent(self) -> None:
        """It says how much is needed, and how much there is."""
        with pytest.raises(WindowTooSmallError, match="larger window") as caught:
            kept(items(chat()), 300)
        assert caught.value.needed > caught.value.room == 300

    def test_the_largest_yields_if_it_may(self) -> None:
        """Of what is protected: not the system prompt, and not what the next reply answers."""
        conversation = chat(5)
        conversation[7] = user(f"question {WORDS * 4}")
        window = items(conversation)
        budget = limits(450)
        with pytest.raises(WindowTooSmallError):
            trim(window, trim_rules(budget))
        edits = trim(
            window, trim_rules(budget, Trim(hysteresis=0.0)), attempt=Attempt(shortens_reply=False, yields=True)
        )
        left = ids_of(apply(window, edits))
        assert 8 not in left
        assert {1, 9, 10, 11} <= set(left)
        assert edits[0].reason == "too large to stay next to what is new"
        must = protected_items(window, trim_rules(), must_stay=True)
        assert [item.id for item in must] == [1, 10, 11]
        assert [item.id for item in protected_items(window, trim_rules(question_follows=True), must_stay=True)] == [1]

    def test_room_for_a_block_is_given_up_first(self) -> None:
        """Then, as a last resort, room for the reply."""
        window = items(chat())
        need = sum(item.tokens for item in protected_items(window, trim_rules())) + 40
        edits = trim(window, trim_rules(limits(need - 300, recall=300)))
        assert tokens(apply(window, edits)) <= need
        tight = limits(need - 100, window=2 * need)
        with pytest.raises(WindowTooSmallError):
            trim(window, trim_rules(tight))
        edits = trim(window, trim_rules(tight), attempt=Attempt())
        assert tokens(apply(window, edits)) <= tight.ceiling


class TestRelevance:
    """What goes first."""

    def test_what_has_least_to_do_with_the_question(self) -> None:
        """Lowest score first, ties by age, no score is none."""
        window = items(chat(10))
        scores = {2: 9.0, 3: 8.0, 10: 7.0}
        assert kept(window, 730, query="why", scores=scores) == [1, 2, 3, 10, *range(16, 22)]

    def test_a_cut_records_the_scores_that_decided_it(self) -> None:
        """Of what left, and the lowest of what could have left."""
        window = items(chat(10))
        scores = {2: 0.254, 3: 8.0, 10: 7.0, 12: 9.0}
        budget = limits(730)
        (edit,) = trim(window, trim_rules(budget, Trim(hysteresis=0.0), query="why"), scores=lambda: scores)
        change = edit.change
        assert isinstance(change, Trimmed)
        assert change.relevance == Relevance(scores=((2, 0.25),), least_kept=7.0, best=9.0)
        assert from_json(to_json(edit)) == edit

    def test_scores_of_protected_messages_alone_do_not_decide(self) -> None:
        """The question itself matches the question best. What can leave goes by its age, and the reason says so."""
        (edit,) = trim(items(chat(10)), trim_rules(limits(730), query="why"), scores=lambda: {21: 9.0})
        assert edit.reason == "oldest"
        assert isinstance(edit.change, Trimmed)
        assert edit.change.relevance is None

    def test_a_cut_by_age_has_no_scores(self) -> None:
        """Also as it is stored."""
        (edit,) = trim(items(chat(10)), trim_rules(limits(730), query="why"))
        assert to_json(edit)["change"] == {"kind": "trimmed", "limit": limits(730).safe_limit}

    def test_a_short_question_recalls_nothing(self) -> None:
        """Then the oldest go, for safety is not skipped."""
        window = items(chat(10))
        edits = trim(window, trim_rules(limits(1_100), query="ok"), scores=lambda: {2: 9.0})
        assert edits[0].ids[0] == 2
        assert edits[0].reason == "oldest"
        assert trim(window, trim_rules(limits(1_100), query="okay"), scores=lambda: {2: 9.0})[0].reason != "oldest"

    def test_without_scores_the_oldest_go(self) -> None:
        """One after the other."""
        assert kept(items(chat(10)), 730, query="why") == [1, *range(13, 22)]

    def test_order_is_kept(self) -> None:
        """What stays, stays in its order."""
        scores = {number: (number * 7_919 % 100) / 100 for number in range(2, 60)}
        left = kept(items(chat(30)), 3_000, query="why", scores=scores)
        assert left == sorted(left)

    def test_a_unit_is_as_relevant_as_its_best_message(self) -> None:
        """A result may be what the question is about."""
        conversation = [user("x"), reply("", call("a")), results(answer("a", WORDS)), *chat(10)[1:]]
        left = kept(items(conversation), 1_800, query="why", scores={3: 5.0})
        assert {2, 3} <= set(left)


class TestUnits:
    """Calls and results go together."""

    def test_no_call_goes_without_its_results(self) -> None:
        """Whatever the scores say."""
        conversation = [user("x")]
        for number in range(20):
            conversation += [
                reply("", call(f"a{number}"), call(f"b{number}")),
                results(answer(f"a{number}", WORDS)),
                results(answer(f"b{number}", WORDS)),
            ]
        scores = {number: float(number % 5) for number in range(1, 62)}
        for safe in range(1_500, 4_000, 250):
            left = set(kept(items(conversation), safe, query="why", scores=scores))
            assert all(
                left.issuperset(span) or left.isdisjoint(span) for span in zip(*[iter(range(2, 62))] * 3, strict=True)
            )

    def test_a_thought_goes_with_what_it_led_to(self) -> None:
        """Where a format keeps them in two messages."""
        wires: list[dict[str, Any]] = []
        for number in range(10):
            wires += [
                {"role": "user", "content": WORDS},
                {"type": "reasoning", "id": f"rs_{number}", "summary": []},
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": WORDS}],
                },
            ]
        conversation = read(wires, format="openai_responses")
        scores = dict.fromkeys(range(2, 30, 3), 1.0)
        left = set(kept(items(conversation), 1_100, query="why", scores=scores))
        assert all((number in left) == (number + 1 in left) for number in range(2, 30, 3))
        assert len(left) < 30


class TestSticky:
    """Cuts are rare and stay."""

    def test_trimming_a_trimmed_window_changes_nothing(self) -> None:
        """Also where it just fits."""
        window = items(chat())
        for safe in (650, 700, 1_200, 3_000):
            after = apply(window, trim(window, trim_rules(limits(safe), Trim(hysteresis=0.0))))
            assert trim(after, trim_rules(limits(safe), Trim(hysteresis=0.0))) == ()

    def test_a_cut_goes_well_below_the_limit(self) -> None:
        """By a share of the window, as far as what is protected allows."""
        window = items(chat(40))
        budget = limits(5_000, window=10_000)
        after = apply(window, trim(window, trim_rules(budget, Trim(hysteresis=0.15))))
        assert 3_200 < tokens(after) <= 3_500
        tight = limits(1_200, window=10_000)
        must = sum(item.tokens for item in protected_items(window, trim_rules()))
        after = apply(window, trim(window, trim_rules(tight, Trim(hysteresis=0.9))))
        assert must < tokens(after) <= (must + 1_200) / 2 + 32

    def test_blocks_recalled_before_go_with_a_cut(self) -> None:
        """They may be all that has to go."""
        window = items(chat(10))
        full = tokens(window)
        window[1] = replace(window[1], block=Block("<r>", 900))
        edits = trim(window, trim_rules(limits(full + 200), Trim(hysteresis=0.0)))
        assert edits[0].ids == ()
        assert edits[0].reason == "room for what is new"
        assert tokens(apply(window, edits)) == full
