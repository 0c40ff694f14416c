"""Bodies of conversations that are sent again: what has not changed is not read again."""

import json
from typing import Any

import pytest

from holdfast.exchange import read_body
from holdfast.server.readings import MAX_KEPT, MAX_KEPT_BYTES, Readings

FORMATS = ("anthropic", "openai_chat", "openai_responses")


def make_body(texts: list[str], format: str) -> dict[str, Any]:
    """Make a body with these texts, the first of the user."""
    messages: list[dict[str, Any]] = []
    for index, text in enumerate(texts):
        messages.append({"role": "assistant" if index % 2 else "user", "content": text})
    if format == "anthropic":
        return {"system": "Be brief.", "messages": messages}
    if format == "openai_chat":
        return {"messages": [{"role": "system", "content": "Be brief."}, *messages]}
    return {"instructions": "Be brief.", "input": [{"type": "message", **message} for message in messages]}


@pytest.mark.parametrize("format", FORMATS)
def test_a_message_that_is_sent_again_is_not_read_again(format: str) -> None:
    """One that has changed is, with those after it. The result is that of reading all of it."""
    readings = Readings()
    first = readings.read(make_body(["one", "two", "three"], format), format=format, size=100)
    readings.read(make_body(["others", "two", "three"], format), format=format, size=100)
    body = make_body(["one", "two", "3", "four", "five"], format)
    second = readings.read(body, format=format, size=100)
    assert second == read_body(body, format=format)
    kept = [new is old for new, old in zip(second.messages[-5:], first.messages[-3:], strict=False)]
    assert kept == [True, True, False]


@pytest.mark.parametrize("format", FORMATS)
def test_requests_that_continue_the_same_one_are_both_recognised(format: str) -> None:
    """The other one stays, because both may be continued."""
    readings = Readings()
    readings.read(make_body(["one"], format), format=format, size=100)
    left = readings.read(make_body(["one", "two", "left"], format), format=format, size=100)
    right = readings.read(make_body(["one", "two", "right"], format), format=format, size=100)
    for before in (left, right):
        texts = [message.text for message in before.messages if message.role != "system"]
        after = readings.read(make_body([*texts, "next"], format), format=format, size=100)
        assert all(new is old for new, old in zip(after.messages[-4:], before.messages[-3:], strict=False))


def test_another_format_is_read_anew() -> None:
    """The same bytes are another message in another format."""
    readings = Readings()
    body = {"messages": [{"role": "user", "content": "one"}]}
    first = readings.read(body, format="anthropic", size=100)
    second = readings.read(body, format="openai_chat", size=100)
    assert first.messages[0] is not second.messages[0]
    assert second == read_body(body, format="openai_chat")


@pytest.mark.parametrize(
    "other", ['{"a": true, "b": 0.0}', '{"a": 1.0, "b": 0.0}', '{"a": 1, "b": -0.0}', '{"b": 0.0, "a": 1}']
)
def test_other_bytes_are_read_anew_also_if_the_values_are_equal(other: str) -> None:
    """Two clients may send the same call with a number and with a boolean; neither gets the arguments of the other."""

    def make(arguments: str) -> dict[str, Any]:
        call = {"type": "tool_use", "id": "toolu_1", "name": "run", "input": json.loads(arguments)}
        return {"messages": [{"role": "user", "content": "Run it."}, {"role": "assistant", "content": [call]}]}

    readings = Readings()
    readings.read(make('{"a": 1, "b": 0.0}'), format="anthropic", size=100)
    asked = readings.read(make(other), format="anthropic", size=100)
    assert json.dumps(asked.messages[1].calls[0].arguments) == other
    origin = asked.messages[1].origin
    assert origin is not None
    assert json.dumps(origin.data["content"][0]["input"]) == other


@pytest.mark.parametrize("size", [100, MAX_KEPT_BYTES // 2])
def test_only_the_last_requests_are_kept(size: int) -> None:
    """As many as `MAX_KEPT`, or as `MAX_KEPT_BYTES` have room for."""
    readings = Readings()
    first = readings.read(make_body(["one"], "anthropic"), format="anthropic", size=size)
    for number in range(MAX_KEPT):
        readings.read(make_body([str(number)], "anthropic"), format="anthropic", size=size)
    again = readings.read(make_body(["one"], "anthropic"), format="anthropic", size=size)
    assert again == first
    assert again.messages[1] is not first.messages[1]
