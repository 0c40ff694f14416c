"""The messages of pi and OpenClaw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Opaque, RedactedThinking, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.providers import read, render
from holdfast.providers.pi import BRANCH_SUMMARY, COMPACTION_SUMMARY
from support.cases import each
from support.strategies import CALL_SPELLINGS, RESULT_IDS

REPLY: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "Need the file", "thinkingSignature": "EqQB"},
        {"type": "thinking", "thinking": "", "thinkingSignature": "Enc", "redacted": True},
        {"type": "text", "text": "Reading."},
        {"type": "toolCall", "id": "toolu_01", "name": "read", "arguments": {"path": "a.ts"}, "thoughtSignature": "t"},
    ],
    "api": "anthropic-messages",
    "provider": "anthropic",
    "model": "claude-sonnet-4-5",
    "usage": {"input": 12, "output": 80, "cacheRead": 9000, "cacheWrite": 400, "totalTokens": 9492, "cost": {}},
    "stopReason": "toolUse",
    "timestamp": 1770732004000,
}
BASH: dict[str, Any] = {"role": "bashExecution", "command": "cat key", "output": "sk-1", "exitCode": 0, "timestamp": 7}


def read_one(wire: dict[str, Any]) -> Message:
    """The one message that a wire object is read as."""
    (message,) = read([wire], format="pi")
    return message


def render_one(message: Message) -> Any:
    """The one wire object that a message is rendered as."""
    (wire,) = render([message], "pi")
    return wire


class TestRead:
    """Reading."""

    def test_a_reply_is_read_with_all_of_its_fields(self) -> None:
        """Blocks become parts, and the rest becomes model, stop, usage and time."""
        assert read_one(REPLY) == Message(
            role="assistant",
            parts=(
                Thinking(text="Need the file", signature="EqQB"),
                RedactedThinking(data="Enc"),
                Text(text="Reading."),
                ToolCall(id="toolu_01", name="read", arguments={"path": "a.ts"}),
            ),
            model="claude-sonnet-4-5",
            stop="toolUse",
            usage=Usage(input=12, output=80, cache_read=9000, cache_write=400, total=9492),
            timestamp=1770732004000,
        )

    @pytest.mark.parametrize("kind", CALL_SPELLINGS)
    @pytest.mark.parametrize("key", ["arguments", "input", "args"])
    def test_every_spelling_of_a_call_is_read(self, kind: str, key: str) -> None:
        """Real session files hold four types of call and three names for what is passed."""
        message = read_one({"role": "assistant", "content": [{"type": kind, "id": "c", "name": "f", key: {"a": 1}}]})

        assert message.calls == (ToolCall(id="c", name="f", arguments={"a": 1}),)

    @pytest.mark.parametrize("role", ["toolResult", "tool", "tool_result"])
    @pytest.mark.parametrize("key", RESULT_IDS)
    def test_every_spelling_of_a_result_is_read(self, role: str, key: str) -> None:
        """Three roles, four names for the call's id, two for the error flag and the tool's name."""
        new = read_one({"role": role, key: "c", "content": "x", "isError": True, "toolName": "f"})
        old = read_one(
            {"role": role, key: "c", "content": [{"type": "text", "text": "x"}], "is_error": True, "name": "f"}
        )

        assert (
            new
            == old
            == Message(
                role="tool", parts=(ToolResult(call_id="c", content=(Text(text="x"),), is_error=True, name="f"),)
            )
        )

    def test_simple_lines_of_old_sessions_are_read(self) -> None:
        """A call may be a message of its own, its arguments named params."""
        call, result = read(
            [
                {"role": "tool_call", "name": "read", "params": {"path": "file.txt"}, "timestamp": "..."},
                {"role": "tool_result", "name": "read", "content": "...", "timestamp": "..."},
            ]
        )

        assert call.calls == (ToolCall(id="", name="read", arguments={"path": "file.txt"}),)
        assert (result.results[0].name, result.text, result.timestamp) == ("read", "", None)

    def test_a_seal_of_another_provider_is_no_signature(self) -> None:
        """Other APIs keep their own things in that field; they come back, but never as Anthropic's signature."""
        wire = {**REPLY, "api": "openai-responses"}
        message = read_one(wire)

        assert message.parts[0] == Thinking(text="Need the file")
        assert render_one(message) == wire
        assert render_one(replace(message, parts=message.parts[:1]))["content"] == REPLY["content"][:1]

    @pytest.mark.parametrize(
        ("fields", "text"),
        [
            ({"output": "a.txt"}, "Ran `ls`\n```\na.txt\n```"),
            ({"output": ""}, "Ran `ls`\n(no output)"),
            ({"output": "", "cancelled": True, "exitCode": 130}, "Ran `ls`\n(no output)\n\n(command cancelled)"),
            ({"output": "", "exitCode": 2}, "Ran `ls`\n(no output)\n\nCommand exited with code 2"),
            (
                {"output": "a", "truncated": True, "fullOutputPath": "/tmp/o"},  # noqa: S108
                "Ran `ls`\n```\na\n```\n\n[Output truncated. Full output: /tmp/o]",
            ),
        ],
    )
    def test_a_command_of_the_user_is_rendered(self, fields: dict[str, Any], text: str) -> None:
        """The model gets to know what was run and what came of it."""
        message = read_one({"role": "bashExecution", "command": "ls", **fields})

        assert (message.role, message.text) == ("user", text)

    def test_a_command_kept_out_of_the_context_has_no_text(self) -> None:
        """It is a message all the same, and comes back."""
        wire = {**BASH, "excludeFromContext": True}

        assert read_one(wire).parts == ()
        assert render_one(read_one(wire)) == wire
        assert render([read_one(wire)], "anthropic") == []

    @pytest.mark.parametrize(
        ("role", "frame"), [("compactionSummary", COMPACTION_SUMMARY), ("branchSummary", BRANCH_SUMMARY)]
    )
    def test_a_summary_is_written_in_its_frame(self, role: str, frame: tuple[str, str]) -> None:
        """The words around a summary are those that the other tools use."""
        assert read_one({"role": role, "summary": "## Goal"}).text == frame[0] + "## Goal" + frame[1]

    @pytest.mark.parametrize("stamp", [float("inf"), float("nan"), True, "2026", None])
    def test_a_time_that_is_none_is_none(self, stamp: object) -> None:
        """Numbers that are not finite, which JSON readers let through, do no harm."""
        usage = {"input": float("inf"), "output": 2.0}
        message = read_one({"role": "user", "content": "x", "timestamp": stamp, "usage": usage})

        assert message.timestamp is None
        assert message.usage == Usage(output=2)

    @each(
        ("wire", "where"),
        [
            ({"role": "wizard"}, "messages[0].role"),
            ({"role": "user", "content": 5}, "messages[0].content"),
            ({"role": "user", "content": ["x"]}, "messages[0].content[0]"),
            ({"role": "user", "content": [{"type": "image", "data": 5}]}, "messages[0].content[0].data"),
            (
                {"role": "user", "content": [{"type": "image", "source": {"media_type": []}}]},
                "messages[0].content[0].source.media_type",
            ),
            ({"role": "assistant", "content": [{"type": "toolUse", "input": []}]}, "messages[0].content[0].input"),
            ({"role": "toolResult", "toolCallId": 5}, "messages[0].toolCallId"),
            ({"role": "branchSummary", "summary": 5}, "messages[0].summary"),
        ],
    )
    def test_a_malformed_message_is_refused_by_its_place(self, wire: dict[str, Any], where: str) -> None:
        """The error names the path to what is wrong."""
        with pytest.raises(FormatError) as caught:
            read_one(wire)

        assert caught.value.where == where


