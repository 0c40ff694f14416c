"""OpenAI's Responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Opaque, Part, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.providers import read, render
from support.cases import each

SUMMARY: dict[str, Any] = {"type": "summary_text", "text": "Need the file"}
PATCH: dict[str, Any] = {"type": "update_file", "diff": "@@"}
ACTION: dict[str, Any] = {"command": ["ls"]}
ITEMS: list[tuple[dict[str, Any], Part]] = [
    (
        {"type": "reasoning", "summary": [SUMMARY], "encrypted_content": "gA"},
        Thinking(text="Need the file", signature="gA"),
    ),
    ({"type": "reasoning", "summary": [], "encrypted_content": "gA"}, RedactedThinking(data="gA")),
    (
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"path": "a"}', "id": "fc_1"},
        ToolCall(id="c", name="read", arguments={"path": "a"}),
    ),
    (
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
        ToolCall(id="c", name="sql", arguments="select 1"),
    ),
    (
        {"type": "local_shell_call", "call_id": "c", "action": ACTION, "status": "completed"},
        ToolCall(id="c", name="local_shell", arguments=ACTION),
    ),
    (
        {"type": "apply_patch_call", "call_id": "c", "operation": PATCH},
        ToolCall(id="c", name="apply_patch", arguments={"operation": PATCH}),
    ),
    (
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        ToolResult(call_id="c", content=(Text(text="ok"),)),
    ),
    (
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "ok"}]},
        ToolResult(call_id="c", content=(Text(text="ok"),)),
    ),
    (
        {
            "type": "computer_call_output",
            "call_id": "c",
            "output": {"type": "computer_screenshot", "image_url": "https://x"},
        },
        ToolResult(call_id="c", content=(Image(url="https://x"),)),
    ),
    ({"type": "local_shell_call_output", "id": "c"}, ToolResult(call_id="c")),
]


def read_one(wire: dict[str, Any]) -> Message:
    """The one message that an item is read as."""
    (message,) = read([wire], format="openai_responses")
    return message


def render_one(message: Message) -> Any:
    """The one item that a message is rendered as."""
    (wire,) = render([message], "openai_responses")
    return wire


class TestRead:
    """Reading."""

    @each(("item", "part"), ITEMS)
    def test_an_item_is_one_part(self, item: dict[str, Any], part: Part) -> None:
        """Reasoning, calls and results are items of their own."""
        assert read_one(item).parts == (part,)

    @pytest.mark.parametrize(
        "item",
        [
            {"type": "web_search_call", "id": "ws_1", "action": {"query": "x"}},
            {"type": "item_reference", "id": "i_1"},
            {"type": "compaction", "encrypted_content": "gA"},
        ],
    )
    def test_what_runs_at_the_provider_is_carried(self, item: dict[str, Any]) -> None:
        """Nothing here waits for a result of ours."""
        assert read_one(item).parts == (Opaque(kind=item["type"], data=item),)

    def test_an_answer_in_fields_of_its_own_is_carried_in_the_result(self) -> None:
        """The call is answered, whatever shape the answer has."""
        item = {"type": "tool_search_output", "call_id": "c", "tools": [{"name": "x"}]}

        message = read_one(item)

        assert message.role == "tool"
        assert message.results == (ToolResult(call_id="c", content=(Opaque(kind="tool_search_output", data=item),)),)

    def test_a_message_is_read_from_its_parts(self) -> None:
        """Texts, refusals and images are read; files are carried."""
        file = {"type": "input_file", "file_id": "f"}
        content = [
            {"type": "input_text", "text": "hi"},
            {"type": "refusal", "refusal": "No."},
            {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
            file,
        ]
        message = read_one({"type": "message", "role": "developer", "content": content, "id": "m"})

        assert (message.role, message.id) == ("system", None)
        assert message.parts == (
            Text(text="hi"),
            Text(text="No."),
            Image(media_type="image/png", data="aGk="),
            Opaque(kind="input_file", data=file),
        )

    @pytest.mark.parametrize(
        ("item", "where"),
        [
            ({"type": 5}, "messages[0].type"),
            ({"role": "tool", "content": "x"}, "messages[0].role"),
            ({"role": "user"}, "messages[0].content"),
            ({"role": "user", "content": [{"type": "input_text"}]}, "messages[0].content[0].text"),
            ({"type": "reasoning", "summary": {}}, "messages[0].summary"),
            ({"type": "function_call", "call_id": "c", "arguments": {}}, "messages[0].arguments"),
            ({"type": "function_call_output", "call_id": "c", "output": ["x"]}, "messages[0].output[0]"),
        ],
    )
    def test_a_malformed_item_is_refused_by_its_place(self, item: dict[str, Any], where: str) -> None:
        """The error names the path to what is wrong."""
        with pytest.raises(FormatError) as caught:
            read_one(item)

        assert caught.value.where == where


class TestRenderEdited:
    """Rendering what was read from here, and edited."""

    @pytest.mark.parametrize(
        ("item", "key", "value"),
        [
            (ITEMS[2][0], "arguments", '{"masked":true}'),
            (ITEMS[3][0], "input", '{"masked":true}'),
            (ITEMS[4][0], "action", {"masked": True}),
        ],
    )
    def test_an_edited_call_keeps_its_kind(self, item: dict[str, Any], key: str, value: object) -> None:
        """So its result, which no one edited, still answers it."""
        message = read_one(item)
        call = replace(message.calls[0], arguments={"masked": True})

        assert render_one(replace(message, parts=(call,))) == {**item, key: value}

    def test_a_call_without_an_action_is_edited_in_its_own_fields(self) -> None:
        """What was the argument is gone; what surrounds it stays."""
        message = read_one({**ITEMS[5][0], "status": "completed"})
        call = replace(message.calls[0], arguments={"operation": "[masked]"})

        assert render_one(replace(message, parts=(call,))) == {
            "type": "apply_patch_call",
            "call_id": "c",
            "operation": "[masked]",
            "status": "completed",
        }

    def test_an_edited_text_leaves_the_file_next_to_it(self) -> None:
        """Parts that we do not interpret stay in the message, not behind it."""
        file = {"type": "input_file", "file_id": "f"}
        item = {"role": "user", "content": [{"type": "input_text", "text": "read this", "x": 1}, file]}
        message = read_one(item)
        text = message.parts[0]
        assert isinstance(text, Text)

        wire = render_one(replace(message, parts=(replace(text, text="read it"), message.parts[1])))

        assert wire == {"role": "user", "content": [{"type": "input_text", "text": "read it", "x": 1}, file]}

    def test_an_edited_refusal_stays_a_refusal(self) -> None:
        """It is said in its own field."""
        message = read_one({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}], "id": "m"})
        refusal = message.parts[0]
        assert isinstance(refusal, Text)

        wire = render_one(replace(message, parts=(replace(refusal, text="Sorry."),)))

        assert wire == {"role": "assistant", "content": [{"type": "refusal", "refusal": "Sorry."}], "id": "m"}

    def test_an_edited_screenshot_stays_one(self) -> None:
        """An output that is one object stays one object."""
        message = read_one(ITEMS[8][0])
        (result,) = message.results
        (image,) = result.content
        assert isinstance(image, Image)

        edited = replace(result, content=(replace(image, url="https://y"),))

        assert render_one(replace(message, parts=(edited,)))["output"] == {
            "type": "computer_screenshot",
            "image_url": "https://y",
        }

    def test_reasoning_is_kept_whole_or_dropped_whole(self) -> None:
        """A seal does not fit words that were edited."""
        message = read_one(ITEMS[0][0])
        thinking = message.parts[0]
        assert isinstance(thinking, Thinking)

        assert render([replace(message, parts=(replace(thinking, text="Hm"),))], "openai_responses") == []

    def test_an_edited_opaque_item_is_sent_as_it_is_now(self) -> None:
        """What we do not interpret may still be masked."""
        message = read_one({"type": "web_search_call", "id": "ws_1", "action": {"query": "key"}})
        masked = Opaque(kind="web_search_call", data={"type": "web_search_call", "id": "ws_1", "action": {}})

        edited = replace(message, parts=(replace(masked, origin=message.parts[0].origin),))

        assert render_one(edited) == {"type": "web_search_call", "id": "ws_1", "action": {}}

    def test_additions_to_an_item_become_separate_items(self) -> None:
        """The item's id stays with the item; the second stretch of words is a new message."""
        item = {"type": "message", "role": "assistant", "content": "a", "id": "m"}
        message = read_one(item)
        call = ToolCall(id="c", name="f", arguments={})

        assert render([replace(message, parts=(*message.parts, call, Text(text="b")))], "openai_responses") == [
            item,
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"role": "assistant", "content": "b"},
        ]

    def test_words_added_to_a_call_do_not_take_its_id(self) -> None:
        """A call's item is no message's item."""
        message = read_one(ITEMS[2][0])

        assert render([replace(message, parts=(Text(text="a"), *message.parts))], "openai_responses") == [
            {"role": "assistant", "content": "a"},
            ITEMS[2][0],
        ]


class TestRenderForeign:
    """Rendering what came from elsewhere."""

    def test_one_message_becomes_as_many_items_as_it_needs(self) -> None:
        """Words, calls and results are items; thinking of others is left out."""
        parts = (Thinking(text="Hm"), Text(text="a"), Text(text="b"), ToolCall(id="c", name="f", arguments="x"))
        result = ToolResult(call_id="c", content=(Text(text="1"), Image(data="aGk="), Opaque(kind="document", data={})))
        listed = [Message(role="assistant", parts=parts), Message(role="tool", parts=(result, Text(text="next")))]

        assert render(listed, "openai_responses") == [
            {
                "role": "assistant",
                "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
            },
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "x"},
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [
                    {"type": "input_text", "text": "1"},
                    {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
                ],
            },
            {"role": "user", "content": "next"},
        ]

    def test_an_empty_text_makes_no_item(self) -> None:
        """Empty words make no message, and an empty result is an empty string."""
        listed = [
            Message(role="user", parts=(Text(text=""),)),
            Message(role="tool", parts=(ToolResult(call_id="c", content=(Opaque(kind="document", data={}),)),)),
        ]

        assert render(listed, "openai_responses") == [{"type": "function_call_output", "call_id": "c", "output": ""}]
