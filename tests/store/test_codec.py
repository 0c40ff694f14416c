"""Messages at rest: what goes in comes out, byte for byte where a provider wrote it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from holdfast import providers
from holdfast.errors import InputError
from holdfast.messages import Message, Opaque, Text, Thinking, ToolCall, ToolResult, Usage
from holdfast.store.codec import (
    bytes_text,
    decode_message,
    encode_message,
    from_json,
    pack_text,
    text_bytes,
    to_json,
    unpack_text,
    words,
)

ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "plain"},
    {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}, "x": 1.0}]},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s=="},
            {"type": "tool_use", "id": "t1", "name": "ls", "input": {"z": 1, "a": [True, None, 1e3]}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a.py", "k": 2}]}
        ],
    },
]


@pytest.mark.parametrize("wire", ANTHROPIC, ids=["text", "unknown fields", "thinking and call", "result"])
def test_a_providers_message_comes_back_byte_for_byte(wire: dict[str, Any]) -> None:
    """A message no one edited is kept as its provider wrote it and rendered so again."""
    (message,) = providers.read([wire], format="anthropic")
    kept = decode_message(encode_message(message))
    assert kept == message
    assert json.dumps(providers.render([kept], "anthropic")) == json.dumps([wire])


def test_an_edited_message_keeps_its_other_parts_as_they_were_written() -> None:
    """When one part of a message was edited, the others still come back byte for byte."""
    (message,) = providers.read([ANTHROPIC[1]], format="anthropic")
    edited = replace(message, parts=(*message.parts, Text(text="more")))
    kept = decode_message(encode_message(edited))
    assert kept == edited
    assert kept.parts[0].wire("anthropic") == ANTHROPIC[1]["content"][0]
    (result,) = providers.read([ANTHROPIC[3]], format="anthropic")
    changed = replace(result, parts=(*result.parts, Text(text="and words")))
    (part, _) = decode_message(encode_message(changed)).parts
    assert isinstance(part, ToolResult)
    assert part.content[0].wire("anthropic") == {"type": "text", "text": "a.py", "k": 2}


def test_what_is_known_from_elsewhere_is_kept_with_it() -> None:
    """Id, time, model, stop, name and usage come back, also where the provider's form says otherwise or nothing."""
    (message,) = providers.read([ANTHROPIC[0]], format="anthropic")
    known = replace(
        message, id="e1", timestamp=5, model="m", stop="end_turn", name="Ada", usage=Usage(input=1, output=2, total=3)
    )
    assert decode_message(encode_message(known)) == known
    pi = {"role": "user", "content": "hello", "timestamp": 7}
    (stamped,) = providers.read([pi], format="pi")
    assert stamped.timestamp == 7
    assert decode_message(encode_message(replace(stamped, timestamp=None))).timestamp is None


def test_a_form_that_no_provider_speaks_is_kept_in_ours() -> None:
    """A message read from an agent's own file, in a form we cannot read alone, is kept in the canonical form."""
    message = Message(role="user", parts=(Text(text="hi").read_from({"say": "hi"}, format="some-agent"),))
    message = message.read_from({"who": "user", "say": "hi"}, format="some-agent")
    assert to_json(message) == {"role": "user", "parts": [{"type": "text", "text": "hi"}]}
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize("text", ["", "x", "é" * 300, "half \ud83d", "\ud83d\ude00 as two", "nul \0", "改" * 500])
def test_any_text_survives(text: str) -> None:
    """Text of any length and any code points, halves of surrogate pairs included, comes back as it was."""
    assert unpack_text(pack_text(text)) == text
    assert bytes_text(text_bytes(text)) == text
    message = Message(role="tool", parts=(ToolResult(call_id=text, content=(Text(text=text),)),), id=text)
    assert decode_message(encode_message(message)) == message


def test_long_text_takes_less_room() -> None:
    """Text that is worth it is compressed."""
    assert len(pack_text("the same again " * 100)) < 200


def test_something_else_is_refused() -> None:
    """JSON that is no archived message is a typed error."""
    with pytest.raises(InputError, match="not an archived message"):
        from_json({"role": "user"})


def test_words_are_what_can_be_read() -> None:
    """The words of a message are its texts and tool results, not its thoughts, calls and pictures."""
    message = Message(
        role="assistant",
        parts=(
            Thinking(text="hidden"),
            Text(text="said"),
            ToolCall(id="c", name="n", arguments={}),
            ToolResult(call_id="c", content=(Text(text="one"), Opaque(kind="x", data=1), Text(text="two"))),
        ),
    )
    assert words(message) == "said\none\ntwo"
