"""OpenAI's Chat Completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Opaque, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers import read, render
from holdfast.providers.openai_chat import read_usage
from support.cases import each

REPLY: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "reasoning_content": "Need the file",
    "refusal": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "read", "arguments": '{ "path": "a.py" }', "thought_signature": "s"},
        },
        {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": "select 1", "x": 1}},
    ],
}
LEGACY: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "function_call": {"name": "f", "arguments": "{}", "x": 1},
}


def read_one(wire: dict[str, Any]) -> Message:
    """The one message that a wire object is read as."""
    (message,) = read([wire], format="openai_chat")
    return message


def render_one(message: Message) -> Any:
    """The one wire object that a message is rendered as."""
    (wire,) = render([message], "openai_chat")
    return wire


class TestRead:
    """Reading."""

    def test_a_reply_is_read_from_all_its_fields(self) -> None:
        """Thinking, content and calls stand in fields of their own; arguments are decoded."""
        message = read_one(REPLY)

        assert message.parts == (
            Thinking(text="Need the file"),
            Text(text=""),
            ToolCall(id="call_1", name="read", arguments={"path": "a.py"}),
            ToolCall(id="call_2", name="sql", arguments="select 1"),
        )

    @pytest.mark.parametrize(
        "arguments", ["", "nothing", "[1]", '"x"', "{", '{"a":' * 100_000, '{"n": ' + "9" * 5000 + "}"]
    )
    def test_arguments_that_are_no_object_stay_text(self, arguments: str) -> None:
        """Whatever a model wrote is kept, however hostile."""
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        message = read_one({"role": "assistant", "tool_calls": [call]})

        assert message.calls[0].arguments == arguments

    def test_arguments_may_come_as_the_object_itself(self) -> None:
        """Some servers do not encode them."""
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
        message = read_one({"role": "assistant", "tool_calls": [call]})

        assert message.calls[0].arguments == {"a": 1}

    def test_the_old_function_messages_are_tied_by_name(self) -> None:
        """Before calls had ids, the function's name was all there was."""
        call, result = read([LEGACY, {"role": "function", "name": "f", "content": "3"}], format="openai_chat")

        assert call.calls[0].id == result.results[0].call_id == "f"
        assert result.role == "tool"

    def test_a_refusal_is_part_of_the_text(self) -> None:
        """Both places of a refusal are read as words."""
        beside = read_one({"role": "assistant", "content": None, "refusal": "No."})
        inside = read_one({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]})

        assert beside.text == inside.text == "No."

    def test_developer_messages_are_system_messages_and_names_are_kept(self) -> None:
        """The newer role means the same; a speaker's name is known to the message."""
        message = read_one({"role": "developer", "content": [{"type": "text", "text": "x"}], "name": "ops"})

        assert (message.role, message.text, message.name) == ("system", "x", "ops")

    def test_images_and_what_we_do_not_interpret(self) -> None:
        """A data URL is an inline image, any other a reference; audio is carried."""
        urls = ["data:image/png;base64,aGk=", "https://x/y.png", "data:,x"]
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        audio = {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}
        message = read_one({"role": "user", "content": [*parts, audio]})

        assert message.parts == (
            Image(media_type="image/png", data="aGk="),
            Image(url="https://x/y.png"),
            Image(url="data:,x"),
            Opaque(kind="input_audio", data=audio),
        )

    @each(
        ("wire", "where"),
        [
            ({"role": "wizard"}, "messages[0].role"),
            ({"role": []}, "messages[0].role"),
            ({"role": "user", "content": 5}, "messages[0].content"),
            (
                {"role": "user", "content": [{"type": "image_url", "image_url": "u"}]},
                "messages[0].content[0].image_url",
            ),
            ({"role": "assistant", "tool_calls": {}}, "messages[0].tool_calls"),
            ({"role": "assistant", "tool_calls": [5]}, "messages[0].tool_calls[0]"),
            ({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function"),
            (
                {"role": "assistant", "tool_calls": [{"function": {"arguments": [1]}}]},
                "messages[0].tool_calls[0].function.arguments",
            ),
            ({"role": "assistant", "function_call": {"name": 5}}, "messages[0].function_call.name"),
            ({"role": "tool", "tool_call_id": 5}, "messages[0].tool_call_id"),
        ],
    )
    def test_a_malformed_message_is_refused_by_its_place(self, wire: dict[str, Any], where: str) -> None:
        """The error names the path to what is wrong."""
        with pytest.raises(FormatError) as caught:
            read_one(wire)

        assert caught.value.where == where


class TestUsage:
    """What a request cost."""

    def test_cached_tokens_are_part_of_the_prompt(self) -> None:
        """They are distinguished, not counted twice."""
        details = {"prompt_tokens_details": {"cached_tokens": 60}}

        usage = read_usage({"prompt_tokens": 100, "completion_tokens": 7, **details})

        assert usage == Usage(input=40, output=7, cache_read=60)
        assert usage.context == 107

    @pytest.mark.parametrize("data", [None, [], {}, {"prompt_tokens": "5"}, {"prompt_tokens": float("inf")}])
    def test_anything_else_is_no_usage(self, data: object) -> None:
        """A usage without the prompt's tokens says nothing about the window."""
        assert read_usage(data) is None

    def test_more_cached_than_sent_is_not_less_than_nothing(self) -> None:
        """A server that miscounts does not make a figure negative."""
        usage = read_usage({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}})

        assert usage == Usage(input=0, cache_read=5)


class TestRenderEdited:
    """Rendering what was read from here, and edited."""

    def test_one_edited_call_leaves_the_rest_of_the_message_alone(self) -> None:
        """Empty content stays empty content, spaces stay in arguments, unknown fields stay where they are."""
        message = read_one(REPLY)
        custom = replace(message.calls[1], arguments="select 2")

        wire = render_one(replace(message, parts=(*message.parts[:3], custom)))

        assert wire == {
            **REPLY,
            "tool_calls": [
                REPLY["tool_calls"][0],
                {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": "select 2", "x": 1}},
            ],
        }

    def test_a_renamed_call_keeps_its_arguments_letter_by_letter(self) -> None:
        """Only what was edited is written again, inside the function object too."""
        message = read_one(REPLY)
        renamed = replace(message.calls[0], name="open")

        wire = render_one(replace(message, parts=(renamed,)))

        assert wire["tool_calls"][0]["function"] == {
            "name": "open",
            "arguments": '{ "path": "a.py" }',
            "thought_signature": "s",
        }

    def test_thinking_that_was_dropped_is_gone_from_every_field(self) -> None:
        """A server that sends it twice does not get one of the two back."""
        message = read_one({**REPLY, "reasoning": "Need the file"})

        wire = render_one(replace(message, parts=message.parts[1:]))

        assert wire == {key: value for key, value in REPLY.items() if key != "reasoning_content"}

    def test_calls_that_were_dropped_leave_no_field(self) -> None:
        """Neither the new nor the old way to call is left behind."""
        kept = (Text(text="done"),)

        assert render_one(replace(read_one(LEGACY), parts=kept)) == {"role": "assistant", "content": "done"}

    def test_an_edited_old_call_stays_an_old_call(self) -> None:
        """It is not said a second time in the new way."""
        message = read_one(LEGACY)
        call = replace(message.calls[0], arguments={"a": 1})

        assert render_one(replace(message, parts=(call,))) == {
            "role": "assistant",
            "content": None,
            "function_call": {"name": "f", "arguments": '{"a":1}', "x": 1},
        }

    def test_an_edited_old_result_stays_an_old_result(self) -> None:
        """The function role knows no call ids."""
        message = read_one({"role": "function", "name": "f", "content": "long"})
        result = replace(message.results[0], content=(Text(text="short"),))

        assert render_one(replace(message, parts=(result,))) == {"role": "function", "name": "f", "content": "short"}

    def test_an_edited_refusal_stays_next_to_the_content(self) -> None:
        """It does not slip into the content."""
        wire = {"role": "assistant", "content": None, "refusal": "No."}
        message = read_one(wire)
        (refusal,) = message.parts
        assert isinstance(refusal, Text)

        assert render_one(replace(message, parts=(replace(refusal, text="Sorry, no."),))) == {
            **wire,
            "refusal": "Sorry, no.",
        }

    def test_an_edited_image_keeps_its_detail(self) -> None:
        """Fields inside of the image object are kept as well."""
        wire = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x", "detail": "low"}}]}
        message = read_one(wire)
        (image,) = message.parts
        assert isinstance(image, Image)

        assert render_one(replace(message, parts=(replace(image, url="https://y"),)))["content"][0]["image_url"] == {
            "url": "https://y",
            "detail": "low",
        }

    def test_a_message_whose_role_was_edited_has_the_new_one(self) -> None:
        """An old spelling is kept only where it still means the same."""
        message = read_one({"role": "developer", "content": "x", "name": "ops"})

        assert render_one(replace(message, role="user")) == {"role": "user", "content": "x", "name": "ops"}
        assert render_one(replace(message, parts=(Text(text="y"),)))["role"] == "developer"

    def test_an_emptied_message_is_left_out(self) -> None:
        """There is no empty message."""
        assert render([replace(read_one({"role": "user", "content": "x"}), parts=())], "openai_chat") == []


class TestRenderForeign:
    """Rendering what came from elsewhere."""

    def test_each_result_is_a_message_and_pictures_follow_the_last(self) -> None:
        """Tool messages hold text only and may not be parted from each other."""
        picture = ToolResult(call_id="a", content=(Image(url="https://x"),))
        words = ToolResult(call_id="b", content=(Text(text="ok"), Opaque(kind="document", data={})))
        listed = [
            Message(role="tool", parts=(picture, Text(text="look"))),
            Message(role="tool", parts=(words,)),
            Message(role="assistant", parts=(Text(text="I see"),)),
        ]

        assert render(listed, "openai_chat") == [
            {"role": "tool", "tool_call_id": "a", "content": "(see the image below)"},
            {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "ok"}]},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://x"}},
                    {"type": "text", "text": "look"},
                ],
            },
            {"role": "assistant", "content": "I see"},
        ]

    def test_calls_and_results_in_one_message_are_separated(self) -> None:
        """What no provider writes is still rendered so that each call comes before its result."""
        call, result = ToolCall(id="a", name="f", arguments={}), ToolResult(call_id="a", content=(Text(text="1"),))

        assert render([Message(role="tool", parts=(call, result))], "openai_chat") == [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "1"},
        ]

    def test_nothing_but_thinking_is_nothing_to_send(self) -> None:
        """Other providers' thinking has no field here."""
        assert render([Message(role="assistant", parts=(Thinking(text="Hm"),))], "openai_chat") == []

    def test_no_arguments_are_an_empty_object(self) -> None:
        """A call without arguments is still JSON."""
        message = Message(role="assistant", parts=(ToolCall(id="a", name="f", arguments=""),))

        assert render_one(message)["tool_calls"][0]["function"]["arguments"] == "{}"


def test_the_usage_of_a_gateway_with_names_of_both_providers_has_cached_tokens_in_its_input() -> None:
    """Without `prompt_tokens` they are counted on top of it, as Anthropic does."""
    anthropic = {"input_tokens": 20, "output_tokens": 3, "cache_read_input_tokens": 80}
    assert read_usage(anthropic) == Usage(input=20, output=3, cache_read=80)
    both = {
        "prompt_tokens": 100,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 80},
        "cache_read_input_tokens": 80,
    }
    assert read_usage(both) == Usage(input=20, output=3, cache_read=80)