class TestRenderEdited:
    """Rendering what was read from here, and edited."""

    @pytest.mark.parametrize("kind", CALL_SPELLINGS)
    @pytest.mark.parametrize("key", ["arguments", "input", "args"])
    def test_an_edited_call_keeps_its_spelling_and_no_copy(self, kind: str, key: str) -> None:
        """What was masked is not left under another name."""
        block = {"type": kind, "call_id": "c", "name": "f", key: {"token": "sk-1"}, "x": 1}
        message = read_one({"role": "assistant", "content": [block]})
        masked = replace(message.calls[0], arguments={"token": "***"})

        wire = render_one(replace(message, parts=(masked,)))

        assert wire["content"] == [{**block, key: {"token": "***"}}]

    def test_an_edited_call_of_old_sessions_keeps_its_form(self) -> None:
        """The line stays a tool_call line."""
        message = read_one({"role": "tool_call", "name": "f", "params": {"token": "sk-1"}, "timestamp": "t"})
        masked = replace(message.calls[0], arguments={"token": "***"})

        assert render_one(replace(message, parts=(masked,))) == {
            "role": "tool_call",
            "name": "f",
            "params": {"token": "***"},
            "timestamp": "t",
        }

    def test_an_edited_result_keeps_its_spelling(self) -> None:
        """Role, id, name and error flag are written as they were."""
        wire = {"role": "tool", "call_id": "c", "name": "f", "content": "long", "is_error": True, "details": {"a": 1}}
        message = read_one(wire)
        result = replace(message.results[0], content=(Text(text="short"),), is_error=False)

        assert render_one(replace(message, parts=(result,))) == {**wire, "content": "short", "is_error": False}

    @pytest.mark.parametrize("wire", [BASH, {"role": "compactionSummary", "summary": "sk-1", "timestamp": 7}])
    def test_edited_words_replace_the_fields_they_were_read_from(self, wire: dict[str, Any]) -> None:
        """What was masked in the words is not left in the fields."""
        edited = render_one(replace(read_one(wire), parts=(Text(text="***"),)))

        assert (edited["role"], edited["content"], edited["timestamp"]) == (
            "user",
            [{"type": "text", "text": "***"}],
            7,
        )
        assert "sk-1" not in str(edited)

    def test_an_edited_image_is_edited_where_it_stood(self) -> None:
        """Anthropic's spelling of an image stays that."""
        source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
        message = read_one({"role": "user", "content": [{"type": "image", "source": source}]})
        (image,) = message.parts
        assert isinstance(image, Image)

        wire = render_one(replace(message, parts=(replace(image, data="eW8="),)))

        assert wire["content"] == [{"type": "image", "source": {**source, "data": "eW8="}}]

    def test_a_signature_that_was_dropped_is_gone(self) -> None:
        """Thinking is kept whole, or without what binds it to its place."""
        message = read_one(REPLY)
        thinking = message.parts[0]
        assert isinstance(thinking, Thinking)

        wire = render_one(replace(message, parts=(replace(thinking, signature=None),)))

        assert wire["content"] == [{"type": "thinking", "thinking": "Need the file"}]
        assert wire["usage"] == REPLY["usage"]


