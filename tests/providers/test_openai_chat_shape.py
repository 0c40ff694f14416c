"""Messages as OpenAI's Chat Completions takes them."""

from __future__ import annotations

from typing import Any

from holdfast.context.validate import validate
from support.conversations import answer, call, finished, reply, results, user

ASK, DONE = user("why"), reply("because")


class TestChat:
    """Chat Completions."""

    def test_calls_of_one_reply_are_in_one_message(self) -> None:
        """Where a format writes them one by one."""
        messages = [
            ASK,
            reply("so"),
            reply("", call("a")),
            reply("", call("b")),
            results(answer("a")),
            results(answer("b")),
        ]
        wire = validate(messages, "openai_chat").wire
        assert [message["role"] for message in wire] == ["user", "assistant", "assistant", "tool", "tool"]
        assert len(wire[2]["tool_calls"]) == 2

    def test_its_own_messages_are_joined_where_they_must_be(self) -> None:
        """And that is reported."""

        def asked(name: str) -> dict[str, Any]:
            called = {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}
            return {"role": "assistant", "content": None, "tool_calls": [called]}

        answered = [{"role": "tool", "tool_call_id": name, "content": "1"} for name in "ab"]
        done = finished([asked("a"), asked("b"), *answered], "openai_chat")
        assert [mended.rule for mended in done.repairs] == ["joined"]
        assert done.wire[0]["tool_calls"] == [*asked("a")["tool_calls"], *asked("b")["tool_calls"]]

    def test_words_next_to_results_follow_them(self) -> None:
        """As a message of the user."""
        messages = [ASK, reply("", call("a"), call("b")), results(answer("a"), text="and?"), results(answer("b"))]
        assert [message["role"] for message in validate(messages, "openai_chat").wire] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "user",
        ]

    def test_arguments_are_text(self) -> None:
        """Also where a server sent the object itself."""
        called = {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}
        wires = [
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ]
        assert finished(wires, "openai_chat").wire[0]["tool_calls"][0]["function"]["arguments"] == '{"x":1}'

    def test_long_ids_are_cut_for_both(self) -> None:
        """The same way, so that they still belong together; ids may come again."""
        asked, given = reply("", call("c" * 80)), results(answer("c" * 80))
        wire = validate([ASK, asked, given, asked, given], "openai_chat").wire
        assert wire[1]["tool_calls"][0]["id"] == wire[2]["tool_call_id"] == wire[4]["tool_call_id"]
        assert len(wire[2]["tool_call_id"]) == 64

    def test_empty_lists_and_blank_parts_go(self) -> None:
        """Nothing that says nothing."""
        blank = {"type": "text", "text": ""}
        wires = [
            {"role": "user", "content": [blank, {"type": "text", "text": "why"}]},
            {
                "role": "assistant",
                "content": [],
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": []},
            {"role": "assistant", "content": None, "reasoning_content": "hm"},
        ]
        done = finished(wires, "openai_chat")
        assert done.wire[0]["content"] == [{"type": "text", "text": "why"}]
        assert (done.wire[1]["content"], done.wire[2]["content"]) == (None, "")
        assert len(done.wire) == 3

    def test_old_function_calls_stay_if_they_were_answered_as_such(self) -> None:
        """No one has to change a working program."""
        legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        wires = [{"role": "user", "content": "why"}, legacy, {"role": "function", "name": "f", "content": "1"}]
        assert list(finished(wires, "openai_chat").wire) == wires

    def test_old_function_calls_are_rewritten_if_they_cannot_stay(self) -> None:
        """Unanswered ones, and answers in another spelling."""
        legacy = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
        mixed = finished([legacy, {"role": "tool", "tool_call_id": "f", "content": "1"}], "openai_chat")
        assert mixed.wire[0]["tool_calls"][0]["id"] == "f"
        done = finished([{"role": "user", "content": "why"}, legacy, {"role": "user", "content": "so?"}], "openai_chat")
        assert done.wire[1]["tool_calls"][0]["function"]["name"] == "f"
        assert not done.violations
