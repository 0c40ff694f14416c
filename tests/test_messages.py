"""The canonical message."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from datetime import date
from typing import Any

import pytest

from holdfast.messages import (
    Image,
    Message,
    Opaque,
    Part,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unit,
    Usage,
    same,
    units,
)
from support.cases import each


def make_message(role: Role, *parts: Part, stop: str | None = None) -> Message:
    """A message."""
    return Message(role=role, parts=parts, stop=stop)


def call(name: str) -> ToolCall:
    """A call with this id."""
    return ToolCall(id=name, name="f", arguments={})


def result(name: str) -> ToolResult:
    """A result for the call with this id."""
    return ToolResult(call_id=name)


USER = make_message("user", Text(text="hi"))


class TestMessage:
    """Reading off a message what is in it."""

    def test_words_are_the_text_parts_only(self) -> None:
        """Thinking, calls and results are not what was said."""
        parts = (Thinking(text="Hm"), Text(text="a"), call("c"), Text(text="b"))

        assert make_message("assistant", *parts).text == "a\nb"

    def test_calls_and_results_are_found_in_order(self) -> None:
        """Each in the order in which it stands."""
        message = make_message("tool", result("b"), Text(text="x"), result("a"), call("c"))

        assert [part.call_id for part in message.results] == ["b", "a"]
        assert [part.id for part in message.calls] == ["c"]

    def test_the_text_of_a_result_is_its_texts(self) -> None:
        """Images and opaque blocks say nothing in words."""
        content = (Text(text="a"), Image(url="u"), Opaque(kind="k", data=1), Text(text="b"))

        assert ToolResult(call_id="c", content=content).text == "a\nb"

    def test_messages_and_parts_cannot_be_changed(self) -> None:
        """An edit makes a new value."""
        for value in (USER, USER.parts[0]):
            with pytest.raises(FrozenInstanceError):
                value.origin = None  # type: ignore[misc]

    def test_a_usage_is_the_total_or_the_sum(self) -> None:
        """Providers report one or the other, and zero is nothing."""
        assert Usage(input=1, output=2, cache_read=3, cache_write=4).context == 10
        assert Usage(input=1, total=50).context == 50
        assert Usage().context == 0

    def test_a_message_survives_the_way_to_another_process(self) -> None:
        """With its parts and the wire form that it was read from."""
        message = make_message("user", Text(text="a").read_from({"x": 1}, format="pi")).read_from({"y": 2}, format="pi")

        for travelled in (pickle.loads(pickle.dumps(message)), copy.deepcopy(message)):  # noqa: S301
            assert travelled == message
            assert (travelled.wire("pi"), travelled.parts[0].wire("pi")) == ({"y": 2}, {"x": 1})

    @pytest.mark.parametrize(("stop", "broken"), [("error", True), ("aborted", True), ("stop", False), (None, False)])
    def test_a_reply_that_failed_is_broken(self, stop: str | None, broken: bool) -> None:  # noqa: FBT001
        """Two words mark it."""
        assert make_message("assistant", stop=stop).is_broken is broken


class TestOrigin:
    """The wire form that a value was read from."""

    def test_it_does_not_count_in_comparisons(self) -> None:
        """Where something was read from does not change what it says."""
        assert Text(text="a").read_from({"x": 1}, format="pi") == Text(text="a")

    def test_it_is_handed_out_while_the_value_is_the_same(self) -> None:
        """To its own format only, and not after an edit."""
        data: dict[str, Any] = {"x": 1}
        text = Text(text="a").read_from(data, format="pi")

        assert text.wire("pi") is data
        assert text.wire("anthropic") is None
        assert replace(text, text="a").wire("pi") is data
        assert replace(text, text="b").wire("pi") is None
        assert Text(text="a").wire("pi") is None

    def test_what_it_was_before_an_edit_is_known(self) -> None:
        """The value as it was read can be had back."""
        message = make_message("user", Text(text="a")).read_from({}, format="pi")
        edited = replace(message, role="system", parts=(), id="x")

        assert edited.as_read() == replace(message, id="x")
        assert USER.as_read() is USER

    def test_ids_times_and_usage_are_no_edit(self) -> None:
        """They often come from elsewhere than the wire form."""
        message = make_message("user", Text(text="a")).read_from({"x": 1}, format="pi")

        assert replace(message, id="x", timestamp=1, usage=Usage(), model="m", stop="s", name="n").wire("pi") == {
            "x": 1
        }

    @each(
        ("left", "right", "equal"),
        [
            (1, True, False),
            (1, 1.0, False),
            (0, False, False),
            ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
            ({"a": 1}, {"a": True}, False),
            ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
            ([1], [1, 2], False),
            ((Text(text="a"),), (Text(text="a"),), True),
            ("a", "a", True),
        ],
    )
    def test_same_means_the_same_bytes(self, left: object, right: object, equal: bool) -> None:  # noqa: FBT001
        """What Python takes for equal may be two things on the wire."""
        assert same(left, right) is equal


class TestDigest:
    """The digest of what is said."""

    def test_it_never_changes(self) -> None:
        """Archives are keyed by it."""
        parts = (
            Text(text="修复 \ud83d"),
            Thinking(text="Hm", signature="E"),
            RedactedThinking(data="E"),
            ToolCall(id="c", name="f", arguments={"b": 2**70, "a": [1.5, None]}),
            ToolCall(id="d", name="f", arguments="ls"),
            ToolResult(call_id="c", content=(Text(text="x"), Image(url="u")), is_error=True, name="f"),
            Image(media_type="image/png", data="aGk="),
            Opaque(kind="document", data={"x": True}),
        )

        assert make_message("assistant", *parts).digest == "f279806cfda2ba60c2d90ec6bb68cb8a"

    def test_values_outside_of_json_have_a_digest_too(self) -> None:
        """A program may hand over dates, tuples and numbers without end; their digests never change either."""
        arguments = {"on": date(2026, 1, 2), "rate": math.nan, "ends": (1, math.inf), "7": "ж"}
        message = make_message("assistant", ToolCall(id="c", name="f", arguments=arguments))

        assert message.digest == "0bc11ab2609b8e6d7f1505b661b9c262"

    def test_spelling_does_not_count(self) -> None:
        """The order of arguments and the name of a result's tool, which not every format has, are spelling."""
        one = make_message("assistant", ToolCall(id="c", name="f", arguments={"a": 1, "b": 2}), ToolResult(call_id="c"))
        two = make_message(
            "assistant", ToolCall(id="c", name="f", arguments={"b": 2, "a": 1}), ToolResult(call_id="c", name="f")
        )

        assert one.digest == two.digest

    def test_kinds_and_places_count(self) -> None:
        """The same words said in another role, as thinking or in two parts are something else."""
        text = "abc"
        messages = [
            make_message("user", Text(text=text)),
            make_message("system", Text(text=text)),
            make_message("user", Thinking(text=text)),
            make_message("user", Text(text="a"), Text(text="bc")),
            make_message("user", ToolCall(id="", name="", arguments=text)),
            make_message("user", ToolCall(id="", name="", arguments={"abc": 1})),
            make_message("user", ToolCall(id="", name="", arguments={"abc": True})),
            make_message("user", Opaque(kind="text", data=text)),
            make_message("user"),
        ]

        assert len({message.digest for message in messages}) == len(messages)


