"""What holds for every message list of every format."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.errors import FormatError
from holdfast.messages import Message, Part, Text, ToolCall, ToolResult, units
from holdfast.providers import FORMATS, detect, read, read_request, render, render_request
from holdfast.providers.wire import encode_arguments
from holdfast.tokens import count_messages
from support.strategies import WIRE, conversations, damaged, examples, json_values, objects

NAMES = sorted(FORMATS)
each_format = pytest.mark.parametrize("name", NAMES)
slow = settings(
    max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], deadline=None
)
SENTINEL = "⟦edited⟧"


class TestUntouched:
    """Messages without edits."""

    @each_format
    @slow
    @given(data=st.data())
    def test_unedited_messages_come_back_byte_for_byte(self, name: str, data: st.DataObject) -> None:
        """Reading and rendering give the same bytes, with any unknown fields and order of keys."""
        wires = data.draw(WIRE[name])
        before = json.dumps(wires)

        rendered = render(read(wires, format=name), name)

        assert json.dumps(rendered) == before
        assert json.dumps(wires) == before

    @each_format
    @slow
    @given(data=st.data())
    def test_what_is_known_from_elsewhere_is_no_edit(self, name: str, data: st.DataObject) -> None:
        """An id, a time or a model that a session file adds does not change the rendering."""
        wires = data.draw(WIRE[name])
        received = [replace(message, id="e1", timestamp=7, model="m", stop="s") for message in read(wires, format=name)]

        assert json.dumps(render(received, name)) == json.dumps(wires)

    @each_format
    @slow
    @given(data=st.data(), system=st.none() | st.text(min_size=1), body=objects())
    def test_a_request_comes_back_byte_for_byte(
        self, name: str, data: st.DataObject, system: str | None, body: dict[str, Any]
    ) -> None:
        """The fields of the conversation in a request body are rendered as they came."""
        key = {"openai_responses": "input", "gemini": "contents"}.get(name, "messages")
        beside = {"anthropic": "system", "openai_responses": "instructions", "gemini": "systemInstruction"}.get(name)
        fields: dict[str, Any] = {key: data.draw(WIRE[name])}
        if beside is not None and system is not None:
            fields = {beside: {"parts": [{"text": system}]} if name == "gemini" else system, **fields}
        body = {field: value for field, value in body.items() if field not in {"messages", "input", "contents"}}

        rendered = render_request(read_request({**body, **fields}, format=name), name)

        assert json.dumps(rendered) == json.dumps(fields)


def text_places(parts: tuple[Part, ...]) -> list[tuple[int, int | None]]:
    """Return the places of the texts in a message: parts, or blocks of results."""
    places: list[tuple[int, int | None]] = []
    for index, part in enumerate(parts):
        if isinstance(part, Text):
            places.append((index, None))
        if isinstance(part, ToolResult):
            places += [(index, inner) for inner, block in enumerate(part.content) if isinstance(block, Text)]
    return places


def edited(message: Message, place: tuple[int, int | None]) -> tuple[Message, str]:
    """Return the message with one text replaced by the sentinel, and the original text."""
    index, inner = place
    part = message.parts[index]
    if isinstance(part, ToolResult) and inner is not None:
        block = part.content[inner]
        assert isinstance(block, Text)
        content = (*part.content[:inner], replace(block, text=SENTINEL), *part.content[inner + 1 :])
        changed: Part = replace(part, content=content)
        old = block.text
    else:
        assert isinstance(part, Text)
        changed, old = replace(part, text=SENTINEL), part.text
    return replace(message, parts=(*message.parts[:index], changed, *message.parts[index + 1 :])), old


def restored(value: Any, old: str) -> Any:
    """Return the JSON value with the sentinel replaced by the original text."""
    if isinstance(value, dict):
        return {key: restored(item, old) for key, item in value.items()}
    if isinstance(value, list):
        return [restored(item, old) for item in value]
    return old if value == SENTINEL else value


def is_told(wire: Any) -> bool:
    """Return whether a text is made from fields, as in some of pi's and Gemini's; an edit replaces these fields."""
    if wire.get("role") in {"bashExecution", "branchSummary", "compactionSummary"}:
        return True
    answers = [part["functionResponse"]["response"] for part in wire.get("parts", ()) if "functionResponse" in part]
    return any(len(answer) != 1 or not all(isinstance(value, str) for value in answer.values()) for answer in answers)


class TestEdits:
    """Messages with one edit."""

    @each_format
    @slow
    @given(data=st.data())
    def test_an_edited_text_changes_nothing_else(self, name: str, data: st.DataObject) -> None:
        """If one text in a list is replaced, only that text is rendered again."""
        wires = [wire for wire in data.draw(WIRE[name]) if not is_told(wire)]
        read_back = read(wires, format=name)
        places = [(at, place) for at, message in enumerate(read_back) for place in text_places(message.parts)]
        assume(places)
        at, place = data.draw(st.sampled_from(places))
        before = copy.deepcopy(wires)
        read_back[at], old = edited(read_back[at], place)

        rendered = render(read_back, name)

        assert SENTINEL in json.dumps(rendered[at], ensure_ascii=False)
        assert json.dumps(restored(rendered, old)) == json.dumps(before)
        assert json.dumps(wires) == json.dumps(before)

    @each_format
    @slow
    @given(data=st.data())
    def test_a_replaced_result_keeps_the_fields_around_it(self, name: str, data: st.DataObject) -> None:
        """Pruning a tool result to a note keeps its id, its error flag and every unknown field."""
        wires = data.draw(WIRE[name])
        read_back = read(wires, format=name)
        pruned = [_pruned(message) for message in read_back]

        rendered = render(pruned, name)

        assert len(rendered) == len(wires)
        for wire, now in zip(wires, rendered, strict=True):
            assert _around_results(wire) == _around_results(now)

    @each_format
    @slow
    @given(data=st.data(), arguments=objects())
    def test_edited_arguments_leave_no_copy_behind(
        self, name: str, data: st.DataObject, arguments: dict[str, Any]
    ) -> None:
        """For every form of a call, an edit removes the old arguments, and the new ones are read back."""
        wires = data.draw(WIRE[name])
        read_back = read(wires, format=name)
        masked = [_with_arguments(message, {"masked": arguments}) for message in read_back]

        again = read(render(masked, name), format=name)

        assert _calls(again) == _calls(masked)


def _pruned(message: Message) -> Message:
    note = (Text(text="[pruned]"),)
    parts = (replace(part, content=note) if isinstance(part, ToolResult) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


def _around_results(wire: Any) -> Any:
    """Return a wire object without the content of its results."""
    kept = {key: value for key, value in wire.items() if key != "output"}
    if "parts" in wire:
        answers = [part.get("functionResponse", {}) for part in wire["parts"]]
        around = [
            {key: value for key, value in answer.items() if key not in {"response", "parts"}} for answer in answers
        ]
        beside = [{key: value for key, value in part.items() if key != "functionResponse"} for part in wire["parts"]]
        return {**kept, "parts": [around, beside]}
    if wire.get("role") in {"tool", "function", "toolResult", "tool_result"}:
        return {key: value for key, value in kept.items() if key != "content"}
    if not isinstance(wire.get("content"), list):
        return kept
    blocks = [
        {key: value for key, value in block.items() if key != "content"}
        if block.get("type") == "tool_result"
        else block
        for block in wire["content"]
    ]
    return {**kept, "content": blocks}


def _with_arguments(message: Message, arguments: dict[str, Any]) -> Message:
    parts = (replace(part, arguments=arguments) if isinstance(part, ToolCall) else part for part in message.parts)
    return replace(message, parts=tuple(parts))


def _blank(text: str) -> bool:
    return not text.strip()


def _said(listed: list[Message]) -> str:
    """Return every word in a list: texts, and the texts in results."""
    messages = [text for message in listed for text in (message.text, *(result.text for result in message.results))]
    return "\n".join(messages)


def _calls(listed: list[Message]) -> list[tuple[str, str, str]]:
    return [
        (call.id, call.name, _arguments(call))
        for message in listed
        if message.role == "assistant"
        for call in message.calls
    ]


def _arguments(call: ToolCall) -> str:
    """Return arguments, in any form that a format needs."""
    raw = call.arguments.get("_raw") if not isinstance(call.arguments, str) and len(call.arguments) == 1 else None
    text = encode_arguments(raw if isinstance(raw, str) else call.arguments)
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except ValueError:
        return text


def assert_carried(listed: list[Message], name: str) -> list[Any]:
    """Check that a rendering can be read by its own reader and has the content of the messages."""
    rendered = render(listed, name)
    again = read(json.loads(json.dumps(rendered)), format=name)
    assert json.dumps(render(again, name)) == json.dumps(rendered)
    said = _said(again)
    for message in listed:
        for part in message.parts:
            if isinstance(part, Text) and not _blank(part.text):
                assert part.text in said
            if isinstance(part, ToolResult):
                assert all(
                    _blank(block.text) or block.text in said for block in part.content if isinstance(block, Text)
                )
    if name == "gemini":  # what has no id gets one
        assume(all(call.id for message in listed for call in message.calls))
        assume(all(result.call_id for message in listed for result in message.results))
    assert _calls(again) == _calls(listed)
    assert [result.call_id for message in again for result in message.results] == [
        result.call_id for message in listed for result in message.results
    ]
    return rendered


def assert_accepted(rendered: list[Any], name: str) -> None:
    """Check that nothing is empty that the provider refuses to be empty."""
    for wire in rendered:
        if name == "anthropic":
            assert wire["content"]
            assert not isinstance(wire["content"], str) or not _blank(wire["content"])
            for block in wire["content"] if isinstance(wire["content"], list) else ():
                assert block["type"] != "text" or not _blank(block["text"])
        if name == "openai_chat" and wire["role"] != "tool":
            assert wire.get("content") or wire.get("tool_calls")
        if name == "openai_responses" and "role" in wire:
            assert wire["content"]


class TestOtherFormats:
    """Conversion from one format, or none, to another."""

    @each_format
    @slow
    @given(listed=conversations())
    def test_any_message_list_can_be_rendered_in_any_format(self, name: str, listed: list[Message]) -> None:
        """Texts, calls and results arrive, and nothing empty that a provider refuses."""
        assert_accepted(assert_carried(listed, name), name)

    @pytest.mark.parametrize(("name", "other"), list(permutations(NAMES, 2)))
    @settings(slow, max_examples=examples(15))
    @given(data=st.data())
    def test_a_message_list_of_one_format_can_be_rendered_in_another(
        self, name: str, other: str, data: st.DataObject
    ) -> None:
        """Messages of one provider can be sent to any other."""
        listed = read(data.draw(WIRE[name]), format=name)

        assert_accepted(assert_carried(listed, other), other)

    @slow
    @given(listed=conversations())
    def test_pi_carries_a_conversation_whole(self, listed: list[Message]) -> None:
        """A session file has the whole conversation: it loses no part of any kind."""
        messages = [part for message in listed for part in message.parts if not _is_reference(part)]
        again = [part for message in read(render(listed, "pi"), format="pi") for part in message.parts]

        for part in messages:
            if not isinstance(part, ToolResult | ToolCall):
                assert part in again

    @each_format
    @slow
    @given(listed=conversations())
    def test_a_rendering_is_recognised(self, name: str, listed: list[Message]) -> None:
        """If a rendering has a mark of its format, it is detected as that format."""
        rendered = render(listed, name)
        assume(any(FORMATS[name].is_own(wire) for wire in rendered))

        assert detect(rendered) == name


def _is_reference(part: Part) -> bool:
    return getattr(part, "url", None) is not None


class TestRecognition:
    """The detected format of a list."""

    @each_format
    @slow
    @given(data=st.data())
    def test_a_list_with_a_mark_is_recognised(self, name: str, data: st.DataObject) -> None:
        """The newest mark decides; session files of pi contain some marks of Anthropic's format."""
        wires = data.draw(WIRE[name])
        marked = [wire for wire in wires if any(format_.is_own(wire) for format_ in FORMATS.values())]
        assume(marked and FORMATS[name].is_own(marked[-1]))

        assert detect(wires) == name


