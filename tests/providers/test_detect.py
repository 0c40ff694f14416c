"""Which format a list of messages is in."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.messages import Message, Opaque, Text
from holdfast.providers import FORMATS, detect, read, render
from support.cases import each

USER: dict[str, Any] = {"role": "user", "content": "hi"}


_FORMS: dict[str, dict[str, Any]] = {
    "plain": USER,
    "anthropic": {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
    "openai_chat": {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    },
    "openai_responses": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "嗨"}]},
    "gemini": {"role": "user", "parts": [{"text": "hi"}]},
}


@pytest.mark.parametrize("named", FORMATS)
@pytest.mark.parametrize("shown", _FORMS)
def test_a_message_is_read_or_refused_but_never_empty(shown: str, named: str) -> None:
    """Whoever names the wrong format is told so: a message of which nothing is understood would not be found."""
    wire = [_FORMS[shown]]
    is_readable = named == shown or (shown == "plain" and named != "gemini") or (shown, named) == ("anthropic", "pi")
    if not is_readable:
        with pytest.raises(FormatError, match=r"^messages\[0\]"):
            read(wire, format=named, keep_malformed=True)
        return
    (message,) = read(wire, format=named, keep_malformed=True)
    assert not all(isinstance(part, Opaque) for part in message.parts)


class TestDetect:
    """Marks, and what they decide."""

    @each(
        ("name", "wire"),
        [
            (
                "anthropic",
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            ),
            ("anthropic", {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}]}),
            ("anthropic", {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm"}]}),
            ("anthropic", {"role": "assistant", "content": [{"type": "redacted_thinking", "data": "E"}]}),
            ("anthropic", {"role": "assistant", "content": [{"type": "server_tool_use"}]}),
            ("anthropic", {"role": "assistant", "content": [{"type": "web_search_tool_result"}]}),
            ("anthropic", {"role": "user", "content": [{"type": "document"}]}),
            ("anthropic", {"role": "user", "content": [{"type": "image", "source": {}}]}),
            ("anthropic", {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {}}]}),
            ("anthropic", {"type": "message", "role": "assistant", "content": [], "stop_reason": None}),
            ("openai_chat", {"role": "assistant", "content": None, "tool_calls": []}),
            ("openai_chat", {"role": "assistant", "content": None, "function_call": {}}),
            ("openai_chat", {"role": "tool", "tool_call_id": "a", "content": ""}),
            ("openai_chat", {"role": "function", "name": "f", "content": ""}),
            ("openai_chat", {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}),
            ("openai_responses", {"type": "function_call", "call_id": "a"}),
            ("openai_responses", {"type": "custom_tool_call_output", "call_id": "a"}),
            ("openai_responses", {"type": "reasoning", "summary": []}),
            ("openai_responses", {"role": "user", "content": [{"type": "input_text", "text": "x"}]}),
            ("openai_responses", {"type": "message", "role": "user", "content": "x"}),
            ("openai_responses", {"type": "mcp_list_tools", "id": "a"}),
            ("gemini", {"role": "user", "parts": [{"text": "x"}]}),
            ("gemini", {"parts": []}),
            ("openai_chat", {"role": "user", "name": "ann", "content": "x"}),
            ("pi", {"role": "toolResult", "toolCallId": "a"}),
            ("pi", {"role": "tool", "toolCallId": "a"}),
            ("pi", {"role": "tool", "call_id": "a"}),
            ("pi", {"role": "bashExecution", "command": "ls"}),
            ("pi", {"role": "tool_call", "name": "f"}),
            ("pi", {"role": "assistant", "content": [], "stopReason": "stop"}),
            ("pi", {"role": "assistant", "content": [{"type": "toolCall"}]}),
            ("pi", {"role": "assistant", "content": [{"type": "toolUse"}]}),
            ("pi", {"role": "assistant", "content": [{"type": "functionCall"}]}),
            ("pi", {"role": "assistant", "content": [{"type": "thinking", "thinkingSignature": "E"}]}),
            ("pi", {"role": "user", "content": [{"type": "image", "data": "", "mimeType": "image/png"}]}),
        ],
    )
    def test_one_mark_decides(self, name: str, wire: dict[str, Any]) -> None:
        """A list is in the format of the one thing in it that no other format has."""
        assert detect([USER, wire, USER]) == name

    def test_a_plain_list_counts_as_chat(self) -> None:
        """Roles and text alone are the same in all formats."""
        assert detect([]) == "openai_chat"
        assert detect([{"role": "system", "content": "s"}, USER]) == "openai_chat"

    @pytest.mark.parametrize("name", sorted(FORMATS))
    def test_a_plain_list_is_the_same_bytes_in_every_request_format(self, name: str) -> None:
        """So it does not matter what it was taken for before its first mark came."""
        plain = [USER, {"role": "assistant", "content": "hello"}]
        rendered = render(read(plain), name)

        assert rendered == plain or name == "gemini"

    def test_a_developer_message_is_no_mark_of_chat(self) -> None:
        """Responses has the role as well."""
        assert detect([{"role": "developer", "content": "s"}, {"type": "reasoning"}]) == "openai_responses"

    @pytest.mark.parametrize(
        "block",
        [{"type": "text", "text": "x", "cache_control": {}}, {"type": "thinking", "thinking": [{"text": "Hm"}]}],
    )
    def test_what_others_have_taken_over_is_a_hint_only(self, block: dict[str, Any]) -> None:
        """Chat servers know cache marks and thinking as well; a real mark of chat wins."""
        hinting = {"role": "assistant", "content": [block]}

        assert detect([{"role": "assistant", "tool_calls": []}, hinting]) == "openai_chat"
        assert detect([hinting]) == "anthropic"

    def test_the_newest_mark_decides(self) -> None:
        """A list may hold messages of several formats: each is read in its own, and the last one names the list."""
        calls = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
        result = {"role": "toolResult", "toolUseId": "a", "content": "x"}

        assert detect([calls, result, USER]) == "pi"
        assert detect([result, calls, USER]) == "anthropic"
        read_as = [message.origin.format for message in read([USER, calls, result]) if message.origin]
        assert read_as == ["plain", "anthropic", "pi"]

    def test_a_message_with_marks_of_two_formats_loses_neither(self) -> None:
        """The calls next to the content are read, and the block of the other format is carried."""
        block = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
        function = {"name": "f", "arguments": "{}"}
        both = {"role": "assistant", "content": [block], "tool_calls": [{"id": "a", "function": function}]}
        (message,) = read([both])

        assert [call.id for call in message.calls] == ["a"]
        assert message.parts[0] == Opaque(kind="tool_use", data=block)

    @each(
        ("messages", "where"),
        [
            (None, "messages"),
            (5, "messages"),
            ("hello", "messages"),
            (b"hello", "messages"),
            ({"messages": []}, "messages"),
            ([5], "messages[0]"),
            ([USER, None], "messages[1]"),
            ([USER, {}], "messages[1]"),
            ([USER, {"content": "x"}], "messages[1]"),
        ],
    )
    def test_what_is_no_list_of_messages_is_refused_by_its_place(self, messages: Any, where: str) -> None:
        """The error names the path to what is wrong."""
        for look in (detect, read):
            with pytest.raises(FormatError) as caught:
                look(messages)
            assert caught.value.where == where

    @pytest.mark.parametrize("odd", [[], {}, 5, None, True])
    def test_odd_values_are_no_marks(self, odd: object) -> None:
        """A role or type that cannot even be looked up is left to the reader to refuse."""
        listed: list[dict[str, Any]] = [{"role": odd, "type": odd, "content": [{"type": odd}, odd]}]

        assert detect(listed) == "openai_chat"


class TestRead:
    """Reading by the name of a format, or without."""

    def test_canonical_messages_pass_through(self) -> None:
        """A list may hold messages that were read before, and places are counted over all of it."""
        known = Message(role="user", parts=(Text(text="a"),))

        assert read([known, USER])[0] is known
        with pytest.raises(FormatError) as caught:
            read([known, {"role": "wizard"}])
        assert caught.value.where == "messages[1].role"

    def test_any_iterable_is_read(self) -> None:
        """A generator will do."""
        assert [message.text for message in read(wire for wire in [USER])] == ["hi"]

    def test_an_unknown_format_is_refused(self) -> None:
        """The error lists the formats there are."""
        with pytest.raises(FormatError, match="anthropic, gemini, openai_chat, openai_responses, pi") as caught:
            read([USER], format="bard")
        assert caught.value.format == "bard"
        with pytest.raises(FormatError):
            render([], "bard")