class TestUnits:
    """What may be cut as a whole."""

    def sizes(self, *messages: Message) -> list[int]:
        return [len(unit.messages) for unit in units(messages)]

    def test_messages_without_calls_are_separate_units(self) -> None:
        """Also two replies in a row."""
        reply = make_message("assistant", Text(text="a"))

        assert self.sizes(USER, reply, reply, USER, make_message("tool", result("x"))) == [1, 1, 1, 1, 1]
        assert units([]) == []

    def test_calls_and_all_their_results_belong_together(self) -> None:
        """However many messages the results come in."""
        turn = [
            make_message("assistant", call("a"), call("b")),
            make_message("tool", result("b")),
            make_message("tool", result("a")),
        ]

        assert self.sizes(USER, *turn, USER) == [1, 3, 1]

    def test_one_reply_over_several_lines_is_one(self) -> None:
        """Reasoning, words and calls that some formats write one by one."""
        lines = [
            make_message("assistant", Thinking(text="Hm")),
            make_message("assistant", call("a")),
            make_message("assistant", call("b")),
            make_message("tool", result("a")),
            make_message("tool", result("b")),
        ]

        assert self.sizes(USER, *lines, make_message("assistant", Text(text="done"))) == [1, 5, 1]

    def test_what_came_between_a_call_and_its_result_goes_with_them(self) -> None:
        """A stray result, or the user who spoke while a tool was running."""
        assert self.sizes(
            make_message("assistant", call("a")),
            make_message("tool", result("x")),
            USER,
            make_message("tool", result("a")),
        ) == [4]

    def test_nothing_is_reached_for_beyond_the_next_reply(self) -> None:
        """A result that comes after the assistant spoke again is an orphan, to be repaired elsewhere."""
        late = [
            make_message("assistant", call("a")),
            USER,
            make_message("assistant", Text(text="x")),
            make_message("tool", result("a")),
        ]

        assert self.sizes(*late) == [1, 1, 1, 1]

    def test_a_broken_reply_is_no_part_of_the_next(self) -> None:
        """What was retried stands alone, with the results it got all the same."""
        broken = make_message("assistant", call("a"), stop="error")
        retried = make_message("assistant", call("b"))

        assert self.sizes(broken, retried, make_message("tool", result("b"))) == [1, 2]
        assert self.sizes(retried, broken, make_message("tool", result("a"))) == [1, 2]

    def test_a_unit_has_its_range_and_its_pending_calls(self) -> None:
        """Start, stop, and the calls that have no result."""
        (first, unit) = units(
            [USER, make_message("assistant", call("a"), call("b")), make_message("tool", result("a"))]
        )

        assert (first.start, first.stop, first.pending) == (0, 1, frozenset())
        assert (unit.start, unit.stop, unit.pending) == (1, 3, frozenset({"b"}))
        assert unit == Unit(1, unit.messages)
