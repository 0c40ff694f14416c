"""What holds for every conversation."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.messages import Message, Opaque, Part, ToolCall, ToolResult, units
from holdfast.providers import FORMATS, read
from support.strategies import WIRE, conversations, examples, messages


class TestDigests:
    """The digest of a message."""

    @given(message=messages())
    def test_only_text_counts(self, message: Message) -> None:
        """Ids, times, usage and the wire form are not part of the digest."""
        output = replace(message, id="x", timestamp=1, usage=None, model="m", stop=None).read_from({}, format="pi")

        assert output.digest == message.digest

    @given(one=messages(), other=messages())
    def test_digests_are_equal_if_the_messages_are(self, one: Message, other: Message) -> None:
        """Only role and parts count, without the order of keys and the tool names of results."""
        assert (one.digest == other.digest) == (_spoken(one) == _spoken(other))

    @pytest.mark.parametrize("name", sorted(FORMATS))
    @settings(deadline=None, max_examples=examples(30))
    @given(data=st.data())
    def test_a_message_read_twice_has_one_digest(self, name: str, data: st.DataObject) -> None:
        """The digest does not depend on the objects that hold the message."""
        wires = data.draw(WIRE[name])
        again = json.loads(json.dumps(wires))

        assert [m.digest for m in read(wires, format=name)] == [m.digest for m in read(again, format=name)]


def _spoken(message: Message) -> str:
    return json.dumps([message.role, *map(_plain, message.parts)], sort_keys=True)


def _plain(part: Part) -> list[Any]:
    """Return a part as JSON: its kind and its fields."""
    if isinstance(part, ToolResult):
        return ["result", part.call_id, part.is_error, list(map(_plain, part.content))]
    if isinstance(part, ToolCall):
        return ["call", part.id, part.name, part.arguments]
    if isinstance(part, Opaque):
        return ["opaque", part.kind, part.data]
    return [repr(part)]


class TestUnits:
    """The units that are cut as a whole."""

    @given(listed=conversations())
    def test_units_cover_every_message_once_in_order(self, listed: list[Message]) -> None:
        """No message is left out, repeated or moved."""
        found = units(listed)

        assert [message for unit in found for message in unit.messages] == listed
        assert all(left.stop == right.start for left, right in pairwise(found))
        assert not found or (found[0].start, found[-1].stop) == (0, len(listed))

    @given(listed=conversations())
    def test_a_call_and_its_results_are_never_parted(self, listed: list[Message]) -> None:
        """No unit ends between a call and a result that comes before the next reply."""
        for unit in units(listed):
            waiting = {call.id for message in unit.messages if message.role == "assistant" for call in message.calls}
            for message in listed[unit.stop :]:
                if message.role == "assistant":
                    break
                assert waiting.isdisjoint(result.call_id for result in message.results)

    @given(listed=conversations())
    def test_cutting_units_leaves_the_others_as_they_are(self, listed: list[Message]) -> None:
        """Grouping the rest after the first unit was cut gives the other units."""
        found = units(listed)

        rest = units(listed[found[0].stop :]) if found else []

        assert [unit.messages for unit in rest] == [unit.messages for unit in found[1:]]
