"""One malformed part of a reply does not keep the rest of it out of the archive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Engine, Message, Opaque, Settings, providers
from holdfast.providers.incoming import MALFORMED
from holdfast.providers.replies import ReplyCollector
from holdfast.settings import Embedding
from support.strategies import examples, json_values

QUIET = Settings(embedding=Embedding(provider="none"))
WORDS = ["The first part.", "The last part."]

RESPONSES: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": WORDS[0]}]},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": WORDS[1]}]},
    ],
}
CHAT: dict[str, Any] = {
    "id": "chatcmpl-1",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": WORDS[0]},
                    {"type": "text", "text": "x"},
                    {"type": "text", "text": WORDS[1]},
                ],
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}],
            },
        }
    ],
}
ANTHROPIC: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "stop_reason": "end_turn",
    "content": [
        {"type": "text", "text": WORDS[0]},
        {"type": "tool_use", "id": "c1", "name": "ls", "input": {}},
        {"type": "text", "text": WORDS[1]},
    ],
}
GEMINI: dict[str, Any] = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"text": WORDS[0]}, {"functionCall": {"name": "ls", "args": {}}}, {"text": WORDS[1]}],
            }
        }
    ]
}
LISTS: dict[str, tuple[dict[str, Any], list[str | int]]] = {
    "openai_responses": (RESPONSES, ["output"]),
    "openai_chat": (CHAT, ["choices", 0, "message", "content"]),
    "anthropic": (ANTHROPIC, ["content"]),
    "gemini": (GEMINI, ["candidates", 0, "content", "parts"]),
}
"""A reply of each format, and the way to the list with its parts."""
BAD: list[Any] = [
    None,
    7,
    "text",
    [],
    {},
    {"type": 7},
    {"type": "message", "role": "martian", "content": 3},
    {"type": "message", "role": "assistant", "content": 3},
    {"type": "function_call", "call_id": "c1", "name": 5, "arguments": {}},
    {"type": "reasoning", "summary": "no list"},
    {"type": "text", "text": None},
    {"type": "tool_use", "id": [], "name": {}, "input": 3},
    {"functionCall": {"name": 4, "args": []}},
]


def damage(format: str, part: Any) -> dict[str, Any]:
    """Return a reply with another value instead of its second part."""
    body, way = LISTS[format]
    copy: dict[str, Any] = json.loads(json.dumps(body))
    place: Any = copy
    for step in way:
        place = place[step]
    place[1] = part
    return copy


def check(read: list[Message]) -> None:
    """The text of the other parts is there."""
    text = "\n".join(message.text for message in read)
    assert all(words in text for words in WORDS), text


def stream(format: str, body: dict[str, Any]) -> bytes:
    """Return a reply as the events of a stream."""
    events: list[dict[str, Any]] = []
    match format:
        case "openai_responses":
            for index, item in enumerate(body["output"]):
                events.append({"type": "response.output_item.done", "output_index": index, "item": item})
            events.append({"type": "response.completed", "response": {"id": "resp_1"}})
        case "anthropic":
            events.append({"type": "message_start", "message": {**body, "content": []}})
            for index, block in enumerate(body["content"]):
                events.append({"type": "content_block_start", "index": index, "content_block": block})
            events.append({"type": "message_stop"})
        case _:
            for part in body["choices"][0]["message"]["content"]:
                text = part.get("text") if isinstance(part, dict) else part
                events.append({"choices": [{"index": 0, "delta": {"content": text}}]})
            events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events) + b"data: [DONE]\n\n"


@pytest.mark.variants
@pytest.mark.parametrize("part", BAD, ids=json.dumps)
@pytest.mark.parametrize("format", LISTS)
def test_the_rest_of_a_reply_is_archived(tmp_path: Path, format: str, part: Any) -> None:
    """A program appends the reply as its HTTP client has returned it."""
    with Engine.open(tmp_path, settings=QUIET, background=False) as engine:
        session = engine.session("s")
        session.assemble([{"role": "user", "content": "Look."}], limit=200_000)
        session.append([damage(format, part)], format=format)
        check([row.message for row in session.messages()])


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("part", BAD, ids=json.dumps)
@pytest.mark.parametrize("format", ["openai_responses", "openai_chat", "anthropic"])
def test_the_rest_of_a_reply_that_passes_is_read(format: str, part: Any, *, is_stream: bool) -> None:
    """The proxy reads a reply on its way, whole or streamed."""
    body = damage(format, part)
    collector = ReplyCollector(format, is_stream=is_stream)
    collector.feed(stream(format, body) if is_stream else json.dumps(body).encode())
    check(providers.read(collector.messages(), format=format, keep_malformed=True))


def test_the_malformed_item_is_kept_and_sent_as_it_came() -> None:
    """Its place in the reply stays, and a request with it is the same again."""
    item = {"type": "function_call", "call_id": "c1", "name": 5, "arguments": "{}", "x": [1]}
    read = providers.read(damage("openai_responses", item)["output"], format="openai_responses", keep_malformed=True)
    assert [type(part) for message in read for part in message.parts][1:] != []
    kept = [part for message in read for part in message.parts if isinstance(part, Opaque)]
    assert [part.kind for part in kept] == [MALFORMED]
    assert providers.render(read, "openai_responses")[1] == item


@settings(max_examples=examples(200), deadline=None)
@given(format=st.sampled_from(sorted(LISTS)), part=json_values())
def test_any_part_of_a_reply_may_be_malformed(format: str, part: Any) -> None:
    """Whatever one part is, the others are read."""
    name = format
    body, way = damage(format, part), LISTS[format][1]
    place: Any = body
    for step in way[:-1]:
        place = place[step]
    if format == "openai_responses":
        collector = ReplyCollector(format, is_stream=False)
        collector.feed(json.dumps(body).encode())
        check(providers.read(collector.messages(), format=name, keep_malformed=True))
    else:
        check(providers.read([place], format=name, keep_malformed=True))


@settings(max_examples=examples(200), deadline=None)
@given(format=st.sampled_from(["openai_responses", "openai_chat", "anthropic"]), value=json_values(), data=st.data())
def test_any_field_of_a_reply_may_be_malformed(format: str, value: Any, data: st.DataObject) -> None:
    """Whatever a field of the body is, reading it is no error, whole or streamed."""
    body = json.loads(json.dumps(LISTS[format][0]))
    body[data.draw(st.sampled_from(sorted(body)))] = value
    collector = ReplyCollector(format, is_stream=False)
    collector.feed(json.dumps(body).encode())
    providers.read(collector.messages(), format=format, keep_malformed=True)
    event = {"type": data.draw(st.sampled_from(EVENTS)), "index": 0, "output_index": 0}
    event[data.draw(st.sampled_from(FIELDS))] = value
    collector = ReplyCollector(format, is_stream=True)
    collector.feed(stream(format, LISTS[format][0]).replace(b"data: [DONE]\n\n", b""))
    collector.feed(b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n")
    providers.read(collector.received(), format=format, keep_malformed=True)


EVENTS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "response.output_item.added",
    "response.output_item.done",
    "response.output_text.delta",
    "response.completed",
]
FIELDS = ["message", "content_block", "delta", "item", "response", "choices", "usage", "index", "output_index"]
