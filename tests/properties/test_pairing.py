"""After a repair every call is answered once, right after it, and every result belongs to a call."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.fuzz import Conversation
from holdfast import providers
from holdfast.context.plan import added_tokens, added_tokens_of
from holdfast.context.validate import MISSING, repair
from holdfast.messages import Message, Text, ToolCall, ToolResult, units
from support.strategies import WIRE, conversations, examples

slow = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))


def in_order(messages: tuple[Message, ...]) -> bool:
    """Return whether calls and results are in their places, judging only by their ids."""
    waiting: set[str] = set()
    for message in messages:
        given_ = [result.call_id for result in message.results]
        if given_:
            if not waiting.issuperset(given_) or len(set(given_)) != len(given_):
                return False
            waiting -= set(given_)
        elif waiting and message.role != "assistant":
            return False
        called = [call.id for call in message.calls]
        if waiting.intersection(called) or len(set(called)) != len(called):
            return False
        waiting |= set(called)
    return not waiting


@slow
@given(conversation=conversations())
def test_every_call_is_answered_and_every_answer_asked_for(conversation: list[Message]) -> None:
    """This holds for any conversation, even one that makes no sense."""
    repaired = repair(conversation).messages
    assert in_order(repaired)
    assert not any(unit.pending for unit in units(repaired))


@slow
@given(conversation=conversations())
def test_repairing_again_changes_nothing(conversation: list[Message]) -> None:
    """Every message is the same object."""
    once = repair(conversation)
    again = repair(once.messages)
    assert again.repairs == ()
    assert all(map(lambda one, other: one is other, again.messages, once.messages))
    assert len(again.messages) == len(once.messages)


@slow
@given(conversation=conversations())
def test_nothing_is_made_up_but_marked_errors(conversation: list[Message]) -> None:
    """Every text and every call was there before; only a call may get a name, and a result an id."""
    words = {part.text for message in conversation for part in message.parts if isinstance(part, Text)}
    called = {part.id for message in conversation for part in message.parts if isinstance(part, ToolCall)}
    given_ = {repr(part.content) for message in conversation for part in message.parts if isinstance(part, ToolResult)}
    for message in repair(conversation).messages:
        for part in message.parts:
            assert not isinstance(part, Text) or part.text in words
            assert not isinstance(part, ToolCall) or part.id in called
            assert not isinstance(part, ToolResult) or repr(part.content) in given_ or part.text == MISSING


@slow
@given(conversation=conversations())
def test_words_are_never_lost(conversation: list[Message]) -> None:
    """Everything that users and assistants said is there."""
    before = sorted(part.text for m in conversation for part in m.parts if isinstance(part, Text) and part.text.strip())
    after = sorted(
        part.text
        for m in repair(conversation).messages
        for part in m.parts
        if isinstance(part, Text) and part.text.strip()
    )
    assert after == before


@pytest.mark.parametrize("name", sorted(WIRE))
@slow
@given(data=st.data())
def test_messages_of_every_format_are_put_in_order(name: str, data: st.DataObject) -> None:
    """Messages are read by the reader of their format."""
    assert in_order(repair(providers.read(data.draw(WIRE[name]), format=name)).messages)


@given(conversation=conversations())
def test_what_may_be_added_to_anything(conversation: list[Message]) -> None:
    """Both ways to count have the same result for any conversation, even one that makes no sense."""
    assert added_tokens_of(conversation) == added_tokens(units(conversation))


@given(seed=st.integers(min_value=0))
def test_what_may_be_added_is_counted_the_same_without_grouping(seed: int) -> None:
    """Both ways to count have the same result, whatever is broken in a conversation."""
    conversation = Conversation(Random(seed)).read()  # noqa: S311 - chance is all it is for
    assert added_tokens_of(conversation) == added_tokens(units(conversation))