class TestRenderForeign:
    """Rendering what came from elsewhere."""

    def test_each_result_is_a_message_of_its_own(self) -> None:
        """Several results of one message, and what was said next to them, become one message each."""
        results = tuple(ToolResult(call_id=name, content=(Text(text="1"),), name="f") for name in "ab")
        message = Message(role="tool", parts=(*results, Text(text="next")), timestamp=7, model="m")

        assert render([message], "pi") == [
            {
                "role": "toolResult",
                "toolCallId": name,
                "toolName": "f",
                "content": [{"type": "text", "text": "1"}],
                "isError": False,
                "timestamp": 7,
            }
            for name in "ab"
        ] + [{"role": "user", "content": [{"type": "text", "text": "next"}], "model": "m", "timestamp": 7}]

    def test_calls_go_before_the_results_that_stood_with_them(self) -> None:
        """What no provider writes still comes out in order."""
        parts = (ToolResult(call_id="c"), ToolCall(id="c", name="f", arguments={}))

        assert [wire["role"] for wire in render([Message(role="assistant", parts=parts)], "pi")] == [
            "assistant",
            "toolResult",
        ]

    def test_blocks_unknown_to_pi_are_kept(self) -> None:
        """Our own sessions lose nothing: opaque parts come back as they were."""
        parts = (Opaque(kind="document", data={"type": "document"}), Opaque(kind="output", data=[1]))

        again = read_one(render_one(Message(role="assistant", parts=parts)))

        assert again.parts == parts

        masked = replace(again, parts=(replace(parts[1], data=[2], origin=again.parts[1].origin),))
        assert render_one(masked)["content"] == [{"type": "opaque", "kind": "output", "data": [2]}]

    def test_an_image_by_reference_is_named_in_words(self) -> None:
        """A session holds images inline only; a URL passed off as data would be refused by every provider."""
        wire = render_one(Message(role="user", parts=(Image(url="https://x"), Image(data="aGk="))))

        assert wire["content"] == [
            {"type": "text", "text": "[image: https://x]"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
        ]

    def test_what_another_provider_sealed_never_turns_into_a_signature(self) -> None:
        """Sealed reasoning that went through a session file does not reach Anthropic as its own."""
        sealed: list[dict[str, Any]] = [
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}], "encrypted_content": "gA"},
            {"type": "reasoning", "summary": [], "encrypted_content": "gA"},
        ]

        stored = read(render(read(sealed, format="openai_responses"), "pi"), format="pi")

        assert [part for message in stored for part in message.parts] == [
            Thinking(text="Hm"),
            Opaque(kind="reasoning", data="gA"),
        ]
