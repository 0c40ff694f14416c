"""Calls and results in their places."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import providers
from holdfast.context.plan import added_tokens
from holdfast.context.validate import MISSING, UNKNOWN, repair
from holdfast.messages import Message, Text, Thinking, ToolCall, units
from holdfast.providers import Repair
from support.conversations import answer, call, reply, results, user

ASK, DONE = user("why"), reply("because")


def rules(messages: list[Message]) -> list[str]:
    """What had to be mended."""
    return [mended.rule for mended in repair(messages).repairs]


class TestUntouched:
    """What is right stays as it is."""

    @pytest.mark.parametrize(
        "messages",
        [
            [],
            [ASK, DONE],
            [ASK, reply("", call("a")), results(answer("a")), DONE],
            [ASK, reply("", call("a"), call("b")), results(answer("b"), answer("a"), text="and?"), DONE],
            [ASK, reply("", call("a"), call("b")), results(answer("a")), results(answer("b")), DONE],
            [
                ASK,
                reply(thought="hm"),
                reply("", call("a")),
                reply("", call("b")),
                results(answer("a")),
                results(answer("b")),
            ],
            [reply("", call("a")), results(answer("a")), reply("", call("a")), results(answer("a"))],
        ],
        ids=[
            "nothing",
            "words",
            "a call",
            "a batch with words",
            "a batch one by one",
            "one reply over lines",
            "ids again",
        ],
    )
    def test_messages_in_order_are_the_same_objects(self, messages: list[Message]) -> None:
        """So that they render byte for byte as they came."""
        repaired = repair(messages)
        assert repaired.repairs == ()
        assert len(repaired.messages) == len(messages)
        assert all(map(lambda one, other: one is other, repaired.messages, messages))

    def test_a_conversation_of_responses_items_is_in_order(self) -> None:
        """One item is one message there."""
        read = providers.read(
            [
                {"role": "user", "content": "why"},
                {"type": "reasoning", "id": "rs_1", "summary": []},
                {"type": "function_call", "call_id": "a", "name": "bash", "arguments": "{}"},
                {"type": "function_call", "call_id": "b", "name": "bash", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "a", "output": "1"},
                {"type": "function_call_output", "call_id": "b", "output": "2"},
            ],
            format="openai_responses",
        )
        assert repair(read).repairs == ()


class TestResults:
    """Results without a call, twice, out of place, or missing."""

    def test_a_result_without_a_call_is_dropped(self) -> None:
        """And what the user said next to it is kept."""
        repaired = repair([ASK, results(answer("ghost"), text="go on"), DONE])
        assert repaired.messages == (ASK, user("go on"), DONE)
        assert repaired.repairs == (
            Repair(rule="orphan-result", where=1, what="dropped a result of call 'ghost', which is missing"),
        )

    @pytest.mark.parametrize("apart", [[], [reply("so"), user("and")]], ids=["within a span", "across the transcript"])
    def test_the_first_of_two_results_counts(self, apart: list[Message]) -> None:
        """The second is dropped, near or far."""
        first, second = results(answer("a", "first")), results(answer("a", "second"))
        repaired = repair([ASK, reply("", call("a")), first, *apart, second])
        assert repaired.messages == (ASK, reply("", call("a")), first, *apart)
        assert [mended.rule for mended in repaired.repairs] == ["repeated-result"]

    def test_the_same_result_twice_in_one_message_is_there_once(self) -> None:
        """Equal words do not make it two."""
        repaired = repair([reply("", call("a")), results(answer("a"), answer("a"))])
        assert repaired.messages == (reply("", call("a")), results(answer("a")))

    def test_a_displaced_result_is_moved_to_its_call(self) -> None:
        """Before whatever came between."""
        asked, between, late = reply("", call("a"), call("b")), user("hurry"), results(answer("b"))
        repaired = repair([asked, results(answer("a")), between, late, DONE])
        assert repaired.messages == (asked, results(answer("a")), late, between, DONE)
        assert repaired.repairs[0].rule == "displaced-result"

    def test_a_result_is_moved_back_over_other_turns(self) -> None:
        """Also when the assistant has spoken since."""
        asked = reply("", call("a"))
        repaired = repair([asked, user("hurry"), DONE, results(answer("a"), text="at last")])
        assert repaired.messages == (asked, results(answer("a")), user("hurry"), DONE, user("at last"))

    def test_a_missing_result_becomes_a_marked_error(self) -> None:
        """It says that it was inserted, and by whom."""
        repaired = repair([ASK, reply("", call("a", "grep"), call("b")), results(answer("b")), DONE])
        inserted = repaired.messages[3].results[0]
        assert (inserted.call_id, inserted.name, inserted.is_error) == ("a", "grep", True)
        assert inserted.text == MISSING
        assert MISSING.startswith("[holdfast]")
        assert rules([ASK, reply("", call("a"))]) == ["missing-result"]

    def test_the_place_of_repeated_ids_is_local(self) -> None:
        """Some servers number the calls of each reply afresh."""
        asked = reply("", call("call_0"))
        repaired = repair([asked, results(answer("call_0", "one")), asked, asked, results(answer("call_0", "two"))])
        assert [m.results[0].text for m in repaired.messages if m.results] == ["one", "two"]

    def test_a_result_without_an_id_answers_the_one_open_call(self) -> None:
        """And nothing where two are open."""
        repaired = repair([reply("", call("a")), results(answer("", "yes"))])
        assert repaired.messages[1].results[0] == answer("a", "yes")
        assert "orphan-result" in rules([reply("", call("a"), call("b")), results(answer(""))])


class TestCalls:
    """Calls that cannot be sent."""

    @pytest.mark.parametrize("bad", [call(""), call(" "), call("a", ""), call("a", "\n")], ids=str)
    def test_calls_without_id_or_name_go(self, bad: ToolCall) -> None:
        """The words of the reply stay."""
        assert repair([ASK, reply("let me see", bad), user("so?")]).messages == (ASK, reply("let me see"), user("so?"))

    def test_a_reply_of_which_nothing_is_left_goes(self) -> None:
        """Empty messages are refused everywhere."""
        assert repair([ASK, reply("", call(""))]).messages == (ASK,)

    def test_an_answered_call_whose_name_was_lost_is_kept(self) -> None:
        """Under a name that says so."""
        repaired = repair([reply("", call("a", "")), results(answer("a"))])
        assert repaired.messages == (reply("", call("a", UNKNOWN)), results(answer("a")))

    def test_a_second_call_of_the_same_id_in_one_reply_goes(self) -> None:
        """Also when the whole line was written twice."""
        asked = reply("", call("a"))
        assert repair([asked, asked, results(answer("a"))]).messages == (asked, results(answer("a")))


class TestBroken:
    """Replies that failed or were cut off."""

    @pytest.mark.parametrize("stop", ["error", "aborted"])
    def test_calls_that_a_broken_reply_left_open_go(self, stop: str) -> None:
        """No error is made up for them."""
        broken = reply("I will", call("a"), stop=stop)
        assert repair([ASK, broken, user("hm")]).messages == (ASK, reply("I will", stop=stop), user("hm"))

    def test_a_broken_reply_keeps_what_was_answered(self) -> None:
        """The tool has run."""
        broken = reply("", call("a"), call("b"), stop="aborted")
        repaired = repair([broken, results(answer("a"))])
        assert repaired.messages == (reply("", call("a"), stop="aborted"), results(answer("a")))

    def test_the_result_of_a_dropped_call_is_an_orphan(self) -> None:
        """It goes as well."""
        broken = reply("", call(""), stop="error")
        assert repair([ASK, broken, results(answer("x"))]).messages == (ASK,)

    def test_half_a_thought_goes(self) -> None:
        """A reply that broke off in its thought has no seal on it."""
        half = Message(role="assistant", parts=(Thinking(text="I shou"), Text(text="Well")), stop="aborted")
        assert repair([half]).messages[0].parts == (Text(text="Well"),)

    def test_nothing_but_thought_is_nothing(self) -> None:
        """Of a reply that broke off before its calls were answered."""
        broken = replace(reply("", call("a"), thought="hm"), stop="aborted")
        assert repair([ASK, broken]).messages == (ASK,)


class TestRoles:
    """Parts in messages that cannot hold them."""

    def test_empty_messages_go(self) -> None:
        """Blank ones too."""
        assert repair([ASK, user(" \n"), Message(role="assistant", parts=()), DONE]).messages == (ASK, DONE)

    def test_calls_and_results_in_one_message_are_parted(self) -> None:
        """Each to its side."""
        mixed = Message(role="assistant", parts=(Text(text="so"), call("a"), answer("a")))
        assert repair([mixed]).messages == (reply("so", call("a")), results(answer("a")))

    def test_results_of_the_user_are_of_tools(self) -> None:
        """And a tool message without results is the user's."""
        odd = Message(role="user", parts=(answer("a"),))
        assert repair([reply("", call("a")), odd]).messages[1].role == "tool"
        assert repair([Message(role="tool", parts=(Text(text="hi"),))]).messages == (user("hi"),)

    def test_results_that_the_assistant_gave_itself(self) -> None:
        """They are answers all the same."""
        odd = Message(role="assistant", parts=(answer("a"),))
        assert repair([reply("", call("a")), odd]).messages == (reply("", call("a")), results(answer("a")))


class TestReport:
    """What is said about it."""

    def test_repairs_are_in_order_and_readable(self) -> None:
        """With the place in what was handed in."""
        repaired = repair([user(""), ASK, results(answer("x"))])
        assert [mended.where for mended in repaired.repairs] == [0, 2]
        assert str(repaired.repairs[0]) == "message 0: dropped a message without content (empty-message)"
        assert str(Repair(rule="joined", what="put together")) == "put together (joined)"

    def test_what_may_be_added_is_known_before(self) -> None:
        """A bound in tokens, by the calls that are open."""
        one = added_tokens(units([reply("", call("a"))]))
        two = added_tokens(units([reply("", call("a"), call("b")), results(answer("a"))]))
        assert added_tokens([]) < one == two
