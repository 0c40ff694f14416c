"""Request bodies: where each provider wants the system prompt and the messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import FormatError
from holdfast.messages import Message, Text
from holdfast.providers import read, read_request, render_request
from support.cases import each

USER: dict[str, Any] = {"role": "user", "content": "hi"}
SYSTEM: list[dict[str, Any]] = [
    {"type": "text", "text": "You are.", "cache_control": {"type": "ephemeral"}},
    {"type": "text", "text": "Be brief."},
]


class TestReadRequest:
    """Reading."""

    @pytest.mark.parametrize(
        "body",
        [
            {"system": "You are.", "messages": [USER]},
            {"instructions": "You are.", "input": [USER]},
            {"instructions": "You are.", "input": "hi"},
            {"messages": [{"role": "system", "content": "You are."}, USER]},
        ],
    )
    def test_the_system_prompt_comes_first(self, body: dict[str, Any]) -> None:
        """Wherever a provider keeps it, it is the first message of the conversation."""
        assert [(message.role, message.text) for message in read_request({"model": "m", **body})] == [
            ("system", "You are."),
            ("user", "hi"),
        ]

    @pytest.mark.parametrize("empty", [None, "", []])
    def test_no_system_prompt_is_no_message(self, empty: object) -> None:
        """An empty prompt says nothing."""
        assert len(read_request({"system": empty, "messages": [USER]})) == 1

    @each(
        ("body", "where"),
        [
            (None, "body"),
            ([], "body"),
            ({}, "body"),
            ({"messages": {}}, "body"),
            ({"messages": [5]}, "messages[0]"),
            ({"system": 5, "messages": []}, "body.system"),
            ({"system": [5], "messages": []}, "body.system[0]"),
            ({"instructions": ["x"], "input": []}, "body.instructions"),
        ],
    )
    def test_a_malformed_body_is_refused_by_its_place(self, body: Any, where: str) -> None:
        """The error names the path to what is wrong."""
        with pytest.raises(FormatError) as caught:
            read_request(body)
        assert caught.value.where == where


class TestRenderRequest:
    """Rendering."""

    @each(
        ("name", "body"),
        [
            ("anthropic", {"system": "You are.", "messages": [USER]}),
            ("anthropic", {"system": SYSTEM, "messages": [USER]}),
            ("anthropic", {"system": SYSTEM[:1], "messages": [USER]}),
            ("anthropic", {"messages": [USER, {"role": "system", "content": "New rules."}]}),
            ("anthropic", {"messages": [{"role": "system", "content": "New rules."}, USER]}),
            ("openai_responses", {"instructions": "You are.", "input": [USER]}),
            ("openai_responses", {"input": [{"role": "developer", "content": "You are."}, USER]}),
            ("openai_responses", {"instructions": "A", "input": [{"role": "system", "content": "B"}, USER]}),
            ("openai_chat", {"messages": [{"role": "developer", "content": "You are."}, USER]}),
            ("pi", {"messages": [USER]}),
        ],
    )
    def test_unedited_messages_keep_their_places(self, name: str, body: dict[str, Any]) -> None:
        """A system message in the list is not moved next to it, nor the other way round."""
        assert render_request(read_request(body, format=name), name) == body

    def test_an_edited_system_prompt_keeps_the_marks_of_the_rest(self) -> None:
        """The blocks that were not edited are still cached."""
        system, user = read_request({"system": SYSTEM, "messages": [USER]})
        edited = replace(system, parts=(*system.parts[:1], Text(text="Be thorough.")))

        assert render_request([edited, user], "anthropic")["system"] == [
            SYSTEM[0],
            {"type": "text", "text": "Be thorough."},
        ]

    @pytest.mark.parametrize(("name", "key"), [("anthropic", "system"), ("openai_responses", "instructions")])
    def test_system_messages_of_other_formats_are_next_to_the_list(self, name: str, key: str) -> None:
        """Those at the front are the prompt; a later one keeps its place."""
        listed = read(
            [
                {"role": "system", "content": "A"},
                {"role": "developer", "content": "B"},
                USER,
                {"role": "system", "content": "C"},
            ],
            format="openai_chat",
        )

        body = render_request(listed, name)

        assert body[key] == "A\n\nB"
        assert [wire["role"] for wire in body["messages" if name == "anthropic" else "input"]] == ["user", "system"]

    def test_a_conversation_without_a_prompt_has_no_field_for_it(self) -> None:
        """Nothing is made up."""
        assert render_request([Message(role="user", parts=(Text(text="hi"),))], "anthropic") == {"messages": [USER]}