def attempt(reading: Callable[[], list[Message]]) -> tuple[list[Message], FormatError | None]:
    """Return what was read, or the FormatError; the test gets any other error."""
    try:
        return reading(), None
    except FormatError as error:
        return [], error


class TestBadInput:
    """Input that is not messages."""

    @pytest.mark.parametrize("name", [None, *NAMES])
    @slow
    @given(value=json_values())
    def test_any_json_value_is_read_or_refused(self, name: str | None, value: Any) -> None:
        """Any JSON gives messages, or a FormatError that names the place."""
        _, refusal = attempt(lambda: read(value, format=name))

        assert refusal is None or refusal.where.startswith("messages")

    @each_format
    @slow
    @given(data=st.data(), guess=st.booleans())
    def test_a_damaged_list_is_read_or_refused(self, name: str, data: st.DataObject, guess: bool) -> None:  # noqa: FBT001
        """One wrong value anywhere gives usable messages, or a FormatError that names the place."""
        wires = data.draw(damaged(WIRE[name]))

        listed, refusal = attempt(lambda: read(wires, format=None if guess else name))

        assert refusal is None or refusal.where.startswith("messages")
        assert all(message.digest for message in listed)
        assert count_messages(listed) >= 0
        assert sum(len(unit.messages) for unit in units(listed)) == len(listed)
        for other in NAMES:
            json.dumps(render(listed, other))

    @slow
    @given(body=json_values() | objects(), data=st.data())
    def test_any_request_body_is_read_or_refused(self, body: Any, data: st.DataObject) -> None:
        """A body of any shape gives messages or a FormatError."""
        if isinstance(body, dict):
            key = data.draw(
                st.sampled_from(["messages", "input", "contents", "system", "instructions", "systemInstruction"])
            )
            body = {**body, key: data.draw(json_values())}

        listed, refusal = attempt(lambda: read_request(body))

        assert refusal is None or refusal.where
        for name in NAMES:
            json.dumps(render_request(listed, name))
