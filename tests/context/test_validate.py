"""A window that its provider will take, with as little change as possible."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast import providers
from holdfast.context.edits import Item
from holdfast.context.validate import ValidationCache, validate
from holdfast.errors import FormatError, InvalidWindowError
from holdfast.messages import Message, Opaque
from holdfast.providers import FORMATS
from support.conversations import THOUGHT, answer, call, finished, reply, results, user

ASK, DONE = user("why"), reply("because")


VALID: dict[str, list[Any]] = {
    "anthropic": [
        {"role": "user", "content": "why", "x": 1},
        {"role": "system", "content": "be brief"},
        {
            "role": "assistant",
            "content": [
                THOUGHT,
                {"type": "text", "text": "look"},
                {"type": "tool_use", "id": "t1", "name": "bash", "input": {"b": 1, "a": 2}},
                {"type": "tool_use", "id": "t2", "name": "bash", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t2", "content": "", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "x"}]},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "user", "content": [{"type": "text", "text": " "}, {"type": "text", "text": "hurry"}]},
        {"role": "assistant", "content": "so"},
        {"role": "assistant", "content": "it is"},
        {"role": "user", "content": "thanks"},
    ],
    "openai_chat": [
        {"role": "developer", "content": "careful"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "why", "name": "ann"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{ "x":1 }'}, "index": 0},
                {"id": "b", "type": "function", "function": {"name": "f", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
    ],
    "openai_responses": [
        {"role": "user", "content": "why"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "look"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call", "call_id": "b", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
        {"type": "function_call_output", "call_id": "b", "output": ""},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ],
}


class TestUntouched:
    """Valid input is left as it is."""

    @pytest.mark.parametrize("name", VALID)
    def test_what_the_provider_takes_is_sent_byte_for_byte(self, name: str) -> None:
        """No repair, no other key, no other order."""
        done = finished(VALID[name], name)
        assert json.dumps(list(done.wire)) == json.dumps(VALID[name])
        assert not done.repairs
        assert not done.violations

    @pytest.mark.parametrize("name", VALID)
    def test_what_is_appended_changes_nothing_before_it(self, name: str) -> None:
        """The provider's cache holds."""
        more = [*VALID[name], {"role": "assistant", "content": "yes"}, {"role": "user", "content": "next"}]
        assert finished(more, name).wire[: len(VALID[name])] == finished(VALID[name], name).wire


class TestAnyProvider:
    """What holds for all of them."""

    @pytest.mark.parametrize("provider", FORMATS)
    @pytest.mark.parametrize("name", VALID)
    def test_every_conversation_can_be_sent_to_every_provider(self, name: str, provider: str) -> None:
        """From any format."""
        done = finished(VALID[name], name, provider)
        assert done.wire
        assert done.violations == ()

    @pytest.mark.parametrize("provider", FORMATS)
    def test_a_broken_history_is_mended_and_reported(self, provider: str) -> None:
        """Orphans, gaps and all."""
        broken = [results(answer("x")), ASK, reply("", call("a"), call("b")), results(answer("b")), user(" "), DONE]
        done = validate(broken, provider)
        assert {"orphan-result", "missing-result", "empty-message"} <= {mended.rule for mended in done.repairs}

    @pytest.mark.parametrize("provider", FORMATS)
    def test_nothing_at_all_cannot_be_sent(self, provider: str) -> None:
        """The error says which rule, and for whom."""
        with pytest.raises(InvalidWindowError, match="there is no message") as caught:
            validate([], provider)
        assert caught.value.provider == provider
        assert [violation[0] for violation in caught.value.violations if isinstance(violation, tuple)] == [
            "empty-window"
        ]

    @pytest.mark.parametrize("provider", FORMATS)
    def test_an_error_names_the_only_message_if_it_is_empty(self, provider: str) -> None:
        """And includes the fix."""
        with pytest.raises(InvalidWindowError, match=r"messages\[0\] \(user\) is empty: give it text"):
            validate([user(" ")], provider)
        with pytest.raises(InvalidWindowError, match=r"messages\[0\] \(user\), messages\[1\] \(assistant\) are empty"):
            validate([user(""), reply("")], provider)
        with pytest.raises(InvalidWindowError, match="add a message of the user"):
            validate([], provider)

    def test_unknown_providers_are_refused(self) -> None:
        """Before anything is done."""
        with pytest.raises(FormatError, match="'delphi' is not one of anthropic"):
            validate([ASK], "delphi")


class TestLastResort:
    """What still breaks a rule is said plainly, once."""

    def test_what_cannot_be_vouched_for_is_left_out(self) -> None:
        """The window is valid, and the report says what was wrong with it."""
        odd = {"role": "user", "content": [{"type": "text", "text": "why"}, {"type": "text", "text": 5}]}
        message = providers.read([{**odd, "content": [odd["content"][0]]}], format="anthropic")[0]
        sneaky = replace(
            message, origin=message.origin._replace(data={"role": "user", "content": []}) if message.origin else None
        )
        done = validate([sneaky], "anthropic")
        assert done.wire == ({"role": "user", "content": "why"},)
        assert [violation.rule for violation in done.violations] == ["empty-content"]

    def test_what_is_plain_and_still_wrong_is_never_sent(self) -> None:
        """Nothing but blank words is nothing."""
        with pytest.raises(InvalidWindowError):
            validate([user(" "), Message(role="user", parts=(Opaque(kind="x", data=1),))], "anthropic")


def test_a_last_message_in_another_form_leaves_the_beginning_valid() -> None:
    """A cache mark that moves with every request changes the last messages, and most of the window stays valid."""
    items: list[Item] = []
    for number in range(1, 41):
        message = user(f"question {number}") if number % 2 else reply(f"answer {number}")
        items.append(Item(message=message, id=number, tokens=5))
    cache = ValidationCache()
    cache.validate(items, "anthropic")
    beginning = cache.parts[0]
    items[-2] = replace(items[-2])
    cache.validate([*items, Item(message=user("why?"), id=41, tokens=5)], "anthropic")
    assert cache.parts[0] is beginning
    assert len(beginning.items) > len(items) / 2
