"""Anthropic's Messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Opaque, RedactedThinking, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers import read, render
from support.cases import each

REPLY: dict[str, Any] = {
    "id": "msg_01",
    "type": "message",
    "role": "assistant",
    "model": "claude-opus-4-6",
    "content": [
        {"type": "thinking", "thinking": "Need the file", "signature": "EqQB"},
        {"type": "redacted_thinking", "data": "Enc"},
        {"type": "text", "text": "Reading.", "citations": None},
        {
            "type": "tool_use",
            "id": "toolu_01",
            "name": "read",
            "input": {"path": "a.py"},
            "cache_control": {"type": "e"},
        },
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"url": "u"}]},
    ],
    "stop_reason": "tool_use",
    "usage": {
        "input_tokens": 12,
        "output_tokens": 80,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 40,
    },
}
RESULTS: dict[str, Any] = {
    "role": "user",
    "content": [
        {"type": "tool_result", "tool_use_id": "toolu_01", "content": "first", "is_error": True, "x": 1},
        {"type": "tool_result", "tool_use_id": "toolu_02", "content": [{"type": "text", "text": "second"}]},
        {"type": "text", "text": "and now?"},
    ],
}


def read_one(wire: dict[str, Any]) -> Message:
    """The one message that a wire object is read as."""
    (message,) = read([wire], format="anthropic")
    return message


def render_one(message: Message) -> Any:
    """The one wire object that a message is rendered as."""
    (wire,) = render([message], "anthropic")
    return wire


class TestRead:
    """Reading."""

    def test_a_reply_is_read_with_all_of_its_fields(self) -> None:
        """Blocks become parts, in order, and the envelope becomes model, stop and usage; its id is in the wire form."""
        message = read_one(REPLY)

        assert message == Message(
            role="assistant",
            model="claude-opus-4-6",
            stop="tool_use",
            usage=Usage(input=12, output=80, cache_read=900, cache_write=40),
            parts=(
                Thinking(text="Need the file", signature="EqQB"),
                RedactedThinking(data="Enc"),
                Text(text="Reading."),
                ToolCall(id="toolu_01", name="read", arguments={"path": "a.py"}),
                Opaque(kind="server_tool_use", data=REPLY["content"][4]),
                Opaque(kind="web_search_tool_result", data=REPLY["content"][5]),
            ),
        )

    def test_a_user_message_with_results_is_a_tool_message(self) -> None:
        """Results sit inside user messages there; next to them, words may stand."""
        message = read_one(RESULTS)

        assert message.role == "tool"
        assert [(result.call_id, result.text, result.is_error) for result in message.results] == [
            ("toolu_01", "first", True),
            ("toolu_02", "second", False),
        ]
        assert message.text == "and now?"

    def test_images_are_read_by_their_source(self) -> None:
        """Inline and referenced images are images; a source that we do not know is carried."""
        sources = [
            {"type": "base64", "media_type": "image/png", "data": "aGk="},
            {"type": "url", "url": "https://x/y.png"},
            {"type": "file", "file_id": "f"},
        ]
        message = read_one({"role": "user", "content": [{"type": "image", "source": source} for source in sources]})

        assert message.parts == (
            Image(media_type="image/png", data="aGk="),
            Image(url="https://x/y.png"),
            Opaque(kind="image", data={"type": "image", "source": sources[2]}),
        )

    def test_what_a_result_may_not_hold_is_carried_in_it(self) -> None:
        """Results nested in results are not followed down, however deep."""
        nested: dict[str, Any] = {"type": "tool_result", "content": "end"}
        for _ in range(90):
            nested = {"type": "tool_result", "content": [nested]}
        message = read_one({"role": "user", "content": [nested]})

        (result,) = message.results
        (inner,) = result.content
        assert isinstance(inner, Opaque)
        assert inner.kind == "tool_result"

    @pytest.mark.parametrize(
        "usage", [None, 5, {}, {"output_tokens": 9}, {"input_tokens": None}, {"input_tokens": "9"}]
    )
    def test_half_a_usage_is_no_usage(self, usage: object) -> None:
        """Without the tokens that were sent, nothing is known about the window."""
        assert read_one({**REPLY, "usage": usage}).usage is None

    @each(
        ("content", "where"),
        [
            (None, "messages[0].content"),
            (5, "messages[0].content"),
            (["words"], "messages[0].content[0]"),
            ([{"text": "x"}], "messages[0].content[0].type"),
            ([{"type": []}], "messages[0].content[0].type"),
            ([{"type": "text"}], "messages[0].content[0].text"),
            ([{"type": "text", "text": "x"}, {"type": "thinking"}], "messages[0].content[1].thinking"),
            ([{"type": "tool_use", "id": 5}], "messages[0].content[0].id"),
            ([{"type": "tool_use", "input": []}], "messages[0].content[0].input"),
            ([{"type": "tool_result", "is_error": "no"}], "messages[0].content[0].is_error"),
            ([{"type": "tool_result", "content": [{"type": "text"}]}], "messages[0].content[0].content[0].text"),
            ([{"type": "image"}], "messages[0].content[0].source"),
            ([{"type": "image", "source": {"type": "base64"}}], "messages[0].content[0].source.data"),
        ],
    )
    def test_malformed_content_is_refused_by_its_place(self, content: object, where: str) -> None:
        """The error names the path to what is wrong."""
        with pytest.raises(FormatError) as caught:
            read_one({"role": "user", "content": content})

        assert caught.value.where == where

    @pytest.mark.parametrize("role", ["tool", "developer", 5, None])
    def test_a_role_that_is_not_known_is_refused(self, role: object) -> None:
        """There are three."""
        with pytest.raises(FormatError) as caught:
            read_one({"role": role, "content": "x"})

        assert caught.value.where == "messages[0].role"

    def test_what_is_nested_too_deeply_is_refused(self) -> None:
        """Arguments that could not be written out again are refused when they come in."""
        deep: Any = "end"
        for _ in range(300):
            deep = {"a": deep}

        with pytest.raises(FormatError, match="nested more than 200 levels"):
            read_one({"role": "assistant", "content": [{"type": "tool_use", "input": deep}]})


class TestRenderEdited:
    """Rendering what was read from here, and edited."""

    def test_a_result_that_is_no_longer_an_error_is_not_marked(self) -> None:
        """The flag of an edited result is taken back; its content keeps its shape."""
        message = read_one(RESULTS)
        repaired = replace(message.results[0], is_error=False)

        wire = render_one(replace(message, parts=(repaired, *message.parts[1:])))

        assert wire["content"][0] == {"type": "tool_result", "tool_use_id": "toolu_01", "content": "first", "x": 1}
        assert wire["content"][1:] == RESULTS["content"][1:]

    def test_true_is_not_one(self) -> None:
        """An edit is seen even where Python holds both values for equal."""
        message = read_one({"role": "assistant", "content": [{"type": "tool_use", "input": {"all": 1, "n": 1.0}}]})
        call = replace(message.calls[0], arguments={"all": True, "n": 1})

        wire = render_one(replace(message, parts=(call,)))

        assert repr(wire["content"][0]["input"]) == "{'all': True, 'n': 1}"

    def test_thinking_without_its_signature_becomes_words(self) -> None:
        """No half of a thinking block is left behind."""
        message = read_one(REPLY)
        thinking = message.parts[0]
        assert isinstance(thinking, Thinking)

        wire = render_one(replace(message, parts=(replace(thinking, signature=None),)))

        assert wire["content"] == [{"type": "text", "text": "Need the file"}]
        assert wire["usage"] == REPLY["usage"]

    def test_an_edited_opaque_part_is_sent_as_it_is_now(self) -> None:
        """What we do not interpret may still be masked."""
        message = read_one(REPLY)
        part = message.parts[5]
        assert isinstance(part, Opaque)
        masked = replace(part, data={**part.data, "content": []})

        wire = render_one(replace(message, parts=(masked,)))

        assert wire["content"] == [{"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}]

    @pytest.mark.parametrize("content", ["was here", [{"type": "text", "text": "was here"}]])
    def test_a_message_that_was_emptied_is_left_out(self, content: object) -> None:
        """The provider refuses empty messages, so there is none."""
        message = read_one({"role": "user", "content": content})

        assert render([replace(message, parts=())], "anthropic") == []
        assert render([replace(message, parts=(Text(text=" \n"),))], "anthropic") == []

    def test_an_empty_message_of_the_client_is_its_own_affair(self) -> None:
        """What no one edited is handed back, refused or not."""
        wires: list[dict[str, Any]] = [{"role": "assistant", "content": []}, {"role": "user", "content": ""}]

        assert render(read(wires, format="anthropic"), "anthropic") == wires

    def test_a_part_added_to_a_message_is_a_block_among_its_blocks(self) -> None:
        """The blocks that were there keep their marks."""
        wire: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}
        message = read_one(wire)

        added = render_one(replace(message, parts=(*message.parts, Text(text="b"))))

        assert added["content"] == [*wire["content"], {"type": "text", "text": "b"}]


class TestRenderForeign:
    """Rendering what came from elsewhere."""

    def test_one_plain_text_is_one_string(self) -> None:
        """So a plain list is the same bytes whichever format it was taken for."""
        wires = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]

        assert render(read(wires, format="openai_chat"), "anthropic") == wires

    def test_results_that_came_one_by_one_share_one_user_message(self) -> None:
        """Parallel results have to be answered in one turn, and what the user adds joins them."""
        listed = [
            Message(role="tool", parts=(ToolResult(call_id="a", content=(Text(text="1"),)),)),
            Message(role="tool", parts=(ToolResult(call_id="b"),)),
            Message(role="user", parts=(Text(text="next"),)),
        ]

        assert render(listed, "anthropic") == [
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "1"},
                    {"type": "tool_result", "tool_use_id": "b"},
                    {"type": "text", "text": "next"},
                ],
            }
        ]

    def test_an_error_holds_nothing_but_text(self) -> None:
        """The provider refuses images in a result that is an error."""
        content = (Text(text="boom"), Image(data="aGk="))
        message = Message(role="tool", parts=(ToolResult(call_id="a", content=content, is_error=True),))

        (block,) = render_one(message)["content"]
        assert block == {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": "boom",
            "is_error": True,
        }

    def test_what_another_provider_sealed_is_not_passed_off_as_signed(self) -> None:
        """Sealed reasoning of OpenAI goes over as words, or not at all."""
        summary = [{"type": "summary_text", "text": "Hm"}]
        items: list[dict[str, Any]] = [
            {"type": "reasoning", "summary": summary, "encrypted_content": "gAAA"},
            {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        ]

        assert render(read(items, format="openai_responses"), "anthropic") == [
            {"role": "assistant", "content": [{"type": "text", "text": "Hm"}]}
        ]

    def test_parts_that_have_no_place_are_left_out(self) -> None:
        """An image of nothing and another format's opaque part cannot be said; stray arguments can."""
        parts = (Image(), Opaque(kind="novelty", data={}), ToolCall(id="c", name="run", arguments="ls -la"))
        message = Message(role="assistant", parts=parts)

        assert render_one(message)["content"] == [
            {"type": "tool_use", "id": "c", "name": "run", "input": {"_raw": "ls -la"}}
        ]
