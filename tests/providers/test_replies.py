"""The message of a reply, collected from the bytes of its stream."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

import pytest

from holdfast.messages import ToolCall
from holdfast.models.scripted import ScriptedReply
from holdfast.providers.replies import AnthropicStream, ChatStream, ReplyCollector, read_reply
from holdfast.testing.provider import anthropic_events, openai_events, responses_events
from support.wrong_values import change_each_value

EVENTS = {"anthropic": anthropic_events, "openai_chat": openai_events, "openai_responses": responses_events}

SEARCH = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"type": "web_search_result"}]}
CITATION = {"type": "char_location", "cited_text": "Ö", "document_index": 0}


def begin(index: int, **block: Any) -> dict[str, Any]:
    """Make the event that begins a block."""
    return {"type": "content_block_start", "index": index, "content_block": block}


def go_on(index: int, kind: str, **delta: Any) -> dict[str, Any]:
    """Make an event that continues a block."""
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


ANTHROPIC: list[dict[str, Any]] = [
    {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 3}}},
    begin(0, type="thinking", thinking="", signature=""),
    go_on(0, "thinking_delta", thinking="Für "),
    go_on(0, "thinking_delta", thinking="日本"),
    {"type": "ping"},
    go_on(0, "signature_delta", signature="sig=="),
    {"type": "content_block_stop", "index": 0},
    begin(1, type="server_tool_use", id="srv_1", input={}),
    go_on(1, "input_json_delta", partial_json='{"q":'),
    go_on(1, "input_json_delta", partial_json='"ü"}'),
    begin(2, **SEARCH),
    begin(3, type="text", text=""),
    go_on(3, "citations_delta", citation=CITATION),
    go_on(3, "text_delta", text="naïve 😀"),
    begin(4, type="tool_use", id="a", name="ls", input={}),
    begin(5, type="tool_use", id="b", name="cat", input={}),
    go_on(5, "input_json_delta", partial_json='{"f":"é"}'),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 5}},
    {"type": "message_stop"},
]
CONTENT = [
    {"type": "thinking", "thinking": "Für 日本", "signature": "sig=="},
    {"type": "server_tool_use", "id": "srv_1", "input": {"q": "ü"}},
    SEARCH,
    {"type": "text", "text": "naïve 😀", "citations": [CITATION]},
    {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
    {"type": "tool_use", "id": "b", "name": "cat", "input": {"f": "é"}},
]


def stream(events: list[Any], *, end: str = "\n") -> bytes:
    """Write events as a provider sends them; text goes as it is."""
    lines = [event if isinstance(event, str) else json.dumps(event, ensure_ascii=False) for event in events]
    return "".join(f"event: x{end}data: {line}{end}{end}" for line in lines).encode()


def collect(format: str, *chunks: bytes) -> list[dict[str, Any]]:
    """Collect a stream that comes in these chunks."""
    collector = ReplyCollector(format, is_stream=True)
    for chunk in chunks:
        collector.feed(chunk)
    return collector.messages()


def chat(delta: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """Make a chunk of Chat Completions."""
    return {"choices": [{"index": 0, "delta": delta, **fields}]}


class TestReplyCollector:
    @pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
    def test_a_stream_that_is_split_at_any_byte(self, end: str) -> None:
        data = stream(ANTHROPIC, end=end)
        whole = collect("anthropic", data)
        assert whole[0]["content"] == CONTENT
        assert whole[0]["usage"] == {"input_tokens": 3, "output_tokens": 5}
        assert collect("anthropic", *(data[at : at + 1] for at in range(len(data)))) == whole
        for at in range(0, len(data), 7):
            assert collect("anthropic", data[:at], data[at:]) == whole

    def test_chat_with_parallel_calls_reasoning_and_a_last_chunk_of_usage(self) -> None:
        def call(index: int, **fields: Any) -> dict[str, Any]:
            return chat({"tool_calls": [{"index": index, **fields}]})

        events = [
            chat({"role": "assistant", "content": None, "reasoning_content": "Let "}),
            chat({"reasoning_content": "me see."}),
            call(0, id="a", type="function", function={"name": "ls", "arguments": ""}),
            call(1, id="b", type="function", function={"name": "cat", "arguments": '{"f'}),
            call(0, function={"arguments": "{}"}),
            call(1, function={"arguments": '":1}'}),
            chat({}, finish_reason="tool_calls"),
            {"choices": [], "usage": {"prompt_tokens": 9}},
            "[DONE]",
        ]
        (message,) = collect("openai_chat", stream(events))
        assert message["reasoning_content"] == "Let me see."
        assert [one["function"] for one in message["tool_calls"]] == [
            {"name": "ls", "arguments": "{}"},
            {"name": "cat", "arguments": '{"f":1}'},
        ]
        assert message["usage"] == {"prompt_tokens": 9}

    def test_a_chat_stream_that_ends_without_done_is_complete_by_its_finish_reason(self) -> None:
        events = [chat({"content": "Hello."}), chat({}, finish_reason="stop")]
        assert [one["content"] for one in collect("openai_chat", stream(events))] == ["Hello."]
        assert not collect("openai_chat", stream(events[:1]))

    def test_a_last_event_without_its_empty_line_counts(self) -> None:
        assert collect("openai_chat", stream([chat({"content": "Hello."}), "[DONE]"]).rstrip())
        assert collect("anthropic", stream(ANTHROPIC).rstrip())

    def test_a_field_error_that_is_null_is_no_error(self) -> None:
        events = [{**chat({"content": "Hello."}), "error": None}, "[DONE]"]
        assert collect("openai_chat", stream(events))

    @pytest.mark.parametrize(
        ("format", "event"),
        [
            ("anthropic", {"type": "error", "error": {"type": "overloaded_error"}}),
            ("openai_chat", {"error": {"message": "no"}}),
            ("openai_responses", {"type": "response.failed", "response": {"error": {}}}),
        ],
    )
    def test_a_stream_with_an_error_has_no_message(self, format: str, event: dict[str, Any]) -> None:
        begin = [*ANTHROPIC[:-1], chat({"content": "Hello."})]
        assert not collect(format, stream([*begin, event, "[DONE]"]))

    def test_responses_are_collected_from_their_items_if_the_last_event_has_none(self) -> None:
        """The service behind Codex sends only id and usage at the end."""
        item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
        patch = {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** Begin Patch"}
        events = [
            {"type": "response.created", "response": {"id": "r", "error": None}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 1, "item": patch},
            {"type": "response.completed", "response": {"id": "r", "output": []}},
        ]
        assert collect("openai_responses", stream(events)) == [item, patch]

    @pytest.mark.parametrize("format", ["anthropic", "openai_chat", "openai_responses"])
    def test_events_of_the_wrong_shape_are_skipped(self, format: str) -> None:
        odd: list[Any] = [
            {"type": "message_delta", "delta": None, "usage": 5},
            {"type": "message_start", "message": []},
            {"type": "content_block_start", "index": None, "content_block": 7},
            {"type": "content_block_delta", "index": [], "delta": "x"},
            {"type": "response.completed", "response": 3},
            {"choices": [None]},
            {"choices": {"a": 1}},
            chat({"tool_calls": [None, {"index": None, "function": 4}]}),
            chat({"tool_calls": 5}),
            chat(None),
            [1],
            "no json",
            "",
        ]
        for event in odd:
            collect(format, stream([event]))
        collect(format, stream([*odd, "[DONE]"]))

    @pytest.mark.parametrize("format", EVENTS)
    def test_no_value_of_the_wrong_kind_ends_the_reading(self, format: str) -> None:
        """The client gets such a reply too: a provider may change a field."""
        reply = ScriptedReply(
            text="naïve 😀", thinking="hm", signature="s", calls=(ToolCall(id="a", name="ls", arguments={}),)
        )
        events = [data for _, data in EVENTS[format](reply)]
        for changed in change_each_value(events):
            collector = ReplyCollector(format, is_stream=True)
            collector.feed(stream(changed))
            collector.received()
        collect(format, stream(["[" * 100_000, *events]))

    def test_a_chat_reply_that_ends_while_it_thinks_is_a_message(self) -> None:
        thought = {"reasoning_content": "The port"}
        (streamed,) = collect("openai_chat", stream([chat(thought), chat({}, finish_reason="length")]))
        (whole,) = read_reply({"choices": [{"index": 0, "message": {"role": "assistant", **thought}}]}, "openai_chat")
        assert streamed["reasoning_content"] == whole["reasoning_content"] == "The port"

    def test_a_custom_tool_call_that_was_cut_is_received(self) -> None:
        """Codex sends patches so."""
        call = {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": ""}
        collector = ReplyCollector("openai_responses", is_stream=True)
        kind = "response.custom_tool_call_input.delta"
        pieces = [{"type": kind, "output_index": 0, "delta": piece} for piece in ("*** Begin", " Patch")]
        added = {"type": "response.output_item.added", "output_index": 0, "item": call}
        collector.feed(stream([added, *pieces]))
        assert collector.received() == [{**call, "input": "*** Begin Patch"}]
        assert collector.is_cut

    def test_a_very_long_event_is_read_in_linear_time(self) -> None:
        """Sixteen times as much text takes far less than 256 times the processor time."""

        def measure(megabytes: int) -> float:
            text = "x" * (megabytes * 2**20)
            item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
            data = stream([{"type": "response.completed", "response": {"output": [item]}}])
            chunks = [data[at : at + 4096] for at in range(0, len(data), 4096)]
            start = time.process_time()
            found = collect("openai_responses", *chunks)
            taken = time.process_time() - start
            assert found == [item]
            return taken

        assert measure(32) < 100 * measure(2)


# --- long streams --------------------------------------------------------------------------


def count_lines(stream: AnthropicStream | ChatStream, events: Sequence[dict[str, Any]]) -> int:
    """Count the lines of Python that a stream runs for its events."""
    lines = 0

    def see(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        for event in events:
            stream.add(event)
    finally:
        sys.settrace(before)
    return lines


def call_events(number: int) -> list[dict[str, Any]]:
    """Return a stream with this many calls, each with an index of its own."""
    return [
        {"choices": [{"delta": {"tool_calls": [{"index": index, "id": f"c{index}", "function": {"name": "f"}}]}}]}
        for index in range(number)
    ]


def test_work_grows_with_the_number_of_calls() -> None:
    """Twice as many calls take twice the work."""
    assert count_lines(ChatStream(), call_events(400)) < 2.2 * count_lines(ChatStream(), call_events(200))


def test_every_citation_is_kept() -> None:
    """In order, after those that came with the block, and without a copy of the list for each."""
    stream = AnthropicStream()
    block = {"type": "text", "text": "", "citations": [{"cited_text": "first"}]}
    stream.add({"type": "message_start", "message": {"role": "assistant"}})
    stream.add({"type": "content_block_start", "index": 0, "content_block": block})
    for number in range(3):
        delta = {"type": "citations_delta", "citation": {"cited_text": str(number)}}
        stream.add({"type": "content_block_delta", "index": 0, "delta": delta})
    (content,) = stream.body()["content"]
    assert [one["cited_text"] for one in content["citations"]] == ["first", "0", "1", "2"]
