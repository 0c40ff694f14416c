"""A block is placed once, in a valid place, under its cap; and it can be removed without a trace."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import providers
from holdfast.context.edits import Recalled, apply, tokens
from holdfast.context.plan import Position, place, recall_room
from holdfast.context.validate import validate
from holdfast.memory.block import Detail, Fact, render, strip_message
from holdfast.messages import Message, Text
from holdfast.providers import FORMATS
from support.conversations import MARKS, answer, call, items, limits, messages_of, reply, results, system, user
from support.strategies import conversations, examples, texts

slow = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
positions = st.sampled_from(["tail", "head"])
blocks = st.builds(
    lambda facts, details: render(
        [Fact(type="decision", text=text) for text in facts],
        [Detail(role="user", time=0, text=text) for text in details],
        MARKS,
    ),
    st.lists(texts(), max_size=2),
    st.lists(texts(), min_size=1, max_size=2),
)


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Draw a conversation that waits for the assistant, after a message of the user or tool results."""
    conversation = [system()] if draw(st.booleans()) else []
    for number in range(draw(st.integers(0, 3))):
        conversation += [user(f"question {number}"), reply(f"answer {number}")]
    conversation.append(user("why"))
    if draw(st.booleans()):
        names = [f"c{index}" for index in range(draw(st.integers(1, 3)))]
        together = draw(st.booleans())
        answers = [answer(name) for name in names]
        conversation.append(reply("", *(call(name) for name in names)))
        conversation += [results(*answers)] if together else [results(one) for one in answers]
    return conversation


@pytest.mark.parametrize("provider", FORMATS)
@slow
@given(conversation=talks(), block=blocks, position=positions)
def test_a_placed_block_is_valid_everywhere_and_there_once(
    provider: str, conversation: list[Message], block: str, position: Position
) -> None:
    """The window needs no repair for it."""
    window = items(conversation)
    edit = place(window, block, position=position)
    assert edit is not None
    plain = validate(conversation, provider)
    done = validate(messages_of(apply(window, [edit])), provider)
    assert not done.violations
    halves = {"surrogates"}  # a block may quote halves of characters: they cannot be sent
    assert {mended.rule for mended in done.repairs} - halves <= {mended.rule for mended in plain.repairs}
    assert str(done.wire).count("<recalled-context") == 1


@slow
@given(conversation=conversations(), block=blocks, position=positions)
def test_the_place_is_one_text_after_everything_else(
    conversation: list[Message], block: str, position: Position
) -> None:
    """Every other part stays in its place."""
    window = items(conversation)
    edit = place(window, block, position=position)
    after = messages_of(apply(window, [edit] if edit else []))
    if edit is None:
        assert position == "tail"
        assert after == conversation
    elif isinstance(edit.change, Recalled) and edit.change.into is not None:
        changed = [new for new, old in zip(after, conversation, strict=True) if new != old]
        assert [message.parts[-1] for message in changed] == [Text(text=block)]
        assert changed[0].role in {"user", "tool"}
    else:
        assert [message for message in after if message.parts != (Text(text=block),)] == [
            message for message in conversation if message.parts != (Text(text=block),)
        ]


@slow
@given(conversation=talks(), position=positions, safe=st.integers(1, 400), cap=st.integers(0, 300))
def test_a_block_within_the_allowance_fits(
    conversation: list[Message], position: Position, safe: int, cap: int
) -> None:
    """The block is under its cap, and the window under its limit."""
    window = items(conversation)
    budget = limits(safe, recall=cap)
    room = recall_room(window, budget, position=position)
    assert 0 <= room <= cap
    edit = place(window, "one " * (room // 2), position=position)
    if edit is not None:
        assert edit.tokens_after <= cap
        assert tokens(apply(window, [edit])) <= budget.prompt


@pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses"])
@slow
@given(conversation=talks(), block=blocks)
def test_what_comes_back_from_outside_leaves_no_trace(name: str, conversation: list[Message], block: str) -> None:
    """A message that is sent, read again and stripped is the same message."""
    window = items(conversation)
    edit = place(window, block, position="tail")
    assert edit is not None
    sent = [dict(wire) for wire in validate(messages_of(apply(window, [edit])), name).wire]
    back = [own for message in providers.read(sent, format=name) if (own := strip_message(message, MARKS)) is not None]
    plain = providers.read([dict(wire) for wire in validate(conversation, name).wire], format=name)
    assert [message.digest for message in back] == [message.digest for message in plain]
