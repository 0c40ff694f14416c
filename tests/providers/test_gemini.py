"""Gemini's contents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import Engine
from holdfast.errors import FormatError
from holdfast.messages import Image, Message, Opaque, RedactedThinking, Text, Thinking, ToolCall, ToolResult
from holdfast.providers import read, read_request, render, render_request
from holdfast.settings import Embedding, Settings

CALLS: dict[str, Any] = {
    "role": "model",
    "parts": [
        {"text": "Which?", "thought": True, "thoughtSignature": "S1"},
        {"functionCall": {"name": "read", "args": {"path": "a"}}, "thoughtSignature": "S2"},
        {"functionCall": {"name": "read", "args": {"path": "b"}}},
        {"functionCall": {"id": "x", "name": "ls"}},
        {"text": "", "thoughtSignature": "S3"},
        {"executableCode": {"language": "PYTHON", "code": "1"}},
    ],
}
ANSWERS: dict[str, Any] = {
    "role": "function",
    "parts": [
        {"functionResponse": {"name": "read", "response": {"result": "甲"}}},
        {"functionResponse": {"name": "read", "response": {"stdout": "b", "code": 0}}},
        {"functionResponse": {"id": "x", "name": "ls", "response": {"error": "no"}}},
    ],
}


def read_one(wire: dict[str, Any]) -> Message:
    """The one message that a content is read as."""
    (message,) = read([wire])
    return message


class TestRead:
    """Reading."""

    def test_calls_thoughts_and_signatures(self) -> None:
        """Calls without an id are distinguished by their name and place; a lone signature is a thought."""
        message = read_one(CALLS)

        assert message.role == "assistant"
        assert message.parts == (
            Thinking(text="Which?", signature="S1"),
            ToolCall(id="call_read_1", name="read", arguments={"path": "a"}),
            ToolCall(id="call_read_2", name="read", arguments={"path": "b"}),
            ToolCall(id="x", name="ls", arguments={}),
            RedactedThinking(data="S3"),
            Opaque(kind="executableCode", data=CALLS["parts"][5]),
        )

    def test_responses(self) -> None:
        """A response of one text says that text, any other its JSON; an error is one."""
        message = read_one(ANSWERS)

        assert message.role == "tool"
        assert message.parts == (
            ToolResult(call_id="call_read_1", name="read", content=(Text(text="甲"),)),
            ToolResult(call_id="call_read_2", name="read", content=(Text(text='{"stdout": "b", "code": 0}'),)),
            ToolResult(call_id="x", name="ls", content=(Text(text="no"),), is_error=True),
        )

    @pytest.mark.parametrize(
        ("part", "read_as"),
        [
            ({"inlineData": {"mimeType": "image/png", "data": "aGk="}}, Image(media_type="image/png", data="aGk=")),
            ({"file_data": {"mime_type": "image/png", "file_uri": "u"}}, Image(media_type="image/png", url="u")),
        ],
    )
    def test_images(self, part: dict[str, Any], read_as: Image) -> None:
        """In both spellings; a file of another kind is carried."""
        other = {"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}

        assert read_one({"role": "user", "parts": [part, other]}).parts == (
            read_as,
            Opaque(kind="inlineData", data=other),
        )

    @pytest.mark.parametrize(
        ("wire", "where"),
        [
            ({"role": "wizard", "parts": []}, "messages[0].role"),
            ({"role": "user", "parts": [5]}, "messages[0].parts[0]"),
            ({"role": "model", "parts": [{"functionCall": {"name": 5}}]}, "messages[0].parts[0].functionCall.name"),
        ],
    )
    def test_what_is_malformed_is_refused_by_its_place(self, wire: dict[str, Any], where: str) -> None:
        """The error names the path to what is wrong."""
        with pytest.raises(FormatError) as caught:
            read([wire])
        assert caught.value.where == where


class TestRender:
    """Rendering."""

    def test_a_request_comes_back(self) -> None:
        """With its system instruction, in either spelling of the key."""
        body = {"systemInstruction": {"parts": [{"text": "Be brief."}]}, "contents": [CALLS, ANSWERS]}

        assert render_request(read_request(body), "gemini") == body
        read = read_request({"system_instruction": body["systemInstruction"], "contents": "hi"})
        assert [message.text for message in read] == ["Be brief.", "hi"]

    def test_a_window_of_another_format_becomes_a_request(self, tmp_path: Path) -> None:
        """With the system prompt in its field, calls and responses as parts; and back again."""
        call = {"type": "tool_use", "id": "t1", "name": "ls", "input": {"path": "."}}
        answer = {"type": "tool_result", "tool_use_id": "t1", "content": "a.py"}
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "List the files."},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [answer]},
        ]
        body = {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [
                {"role": "user", "parts": [{"text": "List the files."}]},
                {"role": "model", "parts": [{"functionCall": {"id": "t1", "name": "ls", "args": {"path": "."}}}]},
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"id": "t1", "name": "ls", "response": {"output": "a.py"}}}],
                },
            ],
        }
        with Engine.open(tmp_path, settings=Settings(embedding=Embedding(provider="none"))) as engine:
            assert engine.session("a").assemble(messages).request("gemini") == body
            back = engine.session("b").assemble(read_request(body)).request("anthropic")
        assert back == {"system": "Be brief.", "messages": messages[1:]}

    def test_a_shortened_response_leaves_nothing_behind(self) -> None:
        """A text stays under its name; of fields, nothing is left but the note."""
        message = read_one(ANSWERS)
        short = tuple(replace(part, content=(Text(text="[cut]"),)) for part in message.results)
        (wire,) = render([replace(message, parts=short)], "gemini")

        responses = [part["functionResponse"]["response"] for part in wire["parts"]]
        assert responses == [{"result": "[cut]"}, {"output": "[cut]"}, {"error": "[cut]"}]
        assert wire["role"] == "function"

    def test_results_of_others_are_named_by_their_calls(self) -> None:
        """And their pictures stand next to them."""
        picture = Image(media_type="image/png", data="aGk=")
        called = Message(role="assistant", parts=(ToolCall(id="c", name="shot", arguments={}),))
        answered = Message(role="tool", parts=(ToolResult(call_id="c", content=(Text(text="ok"), picture)),))

        assert render([called, answered], "gemini")[1]["parts"] == [
            {"functionResponse": {"id": "c", "name": "shot", "response": {"output": "ok"}}},
            {"inlineData": {"mimeType": "image/png", "data": "aGk="}},
        ]
