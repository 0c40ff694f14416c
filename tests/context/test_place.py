"""Where a recalled block goes, and how much of one there is room for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast import providers
from holdfast.context.budget import SMALL_BLOCK
from holdfast.context.edits import Block, Recalled, apply, tokens
from holdfast.context.plan import Position, place, recall_room
from holdfast.context.validate import validate
from holdfast.memory.block import Detail, Fact, render, strip_message
from holdfast.messages import Message
from holdfast.providers import FORMATS
from holdfast.settings import Settings
from holdfast.tokens import count_messages
from support.conversations import MARKS, answer, call, items, limits, messages_of, reply, results, system, user

BLOCK = render([Fact(type="decision", text="use Stripe")], [Detail(role="user", time=0, text="证书已过期")], MARKS)
TALK = [system(), user("hello"), reply("hi"), user("why")]
TOOLS = [*TALK, reply("", call("a"), call("b")), results(answer("a")), results(answer("b"))]


def sent(conversation: list[Message], position: Position, provider: str) -> Any:
    """What is sent with a block in it."""
    window = items(conversation)
    edit = place(window, BLOCK, position=position)
    assert edit is not None
    return validate(messages_of(apply(window, [edit])), provider).wire


class TestTail:
    """Beside the newest turn of the user."""

    def test_it_is_the_last_part_of_the_newest_user_message(self) -> None:
        """A part of its own."""
        edit = place(items(TALK), BLOCK, position="tail", ids=[7, 9])
        assert edit is not None
        assert edit.change == Recalled(text=BLOCK, into=4)
        assert (edit.ids, edit.kind, edit.tokens_before) == ((7, 9), "recalled", 0)
        assert messages_of(apply(items(TALK), [edit]))[3].parts[-1].text == BLOCK  # type: ignore[union-attr]

    def test_after_tools_it_follows_the_results(self) -> None:
        """Never inside of one."""
        edit = place(items(TOOLS), BLOCK, position="tail")
        assert edit is not None
        assert edit.change == Recalled(text=BLOCK, into=7)
        last = messages_of(apply(items(TOOLS), [edit]))[-1]
        assert [type(part).__name__ for part in last.parts] == ["ToolResult", "Text"]

    @pytest.mark.parametrize("provider", FORMATS)
    @pytest.mark.parametrize("conversation", [TALK, TOOLS], ids=["words", "tools"])
    @pytest.mark.parametrize("position", ["tail", "head"])
    def test_every_provider_takes_it(self, conversation: list[Message], position: Position, provider: str) -> None:
        """Turns, pairs and all; and it is there once."""
        assert str(sent(conversation, position, provider)).count("<knowledge>") == 1

    def test_for_anthropic_it_is_after_the_results(self) -> None:
        """In the same message."""
        wire = sent(TOOLS, "tail", "anthropic")
        assert [block["type"] for block in wire[-1]["content"]] == ["tool_result", "tool_result", "text"]

    def test_for_chat_completions_it_is_a_message_behind_the_results(self) -> None:
        """Since tool messages hold nothing else."""
        assert [message["role"] for message in sent(TOOLS, "tail", "openai_chat")[-3:]] == ["tool", "tool", "user"]

    def test_the_message_before_stays_as_it_came(self) -> None:
        """Blocks, marks and all."""
        content = [{"type": "text", "text": "why", "cache_control": {"type": "ephemeral"}}]
        conversation = providers.read([{"role": "user", "content": content}], format="anthropic")
        wire = sent(conversation, "tail", "anthropic")
        assert wire[0]["content"] == [*content, {"type": "text", "text": BLOCK}]

    def test_a_reply_that_is_to_be_continued_is_left_alone(self) -> None:
        """The block goes to the user before it."""
        edit = place(items([*TALK, reply("Well,")]), BLOCK, position="tail")
        assert edit is not None
        assert edit.change == Recalled(text=BLOCK, into=4)

    def test_without_a_turn_of_the_user_there_is_no_place(self) -> None:
        """Nor where no edit can name it, nor for nothing."""
        assert place(items([system()]), BLOCK, position="tail") is None
        nameless = items(TALK)
        nameless[3] = replace(nameless[3], id=0)
        assert place(nameless, BLOCK, position="tail") is None
        assert recall_room(nameless, limits(1_000, recall=100), position="tail") == 0
        assert place(items(TALK), "", position="tail") is None


class TestHead:
    """After the system prompt and the summary."""

    def test_it_is_a_message_of_the_user(self) -> None:
        """Exactly one, replaced each turn."""
        window = items(TALK)
        for _ in range(3):
            edit = place(window, BLOCK, position="head")
            assert edit is not None
            window = list(apply(window, [edit]))
        assert [item.kind for item in window] == ["system", "recall", "message", "message", "message"]
        assert messages_of(window)[1] == user(BLOCK)

    def test_it_costs_what_is_counted(self) -> None:
        """To the token, here and at the tail."""
        for position in ("head", "tail"):
            edit = place(items(TALK), BLOCK, position=position)
            assert edit is not None
            window = apply(items(TALK), [edit])
            assert tokens(window) == count_messages(messages_of(window))


class TestAllowance:
    """How much there is room for."""

    def test_it_is_never_above_the_cap(self) -> None:
        """Nor above what is left of the window."""
        window = items(TALK)
        assert recall_room(window, limits(10_000, recall=400), position="tail") == 400
        left = recall_room(window, limits(tokens(window) + 100, recall=0, window=10_000), position="tail")
        assert left == 0
        tight = limits(tokens(window) - 50, recall=400)
        assert 300 < recall_room(window, tight, position="tail") < 350
        assert recall_room(window, limits(1, recall=1), position="head") == 0

    def test_what_will_have_to_be_inserted_is_left_room_for(self) -> None:
        """An error for every open call."""
        pending = items([user("x"), reply("", call("a")), user("y")])
        budget = limits(tokens(pending), recall=400)
        assert recall_room(pending, budget, position="tail") < 350

    @pytest.mark.parametrize("position", ["tail", "head"])
    def test_a_small_block_may_take_room_of_the_reply(self, position: Position) -> None:
        """As far as a short reply still fits."""
        window = items(TALK)
        full = limits(tokens(window) - 400, recall=400, window=8_000)
        assert full.prompt <= tokens(window)
        assert full.ceiling > tokens(window) + 400
        frame = 4 if position == "head" else 0
        assert recall_room(window, full, position=position) == SMALL_BLOCK - frame

    def test_all_blocks_that_are_still_there_count_together(self) -> None:
        """Up to their share of the window."""
        window = items(TALK)
        window[1] = replace(window[1], block=Block("<r>", 700))
        assert recall_room(window, limits(10_000, recall=400), position="tail") == 100

    def test_a_turn_that_has_its_block_gets_no_second(self) -> None:
        """Asked again, it is answered the same."""
        window = items(TALK)
        window[3] = replace(window[3], block=Block("<r>", 7))
        assert recall_room(window, limits(10_000, recall=400), position="tail") == 0

    def test_at_the_head_the_message_itself_is_counted(self) -> None:
        """So that block and frame stay under the cap."""
        assert recall_room(items(TALK), limits(10_000, recall=400), position="head") == 396

    def test_the_default_is_the_tail(self) -> None:
        """Which keeps the provider's cache."""
        assert Settings().recall.position == "tail"


class TestComingBack:
    """Blocks that come back from outside."""

    @pytest.mark.parametrize("name", ["anthropic", "openai_chat", "openai_responses"])
    @pytest.mark.parametrize("conversation", [TALK, TOOLS], ids=["words", "tools"])
    def test_what_was_sent_reads_back_without_the_block(self, conversation: list[Message], name: str) -> None:
        """And with every word of the user's own."""
        wire = [dict(message) for message in sent(conversation, "tail", name)]
        stripped = [own for message in providers.read(wire, format=name) if (own := strip_message(message, MARKS))]
        assert "recalled-context" not in str(stripped)
        assert [message.text for message in stripped if message.text] == ["hello", "hi", "why"][-3:] or (
            stripped[0].role == "system"
        )
